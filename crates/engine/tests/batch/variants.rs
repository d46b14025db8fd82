//! Requests of several variants of a model in one batch: each gets the bits that it gets where its variant is the only model.

use crate::prefix::{endless, golden, said, short_ways};
use crate::support::ROOMY;
use attend_engine::source::LogitsSource;
use attend_engine::{
    Engine, EngineOptions, Error, GenerateOptions, Limits, OnStep, Output, PrefixCache, Prompt, Schedule, Variant,
};
use attend_kernels::{DType, Matrix};
use attend_model::{Adapter, Loaded};
use attend_nn::{CacheBlock, Changes, KvTypes, LowRank, Model};
use attend_testkit::golden::{Random, golden_root};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The parts of a layer that get adapters.
const PARTS: [&str; 6] = ["query", "key", "value", "out", "up", "down"];

/// The model with adapters of this rank beside its projections, those of an encoder and of cross-attention included.
fn adapted(base: &Model, rank: usize, seed: u64) -> Model {
    let mut random = Random(seed);
    let mut low_rank = BTreeMap::new();
    for (name, matrix) in &base.weights().matrices {
        let Some(layer) = name.strip_suffix(".weight") else { continue };
        if !layer.contains("layers.") || !PARTS.iter().any(|part| layer.ends_with(&format!(".{part}"))) {
            continue;
        }
        let mut part = |rows: usize, cols: usize| Arc::new(Matrix::from_f32(rows, cols, &random.normals(rows * cols)));
        let (a, b) = (part(rank, matrix.cols()), part(matrix.rows(), rank));
        let adapter = LowRank { a_name: format!("{layer}.a"), b_name: format!("{layer}.b"), a, b, scale: 0.1 };
        low_rank.insert(layer.to_owned(), vec![adapter]);
    }
    assert!(low_rank.len() >= 8, "{} layers", low_rank.len());
    base.with(Changes { low_rank: Some(low_rank), ..Changes::default() }).expect("fits")
}

/// The model with other token tables and norms, as adapters may bring along.
fn replaced(base: &Model) -> Model {
    let mut changes = Changes::default();
    for (name, matrix) in base.weights().matrices.iter().filter(|(name, _)| name.ends_with("embed.tokens.weight")) {
        let mut values = vec![0.0; matrix.rows() * matrix.cols()];
        matrix.read_rows(0, &mut values);
        values.reverse();
        changes.matrices.insert(name.clone(), Arc::new(Matrix::from_f32(matrix.rows(), matrix.cols(), &values)));
    }
    for (name, vector) in base.weights().vectors.iter().filter(|(name, _)| name.contains("norm")).take(2) {
        changes.vectors.insert(name.clone(), vector.iter().map(|value| value * 0.7).collect());
    }
    assert!(!changes.matrices.is_empty() && !changes.vectors.is_empty());
    base.with(changes).expect("fits")
}

/// Answers requests in one schedule, in their order.
fn all(
    mut schedule: Schedule<'_, impl LogitsSource>,
    engine: &Engine<'_>,
    requests: &[(Prompt, Option<Variant>)],
    options: &GenerateOptions,
) -> Vec<Result<Output, Error>> {
    let options = Arc::new(options.clone());
    for (key, (prompt, variant)) in requests.iter().enumerate() {
        let ready = engine.ready(prompt.clone(), options.clone()).expect("in order");
        schedule.add_ready(key, ready.of_variant(variant.clone()));
    }
    let mut ended = BTreeMap::new();
    while !schedule.is_idle() {
        ended.extend(schedule.step(&mut |_, _| ControlFlow::Continue(())));
    }
    ended.into_values().collect()
}

/// Prompts that begin alike, so that a past that were shared between variants would be seen.
fn prompts(engine: &Engine<'_>) -> Vec<Prompt> {
    let mut random = Random(5);
    let vocab = engine.source().input_vocab();
    let mut text = |length: usize| -> Vec<u32> { (0..length).map(|_| 3 + random.below(vocab - 3) as u32).collect() };
    let (source, root) = (text(9), text(70));
    let prompt = |tail: Vec<u32>| Prompt {
        token_ids: [root.as_slice(), &tail].concat(),
        encoder_ids: engine.is_encoder_decoder().then(|| source.clone()),
    };
    [text(1), text(20), text(70)].map(prompt).into()
}

/// Ways of answering, and one in which a draft model guesses.
fn ways() -> Vec<(&'static str, GenerateOptions)> {
    let mut ways = short_ways();
    let mut drafted = ways[0].1.clone();
    drafted.speculation.num_assistant_tokens = 4;
    ways.push(("with a draft", drafted));
    for (_, options) in &mut ways {
        options.length.max_tokens = Some(10.min(options.length.max_tokens.unwrap_or(0)));
    }
    ways
}

/// What one case must show: variants, alone and together, in chunks, put back, from kept pasts, with guesses.
fn compare(case: &str, loaded: &Loaded, models: Vec<Model>, options: &EngineOptions) {
    let variants: Vec<Option<Variant>> =
        std::iter::once(None).chain(models.iter().cloned().map(Variant::new).map(Some)).collect();
    let plain = endless(loaded, options);
    let cache = PrefixCache::<CacheBlock>::new(1 << 30);
    let warm = endless(loaded, options).with_prefix_cache(Some(cache.clone()));
    let warm = warm.with_draft(Some(&plain)).expect("a draft");
    let (prompts, mut requests, mut alone) = (prompts(&plain), Vec::new(), Vec::new());
    for prompt in &prompts {
        requests.extend(variants.iter().map(|variant| (prompt.clone(), variant.clone())));
    }
    for model in models {
        alone.push(Loaded { model, source: golden(case, &[]).source });
    }
    let engines: Vec<Engine<'_>> = std::iter::once(loaded).chain(&alone).map(|one| endless(one, options)).collect();
    for (way, options) in ways() {
        let ask = |engine: &Engine<'_>, prompt: &Prompt| {
            said(engine.generate(prompt.clone(), &options, &mut |_| ControlFlow::Continue(())).expect("an answer"))
        };
        let expected: Vec<Output> =
            prompts.iter().flat_map(|prompt| engines.iter().map(|engine| ask(engine, prompt))).collect();
        if options.report.logprobs.is_some() {
            for own in expected.chunks(variants.len()) {
                let differ = own.iter().skip(1).all(|one| one.choices[0].logprobs != own[0].choices[0].logprobs);
                assert!(differ, "{case}: a variant says what the model says");
            }
        }
        for limits in [ROOMY, Limits { sequences: 9, tokens: 700 }] {
            for (kept, engine) in [("nothing kept", &plain), ("pasts kept", &warm), ("pasts held", &warm)] {
                let found = all(engine.schedule(limits), engine, &requests, &options);
                for (index, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
                    let (prompt, variant) = (index / variants.len(), index % variants.len());
                    let found = said(found.expect("an answer"));
                    let place = format!("{case}, {way}, {kept}, {limits:?}, prompt {prompt}, variant {variant}");
                    assert_eq!(found, *expected, "{place}");
                }
            }
        }
    }
    assert!(cache.figures().hits > 50, "{case}: {:?}", cache.figures());
}

#[test]
fn variants_in_one_batch_give_the_bits_they_give_alone() {
    let cases = ["llama-gqa", "gemma3", "mixtral", "phi3-longrope-long", "llama-rope-dynamic", "t5-v1.1", "mt5"];
    for (index, case) in cases.into_iter().enumerate() {
        let loaded = golden(case, &[]);
        let base = &loaded.model;
        let models = vec![adapted(base, 2, 7), adapted(base, 5, 8), replaced(base)];
        let (kv, chunk) = if index % 2 == 0 { (DType::F32, 512) } else { (DType::F16, 24) };
        let options = EngineOptions { kv: KvTypes::both(kv), chunk, ..EngineOptions::default() };
        compare(case, &loaded, models, &options);
    }
}

/// However many adapters requests have, a step reads the weights once; other weights are read beside them.
#[test]
fn a_step_is_one_walk_whatever_adapters_its_requests_have() {
    for case in ["llama-gqa", "mixtral", "t5-v1.1"] {
        let loaded = golden(case, &[]);
        let base = &loaded.model;
        let walks = |variants: &[Option<Variant>]| {
            let count = Arc::new(AtomicUsize::new(0));
            let own = Arc::clone(&count);
            let on_step = OnStep(Arc::new(move |_: &[&[u32]]| _ = own.fetch_add(1, Ordering::SeqCst)));
            // All prompts fit into one step.
            let options = EngineOptions { chunk: 4096, on_step: Some(on_step), ..EngineOptions::default() };
            let engine = endless(&loaded, &options);
            let prompt = prompts(&engine).swap_remove(1);
            let requests: Vec<_> = variants.iter().map(|variant| (prompt.clone(), variant.clone())).collect();
            let mut few = GenerateOptions::default();
            few.length.max_tokens = Some(6);
            all(engine.schedule(ROOMY), &engine, &requests, &few)
                .into_iter()
                .for_each(|found| drop(found.expect("said")));
            count.load(Ordering::SeqCst)
        };
        let variant = |model: Model| Some(Variant::new(model));
        let mut variants: Vec<_> = (0..8).map(|seed| variant(adapted(base, 2, seed))).collect();
        variants.push(None);
        let alone = walks(&[None]);
        assert!(alone >= 6, "{case}: {alone} walks");
        assert_eq!(walks(&variants), alone, "{case}");
        variants.extend([variant(replaced(base)), variant(replaced(base))]);
        assert_eq!(walks(&variants), 3 * alone, "{case}: each of the two has weights of its own");
    }
}

/// Adapters as peft saves them, of one strength and another.
#[test]
fn adapters_of_files_give_the_bits_they_give_alone() {
    for case in ["lora-llama", "lora-phi3", "lora-regex"] {
        let base = format!("{case}/base");
        let loaded = golden(&base, &[]);
        let adapter = Adapter::open(&golden_root().join(case).join("adapter"), &loaded.source).expect("an adapter");
        let models = [1.0, 3.0, -1.0].map(|strength| adapter.attach(&loaded.model, strength).expect("fits"));
        let options = EngineOptions { kv: KvTypes::both(DType::F32), chunk: 13, ..EngineOptions::default() };
        compare(&base, &loaded, models.into(), &options);
    }
}

/// A variant that is made anew of the same weights begins with nothing of what was kept for the one before.
#[test]
fn what_is_kept_belongs_to_one_variant() {
    let loaded = golden("llama-gqa", &[]);
    let options = EngineOptions::default();
    let cache = PrefixCache::<CacheBlock>::new(1 << 20);
    let engine = endless(&loaded, &options).with_prefix_cache(Some(cache.clone()));
    let prompt = prompts(&engine).swap_remove(2);
    let mut few = GenerateOptions::default();
    few.length.max_tokens = Some(3);
    let cached = |variant: Option<&Variant>| {
        let requests = [(prompt.clone(), variant.cloned())];
        let mut found = all(engine.schedule(ROOMY), &engine, &requests, &few);
        found.pop().expect("one").expect("an answer").usage.cached_tokens
    };
    assert_eq!((cached(None), cached(None)), (0, 128));
    let of_base = cache.figures().bytes;
    let model = adapted(&loaded.model, 2, 7);
    let first = Variant::new(model.clone());
    assert_eq!((cached(Some(&first)), cached(Some(&first)), cached(None)), (0, 128, 128));
    let second = Variant::new(model);
    assert_ne!(first.number(), second.number());
    assert_eq!((cached(Some(&second)), cached(Some(&first))), (0, 128));
    cache.forget_variant(first.number());
    cache.forget_variant(second.number());
    assert_eq!((cache.figures().bytes, cached(None)), (of_base, 128));
}

/// Of the weights a variant holds only what is its own.
#[test]
fn a_variant_shares_the_weights_of_its_base() {
    let loaded = golden("lora-phi3/base", &[]);
    let base = &loaded.model;
    let path = golden_root().join("lora-phi3/adapter");
    let adapter = Adapter::open(&path, &loaded.source).expect("an adapter");
    let variant = Variant::new(adapter.attach(base, 1.0).expect("fits"));
    let own = variant.bytes_beside(base);
    let files: usize = adapter.modules.iter().map(|module| module.rank).sum();
    assert!(own >= files * 4 && own < base.weight_bytes() / 2, "{own} of {}", base.weight_bytes());
    assert_eq!(Variant::new(base.clone()).bytes_beside(base), 0);
    // A whole table comes on top.
    let table = Variant::new(replaced(variant.model()));
    let rows = &base.weights().matrices["embed.tokens.weight"];
    assert!(table.bytes_beside(base) >= own + rows.rows() * rows.cols() * 4);
}

/// A variant of another model fails by itself, and those that join with it do not notice.
#[test]
fn a_variant_of_another_model_is_refused() {
    let (loaded, other) = (golden("llama-gqa", &[]), golden("llama-mha", &[]));
    let engine = endless(&loaded, &EngineOptions::default());
    let (prompt, foreign) = (Prompt::tokens([3, 4]), Variant::new(other.model.clone()));
    let own = Variant::new(adapted(&loaded.model, 2, 7));
    let mut few = GenerateOptions::default();
    few.length.max_tokens = Some(3);
    let requests = [(prompt.clone(), None), (prompt.clone(), Some(foreign)), (prompt, Some(own))];
    let found = all(engine.schedule(ROOMY), &engine, &requests, &few);
    assert!(found[0].is_ok() && found[2].is_ok(), "{found:?}");
    let Err(Error::Unsupported(message)) = &found[1] else { panic!("{:?}", found[1]) };
    assert!(message.contains("adapter"), "{message}");
}
