//! The part of the pickle language that rebuilds tensors.
//!
//! The stack machine keeps its values in arenas, so that no nesting a file describes becomes nesting of ours, and
//! counts its steps. It knows eleven callables, none of which does anything but describe data.

mod global;
mod machine;

use attend_kernels::DType;

use crate::stream::Stream;
use crate::{Error, Source};

pub(super) use machine::{Machine, Value};

/// A state dict: tensors by name, in the file's order, over storages.
pub(super) struct StateDict {
    pub tensors: Vec<(String, TensorView)>,
    pub storages: Vec<Storage>,
}

/// A tensor as a window on a storage; offset, shape and strides in elements.
#[derive(Clone)]
pub(super) struct TensorView {
    /// Index into [`StateDict::storages`].
    pub storage: usize,
    pub dtype: DType,
    pub offset: u64,
    pub shape: Vec<u64>,
    pub strides: Vec<u64>,
}

/// A named run of elements outside the pickle.
#[derive(Clone)]
pub(super) struct Storage {
    pub key: String,
    /// `None` for untyped storages, whose tensors name the type.
    pub dtype: Option<DType>,
    /// Bytes of an element; 1 for untyped storages.
    pub element: u64,
}

impl TensorView {
    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1u64;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if dim == 0 {
                return true;
            }
            if dim != 1 && stride != expected {
                return false;
            }
            expected = expected.saturating_mul(dim);
        }
        true
    }
}

/// Reads the pickle in these bytes of the file.
pub(super) fn read_state_dict(source: &Source, start: u64, end: u64) -> Result<StateDict, Error> {
    let mut stream = Stream::part(source, start, end);
    let mut machine = Machine::new(&mut stream);
    let state = machine.run()?;
    machine.state_dict(state)
}
