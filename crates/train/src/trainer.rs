//! The step of training: forward with the tape, loss, backward, clip, and the optimizer on f32 master weights.

use crate::clip::{clip, global_norm};
use crate::error::Error;
use crate::objective::{Count, LossOptions, TrainBatch, loss_and_gradients};
use crate::optimizer::{Optimizer, Rule, Slot};
use crate::schedule::Schedule;
use attend_kernels::Matrix;
use attend_nn::{Changes, Gradients, LowRank, Model};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a caller chooses about training.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    pub rule: Rule,
    pub schedule: Schedule,
    /// The highest rate of the schedule.
    pub learning_rate: f64,
    /// Of matrices; biases and norms do not decay.
    pub weight_decay: f64,
    /// Gradients are clipped to this norm, that of all of them together.
    pub max_norm: Option<f64>,
    pub loss: LossOptions,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// The step's number, from 0.
    pub step: u64,
    /// The mean over the targets that count, before the step.
    pub loss: f64,
    /// The norm of all gradients together, before clipping.
    pub grad_norm: f64,
    pub learning_rate: f64,
    /// How many targets counted; with none the step changes nothing.
    pub targets: usize,
}

/// A weight that is trained, in f32.
#[derive(Debug)]
struct Trained {
    name: String,
    shape: Vec<usize>,
    values: Vec<f32>,
    place: Place,
}

/// Where a trained weight goes in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Matrix,
    Vector,
    Adapter,
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    model: Model,
    trained: Vec<Trained>,
    optimizer: Optimizer,
    options: TrainOptions,
    steps: u64,
}

impl Trainer {
    /// Trains the weights of the model for which `trains` is true, by our names.
    ///
    /// # Errors
    /// When that is none of them.
    pub fn weights(model: Model, trains: impl Fn(&str) -> bool, options: TrainOptions) -> Result<Trainer, Error> {
        let weights = model.weights();
        let mut trained = Vec::new();
        for required in model.spec().tensors() {
            if !trains(&required.name) {
                continue;
            }
            let Some(values) = weights.values(&required.name) else { continue };
            let matrix = weights.matrices.contains_key(&required.name);
            let place = if matrix { Place::Matrix } else { Place::Vector };
            trained.push(Trained { name: required.name, shape: required.shape, values, place });
        }
        Trainer::new(model, trained, options)
    }

    /// Trains the adapters beside the model's weights, which stay as they are.
    ///
    /// # Errors
    /// When there is none.
    pub fn adapters(model: Model, options: TrainOptions) -> Result<Trainer, Error> {
        let mut matrices: BTreeMap<String, Arc<Matrix>> = BTreeMap::new();
        for adapter in model.weights().low_rank.values().flatten() {
            matrices.insert(adapter.a_name.clone(), adapter.a.clone());
            matrices.insert(adapter.b_name.clone(), adapter.b.clone());
        }
        let each = |(name, matrix): (String, Arc<Matrix>)| {
            let shape = vec![matrix.rows(), matrix.cols()];
            let mut values = vec![0.0; matrix.rows() * matrix.cols()];
            matrix.read_rows(0, &mut values);
            Trained { name, shape, values, place: Place::Adapter }
        };
        let trained = matrices.into_iter().map(each).collect();
        Trainer::new(model, trained, options)
    }

    fn new(model: Model, trained: Vec<Trained>, options: TrainOptions) -> Result<Trainer, Error> {
        if trained.is_empty() {
            return Err(Error::Nothing("no weight and no adapter of the model is chosen"));
        }
        let optimizer = Optimizer::new(options.rule.clone());
        let mut trainer = Trainer { model, trained, optimizer, options, steps: 0 };
        // From here on the model computes with the master weights, also before the first step.
        trainer.model = trainer.rebuilt()?;
        Ok(trainer)
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn into_model(self) -> Model {
        self.model
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The master weight of this name.
    pub fn values(&self, name: &str) -> Option<&[f32]> {
        self.trained.iter().find(|trained| trained.name == name).map(|trained| trained.values.as_slice())
    }

    /// Takes one step over several micro-batches, whose targets all weigh the same.
    ///
    /// # Errors
    /// When a batch does not fit the model, or loss or gradients are not finite: the weights are then unchanged.
    pub fn step(&mut self, batches: Vec<TrainBatch>) -> Result<StepReport, Error> {
        let count = batches.iter().map(|batch| batch.targets.count()).fold(Count::default(), |sum, count| sum + count);
        let mut grads = Gradients::only(self.trained.iter().map(|trained| trained.name.clone()));
        let mut loss = 0.0;
        for batch in batches {
            loss += loss_and_gradients(&self.model, batch, count, &self.options.loss, &mut grads)?;
        }
        let mut gradients = grads.into_values();
        let grad_norm = global_norm(gradients.values().map(Vec::as_slice));
        if !loss.is_finite() || !grad_norm.is_finite() {
            return Err(Error::NotFinite { step: self.steps, loss, norm: grad_norm });
        }
        let learning_rate = self.options.schedule.rate(self.options.learning_rate, self.steps);
        let report = StepReport { step: self.steps, loss, grad_norm, learning_rate, targets: count.targets };
        if count.targets > 0 {
            if let Some(max_norm) = self.options.max_norm {
                clip(gradients.values_mut().map(Vec::as_mut_slice), grad_norm, max_norm);
            }
            self.update(&gradients, learning_rate);
            self.model = self.rebuilt()?;
        }
        self.steps += 1;
        Ok(report)
    }

    fn update(&mut self, gradients: &BTreeMap<String, Vec<f32>>, learning_rate: f64) {
        for trained in &mut self.trained {
            // A weight that the batch did not touch has no gradient and takes no step.
            let Some(gradient) = gradients.get(&trained.name) else { continue };
            let weight_decay = match trained.place {
                Place::Matrix | Place::Adapter => self.options.weight_decay,
                Place::Vector => 0.0,
            };
            let Trained { name, shape, values, .. } = trained;
            self.optimizer.update(Slot { name, shape, weight: values, gradient, weight_decay }, learning_rate);
        }
    }

    /// The model with the master weights in their places.
    fn rebuilt(&self) -> Result<Model, Error> {
        let mut changes = Changes::default();
        let mut adapters: BTreeMap<&str, Arc<Matrix>> = BTreeMap::new();
        for trained in &self.trained {
            let matrix = || match trained.shape.as_slice() {
                [rows, cols] => Some(Arc::new(Matrix::from_f32(*rows, *cols, &trained.values))),
                _ => None,
            };
            match trained.place {
                Place::Matrix => changes.matrices.extend(matrix().map(|matrix| (trained.name.clone(), matrix))),
                Place::Adapter => adapters.extend(matrix().map(|matrix| (trained.name.as_str(), matrix))),
                Place::Vector => {
                    changes.vectors.insert(trained.name.clone(), trained.values.as_slice().into());
                }
            }
        }
        if !adapters.is_empty() {
            let mut low_rank = self.model.weights().low_rank.clone();
            for LowRank { a_name, b_name, a, b, .. } in low_rank.values_mut().flatten() {
                if let Some(new) = adapters.get(a_name.as_str()) {
                    *a = new.clone();
                }
                if let Some(new) = adapters.get(b_name.as_str()) {
                    *b = new.clone();
                }
            }
            changes.low_rank = Some(low_rank);
        }
        Ok(self.model.with(changes)?)
    }
}
