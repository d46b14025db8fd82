//! What matrices and products will take, told without making them: the same arithmetic as [`super::MatrixBuilder`]'s and
//! [`Matrix::matmul`]'s, for plans.

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::builder::Line;
use super::panels::Layout;
use super::together::Key;
use super::{Arithmetic, Compute, Matrix, int8};
use crate::DType;
use crate::isa::Machine;
use crate::lanes::WIDTH;

/// How the weights of a matrix lie in memory under one arithmetic, and the type that they then have.
pub(super) fn layout(arithmetic: Arithmetic, dtype: DType) -> (Layout, DType) {
    match arithmetic {
        Arithmetic::Bf16 => (Layout::Pairs, DType::BF16),
        Arithmetic::Float | Arithmetic::Int8 => (Layout::Of(dtype), dtype),
    }
}

/// Cache lines of a matrix; `None` when the size overflows or `cols` does not fill blocks.
pub(super) fn lines(layout: Layout, rows: usize, cols: usize) -> Option<usize> {
    let bytes = layout.panel_bytes(cols)?.checked_mul(rows.div_ceil(WIDTH))?;
    (bytes <= isize::MAX as usize - 64).then(|| bytes.div_ceil(size_of::<Line>()))
}

impl Matrix {
    /// Bytes that a matrix of this shape and type takes on this machine ([`Matrix::bytes`] once it is made); `None` where
    /// `cols` does not fill whole blocks or the size overflows.
    pub fn packed_bytes(rows: usize, cols: usize, dtype: DType, compute: Compute) -> Option<usize> {
        let (layout, _) = layout(Arithmetic::of(*crate::isa::machine(), dtype, compute), dtype);
        lines(layout, rows, cols)?.checked_mul(size_of::<Line>())
    }

    /// Bytes of the buffers in which [`crate::matmul_all`] lays out `m` rows of activations for matrices of `cols` inputs
    /// in these types.
    pub fn matmul_bytes(m: usize, cols: usize, types: &[(DType, Compute)]) -> usize {
        scratch_on(*crate::isa::machine(), m, cols, types)
    }
}

fn scratch_on(machine: Machine, m: usize, cols: usize, types: &[(DType, Compute)]) -> usize {
    let mut seen = Vec::with_capacity(1);
    let mut bytes = 0usize;
    for &(dtype, compute) in types {
        let key = Key::of(machine, Arithmetic::of(machine, dtype, compute), dtype);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        bytes = bytes.saturating_add(match key {
            // A single row is read where it lies.
            Key::Float(_) if m == 1 => 0,
            Key::Float(_) => m.saturating_mul(cols).saturating_mul(size_of::<f32>()),
            #[cfg(target_arch = "x86_64")]
            Key::Bf16(machine) if machine.bf16_tiles() => bf16::Tiles::bytes_for(m, cols),
            Key::Bf16(_) => m.saturating_mul(cols.div_ceil(2)).saturating_mul(size_of::<u32>()),
            Key::Int8(form) => int8::Activations::bytes_for(form, m, cols),
        });
    }
    bytes
}
