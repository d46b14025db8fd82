//! A loaded model, ready for requests.

use crate::defaults::Resolved;
use crate::divergence::{Divergence, divergence};
use crate::error::Error;
use crate::generate::{Handler, generate};
use crate::model_source::ModelSource;
use crate::options::GenerateOptions;
use crate::output::{Output, Prompt};
use crate::request::Surroundings;
use crate::score::{Method, Perplexity, Score, perplexity, score};
use crate::vocabulary::Vocabulary;
use attend_kernels::DType;
use attend_model::{Described, Loaded};
use attend_nn::spec::Body;
use attend_nn::{KvTypes, RunOptions};
use attend_text::Tokenizer;
use serde_json::Value;
use std::ops::ControlFlow;

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
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions { context: None, chunk: 512, kv: KvTypes::both(DType::F16), run: RunOptions::default() }
    }
}

/// A model, its tokenizer and its defaults.
#[derive(Debug)]
pub struct Engine<'m> {
    source: ModelSource<'m>,
    pub(crate) described: &'m Described,
    tokenizer: Option<&'m Tokenizer>,
    around: Surroundings,
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
        let source = ModelSource::new(model, options.kv, options.run, options.chunk)?;
        let context = match (options.context, model.spec().context) {
            (Some(asked), Some(model)) if asked > model => return Err(Error::ContextTooLong { asked, model }),
            (asked, model) => asked.or(model),
        };
        let around = Surroundings { context, chunk: options.chunk, end_ids: end_ids(described, tokenizer) };
        Ok(Engine { source, described, tokenizer, around })
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
        let vocabulary = self.tokenizer.map(|tokenizer| tokenizer as &dyn Vocabulary);
        generate(&self.source, vocabulary, &self.around, (&prompt, options), on)
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

    fn complete(&self, mut prompt: Prompt) -> Result<Prompt, Error> {
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

fn as_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}
