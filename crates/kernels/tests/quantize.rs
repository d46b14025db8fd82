//! The error of every block type on normally distributed weights, as measured: no type may become worse.

use attend_kernels::{DType, dequantize, quantize};

/// Root of the mean squared error over the root of the mean square. The reference program's own quantisers were
/// measured on the same numbers; theirs are the second figures.
const MEASURED: [(DType, f64, f64); 13] = [
    (DType::Q8_0, 0.00534, 0.00534),
    (DType::Q6_K, 0.01734, 0.01771),
    (DType::Q5_K, 0.03645, 0.03606),
    (DType::Q5_1, 0.03400, 0.03779),
    (DType::Q5_0, 0.04012, 0.04261),
    (DType::Q4_K, 0.07328, 0.07128),
    (DType::Q4_1, 0.07011, 0.07815),
    (DType::Q4_0, 0.08072, 0.08574),
    (DType::IQ4_NL, 0.07443, 0.07601),
    (DType::IQ4_XS, 0.07511, 0.07659),
    (DType::MXFP4, 0.11248, 0.11778),
    (DType::Q3_K, 0.14539, 0.15073),
    (DType::Q2_K, 0.28716, 0.29661),
];

/// Box and Muller's transform of uniform numbers.
fn normal(count: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    (0..count)
        .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos() * 0.05) as f32)
        .collect()
}

#[test]
fn no_type_is_worse_than_measured() {
    let x = normal(1 << 17);
    let power: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
    for (dtype, ours, reference) in MEASURED {
        let mut bytes = vec![0; dtype.bytes(x.len()).unwrap()];
        let mut back = vec![0.0; x.len()];
        quantize(dtype, &x, &mut bytes).unwrap();
        dequantize(dtype, &bytes, &mut back).unwrap();
        let square: f64 = x.iter().zip(&back).map(|(x, y)| f64::from(x - y).powi(2)).sum();
        let error = (square / power).sqrt();
        // Other numbers of the same distribution differ by about one part in a hundred.
        assert!((error / ours - 1.0).abs() < 0.03, "{dtype}: {error} where {ours} was measured");
        assert!(error < 1.04 * reference, "{dtype}: {error}, and the reference has {reference}");
    }
}
