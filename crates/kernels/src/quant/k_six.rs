//! `Q6_K`: super-blocks of 256 with a signed eight-bit scale for every 16.

use super::block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
use super::four_bit::{f16_at, put_f16};
use super::search;
use crate::DType;

/// `128 bytes of lower four bits, 64 bytes of upper two bits, 16 x i8 scales, d f16`; value `d scale (code - 32)`.
pub(crate) struct Q6K;

/// Where the bits of element `i` lie: byte and shift of the lower four, byte and shift of the upper two.
///
/// Each half of 128 has four runs of 32: runs 0 and 1 in the lower, 2 and 3 in the upper halves of 64 bytes; the upper
/// bits of all four share 32 bytes.
#[inline(always)]
fn places(i: usize) -> ((usize, usize), (usize, usize)) {
    let (half, run, l) = (i / 128, i / 32 % 4, i % 32);
    ((64 * half + 32 * (run % 2) + l, 4 * (run / 2)), (128 + 32 * half + l, 2 * run))
}

impl Block for Q6K {
    const DTYPE: DType = DType::Q6_K;
    const SUB: usize = 16;
    const BITS: usize = 6;
    const CODING: Coding = Coding::Unsigned { zero: 32 };
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
            let (low, high) = places(32 * run);
            let bytes = block[low.0..low.0 + 32].iter().zip(&block[high.0..high.0 + 32]);
            for (code, (low_bits, high_bits)) in codes.iter_mut().zip(bytes) {
                *code = (low_bits >> low.1 & 15) | (high_bits >> high.1 & 3) << 4;
            }
        }
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        let d = f16_at(block, 208);
        for (scale, &byte) in scales.iter_mut().zip(&block[192..208]) {
            *scale = d * f32::from(byte as i8);
        }
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let fits: [f32; 16] =
            std::array::from_fn(|sub| search::signed_scale(&x[16 * sub..16 * sub + 16], 32, &search::by_size));
        let (d, scales) = search::signed_sub_scales(&fits, 127);
        let d = put_f16(block, 208, d);
        let mut codes = [0; MAX_BLOCK];
        for sub in 0..16 {
            let run = 16 * sub..16 * sub + 16;
            block[192 + sub] = scales[sub] as u8;
            search::signed_codes(&x[run.clone()], d * f32::from(scales[sub]), 32, &mut codes[run]);
        }
        block[..192].fill(0);
        for (i, code) in codes.iter().enumerate() {
            let (low, high) = places(i);
            block[low.0] |= (code & 15) << low.1;
            block[high.0] |= (code >> 4) << high.1;
        }
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 208, f32::NAN).is_nan()
    }
}
