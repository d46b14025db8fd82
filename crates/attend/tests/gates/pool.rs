//! L5: room for hardly two requests: many are put back and begun anew, again and again, say what they say alone, and are done
//! within twenty times the time that they take alone.
//!
//! The room is 7 blocks of 64 tokens for texts of up to six of them. Time is counted twice: in rows, which are the same on every
//! machine (a step costs as much as its rows and [`FIXED`] more, for the weights that it reads), and in the full gate also in
//! time of the processor, all on one thread, so that it does not count who else uses the machine.

use crate::serving::{SIZE, alone, decoder, processor_seconds, report};
use attend::engine::source::LogitsSource;
use attend::engine::{
    Choice, Engine, EngineOptions, GenerateOptions, Limits, OnStep, Output, PrefixCache, Prompt, Schedule,
};
use attend::kernels::{Compute, DType, set_threads};
use attend::model::{LoadOptions, Loaded, load};
use attend::nn::{BLOCK_TOKENS, CacheBlock, KvTypes};
use attend_testkit::golden::Random;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Blocks of keys and values.
const BLOCKS: usize = 7;

/// What a step costs beside its rows, in rows.
const FIXED: u64 = 4;

/// A request, how urgent it is, and the step before which it comes.
#[derive(Clone)]
struct Asked {
    prompt: Prompt,
    options: Arc<GenerateOptions>,
    priority: i64,
    comes: usize,
}

/// Ways of choosing tokens and of asking. None is so small that others, which may all come first, are twenty times its work
/// without anybody starving.
fn options(random: &mut Random) -> GenerateOptions {
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.length.ignore_eos) = (Some(120 + random.below(120)), true);
    options.sampling.seed = Some(random.next_u64());
    match random.below(10) {
        0 => options.sampling.temperature = 1.0,
        1 => (options.sampling.temperature, options.sampling.mirostat) = (1.0, 2),
        2 => options.speculation.prompt_lookup_num_tokens = 4,
        3 => (options.report.logprobs, options.constraints.no_repeat_ngram_size) = (Some(2), 3),
        4 => {
            (options.sampling.temperature, options.length.n) = (0.9, 2);
            options.length.max_tokens = Some(60 + random.below(40));
        }
        5 => {
            (options.beam.num_beams, options.report.logprobs) = (2, Some(0));
            options.length.max_tokens = Some(60 + random.below(30));
        }
        6 => options.report.prompt_logprobs = Some(1),
        7 => options.sampling.repetition_penalty = 1.2,
        _ => {}
    }
    options
}

/// A workload's requests: prompts of a few tokens to three blocks, some of which begin alike; some come later, some are urgent.
fn workload(random: &mut Random) -> Vec<Asked> {
    let root: Vec<u32> = (0..130).map(|_| 3 + random.below(SIZE.vocab - 3) as u32).collect();
    let (kind, count) = (random.below(5), 3 + random.below(5));
    let one = |_| {
        let length = if kind == 0 && random.below(2) == 0 { 1 + random.below(20) } else { 60 + random.below(120) };
        let mut ids: Vec<u32> = (0..length).map(|_| 3 + random.below(SIZE.vocab - 3) as u32).collect();
        if kind == 1 {
            let shared = ids.len().min(root.len());
            ids[..shared].copy_from_slice(&root[..shared]);
        }
        Asked {
            prompt: Prompt::tokens(ids),
            options: Arc::new(options(random)),
            priority: if kind == 2 { random.below(3) as i64 } else { 0 },
            comes: if kind == 3 { random.below(200) } else { 0 },
        }
    };
    (0..count).map(one).collect()
}

/// Tokens and bits of log-probabilities of an answer's choices, and the bits of its prompt's.
type Said = (Vec<(Vec<u32>, Vec<u32>)>, Vec<u32>);

fn said(output: &Output) -> Said {
    let bits = |choice: &Choice| choice.logprobs.iter().map(|one| one.logprob.to_bits()).collect();
    let read = output.prompt_logprobs.iter().flatten().flatten().map(|one| one.logprob.to_bits()).collect();
    (output.choices.iter().map(|choice| (choice.token_ids.clone(), bits(choice))).collect(), read)
}

/// An answer, and what passed between its request and its end: rows, and seconds of the processor.
struct Done {
    said: Said,
    rows: u64,
    seconds: f64,
}

/// An engine whose rows are counted.
struct Counted<'m> {
    engine: Engine<'m>,
    rows: Arc<AtomicU64>,
}

impl<'m> Counted<'m> {
    fn new(loaded: &'m Loaded, kept: Option<u64>, chunk: usize) -> Counted<'m> {
        let rows = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&rows);
        let on_step = move |feeds: &[&[u32]]| {
            let tokens: usize = feeds.iter().map(|feed| feed.len()).sum();
            count.fetch_add(tokens as u64 + FIXED, Relaxed);
        };
        let options = EngineOptions {
            kv: KvTypes::both(DType::F32),
            on_step: Some(OnStep(Arc::new(on_step))),
            chunk,
            ..EngineOptions::default()
        };
        let engine = Engine::new(loaded, None, &options).expect("an engine");
        let engine = engine.with_prefix_cache(kept.map(PrefixCache::<CacheBlock>::new));
        Counted { engine, rows }
    }

    fn add(&self, schedule: &mut Schedule<'_, impl LogitsSource>, key: usize, asked: &Asked) {
        let ready = self.engine.ready(asked.prompt.clone(), Arc::clone(&asked.options)).expect("a request");
        schedule.add_ready(key, ready.ranked(asked.priority, ""));
    }

    /// What one schedule says to requests, in their order, and how often one was put back.
    fn answers(&self, requests: &[Asked], limits: Limits) -> (Vec<Done>, u64) {
        let mut schedule = self.engine.schedule(limits);
        let (mut came, mut ended) = (BTreeMap::new(), BTreeMap::new());
        let mut steps = 0;
        while ended.len() < requests.len() {
            for (key, asked) in requests.iter().enumerate() {
                // Whoever would come to an idle schedule comes now.
                if !came.contains_key(&key) && (asked.comes <= steps || schedule.is_idle()) {
                    self.add(&mut schedule, key, asked);
                    came.insert(key, (self.rows.load(Relaxed), processor_seconds()));
                }
            }
            steps += 1;
            let step = schedule.step(&mut |_, _| ControlFlow::Continue(()));
            // What the next step needs is counted already; it makes room first. One alone may hold more.
            let load = schedule.load();
            assert!(load.running < 2 || load.tokens <= limits.tokens + load.sequences * BLOCK_TOKENS, "{load:?}");
            for (key, output) in step {
                let (rows, since) = came[&key];
                let said = said(&output.expect("an answer"));
                let done = Done { said, rows: self.rows.load(Relaxed) - rows, seconds: processor_seconds() - since };
                ended.insert(key, done);
            }
        }
        assert_eq!(schedule.load().tokens, 0, "nothing is held");
        (ended.into_values().collect(), schedule.load().preempted)
    }
}

/// The most of what the requests of a workload take together, of what they take alone: rows, and seconds. Who reads in small
/// pieces does so alone, too.
fn compare(index: usize, [together, own, plain]: [&Counted<'_>; 3], workload: &[Asked]) -> (f64, f64, u64) {
    let limits = Limits { sequences: 64, tokens: BLOCKS * BLOCK_TOKENS };
    let (found, preempted) = together.answers(workload, limits);
    let (mut rows, mut seconds) = (0f64, 0f64);
    for (key, found) in found.iter().enumerate() {
        let (expected, _) = plain.answers(&workload[key..=key], limits);
        assert_eq!(found.said, expected[0].said, "workload {index}, request {key}");
        let (alone, _) = own.answers(&workload[key..=key], limits);
        rows = rows.max(found.rows as f64 / alone[0].rows as f64);
        seconds = seconds.max(found.seconds / alone[0].seconds);
    }
    (rows, seconds, preempted)
}

fn opened(place: &Path) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(&decoder(place, &SIZE), &options, &mut |_, _| {}).expect("loads")
}

fn l5(workloads: usize, least: u64, timed: bool) {
    let _alone = alone();
    set_threads(1);
    let place = tempfile::tempdir().expect("a folder");
    let loaded = opened(place.path());
    let (plain, chunked) = (Counted::new(&loaded, None, 512), Counted::new(&loaded, None, 24));
    let cached = Counted::new(&loaded, Some(1 << 19), 512);
    let mut random = Random(5);
    let (mut put_back, mut requests, mut most_rows, mut most_seconds) = (0, 0, 0f64, 0f64);
    for index in 0..workloads {
        let engines = [[&plain, &plain, &plain], [&cached, &plain, &plain], [&chunked, &chunked, &plain]][index % 3];
        let workload = workload(&mut random);
        let (rows, mut seconds, preempted) = compare(index, engines, &workload);
        assert!(rows <= 20.0, "workload {index}: {rows} times the rows that a request needs alone");
        // A cache that somebody else has emptied costs time too: the best of three counts.
        for _ in 0..2 {
            if timed && seconds > 20.0 {
                seconds = seconds.min(compare(index, engines, &workload).1);
            }
        }
        assert!(!timed || seconds <= 20.0, "workload {index}: {seconds} times the time that a request takes alone");
        (most_rows, most_seconds) = (most_rows.max(rows), most_seconds.max(seconds));
        put_back += preempted;
        requests += workload.len();
    }
    set_threads(0);
    assert!(put_back >= least, "{put_back} were put back");
    if timed {
        report(
            "L5",
            &format!(
                "{workloads} workloads of {requests} requests in {BLOCKS} blocks of {BLOCK_TOKENS} tokens: {put_back} put back, \
                 every answer as alone; from a request to its end passed at most {most_rows:.1} times the rows, and \
                 {most_seconds:.1} times the processor's time, that it takes alone"
            ),
        );
    }
}

#[test]
fn l5_tiny_pool_in_small() {
    l5(15, 10, false);
}

#[test]
#[ignore = "takes minutes"]
fn l5_tiny_pool() {
    l5(500, 1000, true);
}
