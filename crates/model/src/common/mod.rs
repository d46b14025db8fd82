//! What the architecture files share: sizes, rotary settings, activation names, windows, heads.

mod activation;
pub use activation::activation_named;

mod encoder;
mod experts;
mod head;
mod latent;
mod relative;
mod rope;
mod sizes;
mod translator;
mod windows;

pub use activation::feed_forward;
pub use encoder::{
    EncoderHeads, absolute, counted, dense_head, encoder, encoder_only, factorised, masked_lm, pooled_source, post_norm,
};
pub use experts::{
    ExpertDefaults, SharedDefaults, dense_then_sparse, expert_groups, experts, has_experts, sparse_layers,
};
pub use head::{HeadKind, lm, translation};
pub use latent::latent_attention;
pub use relative::{Distances, buckets, disentangled, disentangled_stack};
pub(crate) use rope::divisors_for;
pub use rope::{RopeDefaults, kept_frequencies, rope, rope_for};
pub use sizes::{SizeDefaults, Sizes, attention, decoder, decoder_of, embed, encoder_alone, pre_norm, stack};
pub use translator::{Family, Positions, stored, translator, translator_tables};
pub use windows::{causal, local_layers, period, sliding, sliding_layers};
