//! Hidden states of texts, in the steps in which the tasks make them.

use super::error::Error;
use super::rows::Clock;
use super::work::texts_at_once;
use attend_nn::spec::StackKind;
use attend_nn::{Batch, Model, Nobody, RunOptions};
use std::hint::black_box;
use std::time::Instant;

/// Seconds of taking all texts, which are equally long, through a stack.
pub(super) fn encode(
    (model, stack, run): (&Model, StackKind, &RunOptions),
    texts: &[Vec<u32>],
    clock: &Clock<'_>,
) -> Result<Vec<f64>, Error> {
    let at_once = texts_at_once(texts.first().map_or(1, Vec::len));
    let once = || {
        let started = Instant::now();
        for step in texts.chunks(at_once) {
            black_box(model.forward(stack, &mut Batch::of(step), run, &mut Nobody)?);
        }
        Ok(started.elapsed().as_secs_f64())
    };
    once()?;
    clock.repeat(once)
}
