//! Keys and values as a list of cache blocks, widened to float32 as they are read.

use super::Heads;
use crate::DType;
use crate::arch::{Arch, Portable, widen_f16};

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

    /// Widens the row of absolute token `token` and KV head `head` into `out`, `[dim]`.
    #[inline(always)]
    pub(crate) fn read<A: Arch>(&self, shape: &Heads, side: Side, token: usize, head: usize, out: &mut [f32]) {
        let (dtype, dim) = match side {
            Side::Key => (self.key_type, shape.key_dim),
            Side::Value => (self.value_type, shape.value_dim),
        };
        let index = token - self.first;
        let (block, slot) = (index / self.block_tokens, index % self.block_tokens);
        let bytes = match side {
            Side::Key => self.blocks[block].0,
            Side::Value => self.blocks[block].1,
        };
        let row = match self.layout {
            KvLayout::TokenMajor => slot * shape.kv_heads + head,
            KvLayout::HeadMajor => head * self.block_tokens + slot,
        };
        let bytes_of = |dim: usize| dim / dtype.block_len() * dtype.block_bytes();
        let row_bytes = bytes_of(if self.values_in_keys { shape.key_dim } else { dim });
        let start = row * row_bytes;
        widen::<A>(dtype, &bytes[start..start + bytes_of(dim)], &mut out[..dim]);
    }

    /// The rows of one head and side, `[S, dim]`.
    pub(crate) fn gather(&self, shape: &Heads, side: Side, head: usize) -> Vec<f32> {
        let dim = match side {
            Side::Key => shape.key_dim,
            Side::Value => shape.value_dim,
        };
        let mut rows = vec![0.0; self.len.saturating_sub(self.first) * dim];
        for (token, row) in rows.chunks_exact_mut(dim).enumerate() {
            self.read::<Portable>(shape, side, self.first + token, head, row);
        }
        rows
    }
}

/// The bytes of float32 values, as they lie in memory.
pub fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: any initialised memory may be read as bytes, and the length in bytes is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Widens one row exactly. Panics for a type that no cache has.
#[inline(always)]
fn widen<A: Arch>(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *x = f32::from_ne_bytes(*b);
            }
        }
        DType::F16 => A::widen_f16(bytes, out),
        DType::BF16 => {
            for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *x = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            }
        }
        DType::Q8_0 => {
            for (x, b) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
                let scale = widen_f16(u16::from_le_bytes([b[0], b[1]]));
                for (x, &q) in x.iter_mut().zip(&b[2..]) {
                    *x = scale * f32::from(q as i8);
                }
            }
        }
        DType::Q4_0 => {
            for (x, b) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<18>().0) {
                let scale = widen_f16(u16::from_le_bytes([b[0], b[1]]));
                let (low, high) = x.split_at_mut(16);
                for ((low, high), &q) in low.iter_mut().zip(high).zip(&b[2..]) {
                    *low = scale * f32::from((q & 15) as i8 - 8);
                    *high = scale * f32::from((q >> 4) as i8 - 8);
                }
            }
        }
        other => panic!("{other} is not a type of caches"),
    }
}
