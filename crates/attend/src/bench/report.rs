//! What a benchmark says, as it is written and read again.

use super::work::Work;
use serde::{Deserialize, Serialize};

/// The number of this form; a reader refuses another.
pub const SCHEMA: u32 = 1;

/// Everything that is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    /// The program's version.
    pub version: String,
    pub model: ModelFacts,
    pub machine: Machine,
    pub settings: Settings,
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// The name of its file or folder.
    pub name: String,
    pub architecture: String,
    pub parameters: u64,
    /// As they are packed in memory.
    pub weight_bytes: u64,
    /// Types of the weights in the files.
    pub types: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: Option<String>,
    pub instruction_set: String,
    pub threads: usize,
    /// What it was measured to do; absent where that was not wanted.
    pub limits: Option<Limits>,
}

/// What the machine does at best, as `doctor` measures it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes_per_second: f64,
    /// Operations (a multiplication and an addition are two) of a product of many rows with weights of `matmul_weights`.
    pub matmul_operations_per_second: f64,
    /// The type of most of the model's weights.
    pub matmul_weights: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub repetitions: usize,
    pub seed: u64,
    pub kv_type: String,
    /// `auto` or `f32`.
    pub arithmetic: String,
    /// `flash` or `textbook`.
    pub attention: String,
    /// The most tokens of a prompt that are read in one step.
    pub chunk: usize,
    /// Whether a row's peak of memory is its own, or that of the run until then.
    pub peak_of_each_row: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "tokens/s")]
    TokensPerSecond,
    #[serde(rename = "s")]
    Seconds,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub work: Work,
    pub unit: Unit,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// In the order of measuring.
    pub samples: Vec<f64>,
    pub peak_memory_bytes: Option<u64>,
    /// Weights and cache read for each second, as a part of what the memory gives.
    pub of_bandwidth: Option<f64>,
    /// Operations a second, as a part of what products of many rows reach.
    pub of_matmul: Option<f64>,
    /// The same row of another run, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    pub median: f64,
    /// How many times as fast as the other: above 1 is faster here, whatever the unit.
    pub ratio: f64,
}

impl Row {
    /// A row of the samples' median and spread; `None` without samples.
    pub fn new(work: Work, samples: Vec<f64>, peak_memory_bytes: Option<u64>) -> Option<Row> {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let upper = sorted.get(middle).copied()?;
        let lower = sorted.get((sorted.len() - 1) / 2).copied()?;
        let unit = if work.counted().is_some() { Unit::TokensPerSecond } else { Unit::Seconds };
        Some(Row {
            work,
            unit,
            median: (lower + upper) / 2.0,
            min,
            max,
            samples,
            peak_memory_bytes,
            of_bandwidth: None,
            of_matmul: None,
            compared: None,
        })
    }

    /// Seconds of one sample at the median.
    pub fn seconds(&self) -> f64 {
        self.work.counted().map_or(self.median, |tokens| tokens / self.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_between_the_ends() {
        let row = |samples: &[f64]| Row::new(Work::Load, samples.to_vec(), None);
        assert_eq!(row(&[]), None);
        let of = |samples: &[f64]| row(samples).map(|row| (row.min, row.median, row.max));
        assert_eq!(of(&[3.0]), Some((3.0, 3.0, 3.0)));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 8.0]), Some((1.0, 3.0, 8.0)));
        let decode = Row::new(Work::Decode { tokens: 10, depth: 0, batch: 4 }, vec![20.0], None).expect("a row");
        assert_eq!((decode.unit, decode.seconds()), (Unit::TokensPerSecond, 2.0));
    }
}
