//! One cut of keys for one tile of rows: scores, weights, and the mix of values.

use super::kv::Side;
use super::{Heads, Inputs};
use crate::aligned::Floats;
use crate::arch::{Arch, Tile};
use crate::vecmath::{exp, fma, tanh};
use std::ops::Range;

/// Keys in a cut; cuts start at its multiples of absolute position. Changing it changes bits.
pub(super) const CUT: usize = 64;
/// Widths are filled up with zeros to a multiple of this, so that vectors of every length divide them.
const PAD: usize = 16;

/// What a run of keys comes to, for each row of a tile: the largest score, the sum of `exp(score - max)`, and the
/// values mixed with these weights.
#[derive(Debug, Clone, Default)]
pub(super) struct Reduced {
    /// `-inf` in a row that has seen no allowed key yet.
    pub max: Vec<f32>,
    pub sum: Vec<f32>,
    /// `[rows, stride]`
    mix: Floats,
    pub stride: usize,
}

impl Reduced {
    pub fn empty(rows: usize, stride: usize) -> Reduced {
        let mut reduced = Reduced::default();
        reduced.clear(rows, stride);
        reduced
    }

    /// Bytes of the lists for `rows` rows of values of `value_dim`.
    pub fn bytes_for(rows: usize, value_dim: usize) -> usize {
        rows.saturating_mul(2 + value_dim.next_multiple_of(PAD)).saturating_mul(size_of::<f32>())
    }

    fn clear(&mut self, rows: usize, stride: usize) {
        self.stride = stride;
        for (list, value) in [(&mut self.max, f32::NEG_INFINITY), (&mut self.sum, 0.0)] {
            list.clear();
            list.resize(rows, value);
        }
        self.mix.reserve(rows * stride);
        self.mix[..rows * stride].fill(0.0);
    }

    /// One row's values, `[stride]`.
    pub fn mix(&self, row: usize) -> &[f32] {
        &self.mix[row * self.stride..(row + 1) * self.stride]
    }

    /// Takes in the keys that follow.
    #[inline(always)]
    pub fn merge<A: Arch>(&mut self, next: &Reduced) {
        for row in 0..self.max.len() {
            if next.max[row] == f32::NEG_INFINITY {
                continue;
            }
            let max = if next.max[row] > self.max[row] { next.max[row] } else { self.max[row] };
            let (old, new) = (exp::<A>(self.max[row] - max), exp::<A>(next.max[row] - max));
            self.max[row] = max;
            self.sum[row] = fma::<A>(self.sum[row], old, next.sum[row] * new);
            let range = row * self.stride..(row + 1) * self.stride;
            for (mix, &next) in self.mix[range.clone()].iter_mut().zip(&next.mix[range]) {
                *mix = fma::<A>(*mix, old, next * new);
            }
        }
    }

    /// What a row's mix is to be multiplied by at the end; 0 for a row without keys.
    #[inline(always)]
    pub fn factor<A: Arch>(&self, row: usize, sink: Option<f32>) -> f32 {
        let (max, sum) = (self.max[row], self.sum[row]);
        if max == f32::NEG_INFINITY {
            return 0.0;
        }
        match sink {
            None => 1.0 / sum,
            Some(sink) => {
                let top = if sink > max { sink } else { max };
                let own = exp::<A>(max - top);
                own / fma::<A>(sum, own, exp::<A>(sink - top))
            }
        }
    }
}

/// A thread's buffers: one cut of keys and values widened, the scores of a tile, and their reduction.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    kv_head: usize,
    /// Rows of the call; row `(token, g)` of the tile is `(token - tokens.start) * group + g`.
    tokens: Range<usize>,
    group: usize,
    /// `[CUT, key stride]`, as read.
    key_rows: Floats,
    /// `[key stride, CUT]`: a vector holds neighbouring keys.
    keys: Floats,
    /// `[CUT, value stride]`
    values: Floats,
    key_stride: usize,
    value_stride: usize,
    /// `[rows, CUT]`; scores, then weights.
    scores: Floats,
    pub reduced: Reduced,
}

impl Scratch {
    /// Bytes of the buffers for tiles of `rows` rows.
    pub fn bytes_for(shape: &Heads, rows: usize) -> usize {
        let (key, value) = (shape.key_dim.next_multiple_of(PAD), shape.value_dim.next_multiple_of(PAD));
        let lists = CUT.saturating_mul(2 * key + value).saturating_add(rows.saturating_mul(CUT));
        lists.saturating_mul(size_of::<f32>()).saturating_add(Reduced::bytes_for(rows, shape.value_dim))
    }

    pub fn prepare(&mut self, inputs: &Inputs, kv_head: usize, tokens: Range<usize>) {
        self.kv_head = kv_head;
        self.tokens = tokens;
        self.group = inputs.shape.group();
        self.key_stride = inputs.shape.key_dim.next_multiple_of(PAD);
        self.value_stride = inputs.shape.value_dim.next_multiple_of(PAD);
        // What an earlier tile left may stay: vectors cover it, but nobody reads what comes of it.
        for (list, len) in [
            (&mut self.key_rows, CUT * self.key_stride),
            (&mut self.keys, CUT * self.key_stride),
            (&mut self.values, CUT * self.value_stride),
            (&mut self.scores, self.tokens.len() * self.group * CUT),
        ] {
            list.reserve(len);
        }
    }

    pub fn rows(&self) -> usize {
        self.tokens.len() * self.group
    }

    pub fn value_stride(&self) -> usize {
        self.value_stride
    }

    /// The query of a row of the tile, `[key_dim]`.
    #[inline(always)]
    fn query<'a>(&self, inputs: &Inputs<'_, 'a>, row: usize) -> &'a [f32] {
        let index =
            (self.tokens.start + row / self.group) * inputs.shape.heads + self.kv_head * self.group + row % self.group;
        let start = index * inputs.shape.key_dim;
        &inputs.query[start..start + inputs.shape.key_dim]
    }

    /// The keys of a cut that a row of the tile may see, counted from the cut's start.
    #[inline(always)]
    fn allowed(&self, inputs: &Inputs, row: usize, cut: usize) -> Range<usize> {
        within(inputs.range(self.tokens.start + row / self.group), cut)
    }
}

/// The part of a range of absolute keys that lies in a cut, counted from the cut's start.
#[inline(always)]
fn within(range: Range<usize>, cut: usize) -> Range<usize> {
    let base = cut * CUT;
    let start = range.start.clamp(base, base + CUT) - base;
    let end = range.end.clamp(base, base + CUT) - base;
    start..end.max(start)
}

/// Reduces one cut for all rows of the tile that `scratch` was prepared for, into `scratch.reduced`.
#[inline(always)]
pub(super) fn reduce_cut<A: Arch>(inputs: &Inputs, scratch: &mut Scratch, cut: usize) {
    scratch.reduced.clear(scratch.rows(), scratch.value_stride);
    let rows = scratch.rows();
    let span = (0..rows).step_by(scratch.group).map(|row| scratch.allowed(inputs, row, cut)).filter(|r| !r.is_empty());
    let Some(span) = span.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) else { return };
    load::<A>(inputs, scratch, cut, span.clone());
    let mut row = 0;
    while row < rows {
        row += match (rows - row, A::TILE) {
            (1, _) => scores::<A, 1, 4>(inputs, scratch, row, &span),
            (2, _) => scores::<A, 2, 4>(inputs, scratch, row, &span),
            (3, Tile::SixByFour) => scores::<A, 3, 4>(inputs, scratch, row, &span),
            (3, Tile::FourByTwo | Tile::SixByTwo) => scores::<A, 3, 2>(inputs, scratch, row, &span),
            (4 | 5, Tile::SixByFour) => scores::<A, 4, 4>(inputs, scratch, row, &span),
            (_, Tile::SixByFour) => scores::<A, 6, 4>(inputs, scratch, row, &span),
            (6.., Tile::SixByTwo) => scores::<A, 6, 2>(inputs, scratch, row, &span),
            (_, Tile::FourByTwo | Tile::SixByTwo) => scores::<A, 4, 2>(inputs, scratch, row, &span),
        };
    }
    for row in 0..rows {
        weigh::<A>(inputs, scratch, row, cut);
    }
    let mut row = 0;
    while row < rows {
        row += match (rows - row, A::TILE) {
            (1, _) => mix_rows::<A, 1, 8>(inputs, scratch, row, cut),
            (2, _) => mix_rows::<A, 2, 4>(inputs, scratch, row, cut),
            (3, Tile::SixByFour) => mix_rows::<A, 3, 4>(inputs, scratch, row, cut),
            (3, Tile::FourByTwo | Tile::SixByTwo) => mix_rows::<A, 3, 2>(inputs, scratch, row, cut),
            (4 | 5, Tile::SixByFour) => mix_rows::<A, 4, 4>(inputs, scratch, row, cut),
            (_, Tile::SixByFour) => mix_rows::<A, 6, 4>(inputs, scratch, row, cut),
            (6.., Tile::SixByTwo) => mix_rows::<A, 6, 2>(inputs, scratch, row, cut),
            (_, Tile::FourByTwo | Tile::SixByTwo) => mix_rows::<A, 4, 2>(inputs, scratch, row, cut),
        };
    }
}

/// Widens the keys and values of a cut that any row needs, and turns the keys on their side.
#[inline(always)]
fn load<A: Arch>(inputs: &Inputs, scratch: &mut Scratch, cut: usize, span: Range<usize>) {
    let (kv, shape, head) = (inputs.kv, &inputs.shape, scratch.kv_head);
    let (key_stride, value_stride) = (scratch.key_stride, scratch.value_stride);
    for slot in span.clone() {
        let key = &mut scratch.key_rows[slot * key_stride..][..shape.key_dim];
        kv.read::<A>(shape, Side::Key, cut * CUT + slot, head, key);
        let value = &mut scratch.values[slot * value_stride..][..shape.value_dim];
        kv.read::<A>(shape, Side::Value, cut * CUT + slot, head, value);
    }
    for slot in (span.start / 8 * 8..span.end).step_by(8) {
        for d in (0..shape.key_dim).step_by(8) {
            let from = &scratch.key_rows[slot * key_stride + d..];
            A::transpose8(from, key_stride, &mut scratch.keys[d * CUT + slot..], CUT);
        }
    }
}

/// `q . k` of `R` rows with all keys of the span, `V` vectors of keys at a time. Keys around the span that share a
/// vector with it get numbers that nobody reads. Returns `R`.
#[inline(always)]
fn scores<A: Arch, const R: usize, const V: usize>(
    inputs: &Inputs,
    scratch: &mut Scratch,
    row: usize,
    span: &Range<usize>,
) -> usize {
    let step = V * A::LANES;
    let queries: [&[f32]; R] = std::array::from_fn(|r| scratch.query(inputs, row + r));
    let mut start = span.start / step * step;
    while start < span.end {
        let mut sums = [[A::splat(0.0); V]; R];
        for (d, keys) in scratch.keys.chunks_exact(CUT).take(inputs.shape.key_dim).enumerate() {
            let keys = &keys[start..start + step];
            for r in 0..R {
                let q = A::broadcast(&queries[r][d]);
                for v in 0..V {
                    sums[r][v] = A::multiply_add(q, A::load(&keys[v * A::LANES..]), sums[r][v]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                A::store(sum, &mut scratch.scores[(row + r) * CUT + start + v * A::LANES..]);
            }
        }
        start += step;
    }
    R
}

/// Turns one row's products into scores and those into weights, 0 where a key is forbidden.
#[inline(always)]
fn weigh<A: Arch>(inputs: &Inputs, scratch: &mut Scratch, row: usize, cut: usize) {
    let allowed = scratch.allowed(inputs, row, cut);
    let Some(scores) = scratch.scores[row * CUT..].first_chunk_mut::<CUT>() else { return };
    scores[..allowed.start].fill(f32::NEG_INFINITY);
    scores[allowed.end..].fill(f32::NEG_INFINITY);
    let token = scratch.tokens.start + row / scratch.group;
    let head = scratch.kv_head * scratch.group + row % scratch.group;
    let keys = cut * CUT + allowed.start..cut * CUT + allowed.end;
    let mut gathered = [0.0; CUT];
    let bias = inputs.scores.bias.row((head, token, inputs.first_query + token), keys, &mut gathered);
    modify::<A>(inputs, &mut scores[allowed], bias);

    let mut max = lanes_max(scores);
    if max == f32::NEG_INFINITY {
        if !scores.iter().any(|x| x.is_nan()) {
            scores.fill(0.0);
            return;
        }
        // Nothing but NaN: let it through to the output.
        max = 0.0;
    }
    let mut sums = [0.0f32; PAD];
    for chunk in scores.as_chunks_mut::<PAD>().0 {
        for (x, sum) in chunk.iter_mut().zip(&mut sums) {
            *x = exp::<A>(*x - max);
            *sum += *x;
        }
    }
    let mut sum = 0.0;
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        sum = sums[0];
    }
    scratch.reduced.max[row] = max;
    scratch.reduced.sum[row] = sum;
}

/// Scale, cap and bias of a row's allowed keys.
#[inline(always)]
fn modify<A: Arch>(inputs: &Inputs, scores: &mut [f32], bias: Option<&[f32]>) {
    let modifiers = inputs.scores;
    match bias {
        Some(bias) if modifiers.bias_scaled => {
            for (x, &bias) in scores.iter_mut().zip(bias) {
                *x = (*x + bias) * modifiers.scale;
            }
        }
        _ => {
            for x in scores.iter_mut() {
                *x *= modifiers.scale;
            }
        }
    }
    if let Some(cap) = modifiers.soft_cap {
        for x in scores.iter_mut() {
            *x = cap * tanh::<A>(*x / cap);
        }
    }
    if let Some(bias) = bias.filter(|_| !modifiers.bias_scaled) {
        for (x, &bias) in scores.iter_mut().zip(bias) {
            *x += bias;
        }
    }
}

/// The largest of the scores that are numbers.
#[inline(always)]
fn lanes_max(scores: &[f32; CUT]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; PAD];
    for chunk in scores.as_chunks::<PAD>().0 {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max })
}

/// Mixes the values of `R` rows: together where all of them may see a key, each alone before and after. A forbidden
/// key's value is never touched: it may be anything, and `0 * NaN` is not 0. Returns `R`.
#[inline(always)]
fn mix_rows<A: Arch, const R: usize, const V: usize>(
    inputs: &Inputs,
    scratch: &mut Scratch,
    row: usize,
    cut: usize,
) -> usize {
    let ranges: [Range<usize>; R] = std::array::from_fn(|r| scratch.allowed(inputs, row + r, cut));
    let start = ranges.iter().map(|range| range.start).max().unwrap_or(0);
    let end = ranges.iter().map(|range| range.end).min().unwrap_or(0);
    // Without a common part, all keys of a row count as those before it.
    let (start, end) = if start < end { (start, end) } else { (CUT, CUT) };
    for after in [false, true] {
        for (r, range) in ranges.iter().enumerate() {
            let alone = if after { end.max(range.start)..range.end } else { range.start..range.end.min(start) };
            mix::<A, 1, 8>(scratch, row + r, alone);
        }
        if !after {
            mix::<A, R, V>(scratch, row, start..end);
        }
    }
    R
}

/// Adds the weighted values of a range of keys to `R` rows, key after key, `V` vectors of the width at a time.
#[inline(always)]
fn mix<A: Arch, const R: usize, const V: usize>(scratch: &mut Scratch, row: usize, keys: Range<usize>) {
    if keys.is_empty() {
        return;
    }
    let stride = scratch.value_stride;
    let mut start = 0;
    while start + V * A::LANES <= stride {
        mix_columns::<A, R, V>(scratch, row, keys.clone(), start);
        start += V * A::LANES;
    }
    while start < stride {
        mix_columns::<A, R, 1>(scratch, row, keys.clone(), start);
        start += A::LANES;
    }
}

#[inline(always)]
fn mix_columns<A: Arch, const R: usize, const V: usize>(
    scratch: &mut Scratch,
    row: usize,
    keys: Range<usize>,
    start: usize,
) {
    let (stride, width) = (scratch.value_stride, V * A::LANES);
    let mut sums = [[A::splat(0.0); V]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = A::load(&scratch.reduced.mix[(row + r) * stride + start + v * A::LANES..]);
        }
    }
    for key in keys {
        let values = &scratch.values[key * stride + start..][..width];
        for (r, sums) in sums.iter_mut().enumerate() {
            let weight = A::broadcast(&scratch.scores[(row + r) * CUT + key]);
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = A::multiply_add(weight, A::load(&values[v * A::LANES..]), *sum);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        for (v, sum) in sums.into_iter().enumerate() {
            A::store(sum, &mut scratch.reduced.mix[(row + r) * stride + start + v * A::LANES..]);
        }
    }
}
