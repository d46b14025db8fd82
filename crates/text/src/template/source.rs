//! Where the template of a model is found.

use super::ChatTemplate;
use crate::error::{Error, Fault};
use crate::source::config::SideFiles;
use attend_format::gguf::Metadata;
use serde_json::{Map, Value, json};
use std::path::Path;

const LIMIT: u64 = super::MAX_SOURCE as u64;

pub(super) fn open(path: &Path) -> Result<Option<ChatTemplate>, Error> {
    let home = attend_format::home(path)?;
    let path = home.as_path();
    if !path.is_dir() {
        let (metadata, _) = attend_format::gguf::open(path)?;
        return from_gguf(&metadata);
    }
    let files = SideFiles::open(path)?;
    let special = files.special_names();
    let mut sources = Vec::new();
    let jinja = path.join("chat_template.jinja");
    if jinja.is_file() {
        sources.push(("default".to_string(), attend_format::json::read_text(&jinja, LIMIT)?));
    }
    // Further named templates, one file each.
    let folder = path.join("additional_chat_templates");
    if folder.is_dir() {
        let read = |source| Error::Read { file: folder.clone(), source };
        let mut found =
            std::fs::read_dir(&folder).map_err(read)?.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
        found.sort();
        for file in found.iter().filter(|file| file.extension().is_some_and(|end| end == "jinja")).take(64) {
            let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            sources.push((name, attend_format::json::read_text(file, LIMIT)?));
        }
    }
    if sources.is_empty() {
        let old = path.join("chat_template.json");
        if old.is_file() {
            let value = attend_format::json::read(&old, attend_format::json::Limits::TOKENIZER)?;
            sources = templates(value.get("chat_template")).map_err(|fault| fault.at(&old))?;
        }
    }
    if sources.is_empty() {
        let file = path.join("tokenizer_config.json");
        sources = templates(files.config("chat_template")).map_err(|fault| fault.at(file))?;
    }
    Ok((!sources.is_empty()).then(|| ChatTemplate::named(sources, special)))
}

/// One text, a list of `{name, template}`, or an object of names.
fn templates(value: Option<&Value>) -> Result<Vec<(String, String)>, Fault> {
    let fault = || Fault::new("chat_template", "must be a text or a list of named texts");
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(source)) => Ok(vec![("default".to_string(), source.clone())]),
        Some(Value::Array(list)) => list
            .iter()
            .map(|entry| {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_string);
                Ok((text("name").ok_or_else(fault)?, text("template").ok_or_else(fault)?))
            })
            .collect(),
        Some(Value::Object(named)) => named
            .iter()
            .map(|(name, source)| Ok((name.clone(), source.as_str().ok_or_else(fault)?.to_string())))
            .collect(),
        Some(_) => Err(fault()),
    }
}

pub(super) fn from_gguf(metadata: &Metadata) -> Result<Option<ChatTemplate>, Error> {
    const KEY: &str = "tokenizer.chat_template";
    let mut sources = Vec::new();
    if let Some(source) = metadata.str(KEY)? {
        sources.push(("default".to_string(), source.to_string()));
    }
    // Further ones are `tokenizer.chat_template.NAME`.
    let named = metadata.iter().filter_map(|(key, _)| Some((key, key.strip_prefix(KEY)?.strip_prefix('.')?)));
    for (key, name) in named {
        if let Some(source) = metadata.str(key)? {
            sources.push((name.to_string(), source.to_string()));
        }
    }
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    let mut special = Map::new();
    for (name, key) in [
        ("bos_token", "tokenizer.ggml.bos_token_id"),
        ("eos_token", "tokenizer.ggml.eos_token_id"),
        ("unk_token", "tokenizer.ggml.unknown_token_id"),
        ("pad_token", "tokenizer.ggml.padding_token_id"),
    ] {
        let id = metadata.token_id(key)?;
        if let Some(token) = id.and_then(|id| tokens?.get(id as usize)) {
            special.insert(name.to_string(), json!(token));
        }
    }
    Ok((!sources.is_empty()).then(|| ChatTemplate::named(sources, special)))
}
