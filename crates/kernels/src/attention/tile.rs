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

/// Rows of numbers side by side, in whatever type they are stored, that a tile's sums are made of.
pub(super) trait Operand: Copy {
    /// Whether the numbers are widened when they are read. Then few rows share a reading, and they all need all of it.
    const STORED: bool;

    /// From a column on.
    fn at(self, column: usize) -> Self;

    /// Panics unless `rows` rows of `width` numbers are there.
    fn check(&self, rows: usize, width: usize);

    /// What `row` and those of its [`GROUP`] share; nothing, unless an operand says otherwise.
    ///
    /// # Safety
    /// [`Operand::check`] has found the row, and it is as wide as `V` vectors.
    #[inline(always)]
    unsafe fn scales<A: Arch, const V: usize>(&self, _row: usize) -> [A::Vector; V] {
        [A::splat(0.0); V]
    }

    /// The first `V` vectors of a row.
    ///
    /// # Safety
    /// As for [`Operand::scales`], which gave `scales`.
    unsafe fn row<A: Arch, const V: usize>(&self, row: usize, scales: &[A::Vector; V]) -> [A::Vector; V];
}

/// Rows of an operand that may share scales.
pub(super) const GROUP: usize = 32;

impl Operand for Rows<'_> {
    const STORED: bool = false;

    #[inline(always)]
    fn at(self, column: usize) -> Self {
        Rows { data: &self.data[column..], ..self }
    }
    #[inline(always)]
    fn check(&self, rows: usize, width: usize) {
        let end = rows.checked_sub(1).and_then(|last| last.checked_mul(self.stride)).map_or(0, |start| start + width);
        assert!(end <= self.data.len(), "a tile of {rows} rows of {width} in {}", self.data.len());
    }
    #[inline(always)]
    unsafe fn row<A: Arch, const V: usize>(&self, row: usize, _scales: &[A::Vector; V]) -> [A::Vector; V] {
        let mut vectors = [A::splat(0.0); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: the caller has checked that the row is there.
            let from = unsafe {
                std::slice::from_raw_parts(self.data.as_ptr().add(row * self.stride + v * A::LANES), A::LANES)
            };
            *vector = A::load(from);
        }
        vectors
    }
}

/// How many rows the next tile takes of those that are left: none of one row where two of several will do.
#[inline(always)]
pub(super) fn height<B: Operand>(rest: usize, tile: Tile) -> usize {
    let most = match tile {
        Tile::FourByTwo => 4,
        Tile::SixByTwo | Tile::SixByFour => 6 - 2 * usize::from(B::STORED),
    };
    match rest {
        5 => 3,
        6 if most < 6 => 3,
        7 => 4,
        rest => rest.min(most),
    }
}

/// `sums[r] += sum over i in range of a[r][i] * b[i]`, one `i` after the other, `b` as `V` vectors.
#[inline(always)]
pub(super) fn add_products<A: Arch, B: Operand, const R: usize, const V: usize>(
    sums: &mut [[A::Vector; V]; R],
    a: Rows,
    b: B,
    range: Range<usize>,
    ahead: &mut Spread,
) {
    if range.is_empty() {
        return;
    }
    a.check(R, range.end);
    b.check(range.end, V * A::LANES);
    let (mut held, mut asked) = (*sums, *ahead);
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min((start / GROUP + 1) * GROUP);
        // SAFETY: both operands were checked to reach to the range's end.
        unsafe {
            let scales = b.scales::<A, V>(start);
            for i in start..end {
                asked.fetch::<A>();
                let vectors = b.row::<A, V>(i, &scales);
                for (r, held) in held.iter_mut().enumerate() {
                    let x = A::broadcast(&*a.data.as_ptr().add(r * a.stride + i));
                    for (sum, vector) in held.iter_mut().zip(vectors) {
                        *sum = A::multiply_add(x, vector, *sum);
                    }
                }
            }
        }
        start = end;
    }
    (*sums, *ahead) = (held, asked);
}

/// The same for those `i` only that lie in a row's span: other rows of `b` are not touched for it.
#[inline(always)]
pub(super) fn add_allowed<A: Arch, B: Operand, const R: usize, const V: usize>(
    sums: &mut [[A::Vector; V]; R],
    a: Rows,
    b: B,
    range: Range<usize>,
    spans: &[Span; R],
) {
    b.check(range.end, V * A::LANES);
    for i in range {
        for r in 0..R {
            if spans[r].range().contains(&i) {
                let x = A::broadcast(&a.data[r * a.stride + i]);
                // SAFETY: the operand was checked to reach to the range's end.
                let vectors = unsafe { b.row::<A, V>(i, &b.scales::<A, V>(i)) };
                for (sum, vector) in sums[r].iter_mut().zip(vectors) {
                    *sum = A::multiply_add(x, vector, *sum);
                }
            }
        }
    }
}
