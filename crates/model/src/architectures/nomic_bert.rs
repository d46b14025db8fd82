//! Nomic BERT (Nussbaum et al. 2024): BERT with rotary positions, a gated feed-forward part and no biases, under the
//! names of GPT-2's configuration or of BERT's.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;
use serde_json::json;

pub static NOMIC_BERT: Architecture = Architecture {
    name: "nomic_bert",
    model_types: &["nomic_bert"],
    gguf: &["nomic-bert"],
    class: "NomicBert",
    spec,
    names,
};

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/nomic_bert.hf.txt")], gguf: &[include_str!("../names/nomic_bert.gguf.txt")] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    for key in ["prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved", "causal"] {
        c.only(key, &[json!(false)], "the released models do not have it")?;
    }
    c.only("rotary_emb_scale_base", &[], "the released models do not have it")?;
    let defaults = SizeDefaults { hidden_multiple: Some(4), ..SizeDefaults::default() };
    let s = Sizes::read(c, SizeDefaults { context: Some(2048), ..defaults })?;
    let norm = Norm::Layer { eps: c.epsilon(&["layer_norm_eps", "layer_norm_epsilon"], 1e-12)?, bias: true };
    let position = Position::Rope(rotary(c, &s)?);
    let activation = match c.text("activation_function")? {
        None => c.activation("hidden_act", Activation::Silu)?,
        Some("swiglu") => Activation::Silu,
        Some("geglu") => Activation::Gelu,
        Some(other) => return Err(c.wrong("activation_function", format!("`{other}` is not supported here"))),
    };
    let bias = c.flag("mlp_fc1_bias", false)?;
    c.only("mlp_fc2_bias", &[json!(bias)], "both matrices of the feed-forward part have a bias or neither")?;
    let qkv_bias = c.flag("qkv_proj_bias", false)?;
    let types = c.rows(&["token_types.weight"]).map_or_else(|| c.count_or(&["type_vocab_size"], 2), Ok)?;
    let embed = Embed { token_types: Some(types), norm: Some(norm), ..embed(&s) };
    let mut stack = post_norm(&s, embed, norm, position, Ffn::Gated { hidden: s.hidden, activation, bias });
    for layer in &mut stack.layers {
        (layer.attention.qkv_bias, layer.attention.out_bias) = (QkvBias::all(qkv_bias), qkv_bias);
    }
    // The layers' activation without its gate.
    let lm = masked_lm(c, &s, c.activation("hidden_act", activation)?, norm)?;
    let pooler = ["pooler.dense.weight", "bert.pooler.dense.weight", "nomic_bert.pooler.dense.weight"];
    encoder(c, stack, EncoderHeads::pooled(&pooler, lm, &["cls.predictions.transform.dense.weight"]), s.context)
}

/// The rotation: a factor beside the usual settings means dynamic scaling.
fn rotary(c: &Reader, s: &Sizes) -> Result<Rope, Error> {
    let mut rope = rope(c, s.head_dim, RopeDefaults::base(1000.0))?;
    if let Some(factor) = c.positive_opt("rotary_scaling_factor")? {
        rope.scaling = RopeScaling::Dynamic { factor, original: c.count_or(&["max_trained_positions"], 2048)? };
    }
    Ok(rope)
}
