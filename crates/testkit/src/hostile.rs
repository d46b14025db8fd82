//! Hostile checkpoints, made from a seed: each must end in the error its case names.

mod config;
mod gguf;
mod index;
mod safetensors;
mod torch;

use crate::files::Case;

/// All of them. Classes A1 to A21; those of tokenizers and templates are made where those are tested.
pub fn cases(seed: u64) -> Vec<Case> {
    let mut cases = gguf::cases(seed);
    cases.extend(safetensors::cases());
    cases.extend(index::cases(seed));
    cases.extend(torch::cases());
    cases.extend(config::cases());
    cases
}
