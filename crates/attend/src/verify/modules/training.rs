//! Losses, steps of optimizers, and learning-rate schedules.

use super::super::compare::{Comparison, Tolerance};
use super::Module;
use anyhow::{Context, Result, bail};
use attend_nn::loss::{Loss, Smoothing, binary_cross_entropy, cross_entropy_over, distillation};
use attend_train::{Adafactor, Adam, Decay, DecayShape, Optimizer, Rule, Schedule, Sgd, Slot, clip, global_norm};
use serde_json::Value;

/// The temperature of distillation where the file gives none.
const TEMPERATURE: f64 = 2.0;

pub fn losses(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let logits = module.floats("logits")?;
    let [rows, classes] = logits.shape[..] else { bail!("logits does not have two dimensions") };
    let labels: Vec<_> =
        module.integers("targets")?.values.into_iter().map(|label| usize::try_from(label).ok()).collect();
    let mean = labels.iter().flatten().count().max(1) as f64;
    for name in module.stems(".loss") {
        let epsilon = Module::number_after(&name, "eps").unwrap_or(0.0);
        let entropy = |smoothing, divisor| cross_entropy_over(&logits.values, classes, &labels, smoothing, divisor);
        let loss = match name.split('.').next().unwrap_or_default() {
            "cross_entropy" | "hf_label_smoother" => entropy(Smoothing::AllClasses(epsilon), mean),
            "cross_entropy_sum" => entropy(Smoothing::AllClasses(epsilon), 1.0),
            "fairseq" => entropy(Smoothing::OtherClasses(epsilon), mean),
            "bce" => binary_cross_entropy(&logits.values, &module.floats("bce.targets")?.values),
            "kd" => {
                let teacher = module.floats("kd.teacher")?.values;
                let temperature = module.about.pointer("/kd/temperature").and_then(Value::as_f64);
                distillation(&logits.values, &teacher, classes, temperature.unwrap_or(TEMPERATURE))
            }
            _ => {
                comparison.fail(&name, "the loss is not known");
                continue;
            }
        };
        compare_loss(module, &name, &loss, rows * classes, comparison)?;
    }
    Ok(())
}

fn compare_loss(module: &Module, name: &str, loss: &Loss, len: usize, comparison: &mut Comparison) -> Result<()> {
    module.compare(&format!("{name}.loss"), &[loss.value as f32], comparison)?;
    let gradient = format!("{name}.grad");
    if module.has(&gradient) {
        anyhow::ensure!(loss.gradient.len() == len, "{gradient} has {} entries", loss.gradient.len());
        module.compare(&gradient, &loss.gradient, comparison)?;
    }
    Ok(())
}

fn number(settings: &Value, key: &str) -> Option<f64> {
    settings.get(key).and_then(Value::as_f64)
}

fn flag(settings: &Value, key: &str, default: bool) -> bool {
    settings.get(key).and_then(Value::as_bool).unwrap_or(default)
}

fn rule(settings: &Value) -> Result<Rule> {
    let name = settings.get("opt").and_then(Value::as_str).context("a run does not say its optimizer")?;
    let beta = |index: usize, default: f64| {
        settings.pointer(&format!("/betas/{index}")).and_then(Value::as_f64).unwrap_or(default)
    };
    Ok(match name {
        "SGD" => Rule::Sgd(Sgd {
            momentum: number(settings, "momentum").unwrap_or(0.0),
            nesterov: flag(settings, "nesterov", false),
        }),
        "Adam" | "AdamW" => Rule::Adam(Adam {
            betas: (beta(0, 0.9), beta(1, 0.999)),
            eps: number(settings, "eps").unwrap_or(1e-8),
            decay: if name == "Adam" { Decay::Gradient } else { Decay::Decoupled },
            amsgrad: flag(settings, "amsgrad", false),
        }),
        "Adafactor" => Rule::Adafactor(Adafactor {
            first_moment: number(settings, "beta1"),
            scale_parameter: flag(settings, "scale_parameter", true),
            relative_step: flag(settings, "relative_step", true),
            warmup_init: flag(settings, "warmup_init", false),
            clip_threshold: number(settings, "clip_threshold").unwrap_or(1.0),
            decay_rate: number(settings, "decay_rate").unwrap_or(-0.8),
            ..Adafactor::default()
        }),
        other => bail!("the optimizer {other} is not known"),
    })
}

/// The two weights of a run; only the first decays.
const WEIGHTS: [&str; 2] = ["p0", "p1"];

pub fn optimizers(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let runs = module.setting("/runs")?.as_object().context("runs is not an object")?;
    for (name, settings) in runs {
        run(module, name, settings, comparison).with_context(|| name.clone())?;
    }
    Ok(())
}

fn run(module: &Module, name: &str, settings: &Value, comparison: &mut Comparison) -> Result<()> {
    let mut optimizer = Optimizer::new(rule(settings)?);
    let read = |what: &str, step: usize| {
        let tensors = WEIGHTS.iter().map(|weight| module.floats(&format!("{name}.{what}{weight}.{step}")));
        tensors.collect::<Result<Vec<_>>>()
    };
    let steps = (1..).take_while(|step| module.has(&format!("{name}.p0.{step}"))).count();
    let mut weights = read("", 0)?;
    let shapes: Vec<_> = weights.iter().map(|weight| weight.shape.clone()).collect();
    let still = still(&weights, (1..=steps).map(|step| read("", step)))?;
    let norms = settings.get("grad_norms_before_clip").and_then(Value::as_array).cloned().unwrap_or_default();
    for step in 1..=steps {
        let mut gradients: Vec<Vec<f32>> = read("grad.", step)?.into_iter().map(|gradient| gradient.values).collect();
        let expected = norms.get(step - 1).and_then(Value::as_f64);
        let max_norm = number(settings, "max_norm");
        if let (Some(expected), Some(max_norm)) = (expected, max_norm) {
            unclip(&mut gradients, expected, max_norm);
        }
        let norm = global_norm(gradients.iter().map(Vec::as_slice));
        if let Some(expected) = expected {
            let tolerance = Tolerance { relative: 1e-5, ..module.tolerance };
            comparison.number(&format!("{name}.grad_norms[{step}]"), norm, expected, tolerance);
        }
        if let Some(max_norm) = max_norm {
            clip(gradients.iter_mut().map(Vec::as_mut_slice), norm, max_norm);
        }
        for (index, weight) in weights.iter_mut().enumerate() {
            let decay = if index == 0 { number(settings, "weight_decay").unwrap_or(0.0) } else { 0.0 };
            let (shape, gradient) = (&shapes[index], &gradients[index]);
            let slot = Slot { name: WEIGHTS[index], shape, weight: &mut weight.values, gradient, weight_decay: decay };
            optimizer.update(slot, number(settings, "lr").unwrap_or(0.0));
            if !still {
                module.compare(&format!("{name}.{}.{step}", WEIGHTS[index]), &weight.values, comparison)?;
            }
        }
    }
    if still {
        comparison.leave_out(format!("{name}: the file has the same weights at every step"));
    }
    Ok(())
}

/// Whether a recording holds one state of its weights under the names of all steps: a tensor that was changed where it
/// lies and kept without a copy. Its start is lost, so that no step can be repeated.
fn still(start: &[super::Tensor<f32>], steps: impl Iterator<Item = Result<Vec<super::Tensor<f32>>>>) -> Result<bool> {
    for step in steps {
        if step?.iter().zip(start).any(|(weight, start)| weight.values != start.values) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn schedules(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let base = number(&module.about, "base_lr").context("base_lr is missing")?;
    for name in module.names() {
        match name.split_once('.') {
            Some((_, "steps")) => continue,
            Some((noam, "lr")) => {
                let steps = module.integers(&format!("{noam}.steps"))?.values;
                let schedule = schedule(module, noam)?;
                // That formula counts from 1.
                let found: Vec<f32> =
                    steps.iter().map(|step| schedule.rate(1.0, step.max(&1).abs_diff(1)) as f32).collect();
                compare_rates(module, &name, &found, comparison)?;
            }
            _ => {
                let (schedule, count) = (schedule(module, &name)?, module.floats(&name)?.values.len());
                let found: Vec<f32> = (0..count as u64).map(|step| schedule.rate(base, step) as f32).collect();
                compare_rates(module, &name, &found, comparison)?;
            }
        }
    }
    Ok(())
}

/// Rates are small, so that only the error relative to the largest says something.
fn compare_rates(module: &Module, name: &str, found: &[f32], comparison: &mut Comparison) -> Result<()> {
    let largest = module.floats(name)?.values.iter().fold(0.0f32, |largest, rate| largest.max(*rate));
    let tolerance = Tolerance { absolute: module.tolerance.absolute * f64::from(largest), ..module.tolerance };
    module.compare_within(name, found, tolerance, comparison)
}

fn schedule(module: &Module, name: &str) -> Result<Schedule> {
    let settings = module.setting(&format!("/{name}"))?;
    let count = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
    let warmup = count(&module.about, "num_warmup_steps").context("num_warmup_steps is missing")?;
    let total = count(&module.about, "num_training_steps").context("num_training_steps is missing")?;
    let or = |key: &str, default: f64| number(settings, key).unwrap_or(default);
    Ok(match name {
        "constant" => Schedule::Constant { warmup: 0 },
        "constant_with_warmup" => Schedule::Constant { warmup },
        "linear" => Schedule::Linear { warmup, total },
        "cosine" => Schedule::Cosine { warmup, total, cycles: or("num_cycles", 0.5), min_ratio: 0.0 },
        "cosine_with_min_lr" => {
            Schedule::Cosine { warmup, total, cycles: or("num_cycles", 0.5), min_ratio: or("min_lr_rate", 0.0) }
        }
        "cosine_with_restarts" => Schedule::CosineRestarts { warmup, total, cycles: or("num_cycles", 1.0) },
        "polynomial" => Schedule::Polynomial { warmup, total, power: or("power", 1.0), end: or("lr_end", 1e-7) },
        "inverse_sqrt" => Schedule::InverseSqrt { warmup },
        "warmup_stable_decay" => Schedule::WarmupStableDecay {
            warmup,
            total,
            decay: count(settings, "num_decay_steps").context("num_decay_steps is missing")?,
            min_ratio: or("min_lr_ratio", 0.0),
            shape: match settings.get("decay_type").and_then(Value::as_str) {
                None | Some("cosine") => DecayShape::Cosine,
                Some("linear") => DecayShape::Linear,
                Some("1-sqrt") => DecayShape::SquareRoot,
                Some(other) => bail!("the decay type {other} is not known"),
            },
        },
        "noam" => Schedule::Noam {
            width: count(settings, "d_model").context("d_model is missing")? as usize,
            warmup: count(settings, "warmup").context("warmup is missing")?,
        },
        other => bail!("the schedule {other} is not known"),
    })
}

/// Undoes the reference's clipping where the recorded gradients are what it left: it clips in place, so what was read
/// after its step has the largest norm that is allowed, and the norm before is recorded beside it.
fn unclip(gradients: &mut [Vec<f32>], before: f64, max_norm: f64) {
    let stored = global_norm(gradients.iter().map(Vec::as_slice));
    if before > max_norm && (stored - max_norm).abs() <= 1e-4 * max_norm {
        let factor = ((before + 1e-6) / max_norm) as f32;
        gradients.iter_mut().flatten().for_each(|d| *d *= factor);
    }
}
