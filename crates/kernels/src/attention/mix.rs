//! Mixes the values of a cut by the weights of its keys.

use super::ahead::{Ahead, Spread};
use super::cut::{CUT, PAD, Span};
use super::tile::{Rows, add_allowed, add_products, height};
use crate::arch::{Arch, Tile};
use std::ops::Range;

/// A block of rows with their weights.
pub(super) struct Mix<'a> {
    pub weights: &'a [[f32; CUT]],
    pub spans: &'a [Span],
    /// `-inf` for a row without keys, whose mix stays as it is.
    pub max: &'a [f32],
    /// What a row's mix so far and the cut's are multiplied by before they are added; without it the cut's is written.
    pub factors: Option<(&'a [f32], &'a [f32])>,
    /// `[CUT, stride]`
    pub values: &'a [f32],
    pub stride: usize,
}

impl Mix<'_> {
    /// Writes the mixes of all rows, `[rows, stride]`.
    #[inline(always)]
    pub fn write<A: Arch>(&self, ahead: &mut Ahead, out: &mut [f32]) {
        let mut row = 0;
        while row < self.spans.len() {
            let rows = height(self.spans.len() - row, A::TILE);
            match (rows, A::TILE) {
                (1, _) => self.tile::<A, 1, 8>(row, ahead, out),
                (2, _) => self.tile::<A, 2, 4>(row, ahead, out),
                (3, Tile::SixByFour) => self.tile::<A, 3, 4>(row, ahead, out),
                (3, Tile::FourByTwo | Tile::SixByTwo) => self.tile::<A, 3, 2>(row, ahead, out),
                (4, Tile::SixByFour) => self.tile::<A, 4, 4>(row, ahead, out),
                (4, Tile::FourByTwo | Tile::SixByTwo) => self.tile::<A, 4, 2>(row, ahead, out),
                (_, Tile::SixByFour) => self.tile::<A, 6, 4>(row, ahead, out),
                (_, Tile::SixByTwo | Tile::FourByTwo) => self.tile::<A, 6, 2>(row, ahead, out),
            }
            row += rows;
        }
    }

    /// `R` rows, `V` vectors of the width at a time, and what is left of the width in fewer.
    #[inline(always)]
    fn tile<A: Arch, const R: usize, const V: usize>(&self, row: usize, ahead: &mut Ahead, out: &mut [f32]) {
        let (any, all) = Span::of_rows(&self.spans[row..row + R]);
        if any.is_empty() {
            return;
        }
        // Without a common part, all keys count as those before it.
        let all = if all.is_empty() { any.end..any.end } else { all };
        let keys = [any.start..all.start, all.clone(), all.end..any.end];
        let mut ahead = ahead.spread(all.len() * self.stride.div_ceil(V * A::LANES));
        let mut column = self.columns::<A, R, V>(row, &keys, 0, &mut ahead, out);
        if V > 4 {
            column = self.columns::<A, R, 4>(row, &keys, column, &mut ahead, out);
        }
        if V > 2 && 2 * A::LANES >= PAD {
            column = self.columns::<A, R, 2>(row, &keys, column, &mut ahead, out);
        }
        if A::LANES >= PAD {
            self.columns::<A, R, 1>(row, &keys, column, &mut ahead, out);
        }
    }

    /// From a column on, as many times `V` vectors as there are; returns the column after them.
    #[inline(always)]
    fn columns<A: Arch, const R: usize, const V: usize>(
        &self,
        row: usize,
        keys: &[Range<usize>; 3],
        mut column: usize,
        ahead: &mut Spread,
        out: &mut [f32],
    ) -> usize {
        while column + V * A::LANES <= self.stride {
            let sums = self.sums::<A, R, V>(row, keys, column, ahead);
            for (r, sums) in sums.into_iter().enumerate() {
                if self.max[row + r] != f32::NEG_INFINITY {
                    self.put::<A, V>(row + r, sums, &mut out[(row + r) * self.stride + column..]);
                }
            }
            column += V * A::LANES;
        }
        column
    }

    /// The weighted values, key after key: of the keys that only some rows may see before those that all may, of these,
    /// and of the others. A forbidden key's value is never touched: it may be anything, and `0 * NaN` is not 0.
    #[inline(always)]
    fn sums<A: Arch, const R: usize, const V: usize>(
        &self,
        row: usize,
        [before, all, after]: &[Range<usize>; 3],
        column: usize,
        ahead: &mut Spread,
    ) -> [[A::Vector; V]; R] {
        let spans: &[Span; R] = self.spans[row..].first_chunk().expect("a tile of rows");
        let weights = Rows { data: self.weights[row..].as_flattened(), stride: CUT };
        let values = Rows { data: &self.values[column..], stride: self.stride };
        let mut sums = [[A::splat(0.0); V]; R];
        add_allowed::<A, R, V>(&mut sums, weights, values, before.clone(), spans);
        add_products::<A, R, V>(&mut sums, weights, values, all.clone(), ahead);
        add_allowed::<A, R, V>(&mut sums, weights, values, after.clone(), spans);
        sums
    }

    /// Adds a row's sums to its mix so far, or writes them.
    #[inline(always)]
    fn put<A: Arch, const V: usize>(&self, row: usize, sums: [A::Vector; V], out: &mut [f32]) {
        for (sum, out) in sums.into_iter().zip(out.chunks_exact_mut(A::LANES)) {
            let mixed = match self.factors {
                Some((old, new)) => A::multiply_add(A::load(out), A::splat(old[row]), A::mul(sum, A::splat(new[row]))),
                None => sum,
            };
            A::store(mixed, out);
        }
    }
}
