//! Every weight's gradient against central differences, over decoders with every option and an encoder-decoder.
//!
//! The walk computes in f32, so a difference over a step of 1e-2 is good to about 1e-3 of the gradient's size; the
//! loss itself is summed in f64.

mod common;

use attend_nn::loss::cross_entropy;
use attend_nn::spec::{AbsolutePositions, Body, Head, ModelSpec, StackKind};
use attend_nn::{Batch, Encoded, Gradients, Model, Nobody, Observer, RunOptions, Sequence, Tape};
use common::*;

struct Data {
    source: Vec<Vec<u32>>,
    target: Vec<Vec<u32>>,
    labels: Vec<Option<usize>>,
}

fn data() -> Data {
    let mut random = Random(7);
    let target = vec![random.tokens(7), random.tokens(4)];
    let labels = (0..11).map(|index| (index % 5 != 3).then_some((index * 5 + 2) % VOCAB)).collect();
    Data { source: vec![random.tokens(5), random.tokens(8)], target, labels }
}

/// The target side as a batch, over the encoder's hidden states where the model has an encoder.
fn batch<'a>(data: &'a Data, encoded: Option<&'a [f32]>) -> Batch<'a> {
    let mut batch = Batch { sequences: data.target.iter().map(|ids| Sequence::new(ids)).collect(), encoded: None };
    batch.encoded = encoded.map(|hidden| Encoded { hidden, lengths: data.source.iter().map(Vec::len).collect() });
    batch
}

fn encode(model: &Model, data: &Data, observer: &mut impl Observer) -> Option<Vec<f32>> {
    let two = matches!(model.spec().body, Body::EncoderDecoder { .. });
    let options = RunOptions::default();
    two.then(|| model.forward(StackKind::Encoder, &mut Batch::of(&data.source), &options, observer).unwrap())
}

fn loss(model: &Model, data: &Data, observer: &mut impl Observer) -> (f64, Vec<f32>, Option<Vec<f32>>) {
    let encoded = encode(model, data, observer);
    let mut batch = batch(data, encoded.as_deref());
    let hidden = model.forward(StackKind::Decoder, &mut batch, &RunOptions::default(), observer).unwrap();
    let logits = model.logits(&hidden, observer).unwrap();
    let loss = cross_entropy(&logits, VOCAB, &data.labels);
    (loss.value, loss.gradient, encoded)
}

fn gradients(model: &Model, data: &Data) -> Gradients {
    let mut tape = Tape::new();
    let mut grads = Gradients::all();
    let (_, dlogits, encoded) = loss(model, data, &mut tape);
    let dhidden = model.backward_logits(&tape, &dlogits, &mut grads);
    let batch = batch(data, encoded.as_deref());
    let dencoded = model.backward(StackKind::Decoder, &batch, &tape, &dhidden, &mut grads).unwrap();
    if encoded.is_some() {
        let source = Batch::of(&data.source);
        model.backward(StackKind::Encoder, &source, &tape, &dencoded, &mut grads).unwrap();
    }
    grads
}

/// Compares, for every weight, the derivative along a random direction.
fn check(name: &str, spec: &ModelSpec) {
    let weights = Weights::random(spec, 11);
    let data = data();
    let grads = gradients(&weights.model(spec), &data);
    differences(name, spec, &weights, &grads, &|model| loss(model, &data, &mut Nobody).0);
}

#[test]
fn decoders_with_every_option() {
    for (name, spec) in decoders() {
        check(name, &spec);
    }
}

#[test]
fn encoder_decoder_with_cross_attention() {
    check("encoder-decoder", &encoder_decoder());
}

#[test]
fn frozen_weights_have_no_slot() {
    let (_, spec) = decoders().swap_remove(0);
    let weights = Weights::random(&spec, 3);
    let model = weights.model(&spec);
    let data = data();
    let mut tape = Tape::new();
    let mut grads = Gradients::only(["layers.1.ffn.up.bias".to_owned()]);
    let (_, dlogits, _) = loss(&model, &data, &mut tape);
    let dhidden = model.backward_logits(&tape, &dlogits, &mut grads);
    model.backward(StackKind::Decoder, &batch(&data, None), &tape, &dhidden, &mut grads).unwrap();
    assert_eq!(grads.values().keys().collect::<Vec<_>>(), ["layers.1.ffn.up.bias"]);
    let all = gradients(&model, &data);
    assert_eq!(grads.values()["layers.1.ffn.up.bias"], all.values()["layers.1.ffn.up.bias"]);
}

/// The padding token's row has no gradient from being read, and all others have what they had.
#[test]
fn padding_stays_as_it_is() {
    let (_, mut spec) = decoders().swap_remove(0);
    let Body::Decoder(stack) = &mut spec.body else { panic!("a decoder") };
    stack.embed.uncounted = Some(3);
    stack.embed.positions = AbsolutePositions::Learned { rows: 40, offset: 4 };
    let mut padded = spec.clone();
    let Body::Decoder(stack) = &mut padded.body else { panic!("a decoder") };
    stack.embed.padding = Some(3);
    let Head::Lm(head) = &spec.head else { panic!("an LM") };
    let weights = Weights::random(&spec, 11);
    let mut data = data();
    data.target[0][2] = 3;
    let (with, without) = (gradients(&weights.model(&padded), &data), gradients(&weights.model(&spec), &data));
    for (name, rows) in [("embed.tokens.weight", 3), ("embed.positions.weight", 3)] {
        for (row, (with, without)) in
            with.values()[name].chunks_exact(WIDTH).zip(without.values()[name].chunks_exact(WIDTH)).enumerate()
        {
            let read = name.contains("tokens") && head.tied;
            match row == rows {
                true if read => assert_ne!(with, without, "{name}: the output matrix's part alone is left"),
                true => assert!(with.iter().all(|d| *d == 0.0) && without.iter().any(|d| *d != 0.0), "{name}"),
                false => assert_eq!(with, without, "{name} row {row}"),
            }
        }
    }
}
