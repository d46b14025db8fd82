//! Clipping of gradients by their common norm.

/// Added to the norm before dividing, so that no gradient at all is no division by zero.
const FLOOR: f64 = 1e-6;

/// The L2 norm of all gradients together, summed in their order in double precision.
pub fn global_norm<'g>(gradients: impl IntoIterator<Item = &'g [f32]>) -> f64 {
    gradients.into_iter().flatten().map(|d| f64::from(*d).powi(2)).sum::<f64>().sqrt()
}

/// Scales every gradient by `min(1, max_norm / (norm + 1e-6))`, where `norm` is the [`global_norm`] of them all.
pub fn clip<'g>(gradients: impl IntoIterator<Item = &'g mut [f32]>, norm: f64, max_norm: f64) {
    let scale = max_norm / (norm + FLOOR);
    if scale < 1.0 {
        gradients.into_iter().flatten().for_each(|d| *d = (f64::from(*d) * scale) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_is_of_all_together_and_never_grows() {
        let mut gradients = [vec![3.0f32, 0.0], vec![4.0]];
        let norm = global_norm(gradients.iter().map(Vec::as_slice));
        assert_eq!(norm, 5.0);
        clip(gradients.iter_mut().map(Vec::as_mut_slice), norm, 1.0);
        let clipped = global_norm(gradients.iter().map(Vec::as_slice));
        assert!((clipped - 1.0).abs() < 1e-6, "{clipped}");
        let before = gradients.clone();
        clip(gradients.iter_mut().map(Vec::as_mut_slice), clipped, 2.0);
        assert_eq!(gradients, before);
    }
}
