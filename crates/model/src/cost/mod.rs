//! What a description costs, read off without any weights: parameters and bytes ([`weights`]), keys and values ([`kv`]),
//! the blocks that hold them ([`held`]), operations ([`flops`]), the memory of a step ([`activations`]), and all of it for
//! one way of using a model ([`Plan`]).
//!
//! Everything here follows the description's enums without a wildcard, so that a new part asks for its cost. What is
//! predicted is what `nn` really allocates; `tests/plan.rs` holds the two against each other.

mod activations;
mod fit;
mod flops;
mod held;
mod kv;
mod plan;
mod variants;
mod weights;

pub use activations::{encode_bytes, prefill_bytes};
pub use fit::Fit;
pub use flops::{Work, decode, prefill};
pub use held::{Footprint, Sequences, held_bytes};
pub use kv::{cross_bytes_per_token, kv_bytes, kv_bytes_per_token};
pub use plan::{Plan, Planner, Rates, Speed, Usage};
pub use variants::{with_kv_heads, with_kv_type};
pub use weights::{AsStored, Uniform, WeightTypes, active_parameters, parameters, weight_bytes};
