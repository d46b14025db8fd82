//! The memory that a step takes beside weights and keys: the walk's buffers, made and dropped in its order.
//!
//! Each function here has the name and the order of allocations of its twin in `nn`; what is summed is what is alive at
//! the same time. Buffers that do not grow with the tokens are left out.

use super::kv;
use super::weights::WeightTypes;
use attend_kernels::{Heads, Matrix, flash_bytes};
use attend_nn::names::Required;
use attend_nn::spec::*;
use attend_nn::{BLOCK_TOKENS, KvTypes};

const F32: u64 = size_of::<f32>() as u64;

/// The most bytes alive at once while `rows` tokens go through the decoder (or only) stack, of sequences that are then
/// `length` tokens long, the head's rows included: the last row of a decoder, every row of an encoder. `source` is the
/// length of the encoded source, where there is one.
pub fn prefill_bytes(spec: &ModelSpec, types: &dyn WeightTypes, rows: usize, length: usize, source: usize) -> u64 {
    let (kind, prefix, stack) = match &spec.body {
        Body::Encoder(stack) => (StackKind::Encoder, "", stack),
        Body::Decoder(stack) => (StackKind::Decoder, "", stack),
        Body::EncoderDecoder { decoder, .. } => (StackKind::Decoder, "decoder.", decoder),
    };
    let mut step = Step::new(types, (rows, length), source, prefix);
    step.walk(stack);
    let head_rows = if kind == StackKind::Encoder { rows } else { 1 };
    step.head(spec, head_rows);
    step.peak
}

/// The most bytes alive at once while `sources` sources of `length` tokens are encoded in one step and their cross keys
/// and values are made, which are counted too; 0 without an encoder beside the decoder.
pub fn encode_bytes(spec: &ModelSpec, types: &dyn WeightTypes, sources: usize, length: usize, kv: KvTypes) -> u64 {
    let Body::EncoderDecoder { encoder, decoder } = &spec.body else { return 0 };
    let mut step = Step::new(types, (sources.saturating_mul(length), length), 0, "encoder.");
    step.walk(encoder);
    let held = (sources as u64).saturating_mul(length.next_multiple_of(BLOCK_TOKENS) as u64);
    step.memory(decoder, |cross| kv::bytes(cross, kv).saturating_mul(held));
    step.peak
}

/// One step's account.
struct Step<'a> {
    types: &'a dyn WeightTypes,
    rows: usize,
    /// Tokens of the longest sequence after this step.
    length: usize,
    source: usize,
    prefix: &'static str,
    live: u64,
    peak: u64,
    /// The buffers of attention, which threads keep from call to call.
    scratch: u64,
}

impl<'a> Step<'a> {
    fn new(
        types: &'a dyn WeightTypes,
        (rows, length): (usize, usize),
        source: usize,
        prefix: &'static str,
    ) -> Step<'a> {
        Step { types, rows, length, source, prefix, live: 0, peak: 0, scratch: 0 }
    }

    /// A buffer is made; what it takes is returned, to be dropped.
    fn take(&mut self, bytes: u64) -> u64 {
        self.live = self.live.saturating_add(bytes);
        self.peak = self.peak.max(self.live);
        bytes
    }

    fn drop(&mut self, bytes: u64) {
        self.live = self.live.saturating_sub(bytes);
    }

    /// A buffer of this many numbers for each of `rows` rows.
    fn floats(&mut self, rows: usize, width: usize) -> u64 {
        self.take((rows as u64).saturating_mul(width as u64).saturating_mul(F32))
    }

    /// A buffer that takes the place of another of its size: both are alive for a moment.
    fn replace(&mut self, bytes: u64) {
        let copy = self.take(bytes);
        self.drop(copy);
    }

    /// A product of `rows` rows with the matrix `name` `[out, input]`; returns its output.
    fn linear(&mut self, name: &str, rows: usize, (out, input): (usize, usize)) -> u64 {
        let [out] = self.linears([(name, out)], rows, input);
        out
    }

    /// Products of the same `rows` rows of `input` with several matrices, names and outputs of which are given; returns
    /// what each gives.
    fn linears<const N: usize>(&mut self, matrices: [(&str, usize); N], rows: usize, input: usize) -> [u64; N] {
        let results = matrices.map(|(_, out)| self.floats(rows, out));
        let types = matrices.map(|(name, out)| {
            self.types.of(&Required { name: format!("{}{name}.weight", self.prefix), shape: vec![out, input] })
        });
        let laid_out = self.take(Matrix::matmul_bytes(rows, input, &types) as u64);
        self.drop(laid_out);
        results
    }

    /// The whole stack; the hidden states stay alive.
    fn walk(&mut self, stack: &Stack) {
        // Ids, positions and types of the packed batch.
        let packed = self.take((self.rows as u64).saturating_mul(12));
        let x = self.embed(stack);
        let tables = self.tables(stack);
        let embedded = if stack.conv.is_some() { self.take(x) } else { 0 };
        for (depth, layer) in stack.layers.iter().enumerate() {
            self.layer(layer, stack.width);
            if depth == 0 && stack.conv.is_some() {
                let raw = self.take(x);
                self.replace(x);
                self.drop(raw);
            }
        }
        self.drop(tables.saturating_add(embedded));
        if stack.final_norm.is_some() {
            self.replace(x);
        }
        if let Some(narrowed) = stack.narrowed {
            self.linear("narrowing", self.rows, (narrowed, stack.width));
            self.drop(x);
        }
        self.drop(packed);
    }

    /// The embedding; returns the stream.
    fn embed(&mut self, stack: &Stack) -> u64 {
        let embed = &stack.embed;
        let x = self.floats(self.rows, embed.width);
        let before = embed.projection.is_some_and(|projection| projection.place != ProjectionPlace::AfterNorm);
        if embed.norm.is_some() && !before {
            self.replace(x);
        }
        if embed.projection.is_none() {
            return x;
        }
        let projected = self.linear("embed.projection", self.rows, (stack.width, embed.width));
        self.drop(x);
        if embed.norm.is_some() && before {
            self.replace(projected);
        }
        projected
    }

    /// Rotary tables and biases by distance, each kind once for all layers.
    fn tables(&mut self, stack: &Stack) -> u64 {
        let mut seen: Vec<&Position> = Vec::new();
        let mut tables = stack.relative_rows.map_or(0, |relative| self.floats(relative.rows, stack.width));
        for position in stack.layers.iter().map(|layer| &layer.attention.position) {
            let known = seen.contains(&position);
            // Own tables of biases differ by layer even where their kinds are equal.
            if known && !matches!(position, Position::RelativeBias(_)) {
                continue;
            }
            seen.push(position);
            let heads = stack.layers.first().map_or(0, |layer| layer.attention.heads);
            let distances = (2 * self.length).saturating_sub(1);
            let table = match position {
                Position::None => 0,
                Position::Rope(rope) => {
                    let table = self.floats(self.rows, rope.dim / 2 * 2);
                    self.replace(table);
                    table
                }
                Position::Alibi(_) => self.floats(self.length, heads),
                Position::RelativeBias(bias) => self.floats(distances, bias.heads),
                Position::Disentangled(_) => 0,
                Position::StackBias => self.floats(distances, stack.relative_bias.map_or(0, |bias| bias.heads)),
            };
            tables = tables.saturating_add(table);
        }
        tables
    }

    /// One layer over the stream, which is alive already.
    fn layer(&mut self, layer: &Layer, width: usize) {
        let name = format!("layers.{}", layer.weights);
        let name = name.as_str();
        if let Wiring::Parallel { shared_norm } = layer.wiring {
            let input = self.floats(self.rows, width);
            let attended = self.attention(&format!("{name}.attention"), &layer.attention, width);
            if !shared_norm {
                self.replace(input);
            }
            let out = self.ffn(name, &layer.ffn, width);
            return self.drop(input.saturating_add(attended).saturating_add(out));
        }
        self.branch(layer.wiring, width, |step| step.attention(&format!("{name}.attention"), &layer.attention, width));
        if let Some(cross) = &layer.cross {
            self.branch(layer.wiring, width, |step| step.cross(&format!("{name}.cross"), cross, width));
        }
        self.branch(layer.wiring, width, |step| step.ffn(name, &layer.ffn, width));
    }

    fn branch(&mut self, wiring: Wiring, width: usize, run: impl FnOnce(&mut Self) -> u64) {
        let input = match wiring {
            // The stream itself is read.
            Wiring::PostNorm | Wiring::OutputNorm => 0,
            Wiring::PreNorm | Wiring::FfnNorm | Wiring::Sandwich | Wiring::NormResidual | Wiring::Parallel { .. } => {
                self.floats(self.rows, width)
            }
        };
        let out = run(self);
        match wiring {
            // After the branch its output takes that of the norm.
            Wiring::PreNorm | Wiring::FfnNorm | Wiring::NormResidual | Wiring::PostNorm | Wiring::Parallel { .. } => {}
            // The norm's output, beside the branch's.
            Wiring::Sandwich | Wiring::OutputNorm => self.replace(out),
        }
        self.drop(input.saturating_add(out));
    }

    /// Self-attention; returns its output.
    fn attention(&mut self, name: &str, attention: &Attention, width: usize) -> u64 {
        let held = match &attention.latent {
            Some(latent) => {
                let query = self.latent_queries(name, attention, latent, width);
                query.saturating_add(self.latent_keys(name, attention, latent, width))
            }
            None => self.projections(name, attention, width),
        };
        let out = self.mix(name, attention, self.length, width);
        self.drop(held);
        out
    }

    /// Queries, keys and values.
    fn projections(&mut self, name: &str, attention: &Attention, width: usize) -> u64 {
        let names = ["query", "key", "value"].map(|part| format!("{name}.{part}"));
        let [query, key, value] = [
            attention.heads * attention.key_dim,
            attention.kv_heads * attention.key_dim,
            attention.kv_heads * attention.value_dim,
        ];
        let matrices = [(names[0].as_str(), query), (names[1].as_str(), key), (names[2].as_str(), value)];
        let [query, key, value] = self.linears(matrices, self.rows, width);
        if attention.qk_norm.is_some() {
            self.replace(query);
            self.replace(key);
        }
        query.saturating_add(key).saturating_add(value)
    }

    /// Cross-attention to a source whose keys and values are kept.
    fn cross(&mut self, name: &str, attention: &Attention, width: usize) -> u64 {
        let shape = (attention.heads * attention.key_dim, width);
        let query = self.linear(&format!("{name}.query"), self.rows, shape);
        if attention.qk_norm.is_some() {
            self.replace(query);
        }
        let out = self.mix(name, attention, self.source, width);
        self.drop(query);
        out
    }

    /// Queries by way of a latent, brought to the width of the keys' latents.
    fn latent_queries(&mut self, name: &str, attention: &Attention, latent: &Latent, width: usize) -> u64 {
        let head = latent.key_dim + latent.rope_dim;
        let down = latent.query_rank.map_or(0, |rank| {
            let down = self.linear(&format!("{name}.query_down"), self.rows, (rank, width));
            self.replace(down);
            down
        });
        let shape = (attention.heads * head, latent.query_rank.unwrap_or(width));
        let query = self.linear(&format!("{name}.query"), self.rows, shape);
        self.drop(down);
        let core = self.floats(self.rows, attention.heads * attention.key_dim);
        let turned = self.floats(self.rows, attention.heads * latent.rope_dim);
        // The heads are alike, and one is alive at a time.
        let part = self.floats(self.rows, latent.key_dim);
        let compared = self.linear(&format!("{name}.key_up.0"), self.rows, (latent.rank, latent.key_dim));
        self.drop(part.saturating_add(compared).saturating_add(turned).saturating_add(query));
        core
    }

    /// Latents, which are keys and values.
    fn latent_keys(&mut self, name: &str, attention: &Attention, latent: &Latent, width: usize) -> u64 {
        let key = self.linear(&format!("{name}.latent"), self.rows, (attention.key_dim, width));
        let parts = [latent.rank, latent.rank, latent.rope_dim].map(|width| self.floats(self.rows, width));
        self.drop(parts.iter().sum());
        key
    }

    /// The core and the output projection.
    fn mix(&mut self, name: &str, attention: &Attention, keys: usize, width: usize) -> u64 {
        let Attention { heads, kv_heads, key_dim, value_dim, .. } = *attention;
        let mut mixed = self.floats(self.rows, heads * value_dim);
        let tables = match &attention.position {
            Position::Disentangled(relative) => self.distances(relative, attention, width),
            Position::None
            | Position::Rope(_)
            | Position::Alibi(_)
            | Position::RelativeBias(_)
            | Position::StackBias => 0,
        };
        let scratch = flash_bytes(Heads { heads, kv_heads, key_dim, value_dim }, self.rows, keys) as u64;
        self.take(scratch.saturating_sub(self.scratch));
        self.scratch = self.scratch.max(scratch);
        self.drop(tables);
        let mut input = heads * value_dim;
        if let Some(latent) = &attention.latent {
            let values = self.floats(self.rows, heads * latent.value_dim);
            let part = self.floats(self.rows, latent.rank);
            let given = self.linear(&format!("{name}.value_up.0"), self.rows, (latent.value_dim, latent.rank));
            self.drop(part.saturating_add(given).saturating_add(mixed));
            (mixed, input) = (values, heads * latent.value_dim);
        }
        let out = self.linear(&format!("{name}.out"), self.rows, (width, input));
        self.drop(mixed);
        out
    }

    /// The projected rows of distances, and the tables of one sequence's queries and keys against them.
    fn distances(&mut self, relative: &Disentangled, attention: &Attention, width: usize) -> u64 {
        let (span, query) = (2 * relative.span, attention.heads * attention.key_dim);
        let mut made = 0u64;
        for (term, own) in [(relative.position_key, "key"), (relative.position_query, "query")] {
            if term.is_some() {
                made = made.saturating_add(self.linear(own, span, (query, width)));
                made = made.saturating_add(self.floats(attention.heads * self.length, span));
            }
        }
        made
    }

    /// The feed-forward part of the layer `name`; returns its output.
    fn ffn(&mut self, name: &str, ffn: &Ffn, width: usize) -> u64 {
        match ffn {
            Ffn::Mlp { hidden, .. } => {
                let up = self.linear(&format!("{name}.ffn.up"), self.rows, (*hidden, width));
                let out = self.linear(&format!("{name}.ffn.down"), self.rows, (width, *hidden));
                self.drop(up);
                out
            }
            Ffn::Gated { hidden, .. } | Ffn::GatedOutBias { hidden, .. } => {
                self.gated(&format!("{name}.ffn"), *hidden, width)
            }
            Ffn::Moe(moe) => self.experts(&format!("{name}.ffn"), moe, width),
        }
    }

    fn gated(&mut self, name: &str, hidden: usize, width: usize) -> u64 {
        let (up, gate) = (format!("{name}.up"), format!("{name}.gate"));
        let [up, gate] = self.linears([(&up, hidden), (&gate, hidden)], self.rows, width);
        self.drop(up);
        let out = self.linear(&format!("{name}.down"), self.rows, (width, hidden));
        self.drop(gate);
        out
    }

    /// A mixture: the choices' rows side by side, through experts that are taken to be chosen evenly.
    fn experts(&mut self, name: &str, moe: &Moe, width: usize) -> u64 {
        let logits = self.linear(&format!("{name}.router"), self.rows, (moe.experts, width));
        self.replace(logits);
        self.drop(logits);
        let choices = self.rows.saturating_mul(moe.chosen);
        // Numbers of experts and of choices, and their weights.
        let lists = self.take((choices as u64).saturating_mul(20));
        let input = self.floats(choices, width);
        let each = choices.div_ceil(moe.experts.max(1));
        let mut all = lists.saturating_add(input);
        for (part, out, inner) in [("up", moe.hidden, width), ("gate", moe.hidden, width), ("down", width, moe.hidden)]
        {
            all = all.saturating_add(self.floats(choices, out));
            let one = self.linear(&format!("{name}.experts.0.{part}"), each, (out, inner));
            self.drop(one);
        }
        let out = self.floats(self.rows, width);
        if let Some(shared) = &moe.shared {
            let given = self.gated(&format!("{name}.shared"), shared.hidden, width);
            self.drop(given);
        }
        self.drop(all);
        out
    }

    /// The head over some of the hidden states' rows: their copy, the features, and the logits.
    fn head(&mut self, spec: &ModelSpec, rows: usize) {
        let width = spec.output_stack().output_width();
        self.prefix = "";
        match &spec.head {
            Head::None => {}
            Head::Lm(lm) => {
                let narrow = lm.tied || lm.transform.is_some();
                let inner = if narrow { spec.output_stack().embed.width } else { width };
                self.features(&lm.transform, rows, (inner, width));
                let table = match &spec.body {
                    Body::EncoderDecoder { .. } => "encoder.embed.tokens",
                    Body::Encoder(_) | Body::Decoder(_) => "embed.tokens",
                };
                self.linear(if lm.tied { table } else { "head" }, rows, (lm.vocab, inner));
            }
            Head::Token { labels, transform, .. } => self.labels(transform, rows, (*labels, width)),
            Head::Span { transform, .. } => self.labels(transform, rows, (2, width)),
            Head::Sequence { labels, transform, .. } => self.labels(transform, 1, (*labels, width)),
        }
    }

    fn labels(&mut self, transform: &Option<Transform>, rows: usize, (labels, width): (usize, usize)) {
        self.features(transform, rows, (width, width));
        self.linear("head", rows, (labels, width));
    }

    /// A copy of the rows, and what the output matrix reads.
    fn features(&mut self, transform: &Option<Transform>, rows: usize, (inner, width): (usize, usize)) {
        self.floats(rows, width);
        match transform {
            None => {
                self.floats(rows, inner);
            }
            Some(transform) => {
                let dense = self.linear("head.transform", rows, (inner, width));
                if transform.norm.is_some() {
                    self.replace(dense);
                }
            }
        }
    }

    /// The cross keys and values of every decoder layer from the hidden states of the encoder.
    /// They are kept, in `held` bytes a layer.
    fn memory(&mut self, decoder: &Stack, held: impl Fn(&Attention) -> u64) {
        self.prefix = "decoder.";
        for layer in &decoder.layers {
            if let Some(cross) = &layer.cross {
                let (key, value) =
                    (format!("layers.{}.cross.key", layer.weights), format!("layers.{}.cross.value", layer.weights));
                let key = (key.as_str(), cross.kv_heads * cross.key_dim);
                let made = self.linears([key, (&value, cross.kv_heads * cross.value_dim)], self.rows, decoder.width);
                if cross.qk_norm.is_some() {
                    self.replace(made[0]);
                }
                self.take(held(cross));
                self.drop(made.iter().sum());
            }
        }
    }
}
