//! BERT (Devlin et al. 2019): the encoder of the 2017 Transformer with learned positions and token types.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static BERT: Architecture =
    Architecture { name: "bert", model_types: &["bert"], gguf: &["bert"], class: "Bert", spec, names };

const POOLER: [&str; 2] = ["pooler.dense.weight", "bert.pooler.dense.weight"];

fn names(spec: &ModelSpec) -> Tables {
    const HF: &str = include_str!("../names/bert.hf.txt");
    let hf: &[&str] = match spec.head {
        Head::None | Head::Lm(_) => &[HF],
        Head::Sequence { .. } | Head::Token { .. } => &[HF, include_str!("../names/bert-classifier.hf.txt")],
        Head::Span { .. } => &[HF, include_str!("../names/bert-span.hf.txt")],
    };
    Tables { hf, gguf: &[include_str!("../names/bert.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(512), ..SizeDefaults::default() })?;
    c.only("position_embedding_type", &[json!("absolute")], "positions are absolute here")?;
    c.only("is_decoder", &[json!(false)], "this architecture is an encoder")?;
    c.only("add_cross_attention", &[json!(false)], "this architecture is an encoder")?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-12)?, bias: true };
    let all = QkvBias::all(true);
    let attention = Attention { mask: Mask::Full, qkv_bias: all, out_bias: true, ..attention(&s, Position::None) };
    let activation = c.activation("hidden_act", Activation::Gelu)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let layer = |i| Layer { wiring: Wiring::PostNorm, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let types = c.rows(&["token_types.weight"]).map_or_else(|| c.count_or(&["type_vocab_size"], 2), Ok)?;
    let positions = AbsolutePositions::Learned { rows: s.context.unwrap_or(512), offset: 0 };
    let embed = Embed { positions, token_types: Some(types), norm: Some(norm), ..embed(&s) };
    let stack = stack(&s, embed, (0..s.layers).map(layer).collect(), None);
    let kind = head_kind(c, HeadKind::None)?;
    // No field of the configuration says whether a model without a head was saved with its pooler.
    let bare = kind == HeadKind::None && POOLER.iter().any(|name| c.has_tensor(name));
    let pooled = !c.is_gguf() && (bare || kind == HeadKind::Sequence);
    let head = match kind {
        HeadKind::None => Head::None,
        HeadKind::MaskedLm => {
            let transform = Some(Transform { activation, norm });
            Head::Lm(LmHead { bias: true, transform, ..lm(c, s.vocab, true)? })
        }
        HeadKind::Sequence => sequence(c, SequenceSource::Pooler, true)?,
        HeadKind::Token => Head::Token { labels: labels(c)?, bias: true },
        HeadKind::Span => Head::Span { bias: true },
        HeadKind::Lm | HeadKind::EncoderOnly => return Err(unsupported_head(c)),
    };
    let pooler = pooled.then_some(Pooler { activation: Activation::Tanh });
    Ok(ModelSpec { body: Body::Encoder(stack), pooler, head, context: s.context })
}
