//! Elementary functions without branches, which compilers turn into vector code.
//!
//! Each is generic over the instruction set that it is compiled for. Polynomials are Chebyshev fits of the stated
//! functions; errors are the worst over all float32 arguments of the stated range, as the tests measure them.

use crate::arch::Arch;

#[inline(always)]
pub(crate) fn fma<A: Arch>(a: f32, b: f32, c: f32) -> f32 {
    if A::FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn polynomial<A: Arch, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = 0.0;
    for c in coefficients {
        sum = fma::<A>(sum, x, c);
    }
    sum
}

/// Adding this to a float32 of magnitude below 2^22 rounds it to a whole number, which lies in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// ln 2 in two pieces, the first with few enough bits that small multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; returns `n` and `exp(r) - 1`, whose relative error is below 2e-8 before
/// rounding.
#[inline(always)]
fn exp_parts<A: Arch>(x: f32) -> (i32, f32) {
    let shifted = fma::<A>(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    let whole = shifted - ROUNDER;
    let r = fma::<A>(whole, -LN_2_LOW, fma::<A>(whole, -LN_2_HIGH, x));
    // (exp(r) - 1 - r) / r^2
    let tail = polynomial::<A, 5>(r, [1.392_618_4e-3, 8.363_179e-3, 4.166_655_6e-2, 0.166_665_76, 0.5]);
    (n, fma::<A>(tail, r * r, r))
}

/// 2^n for `n` in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `e^x`, relative error below 2e-7 where the result is a normal number; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<A: Arch>(x: f32) -> f32 {
    // Beyond these bounds the result is 0 or infinite in any case.
    let (n, fraction) = exp_parts::<A>(x.clamp(-104.0, 89.5));
    // Two factors, because 2^n alone leaves the exponent's range at both ends.
    let half = n >> 1;
    (1.0 + fraction) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `2^x` for `x` up to 127, in a vector: relative error below 2e-7, 0 below 2^-126, exactly 1 at 0; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp2<A: Arch>(x: A::Vector) -> A::Vector {
    // Rounds as [`ROUNDER`] does, and leaves the exponent of the whole number's power in the low bits.
    let rounder = A::splat(ROUNDER + 127.0);
    let shifted = A::add(x, rounder);
    let r = A::sub(x, A::sub(shifted, rounder));
    let mut power = A::splat(1.535_336_2e-4);
    for c in [1.339_887_5e-3, 9.618_437e-3, 5.550_332_4e-2, 0.240_226_48, std::f32::consts::LN_2, 1.0] {
        power = A::multiply_add(power, r, A::splat(c));
    }
    A::unless_below(A::mul(power, A::exponent(shifted)), x, A::splat(-126.0))
}

/// `tanh x`, relative error below 4e-7.
#[inline(always)]
pub(crate) fn tanh<A: Arch>(x: f32) -> f32 {
    let twice = 2.0 * x.abs();
    // Not `min`, which would lose a NaN. From here on the result is 1.
    let twice = if twice > 20.0 { 20.0 } else { twice };
    let (n, fraction) = exp_parts::<A>(twice);
    let scale = power_of_two(n);
    let t = fma::<A>(scale, fraction, scale - 1.0);
    (t / (t + 2.0)).copysign(x)
}

/// `1 / (1 + e^-x)`, relative error below 4e-7 where the result is a normal number.
#[inline(always)]
pub(crate) fn sigmoid<A: Arch>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<A>(-x))
}

/// The normal distribution function `Phi(x) = (1 + erf(x / sqrt 2)) / 2`, absolute error below 2.5e-7.
///
/// From `erfc(z) = exp(-z^2) t P(t)` with `t = 1 / (1 + 0.4 z)`, where `t` maps `z >= 0` to `(0, 1]` and `P` is a
/// Chebyshev fit of degree 9 whose error is 6e-8.
#[inline(always)]
pub(crate) fn normal_cdf<A: Arch>(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / fma::<A>(0.4, z, 1.0);
    let p = polynomial::<A, 10>(
        t,
        [
            -5.871_902e-3,
            7.590_326e-2,
            -0.229_379_42,
            0.214_312_15,
            -3.111_695_3e-2,
            0.149_826_94,
            0.167_002_71,
            0.207_982_6,
            0.225_664_76,
            0.225_675_9,
        ],
    );
    let tail = 0.5 * exp::<A>(-z * z) * t * p;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::arch::for_each_arch;
    use crate::{Isa, available};

    /// `(1 + erf(x / sqrt 2)) / 2`: the Taylor series of erf near 0, the continued fraction of erfc far out (Abramowitz
    /// & Stegun 7.1.5 and 7.1.14).
    pub(crate) fn normal_cdf_f64(x: f64) -> f64 {
        let z = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
        let tail = if z < 2.5 {
            let (mut term, mut sum) = (z, z);
            for n in 1..80 {
                term *= -z * z / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..200).rev().fold(0.0, |rest, n| f64::from(n) / 2.0 / (z + rest));
            (-z * z).exp() / ((z + fraction) * std::f64::consts::PI.sqrt())
        };
        if x < 0.0 { tail / 2.0 } else { 1.0 - tail / 2.0 }
    }

    #[derive(Debug, Clone, Copy)]
    enum Function {
        Exp,
        Tanh,
        Sigmoid,
        NormalCdf,
        Exp2,
    }

    for_each_arch! {
        fn map(function: Function, values: &mut [f32]) = map_body
    }

    #[inline(always)]
    fn map_body<A: Arch>(_: A, function: Function, values: &mut [f32]) {
        for x in values {
            *x = match function {
                Function::Exp => exp::<A>(*x),
                Function::Tanh => tanh::<A>(*x),
                Function::Sigmoid => sigmoid::<A>(*x),
                Function::NormalCdf => normal_cdf::<A>(*x),
                Function::Exp2 => {
                    let mut lanes = [0.0; 16];
                    A::store(exp2::<A>(A::splat(*x)), &mut lanes);
                    assert!(lanes[..A::LANES].iter().all(|lane| lane.to_bits() == lanes[0].to_bits()));
                    lanes[0]
                }
            };
        }
    }

    fn on(isa: Isa, function: Function, x: f32) -> f32 {
        let mut one = [x];
        map(isa, function, &mut one);
        one[0]
    }

    /// Every 1025th float32 of a magnitude from 2^-30 to `top`, both signs.
    fn arguments(top: f32) -> Vec<f32> {
        let bits = 2f32.powi(-30).to_bits()..=top.to_bits();
        bits.step_by(1025).map(f32::from_bits).flat_map(|x| [x, -x]).collect()
    }

    fn check(function: Function, top: f32, relative: f64, absolute: f64, exact: impl Fn(f64) -> f64) {
        let x = arguments(top);
        let want: Vec<f64> = x.iter().map(|&x| exact(f64::from(x))).collect();
        for isa in available() {
            let mut y = x.clone();
            map(isa, function, &mut y);
            for ((&x, &y), &want) in x.iter().zip(&y).zip(&want) {
                // Below the normal numbers there are fewer digits to be right.
                let allowed = relative * want.abs().max(f64::from(f32::MIN_POSITIVE)) + absolute;
                let error = (f64::from(y) - want).abs();
                assert!(error <= allowed, "{function:?}({x:e}) is {y:e} on {isa}, not {want:e}: {error:e}");
            }
        }
    }

    #[test]
    fn errors_are_as_stated() {
        check(Function::Exp, 88.7, 2e-7, 0.0, f64::exp);
        check(Function::Tanh, 30.0, 4e-7, 0.0, f64::tanh);
        check(Function::Sigmoid, 80.0, 4e-7, 0.0, |x| 1.0 / (1.0 + (-x).exp()));
        check(Function::NormalCdf, 12.0, 0.0, 2.5e-7, normal_cdf_f64);
        check(Function::Exp2, 126.0, 2e-7, 0.0, f64::exp2);
    }

    #[test]
    fn ends_are_exact() {
        for isa in available() {
            assert_eq!(on(isa, Function::Exp, 0.0), 1.0);
            assert_eq!(on(isa, Function::Exp, 89.0), f32::INFINITY);
            assert_eq!(on(isa, Function::Exp, f32::INFINITY), f32::INFINITY);
            assert_eq!(on(isa, Function::Exp, -104.0), 0.0);
            assert_eq!(on(isa, Function::Exp, f32::NEG_INFINITY), 0.0);
            assert_eq!(on(isa, Function::Tanh, f32::NEG_INFINITY), -1.0);
            assert_eq!(on(isa, Function::Tanh, 40.0), 1.0);
            assert_eq!(on(isa, Function::Tanh, -0.0).to_bits(), (-0.0f32).to_bits());
            assert_eq!(on(isa, Function::Sigmoid, f32::NEG_INFINITY), 0.0);
            assert_eq!(on(isa, Function::NormalCdf, f32::INFINITY), 1.0);
            assert_eq!(on(isa, Function::Exp2, 0.0), 1.0);
            assert_eq!(on(isa, Function::Exp2, -127.0), 0.0);
            assert_eq!(on(isa, Function::Exp2, -3e38), 0.0);
            assert_eq!(on(isa, Function::Exp2, f32::NEG_INFINITY), 0.0);
            for function in [Function::Exp, Function::Tanh, Function::Sigmoid, Function::NormalCdf, Function::Exp2] {
                assert!(on(isa, function, f32::NAN).is_nan(), "{function:?} hides a NaN on {isa}");
            }
        }
    }
}
