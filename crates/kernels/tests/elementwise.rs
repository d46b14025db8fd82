//! Norms, softmax and activations against the reference's values and against float64.

use attend_kernels::*;
use attend_testkit::golden::{Golden, Random, assert_close};

#[test]
fn norms_forward_and_backward() {
    let golden = Golden::module("norms");
    let (atol, rtol) = golden.tolerance();
    let (x, dy) = (golden.f32("x"), golden.f32("grad_y"));
    let width = golden.shape("x")[1];
    let cases = [
        ("rms_norm_eps1e-6", true, 1e-6),
        ("rms_norm_eps1e-5", true, 1e-5),
        ("gemma_rms_norm", true, 1e-6),
        ("layer_norm_eps1e-5", false, 1e-5),
        ("layer_norm_eps1e-12", false, 1e-12),
        ("layer_norm_nobias", false, 1e-5),
        ("cohere_layer_norm", false, 1e-5),
    ];
    for (name, rms, eps) in cases {
        let mut weight = golden.f32(&format!("{name}.weight"));
        if name.starts_with("gemma") {
            weight.iter_mut().for_each(|w| *w += 1.0);
        }
        let bias = golden.has(&format!("{name}.bias")).then(|| golden.f32(&format!("{name}.bias")));
        let mut y = vec![f32::NAN; x.len()];
        let mut dx = vec![0.0; x.len()];
        let (mut dweight, mut dbias) = (vec![0.0; width], vec![0.0; width]);
        let rows = NormRows { x: &x, width, weight: Some(&weight), eps };
        if rms {
            rms_norm(&x, width, Some(&weight), eps, &mut y);
            rms_norm_backward(&rows, &dy, &mut dx, Some(&mut dweight));
        } else {
            layer_norm(&x, width, Some(&weight), bias.as_deref(), eps, &mut y);
            layer_norm_backward(&rows, &dy, &mut dx, Some(&mut dweight), Some(&mut dbias));
        }
        assert_close(name, &y, &golden.f32(&format!("{name}.y")), atol, rtol);
        assert_close(name, &dx, &golden.f32(&format!("{name}.grad_x")), atol, 1e-4);
        assert_close(name, &dweight, &golden.f32(&format!("{name}.grad_weight")), atol, 1e-4);
        if bias.is_some() {
            assert_close(name, &dbias, &golden.f32(&format!("{name}.grad_bias")), atol, rtol);
        }
    }
}

#[test]
fn norm_gradients_accumulate() {
    let mut random = Random(3);
    let (x, dy, weight) = (random.normals(24), random.normals(24), random.normals(12));
    let rows = NormRows { x: &x, width: 12, weight: Some(&weight), eps: 1e-5 };
    let (mut once, mut twice) = (vec![0.0; 24], vec![0.0; 24]);
    let (mut w1, mut w2, mut b1, mut b2) = (vec![0.0; 12], vec![0.0; 12], vec![0.0; 12], vec![0.0; 12]);
    layer_norm_backward(&rows, &dy, &mut once, Some(&mut w1), Some(&mut b1));
    for _ in 0..2 {
        layer_norm_backward(&rows, &dy, &mut twice, Some(&mut w2), Some(&mut b2));
    }
    let double = |x: &[f32]| -> Vec<f32> { x.iter().map(|x| 2.0 * x).collect() };
    assert_close("dx", &twice, &double(&once), 1e-6, 1e-6);
    assert_close("dweight", &w2, &double(&w1), 1e-6, 1e-6);
    assert_close("dbias", &b2, &double(&b1), 1e-6, 1e-6);
}

#[test]
fn norms_without_weight_at_odd_widths() {
    for width in [1, 3, 8, 13, 4097] {
        let x = Random(width as u64).normals(2 * width);
        let mut y = vec![0.0; x.len()];
        layer_norm(&x, width, None, None, 1e-5, &mut y);
        for (x, y) in x.chunks(width).zip(y.chunks(width)) {
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / width as f64;
            let var = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / width as f64;
            let want: Vec<f32> =
                x.iter().map(|&x| ((f64::from(x) - mean) / (var + 1e-5f32 as f64).sqrt()) as f32).collect();
            assert_close("plain", y, &want, 1e-7, 1e-6);
        }
        rms_norm(&x, width, None, 1e-5, &mut y);
        for (x, y) in x.chunks(width).zip(y.chunks(width)) {
            let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
            let want: Vec<f32> = x.iter().map(|&x| (f64::from(x) / (square + 1e-5f32 as f64).sqrt()) as f32).collect();
            assert_close("rms", y, &want, 1e-7, 1e-6);
        }
    }
}

#[test]
fn softmax_of_extremes() {
    let golden = Golden::module("softmax_extremes");
    let (atol, rtol) = golden.tolerance();
    let width = golden.shape("x")[1];
    let x = golden.f32("x");
    let (mut soft, mut log) = (x.clone(), x.clone());
    soft.chunks_mut(width).for_each(softmax);
    log.chunks_mut(width).for_each(log_softmax);
    let sums: Vec<f32> = x.chunks(width).map(log_sum_exp).collect();
    assert_close("softmax", &soft, &golden.f32("softmax"), atol, rtol);
    assert_close("log_softmax", &log, &golden.f32("log_softmax"), atol, rtol);
    assert_close("logsumexp", &sums, &golden.f32("logsumexp"), atol, rtol);
}

#[test]
fn softmax_at_its_edges() {
    let low = f32::NEG_INFINITY;
    let mut row = [low; 5];
    softmax(&mut row);
    assert_eq!(row, [0.0; 5]);
    assert_eq!(log_sum_exp(&[low; 3]), low);
    assert_eq!(log_sum_exp(&[]), low);
    for bad in [f32::NAN, f32::INFINITY] {
        for at in 0..3 {
            let mut row = [1.0, 2.0, low];
            row[at] = bad;
            assert!(log_sum_exp(&row).is_nan() || bad == f32::INFINITY);
            softmax(&mut row);
            assert!(row.iter().any(|x| x.is_nan()), "{bad} at {at}: {row:?}");
        }
    }
    // A vocabulary of equal logits: the sum must not lose the small terms.
    let mut row = vec![3.0; 250_000];
    log_softmax(&mut row);
    assert_close("uniform", &row[..1], &[-(250_000f64.ln()) as f32], 0.0, 1e-7);
}

fn activation(name: &str) -> Activation {
    match name {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_tanh" => Activation::GeluTanh,
        "quick_gelu" => Activation::QuickGelu,
        "relu" => Activation::Relu,
        "relu2" => Activation::ReluSquared,
        "sigmoid" => Activation::Sigmoid,
        "silu" => Activation::Silu,
        "tanh" => Activation::Tanh,
        "mish" => Activation::Mish,
        "gelu_10" => Activation::GeluClamped,
        other => panic!("unknown activation {other}"),
    }
}

#[test]
fn activations_and_derivatives() {
    let golden = Golden::module("activations");
    let (atol, rtol) = golden.tolerance();
    let x = golden.f32("x");
    let names: Vec<&str> = golden.tensors.keys().filter_map(|name| name.strip_suffix(".y")).collect();
    assert_eq!(names.len(), 12);
    for name in names {
        let activation = activation(name);
        let mut y = x.clone();
        activation.apply_slice(&mut y);
        assert_close(name, &y, &golden.f32(&format!("{name}.y")), atol, rtol);
        let mut d = vec![1.0; x.len()];
        activation.backward_slice(&x, &mut d);
        assert_close(name, &d, &golden.f32(&format!("{name}.grad")), atol, rtol);
        for (i, &x) in x.iter().enumerate() {
            assert_close(name, &[activation.apply(x), activation.derivative(x)], &[y[i], d[i]], 1e-6, 1e-6);
        }
    }
}

#[test]
fn gated_feed_forward() {
    let golden = Golden::module("gated_mlp");
    let (atol, rtol) = golden.tolerance();
    // [m, n] = a [m, k] . b [n, k]^T
    let matmul = |a: &[f32], b: &[f32], k: usize| -> Vec<f32> {
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() as f32;
        a.chunks(k).flat_map(|a| b.chunks(k).map(|b| dot(a, b)).collect::<Vec<_>>()).collect()
    };
    for name in ["silu", "gelu", "gelu_tanh", "relu"] {
        let tensor = |what: &str| golden.f32(&format!("{name}.{what}"));
        let (hidden, width) = (golden.shape(&format!("{name}.w_gate"))[0], golden.shape(&format!("{name}.w_gate"))[1]);
        let (gate, up) = (matmul(&tensor("x"), &tensor("w_gate"), width), matmul(&tensor("x"), &tensor("w_up"), width));
        let function = activation(name);
        let mut inner = gate.clone();
        function.apply_slice(&mut inner);
        inner.iter_mut().zip(&up).for_each(|(a, b)| *a *= b);
        assert_close(name, &matmul(&inner, &tensor("w_down"), hidden), &tensor("y"), atol, rtol);
        // d gate = (dy . w_down) * up * f'(gate), and from it the gradient of w_gate.
        let (dy, down) = (tensor("grad_y"), tensor("w_down"));
        let down_t: Vec<f32> = (0..hidden * width).map(|i| down[i % width * hidden + i / width]).collect();
        let mut d_gate = matmul(&dy, &down_t, width);
        d_gate.iter_mut().zip(&up).for_each(|(d, u)| *d *= u);
        function.backward_slice(&gate, &mut d_gate);
        let (x, rows) = (tensor("x"), dy.len() / width);
        let column = |m: &[f32], n: usize, c: usize| -> Vec<f32> { (0..rows).map(|r| m[r * n + c]).collect() };
        let d_gate_t: Vec<f32> = (0..hidden).flat_map(|c| column(&d_gate, hidden, c)).collect();
        let x_t: Vec<f32> = (0..width).flat_map(|c| column(&x, width, c)).collect();
        assert_close(name, &matmul(&d_gate_t, &x_t, rows), &tensor("grad_w_gate"), atol, rtol);
    }
}
