//! Making requests ready: templates, tokens, checks. It is done beside the thread that computes.

use super::ask::{Generate, Job, Prepared, Said, Source, Taken, Ticket};
use super::tools::Tools;
use super::toolset::Toolset;
use crate::failure::Failure;
use attend_engine::{GenerateOptions, Ready, Variant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Does ahead what the first request with a constraint would wait for.
pub fn warm(tools: &Tools<'_>) {
    if let Some(engine) = &tools.engine {
        // Where it panics, so it does for a request, which is told.
        let _ = catch_unwind(AssertUnwindSafe(|| engine.warm_constraints()));
    }
}

/// Makes one request after the other ready until no more can come.
pub fn run<'t>(tools: &'t Tools<'t>, jobs: &Mutex<Receiver<Job>>, inbox: &Sender<Prepared<'t>>) {
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

/// The ticket of a request that says how strong adapters are, with the variant that has them so.
fn resolved(tools: &Tools<'_>, ticket: Ticket) -> Result<Ticket, Failure> {
    let variant = if ticket.lora.is_empty() { ticket.variant } else { tools.blend(&ticket.lora)? };
    Ok(Ticket { variant, lora: Vec::new(), ..ticket })
}

fn prepare<'t>(tools: &'t Tools<'t>, job: Job) -> Option<Prepared<'t>> {
    match job {
        Job::Generate(_, to, _) if to.is_closed() => None,
        Job::Generate(ask, to, ticket) => {
            let (stream, enough) = (ask.stream, ask.enough.clone());
            let constrained = match (&ask.forced, &ask.constrained) {
                (Some(forced), constrained) if forced.must || constrained.is_none() => Some("tools".to_owned()),
                (_, constrained) => constrained.clone(),
            };
            let made =
                resolved(tools, ticket).and_then(|ticket| Ok((answers(tools, ask, ticket.variant.as_ref())?, ticket)));
            match made.map_err(|failure| failure.of_constraint(constrained)) {
                Ok(((ready, taken), ticket)) => {
                    let _ = to.send(Said::Accepted(taken));
                    Some(Prepared::Answers { ready, stream, enough, to, ticket })
                }
                Err(failure) => {
                    let _ = to.send(Said::Failed(failure));
                    None
                }
            }
        }
        Job::Embed(_, to, _) if to.is_closed() => None,
        Job::Embed(embed, to, ticket) => match resolved(tools, ticket).and_then(|own| Ok((tools.items(embed)?, own))) {
            Ok((items, ticket)) => Some(Prepared::Embed { items, to, ticket }),
            Err(failure) => {
                let _ = to.send(Err(failure));
                None
            }
        },
        Job::Task(_, gone, _) if gone() => None,
        Job::Task(make, gone, ticket) => {
            let ticket = resolved(tools, ticket);
            let toolset = |ticket: &Ticket| Toolset { tools, variant: ticket.variant.clone() };
            let compute = make(ticket.as_ref().map(toolset).map_err(Failure::clone))?;
            Some(Prepared::Task { compute, gone, ticket: ticket.ok()? })
        }
    }
}

/// The request's prompts, checked.
fn answers(tools: &Tools<'_>, ask: Generate, variant: Option<&Variant>) -> Result<(Vec<Ready>, Vec<Taken>), Failure> {
    let engine = tools.engine()?;
    let Generate { sources, writing, given, forced, asker, .. } = ask;
    let task =
        writing.as_ref().map(|writing| engine.text_task(&writing.task, writing.prefix.as_deref())).transpose()?;
    let resolved = match &task {
        Some(task) => engine.task_options(task, given)?,
        None => engine.options(given)?,
    };
    let mut options = Arc::new(resolved.options);
    let forced = forced.filter(|forced| forced.must || options.constraints.constraint.is_none());
    let several = sources.len() > 1;
    let mut found = (Vec::new(), Vec::new());
    for (index, source) in sources.into_iter().enumerate() {
        let mut opened = false;
        let (prompt, cut_from) = match (&task, &writing, source) {
            (Some(task), Some(writing), Source::Text(text)) if !text.is_empty() => {
                let made =
                    engine.task_prompt(task, &text, writing.truncate).map_err(|error| place(error, several, index))?;
                (made.prompt, made.cut_from)
            }
            (Some(_), _, _) => return Err(place(attend_engine::Error::EmptyInput, several, index)),
            (None, _, source) => {
                let prompt = tools.prompt(engine, source)?;
                opened = prompt.1;
                if let Some(forced) = &forced {
                    let constraint = if opened { &forced.opened } else { &forced.plain };
                    Arc::make_mut(&mut options).constraints.constraint = Some(constraint.clone());
                }
                (prompt.0, None)
            }
        };
        let ready = engine.ready(prompt, options.clone()).and_then(|ready| fitting(tools, ready, &options));
        let ready = ready.map_err(|error| place(error, several, index))?;
        let tokens = ready.prompt().token_ids.len() + ready.prompt().encoder_ids.as_ref().map_or(0, Vec::len);
        found.0.push(ready.of_variant(variant.cloned()).salted(&asker.salt).ranked(asker.priority, &asker.client));
        found.1.push(Taken { tokens, cut_from, opened });
    }
    Ok(found)
}

/// A request that could be finished if it were alone.
fn fitting(tools: &Tools<'_>, ready: Ready, options: &GenerateOptions) -> Result<Ready, attend_engine::Error> {
    let (needed, held) = (ready.most_tokens(), tools.limits.tokens);
    let sequences = options.length.n.max(options.beam.num_beams);
    if sequences > tools.limits.sequences {
        return Err(attend_engine::Error::Unsupported(format!(
            "{sequences} answers of a prompt are wanted side by side, and this server makes at most {} at once",
            tools.limits.sequences
        )));
    }
    if needed <= held {
        return Ok(ready);
    }
    Err(attend_engine::Error::Unsupported(format!(
        "{sequences} answers of up to {} tokens may need room for {needed} tokens of keys and values, and there is room for \
         {held}; ask for fewer or shorter answers (max_tokens)",
        ready.max_tokens()
    )))
}

/// The error of one of several prompts, with its place.
fn place(error: attend_engine::Error, several: bool, index: usize) -> Failure {
    match several {
        true => attend_engine::Error::Input { index, source: Box::new(error) }.into(),
        false => error.into(),
    }
}
