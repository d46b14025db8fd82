//! Weights that Hugging Face folders keep in two tensors, and tensors that should be equal.

use super::rows::FileRows;
use super::{finite, storage_error, widen};
use crate::error::Error;
use crate::mapping::{Mapped, Storage, scale_shape};
use attend_format::Checkpoint;
use attend_kernels::{DType, dequantize};

/// The scales that stand beside a tensor.
pub(super) enum Scales<'a> {
    Blocks(BlockScales),
    Mxfp4(FileRows<'a>),
}

impl<'a> Scales<'a> {
    pub fn open(checkpoint: &'a Checkpoint, mapped: &'a Mapped) -> Result<Option<Scales<'a>>, Error> {
        let Some(name) = mapped.companions.first() else { return Ok(None) };
        Ok(match mapped.storage {
            Storage::Plain => None,
            Storage::ScaledBlocks => Some(Scales::Blocks(BlockScales::read(checkpoint, mapped, name)?)),
            Storage::SplitMxfp4 => {
                let (total, width) = mapped.layout.their_size();
                let row_bytes = width / 32;
                Some(Scales::Mxfp4(FileRows { checkpoint, name, row_bytes, total, window: Vec::new(), first: 0 }))
            }
        })
    }
}

/// A factor for each block of 128 x 128 values.
pub(super) struct BlockScales {
    values: Vec<f32>,
    columns: usize,
    /// Rows of values in each matrix of a stack.
    rows: usize,
}

const BLOCK: usize = 128;

impl BlockScales {
    fn read(checkpoint: &Checkpoint, mapped: &Mapped, name: &str) -> Result<BlockScales, Error> {
        let info = checkpoint.require(name)?;
        let expected = scale_shape(&mapped.layout.their_shape);
        if info.shape != expected {
            let problem = format!("its scales `{name}` should be {expected:?} and are {:?}", info.shape);
            return Err(storage_error(mapped, problem));
        }
        let mut bytes = vec![0; info.bytes as usize];
        checkpoint.read_at(name, 0, &mut bytes)?;
        if let Some((index, value)) = finite::first(info.dtype, &bytes) {
            let (file, tensor) = (info.file.to_path_buf(), name.to_string());
            return Err(Error::NotFinite { file, tensor, index: index as u64, value: value.into() });
        }
        let mut values = vec![0.0; expected.iter().product()];
        widen(mapped, info.dtype, &bytes, &mut values)?;
        let rows = mapped.layout.their_shape.iter().nth_back(1).copied().unwrap_or(1).max(1);
        Ok(BlockScales { values, columns: expected.last().copied().unwrap_or(1), rows })
    }

    /// The scale of the value at this row and column of the file's matrix.
    pub fn at(&self, (row, col): (usize, usize)) -> f32 {
        let block_row = row / self.rows * self.rows.div_ceil(BLOCK) + row % self.rows / BLOCK;
        self.values.get(block_row * self.columns + col / BLOCK).copied().unwrap_or(1.0)
    }
}

/// Joins a row's 4-bit pairs and its scales to the blocks of the MXFP4 type.
///
/// In the folder, byte `j` of a group holds elements `2j` and `2j + 1`; in a block, elements `j` and `j + 16`; the low
/// half comes first in both.
pub(super) fn join_mxfp4(pairs: &[u8], scales: &[u8], out: &mut Vec<u8>) {
    let (groups, _) = pairs.as_chunks::<16>();
    for (group, scale) in groups.iter().zip(scales) {
        let element = |index: usize| group.get(index / 2).map_or(0, |byte| byte >> (4 * (index % 2)) & 15);
        out.push(*scale);
        out.extend((0..16).map(|j| element(j) | element(j + 16) << 4));
    }
}

/// Whether two tensors of the same shape hold the same numbers.
pub(super) fn equal(checkpoint: &Checkpoint, a: &str, b: &str) -> Result<bool, Error> {
    const ELEMENTS: usize = 1 << 20;
    let (first, second) = (checkpoint.require(a)?, checkpoint.require(b)?);
    let total: usize = first.shape.iter().product();
    let (mut left, mut right) = (vec![0.0; ELEMENTS], vec![0.0; ELEMENTS]);
    for start in (0..total).step_by(ELEMENTS) {
        let count = ELEMENTS.min(total - start);
        let (left, right) = (left.get_mut(..count), right.get_mut(..count));
        let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
        for (name, dtype, out) in [(a, first.dtype, &mut *left), (b, second.dtype, &mut *right)] {
            if !read_values(checkpoint, name, dtype, start, out)? {
                return Ok(false);
            }
        }
        if left.iter().zip(right.iter()).any(|(x, y)| x.to_bits() != y.to_bits()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Values from element `start` on; `false` where they do not fill whole blocks.
fn read_values(
    checkpoint: &Checkpoint,
    name: &str,
    dtype: DType,
    start: usize,
    out: &mut [f32],
) -> Result<bool, Error> {
    let (Some(offset), Some(size)) = (dtype.bytes(start), dtype.bytes(out.len())) else { return Ok(false) };
    let mut bytes = vec![0; size];
    checkpoint.read_at(name, offset as u64, &mut bytes)?;
    Ok(dequantize(dtype, &bytes, out).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_halves_of_a_block() {
        // Element k of the group has the code k / 2, so that byte j reads (j, j).
        let pairs: Vec<u8> = (0..16).map(|j| j | j << 4).collect();
        let mut block = Vec::new();
        join_mxfp4(&pairs, &[127], &mut block);
        let mut values = vec![0.0; 32];
        dequantize(DType::MXFP4, &block, &mut values).unwrap();
        let codes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
        let expected: Vec<f32> = (0..32).map(|k| codes[k / 2]).collect();
        assert_eq!(values, expected);
    }
}
