//! Operations: a multiplication and an addition are two, and only products of matrices are counted.

use attend_nn::spec::{
    Attention, Body, Disentangled, Ffn, Head, Layer, Mask, ModelSpec, Moe, Position, Stack, Transform,
};

/// Operations of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// With weights.
    pub weights: f64,
    /// Of queries with keys, and of probabilities with values.
    pub attention: f64,
}

impl Work {
    pub fn total(self) -> f64 {
        self.weights + self.attention
    }

    fn add(&mut self, other: Work) {
        self.weights += other.weights;
        self.attention += other.attention;
    }
}

/// The next token after `context` tokens, which it is the last of; `source` tokens were encoded. An encoder has no next
/// token: each of its tokens costs an equal part of its pass.
pub fn decode(spec: &ModelSpec, context: u64, source: u64) -> Work {
    match &spec.body {
        Body::Encoder(_) => {
            let Work { weights, attention } = prefill(spec, context, source);
            Work { weights: weights / context.max(1) as f64, attention: attention / context.max(1) as f64 }
        }
        Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => {
            let mut work = layers(stack, 1.0, |mask| keys(mask, context.saturating_sub(1), context), source as f64);
            work.weights += head(spec, 1.0);
            work
        }
    }
}

/// Reading a text: `context` tokens of the only stack with the head on the last one (on all of an encoder), or `source`
/// tokens of the encoder together with the decoder's cross keys and values.
pub fn prefill(spec: &ModelSpec, context: u64, source: u64) -> Work {
    match &spec.body {
        Body::Encoder(stack) => {
            let mut work = pass(stack, context);
            work.weights += head(spec, context as f64);
            work
        }
        Body::Decoder(stack) => {
            let mut work = pass(stack, context);
            work.weights += head(spec, 1.0);
            work
        }
        Body::EncoderDecoder { encoder, decoder } => {
            let mut work = pass(encoder, source);
            let crosses = decoder.layers.iter().filter_map(|layer| layer.cross.as_ref());
            work.weights += crosses.map(|cross| source as f64 * keys_values(cross, decoder.width)).sum::<f64>();
            work
        }
    }
}

/// A whole sequence through a stack.
fn pass(stack: &Stack, tokens: u64) -> Work {
    layers(stack, tokens as f64, |mask| all_keys(mask, tokens), 0.0)
}

/// `rows` rows through every layer; `seen` tells how many keys they see together under a mask.
fn layers(stack: &Stack, rows: f64, seen: impl Fn(Mask) -> f64, source: f64) -> Work {
    let mut work = Work::default();
    if stack.embed.projection.is_some() {
        work.weights += rows * product(stack.embed.width, stack.width);
    }
    if let Some(conv) = &stack.conv {
        work.weights += rows * product(conv.kernel * stack.width / conv.groups.max(1), stack.width);
    }
    if let Some(narrowed) = stack.narrowed {
        work.weights += rows * product(stack.width, narrowed);
    }
    for layer in &stack.layers {
        work.add(one_layer(layer, stack.width, rows, seen(layer.attention.mask), source));
    }
    work
}

fn one_layer(layer: &Layer, width: usize, rows: f64, seen: f64, source: f64) -> Work {
    let own = queries_and_out(&layer.attention, width) + keys_values(&layer.attention, width);
    let mut work = Work { weights: rows * (own + ffn(&layer.ffn, width)), attention: seen * core(&layer.attention) };
    if let Position::Disentangled(relative) = &layer.attention.position {
        work.attention += distances(relative, &layer.attention, width, rows);
    }
    if let Some(cross) = &layer.cross {
        work.weights += rows * queries_and_out(cross, width);
        work.attention += rows * source * core(cross);
    }
    work
}

/// A product of a row of `input` with a matrix of `out` outputs.
fn product(input: usize, out: usize) -> f64 {
    2.0 * input as f64 * out as f64
}

fn queries_and_out(attention: &Attention, width: usize) -> f64 {
    let heads = attention.heads;
    let Some(latent) = &attention.latent else {
        return product(width, heads * attention.key_dim) + product(heads * attention.value_dim, width);
    };
    let query = heads * (latent.key_dim + latent.rope_dim);
    let down = latent.query_rank.map_or(0.0, |rank| product(width, rank));
    // Queries are brought to the latent's width, and mixed latents to the values', for each head.
    let heads_own = product(latent.key_dim, latent.rank) + product(latent.rank, latent.value_dim);
    down + product(latent.query_rank.unwrap_or(width), query)
        + heads as f64 * heads_own
        + product(heads * latent.value_dim, width)
}

/// The tables of queries and keys against distances, and the projections of the distances.
fn distances(relative: &Disentangled, attention: &Attention, width: usize, rows: f64) -> f64 {
    let (span, query) = (2 * relative.span, attention.heads * attention.key_dim);
    let terms = [relative.position_key, relative.position_query].into_iter().flatten().count() as f64;
    terms * (rows * product(query, span) + span as f64 * product(width, query))
}

fn keys_values(attention: &Attention, width: usize) -> f64 {
    if attention.latent.is_some() {
        return product(width, attention.key_dim);
    }
    product(width, attention.kv_heads * attention.key_dim) + product(width, attention.kv_heads * attention.value_dim)
}

/// One query with one key, and the key's value.
fn core(attention: &Attention) -> f64 {
    2.0 * attention.heads as f64 * (attention.key_dim + attention.value_dim) as f64
}

fn ffn(ffn: &Ffn, width: usize) -> f64 {
    match ffn {
        Ffn::Mlp { hidden, .. } => 2.0 * product(width, *hidden),
        Ffn::Gated { hidden, .. } | Ffn::GatedOutBias { hidden, .. } => 3.0 * product(width, *hidden),
        Ffn::Moe(moe) => experts(moe, width),
    }
}

/// The router, the chosen experts, and the part that every token goes through.
fn experts(moe: &Moe, width: usize) -> f64 {
    let shared = moe
        .shared
        .map_or(0.0, |shared| 3.0 * product(width, shared.hidden) + if shared.gate { product(width, 1) } else { 0.0 });
    product(width, moe.experts) + moe.chosen as f64 * 3.0 * product(width, moe.hidden) + shared
}

/// The head over `rows` rows; a pooler and a sequence head see one row.
fn head(spec: &ModelSpec, rows: f64) -> f64 {
    let stack = spec.output_stack();
    let width = stack.output_width();
    let pooler = if spec.pooler.is_some() { product(width, width) } else { 0.0 };
    let transform = |transform: &Option<Transform>, inner: usize| match transform {
        Some(_) => product(width, inner),
        None => 0.0,
    };
    pooler
        + match &spec.head {
            Head::None => 0.0,
            Head::Lm(lm) => {
                let inner = if lm.tied || lm.transform.is_some() { stack.embed.width } else { width };
                rows * (transform(&lm.transform, inner) + product(inner, lm.vocab))
            }
            Head::Sequence { labels, transform: own, .. } => transform(own, width) + product(width, *labels),
            Head::Token { labels, transform: own, .. } => rows * (transform(own, width) + product(width, *labels)),
            Head::Span { transform: own, .. } => rows * (transform(own, width) + product(width, 2)),
        }
}

/// Keys that the query at index `query` sees among `keys` keys.
fn keys(mask: Mask, query: u64, keys: u64) -> f64 {
    mask.range(query as usize, keys as usize).len() as f64
}

/// Keys that all queries of a sequence see together.
fn all_keys(mask: Mask, tokens: u64) -> f64 {
    let triangle = |n: u64| n as f64 * (n as f64 + 1.0) / 2.0;
    match mask {
        Mask::Full => tokens as f64 * tokens as f64,
        Mask::Causal => triangle(tokens),
        Mask::Window { left, right } => {
            let side = |reach: usize| {
                let reach = (reach as u64).min(tokens.saturating_sub(1));
                tokens as f64 * reach as f64 - triangle(reach)
            };
            tokens as f64 + side(left) + side(right)
        }
        Mask::Chunked { length } => {
            let length = (length as u64).max(1);
            (tokens / length) as f64 * triangle(length) + triangle(tokens % length)
        }
        Mask::Prefix { length } => {
            let prefix = (length as u64).min(tokens);
            triangle(tokens) + prefix as f64 * prefix as f64 - triangle(prefix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_sequence_are_those_of_its_queries() {
        let masks = [
            Mask::Full,
            Mask::Causal,
            Mask::Window { left: 3, right: 0 },
            Mask::Window { left: 2, right: 5 },
            Mask::Window { left: 1000, right: 0 },
            Mask::Chunked { length: 4 },
            Mask::Prefix { length: 6 },
        ];
        for mask in masks {
            for tokens in [1, 2, 7, 20] {
                let counted: f64 = (0..tokens).map(|query| keys(mask, query, tokens)).sum();
                assert_eq!(all_keys(mask, tokens), counted, "{mask:?} of {tokens}");
            }
        }
    }
}
