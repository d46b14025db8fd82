//! Accounting for values that grow without being written out.
//!
//! The engine charges steps for what it makes, and makes lists of lists and joined lists out of references: sixty
//! rounds of `x = [x, x]` or `x = x + x` give a value that prints as 2^60 items, and that printing or comparing walks
//! through. A value can only grow like that by being named and used twice, so every value that gets a name goes
//! through [`counted`] (put there by [`super::syntax`]), which charges for all that is in it, each time that it is.

use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Error, State};

/// The name of the filter that counts.
pub(super) const COUNTED: &str = "__counted__";
/// Bytes of text that cost a step.
const TEXT: usize = 256;

/// The value itself, after charging for every item in it. An iterator whose length nobody knows becomes a list, since
/// some can be walked only once.
pub(super) fn counted(state: &State, value: Value) -> Result<Value, Error> {
    let value = match value.kind() {
        ValueKind::Iterable if value.len().is_none() => Value::from(items(state, &value)?),
        _ => value,
    };
    let mut pending = vec![value.clone()];
    while let Some(value) = pending.pop() {
        state.consume_fuel(1 + value.as_str().map_or(0, |text| (text.len() / TEXT) as u64))?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable if value.len().is_some() => pending.extend(items(state, &value)?),
            ValueKind::Map => {
                for key in items(state, &value)? {
                    pending.push(value.get_item(&key)?);
                    pending.push(key);
                }
            }
            _ => {}
        }
    }
    Ok(value)
}

/// `chain`: the items of all lists, or the entries of all maps, of which the last of a key counts.
pub(super) fn chain(state: &State, value: Value, others: Rest<Value>) -> Result<Value, Error> {
    let all: Vec<&Value> = std::iter::once(&value).chain(&others.0).collect();
    if all.iter().all(|value| value.kind() == ValueKind::Map) {
        let mut entries = Vec::new();
        for map in all {
            for key in items(state, map)? {
                let value = map.get_item(&key)?;
                entries.push((key, value));
            }
        }
        return Ok(Value::from_iter(entries));
    }
    let mut joined = Vec::new();
    for value in all {
        joined.extend(items(state, value)?);
    }
    Ok(Value::from(joined))
}

/// The items of a list or the keys of a map, each of which costs a step.
fn items(state: &State, value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        state.consume_fuel(1)?;
        items.push(item?);
    }
    Ok(items)
}
