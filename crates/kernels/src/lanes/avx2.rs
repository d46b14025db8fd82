//! The lanes in AVX2, FMA and F16C: two registers of eight.

use super::{IntKernel, IntLanes, Kernel, Lanes};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs a kernel; callers have detected the instruction set.
pub(super) fn run(kernel: impl Kernel) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn enter(kernel: impl Kernel) {
        kernel.run(Avx2(()));
    }
    // SAFETY: a `Machine` says `Avx2` only where the three features were detected.
    unsafe { enter(kernel) }
}

/// As [`run`].
pub(super) fn run_int(kernel: impl IntKernel) {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn enter(kernel: impl IntKernel) {
        kernel.run(Avx2(()));
    }
    // SAFETY: a `Machine` says `Avx2` or `Avx512` only where the three features were detected.
    unsafe { enter(kernel) }
}

/// Intrinsics, which are safe to run where the token exists.
macro_rules! found {
    ($body:expr) => {{
        // SAFETY: a token exists only inside `enter`, on a machine with the instructions; memory is read and written
        // only through references to arrays of the full width, without alignment.
        #[allow(unused_unsafe)]
        unsafe {
            $body
        }
    }};
}

type F = [__m256; 2];
type I = [__m256i; 2];

impl Lanes for Avx2 {
    type F = F;
    type I = I;
    type B = I;
    type S = __m128i;

    const ROWS: usize = 6;
    const PANELS: usize = 1;

    #[inline(always)]
    fn broadcast(self, x: &f32) -> F {
        self.splat(*x)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> F {
        found!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> F {
        found!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn store(self, x: F, out: &mut [f32; 16]) {
        found!({
            _mm256_storeu_ps(out.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), x[1]);
        })
    }
    #[inline(always)]
    fn load_f32(self, x: &[u8; 64]) -> F {
        found!([_mm256_loadu_ps(x.as_ptr().cast()), _mm256_loadu_ps(x.as_ptr().add(32).cast())])
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> F {
        found!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(16).cast())),
        ])
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> F {
        found!({
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().add(16).cast()));
            [low, high].map(|x| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(x)))
        })
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        found!([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        found!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        found!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn dot_bf16(self, c: F, w: &[u8; 64], x: u32) -> F {
        found!({
            let upper = _mm256_set1_epi32(0xffff_0000_u32 as i32);
            let (x0, x1) = (self.splat(f32::from_bits(x << 16)), self.splat(f32::from_bits(x & 0xffff_0000)));
            let w = self.bytes(w);
            let w0 = w.map(|w| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(w)));
            let w1 = w.map(|w| _mm256_castsi256_ps(_mm256_and_si256(w, upper)));
            self.fma(w0, x0, self.fma(w1, x1, c))
        })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> I {
        found!([_mm256_set1_epi32(x); 2])
    }
    #[inline(always)]
    fn sub_int(self, a: I, b: I) -> I {
        found!([_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])])
    }
    #[inline(always)]
    fn to_float(self, x: I) -> F {
        found!([_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])])
    }

    #[inline(always)]
    fn small(self, x: &[u8; 16]) -> __m128i {
        found!(_mm_loadu_si128(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn small_field(self, x: __m128i, shift: i32, mask: u8) -> __m128i {
        found!({
            let count = _mm_cvtsi32_si128(shift.abs());
            let moved = match shift {
                0 => x,
                1.. => _mm_srl_epi16(x, count),
                _ => _mm_sll_epi16(x, count),
            };
            _mm_and_si128(moved, _mm_set1_epi8(mask as i8))
        })
    }
    #[inline(always)]
    fn small_or(self, a: __m128i, b: __m128i) -> __m128i {
        found!(_mm_or_si128(a, b))
    }
    #[inline(always)]
    fn small_to_float(self, x: __m128i, signed: bool) -> F {
        found!({
            let halves = [x, _mm_unpackhi_epi64(x, x)];
            let wide = |x| if signed { _mm256_cvtepi8_epi32(x) } else { _mm256_cvtepu8_epi32(x) };
            halves.map(|x| _mm256_cvtepi32_ps(wide(x)))
        })
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> I {
        found!([_mm256_loadu_si256(x.as_ptr().cast()), _mm256_loadu_si256(x.as_ptr().add(32).cast())])
    }
    /// Words of 16 bits are shifted; the mask clears what crosses from the neighbour.
    #[inline(always)]
    fn field(self, x: I, shift: i32, mask: u8) -> I {
        found!({
            let count = _mm_cvtsi32_si128(shift.abs());
            let mask = _mm256_set1_epi8(mask as i8);
            x.map(|x| {
                let moved = match shift {
                    0 => x,
                    1.. => _mm256_srl_epi16(x, count),
                    _ => _mm256_sll_epi16(x, count),
                };
                _mm256_and_si256(moved, mask)
            })
        })
    }
    #[inline(always)]
    fn or(self, a: I, b: I) -> I {
        found!([_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])])
    }
    #[inline(always)]
    fn lookup(self, x: I, table: &[i8; 16]) -> I {
        found!({
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, x[0]), _mm256_shuffle_epi8(table, x[1])]
        })
    }
    #[inline(always)]
    fn byte(self, x: I, index: usize, signed: bool) -> I {
        found!({
            let up = _mm_cvtsi32_si128(24 - 8 * index as i32);
            x.map(|x| {
                let top = _mm256_sll_epi32(x, up);
                if signed { _mm256_srai_epi32::<24>(top) } else { _mm256_srli_epi32::<24>(top) }
            })
        })
    }

    #[inline(always)]
    fn prefetch(self, byte: &u8) {
        found!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(byte).cast()))
    }
    #[inline(always)]
    fn round(self, x: &[f32; 32], factor: f32, codes: &mut [i8; 32]) -> [[i16; 2]; 2] {
        found!({
            let factor = _mm256_set1_ps(factor);
            let mut whole = [_mm256_setzero_si256(); 4];
            for (at, whole) in whole.iter_mut().enumerate() {
                *whole = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x.as_ptr().add(8 * at)), factor));
            }
            // Packing works in halves of registers, which leaves four codes at a time out of their order.
            let low = _mm256_packs_epi32(whole[0], whole[1]);
            let high = _mm256_packs_epi32(whole[2], whole[3]);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let rounded = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
            _mm256_storeu_si256(codes.as_mut_ptr().cast(), rounded);
            half_sums(rounded)
        })
    }
}

/// What [`Lanes::round`] returns, of codes in a register: to read them back would wait for the stores.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub(super) unsafe fn half_sums(codes: __m256i) -> [[i16; 2]; 2] {
    found!({
        // Words are sums of two codes; the lower and the upper word of four bytes belong to different sums.
        let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
        let fours = _mm256_add_epi16(pairs, _mm256_shuffle_epi32::<0b01_00_11_10>(pairs));
        let sums = _mm256_add_epi16(fours, _mm256_shuffle_epi32::<0b10_11_00_01>(fours));
        let first = _mm_cvtsi128_si32(_mm256_castsi256_si128(sums));
        let second = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(sums));
        [[first as i16, (first >> 16) as i16], [second as i16, (second >> 16) as i16]]
    })
}

impl IntLanes for Avx2 {
    /// Sixteen i16 each: two pairs of products for each output.
    type P = I;
    type X = __m256i;

    const INT_ROWS: usize = 4;
    const NARROW: bool = true;
    const SIGNED_ZERO: i16 = 0;

    #[inline(always)]
    fn part(self, start: i32) -> I {
        self.splat_int(start)
    }
    #[inline(always)]
    fn spread(self, x: &[i8; 4]) -> __m256i {
        found!(_mm256_set1_epi32(i32::from_ne_bytes(x.map(|x| x as u8))))
    }
    #[inline(always)]
    fn dot(self, sum: I, codes: I, x: __m256i) -> I {
        found!({
            [
                _mm256_add_epi16(sum[0], _mm256_maddubs_epi16(codes[0], x)),
                _mm256_add_epi16(sum[1], _mm256_maddubs_epi16(codes[1], x)),
            ]
        })
    }
    #[inline(always)]
    fn fold(self, sum: I, part: I) -> I {
        found!({
            let one = _mm256_set1_epi16(1);
            [
                _mm256_add_epi32(sum[0], _mm256_madd_epi16(part[0], one)),
                _mm256_add_epi32(sum[1], _mm256_madd_epi16(part[1], one)),
            ]
        })
    }
    /// The magnitude of the codes times the activations under their signs: a pair of products is at most
    /// `2 * 128 * 127`, which fits 16 bits.
    #[inline(always)]
    fn dot_signed(self, sum: I, codes: I, x: __m256i) -> I {
        found!({
            let pairs = codes.map(|code| _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(x, code)));
            self.fold(sum, pairs)
        })
    }
}
