//! The same model with other weights: what training, adapters and merging are made of.

use crate::assemble::WeightSource;
use crate::error::Error;
use crate::low_rank::LowRank;
use crate::model::Model;
use crate::row_adapters::Adapters;
use attend_kernels::Matrix;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A model's weights by our names (see [`crate::names`]). They are those that the layers hold, not copies.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    pub matrices: BTreeMap<String, Arc<Matrix>>,
    pub vectors: BTreeMap<String, Arc<[f32]>>,
    /// Low-rank adapters by the name of the layer without `.weight`, in the order in which they are added; `head` of
    /// the output matrix, the name of a token table for the table.
    pub low_rank: BTreeMap<String, Vec<LowRank>>,
}

impl Weights {
    /// The values of a weight, row-major, in f32.
    pub fn values(&self, name: &str) -> Option<Vec<f32>> {
        if let Some(matrix) = self.matrices.get(name) {
            let mut values = vec![0.0; matrix.rows() * matrix.cols()];
            matrix.read_rows(0, &mut values);
            return Some(values);
        }
        self.vectors.get(name).map(|values| values.to_vec())
    }
}

impl Model {
    /// The model's weights and adapters.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Its low-rank adapters, for sequences that are taken through a model with the same weights and others.
    pub fn adapters(&self) -> Adapters {
        self.adapters.clone()
    }

    /// Whether the two are of one description and hold the very same weights, so that they differ in low-rank adapters at
    /// most.
    pub fn shares_weights(&self, other: &Model) -> bool {
        let (own, others) = (&self.weights, &other.weights);
        let matrices = own.matrices.len() == others.matrices.len()
            && own
                .matrices
                .iter()
                .zip(&others.matrices)
                .all(|((a, own), (b, other))| a == b && Arc::ptr_eq(own, other));
        let vectors = own.vectors.len() == others.vectors.len()
            && own.vectors.iter().zip(&others.vectors).all(|((a, own), (b, other))| a == b && Arc::ptr_eq(own, other));
        matrices && vectors && self.spec == other.spec
    }

    /// The same description with some weights replaced, and `low_rank`, where it is given, in place of all adapters.
    /// What is not replaced is shared with this model.
    ///
    /// # Errors
    /// When a name is not one of this model's weights or layers, or a shape differs.
    pub fn with(&self, changes: Changes) -> Result<Model, Error> {
        let mut source = Changed { old: &self.weights, changes, used: BTreeSet::new() };
        let model = Model::assemble(self.spec.clone(), &mut source)?;
        let Changed { changes, used, .. } = source;
        let adapters = changes.low_rank.iter().flatten().map(|(name, _)| name);
        match changes.matrices.keys().chain(changes.vectors.keys()).chain(adapters).find(|name| !used.contains(*name)) {
            Some(name) => Err(Error::UnknownWeight { name: name.clone() }),
            None => Ok(model),
        }
    }
}

/// What [`Model::with`] changes.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub matrices: BTreeMap<String, Arc<Matrix>>,
    pub vectors: BTreeMap<String, Arc<[f32]>>,
    /// `None`: the adapters stay.
    pub low_rank: Option<BTreeMap<String, Vec<LowRank>>>,
}

/// Old weights and new ones, as a source to assemble from.
struct Changed<'m> {
    old: &'m Weights,
    changes: Changes,
    used: BTreeSet<String>,
}

impl Changed<'_> {
    fn checked<T>(name: &str, found: Vec<usize>, expected: &[usize], value: T) -> Result<T, Error> {
        if found == expected {
            return Ok(value);
        }
        Err(Error::Shape { name: name.to_owned(), expected: expected.to_vec(), found })
    }
}

impl WeightSource for Changed<'_> {
    type Error = Error;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        // The builder asks for shared weights; a copy is as good.
        self.shared(name, rows, cols).map(|matrix| Matrix::clone(&matrix))
    }

    fn shared(&mut self, name: &str, rows: usize, cols: usize) -> Result<Arc<Matrix>, Error> {
        self.used.insert(name.to_owned());
        let matrix = self.changes.matrices.get(name).or_else(|| self.old.matrices.get(name)).cloned();
        let matrix = matrix.ok_or_else(|| Error::UnknownWeight { name: name.to_owned() })?;
        Self::checked(name, vec![matrix.rows(), matrix.cols()], &[rows, cols], matrix)
    }

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        self.shared_vector(name, shape).map(|values| values.to_vec())
    }

    fn shared_vector(&mut self, name: &str, shape: &[usize]) -> Result<Arc<[f32]>, Error> {
        self.used.insert(name.to_owned());
        let vector = self.changes.vectors.get(name).or_else(|| self.old.vectors.get(name)).cloned();
        let vector = vector.ok_or_else(|| Error::UnknownWeight { name: name.to_owned() })?;
        Self::checked(name, vec![vector.len()], &[shape.iter().product()], vector)
    }

    fn low_rank(&mut self, layer: &str, inputs: usize, outputs: usize) -> Result<Vec<LowRank>, Error> {
        self.used.insert(layer.to_owned());
        let adapters = self.changes.low_rank.as_ref().unwrap_or(&self.old.low_rank).get(layer);
        for adapter in adapters.into_iter().flatten() {
            let rank = adapter.rank();
            let table = layer.ends_with("embed.tokens");
            let a_expected = if table { vec![inputs, rank] } else { vec![rank, inputs] };
            Self::checked(&adapter.a_name, vec![adapter.a.rows(), adapter.a.cols()], &a_expected, ())?;
            Self::checked(&adapter.b_name, vec![adapter.b.rows(), adapter.b.cols()], &[outputs, rank], ())?;
        }
        Ok(adapters.cloned().unwrap_or_default())
    }
}
