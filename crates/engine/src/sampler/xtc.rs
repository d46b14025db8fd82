//! "Exclude top choices".

use super::{History, LogitsProcessor, probabilities};
use crate::rng::Purpose;

/// P. E. Weidmann 2024: with probability `probability`, of all tokens that are at least `threshold` likely only the least
/// likely stays; where there are fewer than two, nothing changes. The most probable continuation is thus left aside when
/// there is a good second one.
#[derive(Debug, Clone, Copy)]
pub struct Xtc {
    pub probability: f32,
    pub threshold: f32,
}

impl LogitsProcessor for Xtc {
    fn process(&self, history: &History<'_>, logits: &mut [f32]) {
        if history.draws.uniform(history.tokens.len(), Purpose::Xtc) >= f64::from(self.probability) {
            return;
        }
        let probs = probabilities(logits);
        let mut likely: Vec<usize> =
            (0..logits.len()).filter(|&id| probs[id] > 0.0 && probs[id] >= f64::from(self.threshold)).collect();
        // Most likely first, of equal ones the lowest id: the last one is the one that stays.
        likely.sort_by(|&a, &b| probs[b].total_cmp(&probs[a]).then(a.cmp(&b)));
        likely.pop();
        for id in likely {
            logits[id] = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::{process, process_after};
    use super::*;

    const GONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn the_least_likely_of_the_likely_stays() {
        let always = Xtc { probability: 1.0, threshold: 0.1 };
        let row: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].map(f32::ln).to_vec();
        assert_eq!(process(&always, &row), [GONE, GONE, row[2], row[3]]);
        let sure: Vec<f32> = [0.95f32, 0.05].map(f32::ln).to_vec();
        assert_eq!(process(&always, &sure), sure, "one likely token is no choice");
        let never = Xtc { probability: 0.0, threshold: 0.1 };
        assert_eq!(process(&never, &row), row);
        let above_half = Xtc { probability: 1.0, threshold: 0.51 };
        assert_eq!(process(&above_half, &row), row);
    }

    #[test]
    fn it_acts_as_often_as_asked() {
        let xtc = Xtc { probability: 0.3, threshold: 0.1 };
        let tokens = vec![0; 4000];
        let acted = (0..4000).filter(|&n| process_after(&xtc, &tokens[..n], &[0.0, 0.0])[0] == GONE).count();
        assert!((1080..1320).contains(&acted), "{acted}");
    }
}
