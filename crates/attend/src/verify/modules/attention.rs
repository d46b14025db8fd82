//! Attention: the textbook version with its probabilities, the fused one, and the gradients.

use super::super::compare::Comparison;
use super::Module;
use anyhow::{Context, Result, bail};
use attend_kernels::{
    Bias, Call, DType, Gradients, Heads, KvBlocks, KvLayout, Mask, Scores, attention_backward, bytes_of, flash,
    textbook,
};
use serde_json::Value;

/// One row of a case's batch, token major.
struct Row {
    shape: Heads,
    queries: usize,
    keys: usize,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    /// [H, T, S]: additive, minus infinity where forbidden.
    bias: Vec<f32>,
    /// [T, S], where the case has a mask and nothing else is added.
    allowed: Option<Vec<bool>>,
    sinks: Option<Vec<f32>>,
    scale: f32,
    soft_cap: Option<f32>,
    batch_row: usize,
}

pub fn attention(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let cases = module.setting("/cases")?.as_object().context("cases is not an object")?;
    for (name, settings) in cases {
        let rows = module.floats(&format!("{name}.q"))?.shape[0];
        let mut outputs = Outputs::default();
        for row in 0..rows {
            Row::read(module, name, settings, row)?.run(module, name, &mut outputs)?;
        }
        outputs.compare(module, name, comparison)?;
    }
    Ok(())
}

/// What all rows of a case gave, in the case's layout.
#[derive(Default)]
struct Outputs {
    probs: Vec<f32>,
    textbook: Vec<f32>,
    flash: Vec<f32>,
    /// With the mask as a range; short of rows when one of them has a matrix that is no such mask.
    ranged: Vec<f32>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    bias: Vec<f32>,
    sinks: Vec<f32>,
}

impl Outputs {
    fn compare(self, module: &Module, name: &str, comparison: &mut Comparison) -> Result<()> {
        let at = |what: &str| format!("{name}.{what}");
        if module.has(&at("probs")) {
            module.compare(&at("probs"), &self.probs, comparison)?;
        }
        let expected = module.floats(&at("out"))?.values;
        for (way, found) in [("textbook", &self.textbook), ("flash", &self.flash), ("flash by mask", &self.ranged)] {
            if found.len() == expected.len() || way != "flash by mask" {
                comparison.values(&format!("{name}.out ({way})"), found, &expected, module.tolerance);
            }
        }
        let gradients = [
            ("grad_q", &self.query),
            ("grad_k", &self.key),
            ("grad_v", &self.value),
            ("grad_bias", &self.bias),
            ("grad_sinks", &self.sinks),
        ];
        for (what, found) in gradients {
            if module.has(&at(what)) {
                module.compare(&at(what), found, comparison)?;
            }
        }
        Ok(())
    }
}

impl Row {
    fn read(module: &Module, name: &str, settings: &Value, row: usize) -> Result<Row> {
        let read = |what: &str| module.floats(&format!("{name}.{what}"));
        let (query, key, value) = (read("q")?, read("k")?, read("v")?);
        let part = |tensor: &super::Tensor<f32>| {
            let size: usize = tensor.shape[1..].iter().product();
            exchange(&tensor.values[row * size..(row + 1) * size], tensor.shape[1], tensor.shape[2], tensor.shape[3])
        };
        let ([_, heads, queries, key_dim], [_, kv_heads, keys, _]) = (&query.shape[..], &key.shape[..]) else {
            bail!("{name}: q and k do not have four dimensions");
        };
        let (heads, queries, keys) = (*heads, *queries, *keys);
        let plane = queries * keys;
        let mut bias = vec![0.0; heads * plane];
        let mut allowed = None;
        if module.has(&format!("{name}.mask")) {
            let mask = read("mask")?;
            let per_head = mask.shape[1] == heads && heads > 1;
            let start = row.min(mask.shape[0] - 1) * mask.shape[1] * plane;
            for (index, slot) in bias.iter_mut().enumerate() {
                let at = if per_head { index } else { index % plane };
                if mask.values[start + at] == 0.0 {
                    *slot = f32::NEG_INFINITY;
                }
            }
            if !per_head {
                allowed = Some(mask.values[start..start + plane].iter().map(|value| *value != 0.0).collect());
            }
        }
        if module.has(&format!("{name}.bias")) {
            let extra = read("bias")?;
            let start = row.min(extra.shape[0] - 1) * extra.shape[1] * plane;
            let per_head = extra.shape[1] == heads;
            for (index, slot) in bias.iter_mut().enumerate() {
                *slot += extra.values[start + if per_head { index } else { index % plane }];
            }
            allowed = None;
        }
        let sinks = if module.has(&format!("{name}.sinks")) { Some(read("sinks")?.values) } else { None };
        Ok(Row {
            shape: Heads { heads, kv_heads: *kv_heads, key_dim: *key_dim, value_dim: value.shape[3] },
            queries,
            keys,
            query: part(&query),
            key: part(&key),
            value: part(&value),
            bias,
            allowed,
            sinks,
            scale: settings.get("scale").and_then(Value::as_f64).context("a case has no scale")? as f32,
            soft_cap: settings.get("softcap").and_then(Value::as_f64).map(|cap| cap as f32),
            batch_row: row,
        })
    }

    fn kv(&self) -> KvBlocks<'_> {
        KvBlocks {
            values_in_keys: false,
            key_type: DType::F32,
            value_type: DType::F32,
            layout: KvLayout::TokenMajor,
            block_tokens: self.keys,
            blocks: vec![(bytes_of(&self.key), bytes_of(&self.value))],
            first: 0,
            len: self.keys,
        }
    }

    fn scores(&self) -> Scores<'_> {
        Scores {
            soft_cap: self.soft_cap,
            bias: Bias::Full { values: &self.bias, queries: self.queries, keys: self.keys },
            sinks: self.sinks.as_deref(),
            ..Scores::plain(self.scale, Mask::Full)
        }
    }

    fn call<'c>(&'c self, scores: Scores<'c>, first_query: usize, out: &'c mut [f32]) -> Call<'c> {
        Call { shape: self.shape, query: &self.query, first_query, kv: self.kv(), scores, out }
    }

    fn run(&self, module: &Module, name: &str, outputs: &mut Outputs) -> Result<()> {
        let (heads, value_dim) = (self.shape.heads, self.shape.value_dim);
        let mut out = vec![0.0; self.queries * heads * value_dim];
        let mut probs = vec![0.0; heads * self.queries * self.keys];
        textbook(&mut self.call(self.scores(), 0, &mut out), None, Some(&mut probs));
        outputs.probs.extend(probs);
        outputs.textbook.extend(exchange(&out, self.queries, heads, value_dim));
        flash(&mut [self.call(self.scores(), 0, &mut out)]);
        outputs.flash.extend(exchange(&out, self.queries, heads, value_dim));
        if let Some((mask, first_query)) = self.as_mask() {
            let scores =
                Scores { soft_cap: self.soft_cap, sinks: self.sinks.as_deref(), ..Scores::plain(self.scale, mask) };
            flash(&mut [self.call(scores, first_query, &mut out)]);
            outputs.ranged.extend(exchange(&out, self.queries, heads, value_dim));
        }
        self.gradients(module, name, outputs)
    }

    fn gradients(&self, module: &Module, name: &str, outputs: &mut Outputs) -> Result<()> {
        let grad_out = format!("{name}.grad_out");
        if !module.has(&grad_out) {
            return Ok(());
        }
        let (shape, queries) = (self.shape, self.queries);
        let size = shape.heads * queries * shape.value_dim;
        let d_out = module.floats(&grad_out)?.values[self.batch_row * size..(self.batch_row + 1) * size].to_vec();
        let d_out = exchange(&d_out, shape.heads, queries, shape.value_dim);
        let (mut query, mut key, mut value) =
            (vec![0.0; self.query.len()], vec![0.0; self.key.len()], vec![0.0; self.value.len()]);
        let mut sinks = self.sinks.as_ref().map(|sinks| vec![0.0; sinks.len()]);
        let mut bias = vec![0.0; self.bias.len()];
        let mut unused = Vec::new();
        let call = self.call(self.scores(), 0, &mut unused);
        let mut slots = Gradients {
            d_query: &mut query,
            d_key: &mut key,
            d_value: &mut value,
            d_bias: Some(&mut bias),
            d_sinks: sinks.as_deref_mut(),
        };
        attention_backward(&call.inputs(), &d_out, &mut slots);
        outputs.query.extend(exchange(&query, queries, shape.heads, shape.key_dim));
        outputs.key.extend(exchange(&key, self.keys, shape.kv_heads, shape.key_dim));
        outputs.value.extend(exchange(&value, self.keys, shape.kv_heads, shape.value_dim));
        outputs.bias.extend(bias);
        // Sinks are shared by the rows of a batch, so that their gradients add.
        if let Some(sinks) = sinks {
            outputs.sinks.resize(sinks.len(), 0.0);
            outputs.sinks.iter_mut().zip(sinks).for_each(|(sum, d)| *sum += d);
        }
        Ok(())
    }

    /// The mask of the description that the case's matrix is, where there is one, and the index of the first query.
    fn as_mask(&self) -> Option<(Mask, usize)> {
        let first = self.keys.checked_sub(self.queries)?;
        let Some(allowed) = &self.allowed else {
            let free = self.bias.iter().all(|bias| *bias == 0.0);
            return free.then_some((Mask::Full, 0));
        };
        let windows = (0..self.keys).flat_map(|left| (0..self.keys).map(move |right| Mask::Window { left, right }));
        let masks = [Mask::Full, Mask::Causal].into_iter().chain(windows);
        let fits = |mask: &Mask| {
            (0..self.queries).all(|query| {
                let range = mask.range(first + query, self.keys);
                (0..self.keys).all(|key| allowed[query * self.keys + key] == range.contains(&key))
            })
        };
        masks.into_iter().find(fits).map(|mask| (mask, first))
    }
}

/// [a, b, inner] to [b, a, inner].
fn exchange(x: &[f32], a: usize, b: usize, inner: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    for j in 0..b {
        for i in 0..a {
            let at = (i * b + j) * inner;
            out.extend_from_slice(&x[at..at + inner]);
        }
    }
    out
}
