//! What a row costs, read off the description.

use super::report::{Limits, Row};
use super::work::{Kind, Work, texts_at_once};
use attend_model::cost::{Planner, WeightTypes, decode, kv_bytes, prefill};
use attend_nn::KvTypes;
use attend_nn::spec::{Body, Head, ModelSpec};

/// Of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub operations: f64,
    /// Of weights and cache, read from memory; `None` where they are not reckoned.
    pub bytes: Option<f64>,
}

/// The costs of a model's rows.
pub(super) struct Costs<'a> {
    /// The model, without a head where only hidden states are made.
    spec: ModelSpec,
    types: &'a dyn WeightTypes,
    kv: KvTypes,
    chunk: usize,
}

impl<'a> Costs<'a> {
    pub fn new(spec: &ModelSpec, types: &'a dyn WeightTypes, kv: KvTypes, chunk: usize) -> Costs<'a> {
        let spec = match Kind::of(spec) {
            Kind::Continues | Kind::Translates => spec.clone(),
            Kind::Reads(_) => ModelSpec { head: Head::None, pooler: None, ..spec.clone() },
        };
        Costs { spec, types, kv, chunk }
    }

    /// `None` for work that is not made of tokens alone.
    pub fn of(&self, work: &Work) -> Option<Cost> {
        match *work {
            Work::Load | Work::FirstToken { .. } => None,
            Work::Prefill { tokens, depth } => Some(self.prefill(tokens as u64, depth as u64)),
            Work::Decode { tokens, depth, batch } => {
                let middle = depth as f64 + (tokens as f64 + 1.0) / 2.0;
                Some(self.steps(work, tokens, middle, batch as f64))
            }
            Work::Encode { tokens, batch } => Some(self.encode(work, tokens, batch)),
            Work::Write { tokens, source, beams, batch } => {
                let rows = batch as f64 * beams as f64;
                let steps = self.steps(work, tokens, (tokens as f64 + 1.0) / 2.0, rows);
                let read = batch as f64 * prefill(&self.spec, tokens as u64, source as u64).total();
                Some(Cost { operations: steps.operations + read, ..steps })
            }
        }
    }

    /// The work of the tokens alone, and for each chunk the weights and the cache that it reads.
    fn prefill(&self, tokens: u64, depth: u64) -> Cost {
        let until = |context: u64| prefill(&self.spec, context, 0).total();
        // With no tokens there is the head alone, which each prompt has once.
        let operations = until(depth + tokens) - until(depth) + until(0);
        let mut bytes = 0.0;
        for start in (0..tokens).step_by(self.chunk.max(1)) {
            let rows = (tokens - start).min(self.chunk as u64);
            bytes += self.weights(rows) + kv_bytes(&self.spec, depth + start + rows, self.kv) as f64;
        }
        Cost { operations, bytes: Some(bytes) }
    }

    /// Bytes of weights that a step of `rows` rows reads.
    fn weights(&self, rows: u64) -> f64 {
        let planner = Planner::new(&self.spec, self.types);
        let usage = Work::Prefill { tokens: rows as usize, depth: 0 }.usage((self.kv, rows as usize));
        let plan = planner.plan(&usage);
        plan.prefill_flops / plan.prefill_intensity.max(f64::MIN_POSITIVE)
    }

    /// `count` steps of `rows` sequences, whose context is `middle` tokens half way: the cost grows evenly with it.
    fn steps(&self, work: &Work, count: usize, middle: f64, rows: f64) -> Cost {
        let mut usage = work.usage((self.kv, self.chunk));
        usage.context = middle.round().max(1.0) as usize;
        let one = decode(&self.spec, usage.context as u64, usage.source as u64).total();
        let plan = Planner::new(&self.spec, self.types).plan(&usage);
        let bytes = plan.decode_bytes_per_step as f64 * count as f64;
        Cost { operations: one * count as f64 * rows, bytes: Some(bytes) }
    }

    fn encode(&self, work: &Work, tokens: usize, batch: usize) -> Cost {
        if let Body::EncoderDecoder { encoder, .. } = &self.spec.body {
            let alone = ModelSpec { body: Body::Encoder(encoder.clone()), ..self.spec.clone() };
            return Cost { operations: batch as f64 * prefill(&alone, tokens as u64, 0).total(), bytes: None };
        }
        let operations = batch as f64 * prefill(&self.spec, tokens as u64, tokens as u64).total();
        let at_once = texts_at_once(tokens).min(batch);
        let whole = (batch / at_once.max(1)) as f64;
        let rest = (batch % at_once.max(1)) * tokens;
        let rows = work.usage((self.kv, self.chunk)).requests * tokens;
        let rest = if rest > 0 { self.weights(rest as u64) } else { 0.0 };
        Cost { operations, bytes: Some(whole * self.weights(rows as u64) + rest) }
    }
}

impl Row {
    /// Fills in which part of the machine's limits was reached.
    pub(super) fn hold_against(&mut self, limits: &Limits, cost: Cost) {
        let seconds = self.seconds();
        let part = |amount: f64, rate: f64| Some(amount / seconds / rate).filter(|part| part.is_finite());
        self.of_matmul = part(cost.operations, limits.matmul_operations_per_second);
        self.of_bandwidth = cost.bytes.and_then(|bytes| part(bytes, limits.memory_bytes_per_second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attend_kernels::{Compute, DType};
    use attend_model::cost::Uniform;

    const TYPES: Uniform = Uniform { dtype: DType::BF16, compute: Compute::Native };

    fn costs(name: &str) -> Costs<'static> {
        let known = attend_model::describe_known(name).expect("read").expect("a known model");
        Costs::new(&known.spec, &TYPES, KvTypes::both(DType::F16), 512)
    }

    fn close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn a_prompt_in_two_parts_costs_what_it_costs_whole() {
        let costs = costs("llama-3.2-1b");
        let of = |tokens, depth| costs.of(&Work::Prefill { tokens, depth }).expect("tokens");
        // Each part has the head once.
        let head = of(0, 0).operations;
        close(of(512, 0).operations + of(512, 512).operations - head, of(1024, 0).operations);
        close(of(512, 0).bytes.expect("bytes") + of(512, 512).bytes.expect("bytes"), of(1024, 0).bytes.expect("bytes"));
    }

    #[test]
    fn sequences_together_read_the_weights_once() {
        let costs = costs("llama-3.2-1b");
        let of = |depth, batch| costs.of(&Work::Decode { tokens: 128, depth, batch }).expect("tokens");
        let (one, eight, deep) = (of(0, 1), of(0, 8), of(4096, 1));
        close(eight.operations, 8.0 * one.operations);
        let bytes = |cost: Cost| cost.bytes.expect("bytes");
        assert!(bytes(eight) < 1.1 * bytes(one), "{eight:?} {one:?}");
        // 16 layers of 8 heads of 64 numbers in 16 bits, keys and values, for each of the 4096 tokens.
        close(bytes(deep) - bytes(one), 128.0 * 4096.0 * (16 * 8 * 64 * 2 * 2) as f64);
        assert!(deep.operations > one.operations);
    }

    #[test]
    fn encoding_counts_no_head_and_every_step() {
        let costs = costs("bert-base");
        let of = |tokens, batch| costs.of(&Work::Encode { tokens, batch }).expect("tokens");
        // 12 layers: 4 products of [768, 768], 2 of [768, 3072]; scores and mixes of 128 keys for each of 128 queries.
        let layer = 2.0 * 128.0 * (4 * 768 * 768 + 2 * 768 * 3072) as f64 + 4.0 * 768.0 * 128.0 * 128.0;
        close(of(128, 1).operations, 12.0 * layer);
        close(of(128, 32).operations, 32.0 * 12.0 * layer);
        let bytes = |cost: Cost| cost.bytes.expect("bytes");
        let step = texts_at_once(128);
        assert!(step > 1);
        close(bytes(of(128, step)), bytes(of(128, 1)));
        close(bytes(of(128, 4 * step)), 4.0 * bytes(of(128, 1)));
        close(bytes(of(128, 4 * step + 1)), 5.0 * bytes(of(128, 1)));
    }

    #[test]
    fn writing_counts_the_source_and_each_beam() {
        let costs = costs("t5-base");
        let of =
            |beams, batch| costs.of(&Work::Write { tokens: 64, source: 64, beams, batch }).expect("tokens").operations;
        let read = prefill(&costs.spec, 64, 64).total();
        close(of(4, 1) - read, 4.0 * (of(1, 1) - read));
        close(of(1, 8), 8.0 * of(1, 1));
    }
}
