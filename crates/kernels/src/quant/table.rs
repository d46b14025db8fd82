//! Codes that are indices of a table: `IQ4_NL`, `IQ4_XS` and `MXFP4`.

use super::block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
use super::four_bit::{f16_at, get_halves, nibble, put_f16, put_halves, set_nibble, u16_at};
use super::search;
use crate::DType;

/// The sixteen values of the `IQ4` types: dense near zero, where weights are.
const NON_LINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The sixteen values of a 4-bit float (OCX E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6), doubled to be whole.
const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `d f16, 16 bytes of codes`.
pub(crate) struct Iq4Nl;
/// `d f16, upper bits of the scales u16, 4 bytes of their lower bits, 128 bytes of codes`; blocks of 256 with a scale
/// of six bits, `d (scale - 32)`, for every 32.
pub(crate) struct Iq4Xs;
/// `exponent u8, 16 bytes of codes`; the scale is `2^(exponent - 127)` (OCX MXFP4).
pub(crate) struct Mxfp4;

/// `2^(exponent - 128)`: half the scale, because the table is doubled. As in the reference, exponent 255 is a number.
/// Below 2^-126 the number is subnormal.
static HALF_POWERS: [f32; 256] = {
    let mut powers = [0.0; 256];
    let mut exponent = 0;
    while exponent < 256 {
        powers[exponent as usize] =
            f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
        exponent += 1;
    }
    powers
};

/// An entry of [`HALF_POWERS`].
#[inline(always)]
pub(crate) fn half_power(exponent: u8) -> f32 {
    HALF_POWERS[usize::from(exponent)]
}

/// The six-bit scale of run `sub` (0..8) of an `IQ4_XS` block.
#[inline(always)]
pub(crate) fn iq4_scale(block: &[u8], sub: usize) -> u8 {
    nibble(block[4 + sub / 2], sub % 2 == 1) | ((u16_at(block, 2) >> (2 * sub) & 3) as u8) << 4
}

impl Block for Iq4Nl {
    const DTYPE: DType = DType::IQ4_NL;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Table(&NON_LINEAR);
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[2..], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        scales[0] = f16_at(block, 0);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut codes = [0; 32];
        let scale = put_f16(block, 0, search::table_scale(x, &NON_LINEAR));
        search::table_codes(x, scale, &NON_LINEAR, &mut codes);
        put_halves(&codes, &mut block[2..]);
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Iq4Xs {
    const DTYPE: DType = DType::IQ4_XS;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Table(&NON_LINEAR);
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        for (bytes, codes) in block[8..].chunks_exact(16).zip(codes.chunks_exact_mut(32)) {
            get_halves(bytes, codes);
        }
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        let d = f16_at(block, 0);
        for (sub, scale) in scales[..8].iter_mut().enumerate() {
            *scale = d * (f32::from(iq4_scale(block, sub)) - 32.0);
        }
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        let mut fits = [0.0; 16];
        for (fit, x) in fits.iter_mut().zip(x.chunks_exact(32)) {
            *fit = search::table_scale(x, &NON_LINEAR);
        }
        let (d, scales) = search::signed_sub_scales(&fits, 31);
        block.fill(0);
        let d = put_f16(block, 0, d);
        let mut upper = 0u16;
        for (sub, x) in x.chunks_exact(32).enumerate() {
            let stored = (scales[sub] + 32) as u8;
            set_nibble(&mut block[4 + sub / 2], sub % 2 == 1, stored & 15);
            upper |= u16::from(stored >> 4) << (2 * sub);
            let mut codes = [0; 32];
            search::table_codes(x, d * f32::from(scales[sub]), &NON_LINEAR, &mut codes);
            put_halves(&codes, &mut block[8 + 16 * sub..]);
        }
        block[2..4].copy_from_slice(&upper.to_le_bytes());
    }
    fn poison(block: &mut [u8]) -> bool {
        put_f16(block, 0, f32::NAN).is_nan()
    }
}

impl Block for Mxfp4 {
    const DTYPE: DType = DType::MXFP4;
    const SUB: usize = 32;
    const BITS: usize = 4;
    const CODING: Coding = Coding::Table(&E2M1_DOUBLED);
    const HAS_MINIMUM: bool = false;

    fn codes(block: &[u8], codes: &mut [u8; MAX_BLOCK]) {
        get_halves(&block[1..], &mut codes[..32]);
    }
    fn scales(block: &[u8], scales: &mut [f32; MAX_SUBS], _: &mut [f32; MAX_SUBS]) {
        scales[0] = half_power(block[0]);
    }
    fn encode(x: &[f32], block: &mut [u8]) {
        // Two powers are candidates: the one under which the largest value stays below 6, and the next smaller one,
        // which clips it but halves the other steps.
        let most = search::absmax(x);
        let power = if most > 0.0 { most.log2().floor() as i32 - 2 } else { -127 };
        let mut best = (f64::INFINITY, 0, [0; 32]);
        for exponent in [power, power + 1].map(|power| (power + 127).clamp(0, 254) as u8) {
            let (mut codes, scale) = ([0; 32], half_power(exponent));
            search::table_codes(x, scale, &E2M1_DOUBLED, &mut codes);
            let error = search::squared_error(x, &codes, |code| scale * Self::CODING.value(code) as f32);
            if error < best.0 {
                best = (error, exponent, codes);
            }
        }
        block[0] = best.1;
        put_halves(&best.2, &mut block[1..]);
    }
    /// Readers differ over exponent 255: there is no scale that says "not a number" to all.
    fn poison(_: &mut [u8]) -> bool {
        false
    }
}
