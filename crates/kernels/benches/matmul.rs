//! Products of every weight type, as fractions of what the machine can do:
//! `cargo bench -p attend-kernels --bench matmul [-- TYPE... ROWS]`.
//!
//! `rows` is how many rows of activations meet the weights: 1 is decoding one stream, 512 a prefill. A product of few
//! rows is held against the memory's bandwidth (its weights do not fit the caches), one of many against the rate of
//! multiplication in f32. `ATTEND_ISA` chooses the instruction set. `--cpu` counts one thread's processor time, which
//! other work on the machine disturbs less.

mod clock;

use attend_kernels::{Compute, DType, Matrix, machine, measure_bandwidth, measure_matmul, threads};
use std::hint::black_box;
use std::time::Instant;

const OUTPUTS: usize = 4096;
const INPUTS: usize = 2048;
/// Copies of the weights that are walked through, so that a few rows read memory and not the last cache.
const MOST_BYTES: usize = 384 << 20;

const TYPES: [DType; 16] = [
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
];

fn main() {
    clock::choose();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    // A number among the names limits the rows.
    let only = wanted.iter().find_map(|name| name.parse::<usize>().ok());
    let wanted: Vec<String> = wanted.into_iter().filter(|name| name.parse::<usize>().is_err()).collect();
    let (bandwidth, rate) = (measure_bandwidth(), measure_matmul());
    println!(
        "{} with {} threads: {:.1} GB/s read, {:.1} G operations/s in f32",
        machine(),
        threads(),
        bandwidth / 1e9,
        rate / 1e9
    );
    println!("{:>7} {:>5} {:>10} {:>8} {:>7} {:>9} {:>7}", "type", "rows", "us", "GB/s", "of read", "Gop/s", "of f32");
    for dtype in TYPES {
        if !wanted.is_empty() && !wanted.iter().any(|name| name.eq_ignore_ascii_case(&dtype.to_string())) {
            continue;
        }
        let matrices = matrices(dtype);
        for rows in [1, 2, 4, 8, 16, 64, 512].into_iter().filter(|rows| only.is_none_or(|only| only == *rows)) {
            let seconds = median(&matrices, rows);
            let (bytes, operations) = (matrices[0].bytes() as f64, (2 * rows * OUTPUTS * INPUTS) as f64);
            println!(
                "{:>7} {rows:>5} {:>10.1} {:>8.1} {:>7.2} {:>9.1} {:>7.2}",
                dtype.to_string(),
                seconds * 1e6,
                bytes / seconds / 1e9,
                bytes / seconds / bandwidth,
                operations / seconds / 1e9,
                operations / seconds / rate
            );
        }
    }
}

/// The same random weights several times over.
fn matrices(dtype: DType) -> Vec<Matrix> {
    let mut state = 1u64;
    let values: Vec<f32> = (0..INPUTS * 16)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    let mut bytes = vec![0; dtype.bytes(values.len()).expect("whole blocks")];
    attend_kernels::quantize(dtype, &values, &mut bytes).expect("whole blocks");
    let build = || {
        let mut builder = Matrix::builder(OUTPUTS, INPUTS, dtype, Compute::Native).expect("a small matrix");
        for _ in 0..OUTPUTS / 16 {
            builder.push(&bytes).expect("whole rows");
        }
        builder.finish().expect("all rows")
    };
    let first = build();
    let count = (MOST_BYTES / first.bytes()).clamp(1, 48);
    std::iter::once(first).chain((1..count).map(|_| build())).collect()
}

/// The median time of a product.
fn median(matrices: &[Matrix], rows: usize) -> f64 {
    let x: Vec<f32> = (0..rows * INPUTS).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
    let mut out = vec![0.0; rows * OUTPUTS];
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (start.elapsed().as_secs_f64() < 0.7 && times.len() < 400) {
        for matrix in matrices {
            let before = clock::now();
            matrix.matmul(&x, &mut out);
            times.push(clock::now() - before);
            if times.len() >= 5 && start.elapsed().as_secs_f64() > 0.7 {
                break;
            }
        }
        black_box(&mut out);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
