//! The size of a JSON schema.

use super::joins::Joins;
use super::{MAX_DEPTH, MAX_INTERSECTIONS, MAX_REGEXES_BYTES, MAX_TEXT_BYTES, regex, within};
use serde_json::{Map, Value};

const MAX_OBJECTS: usize = 2000;
const MAX_FIELDS: usize = 1000;
/// States of the automata that count to a multiple.
const MAX_MULTIPLES: u64 = 10_000;
const MAX_PATTERN_FIELDS: usize = 32;

/// What a schema adds up to.
#[derive(Default)]
struct Sizes {
    objects: usize,
    regex_bytes: usize,
    /// Regular expressions and formats: where schemas are joined, each may meet each.
    patterns: usize,
    pattern_fields: usize,
    joins: bool,
    multiples: u64,
}

pub(super) fn check(schema: &Value) -> Result<(), String> {
    within(serde_json::to_string(schema).map_or(usize::MAX, |text| text.len()), MAX_TEXT_BYTES, "bytes")?;
    let mut sizes = Sizes { multiples: 1, ..Sizes::default() };
    let mut joins = Joins::new(schema);
    let mut level = vec![schema];
    let mut depth = 0;
    while !level.is_empty() {
        depth += 1;
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} deep"));
        }
        let mut next = Vec::new();
        for value in level {
            match value {
                Value::Array(items) => next.extend(items),
                Value::Object(fields) => {
                    sizes.add(fields)?;
                    joins.check(fields)?;
                    next.extend(fields.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        level = next;
    }
    sizes.check()
}

impl Sizes {
    fn add(&mut self, fields: &Map<String, Value>) -> Result<(), String> {
        self.objects += 1;
        within(fields.len(), MAX_FIELDS, "fields in one object")?;
        if let Some(Value::String(pattern)) = fields.get("pattern") {
            self.add_regex(pattern)?;
        }
        self.patterns += usize::from(fields.contains_key("format"));
        if let Some(Value::Object(patterns)) = fields.get("patternProperties") {
            self.pattern_fields += patterns.len();
            patterns.keys().try_for_each(|pattern| self.add_regex(pattern))?;
        }
        let annotation = |name: &str| ["title", "description", "default", "examples", "$comment"].contains(&name);
        let refers = fields.contains_key("$ref") && fields.keys().filter(|name| !annotation(name)).count() > 1;
        self.joins |= fields.contains_key("allOf") || refers;
        if let Some(step) = fields.get("multipleOf") {
            self.multiples = self.multiples.saturating_mul(digits(step));
        }
        if let Some(Value::String(target)) = fields.get("$ref")
            && !target.starts_with('#')
        {
            let shown: String = target.chars().take(60).collect();
            return Err(format!(
                "$ref {shown:?}: only a part of the schema itself can be referred to, as in #/$defs/a"
            ));
        }
        Ok(())
    }

    fn add_regex(&mut self, pattern: &str) -> Result<(), String> {
        self.patterns += 1;
        self.regex_bytes += pattern.len();
        regex(pattern).map_err(|reason| format!("a pattern: {reason}"))
    }

    fn check(&self) -> Result<(), String> {
        within(self.objects, MAX_OBJECTS, "objects")?;
        within(self.regex_bytes, MAX_REGEXES_BYTES, "bytes of patterns")?;
        within(self.pattern_fields, MAX_PATTERN_FIELDS, "patternProperties")?;
        if self.joins {
            within(self.patterns, MAX_INTERSECTIONS, "patterns and formats beside allOf")?;
        }
        if self.multiples > MAX_MULTIPLES {
            return Err(format!("its multipleOf come to {}, and at most {MAX_MULTIPLES} is followed", self.multiples));
        }
        Ok(())
    }
}

/// A number without its point: what counting to its multiples takes.
fn digits(step: &Value) -> u64 {
    let text = step.to_string();
    if text.contains(['e', 'E']) {
        return u64::MAX;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').trim_end_matches('0').parse::<u64>().map_or(u64::MAX, |digits| {
        // Zeros at the end are counted to as well where there is no point.
        if text.contains('.') { digits } else { step.as_u64().unwrap_or(u64::MAX) }
    })
}
