//! Faults that a request may meet through no mistake of its own: a computation that panics, and a system without memory.

use crate::error::Error;
use attend_kernels::{Compute, DType};
use attend_model::cost::{Uniform, encode_bytes, prefill_bytes};
use attend_nn::spec::ModelSpec;
use attend_nn::{BLOCK_TOKENS, KvTypes};
use std::any::Any;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes an error of a panic. Whoever calls this gives up whatever the panic may have left half done.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::Panicked(words(panic.as_ref()).into())))
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

/// Asks the system for as many bytes as are about to be taken, and gives them back. A buffer that cannot be had in the midst
/// of a step would end the process; here it is an error.
pub(crate) fn ask_for(bytes: usize) -> Result<(), Error> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory { bytes })?;
    // What nobody reads might not be asked for.
    black_box(&mut room);
    Ok(())
}

/// About how much memory the steps of a model take, so that it can be asked for before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Bytes of the buffers of a row.
    row: usize,
    /// The same while a source is encoded, with the keys and values that are kept of it.
    source_row: usize,
    /// Bytes of a block of keys and values.
    block: usize,
}

/// Rows of the step whose prediction the others are measured by.
const ROWS: usize = 512;

impl Needs {
    pub fn of(spec: &ModelSpec, kv: KvTypes, bytes_per_token: u64) -> Needs {
        let types = Uniform { dtype: DType::F32, compute: Compute::F32 };
        // A quarter more: packed activations, and what the allocator keeps for itself.
        let share = |bytes: u64| usize::try_from(bytes / ROWS as u64 / 4 * 5).unwrap_or(usize::MAX);
        Needs {
            row: share(prefill_bytes(spec, &types, ROWS, ROWS, 0)),
            source_row: share(encode_bytes(spec, &types, 1, ROWS, kv)),
            block: usize::try_from(bytes_per_token.saturating_mul(BLOCK_TOKENS as u64)).unwrap_or(usize::MAX),
        }
    }

    /// Asks for what a step takes that adds tokens to sequences, each `(held, new)`.
    pub fn ask(&self, sequences: impl Iterator<Item = (usize, usize)>) -> Result<(), Error> {
        let (mut rows, mut blocks) = (0, 0);
        for (held, new) in sequences {
            rows += new;
            // The last one may be shared, and then is copied.
            blocks += (held + new).div_ceil(BLOCK_TOKENS) - held / BLOCK_TOKENS;
        }
        ask_for(rows.saturating_mul(self.row).saturating_add(blocks.saturating_mul(self.block)))
    }

    /// Asks for what it takes to read so many tokens of texts, by whichever stacks do.
    pub fn ask_for_texts(&self, tokens: usize) -> Result<(), Error> {
        ask_for(tokens.saturating_mul(self.row.saturating_add(self.source_row)))
    }

    /// Asks for what it takes to encode so many tokens of sources.
    pub fn ask_for_sources(&self, tokens: usize) -> Result<(), Error> {
        ask_for(tokens.saturating_mul(self.source_row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error() {
        assert!(ask_for(1 << 20).is_ok());
        let Err(Error::OutOfMemory { bytes }) = ask_for(isize::MAX as usize) else { panic!("no machine has that") };
        assert_eq!(bytes, isize::MAX as usize);
    }

    #[test]
    fn panics_are_errors_with_their_words() {
        let said = |work: fn()| {
            guarded::<()>(|| {
                work();
                Ok(())
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(said(|| panic!("plain")), Err("a step panicked: plain".into()));
        assert_eq!(said(|| panic!("with {}", 7)), Err("a step panicked: with 7".into()));
        assert_eq!(said(|| std::panic::panic_any(7)), Err("a step panicked: without words".into()));
        assert_eq!(said(|| ()), Ok(()));
    }
}
