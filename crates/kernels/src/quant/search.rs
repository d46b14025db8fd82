//! The search for scales: a handful of candidates, each fitted by least squares.

/// The largest magnitude.
pub(super) fn absmax(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most: f32, x| most.max(x.abs()))
}

/// `1 / scale`, and 0 for a scale so small that the inverse would not be finite.
pub(super) fn inverse(scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// `x` to the nearest code of `0..=most`.
pub(super) fn round_code(x: f32, most: u8) -> u8 {
    x.round_ties_even().clamp(0.0, f32::from(most)) as u8
}

/// Every element counts the same.
pub(super) fn even(_: f32) -> f32 {
    1.0
}

/// Large elements count more: what the K types minimise, because a weight's error is felt times an activation that
/// the weight was trained to matter for.
pub(super) fn by_size(x: f32) -> f32 {
    x.abs()
}

/// The squared error of codes, in f64.
pub(super) fn squared_error(x: &[f32], codes: &[u8], value: impl Fn(u8) -> f32) -> f64 {
    x.iter().zip(codes).map(|(&x, &code)| f64::from(x - value(code)).powi(2)).sum()
}

/// A scale for codes `-zero ..= zero - 1`, minimising the weighted squared error.
///
/// The element of largest magnitude decides the sign, so that it may use the code `-zero`, which has no positive
/// twin; around the scale that it suggests a few others are tried, each refitted to the codes that it leads to.
pub(super) fn signed_scale(x: &[f32], zero: u8, weight: &dyn Fn(f32) -> f32) -> f32 {
    let extreme = x.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most });
    if extreme.abs() < f32::MIN_POSITIVE {
        return 0.0;
    }
    let zero = f32::from(zero);
    fit(x, weight, (-9..=9).map(|step| -(zero + 0.1 * step as f32) / extreme), |scaled| {
        scaled.round_ties_even().clamp(-zero, zero - 1.0)
    })
}

/// The best scale among the inverse candidates: for each, the codes, then the least-squares scale of those codes.
fn fit(x: &[f32], weight: &dyn Fn(f32) -> f32, inverses: impl Iterator<Item = f32>, code: impl Fn(f32) -> f32) -> f32 {
    let mean = x.iter().map(|x| f64::from(x.abs())).sum::<f64>() / x.len().max(1) as f64;
    let mut best = (f64::NEG_INFINITY, 0.0);
    for inverse in inverses.filter(|inverse| inverse.is_finite()) {
        let (mut product, mut square) = (0.0f64, 0.0f64);
        for &x in x {
            let code = f64::from(code(x * inverse));
            // The mean keeps small elements from counting nothing at all.
            let weight = f64::from(weight(x)) + mean;
            product += weight * f64::from(x) * code;
            square += weight * code * code;
        }
        // The error is least where product^2 / square is greatest.
        if square > 0.0 && product * product / square > best.0 {
            best = (product * product / square, product / square);
        }
    }
    best.1 as f32
}

/// Codes of `code - zero` for a given scale.
pub(super) fn signed_codes(x: &[f32], scale: f32, zero: u8, codes: &mut [u8]) {
    let inverse = inverse(scale);
    let low = f32::from(zero);
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = ((x * inverse).round_ties_even().clamp(-low, low - 1.0) + low) as u8;
    }
}

/// A common scale and whole multiples of it (`-most - 1 ..= most`) for scales that may have either sign. The largest
/// takes the extra negative multiple.
pub(super) fn signed_sub_scales(fits: &[f32; 16], most: i8) -> (f32, [i8; 16]) {
    let extreme = fits.iter().fold(0.0, |most: f32, &fit| if fit.abs() > most.abs() { fit } else { most });
    let (low, high) = (-f32::from(most) - 1.0, f32::from(most));
    // Stored as f16: the multiples are those of the stored number.
    let d = half::f16::from_f32((extreme / low).clamp(-65504.0, 65504.0)).to_f32();
    let inverse = inverse(d);
    (d, fits.map(|fit| (fit * inverse).round_ties_even().clamp(low, high) as i8))
}

/// Scale and minimum for codes `0 ..= most`.
pub(super) fn affine(x: &[f32], most: u8, weight: &dyn Fn(f32) -> f32) -> (f32, f32) {
    let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    fit_affine(x, low, high, most, weight, f32::MAX)
}

/// As [`affine`] with a minimum that is not positive, as the K types store it.
pub(super) fn affine_below(x: &[f32], most: u8, weight: &dyn Fn(f32) -> f32) -> (f32, f32) {
    let (low, high) = x.iter().fold((0.0, f32::MIN), |(low, high): (f32, f32), &x| (low.min(x), high.max(x)));
    if high <= low {
        // All elements are the same negative number (or zero): the minimum alone says it.
        return (0.0, low);
    }
    fit_affine(x, low, high, most, weight, 0.0)
}

/// Tries ranges a little narrower and wider than `low..=high`; for each, the least-squares line through its codes.
fn fit_affine(
    x: &[f32],
    low: f32,
    high: f32,
    most: u8,
    weight: &dyn Fn(f32) -> f32,
    highest_minimum: f32,
) -> (f32, f32) {
    // Halved before subtracting: the range of huge finite values is not finite.
    let scale = (high / 2.0 - low / 2.0) / f32::from(most) * 2.0;
    let mut best = (scale, low);
    if inverse(scale) == 0.0 || !scale.is_finite() {
        return (if scale.is_finite() { scale } else { f32::MAX / f32::from(most) }, low);
    }
    let mut least = affine_error(x, best, most, weight);
    for step in -6..=9 {
        let inverse = inverse(scale) * (1.0 + 0.1 * step as f32 / f32::from(most));
        // Sums of w, wl, wl^2, wx, wxl: the normal equations of x = scale l + minimum.
        let mut sums = [0.0f64; 5];
        for &x in x {
            let (l, w, x) =
                (f64::from(round_code((x - low) * inverse, most)), f64::from(weight(x)) + 1e-9, f64::from(x));
            let add = [w, w * l, w * l * l, w * x, w * x * l];
            sums.iter_mut().zip(add).for_each(|(sum, add)| *sum += add);
        }
        let [w, wl, wll, wx, wxl] = sums;
        let determinant = w * wll - wl * wl;
        if determinant <= 0.0 {
            continue;
        }
        let mut line = (((w * wxl - wl * wx) / determinant) as f32, ((wll * wx - wl * wxl) / determinant) as f32);
        if line.1 > highest_minimum {
            line = ((wxl / wll.max(f64::MIN_POSITIVE)) as f32, highest_minimum);
        }
        let error = affine_error(x, line, most, weight);
        if line.0 > 0.0 && error < least {
            (least, best) = (error, line);
        }
    }
    best
}

/// The weighted squared error of a line under its own best codes.
fn affine_error(x: &[f32], (scale, minimum): (f32, f32), most: u8, weight: &dyn Fn(f32) -> f32) -> f64 {
    let inverse = inverse(scale);
    let errors = x.iter().map(|&x| {
        let code = round_code((x - minimum) * inverse, most);
        f64::from(weight(x)) * f64::from(x - (scale * f32::from(code) + minimum)).powi(2)
    });
    errors.sum()
}

/// Codes of `scale * code + minimum`.
pub(super) fn affine_codes(x: &[f32], scale: f32, minimum: f32, most: u8, codes: &mut [u8]) {
    let inverse = inverse(scale);
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = round_code((x - minimum) * inverse, most);
    }
}

/// The index of the table's value nearest to `x`.
fn nearest(x: f32, table: &[i8; 16]) -> u8 {
    let mut best = (f32::INFINITY, 0);
    for (index, &value) in (0u8..).zip(table) {
        let distance = (x - f32::from(value)).abs();
        if distance < best.0 {
            best = (distance, index);
        }
    }
    best.1
}

/// A scale for values of a table, minimising the squared error weighted by size.
pub(super) fn table_scale(x: &[f32], table: &[i8; 16]) -> f32 {
    let extreme = x.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most });
    if extreme.abs() < f32::MIN_POSITIVE {
        return 0.0;
    }
    let first = f32::from(table[0]);
    let inverses = (-7..=7).flat_map(|step| {
        let inverse = (first + step as f32) / extreme;
        [inverse, -inverse]
    });
    fit(x, &by_size, inverses, |scaled| f32::from(table[usize::from(nearest(scaled, table))]))
}

/// Codes of a table for a given scale.
pub(super) fn table_codes(x: &[f32], scale: f32, table: &[i8; 16], codes: &mut [u8]) {
    let inverse = inverse(scale);
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = nearest(x * inverse, table);
    }
}
