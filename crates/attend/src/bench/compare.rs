//! One run beside another.

use super::error::Error;
use super::report::{Compared, Report, Row, SCHEMA, Unit};
use serde_json::Value;
use std::path::Path;

impl Report {
    /// What `attend bench --format json` wrote.
    ///
    /// # Errors
    /// Files that cannot be read, or hold something else.
    pub fn read(path: &Path) -> Result<Report, Error> {
        let other = |problem: String| Error::Other { path: path.to_path_buf(), problem };
        let text = std::fs::read_to_string(path).map_err(|error| other(error.to_string()))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| other(format!("this is not what `attend bench --format json` writes: {error}")))?;
        match value.get("schema").and_then(Value::as_u64) {
            Some(schema) if schema == u64::from(SCHEMA) => {}
            Some(schema) => return Err(other(format!("form {schema} of a benchmark; form {SCHEMA} can be read"))),
            None => return Err(other("this is not what `attend bench --format json` writes: it has no schema".into())),
        }
        serde_json::from_value(value).map_err(|error| other(format!("a benchmark with a mistake in it: {error}")))
    }
}

/// Puts the other run's figures beside the same rows of this one, and says what differs between the runs.
pub fn compare(report: &mut Report, other: &Report) {
    for row in &mut report.rows {
        let found = other.rows.iter().find(|found| found.work == row.work);
        row.compared = found.and_then(|found| ratio(row, found));
        if row.compared.is_none() {
            report.notes.push(format!("{}: the other run has no such row", row.work));
        }
    }
    let (own, theirs) = (differing(report), differing(other));
    for ((name, own), (_, theirs)) in own.into_iter().zip(theirs).filter(|(own, theirs)| own.1 != theirs.1) {
        report.notes.push(format!("{name}: {own} here, {theirs} in the other run"));
    }
}

fn ratio(own: &Row, other: &Row) -> Option<Compared> {
    let ratio = match own.unit {
        Unit::TokensPerSecond => own.median / other.median,
        Unit::Seconds => other.median / own.median,
    };
    Some(Compared { median: other.median, ratio }).filter(|_| ratio.is_finite() && ratio > 0.0)
}

/// What should be equal in two runs that are compared, or else be known.
fn differing(report: &Report) -> Vec<(&'static str, String)> {
    let (machine, settings) = (&report.machine, &report.settings);
    vec![
        ("version", report.version.clone()),
        ("model", format!("{} in {}", report.model.name, report.model.types.join(", "))),
        ("processor", machine.processor.clone().unwrap_or_else(|| "unknown".into())),
        ("instruction set", machine.instruction_set.clone()),
        ("threads", machine.threads.to_string()),
        ("cache", settings.kv_type.clone()),
        ("arithmetic", settings.arithmetic.clone()),
        ("attention", settings.attention.clone()),
    ]
}
