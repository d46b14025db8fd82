//! The well-known models whose configurations the program carries, so that what they cost can be looked up.
//!
//! `data/known.toml` has one table for each: the fields of the model's `config.json` that decide its description, or a
//! description in the form of [`crate::spec_file`]. `like` names the model whose fields hold where its own are silent, and
//! `null` the fields that are null, which TOML cannot write.

use crate::describe::{Described, described};
use crate::error::Error;
use attend_format::{Checkpoint, Config, Kind};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where errors say that a field stands.
const FILE: &str = "known.toml";

fn table() -> Result<&'static Config, Error> {
    static TABLE: OnceLock<Result<Config, String>> = OnceLock::new();
    let read = || {
        let text = include_str!("../data/known.toml");
        Config::parse_toml(Path::new(FILE), text).map_err(|error| error.to_string())
    };
    TABLE.get_or_init(read).as_ref().map_err(|problem| Error::Table(problem.clone()))
}

/// The names of the known models, in the order of their table.
pub fn known_models() -> Vec<&'static str> {
    table().map_or_else(|_| Vec::new(), |table| table.map().keys().map(String::as_str).collect())
}

/// The description of a known model, by its name in any case; `None` where it is not known.
pub fn describe_known(name: &str) -> Result<Option<Described>, Error> {
    let table = table()?;
    let Some(name) = table.map().keys().find(|known| known.eq_ignore_ascii_case(name)) else { return Ok(None) };
    let fields = fields(table, name)?;
    let kind = if fields.contains_key("model_type") { Kind::HuggingFace } else { Kind::Described };
    let config = Config::from_map(Path::new(FILE), fields);
    described(Checkpoint::weightless(&PathBuf::from(name), kind, config), None).map(Some)
}

/// The fields of one model, over those of the models that it is like.
fn fields(table: &Config, name: &str) -> Result<Map<String, Value>, Error> {
    let mut fields = Map::new();
    let mut next = Some(name.to_string());
    // A chain longer than the table would be a circle.
    for _ in 0..table.map().len() {
        let Some(name) = next else { break };
        let Some(Value::Object(own)) = table.map().get(&name) else {
            return Err(Error::Table(format!("{FILE}: no model `{name}`")));
        };
        next = own.get("like").and_then(Value::as_str).map(str::to_string);
        for (key, value) in own.iter().filter(|(key, _)| !["like", "null"].contains(&key.as_str())) {
            fields.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let nulls = own.get("null").and_then(Value::as_array).into_iter().flatten();
        for key in nulls.filter_map(Value::as_str) {
            fields.entry(key).or_insert(Value::Null);
        }
    }
    Ok(fields)
}
