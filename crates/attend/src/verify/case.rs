//! A golden case on disk: what it says of itself, and the tensors it expects.

use super::compare::Tolerance;
use anyhow::{Context, Result, bail};
use attend_format::safetensors;
use attend_kernels::{DType, dequantize};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A model case: a folder with `case.json`, `config.json`, weights and `expected.safetensors`.
pub struct ModelCase {
    pub folder: PathBuf,
    /// `case.json`
    pub about: Value,
    pub expected: Expected,
}

impl ModelCase {
    pub fn open(folder: &Path) -> Result<ModelCase> {
        let file = folder.join("case.json");
        let about = read_json(&file)?;
        Ok(ModelCase {
            folder: folder.to_owned(),
            about,
            expected: Expected::open(&folder.join("expected.safetensors"))?,
        })
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.about.get(field).and_then(Value::as_str)
    }

    /// The checkpoint: the case's own folder, or the folder or file that `model` names, seen from there.
    pub fn checkpoint(&self) -> PathBuf {
        match self.text("model") {
            Some(path) => self.folder.join(path),
            None => self.folder.clone(),
        }
    }

    /// `problem_type` of the checkpoint's configuration.
    pub fn problem_type(&self) -> Result<Option<String>> {
        let config = read_json(&self.checkpoint().join("config.json"))?;
        Ok(config.get("problem_type").and_then(Value::as_str).map(str::to_owned))
    }

    /// A tolerance by its field.
    pub fn tolerance_of(&self, field: &str) -> Result<f64> {
        let value = self.about.get("tolerance").and_then(|tolerance| tolerance.get(field)).and_then(Value::as_f64);
        value.with_context(|| format!("{}: tolerance.{field} is missing", self.folder.join("case.json").display()))
    }

    /// For logits, hidden states and pooled vectors.
    pub fn tolerance(&self) -> Result<Tolerance> {
        Ok(Tolerance { absolute: self.tolerance_of("atol")?, relative: self.tolerance_of("rtol")? })
    }

    pub fn loss_tolerance(&self) -> Result<f64> {
        self.tolerance_of("loss_abs")
    }

    pub fn gradient_tolerance(&self) -> Result<f64> {
        self.tolerance_of("grad_rel_l2")
    }

    pub fn beam_score_tolerance(&self) -> Result<f64> {
        self.tolerance_of("beam_score_abs")
    }

    /// Rows of token ids without their padding, from `<side>.input_ids` and its mask.
    pub fn rows(&self, ids: &str, mask: &str) -> Result<Vec<Row>> {
        let ids_tensor = self.expected.integers(ids)?;
        let mask = self.expected.integers(mask)?;
        let [rows, columns] = ids_tensor.shape[..] else {
            bail!("{ids} has {} dimensions, not 2", ids_tensor.shape.len())
        };
        let mut out = Vec::with_capacity(rows);
        for row in 0..rows {
            let at = row * columns;
            let columns: Vec<usize> = (0..columns).filter(|column| mask.values[at + column] != 0).collect();
            let ids = columns.iter().map(|column| token(ids_tensor.values[at + column])).collect::<Result<_>>()?;
            out.push(Row { ids, columns });
        }
        Ok(out)
    }
}

/// A row's real tokens and the columns they stand in.
pub struct Row {
    pub ids: Vec<u32>,
    pub columns: Vec<usize>,
}

fn token(id: i64) -> Result<u32> {
    u32::try_from(id).with_context(|| format!("{id} is not a token id"))
}

pub fn read_json(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", file.display()))
}

/// A tensor of expected values.
#[derive(Debug, Clone)]
pub struct Tensor<T> {
    pub shape: Vec<usize>,
    pub values: Vec<T>,
}

impl Tensor<f32> {
    /// The rows `[row, column, ..]` of the first two dimensions.
    pub fn pick(&self, row: usize, columns: &[usize]) -> Vec<f32> {
        let inner: usize = self.shape[2..].iter().product();
        let at = |column: usize| (row * self.shape[1] + column) * inner;
        columns.iter().flat_map(|column| &self.values[at(*column)..at(*column) + inner]).copied().collect()
    }
}

/// The tensors of a safetensors file, read one by one.
pub struct Expected {
    tensors: attend_format::Tensors,
    /// What has been read so far.
    used: RefCell<BTreeSet<String>>,
}

impl Expected {
    pub fn open(file: &Path) -> Result<Expected> {
        Ok(Expected { tensors: safetensors::open(file)?, used: RefCell::default() })
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.infos().contains_key(name)
    }

    /// Names that start so, in order.
    pub fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.tensors.infos().keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }

    /// Tensors that nothing has read.
    pub fn unused(&self) -> Vec<&str> {
        let used = self.used.borrow();
        self.names("").filter(|name| !used.contains(*name)).collect()
    }

    /// Counts what begins so as seen: somebody has said why it is not compared.
    pub fn pass_over(&self, prefix: &str) {
        self.used.borrow_mut().extend(self.names(prefix).map(str::to_owned));
    }

    pub fn floats(&self, name: &str) -> Result<Tensor<f32>> {
        self.used.borrow_mut().insert(name.to_owned());
        let info = self.tensors.require(name)?.clone();
        let mut bytes = vec![0; usize::try_from(info.bytes)?];
        self.tensors.read_at(name, 0, &mut bytes)?;
        let mut values = vec![0.0; info.shape.iter().product()];
        dequantize(info.dtype, &bytes, &mut values)?;
        Ok(Tensor { shape: info.shape, values })
    }

    pub fn integers(&self, name: &str) -> Result<Tensor<i64>> {
        self.used.borrow_mut().insert(name.to_owned());
        let info = self.tensors.require(name)?.clone();
        if info.dtype != DType::I64 {
            bail!("{name} is {}, not i64", info.dtype);
        }
        let mut bytes = vec![0; usize::try_from(info.bytes)?];
        self.tensors.read_at(name, 0, &mut bytes)?;
        let values = bytes.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        Ok(Tensor { values: values.collect(), shape: info.shape })
    }

    pub fn dtype(&self, name: &str) -> Result<DType> {
        Ok(self.tensors.require(name)?.dtype)
    }

    pub fn tokens(&self, name: &str) -> Result<Vec<u32>> {
        self.integers(name)?.values.into_iter().map(token).collect()
    }
}
