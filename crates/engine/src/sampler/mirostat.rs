//! Mirostat 2.

use super::probabilities;

/// Basu et al. 2021, algorithm 2: keeps the surprise of the generated text near `tau` bits. Tokens more surprising than
/// `mu` are removed; after each choice `mu` moves by `eta` times the error. `mu` starts at `2 * tau`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mirostat {
    pub tau: f32,
    pub eta: f32,
    /// The threshold that moves.
    pub mu: f64,
}

impl Mirostat {
    pub fn new(tau: f32, eta: f32) -> Mirostat {
        Mirostat { tau, eta, mu: 2.0 * f64::from(tau) }
    }

    /// Removes tokens that are too surprising; the most likely always stays.
    pub fn truncate(&self, logits: &mut [f32]) {
        let probs = probabilities(logits);
        let best = super::argmax(logits);
        super::retain(logits, |id, _| best == Some(id as u32) || (probs[id] > 0.0 && -probs[id].log2() <= self.mu));
    }

    /// Learns from the choice of a token; `logits` as [`Mirostat::truncate`] left them.
    pub fn observe(&mut self, logits: &[f32], chosen: u32) {
        let probability = probabilities(logits).get(chosen as usize).copied().unwrap_or(0.0);
        if probability > 0.0 {
            self.mu -= f64::from(self.eta) * (-probability.log2() - f64::from(self.tau));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_the_surprising_and_moves_its_threshold() {
        let mut mirostat = Mirostat::new(1.0, 0.5);
        let row: Vec<f32> = [0.5f32, 0.25, 0.125, 0.125].map(f32::ln).to_vec();
        let mut cut = row.clone();
        mirostat.mu = 2.01;
        mirostat.truncate(&mut cut);
        assert_eq!(cut[..2], row[..2]);
        assert_eq!(cut[2..], [f32::NEG_INFINITY; 2]);
        // Renormalised, token 0 has 2/3: surprise log2(1.5), less than tau, so the threshold rises.
        mirostat.observe(&cut, 0);
        assert!((mirostat.mu - (2.01 + 0.5 * (1.0 - 1.5f64.log2()))).abs() < 1e-6);
        mirostat.mu = -3.0;
        let mut best = row.clone();
        mirostat.truncate(&mut best);
        assert_eq!(best.iter().filter(|x| x.is_finite()).count(), 1);
    }
}
