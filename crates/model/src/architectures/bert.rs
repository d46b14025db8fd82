//! BERT (Devlin et al. 2019): the encoder of the 2017 Transformer with learned positions and token types.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static BERT: Architecture =
    Architecture { name: "bert", model_types: &["bert"], gguf: &["bert"], class: "Bert", spec, names };

/// The names of layers, which many encoders share.
pub(super) const LAYERS: &str = include_str!("../names/bert-layers.hf.txt");

fn names(_: &ModelSpec) -> Tables {
    let hf = &[LAYERS, include_str!("../names/bert.hf.txt")];
    Tables { hf, gguf: &[include_str!("../names/bert.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    encoder_only(c)?;
    let s = Sizes::read(c, SizeDefaults { context: Some(512), ..SizeDefaults::default() })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-12)?, bias: true };
    let activation = c.activation("hidden_act", Activation::Gelu)?;
    let ffn = Ffn::Mlp { hidden: s.hidden, activation, bias: true };
    let types = c.rows(&["token_types.weight"]).map_or_else(|| c.count_or(&["type_vocab_size"], 2), Ok)?;
    let embed = Embed { positions: absolute(c, &s)?, token_types: Some(types), norm: Some(norm), ..embed(&s) };
    let lm = masked_lm(c, &s, activation, norm)?;
    let pooler = ["pooler.dense.weight", "bert.pooler.dense.weight"];
    let heads = EncoderHeads::pooled(&pooler, lm, &["cls.predictions.transform.dense.weight"]);
    encoder(c, post_norm(&s, embed, norm, Position::None, ffn), heads, s.context)
}
