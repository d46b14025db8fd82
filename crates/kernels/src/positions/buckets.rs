//! Buckets of relative distance: exact near, logarithmic far.

/// T5's bucket (Raffel et al. 2020, section 2.1) of `distance = key - query`; the result is below `buckets`.
///
/// `bidirectional` gives the keys after the query the upper half of the buckets; otherwise they share bucket 0.
/// Logarithms are float32: an edge moves by one in wider arithmetic. MPNet's buckets are these with 32 buckets,
/// distance 128 and both directions.
pub fn relative_bucket(distance: i64, buckets: usize, max_distance: usize, bidirectional: bool) -> usize {
    let (offset, buckets, distance) = if bidirectional {
        let half = buckets / 2;
        (if distance > 0 { half } else { 0 }, half, distance.unsigned_abs())
    } else {
        (0, buckets, distance.min(0).unsigned_abs())
    };
    let exact = buckets / 2;
    if distance < exact as u64 {
        return offset + distance as usize;
    }
    // Degenerate tables (one bucket, or a distance below the exact part) have no logarithmic part.
    if exact == 0 || max_distance <= exact {
        return offset + buckets.saturating_sub(1);
    }
    let range = (max_distance as f64 / exact as f64).ln() as f32;
    let steps = (distance as f32 / exact as f32).ln() / range * (buckets - exact) as f32;
    offset + (exact + steps as usize).min(buckets - 1)
}

/// DeBERTa-v2's signed logarithmic bucket (He et al. 2021) of `distance = query - key`: the distance itself below
/// `buckets / 2`, growing as its logarithm up to `max_distance` beyond.
pub fn log_bucket(distance: i64, buckets: usize, max_distance: usize) -> i64 {
    let middle = (buckets / 2) as i64;
    if distance.abs() <= middle || middle == 0 {
        return distance;
    }
    let range = ((max_distance as f64 - 1.0) / middle as f64) as f32;
    let far = (distance.abs() as f32 / middle as f32).ln() / range.ln() * (middle - 1) as f32;
    (far.ceil() as i64 + middle) * distance.signum()
}
