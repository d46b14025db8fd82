//! What one way of using a model costs.

use super::weights::{Streamed, WeightTypes};
use super::{activations, flops, held, kv, weights};
use attend_nn::spec::{Body, ModelSpec};
use attend_nn::{BLOCK_TOKENS, KvTypes};
use serde::Serialize;

/// How a model is used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Tokens of each sequence: prompt and answer together, of an encoder-decoder the answer.
    pub context: usize,
    /// Tokens of each source text of an encoder-decoder.
    pub source: usize,
    /// Sequences at the same time; an encoder takes them all in one step.
    pub requests: usize,
    /// The most tokens of a prompt that a decoder reads in one step.
    pub batch: usize,
    pub kv: KvTypes,
}

/// What a description costs. Bytes are bytes of memory; operations count a multiplication and an addition as two.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    pub parameters: u64,
    /// Those that a token meets: of a mixture's experts only the chosen ones.
    pub active_parameters: u64,
    /// Of the weights as they are packed.
    pub weight_bytes: u64,
    /// Of one more token, while every window still fills.
    pub kv_bytes_per_token: u64,
    /// Of one token of the source, in the cross-attention of all layers.
    pub cross_bytes_per_source_token: u64,
    /// Keys and values of all requests, each as long as the context.
    pub kv_cache_bytes: u64,
    /// The same in the blocks that the cache really holds, and while they are the most: when a chunk of a prompt is read, a
    /// window holds the chunk and what its first token sees.
    pub kv_held_bytes: u64,
    /// The most that a step of reading a prompt takes beside weights and the whole cache.
    pub activation_bytes: u64,
    /// Weights, held blocks of the cache and activations.
    pub total_bytes: u64,
    /// Entries of one head's matrix of scores for the whole context, were it stored.
    pub attention_matrix_entries: u64,
    /// Such matrices in the model: one for each head of each layer.
    pub attention_matrices: u64,
    /// To write the last token of the context.
    pub flops_per_token: f64,
    /// The part of it in scores and mixes of values.
    pub attention_flops_per_token: f64,
    /// To read a whole context at once.
    pub prefill_flops: f64,
    pub prefill_flops_per_token: f64,
    /// Bytes of weights and cache that a step reads to write one token of each request at the end of the context.
    pub decode_bytes_per_step: u64,
    /// Operations for each byte read, writing one token of each request.
    pub decode_intensity: f64,
    /// Operations for each byte of weights read, reading a prompt in steps.
    pub prefill_intensity: f64,
}

/// What a machine does at best.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rates {
    /// Bytes read from memory in a second.
    pub memory_bytes_per_second: f64,
    /// Operations of products in a second, for many rows at once.
    pub flops_per_second: f64,
}

/// What to expect of a machine, at best: whichever of reading and computing takes longer.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Speed {
    /// Of all requests together.
    pub decode_tokens_per_second: f64,
    pub decode_bound_by: &'static str,
    pub prefill_tokens_per_second: f64,
    pub prefill_bound_by: &'static str,
    /// To read a whole context.
    pub prefill_seconds: f64,
}

/// A description with its types of weights, summed up once for any number of plans.
pub struct Planner<'a> {
    pub spec: &'a ModelSpec,
    types: &'a dyn WeightTypes,
    parameters: u64,
    active_parameters: u64,
    weight_bytes: u64,
    streamed: Streamed,
}

impl<'a> Planner<'a> {
    pub fn new(spec: &'a ModelSpec, types: &'a dyn WeightTypes) -> Planner<'a> {
        let count = |parameters: u128| u64::try_from(parameters).unwrap_or(u64::MAX);
        Planner {
            spec,
            types,
            parameters: count(weights::parameters(spec)),
            active_parameters: count(weights::active_parameters(spec)),
            weight_bytes: weights::weight_bytes(spec, types),
            streamed: Streamed::new(spec, types),
        }
    }

    /// What one way of using the model costs.
    pub fn plan(&self, usage: &Usage) -> Plan {
        let spec = self.spec;
        let requests = usage.requests as u64;
        let (context, source) = (usage.context as u64, usage.source as u64);
        let cross = kv::cross_bytes_per_token(spec, usage.kv);
        let of = |own: u64, source: u64| own.saturating_add(cross.saturating_mul(source)).saturating_mul(requests);
        let kv_cache_bytes = of(kv::kv_bytes(spec, context, usage.kv), source);
        let kv_held_bytes = self.held_bytes(usage).saturating_mul(requests);
        let weight_bytes = self.weight_bytes;
        let read = self.streamed.bytes(requests);
        let activation_bytes = self.activation_bytes(usage);
        let decode_bytes = read.saturating_add(kv_cache_bytes);
        let (decode, prefill) = (flops::decode(spec, context, source), flops::prefill(spec, context, source));
        let read_tokens = if matches!(spec.body, Body::EncoderDecoder { .. }) { source } else { context }.max(1);
        let steps = read_tokens.div_ceil(usage.batch.max(1) as u64).max(1);
        Plan {
            parameters: self.parameters,
            active_parameters: self.active_parameters,
            weight_bytes,
            kv_bytes_per_token: kv::kv_bytes_per_token(spec, usage.kv),
            cross_bytes_per_source_token: cross,
            kv_cache_bytes,
            kv_held_bytes,
            activation_bytes,
            total_bytes: weight_bytes.saturating_add(kv_held_bytes).saturating_add(activation_bytes),
            attention_matrix_entries: context.saturating_mul(context),
            attention_matrices: matrices(spec),
            flops_per_token: decode.total(),
            attention_flops_per_token: decode.attention,
            prefill_flops: prefill.total(),
            prefill_flops_per_token: prefill.total() / read_tokens as f64,
            decode_bytes_per_step: decode_bytes,
            decode_intensity: decode.total() * requests as f64 / decode_bytes.max(1) as f64,
            prefill_intensity: prefill.total()
                / (self.streamed.bytes(read_tokens.min(usage.batch.max(1) as u64)).max(1) as f64 * steps as f64),
        }
    }
}

impl Planner<'_> {
    /// Blocks of one request's cache, cross-attention included.
    fn held_bytes(&self, usage: &Usage) -> u64 {
        let source = usage.source.next_multiple_of(BLOCK_TOKENS) as u64;
        let cross = kv::cross_bytes_per_token(self.spec, usage.kv).saturating_mul(source);
        held::held_bytes(self.spec, usage.context as u64, usage.batch, usage.kv).saturating_add(cross)
    }

    /// What the largest step takes beyond the caches of all requests: a chunk at the end of the context (of an encoder,
    /// all texts whole), or the encoding of the last sources, whose requests have no cache yet.
    fn activation_bytes(&self, usage: &Usage) -> u64 {
        let rows = match self.spec.body {
            Body::Encoder(_) => usage.context.saturating_mul(usage.requests),
            Body::Decoder(_) | Body::EncoderDecoder { .. } => usage.batch.min(usage.context),
        };
        let last = activations::prefill_bytes(self.spec, self.types, rows.max(1), usage.context, usage.source);
        // Sources are encoded together as long as they fill no more than a chunk.
        let sources = (usage.batch / usage.source.max(1)).clamp(1, usage.requests.max(1));
        let encode = activations::encode_bytes(self.spec, self.types, sources, usage.source, usage.kv);
        last.max(encode.saturating_sub(self.held_bytes(usage).saturating_mul(sources as u64)))
    }
}

impl Plan {
    /// What a machine of these rates may reach.
    pub fn speed(&self, usage: &Usage, rates: &Rates) -> Speed {
        let bound = |compute: f64, read: f64| if compute > read { "arithmetic" } else { "memory" };
        let compute = self.flops_per_token * usage.requests as f64 / rates.flops_per_second;
        let read = self.decode_bytes_per_step as f64 / rates.memory_bytes_per_second;
        let prompt = self.prefill_flops / rates.flops_per_second;
        let prompt_read = self.prefill_flops / self.prefill_intensity.max(1e-9) / rates.memory_bytes_per_second;
        let seconds = prompt.max(prompt_read);
        Speed {
            decode_tokens_per_second: usage.requests as f64 / compute.max(read),
            decode_bound_by: bound(compute, read),
            prefill_tokens_per_second: self.prefill_flops / self.prefill_flops_per_token.max(1.0) / seconds,
            prefill_bound_by: bound(prompt, prompt_read),
            prefill_seconds: seconds,
        }
    }
}

/// Heads of all attentions.
fn matrices(spec: &ModelSpec) -> u64 {
    let layers = spec.stacks().into_iter().flat_map(|(_, _, stack)| &stack.layers);
    layers.map(|layer| (layer.attention.heads + layer.cross.as_ref().map_or(0, |cross| cross.heads)) as u64).sum()
}
