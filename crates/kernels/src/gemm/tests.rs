use super::*;
use crate::isa::available;

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

fn at(view: &View<'_>, i: usize, j: usize) -> f64 {
    f64::from(view.data[i * view.row_stride + j * view.col_stride])
}

#[test]
fn every_layout_agrees_with_the_reference_on_every_instruction_set() {
    for (m, k, n) in [(1, 1, 1), (5, 300, 33), (13, 17, 16), (1, 700, 40), (200, 9, 3)] {
        let (a, b, start) = (noise(1, m * k), noise(2, k * n), noise(3, m * n));
        // Each operand as it is and as the transpose of its transpose.
        let views = |data, rows, cols| [View::new(data, rows, cols), View::new(data, cols, rows).transposed()];
        for a in views(&a, m, k) {
            for b in views(&b, k, n) {
                for accumulate in [false, true] {
                    for isa in available() {
                        let mut c = start.clone();
                        gemm_on(Machine::of(isa).unwrap(), a, b, &mut c, accumulate);
                        for i in 0..m {
                            for j in 0..n {
                                let products = (0..k).map(|l| at(&a, i, l) * at(&b, l, j));
                                let first = if accumulate { f64::from(start[i * n + j]) } else { 0.0 };
                                let (sum, size) = products.fold((first, 1.0), |(s, z), p| (s + p, z + p.abs()));
                                let error = (f64::from(c[i * n + j]) - sum).abs();
                                assert!(error <= 2e-6 * size, "{m} {k} {n} {isa}: {error}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn empty_products_are_zero_or_nothing() {
    let empty = View::new(&[], 2, 0);
    let mut c = [7.0; 6];
    gemm(empty, View::new(&[], 0, 3), &mut c, true);
    assert_eq!(c, [7.0; 6]);
    gemm(empty, View::new(&[], 0, 3), &mut c, false);
    assert_eq!(c, [0.0; 6]);
    gemm(View::new(&[], 0, 2), View::new(&[0.0; 6], 2, 3), &mut [], false);
}

#[test]
#[should_panic(expected = "outside its data")]
fn a_view_outside_its_data_is_refused() {
    let data = [0.0; 5];
    gemm(View::new(&data, 2, 3), View::new(&data, 3, 1), &mut [0.0; 2], false);
}
