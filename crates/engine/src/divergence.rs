//! How far a model's predictions are from another's: what quantisation costs, token by token.

use crate::error::Error;
use crate::logprobs::Distribution;
use crate::output::Prompt;
use crate::request::{Surroundings, check_prompt};
use crate::score::{Method, Perplexity, Sums, windows};
use crate::source::{Feed, LogitsSource};
use crate::validate;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// Tokens that both models are fed at a time: so many rows of the reference are held.
const CHUNK: usize = 32;

/// A model beside the one it was made from, on a text. Means and the like are over the tokens that were scored.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    pub perplexity: Perplexity,
    pub reference: Perplexity,
    /// Kullback-Leibler divergence of the model from the reference, `sum p_ref ln(p_ref / p)`, in nats.
    pub kl_mean: f64,
    pub kl_median: f64,
    /// 99 of 100 tokens are at most here.
    pub kl_99: f64,
    pub kl_max: f64,
    /// The share of tokens for which both find the same token likeliest.
    pub same_top: f64,
    /// The mean of `p(token) - p_ref(token)`: below 0 the text has become less likely.
    pub probability_difference: f64,
    /// The root of its mean square.
    pub probability_difference_rms: f64,
}

/// Compares two models on a text, cut as for [`crate::score::perplexity`]. `progress` is called after each window with
/// the windows done and their number; `Break` ends the work with the figures so far.
///
/// # Errors
/// Models of different vocabularies, and what [`crate::score::perplexity`] may fail with.
pub fn divergence<M: LogitsSource, R: LogitsSource>(
    model: &M,
    reference: &R,
    around: &Surroundings,
    token_ids: &[u32],
    method: Method,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Divergence, Error> {
    if model.vocab() != reference.vocab() {
        let problem = format!("the other model has {} tokens", model.vocab());
        return Err(Error::parameter("the reference's vocabulary", reference.vocab(), problem));
    }
    validate::ids("the text", token_ids, model.input_vocab().min(reference.input_vocab()))?;
    let windows = windows(token_ids.len(), method, around.context)?;
    let bos = match method {
        Method::Halves { bos, .. } => bos,
        Method::Strided { .. } => None,
    };
    let mut sums = Pairs::default();
    let mut done = 0;
    for window in &windows {
        let mut tokens = token_ids.get(window.start..window.end).unwrap_or_default().to_vec();
        if let (Some(bos), Some(first)) = (bos, tokens.first_mut()) {
            *first = bos;
        }
        let prompt = Prompt::tokens(tokens);
        check_prompt(model, around, &prompt, false)?;
        in_step(model, reference, &prompt.token_ids, window.scored_from - 1, &mut sums)?;
        done += 1;
        if progress(done, windows.len()).is_break() {
            break;
        }
    }
    Ok(sums.figures(done, windows.len()))
}

/// Feeds both models the same tokens, a chunk at a time.
fn in_step<M: LogitsSource, R: LogitsSource>(
    model: &M,
    reference: &R,
    tokens: &[u32],
    from: usize,
    sums: &mut Pairs,
) -> Result<(), Error> {
    let (mut state, mut other) = (model.start(tokens.len(), None)?, reference.start(tokens.len(), None)?);
    let mut done = 0;
    let mut rows: Vec<f32> = Vec::new();
    for chunk in tokens.chunks(CHUNK) {
        let rows_from = from.saturating_sub(done).min(chunk.len());
        rows.clear();
        reference.feed(&mut [Feed { state: &mut other, tokens: chunk, rows_from }], &mut |_, _, row| {
            rows.extend_from_slice(row);
            Ok(())
        })?;
        let mut expected = rows.chunks_exact(reference.vocab().max(1));
        model.feed(&mut [Feed { state: &mut state, tokens: chunk, rows_from }], &mut |_, index, row| {
            let position = done + index + 1;
            if let (Some(expected), Some(&id)) = (expected.next(), tokens.get(position)) {
                sums.add(Distribution::new(row, position)?, Distribution::new(expected, position)?, id);
            }
            Ok(())
        })?;
        model.pass(&mut state);
        reference.pass(&mut other);
        done += chunk.len();
    }
    Ok(())
}

/// What is summed over the tokens.
#[derive(Debug, Default)]
struct Pairs {
    model: Sums,
    reference: Sums,
    divergences: Vec<f64>,
    same: usize,
    difference: f64,
    squares: f64,
}

impl Pairs {
    fn add(&mut self, model: Distribution, reference: Distribution, id: u32) {
        let (ours, theirs) = (f64::from(model.logprob(id)), f64::from(reference.logprob(id)));
        self.model.add(ours);
        self.reference.add(theirs);
        let difference = ours.exp() - theirs.exp();
        self.difference += difference;
        self.squares += difference * difference;
        self.same += usize::from(model.likeliest() == reference.likeliest());
        self.divergences.push(model.divergence_from(&reference));
    }

    fn figures(mut self, done: usize, all: usize) -> Divergence {
        let count = self.divergences.len() as f64;
        self.divergences.sort_by(f64::total_cmp);
        // The smallest value that at least this share of all does not exceed.
        let quantile = |share: f64| {
            let rank = (share * count).ceil().max(1.0) as usize;
            self.divergences.get(rank - 1).copied().unwrap_or(f64::NAN)
        };
        Divergence {
            perplexity: self.model.perplexity(done, all),
            reference: self.reference.perplexity(done, all),
            kl_mean: self.divergences.iter().sum::<f64>() / count,
            kl_median: quantile(0.5),
            kl_99: quantile(0.99),
            kl_max: quantile(1.0),
            same_top: self.same as f64 / count,
            probability_difference: self.difference / count,
            probability_difference_rms: (self.squares / count).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_distributions() {
        let (p, q) = ([0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln()], [0.25f32.ln(), 0.5f32.ln(), 0.25f32.ln()]);
        let row = |logits| Distribution::new(logits, 0).unwrap();
        let mut pairs = Pairs::default();
        pairs.add(row(&q), row(&p), 0);
        pairs.add(row(&p), row(&p), 0);
        let figures = pairs.figures(1, 1);
        // 0.5 ln 2 + 0.25 ln 0.5 = 0.25 ln 2.
        let kl = 0.25 * 2f64.ln();
        assert!((figures.kl_max - kl).abs() < 1e-6 && (figures.kl_mean - kl / 2.0).abs() < 1e-6);
        assert!(figures.kl_median.abs() < 1e-9 && (figures.kl_99 - kl).abs() < 1e-6);
        assert_eq!(figures.same_top, 0.5);
        assert!((figures.probability_difference + 0.125).abs() < 1e-6);
        assert!((figures.probability_difference_rms - (0.0625f64 / 2.0).sqrt()).abs() < 1e-6);
        assert!((figures.reference.perplexity - 2.0).abs() < 1e-6);
    }
}
