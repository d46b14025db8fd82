//! L5: room for hardly two requests: many are put back and begun anew, again and again, and say what they say alone.

use crate::serving::{SIZE, alone, decoder, report};
use attend::engine::{Choice, Engine, EngineOptions, GenerateOptions, Limits, Output, PrefixCache, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, load};
use attend::nn::{BLOCK_TOKENS, CacheBlock, KvTypes};
use attend_testkit::golden::Random;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks of keys and values.
const BLOCKS: usize = 7;

/// A workload's requests: prompts of about a block and a half, answers of two and a half, in every way of choosing tokens.
fn workload(random: &mut Random) -> Vec<(Prompt, Arc<GenerateOptions>)> {
    let count = 3 + random.below(4);
    (0..count)
        .map(|_| {
            let ids: Vec<u32> = (0..60 + random.below(90)).map(|_| 3 + random.below(SIZE.vocab - 3) as u32).collect();
            let mut options = GenerateOptions::default();
            (options.length.max_tokens, options.length.ignore_eos) = (Some(120 + random.below(120)), true);
            options.sampling.seed = Some(random.next_u64());
            match random.below(5) {
                0 => options.sampling.temperature = 1.0,
                1 => (options.sampling.temperature, options.sampling.mirostat) = (1.0, 2),
                2 => options.speculation.prompt_lookup_num_tokens = 4,
                3 => (options.report.logprobs, options.constraints.no_repeat_ngram_size) = (Some(2), 3),
                _ => {}
            }
            (Prompt::tokens(ids), Arc::new(options))
        })
        .collect()
}

/// Tokens and log-probabilities of an answer's choices, and after how many steps it ended.
type Said = (Vec<(Vec<u32>, Vec<u32>)>, u32);

/// What an answer says, log-probabilities by their bits.
fn said(output: &Output) -> Vec<(Vec<u32>, Vec<u32>)> {
    let bits = |choice: &Choice| choice.logprobs.iter().map(|one| one.logprob.to_bits()).collect();
    output.choices.iter().map(|choice| (choice.token_ids.clone(), bits(choice))).collect()
}

/// What one schedule says to requests, and after how many steps, and how often one was put back.
fn answers(engine: &Engine<'_>, requests: &[(Prompt, Arc<GenerateOptions>)], limits: Limits) -> (Vec<Said>, u64) {
    let mut schedule = engine.schedule(limits);
    for (key, (prompt, options)) in requests.iter().enumerate() {
        schedule.add(key, prompt.clone(), Arc::clone(options)).expect("a request");
    }
    let (mut ended, mut steps) = (BTreeMap::new(), 0);
    while !schedule.is_idle() {
        steps += 1;
        let step = schedule.step(&mut |_, _| ControlFlow::Continue(())).expect("a step");
        // What the next step needs is counted already; it makes room first.
        let load = schedule.load();
        assert!(load.tokens <= limits.tokens + load.sequences * BLOCK_TOKENS, "{load:?}");
        ended.extend(step.into_iter().map(|(key, output)| (key, (said(&output.expect("an answer")), steps))));
    }
    assert_eq!(schedule.load().tokens, 0, "nothing is held");
    (ended.into_values().collect(), schedule.load().preempted)
}

fn l5(workloads: usize, least: u64, told: bool) {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a folder");
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = load(&decoder(place.path(), &SIZE), &options, &mut |_, _| {}).expect("loads");
    let run = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let plain = Engine::new(&loaded, None, &run).expect("an engine");
    let cached = Engine::new(&loaded, None, &run).expect("an engine");
    let cached = cached.with_prefix_cache(Some(PrefixCache::<CacheBlock>::new(1 << 19)));
    let limits = Limits { sequences: 64, tokens: BLOCKS * BLOCK_TOKENS };
    let mut random = Random(5);
    let (mut put_back, mut requests, mut slowest) = (0, 0, 0f64);
    for index in 0..workloads {
        let engine = if index % 2 == 0 { &plain } else { &cached };
        let workload = workload(&mut random);
        let (together, preempted) = answers(engine, &workload, limits);
        for (key, (found, steps)) in together.iter().enumerate() {
            let (own, _) = answers(&plain, &workload[key..=key], limits);
            assert_eq!(*found, own[0].0, "workload {index}, request {key}");
            // Alone a token takes a step, or less where guesses are right.
            let tokens: usize = found.iter().map(|(tokens, _)| tokens.len()).sum();
            let ratio = f64::from(*steps) / tokens as f64;
            assert!(ratio <= 20.0, "workload {index}, request {key}: {ratio} steps for a token");
            slowest = slowest.max(ratio);
        }
        put_back += preempted;
        requests += workload.len();
    }
    assert!(put_back >= least, "{put_back} were put back");
    if told {
        report(
            "L5",
            &format!(
                "{workloads} workloads of {requests} requests in {BLOCKS} blocks of {BLOCK_TOKENS} tokens: {put_back} put back, \
                 every answer as alone, the slowest with {slowest:.1} steps for a token"
            ),
        );
    }
}

#[test]
fn l5_tiny_pool_in_small() {
    l5(12, 10, false);
}

#[test]
#[ignore = "takes minutes"]
fn l5_tiny_pool() {
    l5(500, 1000, true);
}
