//! Whole requests: the first after loading, and those of encoder-decoders.

use super::error::Error;
use super::rows::Clock;
use attend_engine::{Beam, Engine, GenerateOptions, Length, Prompt};
use std::ops::ControlFlow;
use std::time::Instant;

/// Exactly `tokens` tokens, whatever they are.
fn options(tokens: usize, beams: usize) -> GenerateOptions {
    GenerateOptions {
        length: Length { max_tokens: Some(tokens), ignore_eos: true, ..Length::default() },
        beam: Beam { num_beams: beams, ..Beam::default() },
        ..GenerateOptions::default()
    }
}

fn answer(engine: &Engine<'_>, prompt: &Prompt, options: &GenerateOptions) -> Result<f64, Error> {
    let started = Instant::now();
    engine.generate(prompt.clone(), options, &mut |_| ControlFlow::Continue(()))?;
    Ok(started.elapsed().as_secs_f64())
}

/// Seconds until the first token of an answer is there.
pub(super) fn first_token(engine: &Engine<'_>, prompt: &Prompt) -> Result<Vec<f64>, Error> {
    Ok(vec![answer(engine, prompt, &options(1, 1))?])
}

/// Seconds of answering sources, all together.
pub(super) fn write(
    engine: &Engine<'_>,
    sources: Vec<Vec<u32>>,
    (tokens, beams): (usize, usize),
    clock: &Clock<'_>,
) -> Result<Vec<f64>, Error> {
    let prompts: Vec<Prompt> = sources.into_iter().map(Prompt::source).collect();
    let all = |tokens: usize| {
        let started = Instant::now();
        engine.generate_all(prompts.clone(), &options(tokens, beams), &mut |_, _| ControlFlow::Continue(()))?;
        Ok(started.elapsed().as_secs_f64())
    };
    all(tokens.min(2))?;
    clock.repeat(|| all(tokens))
}
