//! What schemas come to where they are joined: `allOf`, and what stands beside `$ref` or `anyOf`, is multiplied out.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// Schemas that are joined into one, and alternatives that come of it.
const MAX_JOINED: u64 = 500;
const MAX_ALTERNATIVES: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct Weight {
    joined: u64,
    alternatives: u64,
}

const ONE: Weight = Weight { joined: 1, alternatives: 1 };

pub(super) struct Joins<'s> {
    root: &'s Value,
    /// What each reference comes to; one that is being followed counts as nothing more.
    known: HashMap<&'s str, Weight>,
}

impl<'s> Joins<'s> {
    pub fn new(root: &'s Value) -> Joins<'s> {
        Joins { root, known: HashMap::new() }
    }

    /// # Errors
    /// An object whose joins come to too much.
    pub fn check(&mut self, fields: &'s Map<String, Value>) -> Result<(), String> {
        let combining = ["allOf", "anyOf", "oneOf", "$ref"].into_iter().filter(|name| fields.contains_key(*name));
        if !fields.contains_key("allOf") && combining.count() < 2 {
            return Ok(());
        }
        let Weight { joined, alternatives } = self.object(fields);
        if joined > MAX_JOINED || alternatives > MAX_ALTERNATIVES {
            return Err(format!(
                "what it joins (allOf) comes to {joined} schemas with {alternatives} alternatives, and at most \
                 {MAX_JOINED} with {MAX_ALTERNATIVES} are followed"
            ));
        }
        Ok(())
    }

    fn object(&mut self, fields: &'s Map<String, Value>) -> Weight {
        let mut weight = ONE;
        if let Some(Value::String(target)) = fields.get("$ref") {
            weight = both(weight, self.target(target));
        }
        for item in list(fields, "allOf") {
            weight = both(weight, self.value(item));
        }
        for name in ["anyOf", "oneOf"] {
            let either = |sum: Weight, one: Weight| Weight {
                joined: sum.joined.saturating_add(one.joined),
                alternatives: sum.alternatives.saturating_add(one.alternatives),
            };
            let weights: Vec<Weight> = list(fields, name).iter().map(|item| self.value(item)).collect();
            if let Some(sum) = weights.into_iter().reduce(either) {
                weight = both(weight, sum);
            }
        }
        weight
    }

    fn value(&mut self, value: &'s Value) -> Weight {
        value.as_object().map_or(ONE, |fields| self.object(fields))
    }

    fn target(&mut self, target: &'s str) -> Weight {
        if let Some(&weight) = self.known.get(target) {
            return weight;
        }
        self.known.insert(target, ONE);
        let found = target.strip_prefix('#').and_then(|path| self.root.pointer(path));
        let weight = found.map_or(ONE, |found| self.value(found));
        self.known.insert(target, weight);
        weight
    }
}

fn both(one: Weight, other: Weight) -> Weight {
    Weight {
        joined: one.joined.saturating_add(other.joined),
        alternatives: one.alternatives.saturating_mul(other.alternatives),
    }
}

fn list<'s>(fields: &'s Map<String, Value>, name: &str) -> &'s [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
