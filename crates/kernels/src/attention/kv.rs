//! Keys and values as a list of cache blocks, widened to float32 as they are read.

use super::Heads;
use super::cut::CUT;
use super::stored::{Across, Bf16, F16, F32, Q4_0, Q8_0, Stored};
use super::tile::{GROUP, Operand};
use crate::DType;
use crate::arch::{Arch, Portable};
use std::ops::Range;

/// The order of tokens and heads inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvLayout {
    /// `[token][kv_head][dim]`
    TokenMajor,
    /// `[kv_head][token][dim]`, where every head has room for `block_tokens` tokens.
    HeadMajor,
    /// As `HeadMajor`, but keys lie on their side ([`store_key`] writes one), so that scores of neighbouring tokens are
    /// computed from neighbouring numbers. Blocks are of 64 tokens, and the first token is a multiple of that.
    KeysAcross,
}

/// A sequence's keys and values: a list of blocks of `block_tokens` tokens each, of which only the tokens `first..len`
/// are there. A contiguous cache is one block.
///
/// Types are f32, f16, bf16, q8_0 or q4_0. Slices need no alignment, and bytes of tokens beyond `len` are never read.
#[derive(Debug, Clone)]
pub struct KvBlocks<'a> {
    pub key_type: DType,
    pub value_type: DType,
    pub layout: KvLayout,
    pub block_tokens: usize,
    /// A value is the first `value_dim` elements of its key, and lies there: the blocks name the keys twice, and the two
    /// types are one.
    pub values_in_keys: bool,
    /// Keys and values of each block.
    pub blocks: Vec<(&'a [u8], &'a [u8])>,
    /// Absolute index of the first token of `blocks[0]`.
    pub first: usize,
    /// One more than the absolute index of the last token.
    pub len: usize,
}

/// Keys or values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Key,
    Value,
}

impl<'a> KvBlocks<'a> {
    /// Float32 keys `[S, kv_heads * key_dim]` and values `[S, kv_heads * value_dim]` of `tokens` tokens from index 0.
    pub fn from_f32(key: &'a [f32], value: &'a [f32], tokens: usize) -> KvBlocks<'a> {
        KvBlocks {
            key_type: DType::F32,
            value_type: DType::F32,
            layout: KvLayout::TokenMajor,
            block_tokens: tokens.max(1),
            values_in_keys: false,
            blocks: vec![(bytes_of(key), bytes_of(value))],
            first: 0,
            len: tokens,
        }
    }

    /// Bytes of one token's key and value in one head.
    pub(crate) fn token_bytes(&self, shape: &Heads) -> usize {
        let bytes = |dtype: DType, dim: usize| dim / dtype.block_len() * dtype.block_bytes();
        let value = if self.values_in_keys { 0 } else { bytes(self.value_type, shape.value_dim) };
        bytes(self.key_type, shape.key_dim) + value
    }

    /// One head's keys or values of a cut, where they lie in one piece and are read there: from the cut's first token on.
    #[inline(always)]
    pub(super) fn of_cut(&self, shape: &Heads, side: Side, cut: usize, head: usize) -> &'a [u8] {
        let (key, value) = self.blocks[cut - self.first / CUT];
        let (dtype, dim, bytes) = match side {
            Side::Key => (self.key_type, shape.key_dim, key),
            Side::Value => (self.value_type, shape.value_dim, value),
        };
        let room = dim / dtype.block_len() * dtype.block_bytes() * CUT;
        &bytes[head * room..][..room]
    }

    /// The rows of one head and side that the first of these absolute tokens share a block with; not of keys that lie on
    /// their side.
    #[inline(always)]
    pub(crate) fn run(&self, shape: &Heads, side: Side, tokens: Range<usize>, head: usize) -> Run<'a> {
        let (dtype, dim) = match side {
            Side::Key => (self.key_type, shape.key_dim),
            Side::Value => (self.value_type, shape.value_dim),
        };
        let index = tokens.start - self.first;
        let (block, slot) = (index / self.block_tokens, index % self.block_tokens);
        let bytes = match side {
            Side::Key => self.blocks[block].0,
            Side::Value => self.blocks[block].1,
        };
        let bytes_of = |dim: usize| dim / dtype.block_len() * dtype.block_bytes();
        let room = bytes_of(if self.values_in_keys { shape.key_dim } else { dim });
        let (start, stride) = match self.layout {
            KvLayout::TokenMajor => ((slot * shape.kv_heads + head) * room, shape.kv_heads * room),
            KvLayout::HeadMajor | KvLayout::KeysAcross => ((head * self.block_tokens + slot) * room, room),
        };
        let rows = tokens.len().min(self.block_tokens - slot);
        let row = bytes_of(dim);
        let end = start + rows.saturating_sub(1) * stride + row;
        Run { dtype, dim, bytes: &bytes[start..end], rows, row, stride }
    }

    /// The rows of one head and side, `[S, dim]`.
    pub(crate) fn gather(&self, shape: &Heads, side: Side, head: usize) -> Vec<f32> {
        let dim = match side {
            Side::Key => shape.key_dim,
            Side::Value => shape.value_dim,
        };
        let mut rows = vec![0.0; self.len.saturating_sub(self.first) * dim];
        if side == Side::Key && self.layout == KvLayout::KeysAcross {
            let mut cut = vec![0.0; dim * CUT];
            for (index, rows) in rows.chunks_mut(CUT * dim).enumerate() {
                self.widen_across::<Portable>(shape, self.first / CUT + index, head, &(0..CUT), &mut cut);
                for (token, row) in rows.chunks_exact_mut(dim).enumerate() {
                    for (x, keys) in row.iter_mut().zip(cut.chunks_exact(CUT)) {
                        *x = keys[token];
                    }
                }
            }
            return rows;
        }
        for (index, row) in rows.chunks_exact_mut(dim).enumerate() {
            let token = self.first + index;
            self.run(shape, side, token..token + 1, head).widen::<Portable>(row, dim);
        }
        rows
    }
}

impl KvBlocks<'_> {
    /// Widens one head's keys of a cut that lie on their side, `[dim][CUT]`: at least the tokens of `span`.
    #[inline(always)]
    pub(super) fn widen_across<A: Arch>(
        &self,
        shape: &Heads,
        cut: usize,
        head: usize,
        span: &Range<usize>,
        out: &mut [f32],
    ) {
        let keys = self.of_cut(shape, Side::Key, cut, head);
        let rows = &mut out[..shape.key_dim * CUT];
        match self.key_type {
            DType::F32 => widen_rows::<A, _>(Across::<F32>::new(keys), span, rows),
            DType::F16 => widen_rows::<A, _>(Across::<F16>::new(keys), span, rows),
            DType::BF16 => widen_rows::<A, _>(Across::<Bf16>::new(keys), span, rows),
            DType::Q8_0 => widen_rows::<A, _>(Across::<Q8_0>::new(keys), span, rows),
            DType::Q4_0 => widen_rows::<A, _>(Across::<Q4_0>::new(keys), span, rows),
            other => panic!("{other} is not a type of caches"),
        }
    }
}

/// Widens rows of [`CUT`] numbers, at least those of `span`.
#[inline(always)]
fn widen_rows<A: Arch, B: Operand>(operand: B, span: &Range<usize>, rows: &mut [f32]) {
    let step = 2 * A::LANES;
    let rows = rows.as_chunks_mut::<CUT>().0;
    operand.check(rows.len(), CUT);
    for start in (span.start / step * step..span.end).step_by(step) {
        let operand = operand.at(start);
        for (first, rows) in rows.chunks_mut(GROUP).enumerate() {
            let first = first * GROUP;
            // SAFETY: the operand was checked to be as wide and to have as many rows.
            unsafe {
                let scales = operand.scales::<A, 2>(first);
                for (i, row) in rows.iter_mut().enumerate() {
                    let [a, b] = operand.row::<A, 2>(first + i, &scales);
                    A::store(a, &mut row[start..]);
                    A::store(b, &mut row[start + A::LANES..]);
                }
            }
        }
    }
}

/// Rows of consecutive tokens as they are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    dtype: DType,
    dim: usize,
    /// From the first row's start to the last one's end.
    pub bytes: &'a [u8],
    pub rows: usize,
    /// Bytes of a row, and from one row's start to the next.
    row: usize,
    stride: usize,
}

impl Run<'_> {
    /// Widens the rows exactly into rows of `out` that lie `stride` apart. Panics for a type that no cache has.
    #[inline(always)]
    pub(crate) fn widen<A: Arch>(&self, out: &mut [f32], stride: usize) {
        match self.dtype {
            DType::F32 => self.widen_as::<A, F32>(out, stride),
            DType::F16 => self.widen_as::<A, F16>(out, stride),
            DType::BF16 => self.widen_as::<A, Bf16>(out, stride),
            DType::Q8_0 => self.widen_as::<A, Q8_0>(out, stride),
            DType::Q4_0 => self.widen_as::<A, Q4_0>(out, stride),
            other => panic!("{other} is not a type of caches"),
        }
    }

    #[inline(always)]
    fn widen_as<A: Arch, S: Stored>(&self, out: &mut [f32], stride: usize) {
        if self.stride == self.row && stride == self.dim {
            return S::widen::<A>(self.bytes, &mut out[..self.rows * self.dim]);
        }
        for row in 0..self.rows {
            S::widen::<A>(&self.bytes[row * self.stride..][..self.row], &mut out[row * stride..][..self.dim]);
        }
    }
}

/// The bytes of float32 values, as they lie in memory.
pub fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: any initialised memory may be read as bytes, and the length in bytes is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
