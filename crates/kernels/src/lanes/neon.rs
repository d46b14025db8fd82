//! The lanes in Advanced SIMD: four registers of four, with the dot-product extension where the machine has it.

use super::{IntKernel, IntLanes, Kernel, Lanes};
use std::arch::aarch64::*;

/// Proof that the machine has Advanced SIMD, and the dot products if the parameter says so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Neon<const DOT: bool>(());

/// Runs a kernel; callers have detected the instruction set.
pub(super) fn run(kernel: impl Kernel) {
    #[target_feature(enable = "neon")]
    fn enter(kernel: impl Kernel) {
        kernel.run(Neon::<false>(()));
    }
    // SAFETY: a `Machine` says `Neon` only where the feature was detected.
    unsafe { enter(kernel) }
}

/// As [`run`].
pub(super) fn run_int(kernel: impl IntKernel) {
    #[target_feature(enable = "neon")]
    fn enter(kernel: impl IntKernel) {
        kernel.run(Neon::<false>(()));
    }
    // SAFETY: a `Machine` says `Neon` only where the feature was detected.
    unsafe { enter(kernel) }
}

/// As [`run_int`] where the dot products were detected as well.
pub(super) fn run_dotprod(kernel: impl IntKernel) {
    #[target_feature(enable = "neon,dotprod")]
    fn enter(kernel: impl IntKernel) {
        kernel.run(Neon::<true>(()));
    }
    // SAFETY: a `Machine` says `Neon` and `dotprod` only where both features were detected.
    unsafe { enter(kernel) }
}

/// Intrinsics, which are safe to run where the token exists.
macro_rules! found {
    ($body:expr) => {{
        // SAFETY: a token exists only inside its `enter`, on a machine with the instructions; memory is read and
        // written only through references to arrays of the full width, without alignment.
        #[allow(unused_unsafe)]
        unsafe {
            $body
        }
    }};
}

/// Applies `$op` to each of four registers: `$i` is the index.
macro_rules! four {
    ($i:ident => $op:expr) => {
        found!([
            {
                let $i = 0;
                $op
            },
            {
                let $i = 1;
                $op
            },
            {
                let $i = 2;
                $op
            },
            {
                let $i = 3;
                $op
            },
        ])
    };
}

/// One step of `sdot`: four signed products for each of four sums. As assembly: the intrinsic is not stable.
///
/// # Safety
/// The machine must have the dot-product extension.
#[inline(always)]
unsafe fn sdot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: three registers are named and nothing else is touched; the caller vouches for the instruction.
    unsafe {
        std::arch::asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

impl<const DOT: bool> Lanes for Neon<DOT> {
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];
    type B = [uint8x16_t; 4];
    type S = uint8x16_t;

    const ROWS: usize = 4;
    const PANELS: usize = 1;

    #[inline(always)]
    fn broadcast(self, x: &f32) -> Self::F {
        self.splat(*x)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        found!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::F {
        four!(i => vld1q_f32(x.as_ptr().add(4 * i)))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; 16]) {
        four!(i => vst1q_f32(out.as_mut_ptr().add(4 * i), x[i]));
    }
    #[inline(always)]
    fn load_f32(self, x: &[u8; 64]) -> Self::F {
        four!(i => vreinterpretq_f32_u8(vld1q_u8(x.as_ptr().add(16 * i))))
    }
    /// Widened with whole-number instructions: the f16 ones are not stable. See `quant::f16_to_f32`.
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> Self::F {
        four!(i => {
            let bits = vmovl_u16(vreinterpret_u16_u8(vld1_u8(x.as_ptr().add(8 * i))));
            let magnitude = vandq_u32(bits, vdupq_n_u32(0x7fff));
            let scaled = vreinterpretq_f32_u32(vshlq_n_u32::<13>(magnitude));
            let finite = vmulq_n_f32(scaled, f32::from_bits((127 + 112) << 23));
            let special = vandq_u32(vcgeq_u32(magnitude, vdupq_n_u32(0x7c00)), vdupq_n_u32(0x7f80_0000));
            let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
            vreinterpretq_f32_u32(vorrq_u32(vorrq_u32(vreinterpretq_u32_f32(finite), special), sign))
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> Self::F {
        four!(i => {
            let bits = vmovl_u16(vreinterpret_u16_u8(vld1_u8(x.as_ptr().add(8 * i))));
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(bits))
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        four!(i => vaddq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        four!(i => vmulq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        four!(i => vfmaq_f32(c[i], a[i], b[i]))
    }
    #[inline(always)]
    fn dot_bf16(self, c: Self::F, w: &[u8; 64], x: u32) -> Self::F {
        let (x0, x1) = (f32::from_bits(x << 16), f32::from_bits(x & 0xffff_0000));
        four!(i => {
            let w = vreinterpretq_u32_u8(vld1q_u8(w.as_ptr().add(16 * i)));
            let w0 = vreinterpretq_f32_u32(vshlq_n_u32::<16>(w));
            let w1 = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff_0000)));
            vfmaq_n_f32(vfmaq_n_f32(c[i], w1, x1), w0, x0)
        })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        found!([vdupq_n_s32(x); 4])
    }
    #[inline(always)]
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I {
        four!(i => vsubq_s32(a[i], b[i]))
    }
    #[inline(always)]
    fn to_float(self, x: Self::I) -> Self::F {
        four!(i => vcvtq_f32_s32(x[i]))
    }

    #[inline(always)]
    fn small(self, x: &[u8; 16]) -> uint8x16_t {
        found!(vld1q_u8(x.as_ptr()))
    }
    #[inline(always)]
    fn small_field(self, x: uint8x16_t, shift: i32, mask: u8) -> uint8x16_t {
        found!(vandq_u8(vshlq_u8(x, vdupq_n_s8(-shift as i8)), vdupq_n_u8(mask)))
    }
    #[inline(always)]
    fn small_or(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        found!(vorrq_u8(a, b))
    }
    #[inline(always)]
    fn small_to_float(self, x: uint8x16_t, signed: bool) -> Self::F {
        found!({
            if signed {
                let x = vreinterpretq_s8_u8(x);
                let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_s8(vget_high_s8(x)));
                let wide = [vget_low_s16(low), vget_high_s16(low), vget_low_s16(high), vget_high_s16(high)];
                wide.map(|x| vcvtq_f32_s32(vmovl_s16(x)))
            } else {
                let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_u8(vget_high_u8(x)));
                let wide = [vget_low_u16(low), vget_high_u16(low), vget_low_u16(high), vget_high_u16(high)];
                wide.map(|x| vcvtq_f32_u32(vmovl_u16(x)))
            }
        })
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> Self::B {
        four!(i => vld1q_u8(x.as_ptr().add(16 * i)))
    }
    #[inline(always)]
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B {
        four!(i => vandq_u8(vshlq_u8(x[i], vdupq_n_s8(-shift as i8)), vdupq_n_u8(mask)))
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        four!(i => vorrq_u8(a[i], b[i]))
    }
    #[inline(always)]
    fn lookup(self, x: Self::B, table: &[i8; 16]) -> Self::B {
        four!(i => vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(table.as_ptr()), x[i])))
    }
    #[inline(always)]
    fn byte(self, x: Self::B, index: usize, signed: bool) -> Self::I {
        four!(i => {
            let top = vshlq_u32(vreinterpretq_u32_u8(x[i]), vdupq_n_s32(24 - 8 * index as i32));
            if signed {
                vshrq_n_s32::<24>(vreinterpretq_s32_u32(top))
            } else {
                vreinterpretq_s32_u32(vshrq_n_u32::<24>(top))
            }
        })
    }
}

impl<const DOT: bool> IntLanes for Neon<DOT> {
    type P = [int32x4_t; 4];
    type X = int8x16_t;

    const INT_ROWS: usize = 4;
    const NARROW: bool = false;
    const SIGNED_ZERO: i16 = 0;

    #[inline(always)]
    fn part(self, start: i32) -> Self::P {
        self.splat_int(start)
    }
    #[inline(always)]
    fn spread(self, x: &[i8; 4]) -> int8x16_t {
        found!(vreinterpretq_s8_s32(vdupq_n_s32(i32::from_ne_bytes(x.map(|x| x as u8)))))
    }
    /// Unsigned codes stay below 64, so that they are signed ones too.
    #[inline(always)]
    fn dot(self, sum: Self::P, codes: Self::B, x: int8x16_t) -> Self::P {
        self.dot_signed(sum, codes, x)
    }
    #[inline(always)]
    fn fold(self, sum: Self::I, part: Self::P) -> Self::I {
        four!(i => vaddq_s32(sum[i], part[i]))
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::I, codes: Self::B, x: int8x16_t) -> Self::I {
        four!(i => {
            let codes = vreinterpretq_s8_u8(codes[i]);
            if DOT {
                sdot(sum[i], codes, x)
            } else {
                // Sums of two products are at most 2 * 128 * 127: they fit 16 bits.
                let low = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
                let high = vmull_s8(vget_high_s8(codes), vget_high_s8(x));
                vpadalq_s16(sum[i], vpaddq_s16(low, high))
            }
        })
    }
}
