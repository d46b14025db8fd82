//! Gradients of weights, by our names.

use std::collections::BTreeMap;

/// Gradients accumulated by name; only the trainable weights have a slot.
#[derive(Debug, Default)]
pub struct Gradients {
    values: BTreeMap<String, Vec<f32>>,
    trainable: Option<std::collections::BTreeSet<String>>,
}

impl Gradients {
    /// Every weight is trainable.
    pub fn all() -> Gradients {
        Gradients::default()
    }

    /// Only the named weights have gradients; the others are frozen and cost nothing.
    pub fn only(names: impl IntoIterator<Item = String>) -> Gradients {
        Gradients { values: BTreeMap::new(), trainable: Some(names.into_iter().collect()) }
    }

    /// The gradients so far.
    pub fn values(&self) -> &BTreeMap<String, Vec<f32>> {
        &self.values
    }

    /// The gradients, for whoever changes them.
    pub fn into_values(self) -> BTreeMap<String, Vec<f32>> {
        self.values
    }

    /// The slot of a weight with `len` elements, made when it is first needed; `None` when the weight is frozen.
    pub fn slot(&mut self, name: &str, len: usize) -> Option<&mut [f32]> {
        if self.trainable.as_ref().is_some_and(|names| !names.contains(name)) {
            return None;
        }
        let slot = self.values.entry(name.to_owned()).or_insert_with(|| vec![0.0; len]);
        assert_eq!(slot.len(), len, "gradient of {name}");
        Some(slot)
    }
}
