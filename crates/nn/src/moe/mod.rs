//! Mixtures of experts: each token goes through the few experts that its router chose, and only those are computed.
//!
//! The choices of a packed batch are grouped by expert, so that each expert's matrices are read once a step. What an
//! expert gives for a token does not depend on the group, and a token's experts are added up in the order of their
//! numbers: its answer does not depend on the company.

mod backward;
mod balance;
mod router;
mod unit;

pub use balance::Balance;

use crate::linear::Linear;
use crate::observer::{Observer, offer};
use crate::row_adapters::RowAdapters;
use crate::site::{BranchPart, Site};
use crate::spec::Moe;
use std::ops::Range;
use std::sync::Arc;
use unit::sigmoid;

#[derive(Debug, Clone)]
pub struct MoeLayer {
    pub spec: Moe,
    pub router: Linear,
    /// Added to the scores for the choice alone, [E].
    pub correction: Option<Arc<[f32]>>,
    pub experts: Vec<Expert>,
    pub shared: Option<SharedLayer>,
}

/// One expert's projections.
#[derive(Debug, Clone)]
pub struct Expert {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

/// The part that every token goes through.
#[derive(Debug, Clone)]
pub struct SharedLayer {
    pub expert: Expert,
    /// To the number whose sigmoid multiplies it.
    pub gate: Option<Linear>,
}

/// The choices of a batch, by expert and then by token. A choice is `token * k + place`.
struct Groups {
    choices: Vec<usize>,
    /// Where in `choices` each expert's are.
    ranges: Vec<Range<usize>>,
}

impl Groups {
    fn new(chosen: &[usize], experts: usize) -> Groups {
        let mut choices: Vec<usize> = (0..chosen.len()).collect();
        choices.sort_by_key(|choice| chosen[*choice]);
        let mut start = 0;
        let range = |expert| {
            let end = choices.partition_point(|choice| chosen[*choice] <= expert);
            std::mem::replace(&mut start, end)..end
        };
        Groups { ranges: (0..experts).map(range).collect(), choices }
    }

    /// The adapters of each expert's rows, of those of the tokens, which have `k` choices each.
    fn adapters(&self, rows: &RowAdapters, k: usize) -> Vec<RowAdapters> {
        let own = |range: &Range<usize>| rows.of(self.choices[range.clone()].iter().map(|choice| choice / k));
        self.ranges.iter().map(own).collect()
    }
}

impl MoeLayer {
    /// `x` [N, D] to [N, D].
    pub fn forward<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        rows: &RowAdapters,
        site: impl Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let (width, k) = (self.router.in_features(), self.spec.chosen);
        let (chosen, weights) = self.route(x, rows, &site, observer);
        let groups = Groups::new(&chosen, self.spec.experts);
        let grouped = groups.adapters(rows, k);
        let input = gather(x, width, groups.choices.iter().map(|choice| choice / k));
        let shape = [groups.choices.len(), self.spec.hidden];
        let mut up = self.each((&groups, &grouped), &input, |expert| &expert.up);
        offer(observer, site(BranchPart::Up), &mut up, &shape);
        let mut hidden = self.each((&groups, &grouped), &input, |expert| &expert.gate);
        offer(observer, site(BranchPart::Gate), &mut hidden, &shape);
        self.spec.unit.apply(&mut hidden, &up);
        offer(observer, site(BranchPart::Hidden), &mut hidden, &shape);
        let mut given = self.each((&groups, &grouped), &hidden, |expert| &expert.down);
        offer(observer, site(BranchPart::ExpertOut), &mut given, &[groups.choices.len(), width]);
        let mut out = vec![0.0; x.len()];
        for (choice, given) in groups.choices.iter().zip(given.chunks_exact(width)) {
            add_weighted(&mut out[choice / k * width..][..width], given, weights[*choice]);
        }
        if let Some(shared) = &self.shared {
            self.add_shared(shared, (x, rows), &mut out, &site, observer);
        }
        out
    }

    /// The experts of each token and their weights, both [N, k].
    fn route<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        rows: &RowAdapters,
        site: &impl Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> (Vec<usize>, Vec<f32>) {
        let mut logits = self.router.forward(x, rows);
        let rows = logits.len() / self.spec.experts;
        let (all, few) = ([rows, self.spec.experts], [rows, self.spec.chosen]);
        offer(observer, site(BranchPart::RouterLogits), &mut logits, &all);
        let mut scores = router::scores(&self.spec, &logits);
        offer(observer, site(BranchPart::RouterScores), &mut scores, &all);
        let mut chosen = router::choose(&self.spec, &scores, self.correction.as_deref());
        if observer.active() && observer.wants(site(BranchPart::Experts)) {
            let mut numbers: Vec<f32> = chosen.iter().map(|expert| *expert as f32).collect();
            observer.visit(site(BranchPart::Experts), &mut numbers, &few);
            chosen = self.experts_of(&numbers);
        }
        let mut weights = router::weights(&self.spec, &scores, &chosen);
        offer(observer, site(BranchPart::ExpertWeights), &mut weights, &few);
        (chosen, weights)
    }

    /// The experts that numbers at a site mean: whoever watches may have changed them.
    fn experts_of(&self, numbers: &[f32]) -> Vec<usize> {
        numbers.iter().map(|number| (*number as usize).min(self.spec.experts - 1)).collect()
    }

    /// One projection of every expert over the rows of its group.
    fn each(
        &self,
        (groups, adapters): (&Groups, &[RowAdapters]),
        x: &[f32],
        projection: impl Fn(&Expert) -> &Linear,
    ) -> Vec<f32> {
        // As large as it will be: a list that grows takes more than its length says.
        let outputs = self.experts.first().map_or(0, |expert| projection(expert).out_features());
        let mut out = Vec::with_capacity(groups.choices.len() * outputs);
        let each = self.experts.iter().zip(&groups.ranges).zip(adapters);
        for ((expert, range), adapters) in each.filter(|((_, range), _)| !range.is_empty()) {
            let linear = projection(expert);
            let width = linear.in_features();
            out.extend(linear.forward(&x[range.start * width..range.end * width], adapters));
        }
        out
    }

    fn add_shared<O: Observer + ?Sized>(
        &self,
        shared: &SharedLayer,
        (x, rows): (&[f32], &RowAdapters),
        out: &mut [f32],
        site: &impl Fn(BranchPart) -> Site,
        observer: &mut O,
    ) {
        let width = self.router.in_features();
        let shape = [x.len() / width, shared.expert.up.out_features()];
        let mut up = shared.expert.up.forward(x, rows);
        offer(observer, site(BranchPart::SharedUp), &mut up, &shape);
        let mut hidden = shared.expert.gate.forward(x, rows);
        offer(observer, site(BranchPart::SharedGate), &mut hidden, &shape);
        self.spec.unit.apply(&mut hidden, &up);
        offer(observer, site(BranchPart::SharedHidden), &mut hidden, &shape);
        let mut given = shared.expert.down.forward(&hidden, rows);
        offer(observer, site(BranchPart::SharedOut), &mut given, &[shape[0], width]);
        let scale = shared.gate.as_ref().map(|gate| {
            let mut scale = gate.forward(x, rows);
            offer(observer, site(BranchPart::SharedScale), &mut scale, &[shape[0], 1]);
            scale
        });
        for (row, (out, given)) in out.chunks_exact_mut(width).zip(given.chunks_exact(width)).enumerate() {
            add_weighted(out, given, scale.as_ref().map_or(1.0, |scale| sigmoid(scale[row])));
        }
    }
}

/// Rows of `x` [_, width], in this order.
fn gather(x: &[f32], width: usize, rows: impl ExactSizeIterator<Item = usize>) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows.len() * width);
    rows.for_each(|row| out.extend_from_slice(&x[row * width..(row + 1) * width]));
    out
}

/// `out += weight * x`
fn add_weighted(out: &mut [f32], x: &[f32], weight: f32) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out += weight * x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_grouped_by_expert_and_then_by_token() {
        // Three tokens with two choices each; nobody chose the first, the fourth and the last of six experts.
        let groups = Groups::new(&[4, 1, 2, 4, 1, 4], 6);
        assert_eq!(groups.choices, [1, 4, 2, 0, 3, 5]);
        assert_eq!(groups.ranges, [0..0, 0..2, 2..3, 3..3, 3..6, 6..6]);
        let nothing = Groups::new(&[], 2);
        assert_eq!((nothing.choices, nothing.ranges), (vec![], vec![0..0, 0..0]));
    }
}
