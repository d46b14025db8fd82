//! Tokenizers written for the other kind of file: a vocabulary as GGUF's metadata, and back as `tokenizer.json`.
//!
//! GGUF says less than `tokenizer.json` does. Where there is one, it is kept whole under its key beside the vocabulary
//! that other programs read, so that nothing is lost.

mod gguf;
mod json;
mod probes;

use crate::error::Error;
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use attend_format::gguf::{Metadata, Value};
use serde_json::{Map, Value as Json};
use std::path::Path;

/// A tokenizer in the form of the other kind of file.
#[derive(Debug, Default)]
pub struct Exported {
    /// For GGUF: the keys `tokenizer.*`.
    pub metadata: Vec<(String, Value)>,
    /// For a folder: its files by name.
    pub files: Vec<(&'static str, String)>,
    /// What other programs will read differently.
    pub notices: Vec<String>,
}

/// The tokenizer and templates of the folder at `path` as keys of a GGUF file whose token table has `rows` rows. Ids
/// without a token are filled up. `None` where the folder has no tokenizer.
pub fn to_gguf(path: &Path, rows: usize) -> Result<Option<Exported>, Error> {
    let tokenizer = match Tokenizer::open(path) {
        Ok(tokenizer) => tokenizer,
        Err(Error::NoTokenizer { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = path.join("tokenizer.json");
    let whole = match file.is_file() {
        true => Some(json::compact(&attend_format::json::read_text(&file, json::MAX_BYTES)?)),
        false => None,
    };
    let mut exported = Exported { metadata: gguf::vocabulary(&tokenizer, rows)?, ..Exported::default() };
    let said = Metadata::of(path, exported.metadata.iter().cloned());
    let problem = match Tokenizer::from_gguf(&said) {
        Ok(again) => probes::difference(&tokenizer, &again),
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        let kept = match &whole {
            Some(_) => "; the tokenizer.json is kept whole in the file, where this program reads it",
            None => "",
        };
        exported.notices.push(format!("GGUF cannot say this tokenizer exactly ({problem}){kept}"));
    }
    if let Some(whole) = whole {
        exported.metadata.push((attend_format::gguf::TOKENIZER_JSON.into(), Value::String(whole)));
    }
    if let Some(template) = ChatTemplate::open(path)? {
        for (name, source) in template.sources() {
            let key = match name {
                "default" => "tokenizer.chat_template".to_string(),
                name => format!("tokenizer.chat_template.{name}"),
            };
            exported.metadata.push((key, Value::String(source.to_string())));
        }
    }
    Ok(Some(exported))
}

/// The tokenizer and templates in a GGUF file's metadata as files of a folder. `None` where it has no tokenizer.
pub fn to_folder(metadata: &Metadata, context: Option<usize>) -> Result<Option<Exported>, Error> {
    let tokenizer = match Tokenizer::from_gguf(metadata) {
        Ok(tokenizer) => tokenizer,
        Err(Error::NoTokenizer { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut exported = Exported::default();
    let text = match metadata.str(attend_format::gguf::TOKENIZER_JSON)? {
        Some(whole) => whole.to_string(),
        None => json::from_gguf(metadata, &tokenizer)?.to_string(),
    };
    let config = json::config(&tokenizer, context);
    if let Some(problem) = json::difference(metadata, &tokenizer, &text, &config) {
        exported.notices.push(format!("tokenizer.json cannot say this vocabulary exactly ({problem})"));
    }
    exported.files.push(("tokenizer.json", text));
    exported.files.push(("tokenizer_config.json", pretty(config)));
    if let Some(template) = ChatTemplate::from_gguf(metadata)? {
        let mut named: Vec<(&str, &str)> = template.sources().collect();
        named.sort_by_key(|(name, _)| *name != "default");
        match named.as_slice() {
            [("default", source)] => exported.files.push(("chat_template.jinja", (*source).to_string())),
            several => {
                let list =
                    several.iter().map(|(name, template)| serde_json::json!({"name": name, "template": template}));
                let whole = serde_json::json!({"chat_template": list.collect::<Vec<_>>()});
                exported.files.push(("chat_template.json", whole.to_string()));
            }
        }
    }
    Ok(Some(exported))
}

fn pretty(object: Map<String, Json>) -> String {
    serde_json::to_string_pretty(&object).unwrap_or_default()
}
