//! A description as the metadata of a GGUF file, with the tensors that say what has no key.

use super::compare::divisors;
use super::rows::{Content, ExportTensor};
use attend_format::gguf::{Array, Value};
use attend_kernels::DType;
use attend_nn::spec::*;

/// Metadata under full key names, in the order of writing.
pub type Metadata = Vec<(String, Value)>;

/// What is written beyond the keys that every file has. Readers know most of it from the architecture's name, and some
/// trip over a key that they do not expect, so that each is added only where it changes what is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extras {
    /// For each layer whether it slides.
    pub pattern: bool,
    /// The multipliers of embedding, scores, branches and logits; `Some(true)`: the logits are divided.
    pub scales: Option<bool>,
}

/// The keys of a description.
pub(super) fn metadata(spec: &ModelSpec, architecture: &str, extras: Extras) -> Metadata {
    let mut keys = Keys { architecture, list: Vec::new() };
    keys.list.push(("general.architecture".into(), Value::String(architecture.into())));
    let (stack, decoder) = match &spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) => (stack, None),
        Body::EncoderDecoder { encoder, decoder } => (encoder, Some(decoder)),
    };
    keys.sizes(spec, stack);
    keys.attention(stack);
    keys.experts(stack);
    keys.positions(stack);
    keys.windows(stack, extras.pattern);
    if let Some(decoder) = decoder.filter(|decoder| decoder.layers.len() != stack.layers.len()) {
        keys.count("decoder_block_count", decoder.layers.len());
    }
    if let (Body::Encoder(_), None) = (&spec.body, stack.relative_bias) {
        keys.set("attention.causal", Value::Bool(false));
    }
    if let Head::Lm(LmHead { soft_cap: Some(cap), .. }) = spec.head {
        keys.float("final_logit_softcapping", cap);
    }
    if let Some(divided) = extras.scales {
        keys.scales(spec, stack, divided);
    }
    keys.list
}

struct Keys<'a> {
    architecture: &'a str,
    list: Metadata,
}

impl Keys<'_> {
    fn set(&mut self, key: &str, value: Value) {
        self.list.push((format!("{}.{key}", self.architecture), value));
    }

    fn count(&mut self, key: &str, value: usize) {
        self.set(key, Value::U32(u32::try_from(value).unwrap_or(u32::MAX)));
    }

    fn float(&mut self, key: &str, value: f32) {
        self.set(key, Value::F32(value));
    }

    /// One number where all layers agree, else a list.
    fn by_layer(&mut self, key: &str, stack: &Stack, of: impl Fn(&Layer) -> usize) {
        let values: Vec<usize> = stack.layers.iter().map(of).collect();
        match values.first() {
            Some(first) if values.iter().any(|value| value != first) => {
                let list = values.iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect();
                self.set(key, Value::Array(Array::U32(list)));
            }
            Some(first) => self.count(key, *first),
            None => {}
        }
    }

    fn sizes(&mut self, spec: &ModelSpec, stack: &Stack) {
        /// What files state of a model whose positions have no end.
        const ENDLESS: usize = 512;
        self.count("context_length", spec.context.unwrap_or(ENDLESS));
        self.count("embedding_length", stack.width);
        self.count("block_count", stack.layers.len());
        // Of a model with experts it is that of the layers that have none, where there are such.
        let sparse = |layer: &&Layer| matches!(layer.ffn, Ffn::Moe(_));
        match stack.layers.iter().find(|layer| !sparse(layer)) {
            Some(dense) if stack.layers.iter().any(|layer| sparse(&layer)) => {
                self.count("feed_forward_length", hidden(&dense.ffn));
            }
            _ => self.by_layer("feed_forward_length", stack, |layer| hidden(&layer.ffn)),
        }
        self.count("vocab_size", stack.embed.vocab);
        if let Some(layer) = stack.layers.first() {
            match layer.norm {
                Norm::Rms { eps } => self.float("attention.layer_norm_rms_epsilon", eps),
                Norm::Layer { eps, .. } | Norm::Plain { eps } => self.float("attention.layer_norm_epsilon", eps),
            }
            // Asked for by the readers of the architectures that know both.
            match layer.wiring {
                Wiring::Parallel { .. } => self.set("use_parallel_residual", Value::Bool(true)),
                Wiring::PreNorm => self.set("use_parallel_residual", Value::Bool(false)),
                Wiring::PostNorm | Wiring::Sandwich | Wiring::OutputNorm | Wiring::NormResidual | Wiring::FfnNorm => {}
            }
        }
    }

    fn attention(&mut self, stack: &Stack) {
        self.by_layer("attention.head_count", stack, |layer| layer.attention.heads);
        self.by_layer("attention.head_count_kv", stack, |layer| layer.attention.kv_heads);
        let Some(Layer { attention, .. }) = stack.layers.first() else { return };
        self.count("attention.key_length", attention.key_dim);
        self.count("attention.value_length", attention.value_dim);
        if let Some(latent) = attention.latent {
            self.count("attention.kv_lora_rank", latent.rank);
            self.count("attention.key_length_mla", latent.key_dim + latent.rope_dim);
            self.count("attention.value_length_mla", latent.value_dim);
            if let Some(rank) = latent.query_rank {
                self.count("attention.q_lora_rank", rank);
            }
        }
        if let Some(cap) = attention.soft_cap {
            self.float("attn_logit_softcapping", cap);
        }
        if let Some(clip) = attention.clip_qkv {
            self.float("attention.clamp_kqv", clip);
        }
        if let Some(bias) = stack.relative_bias {
            self.count("attention.relative_buckets_count", bias.buckets);
        }
    }

    fn experts(&mut self, stack: &Stack) {
        let mixture = |layer: &Layer| match &layer.ffn {
            Ffn::Moe(moe) => Some(moe.clone()),
            Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => None,
        };
        let Some((first, moe)) = stack.layers.iter().map(mixture).enumerate().find_map(|(i, moe)| Some((i, moe?)))
        else {
            return;
        };
        self.count("expert_count", moe.experts);
        self.count("expert_used_count", moe.chosen);
        self.count("expert_feed_forward_length", moe.hidden);
        if first > 0 {
            self.count("leading_dense_block_count", first);
        }
        match moe.shared {
            Some(SharedExpert { hidden, gate: true }) => self.count("expert_shared_feed_forward_length", hidden),
            Some(SharedExpert { hidden, gate: false }) => self.count("expert_shared_count", hidden / moe.hidden.max(1)),
            None => {}
        }
        // 1 is the softmax, 2 the sigmoid; only the readers of the latter's architectures ask.
        match moe.router.scores {
            RouterScores::Softmax { renormalize } => self.set("expert_weights_norm", Value::Bool(renormalize)),
            RouterScores::Sigmoid { renormalize, .. } => {
                self.set("expert_weights_norm", Value::Bool(renormalize));
                self.count("expert_gating_func", 2);
            }
            RouterScores::ChosenSoftmax => {}
        }
        if moe.router.scale != 1.0 {
            self.float("expert_weights_scale", moe.router.scale);
        }
        if let Some(groups) = moe.router.groups {
            self.count("expert_group_count", groups.count);
            self.count("expert_group_used_count", groups.chosen);
        }
    }

    /// A tenth of the factor by which YaRN's temperature enters the scale of latent attention; `None` where it does not.
    fn latent_temperature(&self, attention: &Attention, factor: f64) -> Option<f32> {
        let latent = attention.latent?;
        let usual = ((latent.key_dim + latent.rope_dim) as f64).powf(-0.5);
        let temperature = (f64::from(attention.scale) / usual).sqrt();
        let multiplier = (temperature - 1.0) / factor.ln();
        // The scale's own 32 bits give no more decimals.
        (factor > 1.0 && multiplier > 1e-6).then(|| ((multiplier * 1e6).round() / 1e6) as f32)
    }

    fn positions(&mut self, stack: &Stack) {
        if let Some(Position::Alibi(alibi)) = stack.layers.first().map(|layer| &layer.attention.position) {
            self.float("attention.max_alibi_bias", alibi.max_bias);
        }
        let Some(rope) = main_rope(stack) else { return };
        self.count("rope.dimension_count", rope.dim);
        self.float("rope.freq_base", rope.base as f32);
        if let Some(local) = ropes(stack).find(|local| local.base != rope.base) {
            self.float("rope.freq_base_swa", local.base as f32);
        }
        match &rope.scaling {
            RopeScaling::Linear { factor } => {
                self.set("rope.scaling.type", Value::String("linear".into()));
                self.float("rope.scaling.factor", *factor as f32);
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention_factor, .. } => {
                self.set("rope.scaling.type", Value::String("yarn".into()));
                self.float("rope.scaling.factor", *factor as f32);
                self.count("rope.scaling.original_context_length", *original);
                // Readers multiply what is written by the usual temperature (Peng et al. 2023, section 3.4).
                let usual = if *factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
                let layer = stack.layers.first();
                if let Some(multiplier) = layer.and_then(|layer| self.latent_temperature(&layer.attention, *factor)) {
                    self.float("rope.scaling.yarn_log_multiplier", multiplier);
                } else if (attention_factor / usual - 1.0).abs() > 1e-9 {
                    self.float("rope.scaling.attn_factor", (attention_factor / usual) as f32);
                }
                if (*beta_fast, *beta_slow) != (32.0, 1.0) {
                    self.float("rope.scaling.yarn_beta_fast", *beta_fast as f32);
                    self.float("rope.scaling.yarn_beta_slow", *beta_slow as f32);
                }
            }
            RopeScaling::Long { original, attention_factor, .. } => {
                self.count("rope.scaling.original_context_length", *original);
                self.float("rope.scaling.attn_factor", *attention_factor as f32);
            }
            // Said by a tensor, or not at all.
            RopeScaling::None
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Divisors { .. }
            | RopeScaling::Dynamic { .. } => {}
        }
    }

    fn windows(&mut self, stack: &Stack, pattern: bool) {
        let window = |layer: &Layer| match layer.attention.mask {
            Mask::Window { left, right: 0 } => Some(left + 1),
            // The number of both sides, without the token itself.
            Mask::Window { left, right } => Some(left + right),
            Mask::Full | Mask::Causal | Mask::Chunked { .. } | Mask::Prefix { .. } => None,
        };
        let Some(tokens) = stack.layers.iter().find_map(window) else { return };
        self.count("attention.sliding_window", tokens);
        if pattern {
            let flags = stack.layers.iter().map(|layer| window(layer).is_some()).collect();
            self.set("attention.sliding_window_pattern", Value::Array(Array::Bool(flags)));
        }
    }

    fn scales(&mut self, spec: &ModelSpec, stack: &Stack, divided: bool) {
        if stack.embed.scale != 1.0 {
            self.float("embedding_scale", stack.embed.scale);
        }
        if let Some(layer) = stack.layers.first() {
            self.float("attention.scale", layer.attention.scale);
            if layer.branch_scale != 1.0 {
                self.float("residual_scale", layer.branch_scale);
            }
        }
        if let Head::Lm(LmHead { scale, .. }) = spec.head
            && scale != 1.0
        {
            self.float("logit_scale", if divided { 1.0 / scale } else { scale });
        }
    }
}

/// The width of a feed-forward part.
fn hidden(ffn: &Ffn) -> usize {
    match ffn {
        Ffn::Mlp { hidden, .. } | Ffn::Gated { hidden, .. } | Ffn::GatedOutBias { hidden, .. } => *hidden,
        Ffn::Moe(moe) => moe.hidden,
    }
}

fn ropes(stack: &Stack) -> impl Iterator<Item = &Rope> {
    stack.layers.iter().filter_map(|layer| match &layer.attention.position {
        Position::Rope(rope) => Some(rope),
        Position::None
        | Position::Alibi(_)
        | Position::RelativeBias(_)
        | Position::StackBias
        | Position::Disentangled(_) => None,
    })
}

/// The rotary embedding of the layers that see everything: of several, the one with the longest periods.
fn main_rope(stack: &Stack) -> Option<&Rope> {
    ropes(stack).max_by(|a, b| a.base.total_cmp(&b.base))
}

/// The tensors that stand for rotary scalings without a key.
pub(super) fn computed(spec: &ModelSpec) -> Vec<ExportTensor> {
    let tensor = |name: &str, values: &[f32]| ExportTensor {
        name: name.into(),
        shape: vec![values.len()],
        dtype: DType::F32,
        content: Content::Values(values.to_vec()),
    };
    let stack = spec.output_stack();
    let Some(rope) = main_rope(stack) else { return Vec::new() };
    match &rope.scaling {
        RopeScaling::Long { short, long, .. } => {
            vec![tensor("rope_factors_long.weight", long), tensor("rope_factors_short.weight", short)]
        }
        RopeScaling::None
        | RopeScaling::Linear { .. }
        | RopeScaling::Dynamic { .. }
        | RopeScaling::Llama3 { .. }
        | RopeScaling::Yarn { .. }
        | RopeScaling::Divisors { .. } => {
            divisors(rope).map(|divisors| tensor("rope_freqs.weight", &divisors)).into_iter().collect()
        }
    }
}
