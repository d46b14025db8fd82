//! Building blocks against the reference: a file of tensors for each topic, whose names say what was computed.

mod attention;
mod elementwise;
mod positions;
mod processors;
mod training;
mod transformer;

use super::case::{Expected, Tensor, read_json};
use super::compare::{Comparison, Tolerance};
use super::report::Outcome;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// A topic's settings and tensors, and which of the tensors have been looked at.
pub struct Module {
    pub about: Value,
    expected: Expected,
    pub tolerance: Tolerance,
}

impl Module {
    fn open(file: &Path) -> Result<Module> {
        let about = read_json(file)?;
        let number =
            |field: &str| about.pointer(&format!("/tolerance/{field}")).and_then(Value::as_f64).unwrap_or(1e-5);
        let tolerance = Tolerance { absolute: number("atol"), relative: number("rtol") };
        let expected = Expected::open(&file.with_extension("safetensors"))?;
        Ok(Module { about, expected, tolerance })
    }

    pub fn has(&self, name: &str) -> bool {
        self.expected.has(name)
    }

    pub fn names(&self) -> Vec<String> {
        self.expected.names("").map(str::to_owned).collect()
    }

    /// The parts before `suffix` of the names that end with it.
    pub fn stems(&self, suffix: &str) -> Vec<String> {
        self.expected.names("").filter_map(|name| name.strip_suffix(suffix)).map(str::to_owned).collect()
    }

    pub fn floats(&self, name: &str) -> Result<Tensor<f32>> {
        self.expected.floats(name)
    }

    pub fn integers(&self, name: &str) -> Result<Tensor<i64>> {
        match self.expected.dtype(name)? {
            attend_kernels::DType::I64 => self.expected.integers(name),
            _ => {
                let floats = self.expected.floats(name)?;
                Ok(Tensor { shape: floats.shape, values: floats.values.iter().map(|value| *value as i64).collect() })
            }
        }
    }

    /// Compares with the tensor of this name.
    pub fn compare(&self, name: &str, found: &[f32], comparison: &mut Comparison) -> Result<()> {
        self.compare_within(name, found, self.tolerance, comparison)
    }

    pub fn compare_within(
        &self,
        name: &str,
        found: &[f32],
        tolerance: Tolerance,
        comparison: &mut Comparison,
    ) -> Result<()> {
        comparison.values(name, found, &self.floats(name)?.values, tolerance);
        Ok(())
    }

    /// A number in a name, after a word: `eps1e-5` after `eps`.
    pub fn number_after(name: &str, word: &str) -> Option<f64> {
        let rest = &name[name.find(word)? + word.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | 'e' | '-'))).unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', '-', 'e']).parse().ok()
    }

    pub fn setting(&self, pointer: &str) -> Result<&Value> {
        self.about.pointer(pointer).with_context(|| format!("the case has no {pointer}"))
    }
}

/// Verifies one topic.
pub fn verify(file: &Path) -> Result<Outcome> {
    let module = Module::open(file)?;
    let topic = module.setting("/topic")?.as_str().unwrap_or_default().to_owned();
    let mut comparison = Comparison::default();
    match topic.as_str() {
        "activations" => elementwise::activations(&module, &mut comparison)?,
        "gated_mlp" => elementwise::gated_mlp(&module, &mut comparison)?,
        "norms" => elementwise::norms(&module, &mut comparison)?,
        "softmax_extremes" => elementwise::softmax_extremes(&module, &mut comparison)?,
        "sinusoidal" => positions::sinusoidal(&module, &mut comparison)?,
        "rope_inv_freq" => positions::rope_frequencies(&module, &mut comparison)?,
        "rope_apply" => positions::rope_apply(&module, &mut comparison)?,
        "alibi" => positions::alibi(&module, &mut comparison)?,
        "relative_buckets" => positions::relative_buckets(&module, &mut comparison)?,
        "attention" => attention::attention(&module, &mut comparison)?,
        "torch_transformer" => transformer::transformer(&module, &mut comparison)?,
        "logits_processors" => processors::logits_processors(&module, &mut comparison)?,
        "losses" => training::losses(&module, &mut comparison)?,
        "optimizers" => training::optimizers(&module, &mut comparison)?,
        "lr_schedules" => training::schedules(&module, &mut comparison)?,
        _ => return Ok(Outcome::skipped(&topic, "the topic is not known")),
    }
    if let Some(unused) = module.expected.unused().first() {
        comparison.fail(unused, "nothing here computes this tensor");
    }
    Ok(Outcome::of(&topic, comparison, None))
}
