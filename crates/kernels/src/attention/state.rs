//! What keys come to, for each row of a tile: the largest score, the sum of the weights, and the values mixed with them;
//! and how two such runs of keys become one.
//!
//! Scores are in units of ln 2: a weight is `2^(score - max)`.

use super::Inputs;
use super::cut::PAD;
use crate::aligned::Floats;
use crate::arch::Arch;
use crate::vecmath::{exp, exp2, fma};
use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

/// What a cut has come to beside its mix. Lists have whole vectors.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// `-inf` in a row that has seen no allowed key.
    pub max: Floats,
    pub sum: Floats,
}

impl Found {
    pub fn reserve(&mut self, rows: usize) {
        self.max.reserve(rows.next_multiple_of(PAD));
        self.sum.reserve(rows.next_multiple_of(PAD));
    }

    #[inline(always)]
    pub fn clear(&mut self, rows: usize) {
        self.max[..rows.next_multiple_of(PAD)].fill(f32::NEG_INFINITY);
        self.sum[..rows.next_multiple_of(PAD)].fill(0.0);
    }
}

/// The cuts so far.
#[derive(Debug, Default)]
pub(super) struct State {
    found: Found,
    /// `[rows, stride]`
    pub mix: Floats,
    stride: usize,
}

/// One cut's result, kept for a merge: a part of a list of [`Reduced::len`] numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reduced<T> {
    pub mix: T,
    pub max: T,
    pub sum: T,
}

impl Reduced<()> {
    /// Numbers that a result of `rows` rows takes.
    pub fn len(rows: usize, stride: usize) -> usize {
        rows.saturating_mul(stride).saturating_add(2 * rows.next_multiple_of(PAD))
    }
}

impl<'a> Reduced<&'a [f32]> {
    pub fn of(list: &'a [f32], rows: usize, stride: usize) -> Self {
        let (mix, rest) = list.split_at(rows * stride);
        let (max, sum) = rest.split_at(rows.next_multiple_of(PAD));
        Reduced { mix, max, sum }
    }
}

impl<'a> Reduced<&'a mut [f32]> {
    pub fn of_mut(list: &'a mut [f32], rows: usize, stride: usize) -> Self {
        let (mix, rest) = list.split_at_mut(rows * stride);
        let (max, sum) = rest.split_at_mut(rows.next_multiple_of(PAD));
        Reduced { mix, max, sum }
    }
}

impl State {
    /// Bytes of the lists for `rows` rows of values of `value_dim`.
    pub fn bytes_for(rows: usize, value_dim: usize) -> usize {
        Reduced::len(rows, value_dim.next_multiple_of(PAD)).saturating_mul(size_of::<f32>())
    }

    /// Turns to `rows` rows that have seen no key.
    pub fn clear(&mut self, rows: usize, stride: usize) {
        self.found.reserve(rows);
        self.found.clear(rows);
        self.mix.reserve(rows * stride);
        self.mix[..rows * stride].fill(0.0);
        self.stride = stride;
    }

    /// Takes in a cut's maxima and sums for a range of rows (whole vectors): what the mixes so far and the cut's are to
    /// be multiplied by are written to `old` and `new`.
    #[inline(always)]
    pub fn factors<A: Arch>(&mut self, max: &[f32], sum: &[f32], rows: Range<usize>, old: &mut [f32], new: &mut [f32]) {
        let lowest = A::splat(f32::MIN);
        for row in rows.step_by(A::LANES) {
            let (so_far, next) = (A::load(&self.found.max[row..]), A::load(&max[row..]));
            let top = A::larger(next, so_far);
            // Of two rows without keys, both factors are 0.
            let base = A::larger(lowest, top);
            let (by_old, by_new) = (exp2::<A>(A::sub(so_far, base)), exp2::<A>(A::sub(next, base)));
            let next_sum = A::mul(A::load(&sum[row..]), by_new);
            A::store(A::multiply_add(A::load(&self.found.sum[row..]), by_old, next_sum), &mut self.found.sum[row..]);
            A::store(top, &mut self.found.max[row..]);
            A::store(by_old, &mut old[row..]);
            A::store(by_new, &mut new[row..]);
        }
    }

    /// Takes in a cut that was kept.
    #[inline(always)]
    pub fn merge<A: Arch>(&mut self, next: Reduced<&[f32]>, old: &mut [f32], new: &mut [f32]) {
        self.factors::<A>(next.max, next.sum, 0..next.max.len(), old, new);
        let rows = self.mix.chunks_exact_mut(self.stride).zip(next.mix.chunks_exact(self.stride));
        for (row, (mix, next_mix)) in rows.enumerate() {
            if next.max[row] == f32::NEG_INFINITY {
                continue;
            }
            let (old, new) = (A::splat(old[row]), A::splat(new[row]));
            for (mix, next) in mix.chunks_exact_mut(A::LANES).zip(next_mix.chunks_exact(A::LANES)) {
                A::store(A::multiply_add(A::load(mix), old, A::mul(A::load(next), new)), mix);
            }
        }
    }

    /// What a row's mix is to be multiplied by at the end, the sink taking its share; 0 for a row without keys.
    #[inline(always)]
    fn factor<A: Arch>(&self, row: usize, sink: Option<f32>) -> f32 {
        let (max, sum) = (self.found.max[row], self.found.sum[row]);
        if max == f32::NEG_INFINITY {
            return 0.0;
        }
        match sink {
            None => 1.0 / sum,
            Some(sink) => {
                let sink = sink * LOG2_E;
                let top = if sink > max { sink } else { max };
                let own = exp::<A>((max - top) * LN_2);
                own / fma::<A>(sum, own, exp::<A>((sink - top) * LN_2))
            }
        }
    }

    /// Writes the rows of a tile to the call's output.
    #[inline(always)]
    pub fn finish<A: Arch>(&self, inputs: &Inputs, kv_head: usize, tokens: Range<usize>, out: &mut [f32]) {
        let (shape, group) = (inputs.shape, inputs.shape.group());
        let mut mixes = self.mix.chunks_exact(self.stride).enumerate();
        for token in tokens {
            for head in kv_head * group..(kv_head + 1) * group {
                let Some((row, mix)) = mixes.next() else { return };
                let factor = self.factor::<A>(row, inputs.scores.sinks.map(|sinks| sinks[head]));
                let out = &mut out[(token * shape.heads + head) * shape.value_dim..][..shape.value_dim];
                for (out, &sum) in out.iter_mut().zip(mix) {
                    *out = sum * factor;
                }
            }
        }
    }
}
