//! The router: which experts each token goes to, and with what weights; and its gradient.

use crate::spec::{ExpertGroups, GroupRank, Moe, RouterScores};
use attend_kernels::{Activation, softmax};

/// What keeps the sum of sigmoids from being zero.
const TINY: f32 = 1e-20;

/// What the choice is made by, from logits [N, E].
pub(super) fn scores(moe: &Moe, logits: &[f32]) -> Vec<f32> {
    let mut scores = logits.to_vec();
    match moe.router.scores {
        RouterScores::Softmax { .. } => scores.chunks_exact_mut(moe.experts).for_each(softmax),
        RouterScores::ChosenSoftmax => {}
        RouterScores::Sigmoid { .. } => Activation::Sigmoid.apply_slice(&mut scores),
    }
    scores
}

/// The experts of each token, the best first, [N, k]; of equals the first.
pub(super) fn choose(moe: &Moe, scores: &[f32], correction: Option<&[f32]>) -> Vec<usize> {
    let mut chosen = Vec::with_capacity(scores.len() / moe.experts * moe.chosen);
    let mut row = vec![0.0; moe.experts];
    for scores in scores.chunks_exact(moe.experts) {
        row.copy_from_slice(scores);
        if let Some(correction) = correction {
            row.iter_mut().zip(correction).for_each(|(score, correction)| *score += correction);
        }
        if let Some(groups) = &moe.router.groups {
            close_groups(&mut row, groups);
        }
        chosen.extend(largest(&row, moe.chosen));
    }
    chosen
}

/// The indices of the `count` largest, the largest first. A total order, so that a NaN is one of the largest and shows.
fn largest(row: &[f32], count: usize) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::with_capacity(count);
    for _ in 0..count.min(row.len()) {
        let free = (0..row.len()).filter(|index| !taken.contains(index));
        taken.extend(free.reduce(|best, index| if row[index].total_cmp(&row[best]).is_gt() { index } else { best }));
    }
    taken
}

/// Takes the experts of all but the best groups out of the choice.
fn close_groups(row: &mut [f32], groups: &ExpertGroups) {
    let size = row.len() / groups.count;
    let rank = |group: &[f32]| {
        let best = match groups.rank {
            GroupRank::Best => 1,
            GroupRank::BestTwo => 2,
        };
        largest(group, best).into_iter().map(|index| group[index]).sum::<f32>()
    };
    let ranks: Vec<f32> = row.chunks_exact(size).map(rank).collect();
    let open = largest(&ranks, groups.chosen);
    for (index, group) in row.chunks_exact_mut(size).enumerate() {
        if !open.contains(&index) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// The weights of the chosen, [N, k].
pub(super) fn weights(moe: &Moe, scores: &[f32], chosen: &[usize]) -> Vec<f32> {
    let mut weights = Vec::with_capacity(chosen.len());
    for (scores, chosen) in scores.chunks_exact(moe.experts).zip(chosen.chunks_exact(moe.chosen)) {
        let start = weights.len();
        weights.extend(chosen.iter().map(|&expert| scores[expert]));
        let row = &mut weights[start..];
        match moe.router.scores {
            RouterScores::ChosenSoftmax => softmax(row),
            RouterScores::Softmax { .. } | RouterScores::Sigmoid { .. } => {
                let sum = sum(moe, row);
                row.iter_mut().for_each(|weight| *weight /= sum);
            }
        }
        row.iter_mut().for_each(|weight| *weight *= moe.router.scale);
    }
    weights
}

/// What the chosen scores are divided by.
fn sum(moe: &Moe, chosen: &[f32]) -> f32 {
    match moe.router.scores {
        RouterScores::Softmax { renormalize: true } => chosen.iter().sum(),
        RouterScores::Sigmoid { renormalize: true, .. } => chosen.iter().sum::<f32>() + TINY,
        RouterScores::Softmax { renormalize: false }
        | RouterScores::Sigmoid { renormalize: false, .. }
        | RouterScores::ChosenSoftmax => 1.0,
    }
}

/// From the gradient of the weights [N, k] to that of the logits [N, E]. The choice itself has none.
pub(super) fn backward(moe: &Moe, scores: &[f32], chosen: &[usize], dweights: &[f32]) -> Vec<f32> {
    let mut dlogits = vec![0.0; scores.len()];
    let rows = scores.chunks_exact(moe.experts).zip(chosen.chunks_exact(moe.chosen));
    let slots = dweights.chunks_exact(moe.chosen).zip(dlogits.chunks_exact_mut(moe.experts));
    for ((scores, chosen), (dweights, dlogits)) in rows.zip(slots) {
        let of_chosen: Vec<f32> = chosen.iter().map(|&expert| scores[expert]).collect();
        let scaled: Vec<f32> = dweights.iter().map(|d| d * moe.router.scale).collect();
        for (expert, d) in chosen.iter().zip(before_division(moe, &of_chosen, &scaled)) {
            dlogits[*expert] = d;
        }
        match moe.router.scores {
            RouterScores::ChosenSoftmax => {}
            RouterScores::Softmax { .. } => {
                let dot: f32 = dlogits.iter().zip(scores).map(|(d, score)| d * score).sum();
                dlogits.iter_mut().zip(scores).for_each(|(d, score)| *d = score * (*d - dot));
            }
            RouterScores::Sigmoid { .. } => {
                dlogits.iter_mut().zip(scores).for_each(|(d, score)| *d *= score * (1.0 - score));
            }
        }
    }
    dlogits
}

/// From the gradient of a token's weights, before their scale, to that of its chosen scores.
fn before_division(moe: &Moe, chosen: &[f32], d: &[f32]) -> Vec<f32> {
    let dot = |weights: &[f32]| d.iter().zip(weights).map(|(d, weight)| d * weight).sum::<f32>();
    match moe.router.scores {
        RouterScores::ChosenSoftmax => {
            let mut weights = chosen.to_vec();
            softmax(&mut weights);
            let dot = dot(&weights);
            weights.iter().zip(d).map(|(weight, d)| weight * (d - dot)).collect()
        }
        RouterScores::Softmax { renormalize: true } | RouterScores::Sigmoid { renormalize: true, .. } => {
            let sum = sum(moe, chosen);
            let dot = dot(chosen) / sum;
            d.iter().map(|d| (d - dot) / sum).collect()
        }
        RouterScores::Softmax { renormalize: false } | RouterScores::Sigmoid { renormalize: false, .. } => d.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{GatedUnit, Router};

    fn moe(scores: RouterScores, groups: Option<ExpertGroups>) -> Moe {
        let router = Router { scores, bias: false, groups, scale: 2.0, balance: None };
        let unit = GatedUnit::Product(Activation::Silu);
        Moe { experts: 4, chosen: 2, router, hidden: 1, unit, bias: false, shared: None }
    }

    #[test]
    fn the_best_are_chosen_and_of_equals_the_first() {
        let plain = moe(RouterScores::Softmax { renormalize: false }, None);
        assert_eq!(choose(&plain, &[0.1, 0.4, 0.1, 0.4], None), [1, 3]);
        assert_eq!(choose(&plain, &[0.25; 4], None), [0, 1]);
        assert_eq!(choose(&plain, &[0.1, 0.4, 0.2, 0.3], Some(&[0.5, 0.0, 0.0, 0.0])), [0, 1]);
    }

    #[test]
    fn groups_are_judged_by_their_best_or_their_best_two() {
        let with = |rank| moe(RouterScores::ChosenSoftmax, Some(ExpertGroups { count: 2, chosen: 1, rank }));
        let scores = [0.9, 0.0, 0.6, 0.5];
        assert_eq!(choose(&with(GroupRank::Best), &scores, None), [0, 1]);
        assert_eq!(choose(&with(GroupRank::BestTwo), &scores, None), [2, 3]);
    }

    #[test]
    fn weights_follow_the_order_of_softmax_and_choice() {
        let scores = [0.1, 0.2, 0.3, 0.4];
        assert_eq!(weights(&moe(RouterScores::Softmax { renormalize: false }, None), &scores, &[3, 2]), [0.8, 0.6]);
        let shared = weights(&moe(RouterScores::Softmax { renormalize: true }, None), &scores, &[3, 2]);
        assert!((shared[0] - 8.0 / 7.0).abs() < 1e-6 && (shared[1] - 6.0 / 7.0).abs() < 1e-6, "{shared:?}");
        let late = weights(&moe(RouterScores::ChosenSoftmax, None), &scores, &[3, 2]);
        let first = 2.0 / (1.0 + (-0.1f32).exp());
        assert!((late[0] - first).abs() < 1e-6 && (late[0] + late[1] - 2.0).abs() < 1e-6, "{late:?}");
    }
}
