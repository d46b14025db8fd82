//! Arithmetic on slices: the part of Attend that knows numbers and nothing of models.

mod activation;
mod aligned;
#[cfg(target_arch = "x86_64")]
mod amx;
mod arch;
mod attention;
mod chunks;
mod dtype;
mod error;
mod gemm;
mod heap;
mod isa;
mod lanes;
mod mask;
mod matrix;
mod measure;
mod norm;
mod pool;
mod positions;
mod quant;
mod rope;
mod softmax;
mod soundness;
mod vecmath;

pub use activation::Activation;
pub use attention::{
    Bias, Call, Gathered, Gradients, Heads, Inputs, KvBlocks, KvLayout, Scores, attention_backward, attention_mix,
    attention_probs, attention_scores, bytes_of, flash, flash_bytes, store_key, textbook,
};
pub use chunks::add_scaled;
pub use dtype::DType;
pub use error::KernelError;
pub use gemm::{View, gemm};
pub use heap::{give_freed_memory_back, keep_freed_memory};
pub use isa::{Isa, Machine, available, choose, machine, replaced};
pub use mask::Mask;
pub use matrix::{Affine, Compute, Matrix, MatrixBuilder, matmul_all};
pub use measure::{measure_bandwidth, measure_matmul};
pub use norm::{NormRows, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward};
pub use pool::{parallel, set_threads, threads};
pub use positions::{
    RopeScaling, SinusoidLayout, SlopeOrder, alibi_bias, alibi_slopes, log_bucket, relative_bucket, rope_frequencies,
    rope_tables, sinusoidal,
};
pub use quant::{dequantize, quantize};
pub use rope::{Pairing, RopeRows, rotate, rotate_back};
pub use softmax::{log_softmax, log_sum_exp, softmax};
