//! The kinds of work, which of them a model does, and what they need.

use super::error::Error;
use attend_model::cost::{Planner, Usage};
use attend_nn::KvTypes;
use attend_nn::spec::{Body, Head, ModelSpec, StackKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a row measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// Reading and packing the weights.
    Load,
    /// The first request after loading: a prompt of so many tokens, until the first token of the answer is there.
    FirstToken { tokens: usize },
    /// Reading a prompt of `tokens` tokens behind `depth` others, up to the logits of its last.
    Prefill { tokens: usize, depth: usize },
    /// Writing `tokens` tokens in each of `batch` sequences together, behind `depth` others in each.
    Decode { tokens: usize, depth: usize, batch: usize },
    /// The hidden states of `batch` texts of `tokens` tokens.
    Encode { tokens: usize, batch: usize },
    /// Encoding `batch` sources of `source` tokens and writing `tokens` tokens to each, with `beams` beams.
    Write { tokens: usize, source: usize, beams: usize, batch: usize },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |batch: usize| if batch > 1 { format!(" x {batch}") } else { String::new() };
        match *self {
            Work::Load => f.write_str("load"),
            Work::FirstToken { tokens } => write!(f, "first token after {tokens}"),
            Work::Prefill { tokens, depth: 0 } => write!(f, "prefill {tokens}"),
            Work::Prefill { tokens, depth } => write!(f, "prefill {tokens} at {depth}"),
            Work::Decode { tokens, depth, batch } => write!(f, "decode {tokens} at {depth}{}", times(batch)),
            Work::Encode { tokens, batch } => write!(f, "encode {batch} x {tokens}"),
            Work::Write { tokens, source, beams, batch } => {
                let how = if beams > 1 { format!("{beams} beams") } else { "greedy".into() };
                write!(f, "write {tokens} from {source}, {how}{}", times(batch))
            }
        }
    }
}

impl Work {
    /// Tokens that one sample counts; `None` where its seconds are told.
    pub fn counted(&self) -> Option<f64> {
        let product = |batch: usize, tokens: usize| Some(batch as f64 * tokens as f64);
        match *self {
            Work::Load | Work::FirstToken { .. } => None,
            Work::Prefill { tokens, .. } => Some(tokens as f64),
            Work::Decode { tokens, batch, .. } | Work::Encode { tokens, batch } | Work::Write { tokens, batch, .. } => {
                product(batch, tokens)
            }
        }
    }

    /// Tokens of the longest sequence.
    pub fn longest(&self) -> usize {
        match *self {
            Work::Load => 0,
            Work::FirstToken { tokens } => tokens.saturating_add(1),
            Work::Prefill { tokens, depth } | Work::Decode { tokens, depth, .. } => tokens.saturating_add(depth),
            Work::Encode { tokens, .. } => tokens,
            Work::Write { tokens, source, .. } => source.max(tokens.saturating_add(1)),
        }
    }

    /// How the model is used, as a plan reckons.
    pub fn usage(&self, (kv, chunk): (KvTypes, usize)) -> Usage {
        let usage = |context: usize, source: usize, requests: usize| Usage {
            context: context.max(1),
            source: source.max(1),
            requests: requests.max(1),
            batch: chunk,
            kv,
        };
        match *self {
            Work::Load => usage(1, 1, 1),
            Work::FirstToken { tokens } => usage(tokens.saturating_add(1), tokens, 1),
            Work::Prefill { .. } => usage(self.longest(), 1, 1),
            Work::Decode { batch, .. } => usage(self.longest(), 1, batch),
            Work::Encode { tokens, batch } => usage(tokens, tokens, batch.min(texts_at_once(tokens))),
            Work::Write { tokens, source, beams, batch } => usage(tokens, source, batch.saturating_mul(beams)),
        }
    }

    /// Refuses what the model has no positions for or the memory no room.
    pub fn check(
        &self,
        planner: &Planner<'_>,
        context: Option<(usize, &'static str)>,
        (kv, chunk, available): (KvTypes, usize, Option<u64>),
    ) -> Result<(), Error> {
        let tokens = self.longest();
        if let Some((limit, whose)) = context.filter(|(limit, _)| tokens > *limit) {
            return Err(Error::TooLong { work: *self, tokens, limit, whose });
        }
        let plan = planner.plan(&self.usage((kv, chunk)));
        match available.filter(|available| plan.total_bytes > *available) {
            None => Ok(()),
            Some(available) => Err(Error::DoesNotFit {
                work: *self,
                needed: plan.total_bytes,
                weights: plan.weight_bytes,
                cache: plan.kv_held_bytes,
                step: plan.activation_bytes,
                available,
            }),
        }
    }
}

/// Texts of a length that the tasks encode in one step.
pub fn texts_at_once(tokens: usize) -> usize {
    (attend_engine::tasks::TaskOptions::default().batch_tokens / tokens.max(1)).max(1)
}

/// What a model does with tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Continues a text.
    Continues,
    /// Reads a source and writes another text.
    Translates,
    /// Gives hidden states, and what a head makes of them.
    Reads(StackKind),
}

impl Kind {
    pub fn of(spec: &ModelSpec) -> Kind {
        match (&spec.body, &spec.head) {
            (Body::Decoder(_), Head::Lm(_)) => Kind::Continues,
            (Body::EncoderDecoder { .. }, Head::Lm(_)) => Kind::Translates,
            (Body::Decoder(_), Head::None | Head::Sequence { .. } | Head::Token { .. } | Head::Span { .. }) => {
                Kind::Reads(StackKind::Decoder)
            }
            (Body::Encoder(_) | Body::EncoderDecoder { .. }, _) => Kind::Reads(StackKind::Encoder),
        }
    }
}

/// What a caller chooses; where nothing is chosen, what suits the kind of model and its context.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// Tokens of prompts, texts or sources; of a prompt 0 leaves the reading out.
    pub prompt: Option<Vec<usize>>,
    pub depth: Option<Vec<usize>>,
    pub batch: Option<Vec<usize>>,
    pub beams: Option<Vec<usize>>,
    /// Tokens that are written; 0 leaves the writing out.
    pub generate: Option<usize>,
}

/// The prompt whose first token is waited for.
const FIRST_PROMPT: usize = 32;

/// The rows for a model, in order; the first is [`Work::Load`]. `context`: the most tokens of a sequence.
///
/// # Errors
/// Options that this kind of model has no use for.
pub fn works(kind: Kind, context: Option<usize>, choices: &Choices) -> Result<Vec<Work>, Error> {
    let refuse = |given: bool, option: &str, who: &str| match given {
        true => Err(Error::Choice(format!("{option} is for {who}; this model is none"))),
        false => Ok(()),
    };
    let most = context.unwrap_or(usize::MAX);
    let list = |given: &Option<Vec<usize>>, usual: &[usize]| given.clone().unwrap_or_else(|| usual.to_vec());
    let prompts = |usual: &[usize]| match &choices.prompt {
        Some(given) => given.clone(),
        // Of the usual lengths those that the model has room for.
        None => match usual.iter().copied().filter(|tokens| *tokens <= most).collect::<Vec<_>>() {
            fitting if fitting.is_empty() => vec![most],
            fitting => fitting,
        },
    };
    let first = Work::FirstToken { tokens: FIRST_PROMPT.min(most.saturating_sub(1)).max(1) };
    let mut works = vec![Work::Load];
    match kind {
        Kind::Continues => {
            refuse(choices.beams.is_some(), "--beams", "encoder-decoders")?;
            works.push(first);
            let depths = list(&choices.depth, &[0]);
            for &depth in &depths {
                let lengths = prompts(&[128, 512]).into_iter().filter(|tokens| *tokens > 0);
                works.extend(lengths.map(|tokens| Work::Prefill { tokens, depth }));
            }
            let deepest = depths.iter().copied().max().unwrap_or(0);
            let tokens = choices.generate.unwrap_or(128.min(most.saturating_sub(deepest)));
            for &depth in &depths {
                let batches = list(&choices.batch, &[1, 8]).into_iter();
                works.extend(batches.map(|batch| Work::Decode { tokens, depth, batch }).filter(|_| tokens > 0));
            }
        }
        Kind::Translates => {
            refuse(choices.depth.is_some(), "--depth", "decoders")?;
            refuse(choices.prompt.iter().flatten().any(|tokens| *tokens == 0), "--prompt 0", "decoders")?;
            works.push(first);
            let tokens = choices.generate.unwrap_or(64.min(most.saturating_sub(1)));
            for source in prompts(&[64]).into_iter().filter(|_| tokens > 0) {
                for batch in list(&choices.batch, &[1]) {
                    for beams in list(&choices.beams, &[1, 4]) {
                        works.push(Work::Write { tokens, source, beams, batch });
                    }
                }
            }
        }
        Kind::Reads(_) => {
            refuse(choices.depth.is_some(), "--depth", "decoders")?;
            refuse(choices.prompt.iter().flatten().any(|tokens| *tokens == 0), "--prompt 0", "decoders")?;
            refuse(choices.generate.is_some(), "--generate", "models that write")?;
            refuse(choices.beams.is_some(), "--beams", "encoder-decoders")?;
            for batch in list(&choices.batch, &[1, 32]) {
                works.extend(prompts(&[32, 128]).into_iter().map(|tokens| Work::Encode { tokens, batch }));
            }
        }
    }
    Ok(works)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: Kind, context: Option<usize>, choices: &Choices) -> Vec<String> {
        works(kind, context, choices).expect("works").iter().map(Work::to_string).collect()
    }

    #[test]
    fn what_is_usual_for_each_kind() {
        let none = Choices::default();
        assert_eq!(
            named(Kind::Continues, Some(2048), &none),
            ["load", "first token after 32", "prefill 128", "prefill 512", "decode 128 at 0", "decode 128 at 0 x 8"]
        );
        let source = ["load", "first token after 32", "write 64 from 64, greedy", "write 64 from 64, 4 beams"];
        assert_eq!(named(Kind::Translates, None, &none), source);
        let reads = Kind::Reads(StackKind::Encoder);
        assert_eq!(
            named(reads, Some(512), &none),
            ["load", "encode 1 x 32", "encode 1 x 128", "encode 32 x 32", "encode 32 x 128"]
        );
        assert_eq!(named(reads, Some(20), &none), ["load", "encode 1 x 20", "encode 32 x 20"]);
        assert_eq!(
            named(Kind::Continues, Some(100), &none),
            ["load", "first token after 32", "prefill 100", "decode 100 at 0", "decode 100 at 0 x 8"]
        );
    }

    #[test]
    fn what_is_chosen_is_crossed() {
        let choices = Choices {
            prompt: Some(vec![16]),
            depth: Some(vec![0, 64]),
            batch: Some(vec![1, 2]),
            generate: Some(4),
            ..Choices::default()
        };
        let rows = named(Kind::Continues, Some(128), &choices);
        assert_eq!(rows[2..4], ["prefill 16", "prefill 16 at 64"]);
        assert_eq!(rows[4..], ["decode 4 at 0", "decode 4 at 0 x 2", "decode 4 at 64", "decode 4 at 64 x 2"]);
        assert!(works(Kind::Translates, None, &choices).is_err(), "no depth");
        assert!(works(Kind::Reads(StackKind::Encoder), None, &choices).is_err());
        let prefill = Choices { generate: Some(0), ..Choices::default() };
        assert_eq!(named(Kind::Continues, Some(512), &prefill).len(), 4);
        let decode = Choices { prompt: Some(vec![0]), batch: Some(vec![1]), ..Choices::default() };
        assert_eq!(named(Kind::Continues, Some(512), &decode)[2..], ["decode 128 at 0"]);
        assert!(works(Kind::Translates, None, &Choices { depth: None, ..decode }).is_err());
        let beams = Choices { beams: Some(vec![4]), batch: Some(vec![2]), ..Choices::default() };
        assert_eq!(named(Kind::Translates, None, &beams)[2..], ["write 64 from 64, 4 beams x 2"]);
        assert!(works(Kind::Continues, None, &beams).is_err());
    }

    #[test]
    fn a_row_is_known_by_its_work() {
        let work = Work::Write { tokens: 64, source: 32, beams: 4, batch: 1 };
        let text = serde_json::to_string(&work).expect("plain data");
        assert_eq!(text, r#"{"work":"write","tokens":64,"source":32,"beams":4,"batch":1}"#);
        assert_eq!(serde_json::from_str::<Work>(&text).expect("the same"), work);
    }
}
