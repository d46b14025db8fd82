//! The fixed table of the 2017 Transformer and its relatives.

/// The order of sines and cosines in a row, and the range of their frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SinusoidLayout {
    /// sin, cos, sin, cos, ... (the paper).
    Interleaved,
    /// all sines, then all cosines (Marian, Pegasus).
    Halves,
    /// As `Halves`, with the last frequency exactly `1 / 10000`: the exponent is `i / (width/2 - 1)` (M2M100, FSMT,
    /// Whisper).
    HalvesInclusive,
}

const PERIOD: f64 = 10000.0;

/// Writes the row of `position`, `out[..width]` (Vaswani et al. 2017, section 3.5: angle `p / 10000^(2i/width)`).
///
/// The last element of an odd width in the halved layouts is 0.
pub fn sinusoidal(position: usize, width: usize, layout: SinusoidLayout, out: &mut [f32]) {
    let out = &mut out[..width];
    let half = width / 2;
    match layout {
        SinusoidLayout::Interleaved => {
            for (i, pair) in out.chunks_mut(2).enumerate() {
                let angle = position as f64 / PERIOD.powf((2 * i) as f64 / width as f64);
                let values = [angle.sin() as f32, angle.cos() as f32];
                for (slot, value) in pair.iter_mut().zip(values) {
                    *slot = value;
                }
            }
        }
        SinusoidLayout::Halves => {
            write_halves(out, half, |i| position as f64 / PERIOD.powf((2 * i) as f64 / width as f64));
        }
        SinusoidLayout::HalvesInclusive => {
            let step = (PERIOD.ln() / (half.max(2) - 1) as f64) as f32;
            // The reference multiplies in float32, and at large positions the angle depends on it.
            write_halves(out, half, |i| {
                let frequency = f64::from(-(i as f32) * step).exp() as f32;
                f64::from(position as f32 * frequency)
            });
        }
    }
}

fn write_halves(out: &mut [f32], half: usize, angle: impl Fn(usize) -> f64) {
    out.fill(0.0);
    for i in 0..half {
        let (sin, cos) = angle(i).sin_cos();
        out[i] = sin as f32;
        out[half + i] = cos as f32;
    }
}
