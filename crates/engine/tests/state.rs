//! What one call leaves behind is nothing, and a window of attention ends exactly where it should.

use attend_engine::source::{Feed, LogitsSource};
use attend_engine::tasks::embed::{EmbedOptions, Embedder, Role};
use attend_engine::tasks::{TaskModel, TaskOptions};
use attend_engine::{Engine, EngineOptions, GenerateOptions, Prompt};
use attend_kernels::{Compute, DType};
use attend_model::{LoadOptions, Loaded, load};
use attend_nn::KvTypes;
use attend_testkit::files::model::{Size, TINY, config_of, tensors_of};
use attend_testkit::files::{safetensors, write_all};
use attend_text::Tokenizer;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use tempfile::TempDir;

/// A decoder with a tokenizer of numbered words, in a folder of its own.
fn folder(size: &Size, changes: Value) -> TempDir {
    let mut config = config_of(size);
    config.extend(changes.as_object().cloned().expect("an object"));
    let words: Map<String, Value> = (0..size.vocab).map(|id| (format!("t{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    });
    let files = vec![
        ("config.json".into(), Value::Object(config).to_string().into_bytes()),
        ("model.safetensors".into(), safetensors::file(&tensors_of(size, 5))),
        ("tokenizer.json".into(), tokenizer.to_string().into_bytes()),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    write_all(folder.path(), &files).expect("written");
    folder
}

fn loaded(folder: &Path) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(folder, &options, &mut |_, _| {}).expect("loads")
}

fn options() -> EngineOptions {
    EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() }
}

/// CCH-01: texts and vectors of one model, in every order, again and again: each call gives what it gives first.
#[test]
fn nothing_is_left_from_call_to_call() {
    let place = folder(&TINY, json!({}));
    let tokenizer = Tokenizer::open(place.path()).expect("a tokenizer");
    let prompts: Vec<Vec<u32>> =
        [3, 70, 9].iter().map(|&length| (0..length).map(|at| 3 + (at * 7) % 90).collect()).collect();
    let mut few = GenerateOptions::default();
    (few.length.max_tokens, few.report.logprobs) = (Some(20), Some(1));
    let ask = |engine: &Engine<'_>, index: usize| {
        let prompt = Prompt::tokens(prompts[index].clone());
        let output = engine.generate(prompt, &few, &mut |_| ControlFlow::Continue(())).expect("an answer");
        output.choices
    };
    let vector = |embedder: &Embedder<'_>, text: &str| -> Vec<u32> {
        let found = embedder.embed(&[text], Role::Plain, &mut |_| ControlFlow::Continue(())).expect("a vector");
        found[0].values.iter().map(|value| value.to_bits()).collect()
    };
    let texts = ["t5 t6 t7", "t9"];
    // Each in a model that was loaded for it alone.
    let fresh = |index: usize| ask(&Engine::new(&loaded(place.path()), None, &options()).expect("an engine"), index);
    let answers: Vec<_> = (0..prompts.len()).map(fresh).collect();
    let vectors = texts.map(|text| {
        let model = loaded(place.path());
        let task = TaskModel::new(&model, &tokenizer, &TaskOptions::default()).expect("a model");
        vector(&Embedder::new(task, EmbedOptions::default()).expect("an embedder"), text)
    });
    let model = loaded(place.path());
    let engine = Engine::new(&model, None, &options()).expect("an engine");
    let task = TaskModel::new(&model, &tokenizer, &TaskOptions::default()).expect("a model");
    let embedder = Embedder::new(task, EmbedOptions::default()).expect("an embedder");
    for round in 0..20 {
        let (first, second) = (round % 3, (round / 3 + 1) % 3);
        if round % 2 == 0 {
            assert_eq!(vector(&embedder, texts[round / 2 % 2]), vectors[round / 2 % 2], "round {round}");
        }
        assert_eq!(ask(&engine, first), answers[first], "round {round}");
        assert_eq!(vector(&embedder, texts[round % 2]), vectors[round % 2], "round {round}");
        assert_eq!(ask(&engine, second), answers[second], "round {round}");
    }
}

/// The rows of a text that is fed in pieces of these sizes.
fn rows(engine: &Engine<'_>, tokens: &[u32], sizes: &[usize]) -> Vec<Vec<u32>> {
    let source = engine.source();
    let mut state = source.start(tokens.len(), None).expect("starts");
    let (mut rows, mut rest) = (Vec::new(), tokens);
    for &size in sizes {
        let (now, behind) = rest.split_at(size.min(rest.len()));
        rest = behind;
        if now.is_empty() {
            break;
        }
        let feed = Feed { state: &mut state, tokens: now, rows_from: 0 };
        let take = &mut |_: usize, _: usize, row: &[f32]| {
            rows.push(row.iter().map(|value| value.to_bits()).collect());
            Ok(())
        };
        source.feed(&mut [feed], take).expect("feeds");
    }
    assert!(rest.is_empty());
    rows
}

/// CCH-02: a window of 8 and texts of 6 to 20 tokens: a token sees itself and the seven before it, whether the text is read at
/// once, in pieces or token by token, and the row after each is the one of a text that ends there.
#[test]
fn a_window_ends_exactly_where_it_should() {
    const WINDOW: usize = 8;
    let place = folder(
        &Size { layers: 1, ..TINY },
        json!({"model_type": "mistral", "sliding_window": WINDOW,
        "architectures": ["MistralForCausalLM"]}),
    );
    let model = loaded(place.path());
    let engine = Engine::new(&model, None, &options()).expect("an engine");
    for length in 6..=20usize {
        let tokens: Vec<u32> = (0..length as u32).map(|at| 3 + at * 11 % 90).collect();
        let whole = rows(&engine, &tokens, &[length]);
        assert_eq!(rows(&engine, &tokens, &vec![1; length]), whole, "token by token, {length}");
        for first in 1..length {
            assert_eq!(rows(&engine, &tokens, &[first, length]), whole, "{first} and the rest of {length}");
        }
        assert_eq!(rows(&engine, &tokens, &vec![3; length]), whole, "in threes, {length}");
        for end in 1..=length {
            assert_eq!(rows(&engine, &tokens[..end], &[end]).pop(), Some(whole[end - 1].clone()), "{end} of {length}");
        }
        for changed in 0..length {
            let mut other = tokens.clone();
            other[changed] = 95;
            let found = rows(&engine, &other, &[length]);
            for at in 0..length {
                let sees = changed <= at && at - changed < WINDOW;
                assert_eq!(found[at] != whole[at], sees, "of {length} tokens {at} and {changed}");
            }
        }
    }
}
