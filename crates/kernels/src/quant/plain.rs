//! Plain numbers: floats and integers of every width.

use crate::DType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// f16 to f32, exact, without a branch so that it vectorises.
#[inline(always)]
pub(crate) const fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = (bits & 0x7fff) as u32;
    // Shifting the exponent field into place leaves it 112 too small; multiplying repairs it, subnormals included.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23);
    let special = if magnitude >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite.to_bits() | special | ((bits & 0x8000) as u32) << 16)
}

/// bf16 to f32, exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to bf16, to nearest even; NaN stays NaN.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    bf16::from_f32(x).to_bits()
}

/// The 8-bit float of four exponent and three mantissa bits, without infinities (OCX OFP8 E4M3, "fn").
static E4M3: [f32; 256] = {
    let mut values = [f32::NAN; 256];
    let mut bits = 0;
    while bits < 256 {
        if bits & 0x7f != 0x7f {
            // The fields are those of an f16 with a bias of 7 instead of 15: a factor of 2^8 in all.
            values[bits] = f16_to_f32(((bits & 0x80) << 8 | (bits & 0x7f) << 7) as u16) * 256.0;
        }
        bits += 1;
    }
    values
};

/// The 8-bit float of five exponent and two mantissa bits: the upper half of an f16.
static E5M2: [f32; 256] = {
    let mut values = [0.0; 256];
    let mut bits = 0;
    while bits < 256 {
        values[bits] = f16_to_f32((bits << 8) as u16);
        bits += 1;
    }
    values
};

/// The nearest 8-bit float (ties to even) among the finite `values`, of which `largest` is the last; the codes of
/// either format grow with the magnitude, so that a search over them is enough.
fn f32_to_f8(x: f32, values: &[f32; 256], largest: u8, nan: u8) -> u8 {
    let widen = |code: u8| values[usize::from(code)];
    if x.is_nan() {
        return nan;
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    let magnitude = x.abs();
    let (mut low, mut high) = (0u8, largest);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if widen(middle) <= magnitude {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (below, above) = (magnitude - widen(low), widen(high) - magnitude);
    let up = below > above || (below == above && low & 1 == 1);
    sign | if up { high } else { low }
}

/// Widens every `N` bytes with `value`.
fn each<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (out, &chunk) in out.iter_mut().zip(chunks) {
        *out = value(chunk);
    }
}

/// Fills every `N` bytes with what `bytes` makes of an element.
fn fill<const N: usize>(x: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    let (chunks, _) = out.as_chunks_mut::<N>();
    for (chunk, &x) in chunks.iter_mut().zip(x) {
        *chunk = bytes(x);
    }
}

/// Widens plain numbers; block types are not this function's business and leave `out` alone.
pub(crate) fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        DType::F32 => each(bytes, out, f32::from_le_bytes),
        DType::F16 => each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        DType::BF16 => each(bytes, out, |b| bf16_to_f32(u16::from_le_bytes(b))),
        DType::F8E4M3 => each(bytes, out, |[b]| E4M3[usize::from(b)]),
        DType::F8E5M2 => each(bytes, out, |[b]| E5M2[usize::from(b)]),
        DType::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        DType::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        DType::I16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        DType::I8 => each(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        DType::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f32),
        DType::U32 => each(bytes, out, |b| u32::from_le_bytes(b) as f32),
        DType::U16 => each(bytes, out, |b| f32::from(u16::from_le_bytes(b))),
        DType::U8 => each(bytes, out, |[b]| f32::from(b)),
        DType::Bool => each(bytes, out, |[b]| if b == 0 { 0.0 } else { 1.0 }),
        DType::Q4_0
        | DType::Q4_1
        | DType::Q5_0
        | DType::Q5_1
        | DType::Q8_0
        | DType::Q2_K
        | DType::Q3_K
        | DType::Q4_K
        | DType::Q5_K
        | DType::Q6_K
        | DType::IQ4_NL
        | DType::IQ4_XS
        | DType::MXFP4 => {}
    }
}

/// Rounds to f16, to nearest even, many at a time where the processor can.
fn narrow_f16(x: &[f32], out: &mut [u8]) {
    const MANY: usize = 64;
    let mut halves = [f16::ZERO; MANY];
    for (x, out) in x.chunks(MANY).zip(out.chunks_mut(2 * MANY)) {
        let halves = &mut halves[..x.len()];
        halves.convert_from_f32_slice(x);
        out.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(out, half)| *out = half.to_le_bytes());
    }
}

/// Rounds to plain numbers; block types are not this function's business and leave `out` alone.
pub(super) fn narrow(dtype: DType, x: &[f32], out: &mut [u8]) {
    match dtype {
        DType::F64 => fill(x, out, |x| f64::from(x).to_le_bytes()),
        DType::F32 => fill(x, out, f32::to_le_bytes),
        DType::F16 => narrow_f16(x, out),
        DType::BF16 => fill(x, out, |x| bf16::from_f32(x).to_le_bytes()),
        DType::F8E4M3 => fill(x, out, |x| [f32_to_f8(x, &E4M3, 0x7e, 0x7f)]),
        DType::F8E5M2 => fill(x, out, |x| [f32_to_f8(x, &E5M2, 0x7b, 0x7e)]),
        DType::I64 => fill(x, out, |x| (x.round_ties_even() as i64).to_le_bytes()),
        DType::I32 => fill(x, out, |x| (x.round_ties_even() as i32).to_le_bytes()),
        DType::I16 => fill(x, out, |x| (x.round_ties_even() as i16).to_le_bytes()),
        DType::I8 => fill(x, out, |x| (x.round_ties_even() as i8).to_le_bytes()),
        DType::U64 => fill(x, out, |x| (x.round_ties_even() as u64).to_le_bytes()),
        DType::U32 => fill(x, out, |x| (x.round_ties_even() as u32).to_le_bytes()),
        DType::U16 => fill(x, out, |x| (x.round_ties_even() as u16).to_le_bytes()),
        DType::U8 => fill(x, out, |x| [x.round_ties_even() as u8]),
        DType::Bool => fill(x, out, |x| [u8::from(x != 0.0)]),
        DType::Q4_0
        | DType::Q4_1
        | DType::Q5_0
        | DType::Q5_1
        | DType::Q8_0
        | DType::Q2_K
        | DType::Q3_K
        | DType::Q4_K
        | DType::Q5_K
        | DType::Q6_K
        | DType::IQ4_NL
        | DType::IQ4_XS
        | DType::MXFP4 => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn eight_bit_floats_have_their_landmarks_and_round_trip() {
        assert_eq!(E4M3[0x7e], 448.0);
        assert_eq!(E4M3[0x01], 1.0 / 512.0);
        assert_eq!(E4M3[0x38], 1.0);
        assert!(E4M3[0xff].is_nan());
        assert_eq!(E5M2[0x7b], 57344.0);
        assert_eq!(E5M2[0xfc], f32::NEG_INFINITY);
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            for bits in 0..=u8::MAX {
                let (mut wide, mut back) = ([0.0], [0]);
                widen(dtype, &[bits], &mut wide);
                narrow(dtype, &wide, &mut back);
                assert!(!wide[0].is_finite() || back[0] == bits, "{dtype} {bits:#x}");
            }
            let mut out = [0; 3];
            narrow(dtype, &[1e9, -1e9, f32::NAN], &mut out);
            let mut wide = [0.0; 3];
            widen(dtype, &out, &mut wide);
            assert!(wide[0].is_finite() && wide[0] == -wide[1] && wide[2].is_nan());
        }
        // Halfway between 16 (even) and 18, and between 18 and 20 (even).
        let mut out = [0; 2];
        narrow(DType::F8E4M3, &[17.0, 19.0], &mut out);
        assert_eq!(out.map(|code| E4M3[usize::from(code)]), [16.0, 20.0]);
    }
}
