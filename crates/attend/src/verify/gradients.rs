//! Losses and gradients of model cases, with the tape as the observer.

use super::case::ModelCase;
use super::compare::{Comparison, Tolerance};
use super::model::{Kind as CaseKind, Side, stack_kind};
use super::seq2seq::{decoder_batch, decoder_rows};
use anyhow::{Context, Result, bail};
use attend_format::Kind;
use attend_kernels::DType;
use attend_model::{Loaded, Quantity};
use attend_nn::loss::{Loss, binary_cross_entropy, cross_entropy, mean_squared_error};
use attend_nn::spec::{Head, StackKind};
use attend_nn::{Batch, Gradients, Model, RunOptions, Tape};
use std::collections::BTreeMap;

/// Gradients and their norms agree relatively, plus this: the bias of a key has no effect on a softmax, and what the
/// reference records as its gradient is rounding.
const NORM_FLOOR: f64 = 1e-6;

/// Compares the loss, every stored gradient and the norm of every gradient. Nothing where the case has no loss.
pub fn check(case: &ModelCase, loaded: &Loaded, kind: CaseKind) -> Result<Option<Comparison>> {
    if !case.expected.has("train.loss") || case.expected.has("train.aux_loss") {
        return Ok(None);
    }
    let mut grads = Gradients::all();
    let loss = match kind {
        CaseKind::EncoderDecoder => two_stacks(case, &loaded.model, &mut grads)?,
        CaseKind::Causal | CaseKind::PerToken | CaseKind::Encoder | CaseKind::Sequence | CaseKind::Span => {
            one_stack(case, &loaded.model, kind, &mut grads)?
        }
    };
    let mut comparison = Comparison::default();
    let expected = case.expected.floats("train.loss")?.values;
    comparison.number("train.loss", loss, f64::from(expected[0]), Tolerance::absolute(case.loss_tolerance()?));
    compare(case, loaded, &grads, &mut comparison)?;
    Ok(Some(comparison))
}

fn compare(case: &ModelCase, loaded: &Loaded, grads: &Gradients, comparison: &mut Comparison) -> Result<()> {
    let tolerance = case.gradient_tolerance()?;
    // The reference knows its parameters by their Hugging Face names, whatever file the weights came from.
    let mut ours = |name: &str| grads.values().get(name).cloned();
    let files = match loaded.source.checkpoint.kind() {
        Kind::HuggingFace => loaded.source.to_checkpoint(Quantity::Gradients, &mut ours)?,
        Kind::Gguf => loaded.source.to_kind(Kind::HuggingFace, Quantity::Gradients, &mut ours)?,
    };
    let found: BTreeMap<&str, &[f32]> = files.iter().map(|file| (file.name.as_str(), file.values.as_slice())).collect();
    let prefix = "train.grad.";
    for name in case.expected.names(prefix) {
        let expected = case.expected.floats(name)?.values;
        match lookup(&found, &name[prefix.len()..]) {
            Some(found) => comparison.relative_l2(name, found, &expected, tolerance, NORM_FLOOR),
            None => comparison.fail(name, "no gradient reached this parameter"),
        }
    }
    let norms = case.about.get("grad_norms").and_then(|norms| norms.as_object());
    for (name, expected) in norms.into_iter().flatten() {
        let expected = expected.as_f64().with_context(|| format!("grad_norms.{name} is not a number"))?;
        let values = lookup(&found, name).unwrap_or(&[]);
        let norm = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let tolerance = Tolerance { absolute: NORM_FLOOR, relative: tolerance };
        comparison.number(&format!("grad_norms.{name}"), norm, expected, tolerance);
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

fn one_stack(case: &ModelCase, model: &Model, kind: CaseKind, grads: &mut Gradients) -> Result<f64> {
    let side = Side::read(case, "right")?;
    if kind == CaseKind::Span {
        return span(case, model, side, grads);
    }
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
            (loss.value, model.backward_sequence_logits(&tape, &loss.gradient, &lengths, grads))
        }
        CaseKind::Encoder => readout_loss(&hidden, &case.expected.floats("train.readout")?.values),
        CaseKind::Span | CaseKind::EncoderDecoder => bail!("handled elsewhere"),
    };
    model.backward(stack, &side.batch(), &tape, &dhidden, grads)?;
    Ok(loss)
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

fn label(value: i64) -> Option<usize> {
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

/// The reference's span loss takes the softmax over a padded batch's columns, padding included, so the padding is
/// computed here too: as tokens that see the real ones and are seen by none.
fn span(case: &ModelCase, model: &Model, side: Side, grads: &mut Gradients) -> Result<f64> {
    let padded = case.expected.integers("right.input_ids")?;
    let [rows, columns] = padded.shape[..] else { bail!("right.input_ids does not have two dimensions") };
    let ids: Vec<u32> = padded.values.iter().map(|id| *id as u32).collect();
    let types: Option<Vec<u32>> = match case.expected.has("right.token_type_ids") {
        true => Some(case.expected.tokens("right.token_type_ids")?),
        false => None,
    };
    let batch = || Batch {
        sequences: (0..rows)
            .map(|row| attend_nn::Sequence {
                token_types: types.as_ref().map(|types| &types[row * columns..(row + 1) * columns]),
                padding: columns - side.rows[row].ids.len(),
                ..attend_nn::Sequence::new(&ids[row * columns..(row + 1) * columns])
            })
            .collect(),
        encoded: None,
    };
    let mut tape = Tape::new();
    let stack = stack_kind(model)?;
    let hidden = model.forward(stack, &mut batch(), &RunOptions::default(), &mut tape)?;
    let logits = model.logits(&hidden, &mut tape)?;
    let mut gradient = vec![0.0; logits.len()];
    let mut loss = 0.0;
    for (side, name) in ["train.start_positions", "train.end_positions"].into_iter().enumerate() {
        let side_logits: Vec<f32> = logits.iter().skip(side).step_by(2).copied().collect();
        let labels = case.expected.integers(name)?.values;
        let labels: Vec<_> = labels.into_iter().map(|at| label(at).filter(|at| *at < columns)).collect();
        let part = cross_entropy(&side_logits, columns, &labels);
        loss += part.value / 2.0;
        gradient.iter_mut().skip(side).step_by(2).zip(part.gradient).for_each(|(slot, d)| *slot = d / 2.0);
    }
    let dhidden = model.backward_logits(&tape, &gradient, grads);
    model.backward(stack, &batch(), &tape, &dhidden, grads)?;
    drop_padding_row(case, model, grads)?;
    Ok(loss)
}

/// The reference's token table has no gradient at the padding token's row.
fn drop_padding_row(case: &ModelCase, model: &Model, grads: &mut Gradients) -> Result<()> {
    let Some(pad) = case.about.get("pad_token_id").and_then(|pad| pad.as_u64()) else { return Ok(()) };
    let embed = &model.spec().output_stack().embed;
    let (pad, width) = (usize::try_from(pad)?, embed.width);
    if let Some(slot) = grads.slot("embed.tokens.weight", embed.vocab * width)
        && pad < embed.vocab
    {
        slot[pad * width..(pad + 1) * width].fill(0.0);
    }
    Ok(())
}

fn two_stacks(case: &ModelCase, model: &Model, grads: &mut Gradients) -> Result<f64> {
    let side = Side::read(case, "right")?;
    let options = RunOptions::default();
    let mut tape = Tape::new();
    let hidden = model.forward(StackKind::Encoder, &mut side.batch(), &options, &mut tape)?;
    let labels = case.expected.integers("train.labels")?;
    let columns = labels.shape[1];
    let rows = decoder_rows(case)?;
    let mut batch = decoder_batch(&rows, &hidden, side.lengths());
    let decoded = model.forward(StackKind::Decoder, &mut batch, &options, &mut tape)?;
    let logits = model.logits(&decoded, &mut tape)?;
    let packed = rows
        .iter()
        .enumerate()
        .flat_map(|(row, real)| real.columns.iter().map(move |column| (row, *column)).collect::<Vec<_>>());
    let packed: Vec<_> = packed.map(|(row, column)| label(labels.values[row * columns + column])).collect();
    let classes = logits.len() / packed.len();
    let loss = cross_entropy(&logits, classes, &packed);
    let dhidden = model.backward_logits(&tape, &loss.gradient, grads);
    let dencoded = model.backward(StackKind::Decoder, &batch, &tape, &dhidden, grads)?;
    model.backward(StackKind::Encoder, &side.batch(), &tape, &dencoded, grads)?;
    Ok(loss.value)
}
