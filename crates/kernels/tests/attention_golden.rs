//! Attention, both versions and the gradient, against the reference.

use attend_kernels::*;
use attend_testkit::golden::{Golden, assert_close};

/// One row of a batch, token major, with the reference's mask as a bias of `-inf`.
struct Case {
    shape: Heads,
    scale: f32,
    soft_cap: Option<f32>,
    rows: usize,
    keys: usize,
    sinks: Option<Vec<f32>>,
    bias: Vec<f32>,
    tensors: [Vec<f32>; 5],
    grads: [Vec<f32>; 3],
    probs: Vec<f32>,
}

/// `[heads, tokens, dim]` to `[tokens, heads * dim]`.
fn token_major(x: &[f32], heads: usize, tokens: usize, dim: usize) -> Vec<f32> {
    let mut y = Vec::with_capacity(x.len());
    for t in 0..tokens {
        for h in 0..heads {
            y.extend(&x[(h * tokens + t) * dim..][..dim]);
        }
    }
    y
}

fn load(golden: &Golden, name: &str, row: usize) -> Case {
    let setting = &golden.json["cases"][name];
    let shape_of = |tensor: &str| golden.shape(&format!("{name}.{tensor}")).to_vec();
    let (q, k, v) = (shape_of("q"), shape_of("k"), shape_of("v"));
    let part = |tensor: &str, shape: &[usize]| -> Vec<f32> {
        let all = golden.f32(&format!("{name}.{tensor}"));
        let size = shape[1] * shape[2] * shape[3];
        token_major(&all[row * size..(row + 1) * size], shape[1], shape[2], shape[3])
    };
    let (heads, rows, keys) = (q[1], q[2], k[2]);
    let mut bias = vec![0.0; heads * rows * keys];
    let plane = rows * keys;
    if golden.has(&format!("{name}.mask")) {
        let mask = golden.i64(&format!("{name}.mask"));
        for (i, slot) in bias.iter_mut().enumerate() {
            if mask[row * plane + i % plane] == 0 {
                *slot = f32::NEG_INFINITY;
            }
        }
    }
    if golden.has(&format!("{name}.bias")) {
        bias.copy_from_slice(&golden.f32(&format!("{name}.bias"))[row * heads * plane..(row + 1) * heads * plane]);
    }
    let o = [q[0], q[1], q[2], v[3]];
    let sinks = format!("{name}.sinks");
    Case {
        shape: Heads { heads, kv_heads: k[1], key_dim: q[3], value_dim: v[3] },
        scale: setting["scale"].as_f64().expect("a scale") as f32,
        soft_cap: setting["softcap"].as_f64().map(|c| c as f32),
        rows,
        keys,
        sinks: golden.has(&sinks).then(|| golden.f32(&sinks)),
        bias,
        tensors: [part("q", &q), part("k", &k), part("v", &v), part("out", &o), part("grad_out", &o)],
        grads: [part("grad_q", &q), part("grad_k", &k), part("grad_v", &v)],
        probs: golden.f32(&format!("{name}.probs"))[row * heads * plane..(row + 1) * heads * plane].to_vec(),
    }
}

impl Case {
    fn scores(&self) -> Scores<'_> {
        Scores {
            scale: self.scale,
            soft_cap: self.soft_cap,
            bias: Bias::Full { values: &self.bias, queries: self.rows, keys: self.keys },
            bias_scaled: false,
            mask: Mask::Full,
            sinks: self.sinks.as_deref(),
        }
    }

    fn call<'a>(&'a self, out: &'a mut [f32], scores: Scores<'a>, first_query: usize) -> Call<'a> {
        let [query, key, value, ..] = &self.tensors;
        Call { shape: self.shape, query, first_query, kv: KvBlocks::from_f32(key, value, self.keys), scores, out }
    }
}

#[test]
fn every_case_forward_and_backward() {
    let golden = Golden::module("attention");
    let (atol, rtol) = golden.tolerance();
    let cases: Vec<&String> = golden.json["cases"].as_object().expect("cases").keys().collect();
    assert_eq!(cases.len(), 14);
    for name in cases {
        let batch = golden.shape(&format!("{name}.q"))[0];
        let mut d_sinks_sum = Vec::new();
        for row in 0..batch {
            let case = load(&golden, name, row);
            let want = &case.tensors[3];
            let mut out = vec![f32::NAN; want.len()];
            let mut probs = vec![f32::NAN; case.probs.len()];
            textbook(&mut case.call(&mut out, case.scores(), 0), None, Some(&mut probs));
            assert_close(&format!("{name} textbook"), &out, want, atol, rtol);
            assert_close(&format!("{name} probs"), &probs, &case.probs, atol, rtol);
            out.fill(f32::NAN);
            flash(&mut [case.call(&mut out, case.scores(), 0)]);
            assert_close(&format!("{name} flash"), &out, want, atol, rtol);

            let [query, key, value, _, d_out] = &case.tensors;
            let (mut d_query, mut d_key) = (vec![0.0; query.len()], vec![0.0; key.len()]);
            let (mut d_value, mut d_sinks) = (vec![0.0; value.len()], vec![0.0; case.shape.heads]);
            let call = case.call(&mut out, case.scores(), 0);
            let mut gradients = Gradients {
                d_query: &mut d_query,
                d_key: &mut d_key,
                d_value: &mut d_value,
                d_bias: None,
                d_sinks: case.sinks.as_ref().map(|_| d_sinks.as_mut_slice()),
            };
            attention_backward(&call.inputs(), d_out, &mut gradients);
            for (got, want) in [d_query, d_key, d_value].iter().zip(&case.grads) {
                assert_close(&format!("{name} gradient"), got, want, atol, rtol);
            }
            d_sinks_sum.resize(d_sinks.len(), 0.0);
            d_sinks_sum.iter_mut().zip(&d_sinks).for_each(|(sum, d)| *sum += d);
        }
        if name == "sinks" {
            assert_close("sinks", &d_sinks_sum, &golden.f32("sinks.grad_sinks"), atol, rtol);
        }
    }
}

/// The masks of the reference, said as ranges rather than as a matrix.
#[test]
fn masks_as_ranges() {
    let golden = Golden::module("attention");
    let (atol, rtol) = golden.tolerance();
    let cases = [
        ("causal", Mask::Causal, 0),
        ("causal_gqa", Mask::Causal, 0),
        ("mqa", Mask::Causal, 0),
        ("softcap", Mask::Causal, 0),
        ("chunk_at_end", Mask::Causal, 6),
        ("decode_step", Mask::Causal, 8),
        ("bidirectional", Mask::Full, 0),
        ("cross", Mask::Full, 0),
    ];
    for (name, mask, first_query) in cases {
        for row in 0..golden.shape(&format!("{name}.q"))[0] {
            let case = load(&golden, name, row);
            let scores = Scores { soft_cap: case.soft_cap, ..Scores::plain(case.scale, mask) };
            let mut out = vec![f32::NAN; case.tensors[3].len()];
            flash(&mut [case.call(&mut out, scores, first_query)]);
            assert_close(name, &out, &case.tensors[3], atol, rtol);
        }
    }
}

/// The window of the reference's sliding cases, found from its mask matrix.
#[test]
fn windows_as_ranges() {
    let golden = Golden::module("attention");
    let (atol, rtol) = golden.tolerance();
    for name in ["sliding_window", "local_both_sides"] {
        let case = load(&golden, name, 0);
        let middle = case.rows / 2;
        let allowed = |key: usize| case.bias[middle * case.keys + key] == 0.0;
        let left = (0..=middle).rev().take_while(|&key| allowed(key)).count() - 1;
        let right = (middle..case.keys).take_while(|&key| allowed(key)).count() - 1;
        assert!(left > 0 && left < middle, "{name}: a window of {left} hides nothing");
        let mut out = vec![f32::NAN; case.tensors[3].len()];
        flash(&mut [case.call(&mut out, Scores::plain(case.scale, Mask::Window { left, right }), 0)]);
        assert_close(name, &out, &case.tensors[3], atol, rtol);
    }
}
