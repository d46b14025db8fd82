//! The dialect of Ollama. Answers are streams of lines unless `stream` is false.

mod embed;
mod generate;
mod models;

pub use embed::{embed, embeddings};
pub use generate::{chat, generate};
pub use models::{list, running, show, version};

use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::app::{App, Entry};
use crate::front::record::Record;
use crate::front::routes::{Addressed, Asked};
use crate::host::roster::Keep;
use crate::openai::params;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A request whose model has not been asked for yet.
struct Opened {
    app: Arc<App>,
    record: Arc<Record>,
    entry: Arc<Entry>,
    /// How long the model is to stay behind it.
    keep: Option<Keep>,
    fields: Fields,
}

async fn open(asked: Asked) -> Result<Opened, Failure> {
    let (app, record, mut fields) = asked.fields().await?;
    let name = match fields.text("model")? {
        Some(name) => Some(name),
        None => fields.text("name")?,
    };
    let entry = named(&app, &name.ok_or_else(|| fields.missing("model"))?)?;
    let keep = fields.take("keep_alive").map(keep).transpose()?;
    Ok(Opened { app, record, entry, keep, fields })
}

impl Opened {
    /// The model, brought into memory where it is not there.
    async fn lease(self) -> Result<Addressed, Failure> {
        let Opened { app, record, entry, keep, fields } = self;
        let addressed = Addressed::new(&app, &entry, record, fields).await?;
        keep.into_iter().for_each(|keep| addressed.record.keep(keep));
        Ok(addressed)
    }

    /// Whether nothing is asked but that the model leaves; then it does, with its last request.
    fn unloads(&self, empty: bool) -> bool {
        let unloads = empty && self.keep == Some(Keep::For(Duration::ZERO));
        if unloads {
            self.record.model(&self.entry.name);
            self.app.roster.keep(self.entry.seat, Keep::For(Duration::ZERO));
        }
        unloads
    }
}

/// `keep_alive`: seconds, or a time in words.
fn keep(value: Value) -> Result<Keep, Failure> {
    let keep = match &value {
        Value::Number(seconds) => seconds.as_f64().and_then(Keep::seconds),
        Value::String(text) => Keep::parse(text),
        _ => None,
    };
    keep.ok_or_else(|| crate::fields::wrong("keep_alive", "seconds, or a time as in \"5m\"", &value))
}

/// `options`, as the engine's parameters.
fn options(request: &mut Addressed) -> Result<Vec<(String, Value)>, Failure> {
    let mut given = Vec::new();
    let Some(mut options) = request.fields.object("options")? else { return Ok(given) };
    // How much memory and which processors a model gets is settled when it is loaded.
    options.ignore(&[
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "num_keep",
        "numa",
        "low_vram",
        "f16_kv",
        "vocab_only",
        "use_mmap",
        "use_mlock",
    ]);
    if let Some(stops) = params::stops(&mut options, "stop", &request.limits)? {
        given.push(("stop".into(), json!(stops)));
    }
    if let Some(most) = options.take("num_predict") {
        match most.as_i64() {
            Some(..0) => {}
            Some(most) => given.push(("max_tokens".into(), json!(most))),
            None => return Err(crate::fields::wrong("options.num_predict", "a whole number", &most)),
        }
    }
    for (theirs, ours) in [
        ("temperature", "temperature"),
        ("top_k", "top_k"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("typical_p", "typical_p"),
        ("repeat_penalty", "repetition_penalty"),
        ("repeat_last_n", "repeat_last_n"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("seed", "seed"),
        ("mirostat", "mirostat"),
        ("mirostat_tau", "mirostat_tau"),
        ("mirostat_eta", "mirostat_eta"),
    ] {
        given.extend(options.take(theirs).map(|value| (ours.to_owned(), value)));
    }
    options.end()?;
    params::check(&given)?;
    Ok(given)
}

/// A model by its name, with or without the tag that this dialect puts behind one.
fn named(app: &App, name: &str) -> Result<Arc<Entry>, Failure> {
    let found = app.entry(Some(name));
    let plain = name.strip_suffix(":latest").map(|plain| app.entry(Some(plain)));
    match (found, plain) {
        (Err(_), Some(Ok(entry))) | (Ok(entry), _) => Ok(entry),
        (Err(failure), _) => Err(failure),
    }
}

/// Now, as this dialect writes it.
fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
