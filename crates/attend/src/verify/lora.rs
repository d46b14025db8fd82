//! Adapters: a base and an adapter as peft saves them, against what the reference gives with and without it, merged,
//! backward, and over a few steps of training.

use super::case::{Expected, read_json};
use super::compare::{Comparison, Tolerance};
use super::report::Outcome;
use anyhow::{Context, Result, bail};
use attend_format::Kind;
use attend_kernels::Compute;
use attend_model::{Adapter, LoadOptions, Loaded, Quantity};
use attend_nn::{AttentionKind, Batch, Gradients, Model, Nobody, RunOptions, Sequence};
use attend_train::{Adam, LossOptions, Rule, Schedule, Targets, TrainBatch, TrainOptions, Trainer, loss_and_gradients};
use serde_json::Value;
use std::path::Path;

/// What the case's note says of the training: AdamW at this rate and decay on every matrix of the adapter.
const RATE: f64 = 1e-2;
const WEIGHT_DECAY: f64 = 0.01;
const MAX_NORM: f64 = 1.0;

/// Merged and unmerged agree to this, relative to the largest logit.
const MERGED: f64 = 1e-5;

/// Whether a folder is a case of this kind.
pub fn is_case(folder: &Path) -> bool {
    folder.join("adapter").join("adapter_config.json").is_file() && folder.join("base").is_dir()
}

struct Case {
    about: Value,
    expected: Expected,
    loaded: Loaded,
    adapter: Adapter,
    rows: Vec<Vec<u32>>,
}

pub fn verify(folder: &Path) -> Result<Outcome> {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = match attend_model::load(&folder.join("base"), &options, &mut |_, _| {}) {
        Ok(loaded) => loaded,
        Err(error @ attend_model::Error::UnknownArchitecture { .. }) => {
            return Ok(Outcome::skipped("?", format!("the architecture is not built yet ({error})")));
        }
        Err(error) => return Err(error.into()),
    };
    let expected = Expected::open(&folder.join("expected.safetensors"))?;
    let ids = expected.integers("input_ids")?;
    let columns = *ids.shape.last().context("input_ids has no dimension")?;
    let tokens = expected.tokens("input_ids")?;
    let case = Case {
        about: read_json(&folder.join("case.json"))?,
        adapter: Adapter::open(&folder.join("adapter"), &loaded.source)?,
        rows: tokens.chunks_exact(columns.max(1)).map(<[u32]>::to_vec).collect(),
        expected,
        loaded,
    };
    let beside = case.adapter.attach(&case.loaded.model, 1.0)?;
    let mut recorded = Comparison::default();
    case.values(&beside, AttentionKind::Textbook, &mut recorded)?;
    case.backward(&beside, &mut recorded)?;
    case.training(&beside, &mut recorded)?;
    let mut unobserved = Comparison::default();
    case.values(&beside, AttentionKind::Flash, &mut unobserved)?;
    Ok(Outcome::of(case.loaded.source.architecture, recorded, Some(unobserved)))
}

impl Case {
    fn tolerance_of(&self, field: &str) -> Result<f64> {
        let value = self.about.pointer(&format!("/tolerance/{field}")).and_then(Value::as_f64);
        value.with_context(|| format!("case.json: tolerance.{field} is missing"))
    }

    fn logits(&self, model: &Model, attention: AttentionKind) -> Result<Vec<f32>> {
        let (stack, options) = (super::model::stack_kind(model)?, RunOptions { attention });
        let hidden = model.forward(stack, &mut Batch::of(&self.rows), &options, &mut Nobody)?;
        Ok(model.logits(&hidden, &mut Nobody)?)
    }

    /// Logits without the adapter, with it, and with it merged, whose weights are compared too.
    fn values(&self, beside: &Model, attention: AttentionKind, comparison: &mut Comparison) -> Result<()> {
        let tolerance = Tolerance { absolute: self.tolerance_of("atol")?, relative: self.tolerance_of("rtol")? };
        if let Some(expected) = self.about.get("scaling").and_then(Value::as_f64) {
            let found = self.adapter.modules.first().map_or(0.0, |module| module.scale);
            comparison.number("scaling", found, expected, Tolerance { absolute: 0.0, relative: 1e-6 });
        }
        let merged = self.adapter.merge(&self.loaded.model, 1.0)?;
        let with = self.logits(beside, attention)?;
        let within = self.logits(&merged, attention)?;
        let base = self.logits(&self.loaded.model, attention)?;
        for (name, found) in [("base_logits", &base), ("logits", &with), ("merged_logits", &within)] {
            if self.expected.has(name) {
                comparison.values(name, found, &self.expected.floats(name)?.values, tolerance);
            }
        }
        let largest = with.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
        let close = Tolerance::absolute(MERGED * f64::from(largest.max(1.0)));
        comparison.values("merged against beside", &within, &with, close);
        let mut ours = |name: &str| merged.weights().values(name);
        let source = &self.loaded.source;
        let files = match source.checkpoint.kind() {
            Kind::HuggingFace | Kind::Described => source.to_checkpoint(Quantity::Weights, &mut ours)?,
            Kind::Gguf => source.to_kind(Kind::HuggingFace, Quantity::Weights, &mut ours)?,
        };
        for name in self.expected.names("merged.") {
            let found = files.iter().find(|file| name["merged.".len()..] == file.name);
            match found {
                Some(file) => comparison.values(name, &file.values, &self.expected.floats(name)?.values, tolerance),
                None => comparison.fail(name, "the base has no such weight"),
            }
        }
        Ok(())
    }

    fn batch(&self) -> TrainBatch<'_> {
        let inputs: Vec<Sequence> = self.rows.iter().map(|ids| Sequence::new(ids)).collect();
        TrainBatch { targets: Targets::next_tokens(&inputs), inputs, outputs: None }
    }

    /// The loss and the gradient of every matrix of the adapter; the base has none.
    fn backward(&self, beside: &Model, comparison: &mut Comparison) -> Result<()> {
        let adapters = beside.weights().low_rank.values().flatten();
        let mut grads = Gradients::only(adapters.flat_map(|adapter| [adapter.a_name.clone(), adapter.b_name.clone()]));
        let batch = self.batch();
        let count = batch.targets.count();
        let loss = loss_and_gradients(beside, batch, count, &LossOptions::default(), &mut grads)?;
        let expected = f64::from(*self.expected.floats("loss")?.values.first().context("loss is empty")?);
        comparison.number("loss", loss, expected, Tolerance { absolute: 0.0, relative: 1e-5 });
        let found = self.adapter.to_file(&mut |name| grads.values().get(name).cloned());
        for name in self.expected.names("grad.") {
            let found = found.iter().find(|file| same(&file.name, &name["grad.".len()..]));
            match found {
                // The tolerance of every gradient of the suite, and of what is rounding around 0.
                Some(file) => {
                    comparison.relative_l2(name, &file.values, &self.expected.floats(name)?.values, 1e-3, 1e-6)
                }
                None => comparison.fail(name, "no gradient reached this matrix"),
            }
        }
        Ok(())
    }

    fn training(&self, beside: &Model, comparison: &mut Comparison) -> Result<()> {
        if !self.expected.has("train.losses") {
            return Ok(());
        }
        let options = TrainOptions {
            rule: Rule::Adam(Adam::default()),
            schedule: Schedule::Constant { warmup: 0 },
            learning_rate: RATE,
            weight_decay: WEIGHT_DECAY,
            max_norm: Some(MAX_NORM),
            loss: LossOptions::default(),
        };
        let mut trainer = Trainer::adapters(beside.clone(), options)?;
        let losses = self.expected.floats("train.losses")?.values;
        let tolerance = Tolerance { absolute: 0.0, relative: 1e-4 };
        for (step, expected) in losses.iter().enumerate() {
            let report = trainer.step(vec![self.batch()])?;
            comparison.number(&format!("train.losses[{step}]"), report.loss, f64::from(*expected), tolerance);
        }
        let tolerance = Tolerance::absolute(self.tolerance_of("train_atol")?);
        let found = self.adapter.to_file(&mut |name| trainer.values(name).map(<[f32]>::to_vec));
        for name in self.expected.names("train.final.") {
            let found = found.iter().find(|file| same(&file.name, &name["train.final.".len()..]));
            match found {
                Some(file) => comparison.values(name, &file.values, &self.expected.floats(name)?.values, tolerance),
                None => bail!("{name}: the adapter has no such matrix"),
            }
        }
        Ok(())
    }
}

/// Whether a file's name and the reference's are of one matrix: the reference's own names carry the adapter's name.
fn same(file: &str, reference: &str) -> bool {
    file == reference || file == reference.replace(".default", "")
}
