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

/// A path as somebody might spell it to get past a check of paths, one spelling with a key in the query.
pub fn spellings(path: &str, key: &str) -> [String; 12] {
    [
        path.to_owned(),
        format!("/{path}"),
        format!("{path}/"),
        format!("{path}?key={key}"),
        format!("/x/..{path}"),
        format!("/.{path}"),
        format!("/%2e{path}"),
        format!("/%2e%2e{path}"),
        path.to_uppercase(),
        path.replace('/', "%2F").replacen("%2F", "/", 1),
        format!("{path}/health"),
        format!("/health/..{path}"),
    ]
}
