//! Low-rank adapters (LoRA, Hu et al. 2021) as peft saves them: a folder with `adapter_config.json` and
//! `adapter_model.safetensors` or `.bin`, whose tensors are called after the modules of the Hugging Face model.
//!
//! An adapter is opened for a base, through the base's own name table, whatever kind of file the base came from: a
//! fused projection of the reference becomes adapters of our separate layers, which share `A` and divide `B`.

mod config;
mod open;

pub use config::{AdapterConfig, Biases};

use crate::error::Error;
use crate::export::FileTensor;
use attend_kernels::Matrix;
use attend_nn::spec::Head;
use attend_nn::{Changes, LowRank, Model};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// An adapter, read and checked against its base.
#[derive(Debug, Clone)]
pub struct Adapter {
    pub path: PathBuf,
    pub config: AdapterConfig,
    pub modules: Vec<AdapterModule>,
    /// Weights that are replaced whole, by our names.
    pub replaced: BTreeMap<String, Replaced>,
    /// What the user should know: values that were assumed.
    pub notices: Vec<String>,
}

/// An adapted module of the reference.
#[derive(Debug, Clone)]
pub struct AdapterModule {
    /// Its name in the base, as in `model.layers.0.self_attn.q_proj`.
    pub name: String,
    /// The file's names of the two matrices.
    pub a_name: String,
    pub b_name: String,
    pub rank: usize,
    pub scale: f64,
    /// [r, in]; of a token table [vocab, r].
    a: Arc<Matrix>,
    /// Rows of the file's `B`.
    outputs: usize,
    /// Whether it is a token table.
    table: bool,
    parts: Vec<Part>,
}

/// One of our layers that is (a part of) an adapted module.
#[derive(Debug, Clone)]
struct Part {
    /// Its name without `.weight`.
    layer: String,
    /// For each of its outputs the row of the file's `B`.
    rows: Vec<usize>,
    /// [out, r]
    b: Arc<Matrix>,
}

/// A weight that an adapter brings whole.
#[derive(Debug, Clone)]
pub enum Replaced {
    Matrix(Arc<Matrix>),
    Vector(Arc<[f32]>),
}

impl AdapterModule {
    /// The name of a part's `B`: the file's own where the module is one layer.
    fn part_name(&self, part: &Part) -> String {
        match self.parts.as_slice() {
            [_] => self.b_name.clone(),
            _ => format!("{}#{}", self.b_name, part.layer),
        }
    }

    fn low_rank(&self, part: &Part, strength: f64) -> LowRank {
        LowRank {
            a_name: self.a_name.clone(),
            b_name: self.part_name(part),
            a: self.a.clone(),
            b: part.b.clone(),
            scale: (self.scale * strength) as f32,
        }
    }
}

impl Adapter {
    /// The model with this adapter beside its weights, in addition to those it has. `strength` multiplies the
    /// adapter's own scale. All models that it is attached to share its matrices.
    ///
    /// # Errors
    /// When the model is not the base that the adapter was opened for.
    pub fn attach(&self, model: &Model, strength: f64) -> Result<Model, Error> {
        let mut low_rank = model.weights().low_rank.clone();
        for module in &self.modules {
            for part in &module.parts {
                low_rank.entry(part.layer.clone()).or_default().push(module.low_rank(part, strength));
            }
        }
        let changes = Changes { low_rank: Some(low_rank), ..self.replacements() };
        model.with(changes).map_err(|source| self.misfit(source))
    }

    /// The model with this adapter added to its weights: merged matrices are f32, since rounding them to a smaller
    /// type of the base would round the adapter away.
    ///
    /// # Errors
    /// As [`Adapter::attach`], and when a matrix is adapted whose values another layer reads too.
    pub fn merge(&self, model: &Model, strength: f64) -> Result<Model, Error> {
        let mut changes = self.replacements();
        let tied = matches!(&model.spec().head, Head::Lm(lm) if lm.tied);
        for module in &self.modules {
            for part in &module.parts {
                if tied && (module.table || part.layer == "head") {
                    let problem = "the token table and the output matrix are one in this model, and the adapter is of \
                                   one of them alone: it cannot be merged"
                        .into();
                    return Err(self.error(&module.a_name, problem));
                }
                let name = format!("{}.weight", part.layer);
                let shape = model.weights().matrices.get(&name).map(|matrix| (matrix.rows(), matrix.cols()));
                let known = changes.matrices.get(&name).or_else(|| model.weights().matrices.get(&name));
                let (Some(known), Some((rows, cols))) = (known, shape) else {
                    return Err(self.misfit(attend_nn::Error::UnknownWeight { name }));
                };
                let mut values = vec![0.0; rows * cols];
                known.read_rows(0, &mut values);
                let delta = module.low_rank(part, strength).delta(module.table);
                values.iter_mut().zip(delta).for_each(|(value, delta)| *value += delta);
                changes.matrices.insert(name, Arc::new(Matrix::from_f32(rows, cols, &values)));
            }
        }
        model.with(changes).map_err(|source| self.misfit(source))
    }

    /// Values of the adapter's matrices (or their gradients), as [`LowRank::a_name`] and [`LowRank::b_name`] call them,
    /// under the file's names and in its shapes.
    pub fn to_file(&self, values: &mut dyn FnMut(&str) -> Option<Vec<f32>>) -> Vec<FileTensor> {
        let mut files = Vec::new();
        for module in &self.modules {
            if let Some(a) = values(&module.a_name) {
                let (rows, cols) = (module.a.rows(), module.a.cols());
                let (shape, values) =
                    if module.table { (vec![cols, rows], transposed(&a, rows, cols)) } else { (vec![rows, cols], a) };
                files.push(FileTensor { name: module.a_name.clone(), shape, values });
            }
            let mut whole = vec![0.0; module.outputs * module.rank];
            let mut any = false;
            for part in &module.parts {
                let Some(b) = values(&module.part_name(part)) else { continue };
                any = true;
                for (row, values) in part.rows.iter().zip(b.chunks_exact(module.rank)) {
                    if let Some(place) = whole.get_mut(row * module.rank..(row + 1) * module.rank) {
                        place.copy_from_slice(values);
                    }
                }
            }
            if any {
                let shape = vec![module.outputs, module.rank];
                files.push(FileTensor { name: module.b_name.clone(), shape, values: whole });
            }
        }
        files
    }

    fn replacements(&self) -> Changes {
        let mut changes = Changes::default();
        for (name, replaced) in &self.replaced {
            match replaced {
                Replaced::Matrix(matrix) => drop(changes.matrices.insert(name.clone(), matrix.clone())),
                Replaced::Vector(values) => drop(changes.vectors.insert(name.clone(), values.clone())),
            }
        }
        changes
    }

    fn misfit(&self, source: attend_nn::Error) -> Error {
        Error::Adapter { file: self.path.clone(), tensor: "adapter".into(), problem: source.to_string() }
    }

    fn error(&self, tensor: &str, problem: String) -> Error {
        Error::Adapter { file: self.path.clone(), tensor: tensor.to_owned(), problem }
    }
}

/// [rows, cols] to [cols, rows].
fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let column = |col: usize| values.iter().skip(col).step_by(cols.max(1)).take(rows).copied();
    (0..cols).flat_map(column).collect()
}
