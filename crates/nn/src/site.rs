//! The named places on the walk, where an observer may stand.

use crate::spec::StackKind;
use std::fmt;

/// A place in a model, e.g. `layers.7.attention.scores` or `decoder.layers.0.cross.probs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The stack, where the model has two; `None` in a model with one.
    pub stack: Option<StackKind>,
    pub place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The token embeddings before they are projected to the width of what is added to them, or before a norm of theirs
    /// alone, [N, E].
    EmbedTokens,
    /// The sum of the embeddings before their norm, [N, E].
    EmbedSum,
    /// The embeddings after their norm, before they are projected to the stack's width, [N, E].
    EmbedNormed,
    /// The embeddings projected to the stack's width, where their norm follows, [N, D].
    EmbedProjected,
    /// What the first layer receives, [N, D].
    Embed,
    Layer {
        layer: usize,
        part: LayerPart,
    },
    /// The embeddings that the convolution reads, [N, D].
    ConvIn,
    /// The convolution before its activation, [N, D].
    ConvRaw,
    /// The stream plus the convolution, before their norm, [N, D].
    ConvSum,
    /// The residual stream before the final norm, [N, D].
    Stream,
    /// The stream after the final norm, before it is narrowed, [N, D].
    Normed,
    /// The stack's output, [N, D].
    Hidden,
    Head(HeadPart),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerPart {
    Attention(BranchPart),
    Cross(BranchPart),
    Ffn(BranchPart),
    /// The layer's output, [N, D].
    Out,
}

/// Places on a branch. The first four are common to all branches; then those of attention, then those of the FFN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BranchPart {
    /// The residual stream as it reaches the branch, [N, D].
    Stream,
    /// What the branch's first projections read, [N, D].
    In,
    /// What the branch's last projection gives, before any norm or scale, [N, D].
    Out,
    /// Stream plus branch, before a norm that follows the sum, [N, D].
    Sum,
    /// Queries as projected, [N, H*Dh].
    QueryRaw,
    /// Keys as projected, [N, K*Dh].
    KeyRaw,
    /// Values as projected, [N, K*Dv].
    ValueRaw,
    /// Queries after clamp and norm, before rotation, [N, H*Dh].
    Query,
    /// Keys after clamp and norm, before rotation, [N, K*Dh].
    Key,
    /// Queries as the scores see them, [N, H*Dh].
    QueryRotated,
    /// Keys as the scores see them, [N, K*Dh].
    KeyRotated,
    /// Values after the clamp, [N, K*Dv].
    Value,
    /// Scores after scale, cap, bias and mask (forbidden: minus infinity), [H, T, S], one visit a sequence.
    Scores,
    /// Scores after softmax, [H, T, S], one visit a sequence.
    Probs,
    /// The values as the heads mixed them, before the output projection, [N, H*Dv].
    Mixed,
    /// The projection to the latent that queries come from, before its norm, [N, Rq] (latent attention, which has no
    /// `Query`, `Key` and `Value`: its values are the start of `KeyRotated`).
    QueryDown,
    /// The same after its norm, [N, Rq].
    QueryLatent,
    /// The latents as the heads mixed them, before they are led to values, [N, H*R].
    MixedLatent,
    /// The gate's projection before the activation, [N, F].
    Gate,
    /// The up projection before the activation, [N, F].
    Up,
    /// What the down projection reads, [N, F].
    Hidden,
    /// The router's projection, [N, E].
    RouterLogits,
    /// What experts are chosen by, before any correction: the softmax or sigmoid of the logits, [N, E]; the logits
    /// themselves where the softmax comes after the choice.
    RouterScores,
    /// The chosen experts of each token, the best first, as numbers, [N, k]. At the sites of a mixture's `Gate`, `Up`
    /// and `Hidden` there is a row for each choice: by expert, then by token, [N*k, F].
    Experts,
    /// The weights of the chosen experts, [N, k].
    ExpertWeights,
    /// What each expert gives for each of its tokens, before its weight; rows as at `Gate`, [N*k, D].
    ExpertOut,
    /// The shared expert's gate, up projection, and what its down projection reads, [N, F].
    SharedGate,
    SharedUp,
    SharedHidden,
    /// What the shared expert gives, before its gate, [N, D].
    SharedOut,
    /// The number whose sigmoid multiplies what the shared expert gives, [N, 1].
    SharedScale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeadPart {
    /// The rows that the head (or the pooler) reads, [rows, D].
    In,
    /// The pooler's projection before its activation, [B, D].
    PoolerRaw,
    /// The pooler's output, [B, D].
    Pooled,
    /// The transform's projection before its activation, [rows, E].
    TransformRaw,
    /// The transform before its norm, [rows, E].
    Transform,
    /// What the output matrix reads, [rows, E].
    Features,
    /// Logits before scale and cap, [rows, V].
    LogitsRaw,
    Logits,
}

impl Site {
    /// A place on the head, which is the same whichever stack it reads.
    pub const fn head(part: HeadPart) -> Site {
        Site { stack: None, place: Place::Head(part) }
    }

    /// The layer a site belongs to.
    pub fn layer(&self) -> Option<usize> {
        match self.place {
            Place::Layer { layer, .. } => Some(layer),
            _ => None,
        }
    }

    /// Whether backward reads the value of this site from the tape.
    pub fn feeds_backward(&self) -> bool {
        use BranchPart::*;
        match self.place {
            Place::Layer { part, .. } => match part {
                LayerPart::Attention(part) | LayerPart::Cross(part) | LayerPart::Ffn(part) => {
                    !matches!(part, Scores | Probs)
                }
                LayerPart::Out => false,
            },
            Place::EmbedTokens | Place::EmbedSum | Place::EmbedNormed | Place::EmbedProjected | Place::Normed => true,
            Place::ConvIn | Place::ConvRaw | Place::ConvSum => true,
            Place::Stream | Place::Head(_) => true,
            Place::Embed | Place::Hidden => false,
        }
    }
}

impl BranchPart {
    fn name(self) -> &'static str {
        use BranchPart::*;
        match self {
            Stream => "stream",
            In => "in",
            Out => "out",
            Sum => "sum",
            QueryRaw => "query_raw",
            KeyRaw => "key_raw",
            ValueRaw => "value_raw",
            Query => "query",
            Key => "key",
            QueryRotated => "query_rotated",
            KeyRotated => "key_rotated",
            Value => "value",
            Scores => "scores",
            Probs => "probs",
            Mixed => "mixed",
            QueryDown => "query_down",
            QueryLatent => "query_latent",
            MixedLatent => "mixed_latent",
            Gate => "gate",
            Up => "up",
            Hidden => "hidden",
            RouterLogits => "router_logits",
            RouterScores => "router_scores",
            Experts => "experts",
            ExpertWeights => "expert_weights",
            ExpertOut => "expert_out",
            SharedGate => "shared_gate",
            SharedUp => "shared_up",
            SharedHidden => "shared_hidden",
            SharedOut => "shared_out",
            SharedScale => "shared_scale",
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stack {
            Some(StackKind::Encoder) => f.write_str("encoder.")?,
            Some(StackKind::Decoder) => f.write_str("decoder.")?,
            None => {}
        }
        match self.place {
            Place::EmbedSum => f.write_str("embed.sum"),
            Place::EmbedTokens => f.write_str("embed.tokens"),
            Place::EmbedNormed => f.write_str("embed.normed"),
            Place::EmbedProjected => f.write_str("embed.projected"),
            Place::Embed => f.write_str("embed.out"),
            Place::ConvIn => f.write_str("conv.in"),
            Place::ConvRaw => f.write_str("conv.raw"),
            Place::ConvSum => f.write_str("conv.sum"),
            Place::Layer { layer, part } => match part {
                LayerPart::Attention(part) => write!(f, "layers.{layer}.attention.{}", part.name()),
                LayerPart::Cross(part) => write!(f, "layers.{layer}.cross.{}", part.name()),
                LayerPart::Ffn(part) => write!(f, "layers.{layer}.ffn.{}", part.name()),
                LayerPart::Out => write!(f, "layers.{layer}.out"),
            },
            Place::Stream => f.write_str("stream"),
            Place::Normed => f.write_str("normed"),
            Place::Hidden => f.write_str("hidden"),
            Place::Head(part) => f.write_str(match part {
                HeadPart::In => "head.in",
                HeadPart::PoolerRaw => "head.pooler_raw",
                HeadPart::Pooled => "head.pooled",
                HeadPart::TransformRaw => "head.transform_raw",
                HeadPart::Transform => "head.transform",
                HeadPart::Features => "head.features",
                HeadPart::LogitsRaw => "head.logits_raw",
                HeadPart::Logits => "head.logits",
            }),
        }
    }
}
