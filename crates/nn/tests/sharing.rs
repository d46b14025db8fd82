//! Weights are read and held once, whoever uses them.

mod common;

use attend_kernels::Matrix;
use attend_nn::spec::ModelSpec;
use attend_nn::{Changes, Model, WeightSource};
use common::*;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

/// Counts how often each weight is asked for.
struct Counted(Weights, BTreeMap<String, usize>);

impl WeightSource for Counted {
    type Error = Infallible;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Infallible> {
        *self.1.entry(name.to_owned()).or_default() += 1;
        self.0.matrix(name, rows, cols)
    }

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Infallible> {
        *self.1.entry(name.to_owned()).or_default() += 1;
        self.0.vector(name, shape)
    }
}

fn specs() -> Vec<(&'static str, ModelSpec)> {
    [("encoder and decoder", encoder_decoder())].into_iter().chain(decoders()).collect()
}

#[test]
fn each_weight_is_read_once_and_counted_once() {
    for (name, spec) in specs() {
        let mut source = Counted(Weights::random(&spec, 3), BTreeMap::new());
        let model = Model::assemble(spec.clone(), &mut source).unwrap();
        let once = spec.tensors().into_iter().map(|tensor| (tensor.name, 1)).collect();
        assert_eq!(source.1, once, "{name}");
        let elements: usize = spec.tensors().iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
        let packed: usize = model.weights().matrices.values().map(|matrix| matrix.bytes()).sum();
        let plain: usize = model.weights().vectors.values().map(|vector| size_of_val(&**vector)).sum();
        assert_eq!(model.weight_bytes(), packed + plain, "{name}");
        assert!(model.weight_bytes() >= 4 * elements, "{name}");
    }
}

#[test]
fn layers_hold_the_vectors_that_the_model_lists() {
    let mut shared = 0;
    for (name, spec) in specs() {
        let layers = spec.output_stack().layers.len();
        let sets = spec.output_stack().layers.iter().map(|layer| layer.weights).max().unwrap_or(0) + 1;
        let model = Weights::random(&spec, 3).model(&spec);
        for (vector, values) in &model.weights().vectors {
            let users = if vector.starts_with("layers.") { layers / sets } else { 1 };
            assert_eq!(Arc::strong_count(values), 1 + users, "{name}: {vector}");
            shared += usize::from(users > 1);
        }
        let same = model.with(Changes::default()).unwrap();
        for (vector, values) in &model.weights().vectors {
            assert!(Arc::ptr_eq(values, &same.weights().vectors[vector]), "{name}: {vector}");
        }
    }
    assert!(shared > 0, "no vector of shared layers");
}
