//! Runs of training: losses, gradient norms, learning rates and final weights, step by step.

use super::case::ModelCase;
use super::compare::{Comparison, Tolerance};
use super::gradients::lookup;
use super::report::Outcome;
use anyhow::{Context, Result, bail};
use attend_format::Kind;
use attend_model::{Loaded, Quantity};
use attend_nn::Sequence;
use attend_nn::spec::Body;
use attend_train::{Adam, Rule, Schedule, Targets, TrainBatch, TrainOptions, Trainer};

/// What the case's note says of the runs of this kind.
const PEAK: f64 = 5e-3;
const WARMUP: u64 = 2;
const WEIGHT_DECAY: f64 = 0.1;
const MAX_NORM: f64 = 1.0;
const ADAM: Adam = Adam { betas: (0.9, 0.95), eps: 1e-8, decay: attend_train::Decay::Decoupled, amsgrad: false };

/// Whether the case is a run of training.
pub fn is_run(case: &ModelCase) -> bool {
    case.expected.has("losses") && case.expected.has("lrs")
}

/// Repeats the run.
pub fn verify(case: &ModelCase, loaded: &Loaded) -> Result<Outcome> {
    let expected = |name: &str| case.expected.floats(name).map(|tensor| tensor.values);
    let (losses, rates, norms) = (expected("losses")?, expected("lrs")?, expected("grad_norms")?);
    let schedule = Schedule::Cosine { warmup: WARMUP, total: losses.len() as u64, cycles: 0.5, min_ratio: 0.0 };
    let options = TrainOptions {
        rule: Rule::Adam(ADAM),
        schedule,
        learning_rate: PEAK,
        weight_decay: WEIGHT_DECAY,
        max_norm: Some(MAX_NORM),
        loss: Default::default(),
    };
    let trains = |name: &str| !loaded.source.is_constant(name);
    let mut trainer = Trainer::weights(loaded.model.clone(), trains, options)?;
    let mut comparison = Comparison::default();
    let relative =
        |field: &str| Ok::<_, anyhow::Error>(Tolerance { absolute: 0.0, relative: case.tolerance_of(field)? });
    for step in 0..losses.len() {
        let rows = Rows::read(case, loaded, step)?;
        let report = trainer.step(vec![rows.batch()])?;
        let mut compare = |name: &str, found: f64, values: &[f32], tolerance: Tolerance| {
            comparison.number(&format!("{name}[{step}]"), found, f64::from(values[step]), tolerance);
        };
        compare("losses", report.loss, &losses, relative("losses_rel")?);
        compare("grad_norms", report.grad_norm, &norms, relative("grad_norms_rel")?);
        compare("lrs", report.learning_rate, &rates, Tolerance { absolute: 1e-6 * PEAK, relative: 1e-6 });
    }
    compare_final(case, loaded, &trainer, &mut comparison)?;
    Ok(Outcome::of(loaded.source.architecture, comparison, None))
}

fn compare_final(case: &ModelCase, loaded: &Loaded, trainer: &Trainer, comparison: &mut Comparison) -> Result<()> {
    let mut ours = |name: &str| trainer.values(name).map(<[f32]>::to_vec);
    let files = match loaded.source.checkpoint.kind() {
        Kind::HuggingFace | Kind::Described => loaded.source.to_checkpoint(Quantity::Weights, &mut ours)?,
        Kind::Gguf => loaded.source.to_kind(Kind::HuggingFace, Quantity::Weights, &mut ours)?,
    };
    let found = files.iter().map(|file| (file.name.as_str(), file.values.as_slice())).collect();
    let tolerance = Tolerance::absolute(case.tolerance_of("final_abs")?);
    for name in case.expected.names("final.") {
        match lookup(&found, &name["final.".len()..]) {
            Some(found) => comparison.values(name, found, &case.expected.floats(name)?.values, tolerance),
            None => comparison.fail(name, "nothing trained this parameter"),
        }
    }
    Ok(())
}

/// The rows of one step, without padding.
struct Rows {
    inputs: Vec<Vec<u32>>,
    outputs: Option<Vec<Vec<u32>>>,
    /// One a row of the output stack.
    labels: Vec<Option<usize>>,
}

/// A plane of a [steps, rows, columns] tensor, row by row.
fn plane(case: &ModelCase, name: &str, step: usize) -> Result<Vec<Vec<i64>>> {
    let tensor = case.expected.integers(name)?;
    let [_, rows, columns] = tensor.shape[..] else { bail!("{name} does not have three dimensions") };
    let size = rows * columns;
    let plane =
        tensor.values.get(step * size..(step + 1) * size).with_context(|| format!("{name} has no step {step}"))?;
    Ok(plane.chunks_exact(columns.max(1)).map(<[i64]>::to_vec).collect())
}

impl Rows {
    fn read(case: &ModelCase, loaded: &Loaded, step: usize) -> Result<Rows> {
        let (ids, mask) = (plane(case, "input_ids", step)?, plane(case, "attention_mask", step)?);
        let real = |(ids, mask): (&Vec<i64>, &Vec<i64>)| {
            let kept = ids.iter().zip(mask).filter(|(_, mask)| **mask != 0);
            kept.map(|(id, _)| u32::try_from(*id).with_context(|| format!("{id} is not a token id"))).collect()
        };
        let inputs = ids.iter().zip(&mask).map(real).collect::<Result<Vec<Vec<u32>>>>()?;
        if let Body::Encoder(_) | Body::Decoder(_) = loaded.model.spec().body {
            return Ok(Rows { inputs, outputs: None, labels: Vec::new() });
        }
        let (mut outputs, mut labels) = (Vec::new(), Vec::new());
        for row in plane(case, "labels", step)? {
            // Nothing after the last label is looked at, and no label depends on what comes after it.
            let length = row.iter().rposition(|label| *label >= 0).map_or(1, |last| last + 1);
            outputs.push(shifted(loaded, &row[..length])?);
            labels.extend(row[..length].iter().map(|label| usize::try_from(*label).ok()));
        }
        Ok(Rows { inputs, outputs: Some(outputs), labels })
    }

    fn batch<'a>(&'a self) -> TrainBatch<'a> {
        let sequences = |rows: &'a [Vec<u32>]| rows.iter().map(|ids| Sequence::new(ids)).collect::<Vec<_>>();
        let inputs = sequences(&self.inputs);
        match &self.outputs {
            None => TrainBatch { targets: Targets::next_tokens(&inputs), inputs, outputs: None },
            Some(outputs) => {
                TrainBatch { targets: Targets::Tokens(self.labels.clone()), inputs, outputs: Some(sequences(outputs)) }
            }
        }
    }
}

/// The decoder's input: the labels after the token that starts it, without the last; what is no label is padding.
/// Where the configuration has no such token, the last label is it.
fn shifted(loaded: &Loaded, labels: &[i64]) -> Result<Vec<u32>> {
    let config = loaded.source.checkpoint.config();
    let pad = config.token_id("pad_token_id")?.unwrap_or(0);
    let id = |label: &i64| u32::try_from(*label).unwrap_or(pad);
    let start = match config.token_id("decoder_start_token_id")? {
        Some(start) => start,
        None => labels.last().map_or(pad, id),
    };
    let before = labels.len().saturating_sub(1);
    Ok(std::iter::once(start).chain(labels[..before].iter().map(id)).collect())
}
