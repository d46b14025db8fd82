//! What encoders share: post-norm layers with biases everywhere, learned positions, and their heads.

use super::head::{HeadKind, class, class_ends, known_head, labels, lm, unsupported_head};
use super::sizes::{Sizes, attention, embed, pre_norm, stack};
use crate::error::Error;
use crate::reader::{Reader, short};
use attend_nn::spec::*;
use serde_json::json;

/// Refuses what the same classes do as decoders.
pub fn encoder_only(c: &Reader) -> Result<(), Error> {
    c.only("is_decoder", &[json!(false)], "this architecture is an encoder")?;
    c.only("add_cross_attention", &[json!(false)], "this architecture is an encoder")
}

/// Learned positions from 0, and no other kind of positions.
pub fn absolute(c: &Reader, s: &Sizes) -> Result<AbsolutePositions, Error> {
    c.only("position_embedding_type", &[json!("absolute")], "positions are absolute here")?;
    Ok(AbsolutePositions::Learned { rows: s.context.unwrap_or(512), offset: 0 })
}

/// A token table of the configuration's own width, with the projection from it to the stack's where the two differ.
pub fn factorised(c: &Reader, s: &Sizes, width: usize, projection: Projection) -> Result<Embed, Error> {
    let width = c.count_or(&["embedding_size"], width)?;
    Ok(Embed { width, projection: (width != s.width).then_some(projection), ..embed(s) })
}

/// Learned positions that do not count the token `padding` and start after its id: the positions, that token, and how
/// many tokens there are positions for.
pub fn counted(
    c: &Reader,
    s: &Sizes,
    padding: usize,
) -> Result<(AbsolutePositions, Option<u32>, Option<usize>), Error> {
    c.only("position_embedding_type", &[json!("absolute")], "positions are absolute here")?;
    let rows = s.context.unwrap_or(512);
    let (offset, context) = (padding + 1, rows.saturating_sub(padding + 1));
    if context == 0 {
        return Err(c.wrong("max_position_embeddings", format!("{rows} rows leave none after pad_token_id, {padding}")));
    }
    Ok((AbsolutePositions::Learned { rows, offset }, u32::try_from(padding).ok(), Some(context)))
}

/// A stack of post-norm layers that see everything, with biases on every projection. `position` acts in attention.
pub fn post_norm(s: &Sizes, embed: Embed, norm: Norm, position: Position, ffn: Ffn) -> Stack {
    let all = QkvBias::all(true);
    let attention = Attention { mask: Mask::Full, qkv_bias: all, out_bias: true, ..attention(s, position) };
    let layer = |i| Layer { wiring: Wiring::PostNorm, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    stack(s, embed, (0..s.layers).map(layer).collect(), None)
}

/// The heads that an encoder's classes have.
pub struct EncoderHeads<'a> {
    /// Names of the pooler's matrix in the file; empty where the architecture has no pooler. A model without a head has
    /// its pooler where the file holds one: no field of the configuration tells.
    pub pooler: &'a [&'a str],
    pub lm: LmHead,
    /// Names of the first matrix of the masked language model's head in the file.
    pub lm_names: &'a [&'a str],
    /// What a classifier of sequences reads.
    pub source: SequenceSource,
    /// Before the output matrix of a classifier of sequences.
    pub sequence: Option<Transform>,
    /// The same of a classifier of tokens and of spans.
    pub token: Option<Transform>,
    /// The same of a discriminator of replaced tokens, where `ForPreTraining` means one.
    pub discriminator: Option<Transform>,
}

impl<'a> EncoderHeads<'a> {
    /// A pooler that the classifier of sequences reads too, and plain classifiers (BERT).
    pub fn pooled(pooler: &'a [&'a str], lm: LmHead, lm_names: &'a [&'a str]) -> EncoderHeads<'a> {
        EncoderHeads {
            pooler,
            lm,
            lm_names,
            source: SequenceSource::Pooler,
            sequence: None,
            token: None,
            discriminator: None,
        }
    }

    /// A classifier of sequences that reads the first token through a layer of its own (RoBERTa).
    pub fn dense(self, sequence: Transform) -> EncoderHeads<'a> {
        EncoderHeads { source: SequenceSource::First, sequence: Some(sequence), ..self }
    }

    /// Every classifier behind a layer of this kind, that of sequences reading `source` (ModernBERT).
    pub fn behind(self, layer: Transform, source: SequenceSource) -> EncoderHeads<'a> {
        EncoderHeads { source, sequence: Some(layer), token: Some(layer), ..self }
    }
}

/// What a classifier of sequences reads, under the name of a way of pooling; the first token where `key` is absent. GGUF has
/// a number for it, and takes the mean where there is none.
pub fn pooled_source(c: &Reader, key: &str) -> Result<SequenceSource, Error> {
    let number = "classifier_pooling_type";
    match (c.text(key)?, c.whole_opt(number)?) {
        (Some("cls"), _) | (None, Some(2)) => Ok(SequenceSource::First),
        (Some("mean"), _) | (None, Some(1)) => Ok(SequenceSource::Mean),
        (None, None) if c.is_gguf() => Ok(SequenceSource::Mean),
        (None, None) => Ok(SequenceSource::First),
        (Some(other), _) => Err(c.wrong(key, format!("{} is not known", short(&json!(other))))),
        (None, Some(other)) => Err(c.wrong(number, format!("{other} is not known"))),
    }
}

/// Dense and activation, as classifiers have it before their output matrix.
pub fn dense_head(activation: Activation) -> Transform {
    Transform { bias: true, activation, norm: None }
}

/// The head of a masked language model: dense, activation and norm, and the token table with a bias.
pub fn masked_lm(c: &Reader, s: &Sizes, activation: Activation, norm: Norm) -> Result<LmHead, Error> {
    let transform = Some(Transform { norm: Some(norm), ..dense_head(activation) });
    Ok(LmHead { bias: true, transform, ..lm(c, s.vocab, true)? })
}

/// An encoder with the head that the configuration's class names, or with the one that a GGUF file ranks by.
pub fn encoder(c: &Reader, stack: Stack, heads: EncoderHeads, context: Option<usize>) -> Result<ModelSpec, Error> {
    if let Some((head, pooler)) = ranker(c, &heads)? {
        return Ok(ModelSpec { body: Body::Encoder(stack), pooler, head, context });
    }
    let kind = kind(c, &heads)?;
    let bare = kind == HeadKind::None && heads.pooler.iter().any(|name| c.may_have_tensor(name));
    // Where there is a pooler, a score of choices reads it, even if a classifier has a layer of its own.
    let choice = class_ends(c, "ForMultipleChoice")? && !heads.pooler.is_empty();
    let (source, sequence) = if choice { (SequenceSource::Pooler, None) } else { (heads.source, heads.sequence) };
    let read = kind == HeadKind::Sequence && source == SequenceSource::Pooler;
    let head = match kind {
        HeadKind::None => Head::None,
        HeadKind::MaskedLm if class_ends(c, "ForPreTraining")? && heads.discriminator.is_some() => {
            Head::Token { labels: 1, transform: heads.discriminator, bias: true }
        }
        HeadKind::MaskedLm => Head::Lm(heads.lm),
        HeadKind::Sequence => Head::Sequence { labels: labels(c)?, source, transform: sequence, bias: true },
        HeadKind::Token => Head::Token { labels: labels(c)?, transform: heads.token, bias: true },
        HeadKind::Span => Head::Span { transform: heads.token, bias: true },
        HeadKind::Lm | HeadKind::EncoderOnly => return Err(unsupported_head(c)),
    };
    let pooler = (!c.is_gguf() && (bare || read)).then_some(Pooler { activation: Activation::Tanh });
    Ok(ModelSpec { body: Body::Encoder(stack), pooler, head, context })
}

/// What a GGUF file that ranks (`pooling_type` 4) computes of a sequence: a dense layer, an output matrix, or one after the
/// other. No key says which, and the tensors do.
fn ranker(c: &Reader, heads: &EncoderHeads) -> Result<Option<(Head, Option<Pooler>)>, Error> {
    const RANK: usize = 4;
    if !c.is_gguf() || c.whole_opt("pooling_type")? != Some(RANK) {
        return Ok(None);
    }
    let head = |labels, source, transform, bias| {
        let bias = c.has_tensor(bias);
        Head::Sequence { labels, source, transform, bias }
    };
    // A pooler is a dense layer over the first token.
    let (pooled, own) = match heads.source {
        SequenceSource::Pooler => (SequenceSource::Pooler, SequenceSource::First),
        own @ (SequenceSource::First | SequenceSource::Mean | SequenceSource::Last | SequenceSource::LastOf { .. }) => {
            (own, own)
        }
    };
    let transform = heads.sequence.map(|transform| Transform {
        bias: c.has_tensor("cls.bias"),
        norm: transform.norm.filter(|_| c.has_tensor("cls.norm.weight")),
        ..transform
    });
    Ok(Some(match (c.rows(&["cls.weight"]), c.rows(&["cls.output.weight"])) {
        (None, None) => return Err(c.wrong("pooling_type", "asks for scores, but the file has no classifier")),
        (None, Some(labels)) => (head(labels, own, None, "cls.output.bias"), None),
        (Some(labels), None) => (head(labels, own, None, "cls.bias"), None),
        (Some(_), Some(labels)) => {
            let pooler = (pooled == SequenceSource::Pooler).then_some(Pooler { activation: Activation::Tanh });
            (head(labels, pooled, transform, "cls.output.bias"), pooler)
        }
    }))
}

/// The head that the class names. Folders of embedding models name the class they were trained from and leave its head
/// out; and of a class that is not known the file tells whether it has the one head that is common.
fn kind(c: &Reader, heads: &EncoderHeads) -> Result<HeadKind, Error> {
    let there = heads.lm_names.iter().any(|name| c.may_have_tensor(name));
    let Some(class) = class(c)? else { return Ok(HeadKind::None) };
    match known_head(c, class) {
        None => {
            let (kind, what) = match there {
                true => (HeadKind::MaskedLm, "its head for masked tokens"),
                false => (HeadKind::None, "no head"),
            };
            c.notice(format!("class `{class}` is not known; the model is loaded with {what}"));
            Ok(kind)
        }
        // A design without weights has the head that it names.
        Some(HeadKind::MaskedLm)
            if c.checkpoint.has_weights() && !there && heads.discriminator.is_none() && !heads.lm_names.is_empty() =>
        {
            c.notice(format!(
                "the file has no head for masked tokens, which `{class}` names; the encoder is loaded alone"
            ));
            Ok(HeadKind::None)
        }
        Some(kind) => Ok(kind),
    }
}
