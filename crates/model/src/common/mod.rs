//! What the architecture files share: sizes, rotary settings, activation names, windows, heads.

mod activation;
pub(crate) use activation::activation_named;

mod head;
mod rope;
mod sizes;
mod windows;

pub use head::{HeadKind, head_kind, labels, lm, sequence};
pub use rope::{RopeDefaults, rope, rope_for};
pub use sizes::{SizeDefaults, Sizes, attention, decoder, embed, pre_norm};
pub use windows::{causal, period, sliding, sliding_layers};
