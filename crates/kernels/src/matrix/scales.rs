//! How the scales of sixteen rows lie at the head of a panel's block, sixteen of a kind side by side.
//!
//! Heads take the bytes that the files' blocks take, and hold the same numbers: a scale is formed from them as the
//! dequantiser forms it, so that unpacking a panel gives the dequantiser's bits.

use crate::lanes::{Lanes, WIDTH};
use crate::quant::{self, Block, MAX_SUBS};

/// The sixteen blocks, one of each row, that a panel's block is made of.
pub(crate) type Rows<'a> = [&'a [u8]; WIDTH];
/// A number for each run with a scale of its own, for each row.
pub(crate) type Subs = [[f32; WIDTH]; MAX_SUBS];

/// A block type that panels are made of.
pub(crate) trait Packed: Block {
    /// Bytes of the head: what the codes leave.
    const HEAD: usize = WIDTH * Self::BYTES - WIDTH * Self::LEN * Self::BITS / 8;

    /// Writes the zeroed head.
    fn pack_head(rows: &Rows<'_>, head: &mut [u8]);
    /// Forms the first `LEN / SUB` scales, and minima where the type has them.
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, minima: &mut Subs);
}

/// Places the f16 at `at` of each row's block side by side.
fn pack_f16(rows: &Rows<'_>, at: usize, head: &mut [u8]) {
    for (out, row) in head.chunks_exact_mut(2).zip(rows) {
        out.copy_from_slice(&row[at..at + 2]);
    }
}

/// Sixteen f16 at `at`, widened.
#[inline(always)]
fn f16s<L: Lanes>(l: L, head: &[u8], at: usize) -> [f32; WIDTH] {
    let mut out = [0.0; WIDTH];
    if let Some(bytes) = head[at..].first_chunk() {
        l.store(l.load_f16(bytes), &mut out);
    }
    out
}

/// `d * value(byte)` for sixteen rows.
#[inline(always)]
fn times(d: &[f32; WIDTH], bytes: &[u8], value: impl Fn(u8) -> f32, out: &mut [f32; WIDTH]) {
    for ((out, d), &byte) in out.iter_mut().zip(d).zip(&bytes[..WIDTH]) {
        *out = d * value(byte);
    }
}

/// Types whose block has one f16 scale, and perhaps one f16 minimum after it.
macro_rules! one_scale {
    ($($block:ty),+) => {$(
        impl Packed for $block {
            fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
                pack_f16(rows, 0, &mut head[..32]);
                if Self::HAS_MINIMUM {
                    pack_f16(rows, 2, &mut head[32..64]);
                }
            }
            #[inline(always)]
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, minima: &mut Subs) {
                scales[0] = f16s(l, head, 0);
                if Self::HAS_MINIMUM {
                    minima[0] = f16s(l, head, 32);
                }
            }
        }
    )+};
}
one_scale!(quant::Q4_0, quant::Q4_1, quant::Q5_0, quant::Q5_1, quant::Q8_0, quant::Iq4Nl);

impl Packed for quant::Mxfp4 {
    fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
        for (out, row) in head.iter_mut().zip(rows) {
            *out = row[0];
        }
    }
    #[inline(always)]
    fn unpack_head<L: Lanes>(_: L, head: &[u8], scales: &mut Subs, _: &mut Subs) {
        for (scale, &exponent) in scales[0].iter_mut().zip(&head[..WIDTH]) {
            *scale = quant::half_power(exponent);
        }
    }
}

/// `Q4_K` and `Q5_K`: 32 bytes of `d`, 32 of `dmin`; for each run, 16 bytes with the lower four bits of the scale and,
/// above, of the minimum; for each two runs, 16 bytes with the upper two bits of scale and minimum, twice.
macro_rules! k_four {
    ($($block:ty),+) => {$(
        impl Packed for $block {
            fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
                pack_f16(rows, 0, &mut head[..32]);
                pack_f16(rows, 2, &mut head[32..64]);
                for (lane, row) in rows.iter().enumerate() {
                    for sub in 0..8 {
                        let (scale, minimum) = quant::scale_and_minimum(&row[4..16], sub);
                        head[64 + 16 * sub + lane] = scale & 15 | minimum << 4;
                        let upper = scale >> 4 | (minimum >> 4) << 2;
                        head[192 + 16 * (sub / 2) + lane] |= upper << (4 * (sub % 2));
                    }
                }
            }
            #[inline(always)]
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, minima: &mut Subs) {
                let (d, dmin) = (f16s(l, head, 0), f16s(l, head, 32));
                for sub in 0..8 {
                    let (low, high) = (&head[64 + 16 * sub..][..16], &head[192 + 16 * (sub / 2)..][..16]);
                    let shift = 4 * (sub % 2);
                    for i in 0..WIDTH {
                        let upper = high[i] >> shift;
                        let (scale, minimum) = (low[i] & 15 | upper << 4 & 48, low[i] >> 4 | upper << 2 & 48);
                        scales[sub][i] = d[i] * f32::from(scale);
                        minima[sub][i] = -(dmin[i] * f32::from(minimum));
                    }
                }
            }
        }
    )+};
}
k_four!(quant::Q4K, quant::Q5K);

impl Packed for quant::Q6K {
    fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
        pack_f16(rows, 208, &mut head[..32]);
        for (lane, row) in rows.iter().enumerate() {
            for (sub, &scale) in row[192..208].iter().enumerate() {
                head[32 + 16 * sub + lane] = scale;
            }
        }
    }
    #[inline(always)]
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, _: &mut Subs) {
        let d = f16s(l, head, 0);
        for (sub, scales) in scales.iter_mut().enumerate() {
            times(&d, &head[32 + 16 * sub..], |byte| f32::from(byte as i8), scales);
        }
    }
}

impl Packed for quant::Q2K {
    fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
        pack_f16(rows, 80, &mut head[..32]);
        pack_f16(rows, 82, &mut head[32..64]);
        for (lane, row) in rows.iter().enumerate() {
            for (sub, &scale) in row[..16].iter().enumerate() {
                head[64 + 16 * sub + lane] = scale;
            }
        }
    }
    #[inline(always)]
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, minima: &mut Subs) {
        let (d, dmin) = (f16s(l, head, 0), f16s(l, head, 32));
        for (sub, (scales, minima)) in scales.iter_mut().zip(minima).enumerate() {
            let bytes = &head[64 + 16 * sub..];
            times(&d, bytes, |byte| f32::from(byte & 15), scales);
            times(&dmin, bytes, |byte| -f32::from(byte >> 4), minima);
        }
    }
}

/// Types whose scales are `d (six bits - 32)`: 32 bytes of `d`; for each two runs, 16 bytes with the lower four bits
/// of their scales; for each four runs, 16 bytes with the upper two.
macro_rules! six_bits {
    ($block:ty, $d:literal, |$row:ident, $sub:ident| $stored:expr) => {
        impl Packed for $block {
            fn pack_head(rows: &Rows<'_>, head: &mut [u8]) {
                let subs = Self::LEN / Self::SUB;
                pack_f16(rows, $d, &mut head[..32]);
                for (lane, $row) in rows.iter().enumerate() {
                    for $sub in 0..subs {
                        let stored: u8 = $stored;
                        head[32 + 16 * ($sub / 2) + lane] |= (stored & 15) << (4 * ($sub % 2));
                        head[32 + 8 * subs + 16 * ($sub / 4) + lane] |= (stored >> 4) << (2 * ($sub % 4));
                    }
                }
            }
            #[inline(always)]
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut Subs, _: &mut Subs) {
                let subs = Self::LEN / Self::SUB;
                let d = f16s(l, head, 0);
                for sub in 0..subs {
                    let (low, high) =
                        (&head[32 + 16 * (sub / 2)..][..16], &head[32 + 8 * subs + 16 * (sub / 4)..][..16]);
                    for i in 0..WIDTH {
                        let stored = low[i] >> (4 * (sub % 2)) & 15 | (high[i] >> (2 * (sub % 4)) & 3) << 4;
                        scales[sub][i] = d[i] * (f32::from(stored) - 32.0);
                    }
                }
            }
        }
    };
}
six_bits!(quant::Q3K, 108, |row, sub| quant::six_bit_scale(&row[96..108], sub));
six_bits!(quant::Iq4Xs, 0, |row, sub| quant::iq4_scale(row, sub));
