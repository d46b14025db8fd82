//! Learning-rate schedules: the rate of a step is a function of its number alone, so that a run that goes on after a
//! stop goes on with the same rates.

use std::f64::consts::PI;

/// How a rate goes from 1 to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecayShape {
    Linear,
    Cosine,
    /// `1 - sqrt(progress)`
    SquareRoot,
}

/// The learning rate over the steps of a run. `total` counts all steps, `warmup` those in which the rate first grows
/// linearly from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    Constant {
        warmup: u64,
    },
    /// Down to 0 at `total`.
    Linear {
        warmup: u64,
        total: u64,
    },
    /// Down by `cycles` waves of a cosine (a half: once, to `min_ratio` at `total`).
    Cosine {
        warmup: u64,
        total: u64,
        cycles: f64,
        min_ratio: f64,
    },
    /// A falling half wave, `cycles` times.
    CosineRestarts {
        warmup: u64,
        total: u64,
        cycles: f64,
    },
    /// From the base rate to the rate `end` at `total`, by a power of what remains.
    Polynomial {
        warmup: u64,
        total: u64,
        power: f64,
        end: f64,
    },
    /// `1 / sqrt(step)` after the warm-up, continuous with it; without one the time scale is 10000 steps.
    InverseSqrt {
        warmup: u64,
    },
    /// Warm-up, a plateau, and `decay` steps to `min_ratio` at `total`.
    WarmupStableDecay {
        warmup: u64,
        total: u64,
        decay: u64,
        min_ratio: f64,
        shape: DecayShape,
    },
    /// `base d^-0.5 min(t^-0.5, t warmup^-1.5)` with `t` from 1 (Vaswani et al. 2017, section 5.3).
    Noam {
        width: usize,
        warmup: u64,
    },
}

impl Schedule {
    /// The learning rate of step `step`, counted from 0, for a run whose highest rate is `base`.
    pub fn rate(&self, base: f64, step: u64) -> f64 {
        base * self.factor(base, step)
    }

    fn factor(&self, base: f64, step: u64) -> f64 {
        if let Some(factor) = self.warming(step) {
            return factor;
        }
        match *self {
            Schedule::Constant { .. } => 1.0,
            Schedule::Linear { warmup, total } => (1.0 - progress(step, warmup, total)).max(0.0),
            Schedule::Cosine { warmup, total, cycles, min_ratio } => {
                let wave = half_wave(2.0 * cycles * progress(step, warmup, total));
                (wave * (1.0 - min_ratio) + min_ratio).max(0.0)
            }
            Schedule::CosineRestarts { warmup, total, cycles } => match progress(step, warmup, total) {
                done if done >= 1.0 => 0.0,
                done => half_wave((cycles * done).fract()).max(0.0),
            },
            Schedule::Polynomial { end, .. } if base == 0.0 => end,
            Schedule::Polynomial { total, end, .. } if step > total => end / base,
            Schedule::Polynomial { warmup, total, power, end } => {
                let remaining = (1.0 - progress(step, warmup, total)).max(0.0);
                ((base - end) * remaining.powf(power) + end) / base
            }
            Schedule::InverseSqrt { warmup } => {
                let scale = if warmup == 0 { 10_000.0 } else { warmup as f64 };
                let shift = scale - warmup as f64;
                ((step as f64 + shift) / scale).sqrt().recip()
            }
            Schedule::WarmupStableDecay { warmup, total, decay, min_ratio, shape } => {
                let start = total.saturating_sub(decay).max(warmup);
                match step {
                    step if step < start => 1.0,
                    step if step >= start.saturating_add(decay) => min_ratio,
                    step => shape.at((step - start) as f64 / decay.max(1) as f64) * (1.0 - min_ratio) + min_ratio,
                }
            }
            Schedule::Noam { width, warmup } => {
                let (step, warmup) = (step as f64 + 1.0, warmup.max(1) as f64);
                (width as f64).powf(-0.5) * step.powf(-0.5).min(step * warmup.powf(-1.5))
            }
        }
    }

    /// The factor of a step of the warm-up.
    fn warming(&self, step: u64) -> Option<f64> {
        let (warmup, least) = match *self {
            Schedule::Constant { warmup }
            | Schedule::Linear { warmup, .. }
            | Schedule::Cosine { warmup, .. }
            | Schedule::CosineRestarts { warmup, .. }
            | Schedule::Polynomial { warmup, .. }
            | Schedule::InverseSqrt { warmup } => (warmup, 0.0),
            Schedule::WarmupStableDecay { warmup, min_ratio, .. } => (warmup, min_ratio),
            Schedule::Noam { .. } => return None,
        };
        (step < warmup).then(|| step as f64 / warmup as f64 * (1.0 - least) + least)
    }
}

impl DecayShape {
    fn at(self, progress: f64) -> f64 {
        match self {
            DecayShape::Linear => 1.0 - progress,
            DecayShape::Cosine => half_wave(progress),
            DecayShape::SquareRoot => 1.0 - progress.sqrt(),
        }
    }
}

/// From 1 to 0 as `progress` goes from 0 to 1.
fn half_wave(progress: f64) -> f64 {
    0.5 * (1.0 + (PI * progress).cos())
}

/// How much of the run after its warm-up is done.
fn progress(step: u64, warmup: u64, total: u64) -> f64 {
    step.saturating_sub(warmup) as f64 / total.saturating_sub(warmup).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_starts_at_nothing_and_ends_at_the_base_rate() {
        let schedule = Schedule::Linear { warmup: 4, total: 12 };
        let rates: Vec<f64> = (0..14).map(|step| schedule.rate(1.0, step)).collect();
        assert_eq!(&rates[..6], [0.0, 0.25, 0.5, 0.75, 1.0, 0.875]);
        assert_eq!(&rates[12..], [0.0, 0.0]);
    }

    #[test]
    fn a_decay_longer_than_the_run_begins_after_the_warm_up() {
        let shape = DecayShape::Linear;
        let schedule = Schedule::WarmupStableDecay { warmup: 2, total: 5, decay: 9, min_ratio: 0.1, shape };
        assert_eq!(schedule.rate(1.0, 2), 1.0);
        assert_eq!(schedule.rate(1.0, 11), 0.1);
        assert!((schedule.rate(1.0, 0) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_not_a_number() {
        let all = [
            Schedule::Constant { warmup: 0 },
            Schedule::Linear { warmup: 0, total: 0 },
            Schedule::Cosine { warmup: 0, total: 0, cycles: 0.5, min_ratio: 0.0 },
            Schedule::CosineRestarts { warmup: 0, total: 0, cycles: 2.0 },
            Schedule::Polynomial { warmup: 0, total: 0, power: 2.0, end: 0.0 },
            Schedule::InverseSqrt { warmup: 0 },
            Schedule::WarmupStableDecay { warmup: 0, total: 0, decay: 0, min_ratio: 0.0, shape: DecayShape::Cosine },
            Schedule::Noam { width: 1, warmup: 0 },
        ];
        for schedule in all {
            for step in [0, 1, 7] {
                let rate = schedule.rate(0.0, step);
                assert!(rate.is_finite() && schedule.rate(1.0, step).is_finite(), "{schedule:?} {step}");
            }
        }
    }
}
