//! A request made ready: checked, with its limits in figures.

use crate::constrain::{Grammars, Matcher};
use crate::error::Error;
use crate::options::GenerateOptions;
use crate::output::{Finish, Prompt};
use crate::prefix::Past;
use crate::rng::fresh_seed;
use crate::sampler::chain::{Chain, Rules};
use crate::sampler::dry::Breakers;
use crate::source::LogitsSource;
use crate::validate;
use crate::variant::Variant;
use crate::vocabulary::{Vocabulary, breakers};
use attend_model::cost::{Footprint, Sequences};
use attend_nn::BLOCK_TOKENS;
use std::sync::Arc;

/// The bound of an answer when neither the request nor the model's context gives one.
pub const UNBOUNDED_TOKENS: usize = 4096;
/// The same for an encoder-decoder: so many tokens, and so many more for each of the source. No translation or summary is
/// longer, and a model that has lost its way ends.
pub const UNBOUNDED_DECODER: (usize, usize) = (256, 4);

/// What surrounds every request.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The most tokens of a sequence; None: no limit.
    pub context: Option<usize>,
    /// The most prompt tokens of one step.
    pub chunk: usize,
    /// The tokens that end an answer by themselves.
    pub end_ids: Vec<u32>,
    /// The constraints of requests, for the vocabulary that the requests have.
    pub grammars: Grammars,
}

/// A checked request, which may be made by another thread than the one that works on it.
#[derive(Debug)]
pub struct Ready {
    pub(crate) prompt: Prompt,
    pub(crate) options: Arc<GenerateOptions>,
    pub(crate) chain: Chain,
    pub(crate) end_ids: Vec<u32>,
    /// The most tokens to generate, and why no more.
    pub(crate) max_tokens: usize,
    pub(crate) at_max: Finish,
    pub(crate) seed: u64,
    pub(crate) notices: Vec<String>,
    /// One for each choice, where there is a constraint, until the work takes them.
    pub(crate) matchers: Vec<Matcher>,
    salt: String,
    pub(crate) variant: Option<Variant>,
    priority: i64,
    client: Arc<str>,
    footprint: Footprint,
    /// The most tokens that are read in a step.
    chunk: usize,
}

impl Ready {
    /// Checks a request for a source; [`Engine::ready`](crate::Engine::ready) is the same for a model.
    ///
    /// # Errors
    /// Parameters and prompts that cannot be served.
    pub fn new<S: LogitsSource>(
        source: &S,
        vocabulary: Option<&dyn Vocabulary>,
        around: &Surroundings,
        prompt: Prompt,
        options: Arc<GenerateOptions>,
    ) -> Result<Ready, Error> {
        options.validate(source.vocab())?;
        if !options.length.stop.is_empty() && vocabulary.is_none() {
            return Err(Error::Unsupported("stop strings need a tokenizer, and this model has none".into()));
        }
        check_prompt(source, around, &prompt, options.length.max_tokens != Some(0))?;
        let mut notices = Vec::new();
        let (max_tokens, at_max) = bound(around, &prompt, &options, &mut notices);
        let end_ids = if options.length.ignore_eos { Vec::new() } else { around.end_ids.clone() };
        let matchers = match &options.constraints.constraint {
            Some(constraint) => {
                let Some(vocabulary) = vocabulary else {
                    return Err(Error::Unsupported("constraints need a tokenizer, and this model has none".into()));
                };
                let grammars = &around.grammars;
                let made = grammars.matchers(vocabulary, &around.end_ids, constraint, options.length.n)?;
                notices.extend(made.1);
                made.0
            }
            None => Vec::new(),
        };
        let dry = options.sampling.dry_multiplier > 0.0;
        let breakers = match vocabulary {
            Some(vocabulary) if dry => breakers(vocabulary, &options.sampling.dry_sequence_breakers),
            _ => Breakers::default(),
        };
        let rules = Rules {
            end_ids: end_ids.clone(),
            stop_ids: options.length.stop_ids.clone(),
            prompt_len: prompt.token_ids.len(),
            max_tokens,
            min_tokens: options.length.min_tokens,
            breakers,
        };
        let chain = Chain::new(&options, &rules);
        let seed = options.sampling.seed.unwrap_or_else(fresh_seed);
        Ok(Ready {
            prompt,
            options,
            chain,
            end_ids,
            max_tokens,
            at_max,
            seed,
            notices,
            matchers,
            salt: String::new(),
            variant: None,
            priority: 0,
            client: Arc::from(""),
            footprint: source.footprint(),
            chunk: around.chunk,
        })
    }

    /// The same, computed by a variant of the source's model. A draft model guesses as it does for the model itself.
    pub fn of_variant(self, variant: Option<Variant>) -> Ready {
        Ready { variant, ..self }
    }

    /// The same, which shares its past with requests of the same salt only, where pasts are shared
    /// ([`crate::prefix`]): what others have asked can then not be told from how fast an answer comes.
    pub fn salted(self, salt: impl Into<String>) -> Ready {
        Ready { salt: salt.into(), ..self }
    }

    /// The same for a client, with a priority: while there is no room for all, the lower comes first, and clients take turns.
    /// No answer depends on it.
    pub fn ranked(self, priority: i64, client: &str) -> Ready {
        Ready { priority, client: client.into(), ..self }
    }

    /// Its priority and its client.
    pub(crate) fn rank(&self) -> (i64, Arc<str>) {
        (self.priority, Arc::clone(&self.client))
    }

    /// A past of the request's decoder, as it is shared.
    pub(crate) fn past<'r>(&'r self, tokens: &'r [u32]) -> Past<'r> {
        Past { tokens, encoder_ids: self.prompt.encoder_ids.as_deref(), salt: &self.salt }
    }

    /// The decoder's tokens before its first answer.
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// The most tokens that each of its answers gets.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The room for keys and values that it needs when all of its answers are as long as they may get, as
    /// [`Limits::tokens`](crate::schedule::Limits::tokens) counts it.
    pub fn most_tokens(&self) -> usize {
        let sequences = self.options.length.n.max(self.options.beam.num_beams);
        let bytes = self.held(std::iter::repeat_n(self.max_tokens, sequences), self.keeps_root(), true);
        usize::try_from(bytes.div_ceil(self.footprint.per_token().max(1))).unwrap_or(usize::MAX)
    }

    /// Bytes of keys and values of sequences that have so many tokens: the source's once, the prompt's whole blocks once, and
    /// of every sequence the blocks behind them, its next token included. With `root` there is one more that has only the
    /// prompt. Where a chunk is read at once (`reads`) windows hold that too.
    pub(crate) fn held(&self, generated: impl Iterator<Item = usize>, root: bool, reads: bool) -> u64 {
        let prompt = self.prompt.token_ids.len();
        let behind = prompt % BLOCK_TOKENS;
        let mut own: Vec<usize> = generated.map(|generated| (behind + 1).saturating_add(generated)).collect();
        if own.is_empty() || root {
            own.push(behind + 1);
        }
        let (source, shared) = (self.encoder_ids().len(), prompt - behind);
        let step = if reads { self.chunk } else { 1 };
        self.footprint.of(Sequences { source, shared, own: &own, step })
    }

    /// Whether windows give back what they have passed.
    pub(crate) fn passes(&self) -> bool {
        self.footprint.passes()
    }

    /// Whether the prompt's state is needed once more at the end: a search's log-probabilities are read off then.
    pub(crate) fn keeps_root(&self) -> bool {
        self.options.beam.num_beams > 1 && self.max_tokens > 0 && self.options.report.logprobs.is_some()
    }

    /// The source's tokens; empty for a decoder.
    pub(crate) fn encoder_ids(&self) -> &[u32] {
        self.prompt.encoder_ids.as_deref().unwrap_or(&[])
    }

    /// Why a token ends an answer, if it does.
    pub(crate) fn ends(&self, id: u32) -> Option<Finish> {
        if self.end_ids.contains(&id) {
            Some(Finish::EndToken(id))
        } else if self.options.length.stop_ids.contains(&id) {
            Some(Finish::StopToken(id))
        } else {
            None
        }
    }
}

/// Checks the prompt's tokens, and that they fit; with `answers` there must be room for at least one more.
pub(crate) fn check_prompt<S: LogitsSource>(
    source: &S,
    around: &Surroundings,
    prompt: &Prompt,
    answers: bool,
) -> Result<(), Error> {
    if prompt.token_ids.is_empty() || prompt.encoder_ids.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::EmptyPrompt);
    }
    validate::ids("the prompt", &prompt.token_ids, source.input_vocab())?;
    validate::ids("the source", prompt.encoder_ids.as_deref().unwrap_or_default(), source.source_vocab())?;
    let Some(context) = around.context else { return Ok(()) };
    let encoder = prompt.encoder_ids.as_ref().map_or(0, Vec::len);
    if encoder > context {
        return Err(Error::Context { place: "the source", tokens: encoder, context, room: "" });
    }
    let tokens = prompt.token_ids.len();
    if tokens > context {
        return Err(Error::Context { place: "the prompt", tokens, context, room: "" });
    }
    if answers && tokens == context {
        let room = ", which leaves no room for an answer";
        return Err(Error::Context { place: "the prompt", tokens, context, room });
    }
    Ok(())
}

/// How many tokens to generate at most, and what to say when they are reached.
fn bound(
    around: &Surroundings,
    prompt: &Prompt,
    options: &GenerateOptions,
    notices: &mut Vec<String>,
) -> (usize, Finish) {
    let room = around.context.map(|context| context.saturating_sub(prompt.token_ids.len()));
    match (options.length.max_tokens, room) {
        (Some(asked), Some(room)) if asked > room => {
            let context = around.context.unwrap_or(0);
            notices.push(format!(
                "max_tokens is {asked}, but the context of {context} leaves room for {room} after the prompt"
            ));
            (room, Finish::Context)
        }
        (Some(asked), _) => (asked, Finish::MaxTokens),
        (None, Some(room)) if prompt.encoder_ids.is_none() => (room, Finish::Context),
        (None, room) => {
            let bound = match &prompt.encoder_ids {
                Some(ids) => UNBOUNDED_DECODER.0.saturating_add(ids.len().saturating_mul(UNBOUNDED_DECODER.1)),
                None => UNBOUNDED_TOKENS,
            };
            match room {
                Some(room) if room < bound => (room, Finish::Context),
                _ => {
                    notices.push(format!("no max_tokens was given: the answer is bounded at {bound} tokens"));
                    (bound, Finish::MaxTokens)
                }
            }
        }
    }
}
