//! The walk: a stack's embedding, its layers one after another, and its final norm; and the way back.

use crate::attention::{AttentionKind, Step, StepGradient};
use crate::batch::{Batch, Packed};
use crate::conv::ConvLayer;
use crate::embed::EmbedLayer;
use crate::error::Error;
use crate::grads::Gradients;
use crate::layer::{At, LayerParts};
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::position::PositionSet;
use crate::site::{LayerPart, Place, Site};
use crate::spec::StackKind;
use std::ops::Range;

/// What a caller chooses about a walk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    pub attention: AttentionKind,
}

/// A stack with its weights.
#[derive(Debug, Clone)]
pub struct StackParts {
    /// The stack's kind where the model has two, so that sites are told apart.
    pub site: Option<StackKind>,
    pub embed: EmbedLayer,
    pub positions: PositionSet,
    pub layers: Vec<LayerParts>,
    /// Joins the stream after the first layer.
    pub conv: Option<ConvLayer>,
    pub final_norm: Option<NormLayer>,
    pub narrowing: Option<Linear>,
}

impl StackParts {
    fn at(&self, place: Place) -> Site {
        Site { stack: self.site, place }
    }

    /// Takes a batch through the stack: [N, D]. New keys and values are added to the sequences' caches.
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        batch: &mut Batch,
        options: &RunOptions,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let packed = Packed::new(batch)?;
        self.check_memory(batch)?;
        self.check_adapters(batch, &packed)?;
        let mut x = self.embed.forward(&packed, |place| self.at(place), observer)?;
        self.layers_forward(&mut x, 0..self.layers.len(), batch, &packed, options, observer);
        let shape = [packed.rows(), x.len() / packed.rows()];
        offer(observer, self.at(Place::Stream), &mut x, &shape);
        if let Some(norm) = &self.final_norm {
            x = norm.forward(&x);
        }
        if let Some(narrowing) = &self.narrowing {
            offer(observer, self.at(Place::Normed), &mut x, &shape);
            x = narrowing.forward(&x, &packed.adapters);
        }
        let shape = [packed.rows(), x.len() / packed.rows()];
        offer(observer, self.at(Place::Hidden), &mut x, &shape);
        for sequence in &mut batch.sequences {
            let tokens = sequence.token_ids.len();
            if let Some(cache) = &mut sequence.cache {
                cache.advance(tokens);
            }
        }
        Ok(x)
    }

    /// Takes the residual stream `x` through some of the layers.
    fn layers_forward<O: Observer + ?Sized>(
        &self,
        x: &mut Vec<f32>,
        range: Range<usize>,
        batch: &mut Batch,
        packed: &Packed,
        options: &RunOptions,
        observer: &mut O,
    ) {
        let tables = self.positions.tables(packed);
        let mut step = Step { packed, batch, tables: &tables, kind: options.attention };
        let mut embedded = self.conv.as_ref().filter(|_| range.start == 0).map(|conv| (conv, x.clone()));
        for (depth, layer) in self.layers.iter().enumerate().take(range.end).skip(range.start) {
            let at = At { stack: self.site, layer: depth };
            layer.forward(x, at, &mut step, observer);
            if let (0, Some((conv, embedded))) = (depth, &mut embedded) {
                conv.forward(embedded, x, packed, |place| self.at(place), observer);
            }
            let shape = [packed.rows(), x.len() / packed.rows()];
            offer(observer, at.site(LayerPart::Out), x, &shape);
        }
    }

    /// Cross-attention needs an encoded source for every sequence.
    fn check_memory(&self, batch: &Batch) -> Result<(), Error> {
        let relative = |layer: &LayerParts| layer.attention.relative.is_some();
        if self.layers.iter().any(relative) && batch.sequences.iter().any(|sequence| sequence.cache.is_some()) {
            return Err(Error::Missing("cache: its attention looks at the whole sequence"));
        }
        let crosses = self.layers.iter().any(|layer| layer.cross.is_some());
        let missing = batch.encoded.is_none() && batch.sequences.iter().any(|sequence| sequence.memory.is_none());
        if crosses && missing {
            Err(Error::Missing("encoded source for the cross-attention of a sequence"))
        } else {
            Ok(())
        }
    }

    /// Products of what belongs to no sequence of the batch, or not to its rows, know one model's adapters only.
    fn check_adapters(&self, batch: &Batch, packed: &Packed) -> Result<(), Error> {
        let relative = self.layers.iter().any(|layer| layer.attention.relative.is_some());
        match (packed.adapters.are_own(), relative, batch.encoded.is_some()) {
            (true, _, _) | (false, false, false) => Ok(()),
            (false, true, _) => Err(Error::Adapters("projected distances")),
            (false, false, true) => Err(Error::Adapters("a source that is projected in the step")),
        }
    }

    /// From the gradient of the stack's output to those of its weights; returns that of the encoder's hidden states
    /// where the batch carried them. `tape` watched the forward pass of the same batch, without caches.
    pub(crate) fn backward(
        &self,
        batch: &Batch,
        tape: &Tape,
        dhidden: &[f32],
        grads: &mut Gradients,
    ) -> Result<Vec<f32>, Error> {
        let packed = Packed::new(batch)?;
        let tables = self.positions.tables(&packed);
        let encoded = batch.encoded.as_ref().map(|encoded| encoded.hidden);
        let mut step = StepGradient {
            packed: &packed,
            tables: &tables,
            encoded,
            d_encoded: vec![0.0; encoded.map_or(0, <[f32]>::len)],
            d_biases: tables.biases.iter().map(|table| vec![0.0; table.values.len()]).collect(),
            d_relative: vec![0.0; tables.relative.len()],
        };
        let mut dx = dhidden.to_vec();
        if let Some(narrowing) = &self.narrowing {
            let normed = tape.get(self.at(Place::Normed));
            dx = vec![0.0; normed.len()];
            narrowing.backward(normed, dhidden, &mut dx, grads);
        }
        if let Some(norm) = &self.final_norm {
            let mut dstream = vec![0.0; dx.len()];
            norm.backward(tape.get(self.at(Place::Stream)), &dx, &mut dstream, grads);
            dx = dstream;
        }
        let mut dembedded = None;
        for (depth, layer) in self.layers.iter().enumerate().rev() {
            if let (0, Some(conv)) = (depth, &self.conv) {
                dembedded = Some(conv.backward(&mut dx, &packed, tape, |place| self.at(place), grads));
            }
            dx = layer.backward(dx, At { stack: self.site, layer: depth }, tape, &mut step, grads);
        }
        if let Some(dembedded) = dembedded {
            dx.iter_mut().zip(dembedded).for_each(|(dx, d)| *dx += d);
        }
        self.embed.backward(&packed, tape, |place| self.at(place), dx, grads);
        self.positions.backward(&tables, &step, grads);
        Ok(step.d_encoded)
    }
}
