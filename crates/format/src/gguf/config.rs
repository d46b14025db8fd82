//! GGUF metadata under the names that `config.json` uses, so that both kinds of checkpoint describe themselves alike.
//!
//! Only what is common to architectures is done here. A key's value is checked by the getter that reads it, and an
//! error then names the key as the file has it.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::{Array, Metadata, Value};
use crate::{Config, Error, Tensors};

/// `{architecture}.` suffix of the metadata, and the field of the configuration.
///
/// | from | to |
/// |---|---|
/// | a number, bool or string | the same |
/// | an array of numbers or bools (a value for each layer) | a list |
pub const KEYS: &[(&str, &str)] = &[
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("decoder_block_count", "num_decoder_layers"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("feed_forward_length", "intermediate_size"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_shared_count", "n_shared_experts"),
    ("expert_weights_scale", "routed_scaling_factor"),
    ("expert_weights_norm", "norm_topk_prob"),
    ("expert_gating_func", "expert_gating_func"),
    ("expert_group_count", "n_group"),
    ("expert_group_used_count", "topk_group"),
    ("use_parallel_residual", "use_parallel_residual"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "value_head_dim"),
    ("attention.key_length_mla", "qk_head_dim"),
    ("attention.value_length_mla", "v_head_dim"),
    ("attention.layer_norm_epsilon", "layer_norm_epsilon"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.sliding_window_pattern", "sliding_window_pattern"),
    ("attention.causal", "is_causal"),
    ("attention.scale", "attention_multiplier"),
    ("attention.max_alibi_bias", "alibi_bias_max"),
    ("attention.clamp_kqv", "clip_qkv"),
    ("attention.q_lora_rank", "q_lora_rank"),
    ("attention.kv_lora_rank", "kv_lora_rank"),
    ("attention.relative_buckets_count", "relative_attention_num_buckets"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("logit_scale", "logit_scale"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("pooling_type", "pooling_type"),
    ("classifier.pooling_type", "classifier_pooling_type"),
    ("decoder_start_token_id", "decoder_start_token_id"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("rope.dimension_count", "rotary_dim"),
];

/// Fields of `rope_scaling`, under `{architecture}.rope.`.
const ROPE_SCALING: &[(&str, &str)] = &[
    ("scaling.factor", "factor"),
    ("scaling.original_context_length", "original_max_position_embeddings"),
    ("scaling.attn_factor", "attention_factor"),
    ("scaling.yarn_beta_fast", "beta_fast"),
    ("scaling.yarn_beta_slow", "beta_slow"),
    ("scaling.yarn_ext_factor", "extrapolation_factor"),
    ("scaling.yarn_log_multiplier", "yarn_log_multiplier"),
];

/// Keys that do not depend on the architecture.
const TOKENS: &[(&str, &str)] = &[
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
    ("tokenizer.ggml.unknown_token_id", "unk_token_id"),
];

/// The configuration that the metadata defines. `model_type` is `general.architecture`; `vocab_size` is the number of
/// tokens; `tie_word_embeddings` says whether `output.weight` is absent; `rope_scaling` is there when a scaling other
/// than none is set, with `rope_type` as the file names it (`linear`, `yarn`, `longrope`).
pub(crate) fn from_metadata(metadata: &Metadata, tensors: &Tensors) -> Result<Config, Error> {
    let architecture = metadata.architecture()?;
    let mut fields = Fields { metadata, map: Map::new(), origins: BTreeMap::new() };
    fields.map.insert("model_type".into(), architecture.into());
    fields.origins.insert("model_type".into(), "general.architecture".into());
    for (suffix, field) in KEYS {
        fields.copy(format!("{architecture}.{suffix}"), field)?;
    }
    for (key, field) in TOKENS {
        if let Some(id) = metadata.token_id(key)? {
            fields.set(field, key, id.into());
        }
    }
    fields.vocabulary(architecture)?;
    fields.rope_scaling(architecture)?;
    fields.labels(architecture)?;
    let output = "output.weight";
    let tied = !tensors.infos().contains_key(output) && !tensors.unreadable().contains_key(output);
    fields.map.insert("tie_word_embeddings".into(), tied.into());
    Ok(Config::from_map(metadata.file(), fields.map).with_origins(fields.origins))
}

struct Fields<'a> {
    metadata: &'a Metadata,
    map: Map<String, Json>,
    origins: BTreeMap<String, String>,
}

impl Fields<'_> {
    fn set(&mut self, field: &str, key: &str, value: Json) {
        self.map.insert(field.into(), value);
        self.origins.insert(field.into(), key.into());
    }

    fn copy(&mut self, key: String, field: &str) -> Result<(), Error> {
        if let Some(value) = self.metadata.get(&key) {
            let json = to_json(value);
            let json = json.ok_or_else(|| self.metadata.bad(&key, "must be a number, a bool, or a list of them"))?;
            self.set(field, &key, json);
        }
        Ok(())
    }

    /// The token list decides; a count beside it is kept where there is no list.
    fn vocabulary(&mut self, architecture: &str) -> Result<(), Error> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        if let Some(tokens) = self.metadata.strings(TOKENS)? {
            let count = tokens.len();
            self.set("vocab_size", TOKENS, count.into());
            return Ok(());
        }
        self.copy(format!("{architecture}.vocab_size"), "vocab_size")
    }

    /// The names of a classifier's outputs.
    fn labels(&mut self, architecture: &str) -> Result<(), Error> {
        let key = format!("{architecture}.classifier.output_labels");
        let Some(labels) = self.metadata.strings(&key)? else { return Ok(()) };
        if labels.len() > MAX_LIST {
            return Err(self.metadata.bad(&key, "names more labels than any classifier has"));
        }
        let named = labels.iter().enumerate().map(|(index, label)| (index.to_string(), label.into()));
        let named: Map<String, Json> = named.collect();
        self.set("id2label", &key, Json::Object(named));
        Ok(())
    }

    fn rope_scaling(&mut self, architecture: &str) -> Result<(), Error> {
        let key = |suffix: &str| format!("{architecture}.rope.{suffix}");
        let mut scaling = Map::new();
        for (suffix, field) in ROPE_SCALING {
            if let Some(value) = self.metadata.f64(&key(suffix))? {
                let whole = value.fract() == 0.0 && (0.0..=9e15).contains(&value);
                let json = if whole && suffix.ends_with("length") { (value as u64).into() } else { value.into() };
                scaling.insert((*field).into(), json);
            }
        }
        let kind = match self.metadata.str(&key("scaling.type"))? {
            Some(kind) => kind.to_owned(),
            // Before the type was written, a factor meant linear scaling.
            None => match self.metadata.f64(&key("scale_linear"))?.filter(|&factor| factor != 1.0) {
                Some(factor) => {
                    scaling.insert("factor".into(), factor.into());
                    "linear".to_owned()
                }
                None => return Ok(()),
            },
        };
        if kind != "none" {
            scaling.insert("rope_type".into(), kind.into());
            self.set("rope_scaling", &key("scaling"), Json::Object(scaling));
        }
        Ok(())
    }
}

fn to_json(value: &Value) -> Option<Json> {
    match value {
        Value::Bool(flag) => Some((*flag).into()),
        Value::String(text) => Some(text.as_str().into()),
        Value::Array(array) => list(array),
        Value::F32(_) | Value::F64(_) => value.as_f64().map(float),
        _ => value.as_i128().and_then(whole),
    }
}

/// Bounds the memory of lists that stand for one value per layer.
const MAX_LIST: usize = 1 << 16;

fn list(array: &Array) -> Option<Json> {
    let values: Option<Vec<Json>> = match array {
        _ if array.len() > MAX_LIST => None,
        Array::Bool(flags) => Some(flags.iter().map(|&flag| flag.into()).collect()),
        Array::F32(_) | Array::F64(_) => array.numbers().map(|numbers| numbers.map(float).collect()),
        _ => array.integers().and_then(|numbers| numbers.map(whole).collect()),
    };
    values.map(Json::Array)
}

fn whole(value: i128) -> Option<Json> {
    u64::try_from(value).map(Json::from).or_else(|_| i64::try_from(value).map(Json::from)).ok()
}

/// JSON has no word for what is not finite; the getters refuse these strings as such.
fn float(value: f64) -> Json {
    match value {
        value if value.is_finite() => value.into(),
        value if value.is_nan() => "NaN".into(),
        value if value > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}
