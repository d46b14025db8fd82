//! How fast this machine is at the two things that matter: reading memory and multiplying matrices.

use attend_kernels::{Compute, DType, Matrix, measure_bandwidth, quantize};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

#[derive(Debug, Serialize)]
pub struct Speed {
    /// Gigabytes (10^9) read in a second by all threads together.
    pub memory_gb_per_s: f64,
    pub matmul: Vec<MatmulRate>,
}

#[derive(Debug, Serialize)]
pub struct MatmulRate {
    pub weights: String,
    pub arithmetic: &'static str,
    /// 10^9 multiplications and additions in a second, for many rows at once (reading a prompt).
    pub gflops: f64,
}

/// Takes about two seconds.
pub fn measure() -> Speed {
    let types = [DType::F32, DType::BF16, DType::Q8_0, DType::Q4_0];
    let native = |dtype| matmul(dtype, Compute::Native);
    Speed { memory_gb_per_s: measure_bandwidth() / 1e9, matmul: types.into_iter().filter_map(native).collect() }
}

/// A product of the size of a layer: 128 rows by [1024, 1024].
pub fn matmul(dtype: DType, compute: Compute) -> Option<MatmulRate> {
    const ROWS: usize = 128;
    const SIDE: usize = 1024;
    let weights: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
    let mut bytes = vec![0; dtype.bytes(weights.len())?];
    quantize(dtype, &weights, &mut bytes).ok()?;
    let mut builder = Matrix::builder(SIDE, SIDE, dtype, compute).ok()?;
    builder.push(&bytes).ok()?;
    let matrix = builder.finish().ok()?;
    let x: Vec<f32> = (0..ROWS * SIDE).map(|i| (i % 13) as f32 / 13.0 - 0.5).collect();
    let mut out = vec![0.0; ROWS * SIDE];
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    while began.elapsed().as_secs_f64() < 0.2 {
        let start = Instant::now();
        matrix.matmul(&x, &mut out);
        best = best.min(start.elapsed().as_secs_f64());
    }
    black_box(&out);
    let work = 2.0 * (ROWS * SIDE * SIDE) as f64;
    Some(MatmulRate { weights: dtype.to_string(), arithmetic: matrix.arithmetic(), gflops: work / best / 1e9 })
}
