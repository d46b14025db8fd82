//! How fast this machine is at the two things that matter: reading memory and multiplying matrices.

use attend_kernels::{Compute, DType, Matrix, parallel, quantize, threads};
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
    Speed { memory_gb_per_s: memory(256 << 20), matmul: types.into_iter().filter_map(matmul).collect() }
}

/// The best of a few passes over a buffer that no cache holds.
fn memory(bytes: usize) -> f64 {
    let Some(buffer) = reserve(bytes / 8) else { return 0.0 };
    let tasks = threads() * 8;
    let length = buffer.len().div_ceil(tasks);
    let pass = || {
        let start = Instant::now();
        parallel(tasks, |task| {
            let part = buffer.get(task * length..((task + 1) * length).min(buffer.len())).unwrap_or_default();
            black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
        bytes as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| pass()).fold(0.0, f64::max)
}

/// A written buffer, or none where memory is short.
fn reserve(words: usize) -> Option<Vec<u64>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(words).ok()?;
    buffer.extend(0..words as u64);
    Some(buffer)
}

/// A product of the size of a layer: 128 rows by [1024, 1024].
fn matmul(dtype: DType) -> Option<MatmulRate> {
    const ROWS: usize = 128;
    const SIDE: usize = 1024;
    let weights: Vec<f32> = (0..SIDE * SIDE).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
    let mut bytes = vec![0; dtype.bytes(weights.len())?];
    quantize(dtype, &weights, &mut bytes).ok()?;
    let mut builder = Matrix::builder(SIDE, SIDE, dtype, Compute::Native).ok()?;
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
