//! Log-probabilities of a given text, and perplexity.

use crate::error::Error;
use crate::logprobs::{Distribution, TokenLogprob};
use crate::output::Prompt;
use crate::request::{Surroundings, check_prompt};
use crate::source::{Feed, LogitsSource};
use crate::validate;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// A text under the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub token_ids: Vec<u32>,
    /// One a token; None for the first, which nothing precedes.
    pub logprobs: Vec<Option<TokenLogprob>>,
    /// The sum of all.
    pub total: f64,
}

/// The log-probability of each token of `prompt.token_ids` given those before it (and the source of an encoder-decoder),
/// each with `top` alternatives.
///
/// # Errors
/// A text that is empty or longer than the context, ids outside the vocabulary, and non-finite logits.
pub fn score<S: LogitsSource>(source: &S, around: &Surroundings, prompt: &Prompt, top: usize) -> Result<Score, Error> {
    check_prompt(source, around, prompt, false)?;
    let mut logprobs = vec![None];
    let mut total = 0.0;
    let tokens = &prompt.token_ids;
    each_row(source, around.chunk, prompt, 0, &mut |position, distribution| {
        if let Some(&id) = tokens.get(position) {
            let token = distribution.of(id, top);
            total += f64::from(token.logprob);
            logprobs.push(Some(token));
        }
    })?;
    Ok(Score { token_ids: tokens.clone(), logprobs, total })
}

/// Feeds a text and hands over the distribution for each position after `from`.
fn each_row<S: LogitsSource>(
    source: &S,
    chunk: usize,
    prompt: &Prompt,
    from: usize,
    take: &mut dyn FnMut(usize, Distribution<'_>),
) -> Result<(), Error> {
    let mut state = source.start(prompt.token_ids.len(), prompt.encoder_ids.as_deref())?;
    let mut done = 0;
    for chunk in prompt.token_ids.chunks(chunk.max(1)) {
        let rows_from = from.saturating_sub(done).min(chunk.len());
        source.feed(&mut [Feed { state: &mut state, tokens: chunk, rows_from }], &mut |_, index, row| {
            let position = done + index + 1;
            take(position, Distribution::new(row, position)?);
            Ok(())
        })?;
        source.pass(&mut state);
        done += chunk.len();
    }
    Ok(())
}

/// How a text longer than the context is cut for [`perplexity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Windows of `window` tokens, each `stride` further on; in each only the tokens that no earlier window scored count, so
    /// that every token but the first is scored once, with at least `window - stride` tokens before it (in all windows but
    /// the first). The method of the Hugging Face documentation.
    Strided { window: usize, stride: usize },
    /// Windows of `window` tokens that do not overlap, of which the second half is scored; what is left at the end is
    /// not read. With `bos`, it takes the place of each window's first token. The method of llama.cpp.
    Halves { window: usize, bos: Option<u32> },
}

/// How well a model predicts a text.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Perplexity {
    /// `exp(mean negative log-probability)`
    pub perplexity: f64,
    /// Its standard error, from the spread of the tokens' log-probabilities.
    pub standard_error: f64,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Windows done, and windows in all.
    pub windows: (usize, usize),
}

/// One window: tokens of the text, and from which of them on they are scored (at least 1: the first has nothing before it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    pub start: usize,
    pub end: usize,
    pub scored_from: usize,
}

/// The perplexity of a text. `progress` is called after each window with the figure so far; `Break` ends the work with it.
///
/// # Errors
/// Windows that do not fit the context or the text, and what [`score`] may fail with.
pub fn perplexity<S: LogitsSource>(
    source: &S,
    around: &Surroundings,
    token_ids: &[u32],
    method: Method,
    progress: &mut dyn FnMut(Perplexity) -> ControlFlow<()>,
) -> Result<Perplexity, Error> {
    validate::ids("the text", token_ids, source.input_vocab())?;
    let windows = windows(token_ids.len(), method, around.context)?;
    let bos = match method {
        Method::Halves { bos, .. } => bos,
        Method::Strided { .. } => None,
    };
    let mut sums = Sums::default();
    for (index, window) in windows.iter().enumerate() {
        let mut tokens = token_ids[window.start..window.end].to_vec();
        if let (Some(bos), Some(first)) = (bos, tokens.first_mut()) {
            *first = bos;
        }
        let prompt = Prompt::tokens(tokens);
        check_prompt(source, around, &prompt, false)?;
        each_row(source, around.chunk, &prompt, window.scored_from - 1, &mut |position, distribution| {
            if let Some(&id) = prompt.token_ids.get(position) {
                sums.add(f64::from(distribution.logprob(id)));
            }
        })?;
        if progress(sums.perplexity(index + 1, windows.len())).is_break() {
            return Ok(sums.perplexity(index + 1, windows.len()));
        }
    }
    Ok(sums.perplexity(windows.len(), windows.len()))
}

pub(crate) fn windows(tokens: usize, method: Method, context: Option<usize>) -> Result<Vec<Window>, Error> {
    let (Method::Strided { window, .. } | Method::Halves { window, .. }) = method;
    if window < 2 || context.is_some_and(|context| window > context) {
        let most = context.map_or("the context".into(), |context| format!("the context of {context}"));
        return Err(Error::parameter("window", window, format!("from 2 to {most} is wanted")));
    }
    let least = if let Method::Halves { .. } = method { window } else { 2 };
    if tokens < least {
        return Err(Error::parameter("the text's length in tokens", tokens, format!("at least {least} are needed")));
    }
    let mut windows = Vec::new();
    match method {
        Method::Strided { stride, .. } => {
            if stride == 0 || stride > window {
                return Err(Error::parameter("stride", stride, format!("from 1 to the window of {window} is wanted")));
            }
            let (mut start, mut scored) = (0, 1);
            loop {
                let end = (start + window).min(tokens);
                // A stride as long as the window leaves the first token of each with nothing before it.
                let from = scored.max(start + 1);
                if from < end {
                    windows.push(Window { start, end, scored_from: from - start });
                }
                if end == tokens {
                    break;
                }
                (start, scored) = (start + stride, end);
            }
        }
        Method::Halves { .. } => {
            for start in (0..tokens / window).map(|index| index * window) {
                windows.push(Window { start, end: start + window, scored_from: window / 2 + 1 });
            }
        }
    }
    windows.retain(|window| window.scored_from < window.end - window.start);
    Ok(windows)
}

/// Running sums of negative log-probabilities.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    tokens: usize,
    sum: f64,
    squares: f64,
}

impl Sums {
    pub fn add(&mut self, logprob: f64) {
        self.tokens += 1;
        self.sum -= logprob;
        self.squares += logprob * logprob;
    }

    pub fn perplexity(&self, done: usize, all: usize) -> Perplexity {
        let count = self.tokens as f64;
        let mean = self.sum / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        // The error of the mean carried through the exponential.
        let standard_error = if self.tokens > 1 { mean.exp() * (variance / (count - 1.0)).sqrt() } else { f64::NAN };
        Perplexity { perplexity: mean.exp(), standard_error, tokens: self.tokens, windows: (done, all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(tokens: usize, method: Method) -> Vec<usize> {
        let windows = windows(tokens, method, None).unwrap();
        windows.iter().flat_map(|w| w.start + w.scored_from..w.end).collect()
    }

    #[test]
    fn strided_windows_score_every_token_once() {
        for (tokens, window, stride) in [(10, 4, 2), (11, 4, 3), (9, 20, 5), (100, 7, 1), (2, 2, 1)] {
            let seen = scored(tokens, Method::Strided { window, stride });
            assert_eq!(seen, (1..tokens).collect::<Vec<_>>(), "{tokens} {window} {stride}");
        }
        // Without overlap the first token of a window has nothing before it.
        assert_eq!(scored(10, Method::Strided { window: 4, stride: 4 }), [1, 2, 3, 5, 6, 7, 9]);
    }

    #[test]
    fn halves_score_the_second_half() {
        assert_eq!(scored(17, Method::Halves { window: 8, bos: None }), [5, 6, 7, 13, 14, 15]);
    }

    #[test]
    fn impossible_windows_are_refused() {
        for (tokens, method, context) in [
            (10, Method::Strided { window: 1, stride: 1 }, None),
            (10, Method::Strided { window: 4, stride: 0 }, None),
            (10, Method::Strided { window: 4, stride: 5 }, None),
            (10, Method::Strided { window: 9, stride: 5 }, Some(8)),
            (1, Method::Strided { window: 4, stride: 2 }, None),
            (7, Method::Halves { window: 8, bos: None }, None),
        ] {
            assert!(windows(tokens, method, context).is_err(), "{tokens} {method:?}");
        }
    }

    #[test]
    fn figures() {
        let mut sums = Sums::default();
        for p in [0.5f64, 0.5, 0.125, 0.125] {
            sums.add(p.ln());
        }
        let figure = sums.perplexity(1, 1);
        assert!((figure.perplexity - 4.0).abs() < 1e-12);
        // Deviations of +-ln 2 around the mean, error of the mean ln 2 / sqrt(3).
        assert!((figure.standard_error - 4.0 * 2f64.ln() / 3f64.sqrt()).abs() < 1e-12);
    }
}
