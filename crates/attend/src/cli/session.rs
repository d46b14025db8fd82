//! A model made ready for a command: found (or fetched), loaded, with its tokenizer and chat template.

use super::error::usage;
use super::options::{AdapterArg, AdapterArgs, AttentionChoice, CacheType, ComputeArgs, ModelArg, TemplateArgs};
use super::sampling::SamplingArgs;
use super::values::TokenName;
use super::{pull, screen};
use crate::models::{self, DEFAULT_MODEL, Folder, Found};
use anyhow::{Context, Result, anyhow};
use attend_engine::{Engine, EngineOptions, Prompt, Resolved};
use attend_kernels::DType;
use attend_model::{Adapter, Described, LoadOptions, Loaded, Need};
use attend_nn::{AttentionKind, KvTypes, RunOptions};
use attend_text::{ChatTemplate, EncodeOptions, Render, Tokenizer};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Instant;

/// A loaded model and what belongs to it.
#[derive(Debug)]
pub struct Session {
    pub path: PathBuf,
    pub loaded: Loaded,
    pub tokenizer: Tokenizer,
    pub template: Option<ChatTemplate>,
    pub load_seconds: f64,
}

/// Chooses instruction set and threads; a bad `ATTEND_ISA` is an error before any work.
pub fn prepare(compute: &ComputeArgs) -> Result<()> {
    attend_kernels::choose().map_err(|message| anyhow!(message))?;
    if let Some(threads) = compute.threads {
        attend_kernels::set_threads(threads);
    }
    Ok(())
}

/// The files of the model that was named, fetched where that is needed and possible.
pub fn locate(model: &ModelArg) -> Result<PathBuf> {
    let word = model.model.as_deref().unwrap_or(OsStr::new(DEFAULT_MODEL.name));
    // A path needs no models folder, which may not exist on this system.
    if let models::Wanted::Path(path) = models::parse(word)? {
        return Ok(path);
    }
    let folder = Folder::locate()?;
    match models::find(word, &folder)? {
        Found::At(path) => Ok(path),
        Found::ToFetch(wanted) => pull::fetch(&folder, &wanted),
    }
}

/// The description of the model that was named: one of the well-known ones, a description or configuration in a file or
/// folder, or a model with its weights, of which none are read.
pub fn design(model: &ModelArg) -> Result<Described> {
    if let Some(word) = model.model.as_ref().and_then(|word| word.to_str())
        && !std::path::Path::new(word).exists()
        && let Some(known) = attend_model::describe_known(word)?
    {
        return Ok(known);
    }
    Ok(attend_model::describe_design(&locate(model)?)?)
}

/// Finds, reads and checks everything.
pub fn open(model: &ModelArg, compute: &ComputeArgs) -> Result<Session> {
    prepare(compute)?;
    let path = locate(model)?;
    let started = Instant::now();
    let tokenizer = match Tokenizer::open(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            // Where there is no model at all, that is what to say.
            attend_model::describe(&path)?;
            return Err(error.into());
        }
    };
    let template = ChatTemplate::open(&path)?;
    let loaded = load(&path, compute)?;
    for notice in &loaded.source.notices {
        screen::notice(&format!("note: {notice}"));
    }
    Ok(Session { path, loaded, tokenizer, template, load_seconds: started.elapsed().as_secs_f64() })
}

/// The draft model that was named.
pub fn open_draft(args: &SamplingArgs, compute: &ComputeArgs) -> Result<Option<Session>> {
    let Some(draft) = &args.speculation.draft else { return Ok(None) };
    let session = open(&ModelArg { model: Some(draft.clone()) }, &draft_compute(compute)).context("--draft")?;
    Ok(Some(session))
}

/// A draft model is computed as the model itself is, without its adapters and limits of length.
pub fn draft_compute(compute: &ComputeArgs) -> ComputeArgs {
    ComputeArgs { context: None, adapters: AdapterArgs::default(), ..compute.clone() }
}

/// Reads the weights, under a bar when it takes a while.
pub fn load(path: &std::path::Path, compute: &ComputeArgs) -> Result<Loaded> {
    let mut bar = screen::LateBar::bytes("loading");
    let loaded = attend_model::load(path, &load_options(compute), &mut |done, total| bar.at(done, total));
    bar.clear();
    let mut loaded = loaded?;
    for AdapterArg { path, strength } in &compute.adapters.lora {
        let adapter = Adapter::open(path, &loaded.source)?;
        loaded.model = adapter.attach(&loaded.model, *strength)?;
        loaded.source.notices.extend(adapter.notices);
    }
    Ok(loaded)
}

/// What the options mean for the loader.
pub fn load_options(compute: &ComputeArgs) -> LoadOptions {
    let (arithmetic, dtype) = compute.dtype.chosen();
    let need = Need {
        context: compute.context,
        batch: EngineOptions::default().chunk,
        kv: KvTypes::both(cache_type(compute.kv_type)),
    };
    LoadOptions { compute: arithmetic, dtype, need: Some(need), ..LoadOptions::default() }
}

/// What the options mean for the engine.
pub fn engine_options(compute: &ComputeArgs) -> EngineOptions {
    let attention = match compute.attention {
        AttentionChoice::Flash => AttentionKind::Flash,
        AttentionChoice::Textbook => AttentionKind::Textbook,
    };
    EngineOptions {
        context: compute.context,
        kv: KvTypes::both(cache_type(compute.kv_type)),
        run: RunOptions { attention },
        ..EngineOptions::default()
    }
}

/// The cache's type.
pub fn cache_type(choice: CacheType) -> DType {
    match choice {
        CacheType::F32 => DType::F32,
        CacheType::F16 => DType::F16,
        CacheType::Bf16 => DType::BF16,
        CacheType::Q8_0 => DType::Q8_0,
        CacheType::Q4_0 => DType::Q4_0,
    }
}

impl Session {
    pub fn engine(&self, compute: &ComputeArgs) -> Result<Engine<'_>> {
        Ok(Engine::new(&self.loaded, Some(&self.tokenizer), &engine_options(compute))?)
    }

    /// The engine of a draft model.
    pub fn draft_engine(&self, compute: &ComputeArgs) -> Result<Engine<'_>> {
        self.engine(&draft_compute(compute)).context("--draft")
    }

    /// The template that applies: the one that was given, else the model's own.
    pub fn template(&self, args: &TemplateArgs) -> Result<Option<ChatTemplate>> {
        let Some(path) = &args.chat_template else { return Ok(self.template.clone()) };
        let source = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let spelled = |id: Option<u32>| id.and_then(|id| self.tokenizer.token(id));
        let (bos, eos) = (spelled(self.tokenizer.bos()), spelled(self.tokenizer.eos()));
        Ok(Some(ChatTemplate::new(source, bos.as_deref(), eos.as_deref())))
    }

    /// The token ids of a conversation, the start of the answer included.
    pub fn encode_chat(&self, template: &ChatTemplate, messages: &[Value], args: &TemplateArgs) -> Result<Vec<u32>> {
        let request = Render {
            messages: Value::Array(messages.to_vec()),
            add_generation_prompt: true,
            extra: args.template_var.iter().cloned().collect(),
            ..Render::default()
        };
        let rendered = template.render_marked(&request, &self.tokenizer)?;
        Ok(self.tokenizer.encode_chat(&rendered)?.ids)
    }

    /// The prompt of a plain text: a decoder continues it, the encoder of an encoder-decoder reads it.
    pub fn plain_prompt(&self, engine: &Engine<'_>, text: &str) -> Result<Prompt> {
        if engine.is_encoder_decoder() {
            let options = EncodeOptions { add_special: true, parse_special: true };
            return Ok(Prompt::source(self.tokenizer.encode(text, options)?.ids));
        }
        Ok(Prompt::tokens(self.tokenizer.encode_prompt(text, true)?.ids))
    }

    /// The model's defaults with the given options over them, checked. A bad value is a usage error naming its flag.
    pub fn generate_options(&self, engine: &Engine<'_>, args: &SamplingArgs) -> Result<Resolved> {
        let mut flags: Vec<(String, &'static str)> = Vec::new();
        let mut given: Vec<(String, Value)> = Vec::new();
        for setting in args.settings() {
            flags.push((setting.name.into(), setting.flag));
            given.push((setting.name.into(), setting.value));
        }
        for (name, flag, value) in self.token_settings(args)? {
            flags.push((name.into(), flag));
            given.push((name.into(), value));
        }
        let resolved = engine.options(given).map_err(|error| blame(error, &flags))?;
        let vocab = self.loaded.model.vocab().unwrap_or(usize::MAX);
        resolved.options.validate(vocab).map_err(|error| blame(error, &flags))?;
        Ok(resolved)
    }

    /// The options that name tokens.
    fn token_settings(&self, args: &SamplingArgs) -> Result<Vec<(&'static str, &'static str, Value)>> {
        let mut list = Vec::new();
        let ids = |names: &[TokenName], flag: &str| -> Result<Vec<u32>> {
            names.iter().map(|name| self.token_id(name, flag)).collect()
        };
        let mut banned = ids(&args.ban, "ban")?;
        let mut biases = Map::new();
        for (name, bias) in &args.logit_bias {
            let id = self.token_id(name, "logit-bias")?;
            // JSON has no infinity; minus infinity is what a ban is.
            match *bias == f32::NEG_INFINITY {
                true => banned.push(id),
                false => drop(biases.insert(id.to_string(), json!(bias))),
            }
        }
        if !banned.is_empty() {
            list.push(("banned_tokens", "ban", json!(banned)));
        }
        if !biases.is_empty() {
            list.push(("logit_bias", "logit-bias", Value::Object(biases)));
        }
        if !args.allow.is_empty() {
            list.push(("allowed_tokens", "allow", json!(ids(&args.allow, "allow")?)));
        }
        if let Some(name) = &args.forced_bos {
            list.push(("forced_bos_token_id", "forced-bos", json!(self.token_id(name, "forced-bos")?)));
        }
        if let Some(name) = &args.forced_eos {
            list.push(("forced_eos_token_id", "forced-eos", json!([self.token_id(name, "forced-eos")?])));
        }
        Ok(list)
    }

    /// The id of a token that was named by id, as the vocabulary spells it, or by its text.
    fn token_id(&self, name: &TokenName, flag: &str) -> Result<u32> {
        let text = match name {
            TokenName::Id(id) => return Ok(*id),
            TokenName::Text(text) => text,
        };
        if let Some(id) = self.tokenizer.id(text) {
            return Ok(id);
        }
        let options = EncodeOptions { add_special: false, parse_special: true };
        let ids = self.tokenizer.encode(text, options).with_context(|| format!("--{flag}"))?.ids;
        match ids.as_slice() {
            [id] => Ok(*id),
            _ => Err(usage(format!("--{flag}: {text:?} is {} tokens, not one: give the id", ids.len()))),
        }
    }
}

/// An engine's complaint about a parameter that was given is a mistake of usage, and the user knows it by its flag.
pub fn blame(error: attend_engine::Error, flags: &[(String, &'static str)]) -> anyhow::Error {
    let place = match &error {
        attend_engine::Error::Parameter { name, .. } => name.as_str(),
        attend_engine::Error::TokenId { place, .. } => place,
        _ => return error.into(),
    };
    match flags.iter().find(|(name, _)| name == place) {
        Some((_, flag)) => usage(format!("invalid value for --{flag}: {error}")),
        None => error.into(),
    }
}
