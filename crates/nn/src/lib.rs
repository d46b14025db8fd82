//! The parts of a transformer, the layer made of them, the walk through the layers, and the observers that may watch.
//!
//! A model is [`spec::ModelSpec`], plain data. [`Model::assemble`] puts it together from a source of weights;
//! [`Model::forward`] takes a packed [`Batch`] through a stack, offering every named value ([`site::Site`]) to an
//! [`observer::Observer`]; [`Model::backward`] goes the way back from what a [`observer::Tape`] kept.

#![forbid(unsafe_code)]

mod assemble;
mod attention;
mod batch;
mod cache;
mod change;
mod conv;
mod embed;
mod error;
mod ffn;
mod grads;
mod head;
mod layer;
mod linear;
pub mod loss;
mod low_rank;
mod model;
mod moe;
pub mod names;
mod norm;
pub mod observer;
mod position;
mod row_adapters;
pub mod site;
pub mod spec;
mod walk;

pub use assemble::WeightSource;
pub use attention::AttentionKind;
pub use batch::{Batch, Encoded, Sequence};
pub use cache::{BLOCK_TOKENS, CacheBlock, KvCache, KvTypes, Memory};
pub use change::{Changes, Weights};
pub use error::Error;
pub use grads::Gradients;
pub use low_rank::LowRank;
pub use model::{Model, one_later};
pub use moe::Balance;
pub use observer::{Nobody, Observer, Recorder, Tape};
pub use row_adapters::{Adapters, RowAdapters};
pub use walk::RunOptions;
