//! Vectors of texts: every way of pooling, the modules of a sentence-transformers folder, prompts, lengths.

use crate::common::{attend, ran};
use crate::support::{assert_close, lines, model, modules, numbers, text, vectors, write};
use attend_testkit::files::safetensors::{self, Tensor};
use serde_json::{Value, json};
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

const TEXTS: [&str; 3] = ["w5 w6 w7 w8", "w9", "w10 w11 w12 w13 w14 w15 w16 w17 w18"];

/// The vectors of a text's tokens.
fn tokens(model: &Path, text: &str) -> Vec<Vec<f64>> {
    let found = lines("embed", model, &["--pooling", "none", "--no-normalize", text]);
    found[0]["embedding"].as_array().expect("rows").iter().map(numbers).collect()
}

fn unit(vector: &[f64]) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

/// The formulas, by the names of the flags in old files.
fn formula(mode: &str, rows: &[Vec<f64>]) -> Vec<f64> {
    let (count, last) = (rows.len() as f64, rows.len() - 1);
    let sum = |weight: &dyn Fn(usize) -> f64| -> Vec<f64> {
        (0..rows[0].len()).map(|i| rows.iter().enumerate().map(|(t, row)| weight(t) * row[i]).sum()).collect()
    };
    match mode {
        "cls_token" => rows[0].clone(),
        "lasttoken" => rows[last].clone(),
        "max_tokens" => (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i]).fold(f64::MIN, f64::max)).collect(),
        "mean_tokens" => sum(&|_| 1.0 / count),
        "mean_sqrt_len_tokens" => sum(&|_| 1.0 / count.sqrt()),
        "weightedmean_tokens" => sum(&|t| (t + 1) as f64 / (count * (count + 1.0) / 2.0)),
        other => panic!("{other}"),
    }
}

const MODES: [(&str, &str); 6] = [
    ("cls_token", "cls"),
    ("max_tokens", "max"),
    ("mean_tokens", "mean"),
    ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    ("weightedmean_tokens", "weightedmean"),
    ("lasttoken", "lasttoken"),
];

/// EMB-01: as the folder says, in old and new files, with and without the module that normalises.
#[test]
fn the_declared_pooling_is_what_is_done() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    let rows: Vec<Vec<Vec<f64>>> = TEXTS.iter().map(|text| tokens(&model, text)).collect();
    for (index, (old, new)) in MODES.into_iter().enumerate() {
        let normalised = index % 2 == 0;
        let kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")];
        modules(&model, if normalised { &kinds } else { &kinds[..2] });
        let mut flags = json!({"word_embedding_dimension": 32});
        for (mode, _) in MODES {
            flags[format!("pooling_mode_{mode}")] = json!(mode == old);
        }
        for config in [flags, json!({"embedding_dimension": 32, "pooling_mode": new, "include_prompt": true})] {
            write(&model, "1_Pooling/config.json", &config);
            for (found, rows) in vectors(&model, &TEXTS).iter().zip(&rows) {
                let wanted = formula(old, rows);
                assert_close(found, &if normalised { unit(&wanted) } else { wanted }, 1e-5);
            }
        }
    }
    let several =
        json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true});
    write(&model, "1_Pooling/config.json", &several);
    let wanted =
        [formula("cls_token", &rows[0]), formula("max_tokens", &rows[0]), formula("mean_tokens", &rows[0])].concat();
    assert_close(&vectors(&model, &[TEXTS[0]])[0], &wanted, 1e-5);
}

#[test]
fn what_is_not_known_is_refused() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    modules(&model, &[("Transformer", ""), ("Pooling", "1_Pooling")]);
    for (config, wanted) in [
        (json!({"pooling_mode_attention_tokens": true}), "pooling_mode_attention_tokens"),
        (json!({"pooling_mode": "median"}), "median"),
        (json!({"pooling_mode_mean_tokens": false}), "pooling_mode"),
        (json!({"pooling_mode_mean_tokens": "yes"}), "pooling_mode_mean_tokens"),
    ] {
        write(&model, "1_Pooling/config.json", &config);
        let run = ran(attend(place.path()).args(["embed", "w5", "-m"]).arg(&model));
        let line = run.error(1);
        assert!(line.contains(wanted) && line.contains("1_Pooling"), "{config}: {line}");
    }
    for (kind, path, wanted) in
        [("CNN", "", "CNN"), ("Pooling", "2_Absent", "2_Absent/config.json"), ("Pooling", "../..", "..")]
    {
        modules(&model, &[("Transformer", ""), (kind, path)]);
        let run = ran(attend(place.path()).args(["embed", "w5", "-m"]).arg(&model));
        let line = run.error(1);
        assert!(line.contains(wanted), "{kind} {path}: {line}");
    }
}

#[test]
fn a_folder_that_says_nothing_gives_the_mean_and_says_so() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    let run = ran(attend(place.path()).args(["embed", "w5 w6", "--json", "--dtype", "f32", "-m"]).arg(&model));
    let found: Value = serde_json::from_str(run.text()).expect("JSON");
    assert_close(&numbers(&found["embedding"]), &formula("mean_tokens", &tokens(&model, "w5 w6")), 1e-5);
    assert!(run.err.contains("note: ") && run.err.contains("mean"), "{}", run.err);
    // A decoder's last token has seen all the others.
    let decoder = super::support::model(place.path(), "llama-gqa", json!({}));
    let found = vectors(&decoder, &["w5 w6"]);
    assert_close(&found[0], &formula("lasttoken", &tokens(&decoder, "w5 w6")), 1e-5);
}

#[test]
fn a_dense_module_follows_the_pooling() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    modules(&model, &[("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "")]);
    write(&model, "1_Pooling/config.json", &json!({"pooling_mode_mean_tokens": true}));
    let weight: Vec<f32> = (0..3 * 32).map(|i| ((i * 37 % 64) as f32 - 32.0) / 64.0).collect();
    let bias = [0.25f32, -0.5, 1.0];
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let file = safetensors::file(&[
        Tensor::new("linear.weight", "F32", &[3, 32], bytes(&weight)),
        Tensor::new("linear.bias", "F32", &[3], bytes(&bias)),
    ]);
    write(
        &model,
        "2_Dense/config.json",
        &json!({"in_features": 32, "out_features": 3, "bias": true, "activation_function": "torch.nn.modules.activation.Tanh"}),
    );
    std::fs::write(model.join("2_Dense/model.safetensors"), file).expect("written");
    let mean = formula("mean_tokens", &tokens(&model, "w5 w6"));
    let dense = |row: usize| {
        let dot: f64 = mean.iter().zip(&weight[32 * row..]).map(|(x, w)| x * f64::from(*w)).sum();
        (dot + f64::from(bias[row])).tanh()
    };
    let wanted: Vec<f64> = (0..3).map(dense).collect();
    assert_close(&vectors(&model, &["w5 w6", "--no-normalize"])[0], &wanted, 1e-5);
    assert_close(&vectors(&model, &["w5 w6"])[0], &unit(&wanted), 1e-5);
    assert_close(&vectors(&model, &["w5 w6", "--dimensions", "2"])[0], &unit(&wanted[..2]), 1e-5);
    let run = ran(attend(place.path()).args(["embed", "w5", "--dimensions", "4", "-m"]).arg(&model));
    assert!(run.error(2).contains("dimensions"), "{}", run.err);
}

/// A folder of an older library: weights, tokenizer and lengths in the first module's folder.
#[test]
fn the_transformer_may_have_a_folder_of_its_own() {
    let place = folder();
    let flat = model(place.path(), "bert-base", json!({}));
    modules(&flat, &[("Transformer", ""), ("Pooling", "1_Pooling")]);
    write(&flat, "1_Pooling/config.json", &json!({"pooling_mode_cls_token": true}));
    write(&flat, "sentence_bert_config.json", &json!({"max_seq_length": 6}));
    let deep = place.path().join("deep");
    let inside = deep.join("0_Transformer");
    std::fs::create_dir_all(&inside).expect("made");
    for name in
        ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"]
    {
        std::fs::copy(flat.join(name), inside.join(name)).expect("copied");
    }
    modules(&deep, &[("Transformer", "0_Transformer"), ("Pooling", "1_Pooling")]);
    write(&deep, "1_Pooling/config.json", &json!({"pooling_mode_cls_token": true}));
    write(&deep, "config_sentence_transformers.json", &json!({"prompts": {"query": "w20 "}}));
    assert_eq!(vectors(&deep, &TEXTS), vectors(&flat, &TEXTS));
    let first: Vec<f64> = tokens(&flat, TEXTS[0]).remove(0);
    assert_close(&vectors(&deep, &TEXTS)[0], &first, 1e-5);
    assert_eq!(vectors(&deep, &["w5", "--role", "query"]), vectors(&flat, &["w20 w5"]));
    let run = |arguments: &[&str]| ran(attend(place.path()).args(arguments).arg("-m").arg(&deep));
    assert_eq!(run(&["tokens", "w5 w6", "--json"]).json()["ids"].as_array().map(Vec::len), Some(4));
    assert_eq!(run(&["show", "--json"]).json()["architecture"], "bert");
    assert_eq!(run(&["plan", "--json", "--no-speed"]).json()["architecture"], "bert");
    let gguf = place.path().join("deep.gguf");
    run(&["convert", gguf.to_str().expect("text"), "--dtype", "f32"]).text();
    assert_close(&vectors(&gguf, &[TEXTS[0]])[0], &unit(&first), 1e-5);
    let metadata = run(&["show", "--metadata"]);
    assert_eq!(metadata.code, Some(0), "{metadata:?}");
    let checkpoint = attend::format::Checkpoint::open(&gguf).expect("opened");
    assert_eq!(checkpoint.gguf().expect("metadata").str("general.name").expect("text"), Some("deep"));
    modules(&deep, &[("Transformer", "0_Absent"), ("Pooling", "1_Pooling")]);
    assert!(run(&["embed", "w5"]).error(1).contains("0_Absent"));
    modules(&deep, &[("Transformer", "0_Transformer"), ("Transformer", "0_Transformer")]);
    assert!(run(&["embed", "w5"]).error(1).contains("[1].type"));
}

#[test]
fn prompts_stand_in_front() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({}));
    modules(&model, &[("Transformer", ""), ("Pooling", "1_Pooling")]);
    write(&model, "1_Pooling/config.json", &json!({"pooling_mode": "mean"}));
    let prompts = json!({"prompts": {"query": "w20 w21 ", "document": "w30 ", "other": "w40 w41 "}, "default_prompt_name": "other"});
    write(&model, "config_sentence_transformers.json", &prompts);
    let plain = |text: &str| vectors(&model, &["--prompt", "", text]).remove(0);
    assert_close(&vectors(&model, &["w5"])[0], &plain("w40 w41 w5"), 0.0);
    assert_close(&vectors(&model, &["w5", "--prompt-name", "query"])[0], &plain("w20 w21 w5"), 0.0);
    assert_close(&vectors(&model, &["w5", "--role", "document"])[0], &plain("w30 w5"), 0.0);
    let ranked = lines("rerank", &model, &["--query", "w5", "w6"]);
    let (query, document) = (unit(&plain("w20 w21 w5")), unit(&plain("w30 w6")));
    let cosine: f64 = query.iter().zip(&document).map(|(a, b)| a * b).sum();
    assert!((ranked[0][0]["score"].as_f64().expect("a score") - cosine).abs() < 1e-5);
    // A model may leave its prompt out of the mean.
    write(&model, "1_Pooling/config.json", &json!({"pooling_mode": "mean", "include_prompt": false}));
    let rows = tokens(&model, "w5");
    let run = ran(attend(place.path()).args(["embed", "w5", "--prompt-name", "absent", "-m"]).arg(&model));
    assert!(run.error(2).contains("query"), "{}", run.err);
    // The rows that `tokens` sees are those behind the prompt's three (its first token among them).
    assert_eq!(rows.len(), 2);
    assert_close(&vectors(&model, &["w5"])[0], &formula("mean_tokens", &rows), 1e-5);
}

/// EMB-03: the length is what the sentence configuration says, whatever tokenizer.json says, with the end token kept.
#[test]
fn texts_are_cut_where_the_folder_says() {
    let place = folder();
    let model = model(place.path(), "bert-base", json!({"max_position_embeddings": 40}));
    modules(&model, &[("Transformer", ""), ("Pooling", "1_Pooling")]);
    write(&model, "1_Pooling/config.json", &json!({"pooling_mode": "mean"}));
    let long = text(38, 1);
    let run = |arguments: &[&str]| {
        let mut command = attend(place.path());
        ran(command.args(["embed", "--json", "--dtype", "f32", "-m"]).arg(&model).args(arguments))
    };
    // Nobody says a length: the model's own, which just holds it.
    assert_eq!(run(&[&long]).json()["tokens"], 40);
    for length in [16, 32] {
        write(&model, "sentence_bert_config.json", &json!({"max_seq_length": length, "do_lower_case": false}));
        let cut = run(&[&long]);
        let found = cut.json();
        assert_eq!((&found["tokens"], &found["truncated"]), (&json!(length), &json!(true)));
        let words: Vec<&str> = long.split(' ').take(length - 2).collect();
        assert_close(&numbers(&found["embedding"]), &vectors(&model, &[&words.join(" ")])[0], 0.0);
        assert!(cut.err.contains("1 of 1") && cut.err.contains("max_seq_length"), "{}", cut.err);
    }
    std::fs::remove_file(model.join("sentence_bert_config.json")).expect("removed");
    let longer = text(39, 1);
    let refused = run(&["w5", &longer]);
    let line = refused.error(1);
    assert!(line.contains("text 2") && line.contains("41 tokens") && line.contains("--truncate"), "{line}");
    let cut = run(&[&longer, "--truncate"]);
    assert_eq!(cut.json()["tokens"], 40);
    assert!(cut.err.contains("cut to 40 tokens"), "{}", cut.err);
    assert_eq!(run(&[&longer, "--max-length", "10"]).json()["tokens"], 10);
    assert!(run(&[&longer, "--max-length", "41"]).error(2).contains("40"));
}

#[test]
fn sparse_vectors_are_the_largest_logits_of_each_word() {
    let place = folder();
    let model = model(place.path(), "bert-mlm", json!({}));
    let found = &lines("embed", &model, &["--sparse", "w5 w6 w7"])[0];
    let mut command = attend(place.path());
    let logits =
        ran(command.args(["logits", "w5 w6 w7", "--all", "--top", "96", "--json", "--dtype", "f32", "-m"]).arg(&model))
            .json();
    let mut wanted = vec![0.0f64; 96];
    for row in logits["rows"].as_array().expect("rows") {
        for entry in row["top"].as_array().expect("logits") {
            let slot = &mut wanted[entry["id"].as_u64().expect("an id") as usize];
            *slot = slot.max(entry["logit"].as_f64().expect("a logit").max(0.0).ln_1p());
        }
    }
    let weights = found["sparse"].as_array().expect("weights");
    assert_eq!(weights.len(), wanted.iter().filter(|weight| **weight > 0.0).count());
    let mut last = f64::INFINITY;
    for entry in weights {
        let (id, weight) = (entry["id"].as_u64().expect("an id"), entry["weight"].as_f64().expect("a weight"));
        assert!((weight - wanted[id as usize]).abs() < 1e-5 && weight <= last, "{entry}");
        last = weight;
    }
    assert_eq!(
        lines("embed", &model, &["--sparse", "--top", "3", "w5"])[0]["sparse"].as_array().map(Vec::len),
        Some(3)
    );
    let encoder = super::support::model(place.path(), "bert-base", json!({}));
    let run = ran(attend(place.path()).args(["embed", "--sparse", "w5", "-m"]).arg(&encoder));
    assert!(run.error(1).contains("masked-language-model"), "{}", run.err);
}
