//! Quantisation schemes of Hugging Face folders that are recognised and refused.

use serde_json::Value;

use crate::Config;
use crate::error::shown;

/// The name of the scheme by which the checkpoint's weights are quantised, when it is one that is not read here
/// (AWQ, GPTQ, bitsandbytes, ...). `None` for plain weights, and for the two schemes whose raw tensors are exposed
/// for the model to combine: fp8 with block scales (`weight_scale_inv` companions) and MXFP4 (`_blocks`, `_scales`).
pub fn unsupported_quantization(config: &Config) -> Option<String> {
    let key = ["quantization_config", "compression_config"].into_iter().find(|key| config.has(key))?;
    let Some(Value::Object(settings)) = config.value(key) else {
        return Some(format!("a scheme described by an unreadable `{key}`"));
    };
    let truthy = |key: &str| settings.get(key).and_then(Value::as_bool).unwrap_or(false);
    match settings.get("quant_method").and_then(Value::as_str) {
        Some("fp8" | "mxfp4") => None,
        Some("bitsandbytes" | "bitsandbytes_4bit" | "bitsandbytes_8bit") => Some("bitsandbytes".into()),
        Some(method) => Some(shown(method)),
        None if truthy("load_in_4bit") || truthy("load_in_8bit") => Some("bitsandbytes".into()),
        None => Some("an unnamed scheme".into()),
    }
}
