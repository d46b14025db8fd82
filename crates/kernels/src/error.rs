//! What can be wrong with a request for arithmetic.

use crate::DType;

/// An error of this crate. The caller adds the names (file, tensor) that the arithmetic does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The element count does not fill whole blocks of the type.
    #[error("{elements} elements do not fill whole {dtype} blocks of {block}", block = dtype.block_len())]
    NotWholeBlocks { dtype: DType, elements: usize },
    /// The bytes and the element count disagree.
    #[error("{elements} elements of {dtype} need {expected} bytes, got {found}")]
    Length { dtype: DType, elements: usize, expected: usize, found: usize },
    /// The type cannot hold a non-finite value.
    #[error("{dtype} cannot hold the non-finite values of the input")]
    NotFinite { dtype: DType },
    /// A matrix was given fewer or more rows than it was declared with.
    #[error("a matrix of {expected} rows was given {found}")]
    Rows { expected: usize, found: usize },
    /// The sizes multiply past what the machine can address.
    #[error("a {rows} x {cols} matrix of {dtype} is too large to address")]
    TooLarge { dtype: DType, rows: usize, cols: usize },
    /// The allocator refused.
    #[error("{bytes} bytes for a {rows} x {cols} matrix of {dtype} are not available")]
    OutOfMemory { dtype: DType, rows: usize, cols: usize, bytes: usize },
}
