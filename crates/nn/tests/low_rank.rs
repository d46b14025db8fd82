//! Adapters beside frozen weights: their gradients against differences, their merged twin, and what is refused.

mod common;

use attend_kernels::Matrix;
use attend_nn::loss::cross_entropy;
use attend_nn::spec::{Body, Embed, StackKind};
use attend_nn::{Batch, Changes, Error, Gradients, LowRank, Model, Nobody, Observer, RunOptions, Tape};
use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const RANK: usize = 3;
const SCALE: f32 = 0.7;

/// Layers with their inputs and outputs: projections, the head, and the token table.
const LAYERS: [(&str, usize, usize); 5] = [
    ("embed.tokens", VOCAB, WIDTH),
    ("layers.0.attention.query", WIDTH, 8),
    ("layers.1.attention.out", 8, WIDTH),
    ("layers.1.ffn.down", 20, WIDTH),
    ("head", WIDTH, VOCAB),
];

fn base() -> Model {
    let mut spec = decoders().swap_remove(0).1;
    if let Body::Decoder(stack) = &mut spec.body {
        stack.embed = Embed { scale: 1.5, ..stack.embed.clone() };
    }
    Weights::random(&spec, 21).model(&spec)
}

/// Values of every adapter's two matrices, by their names.
fn values() -> BTreeMap<String, Vec<f32>> {
    let mut random = Random(4);
    let mut values = BTreeMap::new();
    for (layer, inputs, outputs) in LAYERS {
        values.insert(format!("{layer}.a"), random.values(inputs * RANK, 0.5));
        values.insert(format!("{layer}.b"), random.values(outputs * RANK, 0.5));
    }
    values
}

fn adapters(values: &BTreeMap<String, Vec<f32>>) -> BTreeMap<String, Vec<LowRank>> {
    let each = |(layer, inputs, outputs): (&str, usize, usize)| {
        let (a_name, b_name) = (format!("{layer}.a"), format!("{layer}.b"));
        let (rows, cols) = if layer == "embed.tokens" { (inputs, RANK) } else { (RANK, inputs) };
        let a = Arc::new(Matrix::from_f32(rows, cols, &values[&a_name]));
        let b = Arc::new(Matrix::from_f32(outputs, RANK, &values[&b_name]));
        (layer.to_owned(), vec![LowRank { a_name, b_name, a, b, scale: SCALE }])
    };
    LAYERS.into_iter().map(each).collect()
}

fn adapted(model: &Model, values: &BTreeMap<String, Vec<f32>>) -> Model {
    model.with(Changes { low_rank: Some(adapters(values)), ..Changes::default() }).unwrap()
}

fn tokens() -> Vec<Vec<u32>> {
    let mut random = Random(9);
    vec![random.tokens(6), random.tokens(3)]
}

fn logits(model: &Model, observer: &mut impl Observer) -> Vec<f32> {
    let tokens = tokens();
    let options = RunOptions::default();
    let hidden = model.forward(StackKind::Decoder, &mut Batch::of(&tokens), &options, observer).unwrap();
    model.logits(&hidden, observer).unwrap()
}

fn labels() -> Vec<Option<usize>> {
    (0..9).map(|index| (index % 4 != 2).then_some((index * 3 + 1) % VOCAB)).collect()
}

#[test]
fn gradients_of_adapters_are_those_of_differences() {
    let (model, start) = (base(), values());
    let mut tape = Tape::new();
    let mut grads = Gradients::only(start.keys().cloned());
    let adapted_model = adapted(&model, &start);
    let loss = cross_entropy(&logits(&adapted_model, &mut tape), VOCAB, &labels());
    let dhidden = adapted_model.backward_logits(&tape, &loss.gradient, &mut grads);
    let tokens = tokens();
    adapted_model.backward(StackKind::Decoder, &Batch::of(&tokens), &tape, &dhidden, &mut grads).unwrap();
    assert_eq!(grads.values().keys().collect::<Vec<_>>(), start.keys().collect::<Vec<_>>());
    let mut random = Random(5);
    for (name, values) in &start {
        let direction = random.values(values.len(), 1.0);
        let norm = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
        let step = 1e-2 / norm;
        let moved = |sign: f32| {
            let mut moved = start.clone();
            let values = moved.get_mut(name).unwrap();
            values.iter_mut().zip(&direction).for_each(|(value, d)| *value += sign * step * d);
            cross_entropy(&logits(&adapted(&model, &moved), &mut Nobody), VOCAB, &labels()).value
        };
        let expected = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step)) / f64::from(norm);
        let gradient = &grads.values()[name];
        let found: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum::<f64>() / f64::from(norm);
        let size = gradient.iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
        assert!(size > 1e-4, "{name} has no gradient");
        assert!((found - expected).abs() <= 2e-3 * size + 3e-5, "{name}: backward {found}, difference {expected}");
    }
}

#[test]
fn merged_weights_give_what_adapters_give() {
    let (model, values) = (base(), values());
    // The table is tied to the head, and an adapter of one is not one of the other.
    let mut adapters = adapters(&values);
    adapters.retain(|layer, _| layer.starts_with("layers."));
    let beside = model.with(Changes { low_rank: Some(adapters.clone()), ..Changes::default() }).unwrap();
    let mut changes = Changes::default();
    for (layer, adapters) in &adapters {
        let name = format!("{layer}.weight");
        let mut weight = model.weights().values(&name).unwrap();
        weight.iter_mut().zip(adapters[0].delta(false)).for_each(|(weight, delta)| *weight += delta);
        let shape = &model.weights().matrices[&name];
        changes.matrices.insert(name, Arc::new(Matrix::from_f32(shape.rows(), shape.cols(), &weight)));
    }
    let merged = model.with(changes).unwrap();
    let (beside, merged) = (logits(&beside, &mut Nobody), logits(&merged, &mut Nobody));
    let largest = beside.iter().zip(&merged).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest <= 1e-5, "{largest}");
    assert!(beside.iter().zip(logits(&model, &mut Nobody)).any(|(a, b)| (a - b).abs() > 1e-3));
}

#[test]
fn a_change_of_nothing_changes_no_bit_and_adapters_come_off() {
    let model = base();
    let plain = logits(&model, &mut Nobody);
    assert_eq!(logits(&model.with(Changes::default()).unwrap(), &mut Nobody), plain);
    let adapted = adapted(&model, &values());
    assert_ne!(logits(&adapted, &mut Nobody), plain);
    // Adapters stay through another change, and are taken off by an empty map.
    assert_eq!(logits(&adapted.with(Changes::default()).unwrap(), &mut Nobody), logits(&adapted, &mut Nobody));
    let bare = adapted.with(Changes { low_rank: Some(BTreeMap::new()), ..Changes::default() }).unwrap();
    assert_eq!(logits(&bare, &mut Nobody), plain);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let model = base();
    let wrong = |changes: Changes| model.with(changes).map(|_| ()).unwrap_err();
    let unknown = Changes { vectors: [("layers.9.x".to_owned(), [1.0].into())].into(), ..Changes::default() };
    assert_eq!(wrong(unknown), Error::UnknownWeight { name: "layers.9.x".into() });
    let short = Changes { vectors: [("head.bias".to_owned(), [1.0].into())].into(), ..Changes::default() };
    assert!(matches!(wrong(short), Error::UnknownWeight { .. } | Error::Shape { .. }));
    let mut adapters = adapters(&values());
    if let Some(adapter) = adapters.get_mut("layers.0.attention.query").and_then(|list| list.first_mut()) {
        adapter.b = Arc::new(Matrix::from_f32(8, RANK + 1, &[0.0; 8 * (RANK + 1)]));
    }
    let error = wrong(Changes { low_rank: Some(adapters), ..Changes::default() });
    assert!(matches!(&error, Error::Shape { name, .. } if name == "layers.0.attention.query.a"), "{error}");
}
