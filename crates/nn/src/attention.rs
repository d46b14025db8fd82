//! Attention with its projections: query, key and value, clamp, norm and rotation, the core, and the output projection.

mod backward;
mod latent;
mod padding;
mod relative;

pub(crate) use backward::{CrossGradient, StepGradient};
pub(crate) use latent::LatentParts;
pub use relative::RelativeLayer;

use crate::batch::{Batch, Packed, PackedSequence};
use crate::grads::Gradients;
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::observer::{Nobody, Observer, offer};
use crate::position::{PositionTables, PositionUse};
use crate::row_adapters::RowAdapters;
use crate::site::{BranchPart, Place, Site};
use crate::spec::{Attention, Mask, Position};
use attend_kernels::{
    Bias, Call, DType, Heads, KvBlocks, KvLayout, RopeRows, Scores, attention_mix, attention_probs, attention_scores,
    bytes_of, flash, parallel, rotate, textbook,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Which computation of the core is used: the fused one, or the textbook's with its whole matrix of scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttentionKind {
    #[default]
    Flash,
    Textbook,
}

#[derive(Debug, Clone)]
pub struct AttentionLayer {
    pub spec: Attention,
    pub query: Linear,
    pub key: Linear,
    pub value: Values,
    pub out: Linear,
    pub query_norm: Option<NormLayer>,
    pub key_norm: Option<NormLayer>,
    pub sinks: Option<Sinks>,
    pub positions: PositionUse,
    /// What projects distances, in disentangled attention.
    pub relative: Option<RelativeLayer>,
}

/// One logit a head that takes part in the softmax and has no value.
#[derive(Debug, Clone)]
pub struct Sinks {
    /// The weight's name.
    pub name: String,
    /// [H]
    pub logits: Arc<[f32]>,
}

/// Where values come from.
#[derive(Debug, Clone)]
pub enum Values {
    Projected(Linear),
    /// They are the start of the keys.
    Latent(Box<LatentParts>),
}

/// What attention reads beside its input.
pub(crate) struct Step<'s, 'b> {
    pub packed: &'s Packed,
    pub batch: &'s mut Batch<'b>,
    pub tables: &'s PositionTables,
    pub kind: AttentionKind,
}

/// Where the keys of a sequence's queries are.
pub(crate) enum KeySource<'a> {
    /// The sequence's own tokens, in its cache or in this step's keys and values.
    Own { layer: usize, key: &'a [f32], value: &'a [f32] },
    /// The encoded source: in the sequence's memory, or projected in this step.
    Encoded { layer: usize, projected: Option<(&'a [f32], &'a [f32])> },
}

impl AttentionLayer {
    /// Self-attention of `x` [N, D] in the layer at this depth.
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        layer: usize,
        step: &mut Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let (query, key, value) = match &self.value {
            Values::Projected(value) => {
                let [query, key, value] =
                    Linear::forward_all([&self.query, &self.key, value], x, &step.packed.adapters);
                let query = self.finish_queries(query, step.tables, site, observer);
                let (key, value) = self.finish_keys_values((key, value), Some(step.tables), site, observer);
                (query, key, value)
            }
            Values::Latent(latent) => {
                let query = latent.queries(self, x, step, site, observer);
                (query, latent.keys(self, x, step, site, observer), Vec::new())
            }
        };
        self.write(&key, &value, layer, step);
        let source = KeySource::Own { layer, key: &key, value: &value };
        self.mix(&query, &source, step, site, observer)
    }

    /// Writes the keys and values of a step into the caches of its sequences, of several at the same time.
    fn write(&self, key: &[f32], value: &[f32], layer: usize, step: &mut Step) {
        let caches: Vec<_> = step
            .batch
            .sequences
            .iter_mut()
            .zip(&step.packed.sequences)
            .filter_map(|(sequence, rows)| Some((Mutex::new(sequence.cache.as_mut()?), rows)))
            .collect();
        parallel(caches.len(), |i| {
            let (cache, rows) = &caches[i];
            let (key, value) = (self.key_rows(key, &rows.rows), self.value_rows(value, &rows.rows));
            cache.lock().unwrap_or_else(PoisonError::into_inner).write(layer, rows.past, key, value);
        });
    }

    /// Cross-attention of `x` [N, D] to the encoded source.
    pub(crate) fn forward_cross<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        layer: usize,
        step: &mut Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let query = self.finish_queries(self.query.forward(x, &step.packed.adapters), step.tables, site, observer);
        let encoded = step.batch.encoded.as_ref().map(|encoded| encoded.hidden);
        let projected = encoded.map(|hidden| self.encoded_keys_values(hidden, site, observer));
        let projected = projected.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice()));
        self.mix(&query, &KeySource::Encoded { layer, projected }, step, site, observer)
    }

    /// Clamps, norms and rotates what the query projection gave.
    fn finish_queries<O: Observer + ?Sized>(
        &self,
        mut query: Vec<f32>,
        tables: &PositionTables,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let shape = [query.len() / self.query.out_features(), self.query.out_features()];
        offer(observer, site(BranchPart::QueryRaw), &mut query, &shape);
        self.clamp(&mut query);
        self.norm(&self.query_norm, &mut query);
        offer(observer, site(BranchPart::Query), &mut query, &shape);
        self.rotate(&mut query, self.spec.heads, Some(tables));
        offer(observer, site(BranchPart::QueryRotated), &mut query, &shape);
        query
    }

    /// Clamps and norms what the key and value projections gave; keys are rotated when tables are given.
    fn finish_keys_values<O: Observer + ?Sized>(
        &self,
        (mut key, mut value): (Vec<f32>, Vec<f32>),
        tables: Option<&PositionTables>,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> (Vec<f32>, Vec<f32>) {
        let rows = key.len() / self.key.out_features();
        let shape = [rows, self.key.out_features()];
        offer(observer, site(BranchPart::KeyRaw), &mut key, &shape);
        self.clamp(&mut key);
        self.norm(&self.key_norm, &mut key);
        offer(observer, site(BranchPart::Key), &mut key, &shape);
        self.rotate(&mut key, self.spec.kv_heads, tables);
        offer(observer, site(BranchPart::KeyRotated), &mut key, &shape);
        let shape = [rows, value.len() / rows.max(1)];
        offer(observer, site(BranchPart::ValueRaw), &mut value, &shape);
        self.clamp(&mut value);
        offer(observer, site(BranchPart::Value), &mut value, &shape);
        (key, value)
    }

    /// Keys and values of an encoded source.
    fn encoded_keys_values<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> (Vec<f32>, Vec<f32>) {
        let Values::Projected(value) = &self.value else { panic!("cross-attention has no latents") };
        let [key, value] = Linear::forward_all([&self.key, value], hidden, &RowAdapters::OWN);
        self.finish_keys_values((key, value), None, site, observer)
    }

    /// Keys and values of an encoded source, for [`crate::Memory`].
    pub(crate) fn project_source(&self, hidden: &[f32]) -> (Vec<f32>, Vec<f32>) {
        // Nobody watches, so the site is never looked at.
        let site = |_| Site { stack: None, place: Place::Hidden };
        self.encoded_keys_values(hidden, &site, &mut Nobody)
    }

    fn norm(&self, norm: &Option<NormLayer>, values: &mut Vec<f32>) {
        if let Some(norm) = norm {
            *values = norm.forward(values);
        }
    }

    fn clamp(&self, values: &mut [f32]) {
        if let Some(limit) = self.spec.clip_qkv {
            values.iter_mut().for_each(|value| *value = value.clamp(-limit, limit));
        }
    }

    fn rotate(&self, x: &mut [f32], heads: usize, tables: Option<&PositionTables>) {
        if let Some(tables) = tables
            && let Some(rows) = self.rope_rows(tables)
        {
            rotate(x, heads, &rows);
        }
    }

    fn rope_rows<'t>(&self, tables: &'t PositionTables) -> Option<RopeRows<'t>> {
        let (Position::Rope(rope), Some(index)) = (&self.spec.position, self.positions.rope) else { return None };
        let table = &tables.ropes[index];
        Some(RopeRows {
            head_dim: self.spec.latent.map_or(self.spec.key_dim, |latent| latent.rope_dim),
            rotary_dim: rope.dim,
            pairing: rope.pairing,
            cos: &table.cos,
            sin: &table.sin,
        })
    }

    /// The core and the output projection.
    fn mix<O: Observer + ?Sized>(
        &self,
        query: &[f32],
        source: &KeySource,
        step: &mut Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let width = self.spec.heads * self.spec.value_dim;
        let mut mixed = vec![0.0; step.packed.rows() * width];
        let watched =
            observer.active() && (observer.wants(site(BranchPart::Scores)) || observer.wants(site(BranchPart::Probs)));
        if watched && step.kind == AttentionKind::Flash {
            observer.unfused(site(BranchPart::Scores));
        }
        let mut run = |calls: &mut [Call]| match step.kind {
            AttentionKind::Flash if !watched => flash(calls),
            AttentionKind::Flash | AttentionKind::Textbook if watched => {
                calls.iter_mut().for_each(|call| watched_textbook(call, site, observer));
            }
            AttentionKind::Flash | AttentionKind::Textbook => {
                calls.iter_mut().for_each(|call| textbook(call, None, None));
            }
        };
        let runs = self.runs(source, step, watched);
        let mut calls = self.calls(&runs, query, source, step, &mut mixed);
        match (source, self.relative_vectors(step.tables)) {
            // The tables of one sequence at a time: they are large.
            (KeySource::Own { key, .. }, Some(vectors)) => {
                for (call, packed) in calls.into_iter().zip(&step.packed.sequences) {
                    let table = vectors.table(self.heads(), query, key, (&packed.rows, &packed.keys));
                    let scores = Scores { bias: table.bias(), bias_scaled: true, ..call.scores };
                    run(&mut [Call { scores, ..call }]);
                }
            }
            (KeySource::Own { .. } | KeySource::Encoded { .. }, _) => run(&mut calls),
        }
        if let (KeySource::Own { value, .. }, Values::Projected(_)) = (source, &self.value) {
            step.packed.sequences.iter().for_each(|packed| self.mix_blind(packed, value, &mut mixed));
        }
        if let Values::Latent(latent) = &self.value {
            mixed = latent.values(&mut mixed, step, site, observer);
        }
        let shape = [step.packed.rows(), self.out.in_features()];
        offer(observer, site(BranchPart::Mixed), &mut mixed, &shape);
        self.out.forward(&mixed, &step.packed.adapters)
    }

    /// One call of the core for each run of sequences.
    fn calls<'c>(
        &'c self,
        runs: &[Range<usize>],
        query: &'c [f32],
        source: &KeySource<'c>,
        step: &'c Step,
        mixed: &'c mut [f32],
    ) -> Vec<Call<'c>> {
        let (query_width, out_width) = (self.spec.heads * self.spec.key_dim, self.spec.heads * self.spec.value_dim);
        let mut calls = Vec::with_capacity(runs.len());
        let mut rest = mixed;
        for run in runs {
            let packed = &step.packed.sequences[run.start];
            let rows = packed.rows.start..step.packed.sequences[run.end - 1].rows.end;
            let (out, tail) = rest.split_at_mut(rows.len() * out_width);
            rest = tail;
            calls.push(Call {
                shape: self.heads(),
                query: &query[rows.start * query_width..rows.end * query_width],
                first_query: packed.past,
                kv: self.keys_of(run.start, packed, source, step),
                scores: self.scores(step.tables),
                out,
            });
        }
        calls
    }

    /// Sequences that one call can take together, so that their keys are read once: neighbours with the same memory, all
    /// of which every query sees. All others, and those that are `watched`, are runs of their own.
    fn runs(&self, source: &KeySource, step: &Step, watched: bool) -> Vec<Range<usize>> {
        let anywhere = self.spec.mask == Mask::Full && self.positions.bias.is_none() && !watched;
        let memory = |index: usize| match source {
            KeySource::Encoded { projected: None, .. } if anywhere => step.batch.sequences[index].memory,
            KeySource::Encoded { .. } | KeySource::Own { .. } => None,
        };
        let mut runs: Vec<Range<usize>> = Vec::new();
        for index in 0..step.packed.sequences.len() {
            match (runs.last_mut(), memory(index)) {
                (Some(run), Some(own)) if memory(index - 1).is_some_and(|before| before.is_same(own)) => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        runs
    }

    fn keys_of<'c>(
        &self,
        index: usize,
        packed: &PackedSequence,
        source: &KeySource<'c>,
        step: &'c Step,
    ) -> KvBlocks<'c> {
        let sequence = &step.batch.sequences[index];
        match source {
            KeySource::Own { layer, key, value } => match &sequence.cache {
                Some(cache) => cache.view(*layer, packed.past + packed.rows.len()),
                None => self.plain(self.key_rows(key, &packed.keys), self.value_rows(value, &packed.keys)),
            },
            KeySource::Encoded { layer, projected } => match (projected, sequence.memory) {
                (Some((key, value)), _) => {
                    let rows = &step.packed.encoded[index];
                    self.plain(self.key_rows(key, rows), self.value_rows(value, rows))
                }
                (None, Some(memory)) => memory.view(*layer),
                (None, None) => panic!("the walk checked that every sequence has a memory"),
            },
        }
    }

    /// Keys and values of this step as one block of f32.
    fn plain<'c>(&self, key: &'c [f32], value: &'c [f32]) -> KvBlocks<'c> {
        let len = key.len() / (self.spec.kv_heads * self.spec.key_dim);
        let values_in_keys = self.spec.latent.is_some();
        KvBlocks {
            key_type: DType::F32,
            value_type: DType::F32,
            layout: KvLayout::TokenMajor,
            block_tokens: len.max(1),
            blocks: vec![(bytes_of(key), if values_in_keys { bytes_of(key) } else { bytes_of(value) })],
            values_in_keys,
            first: 0,
            len,
        }
    }

    fn scores<'c>(&'c self, tables: &'c PositionTables) -> Scores<'c> {
        let table = self.positions.bias.map(|index| &tables.biases[index]);
        Scores {
            scale: self.spec.scale,
            soft_cap: self.spec.soft_cap,
            bias: table.map_or(Bias::None, |table| table.bias()),
            bias_scaled: table.is_some_and(|table| table.scaled),
            mask: self.spec.mask,
            sinks: self.sinks.as_ref().map(|sinks| &*sinks.logits),
        }
    }

    fn heads(&self) -> Heads {
        Heads {
            heads: self.spec.heads,
            kv_heads: self.spec.kv_heads,
            key_dim: self.spec.key_dim,
            value_dim: self.spec.value_dim,
        }
    }

    pub(crate) fn key_rows<'c>(&self, key: &'c [f32], rows: &Range<usize>) -> &'c [f32] {
        let width = self.spec.kv_heads * self.spec.key_dim;
        &key[rows.start * width..rows.end * width]
    }

    pub(crate) fn value_rows<'c>(&self, value: &'c [f32], rows: &Range<usize>) -> &'c [f32] {
        if self.spec.latent.is_some() {
            return &[];
        }
        let width = self.spec.kv_heads * self.spec.value_dim;
        &value[rows.start * width..rows.end * width]
    }
}

/// The textbook core with its scores and probabilities shown to the observer, who may change them.
fn watched_textbook<O: Observer + ?Sized>(call: &mut Call, site: &dyn Fn(BranchPart) -> Site, observer: &mut O) {
    let mut out = vec![0.0; call.out.len()];
    let inputs = call.inputs();
    let shape = [call.shape.heads, inputs.rows(), inputs.keys()];
    let mut matrix = vec![0.0; shape.iter().product()];
    attention_scores(&inputs, &mut matrix);
    offer(observer, site(BranchPart::Scores), &mut matrix, &shape);
    attention_probs(&inputs, &mut matrix);
    offer(observer, site(BranchPart::Probs), &mut matrix, &shape);
    attention_mix(&inputs, &matrix, &mut out);
    call.out.copy_from_slice(&out);
}

/// Adds what the sinks received to their weight's slot.
fn add_sinks(name: &str, values: &[f32], grads: &mut Gradients) {
    if let Some(slot) = grads.slot(name, values.len()) {
        slot.iter_mut().zip(values).for_each(|(slot, value)| *slot += value);
    }
}
