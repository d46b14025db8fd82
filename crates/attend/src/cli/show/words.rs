//! The parts of a description in words and formulas.

use attend_format::{Checkpoint, Kind};
use attend_nn::spec::*;

pub fn kind(checkpoint: &Checkpoint) -> &'static str {
    match checkpoint.kind() {
        Kind::Gguf => "GGUF",
        Kind::HuggingFace => "Hugging Face folder",
        Kind::Described => "description",
    }
}

pub fn body(body: &Body) -> &'static str {
    match body {
        Body::Encoder(_) => "encoder",
        Body::Decoder(_) => "decoder",
        Body::EncoderDecoder { .. } => "encoder-decoder",
    }
}

pub fn norm(norm: &Norm) -> String {
    match norm {
        Norm::Rms { eps } => format!("RMS norm, eps {eps:e}"),
        Norm::Layer { eps, bias: true } => format!("layer norm, eps {eps:e}"),
        Norm::Layer { eps, bias: false } => format!("layer norm without bias, eps {eps:e}"),
        Norm::Plain { eps } => format!("layer norm without weight and bias, eps {eps:e}"),
    }
}

pub fn wiring(layer: &Layer) -> String {
    let cross = |formula: &str| if layer.cross.is_some() { formula.to_owned() } else { String::new() };
    let (name, formula) = match layer.wiring {
        Wiring::PreNorm => ("pre-norm", format!("x = x + A(n(x)); {}x = x + F(n(x))", cross("x = x + C(n(x)); "))),
        Wiring::PostNorm => ("post-norm", format!("x = n(x + A(x)); {}x = n(x + F(x))", cross("x = n(x + C(x)); "))),
        Wiring::Sandwich => {
            ("sandwich", format!("x = x + m(A(n(x))); {}x = x + m(F(n(x)))", cross("x = x + m(C(n(x))); ")))
        }
        Wiring::OutputNorm => {
            ("output norm", format!("x = x + n(A(x)); {}x = x + n(F(x))", cross("x = x + n(C(x)); ")))
        }
        Wiring::NormResidual => (
            "normed residual",
            format!("y = n(x); x = y + A(y); {}y = n(x); x = y + F(y)", cross("y = n(x); x = y + C(y); ")),
        ),
        Wiring::FfnNorm => ("norm before the feed-forward part", "x = x + A(x); x = x + F(n(x))".into()),
        Wiring::Parallel { shared_norm: true } => ("parallel, one norm", "x = x + A(n(x)) + F(n(x))".into()),
        Wiring::Parallel { shared_norm: false } => ("parallel, two norms", "x = x + A(n(x)) + F(n'(x))".into()),
    };
    let scale =
        if layer.branch_scale == 1.0 { String::new() } else { format!(", branches times {}", layer.branch_scale) };
    format!("{formula} ({name}{scale})")
}

/// `GQA 9/3 x 64`
pub fn heads(attention: &Attention) -> String {
    let Attention { heads, kv_heads, key_dim, value_dim, .. } = attention;
    let kind = match kv_heads {
        1 if *heads > 1 => "MQA",
        kv if kv == heads => "MHA",
        _ => "GQA",
    };
    let width = if key_dim == value_dim { key_dim.to_string() } else { format!("{key_dim}/{value_dim}") };
    format!("{kind} {heads}/{kv_heads} x {width}")
}

/// Everything about an attention but its positions and mask.
pub fn attention(attention: &Attention) -> String {
    let mut parts = vec![format!("{} (query heads/key-value heads x width)", heads(attention))];
    parts.push(match attention.qkv_bias {
        QkvBias { query: false, key: false, value: false } => "no bias on q, k, v".into(),
        QkvBias { query, key, value } => {
            let names: Vec<&str> =
                [(query, "q"), (key, "k"), (value, "v")].into_iter().filter(|(has, _)| *has).map(|(_, n)| n).collect();
            format!("bias on {}", names.join(", "))
        }
    });
    parts.push(if attention.out_bias { "bias on the output".into() } else { "none on the output".into() });
    parts.push(format!("scores times {}", attention.scale));
    if let Some(QkNorm { norm: kind, scope }) = &attention.qk_norm {
        let scope = match scope {
            QkNormScope::Head => "of each head, one weight for all",
            QkNormScope::EachHead => "of each head, a weight for each",
            QkNormScope::Projection => "of the whole projection",
        };
        parts.push(format!("q and k normed: {} {scope}", norm(kind)));
    }
    parts.extend(attention.clip_qkv.map(|c| format!("q, k, v clipped to +-{c}")));
    parts.extend(attention.soft_cap.map(|c| format!("scores capped: {c} tanh(s / {c})")));
    if attention.sinks {
        parts.push("a learned sink for each head".into());
    }
    parts.join(", ")
}

pub fn mask(mask: Mask) -> String {
    match mask {
        Mask::Full => "full".into(),
        Mask::Causal => "causal".into(),
        Mask::Window { left, right: 0 } => format!("causal window of {} tokens", left.saturating_add(1)),
        Mask::Window { left, right } => format!("window: {left} to the left, {right} to the right"),
        Mask::Chunked { length } => format!("causal in chunks of {length}"),
        Mask::Prefix { length } => format!("full over the first {length}, then causal"),
    }
}

/// A few words for the table.
pub fn position_name(position: &Position) -> &'static str {
    match position {
        Position::None => "none",
        Position::Rope(_) => "rotary",
        Position::Alibi(_) => "ALiBi",
        Position::RelativeBias(_) => "relative bias",
        Position::StackBias => "stack's relative bias",
        Position::Disentangled(_) => "disentangled",
    }
}

pub fn position(position: &Position) -> String {
    match position {
        Position::None => "none in the attention".into(),
        Position::Rope(rope) => {
            let pairing = match rope.pairing {
                Pairing::Halves => "pairs (i, i + half)",
                Pairing::Interleaved => "pairs (2i, 2i + 1)",
            };
            format!(
                "rotary, base {}, first {} of each head, {pairing}, {}",
                rope.base,
                rope.dim,
                scaling(&rope.scaling)
            )
        }
        Position::Alibi(alibi) => {
            let order = match alibi.slopes {
                SlopeOrder::LowerFirst => "slopes of the lower power of two first",
                SlopeOrder::OddFirst => "odd slopes of the higher power of two first",
            };
            let rounded = if alibi.rounded { ", rounded to bf16" } else { "" };
            let scaled = if alibi.scaled { ", scaled with the scores" } else { "" };
            format!("ALiBi, largest exponent {}, {order}{rounded}{scaled}", alibi.max_bias)
        }
        Position::RelativeBias(bias) => format!("own table: {}", relative_bias(bias)),
        Position::StackBias => "the stack's table of relative biases".into(),
        Position::Disentangled(relative) => {
            let terms =
                [(relative.position_key, "content to position"), (relative.position_query, "position to content")];
            let terms = terms.iter().filter_map(|(term, name)| term.map(|_| *name)).collect::<Vec<_>>().join(", ");
            let far = relative.max_distance.map_or(String::new(), |far| format!(", logarithmic up to {far}"));
            format!("disentangled: {} rows of distances{far}; {terms}", 2 * relative.span)
        }
    }
}

pub fn relative_bias(bias: &RelativeBias) -> String {
    let direction = if bias.bidirectional { "both directions" } else { "the past only" };
    let RelativeBias { buckets, max_distance, heads, .. } = bias;
    format!(
        "relative bias of {heads} heads, {buckets} buckets over {direction}, logarithmic up to distance {max_distance}"
    )
}

fn scaling(scaling: &RopeScaling) -> String {
    match scaling {
        RopeScaling::None => "no scaling".into(),
        RopeScaling::Linear { factor } => format!("positions divided by {factor}"),
        RopeScaling::Dynamic { factor, original } => format!("dynamic NTK, factor {factor} beyond {original}"),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
            format!(
                "llama3 scaling, factor {factor}, ramp {low_freq_factor} to {high_freq_factor}, original {original}"
            )
        }
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original, truncate, attention_factor } => {
            let edges = if *truncate { "whole" } else { "exact" };
            format!(
                "YaRN, factor {factor}, beta {beta_fast} to {beta_slow} ({edges} edges), original {original}, amplitude {attention_factor}"
            )
        }
        RopeScaling::Long { short, original, attention_factor, .. } => {
            format!(
                "LongRoPE, {} divisors up to {original} and others beyond, amplitude {attention_factor}",
                short.len()
            )
        }
        RopeScaling::Divisors { divisors } => format!("{} divisors from the file", divisors.len()),
    }
}

pub fn ffn(ffn: &Ffn) -> String {
    let with = |bias: bool| if bias { "with bias" } else { "no bias" };
    match ffn {
        Ffn::Mlp { hidden, activation, bias } => {
            format!("down({}(up(x))), hidden {hidden}, {}", activation_name(*activation), with(*bias))
        }
        Ffn::Gated { hidden, activation, bias } => {
            format!("down({}(gate(x)) * up(x)), hidden {hidden}, {}", activation_name(*activation), with(*bias))
        }
        Ffn::GatedOutBias { hidden, activation } => {
            format!("down({}(gate(x)) * up(x)), hidden {hidden}, bias on down alone", activation_name(*activation))
        }
        Ffn::Moe(moe) => {
            let shared = match &moe.shared {
                None => String::new(),
                Some(SharedExpert { hidden, gate: false }) => format!(", and one of {hidden} for every token"),
                Some(SharedExpert { hidden, gate: true }) => format!(", and a gated one of {hidden} for every token"),
            };
            let (unit, chosen) = (unit_name(moe.unit), moe.chosen);
            let Moe { experts, hidden, .. } = moe;
            format!(
                "{chosen} of {experts} experts by {}: {unit}, hidden {hidden}, {}{shared}",
                router(&moe.router),
                with(moe.bias)
            )
        }
    }
}

fn unit_name(unit: GatedUnit) -> String {
    match unit {
        GatedUnit::Product(activation) => format!("down({}(gate(x)) * up(x))", activation_name(activation)),
        GatedUnit::ClampedSwish { alpha, limit } => format!("gate times sigmoid({alpha} gate), clamped to {limit}"),
    }
}

fn router(router: &Router) -> String {
    let scores = match router.scores {
        RouterScores::Softmax { renormalize: false } => "softmax",
        RouterScores::Softmax { renormalize: true } => "softmax, weights summing to 1",
        RouterScores::ChosenSoftmax => "logit, softmax over the chosen",
        RouterScores::Sigmoid { correction: false, .. } => "sigmoid",
        RouterScores::Sigmoid { correction: true, .. } => "corrected sigmoid",
    };
    match router.groups {
        None => scores.into(),
        Some(groups) => format!("{scores} within {} of {} groups", groups.chosen, groups.count),
    }
}

/// `gated silu 1536`
pub fn ffn_name(ffn: &Ffn) -> String {
    match ffn {
        Ffn::Mlp { hidden, activation, .. } => format!("{} {hidden}", activation_name(*activation)),
        Ffn::Gated { hidden, activation, .. } | Ffn::GatedOutBias { hidden, activation } => {
            format!("gated {} {hidden}", activation_name(*activation))
        }
        Ffn::Moe(moe) => format!("{} of {} experts of {}", moe.chosen, moe.experts, moe.hidden),
    }
}

pub fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::Identity => "identity",
        Activation::Relu => "relu",
        Activation::ReluSquared => "relu^2",
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu (tanh form)",
        Activation::QuickGelu => "gelu (sigmoid form)",
        Activation::GeluClamped => "gelu clamped to 10",
        Activation::Mish => "mish",
        Activation::Silu => "silu",
        Activation::Tanh => "tanh",
        Activation::Sigmoid => "sigmoid",
    }
}

pub fn embed(stack: &Stack) -> String {
    let embed = &stack.embed;
    let mut parts = vec![match embed.table {
        Table::Own => format!("tokens [{}, {}]", embed.vocab, embed.width),
        Table::Encoder => "the encoder's token table".into(),
    }];
    if embed.scale != 1.0 {
        parts.push(format!("times {}", embed.scale));
    }
    let projection = embed.projection.map(|_| format!("projected from {} to {}", embed.width, stack.width));
    let place = embed.projection.map(|projection| projection.place);
    let first = place == Some(ProjectionPlace::Tokens);
    parts.extend(projection.clone().filter(|_| first));
    let added = if first { stack.width } else { embed.width };
    let norm = embed.norm.as_ref().map(|kind| format!("then {}", norm(kind)));
    parts.extend(norm.clone().filter(|_| embed.norm_first));
    match embed.positions {
        AbsolutePositions::None => {}
        AbsolutePositions::Learned { rows, offset } => {
            parts.push(format!("plus learned positions [{rows}, {}], row p + {offset}", added));
        }
        AbsolutePositions::Sinusoidal { layout, offset } => {
            let layout = match layout {
                SinusoidLayout::Interleaved => "sin, cos, sin, cos, ...",
                SinusoidLayout::Halves => "all sines, then all cosines",
                SinusoidLayout::HalvesInclusive => "all sines, then all cosines, the last period included",
            };
            parts.push(format!("plus sinusoidal positions p + {offset} ({layout})"));
        }
    }
    parts.extend(embed.token_types.map(|types| format!("plus token types [{types}, {added}]")));
    parts.extend(embed.uncounted.map(|id| format!("token {id} not counted")));
    let norm = norm.filter(|_| !embed.norm_first);
    match place {
        Some(ProjectionPlace::BeforeNorm) => parts.extend([projection, norm].into_iter().flatten()),
        Some(ProjectionPlace::AfterNorm) => parts.extend([norm, projection].into_iter().flatten()),
        Some(ProjectionPlace::Tokens) | None => parts.extend(norm),
    }
    parts.join(", ")
}

pub fn head(spec: &ModelSpec) -> String {
    let width = spec.output_stack().output_width();
    let with = |bias: bool| if bias { ", with bias" } else { "" };
    let transform = spec.head.transform().map_or(String::new(), |transform| {
        let norm = transform.norm.map_or(String::new(), |kind| format!("{}, ", norm(&kind)));
        format!("dense, {}, {norm}then ", activation_name(transform.activation))
    });
    let own = match &spec.head {
        Head::None => "none: the hidden states are the answer".into(),
        Head::Lm(lm) => {
            let table =
                if lm.tied { "the token table (tied)".into() } else { format!("a matrix [{}, {width}]", lm.vocab) };
            let scale = if lm.scale == 1.0 { String::new() } else { format!(", logits times {}", lm.scale) };
            let cap = lm.soft_cap.map_or(String::new(), |c| format!(", capped: {c} tanh(l / {c})"));
            format!("language model: {transform}{table}{}{scale}{cap}", with(lm.bias))
        }
        Head::Sequence { labels, source, bias, .. } => {
            let source = match source {
                SequenceSource::Pooler => "the pooler's output",
                SequenceSource::First => "the first token",
                SequenceSource::Last => "the last token",
                SequenceSource::Mean => "the mean of all tokens",
                SequenceSource::LastOf { .. } => "the last end token",
            };
            format!("{transform}a row of {labels} labels for each text, from {source}{}", with(*bias))
        }
        Head::Token { labels, bias, .. } => {
            format!("{transform}a row of {labels} labels for each token{}", with(*bias))
        }
        Head::Span { bias, .. } => format!("{transform}start and end of a span{}", with(*bias)),
    };
    match spec.pooler {
        Some(pooler) => format!("pooler: {}(dense(first token)); {own}", activation_name(pooler.activation)),
        None => own,
    }
}
