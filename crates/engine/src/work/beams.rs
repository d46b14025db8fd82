//! Answering by beam search: what stands between rows of logits and the bookkeeping of [`crate::beam`].

use super::strand::Strand;
use crate::beam::{Hypothesis, Search};
use crate::error::Error;
use crate::logprobs::Distribution;
use crate::output::{Choice, Finish};
use crate::request::Ready;
use crate::rng::Draws;
use crate::sampler::History;
use crate::source::LogitsSource;
use crate::vocabulary::Vocabulary;

pub(super) fn begin(ready: &Ready) -> Search {
    let end_ids = [ready.end_ids.as_slice(), &ready.options.length.stop_ids].concat();
    Search::new(&ready.options.beam, end_ids, ready.max_tokens)
}

/// Takes the row of every open hypothesis. Returns their states, and which of them each of the new ones continues.
pub(super) fn advance<T>(
    ready: &Ready,
    search: &mut Search,
    strands: Vec<Strand<T>>,
) -> Result<(Vec<Strand<T>>, Vec<usize>), Error> {
    let mut rows = Vec::with_capacity(strands.len());
    let mut states = Vec::with_capacity(strands.len());
    for (mut strand, hypothesis) in strands.into_iter().zip(search.open()) {
        let mut row = strand.rows.pop().unwrap_or_default();
        to_log_probs(ready, &hypothesis.tokens, &mut row)?;
        rows.push(row);
        states.push(strand);
    }
    let parents = search.advance(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>());
    Ok((states, parents))
}

/// Log-softmax, then the request's processors, as the reference has it in beam search.
fn to_log_probs(ready: &Ready, generated: &[u32], row: &mut [f32]) -> Result<(), Error> {
    let tokens = [ready.prompt.token_ids.as_slice(), generated].concat();
    let distribution = Distribution::new(row, tokens.len())?;
    let log_probs: Vec<f32> = (0..row.len() as u32).map(|id| distribution.logprob(id)).collect();
    row.copy_from_slice(&log_probs);
    let draws = Draws { seed: ready.seed, choice: 0 };
    let prompt_len = ready.prompt.token_ids.len();
    ready.chain.process(&History { tokens: &tokens, prompt_len, encoder: ready.encoder_ids(), draws }, row);
    Ok(())
}

/// The strands of the new beams: a state is moved to the last beam that continues it, and forked for the others.
pub(super) fn reorder<S: LogitsSource>(
    source: &S,
    strands: Vec<Strand<S::State>>,
    parents: &[usize],
) -> Vec<Strand<S::State>> {
    let mut strands: Vec<Option<Strand<S::State>>> = strands.into_iter().map(Some).collect();
    let mut reordered = Vec::with_capacity(parents.len());
    for (index, &parent) in parents.iter().enumerate() {
        let Some(slot) = strands.get_mut(parent) else { continue };
        let used_again = parents[index + 1..].contains(&parent);
        let fork = |strand: &Strand<S::State>| Strand::fed(source.fork(&strand.state), strand.fed);
        reordered.extend(if used_again { slot.as_ref().map(fork) } else { slot.take() });
    }
    reordered
}

/// What the search has found, best first.
pub(super) fn choices(ready: &Ready, vocabulary: Option<&dyn Vocabulary>, search: &Search) -> Vec<Choice> {
    let found = search.results().into_iter().enumerate();
    found.map(|(index, found)| choice(ready, vocabulary, index, found)).collect()
}

fn choice(ready: &Ready, vocabulary: Option<&dyn Vocabulary>, index: usize, found: Hypothesis) -> Choice {
    let last = found.tokens.last().copied();
    let finish = match last.and_then(|last| ready.ends(last)) {
        Some(finish) => finish,
        None if found.tokens.len() >= ready.max_tokens => ready.at_max.clone(),
        None => Finish::Cancelled,
    };
    let shown = match finish {
        Finish::EndToken(_) | Finish::StopToken(_) => &found.tokens[..found.tokens.len().saturating_sub(1)],
        Finish::StopText(_) | Finish::Complete | Finish::MaxTokens | Finish::Context | Finish::Cancelled => {
            &found.tokens[..]
        }
    };
    let mut text = String::new();
    if let Some(vocabulary) = vocabulary {
        let mut stream = ready.options.report.stream(vocabulary);
        text.extend(shown.iter().filter_map(|&id| stream.push(id)).collect::<Vec<_>>());
        text.extend(stream.finish());
    }
    Choice { index, text, token_ids: found.tokens, logprobs: Vec::new(), finish, score: Some(found.score) }
}
