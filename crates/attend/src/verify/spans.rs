//! The loss of spans. The reference takes its softmax over all columns of a padded batch, padding included, so that what
//! padding is computed to be has a part in the loss and in every gradient. Where its computation is known it is repeated
//! here; where it is not, a case with padding says nothing of the loss of real tokens, and the loss is not checked.

use super::case::ModelCase;
use super::gradients::{label, lookup};
use super::model::{Side, stack_kind};
use anyhow::{Result, bail};
use attend_model::Loaded;
use attend_nn::loss::{Loss, cross_entropy};
use attend_nn::spec::{AbsolutePositions, Body, Mask, ModelSpec, Position};
use attend_nn::{Batch, Gradients, RunOptions, Sequence, Tape};
use std::collections::BTreeMap;

/// Why what the reference computes of padding cannot be repeated, if it cannot.
pub fn unknown_padding(case: &ModelCase, spec: &ModelSpec) -> Result<Option<&'static str>> {
    let columns = case.expected.integers("right.input_ids")?.shape[1];
    let rows = Side::read(case, "right")?.rows;
    let shortest = rows.iter().map(|row| row.ids.len()).min().unwrap_or(0);
    if shortest == columns {
        return Ok(None);
    }
    let stack = spec.output_stack();
    let counted = matches!(stack.embed.positions, AbsolutePositions::Learned { offset, .. } if offset > 0);
    if matches!(spec.body, Body::Decoder(_)) && counted {
        return Ok(Some("padding has a position that no token has"));
    }
    let blind = |mask: Mask| (shortest..columns).any(|row| mask.range(row, shortest).is_empty());
    Ok(stack.layers.iter().find_map(|layer| match &layer.attention.position {
        Position::Disentangled(_) => Some("padding is left out of its own attention"),
        _ if blind(layer.attention.mask) => Some("padding is farther from every token than a window reaches"),
        Position::None | Position::Rope(_) | Position::Alibi(_) | Position::RelativeBias(_) | Position::StackBias => {
            None
        }
    }))
}

/// The loss of a model with one stack: padding is computed as tokens that see the real ones and are seen by none.
pub fn one_stack(case: &ModelCase, loaded: &Loaded, side: &Side, grads: &mut Gradients) -> Result<f64> {
    let model = &loaded.model;
    let padded = case.expected.integers("right.input_ids")?;
    let [rows, columns] = padded.shape[..] else { bail!("right.input_ids does not have two dimensions") };
    let ids: Vec<u32> = padded.values.iter().map(|id| *id as u32).collect();
    let types: Option<Vec<u32>> = match case.expected.has("right.token_type_ids") {
        true => Some(case.expected.tokens("right.token_type_ids")?),
        false => None,
    };
    let batch = || Batch {
        sequences: (0..rows)
            .map(|row| Sequence {
                token_types: types.as_ref().map(|types| &types[row * columns..(row + 1) * columns]),
                padding: columns - side.rows[row].ids.len(),
                ..Sequence::new(&ids[row * columns..(row + 1) * columns])
            })
            .collect(),
        encoded: None,
    };
    let mut tape = Tape::new();
    let stack = stack_kind(model)?;
    let hidden = model.forward(stack, &mut batch(), &RunOptions::default(), &mut tape)?;
    let logits = model.logits(&hidden, &mut tape)?;
    let loss = span_loss(case, &logits, columns)?;
    let dhidden = model.backward_logits(&tape, &loss.gradient, grads);
    model.backward(stack, &batch(), &tape, &dhidden, grads)?;
    drop_padding_rows(case, loaded, grads)?;
    Ok(loss.value)
}

/// The mean of the losses of start and end, each over all columns of a row.
pub fn span_loss(case: &ModelCase, logits: &[f32], columns: usize) -> Result<Loss> {
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
    Ok(Loss { value: loss, gradient })
}

/// Most of the reference's tables have no gradient at the row of the padding token, nor at its position's.
fn drop_padding_rows(case: &ModelCase, loaded: &Loaded, grads: &mut Gradients) -> Result<()> {
    let Some(pad) = case.about.get("pad_token_id").and_then(|pad| pad.as_u64()) else { return Ok(()) };
    let embed = &loaded.model.spec().output_stack().embed;
    let (pad, width) = (usize::try_from(pad)?, embed.width);
    let row = pad * width..(pad + 1) * width;
    if !keeps_row(case, loaded, row.clone())?
        && let Some(slot) = grads.slot("embed.tokens.weight", embed.vocab * width)
        && pad < embed.vocab
    {
        slot[row].fill(0.0);
    }
    if let (Some(_), AbsolutePositions::Learned { rows, offset }) = (embed.uncounted, embed.positions)
        && let Some(slot) = grads.slot("embed.positions.weight", rows * width)
    {
        slot[(offset - 1) * width..offset * width].fill(0.0);
    }
    Ok(())
}

/// Whether the recorded gradient of the token table has something in these places: then its row has one.
fn keeps_row(case: &ModelCase, loaded: &Loaded, places: std::ops::Range<usize>) -> Result<bool> {
    let table = loaded.source.tensors.iter().find(|tensor| tensor.ours == "embed.tokens.weight");
    let Some(table) = table else { return Ok(false) };
    let prefix = "train.grad.";
    let marked = BTreeMap::from([(table.theirs.as_str(), &[1.0f32][..])]);
    let recorded = case.expected.names(prefix).find(|name| lookup(&marked, &name[prefix.len()..]).is_some());
    let Some(name) = recorded else { return Ok(false) };
    let values = case.expected.floats(name)?.values;
    Ok(values.get(places).is_some_and(|row| row.iter().any(|d| *d != 0.0)))
}
