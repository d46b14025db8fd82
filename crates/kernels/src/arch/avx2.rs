//! AVX2, FMA and F16C.
//!
//! Loads and stores are moves of arrays, not the intrinsics: those take pointers, and are functions that the compiler may
//! leave as calls.

use super::{Arch, Portable, Tile};
use std::arch::x86_64::*;
use std::mem::transmute;

/// AVX2, FMA and F16C.
pub(crate) struct Avx2;

/// Intrinsics, which are safe to run where the token may be used.
macro_rules! found {
    ($body:expr) => {{
        // SAFETY: the token is used only where AVX2, FMA and F16C are there; arrays and vectors that are taken for each
        // other have one size, and any bits are valid in both.
        #[allow(unused_unsafe)]
        unsafe {
            $body
        }
    }};
}

impl Arch for Avx2 {
    const FMA: bool = true;
    const LANES: usize = 8;
    const TILE: Tile = Tile::SixByTwo;
    type Vector = __m256;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> __m256 {
        found!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn load(from: &[f32]) -> __m256 {
        let from: &[f32; 8] = from.first_chunk().expect("8 elements");
        found!(transmute::<[f32; 8], __m256>(*from))
    }
    #[inline(always)]
    fn store(vector: __m256, to: &mut [f32]) {
        let to: &mut [f32; 8] = to.first_chunk_mut().expect("8 elements");
        *to = found!(transmute::<__m256, [f32; 8]>(vector));
    }
    #[inline(always)]
    fn add(a: __m256, b: __m256) -> __m256 {
        found!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(a: __m256, b: __m256) -> __m256 {
        found!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(a: __m256, b: __m256) -> __m256 {
        found!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        found!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn larger(a: __m256, b: __m256) -> __m256 {
        found!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn unless_below(x: __m256, t: __m256, bound: __m256) -> __m256 {
        found!(_mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(t, bound), x))
    }
    #[inline(always)]
    fn exponent(x: __m256) -> __m256 {
        found!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(x))))
    }
    #[inline(always)]
    fn highest(x: __m256) -> f32 {
        found!({
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
        })
    }
    #[inline(always)]
    fn sum(x: __m256) -> f32 {
        found!({
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
        })
    }

    #[inline(always)]
    fn widen_f16(bytes: &[u8], out: &mut [f32]) {
        let (whole, rest) = bytes.as_chunks::<16>();
        let (whole_out, rest_out) = out.as_chunks_mut::<8>();
        for (x, b) in whole_out.iter_mut().zip(whole) {
            Self::store(found!(_mm256_cvtph_ps(transmute::<[u8; 16], __m128i>(*b))), x);
        }
        Portable::widen_f16(rest, rest_out);
    }

    #[inline(always)]
    fn widen_q8_0(bytes: &[u8], out: &mut [f32]) {
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let scale = scale(*low, *high);
            for (x, codes) in x.as_chunks_mut::<8>().0.iter_mut().zip(codes.as_chunks().0) {
                let codes = found!(_mm_cvtsi64_si128(i64::from_le_bytes(*codes)));
                Self::store(found!(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)))), x);
            }
        }
    }

    #[inline(always)]
    fn widen_q4_0(bytes: &[u8], out: &mut [f32]) {
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<18>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let scale = scale(*low, *high);
            let (low, high) = x.split_at_mut(16);
            for (i, codes) in codes.as_chunks().0.iter().enumerate() {
                let codes = found!(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*codes))));
                let halves = found!((_mm256_and_si256(codes, _mm256_set1_epi32(15)), _mm256_srli_epi32::<4>(codes)));
                let eight = found!(_mm256_set1_epi32(8));
                let level = found!((_mm256_sub_epi32(halves.0, eight), _mm256_sub_epi32(halves.1, eight)));
                Self::store(found!(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(level.0))), &mut low[8 * i..]);
                Self::store(found!(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(level.1))), &mut high[8 * i..]);
            }
        }
    }

    #[inline(always)]
    fn load_f32(from: &[u8]) -> __m256 {
        let from: &[u8; 32] = from.first_chunk().expect("32 bytes");
        found!(transmute::<[u8; 32], __m256>(*from))
    }
    #[inline(always)]
    fn load_f16(from: &[u8]) -> __m256 {
        let from: &[u8; 16] = from.first_chunk().expect("16 bytes");
        found!(_mm256_cvtph_ps(transmute::<[u8; 16], __m128i>(*from)))
    }
    #[inline(always)]
    fn splat_f16([low, high]: [u8; 2]) -> __m256 {
        scale(low, high)
    }
    #[inline(always)]
    fn load_bf16(from: &[u8]) -> __m256 {
        let from: &[u8; 16] = from.first_chunk().expect("16 bytes");
        let wide = found!(_mm256_cvtepu16_epi32(transmute::<[u8; 16], __m128i>(*from)));
        found!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
    }
    #[inline(always)]
    fn load_i8(from: &[u8]) -> __m256 {
        let from: &[u8; 8] = from.first_chunk().expect("8 bytes");
        found!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*from)))))
    }
    #[inline(always)]
    fn load_codes(from: &[u8], upper: bool) -> __m256 {
        let from: &[u8; 8] = from.first_chunk().expect("8 bytes");
        let shift = if upper { 4 } else { 0 };
        let codes = (u64::from_le_bytes(*from) >> shift) & 0x0f0f_0f0f_0f0f_0f0f;
        let codes = found!(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(codes as i64)));
        found!(_mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(8))))
    }

    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        assert!(from.len() >= 15 * from_stride + 16 && to.len() >= 15 * to_stride + 16, "sixteen rows of sixteen");
        for i in [0, 8] {
            for j in [0, 4, 8, 12] {
                // SAFETY: AVX is there, and the strips lie in the squares whose lengths were just asserted.
                unsafe {
                    let (from, to) = (from.as_ptr().add(i * from_stride + j), to.as_mut_ptr().add(j * to_stride + i));
                    strip(from, from_stride, to, to_stride);
                }
            }
        }
    }

    #[inline(always)]
    fn prefetch(byte: *const u8) {
        found!(_mm_prefetch::<_MM_HINT_T1>(byte.cast()));
    }
}

/// A float16 scale beside every element.
#[inline(always)]
fn scale(low: u8, high: u8) -> __m256 {
    found!(_mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes([low, high]))))
}

/// Transposes 8 rows of 4: a register takes a piece of a row in each half, and the rest happens inside the halves.
///
/// # Safety
/// Eight rows of four can be read at `from`, and four of eight written at `to`, the strides apart.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn strip(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    let piece = |row: usize| {
        // SAFETY: the caller vouches for the row.
        unsafe { _mm_loadu_ps(from.add(row * from_stride)) }
    };
    let pair = |row| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(piece(row)), piece(row + 4));
    let (a, b, c, d) = (pair(0), pair(1), pair(2), pair(3));
    let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
    let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
    let columns = [
        _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd),
        _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd),
        _mm256_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
        _mm256_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
    ];
    for (j, column) in columns.into_iter().enumerate() {
        // SAFETY: the caller vouches for the row.
        unsafe { _mm256_storeu_ps(to.add(j * to_stride), column) };
    }
}
