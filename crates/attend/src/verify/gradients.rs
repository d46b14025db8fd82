//! Losses and gradients of model cases, with the tape as the observer.

use super::case::{ModelCase, Row};
use super::compare::{Comparison, Tolerance};
use super::model::{Kind as CaseKind, Side, stack_kind};
use super::seq2seq::{decoder_rows, starts};
use super::spans::{self, span_loss};
use anyhow::{Context, Result, bail};
use attend_format::Kind;
use attend_kernels::DType;
use attend_model::{Loaded, Quantity};
use attend_nn::loss::{Loss, binary_cross_entropy, cross_entropy, mean_squared_error};
use attend_nn::spec::{Body, Head, StackKind};
use attend_nn::{Batch, Encoded, Gradients, Model, RunOptions, Sequence, Tape, one_later};
use std::collections::BTreeMap;

/// Gradients and their norms agree relatively, plus this, which is what the goldens allow.
const NORM_FLOOR: f64 = 1e-6;

/// Half the distance from 1 to the next 32-bit float.
const ROUNDING: f64 = 1.0 / (1u32 << 24) as f64;

/// How far from a gradient of the length `expected` one may be beside its relative tolerance. The bias of a key has no effect
/// on a softmax: what the reference records as its gradient is the rounding of its own 32-bit floats, which grows with
/// the length of all gradients, `total`. A gradient that is no more than that rounding counts as none.
fn floor(expected: f64, total: f64) -> f64 {
    let rounding = ROUNDING * total;
    if expected <= rounding { NORM_FLOOR.max(rounding) } else { NORM_FLOOR }
}

/// Compares the loss, every stored gradient and the norm of every gradient. Nothing where the case has no loss.
pub fn check(case: &ModelCase, loaded: &Loaded, kind: CaseKind) -> Result<Option<Comparison>> {
    if !case.expected.has("train.loss") {
        return Ok(None);
    }
    let mut grads = Gradients::all();
    let mut comparison = Comparison::default();
    if kind == CaseKind::Span
        && let Some(reason) = spans::unknown_padding(case, loaded.model.spec())?
    {
        case.expected.pass_over("train.");
        comparison.leave_out(format!("loss and gradients, in which the reference counts padding: {reason}"));
        return Ok(Some(comparison));
    }
    let loss = match loaded.model.spec().body {
        Body::EncoderDecoder { .. } => two_stacks(case, loaded, kind, &mut grads)?,
        Body::Encoder(_) | Body::Decoder(_) => one_stack(case, loaded, kind, &mut grads, &mut comparison)?,
    };
    let expected = case.expected.floats("train.loss")?.values;
    comparison.number("train.loss", loss, f64::from(expected[0]), Tolerance::absolute(case.loss_tolerance()?));
    compare(case, loaded, &grads, &mut comparison)?;
    Ok(Some(comparison))
}

fn compare(case: &ModelCase, loaded: &Loaded, grads: &Gradients, comparison: &mut Comparison) -> Result<()> {
    let tolerance = case.gradient_tolerance()?;
    let total = case.about.get("grad_norm_total").and_then(|total| total.as_f64()).unwrap_or(0.0);
    let length = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    // The reference knows its parameters by their Hugging Face names, whatever file the weights came from.
    let mut ours = |name: &str| grads.values().get(name).cloned();
    let files = match loaded.source.checkpoint.kind() {
        Kind::HuggingFace | Kind::Described => loaded.source.to_checkpoint(Quantity::Gradients, &mut ours)?,
        Kind::Gguf => loaded.source.to_kind(Kind::HuggingFace, Quantity::Gradients, &mut ours)?,
    };
    let found: BTreeMap<&str, &[f32]> = files.iter().map(|file| (file.name.as_str(), file.values.as_slice())).collect();
    let prefix = "train.grad.";
    for name in case.expected.names(prefix) {
        let expected = case.expected.floats(name)?.values;
        match lookup(&found, &name[prefix.len()..]) {
            Some(found) => {
                comparison.relative_l2(name, found, &expected, tolerance, floor(length(&expected), total));
            }
            None => comparison.fail(name, "no gradient reached this parameter"),
        }
    }
    let norms = case.about.get("grad_norms").and_then(|norms| norms.as_object());
    for (name, expected) in norms.into_iter().flatten() {
        let expected = expected.as_f64().with_context(|| format!("grad_norms.{name} is not a number"))?;
        let values = lookup(&found, name).unwrap_or(&[]);
        let tolerance = Tolerance { absolute: floor(expected, total), relative: tolerance };
        comparison.number(&format!("grad_norms.{name}"), length(values), expected, tolerance);
    }
    Ok(())
}

/// A checkpoint may have been saved without the prefix that the reference's parameters have, or with old names.
pub fn lookup<'a>(found: &BTreeMap<&str, &'a [f32]>, name: &str) -> Option<&'a [f32]> {
    let old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    [name, &old].into_iter().find_map(|name| {
        let suffix = |(known, _): &(&&str, &&'a [f32])| {
            name.strip_suffix(**known).or_else(|| known.strip_suffix(name)).is_some_and(|rest| rest.ends_with('.'))
        };
        found.get(name).copied().or_else(|| found.iter().find(suffix).map(|(_, values)| *values))
    })
}

fn one_stack(
    case: &ModelCase,
    loaded: &Loaded,
    kind: CaseKind,
    grads: &mut Gradients,
    comparison: &mut Comparison,
) -> Result<f64> {
    let side = Side::read(case, "right")?;
    if kind == CaseKind::Span {
        return spans::one_stack(case, loaded, &side, grads);
    }
    let model = &loaded.model;
    let (stack, options, lengths) = (stack_kind(model)?, RunOptions::default(), side.lengths());
    let mut tape = Tape::new();
    let hidden = model.forward(stack, &mut side.batch(), &options, &mut tape)?;
    let (loss, dhidden) = match kind {
        CaseKind::Causal | CaseKind::PerToken => {
            let logits = model.logits(&hidden, &mut tape)?;
            let loss = token_loss(case, kind, &side, &logits)?;
            let dhidden = model.backward_logits(&tape, &loss.gradient, grads);
            (loss.value, dhidden)
        }
        CaseKind::Sequence => {
            let logits = model.sequence_logits(&hidden, &lengths, &mut tape)?;
            let loss = sequence_loss(case, model, &logits)?;
            (loss.value, model.backward_sequence_logits(&tape, &loss.gradient, &lengths, grads)?)
        }
        CaseKind::Encoder => readout_loss(&hidden, &case.expected.floats("train.readout")?.values),
        CaseKind::Span | CaseKind::EncoderDecoder => bail!("handled elsewhere"),
    };
    let balance = balance(case, model, stack, &mut tape, comparison)?;
    model.backward(stack, &side.batch(), &tape, &dhidden, grads)?;
    Ok(loss + balance)
}

/// What the load-balancing loss of a mixture of experts adds, where the model is trained with one.
fn balance(
    case: &ModelCase,
    model: &Model,
    stack: StackKind,
    tape: &mut Tape,
    comparison: &mut Comparison,
) -> Result<f64> {
    let balance = model.load_balancing(stack, tape)?;
    if case.expected.has("train.aux_loss") {
        let expected = f64::from(case.expected.floats("train.aux_loss")?.values[0]);
        match balance {
            Some(found) => {
                let tolerance = Tolerance::absolute(case.loss_tolerance()?);
                comparison.number("train.aux_loss", found.value, expected, tolerance);
            }
            None => comparison.fail("train.aux_loss", "the description asks for none"),
        }
    }
    Ok(balance.map_or(0.0, |balance| balance.value * f64::from(balance.coefficient)))
}

/// The mean over real tokens of `tanh(hidden) . readout`.
fn readout_loss(hidden: &[f32], readout: &[f32]) -> (f64, Vec<f32>) {
    let rows = hidden.len() / readout.len();
    let mut loss = 0.0;
    let mut gradient = Vec::with_capacity(hidden.len());
    for row in hidden.chunks_exact(readout.len()) {
        for (value, weight) in row.iter().zip(readout) {
            let tanh = f64::from(*value).tanh();
            loss += tanh * f64::from(*weight) / rows as f64;
            gradient.push(((1.0 - tanh * tanh) * f64::from(*weight) / rows as f64) as f32);
        }
    }
    (loss, gradient)
}

pub fn label(value: i64) -> Option<usize> {
    usize::try_from(value).ok()
}

/// Labels at the packed rows: of the token itself, or of the next one for a causal model, whose labels the file holds
/// unshifted.
fn token_loss(case: &ModelCase, kind: CaseKind, side: &Side, logits: &[f32]) -> Result<Loss> {
    let labels = case.expected.integers("train.labels")?;
    let width = labels.shape[1];
    let shift = usize::from(kind == CaseKind::Causal);
    let mut packed = Vec::new();
    for (row, real) in side.rows.iter().enumerate() {
        for column in real.columns.iter().map(|column| column + shift) {
            packed.push(if column < width { labels.values[row * width + column] } else { -100 });
        }
    }
    let classes = logits.len() / packed.len();
    if classes == 1 {
        let targets: Vec<f32> = packed.iter().map(|label| *label as f32).collect();
        return Ok(binary_cross_entropy(logits, &targets));
    }
    Ok(cross_entropy(logits, classes, &packed.into_iter().map(label).collect::<Vec<_>>()))
}

/// One label is a regression, whole labels are classes, and a row of numbers is several labels at once.
fn sequence_loss(case: &ModelCase, model: &Model, logits: &[f32]) -> Result<Loss> {
    let Head::Sequence { labels: classes, .. } = model.spec().head else { bail!("the model has no sequence head") };
    let dtype = case.expected.dtype("train.labels")?;
    if dtype == DType::I64 && classes > 1 {
        let labels = case.expected.integers("train.labels")?.values;
        return Ok(cross_entropy(logits, classes, &labels.into_iter().map(label).collect::<Vec<_>>()));
    }
    let targets = match dtype {
        DType::I64 => case.expected.integers("train.labels")?.values.iter().map(|label| *label as f32).collect(),
        _ => case.expected.floats("train.labels")?.values,
    };
    let multi = classes > 1 && case.problem_type()?.is_none_or(|kind| kind == "multi_label_classification");
    Ok(if multi { binary_cross_entropy(logits, &targets) } else { mean_squared_error(logits, &targets) })
}

fn two_stacks(case: &ModelCase, loaded: &Loaded, kind: CaseKind, grads: &mut Gradients) -> Result<f64> {
    let model = &loaded.model;
    let side = Side::read(case, "right")?;
    let options = RunOptions::default();
    let mut tape = Tape::new();
    let hidden = model.forward(StackKind::Encoder, &mut side.batch(), &options, &mut tape)?;
    let rows = target_rows(case, loaded, kind, &side)?;
    let batch = || Batch {
        encoded: Some(Encoded { hidden: &hidden, lengths: side.lengths() }),
        sequences: rows.iter().map(Target::sequence).collect(),
    };
    let decoded = model.forward(StackKind::Decoder, &mut batch(), &options, &mut tape)?;
    let (loss, dhidden) = match kind {
        CaseKind::EncoderDecoder | CaseKind::Span => {
            let logits = model.logits(&decoded, &mut tape)?;
            let columns = rows.first().map_or(0, |row| row.ids.len());
            let spans = kind == CaseKind::Span;
            let loss = if spans { span_loss(case, &logits, columns)? } else { target_loss(case, &logits)? };
            let dhidden = model.backward_logits(&tape, &loss.gradient, grads);
            (loss.value, dhidden)
        }
        CaseKind::Sequence => {
            let texts: Vec<&[u32]> = side.rows.iter().map(|row| row.ids.as_slice()).collect();
            let logits = model.sequence_logits_of(&decoded, &texts, &mut tape)?;
            let loss = sequence_loss(case, model, &logits)?;
            (loss.value, model.backward_sequence_logits_of(&tape, &loss.gradient, &texts, grads)?)
        }
        CaseKind::Encoder => readout_loss(&decoded, &case.expected.floats("train.readout")?.values),
        CaseKind::Causal | CaseKind::PerToken => bail!("the case is of a model with one stack, the checkpoint has two"),
    };
    let dencoded = model.backward(StackKind::Decoder, &batch(), &tape, &dhidden, grads)?;
    model.backward(StackKind::Encoder, &side.batch(), &tape, &dencoded, grads)?;
    Ok(loss)
}

/// What the decoder reads of one row.
struct Target {
    ids: Vec<u32>,
    /// Tokens at the end that are padding, and seen by none.
    padding: usize,
}

impl Target {
    fn whole(ids: Vec<u32>) -> Target {
        Target { ids, padding: 0 }
    }

    fn sequence(&self) -> Sequence<'_> {
        Sequence { padding: self.padding, ..Sequence::new(&self.ids) }
    }
}

/// The teacher's rows, or the source one place later. A span loss takes all columns of the padded batch, so there the
/// padding is read too; so it is where padding has labels that count.
fn target_rows(case: &ModelCase, loaded: &Loaded, kind: CaseKind, side: &Side) -> Result<Vec<Target>> {
    Ok(match kind {
        CaseKind::EncoderDecoder if padding_counts(case)? => padded_targets(case, loaded)?,
        CaseKind::EncoderDecoder => decoder_rows(case)?.into_iter().map(|row| Target::whole(row.ids)).collect(),
        CaseKind::Span => {
            let columns = case.expected.integers("right.input_ids")?.shape[1];
            let padded = case.expected.tokens("right.input_ids")?;
            let starts = starts(loaded, side.rows.iter().map(|row| row.ids.as_slice()))?;
            let rows = padded.chunks_exact(columns).zip(starts);
            rows.map(|(ids, start)| Target::whole(one_later(ids, start))).collect()
        }
        CaseKind::Causal | CaseKind::PerToken | CaseKind::Encoder | CaseKind::Sequence => {
            let starts = starts(loaded, side.rows.iter().map(|row| row.ids.as_slice()))?;
            let rows = side.rows.iter().zip(starts);
            rows.map(|(row, start)| Target::whole(one_later(&row.ids, start))).collect()
        }
    })
}

/// Whether labels at padding count: the reference leaves them out only where they are -100.
fn padding_counts(case: &ModelCase) -> Result<bool> {
    let labels = case.expected.integers("train.labels")?.values;
    let mask = case.expected.integers("right.decoder_mask")?.values;
    Ok(labels.iter().zip(&mask).any(|(label, real)| *real == 0 && *label >= 0))
}

/// Rows of the padded batch, whose padding is no key.
fn padded_targets(case: &ModelCase, loaded: &Loaded) -> Result<Vec<Target>> {
    let columns = case.expected.integers("right.decoder_input_ids")?.shape[1];
    let ids = case.expected.tokens("right.decoder_input_ids")?;
    let pad = loaded.model.spec().output_stack().embed.padding;
    let target = |ids: &[u32]| {
        let padding = ids.iter().rev().take_while(|id| Some(**id) == pad).count();
        Target { ids: ids.to_vec(), padding }
    };
    Ok(ids.chunks_exact(columns).map(target).collect())
}

/// The mean over the labels of the rows that the decoder read.
fn target_loss(case: &ModelCase, logits: &[f32]) -> Result<Loss> {
    let labels = case.expected.integers("train.labels")?;
    let columns = labels.shape[1];
    if padding_counts(case)? {
        let labels: Vec<_> = labels.values.into_iter().map(label).collect();
        return Ok(cross_entropy(logits, logits.len() / labels.len(), &labels));
    }
    let rows = decoder_rows(case)?;
    let of_row = |(row, real): (usize, &Row)| {
        real.columns.iter().map(|column| label(labels.values[row * columns + column])).collect::<Vec<_>>()
    };
    let packed: Vec<_> = rows.iter().enumerate().flat_map(of_row).collect();
    Ok(cross_entropy(logits, logits.len() / packed.len(), &packed))
}

#[cfg(test)]
mod tests {
    use super::floor;

    #[test]
    fn only_what_is_rounding_may_be_as_far_as_rounding() {
        assert_eq!(floor(1.1e-6, 48.0), 48.0 / f64::from(1u32 << 24));
        assert_eq!((floor(3e-6, 48.0), floor(5.0, 48.0)), (1e-6, 1e-6));
        assert_eq!((floor(0.0, 4.0), floor(0.0, 0.0)), (1e-6, 1e-6));
    }
}
