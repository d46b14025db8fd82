//! Tasks of real encoders against the reference on the same weights, as `tools/record_real.py` recorded it: in f32, as the
//! machine computes the file's types, and with weights of eight bits. Absent models are skipped (see `real.rs`).

mod common;

use attend::engine::tasks::embed::{EmbedOptions, Embedder, Role};
use attend::engine::tasks::fill::Filler;
use attend::engine::tasks::sparse::{self, Sparse, SparseEmbedding};
use attend::engine::tasks::tag::{Aggregation, Tagger};
use attend::engine::tasks::{Step, TaskModel, TaskOptions, Text};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, Loaded, load};
use attend::text::Tokenizer;
use common::ids;
use common::real::{model, recorded};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How a model may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    Native,
    Int8,
}

impl Kind {
    /// How far an embedding may turn.
    fn least_cosine(self) -> f64 {
        if self == Kind::F32 { 0.99999 } else { 0.999 }
    }

    /// How far a probability may be from the reference's. Weights of eight bits (half a step is 0.4 % of the largest of 32)
    /// move the logits of these small and narrow models by a few tenths, and a probability near one half by a quarter of that
    /// for each of two that compete.
    fn near(self) -> f64 {
        match self {
            Kind::F32 => 1e-4,
            Kind::Native => 0.02,
            Kind::Int8 => 0.2,
        }
    }
}

const KINDS: [Kind; 3] = [Kind::F32, Kind::Native, Kind::Int8];

fn loaded(path: &Path, kind: Kind) -> Loaded {
    let options = match kind {
        Kind::F32 => LoadOptions { compute: Compute::F32, ..LoadOptions::default() },
        Kind::Native => LoadOptions::default(),
        Kind::Int8 => LoadOptions { dtype: Some(DType::Q8_0), ..LoadOptions::default() },
    };
    load(path, &options, &mut |_, _| {}).expect("the model loads")
}

fn go_on(_: Step) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn texts(reference: &Value) -> Vec<&str> {
    let texts: Vec<&str> = list(&reference["texts"]).iter().filter_map(|case| case["text"].as_str()).collect();
    assert!(texts.len() >= 20, "at least twenty texts");
    texts
}

/// Our token ids are the recorded ones.
fn check_ids(reference: &Value, model: &TaskModel<'_>, special: bool) {
    for case in list(&reference["texts"]) {
        let text = case["text"].as_str().expect("a text");
        assert_eq!(
            model.encode(Text::one(text), special).expect("encoded").encoding.ids,
            ids(&case["ids"]),
            "{text:?}"
        );
    }
}

/// A copy of a model's folder whose config.json says what its own leaves out.
fn completed(path: &Path, into: &Path, changes: Value) -> PathBuf {
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(path.join("config.json")).expect("read")).expect("JSON");
    for (key, value) in changes.as_object().expect("an object") {
        config[key] = value.clone();
    }
    std::fs::write(into.join("config.json"), config.to_string()).expect("written");
    for name in ["model.safetensors", "tokenizer.json"] {
        let (from, to) = (path.join(name), into.join(name));
        // Another file system has no links to this one.
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).expect("copied");
        }
    }
    into.to_owned()
}

fn cosine(a: &[f32], b: &[f64]) -> f64 {
    let dot: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum();
    let (first, second): (f64, f64) = (a.iter().map(|a| f64::from(*a).powi(2)).sum(), b.iter().map(|b| b * b).sum());
    dot / (first * second).sqrt()
}

/// The vectors of sentences; folder or file say how they are made.
fn check_embeddings(name: &str, place: &str) {
    let Some(path) = model(name, place) else { return };
    let reference = recorded(name);
    let texts = texts(&reference);
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    for kind in KINDS {
        let loaded = loaded(&path, kind);
        let model = TaskModel::new(&loaded, &tokenizer, &TaskOptions::default()).expect("a model");
        check_ids(&reference, &model, false);
        let embedder = Embedder::new(model, EmbedOptions::default()).expect("an embedder");
        let found = embedder.embed(&texts, Role::Plain, &mut go_on).expect("vectors");
        let least = kind.least_cosine();
        let mut worst = 1.0f64;
        for (found, case) in found.iter().zip(list(&reference["texts"])) {
            assert_eq!((found.tokens, found.cut), (list(&case["ids"]).len(), false));
            let wanted: Vec<f64> = list(&case["embedding"]).iter().map(number).collect();
            let cosine = cosine(&found.values, &wanted);
            assert!(cosine > least, "{name}, {kind:?}: cosine {cosine} for {}", case["text"]);
            worst = worst.min(cosine);
        }
        eprintln!("{name}, {kind:?}: least cosine {worst}");
    }
}

#[test]
fn minilm() {
    check_embeddings("minilm-l6-v2", "minilm-l6-v2");
}

#[test]
fn mpnet() {
    check_embeddings("all-mpnet-base-v2", "all-mpnet-base-v2");
}

#[test]
fn nomic() {
    check_embeddings("nomic-embed-v1.5", "nomic-embed-v1.5-gguf/nomic-embed-text-v1.5.f16.gguf");
}

#[test]
fn splade() {
    let Some(path) = model("splade-tiny", "splade-tiny") else { return };
    let reference = recorded("splade-tiny");
    let texts = texts(&reference);
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    let embed = |kind| {
        let loaded = loaded(&path, kind);
        let model = TaskModel::new(&loaded, &tokenizer, &TaskOptions::default()).expect("a model");
        check_ids(&reference, &model, false);
        sparse::embed(&model, Sparse::default(), &texts, &mut go_on).expect("weights")
    };
    let exact = embed(Kind::F32);
    for (found, case) in exact.iter().zip(list(&reference["texts"])) {
        let (length, wanted) = (dot(found, found).sqrt(), number(&case["length"]));
        assert!((length - wanted).abs() < 1e-4 * wanted.max(1.0), "{}: {length}, not {wanted}", case["text"]);
        for (place, top) in list(&case["top"]).iter().enumerate() {
            let (id, weight) = (ids(&json!([top[0]]))[0], number(&top[1]));
            let own = weight_of(found, id);
            assert!((own - weight).abs() < 1e-4, "{}: {own}, not {weight}", case["text"]);
            // The order is the same too, where the weights are apart; a weight of 0 is not listed.
            let apart = list(&case["top"]).get(place + 1).is_none_or(|next| weight - number(&next[1]) > 1e-3);
            let before = place == 0 || number(&case["top"][place - 1][1]) - weight > 1e-3;
            if apart && before && weight > 1e-4 {
                assert_eq!(found.weights[place].id, id, "{}", case["text"]);
            }
        }
    }
    // The reference's own weights move by up to 0.09 when its matrices are rounded to q8_0; the direction stays.
    for kind in KINDS {
        let found = embed(kind);
        let cosines = found.iter().zip(&exact).map(|(found, exact)| {
            if exact.weights.is_empty() {
                1.0
            } else {
                dot(found, exact) / (dot(found, found) * dot(exact, exact)).sqrt()
            }
        });
        let least = cosines.fold(1.0, f64::min);
        eprintln!("splade-tiny, {kind:?}: least cosine {least}");
        assert!(least > kind.least_cosine(), "{kind:?}: {least}");
    }
}

fn weight_of(embedding: &SparseEmbedding, id: u32) -> f64 {
    embedding.weights.iter().find(|one| one.id == id).map_or(0.0, |one| f64::from(one.weight))
}

fn dot(a: &SparseEmbedding, b: &SparseEmbedding) -> f64 {
    a.weights.iter().map(|one| f64::from(one.weight) * weight_of(b, one.id)).sum()
}

/// The likeliest tokens of every gap. Some of these folders do not say what they are.
fn check_fills(name: &str, class: &str, family: &str) {
    let Some(path) = model(name, name) else { return };
    let reference = recorded(name);
    let texts = texts(&reference);
    let copy = tempfile::tempdir().expect("a temporary folder");
    let path = completed(&path, copy.path(), json!({"architectures": [class], "model_type": family}));
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    for kind in KINDS {
        let loaded = loaded(&path, kind);
        let model = TaskModel::new(&loaded, &tokenizer, &TaskOptions::default()).expect("a model");
        check_ids(&reference, &model, true);
        let found = Filler::new(model).expect("a filler").fill(&texts, 5, &mut go_on).expect("fillings");
        let near = kind.near();
        for (found, case) in found.iter().zip(list(&reference["texts"])) {
            assert_eq!(found.masks.len(), list(&case["masks"]).len());
            for (found, wanted_all) in found.masks.iter().zip(list(&case["masks"])) {
                for (place, wanted) in list(wanted_all).iter().enumerate() {
                    let (id, score) = (ids(&json!([wanted[0]]))[0], number(&wanted[1]));
                    // Where two are closer than the arithmetic, either may come first.
                    let own = found.iter().find(|one| one.id == id).map(|one| f64::from(one.score));
                    let close = own.is_none_or(|own| (own - score).abs() < near);
                    assert!(close, "{name}, {kind:?}, {}: {own:?}, not {score}", case["text"]);
                    if place == 0 && score - number(&list(wanted_all)[1][1]) > 2.0 * near {
                        assert_eq!(found[0].id, id, "{name}, {kind:?}, {}", case["text"]);
                    }
                    if kind == Kind::F32 {
                        assert!(own.is_some() || score < f64::from(found[4].score) + near, "{}", case["text"]);
                    }
                }
            }
        }
    }
}

#[test]
fn reactions_by_bert() {
    check_fills("rxnfp-bert-mlm", "BertForMaskedLM", "bert");
}

#[test]
fn reactions_by_albert() {
    check_fills("rxnmapper-albert", "AlbertForMaskedLM", "albert");
}

#[test]
fn antibodies_by_roberta() {
    check_fills("sapiens-roberta-vh", "RobertaForMaskedLM", "roberta");
}

#[test]
fn antibodies_by_bert() {
    check_fills("antiberty", "BertForMaskedLM", "bert");
}

#[test]
fn grammar_tags() {
    let name = "distilbert-grammar-tagger";
    let Some(path) = model(name, name) else { return };
    let reference = recorded(name);
    let texts = texts(&reference);
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    let ignore: Vec<String> = list(&reference["ignore"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    for kind in KINDS {
        let loaded = loaded(&path, kind);
        let tagger = || {
            let model = TaskModel::new(&loaded, &tokenizer, &TaskOptions::default()).expect("a model");
            check_ids(&reference, &model, false);
            Tagger::new(model).expect("a tagger")
        };
        for (strategy, aggregation) in [
            ("none", Aggregation::None),
            ("simple", Aggregation::Simple),
            ("first", Aggregation::First),
            ("average", Aggregation::Average),
            ("max", Aggregation::Max),
        ] {
            let found = tagger().tag(&texts, aggregation, &ignore, &mut go_on).expect("tags");
            for (found, case) in found.iter().zip(list(&reference["texts"])) {
                let wanted = list(&case[strategy]);
                let own: Vec<_> =
                    found.entities.iter().map(|e| (e.entity.as_str(), e.word.as_str(), e.start, e.end)).collect();
                let theirs: Vec<_> = wanted
                    .iter()
                    .map(|e| {
                        let text = |key: &str| e[key].as_str().unwrap_or_default();
                        let place = |key: &str| e[key].as_u64().unwrap_or(u64::MAX) as usize;
                        (text("entity"), text("word"), place("start"), place("end"))
                    })
                    .collect();
                assert_eq!(own, theirs, "{strategy}, {kind:?}: {}", case["text"]);
                let near = kind.near();
                for (own, wanted) in found.entities.iter().zip(wanted) {
                    assert!((f64::from(own.score) - number(&wanted["score"])).abs() < near, "{own:?}, not {wanted}");
                }
            }
        }
    }
}
