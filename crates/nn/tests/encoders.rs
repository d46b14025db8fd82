//! Encoders: the gradients of their own parts and of classifiers of sequences, tokens and spans, against central
//! differences; and the same bits alone and in company.

mod common;

use attend_nn::loss::cross_entropy;
use attend_nn::site::Site;
use attend_nn::spec::*;
use attend_nn::{Batch, Gradients, Model, Nobody, Observer, Recorder, RunOptions, Sequence, Tape};
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

/// Compares the gradients of a head with a row of logits for every token.
fn check_tokens(name: &str, spec: &ModelSpec, classes: usize, data: &[Vec<u32>]) {
    let rows: usize = data.iter().map(Vec::len).sum();
    let labels: Vec<Option<usize>> = (0..rows).map(|row| (row % 4 != 1).then_some(row % classes)).collect();
    let weights = Weights::random(spec, 22);
    let model = weights.model(spec);
    let (mut tape, mut grads) = (Tape::new(), Gradients::all());
    let logits = model.logits(&hidden(&model, data, &mut tape), &mut tape).unwrap();
    let loss = cross_entropy(&logits, classes, &labels);
    let dhidden = model.backward_logits(&tape, &loss.gradient, &mut grads);
    model.backward(StackKind::Encoder, &Batch::of(data), &tape, &dhidden, &mut grads).unwrap();
    let value = |model: &Model| {
        let logits = model.logits(&hidden(model, data, &mut Nobody), &mut Nobody).unwrap();
        cross_entropy(&logits, classes, &labels).value
    };
    differences(name, spec, &weights, &grads, &value);
}

#[test]
fn tokens_and_spans() {
    let heads = [
        (Head::Token { labels: LABELS, transform: transform(true, None), bias: true }, LABELS),
        (Head::Token { labels: LABELS, transform: transform(false, Some(LAYER)), bias: false }, LABELS),
        (Head::Span { transform: transform(true, Some(RMS)), bias: true }, 2),
    ];
    for (head, classes) in heads {
        check_tokens(&format!("{head:?}"), &spec(head.clone(), None), classes, &data());
    }
}

/// Encoders with the parts that no decoder has.
fn encoders() -> Vec<(String, ModelSpec)> {
    let base = || spec(Head::Token { labels: LABELS, transform: None, bias: true }, None);
    let with = |change: &dyn Fn(&mut Stack)| {
        let mut spec = base();
        change(stack_mut(&mut spec));
        spec
    };
    let mut list = vec![
        (
            "counted positions".to_owned(),
            with(&|stack| {
                stack.embed.uncounted = Some(3);
                stack.embed.positions = AbsolutePositions::Learned { rows: 40, offset: 4 };
            }),
        ),
        (
            "token dropout".to_owned(),
            with(&|stack| stack.embed.token_dropout = Some(TokenDropout { mask: 5, rate: 0.12 })),
        ),
    ];
    list.push((
        "gated, with a bias at the end".to_owned(),
        with(&|stack| {
            let ffn = Ffn::GatedOutBias { hidden: 10, activation: Activation::Gelu };
            stack.layers.iter_mut().for_each(|layer| layer.ffn = ffn.clone());
        }),
    ));
    for groups in [1, 3] {
        let conv = Conv { kernel: 3, groups, activation: Activation::Tanh, norm: LAYER };
        list.push((format!("convolution in {groups} groups"), with(&|stack| stack.conv = Some(conv))));
    }
    let (shared, own) = (Some(RelativeProjection::Shared), Some(RelativeProjection::Own { bias: true }));
    for (key, query, norm) in [(shared, shared, Some(LAYER)), (own, own, None), (own, None, None), (None, shared, None)]
    {
        for max_distance in [None, Some(12)] {
            let relative = Disentangled { span: 4, max_distance, position_key: key, position_query: query };
            let change = |stack: &mut Stack| {
                stack.relative_rows = Some(RelativeRows { rows: 8, norm });
                for layer in &mut stack.layers {
                    layer.attention.position = Position::Disentangled(relative);
                }
            };
            list.push((format!("{relative:?}"), with(&change)));
        }
    }
    list
}

/// Sequences in which the tokens that parts treat apart do occur.
fn special() -> Vec<Vec<u32>> {
    let mut random = Random(31);
    let mut data = vec![random.tokens(7), random.tokens(1), random.tokens(11)];
    for (sequence, at, id) in [(0, 2, 3), (0, 5, 5), (2, 0, 5), (2, 4, 3), (2, 10, 5)] {
        data[sequence][at] = id;
    }
    data
}

#[test]
fn parts_that_no_decoder_has() {
    for (name, spec) in encoders() {
        check_tokens(&name, &spec, LABELS, &special());
    }
}

#[test]
fn packed_equals_alone() {
    for (name, spec) in encoders() {
        let model = Weights::random(&spec, 23).model(&spec);
        let data = special();
        let packed = hidden(&model, &data, &mut Nobody);
        let alone: Vec<f32> = data.iter().flat_map(|ids| hidden(&model, &[ids.clone()], &mut Nobody)).collect();
        assert_eq!(packed, alone, "{name}");
    }
}

#[test]
fn positions_leave_out_the_uncounted_token() {
    let (_, spec) = encoders().swap_remove(0);
    let model = Weights::random(&spec, 24).model(&spec);
    let counted = hidden(&model, &[vec![7, 3, 8]], &mut Nobody);
    let sequence = Sequence { positions: Some(&[0, 9, 1]), ..Sequence::new(&[7, 3, 8]) };
    let options = RunOptions::default();
    let given = model.forward(StackKind::Encoder, &mut Batch::one(sequence), &options, &mut Nobody).unwrap();
    // The uncounted token reads the row before the first position, which no given position names.
    assert_ne!(counted, given);
    let recorder = || Recorder::new(|site: Site| site.to_string() == "embed.sum");
    let (mut first, mut second) = (recorder(), recorder());
    hidden(&model, &[vec![7, 3, 8]], &mut first);
    hidden(&model, &[vec![7, 8]], &mut second);
    let (first, second) = (&first.records[0].value, &second.records[0].value);
    assert_eq!(first[..WIDTH], second[..WIDTH]);
    assert_eq!(first[2 * WIDTH..], second[WIDTH..]);
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

#[test]
fn padding_whose_window_holds_no_key_mixes_all_columns() {
    let mut spec = spec(Head::Token { labels: LABELS, transform: None, bias: true }, None);
    for layer in &mut stack_mut(&mut spec).layers {
        layer.attention.mask = Mask::Window { left: 1, right: 1 };
    }
    let ids = Random(41).tokens(7);
    let batch = || Batch::one(Sequence { padding: 4, ..Sequence::new(&ids) });
    let hidden = |model: &Model, observer: &mut dyn Observer| {
        model.forward(StackKind::Encoder, &mut batch(), &RunOptions::default(), observer).unwrap()
    };
    let labels: Vec<Option<usize>> = (0..7).map(|row| Some(row % LABELS)).collect();
    let weights = Weights::random(&spec, 42);
    let model = weights.model(&spec);
    let (mut tape, mut grads) = (Tape::new(), Gradients::all());
    let logits = model.logits(&hidden(&model, &mut tape), &mut tape).unwrap();
    let loss = cross_entropy(&logits, LABELS, &labels);
    let dhidden = model.backward_logits(&tape, &loss.gradient, &mut grads);
    model.backward(StackKind::Encoder, &batch(), &tape, &dhidden, &mut grads).unwrap();
    let value = |model: &Model| {
        let logits = model.logits(&hidden(model, &mut Nobody), &mut Nobody).unwrap();
        cross_entropy(&logits, LABELS, &labels).value
    };
    differences("padding", &spec, &weights, &grads, &value);
    // What the real tokens give does not depend on the padding.
    let alone = model.forward(
        StackKind::Encoder,
        &mut Batch::one(Sequence::new(&ids[..3])),
        &RunOptions::default(),
        &mut Nobody,
    );
    assert_eq!(hidden(&model, &mut Nobody)[..3 * WIDTH], alone.unwrap()[..]);
}
