//! What can go wrong between a path and a model.

use std::fmt;
use std::path::PathBuf;

/// Why a checkpoint cannot be described or loaded. Every message names the file and the field or tensor.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Format(#[from] attend_format::Error),

    /// The environment asks for an instruction set that is not there.
    #[error("{0}")]
    Machine(String),

    /// A matrix that cannot be built from a tensor.
    #[error("{}: tensor `{tensor}`: {source}", file.display())]
    Kernel { file: PathBuf, tensor: String, source: attend_kernels::KernelError },

    /// A value in a configuration that means nothing, or nothing that is built here.
    #[error("{}: `{field}`: {problem}", file.display())]
    Config { file: PathBuf, field: String, problem: String },

    /// No architecture goes by the name that the checkpoint gives.
    #[error("{}: architecture `{name}` is not known; known are {known}", file.display())]
    UnknownArchitecture { file: PathBuf, name: String, known: String },

    /// The checkpoint's tensors are not the ones that the description asks for.
    #[error(transparent)]
    Weights(#[from] WeightsError),

    /// A weight that is not a number.
    #[error("{}: tensor `{tensor}` holds {value} at element {index}; the file is damaged, or the model was trained to NaN", file.display())]
    NotFinite { file: PathBuf, tensor: String, index: u64, value: String },

    /// The description asks for more than the files hold or the machine has.
    #[error(
        "{}: the configuration describes {} of weights; the files hold {} and {} of memory are available{}",
        path.display(), Bytes(*needed), Bytes(u128::from(*held)), Bytes(u128::from(*available)),
        if hint.is_empty() { String::new() } else { format!(" ({hint})") }
    )]
    TooLarge { path: PathBuf, needed: u128, held: u64, available: u64, hint: String },

    /// An adapter that does not fit its base.
    #[error("{}: tensor `{tensor}`: {problem}", file.display())]
    Adapter { file: PathBuf, tensor: String, problem: String },

    #[error(
        "{}: the adapter needs {} to be read, and {} of memory are available",
        file.display(), Bytes(*needed), Bytes(u128::from(*available))
    )]
    AdapterTooLarge { file: PathBuf, needed: u128, available: u64 },

    /// The memory holds the weights and not what working with them takes.
    #[error(
        "{}: {} are needed ({} of weights, {} of keys and values for {context} tokens, {} to compute) and {} of memory are available; {hint}",
        path.display(),
        Bytes(u128::from(*weights) + u128::from(*cache) + u128::from(*activations)),
        Bytes(u128::from(*weights)), Bytes(u128::from(*cache)), Bytes(u128::from(*activations)),
        Bytes(u128::from(*available))
    )]
    DoesNotFit {
        path: PathBuf,
        weights: u64,
        cache: u64,
        context: usize,
        activations: u64,
        available: u64,
        hint: String,
    },

    /// A tensor stored in a way that this reader does not undo.
    #[error("{}: tensor `{tensor}` is stored as {dtype}: {problem}", file.display())]
    Storage { file: PathBuf, tensor: String, dtype: String, problem: String },

    /// A checkpoint that has no form in the other kind of file.
    #[error("{}: cannot be written as {kind}: {problem}", path.display())]
    NoForm { path: PathBuf, kind: &'static str, problem: String },

    /// A name table of this crate, or a call of it, is wrong: a mistake of ours and not of the file.
    #[error("name table: {0}")]
    Table(String),

    /// A tensor handed over for export has another length than its name promises.
    #[error("tensor `{name}`: expected {expected} values, found {found}")]
    Length { name: String, expected: usize, found: usize },
}

/// All that is wrong with a checkpoint's tensors, found in one pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WeightsError {
    pub path: PathBuf,
    /// Tensors that the model needs and the files do not have, by their names in the file.
    pub missing: Vec<String>,
    /// Tensors that the files have and nothing asks for.
    pub unexpected: Vec<String>,
    pub misshaped: Vec<Misshaped>,
}

/// A tensor whose shape is not the one that the configuration implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misshaped {
    pub tensor: String,
    pub file: PathBuf,
    pub expected: Vec<usize>,
    pub found: Vec<usize>,
}

impl WeightsError {
    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.misshaped.is_empty()
    }
}

impl std::error::Error for WeightsError {}

impl fmt::Display for WeightsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the weights do not fit the configuration:", self.path.display())?;
        if !self.missing.is_empty() {
            write!(f, " missing {}{}", Names(&self.missing), if self.is_last(0) { "" } else { ";" })?;
        }
        if !self.unexpected.is_empty() {
            write!(f, " unexpected {}{}", Names(&self.unexpected), if self.is_last(1) { "" } else { ";" })?;
        }
        for (index, wrong) in self.misshaped.iter().take(SHOWN).enumerate() {
            let (name, file) = (&wrong.tensor, wrong.file.display());
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator} `{name}` in {file} should be {:?} and is {:?}", wrong.expected, wrong.found)?;
        }
        if self.misshaped.len() > SHOWN {
            write!(f, " and {} more of a wrong shape", self.misshaped.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl WeightsError {
    /// Whether nothing follows the `part`-th list (missing, unexpected, misshaped) in the message.
    fn is_last(&self, part: usize) -> bool {
        self.misshaped.is_empty() && (part == 1 || self.unexpected.is_empty())
    }
}

/// How many names of each kind a message spells out.
const SHOWN: usize = 8;

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        write!(f, "{}", shown.join(", "))?;
        if self.0.len() > SHOWN {
            write!(f, " and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// A count of bytes for people.
pub(crate) struct Bytes(pub u128);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut value = self.0 as f64;
        let mut units = UNITS.iter();
        let mut unit = units.next();
        while let (true, Some(larger)) = (value >= 1024.0, units.next()) {
            value /= 1024.0;
            unit = Some(larger);
        }
        let unit = unit.copied().unwrap_or_default();
        let digits = if unit == "B" { 0 } else { 1 };
        write!(f, "{value:.digits$} {unit}")
    }
}
