//! Every instruction set against plain Rust.

use super::{Arch, for_each_arch};
use crate::available;
use attend_testkit::golden::{Random, assert_close};

/// What is tried, on values of no special kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    F16,
    Q8_0,
    Q4_0,
    /// Vectors of each type behind each other, from bytes on that no vector begins at.
    Loads,
    /// Rows 19 apart to rows 23 apart.
    Transpose,
    /// Element by element; sums and maxima of vectors stand behind each other.
    Vectors,
}

for_each_arch! {
    fn run(trial: Trial, bytes: &[u8], values: &[f32], out: &mut [f32]) = body
}

#[inline(always)]
fn body<A: Arch>(_: A, trial: Trial, bytes: &[u8], values: &[f32], out: &mut [f32]) {
    match trial {
        Trial::F16 => A::widen_f16(bytes, out),
        Trial::Q8_0 => A::widen_q8_0(bytes, out),
        Trial::Q4_0 => A::widen_q4_0(bytes, out),
        Trial::Loads => {
            let loads = [A::load_f32, A::load_f16, A::load_bf16, A::load_i8];
            let vectors = loads.map(|load| load(bytes)).into_iter().chain([
                A::load_codes(bytes, false),
                A::load_codes(bytes, true),
                A::splat_f16([bytes[0], bytes[1]]),
            ]);
            for (x, out) in vectors.zip(out.chunks_exact_mut(16)) {
                A::store(x, out);
            }
        }
        Trial::Transpose => A::transpose(values, 19, out, 23),
        Trial::Vectors => {
            for (i, out) in out.chunks_exact_mut(8 * A::LANES).enumerate() {
                let [a, b, c] = [0, 1, 2].map(|k| A::load(&values[(3 * i + k) * A::LANES..]));
                A::prefetch(bytes.as_ptr());
                let vectors = [
                    A::add(a, b),
                    A::sub(a, b),
                    A::mul(a, b),
                    A::multiply_add(a, b, c),
                    A::larger(a, b),
                    A::unless_below(a, b, c),
                    A::exponent(a),
                    A::multiply_add(A::splat(A::sum(a)), A::splat(1.0), A::broadcast(&A::highest(b))),
                ];
                for (x, out) in vectors.into_iter().zip(out.chunks_exact_mut(A::LANES)) {
                    A::store(x, out);
                }
            }
        }
    }
}

/// Bytes of all kinds, a scale that is a number at the start of each block of so many.
fn bytes(random: &mut Random, block: usize, blocks: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..block * blocks).map(|_| random.below(256) as u8).collect();
    for block in bytes.chunks_exact_mut(block) {
        block[1] &= 0xbf;
    }
    bytes
}

#[test]
fn widening_is_exact_on_every_instruction_set() {
    let mut random = Random(21);
    for blocks in [1, 2, 7] {
        for (trial, block, numbers) in
            [(Trial::F16, 2, 1), (Trial::F16, 46, 23), (Trial::Q8_0, 34, 32), (Trial::Q4_0, 18, 32)]
        {
            let bytes = bytes(&mut random, block, blocks);
            let mut want = vec![0.0; blocks * numbers];
            run(crate::Isa::Portable, trial, &bytes, &[], &mut want);
            for isa in available() {
                let mut got = vec![7.0; want.len()];
                run(isa, trial, &bytes, &[], &mut got);
                assert_close(&format!("{isa} {trial:?}"), &got, &want, 0.0, 0.0);
            }
        }
    }
}

#[test]
fn stored_numbers_are_loaded_as_they_are() {
    let mut random = Random(26);
    let mut bytes: Vec<u8> = (0..65).map(|_| random.below(256) as u8).collect();
    bytes.iter_mut().for_each(|byte| *byte &= 0xbf);
    let bytes = &bytes[1..];
    for isa in available() {
        let mut lanes = 0;
        width(isa, &mut lanes);
        let mut got = vec![7.0; 7 * 16];
        run(isa, Trial::Loads, bytes, &[], &mut got);
        for i in 0..lanes {
            let two = [bytes[2 * i], bytes[2 * i + 1]];
            let want = [
                f32::from_ne_bytes([0, 1, 2, 3].map(|k| bytes[4 * i + k])),
                half::f16::from_le_bytes(two).to_f32(),
                half::bf16::from_le_bytes(two).to_f32(),
                f32::from(bytes[i] as i8),
                f32::from(bytes[i] & 15) - 8.0,
                f32::from(bytes[i] >> 4) - 8.0,
                half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            ];
            let got: Vec<f32> = (0..7).map(|k| got[16 * k + i]).collect();
            assert_eq!(got, want, "{isa}, element {i}");
        }
    }
}

#[test]
fn squares_are_transposed() {
    let values = Random(22).normals(15 * 19 + 16);
    for isa in available() {
        let mut got = vec![7.0; 15 * 23 + 16];
        run(isa, Trial::Transpose, &[], &values, &mut got);
        for (place, &got) in got.iter().enumerate() {
            let (row, column) = (place / 23, place % 23);
            let want = if column < 16 { values[column * 19 + row] } else { 7.0 };
            assert_eq!(got, want, "{isa}: row {row}, column {column}");
        }
    }
}

#[test]
fn vectors_do_what_their_elements_do() {
    // Whole numbers: no order of a sum changes it.
    let mut random = Random(23);
    let mut values: Vec<f32> = (0..48).map(|_| random.below(200) as f32 - 100.0).collect();
    for isa in available() {
        let mut lanes = 0;
        width(isa, &mut lanes);
        values[0] = f32::NAN;
        values[lanes + 1] = f32::NAN;
        let mut got = vec![0.0; 8 * lanes];
        run(isa, Trial::Vectors, &[0], &values, &mut got);
        for i in 0..lanes {
            let (a, b, c) = (values[i], values[lanes + i], values[2 * lanes + i]);
            let want = [
                a + b,
                a - b,
                a * b,
                a * b + c,
                if a > b { a } else { b },
                if b < c { 0.0 } else { a },
                f32::from_bits(a.to_bits() << 23),
            ];
            let got: Vec<f32> = (0..7).map(|k| got[k * lanes + i]).collect();
            assert_close(&format!("{isa} lane {i}"), &got, &want, 0.0, 0.0);
        }
        values[0] = 4.0;
        values[lanes + 1] = -3.0;
        run(isa, Trial::Vectors, &[0], &values, &mut got);
        let sum: f32 = values[..lanes].iter().sum();
        let top = values[lanes..2 * lanes].iter().fold(f32::NEG_INFINITY, |top, &x| top.max(x));
        assert_eq!(got[7 * lanes..], vec![sum + top; lanes], "{isa}");
    }
}

for_each_arch! {
    fn width(lanes: &mut usize) = width_body
}

#[inline(always)]
fn width_body<A: Arch>(_: A, lanes: &mut usize) {
    *lanes = A::LANES;
}
