//! EMB-04: an answer does not depend on the other inputs, their order or the size of the batches: the same bits.

use crate::support::{model, text};
use attend::engine::tasks::classify::Classifier;
use attend::engine::tasks::embed::{EmbedOptions, Embedder, Role};
use attend::engine::tasks::fill::Filler;
use attend::engine::tasks::tag::{Aggregation, Tagger};
use attend::engine::tasks::{Step, TaskModel, TaskOptions, Text};
use attend::kernels::Compute;
use attend::model::{LoadOptions, Loaded, load};
use attend::text::Tokenizer;
use serde_json::json;
use std::fmt::Debug;
use std::ops::ControlFlow;

/// A hundred texts of 0 to 37 words.
fn texts() -> Vec<String> {
    (0..100).map(|seed| text((seed * 29) % 38, seed)).collect()
}

/// Runs `ask` over all texts in batches of every size, in reverse order, and over each text alone.
fn same_in_any_company<A: PartialEq + Debug>(
    case: &str,
    texts: &[String],
    ask: impl Fn(TaskModel<'_>, &[&str], &mut dyn FnMut(Step) -> ControlFlow<()>) -> Vec<A>,
) {
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = model(place.path(), case, json!({}));
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for compute in [Compute::Native, Compute::F32] {
        let options = LoadOptions { compute, ..LoadOptions::default() };
        let loaded: Loaded = load(&path, &options, &mut |_, _| {}).expect("loaded");
        let run = |texts: &[&str], batch_tokens: usize| {
            let options = TaskOptions { batch_tokens, ..TaskOptions::default() };
            let model = TaskModel::new(&loaded, &tokenizer, &options).expect("a model");
            let mut seen = 0;
            let answers = ask(model, texts, &mut |step| {
                seen += step.inputs;
                ControlFlow::Continue(())
            });
            assert_eq!((seen, answers.len()), (texts.len(), texts.len()));
            answers
        };
        let alone: Vec<A> = texts.iter().flat_map(|text| run(&[text], 4096)).collect();
        for batch_tokens in [1, 64, 1000, 1 << 20] {
            assert_eq!(run(&texts, batch_tokens), alone, "batches of {batch_tokens}");
        }
        let backwards: Vec<&str> = texts.iter().rev().copied().collect();
        let mut found = run(&backwards, 1000);
        found.reverse();
        assert_eq!(found, alone, "in reverse");
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn vectors() {
    for case in ["bert-base", "llama-gqa"] {
        same_in_any_company(case, &texts(), |model, texts, watch| {
            let embedder = Embedder::new(model, EmbedOptions::default()).expect("an embedder");
            let found = embedder.embed(texts, Role::Plain, watch).expect("vectors");
            found.into_iter().map(|vector| (bits(&vector.values), vector.tokens)).collect()
        });
    }
}

#[test]
fn labels_tags_and_fillings() {
    same_in_any_company("bert-seqcls", &texts(), |model, texts, watch| {
        let pairs: Vec<Text<'_>> = texts.iter().map(|text| Text::one(text)).collect();
        let found = Classifier::new(model, None).expect("a classifier").classify(&pairs, 9, watch).expect("labels");
        found
            .into_iter()
            .map(|one| one.labels.iter().map(|l| (l.label.clone(), l.score.to_bits())).collect::<Vec<_>>())
            .collect()
    });
    same_in_any_company("bert-tokcls", &texts(), |model, texts, watch| {
        let found = Tagger::new(model).expect("a tagger").tag(texts, Aggregation::None, &[], watch).expect("tags");
        found
            .into_iter()
            .map(|one| one.entities.iter().map(|e| (e.start, e.score.to_bits())).collect::<Vec<_>>())
            .collect()
    });
    let masked: Vec<String> = (0..40).map(|seed| format!("{} [MASK]", text(seed % 30, seed))).collect();
    same_in_any_company("bert-mlm", &masked, |model, texts, watch| {
        let found = Filler::new(model).expect("a filler").fill(texts, 5, watch).expect("fillings");
        let masks = found.into_iter().map(|filled| filled.masks.concat());
        masks.map(|mask| mask.iter().map(|one| (one.id, one.score.to_bits())).collect::<Vec<_>>()).collect()
    });
}

#[test]
fn work_can_be_stopped() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = model(place.path(), "bert-base", json!({}));
    let tokenizer = Tokenizer::open(&path).expect("a tokenizer");
    let loaded = load(&path, &LoadOptions::default(), &mut |_, _| {}).expect("loaded");
    let options = TaskOptions { batch_tokens: 1, ..TaskOptions::default() };
    let model = TaskModel::new(&loaded, &tokenizer, &options).expect("a model");
    let embedder = Embedder::new(model, EmbedOptions::default()).expect("an embedder");
    let mut steps = 0;
    let outcome = embedder.embed(&["w5", "w6", "w7"], Role::Plain, &mut |_| {
        steps += 1;
        ControlFlow::Break(())
    });
    assert!(matches!(outcome, Err(attend::engine::Error::Cancelled)) && steps == 1);
}
