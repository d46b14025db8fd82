//! A loaded model with everything that can be asked of it, made ready once.

use super::adapter::{Held, Scaled};
use super::ask::{Embed, Input, Source};
use super::blend::Blends;
use crate::failure::Failure;
use attend_engine::tasks::embed::{EmbedOptions, Embedder, Item};
use attend_engine::tasks::{Task, TaskModel, TaskOptions};
use attend_engine::{Engine, EngineOptions, Limits, PrefixCache, Prompt, Variant};
use attend_model::{Adapter, Loaded};
use attend_nn::BLOCK_TOKENS;
use attend_text::{ChatTemplate, EncodeOptions, Form, Infill, Render, Tokenizer};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// What a model is made of, as whoever loads it hands it over.
#[derive(Debug)]
pub struct Parts {
    pub loaded: Loaded,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    /// A smaller model that guesses ahead.
    pub draft: Option<Box<Parts>>,
    pub options: EngineOptions,
    pub bounds: Bounds,
}

/// The most that a model may hold of its requests. None: as is usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Bytes of keys and values. Usual: as [`Engine::limits`].
    pub kv_memory: Option<u64>,
    /// Bytes of them that are kept for requests that begin alike, beside those; 0: none. Usual: a quarter as many.
    pub prefix_cache: Option<u64>,
    /// Sequences that are worked on at once: choices and beams of all requests together. Usual: as [`Limits`].
    pub parallel: Option<NonZeroUsize>,
}

/// The tasks of a model. What it has not the parts for is none.
pub struct Tools<'m> {
    pub parts: &'m Parts,
    pub engine: Option<Engine<'m>>,
    pub limits: Limits,
    /// How it marks thoughts and calls, where it has a template.
    pub form: Option<Form>,
    /// Reads inputs; refuses those that are too long, unless the folder says that they are cut.
    reader: TaskModel<'m>,
    /// Cuts them.
    cutter: TaskModel<'m>,
    /// Over each of the two.
    embedders: Option<[Embedder<'m>; 2]>,
    pub blends: Arc<Blends>,
}

/// Tokens that are computed in one step of a task, where streams wait for its end, and where there are none.
const SHARED_STEP: usize = 512;
const OWN_STEP: usize = 4096;

impl<'m> Tools<'m> {
    /// # Errors
    /// Files that contradict themselves, and a memory for keys and values that holds nothing.
    pub fn new(parts: &'m Parts, draft: Option<&'m Engine<'m>>) -> Result<Tools<'m>, String> {
        let spec = parts.loaded.model.spec();
        let engine = Task::Run.fits(spec).then(|| engine(parts)).transpose()?;
        let mut engine =
            engine.map(|engine| engine.with_draft(draft)).transpose().map_err(|error| error.to_string())?;
        let limits = match &mut engine {
            Some(engine) => limits(engine, parts.bounds)?,
            None => Limits::default(),
        };
        let engine = engine.map(|engine| {
            let bytes = prefix_bytes(parts.bounds, limits, &engine);
            engine.with_prefix_cache((bytes > 0).then(|| PrefixCache::new(bytes)))
        });
        let step = if engine.is_some() { SHARED_STEP } else { OWN_STEP };
        let reader = |truncate: bool| {
            let options =
                TaskOptions { run: parts.options.run, batch_tokens: step, truncate, ..TaskOptions::default() };
            TaskModel::new(&parts.loaded, &parts.tokenizer, &options).map_err(|error| error.to_string())
        };
        let (reader, cutter) = (reader(false)?, reader(true)?);
        let embedder = |model: &TaskModel<'m>| {
            Embedder::new(model.clone(), EmbedOptions::default()).map_err(|error| error.to_string())
        };
        let both = || Ok::<_, String>([embedder(&reader)?, embedder(&cutter)?]);
        let embedders = Task::Embed.fits(spec).then(both).transpose()?;
        let form = parts.template.as_ref().map(|template| Form::of(template, &parts.tokenizer));
        Ok(Tools { parts, engine, limits, form, reader, cutter, embedders, blends: Arc::default() })
    }

    /// The model as a reader of texts, for a task that it has the parts for.
    ///
    /// # Errors
    /// A model that has not.
    pub fn reader(&self, task: Task, truncate: bool) -> Result<TaskModel<'m>, Failure> {
        match task.fits(self.parts.loaded.model.spec()) {
            true => Ok(if truncate { self.cutter.clone() } else { self.reader.clone() }),
            false => Err(self.unable(task)),
        }
    }

    /// Reads an adapter and puts it beside the model's weights, which the two share.
    ///
    /// # Errors
    /// Files that are no adapter, or none of this model.
    pub fn attach(&self, path: &Path, strength: f64) -> Result<Held, attend_model::Error> {
        let Loaded { model, source } = &self.parts.loaded;
        let adapter = Adapter::open(path, source)?;
        let variant = Variant::new(adapter.attach(model, strength)?);
        let bytes = variant.bytes_beside(model) as u64;
        let notices = adapter.notices.clone();
        Ok(Held { variant, source: Arc::new(adapter), strength, bytes, notices })
    }

    /// What computes a request with these adapters, each as strong as it wants; None: the model itself.
    ///
    /// # Errors
    /// Adapters that cannot be combined.
    pub fn blend(&self, wanted: &[Scaled]) -> Result<Option<Variant>, Failure> {
        let prefixes = self.engine.as_ref().and_then(Engine::prefix_cache);
        self.blends.variant(&self.parts.loaded.model, wanted, |gone| {
            prefixes.into_iter().for_each(|prefixes| prefixes.forget_variant(gone));
        })
    }

    /// The most bytes of keys and values, with those that are kept for requests that begin alike.
    pub fn most_kept(&self) -> u64 {
        let Some(engine) = &self.engine else { return 0 };
        let kept = prefix_bytes(self.parts.bounds, self.limits, engine);
        self.limits.bytes(engine.held_per_token()).saturating_add(kept)
    }

    /// The engine, for requests of text.
    ///
    /// # Errors
    /// A model that writes none.
    pub fn engine(&self) -> Result<&Engine<'m>, Failure> {
        self.engine.as_ref().ok_or_else(|| self.unable(Task::Run))
    }

    /// # Errors
    /// A model that makes no vectors of texts.
    pub fn embedder(&self, truncate: bool) -> Result<&Embedder<'m>, Failure> {
        let [reading, cutting] = self.embedders.as_ref().ok_or_else(|| self.unable(Task::Embed))?;
        let embedder = if truncate { cutting } else { reading };
        if embedder.per_token() {
            return Err(Failure::bad("this model gives a vector for each token and none for a text"));
        }
        Ok(embedder)
    }

    /// What was assumed about vectors because no file says it, of a model that is made for nothing else.
    pub fn notice(&self) -> Option<&str> {
        let [embedder, _] = self.embedders.as_ref().filter(|_| self.engine.is_none())?;
        embedder.notice()
    }

    fn unable(&self, task: Task) -> Failure {
        match task.check(self.parts.loaded.model.spec()) {
            Err(error) => Failure::field("model", error.to_string()),
            Ok(()) => Failure::fault(format!("{} was not made ready", task.name())),
        }
    }

    /// The tokens of a prompt, as `attend run` makes them, and whether it ends inside a thought.
    ///
    /// # Errors
    /// What cannot be encoded, and conversations for a model without a template.
    pub fn prompt(&self, engine: &Engine<'_>, source: Source) -> Result<(Prompt, bool), Failure> {
        let reads = engine.is_encoder_decoder();
        let tokenizer = &self.parts.tokenizer;
        let mut opened = false;
        let ids = match source {
            Source::Tokens(ids) => ids,
            Source::Text(text) if text.is_empty() && !reads => {
                return Err(Failure::field("prompt", "the prompt is empty: there is nothing to continue"));
            }
            Source::Text(text) if reads => {
                tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: true }).map_err(encoding)?.ids
            }
            Source::Text(text) => tokenizer.encode_prompt(&text, true).map_err(encoding)?.ids,
            Source::Gap(before, behind) => {
                let infill = Infill::of(tokenizer).filter(|_| !reads).ok_or_else(no_infill)?;
                infill.encode(tokenizer, &before, &behind).map_err(encoding)?
            }
            Source::Chat(request) => {
                let conversation = self.conversation(&request)?;
                opened = conversation.1;
                conversation.0
            }
        };
        Ok((if reads { Prompt::source(ids) } else { Prompt::tokens(ids) }, opened))
    }

    /// The tokens of a conversation, with the start of the answer, and whether that is the start of a thought.
    ///
    /// # Errors
    /// A model without a chat template, and what its template refuses.
    pub fn conversation(&self, request: &Render) -> Result<(Vec<u32>, bool), Failure> {
        let Some(template) = &self.parts.template else {
            let message = "this model has no chat template; use /v1/completions";
            return Err(Failure::field("model", message).code("no_chat_template"));
        };
        let tokenizer = &self.parts.tokenizer;
        let rendered = template.render_conversation(request, tokenizer).map_err(|error| {
            Failure::field("messages", format!("the model's chat template does not take this: {error}"))
        })?;
        let opens = |text: &str| self.form.as_ref().is_some_and(|form| form.is_opened_by(text));
        // What a user wrote last opens nothing, where a template puts nothing behind it.
        let last = request.messages.as_array().and_then(|messages| messages.last());
        let spoken = last.filter(|last| last["role"] != "assistant").and_then(|last| last["content"].as_str());
        let opened = opens(rendered.text()) && !spoken.is_some_and(opens);
        Ok((tokenizer.encode_chat(&rendered).map_err(encoding)?.ids, opened))
    }

    /// Texts made ready for vectors.
    ///
    /// # Errors
    /// A model that makes none, texts that are too long or empty.
    pub fn items(&self, embed: Embed) -> Result<Vec<Item>, Failure> {
        let embedder = self.embedder(embed.truncate)?;
        let prompt = match &embed.prompt_name {
            None => embedder.prompt(embed.role),
            Some(name) => embedder.prompts().get(name).ok_or_else(|| {
                let known: Vec<&str> = embedder.prompts().keys().map(String::as_str).collect();
                let known =
                    if known.is_empty() { "it has none".into() } else { format!("it has {}", known.join(", ")) };
                Failure::field("prompt_name", format!("the model has no prompt of this name; {known}"))
            })?,
        };
        let one = |(index, input): (usize, Input)| {
            let item = match input {
                Input::Text(text) if text.is_empty() => Err(attend_engine::Error::EmptyInput),
                Input::Text(text) => embedder.items_behind(prompt, &[&text]).map(|mut items| items.pop()),
                Input::Tokens(ids) => embedder.item_of(ids).map(Some),
            };
            let place = |error| attend_engine::Error::Input { index, source: Box::new(plain(error)) };
            let mut item = item.map_err(place)?.ok_or_else(|| Failure::fault("a text gave no item"))?;
            (item.dimensions, item.normalize) = (embed.dimensions, embed.normalize);
            Ok(item)
        };
        embed.inputs.into_iter().enumerate().map(one).collect()
    }
}

/// The error without the place that it had in a list of one.
fn plain(error: attend_engine::Error) -> attend_engine::Error {
    match error {
        attend_engine::Error::Input { source, .. } => *source,
        other => other,
    }
}

/// What a request for text in a gap is told by a model that cannot write it.
pub fn no_infill() -> Failure {
    let message =
        "this model does not fill gaps: its vocabulary has no tokens for what stands before one and behind it";
    Failure::field("suffix", message).code("no_infill_tokens")
}

fn encoding(error: attend_text::Error) -> Failure {
    Failure::from(attend_engine::Error::from(error))
}

/// An engine over the parts of a model.
pub fn engine(parts: &Parts) -> Result<Engine<'_>, String> {
    Engine::new(&parts.loaded, Some(&parts.tokenizer), &parts.options).map_err(|error| error.to_string())
}

/// The most bytes that are kept for requests that begin alike.
fn prefix_bytes(bounds: Bounds, limits: Limits, engine: &Engine<'_>) -> u64 {
    bounds.prefix_cache.unwrap_or(limits.bytes(engine.bytes_per_token()) / 4)
}

/// How much is worked on at once. A sequence is never longer than what the memory for keys and values holds.
fn limits(engine: &mut Engine<'_>, bounds: Bounds) -> Result<Limits, String> {
    let mut usual = engine.limits();
    usual.sequences = bounds.parallel.map_or(usual.sequences, NonZeroUsize::get);
    let Some(bytes) = bounds.kv_memory else { return Ok(within(engine, usual)) };
    let tokens = usize::try_from(bytes / engine.held_per_token().max(1)).unwrap_or(usize::MAX);
    if tokens < BLOCK_TOKENS {
        let least = engine.held_per_token().saturating_mul(BLOCK_TOKENS as u64);
        return Err(format!("{bytes} bytes for keys and values hold {tokens} tokens; at least {least} are needed"));
    }
    Ok(within(engine, Limits { tokens, ..usual }))
}

fn within(engine: &mut Engine<'_>, limits: Limits) -> Limits {
    if let Some(longest) = engine.longest(limits) {
        let (longest, context) = (longest.max(1), &mut engine.surroundings_mut().context);
        *context = Some(context.map_or(longest, |context| context.min(longest)));
    }
    limits
}
