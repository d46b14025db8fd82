//! A model with its weights: the stacks, the pooler and the head, and the calls that run them.

use crate::batch::{Batch, Sequence};
use crate::cache::{KvCache, KvTypes, Memory};
use crate::change::Weights;
use crate::error::Error;
use crate::grads::Gradients;
use crate::head::{HeadLayer, PoolerLayer, offer_rows, offered_rows};
use crate::observer::{Nobody, Observer, Tape};
use crate::spec::{Head, ModelSpec, SequenceSource, StackKind};
use crate::walk::{RunOptions, StackParts};

#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) spec: ModelSpec,
    pub(crate) encoder: Option<StackParts>,
    pub(crate) decoder: Option<StackParts>,
    pub(crate) pooler: Option<PoolerLayer>,
    pub(crate) head: HeadLayer,
    pub(crate) weights: Weights,
    pub(crate) weight_bytes: usize,
}

impl Model {
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Bytes that the weights take in memory, shared ones counted once.
    pub fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Tokens of the output vocabulary, for a model with an LM head.
    pub fn vocab(&self) -> Option<usize> {
        match &self.spec.head {
            Head::Lm(lm) => Some(lm.vocab),
            Head::None | Head::Sequence { .. } | Head::Token { .. } | Head::Span { .. } => None,
        }
    }

    fn stack(&self, kind: StackKind) -> Result<&StackParts, Error> {
        match kind {
            StackKind::Encoder => self.encoder.as_ref().ok_or(Error::Missing("encoder")),
            StackKind::Decoder => self.decoder.as_ref().ok_or(Error::Missing("decoder")),
        }
    }

    /// Takes a packed batch through a stack and returns the hidden states after its final norm, [N, D]. Keys and
    /// values of the tokens are added to the sequences' caches.
    pub fn forward<O: Observer + ?Sized>(
        &self,
        stack: StackKind,
        batch: &mut Batch,
        options: &RunOptions,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        self.stack(stack)?.forward(batch, options, observer)
    }

    /// The head over rows of hidden states: logits [rows, V] of an LM head, [rows, labels] of a token head,
    /// [rows, 2] (start, end) of a span head.
    pub fn logits<O: Observer + ?Sized>(&self, hidden: &[f32], observer: &mut O) -> Result<Vec<f32>, Error> {
        let mut rows = hidden.to_vec();
        offer_rows(&mut rows, self.spec.output_stack().width, observer);
        self.head.forward(&rows, observer)
    }

    /// The pooler over the first row of each sequence, [B, D].
    pub fn pool<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        lengths: &[usize],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let pooler = self.pooler.as_ref().ok_or(Error::Missing("pooler"))?;
        let mut rows = self.gather(hidden, lengths, |_| 0);
        offer_rows(&mut rows, self.spec.output_stack().width, observer);
        Ok(pooler.forward(&rows, observer))
    }

    /// The logits of a sequence head, [B, labels].
    pub fn sequence_logits<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        lengths: &[usize],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        if self.reads_pooler() {
            let pooled = self.pool(hidden, lengths, observer)?;
            return self.head.forward(&pooled, observer);
        }
        let mut rows = self.gather(hidden, lengths, |length| self.head.source_row(length));
        offer_rows(&mut rows, self.spec.output_stack().width, observer);
        self.head.forward(&rows, observer)
    }

    fn reads_pooler(&self) -> bool {
        matches!(self.spec.head, Head::Sequence { source: SequenceSource::Pooler, .. })
    }

    /// One row of each sequence.
    fn gather(&self, hidden: &[f32], lengths: &[usize], row: impl Fn(usize) -> usize) -> Vec<f32> {
        let width = self.spec.output_stack().width;
        let mut start = 0;
        let mut rows = Vec::with_capacity(lengths.len() * width);
        for &length in lengths {
            let from = (start + row(length)) * width;
            rows.extend_from_slice(&hidden[from..from + width]);
            start += length;
        }
        rows
    }

    /// An empty cache for the decoder.
    pub fn cache(&self, types: KvTypes) -> Result<KvCache, Error> {
        let decoder = self.stack(StackKind::Decoder)?;
        KvCache::new(decoder.layers.iter().map(|layer| &layer.attention.spec), types)
    }

    /// The cross-attention keys and values of one encoded source, `hidden` [S, D].
    pub fn memory(&self, hidden: &[f32], types: KvTypes) -> Result<Memory, Error> {
        let decoder = self.stack(StackKind::Decoder)?;
        let crosses = || decoder.layers.iter().filter_map(|layer| layer.cross.as_ref().map(|(cross, _)| cross));
        if crosses().count() != decoder.layers.len() {
            return Err(Error::Missing("cross-attention"));
        }
        let mut cache = KvCache::new(crosses().map(|cross| &cross.spec), types)?;
        let mut rows = 0;
        for (depth, cross) in crosses().enumerate() {
            let (key, value) = cross.project_source(hidden);
            rows = key.len() / cross.key.out_features();
            cache.write(depth, 0, &key, &value);
        }
        cache.advance(rows);
        Ok(Memory(cache))
    }

    /// Encodes one source and keeps its cross-attention keys and values.
    pub fn encode(&self, token_ids: &[u32], types: KvTypes, options: &RunOptions) -> Result<Memory, Error> {
        let mut batch = Batch::one(Sequence::new(token_ids));
        let hidden = self.forward(StackKind::Encoder, &mut batch, options, &mut Nobody)?;
        self.memory(&hidden, types)
    }

    /// From the gradient of [`Model::logits`] to that of its rows.
    pub fn backward_logits(&self, tape: &Tape, dlogits: &[f32], grads: &mut Gradients) -> Vec<f32> {
        self.head.backward(tape, dlogits, offered_rows(tape), grads)
    }

    /// From the gradient of [`Model::sequence_logits`] to that of the hidden states, [N, D].
    pub fn backward_sequence_logits(
        &self,
        tape: &Tape,
        dlogits: &[f32],
        lengths: &[usize],
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let width = self.spec.output_stack().width;
        let drows = match (&self.pooler, self.reads_pooler()) {
            (Some(pooler), true) => {
                let pooled = tape.get(crate::site::Site::head(crate::site::HeadPart::Pooled));
                let dpooled = self.head.backward(tape, dlogits, pooled, grads);
                let mut dfirst = vec![0.0; lengths.len() * width];
                pooler.backward(tape, &dpooled, &mut dfirst, grads);
                dfirst
            }
            _ => self.head.backward(tape, dlogits, offered_rows(tape), grads),
        };
        let mut dhidden = vec![0.0; lengths.iter().sum::<usize>() * width];
        let mut start = 0;
        for (drow, &length) in drows.chunks_exact(width).zip(lengths) {
            let row = start + self.head.source_row(length);
            dhidden[row * width..(row + 1) * width].copy_from_slice(drow);
            start += length;
        }
        dhidden
    }

    /// From the gradient of a stack's output to those of its weights, given the tape of the forward pass of the same
    /// batch. Returns the gradient of the encoder's hidden states where the batch carried them, else nothing.
    pub fn backward(
        &self,
        stack: StackKind,
        batch: &Batch,
        tape: &Tape,
        dhidden: &[f32],
        grads: &mut Gradients,
    ) -> Result<Vec<f32>, Error> {
        self.stack(stack)?.backward(batch, tape, dhidden, grads)
    }
}
