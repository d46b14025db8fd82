//! One generic body for every instruction set.
//!
//! A kernel is written once over an [`Arch`], a token that stands for an instruction set, and instantiated by
//! [`for_each_arch!`] inside functions that are compiled for it. Elementwise loops are left to the compiler, which
//! vectorises them there; loops with accumulators say their vectors.

/// An instruction set as kernels see it: vectors of float32, and what the compiler does not find by itself.
///
/// Only code that was entered through [`for_each_arch!`] may use a token other than [`Portable`].
pub(crate) trait Arch {
    /// Whether a multiply and an add may be one instruction.
    const FMA: bool;
    /// Elements of a vector; 16 is a multiple of it.
    const LANES: usize;
    type Vector: Copy;
    /// Rows of a tile, and vectors beside each other, whose sums the registers hold.
    const TILE: Tile;

    fn splat(x: f32) -> Self::Vector;
    /// [`Arch::splat`] of a number that several products read.
    #[inline(always)]
    fn broadcast(x: &f32) -> Self::Vector {
        Self::splat(*x)
    }
    /// The first `LANES` elements.
    fn load(from: &[f32]) -> Self::Vector;
    /// Writes the first `LANES` elements.
    fn store(vector: Self::Vector, to: &mut [f32]);
    /// `a * b + c`
    fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// Widens little-endian float16 numbers.
    #[inline(always)]
    fn widen_f16(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
            *x = widen_f16(u16::from_le_bytes(*b));
        }
    }

    /// Writes the transpose of the 8 x 8 square at `from[0]`, whose rows lie `from_stride` apart.
    #[inline(always)]
    fn transpose8(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        for i in 0..8 {
            for j in 0..8 {
                to[j * to_stride + i] = from[i * from_stride + j];
            }
        }
    }
}

/// A tile of sums: rows, by vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tile {
    FourByTwo,
    SixByTwo,
    SixByFour,
}

/// Float16 to float32 without branches: the exponent is re-biased by an exact multiplication, which also brings
/// subnormals into place.
#[inline(always)]
pub(crate) fn widen_f16(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    // 2^112, the difference of the two exponents' biases.
    let value = f32::from_bits(magnitude << 13) * f32::from_bits(239 << 23);
    let special = if magnitude >= 0x7c00 { 0xff << 23 } else { 0 };
    f32::from_bits(value.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// Plain Rust: the reference twin of the others.
pub(crate) struct Portable;

impl Arch for Portable {
    const FMA: bool = false;
    const LANES: usize = 8;
    const TILE: Tile = Tile::FourByTwo;
    type Vector = [f32; 8];

    #[inline(always)]
    fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load(from: &[f32]) -> [f32; 8] {
        std::array::from_fn(|i| from[..8][i])
    }

    #[inline(always)]
    fn store(vector: [f32; 8], to: &mut [f32]) {
        to[..8].copy_from_slice(&vector);
    }

    #[inline(always)]
    fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    // Loads and stores are moves of arrays, not the intrinsics: those take pointers, and are functions that the compiler
    // may leave as calls.
    use super::{Arch, Tile};
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// AVX2, FMA and F16C.
    pub(crate) struct Avx2;

    impl Arch for Avx2 {
        const FMA: bool = true;
        const LANES: usize = 8;
        const TILE: Tile = Tile::SixByTwo;
        type Vector = __m256;

        #[inline(always)]
        fn splat(x: f32) -> __m256 {
            // SAFETY: the token is used only where AVX is there.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        fn load(from: &[f32]) -> __m256 {
            let from: &[f32; 8] = from.first_chunk().expect("8 elements");
            // SAFETY: both types are 8 float32 numbers in order, of which any bits are valid.
            unsafe { transmute::<[f32; 8], __m256>(*from) }
        }

        #[inline(always)]
        fn store(vector: __m256, to: &mut [f32]) {
            let to: &mut [f32; 8] = to.first_chunk_mut().expect("8 elements");
            // SAFETY: both types are 8 float32 numbers in order, of which any bits are valid.
            *to = unsafe { transmute::<__m256, [f32; 8]>(vector) };
        }

        #[inline(always)]
        fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the token is used only where FMA is there.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn widen_f16(bytes: &[u8], out: &mut [f32]) {
            let (whole, rest) = bytes.as_chunks::<16>();
            let (whole_out, rest_out) = out.as_chunks_mut::<8>();
            for (x, b) in whole_out.iter_mut().zip(whole) {
                // SAFETY: F16C is there; the array and the vector are both 16 bytes, of which any bits are valid.
                let wide = unsafe { _mm256_cvtph_ps(transmute::<[u8; 16], __m128i>(*b)) };
                Self::store(wide, x);
            }
            super::Portable::widen_f16(rest, rest_out);
        }

        #[inline(always)]
        fn transpose8(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
            let rows = [
                Self::load(from),
                Self::load(&from[from_stride..]),
                Self::load(&from[2 * from_stride..]),
                Self::load(&from[3 * from_stride..]),
                Self::load(&from[4 * from_stride..]),
                Self::load(&from[5 * from_stride..]),
                Self::load(&from[6 * from_stride..]),
                Self::load(&from[7 * from_stride..]),
            ];
            // SAFETY: the token is used only where AVX is there.
            let columns = unsafe { transpose(rows) };
            for (j, column) in columns.into_iter().enumerate() {
                Self::store(column, &mut to[j * to_stride..]);
            }
        }
    }

    /// An 8 x 8 square in registers: pairs of rows, then pairs of pairs, then halves.
    #[inline]
    #[target_feature(enable = "avx")]
    fn transpose(r: [__m256; 8]) -> [__m256; 8] {
        let pair = |i: usize| (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i], r[i + 1]));
        let ((a0, a1), (a2, a3), (a4, a5), (a6, a7)) = (pair(0), pair(2), pair(4), pair(6));
        let low = |x, y| _mm256_shuffle_ps::<0b01_00_01_00>(x, y);
        let high = |x, y| _mm256_shuffle_ps::<0b11_10_11_10>(x, y);
        let (b0, b1, b2, b3) = (low(a0, a2), high(a0, a2), low(a1, a3), high(a1, a3));
        let (b4, b5, b6, b7) = (low(a4, a6), high(a4, a6), low(a5, a7), high(a5, a7));
        let first = |x, y| _mm256_permute2f128_ps::<0x20>(x, y);
        let second = |x, y| _mm256_permute2f128_ps::<0x31>(x, y);
        [
            first(b0, b4),
            first(b1, b5),
            first(b2, b6),
            first(b3, b7),
            second(b0, b4),
            second(b1, b5),
            second(b2, b6),
            second(b3, b7),
        ]
    }

    /// AVX-512 F, BW, VL and DQ, and what AVX2 has.
    pub(crate) struct Avx512;

    impl Arch for Avx512 {
        const FMA: bool = true;
        const LANES: usize = 16;
        const TILE: Tile = Tile::SixByFour;
        type Vector = __m512;

        #[inline(always)]
        fn splat(x: f32) -> __m512 {
            // SAFETY: the token is used only where AVX-512 is there.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        fn broadcast(x: &f32) -> __m512 {
            // SAFETY: the token is used only where AVX-512 is there.
            unsafe { _mm512_castsi512_ps(crate::lanes::spread(x.to_bits() as i32)) }
        }

        #[inline(always)]
        fn load(from: &[f32]) -> __m512 {
            let from: &[f32; 16] = from.first_chunk().expect("16 elements");
            // SAFETY: both types are 16 float32 numbers in order, of which any bits are valid.
            unsafe { transmute::<[f32; 16], __m512>(*from) }
        }

        #[inline(always)]
        fn store(vector: __m512, to: &mut [f32]) {
            let to: &mut [f32; 16] = to.first_chunk_mut().expect("16 elements");
            // SAFETY: both types are 16 float32 numbers in order, of which any bits are valid.
            *to = unsafe { transmute::<__m512, [f32; 16]>(vector) };
        }

        #[inline(always)]
        fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the token is used only where AVX-512 is there.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn widen_f16(bytes: &[u8], out: &mut [f32]) {
            Avx2::widen_f16(bytes, out);
        }

        #[inline(always)]
        fn transpose8(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
            Avx2::transpose8(from, from_stride, to, to_stride);
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use arm::Neon;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{Arch, Tile};
    use std::arch::aarch64::*;
    use std::mem::transmute;

    /// Advanced SIMD, which every AArch64 has.
    pub(crate) struct Neon;

    impl Arch for Neon {
        const FMA: bool = true;
        const LANES: usize = 4;
        const TILE: Tile = Tile::FourByTwo;
        type Vector = float32x4_t;

        #[inline(always)]
        fn splat(x: f32) -> float32x4_t {
            // SAFETY: the token is used only where Advanced SIMD is there.
            unsafe { vdupq_n_f32(x) }
        }

        #[inline(always)]
        fn load(from: &[f32]) -> float32x4_t {
            let from: &[f32; 4] = from.first_chunk().expect("4 elements");
            // SAFETY: both types are 4 float32 numbers in order, of which any bits are valid.
            unsafe { transmute::<[f32; 4], float32x4_t>(*from) }
        }

        #[inline(always)]
        fn store(vector: float32x4_t, to: &mut [f32]) {
            let to: &mut [f32; 4] = to.first_chunk_mut().expect("4 elements");
            // SAFETY: both types are 4 float32 numbers in order, of which any bits are valid.
            *to = unsafe { transmute::<float32x4_t, [f32; 4]>(vector) };
        }

        #[inline(always)]
        fn multiply_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
            // SAFETY: the token is used only where Advanced SIMD is there.
            unsafe { vfmaq_f32(c, a, b) }
        }
    }
}

/// Defines `fn name(isa, arguments)`, which runs `body::<Arch>(arguments)` compiled for that instruction set. Panics
/// when the machine lacks it.
///
/// The body and what it calls must be `#[inline(always)]` functions: a closure with vectors in it is compiled without
/// the instruction set unless the compiler happens to inline it.
macro_rules! for_each_arch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $body:path) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) {
            use $crate::arch;
            use $crate::isa::{Isa, Machine};

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) {
                $body(arch::Avx2, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
            fn avx512($($arg: $ty),*) {
                $body(arch::Avx512, $($arg),*)
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            fn neon($($arg: $ty),*) {
                $body(arch::Neon, $($arg),*)
            }

            assert!(Machine::of(isa).is_some(), "this machine has no {isa}");
            match isa {
                Isa::Portable => $body(arch::Portable, $($arg),*),
                // SAFETY: the machine has the instruction set, as was just asserted.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Amx => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "aarch64")]
                Isa::Neon => unsafe { neon($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                Isa::Avx2 | Isa::Avx512 | Isa::Amx => unreachable!("refused above"),
                #[cfg(not(target_arch = "aarch64"))]
                Isa::Neon => unreachable!("refused above"),
            }
        }
    };
}
pub(crate) use for_each_arch;
