//! The gradients of classifiers of sequences, tokens and spans over an encoder, against central differences.

mod common;

use attend_nn::loss::cross_entropy;
use attend_nn::spec::*;
use attend_nn::{Batch, Gradients, Model, Nobody, Observer, RunOptions, Tape};
use common::*;

const LABELS: usize = 3;

fn data() -> Vec<Vec<u32>> {
    let mut random = Random(9);
    vec![random.tokens(6), random.tokens(1), random.tokens(9)]
}

fn spec(head: Head, pooler: Option<Pooler>) -> ModelSpec {
    let attention = Attention { mask: Mask::Full, ..attention(3, 3) };
    let mut stack = stack(layer(Wiring::PostNorm, LAYER, attention, mlp()));
    stack.final_norm = None;
    ModelSpec { body: Body::Encoder(stack), pooler, head, context: None }
}

fn transform(bias: bool, norm: Option<Norm>) -> Option<Transform> {
    Some(Transform { bias, activation: Activation::Tanh, norm })
}

fn hidden(model: &Model, data: &[Vec<u32>], observer: &mut impl Observer) -> Vec<f32> {
    model.forward(StackKind::Encoder, &mut Batch::of(data), &RunOptions::default(), observer).unwrap()
}

#[test]
fn sequences() {
    let pooler = Some(Pooler { activation: Activation::Tanh });
    let cases = [
        (SequenceSource::Pooler, pooler, None),
        (SequenceSource::First, None, None),
        (SequenceSource::First, None, transform(true, None)),
        (SequenceSource::Last, None, transform(false, Some(LAYER))),
        (SequenceSource::Mean, None, None),
        (SequenceSource::Mean, None, transform(true, Some(LAYER))),
        (SequenceSource::LastOf { id: 5 }, None, transform(true, None)),
    ];
    let mut data = data();
    data.iter_mut().for_each(|ids| ids.insert(ids.len() / 2, 5));
    let texts: Vec<&[u32]> = data.iter().map(Vec::as_slice).collect();
    let labels = [Some(1), Some(0), Some(2)];
    for (source, pooler, transform) in cases {
        let spec = spec(Head::Sequence { labels: LABELS, source, transform, bias: true }, pooler);
        let logits = |model: &Model, observer: &mut dyn Observer| {
            let hidden = model.forward(StackKind::Encoder, &mut Batch::of(&data), &RunOptions::default(), observer);
            model.sequence_logits_of(&hidden.unwrap(), &texts, observer).unwrap()
        };
        let weights = Weights::random(&spec, 21);
        let model = weights.model(&spec);
        let (mut tape, mut grads) = (Tape::new(), Gradients::all());
        let loss = cross_entropy(&logits(&model, &mut tape), LABELS, &labels);
        let dhidden = model.backward_sequence_logits_of(&tape, &loss.gradient, &texts, &mut grads).unwrap();
        model.backward(StackKind::Encoder, &Batch::of(&data), &tape, &dhidden, &mut grads).unwrap();
        let value = |model: &Model| cross_entropy(&logits(model, &mut Nobody), LABELS, &labels).value;
        differences(&format!("{source:?} {transform:?}"), &spec, &weights, &grads, &value);
    }
}

#[test]
fn tokens_and_spans() {
    let heads = [
        (Head::Token { labels: LABELS, transform: transform(true, None), bias: true }, LABELS),
        (Head::Token { labels: LABELS, transform: transform(false, Some(LAYER)), bias: false }, LABELS),
        (Head::Span { transform: transform(true, Some(RMS)), bias: true }, 2),
    ];
    let data = data();
    let labels: Vec<Option<usize>> = (0..16).map(|row| (row % 4 != 1).then_some(row % 2)).collect();
    for (head, classes) in heads {
        let spec = spec(head, None);
        let weights = Weights::random(&spec, 22);
        let model = weights.model(&spec);
        let (mut tape, mut grads) = (Tape::new(), Gradients::all());
        let logits = model.logits(&hidden(&model, &data, &mut tape), &mut tape).unwrap();
        let loss = cross_entropy(&logits, classes, &labels);
        let dhidden = model.backward_logits(&tape, &loss.gradient, &mut grads);
        model.backward(StackKind::Encoder, &Batch::of(&data), &tape, &dhidden, &mut grads).unwrap();
        let value = |model: &Model| {
            let logits = model.logits(&hidden(model, &data, &mut Nobody), &mut Nobody).unwrap();
            cross_entropy(&logits, classes, &labels).value
        };
        differences(&format!("{:?}", spec.head), &spec, &weights, &grads, &value);
    }
}

/// A head that finds its row by a token needs the tokens, and the token in each of them.
#[test]
fn the_token_to_read_at_must_be_there() {
    let source = SequenceSource::LastOf { id: 5 };
    let spec = spec(Head::Sequence { labels: LABELS, source, transform: None, bias: true }, None);
    let model = Weights::random(&spec, 23).model(&spec);
    let data = [vec![1, 5, 2], vec![1, 2, 3, 4]];
    let hidden = hidden(&model, &data, &mut Nobody);
    assert!(model.sequence_logits(&hidden, &[3, 4], &mut Nobody).is_err());
    let error = model.sequence_logits_of(&hidden, &[&data[0], &data[1]], &mut Nobody).unwrap_err();
    assert_eq!(error, attend_nn::Error::NoSuchToken { sequence: 1, id: 5 });
}
