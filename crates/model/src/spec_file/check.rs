//! What a description must keep to beyond its types, so that nothing that is built from it can fail later.

use super::value::Problem;
use attend_nn::spec::*;
use std::collections::HashMap;

/// Wider than any model; products of two still fit 64 bits.
const LARGEST: usize = i32::MAX as usize;

/// More experts than this in a layer no model has.
const MOST_EXPERTS: usize = 1 << 16;

type Checked = Result<(), Problem>;

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Checked {
    Err(Problem { field: field.into(), problem: problem.into() })
}

/// Counts that are sizes.
fn sizes(place: &str, sizes: &[(&str, usize)]) -> Checked {
    match sizes.iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
        None => Ok(()),
        Some((name, size)) => wrong(format!("{place}.{name}"), format!("must be from 1 to {LARGEST}, found {size}")),
    }
}

pub(super) fn model(spec: &ModelSpec) -> Checked {
    match &spec.body {
        Body::Encoder(one) => stack("encoder", one, None)?,
        Body::Decoder(one) => stack("decoder", one, None)?,
        Body::EncoderDecoder { encoder, decoder } => {
            stack("encoder", encoder, None)?;
            stack("decoder", decoder, Some(encoder))?;
        }
    }
    head(spec)
}

fn stack(place: &str, stack: &Stack, encoder: Option<&Stack>) -> Checked {
    sizes(place, &[("width", stack.width), ("embed.width", stack.embed.width), ("embed.vocab", stack.embed.vocab)])?;
    sizes(place, &[("narrowed", stack.narrowed.unwrap_or(1))])?;
    embed(place, &stack.embed, encoder)?;
    if (stack.embed.width == stack.width) != stack.embed.projection.is_none() {
        return wrong(format!("{place}.embed.projection"), "stands where the table has another width than the stack");
    }
    if let Some(bias) = &stack.relative_bias {
        relative(&format!("{place}.relative_bias"), bias)?;
    }
    if let Some(relative) = &stack.relative_rows {
        sizes(&format!("{place}.relative_rows"), &[("rows", relative.rows)])?;
        relative.norm.as_ref().map_or(Ok(()), |found| norm(&format!("{place}.relative_rows.norm"), found))?;
    }
    if let Some(conv) = &stack.conv {
        let here = format!("{place}.conv");
        sizes(&here, &[("kernel", conv.kernel), ("groups", conv.groups)])?;
        if conv.kernel % 2 == 0 || !stack.width.is_multiple_of(conv.groups) {
            return wrong(here, format!("the kernel is odd, and groups divide the width, {}", stack.width));
        }
        norm(&format!("{here}.norm"), &conv.norm)?;
    }
    if let Some(found) = &stack.final_norm {
        norm(&format!("{place}.final_norm"), found)?;
    }
    let mut sets: HashMap<usize, (usize, &Layer)> = HashMap::new();
    for (index, next) in stack.layers.iter().enumerate() {
        let here = format!("{place}.layers[{index}]");
        layer(&here, next, stack, encoder)?;
        let (first, known) = *sets.entry(next.weights).or_insert((index, next));
        if !same_tensors(known, next) {
            return wrong(
                format!("{here}.weights"),
                format!("set {} is that of layer {first}, which has other tensors", next.weights),
            );
        }
    }
    Ok(())
}

/// Whether two layers can have one set of weights.
fn same_tensors(a: &Layer, b: &Layer) -> bool {
    let bare = |layer: &Layer| {
        let plain = |attention: &Attention| Attention { mask: Mask::Full, ..attention.clone() };
        Layer { attention: plain(&layer.attention), cross: layer.cross.as_ref().map(plain), ..layer.clone() }
    };
    bare(a) == bare(b)
}

fn embed(place: &str, embed: &Embed, encoder: Option<&Stack>) -> Checked {
    let place = format!("{place}.embed");
    match (embed.table, encoder) {
        (Table::Own, _) => {}
        (Table::Encoder, None) => return wrong(format!("{place}.table"), "there is no encoder before this stack"),
        (Table::Encoder, Some(encoder)) => {
            if (encoder.embed.vocab, encoder.embed.width) != (embed.vocab, embed.width) {
                return wrong(format!("{place}.table"), "the encoder's table has another vocabulary or width");
            }
        }
    }
    if embed.token_dropout.is_some_and(|dropout| !(0.0..1.0).contains(&dropout.rate)) {
        return wrong(format!("{place}.token_dropout.rate"), "must be at least 0 and less than 1");
    }
    if !embed.scale.is_finite() {
        return wrong(format!("{place}.scale"), "must be a finite number");
    }
    match embed.positions {
        AbsolutePositions::None => {}
        AbsolutePositions::Learned { rows, offset } => {
            sizes(&format!("{place}.positions"), &[("rows", rows)])?;
            if offset >= rows {
                return wrong(format!("{place}.positions.offset"), format!("must be less than rows, {rows}"));
            }
        }
        AbsolutePositions::Sinusoidal { offset, .. } => {
            if offset > LARGEST {
                return wrong(format!("{place}.positions.offset"), "is too large");
            }
        }
    }
    if embed.norm_first && (embed.norm.is_none() || embed.projection.is_some()) {
        return wrong(format!("{place}.norm_first"), "stands where there is a norm and no projection");
    }
    if let Some(types) = embed.token_types {
        sizes(&place, &[("token_types", types)])?;
    }
    embed.norm.as_ref().map_or(Ok(()), |found| norm(&format!("{place}.norm"), found))
}

fn norm(place: &str, norm: &Norm) -> Checked {
    let (Norm::Rms { eps } | Norm::Layer { eps, .. } | Norm::Plain { eps }) = norm;
    if (0.0..1.0).contains(eps) { Ok(()) } else { wrong(format!("{place}.eps"), "must be at least 0 and less than 1") }
}

fn relative(place: &str, bias: &RelativeBias) -> Checked {
    sizes(place, &[("buckets", bias.buckets), ("heads", bias.heads), ("max_distance", bias.max_distance)])?;
    let parts = if bias.bidirectional { 4 } else { 2 };
    if bias.buckets < parts || bias.max_distance < bias.buckets {
        return wrong(
            format!("{place}.buckets"),
            format!("must be at least {parts} and at most max_distance, {}", bias.max_distance),
        );
    }
    Ok(())
}

fn layer(place: &str, layer: &Layer, stack: &Stack, encoder: Option<&Stack>) -> Checked {
    norm(&format!("{place}.norm"), &layer.norm)?;
    attention(&format!("{place}.attention"), &layer.attention, stack)?;
    match (&layer.cross, encoder) {
        (None, _) => {}
        (Some(_), None) => return wrong(format!("{place}.cross"), "only a decoder after an encoder can look at one"),
        (Some(cross), Some(encoder)) => {
            let here = format!("{place}.cross");
            attention(&here, cross, stack)?;
            if encoder.width != stack.width {
                return wrong(here, format!("the encoder's width is {}, this stack's {}", encoder.width, stack.width));
            }
            if cross.position != Position::None || cross.mask != Mask::Full {
                return wrong(here, "cross-attention has no positions and sees every token of the source");
            }
        }
    }
    if !layer.branch_scale.is_finite() {
        return wrong(format!("{place}.branch_scale"), "must be a finite number");
    }
    match &layer.wiring {
        Wiring::Parallel { .. } if layer.cross.is_some() => {
            return wrong(format!("{place}.wiring"), "parallel branches leave no place for cross-attention");
        }
        Wiring::FfnNorm if layer.cross.is_some() => {
            return wrong(format!("{place}.wiring"), "leaves no norm for cross-attention");
        }
        Wiring::Parallel { .. }
        | Wiring::FfnNorm
        | Wiring::PreNorm
        | Wiring::PostNorm
        | Wiring::Sandwich
        | Wiring::OutputNorm
        | Wiring::NormResidual => {}
    }
    match &layer.ffn {
        Ffn::Mlp { hidden, .. } | Ffn::Gated { hidden, .. } | Ffn::GatedOutBias { hidden, .. } => {
            sizes(&format!("{place}.ffn"), &[("hidden", *hidden)])
        }
        Ffn::Moe(moe) => mixture(&format!("{place}.ffn.moe"), moe),
    }
}

fn mixture(place: &str, moe: &Moe) -> Checked {
    sizes(place, &[("experts", moe.experts), ("chosen", moe.chosen), ("hidden", moe.hidden)])?;
    if moe.experts > MOST_EXPERTS || moe.chosen > moe.experts {
        return wrong(
            format!("{place}.chosen"),
            format!("at most as many as experts, and those at most {MOST_EXPERTS}"),
        );
    }
    if let Some(shared) = &moe.shared {
        sizes(&format!("{place}.shared"), &[("hidden", shared.hidden)])?;
    }
    if let GatedUnit::ClampedSwish { alpha, limit } = moe.unit
        && !(alpha.is_finite() && limit.is_finite() && limit > 0.0)
    {
        return wrong(format!("{place}.unit"), "needs finite numbers, and a limit greater than 0");
    }
    if !moe.router.scale.is_finite() || moe.router.balance.is_some_and(|balance| !balance.is_finite()) {
        return wrong(format!("{place}.router.scale"), "must be a finite number");
    }
    let Some(groups) = &moe.router.groups else { return Ok(()) };
    let here = format!("{place}.router.groups");
    sizes(&here, &[("count", groups.count), ("chosen", groups.chosen)])?;
    let each = moe.experts / groups.count;
    if !moe.experts.is_multiple_of(groups.count) || groups.chosen > groups.count || each * groups.chosen < moe.chosen {
        return wrong(here, "groups divide the experts, and those looked into hold as many as are chosen");
    }
    match groups.rank {
        GroupRank::BestTwo if each < 2 => wrong(format!("{here}.rank"), "a group has fewer than two experts"),
        GroupRank::Best | GroupRank::BestTwo => Ok(()),
    }
}

fn attention(place: &str, attention: &Attention, stack: &Stack) -> Checked {
    let Attention { heads, kv_heads, key_dim, value_dim, .. } = *attention;
    sizes(place, &[("heads", heads), ("kv_heads", kv_heads), ("key_dim", key_dim), ("value_dim", value_dim)])?;
    if !heads.is_multiple_of(kv_heads) {
        return wrong(format!("{place}.kv_heads"), format!("{kv_heads} does not divide heads, {heads}"));
    }
    if heads.saturating_mul(key_dim.max(value_dim)) > LARGEST {
        return wrong(format!("{place}.heads"), format!("heads times their width exceed {LARGEST}"));
    }
    if !attention.scale.is_finite() {
        return wrong(format!("{place}.scale"), "must be a finite number");
    }
    for (name, limit) in [("clip_qkv", attention.clip_qkv), ("soft_cap", attention.soft_cap)] {
        if limit.is_some_and(|limit| !limit.is_finite() || limit <= 0.0) {
            return wrong(format!("{place}.{name}"), "must be greater than 0");
        }
    }
    if let Some(found) = &attention.qk_norm {
        norm(&format!("{place}.qk_norm"), &found.norm)?;
    }
    match attention.mask {
        Mask::Chunked { length: 0 } => return wrong(format!("{place}.mask"), "chunks have at least one token"),
        Mask::Full | Mask::Causal | Mask::Window { .. } | Mask::Chunked { .. } | Mask::Prefix { .. } => {}
    }
    if let Some(latent) = &attention.latent {
        self::latent(&format!("{place}.latent"), latent, attention)?;
    }
    let here = format!("{place}.position");
    match &attention.position {
        Position::None => Ok(()),
        Position::Disentangled(relative) => disentangled(&here, relative, attention, stack),
        Position::Rope(rope) => self::rope(&here, rope, attention.latent.map_or(key_dim, |latent| latent.rope_dim)),
        Position::Alibi(alibi) if alibi.max_bias.is_finite() => Ok(()),
        Position::Alibi(_) => wrong(format!("{here}.max_bias"), "must be a finite number"),
        Position::RelativeBias(bias) if bias.heads != heads => {
            wrong(format!("{here}.heads"), format!("must be the attention's heads, {heads}"))
        }
        Position::RelativeBias(bias) => relative(&here, bias),
        Position::StackBias => match &stack.relative_bias {
            None => wrong(here, "the stack has no `relative_bias`"),
            Some(bias) if bias.heads != heads => wrong(here, format!("the stack's bias has {} heads", bias.heads)),
            Some(_) => Ok(()),
        },
    }
}

/// The core sees one head of latents with the rotated key beside them.
fn latent(place: &str, latent: &Latent, attention: &Attention) -> Checked {
    let Latent { rank, query_rank, key_dim, rope_dim, value_dim, norm: own } = *latent;
    let widths = [("rank", rank), ("key_dim", key_dim), ("rope_dim", rope_dim), ("value_dim", value_dim)];
    sizes(place, &widths)?;
    sizes(place, &[("query_rank", query_rank.unwrap_or(1))])?;
    let core = (attention.kv_heads, attention.key_dim, attention.value_dim);
    if core != (1, rank.saturating_add(rope_dim), rank) {
        let wanted = "kv_heads is 1, key_dim is rank and rope_dim together, value_dim is rank";
        return wrong(place, format!("{wanted}; leave them out"));
    }
    if attention.qk_norm.is_some() || attention.clip_qkv.is_some() {
        return wrong(place, "has norms of its own, and neither qk_norm nor clip_qkv");
    }
    if !matches!(attention.position, Position::Rope(_)) {
        return wrong(place, "needs `position = \"rope\"` for its rotated part");
    }
    norm(&format!("{place}.norm"), &own)
}

fn disentangled(place: &str, relative: &Disentangled, attention: &Attention, stack: &Stack) -> Checked {
    sizes(place, &[("span", relative.span)])?;
    if stack.relative_rows.is_none_or(|rows| rows.rows != 2 * relative.span) {
        return wrong(place, "the stack needs `relative_rows` with twice the span as rows");
    }
    if attention.kv_heads != attention.heads || attention.mask != Mask::Full || attention.latent.is_some() {
        return wrong(place, "is for attention of as many KV heads as heads that sees the whole sequence");
    }
    match relative.max_distance {
        Some(distance) if distance <= relative.span => {
            wrong(format!("{place}.max_distance"), format!("must exceed the span, {}", relative.span))
        }
        Some(_) | None => Ok(()),
    }
}

fn rope(place: &str, rope: &Rope, key_dim: usize) -> Checked {
    if rope.dim == 0 || !rope.dim.is_multiple_of(2) || rope.dim > key_dim {
        return wrong(format!("{place}.dim"), format!("must be even and from 2 to the head's width, {key_dim}"));
    }
    if !(rope.base.is_finite() && rope.base > 0.0) {
        return wrong(format!("{place}.base"), "must be greater than 0");
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let half = rope.dim / 2;
    let divisors = |list: &[f32]| list.len() == half && list.iter().all(|divisor| positive(f64::from(*divisor)));
    let sound = match &rope.scaling {
        RopeScaling::None => true,
        RopeScaling::Linear { factor } => positive(*factor),
        RopeScaling::Dynamic { factor, original } => positive(*factor) && *original > 0,
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original } => {
            let ordered = high_freq_factor > low_freq_factor;
            positive(*factor) && positive(*low_freq_factor) && high_freq_factor.is_finite() && ordered && *original > 0
        }
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention_factor, truncate: _ } => {
            [*factor, *beta_fast, *beta_slow, *attention_factor].into_iter().all(positive) && *original > 0
        }
        RopeScaling::Long { short, long, original, attention_factor } => {
            divisors(short) && divisors(long) && positive(*attention_factor) && *original > 0
        }
        RopeScaling::Divisors { divisors: list } => divisors(list),
    };
    if sound {
        return Ok(());
    }
    wrong(format!("{place}.scaling"), format!("needs finite numbers greater than 0, and lists of {half} divisors"))
}

fn head(spec: &ModelSpec) -> Checked {
    let stack = spec.output_stack();
    match &spec.head {
        Head::None => Ok(()),
        Head::Lm(lm) => {
            sizes("head.lm", &[("vocab", lm.vocab)])?;
            if lm.tied && lm.vocab != stack.embed.vocab {
                let problem = format!("a tied head has the embedding's vocabulary, {}", stack.embed.vocab);
                return wrong("head.lm.vocab", problem);
            }
            if lm.tied && stack.embed.width != stack.output_width() && lm.transform.is_none() {
                return wrong("head.lm.tied", "a table narrower than the stack needs a `transform` before it");
            }
            if !lm.scale.is_finite() {
                return wrong("head.lm.scale", "must be a finite number");
            }
            if lm.soft_cap.is_some_and(|cap| !cap.is_finite() || cap <= 0.0) {
                return wrong("head.lm.soft_cap", "must be greater than 0");
            }
            transform_norm("head.lm", &lm.transform)
        }
        Head::Sequence { labels, source: SequenceSource::Pooler, .. } if spec.pooler.is_none() => {
            sizes("head.sequence", &[("labels", *labels)])?;
            wrong("head.sequence.source", "there is no `pooler` to read")
        }
        Head::Sequence { labels, transform, .. } => {
            sizes("head.sequence", &[("labels", *labels)])?;
            transform_norm("head.sequence", transform)
        }
        Head::Token { labels, transform, .. } => {
            sizes("head.token", &[("labels", *labels)])?;
            transform_norm("head.token", transform)
        }
        Head::Span { transform, .. } => transform_norm("head.span", transform),
    }
}

fn transform_norm(place: &str, transform: &Option<Transform>) -> Checked {
    match transform.and_then(|transform| transform.norm) {
        Some(found) => norm(&format!("{place}.transform.norm"), &found),
        None => Ok(()),
    }
}
