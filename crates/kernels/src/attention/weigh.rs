//! From products of queries and keys to weights: scale, cap, bias and mask, then the exponential.

use super::cut::{CUT, Place, Span};
use super::state::Found;
use super::{Bias, Inputs, Scores};
use crate::arch::Arch;
use crate::vecmath::{exp2, fma, tanh};
use std::f32::consts::LOG2_E;
use std::ops::Range;

/// How a product becomes a score in units of ln 2: the scale is in the queries already, a bias may come before the cap
/// or after it, and the factors of the other units are in the numbers here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Factors {
    /// What queries are multiplied by.
    pub query: f32,
    /// What the bias is multiplied by where it is added before the cap.
    before: Option<f32>,
    /// What follows the hyperbolic tangent.
    cap: Option<f32>,
    /// What the bias is multiplied by where it is added after the cap.
    after: Option<f32>,
}

impl Factors {
    pub fn of(scores: &Scores) -> Factors {
        let scale = scores.scale;
        match scores.soft_cap {
            None => {
                let bias = if scores.bias_scaled { scale } else { 1.0 };
                Factors { query: scale * LOG2_E, before: Some(bias * LOG2_E), cap: None, after: None }
            }
            Some(cap) => Factors {
                query: scale / cap,
                before: scores.bias_scaled.then_some(scale / cap),
                cap: Some(cap * LOG2_E),
                after: (!scores.bias_scaled).then_some(LOG2_E),
            },
        }
    }

    #[inline(always)]
    fn apply<A: Arch>(&self, scores: &mut [f32], bias: Option<&[f32]>) {
        if let (Some(bias), Some(factor)) = (bias, self.before) {
            scores.iter_mut().zip(bias).for_each(|(x, &bias)| *x = fma::<A>(bias, factor, *x));
        }
        if let Some(cap) = self.cap {
            scores.iter_mut().for_each(|x| *x = cap * tanh::<A>(*x));
        }
        if let (Some(bias), Some(factor)) = (bias, self.after) {
            scores.iter_mut().zip(bias).for_each(|(x, &bias)| *x = fma::<A>(bias, factor, *x));
        }
    }
}

/// Turns the products of a block of rows with a cut's keys into weights, 0 where a key is forbidden, and notes each
/// row's maximum and sum. Rows without keys are left alone.
#[inline(always)]
pub(super) fn weigh<A: Arch>(
    inputs: &Inputs,
    factors: &Factors,
    place: &Place,
    (cut, rows): (usize, Range<usize>),
    spans: &[Span],
    scores: &mut [[f32; CUT]],
    found: &mut Found,
) {
    let maxima = &mut found.max[rows.clone()];
    for (i, (scores, span)) in scores.iter_mut().zip(spans).enumerate() {
        if span.is_empty() {
            continue;
        }
        if *span != Span::WHOLE {
            scores[..span.range().start].fill(f32::NEG_INFINITY);
            scores[span.range().end..].fill(f32::NEG_INFINITY);
        }
        if !matches!(inputs.scores.bias, Bias::None) || factors.cap.is_some() {
            let (token, head) = place.token_and_head(rows.start + i);
            let keys = cut * CUT + span.range().start..cut * CUT + span.range().end;
            let mut gathered = [0.0; CUT];
            let bias = inputs.scores.bias.row((head, token, inputs.first_query + token), keys, &mut gathered);
            factors.apply::<A>(&mut scores[span.range()], bias);
        }
        maxima[i] = highest::<A>(scores);
    }
    let sums = &mut found.sum[rows];
    for (i, (scores, span)) in scores.iter_mut().zip(spans).enumerate() {
        if span.is_empty() {
            continue;
        }
        if maxima[i] == f32::NEG_INFINITY {
            if !scores.iter().any(|x| x.is_nan()) {
                scores.fill(0.0);
                continue;
            }
            // Nothing but NaN: let it through to the output.
            maxima[i] = 0.0;
        }
        sums[i] = exponentials::<A>(scores, maxima[i]);
    }
}

/// The largest of the scores that are numbers.
#[inline(always)]
fn highest<A: Arch>(scores: &[f32; CUT]) -> f32 {
    let mut top = A::splat(f32::NEG_INFINITY);
    for x in scores.chunks_exact(A::LANES) {
        top = A::larger(A::load(x), top);
    }
    A::highest(top)
}

/// Turns scores into weights and returns their sum, which adds in lanes by position.
#[inline(always)]
fn exponentials<A: Arch>(scores: &mut [f32; CUT], max: f32) -> f32 {
    let (max, mut sum) = (A::splat(max), A::splat(0.0));
    for x in scores.chunks_exact_mut(A::LANES) {
        let weight = exp2::<A>(A::sub(A::load(x), max));
        sum = A::add(sum, weight);
        A::store(weight, x);
    }
    A::sum(sum)
}
