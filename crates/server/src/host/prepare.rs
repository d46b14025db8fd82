//! Making requests ready: templates, tokens, checks. It is done beside the thread that computes.

use super::ask::{Generate, Job, Prepared, Said};
use super::tools::Tools;
use crate::failure::Failure;
use attend_engine::Ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes one request after the other ready until no more can come.
pub fn run(tools: &Tools<'_>, jobs: &Mutex<Receiver<Job>>, inbox: Sender<Prepared>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A panic drops the sender of the answer, which says that there is none.
        let prepared = catch_unwind(AssertUnwindSafe(|| prepare(tools, job))).ok().flatten();
        if prepared.is_some_and(|prepared| inbox.send(prepared).is_err()) {
            return;
        }
    }
}

fn prepare(tools: &Tools<'_>, job: Job) -> Option<Prepared> {
    match job {
        Job::Generate(_, to, _) if to.is_closed() => None,
        Job::Generate(ask, to, ticket) => {
            let stream = ask.stream;
            match answers(tools, ask) {
                Ok(ready) => {
                    let read = |ready: &Ready| {
                        ready.prompt().token_ids.len() + ready.prompt().encoder_ids.as_ref().map_or(0, Vec::len)
                    };
                    let tokens = ready.iter().map(read).collect();
                    let _ = to.send(Said::Accepted(tokens));
                    Some(Prepared::Answers { ready, stream, to, ticket })
                }
                Err(failure) => {
                    let _ = to.send(Said::Failed(failure));
                    None
                }
            }
        }
        Job::Embed(_, to, _) if to.is_closed() => None,
        Job::Embed(embed, to, ticket) => match tools.items(embed) {
            Ok(items) => Some(Prepared::Embed { items, to, ticket }),
            Err(failure) => {
                let _ = to.send(Err(failure));
                None
            }
        },
        Job::Task(task) => Some(Prepared::Task(task)),
    }
}

/// The request's prompts, checked.
fn answers(tools: &Tools<'_>, ask: Generate) -> Result<Vec<Ready>, Failure> {
    let engine = tools.engine()?;
    let options = Arc::new(engine.options(ask.given)?.options);
    let several = ask.sources.len() > 1;
    let one = |(index, source)| -> Result<Ready, Failure> {
        let prompt = tools.prompt(engine, source)?;
        let ready = engine.ready(prompt, options.clone()).and_then(|ready| {
            let (needed, held) = (ready.most_tokens(), tools.limits.tokens);
            let sequences = options.length.n.max(options.beam.num_beams);
            match needed > held || sequences > tools.limits.sequences {
                false => Ok(ready),
                true => Err(attend_engine::Error::Unsupported(format!(
                    "{sequences} answers of up to {} tokens may need room for {needed} tokens of keys and values, and \
                     there is room for {held}; ask for fewer or shorter answers (max_tokens)",
                    ready.max_tokens()
                ))),
            }
        });
        let place = |error: attend_engine::Error| match several {
            true => attend_engine::Error::Input { index, source: Box::new(error) },
            false => error,
        };
        Ok(ready.map_err(place)?)
    };
    ask.sources.into_iter().enumerate().map(one).collect()
}
