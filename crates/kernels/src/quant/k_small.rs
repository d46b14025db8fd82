//! Super-blocks of 256 with two and three bits a code and a scale for every 16: `Q2_K` and `Q3_K`.

use super::block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
use super::four_bit::{f16_at, put_f16};
use super::search;
use crate::DType;

/// `16 bytes of scales (lower half) and minima (upper half), 64 bytes of codes, d f16, dmin f16`.
pub(crate) struct Q2K;
/// `32 bytes of third bits, 64 bytes of lower bits, 12 bytes of six-bit scales, d f16`; value `d (scale - 32)
/// (code - 4)`.
pub(crate) struct Q3K;

/// Byte (of 64) and shift of the two lower bits of element `i`: each half of 128 has four runs of 32 in 32 bytes.
#[inline(always)]
fn two_bits(i: usize) -> (usize, usize) {
    (32 * (i / 128) + i % 32, 2 * (i / 32 % 4))
}

fn get_two(bytes: &[u8], codes: &mut [u8; MAX_BLOCK]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        let (first, shift) = two_bits(32 * run);
        for (code, byte) in codes.iter_mut().zip(&bytes[first..first + 32]) {
            *code = byte >> shift & 3;
        }
    }
}

fn put_two(codes: &[u8; MAX_BLOCK], bytes: &mut [u8]) {
    bytes[..64].fill(0);
    for (i, code) in codes.iter().enumerate() {
        let (byte, shift) = two_bits(i);
        bytes[byte] |= (code & 3) << shift;
    }
}

impl Block for Q2K {
    const DTYPE: DType = DType::Q2_K;
    const SUB: usize = 16;
    const BITS: usize = 2;
    const CODING: Coding = Coding::Unsigned { zero: 0 };
    const HAS_MINIMUM: bool = true;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_two(&block[16..80], codes);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
        let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
        for ((scale, minimum), &byte) in scales.iter_mut().zip(minima).zip(&block[..16]) {
            *scale = d * f32::from(byte & 15);
            *minimum = -(dmin * f32::from(byte >> 4));
        }
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let fits: [(f32, f32); 16] =
            std::array::from_fn(|sub| search::affine_below(&x[16 * sub..16 * sub + 16], 3, &search::by_size));
        let d = put_f16(block, 80, fits.iter().fold(0.0, |most: f32, fit| most.max(fit.0)) / 15.0);
        let dmin = put_f16(block, 82, fits.iter().fold(0.0, |most: f32, fit| most.max(-fit.1)) / 15.0);
        let mut codes = [0; MAX_BLOCK];
        for (sub, fit) in fits.iter().enumerate() {
            let run = 16 * sub..16 * sub + 16;
            let scale = search::round_code(fit.0 * search::inverse(d), 15);
            let minimum = search::round_code(-fit.1 * search::inverse(dmin), 15);
            block[sub] = scale | minimum << 4;
            let (scale, minimum) = (d * f32::from(scale), -(dmin * f32::from(minimum)));
            search::affine_codes(&x[run.clone()], scale, minimum, 3, &mut codes[run]);
        }
        put_two(&codes, &mut block[16..80]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 80, f32::NAN).is_nan()
    }
}

/// The six-bit scale of run `sub` (0..16): lower four bits in the halves of bytes 0..8, upper two in bytes 8..12.
#[inline(always)]
pub(crate) fn six_bit_scale(packed: &[u8], sub: usize) -> u8 {
    let low = packed[sub % 8] >> (4 * (sub / 8)) & 15;
    low | (packed[8 + sub % 4] >> (2 * (sub / 4)) & 3) << 4
}

impl Block for Q3K {
    const DTYPE: DType = DType::Q3_K;
    const SUB: usize = 16;
    const BITS: usize = 3;
    const CODING: Coding = Coding::Unsigned { zero: 4 };
    const HAS_MINIMUM: bool = false;

    /// Bit `s` of byte `l` of the third bits belongs to element `32 s + l`.
    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_two(&block[32..96], codes);
        for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, bits) in codes.iter_mut().zip(&block[..32]) {
                *code |= (bits >> run & 1) << 2;
            }
        }
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        let d = f16_at(block, 108);
        for (sub, scale) in scales.iter_mut().enumerate() {
            *scale = d * (f32::from(six_bit_scale(&block[96..108], sub)) - 32.0);
        }
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let fits: [f32; 16] =
            std::array::from_fn(|sub| search::signed_scale(&x[16 * sub..16 * sub + 16], 4, &search::by_size));
        let (d, scales) = search::signed_sub_scales(&fits, 31);
        let d = put_f16(block, 108, d);
        block[..108].fill(0);
        let mut codes = [0; MAX_BLOCK];
        for (sub, &scale) in scales.iter().enumerate() {
            let run = 16 * sub..16 * sub + 16;
            search::signed_codes(&x[run.clone()], d * f32::from(scale), 4, &mut codes[run]);
            let stored = (scale + 32) as u8;
            block[96 + sub % 8] |= (stored & 15) << (4 * (sub / 8));
            block[104 + sub % 4] |= (stored >> 4) << (2 * (sub / 4));
        }
        put_two(&codes, &mut block[32..96]);
        for (run, codes) in codes.chunks_exact(32).enumerate() {
            for (bits, code) in block[..32].iter_mut().zip(codes) {
                *bits |= (code >> 2 & 1) << run;
            }
        }
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 108, f32::NAN).is_nan()
    }
}
