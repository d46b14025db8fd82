//! From our tensors back to a file's: the name table read the other way; and whole checkpoints of the other kind.

mod compare;
mod convert;
mod gguf;
mod hugging_face;
mod rows;

pub use compare::difference;
pub use convert::{Converted, Exporter, to_gguf, to_hugging_face};
pub use gguf::Metadata;
pub use rows::{ExportTensor, copy};

use crate::describe::Described;
use crate::error::Error;
use crate::mapping::{self, Mapped};
use attend_format::Kind;
use std::collections::HashMap;

/// What the values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Weights: what reading adds is taken away again.
    Weights,
    /// Gradients: a constant that reading adds has none.
    Gradients,
}

/// A tensor as a file would hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct FileTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl Described {
    /// Our tensors under the names and in the layouts of this checkpoint: fused, transposed, reordered as it has them.
    ///
    /// `ours` gives a tensor by our name, or `None` for one to leave out; a fused tensor of which every part is left
    /// out is left out itself, and missing parts of another are zero.
    pub fn to_checkpoint(
        &self,
        quantity: Quantity,
        ours: &mut dyn FnMut(&str) -> Option<Vec<f32>>,
    ) -> Result<Vec<FileTensor>, Error> {
        assemble(&self.tensors, quantity, ours)
    }

    /// As [`Described::to_checkpoint`], under the names and in the layouts of another kind of file.
    pub fn to_kind(
        &self,
        kind: Kind,
        quantity: Quantity,
        ours: &mut dyn FnMut(&str) -> Option<Vec<f32>>,
    ) -> Result<Vec<FileTensor>, Error> {
        let table = self.known.table(&self.spec, kind, self.checkpoint.config())?;
        assemble(&mapping::plan(&self.spec, &table)?, quantity, ours)
    }
}

fn assemble(
    tensors: &[Mapped],
    quantity: Quantity,
    ours: &mut dyn FnMut(&str) -> Option<Vec<f32>>,
) -> Result<Vec<FileTensor>, Error> {
    let mut files: Vec<FileTensor> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for mapped in tensors {
        let Some(values) = ours(&mapped.ours) else { continue };
        let expected = mapped.elements();
        if values.len() != expected {
            return Err(Error::Length { name: mapped.ours.clone(), expected, found: values.len() });
        }
        let (theirs, layout) = mapped.place();
        let place = *places.entry(theirs).or_insert_with(|| {
            let shape = layout.their_shape.clone();
            let values = vec![0.0; shape.iter().product()];
            files.push(FileTensor { name: theirs.clone(), shape, values });
            files.len() - 1
        });
        if let Some(file) = files.get_mut(place) {
            let rows = mapped.shape.first().copied().unwrap_or(1);
            layout.write_back(&values, rows, &mut file.values, quantity == Quantity::Weights);
        }
    }
    Ok(files)
}
