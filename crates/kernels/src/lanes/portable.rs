//! The lanes in plain Rust: the reference twin of the other instruction sets.

use super::{IntKernel, IntLanes, Kernel, Lanes};
use crate::quant::{bf16_to_f32, f16_to_f32};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

/// Runs a kernel. Never inlined, so that the compiler looks at each kernel once and not at every call.
#[inline(never)]
pub(super) fn run(kernel: impl Kernel) {
    kernel.run(Portable);
}

/// As [`run`].
#[inline(never)]
pub(super) fn run_int(kernel: impl IntKernel) {
    kernel.run(Portable);
}

impl Lanes for Portable {
    type F = [f32; 16];
    type I = [i32; 16];
    type B = [u8; 64];
    type S = [u8; 16];

    const ROWS: usize = 2;
    const PANELS: usize = 1;

    #[inline(always)]
    fn broadcast(self, x: &f32) -> [f32; 16] {
        self.splat(*x)
    }
    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }
    #[inline(always)]
    fn store(self, x: [f32; 16], out: &mut [f32; 16]) {
        *out = x;
    }
    #[inline(always)]
    fn load_f32(self, x: &[u8; 64]) -> [f32; 16] {
        std::array::from_fn(|i| f32::from_le_bytes([x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]]))
    }
    #[inline(always)]
    fn load_f16(self, x: &[u8; 32]) -> [f32; 16] {
        std::array::from_fn(|i| f16_to_f32(u16::from_le_bytes([x[2 * i], x[2 * i + 1]])))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u8; 32]) -> [f32; 16] {
        std::array::from_fn(|i| bf16_to_f32(u16::from_le_bytes([x[2 * i], x[2 * i + 1]])))
    }
    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    /// Rounded twice: without the instruction, rounding once is a call into the C library.
    #[inline(always)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn dot_bf16(self, c: [f32; 16], w: &[u8; 64], x: u32) -> [f32; 16] {
        let (x0, x1) = (bf16_to_f32(x as u16), bf16_to_f32((x >> 16) as u16));
        std::array::from_fn(|i| {
            let w0 = bf16_to_f32(u16::from_le_bytes([w[4 * i], w[4 * i + 1]]));
            let w1 = bf16_to_f32(u16::from_le_bytes([w[4 * i + 2], w[4 * i + 3]]));
            c[i] + w1 * x1 + w0 * x0
        })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> [i32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn sub_int(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn to_float(self, x: [i32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| x[i] as f32)
    }

    #[inline(always)]
    fn small(self, x: &[u8; 16]) -> [u8; 16] {
        *x
    }
    #[inline(always)]
    fn small_field(self, x: [u8; 16], shift: i32, mask: u8) -> [u8; 16] {
        x.map(|x| (if shift >= 0 { x >> shift } else { x << -shift }) & mask)
    }
    #[inline(always)]
    fn small_or(self, a: [u8; 16], b: [u8; 16]) -> [u8; 16] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn small_to_float(self, x: [u8; 16], signed: bool) -> [f32; 16] {
        x.map(|x| if signed { f32::from(x as i8) } else { f32::from(x) })
    }

    #[inline(always)]
    fn bytes(self, x: &[u8; 64]) -> [u8; 64] {
        *x
    }
    #[inline(always)]
    fn field(self, x: [u8; 64], shift: i32, mask: u8) -> [u8; 64] {
        x.map(|x| (if shift >= 0 { x >> shift } else { x << -shift }) & mask)
    }
    #[inline(always)]
    fn or(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn lookup(self, x: [u8; 64], table: &[i8; 16]) -> [u8; 64] {
        x.map(|x| table[usize::from(x & 15)] as u8)
    }
    #[inline(always)]
    fn byte(self, x: [u8; 64], index: usize, signed: bool) -> [i32; 16] {
        std::array::from_fn(|i| {
            let byte = x[4 * i + index];
            if signed { i32::from(byte as i8) } else { i32::from(byte) }
        })
    }
}

impl IntLanes for Portable {
    type P = [i32; 16];
    type X = [i8; 4];

    const INT_ROWS: usize = 1;
    const NARROW: bool = false;
    const SIGNED_ZERO: i16 = 0;

    #[inline(always)]
    fn part(self, start: i32) -> [i32; 16] {
        [start; 16]
    }
    #[inline(always)]
    fn spread(self, x: &[i8; 4]) -> [i8; 4] {
        *x
    }
    #[inline(always)]
    fn dot(self, sum: [i32; 16], codes: [u8; 64], x: [i8; 4]) -> [i32; 16] {
        std::array::from_fn(|i| (0..4).fold(sum[i], |sum, j| sum + i32::from(codes[4 * i + j]) * i32::from(x[j])))
    }
    #[inline(always)]
    fn fold(self, sum: [i32; 16], part: [i32; 16]) -> [i32; 16] {
        std::array::from_fn(|i| sum[i] + part[i])
    }
    #[inline(always)]
    fn dot_signed(self, sum: [i32; 16], codes: [u8; 64], x: [i8; 4]) -> [i32; 16] {
        std::array::from_fn(|i| (0..4).fold(sum[i], |sum, j| sum + i32::from(codes[4 * i + j] as i8) * i32::from(x[j])))
    }
}
