//! Mixes the values of a cut by the weights of its keys.

use super::ahead::{Ahead, Spread};
use super::cut::{CUT, PAD, Span};
use super::tile::{Operand, Rows, add_allowed, add_products, height};
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
    /// Numbers of a row of values, and of a mix.
    pub stride: usize,
}

impl Mix<'_> {
    /// Writes the mixes of all rows, `[rows, stride]`, from values `[CUT, stride]`.
    #[inline(always)]
    pub fn write<A: Arch, B: Operand>(&self, values: B, ahead: &mut Ahead, out: &mut [f32]) {
        let mut row = 0;
        while row < self.spans.len() {
            let rows = height::<B>(self.spans.len() - row, A::TILE);
            if const { B::STORED } {
                match rows {
                    1 => self.tile::<A, B, 1, 4>(values, row, ahead, out),
                    2 => self.tile::<A, B, 2, 4>(values, row, ahead, out),
                    3 if const { A::LANES == 16 } => self.tile::<A, B, 3, 4>(values, row, ahead, out),
                    3 => self.tile::<A, B, 3, 2>(values, row, ahead, out),
                    _ if const { A::LANES == 16 } => self.tile::<A, B, 4, 4>(values, row, ahead, out),
                    _ => self.tile::<A, B, 4, 2>(values, row, ahead, out),
                }
                row += rows;
                continue;
            }
            match (rows, A::TILE) {
                (1, _) => self.tile::<A, B, 1, 8>(values, row, ahead, out),
                (2, _) => self.tile::<A, B, 2, 4>(values, row, ahead, out),
                (3, Tile::SixByFour) => self.tile::<A, B, 3, 4>(values, row, ahead, out),
                (3, Tile::FourByTwo | Tile::SixByTwo) => self.tile::<A, B, 3, 2>(values, row, ahead, out),
                (4, Tile::SixByFour) => self.tile::<A, B, 4, 4>(values, row, ahead, out),
                (4, Tile::FourByTwo | Tile::SixByTwo) => self.tile::<A, B, 4, 2>(values, row, ahead, out),
                (_, Tile::SixByFour) => self.tile::<A, B, 6, 4>(values, row, ahead, out),
                (_, Tile::SixByTwo | Tile::FourByTwo) => self.tile::<A, B, 6, 2>(values, row, ahead, out),
            }
            row += rows;
        }
    }

    /// `R` rows, `V` vectors of the width at a time, and what is left of the width in fewer.
    #[inline(always)]
    fn tile<A: Arch, B: Operand, const R: usize, const V: usize>(
        &self,
        values: B,
        row: usize,
        ahead: &mut Ahead,
        out: &mut [f32],
    ) {
        let (any, all) = Span::of_rows(&self.spans[row..row + R]);
        if any.is_empty() {
            return;
        }
        // Without a common part, all keys count as those before it.
        let all = if all.is_empty() { any.end..any.end } else { all };
        let keys = [any.start..all.start, all.clone(), all.end..any.end];
        let mut ahead = ahead.spread(all.len() * self.stride.div_ceil(V * A::LANES));
        let mut column = self.columns::<A, B, R, V>((values, row), &keys, 0, &mut ahead, out);
        if const { V > 4 } {
            column = self.columns::<A, B, R, 4>((values, row), &keys, column, &mut ahead, out);
        }
        if const { V > 2 && 2 * A::LANES >= PAD && !B::STORED } {
            column = self.columns::<A, B, R, 2>((values, row), &keys, column, &mut ahead, out);
        }
        if const { A::LANES >= PAD || B::STORED } {
            self.columns::<A, B, R, 1>((values, row), &keys, column, &mut ahead, out);
        }
    }

    /// From a column on, as many times `V` vectors as there are; returns the column after them.
    #[inline(always)]
    fn columns<A: Arch, B: Operand, const R: usize, const V: usize>(
        &self,
        (values, row): (B, usize),
        keys: &[Range<usize>; 3],
        mut column: usize,
        ahead: &mut Spread,
        out: &mut [f32],
    ) -> usize {
        while column + V * A::LANES <= self.stride {
            let sums = self.sums::<A, B, R, V>(values.at(column), row, keys, ahead);
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
    fn sums<A: Arch, B: Operand, const R: usize, const V: usize>(
        &self,
        values: B,
        row: usize,
        [before, all, after]: &[Range<usize>; 3],
        ahead: &mut Spread,
    ) -> [[A::Vector; V]; R] {
        let spans: &[Span; R] = self.spans[row..].first_chunk().expect("a tile of rows");
        let weights = Rows { data: self.weights[row..].as_flattened(), stride: CUT };
        let mut sums = [[A::splat(0.0); V]; R];
        if const { !B::STORED } {
            add_allowed::<A, B, R, V>(&mut sums, weights, values, before.clone(), spans);
        }
        add_products::<A, B, R, V>(&mut sums, weights, values, all.clone(), ahead);
        if const { !B::STORED } {
            add_allowed::<A, B, R, V>(&mut sums, weights, values, after.clone(), spans);
        }
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
