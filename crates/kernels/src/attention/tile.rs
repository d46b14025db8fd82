//! A tile of sums in registers: the inner loop of scores and of mixes alike.

use super::ahead::Spread;
use super::cut::Span;
use crate::arch::{Arch, Tile};
use std::ops::Range;

/// Rows of numbers that lie a stride apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

impl Rows<'_> {
    /// Panics unless `rows` rows of `width` numbers are there.
    #[inline(always)]
    fn check(&self, rows: usize, width: usize) {
        let end = rows.checked_sub(1).and_then(|last| last.checked_mul(self.stride)).map_or(0, |start| start + width);
        assert!(end <= self.data.len(), "a tile of {rows} rows of {width} in {}", self.data.len());
    }
}

/// How many rows the next tile takes of those that are left: none of one row where two of several will do.
#[inline(always)]
pub(super) fn height(rest: usize, tile: Tile) -> usize {
    let most = match tile {
        Tile::FourByTwo => 4,
        Tile::SixByTwo | Tile::SixByFour => 6,
    };
    match rest {
        5 => 3,
        7 => 4,
        rest => rest.min(most),
    }
}

/// `sums[r] += sum over i in range of a[r][i] * b[i]`, one `i` after the other, `b` as `V` vectors.
#[inline(always)]
pub(super) fn add_products<A: Arch, const R: usize, const V: usize>(
    sums: &mut [[A::Vector; V]; R],
    a: Rows,
    b: Rows,
    range: Range<usize>,
    ahead: &mut Spread,
) {
    if range.is_empty() {
        return;
    }
    a.check(R, range.end);
    b.check(range.end, V * A::LANES);
    let (mut held, mut asked) = (*sums, *ahead);
    for i in range {
        asked.fetch::<A>();
        // SAFETY: both matrices were checked to reach to the range's end.
        unsafe {
            let b = b.data.as_ptr().add(i * b.stride);
            let mut vectors = [A::splat(0.0); V];
            for (v, vector) in vectors.iter_mut().enumerate() {
                *vector = A::load(std::slice::from_raw_parts(b.add(v * A::LANES), A::LANES));
            }
            for (r, held) in held.iter_mut().enumerate() {
                let x = A::broadcast(&*a.data.as_ptr().add(r * a.stride + i));
                for (sum, vector) in held.iter_mut().zip(vectors) {
                    *sum = A::multiply_add(x, vector, *sum);
                }
            }
        }
    }
    (*sums, *ahead) = (held, asked);
}

/// The same for those `i` only that lie in a row's span: other rows of `b` are not touched for it.
#[inline(always)]
pub(super) fn add_allowed<A: Arch, const R: usize, const V: usize>(
    sums: &mut [[A::Vector; V]; R],
    a: Rows,
    b: Rows,
    range: Range<usize>,
    spans: &[Span; R],
) {
    for i in range {
        let b = &b.data[i * b.stride..][..V * A::LANES];
        for r in 0..R {
            if spans[r].range().contains(&i) {
                let x = A::broadcast(&a.data[r * a.stride + i]);
                for v in 0..V {
                    sums[r][v] = A::multiply_add(x, A::load(&b[v * A::LANES..]), sums[r][v]);
                }
            }
        }
    }
}
