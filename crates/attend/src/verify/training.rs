//! Runs of training: losses, gradient norms, learning rates and final weights, step by step.

use super::case::ModelCase;
use super::compare::{Comparison, Tolerance};
use super::gradients::lookup;
use super::report::Outcome;
use anyhow::{Context, Result, bail};
use attend_format::Kind;
use attend_model::{Loaded, Quantity};
use attend_nn::spec::Body;
use attend_nn::{Gradients, Model, Sequence, one_later};
use attend_train::{Adam, Rule, Schedule, Targets, TrainBatch, TrainOptions, Trainer, loss_and_gradients};
use std::collections::BTreeMap;

/// What the case's note says of the runs of this kind.
const PEAK: f64 = 5e-3;
const WARMUP: u64 = 2;
const WEIGHT_DECAY: f64 = 0.1;
const MAX_NORM: f64 = 1.0;
const ADAM: Adam = Adam { betas: (0.9, 0.95), eps: 1e-8, decay: attend_train::Decay::Decoupled, amsgrad: false };

/// Gradients smaller than this share of all gradients' norm, at every step, are rounding: of the reference's 32-bit
/// floats, as that of a key's bias, which no softmax feels. Adam makes whole steps of them.
const ROUNDING: f64 = 1e-6;

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
    let mut felt = Felt::default();
    for step in 0..losses.len() {
        let rows = Rows::read(case, loaded, step)?;
        felt.see(trainer.model(), rows.batch())?;
        let report = trainer.step(vec![rows.batch()])?;
        let mut compare = |name: &str, found: f64, values: &[f32], tolerance: Tolerance| {
            comparison.number(&format!("{name}[{step}]"), found, f64::from(values[step]), tolerance);
        };
        compare("losses", report.loss, &losses, relative("losses_rel")?);
        compare("grad_norms", report.grad_norm, &norms, relative("grad_norms_rel")?);
        compare("lrs", report.learning_rate, &rates, Tolerance { absolute: 1e-6 * PEAK, relative: 1e-6 });
    }
    compare_final(case, loaded, &trainer, &felt, &mut comparison)?;
    Ok(Outcome::of(loaded.source.architecture, comparison, None))
}

/// The largest share that an element's gradient had of the norm of all of them, over the steps so far.
#[derive(Default)]
struct Felt(BTreeMap<String, Vec<f32>>);

impl Felt {
    fn see(&mut self, model: &Model, batch: TrainBatch) -> Result<()> {
        let mut grads = Gradients::all();
        let count = batch.targets.count();
        loss_and_gradients(model, batch, count, &Default::default(), &mut grads)?;
        let all = grads.into_values();
        let norm = attend_train::global_norm(all.values().map(Vec::as_slice)).max(f64::MIN_POSITIVE);
        for (name, values) in all {
            let shares = self.0.entry(name).or_insert_with(|| vec![0.0; values.len()]);
            shares.iter_mut().zip(values).for_each(|(share, d)| *share = share.max((f64::from(d.abs()) / norm) as f32));
        }
        Ok(())
    }
}

fn compare_final(
    case: &ModelCase,
    loaded: &Loaded,
    trainer: &Trainer,
    felt: &Felt,
    comparison: &mut Comparison,
) -> Result<()> {
    let as_file = |quantity: Quantity, ours: &mut dyn FnMut(&str) -> Option<Vec<f32>>| {
        Ok::<_, anyhow::Error>(match loaded.source.checkpoint.kind() {
            Kind::HuggingFace | Kind::Described => loaded.source.to_checkpoint(quantity, ours)?,
            Kind::Gguf => loaded.source.to_kind(Kind::HuggingFace, quantity, ours)?,
        })
    };
    let weights = as_file(Quantity::Weights, &mut |name| trainer.values(name).map(<[f32]>::to_vec))?;
    let shares = as_file(Quantity::Gradients, &mut |name| felt.0.get(name).cloned())?;
    let weights = weights.iter().map(|file| (file.name.as_str(), file.values.as_slice())).collect();
    let shares = shares.iter().map(|file| (file.name.as_str(), file.values.as_slice())).collect();
    let tolerance = Tolerance::absolute(case.tolerance_of("final_abs")?);
    for name in case.expected.names("final.") {
        let parameter = &name["final.".len()..];
        let Some(found) = lookup(&weights, parameter) else {
            match loaded.source.checkpoint.tensor(parameter) {
                Some(_) => comparison.fail(name, "nothing trained this parameter"),
                // A table that the reference computes and keeps among its parameters.
                None => comparison.leave_out(format!("{name}: the checkpoint does not hold it")),
            }
            continue;
        };
        let (mut found, expected) = (found.to_vec(), case.expected.floats(name)?.values);
        let shares = lookup(&shares, parameter).unwrap_or(&[]);
        let mut rounded = 0;
        // Of a length that differs nothing is left out, and the comparison says so.
        if found.len() == expected.len() && shares.len() == expected.len() {
            for ((found, expected), share) in found.iter_mut().zip(&expected).zip(shares) {
                // What no gradient reached at all must not have moved but by its decay.
                if *share > 0.0 && f64::from(*share) < ROUNDING && found != expected {
                    (*found, rounded) = (*expected, rounded + 1);
                }
            }
        }
        if rounded > 0 {
            comparison.leave_out(format!("{name}: {rounded} of {} values move by rounding alone", expected.len()));
        }
        comparison.values(name, &found, &expected, tolerance);
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

/// The decoder's input: the labels one place later, after the token that starts them; what is no label is padding.
fn shifted(loaded: &Loaded, labels: &[i64]) -> Result<Vec<u32>> {
    let pad = loaded.source.checkpoint.config().token_id("pad_token_id")?.unwrap_or(0);
    let ids: Vec<u32> = labels.iter().map(|label| u32::try_from(*label).unwrap_or(pad)).collect();
    let start = loaded.source.start_of(&ids)?;
    Ok(one_later(&ids, start))
}
