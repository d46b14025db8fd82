//! How fast attention is: `cargo bench -p attend-kernels --bench attention [-- --cpu PART...]`; with `--cpu` in one
//! thread's processor time, and only cases whose names have every PART.
//!
//! A line for each case: microseconds of the best of several runs, and the rate of multiply-adds or of cache bytes.

mod clock;

use attend_kernels::*;
use std::hint::black_box;

struct Case {
    name: &'static str,
    shape: Heads,
    rows: usize,
    keys: usize,
}

fn main() {
    clock::choose();
    let shape = |heads, kv_heads, dim| Heads { heads, kv_heads, key_dim: dim, value_dim: dim };
    let cases = [
        Case { name: "decode, 14 of 2 heads of 64", shape: shape(14, 2, 64), rows: 1, keys: 4096 },
        Case { name: "decode, 32 of 8 heads of 128", shape: shape(32, 8, 128), rows: 1, keys: 4096 },
        Case { name: "decode, 16 heads of 64", shape: shape(16, 16, 64), rows: 1, keys: 4096 },
        Case { name: "prefill, 14 of 2 heads of 64", shape: shape(14, 2, 64), rows: 512, keys: 2048 },
        Case { name: "prefill, 8 heads of 128", shape: shape(8, 8, 128), rows: 512, keys: 2048 },
    ];
    println!("{}, {} threads", machine(), threads());
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for case in cases {
        for dtype in [DType::F32, DType::F16, DType::Q8_0] {
            let name = format!("{} {dtype}", case.name);
            if wanted.iter().all(|part| name.contains(part.as_str())) {
                run(&case, dtype);
            }
        }
    }
}

fn run(case: &Case, dtype: DType) {
    let Case { name, shape, rows, keys } = *case;
    let numbers = |count: usize| -> Vec<f32> { (0..count).map(|i| (i as f32 * 0.37).sin()).collect() };
    let stored = |dim: usize| {
        let values = numbers(keys * shape.kv_heads * dim);
        let mut bytes = vec![0; dtype.bytes(values.len()).expect("whole blocks")];
        quantize(dtype, &values, &mut bytes).expect("a cache type");
        bytes
    };
    let (query, key, value) =
        (numbers(rows * shape.heads * shape.key_dim), stored(shape.key_dim), stored(shape.value_dim));
    let mut out = vec![0.0; rows * shape.heads * shape.value_dim];
    let mut best = f64::INFINITY;
    for _ in 0..25 {
        let kv = KvBlocks {
            values_in_keys: false,
            key_type: dtype,
            value_type: dtype,
            layout: KvLayout::TokenMajor,
            block_tokens: keys,
            blocks: vec![(&key, &value)],
            first: 0,
            len: keys,
        };
        let scores = Scores::plain(0.125, Mask::Causal);
        let start = clock::now();
        flash(&mut [Call { shape, query: &query, first_query: keys - rows, kv, scores, out: black_box(&mut out) }]);
        best = best.min(clock::now() - start);
    }
    let pairs = rows as f64 * (keys as f64 - (rows as f64 - 1.0) / 2.0) * shape.heads as f64;
    let work = pairs * (shape.key_dim + shape.value_dim) as f64;
    println!(
        "{name:30} {dtype:5} {:9.1} us {:7.2} G multiply-adds/s {:7.2} GB/s of cache",
        best * 1e6,
        work / best / 1e9,
        (key.len() + value.len()) as f64 / best / 1e9
    );
}
