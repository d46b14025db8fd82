//! What turns hidden states into answers: the pooler, and the heads for vocabulary, sequence, token and span.

use crate::error::Error;
use crate::grads::Gradients;
use crate::linear::{Linear, input_gradient, weight_gradient};
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::row_adapters::{LayerAdapters, RowAdapters};
use crate::site::{HeadPart, Site};
use crate::spec::{Activation, Head};
use attend_kernels::{Matrix, matmul_all};
use std::sync::Arc;

/// The pooler: dense and activation over a sequence's first token.
#[derive(Debug, Clone)]
pub struct PoolerLayer {
    pub dense: Linear,
    pub activation: Activation,
}

/// A head's weights.
#[derive(Debug, Clone)]
pub struct HeadLayer {
    pub spec: Head,
    pub transform: Option<(Linear, Activation, Option<NormLayer>)>,
    /// The output matrix and its weight's name: the token table's where they are tied.
    pub output: Option<(String, Arc<Matrix>)>,
    pub bias: Option<Arc<[f32]>>,
    /// Adapters beside the output matrix; where it is tied they are the head's alone.
    pub low_rank: LayerAdapters,
}

impl PoolerLayer {
    /// `first` [B, D], the first token of each sequence.
    pub(crate) fn forward<O: Observer + ?Sized>(&self, first: &[f32], observer: &mut O) -> Vec<f32> {
        let mut pooled = self.dense.forward(first, &RowAdapters::OWN);
        let shape = [pooled.len() / self.dense.out_features(), self.dense.out_features()];
        offer(observer, Site::head(HeadPart::PoolerRaw), &mut pooled, &shape);
        self.activation.apply_slice(&mut pooled);
        offer(observer, Site::head(HeadPart::Pooled), &mut pooled, &shape);
        pooled
    }

    pub(crate) fn backward(&self, tape: &Tape, dpooled: &[f32], dfirst: &mut [f32], grads: &mut Gradients) {
        let raw = tape.get(Site::head(HeadPart::PoolerRaw));
        let draw: Vec<f32> = dpooled.iter().zip(raw).map(|(d, raw)| d * self.activation.derivative(*raw)).collect();
        self.dense.backward(tape.get(Site::head(HeadPart::In)), &draw, dfirst, grads);
    }
}

impl HeadLayer {
    /// Rows [rows, D] to logits [rows, V] (or labels, or 2 for spans).
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        rows: &[f32],
        adapters: &RowAdapters,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let Some((_, output)) = &self.output else { return Err(Error::Missing("head")) };
        let mut features = self.features(rows, adapters, observer);
        let shape = [features.len() / output.cols(), output.cols()];
        offer(observer, Site::head(HeadPart::Features), &mut features, &shape);
        let [mut logits] = matmul_all([(output, self.bias.as_deref())], &features);
        adapters.add(&features, output.cols(), std::iter::once((&self.low_rank, logits.as_mut_slice())));
        let shape = [shape[0], output.rows()];
        offer(observer, Site::head(HeadPart::LogitsRaw), &mut logits, &shape);
        let (scale, cap) = self.scale_and_cap();
        if scale != 1.0 {
            logits.iter_mut().for_each(|logit| *logit *= scale);
        }
        if let Some(cap) = cap {
            logits.iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
        }
        offer(observer, Site::head(HeadPart::Logits), &mut logits, &shape);
        Ok(logits)
    }

    fn features<O: Observer + ?Sized>(&self, rows: &[f32], adapters: &RowAdapters, observer: &mut O) -> Vec<f32> {
        let Some((dense, activation, norm)) = &self.transform else { return rows.to_vec() };
        let mut x = dense.forward(rows, adapters);
        let shape = [x.len() / dense.out_features(), dense.out_features()];
        offer(observer, Site::head(HeadPart::TransformRaw), &mut x, &shape);
        activation.apply_slice(&mut x);
        offer(observer, Site::head(HeadPart::Transform), &mut x, &shape);
        match norm {
            Some(norm) => norm.forward(&x),
            None => x,
        }
    }

    fn scale_and_cap(&self) -> (f32, Option<f32>) {
        match &self.spec {
            Head::Lm(lm) => (lm.scale, lm.soft_cap),
            Head::None | Head::Sequence { .. } | Head::Token { .. } | Head::Span { .. } => (1.0, None),
        }
    }

    /// From the logits' gradient to that of the rows, which the caller gave forward as [`HeadPart::In`].
    pub(crate) fn backward(&self, tape: &Tape, dlogits: &[f32], rows: &[f32], grads: &mut Gradients) -> Vec<f32> {
        let Some((name, output)) = &self.output else { return vec![0.0; rows.len()] };
        let (scale, cap) = self.scale_and_cap();
        let raw = tape.get(Site::head(HeadPart::LogitsRaw));
        let dlogits: Vec<f32> = match cap {
            None => dlogits.iter().map(|d| d * scale).collect(),
            Some(cap) => {
                let slope = |raw: f32| 1.0 - (raw * scale / cap).tanh().powi(2);
                dlogits.iter().zip(raw).map(|(d, raw)| d * slope(*raw) * scale).collect()
            }
        };
        let features = tape.get(Site::head(HeadPart::Features));
        let mut dfeatures = vec![0.0; features.len()];
        input_gradient(output, &dlogits, &mut dfeatures);
        weight_gradient(name, output, features, &dlogits, grads);
        for adapter in &self.low_rank.own {
            adapter.backward(features, &dlogits, &mut dfeatures, grads);
        }
        if let Some(bias) = &self.bias
            && let Some(slot) = grads.slot("head.bias", bias.len())
        {
            add_rows(slot, &dlogits);
        }
        let Some((dense, activation, norm)) = &self.transform else { return dfeatures };
        let mut d = match norm {
            None => dfeatures,
            Some(norm) => {
                let activated = tape.get(Site::head(HeadPart::Transform));
                let mut d = vec![0.0; activated.len()];
                norm.backward(activated, &dfeatures, &mut d, grads);
                d
            }
        };
        let raw = tape.get(Site::head(HeadPart::TransformRaw));
        d.iter_mut().zip(raw).for_each(|(d, raw)| *d *= activation.derivative(*raw));
        let mut drows = vec![0.0; rows.len()];
        dense.backward(rows, &d, &mut drows, grads);
        drows
    }
}

/// Offers the rows that a head or the pooler reads.
pub(crate) fn offer_rows<O: Observer + ?Sized>(rows: &mut [f32], width: usize, observer: &mut O) {
    let shape = [rows.len() / width, width];
    offer(observer, Site::head(HeadPart::In), rows, &shape);
}

/// The rows that were offered.
pub(crate) fn offered_rows(tape: &Tape) -> &[f32] {
    tape.get(Site::head(HeadPart::In))
}

fn add_rows(slot: &mut [f32], rows: &[f32]) {
    for row in rows.chunks_exact(slot.len()) {
        slot.iter_mut().zip(row).for_each(|(slot, value)| *slot += value);
    }
}
