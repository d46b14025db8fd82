//! A machine proves itself before it is used: its kernels against the portable twins, on small cases, in a few
//! milliseconds. Compilers and processors have their faults, and no test machine has every instruction set; a path
//! that computes something else is left for the next best one, and said so.

use crate::activation::Activation;
use crate::attention::{Bias, Call, Heads, KvBlocks, Scores, flash_on};
use crate::gemm::gemm_on;
use crate::isa::{Isa, Machine};
use crate::matrix::Matrix;
use crate::norm::{Kind, NormRows, norm_on};
use crate::softmax::softmax_on;
use crate::{Compute, DType, Mask, View, quantize};

/// Every arithmetic and every way of unpacking weights.
const TYPES: [DType; 16] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];
/// Outputs and inputs of the matrices: more than one panel and one block, and not a multiple of a panel.
const ROWS: usize = 21;
/// Rows of activations that fill two tiles of AMX, and a rest.
const MANY: usize = 34;
const COLS: usize = 256;

/// What a machine computes differently from the portable twin: a line that names the kernel.
pub(crate) fn fault(machine: Machine) -> Option<String> {
    if machine.isa == Isa::Portable {
        return None;
    }
    let portable = Machine::of(Isa::Portable)?;
    TYPES
        .into_iter()
        .find_map(|dtype| matmul_fault(machine, portable, dtype))
        .or_else(|| gemm_fault(machine, portable))
        .or_else(|| rows_fault(machine.isa))
        .or_else(|| flash_fault(machine.isa))
}

/// Numbers in -1..1.
fn noise(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Whether two results are further apart than `tolerance` of the larger one's size.
fn differ(found: &[f32], expected: &[f32], tolerance: f32) -> bool {
    let size = expected.iter().fold(0.0f32, |size, value| size.max(value.abs()));
    found.iter().zip(expected).any(|(found, expected)| {
        let apart = (found - expected).abs();
        apart.is_nan() || apart > tolerance * size
    })
}

fn matmul_fault(machine: Machine, portable: Machine, dtype: DType) -> Option<String> {
    let weights = noise(1 + dtype as u32, ROWS * COLS);
    let mut bytes = vec![0; dtype.bytes(weights.len())?];
    quantize(dtype, &weights, &mut bytes).ok()?;
    for compute in [Compute::Native, Compute::F32] {
        let tiles = machine.isa == Isa::Amx && compute == Compute::Native;
        let rows: &[usize] = if tiles { &[1, 6, MANY] } else { &[1, 6] };
        for &rows in rows {
            let mut x = noise(77, rows * COLS);
            // One that stands out of its row.
            x[COLS / 2] = 30.0;
            let product = |machine: Machine| {
                let mut out = vec![0.0; rows * ROWS];
                Matrix::on(machine, compute, (ROWS, COLS), dtype, &bytes).ok()?.matmul(&x, &mut out);
                Some(out)
            };
            let (found, expected) = (product(machine)?, product(portable)?);
            // A machine with bf16 instructions rounds activations that the portable twin does not.
            let rounded = machine.bf16 && compute == Compute::Native && matches!(dtype, DType::F16 | DType::BF16);
            if differ(&found, &expected, if rounded { 3e-2 } else { 1e-4 }) {
                return Some(format!("{machine}: the product with {dtype} weights is wrong"));
            }
        }
    }
    None
}

fn gemm_fault(machine: Machine, portable: Machine) -> Option<String> {
    let (a, b) = (noise(5, 7 * 33), noise(6, 33 * 19));
    let product = |machine| {
        let mut out = vec![0.0; 7 * 19];
        let a = View { data: &a, rows: 7, cols: 33, row_stride: 33, col_stride: 1 };
        gemm_on(machine, a, View { data: &b, rows: 33, cols: 19, row_stride: 19, col_stride: 1 }, &mut out, false);
        out
    };
    let wrong = differ(&product(machine), &product(portable), 1e-4);
    wrong.then(|| format!("{machine}: the product of two matrices is wrong"))
}

/// Norms, softmax and activations.
fn rows_fault(isa: Isa) -> Option<String> {
    let x: Vec<f32> = noise(9, 2 * 37).iter().map(|x| 4.0 * x).collect();
    let rows = NormRows { x: &x, width: 37, weight: None, eps: 1e-5 };
    let norm = |isa, kind| {
        let mut out = vec![0.0; x.len()];
        norm_on(isa, &rows, kind, &mut out);
        out
    };
    let changed = |apply: &dyn Fn(&mut [f32])| {
        let mut out = x.clone();
        apply(&mut out);
        out
    };
    let soft = |isa| changed(&|out| out.chunks_exact_mut(37).for_each(|row| softmax_on(isa, row)));
    let cases = [
        ("RMS norm", norm(isa, Kind::Rms), norm(Isa::Portable, Kind::Rms)),
        ("layer norm", norm(isa, Kind::Layer { bias: None }), norm(Isa::Portable, Kind::Layer { bias: None })),
        ("softmax", soft(isa), soft(Isa::Portable)),
    ];
    let activations = [Activation::Gelu, Activation::GeluTanh, Activation::Silu, Activation::Relu].map(|activation| {
        let apply = |isa| changed(&|out| activation.apply_slice_on(isa, out));
        ("an activation", apply(isa), apply(Isa::Portable))
    });
    let mut cases = cases.into_iter().chain(activations);
    let wrong = cases.find(|(_, found, expected)| differ(found, expected, 1e-5));
    wrong.map(|(name, ..)| format!("{isa}: {name} is wrong"))
}

fn flash_fault(isa: Isa) -> Option<String> {
    let (heads, tokens) = (Heads { heads: 4, kv_heads: 2, key_dim: 40, value_dim: 40 }, 70);
    let query = noise(11, 3 * heads.heads * heads.key_dim);
    let (key, value) = (noise(12, tokens * heads.kv_heads * 40), noise(13, tokens * heads.kv_heads * 40));
    let bias = noise(14, heads.heads * tokens);
    let mix = |isa| {
        let mut out = vec![0.0; 3 * heads.heads * heads.value_dim];
        let scores = Scores {
            bias: Bias::Key { values: &bias, keys: tokens },
            soft_cap: Some(5.0),
            ..Scores::plain(0.3, Mask::Causal)
        };
        let kv = KvBlocks::from_f32(&key, &value, tokens);
        flash_on(isa, &mut [Call { shape: heads, query: &query, first_query: tokens - 3, kv, scores, out: &mut out }]);
        out
    };
    differ(&mix(isa), &mix(Isa::Portable), 1e-4).then(|| format!("{isa}: attention is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_here_is_sound() {
        for isa in crate::available() {
            let machine = Machine::of(isa).expect("it is available");
            assert_eq!(fault(machine), None);
        }
    }

    #[test]
    fn a_difference_is_seen() {
        assert!(differ(&[1.0, 2.1], &[1.0, 2.0], 1e-2));
        assert!(differ(&[f32::NAN], &[1.0], 1.0));
        assert!(!differ(&[1.0, 2.001], &[1.0, 2.0], 1e-2));
    }
}
