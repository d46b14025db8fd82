//! Comparison of found values with expected ones: the worst error against its tolerance, and the first failure.

/// `|found - expected| <= absolute + relative * |expected|`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

impl Tolerance {
    pub const fn absolute(absolute: f64) -> Tolerance {
        Tolerance { absolute, relative: 0.0 }
    }
}

/// The largest share of its tolerance that any compared value used up.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Above 1 the comparison fails; infinite for exact comparisons that differ and for non-finite values.
    pub ratio: f64,
    pub error: f64,
    pub tolerance: f64,
    pub place: String,
}

/// What comparing one thing after another gave.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    pub checks: usize,
    pub worst: Option<Worst>,
    /// The first place that differed, in the order of the comparisons.
    pub first_failure: Option<String>,
    /// What the case holds and nothing was compared with, each with its reason.
    pub left_out: Vec<String>,
}

impl Comparison {
    pub fn passed(&self) -> bool {
        self.checks > 0 && self.first_failure.is_none()
    }

    /// Compares values one by one.
    pub fn values(&mut self, place: &str, found: &[f32], expected: &[f32], tolerance: Tolerance) {
        self.checks += 1;
        if found.len() != expected.len() {
            return self.fail(place, format!("{} values where {} are expected", found.len(), expected.len()));
        }
        let mut worst: Option<(usize, f64, f64)> = None;
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let allowed = tolerance.absolute + tolerance.relative * f64::from(expected).abs();
            let error = (f64::from(found) - f64::from(expected)).abs();
            let agreed = found == expected || (found.is_nan() && expected.is_nan());
            let ratio = if agreed { 0.0 } else { finite(error / allowed) };
            if worst.is_none_or(|(_, known, _)| ratio > known) {
                worst = Some((index, ratio, error));
            }
        }
        let Some((index, ratio, error)) = worst else { return };
        let allowed = tolerance.absolute + tolerance.relative * f64::from(expected[index]).abs();
        self.count(Worst { ratio, error, tolerance: allowed, place: format!("{place}[{index}]") }, || {
            format!("found {}, expected {}", found[index], expected[index])
        });
    }

    /// Compares by the L2 norm of the difference relative to that of the expected values, plus an absolute floor.
    pub fn relative_l2(&mut self, place: &str, found: &[f32], expected: &[f32], relative: f64, floor: f64) {
        self.checks += 1;
        if found.len() != expected.len() {
            return self.fail(place, format!("{} values where {} are expected", found.len(), expected.len()));
        }
        let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let pairs = found.iter().zip(expected);
        let error = square(&mut pairs.map(|(found, expected)| f64::from(*found) - f64::from(*expected)));
        let size = square(&mut expected.iter().map(|value| f64::from(*value)));
        let allowed = relative * size + floor;
        let worst = Worst { ratio: finite(error / allowed), error, tolerance: allowed, place: place.to_owned() };
        self.count(worst, || format!("difference of norm {error:.3e} against {size:.3e}"));
    }

    /// Compares one number.
    pub fn number(&mut self, place: &str, found: f64, expected: f64, tolerance: Tolerance) {
        self.checks += 1;
        let allowed = tolerance.absolute + tolerance.relative * expected.abs();
        let error = (found - expected).abs();
        let worst = Worst { ratio: finite(error / allowed), error, tolerance: allowed, place: place.to_owned() };
        self.count(worst, || format!("found {found}, expected {expected}"));
    }

    /// Compares what must be equal.
    pub fn exact<T: PartialEq + std::fmt::Debug>(&mut self, place: &str, found: &T, expected: &T) {
        self.checks += 1;
        if found != expected {
            self.fail(place, format!("found {}, expected {}", brief(found), brief(expected)));
        }
    }

    pub fn fail(&mut self, place: &str, problem: impl Into<String>) {
        self.checks = self.checks.max(1);
        let worst = Worst { ratio: f64::INFINITY, error: f64::INFINITY, tolerance: 0.0, place: place.to_owned() };
        let problem = problem.into();
        self.count(worst, || problem);
    }

    /// Says that a part of the case was not checked, and why.
    pub fn leave_out(&mut self, what: impl Into<String>) {
        self.left_out.push(what.into());
    }

    /// Takes over what another comparison saw.
    pub fn merge(&mut self, other: Comparison) {
        self.checks += other.checks;
        self.left_out.extend(other.left_out);
        if self.first_failure.is_none() {
            self.first_failure = other.first_failure;
        }
        if let Some(worst) = other.worst {
            self.keep(worst);
        }
    }

    fn count(&mut self, worst: Worst, describe: impl FnOnce() -> String) {
        if worst.ratio > 1.0 && self.first_failure.is_none() {
            self.first_failure = Some(format!("{}: {}", worst.place, describe()));
        }
        self.keep(worst);
    }

    fn keep(&mut self, worst: Worst) {
        if self.worst.as_ref().is_none_or(|known| worst.ratio > known.ratio) {
            self.worst = Some(worst);
        }
    }
}

/// A ratio of not-a-number (0 against 0 allowed, or a non-finite error) is a failure unless the error is 0.
fn finite(ratio: f64) -> f64 {
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

fn brief(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { absolute: 0.1, relative: 0.0 };

    #[test]
    fn the_first_failure_is_kept_and_the_worst_is_found() {
        let mut comparison = Comparison::default();
        comparison.values("a", &[1.0, 2.05], &[1.0, 2.0], TOLERANCE);
        assert!(comparison.passed());
        comparison.values("b", &[1.0, 2.2], &[1.0, 2.0], TOLERANCE);
        comparison.values("c", &[9.0], &[1.0], TOLERANCE);
        assert!(comparison.first_failure.as_ref().unwrap().starts_with("b[1]"));
        assert_eq!(comparison.worst.as_ref().unwrap().place, "c[0]");
    }

    #[test]
    fn nothing_compared_is_not_a_pass_and_nan_is_a_failure() {
        assert!(!Comparison::default().passed());
        let mut comparison = Comparison::default();
        comparison.values("x", &[f32::NAN], &[1.0], TOLERANCE);
        assert!(!comparison.passed());
        let mut comparison = Comparison::default();
        comparison.values("x", &[1.0], &[1.0, 2.0], TOLERANCE);
        assert!(!comparison.passed());
    }
}
