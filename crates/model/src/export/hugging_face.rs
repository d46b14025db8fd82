//! A description as `config.json`.
//!
//! The names are those that most architectures share; where families differ, a value stands under each of the names by
//! which it is read. A name that an architecture does not read is of no consequence there.

use crate::architectures::Architecture;
use crate::describe::Described;
use attend_nn::spec::*;
use serde_json::{Map, Value, json};

/// `config.json` of the description as an architecture of the other kind of file.
pub(super) fn config(source: &Described, spec: &ModelSpec, known: &Architecture) -> Map<String, Value> {
    if source.checkpoint.gguf().is_some() && source.checkpoint.has_config_json() {
        return source.checkpoint.config().map().clone();
    }
    let mut fields = Fields(Map::new());
    fields.set(&["architectures"], json!([format!("{}{}", known.class, ending(spec))]));
    fields.set(&["model_type"], json!(known.model_types.first()));
    let stack = match &spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) => stack,
        Body::EncoderDecoder { encoder, decoder } => {
            fields.set(&["is_encoder_decoder"], json!(true));
            fields.set(&["num_decoder_layers"], json!(decoder.layers.len()));
            encoder
        }
    };
    fields.sizes(spec, stack);
    if let Some(layer) = stack.layers.first() {
        fields.layer(layer, stack.width);
    }
    fields.experts(stack);
    fields.scales(spec, stack);
    fields.windows(stack);
    fields.rope(stack, spec);
    fields.latent(stack);
    fields.head(spec, stack);
    fields.tokens(source);
    fields.0
}

/// What the class name ends with.
fn ending(spec: &ModelSpec) -> &'static str {
    match (&spec.head, &spec.body) {
        (Head::None, Body::Encoder(stack)) if stack.relative_bias.is_some() => "EncoderModel",
        (Head::None, _) => "Model",
        (Head::Lm(_), Body::Encoder(_)) => "ForMaskedLM",
        (Head::Lm(_), Body::Decoder(_)) => "ForCausalLM",
        (Head::Lm(_), Body::EncoderDecoder { .. }) => "ForConditionalGeneration",
        (Head::Sequence { .. }, _) => "ForSequenceClassification",
        (Head::Token { .. }, _) => "ForTokenClassification",
        (Head::Span { .. }, _) => "ForQuestionAnswering",
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, names: &[&str], value: Value) {
        for name in names {
            self.0.insert((*name).into(), value.clone());
        }
    }

    fn sizes(&mut self, spec: &ModelSpec, stack: &Stack) {
        self.set(&["hidden_size"], json!(stack.width));
        self.set(&["num_hidden_layers"], json!(stack.layers.len()));
        self.set(&["vocab_size"], json!(stack.embed.vocab));
        if let Some(context) = spec.context {
            self.set(&["max_position_embeddings"], json!(context));
        }
        if let Some(types) = stack.embed.token_types {
            self.set(&["type_vocab_size"], json!(types));
        }
        if let Some(bias) = stack.relative_bias {
            self.set(&["d_model"], json!(stack.width));
            self.set(&["num_layers"], json!(stack.layers.len()));
            self.set(&["relative_attention_num_buckets"], json!(bias.buckets));
            self.set(&["relative_attention_max_distance"], json!(bias.max_distance));
        }
    }

    fn layer(&mut self, layer: &Layer, width: usize) {
        let attention = &layer.attention;
        self.set(&["num_attention_heads"], json!(attention.heads));
        self.set(&["num_key_value_heads", "num_kv_heads"], json!(attention.kv_heads));
        self.set(&["head_dim"], json!(attention.key_dim));
        self.set(&["attention_bias"], json!(attention.out_bias));
        self.set(&["use_qkv_bias"], json!(attention.qkv_bias.query));
        self.set(&["qk_layernorm", "use_qk_norm"], json!(attention.qk_norm.is_some()));
        if attention.qk_norm.is_some() {
            self.set(&["use_qk_norm"], json!(true));
        }
        if let Some(clip) = attention.clip_qkv {
            self.set(&["clip_qkv"], number(clip));
        }
        if let Some(cap) = attention.soft_cap {
            self.set(&["attn_logit_softcapping"], number(cap));
        } else if layer.wiring == Wiring::Sandwich {
            self.set(&["attn_logit_softcapping"], Value::Null);
        }
        if layer.wiring == Wiring::Sandwich {
            let scalar = f64::from(attention.scale).powi(-2);
            let whole = scalar.round();
            let scalar = if (scalar / whole - 1.0).abs() < 1e-6 { json!(whole as u64) } else { json!(scalar) };
            self.set(&["query_pre_attn_scalar"], scalar);
        }
        match layer.norm {
            Norm::Rms { eps } => self.set(&["rms_norm_eps"], number(eps)),
            Norm::Layer { eps, .. } | Norm::Plain { eps } => {
                self.set(&["layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"], number(eps));
            }
        }
        self.feed_forward(&layer.ffn, layer, width);
        self.wiring(layer);
    }

    fn feed_forward(&mut self, ffn: &Ffn, layer: &Layer, width: usize) {
        let (hidden, activation, bias, gated) = match ffn {
            Ffn::Mlp { hidden, activation, bias } => (*hidden, *activation, *bias, false),
            Ffn::Gated { hidden, activation, bias } => (*hidden, *activation, *bias, true),
            Ffn::GatedOutBias { hidden, activation } => (*hidden, *activation, false, true),
            Ffn::Moe(moe) => {
                let activation = match moe.unit {
                    GatedUnit::Product(activation) => activation,
                    GatedUnit::ClampedSwish { .. } => Activation::Silu,
                };
                (moe.hidden, activation, moe.bias, true)
            }
        };
        let name = activation_name(activation);
        self.set(&["intermediate_size", "ffn_hidden_size", "n_inner"], json!(hidden));
        self.set(&["mlp_bias", "bias", "use_bias"], json!(bias));
        self.set(&["hidden_act", "hidden_activation", "activation"], json!(name));
        // A gated unit has a name of its own where it is called a function.
        let gated_unit = gated && activation == Activation::Silu;
        self.set(&["activation_function"], json!(if gated_unit { "swiglu" } else { name }));
        if layer.attention.position == Position::StackBias {
            let projection = if gated && name == "gelu_new" { "gelu" } else { name };
            let projection = if gated { format!("gated-{projection}") } else { projection.to_string() };
            self.set(&["feed_forward_proj"], json!(projection));
            self.set(&["d_ff"], json!(hidden));
            self.set(&["d_kv"], json!(layer.attention.key_dim));
            self.set(&["num_heads"], json!(layer.attention.heads));
            if let Norm::Rms { eps } = layer.norm {
                self.set(&["layer_norm_epsilon"], number(eps));
            }
        }
        if width > 0 && hidden.is_multiple_of(width) {
            self.set(&["expansion_ratio"], json!(hidden / width));
        }
    }

    fn experts(&mut self, stack: &Stack) {
        let mixture = |layer: &Layer| match &layer.ffn {
            Ffn::Moe(moe) => Some(moe.clone()),
            Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => None,
        };
        let Some(moe) = stack.layers.iter().find_map(mixture) else { return };
        let dense = stack.layers.iter().enumerate().filter(|(_, layer)| mixture(layer).is_none());
        let dense: Vec<usize> = dense.map(|(index, _)| index).collect();
        self.set(&["mlp_only_layers"], json!(dense));
        self.set(&["first_k_dense_replace"], json!(dense.len()));
        if dense.is_empty() {
            self.set(&["intermediate_size"], json!(moe.hidden));
        }
        self.set(&["num_local_experts", "num_experts", "n_routed_experts"], json!(moe.experts));
        self.set(&["num_experts_per_tok"], json!(moe.chosen));
        self.set(&["moe_intermediate_size"], json!(moe.hidden));
        let shared = moe.shared.map_or(0, |shared| shared.hidden);
        self.set(&["n_shared_experts"], json!(shared / moe.hidden.max(1)));
        if shared > 0 {
            self.set(&["shared_expert_intermediate_size"], json!(shared));
        }
        let (RouterScores::Softmax { renormalize } | RouterScores::Sigmoid { renormalize, .. }) = moe.router.scores
        else {
            return;
        };
        self.set(&["norm_topk_prob"], json!(renormalize));
        self.set(&["routed_scaling_factor"], number(moe.router.scale));
        let groups = moe.router.groups.map_or((1, 1), |groups| (groups.count, groups.chosen));
        self.set(&["n_group"], json!(groups.0));
        self.set(&["topk_group"], json!(groups.1));
        let method = if groups == (1, 1) { "greedy" } else { "group_limited_greedy" };
        self.set(&["topk_method"], json!(method));
    }

    /// After the rotation, whose temperature it says in another way.
    fn latent(&mut self, stack: &Stack) {
        let Some(Layer { attention, .. }) = stack.layers.first() else { return };
        let Some(latent) = attention.latent else { return };
        self.set(&["num_key_value_heads"], json!(attention.heads));
        self.set(&["head_dim", "qk_rope_head_dim"], json!(latent.rope_dim));
        self.set(&["kv_lora_rank"], json!(latent.rank));
        self.set(&["q_lora_rank"], json!(latent.query_rank));
        self.set(&["qk_nope_head_dim"], json!(latent.key_dim));
        self.set(&["v_head_dim"], json!(latent.value_dim));
        self.set(&["partial_rotary_factor", "rotary_pct"], json!(1.0));
        if let Position::Rope(rope) = &attention.position {
            self.set(&["rope_interleave"], json!(rope.pairing == Pairing::Interleaved));
            if let (RopeScaling::Yarn { factor, .. }, Some(Value::Object(scaling))) =
                (&rope.scaling, self.0.get_mut("rope_scaling"))
            {
                let usual = ((latent.key_dim + latent.rope_dim) as f64).powf(-0.5);
                let all = ((f64::from(attention.scale) / usual).sqrt() - 1.0) / (0.1 * factor.ln());
                // The scale's own 32 bits give no more decimals.
                scaling.insert("mscale_all_dim".into(), json!((all * 1e5).round() / 1e5));
            }
        }
    }

    /// The constants that multiply, where they are not what every model has.
    fn scales(&mut self, spec: &ModelSpec, stack: &Stack) {
        let Some(layer) = stack.layers.first() else { return };
        // Latent attention says its scale with its widths.
        if layer.attention.latent.is_some() {
            return;
        }
        let usual = (layer.attention.key_dim as f32).powf(-0.5);
        if stack.embed.scale != 1.0 {
            self.set(&["embedding_multiplier"], number(stack.embed.scale));
        }
        if (layer.attention.scale / usual - 1.0).abs() > 1e-6 {
            self.set(&["attention_multiplier"], number(layer.attention.scale));
        }
        if layer.branch_scale != 1.0 {
            self.set(&["residual_multiplier"], number(layer.branch_scale));
        }
        if let Head::Lm(lm) = &spec.head
            && lm.scale != 1.0
            && stack.relative_bias.is_none()
        {
            self.set(&["logit_scale"], number(lm.scale));
            self.set(&["logits_scaling"], number(1.0 / lm.scale));
        }
    }

    fn wiring(&mut self, layer: &Layer) {
        let attention = &layer.attention;
        let norms = match layer.wiring {
            Wiring::Parallel { shared_norm } => Some(2 - usize::from(shared_norm)),
            Wiring::PreNorm
            | Wiring::PostNorm
            | Wiring::Sandwich
            | Wiring::OutputNorm
            | Wiring::NormResidual
            | Wiring::FfnNorm => None,
        };
        let grouped = attention.kv_heads > 1 && attention.kv_heads < attention.heads;
        if !matches!(layer.norm, Norm::Rms { .. }) {
            self.set(&["use_parallel_residual", "parallel_attn"], json!(norms.is_some()));
            self.set(&["apply_residual_connection_post_layernorm"], json!(layer.wiring == Wiring::NormResidual));
            self.set(&["new_decoder_architecture"], json!(grouped || norms == Some(2)));
            self.set(&["num_ln_in_parallel_attn"], json!(norms));
            self.set(&["multi_query"], json!(attention.kv_heads == 1));
            self.set(&["no_bias"], json!(!attention.out_bias));
        }
        let alibi = match &attention.position {
            Position::Alibi(alibi) => Some(alibi.max_bias),
            Position::None
            | Position::Rope(_)
            | Position::RelativeBias(_)
            | Position::StackBias
            | Position::Disentangled(_) => None,
        };
        if alibi.is_some() || attention.clip_qkv.is_some() {
            self.set(&["alibi"], json!(alibi.is_some()));
            self.set(
                &["attn_config"],
                json!({
                    "alibi": alibi.is_some(),
                    "alibi_bias_max": alibi.map_or(json!(8), number),
                    "clip_qkv": attention.clip_qkv.map(number),
                    "qk_ln": attention.qk_norm.is_some(),
                }),
            );
        }
    }

    fn windows(&mut self, stack: &Stack) {
        let window = |layer: &Layer| match layer.attention.mask {
            Mask::Window { left, right: 0 } => Some(("sliding_window", left + 1)),
            // The number of both sides, without the token itself.
            Mask::Window { left, right } => Some(("local_attention", left + right)),
            Mask::Full | Mask::Causal | Mask::Chunked { .. } | Mask::Prefix { .. } => None,
        };
        let tokens = stack.layers.iter().find_map(window);
        let (key, number) = tokens.map_or(("sliding_window", json!(null)), |(key, tokens)| (key, json!(tokens)));
        self.set(&[key], number);
        self.set(&["use_sliding_window"], json!(tokens.is_some()));
        if tokens.is_some() {
            let kind = |layer| if window(layer).is_some() { "sliding_attention" } else { "full_attention" };
            self.set(&["layer_types"], json!(stack.layers.iter().map(kind).collect::<Vec<_>>()));
        }
    }

    fn rope(&mut self, stack: &Stack, spec: &ModelSpec) {
        let ropes = || {
            stack.layers.iter().filter_map(|layer| match &layer.attention.position {
                Position::Rope(rope) => Some((rope, layer.attention.key_dim)),
                Position::None
                | Position::Alibi(_)
                | Position::RelativeBias(_)
                | Position::StackBias
                | Position::Disentangled(_) => None,
            })
        };
        let Some((rope, head)) = ropes().max_by(|a, b| a.0.base.total_cmp(&b.0.base)) else { return };
        self.set(&["rope_theta"], number(rope.base as f32));
        if let Some((local, _)) = ropes().find(|(local, _)| local.base != rope.base) {
            self.set(&["rope_local_base_freq"], number(local.base as f32));
        }
        let part = rope.dim as f64 / head.max(1) as f64;
        self.set(&["partial_rotary_factor", "rotary_pct"], json!(part));
        let rotates: Vec<u8> =
            stack.layers.iter().map(|l| u8::from(matches!(l.attention.position, Position::Rope(_)))).collect();
        if rotates.contains(&0) {
            self.set(&["no_rope_layers"], json!(rotates));
        }
        let scaling = scaling(rope, spec.context);
        if let Some(original) = scaling.get("original_max_position_embeddings") {
            self.set(&["original_max_position_embeddings"], original.clone());
        }
        self.set(&["rope_scaling"], scaling);
    }

    fn head(&mut self, spec: &ModelSpec, stack: &Stack) {
        match &spec.head {
            Head::Lm(lm) => {
                self.set(&["tie_word_embeddings"], json!(lm.tied));
                if let Some(cap) = lm.soft_cap {
                    self.set(&["final_logit_softcapping"], number(cap));
                } else if stack.layers.iter().any(|layer| layer.wiring == Wiring::Sandwich) {
                    self.set(&["final_logit_softcapping"], Value::Null);
                }
                if stack.relative_bias.is_some() {
                    self.set(&["scale_decoder_outputs"], json!(lm.scale != 1.0));
                }
            }
            Head::Sequence { labels, .. } | Head::Token { labels, .. } => {
                self.set(&["num_labels"], json!(labels));
            }
            Head::None | Head::Span { .. } => {}
        }
    }

    fn tokens(&mut self, source: &Described) {
        let defaults = &source.generation;
        let eos = match defaults.eos.as_slice() {
            [] => None,
            [only] => Some(json!(only)),
            several => Some(json!(several)),
        };
        let ids = [
            ("bos_token_id", defaults.bos.map(|id| json!(id))),
            ("eos_token_id", eos),
            ("pad_token_id", defaults.pad.map(|id| json!(id))),
            ("decoder_start_token_id", defaults.decoder_start.map(|id| json!(id))),
        ];
        for (name, id) in ids {
            if let Some(id) = id {
                self.set(&[name], id);
            }
        }
    }
}

/// A number of 32 bits as people write it: `1e-5` and not `9.999999747378752e-6`.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, |value| {
        if value.fract() == 0.0 && value.abs() < 1e9 { json!(value) } else { Value::from(value) }
    })
}

fn scaling(rope: &Rope, context: Option<usize>) -> Value {
    match &rope.scaling {
        RopeScaling::None => Value::Null,
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Dynamic { factor, original } => {
            json!({"rope_type": "dynamic", "factor": factor, "original_max_position_embeddings": original})
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => json!({
            "rope_type": "llama3", "factor": factor, "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor, "original_max_position_embeddings": original,
        }),
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original, truncate, attention_factor } => json!({
            "rope_type": "yarn", "factor": factor, "beta_fast": beta_fast, "beta_slow": beta_slow,
            "original_max_position_embeddings": original, "truncate": truncate,
            "attention_factor": attention_factor,
        }),
        RopeScaling::Long { short, long, original, attention_factor } => json!({
            "rope_type": "longrope", "short_factor": short, "long_factor": long,
            "original_max_position_embeddings": original, "attention_factor": attention_factor,
            "factor": context.map(|context| context as f64 / *original as f64),
        }),
        RopeScaling::Divisors { divisors } => llama3(rope, divisors, context),
    }
}

/// A list of divisors as the scheme that converters write so: the factor is the largest, the other three numbers are
/// tried. A list that none of them explains has no form here, which the comparison behind this finds.
fn llama3(rope: &Rope, divisors: &[f32], context: Option<usize>) -> Value {
    let most = divisors.iter().fold(1.0f32, |most, &divisor| most.max(divisor));
    let stretched = context.map(|context| (context as f32 / most).round() as usize);
    for original in stretched.into_iter().chain((3..=20).map(|power| 1usize << power)) {
        for (low, high) in [(1.0, 4.0), (1.0, 2.0), (1.0, 8.0)] {
            let scaling =
                RopeScaling::Llama3 { factor: f64::from(most), low_freq_factor: low, high_freq_factor: high, original };
            let again = super::compare::divisors(&Rope { scaling: scaling.clone(), ..rope.clone() });
            let near = |found: Vec<f32>| found.iter().zip(divisors).all(|(a, b)| (a - b).abs() <= 1e-5 * b);
            if again.is_some_and(near) {
                return self::scaling(&Rope { scaling, ..rope.clone() }, None);
            }
        }
    }
    Value::Null
}

/// The name that configurations have for an activation.
fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::QuickGelu => "quick_gelu",
        Activation::GeluClamped => "gelu_10",
        Activation::Mish => "mish",
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu2",
        Activation::Silu => "silu",
        Activation::Tanh => "tanh",
        Activation::Sigmoid => "sigmoid",
        Activation::Identity => "linear",
    }
}
