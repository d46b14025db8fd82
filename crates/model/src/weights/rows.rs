//! Rows of our matrices, gathered from where a file has them, with bounded buffers.

use super::{finite, storage_error, stored, widen};
use crate::error::Error;
use crate::mapping::{Mapped, Storage};
use attend_format::Checkpoint;
use attend_kernels::DType;

/// Bytes of a file that are read at a time.
const WINDOW: usize = 4 << 20;

/// One of our tensors as pieces of whole rows.
pub(crate) struct Pieces<'a> {
    checkpoint: &'a Checkpoint,
    mapped: &'a Mapped,
    cols: usize,
    rows: FileRows<'a>,
    /// For the storages with scales.
    scales: Option<stored::Scales<'a>>,
    buffer: Vec<u8>,
}

impl<'a> Pieces<'a> {
    pub fn new(checkpoint: &'a Checkpoint, mapped: &'a Mapped, cols: usize) -> Result<Pieces<'a>, Error> {
        let scales = stored::Scales::open(checkpoint, mapped)?;
        let packed = match mapped.storage {
            Storage::SplitMxfp4 => Some(cols / 2),
            Storage::Plain | Storage::ScaledBlocks => mapped.dtype.bytes(cols),
        };
        let row_bytes = match packed {
            Some(bytes) => bytes,
            None => return Err(storage_error(mapped, format!("rows of {cols} values do not fill whole blocks"))),
        };
        if mapped.layout.transposed && (mapped.dtype.is_quantized() || scales.is_some()) {
            return Err(storage_error(mapped, "a transposed matrix can only be read from plain numbers"));
        }
        let total = mapped.layout.their_shape.first().copied().unwrap_or(1);
        let rows = FileRows { checkpoint, name: &mapped.theirs, row_bytes, total, window: Vec::new(), first: 0 };
        Ok(Pieces { checkpoint, mapped, cols, rows, scales, buffer: Vec::new() })
    }

    /// The type of [`Pieces::raw`], where the bytes need no arithmetic.
    pub fn raw_type(&self) -> Option<DType> {
        match self.mapped.storage {
            Storage::Plain => Some(self.mapped.dtype),
            Storage::SplitMxfp4 => Some(DType::MXFP4),
            Storage::ScaledBlocks => None,
        }
    }

    /// The index in the file's tensor of the n-th element of a piece that starts at row `start`.
    pub fn their_index(&self, start: usize, element: usize) -> u64 {
        let (row, col) = (start + element / self.cols.max(1), element % self.cols.max(1));
        let layout = &self.mapped.layout;
        let width = layout.their_shape.get(1).copied().unwrap_or(1) as u64;
        match layout.transposed {
            true => col as u64 * width + layout.their_row(row) as u64,
            false => layout.their_row(row) as u64 * self.cols as u64 + col as u64,
        }
    }

    /// The bytes of rows `start..start + count`, all finite.
    pub fn raw(&mut self, start: usize, count: usize) -> Result<&[u8], Error> {
        self.gather(start, count)?;
        if let Some(dtype) = self.raw_type() {
            finite::check(self.mapped, dtype, &self.buffer, |element| self.their_index(start, element))?;
        }
        Ok(&self.buffer)
    }

    /// The same rows as numbers.
    pub fn values(&mut self, start: usize, count: usize, out: &mut [f32]) -> Result<(), Error> {
        let dtype = self.raw_type().unwrap_or(self.mapped.dtype);
        self.gather(start, count)?;
        finite::check(self.mapped, dtype, &self.buffer, |element| self.their_index(start, element))?;
        widen(self.mapped, dtype, &self.buffer, out)?;
        if let Some(stored::Scales::Blocks(scales)) = &self.scales {
            for (row, values) in out.chunks_exact_mut(self.cols.max(1)).enumerate() {
                scales.apply(self.mapped.layout.their_row(start + row), values);
            }
        }
        // A value beyond f32 in a wider type becomes infinite here.
        let bytes = out.iter().position(|value| !value.is_finite());
        match bytes {
            None => Ok(()),
            Some(element) => Err(Error::NotFinite {
                file: self.mapped.file.clone(),
                tensor: self.mapped.theirs.clone(),
                index: self.their_index(start, element),
                value: "a value beyond 32-bit floats".into(),
            }),
        }
    }

    /// Fills the buffer with rows in our order.
    fn gather(&mut self, start: usize, count: usize) -> Result<(), Error> {
        self.buffer.clear();
        if self.mapped.layout.transposed {
            return self.gather_columns(start, count);
        }
        for row in start..start + count {
            let theirs = self.mapped.layout.their_row(row);
            let bytes = self.rows.row(theirs)?;
            match &mut self.scales {
                Some(stored::Scales::Mxfp4(scales)) => stored::join_mxfp4(bytes, scales.row(theirs)?, &mut self.buffer),
                Some(stored::Scales::Blocks(_)) | None => self.buffer.extend_from_slice(bytes),
            }
        }
        Ok(())
    }

    /// Rows of ours that are columns of the file's matrix: each of its rows is read where those columns are.
    fn gather_columns(&mut self, start: usize, count: usize) -> Result<(), Error> {
        let size = self.mapped.dtype.block_bytes();
        let width = self.mapped.layout.their_shape.get(1).copied().unwrap_or(1);
        self.buffer.resize(count * self.cols * size, 0);
        let mut strip = Vec::new();
        let mut done = 0;
        while done < count {
            let first = self.mapped.layout.their_row(start + done);
            let joined = |n: &usize| self.mapped.layout.their_row(start + done + n) == first + n;
            let run = (1..count - done).take_while(joined).count() + 1;
            strip.resize(run * size, 0);
            for col in 0..self.cols {
                self.checkpoint.read_at(&self.mapped.theirs, ((col * width + first) * size) as u64, &mut strip)?;
                for (row, value) in strip.chunks_exact(size).enumerate() {
                    let at = ((done + row) * self.cols + col) * size;
                    if let Some(place) = self.buffer.get_mut(at..at + size) {
                        place.copy_from_slice(value);
                    }
                }
            }
            done += run;
        }
        Ok(())
    }
}

/// Rows of a tensor in a file through a window, so that neighbours cost one read.
pub(super) struct FileRows<'a> {
    pub checkpoint: &'a Checkpoint,
    pub name: &'a str,
    pub row_bytes: usize,
    /// Rows of the tensor.
    pub total: usize,
    pub window: Vec<u8>,
    /// The row at the window's start.
    pub first: usize,
}

impl FileRows<'_> {
    pub fn row(&mut self, row: usize) -> Result<&[u8], Error> {
        let size = self.row_bytes.max(1);
        let held = self.window.len() / size;
        if row < self.first || row >= self.first + held {
            let count = (WINDOW / size).max(1).min(self.total.saturating_sub(row).max(1));
            self.window.resize(count * self.row_bytes, 0);
            self.first = row;
            self.checkpoint.read_at(self.name, (row * self.row_bytes) as u64, &mut self.window)?;
        }
        let at = (row - self.first) * self.row_bytes;
        Ok(self.window.get(at..at + self.row_bytes).unwrap_or_default())
    }
}
