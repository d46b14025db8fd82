//! Activations, the gated FFN, norms and softmax.

use super::super::compare::{Comparison, Tolerance};
use super::Module;
use anyhow::{Context, Result};
use attend_kernels::{
    Activation, NormRows, View, gemm, layer_norm, layer_norm_backward, log_softmax, log_sum_exp, rms_norm,
    rms_norm_backward, softmax,
};
use attend_model::activation_named;

/// Gradients of norms through badly conditioned rows agree to this relative size.
const NORM_GRADIENT: f64 = 1e-4;

fn activation(name: &str) -> Result<Activation> {
    // The suite's own spelling of one of the names.
    let name = if name == "gelu_tanh" { "gelu_pytorch_tanh" } else { name };
    activation_named(name).with_context(|| format!("activation {name} is not known"))
}

pub fn activations(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let x = module.floats("x")?.values;
    for name in module.stems(".y") {
        let activation = match activation(&name) {
            Ok(activation) => activation,
            Err(error) => {
                comparison.fail(&name, error.to_string());
                continue;
            }
        };
        let mut y = x.clone();
        activation.apply_slice(&mut y);
        module.compare(&format!("{name}.y"), &y, comparison)?;
        let slope: Vec<f32> = x.iter().map(|x| activation.derivative(*x)).collect();
        module.compare(&format!("{name}.grad"), &slope, comparison)?;
    }
    Ok(())
}

/// `a` [m, k] times `b` [k, n], either of them transposed.
fn product(
    a: &[f32],
    a_shape: (usize, usize),
    b: &[f32],
    b_shape: (usize, usize),
    transpose: (bool, bool),
) -> Vec<f32> {
    fn view(data: &[f32], (rows, cols): (usize, usize), transpose: bool) -> View<'_> {
        match transpose {
            false => View { data, rows, cols, row_stride: cols, col_stride: 1 },
            true => View { data, rows: cols, cols: rows, row_stride: 1, col_stride: cols },
        }
    }
    let (a, b) = (view(a, a_shape, transpose.0), view(b, b_shape, transpose.1));
    let mut out = vec![0.0; a.rows * b.cols];
    gemm(a, b, &mut out, false);
    out
}

pub fn gated_mlp(module: &Module, comparison: &mut Comparison) -> Result<()> {
    for name in module.stems(".w_gate") {
        let read = |what: &str| module.floats(&format!("{name}.{what}"));
        let (x, gate, up, down) = (read("x")?, read("w_gate")?, read("w_up")?, read("w_down")?);
        let (rows, width, hidden) = (x.shape[0], x.shape[1], gate.shape[0]);
        let activation = activation(&name)?;
        let (xs, ws, ds) = ((rows, width), (hidden, width), (width, hidden));
        let gates = product(&x.values, xs, &gate.values, ws, (false, true));
        let ups = product(&x.values, xs, &up.values, ws, (false, true));
        let mut activated = gates.clone();
        activation.apply_slice(&mut activated);
        let inner: Vec<f32> = activated.iter().zip(&ups).map(|(gate, up)| gate * up).collect();
        let inner_shape = (rows, hidden);
        let y = product(&inner, inner_shape, &down.values, ds, (false, true));
        module.compare(&format!("{name}.y"), &y, comparison)?;

        let dy = read("grad_y")?.values;
        let dinner = product(&dy, xs, &down.values, ds, (false, false));
        let dup: Vec<f32> = dinner.iter().zip(&activated).map(|(d, gate)| d * gate).collect();
        let slopes = gates.iter().zip(&ups).map(|(gate, up)| activation.derivative(*gate) * up);
        let dgate: Vec<f32> = dinner.iter().zip(slopes).map(|(d, slope)| d * slope).collect();
        let mut compare = |what: &str, found: &[f32]| module.compare(&format!("{name}.{what}"), found, comparison);
        compare("grad_w_down", &product(&dy, xs, &inner, inner_shape, (true, false)))?;
        compare("grad_w_gate", &product(&dgate, inner_shape, &x.values, xs, (true, false)))?;
        compare("grad_w_up", &product(&dup, inner_shape, &x.values, xs, (true, false)))?;
        let through_gate = product(&dgate, inner_shape, &gate.values, ws, (false, false));
        let through_up = product(&dup, inner_shape, &up.values, ws, (false, false));
        let dx: Vec<f32> = through_gate.iter().zip(&through_up).map(|(gate, up)| gate + up).collect();
        compare("grad_x", &dx)?;
    }
    Ok(())
}

pub fn norms(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let (x, dy) = (module.floats("x")?, module.floats("grad_y")?.values);
    let width = x.shape[1];
    for name in module.stems(".y") {
        let rms = name.contains("rms");
        let eps = Module::number_after(&name, "eps").unwrap_or(if rms { 1e-6 } else { 1e-5 }) as f32;
        let mut weight = module.floats(&format!("{name}.weight"))?.values;
        if name.starts_with("gemma") {
            weight.iter_mut().for_each(|weight| *weight += 1.0);
        }
        let bias_name = format!("{name}.bias");
        let bias = if module.has(&bias_name) { Some(module.floats(&bias_name)?.values) } else { None };
        let rows = NormRows { x: &x.values, width, weight: Some(&weight), eps };
        let (mut y, mut dx) = (vec![0.0; x.values.len()], vec![0.0; x.values.len()]);
        let (mut dweight, mut dbias) = (vec![0.0; width], vec![0.0; width]);
        if rms {
            rms_norm(&x.values, width, Some(&weight), eps, &mut y);
            rms_norm_backward(&rows, &dy, &mut dx, Some(&mut dweight));
        } else {
            layer_norm(&x.values, width, Some(&weight), bias.as_deref(), eps, &mut y);
            layer_norm_backward(&rows, &dy, &mut dx, Some(&mut dweight), Some(&mut dbias));
        }
        module.compare(&format!("{name}.y"), &y, comparison)?;
        let gradient = Tolerance { relative: NORM_GRADIENT, ..module.tolerance };
        module.compare_within(&format!("{name}.grad_x"), &dx, gradient, comparison)?;
        module.compare_within(&format!("{name}.grad_weight"), &dweight, gradient, comparison)?;
        if bias.is_some() {
            module.compare_within(&format!("{name}.grad_bias"), &dbias, gradient, comparison)?;
        }
    }
    Ok(())
}

pub fn softmax_extremes(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let x = module.floats("x")?;
    let width = x.shape[1];
    let each = |apply: &dyn Fn(&mut [f32])| {
        let mut values = x.values.clone();
        values.chunks_exact_mut(width).for_each(apply);
        values
    };
    module.compare("softmax", &each(&softmax), comparison)?;
    module.compare("log_softmax", &each(&log_softmax), comparison)?;
    let sums: Vec<f32> = x.values.chunks_exact(width).map(log_sum_exp).collect();
    module.compare("logsumexp", &sums, comparison)
}
