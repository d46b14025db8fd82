//! From a batch and what it should give to the loss and its gradients.

use crate::error::Error;
use attend_nn::loss::{Loss, Smoothing, binary_cross_entropy, cross_entropy_over, mean_squared_error};
use attend_nn::spec::{Body, StackKind};
use attend_nn::{Batch, Encoded, Gradients, Model, RunOptions, Sequence, Tape};

/// A packed batch with its targets. Sequences carry no caches.
#[derive(Debug)]
pub struct TrainBatch<'a> {
    /// The sequences of the only stack, or of the encoder.
    pub inputs: Vec<Sequence<'a>>,
    /// Those of the decoder of a model with two stacks, one for each input.
    pub outputs: Option<Vec<Sequence<'a>>>,
    pub targets: Targets,
}

/// What the output stack should give.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// A class for every token, or none: the next token of a language model, the token behind a mask, a tag.
    Tokens(Vec<Option<usize>>),
    /// A number from 0 to 1 for every token, of a head with one output.
    Marks(Vec<f32>),
    /// A class for every sequence.
    Classes(Vec<Option<usize>>),
    /// Several labels at once, 0 or 1, [B, labels].
    Labels(Vec<f32>),
    /// Numbers for every sequence, [B, labels].
    Values(Vec<f32>),
    /// The first and last row of an answer within each sequence.
    Spans { starts: Vec<Option<usize>>, ends: Vec<Option<usize>> },
}

/// How many targets count: what sums are divided by. Micro-batches of one step share it, so that a target weighs the
/// same wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub targets: usize,
    /// Ends of spans, which are averaged apart from their starts.
    pub ends: usize,
}

impl Targets {
    /// Labels for a packed causal model from the tokens themselves: each row's label is the next token of its
    /// sequence, the last row has none.
    pub fn next_tokens(sequences: &[Sequence]) -> Targets {
        let labels = sequences.iter().flat_map(|sequence| {
            let next = sequence.token_ids.iter().skip(1).map(|id| Some(*id as usize));
            next.chain((!sequence.token_ids.is_empty()).then_some(None))
        });
        Targets::Tokens(labels.collect())
    }

    pub fn count(&self) -> Count {
        let some = |labels: &[Option<usize>]| labels.iter().flatten().count();
        match self {
            Targets::Tokens(labels) | Targets::Classes(labels) => Count { targets: some(labels), ends: 0 },
            Targets::Marks(values) | Targets::Labels(values) | Targets::Values(values) => {
                Count { targets: values.len(), ends: 0 }
            }
            Targets::Spans { starts, ends } => Count { targets: some(starts), ends: some(ends) },
        }
    }
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(self, other: Count) -> Count {
        Count { targets: self.targets + other.targets, ends: self.ends + other.ends }
    }
}

/// What a caller chooses about the loss.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossOptions {
    pub smoothing: Smoothing,
}

/// The batch's part of the loss, whose gradients are added to `grads`.
///
/// # Errors
/// When tokens are outside the vocabulary, or targets are as many or of a kind as the model does not have outputs.
pub fn loss_and_gradients(
    model: &Model,
    batch: TrainBatch,
    count: Count,
    options: &LossOptions,
    grads: &mut Gradients,
) -> Result<f64, Error> {
    let TrainBatch { inputs, outputs, targets } = batch;
    let run = RunOptions::default();
    let mut tape = Tape::new();
    let mut first = Batch { sequences: inputs, encoded: None };
    let lengths = |batch: &Batch| batch.sequences.iter().map(|s| s.token_ids.len()).collect::<Vec<_>>();
    let texts: Vec<&[u32]> = first.sequences.iter().map(|sequence| sequence.token_ids).collect();
    match (&model.spec().body, outputs) {
        (Body::EncoderDecoder { .. }, Some(sequences)) => {
            let hidden = model.forward(StackKind::Encoder, &mut first, &run, &mut tape)?;
            let encoded = Some(Encoded { hidden: &hidden, lengths: lengths(&first) });
            let mut second = Batch { sequences, encoded };
            let decoded = model.forward(StackKind::Decoder, &mut second, &run, &mut tape)?;
            let head = HeadPass { model, targets: &targets, lengths: lengths(&second), texts, count, options };
            let (loss, d_decoded) = head.run(&decoded, &mut tape, grads)?;
            let balance = balance(model, StackKind::Decoder, &mut tape)?;
            let d_encoded = model.backward(StackKind::Decoder, &second, &tape, &d_decoded, grads)?;
            model.backward(StackKind::Encoder, &first, &tape, &d_encoded, grads)?;
            Ok(loss + balance)
        }
        (Body::EncoderDecoder { .. }, None) => {
            Err(Error::Unsuited { what: "an encoder-decoder's", needs: "sequences for the decoder" })
        }
        (Body::Encoder(_) | Body::Decoder(_), Some(_)) => {
            Err(Error::Unsuited { what: "a second stack's", needs: "a model with two stacks" })
        }
        (body @ (Body::Encoder(_) | Body::Decoder(_)), None) => {
            let stack = if matches!(body, Body::Encoder(_)) { StackKind::Encoder } else { StackKind::Decoder };
            let hidden = model.forward(stack, &mut first, &run, &mut tape)?;
            let head = HeadPass { model, targets: &targets, lengths: lengths(&first), texts, count, options };
            let (loss, dhidden) = head.run(&hidden, &mut tape, grads)?;
            let balance = balance(model, stack, &mut tape)?;
            model.backward(stack, &first, &tape, &dhidden, grads)?;
            Ok(loss + balance)
        }
    }
}

/// What the load-balancing loss of a mixture of experts adds, where the description asks for one. It is a mean over the
/// batch's own tokens, however many batches a step has.
fn balance(model: &Model, stack: StackKind, tape: &mut Tape) -> Result<f64, Error> {
    let balance = model.load_balancing(stack, tape)?;
    Ok(balance.map_or(0.0, |balance| balance.value * f64::from(balance.coefficient)))
}

/// The head over the output stack's hidden states, forth and back.
struct HeadPass<'a> {
    model: &'a Model,
    targets: &'a Targets,
    /// Rows of each sequence of the output stack.
    lengths: Vec<usize>,
    /// The tokens of each input, by which some heads find the row they read.
    texts: Vec<&'a [u32]>,
    count: Count,
    options: &'a LossOptions,
}

impl HeadPass<'_> {
    /// The loss and the gradient of the hidden states.
    fn run(&self, hidden: &[f32], tape: &mut Tape, grads: &mut Gradients) -> Result<(f64, Vec<f32>), Error> {
        match self.targets {
            Targets::Tokens(_) | Targets::Marks(_) | Targets::Spans { .. } => {
                let logits = self.model.logits(hidden, tape)?;
                let loss = self.loss(&logits, self.lengths.iter().sum())?;
                Ok((loss.value, self.model.backward_logits(tape, &loss.gradient, grads)))
            }
            Targets::Classes(_) | Targets::Labels(_) | Targets::Values(_) => {
                let logits = self.model.sequence_logits_of(hidden, &self.texts, tape)?;
                let loss = self.loss(&logits, self.texts.len())?;
                let dhidden = self.model.backward_sequence_logits_of(tape, &loss.gradient, &self.texts, grads)?;
                Ok((loss.value, dhidden))
            }
        }
    }

    /// The loss of `rows` rows of logits.
    fn loss(&self, logits: &[f32], rows: usize) -> Result<Loss, Error> {
        let classes = logits.len() / rows.max(1);
        let total = self.count.targets.max(1) as f64;
        match self.targets {
            Targets::Tokens(labels) | Targets::Classes(labels) => {
                check("labels", rows, labels.len())?;
                check_classes(labels, classes)?;
                Ok(cross_entropy_over(logits, classes, labels, self.options.smoothing, total))
            }
            Targets::Marks(values) | Targets::Labels(values) => {
                check("labels", logits.len(), values.len())?;
                Ok(shared(binary_cross_entropy(logits, values), total))
            }
            Targets::Values(values) => {
                check("values", logits.len(), values.len())?;
                Ok(shared(mean_squared_error(logits, values), total))
            }
            Targets::Spans { starts, ends } => self.spans(logits, starts, ends),
        }
    }

    /// The mean of the cross-entropies of starts and of ends, each over the rows of its own sequence.
    fn spans(&self, logits: &[f32], starts: &[Option<usize>], ends: &[Option<usize>]) -> Result<Loss, Error> {
        check("spans", self.lengths.len(), starts.len())?;
        check("spans", self.lengths.len(), ends.len())?;
        check("outputs of a span head", 2 * self.lengths.iter().sum::<usize>(), logits.len())?;
        let mut whole = Loss { value: 0.0, gradient: Vec::with_capacity(logits.len()) };
        let (mut rest, totals) = (logits, [self.count.targets, self.count.ends]);
        for (index, length) in self.lengths.iter().enumerate() {
            let (rows, tail) = rest.split_at(2 * length);
            rest = tail;
            let mut sides = Vec::with_capacity(2);
            for (side, labels) in [starts, ends].into_iter().enumerate() {
                // A position beyond the sequence is one that does not count.
                let label = labels.get(index).copied().flatten().filter(|at| at < length);
                let logits: Vec<f32> = rows.iter().skip(side).step_by(2).copied().collect();
                let total = 2.0 * totals.get(side).copied().unwrap_or(0).max(1) as f64;
                let part = cross_entropy_over(&logits, *length, &[label], self.options.smoothing, total);
                whole.value += part.value;
                sides.push(part.gradient.into_iter());
            }
            if let [start, end] = sides.as_mut_slice() {
                whole.gradient.extend(start.zip(end).flat_map(|(start, end)| [start, end]));
            }
        }
        Ok(whole)
    }
}

fn check(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Targets { what, expected, found }) }
}

fn check_classes(labels: &[Option<usize>], classes: usize) -> Result<(), Error> {
    match labels.iter().flatten().find(|label| **label >= classes) {
        Some(&target) => Err(Error::Class { target, classes }),
        None => Ok(()),
    }
}

/// A mean over a batch as its part of a mean over `total` targets.
fn shared(mut loss: Loss, total: f64) -> Loss {
    let share = loss.gradient.len() as f64 / total;
    if share != 1.0 {
        loss.value *= share;
        loss.gradient.iter_mut().for_each(|d| *d = (f64::from(*d) * share) as f32);
    }
    loss
}
