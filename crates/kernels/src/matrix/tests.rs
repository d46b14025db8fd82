use super::*;
use crate::{dequantize, quantize};

const BLOCKS: [DType; 13] = [
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
const FLOATS: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::I8];

/// Every instruction set of this machine, with and without the optional parts.
fn machines() -> Vec<Machine> {
    let mut machines: Vec<Machine> = crate::available().into_iter().filter_map(Machine::of).collect();
    for machine in machines.clone() {
        for plain in [Machine { vnni: false, ..machine }, Machine { bf16: false, dotprod: false, ..machine }] {
            if !machines.contains(&plain) {
                machines.push(plain);
            }
        }
    }
    machines
}

/// Numbers in -1..1 with a few large ones among them.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|i| if i % 97 == 5 { 9.0 * next() } else { next() }).collect()
}

/// Bytes of a `[rows, cols]` matrix of random weights; block types are random in every bit but the scales.
fn weights(dtype: DType, rows: usize, cols: usize) -> Vec<u8> {
    let x = noise(rows as u64 * 31 + cols as u64, rows * cols);
    let x: Vec<f32> = if dtype == DType::I8 { x.iter().map(|x| x * 13.0).collect() } else { x };
    let mut bytes = vec![0; dtype.bytes(x.len()).unwrap()];
    quantize(dtype, &x, &mut bytes).unwrap();
    bytes
}

fn build(machine: Machine, arithmetic: Arithmetic, rows: usize, cols: usize, dtype: DType, bytes: &[u8]) -> Matrix {
    let mut builder = MatrixBuilder::new(machine, arithmetic, rows, cols, dtype).unwrap();
    builder.push(bytes).unwrap();
    builder.finish().unwrap()
}

/// What eight bits make of rows of activations, and sixteen of the runs that stand out: the same numbers as the kernel's,
/// by the plainest route.
fn rounded(x: &[f32], cols: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(cols) {
        let square = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / cols as f64;
        for run in row.chunks(32) {
            let absmax = run.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let inverse = if absmax > 0.0 { 127.0 / absmax } else { 0.0 };
            let outstanding = f64::from(absmax) > 8.0 * square.sqrt();
            out.extend(run.iter().map(|x| {
                let code = (x * inverse).round_ties_even();
                let rest = if outstanding { ((x * inverse - code) * 254.0).round_ties_even() / 254.0 } else { 0.0 };
                (f64::from(code) + f64::from(rest)) * f64::from(absmax / 127.0)
            }));
        }
    }
    out
}

/// The plain reference: sums in f64, and the sum of magnitudes that errors are measured against.
fn reference(x: &[f64], w: &[f32], cols: usize) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for x in x.chunks(cols) {
        for w in w.chunks(cols) {
            let products = x.iter().zip(w).map(|(x, w)| x * f64::from(*w));
            out.push(products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs())));
        }
    }
    out
}

/// Sums of f32 products are wrong by a few roundings of the terms: far below this for the lengths used here.
const CLOSE: f64 = 2e-6;

fn assert_close(what: &str, out: &[f32], expected: &[(f64, f64)], close: f64) {
    assert_eq!(out.len(), expected.len());
    for (i, (&out, &(sum, size))) in out.iter().zip(expected).enumerate() {
        assert!((f64::from(out) - sum).abs() <= close * size + 1e-30, "{what} [{i}]: {out} for {sum} (size {size})");
    }
}

/// Rows that end inside a panel, inputs that end inside a chain.
fn shapes(dtype: DType) -> [(usize, usize); 3] {
    match dtype.block_len() {
        256 => [(1, 256), (40, 768), (17, 512)],
        32 => [(1, 32), (40, 320), (17, 544)],
        _ => [(1, 1), (40, 300), (17, 517)],
    }
}

#[test]
fn every_type_agrees_with_the_reference_on_every_instruction_set() {
    for dtype in BLOCKS.into_iter().chain(FLOATS) {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols);
            let mut wide = vec![f32::NAN; rows * cols];
            dequantize(dtype, &bytes, &mut wide).unwrap();
            for m in [1, 2, 3, 7, 13, 21] {
                let x = noise(m as u64, m * cols);
                let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                let float = reference(&exact, &wide, cols);
                let int8 = if dtype.is_quantized() { reference(&rounded(&x, cols), &wide, cols) } else { vec![] };
                for machine in machines() {
                    let what = format!("{dtype} {rows} x {cols}, {m} rows, {machine}");
                    let mut out = vec![f32::NAN; m * rows];
                    build(machine, Arithmetic::Float, rows, cols, dtype, &bytes).matmul(&x, &mut out);
                    assert_close(&what, &out, &float, CLOSE);
                    if dtype.is_quantized() {
                        out.fill(f32::NAN);
                        build(machine, Arithmetic::Int8, rows, cols, dtype, &bytes).matmul(&x, &mut out);
                        assert_close(&format!("{what}, int8"), &out, &int8, CLOSE);
                    }
                }
            }
        }
    }
}

/// A few large activations must not cost the small ones beside them their precision.
#[test]
fn outliers_leave_their_neighbours_precise() {
    let (rows, cols) = (32, 1024);
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_K, DType::Q6_K, DType::IQ4_NL] {
        let bytes = weights(dtype, rows, cols);
        let mut wide = vec![0.0; rows * cols];
        dequantize(dtype, &bytes, &mut wide).unwrap();
        // The outliers meet weights of 0, so that only their neighbours are seen.
        let mut x = noise(5, cols);
        x.iter_mut().for_each(|x| *x = x.clamp(-1.0, 1.0));
        let clean = x.clone();
        let outliers: Vec<usize> = (7..cols).step_by(256).collect();
        outliers.iter().for_each(|&i| x[i] = 60.0);
        let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let expected = reference(&exact, &wide, cols);
        let typical = (clean.iter().map(|x| x * x).sum::<f32>() / cols as f32).sqrt();
        for machine in machines() {
            let mut out = vec![f32::NAN; rows];
            build(machine, Arithmetic::Int8, rows, cols, dtype, &bytes).matmul(&x, &mut out);
            for (row, (&out, &(sum, _))) in out.iter().zip(&expected).enumerate() {
                let norm = wide[row * cols..][..cols].iter().map(|w| w * w).sum::<f32>().sqrt();
                let error = (f64::from(out) - sum).abs() / f64::from(norm * typical);
                // Eight bits of normal numbers are wrong by 0.5 %; of runs with one of 60 among them by 14 %.
                assert!(error < 0.02, "{dtype} {machine} row {row}: {error}");
            }
        }
    }
}

/// Whole numbers are whole numbers, in tiles or in lanes: not one bit differs, with fine codes and without.
#[test]
fn tiles_give_the_bits_of_lanes() {
    let (Some(amx), Some(avx512)) = (Machine::of(crate::Isa::Amx), Machine::of(crate::Isa::Avx512)) else { return };
    for dtype in BLOCKS {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols);
            for m in [1, 15, 16, 17, 45, 150] {
                let mut x = noise(m as u64, m * cols);
                // Runs that stand out of a few rows, and a row of which nothing does.
                (0..m).step_by(5).for_each(|row| x[row * cols + row % cols] = 300.0);
                x[..cols].fill(0.25);
                let product = |machine: Machine| {
                    let mut out = vec![f32::NAN; m * rows];
                    build(machine, Arithmetic::Int8, rows, cols, dtype, &bytes).matmul(&x, &mut out);
                    out.iter().map(|out| out.to_bits()).collect::<Vec<u32>>()
                };
                assert_eq!(product(amx), product(avx512), "{dtype} {rows} x {cols}, {m} rows");
            }
        }
    }
}

#[test]
fn the_largest_codes_do_not_overflow() {
    for dtype in BLOCKS {
        let (rows, cols) = (16, 256);
        // Every code bit set, every other code bit set, none: under scales of about 1.
        for fill in [0xff_u8, 0x00, 0x80, 0x7f, 0x55] {
            let mut bytes = weights(dtype, rows, cols);
            for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
                let codes = match dtype {
                    DType::Q4_0 | DType::IQ4_NL | DType::Q8_0 | DType::Q5_0 => 2..block.len(),
                    DType::Q4_1 | DType::Q5_1 => 4..block.len(),
                    DType::Q2_K => 16..80,
                    DType::Q3_K => 0..96,
                    DType::Q4_K | DType::Q5_K => 16..block.len(),
                    DType::Q6_K => 0..192,
                    DType::IQ4_XS => 8..block.len(),
                    _ => 1..block.len(),
                };
                block[codes].fill(fill);
            }
            let mut wide = vec![0.0; rows * cols];
            dequantize(dtype, &bytes, &mut wide).unwrap();
            for sign in [1.0, -1.0] {
                let x = vec![sign; cols];
                let expected = reference(&rounded(&x, cols), &wide, cols);
                for machine in machines() {
                    let mut out = vec![f32::NAN; rows];
                    build(machine, Arithmetic::Int8, rows, cols, dtype, &bytes).matmul(&x, &mut out);
                    assert_close(&format!("{dtype} {fill:#x} {machine}"), &out, &expected, CLOSE);
                }
            }
        }
    }
}

#[test]
fn bf16_arithmetic_agrees_with_rounded_weights_and_activations() {
    let bf16 = |x: f32| crate::quant::bf16_to_f32(crate::quant::f32_to_bf16(x));
    for dtype in [DType::BF16, DType::F16] {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols);
            let mut wide = vec![0.0; rows * cols];
            dequantize(dtype, &bytes, &mut wide).unwrap();
            wide.iter_mut().for_each(|w| *w = bf16(*w));
            for m in [1, 2, 9, 40] {
                let x = noise(m as u64, m * cols);
                let expected = reference(&x.iter().map(|&x| f64::from(bf16(x))).collect::<Vec<_>>(), &wide, cols);
                for machine in machines() {
                    let matrix = build(machine, Arithmetic::Bf16, rows, cols, dtype, &bytes);
                    let mut out = vec![f32::NAN; m * rows];
                    matrix.matmul(&x, &mut out);
                    assert_close(&format!("{dtype} as bf16, {machine}"), &out, &expected, CLOSE);
                    let mut back = vec![f32::NAN; rows * cols];
                    matrix.read_rows(0, &mut back);
                    assert_eq!(back, wide, "{dtype} {machine}");
                    for (row, wide) in wide.chunks_exact(cols).enumerate() {
                        matrix.read_rows(row, &mut back[..cols]);
                        assert_eq!(back[..cols], *wide, "{dtype} {machine}: row {row}");
                    }
                }
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_other_rows_or_the_threads() {
    let _turn = crate::pool::tests::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let m = 205;
    for dtype in BLOCKS.into_iter().chain([DType::F32, DType::F16, DType::BF16]) {
        let (rows, cols) = (52, 512);
        let bytes = weights(dtype, rows, cols);
        let x = noise(7, m * cols);
        for machine in machines() {
            for arithmetic in [Arithmetic::Float, Arithmetic::Bf16, Arithmetic::Int8] {
                let fits = match arithmetic {
                    Arithmetic::Float => true,
                    Arithmetic::Bf16 => matches!(dtype, DType::F16 | DType::BF16),
                    Arithmetic::Int8 => dtype.is_quantized(),
                };
                if !fits {
                    continue;
                }
                let matrix = build(machine, arithmetic, rows, cols, dtype, &bytes);
                let mut all = vec![f32::NAN; m * rows];
                matrix.matmul(&x, &mut all);
                for count in [1, 2, 3, 5, 6, 11] {
                    for first in [0, 3, 101, m - count] {
                        let mut some = vec![f32::NAN; count * rows];
                        crate::set_threads(1 + count % 4);
                        matrix.matmul(&x[first * cols..(first + count) * cols], &mut some);
                        let expected = &all[first * rows..(first + count) * rows];
                        assert_eq!(some, expected, "{dtype} {machine} {arithmetic:?}: rows {first}.. of {count}");
                    }
                }
            }
        }
    }
    crate::set_threads(0);
}

/// What the lanes of a machine make of 32 activations: the bits of the largest, codes, and sums of these.
struct Round<'a>(&'a [f32; 32], f32, &'a mut Option<Found>);
type Found = (u32, [i8; 32], [[i16; 2]; 2]);

impl crate::lanes::Kernel for Round<'_> {
    #[inline(always)]
    fn run<L: crate::lanes::Lanes>(self, l: L) {
        let mut codes = [0; 32];
        let sums = l.round(self.0, self.1, &mut codes);
        *self.2 = Some((l.most(self.0), codes, sums));
    }
}

#[test]
fn activations_are_rounded_alike_by_every_machine() {
    for seed in 0..200 {
        let mut x: [f32; 32] = noise(seed, 32).try_into().unwrap();
        match seed % 5 {
            0 => x[seed as usize % 32] = f32::NAN,
            1 => x[seed as usize % 32] = f32::NEG_INFINITY,
            2 => x[seed as usize % 32] = -300.0,
            // Halves, which round to even.
            3 => x.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 * 4.5 - 63.5),
            _ => {}
        }
        let most = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap();
        let finite = f32::from_bits(most).is_finite();
        let factor = if finite { 127.0 / f32::from_bits(most) } else { 0.0 };
        let codes = x.map(|x| (x * factor).round_ties_even() as i8);
        let sum = |half: usize, pair: usize| {
            let quads = codes[16 * half..][..16].chunks_exact(4);
            quads.map(|four| i16::from(four[2 * pair]) + i16::from(four[2 * pair + 1])).sum()
        };
        let sums = [[sum(0, 0), sum(0, 1)], [sum(1, 0), sum(1, 1)]];
        for machine in machines() {
            let mut found = None;
            crate::lanes::dispatch_float(machine, Round(&x, factor, &mut found));
            let (found_most, found_codes, found_sums) = found.unwrap();
            assert_eq!(found_most, most, "{machine}, {seed}");
            if finite {
                assert_eq!((found_codes, found_sums), (codes, sums), "{machine}, {seed}");
            }
        }
    }
}

#[test]
fn a_bias_is_added_to_what_comes_out() {
    let _turn = crate::pool::tests::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (dtype, arithmetic) in
        [(DType::F32, Arithmetic::Float), (DType::BF16, Arithmetic::Bf16), (DType::Q8_0, Arithmetic::Int8)]
    {
        for machine in machines() {
            let (rows, cols, m) = (37, 64, 21);
            let matrix = build(machine, arithmetic, rows, cols, dtype, &weights(dtype, rows, cols));
            let (x, bias) = (noise(1, m * cols), noise(2, rows));
            let mut expected = vec![f32::NAN; m * rows];
            matrix.matmul(&x, &mut expected);
            let [plain, biased] = matmul_all([(&matrix, None), (&matrix, Some(&bias))], &x);
            assert_eq!(plain, expected, "{dtype} {machine}");
            for (expected, bias) in expected.iter_mut().zip(bias.iter().cycle()) {
                *expected += bias;
            }
            assert_eq!(biased, expected, "{dtype} {machine}");
        }
    }
}

#[test]
fn rows_are_read_back_as_the_dequantiser_has_them() {
    for dtype in BLOCKS.into_iter().chain(FLOATS) {
        for (rows, cols) in shapes(dtype) {
            let bytes = weights(dtype, rows, cols);
            let mut wide = vec![f32::NAN; rows * cols];
            dequantize(dtype, &bytes, &mut wide).unwrap();
            for machine in machines() {
                let matrix = build(machine, Arithmetic::Float, rows, cols, dtype, &bytes);
                for (start, count) in [(0, rows), (rows - 1, 1), (rows / 3, 1), (rows / 2, rows - rows / 2), (0, 0)] {
                    let mut out = vec![f32::NAN; count * cols];
                    matrix.read_rows(start, &mut out);
                    let expected = &wide[start * cols..(start + count) * cols];
                    let same = out.iter().zip(expected).all(|(out, expected)| out.to_bits() == expected.to_bits());
                    assert!(same, "{dtype} {machine}: rows {start}.. of {count}");
                }
            }
        }
    }
}

#[test]
fn non_finite_activations_and_weights_show() {
    for dtype in BLOCKS.into_iter().chain([DType::F32, DType::F16, DType::BF16]) {
        let (rows, cols) = (20, 512);
        let bytes = weights(dtype, rows, cols);
        for machine in machines() {
            let matrix = build(machine, Arithmetic::of(machine, dtype, Compute::Native), rows, cols, dtype, &bytes);
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = noise(3, 5 * cols);
                x[2 * cols + 77] = bad;
                let mut out = vec![0.0; 5 * rows];
                matrix.matmul(&x, &mut out);
                for (row, out) in out.chunks(rows).enumerate() {
                    // A weight of 0 times infinity is NaN, so that no output of the row can look sane.
                    assert!(out.iter().all(|y| y.is_finite() == (row != 2)), "{dtype} {machine} {bad}: row {row}");
                }
            }
        }
        if dtype != DType::MXFP4 {
            let mut w = noise(4, rows * cols);
            w[3 * cols + 300] = f32::NAN;
            let mut bytes = vec![0; bytes.len()];
            quantize(dtype, &w, &mut bytes).unwrap();
            for machine in machines() {
                let matrix = build(machine, Arithmetic::of(machine, dtype, Compute::Native), rows, cols, dtype, &bytes);
                let mut out = vec![0.0; rows];
                matrix.matmul(&noise(5, cols), &mut out);
                assert!((0..rows).all(|row| out[row].is_finite() == (row != 3)), "{dtype} {machine}");
            }
        }
    }
}

#[test]
fn tiny_and_huge_activations_keep_their_meaning() {
    let (rows, cols) = (16, 64);
    let bytes = weights(DType::Q8_0, rows, cols);
    for machine in machines() {
        let matrix = build(machine, Arithmetic::Int8, rows, cols, DType::Q8_0, &bytes);
        for size in [0.0, 1e-40, 1e-36, 1e30] {
            let x: Vec<f32> = noise(9, cols).iter().map(|x| x * size).collect();
            let mut out = vec![f32::NAN; rows];
            matrix.matmul(&x, &mut out);
            assert!(out.iter().all(|y| y.is_finite()), "{machine} {size}");
            assert!(size > 0.0 || out.iter().all(|&y| y == 0.0));
        }
    }
}

#[test]
fn a_matrix_may_be_pushed_in_any_pieces_and_no_others() {
    for dtype in [DType::Q4_K, DType::Q8_0, DType::F16, DType::F32] {
        let (rows, cols) = (75, 256);
        let bytes = weights(dtype, rows, cols);
        let row = bytes.len() / rows;
        let whole = build(*crate::machine(), Arithmetic::Float, rows, cols, dtype, &bytes);
        for piece in [1, 5, 16, 33, 74] {
            let mut builder = Matrix::builder(rows, cols, dtype, Compute::F32).unwrap();
            bytes.chunks(piece * row).for_each(|rows| builder.push(rows).unwrap());
            assert_eq!(builder.push(&bytes[..row]), Err(KernelError::Rows { expected: rows, found: rows + 1 }));
            assert_eq!(builder.finish().unwrap().panels(), whole.panels(), "{dtype} by {piece}");
        }
        let mut builder = Matrix::builder(rows, cols, dtype, Compute::F32).unwrap();
        assert!(builder.push(&bytes[..row + 1]).is_err());
        builder.push(&bytes[..17 * row]).unwrap();
        assert_eq!(builder.finish().unwrap_err(), KernelError::Rows { expected: rows, found: 17 });
    }
}

#[test]
fn impossible_matrices_are_refused_and_empty_ones_work() {
    let refused = |rows, cols, dtype| Matrix::builder(rows, cols, dtype, Compute::Native).unwrap_err();
    assert!(matches!(refused(4, 100, DType::Q4_K), KernelError::NotWholeBlocks { elements: 100, .. }));
    assert!(matches!(refused(usize::MAX, 256, DType::Q4_K), KernelError::TooLarge { .. }));
    assert!(matches!(refused(1, usize::MAX, DType::F32), KernelError::TooLarge { .. }));
    assert!(matches!(refused(1 << 40, 1 << 20, DType::F16), KernelError::OutOfMemory { .. }));
    for (rows, cols) in [(0, 256), (3, 0), (0, 0)] {
        let matrix = Matrix::builder(rows, cols, DType::F32, Compute::Native).unwrap().finish().unwrap();
        let mut out = vec![f32::NAN; 2 * rows];
        matrix.matmul(&vec![1.0; 2 * cols], &mut out);
        assert!(out.iter().all(|&y| y == 0.0));
        matrix.read_rows(0, &mut []);
    }
    let matrix = Matrix::from_f32(2, 2, &[1.0, 2.0, 3.0, 4.0]);
    matrix.matmul(&[], &mut []);
    let mut out = [0.0; 2];
    matrix.matmul(&[1.0, 10.0], &mut out);
    assert_eq!(out, [21.0, 43.0]);
}

#[test]
fn weights_take_the_bytes_of_their_type() {
    for dtype in BLOCKS.into_iter().chain(FLOATS) {
        for compute in [Compute::Native, Compute::F32] {
            let (rows, cols) = (790, 512);
            let bytes = vec![0; dtype.bytes(rows * cols).unwrap()];
            let mut builder = Matrix::builder(rows, cols, dtype, compute).unwrap();
            builder.push(&bytes).unwrap();
            let matrix = builder.finish().unwrap();
            let ratio = matrix.bytes() as f64 / bytes.len() as f64;
            assert!((0.98..1.02).contains(&ratio), "{dtype}: {ratio}");
            assert_eq!((matrix.rows(), matrix.cols()), (rows, cols));
        }
    }
}

#[test]
fn sizes_are_told_without_a_matrix() {
    for dtype in BLOCKS.into_iter().chain(FLOATS) {
        for (rows, cols) in [(1, 256), (16, 512), (17, 256), (100, 768)] {
            for compute in [Compute::Native, Compute::F32] {
                let mut builder = Matrix::builder(rows, cols, dtype, compute).unwrap();
                builder.push(&weights(dtype, rows, cols)).unwrap();
                let matrix = builder.finish().unwrap();
                assert_eq!(Matrix::packed_bytes(rows, cols, dtype, compute), Some(matrix.bytes()), "{dtype}");
            }
        }
    }
    assert_eq!(Matrix::packed_bytes(4, 100, DType::Q4_K, Compute::Native), None);
    assert_eq!(Matrix::packed_bytes(usize::MAX, 8, DType::F32, Compute::Native), None);
    assert_eq!(Matrix::matmul_bytes(1, 64, &[(DType::F32, Compute::F32)]), 0);
    let kinds = |dtypes: &[DType], compute| dtypes.iter().map(|&dtype| (dtype, compute)).collect::<Vec<_>>();
    assert_eq!(Matrix::matmul_bytes(10, 64, &kinds(&[DType::Q8_0, DType::F32], Compute::F32)), 10 * 64 * 4);
    let bytes = |dtypes: &[DType]| Matrix::matmul_bytes(10, 512, &kinds(dtypes, Compute::Native));
    assert_eq!(bytes(&[DType::Q4_K, DType::Q4_K]), bytes(&[DType::Q4_K]));
    assert_eq!(bytes(&[DType::Q4_K, DType::Q6_K]), bytes(&[DType::Q4_K]) + bytes(&[DType::Q6_K]));
}
