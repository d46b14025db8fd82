//! Every way of answering, in every room, and the answers without what a clock says.

use crate::common::{Script, Words};
use attend_engine::generate::{generate, generate_all};
use attend_engine::source::LogitsSource;
use attend_engine::{EarlyStopping, Event, GenerateOptions, Limits, Output, Prompt, Surroundings};
use std::ops::ControlFlow;

pub const ROOMY: Limits = Limits { sequences: 1 << 20, tokens: 1 << 40 };

/// An output without what a clock says.
pub fn timeless(output: Output) -> Output {
    Output { timings: Default::default(), ..output }
}

pub fn alone<S: LogitsSource>(
    source: &S,
    words: &Words,
    around: &Surroundings,
    prompt: &Prompt,
    o: &GenerateOptions,
) -> Output {
    let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
    timeless(generate(source, Some(words), around, (prompt, o), go_on).expect("an answer"))
}

pub fn together<S: LogitsSource>(
    source: &S,
    words: &Words,
    around: &Surroundings,
    prompts: &[Prompt],
    (options, limits): (&GenerateOptions, Limits),
) -> Vec<Output> {
    let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
    let asked = (prompts.to_vec(), options, limits);
    let outputs = generate_all(source, Some(words), around, asked, go_on).expect("answers");
    outputs.into_iter().map(timeless).collect()
}

/// A row that depends on all tokens before it; token 0 ends.
pub fn mixed(vocab: usize) -> Script {
    Script::new(vocab, move |tokens| {
        let mix = tokens.iter().fold(17u64, |mix, &id| (mix ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (0..vocab as u64).map(|id| ((mix.rotate_left(id as u32 * 7) >> 40) as f32) / (1u64 << 22) as f32).collect()
    })
}

/// Every way of answering.
pub fn ways() -> Vec<(&'static str, GenerateOptions)> {
    let plain = || {
        let mut options = GenerateOptions::default();
        options.length.max_tokens = Some(90);
        options.sampling.seed = Some(5);
        options
    };
    let change = |change: &dyn Fn(&mut GenerateOptions)| {
        let mut options = plain();
        change(&mut options);
        options
    };
    vec![
        ("greedy", plain()),
        (
            "greedy with log-probabilities",
            change(&|o| (o.report.logprobs, o.report.prompt_logprobs) = (Some(2), Some(1))),
        ),
        ("sampled", change(&|o| o.sampling.temperature = 1.2)),
        ("three samples", change(&|o| (o.sampling.temperature, o.length.n) = (0.9, 3))),
        ("mirostat", change(&|o| (o.sampling.temperature, o.sampling.mirostat) = (1.0, 2))),
        ("stop strings", change(&|o| (o.length.stop, o.sampling.temperature) = (vec!["ca".into(), "dd".into()], 1.0))),
        ("beams", change(&|o| (o.beam.num_beams, o.beam.num_return_sequences) = (4, 3))),
        (
            "beams with log-probabilities",
            change(&|o| {
                (o.beam.num_beams, o.beam.num_return_sequences, o.beam.length_penalty) = (3, 3, 0.3);
                (o.report.logprobs, o.constraints.no_repeat_ngram_size) = (Some(1), 2);
            }),
        ),
        (
            "samples, forced and forbidden tokens",
            change(&|o| {
                (o.sampling.temperature, o.constraints.forced_bos_token_id) = (1.1, Some(3));
                (o.constraints.forced_eos_token_id, o.constraints.min_length) = (vec![2], 20);
                (o.constraints.no_repeat_ngram_size, o.constraints.bad_words_ids) = (4, vec![vec![1, 5]]);
            }),
        ),
        (
            "beams, forced and forbidden tokens",
            change(&|o| {
                (o.beam.num_beams, o.beam.num_return_sequences, o.beam.length_penalty) = (3, 2, -0.5);
                (o.beam.early_stopping, o.length.min_tokens) = (EarlyStopping::First, 5);
                (o.constraints.forced_bos_token_id, o.constraints.forced_eos_token_id) = (Some(3), vec![2]);
                (o.constraints.no_repeat_ngram_size, o.constraints.encoder_no_repeat_ngram_size) = (3, 2);
            }),
        ),
        (
            "beams to the end",
            change(&|o| {
                (o.beam.num_beams, o.beam.early_stopping, o.length.ignore_eos) = (2, EarlyStopping::Never, true)
            }),
        ),
        ("nothing but the prompt", change(&|o| (o.length.max_tokens, o.report.prompt_logprobs) = (Some(0), Some(0)))),
    ]
}

/// Bounds from none to what hardly fits one request.
pub fn bounds() -> [Limits; 5] {
    let limits = |sequences, tokens| Limits { sequences, tokens };
    [ROOMY, limits(5, 1 << 20), limits(1, 1), limits(64, 700), limits(7, 400)]
}
