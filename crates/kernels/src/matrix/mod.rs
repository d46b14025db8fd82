//! Weights and what is multiplied by them.
//!
//! Weights are packed once, at load, into panels of sixteen outputs (see `panels`), in the bytes of their own type.
//! What is multiplied with what, in which order over the inputs, is fixed at that moment by the weights' type and the
//! instruction set: the number of rows, the cut into tasks and the threads change only which outputs are computed
//! where, never their bits.

mod bf16;
mod builder;
mod codes;
pub(crate) mod float;
mod int8;
mod panels;
mod scales;
mod sizes;
mod tasks;
mod together;

pub use builder::MatrixBuilder;
pub use together::{Affine, matmul_all};

use crate::isa::Machine;
use crate::lanes::WIDTH;
use crate::{DType, KernelError};
use builder::Line;
use float::{CHAIN, Direct, Source, Tile};
use panels::Layout;
use std::ops::Range;
use tasks::Output;
use together::Product;

/// How weights are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compute {
    /// Block types with activations rounded to eight bits; f16 and bf16 in bf16 where the machine has an instruction
    /// for it; everything else as `F32`.
    Native,
    /// Weights widened exactly, f32 arithmetic.
    F32,
}

/// What is multiplied with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Float,
    Bf16,
    Int8,
}

impl Arithmetic {
    /// What a machine multiplies weights of `dtype` with.
    fn of(machine: Machine, dtype: DType, compute: Compute) -> Arithmetic {
        let bf16 = machine.bf16 && matches!(dtype, DType::BF16 | DType::F16);
        match compute {
            Compute::Native if dtype.is_quantized() => Arithmetic::Int8,
            Compute::Native if bf16 => Arithmetic::Bf16,
            Compute::Native | Compute::F32 => Arithmetic::Float,
        }
    }
}

/// A weight matrix: `rows` outputs of `cols` inputs each.
#[derive(Debug, Clone)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    dtype: DType,
    layout: Layout,
    arithmetic: Arithmetic,
    machine: Machine,
    panel_bytes: usize,
    data: Vec<Line>,
}

impl Matrix {
    /// Starts a matrix of `rows` outputs of `cols` inputs in `dtype`, to be filled with [`MatrixBuilder::push`].
    ///
    /// # Errors
    /// When `cols` does not fill whole blocks, the size overflows, or the memory is not there.
    pub fn builder(rows: usize, cols: usize, dtype: DType, compute: Compute) -> Result<MatrixBuilder, KernelError> {
        let machine = *crate::isa::machine();
        MatrixBuilder::new(machine, Arithmetic::of(machine, dtype, compute), rows, cols, dtype)
    }

    /// A whole matrix for a given machine.
    pub(crate) fn on(
        machine: Machine,
        compute: Compute,
        (rows, cols): (usize, usize),
        dtype: DType,
        bytes: &[u8],
    ) -> Result<Matrix, KernelError> {
        let mut builder = MatrixBuilder::new(machine, Arithmetic::of(machine, dtype, compute), rows, cols, dtype)?;
        builder.push(bytes)?;
        builder.finish()
    }

    /// A matrix of f32; `w` is `[rows, cols]`.
    ///
    /// # Panics
    /// When `w` has another length, or the memory is not there.
    pub fn from_f32(rows: usize, cols: usize, w: &[f32]) -> Matrix {
        assert_eq!(w.len(), rows * cols, "weights of a {rows} x {cols} matrix");
        let bytes: Vec<u8> = w.iter().flat_map(|x| x.to_le_bytes()).collect();
        let matrix = Matrix::builder(rows, cols, DType::F32, Compute::F32).and_then(|mut builder| {
            builder.push(&bytes)?;
            builder.finish()
        });
        matrix.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The type of the weights in memory. Under bf16 arithmetic f16 weights are rounded to bf16 when they are packed.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes that the weights take.
    pub fn bytes(&self) -> usize {
        self.data.len() * size_of::<Line>()
    }

    /// What is multiplied with what, for people.
    pub fn arithmetic(&self) -> &'static str {
        match self.arithmetic {
            Arithmetic::Float => "f32",
            Arithmetic::Bf16 => "bf16 activations, f32 sums",
            Arithmetic::Int8 => "int8 activations, f32 sums",
        }
    }

    /// `out [m, rows] = x [m, cols] . W^T`, where `m = x.len() / cols`.
    ///
    /// With eight-bit activations each is rounded to `absmax / 127` of its 32 neighbours: an error of at most
    /// `absmax / 254` each. A non-finite activation makes every output of its row non-finite (unless its weights are 0).
    ///
    /// # Panics
    /// When the lengths do not fit.
    pub fn matmul(&self, x: &[f32], out: &mut [f32]) {
        if self.cols == 0 || self.rows == 0 {
            return out.fill(0.0);
        }
        let m = x.len() / self.cols;
        assert_eq!(out.len(), m * self.rows, "{m} rows of {} outputs", self.rows);
        together::multiply(vec![Product { matrix: self, bias: None, out: Output::new(out) }], x, m);
    }

    /// Unpacks rows `start ..` to f32, exactly; `out` is `[count, cols]`.
    ///
    /// # Panics
    /// When the rows are not there.
    pub fn read_rows(&self, start: usize, out: &mut [f32]) {
        if self.cols == 0 {
            return;
        }
        let count = out.len() / self.cols;
        assert!(out.len() == count * self.cols && start + count <= self.rows, "rows {start} .. {}", start + count);
        if count == 1 {
            return self.layout.widen_lane(self.machine, self.panel(start / WIDTH), start % WIDTH, out);
        }
        let mut tile: Tile = [[0.0; WIDTH]; CHAIN];
        let (mut row, mut rest) = (start, out);
        while !rest.is_empty() {
            // The rows that lie in one panel are unpacked together.
            let lanes = row % WIDTH..WIDTH.min(row % WIDTH + rest.len() / self.cols);
            let (out, after) = rest.split_at_mut(lanes.len() * self.cols);
            for first in (0..self.cols).step_by(CHAIN) {
                let inputs = first..(first + CHAIN).min(self.cols);
                self.widen(row / WIDTH, inputs.clone(), &mut tile);
                for (lane, out) in lanes.clone().zip(out.chunks_exact_mut(self.cols)) {
                    out[inputs.clone()].iter_mut().zip(&tile).for_each(|(out, tile)| *out = tile[lane]);
                }
            }
            row += lanes.len();
            rest = after;
        }
    }

    fn panels(&self) -> &[u8] {
        builder::bytes_of(&self.data)
    }

    fn panel(&self, panel: usize) -> &[u8] {
        &self.panels()[panel * self.panel_bytes..(panel + 1) * self.panel_bytes]
    }
}

impl Source for Matrix {
    fn direct(&self, panel: usize, inputs: Range<usize>, one_tile: bool) -> Option<Direct<'_>> {
        let panel = self.panel(panel);
        match self.layout {
            Layout::Of(DType::F32) => Some(Direct::F32(&panel.as_chunks().0[inputs])),
            Layout::Of(DType::F16) if one_tile => Some(Direct::F16(&panel.as_chunks().0[inputs])),
            Layout::Of(DType::BF16) if one_tile => Some(Direct::Bf16(&panel.as_chunks().0[inputs])),
            Layout::Of(_) | Layout::Pairs => None,
        }
    }

    fn widen(&self, panel: usize, inputs: Range<usize>, out: &mut Tile) {
        self.layout.widen(self.machine, self.panel(panel), inputs, out);
    }
}

#[cfg(test)]
mod tests;
