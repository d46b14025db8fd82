//! Optimizers: from a gradient to a changed weight.
//!
//! An [`Optimizer`] is a [`Rule`] and what the rule remembers of every weight. Weights are f32; the arithmetic of an
//! element is done in f64 and rounded once, so that nothing is lost where a step is small.

mod adafactor;
mod adam;
mod sgd;

pub use adafactor::Adafactor;
pub use adam::{Adam, Decay};
pub use sgd::Sgd;

use std::collections::BTreeMap;

/// How a weight is changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    Sgd(Sgd),
    Adam(Adam),
    Adafactor(Adafactor),
}

/// A weight, its gradient, and what is particular to it.
#[derive(Debug)]
pub struct Slot<'s> {
    /// Under this name the optimizer remembers the weight.
    pub name: &'s str,
    /// Rows first; one dimension for vectors.
    pub shape: &'s [usize],
    pub weight: &'s mut [f32],
    /// As many entries as the weight.
    pub gradient: &'s [f32],
    /// The rate at which the weight decays; 0 for weights that do not.
    pub weight_decay: f64,
}

/// What a rule remembers of one weight.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Memory {
    /// Steps that this weight took.
    pub steps: u64,
    /// Means of past gradients and the like, named by the rule, made at the first step.
    pub values: Vec<Vec<f32>>,
}

impl Memory {
    /// The `N` vectors that a rule keeps; zeros of these lengths at the first step.
    pub fn vectors<const N: usize>(&mut self, lengths: [usize; N]) -> Option<&mut [Vec<f32>; N]> {
        if self.values.is_empty() {
            self.values = lengths.iter().map(|len| vec![0.0; *len]).collect();
        }
        self.values.first_chunk_mut::<N>()
    }
}

/// A rule at work.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    pub rule: Rule,
    memory: BTreeMap<String, Memory>,
}

impl Optimizer {
    pub fn new(rule: Rule) -> Optimizer {
        Optimizer { rule, memory: BTreeMap::new() }
    }

    /// Changes one weight by its gradient, at this learning rate. A weight that is not given at a step takes none: its
    /// count of steps and what is remembered of it stay.
    pub fn update(&mut self, slot: Slot, learning_rate: f64) {
        debug_assert_eq!(slot.weight.len(), slot.gradient.len(), "gradient of {}", slot.name);
        let memory = self.memory.entry(slot.name.to_owned()).or_default();
        memory.steps += 1;
        match &self.rule {
            Rule::Sgd(rule) => rule.update(slot, learning_rate, memory),
            Rule::Adam(rule) => rule.update(slot, learning_rate, memory),
            Rule::Adafactor(rule) => rule.update(slot, learning_rate, memory),
        }
    }

    /// Bytes of what is remembered.
    pub fn bytes(&self) -> usize {
        let values = self.memory.values().flat_map(|memory| &memory.values);
        values.map(|values| values.len() * size_of::<f32>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(optimizer: &mut Optimizer, weight: &mut [f32], gradient: &[f32], weight_decay: f64) {
        let shape = [weight.len()];
        optimizer.update(Slot { name: "w", shape: &shape, weight, gradient, weight_decay }, 0.1);
    }

    #[test]
    fn plain_descent_is_the_textbook_formula() {
        let mut optimizer = Optimizer::new(Rule::Sgd(Sgd::default()));
        let mut weight = [1.0, -2.0];
        step(&mut optimizer, &mut weight, &[0.5, 1.0], 0.0);
        assert_eq!(weight, [0.95, -2.1]);
        assert_eq!(optimizer.bytes(), 0);
    }

    #[test]
    fn the_first_step_of_adam_has_the_size_of_the_learning_rate() {
        let mut optimizer = Optimizer::new(Rule::Adam(Adam::default()));
        let mut weight = [1.0, 1.0];
        step(&mut optimizer, &mut weight, &[1e-3, -7.0], 0.0);
        assert!((weight[0] - 0.9).abs() < 1e-5 && (weight[1] - 1.1).abs() < 1e-5, "{weight:?}");
        assert_eq!(optimizer.bytes(), 16);
    }

    #[test]
    fn decoupled_decay_acts_without_a_gradient() {
        let mut optimizer = Optimizer::new(Rule::Adam(Adam::default()));
        let mut weight = [2.0];
        step(&mut optimizer, &mut weight, &[0.0], 0.5);
        assert!((weight[0] - 1.9).abs() < 1e-6, "{weight:?}");
    }

    #[test]
    fn tiny_steps_on_f32_weights_add_up() {
        // 200 steps of 1e-5 from 1.0: in bf16 not one of them would change the weight.
        let mut optimizer = Optimizer::new(Rule::Adam(Adam::default()));
        let mut weight = [1.0f32];
        for _ in 0..200 {
            optimizer.update(
                Slot { name: "w", shape: &[1], weight: &mut weight, gradient: &[0.3], weight_decay: 0.0 },
                1e-5,
            );
        }
        assert!((f64::from(1.0 - weight[0]) / 2e-3 - 1.0).abs() < 0.05, "{weight:?}");
    }
}
