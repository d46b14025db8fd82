//! Guessing ahead: whatever is guessed, by whomever, the answer is the one without guesses; and right guesses save steps.

mod common;

use attend_engine::generate::answer;
use attend_engine::{
    Draft, Engine, EngineOptions, Error, Event, GenerateOptions, Limits, Output, Prompt, Schedule, Surroundings,
};
use attend_kernels::{Compute, DType};
use attend_model::{LoadOptions, Loaded, load};
use attend_nn::KvTypes;
use attend_nn::spec::Body;
use attend_testkit::golden::{Random, golden_root};
use common::{Script, Words, ask_in, one_hot};
use std::ops::ControlFlow;

const VOCAB: usize = 6;

fn around() -> Surroundings {
    Surroundings { context: Some(200), chunk: 7, end_ids: vec![0], ..Surroundings::default() }
}

/// What an answer is, without how long it took and how it was guessed.
fn said(output: Output) -> Output {
    Output { timings: Default::default(), guesses: Default::default(), ..output }
}

/// A row that depends on all tokens before it, and differs from another one by `salt` now and then.
fn mixed(vocab: usize, salt: u64) -> Script {
    Script::new(vocab, move |tokens| {
        let mix = tokens.iter().fold(17u64, |mix, &id| (mix ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mix = if mix >> 62 == 0 { mix ^ salt } else { mix };
        (0..vocab as u64).map(|id| ((mix.rotate_left(id as u32 * 7) >> 40) as f32) / (1u64 << 22) as f32).collect()
    })
}

/// A row that the last two tokens decide, so that texts repeat themselves.
fn repeating(vocab: usize) -> Script {
    Script::new(vocab, move |tokens| {
        let last: u32 = tokens.iter().rev().take(2).sum();
        one_hot(vocab, 1 + (last * 3 + 1) % (vocab as u32 - 1))
    })
}

fn ways() -> Vec<(&'static str, GenerateOptions)> {
    let way = |change: &dyn Fn(&mut GenerateOptions)| {
        let mut options = GenerateOptions::default();
        (options.length.max_tokens, options.length.ignore_eos, options.sampling.seed) = (Some(60), true, Some(5));
        change(&mut options);
        options
    };
    vec![
        ("greedy", way(&|_| {})),
        ("until it ends", way(&|o| o.length.ignore_eos = false)),
        ("sampled", way(&|o| o.sampling.temperature = 0.9)),
        ("three answers", way(&|o| (o.length.n, o.sampling.temperature) = (3, 1.2))),
        ("log-probabilities", way(&|o| (o.report.logprobs, o.report.prompt_logprobs) = (Some(3), Some(1)))),
        ("a stop string", way(&|o| o.length.stop = vec!["cc".into(), "eda".into()])),
        ("a stop token", way(&|o| o.length.stop_ids = vec![4])),
        ("one token", way(&|o| o.length.max_tokens = Some(1))),
        ("until the context is full", way(&|o| o.length.max_tokens = None)),
        ("penalties", way(&|o| (o.sampling.repetition_penalty, o.sampling.frequency_penalty) = (1.3, 0.2))),
        ("no repeated triple", way(&|o| o.constraints.no_repeat_ngram_size = 3)),
        ("mirostat", way(&|o| (o.sampling.mirostat, o.sampling.temperature) = (2, 1.0))),
        ("dry", way(&|o| (o.sampling.dry_multiplier, o.sampling.temperature) = (0.8, 0.7))),
        ("xtc", way(&|o| (o.sampling.xtc_probability, o.sampling.temperature) = (0.5, 1.0))),
        ("a forced end", way(&|o| o.constraints.forced_eos_token_id = vec![2])),
        ("two beams", way(&|o| o.beam.num_beams = 2)),
    ]
}

fn words() -> Words {
    Words::new(&["", "a", "b", "c", "d", "e"])
}

/// The answer, and how many steps the source took for it.
fn steps(
    source: &Script,
    draft: Option<Draft<'_, Script>>,
    prompt: &[u32],
    options: &GenerateOptions,
) -> (Output, usize) {
    let (around, words) = (around(), words());
    source.calls.borrow_mut().clear();
    let schedule = Schedule::new(source, Some(&words), &around, Limits::default()).with_draft(draft);
    let output = match options.beam.num_beams {
        1 => ask_in(schedule, prompt, options).expect("an answer").0,
        _ => answer(schedule, (&Prompt::tokens(prompt), options), &mut |_| ControlFlow::Continue(())).expect("one"),
    };
    let steps = source.calls.borrow().len();
    (output, steps)
}

#[test]
fn lookup_never_changes_an_answer() {
    let prompt = [1, 2, 3, 1, 2, 4, 5, 1, 2, 3, 3, 3, 1];
    for (kind, source) in [("mixed", mixed(VOCAB, 0)), ("repeating", repeating(VOCAB))] {
        for (way, options) in ways() {
            let (plain, _) = steps(&source, None, &prompt, &options);
            for (tokens, ngram) in [(1, 1), (4, 3), (16, 2), (64, 64)] {
                let mut options = options.clone();
                options.speculation.prompt_lookup_num_tokens = tokens;
                options.speculation.max_matching_ngram_size = ngram;
                let (found, _) = steps(&source, None, &prompt, &options);
                assert_eq!(said(found), said(plain.clone()), "{kind}, {way}, {tokens} tokens after {ngram}");
            }
            let mut options = options.clone();
            options.speculation.guess_when_it_pays = true;
            let (found, _) = steps(&source, None, &prompt, &options);
            assert!(
                found.guesses.offered > 0 || kind == "mixed" || way != "greedy",
                "{kind}, {way}: nothing was tried"
            );
            assert_eq!(said(found), said(plain.clone()), "{kind}, {way}, as long as it pays");
        }
    }
}

#[test]
fn a_draft_never_changes_an_answer() {
    let prompt = [1, 2, 3, 1, 2, 4];
    let drafts = [
        ("the same", mixed(VOCAB, 0)),
        ("one that is right now and then", mixed(VOCAB, 0x5555_1234_8765_9999)),
        ("one that is always wrong", Script::new(VOCAB, |tokens| one_hot(VOCAB, 1 + tokens.len() as u32 % 5))),
        ("a smaller vocabulary", mixed(VOCAB - 2, 0)),
        ("a larger vocabulary", mixed(VOCAB + 7, 0)),
        ("no numbers", Script::new(VOCAB, |_| vec![f32::NAN; VOCAB])),
    ];
    let source = mixed(VOCAB, 0);
    for (way, options) in ways() {
        let (plain, _) = steps(&source, None, &prompt, &options);
        for (name, draft) in &drafts {
            for (tokens, lookup, context) in [(8, 0, None), (1, 0, None), (3, 4, None), (8, 0, Some(20)), (0, 0, None)]
            {
                for pays in [false, true] {
                    let mut options = options.clone();
                    options.speculation.num_assistant_tokens = tokens;
                    options.speculation.prompt_lookup_num_tokens = lookup;
                    options.speculation.guess_when_it_pays = pays;
                    let (found, _) = steps(&source, Some(Draft { source: draft, context }), &prompt, &options);
                    let place = format!("{way}, {name}, {tokens} tokens, lookup {lookup}, as it pays: {pays}");
                    assert_eq!(said(found), said(plain.clone()), "{place}");
                }
            }
        }
    }
}

#[test]
fn right_guesses_save_steps_and_are_counted() {
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.length.ignore_eos) = (Some(100), true);
    let (source, prompt) = (repeating(VOCAB), [1, 2, 3]);
    let (plain, slow) = steps(&source, None, &prompt, &options);
    assert_eq!((slow, plain.guesses.offered), (100, 0));

    options.speculation.prompt_lookup_num_tokens = 16;
    let (found, fast) = steps(&source, None, &prompt, &options);
    assert!(fast < 100 / 3, "{fast} steps");
    // Every step gives one token beside the right guesses.
    assert_eq!(found.guesses.right + fast, 100);
    assert!(found.guesses.right <= found.guesses.offered);

    options.speculation.prompt_lookup_num_tokens = 0;
    options.sampling.temperature = 1.0;
    options.sampling.seed = Some(3);
    let (source, draft) = (mixed(VOCAB, 0), mixed(VOCAB, 0));
    let (found, fast) = steps(&source, Some(Draft { source: &draft, context: None }), &prompt, &options);
    // The same model with the same random numbers is always right: eight guesses in a step once it is trusted.
    assert_eq!(found.guesses.right, found.guesses.offered);
    assert!(fast <= 14, "{fast} steps");
}

#[test]
fn wrong_guesses_cost_ever_fewer_tokens() {
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.length.ignore_eos) = (Some(50), true);
    let source = Script::new(VOCAB, |tokens| one_hot(VOCAB, 1 + (tokens.len() as u32 * tokens.len() as u32) % 5));
    let draft = Script::new(VOCAB, |_| one_hot(VOCAB, 0));
    let (found, _) = steps(&source, Some(Draft { source: &draft, context: None }), &[1, 2, 3], &options);
    // Four at first, one in each of the other steps but the last, which has nothing to guess.
    assert_eq!((found.guesses.offered, found.guesses.right), (4 + 47, 0));
}

/// Requests that guess, many at once and with little room.
#[test]
fn company_and_being_put_back_change_nothing() {
    let (source, draft, words) = (mixed(VOCAB, 0), mixed(VOCAB, 0x5555_1234_8765_9999), words());
    let around = Surroundings { context: Some(400), chunk: 5, end_ids: vec![0], ..Surroundings::default() };
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.sampling.temperature, options.sampling.seed) = (Some(150), 1.0, Some(8));
    options.length.ignore_eos = true;
    let prompts: Vec<Prompt> = (1..=9).map(|length| Prompt::tokens(vec![3; length])).collect();
    let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
    let plain = attend_engine::generate::generate_all(
        &source,
        Some(&words),
        &around,
        (prompts.clone(), &options, Limits::default()),
        go_on,
    )
    .expect("answers");
    options.speculation.prompt_lookup_num_tokens = 8;
    for limits in [Limits::default(), Limits { sequences: 3, tokens: 400 }, Limits { sequences: 64, tokens: 700 }] {
        let draft = Some(Draft { source: &draft, context: None });
        let schedule = Schedule::new(&source, Some(&words), &around, limits).with_draft(draft);
        let found = attend_engine::generate::answer_all(schedule, (prompts.clone(), &options), go_on).expect("answers");
        assert!(found.iter().any(|output| output.guesses.offered > 0));
        for (found, plain) in found.into_iter().zip(&plain) {
            assert_eq!(said(found), said(plain.clone()), "{limits:?}");
        }
    }
}

fn golden(case: &str) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(&golden_root().join(case), &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{case}: {error}"))
}

/// Models of every kind of position and cache, by lookup, and with themselves in coarser arithmetic as the draft.
#[test]
fn real_caches_forget_wrong_guesses_without_a_trace() {
    let cases = [
        "llama-gqa",
        "llama-rope-dynamic",
        "gemma2",
        "gemma3",
        "bloom",
        "gpt2",
        "mistral",
        "phi3",
        "phi3-longrope-long",
        "deepseek_v2",
        "t5-v1.1",
        "bart",
    ];
    let mut checked = 0;
    for case in cases {
        let loaded = golden(case);
        let mut random = Random(11);
        for kv in [DType::F32, DType::Q8_0] {
            let options = EngineOptions { kv: KvTypes::both(kv), chunk: 5, ..EngineOptions::default() };
            let coarse = EngineOptions { kv: KvTypes::both(DType::BF16), ..options.clone() };
            let endless = |options: &EngineOptions| {
                let mut engine = Engine::new(&loaded, None, options).expect("an engine");
                engine.surroundings_mut().context = None;
                engine
            };
            let (draft, plain) = (endless(&coarse), endless(&options));
            let helped = endless(&options).with_draft(Some(&draft)).expect("a draft");
            let vocab = loaded.model.vocab().expect("a vocabulary");
            let ids: Vec<u32> = (0..9).map(|_| 3 + random.below(vocab - 3) as u32).collect();
            let ids = [ids.as_slice(), &ids].concat();
            let prompt = match loaded.model.spec().body {
                Body::EncoderDecoder { .. } => Prompt::source(ids),
                Body::Encoder(_) | Body::Decoder(_) => Prompt::tokens(ids),
            };
            for temperature in [0.0, 1.0] {
                let mut options = GenerateOptions::default();
                (options.length.max_tokens, options.length.ignore_eos) = (Some(40), true);
                (options.sampling.temperature, options.sampling.seed) = (temperature, Some(2));
                options.report.logprobs = Some(2);
                let ask = |engine: &Engine<'_>, options: &GenerateOptions| {
                    engine.generate(prompt.clone(), options, &mut |_| ControlFlow::Continue(()))
                };
                let expected = match ask(&plain, &options) {
                    Ok(expected) => said(expected),
                    // Heads that are no whole blocks.
                    Err(Error::Model(_)) if kv == DType::Q8_0 => continue,
                    Err(error) => panic!("{case}: {error}"),
                };
                let drafted = ask(&helped, &options).expect("an answer");
                options.speculation.prompt_lookup_num_tokens = 6;
                let looked_up = ask(&plain, &options).expect("an answer");
                options.speculation.prompt_lookup_num_tokens = 0;
                options.speculation.guess_when_it_pays = true;
                for engine in [&plain, &helped] {
                    let found = ask(engine, &options).expect("an answer");
                    assert_eq!(said(found), expected, "{case}, {kv}, temperature {temperature}: as long as it pays");
                }
                assert!(drafted.guesses.right > 0, "{case}: {:?}", drafted.guesses);
                assert_eq!(said(drafted), expected, "{case}, {kv}, temperature {temperature}: a draft");
                assert_eq!(said(looked_up), expected, "{case}, {kv}, temperature {temperature}: lookup");
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "{checked} combinations");
}
