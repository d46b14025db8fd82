//! `tojson` as Hugging Face defines it: Python's `json.dumps` without ASCII or HTML escapes.

use super::MAX_OUTPUT;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deepest nesting written.
const MAX_DEPTH: usize = 128;

/// Layout of the text.
struct Layout {
    /// Spaces, or any text, for each level; one line if `None`.
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    ascii: bool,
}

/// The filter. `indent`, `separators`, `sort_keys` and `ensure_ascii` are those of `json.dumps`.
pub(super) fn tojson(state: &State, value: &Value, first: Option<Value>, options: Kwargs) -> Result<String, Error> {
    // The filter's first positional parameter is `ensure_ascii`.
    let positional = first.map(|value| value.is_true());
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.or(positional).unwrap_or(false);
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() || indent.is_undefined() => None,
        Some(indent) => match (indent.as_str(), indent.as_i64()) {
            (Some(text), _) => Some(text.to_string()),
            (None, Some(count)) => Some(" ".repeat(count.clamp(0, 64) as usize)),
            (None, None) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: indent must be a number")),
        },
    };
    let mut layout = Layout {
        item: if indent.is_some() { ",".into() } else { ", ".into() },
        key: ": ".into(),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        ascii,
    };
    if let Some(separators) = options.get::<Option<Value>>("separators")?.filter(|value| !value.is_none()) {
        layout.item = separators.get_item_by_index(0)?.to_string();
        layout.key = separators.get_item_by_index(1)?.to_string();
    }
    options.assert_all_used()?;
    let mut out = String::new();
    write(&mut out, value, &layout, 0, state)?;
    Ok(out)
}

fn write(out: &mut String, value: &Value, layout: &Layout, depth: usize, state: &State) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deep"));
    }
    if out.len() > MAX_OUTPUT {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is too long"));
    }
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::Undefined => {
            return Err(Error::new(ErrorKind::BadSerialization, "tojson: the value is undefined"));
        }
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut empty = true;
            out.push('[');
            for item in value.try_iter()?.checked() {
                separate(out, layout, depth + 1, &mut empty);
                write(out, &item?, layout, depth + 1, state)?;
            }
            close(out, layout, depth, empty);
            out.push(']');
        }
        ValueKind::Map => {
            let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
            if layout.sort_keys {
                keys.sort();
            }
            let mut empty = true;
            out.push('{');
            for key in keys {
                separate(out, layout, depth + 1, &mut empty);
                let name = match key.kind() {
                    ValueKind::Bool => (if key.is_true() { "true" } else { "false" }).to_string(),
                    ValueKind::None => "null".to_string(),
                    ValueKind::Number => number(&key),
                    _ => key.to_string(),
                };
                quote(out, &name, layout.ascii);
                out.push_str(&layout.key);
                write(out, &value.get_item(&key)?, layout, depth + 1, state)?;
            }
            close(out, layout, depth, empty);
            out.push('}');
        }
        _ => {
            let text = value.to_string();
            state.consume_fuel(text.len() as u64 / 64)?;
            quote(out, &text, layout.ascii);
        }
    }
    Ok(())
}

/// A number as Python writes it in JSON.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => "NaN".to_string(),
        Ok(number) if number.is_infinite() => (if number > 0.0 { "Infinity" } else { "-Infinity" }).to_string(),
        Ok(number) => super::python::float(number),
        Err(_) => value.to_string(),
    }
}

fn separate(out: &mut String, layout: &Layout, depth: usize, empty: &mut bool) {
    if !std::mem::replace(empty, false) {
        out.push_str(&layout.item);
    }
    line(out, layout, depth);
}

fn close(out: &mut String, layout: &Layout, depth: usize, empty: bool) {
    if !empty {
        line(out, layout, depth);
    }
}

fn line(out: &mut String, layout: &Layout, depth: usize) {
    if let Some(indent) = &layout.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn quote(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ascii && !c.is_ascii()) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
