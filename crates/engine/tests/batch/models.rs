//! Models: whatever keeps positions, keys and values, each request has its own bits.

use crate::support::{ROOMY, timeless, ways};
use attend_engine::generate::generate_all;
use attend_engine::source::{Feed, LogitsSource};
use attend_engine::{Engine, EngineOptions, Event, Limits, Output, Prompt};
use attend_kernels::DType;
use attend_model::{LoadOptions, load};
use attend_nn::KvTypes;
use attend_nn::spec::{Body, Position, RopeScaling};
use attend_testkit::golden::{Random, golden_root};
use std::ops::ControlFlow;

/// Where frequencies change with the length, what is fed at once gives the rows that it gives token by token.
#[test]
fn a_change_of_regime_in_the_midst_of_a_step() {
    let loaded =
        load(&golden_root().join("phi3-longrope-long"), &LoadOptions::default(), &mut |_, _| {}).expect("loads");
    let run = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let engine = Engine::new(&loaded, None, &run).expect("an engine");
    let source = engine.source();
    let mut random = Random(2);
    // The original length is 16.
    let tokens: Vec<u32> = (0..30).map(|_| random.below(source.input_vocab()) as u32).collect();
    let rows = |sizes: &[usize]| -> Vec<Vec<f32>> {
        let mut state = source.start(5, None).expect("starts");
        let (mut rows, mut rest) = (Vec::new(), tokens.as_slice());
        for &size in sizes {
            let (now, behind) = rest.split_at(size);
            rest = behind;
            let feed = Feed { state: &mut state, tokens: now, rows_from: 0 };
            let take = &mut |_: usize, _: usize, row: &[f32]| {
                rows.push(row.to_vec());
                Ok(())
            };
            source.feed(&mut [feed], take).expect("feeds");
        }
        rows
    };
    let one_by_one = rows(&[1; 30]);
    assert_eq!(one_by_one.len(), 30);
    for sizes in [&[30][..], &[5, 25], &[16, 14], &[15, 2, 13], &[17, 13]] {
        assert_eq!(rows(sizes), one_by_one, "{sizes:?}");
    }
}

/// Of two requests in one batch one grows beyond the original length and is computed anew with other frequencies, while the
/// other stays below it.
#[test]
fn a_change_of_regime_is_a_requests_own() {
    let loaded =
        load(&golden_root().join("phi3-longrope-long"), &LoadOptions::default(), &mut |_, _| {}).expect("loads");
    let Body::Decoder(stack) = &loaded.model.spec().body else { panic!("a decoder") };
    let Position::Rope(rope) = &stack.layers[0].attention.position else { panic!("rotary") };
    let RopeScaling::Long { original, .. } = rope.scaling else { panic!("LongRoPE: {:?}", rope.scaling) };
    let mut random = Random(4);
    let mut tokens = |length: usize| -> Vec<u32> { (0..length).map(|_| random.below(90) as u32).collect() };
    // Prompt lengths: one crosses in its answer, one stays below, one is longer from the start, one ends at the limit.
    let lengths = [original - 5, 2, original + 3, original - 12];
    let prompts: Vec<Prompt> = lengths.map(|length| Prompt::tokens(tokens(length))).into();
    for chunk in [5, 512] {
        let run = EngineOptions { kv: KvTypes::both(DType::F32), chunk, ..EngineOptions::default() };
        let engine = Engine::new(&loaded, None, &run).expect("an engine");
        for (way, mut options) in ways().into_iter().filter(|(way, _)| !way.starts_with("stop")) {
            (options.length.max_tokens, options.length.ignore_eos) = (Some(12), true);
            let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
            let alone = |prompt: &Prompt| engine.generate(prompt.clone(), &options, &mut *go_on).expect("an answer");
            let alone: Vec<Output> = prompts.iter().map(alone).map(timeless).collect();
            let written: Vec<usize> = alone.iter().map(|output| output.choices[0].token_ids.len()).collect();
            assert_eq!(written, [12; 4], "{way}");
            let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
            let found = engine.generate_all(prompts.clone(), &options, go_on).expect("answers");
            let found: Vec<Output> = found.into_iter().map(timeless).collect();
            assert_eq!(found, alone, "{way}, chunks of {chunk}");
        }
    }
}

/// Tiny models of every kind of position, cache and cross-attention.
#[test]
fn models_give_the_bits_they_give_alone() {
    let cases = [
        "t5-v1.0",
        "t5-v1.1",
        "bart",
        "marian",
        "m2m100",
        "fsmt",
        "gpt2",
        "llama-gqa",
        "mpt",
        "bloom",
        "gemma3",
        "phi3-longrope-long",
        "deepseek_v2",
        "mixtral",
        "llama-rope-dynamic",
        "gpt_oss",
    ];
    for case in cases {
        let folder = golden_root().join(case);
        let loaded = load(&folder, &LoadOptions::default(), &mut |_, _| {}).expect("a model");
        let context = loaded.model.spec().context.map_or(100, |context| context.min(100));
        let run =
            EngineOptions { context: Some(context), kv: KvTypes::both(DType::F16), chunk: 24, ..Default::default() };
        let engine = Engine::new(&loaded, None, &run).expect("an engine");
        let mut random = Random(11);
        let vocab = engine.source().input_vocab();
        let seq2seq = engine.is_encoder_decoder();
        let prompt = |_| {
            let ids: Vec<u32> = (0..1 + random.below(context - 8)).map(|_| random.below(vocab) as u32).collect();
            engine.complete(if seq2seq { Prompt::source(ids) } else { Prompt::tokens(ids) }).expect("a prompt")
        };
        let prompts: Vec<Prompt> = (0..7).map(prompt).collect();
        for (way, mut options) in ways().into_iter().filter(|(way, _)| !way.starts_with("stop")) {
            options.length.max_tokens = Some(if seq2seq { 12 } else { 7 }.min(options.length.max_tokens.unwrap_or(0)));
            let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
            let alone =
                prompts.iter().map(|prompt| engine.generate(prompt.clone(), &options, go_on).expect("an answer"));
            let alone: Vec<Output> = alone.map(timeless).collect();
            for limits in [ROOMY, Limits { sequences: 6, tokens: 500 }] {
                let asked = (prompts.clone(), &options, limits);
                let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
                let found = generate_all(engine.source(), None, engine.surroundings(), asked, go_on).expect("answers");
                let found: Vec<Output> = found.into_iter().map(timeless).collect();
                assert_eq!(found, alone, "{case}, {way}, {limits:?}");
            }
        }
    }
}
