//! The log: a line of JSON for each thing that happened. It names routes, counts and times, never what was asked or
//! answered; control characters are escaped as JSON has it.

use serde_json::{Map, Value, json};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where lines go.
pub struct Log(Option<Mutex<Box<dyn Write + Send>>>);

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Log {
    pub fn to(out: Box<dyn Write + Send>) -> Log {
        Log(Some(Mutex::new(out)))
    }

    /// Nothing is written.
    pub fn none() -> Log {
        Log(None)
    }

    /// Writes a line: time, level, event, and `fields`.
    pub fn say(&self, level: &str, event: &str, fields: Value) {
        let Some(out) = &self.0 else { return };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut line = Map::new();
        line.insert("time".into(), json!((time * 1e3).round() / 1e3));
        line.insert("level".into(), json!(level));
        line.insert("event".into(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody is left to tell that the log cannot be written.
        let _ = writeln!(out, "{}", Value::Object(line)).and_then(|()| out.flush());
    }
}
