//! The step of training on a tiny decoder: repeatable, indifferent to packing and micro-batches, and careful.

use attend_kernels::{Compute, Matrix};
use attend_model::LoadOptions;
use attend_nn::{Changes, Gradients, LowRank, Model, Sequence, WeightSource};
use attend_testkit::files::{Random, model as files, write_all};
use attend_train::{
    Adam, Error, LossOptions, Rule, Schedule, Targets, TrainBatch, TrainOptions, Trainer, loss_and_gradients,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

const WIDTH: usize = files::WIDTH;
const VOCAB: usize = files::VOCAB;

/// The tiny decoder of the test files.
fn lm() -> Model {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &files::folder(5)).unwrap();
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    attend_model::load(folder.path(), &options, &mut |_, _| {}).unwrap().model
}

/// The same under another head with random weights.
fn with_head(head: serde_json::Value) -> Model {
    struct Source(Model, Random);

    impl WeightSource for Source {
        type Error = Infallible;

        fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Infallible> {
            let known = self.0.weights().values(name).filter(|values| values.len() == rows * cols);
            let values = known.unwrap_or_else(|| (0..rows * cols).map(|_| 3.0 * self.1.weight()).collect());
            Ok(Matrix::from_f32(rows, cols, &values))
        }

        fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Infallible> {
            Ok(self.0.weights().values(name).unwrap_or_else(|| vec![0.0; shape.iter().product()]))
        }
    }

    let model = lm();
    let mut spec = model.spec().clone();
    spec.head = serde_json::from_value(head).unwrap();
    match Model::assemble(spec, &mut Source(model, Random::new(6))) {
        Ok(model) => model,
        Err(never) => match never {},
    }
}

fn options() -> TrainOptions {
    TrainOptions {
        rule: Rule::Adam(Adam::default()),
        schedule: Schedule::Cosine { warmup: 2, total: 10, cycles: 0.5, min_ratio: 0.0 },
        learning_rate: 1e-2,
        weight_decay: 0.1,
        max_norm: Some(1.0),
        loss: LossOptions::default(),
    }
}

fn trainer() -> Trainer {
    Trainer::weights(lm(), |_| true, options()).unwrap()
}

/// Sequences of these lengths, of which only the last so many tokens are labels.
fn data(lengths: &[(usize, usize)]) -> (Vec<Vec<u32>>, Vec<Vec<Option<usize>>>) {
    let mut random = Random::new(3);
    let row = |(length, labels): &(usize, usize)| {
        let ids: Vec<u32> = (0..*length).map(|_| random.below(VOCAB as u64) as u32).collect();
        let label = |at: usize| (at + labels >= *length).then_some((at * 5 + 1) % VOCAB);
        (ids, (0..*length).map(label).collect())
    };
    lengths.iter().map(row).unzip()
}

fn batch<'a>(ids: &'a [Vec<u32>], labels: &[Vec<Option<usize>>]) -> TrainBatch<'a> {
    let inputs = ids.iter().map(|ids| Sequence::new(ids)).collect();
    TrainBatch { inputs, outputs: None, targets: Targets::Tokens(labels.concat()) }
}

fn bits(trainer: &Trainer) -> Vec<Vec<u32>> {
    let names = trainer.model().spec().tensors();
    let values = names.iter().map(|required| trainer.values(&required.name).unwrap());
    values.map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
}

#[test]
fn a_run_is_repeated_bit_for_bit_and_learns() {
    let (ids, labels) = data(&[(7, 7), (4, 4)]);
    let run = || {
        let mut trainer = trainer();
        let reports: Vec<_> = (0..8).map(|_| trainer.step(vec![batch(&ids, &labels)]).unwrap()).collect();
        (reports, bits(&trainer))
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert_eq!(first.0[0].learning_rate, 0.0);
    assert!(first.0[7].loss < first.0[0].loss, "{:?}", first.0);
}

#[test]
fn uneven_micro_batches_weigh_every_target_alike() {
    // 1, 3, 10 and 20 labels: a mean of means would favour the short ones.
    let (ids, labels) = data(&[(5, 1), (6, 3), (12, 10), (21, 20)]);
    let gradients = |cuts: &[std::ops::Range<usize>]| {
        let mut trainer = trainer();
        let batches = cuts.iter().map(|cut| batch(&ids[cut.clone()], &labels[cut.clone()])).collect();
        let report = trainer.step(batches).unwrap();
        (report.loss, report.grad_norm)
    };
    let whole = gradients(std::slice::from_ref(&(0..4)));
    for cuts in [vec![0..1, 1..2, 2..3, 3..4], vec![0..2, 2..4]] {
        let (loss, norm) = gradients(&cuts);
        assert!((loss / whole.0 - 1.0).abs() < 1e-6, "{loss} {whole:?}");
        assert!((norm / whole.1 - 1.0).abs() < 1e-6, "{norm} {whole:?}");
    }
}

#[test]
fn packed_neighbours_do_not_touch_one_anothers_gradients() {
    let (ids, labels) = data(&[(9, 0), (6, 6)]);
    let run = |ids: &[Vec<u32>], labels: &[Vec<Option<usize>>]| {
        let mut trainer = trainer();
        trainer.step(vec![batch(ids, labels)]).unwrap();
        let report = trainer.step(vec![batch(ids, labels)]).unwrap();
        (report.loss, report.grad_norm)
    };
    let alone = run(&ids[1..], &labels[1..]);
    assert_eq!(run(&ids, &labels).0.to_bits(), alone.0.to_bits());
    let mut other = ids.clone();
    other[0].reverse();
    assert_eq!(run(&other, &labels), run(&ids, &labels));
    assert!((run(&ids, &labels).1 / alone.1 - 1.0).abs() < 1e-5);
}

#[test]
fn a_batch_without_targets_changes_nothing() {
    let (ids, labels) = data(&[(5, 0)]);
    let mut trainer = trainer();
    let before = bits(&trainer);
    let report = trainer.step(vec![batch(&ids, &labels)]).unwrap();
    assert_eq!((report.targets, report.loss, report.grad_norm), (0, 0.0, 0.0));
    assert_eq!(bits(&trainer), before);
}

#[test]
fn what_is_frozen_stays_and_adapters_train_alone() {
    let (ids, labels) = data(&[(7, 7)]);
    let mut trainer = Trainer::weights(lm(), |name| name.contains("ffn"), options()).unwrap();
    let untouched = trainer.model().weights().values("layers.0.attention.query.weight");
    let moved = trainer.model().weights().values("layers.0.ffn.up.weight");
    for _ in 0..3 {
        trainer.step(vec![batch(&ids, &labels)]).unwrap();
    }
    assert_eq!(trainer.model().weights().values("layers.0.attention.query.weight"), untouched);
    assert_ne!(trainer.model().weights().values("layers.0.ffn.up.weight"), moved);

    let (a, b) = (vec![0.25; 2 * WIDTH], vec![0.0; 2 * WIDTH]);
    let adapter = LowRank {
        a_name: "a".into(),
        b_name: "b".into(),
        a: Arc::new(Matrix::from_f32(2, WIDTH, &a)),
        b: Arc::new(Matrix::from_f32(WIDTH, 2, &b)),
        scale: 2.0,
    };
    let low_rank = Some(BTreeMap::from([("layers.1.attention.query".to_owned(), vec![adapter])]));
    let adapted = lm().with(Changes { low_rank, ..Changes::default() }).unwrap();
    let mut trainer = Trainer::adapters(adapted, options()).unwrap();
    let first = trainer.step(vec![batch(&ids, &labels)]).unwrap();
    let second = trainer.step(vec![batch(&ids, &labels)]).unwrap();
    // The rate of the first step is 0, so that only the second changes anything.
    assert_eq!(first.loss, second.loss);
    assert!(trainer.values("b").unwrap().iter().any(|value| *value != 0.0));
    assert_eq!(trainer.values("a").unwrap().len(), a.len());
    assert!(matches!(Trainer::adapters(lm(), options()), Err(Error::Nothing(_))));
}

#[test]
fn a_loss_that_is_no_number_leaves_the_weights() {
    let (ids, labels) = data(&[(4, 4)]);
    let poisoned = Changes {
        vectors: BTreeMap::from([("final_norm.weight".to_owned(), vec![f32::INFINITY; WIDTH].into())]),
        ..Changes::default()
    };
    let model = lm().with(poisoned).unwrap();
    let mut trainer = Trainer::weights(model, |name| name.starts_with("layers."), options()).unwrap();
    let before = trainer.model().weights().values("layers.0.ffn.up.weight");
    let error = trainer.step(vec![batch(&ids, &labels)]).unwrap_err();
    assert!(matches!(error, Error::NotFinite { step: 0, .. }), "{error}");
    assert_eq!(trainer.model().weights().values("layers.0.ffn.up.weight"), before);
}

#[test]
fn targets_that_do_not_fit_are_refused() {
    let (ids, labels) = data(&[(4, 4)]);
    let model = lm();
    let refused = |targets: Targets, outputs: Option<Vec<Sequence<'static>>>| {
        let batch = TrainBatch { inputs: vec![Sequence::new(&ids[0])], outputs, targets };
        let (count, options) = (batch.targets.count(), LossOptions::default());
        loss_and_gradients(&model, batch, count, &options, &mut Gradients::all()).unwrap_err()
    };
    assert!(matches!(refused(Targets::Tokens(vec![None; 3]), None), Error::Targets { expected: 4, found: 3, .. }));
    let error = refused(Targets::Tokens(vec![Some(VOCAB); 4]), None);
    assert!(matches!(error, Error::Class { target: VOCAB, classes: VOCAB }), "{error}");
    assert!(matches!(refused(Targets::Tokens(labels.concat()), Some(Vec::new())), Error::Unsuited { .. }));
    assert!(matches!(refused(Targets::Spans { starts: vec![None], ends: vec![None] }, None), Error::Targets { .. }));
}

/// The derivative of the loss along a direction in the token table, against differences.
fn check(model: Model, targets: &Targets) {
    let (ids, _) = data(&[(5, 0), (3, 0)]);
    let name = "embed.tokens.weight";
    let table = model.weights().values(name).unwrap();
    let loss = |table: &[f32], grads: &mut Gradients| {
        let matrix = Arc::new(Matrix::from_f32(VOCAB, WIDTH, table));
        let changes = Changes { matrices: BTreeMap::from([(name.to_owned(), matrix)]), ..Changes::default() };
        let model = model.with(changes).unwrap();
        let inputs = ids.iter().map(|ids| Sequence::new(ids)).collect();
        let batch = TrainBatch { inputs, outputs: None, targets: targets.clone() };
        loss_and_gradients(&model, batch, targets.count(), &LossOptions::default(), grads).unwrap()
    };
    let mut grads = Gradients::all();
    assert!(loss(&table, &mut grads) > 0.0, "{targets:?}");
    let mut random = Random::new(8);
    let direction: Vec<f32> = table.iter().map(|_| random.weight().signum()).collect();
    let step = 1e-3f32;
    let moved = |sign: f32| {
        let table: Vec<f32> = table.iter().zip(&direction).map(|(value, d)| value + sign * step * d).collect();
        loss(&table, &mut Gradients::only([]))
    };
    let expected = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step));
    let found: f64 = grads.values()[name].iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
    assert!((found - expected).abs() < 2e-2 * expected.abs() + 2e-3, "{targets:?}: {found} and {expected}");
}

#[test]
fn every_kind_of_target_has_its_gradient() {
    check(lm(), &Targets::Tokens((0..8).map(|at| (at != 2).then_some(at)).collect()));
    let token = json!({"Token": {"labels": 1, "bias": false}});
    check(with_head(token), &Targets::Marks((0..8).map(|at| (at % 2) as f32).collect()));
    let spans = Targets::Spans { starts: vec![Some(1), Some(0)], ends: vec![Some(4), Some(9)] };
    check(with_head(json!({"Span": {"bias": false}})), &spans);
    let sequence = |labels: usize| json!({"Sequence": {"labels": labels, "bias": false, "source": "Last"}});
    check(with_head(sequence(3)), &Targets::Classes(vec![Some(2), None]));
    check(with_head(sequence(2)), &Targets::Labels(vec![1.0, 0.0, 0.0, 1.0]));
    check(with_head(sequence(1)), &Targets::Values(vec![2.5, -1.0]));
}
