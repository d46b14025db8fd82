//! Sixteen outputs side by side: the vectors that the matrix kernels are written over, once for all instruction sets.
//!
//! A value of a [`Lanes`] type is the proof that the machine has the instructions: it is made only by `dispatch*`,
//! which enters a function compiled for them. Kernels are generic over the token and inlined into that function, so
//! every function between here and the inner loop is `#[inline(always)]`.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{BesideTiles, Vnni, run_beside_tiles, spread};

use crate::isa::{Isa, Machine};

/// How many outputs a vector holds, on every instruction set.
pub(crate) const WIDTH: usize = 16;

/// The vectors of one instruction set.
pub(crate) trait Lanes: Copy {
    /// Sixteen f32, one for each output.
    type F: Copy;
    /// Sixteen i32, one for each output.
    type I: Copy;
    /// 64 bytes: four codes of consecutive inputs for each output.
    type B: Copy;
    /// Sixteen bytes, one for each output.
    type S: Copy;

    /// How many rows of activations a tile of the f32 kernel has: as many as the registers hold.
    const ROWS: usize;
    /// How many panels share the activations of a tile: 1 or 2.
    const PANELS: usize;

    /// One activation beside every output.
    fn broadcast(self, x: &f32) -> Self::F;
    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; 16]) -> Self::F;
    fn store(self, x: Self::F, out: &mut [f32; 16]);
    /// Sixteen little-endian f32.
    fn load_f32(self, x: &[u8; 64]) -> Self::F;
    /// Sixteen little-endian f16, widened.
    fn load_f16(self, x: &[u8; 32]) -> Self::F;
    /// Sixteen little-endian bf16, widened.
    fn load_bf16(self, x: &[u8; 32]) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the instruction set can.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c + w0 x0 + w1 x1` for sixteen pairs of bf16 weights and one pair of bf16 activations (`x0` in the lower half).
    fn dot_bf16(self, c: Self::F, w: &[u8; 64], x: u32) -> Self::F;

    fn splat_int(self, x: i32) -> Self::I;
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// Exact up to 2^24, which sums inside a block never pass.
    fn to_float(self, x: Self::I) -> Self::F;

    fn small(self, x: &[u8; 16]) -> Self::S;
    /// As [`Lanes::field`].
    fn small_field(self, x: Self::S, shift: i32, mask: u8) -> Self::S;
    fn small_or(self, a: Self::S, b: Self::S) -> Self::S;
    fn small_to_float(self, x: Self::S, signed: bool) -> Self::F;

    fn bytes(self, x: &[u8; 64]) -> Self::B;
    /// Each byte shifted right (left when negative) by `shift` bits, then masked. The mask must clear what a shift of
    /// wider words would bring in from the neighbour.
    fn field(self, x: Self::B, shift: i32, mask: u8) -> Self::B;
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Each byte, below 16, replaced by its entry.
    fn lookup(self, x: Self::B, table: &[i8; 16]) -> Self::B;
    /// Byte `index` (0..4) of each output, as an unsigned or signed number.
    fn byte(self, x: Self::B, index: usize, signed: bool) -> Self::I;

    /// Asks for the cache line of a byte, which will be read soon, into the second cache: the first has too few places for
    /// lines on their way.
    #[inline(always)]
    fn prefetch(self, _byte: &u8) {}

    /// The bits of the largest magnitude. As whole numbers magnitudes order like floats, with infinity and NaN on top.
    #[inline(always)]
    fn most(self, x: &[f32; 32]) -> u32 {
        x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff))
    }
    /// Writes `x * factor`, of magnitudes up to 127, each as the nearest whole number (ties to even). Returns for each half
    /// of these codes the sum of the first two of every four, and of the other two.
    #[inline(always)]
    fn round(self, x: &[f32; 32], factor: f32, codes: &mut [i8; 32]) -> [[i16; 2]; 2] {
        codes.iter_mut().zip(x).for_each(|(code, x)| *code = nearest(x * factor));
        let mut pairs = [0; 16];
        for (pair, two) in pairs.iter_mut().zip(codes.as_chunks::<2>().0) {
            *pair = i16::from(two[0]) + i16::from(two[1]);
        }
        let mut sums = [[0; 2]; 2];
        for (sums, pairs) in sums.iter_mut().zip(pairs.as_chunks::<8>().0) {
            let [a, b, c, d, e, f, g, h] = *pairs;
            *sums = [(a + e) + (c + g), (b + f) + (d + h)];
        }
        sums
    }
}

/// The nearest whole number (ties to even) to a magnitude of at most 127: adding 1.5 * 2^23 leaves it in the lower bits,
/// in two's complement.
#[inline(always)]
fn nearest(x: f32) -> i8 {
    (x + 12_582_912.0).to_bits() as i8
}

/// Lanes that multiply codes.
pub(crate) trait IntLanes: Lanes {
    /// Sums of products of codes, in whatever form the instruction set adds them cheapest.
    type P: Copy;
    /// Four activations, beside every output.
    type X: Copy;

    /// How many rows of activations share the unpacking of codes: 8, 4, or 1 for single rows only. With 8, two panels do.
    const INT_ROWS: usize;
    /// Whether `P` has only 16 bits for a pair of products, see [`room`].
    const NARROW: bool;
    /// What [`IntLanes::dot_signed`] adds to every code.
    const SIGNED_ZERO: i16;

    /// Sums that begin with the bits of `start`: one number, or two where they have 16 bits.
    fn part(self, start: i32) -> Self::P;
    /// Four signed bytes, never -128.
    fn spread(self, x: &[i8; 4]) -> Self::X;
    /// Adds the products of unsigned codes below 64 and activations to each output's sum.
    fn dot(self, sum: Self::P, codes: Self::B, x: Self::X) -> Self::P;
    fn fold(self, sum: Self::I, part: Self::P) -> Self::I;
    /// Adds the products of signed codes, plus [`IntLanes::SIGNED_ZERO`], and activations.
    fn dot_signed(self, sum: Self::I, codes: Self::B, x: Self::X) -> Self::I;
}

/// How many [`IntLanes::dot`]s a narrow part holds before it must be folded: products with codes of magnitude up to
/// `most` must fit 16 bits. A power of two, so that it divides the groups of a run.
pub(crate) const fn room(most: i32) -> usize {
    let fits = (i16::MAX as i32 / (2 * 127 * most)) as usize;
    1 << fits.ilog2()
}

/// A computation over any [`Lanes`].
pub(crate) trait Kernel {
    /// Implementations are `#[inline(always)]`.
    fn run<L: Lanes>(self, lanes: L);
}

/// A computation over any [`IntLanes`].
pub(crate) trait IntKernel {
    /// Implementations are `#[inline(always)]`.
    fn run<L: IntLanes>(self, lanes: L);
}

/// Runs a kernel that multiplies f32.
pub(crate) fn dispatch_float(machine: Machine, kernel: impl Kernel) {
    match machine.isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::run(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx => avx512::run(kernel),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::run(kernel),
        _ => portable::run(kernel),
    }
}

/// Runs a kernel that multiplies codes. AVX-512 without VNNI gains nothing over AVX2 and uses its kernels.
pub(crate) fn dispatch_int(machine: Machine, kernel: impl IntKernel) {
    match machine.isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Amx if machine.vnni => avx512::run_int(kernel),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 | Isa::Amx => avx2::run_int(kernel),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon if machine.dotprod => neon::run_dotprod(kernel),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::run_int(kernel),
        _ => portable::run_int(kernel),
    }
}

/// Runs a kernel that multiplies bf16.
pub(crate) fn dispatch_bf16(machine: Machine, kernel: impl Kernel) {
    #[cfg(target_arch = "x86_64")]
    if machine.isa == Isa::Avx512 && machine.bf16 {
        return avx512::run_bf16(kernel);
    }
    dispatch_float(machine, kernel);
}
