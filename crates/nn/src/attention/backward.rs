//! Attention backward, from the gradient of the branch's output to those of its input and weights.

use super::latent::Back;
use super::{AttentionLayer, Sinks, Values, add_sinks};
use crate::batch::Packed;
use crate::grads::Gradients;
use crate::norm::NormLayer;
use crate::observer::Tape;
use crate::position::PositionTables;
use crate::site::{BranchPart, Site};
use attend_kernels::{Gradients as CoreSlots, Inputs, attention_backward, rotate_back};

/// What the layers of a stack accumulate together on the way back.
pub(crate) struct StepGradient<'s> {
    pub packed: &'s Packed,
    pub tables: &'s PositionTables,
    /// The encoder's hidden states that the batch carried, and their gradient.
    pub encoded: Option<&'s [f32]>,
    pub d_encoded: Vec<f32>,
    /// Gradients of the tables' biases, one for each of [`PositionTables::biases`].
    pub d_biases: Vec<Vec<f32>>,
    /// Gradient of [`PositionTables::relative`].
    pub d_relative: Vec<f32>,
}

/// Which rows the keys were made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrossGradient {
    /// The branch's own input.
    Own,
    /// The encoder's hidden states.
    Encoded,
}

/// Gradients of queries, keys and values as the core saw them.
struct CoreGradient {
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
}

impl AttentionLayer {
    #[allow(clippy::too_many_arguments)] // one caller, and a struct for it would only rename the parameters
    pub(crate) fn backward(
        &self,
        source: CrossGradient,
        site: &dyn Fn(BranchPart) -> Site,
        tape: &Tape,
        dy: &[f32],
        dx: &mut [f32],
        step: &mut StepGradient,
        grads: &mut Gradients,
    ) {
        let x = tape.get(site(BranchPart::In));
        let mixed = tape.get(site(BranchPart::Mixed));
        let mut dmixed = vec![0.0; mixed.len()];
        self.out.backward(mixed, dy, &mut dmixed, grads);
        let value = match &self.value {
            Values::Projected(value) => value,
            Values::Latent(latent) => {
                dmixed = latent.values_backward(tape.get(site(BranchPart::MixedLatent)), &dmixed, grads);
                let core = self.core_backward(source, site, tape, &dmixed, step, grads);
                let mut back = Back { layer: self, tables: step.tables, site, tape, dx, grads };
                latent.queries_backward(core.query, &mut back);
                return latent.keys_backward(&core.key, &core.value, &mut back);
            }
        };
        let mut core = self.core_backward(source, site, tape, &dmixed, step, grads);

        if let Some(rows) = self.rope_rows(step.tables) {
            rotate_back(&mut core.query, self.spec.heads, &rows);
            if source == CrossGradient::Own {
                rotate_back(&mut core.key, self.spec.kv_heads, &rows);
            }
        }
        let dquery = self.before_norm(&self.query_norm, tape.get(site(BranchPart::QueryRaw)), core.query, grads);
        self.query.backward(x, &dquery, dx, grads);
        let dkey = self.before_norm(&self.key_norm, tape.get(site(BranchPart::KeyRaw)), core.key, grads);
        let dvalue = self.before_norm(&None, tape.get(site(BranchPart::ValueRaw)), core.value, grads);
        match (source, step.encoded) {
            (CrossGradient::Encoded, Some(encoded)) => {
                self.key.backward(encoded, &dkey, &mut step.d_encoded, grads);
                value.backward(encoded, &dvalue, &mut step.d_encoded, grads);
            }
            (CrossGradient::Own, _) | (CrossGradient::Encoded, None) => {
                self.key.backward(x, &dkey, dx, grads);
                value.backward(x, &dvalue, dx, grads);
            }
        }
    }

    /// The core's backward, sequence by sequence.
    fn core_backward(
        &self,
        source: CrossGradient,
        site: &dyn Fn(BranchPart) -> Site,
        tape: &Tape,
        dmixed: &[f32],
        step: &mut StepGradient,
        grads: &mut Gradients,
    ) -> CoreGradient {
        let query = tape.get(site(BranchPart::QueryRotated));
        let key = tape.get(site(BranchPart::KeyRotated));
        let value: &[f32] = match &self.value {
            Values::Projected(_) => tape.get(site(BranchPart::Value)),
            Values::Latent(_) => &[],
        };
        let values = key.len() / self.spec.key_dim * self.spec.value_dim;
        let mut d = CoreGradient { query: vec![0.0; query.len()], key: vec![0.0; key.len()], value: vec![0.0; values] };
        let mut dsinks = self.sinks.as_ref().map(|sinks| vec![0.0; sinks.logits.len()]);
        let (query_width, out_width) = (self.spec.heads * self.spec.key_dim, self.spec.heads * self.spec.value_dim);
        let (key_width, value_width) =
            (self.spec.kv_heads * self.spec.key_dim, self.spec.kv_heads * self.spec.value_dim);
        let mut relative = self.relative_vectors(step.tables).map(|vectors| vectors.with_gradient());
        for (index, packed) in step.packed.sequences.iter().enumerate() {
            let rows = packed.rows.clone();
            let keys = match source {
                CrossGradient::Own => packed.keys.clone(),
                CrossGradient::Encoded => step.packed.encoded[index].clone(),
            };
            let table = relative.as_ref().map(|vectors| vectors.table(self.heads(), query, key, (&rows, &keys)));
            let mut d_table = table.as_ref().map(|table| vec![0.0; table.values.len()]);
            let mut scores = self.scores(step.tables);
            if let Some(table) = &table {
                (scores.bias, scores.bias_scaled) = (table.bias(), true);
            }
            let inputs = Inputs {
                shape: self.heads(),
                query: &query[rows.start * query_width..rows.end * query_width],
                first_query: packed.past,
                kv: &self.plain(self.key_rows(key, &keys), self.value_rows(value, &keys)),
                scores: &scores,
            };
            let mut slots = CoreSlots {
                d_query: &mut d.query[rows.start * query_width..rows.end * query_width],
                d_key: &mut d.key[keys.start * key_width..keys.end * key_width],
                d_value: &mut d.value[keys.start * value_width..keys.end * value_width],
                d_bias: match &mut d_table {
                    Some(d_table) => Some(d_table),
                    None => self.positions.bias.map(|index| step.d_biases[index].as_mut_slice()),
                },
                d_sinks: dsinks.as_deref_mut(),
            };
            attention_backward(&inputs, &dmixed[rows.start * out_width..rows.end * out_width], &mut slots);
            if let (CrossGradient::Own, Values::Projected(_)) = (source, &self.value) {
                self.blind_backward(packed, dmixed, &mut d.value);
            }
            if let (Some(vectors), Some(table), Some(d_table)) = (&mut relative, &table, &d_table) {
                vectors.backward(table, d_table, (query, &mut d.query), (key, &mut d.key));
            }
        }
        if let Some(vectors) = relative {
            self.relative_backward(&vectors, step, grads);
        }
        if let (Some(Sinks { name, .. }), Some(dsinks)) = (&self.sinks, &dsinks) {
            add_sinks(name, dsinks, grads);
        }
        d
    }

    /// Back through the norm and the clamp that follow a projection.
    fn before_norm(&self, norm: &Option<NormLayer>, raw: &[f32], mut d: Vec<f32>, grads: &mut Gradients) -> Vec<f32> {
        if let Some(norm) = norm {
            let mut clamped = raw.to_vec();
            self.clamp(&mut clamped);
            let mut dclamped = vec![0.0; d.len()];
            norm.backward(&clamped, &d, &mut dclamped, grads);
            d = dclamped;
        }
        if let Some(limit) = self.spec.clip_qkv {
            d.iter_mut().zip(raw).filter(|(_, raw)| raw.abs() > limit).for_each(|(d, _)| *d = 0.0);
        }
        d
    }
}
