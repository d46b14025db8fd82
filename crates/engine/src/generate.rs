//! Answers to one prompt, and to many at once.

use crate::error::Error;
use crate::options::GenerateOptions;
use crate::output::{Event, Output, Prompt};
use crate::request::Surroundings;
use crate::schedule::{EachHandler, Limits, Schedule};
use crate::source::LogitsSource;
use crate::vocabulary::Vocabulary;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Takes events; `Break` ends the work.
pub type Handler<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Answers a prompt. With [`crate::Beam::num_beams`] above 1 by beam search ([`crate::beam`]).
///
/// # Errors
/// Parameters and prompts that cannot be served (before any work), and non-finite logits.
pub fn generate<S: LogitsSource>(
    source: &S,
    vocabulary: Option<&dyn Vocabulary>,
    around: &Surroundings,
    (prompt, options): (&Prompt, &GenerateOptions),
    on: &mut Handler<'_>,
) -> Result<Output, Error> {
    answer(Schedule::new(source, vocabulary, around, Limits::default()), (prompt, options), on)
}

/// The same in a loop that was made already, for this prompt alone.
///
/// # Errors
/// As [`generate`].
pub fn answer<S: LogitsSource>(
    mut schedule: Schedule<'_, S>,
    (prompt, options): (&Prompt, &GenerateOptions),
    on: &mut Handler<'_>,
) -> Result<Output, Error> {
    schedule.add(0, prompt.clone(), Arc::new(options.clone()))?;
    loop {
        if let Some((_, output)) = schedule.step(&mut |_, event| on(event)).pop() {
            return output;
        }
    }
}

/// Answers many prompts, as many at once as the limits allow, the longest first. Each answer is the one that
/// [`generate`] gives to the prompt alone; they come in the prompts' order.
///
/// # Errors
/// As [`generate`], with the index of the prompt.
pub fn generate_all<S: LogitsSource>(
    source: &S,
    vocabulary: Option<&dyn Vocabulary>,
    around: &Surroundings,
    (prompts, options, limits): (Vec<Prompt>, &GenerateOptions, Limits),
    on: &mut EachHandler<'_>,
) -> Result<Vec<Output>, Error> {
    answer_all(Schedule::new(source, vocabulary, around, limits), (prompts, options), on)
}

/// The same in a loop that was made already, for these prompts alone.
///
/// # Errors
/// As [`generate_all`].
pub fn answer_all<S: LogitsSource>(
    mut schedule: Schedule<'_, S>,
    (prompts, options): (Vec<Prompt>, &GenerateOptions),
    on: &mut EachHandler<'_>,
) -> Result<Vec<Output>, Error> {
    let mut outputs: Vec<Option<Output>> = prompts.iter().map(|_| None).collect();
    let options = Arc::new(options.clone());
    for (index, prompt) in prompts.into_iter().enumerate() {
        schedule.add(index, prompt, options.clone()).map_err(|error| error.of_input(index))?;
    }
    schedule.longest_first();
    while !schedule.is_idle() {
        for (index, output) in schedule.step(on) {
            let output = output.map_err(|error| error.of_input(index))?;
            outputs[index] = Some(output);
        }
    }
    Ok(outputs.into_iter().flatten().collect())
}
