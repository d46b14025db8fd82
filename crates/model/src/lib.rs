//! From a checkpoint to a model: the architectures, their name tables, strict loading, and what a description costs.
//!
//! [`describe`] reads the configuration and the list of tensors, [`load`] the weights too. An architecture is a small
//! file in `architectures` that turns a configuration into a [`ModelSpec`](attend_nn::spec::ModelSpec), with
//! text tables beside it that say which tensor of a file is which of ours.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod adapter;
mod architectures;
mod common;
pub mod cost;
mod describe;
mod error;
mod export;
mod generation;
mod init;
mod known;
mod layout;
mod mapping;
mod memory;
mod names;
mod reader;
pub mod spec_file;
mod weights;

pub use adapter::{Adapter, AdapterConfig, AdapterModule, Biases, Replaced};
pub use architectures::{Architecture, architectures};
pub use common::activation_named;
pub use describe::{Described, describe, describe_design, describe_within};
pub use error::{Error, Misshaped, WeightsError};
pub use export::{
    Converted, ExportTensor, Exporter, FileTensor, Metadata, Quantity, copy, difference, to_gguf, to_hugging_face,
};
pub use generation::{EarlyStopping, GenerationDefaults, TaskDefaults};
pub use init::{InitOptions, init};
pub use known::{describe_known, known_models};
pub use mapping::{Mapped, TiedCopy};
pub use memory::{Memory, memory};
pub use names::{Leftover, Origin, Table, Tables, Verb};
pub use reader::Reader;
pub use weights::{LoadOptions, Loaded, Need, Weights, load};
