//! How fast attention is: `cargo bench -p attend-kernels --bench attention [-- --cpu PART...]`; with `--cpu` in one
//! thread's processor time, and only cases whose names have every PART.
//!
//! A line for each case: microseconds of the best of several runs, and the rate of multiply-adds or of cache bytes. Keys
//! and values lie in blocks of 64 tokens, as the engine has them, unless a case says otherwise. Where a case has several
//! layers, each run reads the cache of the next one, so that they come from memory and not from a cache of the processor.

mod clock;

use attend_kernels::*;
use std::hint::black_box;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    shape: Heads,
    rows: usize,
    keys: usize,
    /// Caches of their own.
    layers: usize,
    /// Sequences in one call, each with a cache of its own.
    sequences: usize,
    layout: KvLayout,
}

const fn shape(heads: usize, kv_heads: usize, dim: usize) -> Heads {
    Heads { heads, kv_heads, key_dim: dim, value_dim: dim }
}

const fn case(name: &'static str, shape: Heads, rows: usize, keys: usize) -> Case {
    Case { name, shape, rows, keys, layers: 1, sequences: 1, layout: KvLayout::KeysAcross }
}

const CASES: [Case; 16] = [
    Case { layers: 24, ..case("decode, 14 of 2 heads of 64", shape(14, 2, 64), 1, 16384) },
    Case { layers: 16, ..case("decode, 32 of 8 heads of 64", shape(32, 8, 64), 1, 4096) },
    Case { layers: 30, ..case("decode, 9 of 3 heads of 64", shape(9, 3, 64), 1, 4096) },
    Case {
        layers: 16,
        layout: KvLayout::HeadMajor,
        ..case("decode, keys along, 32 of 8 heads of 64", shape(32, 8, 64), 1, 4096)
    },
    Case { layers: 8, ..case("decode, 32 of 8 heads of 128", shape(32, 8, 128), 1, 4096) },
    Case { layers: 8, ..case("decode, 16 heads of 64", shape(16, 16, 64), 1, 4096) },
    Case { layers: 8, ..case("decode, 16 heads of 128", shape(16, 16, 128), 1, 4096) },
    Case { layers: 8, sequences: 8, ..case("decode of 8, 32 of 8 heads of 64", shape(32, 8, 64), 1, 1024) },
    case("decode in cache, 14 of 2 heads of 64", shape(14, 2, 64), 1, 1024),
    Case { layout: KvLayout::TokenMajor, ..case("decode, tokens first, 16 heads of 64", shape(16, 16, 64), 1, 4096) },
    case("prefill, 14 of 2 heads of 64", shape(14, 2, 64), 512, 2048),
    case("prefill, 32 of 8 heads of 128", shape(32, 8, 128), 256, 2048),
    case("prefill, 16 heads of 64", shape(16, 16, 64), 512, 2048),
    case("prefill, 8 heads of 128", shape(8, 8, 128), 512, 2048),
    case("prefill from nothing, 32 of 8 heads of 64", shape(32, 8, 64), 512, 512),
    Case { layout: KvLayout::TokenMajor, ..case("prefill, tokens first, 8 heads of 128", shape(8, 8, 128), 512, 2048) },
];

fn main() {
    clock::choose();
    println!("{}, {} threads", machine(), threads());
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for case in CASES {
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
            let name = format!("{} {dtype}", case.name);
            if wanted.iter().all(|part| name.contains(part.as_str())) {
                run(&case, dtype);
            }
        }
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

/// The blocks of one sequence in one layer: keys and values.
fn blocks(case: &Case, dtype: DType) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tokens = case.block_tokens();
    let side = |dim: usize| {
        let values = numbers(tokens * case.shape.kv_heads * dim);
        let mut bytes = vec![0; dtype.bytes(values.len()).expect("whole blocks")];
        quantize(dtype, &values, &mut bytes).expect("a cache type");
        bytes
    };
    let across = |dim: usize| {
        let mut bytes = vec![0; dtype.bytes(tokens * case.shape.kv_heads * dim).expect("whole blocks")];
        let of_head = bytes.len() / case.shape.kv_heads;
        for (i, key) in numbers(tokens * case.shape.kv_heads * dim).chunks(dim).enumerate() {
            store_key(dtype, key, i % tokens, &mut bytes[i / tokens * of_head..][..of_head]).expect("a cache type");
        }
        bytes
    };
    let key = if case.layout == KvLayout::KeysAcross { across(case.shape.key_dim) } else { side(case.shape.key_dim) };
    let block = (key, side(case.shape.value_dim));
    vec![block; case.keys.div_ceil(tokens)]
}

impl Case {
    fn block_tokens(&self) -> usize {
        match self.layout {
            KvLayout::HeadMajor | KvLayout::KeysAcross => 64,
            KvLayout::TokenMajor => self.keys,
        }
    }
}

fn run(case: &Case, dtype: DType) {
    let Case { name, shape, rows, keys, layers, sequences, layout } = *case;
    let caches: Vec<_> = (0..layers * sequences).map(|_| blocks(case, dtype)).collect();
    let query = numbers(rows * shape.heads * shape.key_dim);
    let mut outs = vec![vec![0.0; rows * shape.heads * shape.value_dim]; sequences];
    let mut best = f64::INFINITY;
    for run in 0..layers.max(25) {
        let of_layer = &caches[run % layers * sequences..][..sequences];
        let mut calls: Vec<Call> = of_layer
            .iter()
            .zip(&mut outs)
            .map(|(blocks, out)| {
                let kv = KvBlocks {
                    values_in_keys: false,
                    key_type: dtype,
                    value_type: dtype,
                    layout,
                    block_tokens: case.block_tokens(),
                    blocks: blocks.iter().map(|(key, value)| (&key[..], &value[..])).collect(),
                    first: 0,
                    len: keys,
                };
                let scores = Scores::plain(0.125, Mask::Causal);
                Call { shape, query: &query, first_query: keys - rows, kv, scores, out }
            })
            .collect();
        let start = clock::now();
        flash(black_box(&mut calls));
        best = best.min(clock::now() - start);
    }
    let pairs = rows as f64 * (keys as f64 - (rows as f64 - 1.0) / 2.0) * (shape.heads * sequences) as f64;
    let work = pairs * (shape.key_dim + shape.value_dim) as f64;
    let bytes: usize = caches.iter().take(sequences).flatten().map(|(key, value)| key.len() + value.len()).sum();
    println!(
        "{name:38} {dtype:5} {:9.1} us {:7.2} G multiply-adds/s {:7.2} GB/s of cache",
        best * 1e6,
        work / best / 1e9,
        bytes as f64 / best / 1e9
    );
}
