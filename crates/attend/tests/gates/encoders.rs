//! M2: a text's vector and a pair's score are its own: alone, in batches of any size, sorted, and over HTTP.

use crate::client::with;
use crate::serving::{Serving, alone, report};
use attend::engine::tasks::embed::{EmbedOptions, Embedder, Role};
use attend::engine::tasks::pooling::{NAMES, Pooling};
use attend::engine::tasks::rerank::Reranker;
use attend::engine::tasks::{TaskModel, TaskOptions};
use attend::kernels::Compute;
use attend::model::{LoadOptions, Loaded, load};
use attend::text::Tokenizer;
use attend_testkit::golden::{Random, golden_root};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Encoders of every kind of position and wiring, and a decoder.
const MODELS: [&str; 8] = [
    "bert-base",
    "roberta-base",
    "mpnet-base",
    "deberta-v2-base",
    "modernbert-base",
    "nomic_bert-base",
    "albert-base",
    "llama-gqa",
];

/// A golden encoder with a tokenizer of numbered words between the marks of its kind.
fn encoder(place: &Path, case: &str, changes: Value) -> PathBuf {
    let (from, to) = (golden_root().join(case), place.join(case));
    fs::create_dir_all(&to).expect("made");
    fs::copy(from.join("model.safetensors"), to.join("model.safetensors")).expect("copied");
    let text = fs::read(from.join("config.json")).expect("read");
    let config = with(&serde_json::from_slice(&text).expect("JSON"), changes);
    let words: Map<String, Value> =
        (0..config["vocab_size"].as_u64().expect("a size")).map(|id| (format!("t{id}"), json!(id))).collect();
    fs::write(to.join("config.json"), config.to_string()).expect("written");
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "decoder": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "BertProcessing", "sep": ["t2", 2], "cls": ["t1", 1]},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    });
    fs::write(to.join("tokenizer.json"), tokenizer.to_string()).expect("written");
    to
}

/// Lets the folder's files say how vectors are pooled.
fn pooled_by(path: &Path, name: &str) {
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]);
    fs::write(path.join("modules.json"), modules.to_string()).expect("written");
    let pooling = path.join("1_Pooling");
    fs::create_dir_all(&pooling).expect("made");
    let width = fs::read(path.join("config.json")).expect("read");
    let width: Value = serde_json::from_slice(&width).expect("JSON");
    let width = ["hidden_size", "dim", "n_embd", "d_model"].iter().find_map(|name| width[*name].as_u64());
    let mut config = json!({"word_embedding_dimension": width.expect("a width"), "include_prompt": true});
    for (_, long, _) in NAMES {
        config[format!("pooling_mode_{long}")] = json!(long == name);
    }
    fs::write(pooling.join("config.json"), config.to_string()).expect("written");
}

fn loaded(path: &Path) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(path, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Texts of 1 to 30 words.
fn texts(count: usize) -> Vec<String> {
    let mut random = Random(29);
    (0..count)
        .map(|_| (0..1 + random.below(30)).map(|_| format!("t{}", 5 + random.below(80))).collect::<Vec<_>>().join(" "))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The vectors in every company; those of each text alone.
fn vectors(loaded: &Loaded, tokenizer: &Tokenizer, pooling: Option<Pooling>, texts: &[&str]) -> Vec<Vec<u32>> {
    let run = |texts: &[&str], batch_tokens: usize| -> Vec<Vec<u32>> {
        let options = TaskOptions { batch_tokens, ..TaskOptions::default() };
        let model = TaskModel::new(loaded, tokenizer, &options).expect("a model");
        let embedder = Embedder::new(model, EmbedOptions { pooling, ..EmbedOptions::default() }).expect("an embedder");
        let found = embedder.embed(texts, Role::Plain, &mut |_| ControlFlow::Continue(())).expect("vectors");
        found.iter().map(|one| bits(&one.values)).collect()
    };
    let alone: Vec<Vec<u32>> = texts.iter().flat_map(|text| run(&[text], 4096)).collect();
    for batch_tokens in [64, 1000, 1 << 20] {
        assert_eq!(run(texts, batch_tokens), alone, "{pooling:?}: batches of {batch_tokens} tokens");
    }
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&index| texts[index].len());
    let sorted: Vec<&str> = order.iter().map(|&index| texts[index]).collect();
    for (found, &index) in run(&sorted, 1000).iter().zip(&order) {
        assert_eq!(*found, alone[index], "{pooling:?}: sorted");
    }
    alone
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|one| (one.as_f64().expect("a number") as f32).to_bits()).collect()
}

/// The same over HTTP, by so many clients at once.
fn served(serving: &Serving, texts: &[&str], expected: &[Vec<u32>]) {
    std::thread::scope(|scope| {
        for offset in 0..4 {
            scope.spawn(move || {
                let own: Vec<usize> = (offset..texts.len()).step_by(4).collect();
                for group in own.chunks(1 + offset * 7) {
                    let input: Vec<&str> = group.iter().map(|&index| texts[index]).collect();
                    let answer = serving.post("/v1/embeddings", &json!({"input": input})).good();
                    for (at, &index) in group.iter().enumerate() {
                        assert_eq!(numbers(&answer["data"][at]["embedding"]), expected[index], "over HTTP: {index}");
                    }
                }
            });
        }
    });
}

/// Scores of documents, alone, together and over HTTP.
fn ranked(place: &Arc<tempfile::TempDir>, documents: &[&str]) -> usize {
    let one = json!({"id2label": {"0": "relevant"}, "problem_type": null});
    let path = encoder(place.path(), "bert-seqcls-regression", one);
    let (loaded, tokenizer) = (loaded(&path), Tokenizer::open(&path).expect("a tokenizer"));
    let query = "t5 t20 t7";
    let rank = |documents: &[&str], batch_tokens: usize| -> Vec<(usize, u32)> {
        let options = TaskOptions { batch_tokens, ..TaskOptions::default() };
        let model = TaskModel::new(&loaded, &tokenizer, &options).expect("a model");
        let reranker = Reranker::cross(model, false).expect("a reranker");
        let mut found = reranker.rank(query, documents, &mut |_| ControlFlow::Continue(())).expect("scores");
        found.sort_by_key(|one| one.index);
        found.iter().map(|one| (one.index, one.score.to_bits())).collect()
    };
    let alone: Vec<u32> = documents.iter().map(|document| rank(&[document], 4096)[0].1).collect();
    for batch_tokens in [64, 1000, 1 << 20] {
        let found = rank(documents, batch_tokens);
        assert!(found.iter().all(|(index, score)| *score == alone[*index]), "batches of {batch_tokens} tokens");
    }
    let serving = Serving::over(Arc::clone(place), path, &["--no-log"]);
    let answer = serving.post("/v1/rerank", &json!({"query": query, "documents": documents})).good();
    let results = answer["results"].as_array().expect("a list");
    for one in results {
        let index = one["index"].as_u64().expect("an index") as usize;
        assert_eq!((one["relevance_score"].as_f64().expect("a score") as f32).to_bits(), alone[index], "over HTTP");
    }
    results.len()
}

fn m2(count: usize, models: usize, told: bool) {
    let _alone = alone();
    let texts = texts(count);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut compared = 0;
    for case in &MODELS[..models] {
        let place = Arc::new(tempfile::tempdir().expect("a folder"));
        let path = encoder(place.path(), case, json!({}));
        let (loaded, tokenizer) = (loaded(&path), Tokenizer::open(&path).expect("a tokenizer"));
        let own = vectors(&loaded, &tokenizer, None, &texts);
        served(&Serving::over(Arc::clone(&place), path.clone(), &["--no-log"]), &texts, &own);
        compared += own.len();
        let mut seen = BTreeSet::new();
        for (pooling, name, _) in NAMES {
            // By what the caller chooses, and by what the files say.
            compared += vectors(&loaded, &tokenizer, Some(pooling), &texts).len();
            pooled_by(&path, name);
            let found = vectors(&self::loaded(&path), &tokenizer, None, &texts);
            served(&Serving::over(Arc::clone(&place), path.clone(), &["--no-log"]), &texts, &found);
            compared += found.len();
            assert!(seen.insert(found), "{case}: {name} is no other");
        }
    }
    let place = Arc::new(tempfile::tempdir().expect("a folder"));
    let scores = ranked(&place, &texts);
    if told {
        report(
            "M2",
            &format!(
                "{count} texts by {models} models and {} ways of pooling, {compared} vectors alone, in batches, sorted and over \
                 HTTP, and {scores} scores of a reranker: the same bits",
                NAMES.len()
            ),
        );
    }
}

#[test]
fn m2_encoders_in_small() {
    m2(24, 2, false);
}

#[test]
#[ignore = "takes a minute"]
fn m2_encoders() {
    m2(1000, MODELS.len(), true);
}
