//! Encoder-decoders that descend from the 2017 Transformer (Vaswani et al.) by way of fairseq: absolute positions,
//! layer norms, biases everywhere, one configuration for all. What sets them apart is [`Family`].

use super::head::{HeadKind, head_kind, labels, lm, unsupported_head};
use super::sizes::{Sizes, attention, embed, pre_norm, stack};
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

/// What one of them does.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub wiring: Wiring,
    /// A norm after the last layer of each stack.
    pub final_norm: bool,
    /// A norm over each stack's embedding.
    pub embed_norm: bool,
    /// The decoder's stands before positions are added.
    pub decoder_norm_first: bool,
    pub positions: Positions,
    /// Where the configuration does not say: whether embeddings are multiplied by the root of the width.
    pub scaled: bool,
    /// Where the configuration does not say: the activation, the positions, and the token that a decoder starts with.
    pub activation: Activation,
    pub context: usize,
    pub start: Option<u32>,
    /// What a decoder reads of a given text begins with the text's own last token, whatever starts a generated one.
    pub rotates: bool,
    /// Where the configuration does not say: the padding token, and whether the tables are tied.
    pub padding: u32,
    pub tied: bool,
}

impl Family {
    /// Whether positions are counted over the text alone, padding left out.
    fn counts_text(&self) -> bool {
        matches!(self.positions, Positions::Sinusoidal { after_padding: true, .. })
    }
}

/// Where positions come from.
#[derive(Debug, Clone, Copy)]
pub enum Positions {
    /// A table, whose first rows are not used.
    Learned { unused: usize },
    /// Sinusoids. A file that holds the table means its own, which training may have changed and which other number types
    /// round. The first position is the row after the padding token's where `after_padding`, else row 0.
    Sinusoidal { layout: SinusoidLayout, after_padding: bool },
}

impl Family {
    /// The family of BART; the others say where they differ.
    pub const POST_NORM: Family = Family {
        wiring: Wiring::PostNorm,
        final_norm: false,
        embed_norm: true,
        decoder_norm_first: false,
        positions: Positions::Learned { unused: 2 },
        scaled: false,
        activation: Activation::Gelu,
        context: 1024,
        start: Some(2),
        rotates: false,
        padding: 1,
        tied: true,
    };
    /// The same with norms before the branches.
    pub const PRE_NORM: Family = Family { wiring: Wiring::PreNorm, final_norm: true, ..Family::POST_NORM };
}

const NORM: Norm = Norm::Layer { eps: 1e-5, bias: true };

/// The description of one of the family.
pub fn translator(c: &Reader, family: &Family) -> Result<ModelSpec, Error> {
    c.only("is_encoder_decoder", &[json!(true)], "the decoder without its encoder is not built here")?;
    for (key, usual) in [
        ("normalize_before", family.wiring == Wiring::PreNorm),
        ("normalize_embedding", family.embed_norm),
        ("add_final_layer_norm", family.final_norm),
    ] {
        if c.value(key).is_some_and(|value| *value != json!(usual)) {
            c.notice(format!("{key} of the configuration is not what this architecture does, and has no effect"));
        }
    }
    c.starts_with(family.start);
    if family.rotates {
        c.rotates();
    }
    let shared = c.flag("share_encoder_decoder_embeddings", true)?;
    let source = c.count(&["src_vocab_size", "vocab_size"])?;
    let target = c.count_or(&["tgt_vocab_size", "decoder_vocab_size"], source)?;
    let target = if shared && !c.mentions("tgt_vocab_size") { source } else { target };
    let tied = c.flag("tie_word_embeddings", family.tied)?;
    // Saved without tying, a file has every table, and the decoder reads its own.
    let own = !shared || (!tied && stored(c, "model.decoder.embed_tokens.weight"));
    let encoder_sizes = sizes(c, "encoder", source, family)?;
    let decoder_sizes = sizes(c, "decoder", target, family)?;
    let encoder = side(c, &encoder_sizes, family, false)?;
    let mut decoder = side(c, &decoder_sizes, family, true)?;
    decoder.embed.table = if own { Table::Own } else { Table::Encoder };
    let bias = c.has_tensor("final_logits_bias");
    let lm = LmHead { bias, ..lm(c, target, family.tied)? };
    let head = match head_kind(c, HeadKind::Lm)? {
        HeadKind::None => Head::None,
        HeadKind::Lm => Head::Lm(lm),
        HeadKind::Sequence => {
            let id = c.whole_opt("eos_token_id")?.ok_or_else(|| c.wrong("eos_token_id", "is missing"))? as u32;
            let transform = Some(Transform { bias: true, activation: Activation::Tanh, norm: None });
            Head::Sequence { labels: labels(c)?, source: SequenceSource::LastOf { id }, transform, bias: true }
        }
        HeadKind::Span => Head::Span { transform: None, bias: true },
        HeadKind::EncoderOnly | HeadKind::MaskedLm | HeadKind::Token => return Err(unsupported_head(c)),
    };
    let body = Body::EncoderDecoder { encoder, decoder };
    Ok(ModelSpec { body, pooler: None, head, context: encoder_sizes.context })
}

/// The counts of one stack; its name stands before theirs in the configuration.
fn sizes(c: &Reader, stack: &str, vocab: usize, family: &Family) -> Result<Sizes, Error> {
    let count = |what: &str| c.count(&[&format!("{stack}_{what}")]);
    let (width, heads) = (c.count(&["d_model", "hidden_size"])?, count("attention_heads")?);
    if width % heads != 0 {
        return Err(c.wrong(&format!("{stack}_attention_heads"), format!("{heads} does not divide d_model, {width}")));
    }
    Ok(Sizes {
        width,
        layers: c.bounded_layers(count("layers")?),
        heads,
        kv_heads: heads,
        head_dim: width / heads,
        hidden: count("ffn_dim")?,
        vocab,
        context: Some(c.count_or(&["max_position_embeddings"], family.context)?),
    })
}

/// One of the two stacks.
fn side(c: &Reader, s: &Sizes, family: &Family, decodes: bool) -> Result<Stack, Error> {
    let padding = c.whole_opt("pad_token_id")?.map_or(family.padding, |id| id as u32);
    let all = QkvBias::all(true);
    let branch = |mask| Attention { mask, qkv_bias: all, out_bias: true, ..attention(s, Position::None) };
    let ffn =
        Ffn::Mlp { hidden: s.hidden, activation: c.activation("activation_function", family.activation)?, bias: true };
    let mask = if decodes { Mask::Causal } else { Mask::Full };
    let layer = |i| Layer {
        wiring: family.wiring,
        cross: decodes.then(|| branch(Mask::Full)),
        ..pre_norm(i, NORM, branch(mask), ffn.clone())
    };
    let scaled = c.flag("scale_embedding", family.scaled)?;
    let embed = Embed {
        scale: if scaled { (s.width as f32).sqrt() } else { 1.0 },
        positions: positions(c, s, family, if decodes { "decoder" } else { "encoder" })?,
        norm: family.embed_norm.then_some(NORM),
        norm_first: decodes && family.decoder_norm_first,
        padding: Some(padding),
        uncounted: family.counts_text().then_some(padding),
        ..embed(s)
    };
    Ok(stack(s, embed, (0..s.layers).map(layer).collect(), family.final_norm.then_some(NORM)))
}

fn positions(c: &Reader, s: &Sizes, family: &Family, stack: &str) -> Result<AbsolutePositions, Error> {
    let context = s.context.unwrap_or(family.context);
    Ok(match family.positions {
        Positions::Learned { unused } => AbsolutePositions::Learned { rows: context + unused, offset: unused },
        Positions::Sinusoidal { layout, after_padding } => {
            let padding = || Ok::<usize, Error>(c.whole_opt("pad_token_id")?.unwrap_or(family.padding as usize));
            let offset = if after_padding { padding()?.saturating_add(1) } else { 0 };
            let name = format!("model.{stack}.embed_positions.weight");
            match c.rows(&[&name, name.trim_start_matches("model.")]) {
                Some(rows) => AbsolutePositions::Learned { rows, offset },
                None => AbsolutePositions::Sinusoidal { layout, offset },
            }
        }
    })
}

/// Whether the file has a tensor, with or without the prefix that a model with a head has.
pub fn stored(c: &Reader, name: &str) -> bool {
    c.has_tensor(name) || name.strip_prefix("model.").is_some_and(|name| c.has_tensor(name))
}

/// The name tables of the family.
pub fn translator_tables(spec: &ModelSpec) -> Tables {
    const ALL: &str = include_str!("../names/translator.hf.txt");
    const OWN: &str = include_str!("../names/translator-own.hf.txt");
    const CLASSIFIER: &str = include_str!("../names/translator-classifier.hf.txt");
    const SPAN: &str = include_str!("../names/translator-span.hf.txt");
    let hf: &[&str] = match (spec.output_stack().embed.table, &spec.head) {
        (Table::Encoder, Head::None | Head::Lm(_) | Head::Token { .. }) => &[ALL],
        (Table::Own, Head::None | Head::Lm(_) | Head::Token { .. }) => &[ALL, OWN],
        (Table::Encoder, Head::Sequence { .. }) => &[ALL, CLASSIFIER],
        (Table::Own, Head::Sequence { .. }) => &[ALL, OWN, CLASSIFIER],
        (Table::Encoder, Head::Span { .. }) => &[ALL, SPAN],
        (Table::Own, Head::Span { .. }) => &[ALL, OWN, SPAN],
    };
    Tables { hf, gguf: &[] }
}
