//! The description of a model: a small tree of plain data, one entry per layer.
//!
//! Choices are enum variants that carry their own parameters, so a combination that means nothing cannot be written
//! down. Nothing here knows a model's name, a file or a weight; the walk ([`crate::walk`]) reads it, the cost model
//! reads it, `attend show` prints it.

mod experts;
mod latent;
mod plain;

pub use attend_kernels::{Activation, Mask, Pairing, RopeScaling, SinusoidLayout, SlopeOrder};
pub use experts::{ExpertGroups, GatedUnit, GroupRank, Moe, Router, RouterScores, SharedExpert};
pub use latent::Latent;
use serde::{Deserialize, Serialize};

/// A whole model: one or two stacks, an optional pooler and a head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    pub body: Body,
    /// Dense + activation over the first token of the last hidden state (BERT's pooler); feeds [`Head::Sequence`]
    /// heads whose source is [`SequenceSource::Pooler`].
    pub pooler: Option<Pooler>,
    pub head: Head,
    /// The number of positions the model was made for; `None` where positions have no end (T5).
    pub context: Option<usize>,
}

#[allow(clippy::large_enum_variant, reason = "there is one a model")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    Encoder(Stack),
    Decoder(Stack),
    EncoderDecoder { encoder: Stack, decoder: Stack },
}

/// Which of a model's stacks is meant. A model with one stack has only that one, whatever its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StackKind {
    Encoder,
    Decoder,
}

/// An embedding, a list of layers, and what closes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stack {
    /// Width of the residual stream (D).
    pub width: usize,
    pub embed: Embed,
    pub layers: Vec<Layer>,
    /// A table of biases by relative distance that every self-attention of the stack with
    /// [`Position::StackBias`] adds to its scores (T5, MPNet).
    pub relative_bias: Option<RelativeBias>,
    /// Embeddings of relative distances, which every attention with [`Position::Disentangled`] projects.
    pub relative_rows: Option<RelativeRows>,
    /// A convolution over the embeddings that joins the stream after the first layer (DeBERTa-v2's largest models).
    pub conv: Option<Conv>,
    pub final_norm: Option<Norm>,
    /// The width that a linear layer without bias leads to, after the final norm where there is one (OPT-350m, whose
    /// token table is narrower than its stream).
    pub narrowed: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embed {
    /// Rows of the token table (V).
    pub vocab: usize,
    /// Width of the table's rows; the stack's own unless there is a [`Embed::projection`].
    pub width: usize,
    /// What leads from the table's width to the stack's.
    pub projection: Option<Projection>,
    pub table: Table,
    /// Multiplies the token embedding (Gemma: `sqrt(D)`); 1 elsewhere.
    pub scale: f32,
    pub positions: AbsolutePositions,
    /// Rows of the token-type table, where there is one.
    pub token_types: Option<usize>,
    pub norm: Option<Norm>,
    /// The norm is one of the tokens' embeddings alone: positions and types are added to what it gives (the decoder of the
    /// small Blenderbot). There is no projection then.
    pub norm_first: bool,
    /// A token that absolute positions do not count: it stands before the first position, whose row is `offset - 1`,
    /// and the others are numbered without it (RoBERTa's padding token). Positions that the caller gives are used as
    /// they are.
    pub uncounted: Option<u32>,
    /// How masked tokens and their number act on the token embeddings.
    pub token_dropout: Option<TokenDropout>,
    /// A token whose row of the table stays as it is in training: reading it gives no gradient. What a tied output
    /// matrix gives to the row counts all the same.
    pub padding: Option<u32>,
}

/// Masked tokens are embedded as zeros, as if dropped, and the others scaled by `(1 - rate) / (1 - share)`, with the
/// share of masked tokens in the sequence (ESM).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenDropout {
    /// The mask token.
    pub mask: u32,
    /// The share of masked tokens in training.
    pub rate: f32,
}

/// A linear layer from a factorised embedding's width to the stack's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projection {
    pub bias: bool,
    pub place: ProjectionPlace,
}

/// Where in the embedding the projection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProjectionPlace {
    /// It leads from the token table alone; positions, types and norm have the stack's width (OPT-350m).
    Tokens,
    /// It leads from the sum of tokens, positions and types; the norm has the stack's width (DeBERTa).
    BeforeNorm,
    /// It comes last (ALBERT, ELECTRA).
    AfterNorm,
}

/// Where a stack's token table lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Table {
    Own,
    /// The encoder's table is used (T5, BART).
    Encoder,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum AbsolutePositions {
    None,
    /// `rows` counts every row of the table; position `p` reads row `p + offset`.
    Learned {
        rows: usize,
        offset: usize,
    },
    /// Vaswani et al. 2017, section 3.5: angle `p / 10000^(2i/D)`.
    Sinusoidal {
        layout: SinusoidLayout,
        offset: usize,
    },
}

impl AbsolutePositions {
    /// The row before the first position's, where the table has one.
    pub fn before_first(self) -> Option<u32> {
        match self {
            AbsolutePositions::None => None,
            AbsolutePositions::Learned { offset, .. } | AbsolutePositions::Sinusoidal { offset, .. } => {
                (offset as u32).checked_sub(1)
            }
        }
    }
}

/// One transformer unit. `A` is self-attention, `C` cross-attention (where there is one), `F` the feed-forward part,
/// each on its own branch, wired by [`Wiring`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    pub wiring: Wiring,
    /// The kind of every norm on the layer's branches.
    pub norm: Norm,
    pub attention: Attention,
    pub cross: Option<Attention>,
    pub ffn: Ffn,
    /// Multiplies each branch before it is added (Granite); 1 elsewhere.
    pub branch_scale: f32,
    /// Which set of weights the layer uses; layers may share one (ALBERT).
    pub weights: usize,
}

/// How branches and norms meet the residual stream `x`.
///
/// ```text
/// PreNorm      x = x + A(n(x));        x = x + F(n(x))          GPT-2, Llama
/// PostNorm     x = n(x + A(x));        x = n(x + F(x))          the 2017 Transformer, BERT
/// Sandwich     x = x + m(A(n(x)));     x = x + m(F(n(x)))       Gemma 2 and 3
/// OutputNorm   x = x + n(A(x));        x = x + n(F(x))          OLMo 2
/// NormResidual y = n(x); x = y + A(y); y = n(x); x = y + F(y)   BLOOM's option
/// Parallel     x = x + A(n(x)) + F(n'(x))                       GPT-J, NeoX, Falcon, PaLM (n' = n when shared)
/// FfnNorm      x = x + A(x);        x = x + F(n(x))             ModernBERT's first layer, whose input is normed already
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wiring {
    PreNorm,
    PostNorm,
    Sandwich,
    OutputNorm,
    NormResidual,
    Parallel { shared_norm: bool },
    FfnNorm,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Norm {
    /// Zhang & Sennrich 2019: `x / sqrt(mean(x^2) + eps) * weight`.
    Rms { eps: f32 },
    /// Ba et al. 2016: `(x - mean) / sqrt(var + eps) * weight (+ bias)`.
    Layer { eps: f32, bias: bool },
    /// Layer norm without weight or bias (OLMo 1).
    Plain { eps: f32 },
}

/// Softmax attention. MHA, GQA and MQA are its number of KV heads (K = H, 1 < K < H, K = 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Query heads (H).
    pub heads: usize,
    /// Key and value heads (K).
    pub kv_heads: usize,
    /// Width of a query and key head (Dh).
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Bias on the query, key and value projections.
    pub qkv_bias: QkvBias,
    /// Bias on the output projection.
    pub out_bias: bool,
    pub position: Position,
    pub mask: Mask,
    pub qk_norm: Option<QkNorm>,
    /// Multiplies the scores: usually `Dh^-0.5`, 1 for T5.
    pub scale: f32,
    /// Clamps queries, keys and values to `[-c, c]` after projection (MPT, OLMo).
    pub clip_qkv: Option<f32>,
    /// `c * tanh(scores / c)` (Gemma 2).
    pub soft_cap: Option<f32>,
    /// One learned logit per head that takes part in the softmax and has no value (gpt-oss).
    pub sinks: bool,
    /// Keys and values are made from a latent, which is what the cache holds. The fields above then describe the core
    /// as it sees that latent; the biases are those of the projections to the latents, and there is no `qk_norm`.
    pub latent: Option<Latent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QkvBias {
    pub query: bool,
    pub key: bool,
    pub value: bool,
}

impl QkvBias {
    pub const NONE: QkvBias = QkvBias::all(false);

    /// The same answer for query, key and value.
    pub const fn all(present: bool) -> QkvBias {
        QkvBias { query: present, key: present, value: present }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Position {
    None,
    Rope(Rope),
    Alibi(Alibi),
    /// The attention's own table of biases by relative distance (UMT5).
    RelativeBias(RelativeBias),
    /// The stack's shared table, [`Stack::relative_bias`].
    StackBias,
    Disentangled(Disentangled),
}

/// Disentangled attention (He et al. 2021, section 3.1): the score of query `i` and key `j` at distance `i - j` is
/// `(q_i . k_j + q_i . pk + k_j . pq) * scale`, where `pk` and `pq` are projections of the distance's row of
/// [`Stack::relative_rows`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disentangled {
    /// Distance `d` has row `d + span` of the `2 * span` rows; those beyond share the outermost ones.
    pub span: usize,
    /// Distances beyond half the span are bucketed by their logarithm, up to this one.
    pub max_distance: Option<usize>,
    /// The term `q_i . pk`: content to position.
    pub position_key: Option<RelativeProjection>,
    /// The term `k_j . pq`: position to content.
    pub position_query: Option<RelativeProjection>,
}

/// What projects rows of distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelativeProjection {
    /// The content's own projection, with its bias.
    Shared,
    Own {
        bias: bool,
    },
}

/// A table of embeddings of relative distances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RelativeRows {
    pub rows: usize,
    /// Applied to every row before it is used.
    pub norm: Option<Norm>,
}

/// `x = norm(x + activation(conv(e)))` over the tokens of a sequence, zeros around it; `e` is the stack's embedding.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// Tokens that it spans, an odd number.
    pub kernel: usize,
    /// Channels are divided into so many groups, each seeing only itself.
    pub groups: usize,
    pub activation: Activation,
    pub norm: Norm,
}

/// Rotary embedding (Su et al. 2021) of the first `dim` elements of each query and key head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    pub base: f64,
    /// Rotated width; less than the head's width for partial rotary.
    pub dim: usize,
    pub pairing: Pairing,
    pub scaling: RopeScaling,
}

/// Press et al. 2022: a penalty proportional to the distance between query and key, a slope per head.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alibi {
    pub slopes: SlopeOrder,
    /// The exponent range of the slopes, 8 in the paper.
    pub max_bias: f32,
    /// Slopes, positions and their product are rounded to bfloat16 (Falcon).
    pub rounded: bool,
    /// The bias is added before the scores are scaled, and so scaled with them (Falcon).
    pub scaled: bool,
}

/// T5's bucketed relative positions (Raffel et al. 2020, section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelativeBias {
    pub buckets: usize,
    pub max_distance: usize,
    /// Keys after the query have buckets of their own.
    pub bidirectional: bool,
    pub heads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QkNorm {
    pub norm: Norm,
    pub scope: QkNormScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QkNormScope {
    /// Each head by itself, one weight of a head's width shared by all (Qwen 3, Gemma 3).
    Head,
    /// Each head by itself, a weight for every head (StableLM, Cohere).
    EachHead,
    /// The whole projection at once (OLMo 2, MPT).
    Projection,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ffn {
    /// `down(act(up(x)))`
    Mlp { hidden: usize, activation: Activation, bias: bool },
    /// `down(act(gate(x)) * up(x))` (Shazeer 2020)
    Gated { hidden: usize, activation: Activation, bias: bool },
    /// `down(act(gate(x)) * up(x)) + b`: a bias on the last matrix alone (GTE).
    GatedOutBias { hidden: usize, activation: Activation },
    /// A few of many gated parts for each token.
    Moe(Moe),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooler {
    pub activation: Activation,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Head {
    /// The hidden states are the answer (BertModel, T5EncoderModel).
    None,
    /// A row of logits over the vocabulary for every token.
    Lm(LmHead),
    /// One row of logits for each sequence.
    Sequence { labels: usize, source: SequenceSource, transform: Option<Transform>, bias: bool },
    /// A row of logits for every token.
    Token { labels: usize, transform: Option<Transform>, bias: bool },
    /// Start and end logits for every token.
    Span { transform: Option<Transform>, bias: bool },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LmHead {
    pub vocab: usize,
    /// The output matrix is the token table.
    pub tied: bool,
    pub bias: bool,
    /// Dense, activation and norm before the output matrix (BERT). It leads back to the token table's width.
    pub transform: Option<Transform>,
    /// Multiplies the logits (T5 with tied tables: `D^-0.5`; Cohere; Granite divides); 1 elsewhere.
    pub scale: f32,
    /// `c * tanh(logits / c)` (Gemma 2).
    pub soft_cap: Option<f32>,
}

/// `norm(activation(W x + b))` before the output matrix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transform {
    pub bias: bool,
    pub activation: Activation,
    pub norm: Option<Norm>,
}

impl Head {
    /// The layer before the output matrix, where there is one.
    pub fn transform(&self) -> Option<Transform> {
        match self {
            Head::None => None,
            Head::Lm(lm) => lm.transform,
            Head::Sequence { transform, .. } | Head::Token { transform, .. } | Head::Span { transform, .. } => {
                *transform
            }
        }
    }
}

/// The vector a sequence classifier reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SequenceSource {
    /// The output of [`ModelSpec::pooler`].
    Pooler,
    /// The first token's hidden state.
    First,
    /// The last token's hidden state.
    Last,
    /// The hidden state of the last token with this id (BART: the end token).
    LastOf { id: u32 },
    /// The mean over all tokens (ModernBERT's `classifier_pooling: mean`).
    Mean,
}
