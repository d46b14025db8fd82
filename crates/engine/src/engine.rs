//! A loaded model, ready for requests.

use crate::constrain::Grammars;
use crate::defaults::Resolved;
use crate::divergence::{Divergence, divergence};
use crate::error::Error;
use crate::generate::{Handler, answer, answer_all};
use crate::model_source::{ModelSource, OnStep};
use crate::options::GenerateOptions;
use crate::output::{Output, Prompt};
use crate::prefix::{PrefixCache, Prefixes, SourcePrefixes};
use crate::request::{Ready, Surroundings};
use crate::schedule::{Draft, EachHandler, Limits, Schedule};
use crate::score::{Method, Perplexity, Score, perplexity, score};
use crate::source::LogitsSource;
use crate::vocabulary::Vocabulary;
use attend_kernels::DType;
use attend_model::{Described, Loaded, memory};
use attend_nn::spec::Body;
use attend_nn::{BLOCK_TOKENS, CacheBlock, KvTypes, RunOptions};
use attend_text::Tokenizer;
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most bytes of keys and values of a batch of requests together, unless one alone takes more.
pub const HELD_BYTES: u64 = 1 << 30;

/// A sequence of so many blocks is longer than any.
const MOST_BLOCKS: usize = 1 << 40;

/// How a model is run, whatever is asked of it.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The most tokens of a sequence; None: what the model was made for.
    pub context: Option<usize>,
    /// The most prompt tokens that are read in one step. The answer does not depend on it.
    pub chunk: usize,
    /// How keys and values are stored.
    pub kv: KvTypes,
    pub run: RunOptions,
    /// Follows what is computed.
    pub on_step: Option<OnStep>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        let (kv, run) = (KvTypes::both(DType::F16), RunOptions::default());
        EngineOptions { context: None, chunk: 512, kv, run, on_step: None }
    }
}

/// A model, its tokenizer and its defaults.
#[derive(Debug)]
pub struct Engine<'m> {
    source: ModelSource<'m>,
    pub(crate) described: &'m Described,
    tokenizer: Option<&'m Tokenizer>,
    around: Surroundings,
    draft: Option<&'m Engine<'m>>,
    prefixes: Option<PrefixCache<CacheBlock>>,
}

impl<'m> Engine<'m> {
    /// # Errors
    /// [`Error::Unsupported`] for a model that does not write text, [`Error::ContextTooLong`] for a context that it was not
    /// made for.
    pub fn new(
        loaded: &'m Loaded,
        tokenizer: Option<&'m Tokenizer>,
        options: &EngineOptions,
    ) -> Result<Engine<'m>, Error> {
        let Loaded { model, source: described } = loaded;
        let source =
            ModelSource::new(model, options.kv, options.run, options.chunk)?.with_on_step(options.on_step.clone());
        let context = match (options.context, model.spec().context) {
            (Some(asked), Some(model)) if asked > model => return Err(Error::ContextTooLong { asked, model }),
            (asked, model) => asked.or(model),
        };
        let around = Surroundings {
            context,
            chunk: options.chunk,
            end_ids: end_ids(described, tokenizer),
            grammars: Grammars::default(),
        };
        Ok(Engine { source, described, tokenizer, around, draft: None, prefixes: None })
    }

    /// Lets a smaller model guess what this one will say; see [`Schedule::with_draft`]. Answers stay the same.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model of another shape or vocabulary.
    pub fn with_draft(self, draft: Option<&'m Engine<'m>>) -> Result<Engine<'m>, Error> {
        if let Some(draft) = draft {
            if draft.is_encoder_decoder() != self.is_encoder_decoder() {
                let message = "a draft model must read what the model reads: one of the two is an encoder-decoder";
                return Err(Error::Unsupported(message.into()));
            }
            if let (Some(own), Some(other)) = (self.tokenizer, draft.tokenizer) {
                same_vocabulary(own, other, self.source.vocab().min(draft.source.vocab()))?;
            }
        }
        Ok(Engine { draft, ..self })
    }

    /// Lets requests begin with the keys and values of what earlier ones have in common with them. Answers stay the same. The
    /// cache's instance must mean this model with its adapters and no other.
    pub fn with_prefix_cache(self, prefixes: Option<PrefixCache<CacheBlock>>) -> Engine<'m> {
        Engine { prefixes, ..self }
    }

    /// Makes the vocabulary ready for constraints, which the first of them does otherwise. Requests need not wait for it.
    pub fn warm_constraints(&self) {
        if let Some(vocabulary) = self.vocabulary() {
            self.around.grammars.warm(vocabulary, &self.around.end_ids);
        }
    }

    /// What requests begin with.
    pub fn prefix_cache(&self) -> Option<&PrefixCache<CacheBlock>> {
        self.prefixes.as_ref()
    }

    /// The draft model.
    pub fn draft(&self) -> Option<&'m Engine<'m>> {
        self.draft
    }

    pub fn source(&self) -> &ModelSource<'m> {
        &self.source
    }

    pub fn tokenizer(&self) -> Option<&'m Tokenizer> {
        self.tokenizer
    }

    /// The context's limit, the chunk, and the end tokens of config.json, generation_config.json and the tokenizer together.
    pub fn surroundings(&self) -> &Surroundings {
        &self.around
    }

    /// The same to change, for callers who know better than the files what ends an answer or how far a model reaches.
    pub fn surroundings_mut(&mut self) -> &mut Surroundings {
        &mut self.around
    }

    pub fn is_encoder_decoder(&self) -> bool {
        matches!(self.source.spec().body, Body::EncoderDecoder { .. })
    }

    /// The model's defaults with the caller's values over them; see [`Resolved::new`].
    ///
    /// # Errors
    /// Unknown names and wrong types.
    pub fn options(&self, given: impl IntoIterator<Item = (String, Value)>) -> Result<Resolved, Error> {
        Resolved::new(&self.described.generation, self.is_encoder_decoder(), given)
    }

    /// Answers a prompt; see [`generate`](crate::generate::generate). The decoder of an encoder-decoder begins with its
    /// start token when the prompt gives no tokens for it.
    ///
    /// # Errors
    /// As [`generate`](crate::generate::generate).
    pub fn generate(&self, prompt: Prompt, options: &GenerateOptions, on: &mut Handler<'_>) -> Result<Output, Error> {
        let prompt = self.complete(prompt)?;
        answer(self.schedule(Limits::default()), (&prompt, options), on)
    }

    /// The log-probabilities of a text; see [`score`](crate::score::score). For an encoder-decoder `prompt.token_ids` is the
    /// target; the start token is put in front where it is missing.
    ///
    /// # Errors
    /// As [`score`](crate::score::score).
    pub fn score(&self, prompt: Prompt, top: usize) -> Result<Score, Error> {
        let mut prompt = prompt;
        if prompt.encoder_ids.is_some() {
            let start = self.described.decoder_start()?;
            if prompt.token_ids.first() != Some(&start) {
                prompt.token_ids.insert(0, start);
            }
        }
        score(&self.source, &self.around, &prompt, top)
    }

    /// The perplexity of a text; see [`perplexity`](crate::score::perplexity).
    ///
    /// # Errors
    /// As [`perplexity`](crate::score::perplexity).
    pub fn perplexity(
        &self,
        token_ids: &[u32],
        method: Method,
        progress: &mut dyn FnMut(Perplexity) -> ControlFlow<()>,
    ) -> Result<Perplexity, Error> {
        perplexity(&self.source, &self.around, token_ids, method, progress)
    }

    /// How far this model's predictions of a text are from another's; see
    /// [`divergence`](crate::divergence::divergence).
    ///
    /// # Errors
    /// As [`divergence`](crate::divergence::divergence).
    pub fn divergence(
        &self,
        reference: &Engine<'_>,
        token_ids: &[u32],
        method: Method,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Divergence, Error> {
        divergence(&self.source, &reference.source, &self.around, token_ids, method, progress)
    }

    /// Answers many prompts in one batch; see [`answer_all`]. Each answer is the one that the prompt gets alone.
    ///
    /// # Errors
    /// As [`answer_all`].
    pub fn generate_all(
        &self,
        prompts: Vec<Prompt>,
        options: &GenerateOptions,
        on: &mut EachHandler<'_>,
    ) -> Result<Vec<Output>, Error> {
        let complete = |(index, prompt)| self.complete(prompt).map_err(|error: Error| error.of_input(index));
        let prompts = prompts.into_iter().enumerate().map(complete).collect::<Result<Vec<Prompt>, Error>>()?;
        answer_all(self.schedule(self.limits()), (prompts, options), on)
    }

    /// Checks a request that a [schedule](Engine::schedule) of this model is to answer; see [`Schedule::add_ready`].
    ///
    /// # Errors
    /// Parameters and prompts that cannot be served.
    pub fn ready(&self, prompt: Prompt, options: Arc<GenerateOptions>) -> Result<Ready, Error> {
        Ready::new(&self.source, self.vocabulary(), &self.around, self.complete(prompt)?, options)
    }

    /// Bytes of the keys and values of a token in every layer, or of a source's, whichever takes more: what
    /// [`Limits::tokens`] is counted in.
    pub fn bytes_per_token(&self) -> u64 {
        self.source.footprint().per_token()
    }

    /// What a token takes with a draft model beside, which has read no more than what it guesses for.
    pub fn held_per_token(&self) -> u64 {
        self.bytes_per_token().saturating_add(self.draft.map_or(0, Engine::bytes_per_token))
    }

    /// The most tokens of a sequence for which there is room, with the one that comes next; None: as many as one likes,
    /// because every layer has a window.
    pub fn longest(&self, limits: Limits) -> Option<usize> {
        let footprint = self.source.footprint();
        let room = limits.bytes(footprint.per_token());
        let fits =
            |blocks: usize| footprint.of_sequence(blocks.saturating_mul(BLOCK_TOKENS), self.around.chunk) <= room;
        if fits(MOST_BLOCKS) {
            return None;
        }
        let (mut low, mut high) = (0, MOST_BLOCKS);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        Some((low * BLOCK_TOKENS).saturating_sub(1))
    }

    /// A loop over this model for requests that come and go; prompts must be [complete](Engine::complete).
    pub fn schedule(&self, limits: Limits) -> Schedule<'_, ModelSource<'m>> {
        let draft = self.draft.map(|draft| Draft { source: &draft.source, context: draft.around.context });
        let prefixes = self.prefixes.clone().map(|cache| {
            let prefixes: Box<dyn Prefixes<_>> = Box::new(SourcePrefixes { source: &self.source, cache });
            prefixes
        });
        let schedule = Schedule::new(&self.source, self.vocabulary(), &self.around, limits);
        schedule.with_draft(draft).with_prefixes(prefixes)
    }

    /// How much is worked on at once, so that keys and values stay below [`HELD_BYTES`] and a quarter of the memory that is
    /// free now.
    pub fn limits(&self) -> Limits {
        let free = memory().map_or(HELD_BYTES, |memory| memory.available / 4);
        let tokens = HELD_BYTES.min(free) / self.held_per_token().max(1);
        Limits { tokens: usize::try_from(tokens).unwrap_or(usize::MAX), ..Limits::default() }
    }

    fn vocabulary(&self) -> Option<&'m dyn Vocabulary> {
        self.tokenizer.map(|tokenizer| tokenizer as &dyn Vocabulary)
    }

    /// The prompt with the token that the decoder of an encoder-decoder begins with, where it gives no tokens for it.
    ///
    /// # Errors
    /// A model whose files do not say which token that is.
    pub fn complete(&self, mut prompt: Prompt) -> Result<Prompt, Error> {
        if prompt.encoder_ids.is_some() && prompt.token_ids.is_empty() {
            prompt.token_ids.push(self.described.decoder_start()?);
        }
        Ok(prompt)
    }
}

/// Every token that any of the files calls an end.
fn end_ids(described: &Described, tokenizer: Option<&Tokenizer>) -> Vec<u32> {
    let mut ids = described.generation.eos.clone();
    // generation_config.json hides config.json's end token; a model may still use both.
    match described.checkpoint.config().value("eos_token_id") {
        Some(Value::Array(list)) => ids.extend(list.iter().filter_map(as_id)),
        Some(value) => ids.extend(as_id(value)),
        None => {}
    }
    ids.extend(tokenizer.map(Tokenizer::end_ids).unwrap_or_default());
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A guess is worth something only where both mean the same by a token.
fn same_vocabulary(own: &Tokenizer, draft: &Tokenizer, ids: usize) -> Result<(), Error> {
    let differs = (0..u32::try_from(ids).unwrap_or(u32::MAX)).find(|&id| own.token(id) != draft.token(id));
    let Some(id) = differs else { return Ok(()) };
    let spelled = |tokenizer: &Tokenizer| tokenizer.token(id).map_or("nothing".into(), |token| format!("{token:?}"));
    Err(Error::Unsupported(format!(
        "the draft model has another vocabulary: its token {id} is {}, and the model's is {}",
        spelled(draft),
        spelled(own)
    )))
}

fn as_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
