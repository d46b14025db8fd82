//! Several matrices times the same activations.

use super::float::{self, Rows};
use super::int8::{self, Activations, Form, Int8};
use super::tasks::{Cut, Output, Part, Work};
use super::{Arithmetic, Matrix, bf16};
use crate::DType;
use crate::gemm::View;
use crate::isa::Machine;
use crate::pool::parallel;
use crate::quant::with_block;
use std::marker::PhantomData;

/// Activations as one arithmetic reads them.
enum Laid<'a> {
    Float(Rows<'a, f32>),
    Bf16(Rows<'static, u32>),
    #[cfg(target_arch = "x86_64")]
    Tiles(bf16::Tiles),
    Int8(Activations),
}

/// What matrices must have in common to read the same [`Laid`].
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Key {
    Float(Machine),
    Bf16(Machine),
    Int8(Form),
}

impl Key {
    pub(super) fn of(machine: Machine, arithmetic: Arithmetic, dtype: DType) -> Key {
        match arithmetic {
            Arithmetic::Float => Key::Float(machine),
            Arithmetic::Bf16 => Key::Bf16(machine),
            Arithmetic::Int8 => Key::Int8(Form::of(machine, dtype)),
        }
    }
}

/// A matrix, and what is added to its outputs (`[rows]`).
pub type Affine<'a> = (&'a Matrix, Option<&'a [f32]>);

/// `x [m, cols] . W^T + b` `[m, rows]` for each matrix and its bias: as [`Matrix::matmul`] computes it, bit for bit, the
/// bias added to what comes out. Activations are laid out once for all matrices of one arithmetic, and the threads meet
/// once.
///
/// # Panics
/// When the matrices have different numbers of inputs, `x` is no whole number of rows, or a bias has another length.
pub fn matmul_all<const N: usize>(matrices: [Affine<'_>; N], x: &[f32]) -> [Vec<f32>; N] {
    let m = x.len().checked_div(matrices.first().map_or(0, |(matrix, _)| matrix.cols)).unwrap_or(0);
    let mut outs = matrices.map(|(matrix, _)| Vec::with_capacity(m * matrix.rows));
    let products = matrices.iter().zip(&mut outs).map(|(&(matrix, bias), out)| {
        let len = m * matrix.rows;
        Product { matrix, bias, out: Output::unwritten(&mut out.spare_capacity_mut()[..len]) }
    });
    multiply(products.collect(), x, m);
    for ((matrix, _), out) in matrices.iter().zip(&mut outs) {
        // SAFETY: the tasks of a product cover its result and write every element.
        unsafe { out.set_len(m * matrix.rows) };
    }
    outs
}

/// One of several products, and where it is written.
pub(super) struct Product<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) out: Output<'a, f32>,
}

/// Computes each product, for `m` rows of activations, into its output.
pub(super) fn multiply(products: Vec<Product<'_>>, x: &[f32], m: usize) {
    let cols = products.first().map_or(0, |product| product.matrix.cols);
    assert_eq!(x.len(), m * cols, "activations of {cols} inputs");
    let mut laid: Vec<(Key, Laid)> = Vec::with_capacity(1);
    let mut jobs = Vec::with_capacity(products.len());
    let mut tasks = 0;
    for Product { matrix, bias, out } in products.into_iter().filter(|product| m * product.matrix.rows > 0) {
        assert_eq!(matrix.cols, cols, "inputs of matrices that are multiplied together");
        assert!(bias.is_none_or(|bias| bias.len() == matrix.rows), "a bias for {} outputs", matrix.rows);
        let key = matrix.key();
        let index = laid.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
            laid.push((key, matrix.lay(x)));
            laid.len() - 1
        });
        let cut = Work { outputs: matrix.rows, rows: m, cols, row_block: matrix.row_block() }.cut();
        jobs.push(Job { matrix, bias, laid: index, out, cut, first: tasks });
        tasks += cut.tasks();
    }
    parallel(tasks, |task| {
        let job = jobs.iter().rev().find(|job| job.first <= task).expect("the first job begins at 0");
        let part = Part { bias: job.bias, ..job.cut.part(task - job.first) };
        job.matrix.part(&laid[job.laid].1, &job.out, part);
    });
}

/// A product in tasks.
struct Job<'a> {
    matrix: &'a Matrix,
    bias: Option<&'a [f32]>,
    /// Which laid activations it reads.
    laid: usize,
    out: Output<'a, f32>,
    cut: Cut,
    /// The first of its tasks.
    first: usize,
}

impl Matrix {
    fn key(&self) -> Key {
        Key::of(self.machine, self.arithmetic, self.dtype)
    }

    fn lay<'a>(&self, x: &'a [f32]) -> Laid<'a> {
        let (machine, cols) = (self.machine, self.cols);
        match self.key() {
            Key::Float(_) => {
                let view = View { data: x, rows: x.len() / cols, cols, row_stride: cols, col_stride: 1 };
                Laid::Float(Rows::of(machine, view))
            }
            #[cfg(target_arch = "x86_64")]
            Key::Bf16(_) if machine.bf16_tiles() => Laid::Tiles(bf16::Tiles::new(machine, x, cols)),
            Key::Bf16(_) => Laid::Bf16(bf16::lay(machine, x, cols)),
            Key::Int8(form) => Laid::Int8(Activations::new(form, x, cols)),
        }
    }

    /// Rows that a task takes together.
    fn row_block(&self) -> usize {
        match self.arithmetic {
            Arithmetic::Float | Arithmetic::Bf16 => float::ROW_BLOCK,
            Arithmetic::Int8 => int8::ROW_BLOCK,
        }
    }

    /// Computes one part of the product.
    fn part(&self, x: &Laid, out: &Output<'_, f32>, part: Part<'_>) {
        match x {
            Laid::Float(x) => float::part(self.machine, self, x, out, part, false),
            Laid::Bf16(x) => bf16::part(self.machine, self.panels(), x, out, part),
            #[cfg(target_arch = "x86_64")]
            Laid::Tiles(x) => x.part(self.panels(), out, part),
            Laid::Int8(x) => {
                let (panels, panel_bytes) = (self.panels(), self.panel_bytes);
                with_block!(self.dtype, B => {
                    int8::multiply(self.machine, Int8::<B> { panels, panel_bytes, x, out, part, block: PhantomData });
                }, _ => unreachable!("only block types are multiplied in eight bits"));
            }
        }
    }
}
