//! StableLM 2 and 3B (Bellagamba et al. 2024): Llama with layer norms and rotary on a quarter of the head; the 12B
//! computes both branches in parallel and normalises query and key heads.

use super::{Architecture, cohere, llama};
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static STABLELM: Architecture =
    Architecture { name: "stablelm", model_types: &["stablelm"], gguf: &["stablelm"], class: "StableLm", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[llama::HF, include_str!("../names/stablelm.hf.txt")], gguf: &[llama::GGUF, cohere::HEADS] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let s = Sizes::read(c, SizeDefaults { context: Some(4096), ..SizeDefaults::default() })?;
    let defaults = RopeDefaults { partial: if c.is_gguf() { 1.0 } else { 0.25 }, ..RopeDefaults::base(10000.0) };
    let eps = c.epsilon(&["layer_norm_eps", "norm_eps", "layer_norm_epsilon"], 1e-5)?;
    let norm = Norm::Layer { eps, bias: true };
    let normed = c.flag_or_tensor("qk_layernorm", false, "blk.0.attn_q_norm.weight")?;
    let each = QkNorm { norm: Norm::Layer { eps, bias: false }, scope: QkNormScope::EachHead };
    let attention = Attention {
        qkv_bias: QkvBias::all(c.flag_or_tensor("use_qkv_bias", false, "blk.0.attn_q.bias")?),
        qk_norm: normed.then_some(each),
        ..attention(&s, Position::Rope(rope(c, s.head_dim, defaults)?))
    };
    let ffn = Ffn::Gated { hidden: s.hidden, activation: c.activation("hidden_act", Activation::Silu)?, bias: false };
    let parallel = c.flag("use_parallel_residual", false)?;
    let wiring = if parallel { Wiring::Parallel { shared_norm: true } } else { Wiring::PreNorm };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    decoder(c, &s, embed(&s), lm(c, s.vocab, false)?, norm, layer)
}
