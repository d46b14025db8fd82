//! One generic body for every instruction set.
//!
//! A kernel is written once over an [`Arch`], a token that stands for an instruction set, and instantiated by
//! [`for_each_arch!`] inside functions that are compiled for it. Elementwise loops are left to the compiler, which
//! vectorises them there; loops with accumulators say their vectors.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2::Avx2, avx512::Avx512};

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

    /// Whether few rows read the cache of keys and values where it lies, each number widened in a register.
    const IN_PLACE: bool;

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
    fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`
    fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// `a` where it is larger, else `b`: a NaN of `a` is passed over, one of `b` stays.
    fn larger(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `x`, but 0 where `t` is below `bound`.
    fn unless_below(x: Self::Vector, t: Self::Vector, bound: Self::Vector) -> Self::Vector;
    /// Numbers whose bits are those of `x` shifted up by 23: the lowest nine become sign and exponent.
    fn exponent(x: Self::Vector) -> Self::Vector;
    /// The largest element, of which none is NaN.
    fn highest(x: Self::Vector) -> f32;
    /// The sum of the elements, the same two halves added at each step.
    fn sum(x: Self::Vector) -> f32;

    /// Widens little-endian float16 numbers.
    #[inline(always)]
    fn widen_f16(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
            *x = widen_f16(u16::from_le_bytes(*b));
        }
    }

    /// Widens blocks of a float16 scale and 32 signed bytes.
    #[inline(always)]
    fn widen_q8_0(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<34>().0) {
            let scale = widen_f16(u16::from_le_bytes([b[0], b[1]]));
            for (x, &q) in x.iter_mut().zip(&b[2..]) {
                *x = scale * f32::from(q as i8);
            }
        }
    }

    /// Widens blocks of a float16 scale and 32 codes of four bits, 8 in the middle: first the lower halves of 16 bytes,
    /// then the upper ones.
    #[inline(always)]
    fn widen_q4_0(bytes: &[u8], out: &mut [f32]) {
        for (x, b) in out.as_chunks_mut::<32>().0.iter_mut().zip(bytes.as_chunks::<18>().0) {
            let scale = widen_f16(u16::from_le_bytes([b[0], b[1]]));
            let (low, high) = x.split_at_mut(16);
            for ((low, high), &q) in low.iter_mut().zip(high).zip(&b[2..]) {
                *low = scale * f32::from((q & 15) as i8 - 8);
                *high = scale * f32::from((q >> 4) as i8 - 8);
            }
        }
    }

    /// The first `LANES` numbers of the machine's byte order.
    #[inline(always)]
    fn load_f32(from: &[u8]) -> Self::Vector {
        let mut out = [0.0; 16];
        for (x, b) in out[..Self::LANES].iter_mut().zip(from.as_chunks().0) {
            *x = f32::from_ne_bytes(*b);
        }
        Self::load(&out)
    }

    /// The first `LANES` little-endian float16 numbers.
    #[inline(always)]
    fn load_f16(from: &[u8]) -> Self::Vector {
        let mut out = [0.0; 16];
        Self::widen_f16(&from[..2 * Self::LANES], &mut out[..Self::LANES]);
        Self::load(&out)
    }

    /// A little-endian float16 number in every element.
    #[inline(always)]
    fn splat_f16(bytes: [u8; 2]) -> Self::Vector {
        Self::splat(widen_f16(u16::from_le_bytes(bytes)))
    }

    /// The first `LANES` little-endian bfloat16 numbers.
    #[inline(always)]
    fn load_bf16(from: &[u8]) -> Self::Vector {
        let mut out = [0.0; 16];
        for (x, b) in out[..Self::LANES].iter_mut().zip(from.as_chunks().0) {
            *x = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
        }
        Self::load(&out)
    }

    /// The first `LANES` signed bytes.
    #[inline(always)]
    fn load_i8(from: &[u8]) -> Self::Vector {
        let mut out = [0.0; 16];
        for (x, &q) in out[..Self::LANES].iter_mut().zip(from) {
            *x = f32::from(q as i8);
        }
        Self::load(&out)
    }

    /// The codes of four bits, 8 in the middle, in the lower or upper halves of the first `LANES` bytes.
    #[inline(always)]
    fn load_codes(from: &[u8], upper: bool) -> Self::Vector {
        let mut out = [0.0; 16];
        let shift = if upper { 4 } else { 0 };
        for (x, &q) in out[..Self::LANES].iter_mut().zip(from) {
            *x = f32::from((q >> shift & 15) as i8 - 8);
        }
        Self::load(&out)
    }

    /// Writes the transpose of the 16 x 16 square at `from[0]`, whose rows lie `from_stride` apart.
    #[inline(always)]
    fn transpose(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
        for i in 0..16 {
            for j in 0..16 {
                to[j * to_stride + i] = from[i * from_stride + j];
            }
        }
    }

    /// Asks for the cache line of a byte, which will be read soon. Any address will do.
    #[inline(always)]
    fn prefetch(_byte: *const u8) {}
}

/// A tile of sums: rows, by vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tile {
    FourByTwo,
    /// AVX2's sixteen registers.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no other set has sixteen registers"))]
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
