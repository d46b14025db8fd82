//! From a row of logits to a token: small processors, each one formula, in a chain.
//!
//! A processor changes the row in place; a token that must not be chosen has `-inf`. All sums are formed in f64 over
//! tokens in a fixed order, so that a row leads to the same token wherever it was computed.

pub mod chain;
pub mod constraints;
pub mod dry;
pub mod mirostat;
pub mod ngram;
pub mod penalties;
pub mod temperature;
pub mod truncation;
pub mod xtc;

use crate::rng::Draws;
use serde::{Deserialize, Serialize};

/// What a processor may look at.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    /// The decoder's tokens: the prompt, then what was generated.
    pub tokens: &'a [u32],
    /// How many of them are the prompt.
    pub prompt_len: usize,
    /// The encoder's input; empty where there is no encoder.
    pub encoder: &'a [u32],
    pub draws: Draws,
}

impl<'a> History<'a> {
    /// The tokens generated so far.
    pub fn generated(&self) -> &'a [u32] {
        self.tokens.get(self.prompt_len..).unwrap_or(&[])
    }

    /// The last `last_n` tokens of prompt and answer; -1: all.
    pub fn window(&self, last_n: i64) -> &'a [u32] {
        let length = usize::try_from(last_n).unwrap_or(usize::MAX).min(self.tokens.len());
        &self.tokens[self.tokens.len() - length..]
    }
}

/// One step of the chain. `logits` is the row `[V]` for the token that follows `history`.
pub trait LogitsProcessor: std::fmt::Debug + Send + Sync {
    fn process(&self, history: &History<'_>, logits: &mut [f32]);
}

/// The samplers that a caller can put in an order of its own, under the names that llama.cpp made usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SamplerKind {
    /// Repetition, presence and frequency penalties.
    Penalties,
    Dry,
    TopNSigma,
    TopK,
    TypicalP,
    TopP,
    MinP,
    Epsilon,
    Eta,
    Xtc,
    /// Temperature, dynamic where a range is given.
    Temperature,
}

impl SamplerKind {
    /// Every kind in the order of Hugging Face transformers 5; the kinds that it does not have stand where they do no harm:
    /// DRY with the penalties, top-n-sigma (which no temperature changes) before temperature, XTC last.
    pub const DEFAULT_ORDER: [SamplerKind; 11] = [
        SamplerKind::Penalties,
        SamplerKind::Dry,
        SamplerKind::TopNSigma,
        SamplerKind::Temperature,
        SamplerKind::TopK,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::TypicalP,
        SamplerKind::Epsilon,
        SamplerKind::Eta,
        SamplerKind::Xtc,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SamplerKind::Penalties => "penalties",
            SamplerKind::Dry => "dry",
            SamplerKind::TopNSigma => "top_n_sigma",
            SamplerKind::TopK => "top_k",
            SamplerKind::TypicalP => "typ_p",
            SamplerKind::TopP => "top_p",
            SamplerKind::MinP => "min_p",
            SamplerKind::Epsilon => "epsilon",
            SamplerKind::Eta => "eta",
            SamplerKind::Xtc => "xtc",
            SamplerKind::Temperature => "temperature",
        }
    }

    /// Reads a list such as `penalties;dry;top_k;temperature` (`;` or `,` between names).
    ///
    /// # Errors
    /// A sentence that names the unknown or doubled sampler.
    pub fn parse_list(text: &str) -> Result<Vec<SamplerKind>, String> {
        let mut list = Vec::new();
        for name in text.split([';', ',']).map(str::trim).filter(|name| !name.is_empty()) {
            let kind: SamplerKind = name.parse()?;
            if list.contains(&kind) {
                return Err(format!("sampler {name:?} occurs twice"));
            }
            list.push(kind);
        }
        Ok(list)
    }
}

impl std::str::FromStr for SamplerKind {
    type Err = String;

    fn from_str(name: &str) -> Result<SamplerKind, String> {
        let plain = name.to_ascii_lowercase().replace('-', "_");
        let alias = match plain.as_str() {
            "typical" | "typical_p" => "typ_p",
            "temp" => "temperature",
            other => other,
        };
        SamplerKind::DEFAULT_ORDER.into_iter().find(|kind| kind.name() == alias).ok_or_else(|| {
            let known = SamplerKind::DEFAULT_ORDER.map(SamplerKind::name).join(", ");
            format!("there is no sampler {name:?}; the samplers are {known}")
        })
    }
}

impl TryFrom<String> for SamplerKind {
    type Error = String;

    fn try_from(name: String) -> Result<SamplerKind, String> {
        name.parse()
    }
}

impl From<SamplerKind> for String {
    fn from(kind: SamplerKind) -> String {
        kind.name().into()
    }
}

/// The token with the highest value; of equal ones the lowest id. None when every value is `-inf` or NaN.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    // First how high, in lanes, which is vector code; then where.
    let larger = |highest: f32, &x: &f32| if x > highest { x } else { highest };
    let (chunks, rest) = logits.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    let highest = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, larger);
    if highest == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|&x| x == highest).map(|id| id as u32)
}

/// The probabilities of a row, in f64; all 0 when nothing is left.
pub(crate) fn probabilities(logits: &[f32]) -> Vec<f64> {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        return vec![0.0; logits.len()];
    }
    let weight = |&logit: &f32| match logit {
        f32::NEG_INFINITY => 0.0,
        _ => (f64::from(logit) - f64::from(highest)).exp(),
    };
    let mut probs: Vec<f64> = logits.iter().map(weight).collect();
    let total: f64 = probs.iter().sum();
    for prob in &mut probs {
        *prob /= total;
    }
    probs
}

/// The Shannon entropy of probabilities, in nats.
pub(crate) fn entropy(probs: &[f64]) -> f64 {
    -probs.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>()
}

/// Forbids every token that `keep` refuses.
pub(crate) fn retain(logits: &mut [f32], keep: impl Fn(usize, f32) -> bool) {
    for (id, logit) in logits.iter_mut().enumerate() {
        if !keep(id, *logit) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_ties_go_to_the_lowest_id() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), Some(1));
        assert_eq!(argmax(&[f32::NEG_INFINITY, -5.0]), Some(1));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 2]), None);
        assert_eq!(argmax(&[]), None);
        let mut long = [1.0; 40];
        long[17] = f32::NAN;
        for place in [39, 20, 3] {
            long[place] = 2.0;
            assert_eq!(argmax(&long), Some(place as u32));
        }
    }

    #[test]
    fn sampler_lists() {
        let list =
            SamplerKind::parse_list("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature").unwrap();
        assert_eq!(list.len(), 9);
        assert_eq!(SamplerKind::parse_list("top-k, temp").unwrap(), [SamplerKind::TopK, SamplerKind::Temperature]);
        assert!(SamplerKind::parse_list("top_z").unwrap_err().contains("\"top_z\""));
        assert!(SamplerKind::parse_list("top_k;top_k").unwrap_err().contains("twice"));
        for kind in SamplerKind::DEFAULT_ORDER {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }
}
