//! What all block types have in common.

use crate::{DType, KernelError};

/// The longest block, in elements.
pub(crate) const MAX_BLOCK: usize = 256;
/// The most runs with a scale of their own in a block.
pub(crate) const MAX_SUBS: usize = 16;

/// What a code stands for, before the scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// `code - zero`
    Unsigned { zero: u8 },
    /// The code's bits are an i8.
    Signed,
    /// The code is an index.
    Table(&'static [i8; 16]),
}

impl Coding {
    /// The number that `code` stands for, before the scale.
    #[inline(always)]
    pub(crate) const fn value(self, code: u8) -> i32 {
        match self {
            Coding::Unsigned { zero } => code as i32 - zero as i32,
            Coding::Signed => code as i8 as i32,
            Coding::Table(table) => table[(code & 15) as usize] as i32,
        }
    }
}

/// A block type: where in its bytes the codes and the scales lie.
pub(crate) trait Block {
    const DTYPE: DType;
    /// Elements of a block, bytes of a block.
    const LEN: usize = Self::DTYPE.block_len();
    const BYTES: usize = Self::DTYPE.block_bytes();
    /// Elements that share a scale.
    const SUB: usize;
    /// Bits of a code.
    const BITS: usize;
    const CODING: Coding;
    const HAS_MINIMUM: bool;

    /// Writes `LEN` codes in the order of the elements.
    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]);
    /// Writes `LEN / SUB` scales, and minima where the type has them.
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]);
    /// Chooses scales for `x` (`LEN` finite elements) and writes the block.
    fn encode(x: &[f32], block: &mut [u8]);
    /// Writes a zeroed block whose scale makes every element non-finite; false where the type has no such scale.
    fn poison(block: &mut [u8]) -> bool;
}

/// Dequantises whole blocks. The products are exact in f32 for every type with a minimum, so that each element is
/// rounded once, with or without fused multiplication.
pub(super) fn dequantize<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let (mut codes, mut scales, mut minima) = ([0; MAX_BLOCK], [0.0; MAX_SUBS], [0.0; MAX_SUBS]);
    for (block, out) in bytes.chunks_exact(B::BYTES).zip(out.chunks_exact_mut(B::LEN)) {
        B::codes(block, &mut codes);
        B::scales(block, &mut scales, &mut minima);
        let subs = out.chunks_exact_mut(B::SUB).zip(codes.chunks_exact(B::SUB));
        for ((out, codes), (&scale, &minimum)) in subs.zip(scales.iter().zip(&minima)) {
            for (out, &code) in out.iter_mut().zip(codes) {
                let value = scale * B::CODING.value(code) as f32;
                *out = if B::HAS_MINIMUM { value + minimum } else { value };
            }
        }
    }
}

/// Quantises whole blocks.
pub(super) fn quantize<B: Block>(x: &[f32], out: &mut [u8]) -> Result<(), KernelError> {
    for (x, block) in x.chunks_exact(B::LEN).zip(out.chunks_exact_mut(B::BYTES)) {
        if x.iter().all(|value| value.is_finite()) {
            B::encode(x, block);
            continue;
        }
        block.fill(0);
        if !B::poison(block) {
            return Err(KernelError::NotFinite { dtype: B::DTYPE });
        }
    }
    Ok(())
}
