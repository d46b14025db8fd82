//! Packing: inputs of any lengths through the model in few, full steps.

use super::reader::{Encoded, TaskModel};
use crate::error::Error;
use crate::guard::Needs;
use attend_kernels::DType;
use attend_nn::{Batch, KvTypes, Nobody, Sequence};
use std::ops::ControlFlow;

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub inputs: usize,
    pub tokens: usize,
}

/// Is told of every step; `Break` ends the work.
pub type Watch<'w> = dyn FnMut(Step) -> ControlFlow<()> + 'w;

/// What becomes of an input's rows [tokens, D].
type OfRows<'f, T> = dyn FnMut(usize, &[f32]) -> Result<T, Error> + 'f;

/// One step's outcome.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    /// Which inputs were computed.
    pub inputs: &'a [usize],
    /// The tokens of each.
    pub texts: &'a [&'a [u32]],
    /// Hidden states of all, one input after another: [tokens, D].
    pub hidden: &'a [f32],
}

impl<'a> Packed<'a> {
    /// Each input with its rows.
    pub fn each(&self, width: usize) -> impl Iterator<Item = (usize, &'a [f32])> {
        let mut rest = self.hidden;
        self.inputs.iter().zip(self.texts).map(move |(&input, text)| {
            let (rows, behind) = rest.split_at(text.len() * width);
            rest = behind;
            (input, rows)
        })
    }
}

impl TaskModel<'_> {
    /// Takes all inputs through the reading stack, the longest first, and hands out the hidden states of each step.
    pub(crate) fn each_step(
        &self,
        items: &[&Encoded],
        watch: &mut Watch<'_>,
        take: &mut dyn FnMut(&Packed<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let needs = Needs::of(self.model.spec(), KvTypes::both(DType::F16), 0);
        let length = |index: usize| items.get(index).map_or(0, |item| item.encoding.len());
        for inputs in steps(items.len(), length, self.options.batch_tokens) {
            let chosen: Vec<&Encoded> = inputs.iter().filter_map(|&index| items.get(index).copied()).collect();
            let texts: Vec<&[u32]> = chosen.iter().map(|item| item.encoding.ids.as_slice()).collect();
            needs.ask_for_texts(texts.iter().map(|text| text.len()).sum())?;
            let hidden = if self.reads_twice() { self.read_twice(&texts)? } else { self.read(&chosen)? };
            take(&Packed { inputs: &inputs, texts: &texts, hidden: &hidden })?;
            let step = Step { inputs: inputs.len(), tokens: texts.iter().map(|text| text.len()).sum() };
            if watch(step).is_break() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    /// The hidden states of texts after the one stack that reads them.
    fn read(&self, items: &[&Encoded]) -> Result<Vec<f32>, Error> {
        let sequences = items.iter().map(|item| Sequence {
            token_types: self.has_types().then_some(item.encoding.type_ids.as_slice()),
            ..Sequence::new(&item.encoding.ids)
        });
        let mut batch = Batch { sequences: sequences.collect(), encoded: None };
        Ok(self.computing().forward(self.stack, &mut batch, &self.options.run, &mut Nobody)?)
    }

    /// The same where both stacks of an encoder-decoder read.
    fn read_twice(&self, texts: &[&[u32]]) -> Result<Vec<f32>, Error> {
        let starts = texts.iter().map(|text| self.described.start_of(text)).collect::<Result<Vec<u32>, _>>()?;
        Ok(self.computing().read_twice(texts, &starts, &self.options.run, &mut Nobody)?)
    }

    /// As [`TaskModel::each_step`], collecting what `of` makes of each input's rows, in the inputs' order.
    pub(crate) fn each_input<T>(
        &self,
        items: &[&Encoded],
        watch: &mut Watch<'_>,
        of: &mut OfRows<'_, T>,
    ) -> Result<Vec<T>, Error> {
        let mut found: Vec<Option<T>> = items.iter().map(|_| None).collect();
        let width = self.width();
        self.each_step(items, watch, &mut |packed| {
            for (index, rows) in packed.each(width) {
                let value = of(index, rows).map_err(|source| source.of_input(index))?;
                if let Some(slot) = found.get_mut(index) {
                    *slot = Some(value);
                }
            }
            Ok(())
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The logits of the model's sequence head, a row for each input, in their order.
    pub(crate) fn sequence_logits(&self, items: &[&Encoded], watch: &mut Watch<'_>) -> Result<Vec<Vec<f32>>, Error> {
        let mut rows = vec![Vec::new(); items.len()];
        self.each_step(items, watch, &mut |packed| {
            let logits = self.computing().sequence_logits_of(packed.hidden, packed.texts, &mut Nobody)?;
            let labels = logits.len() / packed.inputs.len().max(1);
            for (&index, row) in packed.inputs.iter().zip(logits.chunks_exact(labels.max(1))) {
                super::finite(row).map_err(|source| source.of_input(index))?;
                if let Some(slot) = rows.get_mut(index) {
                    *slot = row.to_vec();
                }
            }
            Ok(())
        })?;
        Ok(rows)
    }
}

/// Inputs of each step: sorted by length, the longest first (so that what does not fit in memory shows at once), equal
/// lengths in order, together at most `budget` tokens.
fn steps(count: usize, length: impl Fn(usize) -> usize, budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(length(index)));
    let mut steps: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for index in order {
        match steps.last_mut() {
            Some(step) if tokens + length(index) <= budget => {
                step.push(index);
                tokens += length(index);
            }
            _ => {
                steps.push(vec![index]);
                tokens = length(index);
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn steps_hold_every_input_once_and_keep_the_budget() {
        let lengths = [3, 9, 1, 4, 9, 2, 20, 1];
        let found = steps(lengths.len(), |index| lengths[index], 10);
        assert_eq!(found, [vec![6], vec![1], vec![4], vec![3, 0, 5, 2], vec![7]]);
        assert_eq!(steps(0, |_| 1, 10), Vec::<Vec<usize>>::new());
        assert_eq!(steps(3, |_| 5, 0), [vec![0], vec![1], vec![2]]);
    }
}
