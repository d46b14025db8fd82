//! Which adapters count for which rows: sequences that differ in nothing else take one walk together, in which the weights are
//! read once and each group of rows gets what its own adapters add (Sheng et al. 2023, S-LoRA).

use crate::low_rank::LowRank;
use attend_kernels::{parallel, threads};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The low-rank adapters of a model, layer by layer: what counts for a [`Sequence`](crate::Sequence) in place of those of the
/// model that it is taken through. Clones are handles of the same.
#[derive(Debug, Clone, Default)]
pub struct Adapters(Arc<[Vec<LowRank>]>);

impl Adapters {
    pub(crate) fn new(layers: Vec<Vec<LowRank>>) -> Adapters {
        Adapters(layers.into())
    }

    fn is_same(&self, other: &Adapters) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The adapters of one layer.
#[derive(Debug, Clone, Default)]
pub struct LayerAdapters {
    /// Where they stand in [`Adapters`]: models of one description number their layers alike.
    pub place: usize,
    /// Those of the model itself, in the order in which they are added.
    pub own: Vec<LowRank>,
}

/// Rows laid end to end and what counts for them.
#[derive(Debug, Clone, Default)]
pub struct RowAdapters {
    /// `None`: the layers' own. Where there is no part they count for all rows.
    parts: Vec<(Range<usize>, Option<Adapters>)>,
}

/// A layer's outputs for some rows, and what is to be added to them.
struct Task<'a> {
    adapters: &'a [LowRank],
    x: &'a [f32],
    out: &'a mut [f32],
}

impl RowAdapters {
    /// The layers' own adapters, for however many rows.
    pub const OWN: RowAdapters = RowAdapters { parts: Vec::new() };

    /// More rows behind those that are there.
    pub fn push(&mut self, rows: usize, adapters: Option<&Adapters>) {
        let same = |other: &Option<Adapters>| match (other, adapters) {
            (None, None) => true,
            (Some(other), Some(own)) => other.is_same(own),
            (Some(_), None) | (None, Some(_)) => false,
        };
        match self.parts.last_mut() {
            Some((range, other)) if same(other) => range.end += rows,
            last => {
                let start = last.map_or(0, |(range, _)| range.end);
                self.parts.push((start..start + rows, adapters.cloned()));
            }
        }
    }

    /// Whether the layers' own count for all rows.
    pub(crate) fn are_own(&self) -> bool {
        self.parts.iter().all(|(_, adapters)| adapters.is_none())
    }

    /// Of some of these rows, in this order.
    pub(crate) fn of(&self, rows: impl Iterator<Item = usize>) -> RowAdapters {
        let mut found = RowAdapters::default();
        if self.parts.len() < 2 {
            return match self.parts.first() {
                None => found,
                Some((_, adapters)) => {
                    found.push(rows.count(), adapters.as_ref());
                    found
                }
            };
        }
        for row in rows {
            let at = self.parts.partition_point(|(range, _)| range.end <= row);
            found.push(1, self.parts.get(at).and_then(|(_, adapters)| adapters.as_ref()));
        }
        found
    }

    /// The groups of `rows` rows, with the layer's adapters that count for each.
    pub(crate) fn groups<'a>(
        &'a self,
        layer: &'a LayerAdapters,
        rows: usize,
    ) -> impl Iterator<Item = (Range<usize>, &'a [LowRank])> {
        let covered = self.parts.last().map_or(rows, |(range, _)| range.end);
        debug_assert_eq!(covered, rows, "rows whose adapters are known");
        let own = self.parts.is_empty().then_some((0..rows, layer.own.as_slice()));
        let each = self.parts.iter().map(|(range, adapters)| {
            let adapters = match adapters {
                None => &layer.own,
                Some(adapters) => &adapters.0[layer.place],
            };
            (range.clone(), adapters.as_slice())
        });
        own.into_iter().chain(each)
    }

    /// Adds what the adapters of layers that read the same `x` give to their outputs.
    pub(crate) fn add<'a>(
        &'a self,
        x: &'a [f32],
        inputs: usize,
        layers: impl Iterator<Item = (&'a LayerAdapters, &'a mut [f32])>,
    ) {
        let rows = x.len() / inputs;
        let mut tasks: Vec<Task<'a>> = Vec::new();
        for (layer, mut rest) in layers {
            let outputs = rest.len() / rows.max(1);
            for (range, adapters) in self.groups(layer, rows) {
                let (out, behind) = rest.split_at_mut(range.len() * outputs);
                rest = behind;
                if !adapters.is_empty() {
                    tasks.push(Task { adapters, x: &x[range.start * inputs..range.end * inputs], out });
                }
            }
        }
        // Few tasks have their threads inside, many are one thread's each.
        if tasks.len() < threads() {
            return tasks.iter_mut().for_each(Task::run);
        }
        let tasks: Vec<Mutex<Task<'a>>> = tasks.into_iter().map(Mutex::new).collect();
        parallel(tasks.len(), |index| tasks[index].lock().unwrap_or_else(PoisonError::into_inner).run());
    }
}

impl Task<'_> {
    fn run(&mut self) {
        self.adapters.iter().for_each(|adapter| adapter.add(self.x, self.out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_grouped_by_what_counts_for_them() {
        let adapters = |count: usize| Adapters::new(vec![Vec::new(); count]);
        let (a, b) = (adapters(1), adapters(1));
        let mut rows = RowAdapters::default();
        for (count, own) in [(2, None), (1, Some(&a)), (3, Some(&a)), (1, Some(&b)), (1, None)] {
            rows.push(count, own);
        }
        let ranges = |rows: &RowAdapters| rows.parts.iter().map(|(range, _)| range.clone()).collect::<Vec<_>>();
        assert_eq!(ranges(&rows), [0..2, 2..6, 6..7, 7..8]);
        assert!(!rows.are_own() && RowAdapters::OWN.are_own());
        // Rows 5, 2, 6, 0, 7, 0.
        let some = rows.of([5, 2, 6, 0, 7, 0].into_iter());
        assert_eq!(ranges(&some), [0..2, 2..3, 3..6]);
        assert!(some.parts[0].1.as_ref().is_some_and(|own| own.is_same(&a)) && some.parts[2].1.is_none());
        assert_eq!(ranges(&RowAdapters::OWN.of([3, 1].into_iter())), []);
        let layer = LayerAdapters::default();
        assert!(RowAdapters::OWN.groups(&layer, 4).map(|(range, _)| range).eq(std::iter::once(0..4)));
        assert_eq!(rows.groups(&layer, 8).count(), 4);
    }
}
