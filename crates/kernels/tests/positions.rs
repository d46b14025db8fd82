//! Positions against the reference's tables.

use attend_kernels::*;
use attend_testkit::golden::{Golden, assert_close};
use serde_json::Value;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key}"))
}

fn list(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// The scaling of one golden set; `attention_factor` is the one recorded there.
fn scaling(rope: &Value, max_positions: usize, attention_factor: f64) -> RopeScaling {
    let original = || number(rope, "original_max_position_embeddings") as usize;
    let beta = |key: &str, default: f64| rope[key].as_f64().unwrap_or(default);
    match rope["rope_type"].as_str().expect("a type") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number(rope, "factor") },
        "dynamic" => RopeScaling::Dynamic { factor: number(rope, "factor"), original: max_positions },
        "llama3" => RopeScaling::Llama3 {
            factor: number(rope, "factor"),
            low_freq_factor: number(rope, "low_freq_factor"),
            high_freq_factor: number(rope, "high_freq_factor"),
            original: original(),
        },
        "yarn" => RopeScaling::Yarn {
            factor: number(rope, "factor"),
            beta_fast: beta("beta_fast", 32.0),
            beta_slow: beta("beta_slow", 1.0),
            original: original(),
            truncate: rope["truncate"].as_bool().unwrap_or(true),
            attention_factor,
        },
        "longrope" => RopeScaling::Long {
            short: list(&rope["short_factor"]),
            long: list(&rope["long_factor"]),
            original: original(),
            attention_factor,
        },
        other => panic!("unknown {other}"),
    }
}

#[test]
fn rotary_frequencies_and_tables() {
    let golden = Golden::module("rope_inv_freq");
    let positions: Vec<u32> = golden.i64("positions").iter().map(|&p| p as u32).collect();
    let sets = golden.json["sets"].as_object().expect("sets");
    assert_eq!(sets.len(), 8);
    for (name, set) in sets {
        let dim = number(set, "head_dim") as usize;
        let base = number(&set["rope"], "rope_theta");
        let lengths = set["lengths"].as_array().expect("lengths");
        for length in lengths {
            let length = length.as_u64().expect("a length") as usize;
            let factor = number(&set["attention_factor"], &length.to_string());
            let scaling = scaling(&set["rope"], number(set, "max_position_embeddings") as usize, factor);
            let (frequencies, attention_factor) = rope_frequencies(base, dim, &scaling, length);
            let what = format!("{name}.len{length}");
            // Frequencies are small numbers: only the relative error says something.
            assert_close(&what, &frequencies, &golden.f32(&format!("{what}.inv_freq")), 0.0, 1e-6);
            assert_close(&what, &[attention_factor], &[factor as f32], 0.0, 1e-7);
            if Some(length as u64) == lengths.last().and_then(Value::as_u64) {
                // The last few bits of a frequency are worth |position| times as much in the angle.
                let (cos, sin) = rope_tables(&frequencies, attention_factor, &positions);
                for (row, &position) in positions.iter().enumerate() {
                    let range = row * dim / 2..(row + 1) * dim / 2;
                    let atol = 1e-5f32.max(position as f32 * 2.0 * f32::EPSILON);
                    assert_close(
                        &what,
                        &cos[range.clone()],
                        &golden.f32(&format!("{name}.cos"))[range.clone()],
                        atol,
                        0.0,
                    );
                    assert_close(&what, &sin[range.clone()], &golden.f32(&format!("{name}.sin"))[range], atol, 0.0);
                }
            }
        }
    }
}

#[test]
fn divisors_divide_the_frequencies() {
    let (plain, _) = rope_frequencies(10000.0, 8, &RopeScaling::None, 1);
    let divisors = vec![1.0, 2.0, 4.0, 8.0];
    let (divided, factor) = rope_frequencies(10000.0, 8, &RopeScaling::Divisors { divisors: divisors.clone() }, 1);
    assert_eq!(factor, 1.0);
    for i in 0..4 {
        assert_eq!(divided[i], plain[i] / divisors[i]);
    }
}

#[test]
fn rotary_turns_queries_and_keys() {
    let golden = Golden::module("rope_apply");
    let (atol, rtol) = golden.tolerance();
    let shape = golden.shape("q").to_vec();
    let (batch, heads, tokens, dim) = (shape[0], shape[1], shape[2], shape[3]);
    let positions: Vec<u32> = golden.i64("position_ids").iter().map(|&p| p as u32).collect();
    // [B, heads, T, d] and [B*T, heads*d], there and back.
    let swap = |x: &[f32], from: usize, to: usize| -> Vec<f32> {
        let mut y = vec![0.0; x.len()];
        for b in 0..batch {
            for i in 0..from {
                for j in 0..to {
                    let (src, dst) = (((b * from + i) * to + j) * dim, ((b * to + j) * from + i) * dim);
                    y[dst..dst + dim].copy_from_slice(&x[src..src + dim]);
                }
            }
        }
        y
    };
    let run = |name: &str, pairing: Pairing, rotary_dim: usize, back: bool| -> Vec<f32> {
        let (frequencies, factor) =
            rope_frequencies(golden.json["theta"].as_f64().expect("theta"), rotary_dim, &RopeScaling::None, 0);
        let (cos, sin) = rope_tables(&frequencies, factor, &positions);
        let rows = RopeRows { head_dim: dim, rotary_dim, pairing, cos: &cos, sin: &sin };
        let mut x = swap(&golden.f32(name), heads, tokens);
        if back {
            rotate_back(&mut x, heads, &rows)
        } else {
            rotate(&mut x, heads, &rows)
        }
        swap(&x, tokens, heads)
    };
    let halves = Pairing::Halves;
    assert_close("half.q", &run("q", halves, dim, false), &golden.f32("half.q"), atol, rtol);
    assert_close("half.k", &run("k", halves, dim, false), &golden.f32("half.k"), atol, rtol);
    assert_close("grad", &run("half.grad_out", halves, dim, true), &golden.f32("half.grad_q"), atol, rtol);
    assert_close("partial", &run("q", halves, dim / 2, false), &golden.f32("partial_half.q"), atol, rtol);
    let interleaved = run("q", Pairing::Interleaved, dim, false);
    assert_close("interleaved.q", &interleaved, &golden.f32("interleaved.q"), atol, rtol);
}

#[test]
fn alibi() {
    let golden = Golden::module("alibi");
    for heads in 1..=32 {
        for (name, order) in [("bloom", SlopeOrder::LowerFirst), ("mpt", SlopeOrder::OddFirst)] {
            let what = format!("{name}.{heads}");
            if golden.has(&what) {
                assert_close(&what, &alibi_slopes(heads, order, 8.0), &golden.f32(&what), 0.0, 1e-6);
            } else {
                assert!(name == "mpt" && heads > 30, "{what} is missing");
            }
        }
    }
    let (heads, tokens) = (6, 6);
    let mask = golden.i64("mask");
    let slopes = alibi_slopes(heads, SlopeOrder::LowerFirst, 8.0);
    for (name, rounded) in [("bloom", false), ("falcon", true)] {
        let mut got = Vec::new();
        for row in mask.chunks(tokens) {
            let mut count = 0;
            let positions: Vec<i64> = row
                .iter()
                .map(|&m| {
                    count += m;
                    (count - 1) * m
                })
                .collect();
            for &slope in &slopes {
                got.extend(positions.iter().map(|&p| alibi_bias(slope, p as f32, rounded)));
            }
        }
        assert_close(name, &got, &golden.f32(&format!("{name}.tensor_6heads")), 0.0, 1e-6);
    }
    let mut got = Vec::new();
    for slope in alibi_slopes(heads, SlopeOrder::OddFirst, 8.0) {
        got.extend((0..7).map(|k| alibi_bias(slope, k as f32 - 6.0, false)));
    }
    assert_close("mpt", &got, &golden.f32("mpt.tensor_6heads"), 1e-7, 1e-6);
}

#[test]
fn buckets() {
    let golden = Golden::module("relative_buckets");
    let distances = golden.i64("relative_position");
    let t5 = |buckets, max, both| -> Vec<i64> {
        distances.iter().map(|&d| relative_bucket(d, buckets, max, both) as i64).collect()
    };
    assert_eq!(t5(32, 128, true), golden.i64("t5.buckets32.dist128.bidirectional"));
    assert_eq!(t5(32, 128, false), golden.i64("t5.buckets32.dist128.causal"));
    assert_eq!(t5(8, 20, true), golden.i64("t5.buckets8.dist20.bidirectional"));
    assert_eq!(t5(8, 20, false), golden.i64("t5.buckets8.dist20.causal"));
    assert_eq!(t5(32, 128, true), golden.i64("mpnet.buckets32.dist128"));
    for (buckets, max) in [(256, 512), (8, 40)] {
        let got: Vec<f32> = distances.iter().map(|&d| log_bucket(d, buckets, max) as f32).collect();
        assert_eq!(got, golden.f32(&format!("deberta_v2.buckets{buckets}.max{max}")));
    }
}

#[test]
fn buckets_stay_in_the_table() {
    for (buckets, max) in [(1, 1), (2, 1), (2, 2), (3, 7), (32, 128), (32, 8)] {
        for both in [false, true] {
            for distance in [i64::MIN, -1_000_000, -9, -1, 0, 1, 9, 1_000_000, i64::MAX] {
                assert!(relative_bucket(distance, buckets, max, both) < buckets, "{buckets} {max} {distance} {both}");
            }
        }
    }
}

#[test]
fn sinusoids() {
    let golden = Golden::module("sinusoidal");
    let (atol, rtol) = golden.tolerance();
    let table = |rows: usize, width: usize, layout| {
        let mut out = vec![f32::NAN; rows * width];
        for (position, row) in out.chunks_mut(width).enumerate() {
            sinusoidal(position, width, layout, row);
        }
        out
    };
    for (rows, width) in [(20, 6), (40, 32)] {
        for (name, layout) in [
            ("vaswani", SinusoidLayout::Interleaved),
            ("marian", SinusoidLayout::Halves),
            ("whisper", SinusoidLayout::HalvesInclusive),
            ("fairseq", SinusoidLayout::HalvesInclusive),
        ] {
            let what = format!("{name}.{rows}x{width}");
            let (mut got, want) = (table(rows, width, layout), golden.f32(&what));
            if name == "fairseq" {
                // The row of the padding id is the caller's to blank.
                let blank = want.chunks(width).position(|row| row.iter().all(|&x| x == 0.0)).expect("a blank row");
                got[blank * width..(blank + 1) * width].fill(0.0);
            }
            assert_close(&what, &got, &want, atol, rtol);
        }
    }
    let (mut got, want) = (table(12, 7, SinusoidLayout::HalvesInclusive), golden.f32("fairseq.12x7_odd"));
    let blank = want.chunks(7).position(|row| row.iter().all(|&x| x == 0.0)).expect("a blank row");
    got[blank * 7..(blank + 1) * 7].fill(0.0);
    assert_close("fairseq odd", &got, &want, atol, rtol);
}
