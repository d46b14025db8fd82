//! OPT (Zhang et al. 2022): learned positions from row 2 on, ReLU; the 350M model has its norms after the branches and a
//! token table narrower than its stream.

use super::Architecture;
use crate::common::*;
use crate::error::Error;
use crate::names::Tables;
use crate::reader::Reader;
use attend_nn::spec::*;

pub static OPT: Architecture =
    Architecture { name: "opt", model_types: &["opt"], gguf: &[], class: "OPT", spec, names };

fn names(_: &ModelSpec) -> Tables {
    Tables { hf: &[include_str!("../names/opt.hf.txt")], gguf: &[] }
}

fn spec(c: &Reader) -> Result<ModelSpec, Error> {
    let hidden = c.count(&["ffn_dim"])?;
    let s = Sizes::read(c, SizeDefaults { hidden: Some(hidden), context: Some(2048), ..SizeDefaults::default() })?;
    let bias = c.flag("enable_bias", true)?;
    let attention = Attention { qkv_bias: QkvBias::all(bias), out_bias: bias, ..attention(&s, Position::None) };
    let norm = match c.flag("layer_norm_elementwise_affine", true)? {
        true => Norm::Layer { eps: 1e-5, bias: true },
        false => Norm::Plain { eps: 1e-5 },
    };
    let ffn = Ffn::Mlp { hidden, activation: c.activation("activation_function", Activation::Relu)?, bias };
    let before = c.flag("do_layer_norm_before", true)?;
    let wiring = if before { Wiring::PreNorm } else { Wiring::PostNorm };
    let last = before && !c.flag("_remove_final_layer_norm", false)?;
    let rows = s.context.unwrap_or(2048).saturating_add(2);
    let table = c.count_opt(&["word_embed_proj_dim"])?.filter(|width| *width != s.width);
    let embed = Embed {
        width: table.unwrap_or(s.width),
        projection: table.map(|_| Projection { bias: false, place: ProjectionPlace::Tokens }),
        positions: AbsolutePositions::Learned { rows, offset: 2 },
        ..embed(&s)
    };
    let layer = |i| Layer { wiring, ..pre_norm(i, norm, attention.clone(), ffn.clone()) };
    let layers = (0..s.layers).map(layer).collect();
    let stack = Stack { narrowed: table, ..stack(&s, embed, layers, last.then_some(norm)) };
    decoder_of(c, &s, stack, lm(c, s.vocab, true)?)
}
