//! Tensors that are not contiguous in their file.

use std::sync::Mutex;

use crate::source::allocate;
use crate::{Error, Source};

/// A view of a storage by strides. The first read gathers the whole tensor; the copy is dropped when its last byte has
/// been read, which is what reading front to back does.
#[derive(Debug)]
pub(crate) struct Strided {
    /// The file's byte of the first element.
    start: u64,
    /// Bytes from there to the end of the last element.
    span: u64,
    element: usize,
    shape: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    gathered: Mutex<Option<Vec<u8>>>,
}

impl Strided {
    pub fn new(start: u64, span: u64, element: u64, shape: Vec<usize>, strides: Vec<usize>) -> Strided {
        Strided { start, span, element: element as usize, shape, strides, gathered: Mutex::new(None) }
    }

    /// As [`Source::read_at`], over the tensor's bytes in row-major order. The caller has checked the range.
    pub fn read_at(&self, source: &Source, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        // A reader that panicked left nothing half-done here: the copy is put in place whole.
        let mut gathered = self.gathered.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let bytes = match gathered.take() {
            Some(bytes) => bytes,
            None => self.gather(source)?,
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        if let Some(from) = bytes.get(start..end) {
            buffer.copy_from_slice(from);
        }
        if end < bytes.len() {
            *gathered = Some(bytes);
        }
        Ok(())
    }

    fn gather(&self, source: &Source) -> Result<Vec<u8>, Error> {
        let storage = source.bytes_at(self.start, self.span)?;
        let elements: usize = self.shape.iter().product();
        let mut out = allocate(source, elements * self.element)?;
        let mut index = vec![0usize; self.shape.len()];
        for element in out.chunks_exact_mut(self.element) {
            let at: usize = index.iter().zip(&self.strides).map(|(&i, &stride)| i * stride).sum();
            if let Some(from) = storage.get(at * self.element..(at + 1) * self.element) {
                element.copy_from_slice(from);
            }
            for (i, &dim) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < dim {
                    break;
                }
                *i = 0;
            }
        }
        Ok(out)
    }
}
