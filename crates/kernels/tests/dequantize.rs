//! Dequantisation against values recorded from an independent implementation (see `data/dequantize/record.py`), and
//! round trips through `quantize` within each type's bound.

use attend_kernels::{DType, KernelError, dequantize, quantize};

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
const PLAIN: [DType; 15] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

fn recorded(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/dequantize/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Uniform numbers in -1..1 from a small generator.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn recorded_blocks_have_the_recorded_values() {
    for dtype in BLOCKS.into_iter().chain([DType::F8E4M3, DType::F8E5M2]) {
        let blocks = recorded(&format!("{dtype}.blocks"));
        let expected = recorded(&format!("{dtype}.f32"));
        let (expected, _) = expected.as_chunks::<4>();
        let mut out = vec![f32::NAN; expected.len()];
        dequantize(dtype, &blocks, &mut out).unwrap();
        assert!(out.len() >= 256);
        for (i, (out, expected)) in out.iter().zip(expected).enumerate() {
            let expected = f32::from_le_bytes(*expected);
            assert!(*out == expected || (out.is_nan() && expected.is_nan()), "{dtype}[{i}]: {out} for {expected}");
        }
    }
}

#[test]
fn nothing_is_left_unwritten_and_part_blocks_are_refused() {
    for dtype in BLOCKS.into_iter().chain(PLAIN) {
        dequantize(dtype, &[], &mut []).unwrap();
        quantize(dtype, &[], &mut []).unwrap();
        for blocks in [1, 3] {
            let mut out = vec![f32::NAN; blocks * dtype.block_len()];
            dequantize(dtype, &vec![0; blocks * dtype.block_bytes()], &mut out).unwrap();
            assert!(out.iter().all(|x| x.is_finite()), "{dtype}: {blocks} blocks");
        }
        let mut long = vec![0.0; dtype.block_len() + 1];
        let bytes = vec![0; dtype.block_bytes()];
        let expected = if dtype.is_quantized() {
            KernelError::NotWholeBlocks { dtype, elements: long.len() }
        } else {
            KernelError::Length { dtype, elements: 2, expected: 2 * bytes.len(), found: bytes.len() }
        };
        assert_eq!(dequantize(dtype, &bytes, &mut long), Err(expected));
        let short = &bytes[1..];
        let error =
            KernelError::Length { dtype, elements: dtype.block_len(), expected: bytes.len(), found: short.len() };
        assert_eq!(dequantize(dtype, short, &mut long[1..]), Err(error));
    }
}

/// The largest error of an element as a part of the block's largest magnitude, and the root mean square error as a
/// part of the root mean square of uniform noise.
fn bounds(dtype: DType) -> (f32, f32) {
    match dtype {
        DType::Q8_0 => (0.0041, 0.005),
        DType::Q6_K => (0.035, 0.025),
        DType::Q5_0 | DType::Q5_1 | DType::Q5_K => (0.07, 0.045),
        DType::Q4_0 | DType::Q4_1 | DType::Q4_K => (0.15, 0.085),
        DType::IQ4_NL | DType::IQ4_XS => (0.16, 0.095),
        DType::MXFP4 => (0.36, 0.14),
        DType::Q3_K => (0.3, 0.18),
        DType::Q2_K => (0.45, 0.27),
        _ => unreachable!("plain numbers have no bound here"),
    }
}

fn error_of(dtype: DType, x: &[f32]) -> (f32, f32) {
    let mut bytes = vec![0; dtype.bytes(x.len()).unwrap()];
    let mut back = vec![f32::NAN; x.len()];
    quantize(dtype, x, &mut bytes).unwrap();
    dequantize(dtype, &bytes, &mut back).unwrap();
    let largest = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let worst = x.iter().zip(&back).fold(0.0f32, |most, (x, y)| most.max((x - y).abs()));
    let square: f32 = x.iter().zip(&back).map(|(x, y)| (x - y).powi(2)).sum();
    let power: f32 = x.iter().map(|x| x * x).sum();
    (worst / largest, (square / power).sqrt())
}

#[test]
fn round_trips_stay_within_the_bound_of_the_type() {
    for dtype in BLOCKS {
        // Not so small that the f16 scales become subnormal: that loss is the format's.
        for (seed, size) in [(1, 1.0), (2, 0.05), (3, 40.0)] {
            let x: Vec<f32> = noise(seed, 2048).iter().map(|x| x * size).collect();
            let (worst, mean) = error_of(dtype, &x);
            let bound = bounds(dtype);
            assert!(worst <= bound.0 && mean <= bound.1, "{dtype} at {size}: {worst} {mean}");
        }
    }
}

#[test]
fn zeros_constants_and_extremes_survive() {
    for dtype in BLOCKS {
        let len = dtype.block_len();
        let mut bytes = vec![0; dtype.block_bytes()];
        let mut back = vec![f32::NAN; len];
        for value in [0.0, 1.0, -1.0, 0.37, -250.0, 1e-42, f32::MAX, f32::MIN] {
            let x = vec![value; len];
            quantize(dtype, &x, &mut bytes).unwrap();
            dequantize(dtype, &bytes, &mut back).unwrap();
            assert!(back.iter().all(|y| y.is_finite()), "{dtype} of {value}");
            let allowed = if value.abs() > 60000.0 { f32::MAX } else { value.abs() * bounds(dtype).0 + 1e-6 };
            assert!(back.iter().all(|y| (y - value).abs() <= allowed), "{dtype} of {value}: {}", back[0]);
        }
        let mut x = vec![0.0; len];
        x[3] = f32::NAN;
        match quantize(dtype, &x, &mut bytes) {
            Ok(()) => {
                dequantize(dtype, &bytes, &mut back).unwrap();
                assert!(back.iter().any(|y| !y.is_finite()), "{dtype} hides a NaN");
            }
            Err(error) => assert_eq!(error, KernelError::NotFinite { dtype: DType::MXFP4 }),
        }
    }
}

#[test]
fn plain_numbers_round_trip() {
    let whole: Vec<f32> = (-100..100).map(|x| x as f32).collect();
    for dtype in PLAIN {
        let mut bytes = vec![0; dtype.bytes(whole.len()).unwrap()];
        let mut back = vec![f32::NAN; whole.len()];
        quantize(dtype, &whole, &mut bytes).unwrap();
        dequantize(dtype, &bytes, &mut back).unwrap();
        for (&x, &y) in whole.iter().zip(&back) {
            let expected = match dtype {
                DType::U64 | DType::U32 | DType::U16 | DType::U8 => x.max(0.0),
                DType::Bool => f32::from(x != 0.0),
                DType::F8E4M3 | DType::F8E5M2 => {
                    assert!((x - y).abs() <= x.abs() / 8.0, "{dtype}: {y} for {x}");
                    y
                }
                _ => x,
            };
            assert_eq!(y, expected, "{dtype}");
        }
    }
}
