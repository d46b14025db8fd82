//! Blocks of 32 under one f16 scale (`_0`) or a scale and a minimum (`_1`).

use super::block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
use super::four_bit::{f16_at, get_halves, put_f16, put_halves};
use super::search;
use crate::DType;

/// `d f16, 16 bytes of codes`; value `d (code - 8)`.
pub(crate) struct Q4_0;
/// `d f16, m f16, 16 bytes of codes`; value `d code + m`.
pub(crate) struct Q4_1;
/// `d f16, fifth bits u32, 16 bytes of lower bits`; value `d (code - 16)`.
pub(crate) struct Q5_0;
/// `d f16, m f16, fifth bits u32, 16 bytes of lower bits`; value `d code + m`.
pub(crate) struct Q5_1;
/// `d f16, 32 x i8`; value `d code`.
pub(crate) struct Q8_0;

/// Adds the fifth bits, bit `i` of the u32 at `bits` belonging to element `i`.
fn add_fifth(bits: &[u8], codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (bits[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Writes the fifth bits.
fn put_fifth(codes: &[u8], bits: &mut [u8]) {
    bits[..4].fill(0);
    for (i, code) in codes.iter().enumerate() {
        bits[i / 8] |= (code >> 4 & 1) << (i % 8);
    }
}

impl Block for Q4_0 {
    const DTYPE: DType = DType::Q4_0;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Unsigned { zero: 8 };
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[2..], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; 32];
        let scale = put_f16(block, 0, search::signed_scale(x, 8, &search::even));
        search::signed_codes(x, scale, 8, &mut codes);
        put_halves(&codes, &mut block[2..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Q4_1 {
    const DTYPE: DType = DType::Q4_1;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Unsigned { zero: 0 };
    const HAS_MINIMUM: bool = true;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[4..], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
        minima[0] = f16_at(block, 2);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; 32];
        let (scale, minimum) = search::affine(x, 15, &search::even);
        let (scale, minimum) = (put_f16(block, 0, scale), put_f16(block, 2, minimum));
        search::affine_codes(x, scale, minimum, 15, &mut codes);
        put_halves(&codes, &mut block[4..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Q5_0 {
    const DTYPE: DType = DType::Q5_0;
    const SUB: usize = 32;
    const BITS: usize = 5;
    const CODING: Coding = Coding::Unsigned { zero: 16 };
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[6..], &mut codes[..32]);
        add_fifth(&block[2..6], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; 32];
        let scale = put_f16(block, 0, search::signed_scale(x, 16, &search::even));
        search::signed_codes(x, scale, 16, &mut codes);
        put_fifth(&codes, &mut block[2..6]);
        put_halves(&codes, &mut block[6..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Q5_1 {
    const DTYPE: DType = DType::Q5_1;
    const SUB: usize = 32;
    const BITS: usize = 5;
    const CODING: Coding = Coding::Unsigned { zero: 0 };
    const HAS_MINIMUM: bool = true;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[8..], &mut codes[..32]);
        add_fifth(&block[4..8], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
        minima[0] = f16_at(block, 2);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; 32];
        let (scale, minimum) = search::affine(x, 31, &search::even);
        let (scale, minimum) = (put_f16(block, 0, scale), put_f16(block, 2, minimum));
        search::affine_codes(x, scale, minimum, 31, &mut codes);
        put_fifth(&codes, &mut block[4..8]);
        put_halves(&codes, &mut block[8..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const SUB: usize = 32;
    const BITS: usize = 8;
    const CODING: Coding = Coding::Signed;
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        codes[..32].copy_from_slice(&block[2..34]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        // No search: at eight bits the largest value decides, and every tool writes the same bytes.
        let scale = search::absmax(x) / 127.0;
        put_f16(block, 0, scale);
        let inverse = search::inverse(scale);
        for (byte, &x) in block[2..34].iter_mut().zip(x) {
            *byte = (x * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
        }
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}
