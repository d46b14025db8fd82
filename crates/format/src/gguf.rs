//! GGUF files: typed metadata, tensor descriptions, and aligned tensor data in one file or several parts.
//!
//! Versions 2 and 3, little endian. The layout is described in the documentation of the ggml project:
//!
//! ```text
//! "GGUF"  version u32  tensor count u64  metadata count u64
//! metadata: key string, value type u32, value         (a string is a u64 length and UTF-8 bytes;
//!                                                      an array is an element type, a u64 count and elements)
//! tensors:  name string, axes u32, dims u64 x axes (fastest first), type u32, offset u64
//! padding to the alignment, then the data of every tensor, each padded to the alignment
//! ```
//!
//! The alignment is `general.alignment`, a power of two from 1 to 1 MiB stored as u32, else 32. Offsets must follow
//! from the sizes of the tensors before, as the format's own library demands; bytes after the last tensor are ignored.

pub(crate) mod config;
mod metadata;
mod reader;
mod split;
mod types;
mod value;
mod write;

use std::path::Path;

pub use metadata::Metadata;
pub use types::{type_id, type_name};
pub use value::{Array, Strings, Value};
pub use write::{draft, write};

pub(crate) use split::{first_part, heads, open_all};

use crate::{Error, Source, Tensors};

/// The alignment of tensor data in a file that does not state one.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// The key under which this program keeps a whole `config.json`, where the format has no keys for what it says.
pub const CONFIG: &str = "attend.config";
/// The same for `generation_config.json`.
pub const GENERATION_CONFIG: &str = "attend.generation_config";
/// The key under which a whole `tokenizer.json` may be kept beside the vocabulary.
pub const TOKENIZER_JSON: &str = "tokenizer.huggingface.json";

/// Opens one file, without the other parts of a split model.
pub fn open(path: &Path) -> Result<(Metadata, Tensors), Error> {
    parse(Source::open(path)?)
}

/// Reads the metadata of one file and lists its tensors.
pub fn parse(source: Source) -> Result<(Metadata, Tensors), Error> {
    let mut tensors = Tensors::default();
    let metadata = add(&mut tensors, source)?;
    Ok((metadata, tensors))
}

/// Adds the tensors of one file to `tensors`.
pub(crate) fn add(tensors: &mut Tensors, source: Source) -> Result<Metadata, Error> {
    let (metadata, found) = reader::read(&source)?;
    let file = source.shared_path();
    let index = tensors.add_source(source);
    found.into_iter().try_for_each(|tensor| tensors.insert(tensor, index, &file))?;
    Ok(metadata)
}

/// Whether a file starts as GGUF files do.
pub(crate) fn is_gguf(source: &Source) -> bool {
    let mut magic = [0; 4];
    source.read_at(0, &mut magic).is_ok() && &magic == b"GGUF"
}
