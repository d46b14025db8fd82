//! Attention as textbooks write it: all scores, their softmax, then the mix of values.
//!
//! Dot products and sums are float64, so that what the fast version is tested against has no error of its own to speak
//! of. The three stages stand apart, for observers that look at or change what lies between them.

use super::kv::Side;
use super::{Call, Inputs};
use std::ops::Range;

/// Attention in three stages. `scores` and `probs`, where given, receive `[heads, T, S]` with `S = len - first`; scores
/// are those after scale, cap and bias, and `-inf` where the mask forbids.
pub fn textbook(call: &mut Call, scores: Option<&mut [f32]>, probs: Option<&mut [f32]>) {
    let inputs = call.inputs();
    let mut matrix = vec![0.0; inputs.shape.heads * inputs.rows() * inputs.keys()];
    attention_scores(&inputs, &mut matrix);
    if let Some(scores) = scores {
        scores.copy_from_slice(&matrix);
    }
    attention_probs(&inputs, &mut matrix);
    if let Some(probs) = probs {
        probs.copy_from_slice(&matrix);
    }
    let mut out = vec![0.0; call.out.len()];
    attention_mix(&inputs, &matrix, &mut out);
    call.out.copy_from_slice(&out);
}

/// First stage: writes the scores, `[heads, T, S]`.
pub fn attention_scores(inputs: &Inputs, scores: &mut [f32]) {
    let (rows, keys, shape) = (inputs.rows(), inputs.keys(), inputs.shape);
    if rows == 0 || keys == 0 {
        return;
    }
    scores.fill(f32::NEG_INFINITY);
    for kv_head in 0..shape.kv_heads {
        let key = inputs.kv.gather(&shape, Side::Key, kv_head);
        for head in kv_head * shape.group()..(kv_head + 1) * shape.group() {
            for row in 0..rows {
                let scores = &mut scores[(head * rows + row) * keys..][..keys];
                score_row(inputs, &key, head, row, scores);
            }
        }
    }
}

/// Second stage: turns scores into probabilities in place, sinks taking their share.
pub fn attention_probs(inputs: &Inputs, scores: &mut [f32]) {
    let (rows, keys) = (inputs.rows(), inputs.keys());
    if rows == 0 || keys == 0 {
        return;
    }
    for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
        softmax_with_sink(row, inputs.scores.sinks.map(|sinks| sinks[i / rows]));
    }
}

/// Third stage: writes `out = probs . V`, `[T, heads * value_dim]`. Keys that a row may not see are never touched.
pub fn attention_mix(inputs: &Inputs, probs: &[f32], out: &mut [f32]) {
    let (rows, keys, shape) = (inputs.rows(), inputs.keys(), inputs.shape);
    let dim = shape.value_dim;
    let mut sum = vec![0.0f64; dim];
    for kv_head in 0..shape.kv_heads {
        let value = inputs.kv.gather(&shape, Side::Value, kv_head);
        for head in kv_head * shape.group()..(kv_head + 1) * shape.group() {
            for row in 0..rows {
                sum.fill(0.0);
                for key in relative(inputs, row) {
                    let p = f64::from(probs[(head * rows + row) * keys + key]);
                    for (sum, &v) in sum.iter_mut().zip(&value[key * dim..][..dim]) {
                        *sum += p * f64::from(v);
                    }
                }
                let out = &mut out[(row * shape.heads + head) * dim..][..dim];
                for (out, &sum) in out.iter_mut().zip(&sum) {
                    *out = sum as f32;
                }
            }
        }
    }
}

/// The keys that a row may see, counted from the first one held.
pub(super) fn relative(inputs: &Inputs, row: usize) -> Range<usize> {
    let range = inputs.range(row);
    range.start - inputs.kv.first..range.end - inputs.kv.first
}

fn score_row(inputs: &Inputs, key: &[f32], head: usize, row: usize, scores: &mut [f32]) {
    let (query, absolute) = (inputs.query(row, head), inputs.range(row));
    let mut gathered = vec![0.0; absolute.len()];
    let bias = inputs.scores.bias.row((head, row, inputs.first_query + row), absolute, &mut gathered);
    for (i, k) in relative(inputs, row).enumerate() {
        let dot = dot(query, &key[k * query.len()..][..query.len()]);
        scores[k] = modified(inputs, dot, bias.map_or(0.0, |bias| bias[i])).0 as f32;
    }
}

/// `q . k` in float64.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// The score that `q . k` becomes, and its derivative by `q . k`.
pub(super) fn modified(inputs: &Inputs, dot: f64, bias: f32) -> (f64, f64) {
    let (scale, bias) = (f64::from(inputs.scores.scale), f64::from(bias));
    let (inner, outer) = if inputs.scores.bias_scaled { (bias, 0.0) } else { (0.0, bias) };
    let scaled = (dot + inner) * scale;
    match inputs.scores.soft_cap.map(f64::from) {
        None => (scaled + outer, scale),
        Some(cap) => {
            let t = (scaled / cap).tanh();
            (cap * t + outer, scale * (1.0 - t * t))
        }
    }
}

/// Softmax over one row's scores in place, the sink taking its share. All `-inf` becomes all 0.
fn softmax_with_sink(row: &mut [f32], sink: Option<f32>) {
    let mut wide: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
    softmax_f64(&mut wide, sink);
    for (x, p) in row.iter_mut().zip(wide) {
        *x = p as f32;
    }
}

/// The same in float64; returns the sink's share.
pub(super) fn softmax_f64(row: &mut [f64], sink: Option<f32>) -> f64 {
    let sink = sink.map_or(f64::NEG_INFINITY, f64::from);
    let max = row.iter().fold(sink, |max, &x| if x > max || x.is_nan() { x } else { max });
    if max == f64::NEG_INFINITY {
        row.fill(0.0);
        return 0.0;
    }
    let sink = (sink - max).exp();
    let mut sum = sink;
    for x in row.iter_mut() {
        *x = (*x - max).exp();
        sum += *x;
    }
    for x in row.iter_mut() {
        *x /= sum;
    }
    sink / sum
}
