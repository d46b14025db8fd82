//! The gradient of attention: the textbook way, a row of scores at a time, in float64.

use super::kv::Side;
use super::textbook::{dot, modified, relative, softmax_f64};
use super::{Bias, Inputs};

/// Where gradients are added.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// `[T, heads * key_dim]`
    pub d_query: &'a mut [f32],
    /// `[S, kv_heads * key_dim]`, token after token from the first one held.
    pub d_key: &'a mut [f32],
    /// `[S, kv_heads * value_dim]`
    pub d_value: &'a mut [f32],
    /// In the layout of the bias's values.
    pub d_bias: Option<&'a mut [f32]>,
    /// `[heads]`
    pub d_sinks: Option<&'a mut [f32]>,
}

/// Adds to `gradients` what `d_out`, `[T, heads * value_dim]`, gives each input.
///
/// With `P` the probabilities and `dP = dO . V^T`: `dS = P (dP - sum(P dP))`, from which scale and cap lead back to
/// queries and keys; `dV = P^T . dO`; a sink, whose share `p` of the softmax has no value, gets `-p sum(P dP)`.
pub fn attention_backward(inputs: &Inputs, d_out: &[f32], gradients: &mut Gradients) {
    let (rows, keys, shape) = (inputs.rows(), inputs.keys(), inputs.shape);
    if rows == 0 || keys == 0 {
        return;
    }
    for kv_head in 0..shape.kv_heads {
        let mut pass = Pass {
            inputs,
            key: inputs.kv.gather(&shape, Side::Key, kv_head),
            value: inputs.kv.gather(&shape, Side::Value, kv_head),
            d_key: vec![0.0; keys * shape.key_dim],
            d_value: vec![0.0; keys * shape.value_dim],
        };
        for head in kv_head * shape.group()..(kv_head + 1) * shape.group() {
            for row in 0..rows {
                let start = (row * shape.heads + head) * shape.value_dim;
                pass.row(head, row, &d_out[start..start + shape.value_dim], gradients);
            }
        }
        add_head(gradients.d_key, &pass.d_key, shape.kv_heads, kv_head, shape.key_dim);
        add_head(gradients.d_value, &pass.d_value, shape.kv_heads, kv_head, shape.value_dim);
    }
}

/// Adds one head's `[S, dim]` to its columns of `[S, heads * dim]`.
fn add_head(out: &mut [f32], part: &[f64], heads: usize, head: usize, dim: usize) {
    for (out, part) in out.chunks_exact_mut(heads * dim).zip(part.chunks_exact(dim)) {
        for (out, part) in out[head * dim..][..dim].iter_mut().zip(part) {
            *out += *part as f32;
        }
    }
}

/// One KV head's keys and values and their gradients, `[S, dim]` each.
struct Pass<'a, 'b, 'c> {
    inputs: &'c Inputs<'a, 'b>,
    key: Vec<f32>,
    value: Vec<f32>,
    d_key: Vec<f64>,
    d_value: Vec<f64>,
}

impl Pass<'_, '_, '_> {
    /// Takes one row of one query head back; `d_out` is `[value_dim]`.
    fn row(&mut self, head: usize, row: usize, d_out: &[f32], gradients: &mut Gradients) {
        let (mut probs, slopes) = self.scores(head, row);
        let sink = self.inputs.scores.sinks.map(|sinks| sinks[head]);
        let sink_share = softmax_f64(&mut probs, sink);
        let d_probs = self.values(row, &probs, d_out);
        let mean: f64 = probs.iter().zip(&d_probs).map(|(p, d)| p * d).sum();
        if let Some(d_sinks) = gradients.d_sinks.as_deref_mut() {
            d_sinks[head] -= (sink_share * mean) as f32;
        }
        // A key whose weight is 0 (a bias of -inf) has no gradient, whatever its value.
        let d_score = |(&p, &d): (&f64, &f64)| if p == 0.0 { 0.0 } else { p * (d - mean) };
        let d_scores: Vec<f64> = probs.iter().zip(&d_probs).map(d_score).collect();
        let d_dots: Vec<f64> = d_scores.iter().zip(&slopes).map(|(d, slope)| d * slope).collect();
        if let Some(d_bias) = gradients.d_bias.as_deref_mut() {
            let d = if self.inputs.scores.bias_scaled { &d_dots } else { &d_scores };
            self.bias(head, row, d, d_bias);
        }
        self.query_and_keys(head, row, &d_dots, gradients.d_query);
    }

    /// Scores of the keys that the row may see, and their derivatives by `q . k`.
    fn scores(&self, head: usize, row: usize) -> (Vec<f64>, Vec<f64>) {
        let (inputs, query) = (self.inputs, self.inputs.query(row, head));
        let range = inputs.range(row);
        let mut gathered = vec![0.0; range.len()];
        let bias = inputs.scores.bias.row((head, row, inputs.first_query + row), range, &mut gathered);
        let score = |(i, key): (usize, usize)| {
            let dot = dot(query, &self.key[key * query.len()..][..query.len()]);
            modified(inputs, dot, bias.map_or(0.0, |bias| bias[i]))
        };
        relative(inputs, row).enumerate().map(score).unzip()
    }

    /// Adds the gradient of the values, and returns that of the probabilities.
    fn values(&mut self, row: usize, probs: &[f64], d_out: &[f32]) -> Vec<f64> {
        let dim = d_out.len();
        let take = |(key, &p): (usize, &f64)| {
            for (d_value, &g) in self.d_value[key * dim..][..dim].iter_mut().zip(d_out) {
                *d_value += p * f64::from(g);
            }
            dot(d_out, &self.value[key * dim..][..dim])
        };
        relative(self.inputs, row).zip(probs).map(take).collect()
    }

    fn bias(&self, head: usize, row: usize, d: &[f64], d_bias: &mut [f32]) {
        let (inputs, range) = (self.inputs, self.inputs.range(row));
        if range.is_empty() || matches!(inputs.scores.bias, Bias::None) {
            return;
        }
        let query = inputs.first_query + row;
        if let Bias::Gathered(gathered) = inputs.scores.bias {
            for (key, d) in range.zip(d) {
                for place in gathered.places(head, row, query, key).into_iter().flatten() {
                    d_bias[place] += *d as f32;
                }
            }
            return;
        }
        if let Some((_, start)) = inputs.scores.bias.locate(head, row, query, range.start) {
            for (slot, d) in d_bias[start..].iter_mut().zip(d) {
                *slot += *d as f32;
            }
        }
    }

    fn query_and_keys(&mut self, head: usize, row: usize, d_dots: &[f64], d_query: &mut [f32]) {
        let (inputs, query) = (self.inputs, self.inputs.query(row, head));
        let dim = query.len();
        let mut sum = vec![0.0f64; dim];
        for (key, &d) in relative(inputs, row).zip(d_dots) {
            let keys = self.key[key * dim..][..dim].iter().zip(&mut self.d_key[key * dim..][..dim]);
            for ((sum, &q), (&k, d_key)) in sum.iter_mut().zip(query).zip(keys) {
                *sum += d * f64::from(k);
                *d_key += d * f64::from(q);
            }
        }
        let start = (row * inputs.shape.heads + head) * dim;
        for (slot, sum) in d_query[start..start + dim].iter_mut().zip(&sum) {
            *slot += *sum as f32;
        }
    }
}
