//! Keys and values as a list of cache blocks, widened to float32 as they are read.

use super::Heads;
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

    /// The rows of one head and side that the first of these absolute tokens share a block with.
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
            KvLayout::HeadMajor => ((head * self.block_tokens + slot) * room, room),
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
        for (index, row) in rows.chunks_exact_mut(dim).enumerate() {
            let token = self.first + index;
            self.run(shape, side, token..token + 1, head).widen::<Portable>(row, dim);
        }
        rows
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

/// How a type of cache lies in bytes.
trait Stored {
    /// Widens whole blocks.
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]);
}

struct F32;
struct F16;
struct Bf16;
struct Q8_0;
struct Q4_0;

impl Stored for F32 {
    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
            *x = f32::from_ne_bytes(*b);
        }
    }
}

impl Stored for F16 {
    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        A::widen_f16(bytes, out);
    }
}

impl Stored for Bf16 {
    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
            *x = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
        }
    }
}

impl Stored for Q8_0 {
    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        A::widen_q8_0(bytes, out);
    }
}

impl Stored for Q4_0 {
    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        A::widen_q4_0(bytes, out);
    }
}

/// The bytes of float32 values, as they lie in memory.
pub fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: any initialised memory may be read as bytes, and the length in bytes is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
