//! Super-blocks of 256 with a scale and a minimum of six bits for every 32: `Q4_K` and `Q5_K`.

use super::block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
use super::four_bit::{f16_at, put_f16};
use super::search;
use crate::DType;

/// `d f16, dmin f16, 12 bytes of scales and minima, 128 bytes of codes`.
pub(crate) struct Q4K;
/// `d f16, dmin f16, 12 bytes of scales and minima, 32 bytes of fifth bits, 128 bytes of lower bits`.
pub(crate) struct Q5K;

/// The six-bit scale and minimum of run `sub` (0..8). The first four lie in the lower six bits of bytes 0..4 and
/// 4..8; of the others, bytes 8..12 hold the lower four bits and the two free bits of bytes 0..8 the upper two.
#[inline(always)]
pub(crate) fn scale_and_minimum(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        let low = packed[sub + 4];
        ((low & 15) | (packed[sub - 4] >> 6) << 4, (low >> 4) | (packed[sub] >> 6) << 4)
    }
}

/// Writes what [`scale_and_minimum`] reads.
fn put_scales(scales: &[u8; 8], minima: &[u8; 8], packed: &mut [u8]) {
    for sub in 0..4 {
        packed[sub] = scales[sub] | (scales[sub + 4] >> 4) << 6;
        packed[sub + 4] = minima[sub] | (minima[sub + 4] >> 4) << 6;
        packed[sub + 8] = (scales[sub + 4] & 15) | (minima[sub + 4] & 15) << 4;
    }
}

fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    for sub in 0..8 {
        let (scale, minimum) = scale_and_minimum(&block[4..16], sub);
        scales[sub] = d * f32::from(scale);
        minima[sub] = -(dmin * f32::from(minimum));
    }
}

/// Elements `64 n .. 64 n + 32` lie in the lower halves of bytes `32 n ..`, the next 32 in the upper ones.
fn get_low(bytes: &[u8], codes: &mut [u8; MAX_BLOCK]) {
    for (bytes, codes) in bytes[..128].chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        let (low, high) = codes.split_at_mut(32);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

fn put_low(codes: &[u8; MAX_BLOCK], bytes: &mut [u8]) {
    for (bytes, codes) in bytes[..128].chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        for (j, byte) in bytes.iter_mut().enumerate() {
            *byte = codes[j] & 15 | (codes[j + 32] & 15) << 4;
        }
    }
}

/// Chooses everything but the layout of the codes, and writes the first 16 bytes.
fn encode(x: &[f32], most: u8, block: &mut [u8], codes: &mut [u8; MAX_BLOCK]) {
    let fits: [(f32, f32); 8] =
        std::array::from_fn(|sub| search::affine_below(&x[32 * sub..32 * sub + 32], most, &search::by_size));
    let d = put_f16(block, 0, fits.iter().fold(0.0, |most: f32, fit| most.max(fit.0)) / 63.0);
    let dmin = put_f16(block, 2, fits.iter().fold(0.0, |most: f32, fit| most.max(-fit.1)) / 63.0);
    let scales = fits.map(|fit| search::round_code(fit.0 * search::inverse(d), 63));
    let minima = fits.map(|fit| search::round_code(-fit.1 * search::inverse(dmin), 63));
    put_scales(&scales, &minima, &mut block[4..16]);
    for sub in 0..8 {
        let run = 32 * sub..32 * sub + 32;
        let (scale, minimum) = (d * f32::from(scales[sub]), -(dmin * f32::from(minima[sub])));
        search::affine_codes(&x[run.clone()], scale, minimum, most, &mut codes[run]);
    }
}

/// Every run's scale is non-finite as soon as `d` is.
fn poison(block: &mut [u8]) -> bool {
    put_f16(block, 0, f32::NAN).is_nan()
}

impl Block for Q4K {
    const DTYPE: DType = DType::Q4_K;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Unsigned { zero: 0 };
    const HAS_MINIMUM: bool = true;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_low(&block[16..], codes);
    }
    fn scales(block: &[u8], out: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
        scales(block, out, minima);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; MAX_BLOCK];
        encode(x, 15, block, &mut codes);
        put_low(&codes, &mut block[16..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        poison(block)
    }
}

impl Block for Q5K {
    const DTYPE: DType = DType::Q5_K;
    const SUB: usize = 32;
    const BITS: usize = 5;
    const CODING: Coding = Coding::Unsigned { zero: 0 };
    const HAS_MINIMUM: bool = true;

    /// Bit `s` of byte `l` of the fifth bits belongs to element `32 s + l`.
    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_low(&block[48..], codes);
        for (sub, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, bits) in codes.iter_mut().zip(&block[16..48]) {
                *code |= (bits >> sub & 1) << 4;
            }
        }
    }
    fn scales(block: &[u8], out: &mut [f32; MAX_SUBS], minima: &mut [f32; MAX_SUBS]) {
        scales(block, out, minima);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; MAX_BLOCK];
        encode(x, 31, block, &mut codes);
        put_low(&codes, &mut block[48..]);
        block[16..48].fill(0);
        for (sub, codes) in codes.chunks_exact(32).enumerate() {
            for (bits, code) in block[16..48].iter_mut().zip(codes) {
                *bits |= (code >> 4 & 1) << sub;
            }
        }
    }
    fn poison(block: &mut [u8]) -> bool {
        poison(block)
    }
}
