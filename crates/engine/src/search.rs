//! Answering by beam search: the loop that feeds the bookkeeping of [`crate::beam`].

use crate::beam::{Hypothesis, Search};
use crate::error::Error;
use crate::generate::{Handler, finish_output, read_prompt};
use crate::logprobs::{Distribution, TokenLogprob};
use crate::output::{Choice, Event, Finish, Output};
use crate::request::Ready;
use crate::rng::Draws;
use crate::sampler::History;
use crate::source::{Feed, LogitsSource};
use crate::vocabulary::Vocabulary;
use std::time::Instant;

/// Answers a prompt by beam search.
pub(crate) fn search<S: LogitsSource>(
    source: &S,
    vocabulary: Option<&dyn Vocabulary>,
    ready: Ready<'_>,
    on: &mut Handler<'_>,
) -> Result<Output, Error> {
    let started = Instant::now();
    let read = read_prompt(source, &ready, on)?;
    let prompt_seconds = started.elapsed().as_secs_f64();
    let answering = Instant::now();
    let end_ids = [ready.end_ids.as_slice(), &ready.options.length.stop_ids].concat();
    let mut search = Search::new(&ready.options.beam, end_ids, ready.max_tokens);
    if !read.cancelled {
        let beams = search.open().len();
        let mut states: Vec<S::State> = (1..beams).map(|_| source.fork(&read.state)).collect();
        states.push(read.state);
        let mut rows = vec![read.last_row; beams];
        loop {
            for (row, hypothesis) in rows.iter_mut().zip(search.open()) {
                to_log_probs(&ready, &hypothesis.tokens, row)?;
            }
            let parents = search.advance(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let done = search.open().first().map_or(0, |first| first.tokens.len());
            if search.is_done() || on(Event::Step { done }).is_break() {
                break;
            }
            states = reorder(source, states, &parents);
            rows = feed(source, &mut states, &search)?;
        }
    }
    let choices =
        search.results().into_iter().enumerate().map(|(index, found)| choice(&ready, vocabulary, index, found));
    let mut choices: Vec<Choice> = choices.collect();
    if let Some(count) = ready.options.report.logprobs {
        for choice in &mut choices {
            choice.logprobs = rescore(source, &ready, &choice.token_ids, count)?;
        }
    }
    for choice in &choices {
        // The work is over: whether the handler would go on no longer matters.
        let _ = on(Event::Finished { choice: choice.index, text: &choice.text, finish: &choice.finish });
    }
    Ok(finish_output(&ready, choices, read.logprobs, (prompt_seconds, answering.elapsed().as_secs_f64())))
}

/// Log-softmax, then the request's processors, as the reference has it in beam search.
fn to_log_probs(ready: &Ready<'_>, generated: &[u32], row: &mut [f32]) -> Result<(), Error> {
    let tokens = [ready.prompt.token_ids.as_slice(), generated].concat();
    let distribution = Distribution::new(row, tokens.len())?;
    let log_probs: Vec<f32> = (0..row.len() as u32).map(|id| distribution.logprob(id)).collect();
    row.copy_from_slice(&log_probs);
    let draws = Draws { seed: ready.seed, choice: 0 };
    let prompt_len = ready.prompt.token_ids.len();
    ready.chain.process(&History { tokens: &tokens, prompt_len, encoder: ready.encoder_ids(), draws }, row);
    Ok(())
}

/// The states of the new beams: a state is moved to the last beam that continues it, and forked for the others.
fn reorder<S: LogitsSource>(source: &S, states: Vec<S::State>, parents: &[usize]) -> Vec<S::State> {
    let mut states: Vec<Option<S::State>> = states.into_iter().map(Some).collect();
    let mut reordered = Vec::with_capacity(parents.len());
    for (index, &parent) in parents.iter().enumerate() {
        let Some(slot) = states.get_mut(parent) else { continue };
        let used_again = parents[index + 1..].contains(&parent);
        let state = if used_again { slot.as_ref().map(|state| source.fork(state)) } else { slot.take() };
        reordered.extend(state);
    }
    reordered
}

/// Feeds each open hypothesis' last token.
fn feed<S: LogitsSource>(source: &S, states: &mut [S::State], search: &Search) -> Result<Vec<Vec<f32>>, Error> {
    let mut feeds = Vec::with_capacity(states.len());
    for (state, hypothesis) in states.iter_mut().zip(search.open()) {
        let last = hypothesis.tokens.len().saturating_sub(1);
        feeds.push(Feed { state, tokens: &hypothesis.tokens[last..], rows_from: 0 });
    }
    let mut rows = vec![Vec::new(); feeds.len()];
    source.feed(&mut feeds, &mut |feed, _, row| {
        rows[feed] = row.to_vec();
        Ok(())
    })?;
    Ok(rows)
}

fn choice(ready: &Ready<'_>, vocabulary: Option<&dyn Vocabulary>, index: usize, found: Hypothesis) -> Choice {
    let last = found.tokens.last().copied();
    let finish = match last.and_then(|last| ready.ends(last)) {
        Some(finish) => finish,
        None if found.tokens.len() >= ready.max_tokens => ready.at_max.clone(),
        None => Finish::Cancelled,
    };
    let shown = match finish {
        Finish::EndToken(_) | Finish::StopToken(_) => &found.tokens[..found.tokens.len().saturating_sub(1)],
        Finish::StopText(_) | Finish::MaxTokens | Finish::Context | Finish::Cancelled => &found.tokens[..],
    };
    let mut text = String::new();
    if let Some(vocabulary) = vocabulary {
        let mut stream = vocabulary.stream(ready.options.report.skip_special);
        text.extend(shown.iter().filter_map(|&id| stream.push(id)).collect::<Vec<_>>());
        text.extend(stream.finish());
    }
    Choice { index, text, token_ids: found.tokens, logprobs: Vec::new(), finish, score: Some(found.score) }
}

/// The log-probabilities of a found sequence, by reading it once more: carrying them along for every candidate would cost
/// more than this one pass.
fn rescore<S: LogitsSource>(
    source: &S,
    ready: &Ready<'_>,
    generated: &[u32],
    count: usize,
) -> Result<Vec<TokenLogprob>, Error> {
    let prompt_len = ready.prompt.token_ids.len();
    let mut state = source.start(prompt_len, ready.prompt.encoder_ids.as_deref())?;
    let tokens = [ready.prompt.token_ids.as_slice(), generated].concat();
    let mut list = Vec::new();
    let mut done = 0;
    // The last token's row is for a token that was not generated.
    for chunk in tokens[..tokens.len().saturating_sub(1)].chunks(ready.chunk) {
        let rows_from = (prompt_len - 1).saturating_sub(done).min(chunk.len());
        source.feed(&mut [Feed { state: &mut state, tokens: chunk, rows_from }], &mut |_, index, row| {
            let position = done + index + 1;
            if let Some(&id) = tokens.get(position) {
                list.push(Distribution::new(row, position)?.of(id, count));
            }
            Ok(())
        })?;
        done += chunk.len();
    }
    Ok(list)
}
