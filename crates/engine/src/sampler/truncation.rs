//! Samplers that forbid unlikely tokens.

use super::{History, LogitsProcessor, entropy, probabilities, retain};
use std::cmp::Ordering;

/// Fan et al. 2018: keeps the `k` highest logits and those equal to the k-th.
#[derive(Debug, Clone, Copy)]
pub struct TopK(pub usize);

impl LogitsProcessor for TopK {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        if self.0 == 0 || self.0 >= logits.len() {
            return;
        }
        let mut order = logits.to_vec();
        let (_, kth, _) = order.select_nth_unstable_by(self.0 - 1, |a, b| b.total_cmp(a));
        let kth = *kth;
        retain(logits, |_, logit| logit >= kth);
    }
}

/// Holtzman et al. 2020, nucleus sampling: keeps the most likely tokens until they reach probability `p`. In the
/// terms of Hugging Face: from the least likely up, tokens go while their cumulated probability is at most `1 - p`; the
/// best always stays, and of equal tokens the lower ids go first.
#[derive(Debug, Clone, Copy)]
pub struct TopP {
    pub p: f32,
    /// How many tokens stay in any case.
    pub at_least: usize,
}

impl TopP {
    /// The best token always stays.
    pub const fn new(p: f32) -> TopP {
        TopP { p, at_least: 1 }
    }
}

impl LogitsProcessor for TopP {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        let probs = probabilities(logits);
        let mut order: Vec<u32> =
            (0..logits.len() as u32).filter(|&id| logits[id as usize] > f32::NEG_INFINITY).collect();
        let likelier = |a: &u32, b: &u32| {
            let by_logit = logits[*b as usize].total_cmp(&logits[*a as usize]);
            by_logit.then(b.cmp(a))
        };
        let wanted = f64::from(self.p);
        // Large vocabularies: the nucleus is nearly always among the first few, so sort only as far as needed.
        let (mut kept, mut mass, mut sorted) = (0, 0.0, 0);
        while kept < order.len() {
            if kept == sorted {
                sorted = order.len().min((sorted * 8).max(256));
                sort_up_to(&mut order[kept..], sorted - kept, likelier);
            }
            if kept >= self.at_least.max(1) && mass >= wanted {
                break;
            }
            mass += probs[order[kept] as usize];
            kept += 1;
        }
        for &id in &order[kept..] {
            logits[id as usize] = f32::NEG_INFINITY;
        }
    }
}

/// Puts the first `count` elements of the order in front, sorted; the rest follow in any order.
fn sort_up_to(items: &mut [u32], count: usize, order: impl Fn(&u32, &u32) -> Ordering + Copy) {
    if count < items.len() {
        items.select_nth_unstable_by(count, order);
    }
    let count = count.min(items.len());
    items[..count].sort_unstable_by(order);
}

/// Nguyen et al. 2024: keeps tokens at least `p` times as likely as the most likely one.
#[derive(Debug, Clone, Copy)]
pub struct MinP(pub f32);

impl LogitsProcessor for MinP {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        let probs = probabilities(logits);
        let least = f64::from(self.0) * probs.iter().copied().fold(0.0, f64::max);
        retain(logits, |id, _| probs[id] >= least);
    }
}

/// Meister et al. 2023, locally typical sampling: keeps the tokens whose surprise `-ln p` is closest to the row's entropy,
/// until they reach probability `mass`, and those equally close as the last.
#[derive(Debug, Clone, Copy)]
pub struct Typical(pub f32);

impl LogitsProcessor for Typical {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        let probs = probabilities(logits);
        let entropy = entropy(&probs);
        // Rounded to f32 so that tokens with equal logits are equally far whatever their sums.
        let distance = |id: &u32| (-probs[*id as usize].ln() - entropy).abs() as f32;
        let mut order: Vec<u32> = (0..logits.len() as u32).filter(|&id| probs[id as usize] > 0.0).collect();
        order.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let mut mass = 0.0;
        let last = order.iter().find(|&&id| {
            mass += probs[id as usize];
            mass >= f64::from(self.0)
        });
        let Some(furthest) = last.or(order.last()).map(distance) else { return };
        let first = order.first().copied();
        retain(logits, |id, _| {
            let id = id as u32;
            first == Some(id) || (probs[id as usize] > 0.0 && distance(&id) <= furthest)
        });
    }
}

/// Tang et al. 2024, top-n-sigma: keeps logits within `n` standard deviations (of the remaining logits) of the highest.
#[derive(Debug, Clone, Copy)]
pub struct TopNSigma(pub f32);

impl LogitsProcessor for TopNSigma {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        let left = || logits.iter().copied().filter(|logit| *logit > f32::NEG_INFINITY).map(f64::from);
        let count = left().count() as f64;
        if count == 0.0 {
            return;
        }
        let mean = left().sum::<f64>() / count;
        let deviation = (left().map(|logit| (logit - mean).powi(2)).sum::<f64>() / count).sqrt();
        let least = left().fold(f64::NEG_INFINITY, f64::max) - f64::from(self.0) * deviation;
        retain(logits, |_, logit| f64::from(logit) >= least);
    }
}

/// Hewitt et al. 2022, epsilon sampling: removes tokens with a probability below `epsilon`, never the best.
#[derive(Debug, Clone, Copy)]
pub struct Epsilon(pub f32);

impl LogitsProcessor for Epsilon {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        cut_below(logits, |_| f64::from(self.0));
    }
}

/// Hewitt et al. 2022, eta sampling: removes tokens with a probability below `min(epsilon, sqrt(epsilon) * e^-entropy)`,
/// never the best.
#[derive(Debug, Clone, Copy)]
pub struct Eta(pub f32);

impl LogitsProcessor for Eta {
    fn process(&self, _: &History<'_>, logits: &mut [f32]) {
        let epsilon = f64::from(self.0);
        cut_below(logits, |probs| epsilon.min(epsilon.sqrt() * (-entropy(probs)).exp()));
    }
}

fn cut_below(logits: &mut [f32], least: impl Fn(&[f64]) -> f64) {
    let probs = probabilities(logits);
    let least = least(&probs);
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    retain(logits, |id, logit| probs[id] >= least || logit == highest);
}

#[cfg(test)]
mod tests {
    use super::super::chain::tests::process;
    use super::*;

    fn kept(processor: &dyn LogitsProcessor, row: &[f32]) -> Vec<usize> {
        let after = process(processor, row);
        (0..row.len()).filter(|&id| after[id] > f32::NEG_INFINITY).collect()
    }

    const GONE: f32 = f32::NEG_INFINITY;

    #[test]
    fn ties_with_the_kth_stay() {
        assert_eq!(kept(&TopK(2), &[1.0, 3.0, 2.0, 2.0, 0.0]), [1, 2, 3]);
        assert_eq!(kept(&TopK(1), &[1.0, 1.0, 0.0]), [0, 1]);
        assert_eq!(kept(&TopK(9), &[1.0, 0.0]), [0, 1]);
        assert_eq!(kept(&TopK(3), &[1.0, GONE, 0.0, GONE]), [0, 2]);
    }

    #[test]
    fn nucleus_edges() {
        // Probabilities 0.5 and 0.25 twice.
        let row = [2f32.ln(), 0.0, 0.0];
        assert_eq!(kept(&TopP::new(0.4), &row), [0]);
        assert_eq!(kept(&TopP::new(0.6), &row), [0, 2]);
        assert_eq!(kept(&TopP::new(0.0), &row), [0]);
        assert_eq!(kept(&TopP::new(0.8), &row), [0, 1, 2]);
        assert_eq!(kept(&TopP::new(0.9), &[GONE, GONE]), Vec::<usize>::new());
    }

    #[test]
    fn a_nucleus_wider_than_the_first_sort() {
        let row: Vec<f32> = (0..5000u32).map(|id| (id * 7919 % 5000) as f32 * -1e-6).collect();
        let after = process(&TopP::new(0.5), &row);
        let least = after.iter().copied().filter(|x| *x > GONE).fold(f32::INFINITY, f32::min);
        let count = after.iter().filter(|x| **x > GONE).count();
        assert!((2480..=2505).contains(&count), "{count}");
        assert!((0..5000).all(|id| (after[id] > GONE) == (row[id] >= least)));
    }

    #[test]
    fn sigma_is_of_the_remaining_logits() {
        // Mean 1, deviation 1 among the first two.
        assert_eq!(kept(&TopNSigma(1.9), &[2.0, 0.0, GONE]), [0]);
        assert_eq!(kept(&TopNSigma(2.0), &[2.0, 0.0, GONE]), [0, 1]);
        assert_eq!(kept(&TopNSigma(1.0), &[5.0, 5.0]), [0, 1]);
    }
}
