//! Activation names, as configurations spell them.

use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::{Activation, Ffn};

impl Reader<'_> {
    /// The activation that `key` names, or `default` where the key is absent.
    pub fn activation(&self, key: &str, default: Activation) -> Result<Activation, Error> {
        match self.text(key)? {
            None => Ok(default),
            Some(name) => {
                activation_named(name).ok_or_else(|| self.wrong(key, format!("activation `{name}` is not known")))
            }
        }
    }
}

/// `gelu` is the exact one, with the error function; every other gelu here is the tanh formula.
pub fn activation_named(name: &str) -> Option<Activation> {
    Some(match name {
        "gelu" | "gelu_python" => Activation::Gelu,
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_accurate" => Activation::GeluTanh,
        "quick_gelu" => Activation::QuickGelu,
        "gelu_10" => Activation::GeluClamped,
        "mish" => Activation::Mish,
        "relu" => Activation::Relu,
        "relu2" => Activation::ReluSquared,
        "silu" | "swish" => Activation::Silu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        "linear" | "identity" => Activation::Identity,
        _ => return None,
    })
}

/// `feed_forward_proj`: an activation, `gated-` before it for a gated part; `gated-gelu` means the tanh formula.
pub fn feed_forward(c: &Reader, hidden: usize, default: &str) -> Result<Ffn, Error> {
    let name = c.text("feed_forward_proj")?.unwrap_or(default);
    let wrong = || c.wrong("feed_forward_proj", format!("`{name}` is not known"));
    let gated = name.strip_prefix("gated-");
    let activation = if gated == Some("gelu") { "gelu_new" } else { gated.unwrap_or(name) };
    let activation = activation_named(activation).ok_or_else(wrong)?;
    Ok(match gated {
        Some(_) => Ffn::Gated { hidden, activation, bias: false },
        None => Ffn::Mlp { hidden, activation, bias: false },
    })
}
