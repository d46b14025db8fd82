//! A model with its weights: the stacks, the pooler and the head, and the calls that run them.

use crate::batch::{Batch, Encoded, Sequence};
use crate::cache::{KvCache, KvTypes, Memory};
use crate::change::Weights;
use crate::error::Error;
use crate::grads::Gradients;
use crate::head::{HeadLayer, PoolerLayer, offer_rows, offered_rows};
use crate::observer::{Nobody, Observer, Tape};
use crate::row_adapters::{Adapters, RowAdapters};
use crate::spec::{Head, ModelSpec, SequenceSource, StackKind};
use crate::walk::{RunOptions, StackParts};
use std::ops::Range;

#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) spec: ModelSpec,
    pub(crate) encoder: Option<StackParts>,
    pub(crate) decoder: Option<StackParts>,
    pub(crate) pooler: Option<PoolerLayer>,
    pub(crate) head: HeadLayer,
    pub(crate) weights: Weights,
    pub(crate) weight_bytes: usize,
    pub(crate) adapters: Adapters,
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

    pub(crate) fn stack(&self, kind: StackKind) -> Result<&StackParts, Error> {
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
        self.logits_of(hidden, &RowAdapters::OWN, observer)
    }

    /// The same, where sequences have adapters of their own.
    pub fn logits_of<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        adapters: &RowAdapters,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let mut rows = hidden.to_vec();
        offer_rows(&mut rows, self.spec.output_stack().output_width(), observer);
        self.head.forward(&rows, adapters, observer)
    }

    /// The pooler over the first row of each sequence, [B, D].
    pub fn pool<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        lengths: &[usize],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let pooler = self.pooler.as_ref().ok_or(Error::Missing("pooler"))?;
        let first: Vec<Range<usize>> = ranges(lengths).into_iter().map(|range| range.start..range.start + 1).collect();
        let mut rows = self.means(hidden, &first);
        offer_rows(&mut rows, self.spec.output_stack().output_width(), observer);
        Ok(pooler.forward(&rows, observer))
    }

    /// The logits of a sequence head, [B, labels].
    ///
    /// # Errors
    /// [`Error::Missing`] where the head finds its row by a token id: [`Model::sequence_logits_of`] has them.
    pub fn sequence_logits<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        lengths: &[usize],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        if self.reads_pooler() {
            let pooled = self.pool(hidden, lengths, observer)?;
            return self.head.forward(&pooled, &RowAdapters::OWN, observer);
        }
        self.logits_of_means(hidden, &self.read_by_length(lengths)?, observer)
    }

    /// The same where the texts' tokens are known. For an encoder-decoder these are the source's, which its decoder reads
    /// too, one place later ([`Model::read_twice`]).
    ///
    /// # Errors
    /// [`Error::NoSuchToken`] for a text without the token at which the head reads.
    pub fn sequence_logits_of<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        texts: &[&[u32]],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        match self.read_by_id(texts)? {
            Some(rows) => self.logits_of_means(hidden, &rows, observer),
            None => self.sequence_logits(hidden, &lengths_of(texts), observer),
        }
    }

    fn logits_of_means<O: Observer + ?Sized>(
        &self,
        hidden: &[f32],
        read: &[Range<usize>],
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let mut rows = self.means(hidden, read);
        offer_rows(&mut rows, self.spec.output_stack().output_width(), observer);
        self.head.forward(&rows, &RowAdapters::OWN, observer)
    }

    fn reads_pooler(&self) -> bool {
        matches!(self.spec.head, Head::Sequence { source: SequenceSource::Pooler, .. })
    }

    /// The rows of which a sequence head reads the mean (mostly one), found by the sequences' lengths alone.
    fn read_by_length(&self, lengths: &[usize]) -> Result<Vec<Range<usize>>, Error> {
        let source = match self.spec.head {
            Head::Sequence { source, .. } => source,
            Head::None | Head::Lm(_) | Head::Token { .. } | Head::Span { .. } => SequenceSource::First,
        };
        let read = |rows: Range<usize>| match source {
            SequenceSource::Pooler | SequenceSource::First => Ok(rows.start..rows.start + 1),
            SequenceSource::Last => Ok(rows.end.saturating_sub(1)..rows.end),
            SequenceSource::Mean => Ok(rows),
            SequenceSource::LastOf { .. } => Err(Error::Missing("token ids by which its head finds the row to read")),
        };
        ranges(lengths).into_iter().map(read).collect()
    }

    /// The rows that a head finds by a token's id, where it does.
    fn read_by_id(&self, texts: &[&[u32]]) -> Result<Option<Vec<Range<usize>>>, Error> {
        let Head::Sequence { source: SequenceSource::LastOf { id }, .. } = self.spec.head else { return Ok(None) };
        let last = |(sequence, (rows, ids)): (usize, (Range<usize>, &&[u32]))| {
            let found = ids.iter().rposition(|token| *token == id).map(|index| rows.start + index);
            found.map(|row| row..row + 1).ok_or(Error::NoSuchToken { sequence, id })
        };
        ranges(&lengths_of(texts)).into_iter().zip(texts).enumerate().map(last).collect::<Result<_, _>>().map(Some)
    }

    /// The mean of each range of rows.
    fn means(&self, hidden: &[f32], read: &[Range<usize>]) -> Vec<f32> {
        let width = self.spec.output_stack().output_width();
        let mut means = Vec::with_capacity(read.len() * width);
        for rows in read {
            let values = &hidden[rows.start * width..rows.end * width];
            let sum = |column: usize| values.iter().skip(column).step_by(width).map(|x| f64::from(*x)).sum::<f64>();
            match rows.len() {
                1 => means.extend_from_slice(values),
                length => means.extend((0..width).map(|column| (sum(column) / length as f64) as f32)),
            }
        }
        means
    }

    /// An empty cache for the decoder.
    pub fn cache(&self, types: KvTypes) -> Result<KvCache, Error> {
        let decoder = self.stack(StackKind::Decoder)?;
        KvCache::new(decoder.layers.iter().map(|layer| &layer.attention.spec), types)
    }

    /// The cross-attention keys and values of encoded sources that lie end to end in `hidden` [S, D], for each of so many
    /// tokens.
    pub fn memories(&self, hidden: &[f32], lengths: &[usize], types: KvTypes) -> Result<Vec<Memory>, Error> {
        let decoder = self.stack(StackKind::Decoder)?;
        let crosses = || decoder.layers.iter().filter_map(|layer| layer.cross.as_ref().map(|(cross, _)| cross));
        if crosses().count() != decoder.layers.len() {
            return Err(Error::Missing("cross-attention"));
        }
        let empty = |_: &usize| KvCache::new(crosses().map(|cross| &cross.spec), types);
        let mut caches = lengths.iter().map(empty).collect::<Result<Vec<KvCache>, Error>>()?;
        for (depth, cross) in crosses().enumerate() {
            let (key, value) = cross.project_source(hidden);
            for (cache, rows) in caches.iter_mut().zip(ranges(lengths)) {
                cache.write(depth, 0, cross.key_rows(&key, &rows), cross.value_rows(&value, &rows));
            }
        }
        for (cache, length) in caches.iter_mut().zip(lengths) {
            cache.advance(*length);
        }
        Ok(caches.into_iter().map(Memory::new).collect())
    }

    /// Encodes sources in one step and keeps the cross-attention keys and values of each.
    pub fn encode(&self, sources: &[&[u32]], types: KvTypes, options: &RunOptions) -> Result<Vec<Memory>, Error> {
        let sequences = sources.iter().map(|ids| Sequence::new(ids)).collect();
        let mut batch = Batch { sequences, encoded: None };
        let hidden = self.forward(StackKind::Encoder, &mut batch, options, &mut Nobody)?;
        self.memories(&hidden, &lengths_of(sources), types)
    }

    /// The hidden states [N, D] of an encoder-decoder that reads each text twice: its encoder as the text stands, its
    /// decoder one place later, behind its token of `starts`. Heads over whole texts (classes, spans) read these (Lewis et
    /// al. 2020, section 3).
    pub fn read_twice<O: Observer + ?Sized>(
        &self,
        texts: &[&[u32]],
        starts: &[u32],
        options: &RunOptions,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        if starts.len() != texts.len() {
            return Err(Error::Length { field: "starts", expected: texts.len(), found: starts.len() });
        }
        let sequences = texts.iter().map(|ids| Sequence::new(ids)).collect();
        let mut batch = Batch { sequences, ..Batch::default() };
        let hidden = self.forward(StackKind::Encoder, &mut batch, options, observer)?;
        let later: Vec<Vec<u32>> = texts.iter().zip(starts).map(|(ids, start)| one_later(ids, *start)).collect();
        let encoded = Encoded { hidden: &hidden, lengths: lengths_of(texts) };
        let mut batch = Batch { encoded: Some(encoded), ..Batch::of(&later) };
        self.forward(StackKind::Decoder, &mut batch, options, observer)
    }

    /// From the gradient of [`Model::logits`] to that of its rows.
    pub fn backward_logits(&self, tape: &Tape, dlogits: &[f32], grads: &mut Gradients) -> Vec<f32> {
        self.head.backward(tape, dlogits, offered_rows(tape), grads)
    }

    /// From the gradient of [`Model::sequence_logits`] to that of the hidden states, [N, D].
    ///
    /// # Errors
    /// As [`Model::sequence_logits`].
    pub fn backward_sequence_logits(
        &self,
        tape: &Tape,
        dlogits: &[f32],
        lengths: &[usize],
        grads: &mut Gradients,
    ) -> Result<Vec<f32>, Error> {
        Ok(self.backward_means(tape, dlogits, &self.read_by_length(lengths)?, (lengths.iter().sum(), grads)))
    }

    /// From the gradient of [`Model::sequence_logits_of`] to that of the hidden states, [N, D].
    ///
    /// # Errors
    /// As [`Model::sequence_logits_of`].
    pub fn backward_sequence_logits_of(
        &self,
        tape: &Tape,
        dlogits: &[f32],
        texts: &[&[u32]],
        grads: &mut Gradients,
    ) -> Result<Vec<f32>, Error> {
        let lengths = lengths_of(texts);
        match self.read_by_id(texts)? {
            Some(rows) => Ok(self.backward_means(tape, dlogits, &rows, (lengths.iter().sum(), grads))),
            None => self.backward_sequence_logits(tape, dlogits, &lengths, grads),
        }
    }

    fn backward_means(
        &self,
        tape: &Tape,
        dlogits: &[f32],
        read: &[Range<usize>],
        (rows, grads): (usize, &mut Gradients),
    ) -> Vec<f32> {
        let width = self.spec.output_stack().output_width();
        let drows = match (&self.pooler, self.reads_pooler()) {
            (Some(pooler), true) => {
                let pooled = tape.get(crate::site::Site::head(crate::site::HeadPart::Pooled));
                let dpooled = self.head.backward(tape, dlogits, pooled, grads);
                let mut dfirst = vec![0.0; read.len() * width];
                pooler.backward(tape, &dpooled, &mut dfirst, grads);
                dfirst
            }
            _ => self.head.backward(tape, dlogits, offered_rows(tape), grads),
        };
        let mut dhidden = vec![0.0; rows * width];
        for (drow, rows) in drows.chunks_exact(width).zip(read) {
            for row in dhidden[rows.start * width..rows.end * width].chunks_exact_mut(width) {
                row.iter_mut().zip(drow).for_each(|(slot, d)| *slot = d / rows.len() as f32);
            }
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

/// A text one place later: the start token in front, the last token left out.
pub fn one_later(ids: &[u32], start: u32) -> Vec<u32> {
    let kept = ids.len().saturating_sub(1);
    std::iter::once(start).chain(ids.iter().take(kept).copied()).collect()
}

fn lengths_of(texts: &[&[u32]]) -> Vec<usize> {
    texts.iter().map(|ids| ids.len()).collect()
}

/// The rows of each of several sequences laid end to end.
fn ranges(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut next = 0;
    let mut range = |length: &usize| {
        next += length;
        next - length..next
    };
    lengths.iter().map(&mut range).collect()
}
