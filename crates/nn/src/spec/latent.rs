//! The description of latent attention.

use super::Norm;
use serde::{Deserialize, Serialize};

/// Multi-head latent attention (DeepSeek-V2, section 2.1): a token's keys and values of all heads are linear functions of
/// one short vector, its latent, beside one rotated key that all heads share. The cache holds these two.
///
/// It is computed in one form for any number of rows: a head's map from latent to key is applied to the query instead,
/// and its map from latent to value to the mixed latents. The core then sees, in [`super::Attention`], one KV head whose
/// keys are latent and rotated key side by side (`key_dim` is `rank + rope_dim`) and whose values are the latent
/// (`value_dim` is `rank`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latent {
    /// Width of the latent.
    pub rank: usize,
    /// Width of the latent that queries come from, where they have one.
    pub query_rank: Option<usize>,
    /// Width of a head's query and key without the rotated part.
    pub key_dim: usize,
    /// Width of the rotated part.
    pub rope_dim: usize,
    /// Width of a head's value.
    pub value_dim: usize,
    /// Of both latents.
    pub norm: Norm,
}
