//! What each command asks of a model, and what it says of one that has not got it.

use crate::common::{attend, ran};
use crate::support::{lines, model, numbers, text};
use attend_testkit::files::safetensors::{self, Tensor};
use attend_testkit::golden::{Random, read_safetensors};
use serde_json::json;
use std::path::{Path, PathBuf};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_model_without_the_head_says_what_it_can_do() {
    let place = folder();
    let base = model(place.path(), "bert-base", json!({}));
    let decoder = model(place.path(), "llama-gqa", json!({}));
    let classifier = model(place.path(), "bert-seqcls", json!({}));
    for (model, arguments, wanted) in [
        (&base, &["classify", "w5"][..], "a sequence-classification head"),
        (&base, &["tag", "w5"], "a token-classification head"),
        (&base, &["fill", "w5"], "it can embed, similarity, rerank"),
        (&base, &["answer", "--context", "w5", "w6"], "question-answering"),
        (&base, &["zero-shot", "--labels", "w5", "w6"], "entailment"),
        (&decoder, &["fill", "w5"], "it can run, embed"),
        (&classifier, &["zero-shot", "--labels", "w5", "w6"], "its labels are LABEL_0, LABEL_1, LABEL_2"),
        (&classifier, &["tag", "w5"], "it can embed, similarity, classify, zero-shot"),
    ] {
        let run = ran(attend(place.path()).args(arguments).arg("-m").arg(model));
        let line = run.error(1);
        assert!(line.contains(wanted), "{arguments:?}: {line}");
    }
    // No model is no question of heads.
    assert!(ran(attend(place.path()).args(["embed", "w5"])).error(2).contains("-m"));
}

#[test]
fn mistakes_name_their_input() {
    let place = folder();
    let filler = model(place.path(), "bert-mlm", json!({}));
    let answerer = model(place.path(), "bert-qa", json!({}));
    let judge = model(place.path(), "bert-seqcls", json!({"id2label": {"0": "no", "1": "entailment", "2": "so"}}));
    let long = text(60, 3);
    for (model, code, arguments, wanted) in [
        (&filler, 1, &["fill", "w5 [MASK]", "w6"][..], "text 2: the text must contain [MASK]"),
        (&filler, 1, &["fill", "[MASK]", &long], "text 2"),
        (&answerer, 2, &["answer", "w5"], "--context"),
        (&answerer, 2, &["answer", "--context", " ", "w5"], "context is empty"),
        (&answerer, 2, &["answer", "--context", "w5", "w6", "--max-length", "41"], "40"),
        (&answerer, 2, &["answer", "--context", "w5", "w6", "--doc-stride", "40"], "doc_stride"),
        (&judge, 2, &["zero-shot", "w5"], "--labels"),
        (&judge, 2, &["zero-shot", "--labels", "w5", "--hypothesis-template", "no place", "w6"], "{}"),
        (&judge, 2, &["classify", "--function", "cosine", "w5"], "--function"),
    ] {
        let run = ran(attend(place.path()).args(arguments).arg("-m").arg(model));
        let line = run.error(code);
        assert!(line.contains(wanted), "{arguments:?}: {line}");
    }
}

#[test]
fn a_hypothesis_is_never_cut() {
    let place = folder();
    let judge = model(place.path(), "bert-seqcls", json!({"id2label": {"0": "no", "1": "entailment", "2": "so"}}));
    let judged = |text: &str| {
        let found =
            lines("zero-shot", &judge, &["--labels", "w5,w6", "--hypothesis-template", "w7 {}", "--truncate", text]);
        found[0]
            .as_array()
            .expect("labels")
            .iter()
            .map(|one| one["score"].as_f64().expect("a score"))
            .collect::<Vec<f64>>()
    };
    // 40 positions: three special tokens, two words of hypothesis, 35 of text.
    let words = text(60, 1);
    let held: Vec<&str> = words.split(' ').take(35).collect();
    assert_eq!(judged(&words), judged(&held.join(" ")));
}

#[test]
fn texts_are_compared_in_pairs_with_a_query_and_each_with_each() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    let score = |arguments: &[&str]| lines("similarity", &model, arguments);
    let pair = score(&["w5 w6", "w7"])[0]["score"].as_f64().expect("a score");
    let all = score(&["w5 w6", "w7", "w5 w6"]);
    let rows: Vec<Vec<f64>> = all.iter().map(|row| numbers(&row["scores"])).collect();
    assert_eq!((rows.len(), rows[0][1], rows[1][0]), (3, pair, pair));
    assert!((rows[0][0] - 1.0).abs() < 1e-6 && (rows[0][2] - 1.0).abs() < 1e-6);
    let asked: Vec<f64> =
        score(&["--query", "w5 w6", "w7", "w5 w6"]).iter().filter_map(|row| row["score"].as_f64()).collect();
    assert_eq!(asked, [pair, rows[0][2]]);
    assert!(ran(attend(place.path()).args(["similarity", "w5", "-m"]).arg(&model)).error(2).contains("--query"));
    // By vectors, without a cross-encoder.
    let ranked = lines("rerank", &model, &["--query", "w5 w6", "--top-n", "1", "w7", "w5 w6"]);
    assert_eq!((&ranked[0][0]["index"], &ranked[0][0]["text"]), (&json!(1), &json!("w5 w6")));
    assert_eq!(ranked[0].as_array().map(Vec::len), Some(1));
}

/// A classifier of 3 labels on the encoder-decoder of a golden case, whose texts end with the tokenizer's `[SEP]`.
fn encoder_decoder(place: &Path) -> PathBuf {
    let labels = json!({"0": "contradiction", "1": "neutral", "2": "entailment"});
    let changes = json!({"architectures": ["BartForSequenceClassification"], "id2label": labels, "eos_token_id": 3});
    let path = model(place, "bart", changes);
    let mut random = Random(7);
    let mut tensors = read_safetensors(&path.join("model.safetensors"));
    tensors.retain(|name, _| name.starts_with("model."));
    let mut list: Vec<(String, Vec<usize>, Vec<f32>)> =
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone(), tensor.to_f32())).collect();
    for (name, shape) in [
        ("dense.weight", vec![32, 32]),
        ("dense.bias", vec![32]),
        ("out_proj.weight", vec![3, 32]),
        ("out_proj.bias", vec![3]),
    ] {
        let values = random.normals(shape.iter().product());
        list.push((format!("classification_head.{name}"), shape, values));
    }
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let list: Vec<Tensor> =
        list.iter().map(|(name, shape, values)| Tensor::new(name, "F32", shape, bytes(values))).collect();
    std::fs::write(path.join("model.safetensors"), safetensors::file(&list)).expect("written");
    path
}

/// Heads on the decoder of an encoder-decoder, which reads the text behind its encoder: as `logits` has them.
#[test]
fn classes_by_an_encoder_decoder() {
    let place = folder();
    let classifier = encoder_decoder(place.path());
    let texts = ["w5 w6 w7", "w8"];
    let found = lines("classify", &classifier, &texts);
    for (text, labels) in texts.iter().zip(&found) {
        let mut command = attend(place.path());
        let logits = ran(command.args(["logits", text, "--json", "--dtype", "f32", "-m"]).arg(&classifier)).json();
        let top = logits["rows"][0]["top"].as_array().expect("logits");
        assert_eq!(top.len(), 3);
        for (label, logit) in labels.as_array().expect("labels").iter().zip(top) {
            let names = ["contradiction", "neutral", "entailment"];
            assert_eq!(label["label"], names[logit["id"].as_u64().expect("an id") as usize]);
            let probability = logit["logprob"].as_f64().expect("a number").exp();
            assert!((label["score"].as_f64().expect("a score") - probability).abs() < 1e-5);
        }
    }
    let judged = &lines("zero-shot", &classifier, &["--labels", "w9,w10", "w5 w6"])[0];
    let total: f64 = judged.as_array().expect("labels").iter().filter_map(|one| one["score"].as_f64()).sum();
    assert!((total - 1.0).abs() < 1e-6, "{judged}");
}
