//! Products of queries with the keys of a cut.

use super::Inputs;
use super::ahead::Ahead;
use super::cut::{CUT, Place, Span};
use super::tile::{Operand, Rows, add_products, height};
use crate::arch::{Arch, Tile};

/// Copies a tile's queries, times a factor, into rows that lie `stride` apart.
#[inline(always)]
pub(super) fn pack<A: Arch>(inputs: &Inputs, place: &Place, factor: f32, out: &mut [f32], stride: usize) {
    let mut rows = out.chunks_exact_mut(stride);
    for token in place.tokens.clone() {
        for head in place.kv_head * place.group..(place.kv_head + 1) * place.group {
            let Some(row) = rows.next() else { return };
            let query = inputs.query(token, head);
            for (out, &x) in row.iter_mut().zip(query) {
                *out = x * factor;
            }
        }
    }
}

/// Writes `q . k` of rows of queries with the keys of a cut that any of them may see; other scores of these rows may
/// become anything.
#[inline(always)]
pub(super) fn compare<A: Arch, B: Operand>(
    inputs: &Inputs,
    queries: Rows,
    keys: B,
    spans: &[Span],
    ahead: &mut Ahead,
    scores: &mut [[f32; CUT]],
) {
    let mut row = 0;
    while row < spans.len() {
        let rows = height::<B>(spans.len() - row, A::TILE);
        let queries = Rows { data: &queries.data[row * queries.stride..], ..queries };
        let job = (queries, inputs.shape.key_dim, keys, &spans[row..row + rows]);
        let scores = &mut scores[row..row + rows];
        if const { B::STORED } {
            match rows {
                1 => tile::<A, B, 1, 4>(job, ahead, scores),
                2 => tile::<A, B, 2, 4>(job, ahead, scores),
                3 if const { A::LANES == 16 } => tile::<A, B, 3, 4>(job, ahead, scores),
                3 => tile::<A, B, 3, 2>(job, ahead, scores),
                _ if const { A::LANES == 16 } => tile::<A, B, 4, 4>(job, ahead, scores),
                _ => tile::<A, B, 4, 2>(job, ahead, scores),
            }
            row += rows;
            continue;
        }
        match (rows, A::TILE) {
            (1, _) => tile::<A, B, 1, 4>(job, ahead, scores),
            (2, _) => tile::<A, B, 2, 4>(job, ahead, scores),
            (3, Tile::SixByFour) => tile::<A, B, 3, 4>(job, ahead, scores),
            (3, Tile::FourByTwo | Tile::SixByTwo) => tile::<A, B, 3, 2>(job, ahead, scores),
            (4, Tile::SixByFour) => tile::<A, B, 4, 4>(job, ahead, scores),
            (4, Tile::FourByTwo | Tile::SixByTwo) => tile::<A, B, 4, 2>(job, ahead, scores),
            (_, Tile::SixByFour) => tile::<A, B, 6, 4>(job, ahead, scores),
            (_, Tile::SixByTwo | Tile::FourByTwo) => tile::<A, B, 6, 2>(job, ahead, scores),
        };
        row += rows;
    }
}

/// `R` rows with `V` vectors of keys at a time. Every product is a sum over the width in its order.
#[inline(always)]
fn tile<A: Arch, B: Operand, const R: usize, const V: usize>(
    (queries, width, keys, spans): (Rows, usize, B, &[Span]),
    ahead: &mut Ahead,
    scores: &mut [[f32; CUT]],
) {
    let (any, _) = Span::of_rows(spans);
    let step = V * A::LANES;
    let mut ahead = ahead.spread(width * (CUT / step));
    let mut start = any.start / step * step;
    while start < any.end {
        let mut sums = [[A::splat(0.0); V]; R];
        add_products::<A, B, R, V>(&mut sums, queries, keys.at(start), 0..width, &mut ahead);
        for (scores, sums) in scores.iter_mut().zip(sums) {
            for (v, sum) in sums.into_iter().enumerate() {
                A::store(sum, &mut scores[start + v * A::LANES..]);
            }
        }
        start += step;
    }
}
