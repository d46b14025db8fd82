//! What verification prints: a line a case, and a line that counts them.

use super::compare::{Comparison, Worst};
use serde_json::{Value, json};

/// What became of a case.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub name: String,
    architecture: String,
    verdict: Verdict,
}

#[derive(Debug, Clone)]
enum Verdict {
    Passed { recorded: Comparison, unobserved: Option<Comparison> },
    Failed { reason: String, recorded: Comparison, unobserved: Option<Comparison> },
    Skipped { reason: String },
}

impl Outcome {
    /// The verdict on what was compared: both ways must agree with the reference.
    pub fn of(architecture: &str, recorded: Comparison, unobserved: Option<Comparison>) -> Outcome {
        let failure = match (&recorded, &unobserved) {
            (recorded, _) if !recorded.passed() => Some(failure("recorded", recorded)),
            (_, Some(unobserved)) if !unobserved.passed() => Some(failure("unobserved", unobserved)),
            _ => None,
        };
        let verdict = match failure {
            None => Verdict::Passed { recorded, unobserved },
            Some(reason) => Verdict::Failed { reason, recorded, unobserved },
        };
        Outcome { name: String::new(), architecture: architecture.to_owned(), verdict }
    }

    pub fn failed(architecture: &str, reason: impl Into<String>) -> Outcome {
        let (recorded, unobserved) = (Comparison::default(), None);
        let verdict = Verdict::Failed { reason: reason.into(), recorded, unobserved };
        Outcome { name: String::new(), architecture: architecture.to_owned(), verdict }
    }

    pub fn skipped(architecture: &str, reason: impl Into<String>) -> Outcome {
        let verdict = Verdict::Skipped { reason: reason.into() };
        Outcome { name: String::new(), architecture: architecture.to_owned(), verdict }
    }

    fn status(&self) -> &'static str {
        match self.verdict {
            Verdict::Passed { .. } => "ok",
            Verdict::Failed { .. } => "FAILED",
            Verdict::Skipped { .. } => "skipped",
        }
    }

    fn line(&self) -> String {
        let head = format!("{:<8}{:<28} {:<34}", self.status(), self.name, self.architecture);
        match &self.verdict {
            Verdict::Passed { recorded, unobserved } => {
                let mut line = format!("{head} {}", errors(recorded, unobserved));
                self.left_out().for_each(|what| line.push_str(&format!("\n        not checked: {what}")));
                line
            }
            Verdict::Failed { reason, recorded, unobserved } => {
                format!("{head} {}\n        {reason}", errors(recorded, unobserved))
            }
            Verdict::Skipped { reason } => format!("{head} {reason}"),
        }
    }

    /// What the case holds and was not compared.
    fn left_out(&self) -> impl Iterator<Item = &String> {
        let ways = match &self.verdict {
            Verdict::Passed { recorded, unobserved } | Verdict::Failed { recorded, unobserved, .. } => {
                [Some(recorded), unobserved.as_ref()]
            }
            Verdict::Skipped { .. } => [None, None],
        };
        ways.into_iter().flatten().flat_map(|comparison| &comparison.left_out)
    }

    fn json(&self) -> Value {
        let mut object = json!({ "case": self.name, "architecture": self.architecture, "status": self.status() });
        object["not_checked"] = json!(self.left_out().collect::<Vec<_>>());
        let (reason, ways) = match &self.verdict {
            Verdict::Passed { recorded, unobserved } => (None, Some((recorded, unobserved))),
            Verdict::Failed { reason, recorded, unobserved } => (Some(reason), Some((recorded, unobserved))),
            Verdict::Skipped { reason } => (Some(reason), None),
        };
        if let Some(reason) = reason {
            object["reason"] = json!(reason);
        }
        if let Some((recorded, unobserved)) = ways {
            object["recorded"] = worst_json(recorded);
            object["unobserved"] = unobserved.as_ref().map_or(Value::Null, worst_json);
        }
        object
    }
}

fn failure(way: &str, comparison: &Comparison) -> String {
    match &comparison.first_failure {
        Some(failure) => format!("{way}: first difference at {failure}"),
        None => format!("{way}: nothing was compared"),
    }
}

fn errors(recorded: &Comparison, unobserved: &Option<Comparison>) -> String {
    let worst = |comparison: &Comparison| match &comparison.worst {
        Some(Worst { ratio, error, tolerance, place }) if ratio.is_finite() => {
            format!("{error:.1e} of {tolerance:.1e} at {place}")
        }
        Some(Worst { place, .. }) => format!("differs at {place}"),
        None if comparison.checks > 0 => format!("exact ({})", comparison.checks),
        None => "-".to_owned(),
    };
    match unobserved {
        None => worst(recorded),
        Some(unobserved) => format!("recorded {}; unobserved {}", worst(recorded), worst(unobserved)),
    }
}

fn worst_json(comparison: &Comparison) -> Value {
    let worst = comparison.worst.as_ref();
    json!({
        "checks": comparison.checks,
        "error": worst.map(|worst| worst.error),
        "tolerance": worst.map(|worst| worst.tolerance),
        "worst": worst.map(|worst| worst.place.clone()),
        "first_difference": comparison.first_failure,
    })
}

/// Prints outcomes as they come and counts them.
pub struct Report {
    json: bool,
    outcomes: Vec<Value>,
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Cases that passed without everything they hold being checked.
    partial: Vec<String>,
}

impl Report {
    pub fn new(json: bool) -> Report {
        Report { json, outcomes: Vec::new(), passed: 0, failed: 0, skipped: 0, partial: Vec::new() }
    }

    pub fn add(&mut self, outcome: Outcome) {
        match outcome.verdict {
            Verdict::Passed { .. } => self.passed += 1,
            Verdict::Failed { .. } => self.failed += 1,
            Verdict::Skipped { .. } => self.skipped += 1,
        }
        if outcome.left_out().next().is_some() {
            self.partial.push(outcome.name.clone());
        }
        if self.json {
            self.outcomes.push(outcome.json());
        } else {
            println!("{}", outcome.line());
        }
    }

    /// Prints the counts; true when nothing failed and something passed.
    pub fn close(self) -> anyhow::Result<bool> {
        let Report { passed, failed, skipped, partial, .. } = self;
        if self.json {
            let summary = json!({
                "passed": passed, "failed": failed, "skipped": skipped, "not_checked": partial, "cases": self.outcomes
            });
            println!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            if !partial.is_empty() {
                println!("not everything is checked in: {}", partial.join(", "));
            }
            println!("{passed} passed, {failed} failed, {skipped} skipped");
        }
        anyhow::ensure!(passed + failed + skipped > 0, "no case matches the filter");
        Ok(failed == 0)
    }
}
