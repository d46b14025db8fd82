//! ALiBi: a penalty per head that grows with the distance between query and key (Press et al. 2022).

use half::bf16;

/// The order of ALiBi slopes when the number of heads is not a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SlopeOrder {
    /// The slopes of the next lower power of two, then every other slope of the next higher (BLOOM, Falcon).
    LowerFirst,
    /// The slopes of the next higher power of two, odd places first, then even ones (MPT).
    OddFirst,
}

/// One slope per head: `2^(-max_bias i / n)` for `i = 1..=n` when the number of heads `n` is a power of two.
pub fn alibi_slopes(heads: usize, order: SlopeOrder, max_bias: f32) -> Vec<f32> {
    // The i-th slope (from 1) among `count` heads.
    let slope = |i: usize, count: usize| (-f64::from(max_bias) * i as f64 / count as f64).exp2() as f32;
    let higher = heads.next_power_of_two();
    if higher == heads {
        return (1..=heads).map(|i| slope(i, heads)).collect();
    }
    match order {
        SlopeOrder::LowerFirst => {
            let lower = higher / 2;
            let first = (1..=lower).map(|i| slope(i, lower));
            first.chain((1..=higher).step_by(2).map(|i| slope(i, higher))).take(heads).collect()
        }
        SlopeOrder::OddFirst => {
            let odd = (2..=higher).step_by(2);
            odd.chain((1..=higher).step_by(2)).map(|i| slope(i, higher)).take(heads).collect()
        }
    }
}

/// What ALiBi adds to a score: `slope * offset`, where `offset` is the key's position (absolute, or less the query's:
/// softmax does not see the difference). `rounded` rounds slope, offset and product to bfloat16, each in turn.
pub fn alibi_bias(slope: f32, offset: f32, rounded: bool) -> f32 {
    if !rounded {
        return slope * offset;
    }
    let round = |x: f32| bf16::from_f32(x).to_f32();
    round(round(slope) * round(offset))
}
