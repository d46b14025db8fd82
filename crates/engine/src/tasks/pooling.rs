//! Pooling: the vector of a text from the vectors of its tokens.

use serde::Serialize;

/// How the rows of a text become one vector. `h_t` are the hidden states of its T tokens, special ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// Every `h_t` as it is.
    None,
    /// `h_1`
    Cls,
    /// The largest value of each element.
    Max,
    /// `sum h_t / T`
    Mean,
    /// `sum h_t / sqrt(T)`
    MeanSqrtLen,
    /// `sum t h_t / sum t`, so that later tokens, which have seen more, count more (Muennighoff 2022).
    WeightedMean,
    /// `h_T`
    Last,
}

/// The ways of the sentence-transformers library in the order in which it puts several side by side: what its flags
/// `pooling_mode_...` end with, and a shorter name.
pub const NAMES: [(Pooling, &str, &str); 6] = [
    (Pooling::Cls, "cls_token", "cls"),
    (Pooling::Max, "max_tokens", "max"),
    (Pooling::Mean, "mean_tokens", "mean"),
    (Pooling::MeanSqrtLen, "mean_sqrt_len_tokens", "mean_sqrt_len"),
    (Pooling::WeightedMean, "weightedmean_tokens", "weightedmean"),
    (Pooling::Last, "lasttoken", "last"),
];

/// The ways that GGUF has a number for, under `pooling_type`.
const GGUF: [(usize, Pooling); 4] = [(0, Pooling::None), (1, Pooling::Mean), (2, Pooling::Cls), (3, Pooling::Last)];

/// The number there of no vector at all, but a score by the file's classifier.
pub(super) const GGUF_RANK: usize = 4;

impl Pooling {
    /// A way by either of the names that files, and the command line, have for it.
    pub fn named(name: &str) -> Option<Pooling> {
        NAMES.iter().find(|(_, long, short)| name == *long || name == *short).map(|(pooling, ..)| *pooling)
    }

    /// The name that files have for it; vectors of every token have none.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(own, ..)| *own == self).map(|(_, long, _)| *long)
    }

    /// The way that is meant by a number in a GGUF file.
    pub fn of_gguf(number: usize) -> Option<Pooling> {
        GGUF.iter().find(|(own, _)| *own == number).map(|(_, pooling)| *pooling)
    }

    /// The number that GGUF has for this way.
    pub fn gguf(self) -> Option<u32> {
        GGUF.iter().find(|(_, own)| *own == self).map(|(number, _)| *number as u32)
    }

    /// Appends the pooled vector of `rows` [T, width] to `out`. The first `skip` tokens (a prompt that is not to count)
    /// take no part, except for what reads the first token.
    pub(crate) fn pool(self, rows: &[f32], width: usize, skip: usize, out: &mut Vec<f32>) {
        let counted = rows.get(skip * width..).filter(|rows| !rows.is_empty()).unwrap_or(rows);
        let tokens = counted.len() / width;
        match self {
            Pooling::None => out.extend_from_slice(counted),
            Pooling::Cls => out.extend_from_slice(&rows[..width]),
            Pooling::Last => out.extend_from_slice(&rows[rows.len() - width..]),
            Pooling::Max => {
                let start = out.len();
                out.extend_from_slice(&counted[..width]);
                for row in counted.chunks_exact(width).skip(1) {
                    out[start..].iter_mut().zip(row).for_each(|(most, value)| *most = most.max(*value));
                }
            }
            Pooling::Mean => sum(counted, width, |_| 1.0, tokens as f64, out),
            Pooling::MeanSqrtLen => sum(counted, width, |_| 1.0, (tokens as f64).sqrt(), out),
            Pooling::WeightedMean => {
                // Weights count from the text's first token, also where a prompt in front takes no part.
                let weight = |index: usize| (skip.min(rows.len() / width - tokens) + index + 1) as f64;
                let total = (0..tokens).map(weight).sum();
                sum(counted, width, weight, total, out);
            }
        }
    }

    /// Vectors that one text gives: 1, or one a token.
    pub(crate) fn per_token(self) -> bool {
        self == Pooling::None
    }
}

/// Appends `sum weight(t) h_t / divisor`.
fn sum(rows: &[f32], width: usize, weight: impl Fn(usize) -> f64, divisor: f64, out: &mut Vec<f32>) {
    let mut sums = vec![0.0f64; width];
    for (index, row) in rows.chunks_exact(width).enumerate() {
        let weight = weight(index);
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight * f64::from(*value));
    }
    out.extend(sums.iter().map(|sum| (sum / divisor) as f32));
}

/// Scales a vector to length 1; one of length 0 stays.
pub(crate) fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling, skip: usize) -> Vec<f32> {
        let mut out = vec![9.0];
        pooling.pool(&[1.0, -8.0, 3.0, -2.0, 5.0, -5.0], 2, skip, &mut out);
        assert_eq!(out.remove(0), 9.0, "what is there stays");
        out
    }

    #[test]
    fn each_formula() {
        assert_eq!(pooled(Pooling::Cls, 0), [1.0, -8.0]);
        assert_eq!(pooled(Pooling::Last, 0), [5.0, -5.0]);
        assert_eq!(pooled(Pooling::Max, 0), [5.0, -2.0]);
        assert_eq!(pooled(Pooling::Mean, 0), [3.0, -5.0]);
        assert_eq!(pooled(Pooling::MeanSqrtLen, 0), [9.0 / 3f64.sqrt(), -15.0 / 3f64.sqrt()].map(|x| x as f32));
        assert_eq!(pooled(Pooling::WeightedMean, 0), [22.0 / 6.0, -27.0 / 6.0]);
        assert_eq!(pooled(Pooling::None, 0).len(), 6);
    }

    #[test]
    fn a_prompt_may_be_left_out() {
        assert_eq!(pooled(Pooling::Mean, 1), [4.0, -3.5]);
        assert_eq!(pooled(Pooling::WeightedMean, 1), [21.0 / 5.0, -19.0 / 5.0]);
        assert_eq!(pooled(Pooling::Cls, 1), [1.0, -8.0]);
        assert_eq!(pooled(Pooling::Mean, 3), pooled(Pooling::Mean, 0), "a prompt is not all there is");
    }

    #[test]
    fn length_one() {
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
        let mut zero = [0.0, 0.0];
        normalize(&mut zero);
        assert_eq!(zero, [0.0, 0.0]);
    }
}
