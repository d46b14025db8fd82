//! Advanced SIMD, which every AArch64 has.

use super::{Arch, Tile};
use std::arch::aarch64::*;
use std::mem::transmute;

/// Advanced SIMD, which every AArch64 has.
pub(crate) struct Neon;

/// Intrinsics, which are safe to run where the token may be used.
macro_rules! found {
    ($body:expr) => {{
        // SAFETY: the token is used only where Advanced SIMD is there; arrays and vectors that are taken for each other
        // have one size, and any bits are valid in both.
        #[allow(unused_unsafe)]
        unsafe {
            $body
        }
    }};
}

impl Arch for Neon {
    const FMA: bool = true;
    const LANES: usize = 4;
    const TILE: Tile = Tile::SixByFour;
    type Vector = float32x4_t;
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> float32x4_t {
        found!(vdupq_n_f32(x))
    }
    #[inline(always)]
    fn load(from: &[f32]) -> float32x4_t {
        let from: &[f32; 4] = from.first_chunk().expect("4 elements");
        found!(transmute::<[f32; 4], float32x4_t>(*from))
    }
    #[inline(always)]
    fn store(vector: float32x4_t, to: &mut [f32]) {
        let to: &mut [f32; 4] = to.first_chunk_mut().expect("4 elements");
        *to = found!(transmute::<float32x4_t, [f32; 4]>(vector));
    }
    #[inline(always)]
    fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        found!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        found!(vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        found!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn multiply_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        found!(vfmaq_f32(c, a, b))
    }
    /// Not the instruction for maxima, in which a NaN wins.
    #[inline(always)]
    fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        found!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }
    #[inline(always)]
    fn unless_below(x: float32x4_t, t: float32x4_t, bound: float32x4_t) -> float32x4_t {
        found!(vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), vcltq_f32(t, bound))))
    }
    #[inline(always)]
    fn exponent(x: float32x4_t) -> float32x4_t {
        found!(vreinterpretq_f32_u32(vshlq_n_u32::<23>(vreinterpretq_u32_f32(x))))
    }
    #[inline(always)]
    fn highest(x: float32x4_t) -> f32 {
        found!(vmaxvq_f32(x))
    }
    #[inline(always)]
    fn sum(x: float32x4_t) -> f32 {
        found!(vaddvq_f32(x))
    }

    #[inline(always)]
    fn widen_q8_0(bytes: &[u8], out: &mut [f32]) {
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let scale = super::widen_f16(u16::from_le_bytes([*low, *high]));
            for (x, codes) in x.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks().0) {
                store_codes(scale, found!(transmute::<[u8; 16], int8x16_t>(*codes)), x);
            }
        }
    }

    #[inline(always)]
    fn widen_q4_0(bytes: &[u8], out: &mut [f32]) {
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<18>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let scale = super::widen_f16(u16::from_le_bytes([*low, *high]));
            let codes: &[u8; 16] = codes.first_chunk().expect("16 bytes");
            let codes = found!(transmute::<[u8; 16], uint8x16_t>(*codes));
            let halves = found!([vandq_u8(codes, vdupq_n_u8(15)), vshrq_n_u8::<4>(codes)]);
            for (x, half) in x.as_chunks_mut::<16>().0.iter_mut().zip(halves) {
                store_codes(scale, found!(vsubq_s8(vreinterpretq_s8_u8(half), vdupq_n_s8(8))), x);
            }
        }
    }

    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        for i in [0, 4, 8, 12] {
            for j in [0, 4, 8, 12] {
                let row = |r: usize| Self::load(&from[(i + r) * from_stride + j..]);
                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                let (ab, cd) = found!((vtrnq_f32(a, b), vtrnq_f32(c, d)));
                let columns = found!([
                    vcombine_f32(vget_low_f32(ab.0), vget_low_f32(cd.0)),
                    vcombine_f32(vget_low_f32(ab.1), vget_low_f32(cd.1)),
                    vcombine_f32(vget_high_f32(ab.0), vget_high_f32(cd.0)),
                    vcombine_f32(vget_high_f32(ab.1), vget_high_f32(cd.1)),
                ]);
                for (c, column) in columns.into_iter().enumerate() {
                    Self::store(column, &mut to[(j + c) * to_stride + i..]);
                }
            }
        }
    }

    #[inline(always)]
    fn prefetch(byte: *const u8) {
        // SAFETY: the instruction is a hint: it reads nothing that a program can see, and no address is wrong.
        unsafe { std::arch::asm!("prfm pldl2keep, [{0}]", in(reg) byte, options(nostack, preserves_flags)) };
    }
}

/// Writes the products of a scale and sixteen codes.
#[inline(always)]
fn store_codes(scale: f32, codes: int8x16_t, out: &mut [f32; 16]) {
    let halves = found!([vmovl_s8(vget_low_s8(codes)), vmovl_s8(vget_high_s8(codes))]);
    for (out, half) in out.as_chunks_mut::<8>().0.iter_mut().zip(halves) {
        let (low, high) = found!((vmovl_s16(vget_low_s16(half)), vmovl_s16(vget_high_s16(half))));
        Neon::store(found!(vmulq_n_f32(vcvtq_f32_s32(low), scale)), &mut out[..4]);
        Neon::store(found!(vmulq_n_f32(vcvtq_f32_s32(high), scale)), &mut out[4..]);
    }
}
