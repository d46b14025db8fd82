//! The tensors of a new file, written a few rows at a time.

use super::Exporter;
use crate::error::Error;
use crate::layout::Layout;
use crate::mapping::Mapped;
use crate::weights::Pieces;
use attend_format::{Checkpoint, TensorInfo};
use attend_kernels::{DType, dequantize, parallel, quantize};
use std::io::Write;
use std::sync::Mutex;

/// Values that are held at a time, as f32.
const AT_ONCE: usize = 4 << 20;

/// A tensor of the file that is to be written.
#[derive(Debug, Clone)]
pub struct ExportTensor {
    /// Its name in the new file.
    pub name: String,
    /// Rows first.
    pub shape: Vec<usize>,
    /// The type that its values have now.
    pub dtype: DType,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Our tensors that lie in it.
    Parts(Vec<Part>),
    /// A tensor of the old file as it stands.
    Copy,
    /// Numbers that the old file has elsewhere.
    Values(Vec<f32>),
}

/// One of ours: its index in [`crate::Described::tensors`] and its place in the new tensor.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub source: usize,
    pub layout: Layout,
}

impl ExportTensor {
    /// How many values it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The width of a row: the last axis, which blocks never leave.
    pub fn row(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Whether it is made of values of its own, a vector of divisors for rotary positions.
    pub fn is_computed(&self) -> bool {
        matches!(self.content, Content::Values(_))
    }
}

/// What writing a tensor can fail with besides [`Error`]: the writer's own error.
type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Exporter<'_> {
    /// Writes the bytes of `tensor` in `dtype`, holding a few million values at a time (a whole tensor only where the
    /// new file keeps it transposed). `progress` is told the number of values that were written.
    pub fn write(
        &self,
        tensor: &ExportTensor,
        dtype: DType,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(usize) -> Outcome,
    ) -> Outcome {
        match &tensor.content {
            Content::Values(values) => {
                out.write_all(&self.encoded(tensor, dtype, values)?)?;
                progress(values.len())
            }
            Content::Copy => self.copy(tensor, dtype, out, progress),
            Content::Parts(parts) => match self.row_wise(tensor, parts) {
                Some(places) => self.by_rows(tensor, parts, &places, dtype, out, progress),
                None => self.whole(tensor, parts, dtype, out, progress),
            },
        }
    }

    fn mapped(&self, part: &Part) -> Result<&Mapped, Error> {
        self.source.tensors.get(part.source).ok_or_else(|| Error::Table("a tensor that is not described".into()))
    }

    /// For each row of the new tensor the part and the row of ours that it is; `None` where rows are not whole.
    fn row_wise(&self, tensor: &ExportTensor, parts: &[Part]) -> Option<Vec<(usize, usize)>> {
        // The elements of a vector are rows of one value.
        if tensor.shape.len() < 2 {
            return None;
        }
        let (width, total) = (tensor.row(), tensor.elements().checked_div(tensor.row())?);
        let mut places = vec![(usize::MAX, 0); total];
        for (index, part) in parts.iter().enumerate() {
            let mapped = self.mapped(part).ok()?;
            let (rows, cols) = matrix(mapped);
            if part.layout.transposed || cols != width {
                return None;
            }
            for row in 0..rows {
                *places.get_mut(part.layout.their_place(row, 0).0)? = (index, row);
            }
        }
        places.iter().all(|place| place.0 != usize::MAX).then_some(places)
    }

    fn by_rows(
        &self,
        tensor: &ExportTensor,
        parts: &[Part],
        places: &[(usize, usize)],
        dtype: DType,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(usize) -> Outcome,
    ) -> Outcome {
        let width = tensor.row();
        let checkpoint = &self.source.checkpoint;
        let mut readers = Vec::new();
        for part in parts {
            let mapped = self.mapped(part)?;
            let added = f32::from(mapped.layout.added) - f32::from(part.layout.added);
            readers.push((Pieces::new(checkpoint, mapped, width)?, added));
        }
        let verbatim = readers.iter().all(|(pieces, added)| pieces.raw_type() == Some(dtype) && *added == 0.0);
        let mut values = Vec::new();
        for rows in places.chunks((AT_ONCE / width.max(1)).max(1)) {
            values.resize(rows.len() * width, 0.0);
            let mut start = 0;
            while let Some(&(part, first)) = rows.get(start) {
                let follows = |n: &usize| rows.get(start + n) == Some(&(part, first + n));
                let count = 1 + (1..).take_while(follows).count();
                let Some((pieces, added)) = readers.get_mut(part) else { break };
                if verbatim {
                    out.write_all(pieces.raw(first, count)?)?;
                } else if let Some(values) = values.get_mut(start * width..(start + count) * width) {
                    pieces.values(first, count, values)?;
                    values.iter_mut().filter(|_| *added != 0.0).for_each(|value| *value += *added);
                }
                start += count;
            }
            if !verbatim {
                out.write_all(&self.encoded(tensor, dtype, &values)?)?;
            }
            progress(rows.len() * width)?;
        }
        Ok(())
    }

    /// A tensor that is put together in memory.
    fn whole(
        &self,
        tensor: &ExportTensor,
        parts: &[Part],
        dtype: DType,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(usize) -> Outcome,
    ) -> Outcome {
        let mut theirs = vec![0.0; tensor.elements()];
        for part in parts {
            let mapped = self.mapped(part)?;
            let (rows, cols) = matrix(mapped);
            let mut ours = vec![0.0; rows * cols];
            Pieces::new(&self.source.checkpoint, mapped, cols)?.values(0, rows, &mut ours)?;
            ours.iter_mut().for_each(|value| *value += f32::from(mapped.layout.added));
            part.layout.write_back(&ours, rows, &mut theirs, true);
        }
        out.write_all(&self.encoded(tensor, dtype, &theirs)?)?;
        progress(theirs.len())
    }

    fn copy(
        &self,
        tensor: &ExportTensor,
        dtype: DType,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(usize) -> Outcome,
    ) -> Outcome {
        copy(&self.source.checkpoint, &tensor.name, dtype, out, progress)
    }

    fn encoded(&self, tensor: &ExportTensor, dtype: DType, values: &[f32]) -> Result<Vec<u8>, Error> {
        encode(&self.source.checkpoint, &tensor.name, dtype, values, tensor.row())
    }
}

/// Writes tensor `name` of a file in `dtype`, a few million values at a time.
pub fn copy(
    checkpoint: &Checkpoint,
    name: &str,
    dtype: DType,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(usize) -> Outcome,
) -> Outcome {
    let info: &TensorInfo = checkpoint.require(name)?;
    let total: usize = info.shape.iter().product();
    let row = info.shape.last().copied().unwrap_or(1).max(1);
    let at_once = (AT_ONCE / row).max(1) * row;
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for start in (0..total).step_by(at_once) {
        let count = at_once.min(total - start);
        let place = |elements: usize| info.dtype.bytes(elements).ok_or("rows do not fill whole blocks of the type");
        bytes.resize(place(count)?, 0);
        checkpoint.read_at(name, place(start)? as u64, &mut bytes)?;
        if dtype == info.dtype {
            out.write_all(&bytes)?;
        } else {
            values.resize(count, 0.0);
            dequantize(info.dtype, &bytes, &mut values).map_err(|source| kernel(checkpoint, name, source))?;
            out.write_all(&encode(checkpoint, name, dtype, &values, row)?)?;
        }
        progress(count)?;
    }
    Ok(())
}

fn kernel(checkpoint: &Checkpoint, name: &str, source: attend_kernels::KernelError) -> Error {
    Error::Kernel { file: checkpoint.path().to_path_buf(), tensor: name.into(), source }
}

/// Rows and columns of one of ours; a vector has one column.
fn matrix(mapped: &Mapped) -> (usize, usize) {
    match mapped.shape.as_slice() {
        [] => (1, 1),
        [rows, rest @ ..] => (*rows, rest.iter().product()),
    }
}

/// `values` as bytes of `dtype`, on all threads.
fn encode(checkpoint: &Checkpoint, name: &str, dtype: DType, values: &[f32], row: usize) -> Result<Vec<u8>, Error> {
    let size = |elements: usize| {
        dtype.bytes(elements).ok_or_else(|| Error::Storage {
            file: checkpoint.path().to_path_buf(),
            tensor: name.into(),
            dtype: dtype.to_string(),
            problem: format!("rows of {row} values do not fill whole blocks of {}", dtype.block_len()),
        })
    };
    size(row)?;
    let mut bytes = vec![0; size(values.len())?];
    // Whole blocks, and enough of them that a task is worth its start.
    let task = dtype.block_len() * (16384 / dtype.block_len()).max(1);
    type Task<'t> = Mutex<(&'t [f32], &'t mut [u8], Result<(), attend_kernels::KernelError>)>;
    let pieces = values.chunks(task).zip(bytes.chunks_mut(size(task)?.max(1)));
    let tasks: Vec<Task> = pieces.map(|(values, bytes)| Mutex::new((values, bytes, Ok(())))).collect();
    parallel(tasks.len(), |index| {
        if let Some(Ok(mut task)) = tasks.get(index).map(Mutex::lock) {
            let (values, bytes, outcome) = &mut *task;
            *outcome = quantize(dtype, values, bytes);
        }
    });
    for task in tasks {
        if let Ok((_, _, Err(source))) = task.into_inner() {
            return Err(kernel(checkpoint, name, source));
        }
    }
    match crate::weights::first_not_finite(dtype, &bytes) {
        None => Ok(bytes),
        Some((element, _)) => Err(Error::Storage {
            file: checkpoint.path().to_path_buf(),
            tensor: name.into(),
            dtype: dtype.to_string(),
            problem: format!("the value {} does not fit the type", values.get(element).copied().unwrap_or(f32::NAN)),
        }),
    }
}
