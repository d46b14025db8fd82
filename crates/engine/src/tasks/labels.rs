//! The labels of a classifier and what its scores mean, from the model's configuration.

use crate::error::Error;
use attend_model::Described;
use serde_json::Value;

/// What a classifier was trained for, which says how its logits become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// One label of several: softmax.
    SingleLabel,
    /// Any number of labels, and the case of one label: sigmoid.
    MultiLabel,
    /// A number as it stands.
    Regression,
}

/// Names and meaning of a classifier's outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    pub names: Vec<String>,
    pub problem: Problem,
}

impl Labels {
    /// The labels of a head with `count` outputs. Outputs that `id2label` does not name are `LABEL_i`.
    pub fn of(described: &Described, count: usize) -> Result<Labels, Error> {
        let config = described.checkpoint.config();
        let mut names: Vec<String> = (0..count).map(|index| format!("LABEL_{index}")).collect();
        let table = config.value("id2label").and_then(Value::as_object);
        for (id, label) in table.into_iter().flatten() {
            let wrong = |problem: &str| Error::from(config.bad("id2label", format!("`{id}` {problem}")));
            let slot = id.parse::<usize>().ok().and_then(|index| names.get_mut(index));
            let slot = slot.ok_or_else(|| wrong(&format!("is no output of a head of {count}")))?;
            *slot = match label {
                Value::String(label) => label.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(wrong("must be a string")),
            };
        }
        let problem = match config.str_opt("problem_type")? {
            Some("regression") => Problem::Regression,
            Some("multi_label_classification") => Problem::MultiLabel,
            Some("single_label_classification") if count > 1 => Problem::SingleLabel,
            None if count > 1 => Problem::SingleLabel,
            Some("single_label_classification") | None => Problem::MultiLabel,
            Some(other) => {
                return Err(config.bad("problem_type", format!("{other:?} is not known")).into());
            }
        };
        Ok(Labels { names, problem })
    }

    pub(crate) fn name(&self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_default()
    }
}
