//! Taking the rows of a file into panels, piece by piece.

use super::tasks::Output;
use super::{Arithmetic, Matrix, sizes};
use crate::isa::Machine;
use crate::lanes::WIDTH;
use crate::pool::parallel;
use crate::{DType, KernelError};

/// A cache line: panels begin where the machine fetches from.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// The bytes of lines.
pub(super) fn bytes_of(lines: &[Line]) -> &[u8] {
    // SAFETY: a line is 64 initialised bytes without padding.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// The bytes of lines, to be written.
fn bytes_of_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: a line is 64 initialised bytes without padding, and every pattern of bytes is a line.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

/// Asks for large pages under a buffer that nothing was written to yet: reading weights then misses the table of pages
/// less often. Small matrices lie side by side in the heap, so that a page may hold the end of one and the beginning of
/// the next; what else lies there does not mind. A system that declines changes nothing.
fn prefer_huge_pages(data: &mut Vec<Line>) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 1 << 21;
        /// Smaller buffers may lie among anything.
        const LEAST: usize = 1 << 16;
        let start = data.spare_capacity_mut().as_mut_ptr() as usize;
        let bytes = data.capacity() * size_of::<Line>();
        if bytes >= LEAST {
            let (first, end) = (start / PAGE * PAGE, (start + bytes).next_multiple_of(PAGE));
            // SAFETY: the advice changes no contents, whosever they are, and addresses without memory are passed over.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = data;
}

/// Takes the rows of a [`Matrix`] in order.
#[derive(Debug)]
pub struct MatrixBuilder {
    matrix: Matrix,
    row_bytes: usize,
    /// The type of the rows pushed.
    file_type: DType,
    /// Rows taken so far.
    taken: usize,
    /// Panels packed so far.
    packed: usize,
    /// Rows that do not fill a panel yet.
    waiting: Vec<u8>,
}

impl MatrixBuilder {
    /// See [`Matrix::builder`]; machine and arithmetic are parameters for tests.
    pub(super) fn new(
        machine: Machine,
        arithmetic: Arithmetic,
        rows: usize,
        cols: usize,
        dtype: DType,
    ) -> Result<MatrixBuilder, KernelError> {
        let (layout, stored) = sizes::layout(arithmetic, dtype);
        let too_large = KernelError::TooLarge { dtype, rows, cols };
        let row_bytes = match dtype.bytes(cols) {
            Some(bytes) => bytes,
            None if cols.is_multiple_of(dtype.block_len()) => return Err(too_large),
            None => return Err(KernelError::NotWholeBlocks { dtype, elements: cols }),
        };
        let panel_bytes = layout.panel_bytes(cols).ok_or(too_large.clone())?;
        let lines = sizes::lines(layout, rows, cols).ok_or(too_large)?;
        let mut data = Vec::new();
        let refused =
            |_| KernelError::OutOfMemory { dtype, rows, cols, bytes: lines.saturating_mul(size_of::<Line>()) };
        data.try_reserve_exact(lines).map_err(refused)?;
        prefer_huge_pages(&mut data);
        let matrix = Matrix { rows, cols, dtype: stored, layout, arithmetic, machine, panel_bytes, data };
        Ok(MatrixBuilder { matrix, row_bytes, file_type: dtype, taken: 0, packed: 0, waiting: Vec::new() })
    }

    /// Appends whole rows in the layout of the file, little endian.
    ///
    /// # Errors
    /// When the bytes are no whole number of rows, or more than are missing.
    pub fn push(&mut self, rows: &[u8]) -> Result<(), KernelError> {
        if self.row_bytes == 0 {
            return if rows.is_empty() { Ok(()) } else { Err(self.wrong(self.taken + 1)) };
        }
        let count = rows.len().div_ceil(self.row_bytes);
        if !rows.len().is_multiple_of(self.row_bytes) || count > self.matrix.rows - self.taken {
            return Err(self.wrong(self.taken.saturating_add(count)));
        }
        self.taken += count;
        let panel = WIDTH * self.row_bytes;
        let mut rows = rows;
        if !self.waiting.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(panel - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            rows = later;
            if self.waiting.len() == panel {
                let waiting = std::mem::take(&mut self.waiting);
                self.pack(&waiting);
            }
        }
        let (whole, rest) = rows.split_at(rows.len() / panel * panel);
        self.pack(whole);
        self.waiting.extend_from_slice(rest);
        Ok(())
    }

    /// The matrix, when all of its rows were pushed.
    ///
    /// # Errors
    /// When rows are missing.
    pub fn finish(mut self) -> Result<Matrix, KernelError> {
        if self.taken != self.matrix.rows && self.row_bytes > 0 {
            return Err(self.wrong(self.taken));
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.pack(&waiting);
        Ok(self.matrix)
    }

    /// Packs rows that begin a panel; the last panel of the matrix may be short.
    fn pack(&mut self, rows: &[u8]) {
        if rows.is_empty() {
            return;
        }
        let matrix = &mut self.matrix;
        let panel_rows = WIDTH * self.row_bytes;
        let panels = rows.len().div_ceil(panel_rows);
        let start = self.packed;
        let end = start + panels;
        self.packed = end;
        let bytes = end * matrix.panel_bytes;
        matrix.data.resize(bytes.div_ceil(size_of::<Line>()), Line([0; 64]));
        let out = Output::new(bytes_of_mut(&mut matrix.data));
        let (layout, dtype, row_bytes, panel_bytes) =
            (matrix.layout, self.file_type, self.row_bytes, matrix.panel_bytes);
        parallel(panels, |panel| {
            let rows = &rows[panel * panel_rows..rows.len().min((panel + 1) * panel_rows)];
            // SAFETY: each panel belongs to one task.
            let out = unsafe { out.part((start + panel) * panel_bytes, panel_bytes) };
            layout.pack(dtype, rows, row_bytes, out);
        });
    }

    fn wrong(&self, found: usize) -> KernelError {
        KernelError::Rows { expected: self.matrix.rows, found }
    }
}
