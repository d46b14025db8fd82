//! Speed of the matrix kernels beside what the machine can do at best.
//!
//! `cargo run --release -p attend-kernels --example kernel_bench -- [--threads N] [TYPE ...]`
//!
//! For each weight type: one row (what generating reads: compare GB/s with the bandwidth) and 64 rows (what a prompt
//! takes: compare GFLOP/s with the f32 rate). Weights come from memory, not from a cache. `ATTEND_ISA` chooses the
//! instruction set.

use attend_kernels::{Compute, DType, Matrix, measure_bandwidth, measure_matmul, parallel, set_threads, threads};
use std::time::{Duration, Instant};

const TYPES: [DType; 17] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::Q8_0,
    DType::Q6_K,
    DType::Q5_K,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q4_K,
    DType::Q4_0,
    DType::Q4_1,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::Q3_K,
    DType::Q2_K,
];
const ROWS: usize = 2048;
/// Outputs under 64 rows: few, so that a product is shorter than a time slice of a busy machine.
const FEW: usize = 512;
const COLS: usize = 4096;
/// All copies together are larger than a last cache.
const TOTAL: usize = 160 << 20;
const TIME: Duration = Duration::from_millis(600);

fn matrices(dtype: DType, compute: Compute, rows: usize) -> Vec<Matrix> {
    let bytes = dtype.bytes(rows * COLS).expect("whole blocks");
    // Random in the codes; as f16 scales, positive and below 1.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8 & 0x37
    };
    let data: Vec<u8> = (0..bytes).map(|_| next()).collect();
    let build = || {
        let mut builder = Matrix::builder(rows, COLS, dtype, compute).expect("memory");
        builder.push(&data).expect("whole rows");
        builder.finish().expect("all rows")
    };
    (0..TOTAL.div_ceil(bytes).max(1)).map(|_| build()).collect()
}

/// Seconds of one product, the best of many; each follows products with other matrices, so that its weights have left
/// the caches.
fn time(matrices: &[Matrix], m: usize) -> f64 {
    let x: Vec<f32> = (0..m * COLS).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
    let mut out = vec![0.0; m * matrices[0].rows()];
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < TIME {
        for matrix in matrices {
            let start = Instant::now();
            matrix.matmul(&x, &mut out);
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

/// Seconds of a parallel region that does nothing: the median of many.
fn fork_join() -> f64 {
    let mut times: Vec<f64> = (0..5000)
        .map(|_| {
            let start = Instant::now();
            parallel(threads(), |_| {});
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut types = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--threads" {
            set_threads(arguments.next().and_then(|n| n.parse().ok()).expect("a number of threads"));
        } else {
            types.push(TYPES.into_iter().find(|dtype| dtype.name() == argument).expect("a weight type"));
        }
    }
    if types.is_empty() {
        types = TYPES.to_vec();
    }
    println!("{} on {} threads", attend_kernels::machine(), threads());
    println!("a parallel region costs {:.2} us", fork_join() * 1e6);
    println!("memory {:.1} GB/s, f32 {:.1} GFLOP/s", measure_bandwidth() / 1e9, measure_matmul() / 1e9);
    println!("{:8} {:5} {:>9} {:>9} {:>10} {:>10}", "type", "", "1: GB/s", "GFLOP/s", "64: GFLOP/s", "pack GB/s");
    for dtype in types {
        let computes = if dtype.is_quantized() { vec![Compute::Native, Compute::F32] } else { vec![Compute::Native] };
        for compute in computes {
            let start = Instant::now();
            let large = matrices(dtype, compute, ROWS);
            let total: usize = large.iter().map(Matrix::bytes).sum();
            let pack = total as f64 / start.elapsed().as_secs_f64();
            let flops = (2 * ROWS * COLS) as f64;
            let (one, many) = (time(&large, 1), time(&matrices(dtype, compute, FEW), 64));
            let name = if compute == Compute::F32 { "f32" } else { "" };
            println!(
                "{:8} {name:5} {:9.1} {:9.1} {:10.1} {:10.2}",
                dtype.name(),
                large[0].bytes() as f64 / one / 1e9,
                flops / one / 1e9,
                64.0 * flops * FEW as f64 / ROWS as f64 / many / 1e9,
                pack / 1e9
            );
        }
    }
}
