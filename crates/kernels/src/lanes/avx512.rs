//! The lanes in AVX-512: one register of sixteen, with VNNI and BF16 where the machine has them.

use super::{IntKernel, IntLanes, Kernel, Lanes};
use std::arch::x86_64::*;

/// Proof that the machine has AVX-512 F, BW, VL and DQ, and what the parameters say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool, const BF16: bool>(());

/// Runs a kernel; callers have detected the instruction set.
pub(super) fn run(kernel: impl Kernel) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
    fn enter(kernel: impl Kernel) {
        kernel.run(Avx512::<false, false>(()));
    }
    // SAFETY: a `Machine` says `Avx512` only where these features were detected.
    unsafe { enter(kernel) }
}

/// As [`run`] where VNNI was detected as well.
pub(super) fn run_int(kernel: impl IntKernel) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    fn enter(kernel: impl IntKernel) {
        kernel.run(Avx512::<true, false>(()));
    }
    // SAFETY: a `Machine` says `Avx512` and `vnni` only where these features were detected.
    unsafe { enter(kernel) }
}

/// As [`run`] where BF16 was detected as well.
pub(super) fn run_bf16(kernel: impl Kernel) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
    fn enter(kernel: impl Kernel) {
        kernel.run(Avx512::<false, true>(()));
    }
    // SAFETY: a `Machine` says `Avx512` and `bf16` only where these features were detected.
    unsafe { enter(kernel) }
}

/// The lanes that stand beside tiles.
pub(crate) type Vnni = Avx512<true, false>;

/// A computation over the lanes that stand beside tiles.
pub(crate) trait BesideTiles {
    /// Implementations are `#[inline(always)]`.
    fn run(self, lanes: Vnni);
}

/// As [`run_int`]; whoever calls it has detected AMX, which comes with VNNI.
pub(crate) fn run_beside_tiles(kernel: impl BesideTiles) {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    fn enter(kernel: impl BesideTiles) {
        kernel.run(Avx512::<true, false>(()));
    }
    // SAFETY: a `Machine` says `Amx` only where these features were detected.
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

impl<const VNNI: bool, const BF16: bool> Lanes for Avx512<VNNI, BF16> {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    type S = __m128i;

    const ROWS: usize = 8;
    const PANELS: usize = 2;

    #[inline(always)]
    fn broadcast(self, x: &f32) -> __m512 {
        found!(_mm512_castsi512_ps(spread(x.to_bits() as i32)))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        found!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        found!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32; 16]) {
        found!(_mm512_storeu_ps(out.as_mut_ptr(), x))
    }
    #[inline(always)]
    fn load_f32(self, x: &[u8; 64]) -> __m512 {
        found!(_mm512_loadu_ps(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> __m512 {
        found!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> __m512 {
        found!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        found!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        found!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        found!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn dot_bf16(self, c: __m512, w: &[u8; 64], x: u32) -> __m512 {
        found!({
            let (w, x) = (_mm512_loadu_si512(w.as_ptr().cast()), spread(x as i32));
            if BF16 {
                // Both types are 512 bits without invalid patterns.
                let pairs = |x| std::mem::transmute::<__m512i, __m512bh>(x);
                return _mm512_dpbf16_ps(c, pairs(w), pairs(x));
            }
            let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
            let high = |x| _mm512_castsi512_ps(_mm512_and_si512(x, upper));
            let low = |x| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x));
            _mm512_fmadd_ps(low(w), low(x), _mm512_fmadd_ps(high(w), high(x), c))
        })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> __m512i {
        found!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn sub_int(self, a: __m512i, b: __m512i) -> __m512i {
        found!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn to_float(self, x: __m512i) -> __m512 {
        found!(_mm512_cvtepi32_ps(x))
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
    fn small_to_float(self, x: __m128i, signed: bool) -> __m512 {
        found!(_mm512_cvtepi32_ps(if signed { _mm512_cvtepi8_epi32(x) } else { _mm512_cvtepu8_epi32(x) }))
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> __m512i {
        found!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    /// Words of 16 bits are shifted; the mask clears what crosses from the neighbour.
    #[inline(always)]
    fn field(self, x: __m512i, shift: i32, mask: u8) -> __m512i {
        found!({
            let count = _mm_cvtsi32_si128(shift.abs());
            let moved = match shift {
                0 => x,
                1.. => _mm512_srl_epi16(x, count),
                _ => _mm512_sll_epi16(x, count),
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(mask as i8))
        })
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        found!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn lookup(self, x: __m512i, table: &[i8; 16]) -> __m512i {
        found!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, x)
        })
    }
    #[inline(always)]
    fn byte(self, x: __m512i, index: usize, signed: bool) -> __m512i {
        found!({
            let top = _mm512_sll_epi32(x, _mm_cvtsi32_si128(24 - 8 * index as i32));
            if signed { _mm512_srai_epi32::<24>(top) } else { _mm512_srli_epi32::<24>(top) }
        })
    }

    #[inline(always)]
    fn prefetch(self, byte: &u8) {
        found!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(byte).cast()))
    }
    #[inline(always)]
    fn most(self, x: &[f32; 32]) -> u32 {
        found!({
            let magnitude = _mm512_set1_epi32(0x7fff_ffff);
            let low = _mm512_and_si512(_mm512_loadu_si512(x.as_ptr().cast()), magnitude);
            let high = _mm512_and_si512(_mm512_loadu_si512(x.as_ptr().add(16).cast()), magnitude);
            _mm512_reduce_max_epu32(_mm512_max_epu32(low, high))
        })
    }
    #[inline(always)]
    fn round(self, x: &[f32; 32], factor: f32, codes: &mut [i8; 32]) -> [[i16; 2]; 2] {
        found!({
            let factor = _mm512_set1_ps(factor);
            let low = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr()), factor);
            let high = _mm512_mul_ps(_mm512_loadu_ps(x.as_ptr().add(16)), factor);
            let low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(low));
            let high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(high));
            let rounded = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high);
            _mm256_storeu_si256(codes.as_mut_ptr().cast(), rounded);
            super::avx2::half_sums(rounded)
        })
    }
}

/// With VNNI, whose instruction takes unsigned codes: signed ones are raised by 128.
impl IntLanes for Avx512<true, false> {
    type P = __m512i;
    type X = __m512i;

    const INT_ROWS: usize = 8;
    const NARROW: bool = false;
    const SIGNED_ZERO: i16 = 128;

    #[inline(always)]
    fn part(self, start: i32) -> __m512i {
        self.splat_int(start)
    }
    #[inline(always)]
    fn spread(self, x: &[i8; 4]) -> __m512i {
        found!(spread(i32::from_ne_bytes(x.map(|x| x as u8))))
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        found!(_mm512_dpbusd_epi32(sum, codes, x))
    }
    #[inline(always)]
    fn fold(self, sum: __m512i, part: __m512i) -> __m512i {
        found!(_mm512_add_epi32(sum, part))
    }
    #[inline(always)]
    fn dot_signed(self, sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        self.dot(sum, found!(_mm512_xor_si512(codes, _mm512_set1_epi8(-128))), x)
    }
}

impl Vnni {
    /// Sixteen whole numbers.
    #[inline(always)]
    pub(crate) fn load_int(self, x: &[i32; 16]) -> __m512i {
        found!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    /// Writes every code less `zero`.
    #[inline(always)]
    pub(crate) fn store_less(self, codes: __m512i, zero: u8, out: &mut [u8; 64]) {
        found!(_mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_sub_epi8(codes, _mm512_set1_epi8(zero as i8))))
    }
}

/// Four bytes beside every output, in a register: left to itself, the compiler makes the load a part of every product
/// that reads it, and a tile then waits for loads.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn spread(x: i32) -> __m512i {
    let mut spread = _mm512_set1_epi32(x);
    // SAFETY: there is no instruction: the value passes through, unknown to the compiler.
    unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) spread, options(pure, nomem, nostack, preserves_flags)) };
    spread
}
