//! Weights and what is multiplied by them.

use crate::{DType, KernelError, dequantize, pool};

/// How block types are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compute {
    /// Block types with int8 activations; bf16 where the machine has it, else f32.
    Native,
    /// Weights widened exactly, f32 arithmetic.
    F32,
}

/// A weight matrix `[rows, cols]` (outputs, inputs).
#[derive(Debug, Clone)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    dtype: DType,
    data: Vec<u8>,
}

/// Takes the rows of a matrix piece by piece.
#[derive(Debug)]
pub struct MatrixBuilder {
    matrix: Matrix,
}

impl Matrix {
    /// Starts a matrix of `rows` outputs and `cols` inputs.
    ///
    /// # Errors
    /// When `cols` does not fill whole blocks, or the memory is not there.
    pub fn builder(rows: usize, cols: usize, dtype: DType, _compute: Compute) -> Result<MatrixBuilder, KernelError> {
        let row = dtype.bytes(cols).ok_or(KernelError::NotWholeBlocks { dtype, elements: cols })?;
        let bytes = row.checked_mul(rows).ok_or(KernelError::TooLarge { dtype, rows, cols })?;
        let mut data = Vec::new();
        data.try_reserve_exact(bytes).map_err(|_| KernelError::OutOfMemory { dtype, rows, cols, bytes })?;
        Ok(MatrixBuilder { matrix: Matrix { rows, cols, dtype, data } })
    }

    /// A matrix of f32 from `w` in row order.
    pub fn from_f32(rows: usize, cols: usize, w: &[f32]) -> Matrix {
        assert_eq!(w.len(), rows * cols, "a {rows} x {cols} matrix");
        Matrix { rows, cols, dtype: DType::F32, data: w.iter().flat_map(|x| x.to_le_bytes()).collect() }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The type of the weights.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes that the weights take.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// What is multiplied with what, for people.
    pub fn arithmetic(&self) -> &'static str {
        "f32"
    }

    /// `out [m, rows] = x [m, cols] . W^T`.
    pub fn matmul(&self, x: &[f32], out: &mut [f32]) {
        if self.cols == 0 {
            return out.fill(0.0);
        }
        let m = x.len() / self.cols;
        let columns: Vec<std::sync::Mutex<Vec<f32>>> = (0..self.rows).map(|_| Default::default()).collect();
        pool::parallel(self.rows, |n| {
            let mut row = vec![0.0; self.cols];
            self.read_rows(n, &mut row);
            let dots = x.chunks_exact(self.cols).map(|x| x.iter().zip(&row).map(|(x, w)| x * w).sum());
            *columns[n].lock().expect("no task panics") = dots.collect();
        });
        for (n, column) in columns.into_iter().enumerate() {
            let column = column.into_inner().expect("no task panics");
            (0..m).for_each(|row| out[row * self.rows + n] = column[row]);
        }
    }

    /// Unpacks rows from `start` on; `out.len()` is a multiple of `cols`.
    pub fn read_rows(&self, start: usize, out: &mut [f32]) {
        let row = self.dtype.bytes(self.cols).expect("checked by the builder");
        let count = out.len() / self.cols.max(1);
        let bytes = &self.data[start * row..(start + count) * row];
        dequantize(self.dtype, bytes, out).expect("lengths agree");
    }
}

impl MatrixBuilder {
    /// Appends whole rows in the layout of the file.
    ///
    /// # Errors
    /// When the rows are not whole or too many.
    pub fn push(&mut self, rows: &[u8]) -> Result<(), KernelError> {
        let m = &mut self.matrix;
        let row = m.dtype.bytes(m.cols).unwrap_or(0).max(1);
        let found = (m.data.len() + rows.len()).div_ceil(row);
        if !rows.len().is_multiple_of(row) || found > m.rows {
            return Err(KernelError::Rows { expected: m.rows, found });
        }
        m.data.extend_from_slice(rows);
        Ok(())
    }

    /// The matrix.
    ///
    /// # Errors
    /// When rows are missing.
    pub fn finish(self) -> Result<Matrix, KernelError> {
        let m = self.matrix;
        let row = m.dtype.bytes(m.cols).unwrap_or(0);
        if m.data.len() != row * m.rows {
            return Err(KernelError::Rows { expected: m.rows, found: m.data.len() / row.max(1) });
        }
        Ok(m)
    }
}
