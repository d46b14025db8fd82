//! AVX-512 F, BW, VL and DQ, and what AVX2 has.

use super::{Arch, Avx2, Tile};
use std::arch::x86_64::*;
use std::mem::transmute;

/// AVX-512 F, BW, VL and DQ, and what AVX2 has.
pub(crate) struct Avx512;

/// Intrinsics, which are safe to run where the token may be used.
macro_rules! found {
    ($body:expr) => {{
        // SAFETY: the token is used only where these sets are there; arrays and vectors that are taken for each other have
        // one size, and any bits are valid in both.
        #[allow(unused_unsafe)]
        unsafe {
            $body
        }
    }};
}

impl Arch for Avx512 {
    const FMA: bool = true;
    const LANES: usize = 16;
    const TILE: Tile = Tile::SixByFour;
    type Vector = __m512;
    const IN_PLACE: bool = true;

    #[inline(always)]
    fn splat(x: f32) -> __m512 {
        found!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn broadcast(x: &f32) -> __m512 {
        found!(_mm512_castsi512_ps(crate::lanes::spread(x.to_bits() as i32)))
    }
    #[inline(always)]
    fn load(from: &[f32]) -> __m512 {
        let from: &[f32; 16] = from.first_chunk().expect("16 elements");
        found!(transmute::<[f32; 16], __m512>(*from))
    }
    #[inline(always)]
    fn store(vector: __m512, to: &mut [f32]) {
        let to: &mut [f32; 16] = to.first_chunk_mut().expect("16 elements");
        *to = found!(transmute::<__m512, [f32; 16]>(vector));
    }
    #[inline(always)]
    fn add(a: __m512, b: __m512) -> __m512 {
        found!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(a: __m512, b: __m512) -> __m512 {
        found!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(a: __m512, b: __m512) -> __m512 {
        found!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        found!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn larger(a: __m512, b: __m512) -> __m512 {
        found!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn unless_below(x: __m512, t: __m512, bound: __m512) -> __m512 {
        found!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(t, bound), x))
    }
    #[inline(always)]
    fn exponent(x: __m512) -> __m512 {
        found!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(x))))
    }
    #[inline(always)]
    fn highest(x: __m512) -> f32 {
        Avx2::highest(found!(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x))))
    }
    #[inline(always)]
    fn sum(x: __m512) -> f32 {
        Avx2::sum(found!(_mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x))))
    }

    #[inline(always)]
    fn widen_f16(bytes: &[u8], out: &mut [f32]) {
        let (whole, rest) = bytes.as_chunks::<32>();
        let (whole_out, rest_out) = out.as_chunks_mut::<16>();
        for (x, b) in whole_out.iter_mut().zip(whole) {
            Self::store(found!(_mm512_cvtph_ps(transmute::<[u8; 32], __m256i>(*b))), x);
        }
        Avx2::widen_f16(rest, rest_out);
    }

    #[inline(always)]
    fn widen_q8_0(bytes: &[u8], out: &mut [f32]) {
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let scale = scale(*low, *high);
            for (x, codes) in x.as_chunks_mut::<16>().0.iter_mut().zip(codes.as_chunks().0) {
                let codes = found!(transmute::<[u8; 16], __m128i>(*codes));
                Self::store(found!(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)))), x);
            }
        }
    }

    /// The sixteen values that a code can mean are a table in a register; the lookup reads no more than four bits.
    #[inline(always)]
    fn widen_q4_0(bytes: &[u8], out: &mut [f32]) {
        let levels = std::array::from_fn(|code| code as f32 - 8.0);
        let levels = Self::load(&levels as &[f32; 16]);
        for (x, block) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<18>().0) {
            let ([low, high], codes) = block.split_first_chunk().expect("a scale");
            let table = found!(_mm512_mul_ps(scale(*low, *high), levels));
            let codes: &[u8; 16] = codes.first_chunk().expect("16 bytes");
            let low = found!(_mm512_cvtepu8_epi32(transmute::<[u8; 16], __m128i>(*codes)));
            let high = found!(_mm512_srli_epi32::<4>(low));
            Self::store(found!(_mm512_permutexvar_ps(low, table)), &mut x[..16]);
            Self::store(found!(_mm512_permutexvar_ps(high, table)), &mut x[16..]);
        }
    }

    #[inline(always)]
    fn load_f32(from: &[u8]) -> __m512 {
        let from: &[u8; 64] = from.first_chunk().expect("64 bytes");
        found!(transmute::<[u8; 64], __m512>(*from))
    }
    #[inline(always)]
    fn load_f16(from: &[u8]) -> __m512 {
        let from: &[u8; 32] = from.first_chunk().expect("32 bytes");
        found!(_mm512_cvtph_ps(transmute::<[u8; 32], __m256i>(*from)))
    }
    #[inline(always)]
    fn splat_f16([low, high]: [u8; 2]) -> __m512 {
        scale(low, high)
    }
    #[inline(always)]
    fn load_bf16(from: &[u8]) -> __m512 {
        let from: &[u8; 32] = from.first_chunk().expect("32 bytes");
        let wide = found!(_mm512_cvtepu16_epi32(transmute::<[u8; 32], __m256i>(*from)));
        found!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
    }
    #[inline(always)]
    fn load_i8(from: &[u8]) -> __m512 {
        let from: &[u8; 16] = from.first_chunk().expect("16 bytes");
        found!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(transmute::<[u8; 16], __m128i>(*from))))
    }
    #[inline(always)]
    fn load_codes(from: &[u8], upper: bool) -> __m512 {
        let levels = std::array::from_fn(|code| code as f32 - 8.0);
        let levels = Self::load(&levels as &[f32; 16]);
        let from: &[u8; 16] = from.first_chunk().expect("16 bytes");
        let codes = found!(_mm512_cvtepu8_epi32(transmute::<[u8; 16], __m128i>(*from)));
        found!(_mm512_permutexvar_ps(if upper { _mm512_srli_epi32::<4>(codes) } else { codes }, levels))
    }

    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        assert!(from.len() >= 15 * from_stride + 16 && to.len() >= 15 * to_stride + 16, "sixteen rows of sixteen");
        // SAFETY: AVX-512 is there, and the squares reach as far as was just asserted.
        unsafe { square(from.as_ptr(), from_stride, to.as_mut_ptr(), to_stride) };
    }

    #[inline(always)]
    fn prefetch(byte: *const u8) {
        Avx2::prefetch(byte);
    }
}

/// A float16 scale beside every element.
#[inline(always)]
fn scale(low: u8, high: u8) -> __m512 {
    found!(_mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes([low, high]))))
}

/// Transposes 16 rows of 16, four columns at a time: a register takes a piece of a row in each quarter, and the rest
/// happens inside the quarters.
///
/// # Safety
/// Sixteen rows of sixteen can be read at `from` and written at `to`, the strides apart.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn square(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: the caller vouches for the rows that these and the offsets below lead to.
    let quarters = unsafe { [0, 4, 8, 12].map(|row| from.add(row * from_stride)) };
    let four = |row: usize, column: usize| {
        // SAFETY: as above.
        let piece = |quarter: usize| unsafe { _mm_loadu_ps(quarters[quarter].add(row * from_stride + column)) };
        let x = _mm512_insertf32x4::<1>(_mm512_castps128_ps512(piece(0)), piece(1));
        _mm512_insertf32x4::<3>(_mm512_insertf32x4::<2>(x, piece(2)), piece(3))
    };
    for column in [0, 4, 8, 12] {
        let (a, b, c, d) = (four(0, column), four(1, column), four(2, column), four(3, column));
        let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
        let columns = [
            _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd),
            _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd),
            _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
            _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
        ];
        for (j, x) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to.add((column + j) * to_stride), x) };
        }
    }
}
