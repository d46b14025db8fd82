//! The plainest of each part; a description says in what its own differs.

use super::{AbsolutePositions, Attention, Embed, Layer, Mask, Norm, Position, QkvBias, Stack, Table};

impl Embed {
    /// A token table of `width`, [V, width], and nothing else.
    pub fn plain(vocab: usize, width: usize) -> Embed {
        Embed {
            vocab,
            width,
            projection: None,
            table: Table::Own,
            scale: 1.0,
            positions: AbsolutePositions::None,
            token_types: None,
            norm: None,
            norm_first: false,
            uncounted: None,
            token_dropout: None,
            padding: None,
        }
    }
}

impl Attention {
    /// Causal attention without biases or positions, scaled by the root of the head's width.
    pub fn plain(heads: usize, kv_heads: usize, head_dim: usize) -> Attention {
        Attention {
            heads,
            kv_heads,
            key_dim: head_dim,
            value_dim: head_dim,
            qkv_bias: QkvBias::NONE,
            out_bias: false,
            position: Position::None,
            mask: Mask::Causal,
            qk_norm: None,
            scale: (head_dim as f32).powf(-0.5),
            clip_qkv: None,
            soft_cap: None,
            sinks: false,
            latent: None,
        }
    }
}

impl Stack {
    /// An embedding, layers, and a norm after them where there is one.
    pub fn plain(width: usize, embed: Embed, layers: Vec<Layer>, final_norm: Option<Norm>) -> Stack {
        Stack { width, embed, layers, relative_bias: None, relative_rows: None, conv: None, final_norm, narrowed: None }
    }
}
