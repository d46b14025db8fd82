//! The counts that every configuration has, and the assembly of a decoder from them.

use super::head::output;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// What an architecture assumes where the configuration is silent; `None`: the key is needed (widths, heads), follows
/// from others (KV heads: as many as heads; head width: width / heads), or is endless (context).
#[derive(Debug, Clone, Copy, Default)]
pub struct SizeDefaults {
    pub width: Option<usize>,
    pub layers: Option<usize>,
    pub heads: Option<usize>,
    pub kv_heads: Option<usize>,
    pub head_dim: Option<usize>,
    /// Feed-forward width.
    pub hidden: Option<usize>,
    /// Feed-forward width as a multiple of the width.
    pub hidden_multiple: Option<usize>,
    pub vocab: Option<usize>,
    pub context: Option<usize>,
}

/// The counts of a stack.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub hidden: usize,
    pub vocab: usize,
    pub context: Option<usize>,
}

impl Sizes {
    /// The counts under the names that configurations of all families use for them.
    pub fn read(c: &Reader, defaults: SizeDefaults) -> Result<Sizes, Error> {
        let need =
            |keys: &[&str], default: Option<usize>| default.map_or_else(|| c.count(keys), |d| c.count_or(keys, d));
        let width = need(&["hidden_size", "n_embd", "d_model", "dim"], defaults.width)?;
        let heads = need(&["num_attention_heads", "n_head", "num_heads", "n_heads"], defaults.heads)?;
        let kv_keys = ["num_key_value_heads", "num_kv_heads", "n_head_kv"];
        let kv_heads = c.count_or(&kv_keys, defaults.kv_heads.unwrap_or(heads))?;
        if heads % kv_heads != 0 {
            return Err(
                c.wrong("num_key_value_heads", format!("{kv_heads} does not divide num_attention_heads, {heads}"))
            );
        }
        let head_dim = match (c.count_opt(&["head_dim"])?, defaults.head_dim) {
            (Some(dim), _) | (None, Some(dim)) => dim,
            (None, None) if width % heads == 0 => width / heads,
            (None, None) => {
                return Err(c.wrong("num_attention_heads", format!("{heads} does not divide hidden_size, {width}")));
            }
        };
        // Latent attention has widths of its own.
        let latent = c.value("kv_lora_rank").is_some();
        if let Some(dim) = c.count_opt(&["value_head_dim"])?.filter(|dim| *dim != head_dim && !latent) {
            return Err(c.wrong(
                "value_head_dim",
                format!("{dim} differs from head_dim, {head_dim}, which is not supported here"),
            ));
        }
        let hidden_keys = ["intermediate_size", "n_inner", "ffn_hidden_size", "d_ff", "hidden_dim"];
        let hidden = need(&hidden_keys, defaults.hidden.or(defaults.hidden_multiple.map(|by| by * width)))?;
        let layer_keys = ["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
        let layers = c.bounded_layers(need(&layer_keys, defaults.layers)?);
        let table = if c.is_gguf() { c.rows(&["token_embd.weight"]) } else { None };
        let vocab = table.map_or_else(|| need(&["vocab_size"], defaults.vocab), Ok)?;
        let context = c.count_opt(&["max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length"])?;
        let context = context.or(defaults.context);
        Ok(Sizes { width, layers, heads, kv_heads, head_dim, hidden, vocab, context })
    }
}

/// Causal attention without biases, scaled by the square root of the head's width.
pub fn attention(s: &Sizes, position: Position) -> Attention {
    Attention { position, ..Attention::plain(s.heads, s.kv_heads, s.head_dim) }
}

/// A token table and nothing else.
pub fn embed(s: &Sizes) -> Embed {
    Embed::plain(s.vocab, s.width)
}

/// A pre-norm layer with a weight set of its own.
pub fn pre_norm(index: usize, norm: Norm, attention: Attention, ffn: Ffn) -> Layer {
    Layer { wiring: Wiring::PreNorm, norm, attention, cross: None, ffn, branch_scale: 1.0, weights: index }
}

/// An embedding, layers, and a norm after them where there is one.
pub fn stack(s: &Sizes, embed: Embed, layers: Vec<Layer>, final_norm: Option<Norm>) -> Stack {
    Stack::plain(s.width, embed, layers, final_norm)
}

/// A decoder: the embedding, `layer` for each index, a final norm, and the head that the configuration's class names.
pub fn decoder(
    c: &Reader,
    s: &Sizes,
    embed: Embed,
    lm: LmHead,
    norm: Norm,
    layer: impl FnMut(usize) -> Layer,
) -> Result<ModelSpec, Error> {
    decoder_of(c, s, stack(s, embed, (0..s.layers).map(layer).collect(), Some(norm)), lm)
}

/// A decoder of this stack, with the head that the configuration's class names.
pub fn decoder_of(c: &Reader, s: &Sizes, stack: Stack, lm: LmHead) -> Result<ModelSpec, Error> {
    Ok(ModelSpec { body: Body::Decoder(stack), pooler: None, head: output(c, lm)?, context: s.context })
}

/// A model that is an encoder and nothing else, for sequences of any length.
pub fn encoder_alone(stack: Stack) -> ModelSpec {
    ModelSpec { body: Body::Encoder(stack), pooler: None, head: Head::None, context: None }
}
