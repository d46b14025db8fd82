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
        let width = if mapped.layout.transposed { mapped.layout.their_size().1 } else { cols };
        let packed = match mapped.storage {
            Storage::SplitMxfp4 => Some(width / 2),
            Storage::Plain | Storage::ScaledBlocks => mapped.dtype.bytes(width),
        };
        let row_bytes = match packed {
            Some(bytes) => bytes,
            None => return Err(storage_error(mapped, format!("rows of {width} values do not fill whole blocks"))),
        };
        // Rows of a stack's other entries are not read along.
        let total = mapped.layout.offset() / mapped.layout.entry_rows().max(1) * mapped.layout.entry_rows()
            + mapped.layout.entry_rows();
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
        let width = if layout.transposed { layout.their_size().1 } else { self.cols };
        let (row, col) = layout.their_place(row, col);
        row as u64 * width as u64 + col as u64
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
        if self.mapped.layout.transposed && self.mapped.dtype.is_quantized() {
            return self.values_across(start, count, out);
        }
        let dtype = self.raw_type().unwrap_or(self.mapped.dtype);
        self.gather(start, count)?;
        finite::check(self.mapped, dtype, &self.buffer, |element| self.their_index(start, element))?;
        widen(self.mapped, dtype, &self.buffer, out)?;
        if let Some(stored::Scales::Blocks(scales)) = &self.scales {
            for (row, values) in out.chunks_exact_mut(self.cols.max(1)).enumerate() {
                for (col, value) in values.iter_mut().enumerate() {
                    *value *= scales.at(self.mapped.layout.their_place(start + row, col));
                }
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

    /// Rows of ours that are columns of a matrix in blocks: each of its rows is widened whole.
    fn values_across(&mut self, start: usize, count: usize, out: &mut [f32]) -> Result<(), Error> {
        let (dtype, layout) = (self.mapped.dtype, &self.mapped.layout);
        let mut wide = vec![0.0; layout.their_size().1];
        for col in 0..self.cols {
            let bytes = self.rows.row(layout.offset() + col)?;
            finite::check(self.mapped, dtype, bytes, |element| {
                ((layout.offset() + col) * layout.their_size().1 + element) as u64
            })?;
            widen(self.mapped, dtype, bytes, &mut wide)?;
            for row in 0..count {
                let value = wide.get(layout.their_row(start + row)).copied().unwrap_or_default();
                if let Some(place) = out.get_mut(row * self.cols + col) {
                    *place = value;
                }
            }
        }
        Ok(())
    }

    /// Fills the buffer with rows in our order.
    fn gather(&mut self, start: usize, count: usize) -> Result<(), Error> {
        self.buffer.clear();
        if self.mapped.layout.transposed {
            return self.gather_columns(start, count);
        }
        for row in start..start + count {
            let (theirs, _) = self.mapped.layout.their_place(row, 0);
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
        let (width, before) = (self.mapped.layout.their_size().1, self.mapped.layout.offset());
        self.buffer.resize(count * self.cols * size, 0);
        let mut strip = Vec::new();
        // Columns that alternate with others are read along with them.
        let places: Vec<usize> = (start..start + count).map(|row| self.mapped.layout.their_row(row)).collect();
        let (least, most) = (places.iter().min().copied().unwrap_or(0), places.iter().max().copied().unwrap_or(0));
        if most - least < 4 * count {
            strip.resize((most - least + 1) * size, 0);
            for col in 0..self.cols {
                self.checkpoint.read_at(
                    &self.mapped.theirs,
                    (((before + col) * width + least) * size) as u64,
                    &mut strip,
                )?;
                for (row, place) in places.iter().enumerate() {
                    let at = (row * self.cols + col) * size;
                    let value = strip.get((place - least) * size..(place - least + 1) * size);
                    if let (Some(place), Some(value)) = (self.buffer.get_mut(at..at + size), value) {
                        place.copy_from_slice(value);
                    }
                }
            }
            return Ok(());
        }
        let mut done = 0;
        while done < count {
            let first = self.mapped.layout.their_row(start + done);
            let joined = |n: &usize| self.mapped.layout.their_row(start + done + n) == first + n;
            let run = (1..count - done).take_while(joined).count() + 1;
            strip.resize(run * size, 0);
            for col in 0..self.cols {
                self.checkpoint.read_at(
                    &self.mapped.theirs,
                    (((before + col) * width + first) * size) as u64,
                    &mut strip,
                )?;
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
