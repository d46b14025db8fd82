//! Checkpoint files in, typed data out: safetensors, GGUF, PyTorch archives, `config.json`; and out again.
//!
//! Every byte read here is hostile until checked. A size that a file claims is compared with the file's true length
//! before anything is allocated for it, arithmetic on such sizes is checked, nesting is bounded, and every way to be
//! wrong is its own [`Error`] that names the file and the tensor or field. Files are read with positioned reads, not
//! mapped: a file that is cut short later is a typed error, and one that is replaced keeps answering from its old
//! contents.
//!
//! ```no_run
//! # fn main() -> Result<(), attend_format::Error> {
//! let checkpoint = attend_format::Checkpoint::open(std::path::Path::new("models/tiny"))?;
//! let width = checkpoint.config().usize_any(&["hidden_size", "n_embd", "d_model"])?;
//! for tensor in checkpoint.tensors().values() {
//!     println!("{} {} {:?}", tensor.name, tensor.dtype, tensor.shape);
//! }
//! # let _ = width; Ok(()) }
//! ```
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod atomic;
mod checkpoint;
mod config;
mod error;
mod folder;
pub mod gguf;
mod index;
pub mod json;
mod modules;
mod quantization;
pub mod safetensors;
mod source;
mod stream;
mod tensors;
mod torch;

pub use atomic::{AtomicFile, Fill, TensorSpec};
pub use checkpoint::{Checkpoint, Kind, home};
pub use config::Config;
pub use error::Error;
pub use folder::beside;
pub use quantization::unsupported_quantization;
pub use source::Source;
pub use tensors::{TensorInfo, Tensors, Unreadable};
