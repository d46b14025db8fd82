//! How the scales of sixteen rows lie at the head of a panel's block, sixteen of a kind side by side.
//!
//! Heads take the bytes that the files' blocks take, and hold the same numbers: a scale is formed from them as the
//! dequantiser forms it, so that unpacking a panel gives the dequantiser's bits.

use crate::lanes::{Lanes, WIDTH};
use crate::quant::{self, Block, MAX_SUBS};

/// The sixteen blocks, one of each row, that a panel's block is made of.
pub(crate) type Rows<'a> = [&'a [u8]; WIDTH];
/// A number for each row, of one run with a scale of its own.
pub(crate) type Sub = [f32; WIDTH];
/// As many as the largest block has.
pub(crate) type Subs = [Sub; MAX_SUBS];

/// A block type that panels are made of.
pub(crate) trait Packed: Block {
    /// Bytes of the codes of a panel's block.
    const CODES: usize = WIDTH * Self::LEN * Self::BITS / 8;
    /// Bytes of its head: what the codes leave.
    const HEAD: usize = WIDTH * Self::BYTES - Self::CODES;

    /// Writes the zeroed head.
    fn pack_head(rows: &Rows<'_>, head: &mut [u8]);
    /// Forms the first `LEN / SUB` scales, and minima where the type has them.
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], minima: &mut [Sub]);
}

/// Places the f16 at `at` of each row's block side by side.
fn pack_f16(rows: &Rows<'_>, at: usize, head: &mut [u8]) {
    for (out, row) in head.chunks_exact_mut(2).zip(rows) {
        out.copy_from_slice(&row[at..at + 2]);
    }
}

/// Sixteen f16 at `at`, widened.
#[inline(always)]
fn f16s<L: Lanes>(l: L, head: &[u8], at: usize) -> L::F {
    match head[at..].first_chunk() {
        Some(bytes) => l.load_f16(bytes),
        None => l.splat(0.0),
    }
}

/// Sixteen bytes at `at`.
#[inline(always)]
fn bytes<L: Lanes>(l: L, head: &[u8], at: usize) -> L::S {
    match head[at..].first_chunk() {
        Some(bytes) => l.small(bytes),
        None => l.small(&[0; 16]),
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
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], minima: &mut [Sub]) {
                l.store(f16s(l, head, 0), &mut scales[0]);
                if Self::HAS_MINIMUM {
                    l.store(f16s(l, head, 32), &mut minima[0]);
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
    fn unpack_head<L: Lanes>(_: L, head: &[u8], scales: &mut [Sub], _: &mut [Sub]) {
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
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], minima: &mut [Sub]) {
                let (d, dmin) = (f16s(l, head, 0), l.mul(f16s(l, head, 32), l.splat(-1.0)));
                for sub in 0..8 {
                    let (low, high) = (bytes(l, head, 64 + 16 * sub), bytes(l, head, 192 + 16 * (sub / 2)));
                    let shift = 4 * (sub % 2) as i32;
                    let scale = l.small_or(l.small_field(low, 0, 15), l.small_field(high, shift - 4, 48));
                    let minimum = l.small_or(l.small_field(low, 4, 15), l.small_field(high, shift - 2, 48));
                    l.store(l.mul(d, l.small_to_float(scale, false)), &mut scales[sub]);
                    l.store(l.mul(dmin, l.small_to_float(minimum, false)), &mut minima[sub]);
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
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], _: &mut [Sub]) {
        let d = f16s(l, head, 0);
        for (sub, scales) in scales[..MAX_SUBS].iter_mut().enumerate() {
            l.store(l.mul(d, l.small_to_float(bytes(l, head, 32 + 16 * sub), true)), scales);
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
    fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], minima: &mut [Sub]) {
        let (d, dmin) = (f16s(l, head, 0), l.mul(f16s(l, head, 32), l.splat(-1.0)));
        for (sub, (scales, minima)) in scales[..MAX_SUBS].iter_mut().zip(minima).enumerate() {
            let both = bytes(l, head, 64 + 16 * sub);
            l.store(l.mul(d, l.small_to_float(l.small_field(both, 0, 15), false)), scales);
            l.store(l.mul(dmin, l.small_to_float(l.small_field(both, 4, 15), false)), minima);
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
            fn unpack_head<L: Lanes>(l: L, head: &[u8], scales: &mut [Sub], _: &mut [Sub]) {
                let subs = Self::LEN / Self::SUB;
                let d = f16s(l, head, 0);
                for (sub, scales) in scales[..subs].iter_mut().enumerate() {
                    let low = bytes(l, head, 32 + 16 * (sub / 2));
                    let high = bytes(l, head, 32 + 8 * subs + 16 * (sub / 4));
                    let low = l.small_field(low, 4 * (sub % 2) as i32, 15);
                    let high = l.small_field(high, 2 * (sub % 4) as i32 - 4, 48);
                    let stored = l.add(l.small_to_float(l.small_or(low, high), false), l.splat(-32.0));
                    l.store(l.mul(d, stored), scales);
                }
            }
        }
    };
}
six_bits!(quant::Q3K, 108, |row, sub| quant::six_bit_scale(&row[96..108], sub));
six_bits!(quant::Iq4Xs, 0, |row, sub| quant::iq4_scale(row, sub));
