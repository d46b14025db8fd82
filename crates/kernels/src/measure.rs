//! What this machine can do at best: the yardsticks that kernels are compared with.

use crate::pool::{parallel, threads};
use crate::{Compute, DType, Matrix};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long a measurement goes on.
const TIME: Duration = Duration::from_millis(400);
/// Larger than the last cache of most machines.
const BUFFER: usize = 256 << 20;

/// Bytes per second that all threads together read from memory: the best of several passes over 256 MiB (less where
/// that is not to be had), in under a second.
pub fn measure_bandwidth() -> f64 {
    let mut buffer: Vec<u64> = Vec::new();
    let mut bytes = BUFFER;
    while buffer.try_reserve_exact(bytes / 8).is_err() {
        bytes /= 2;
    }
    buffer.resize(bytes / 8, 1);
    let tasks = 8 * threads();
    best(bytes as f64, || {
        parallel(tasks, |task| {
            let part = &buffer[buffer.len() * task / tasks..buffer.len() * (task + 1) / tasks];
            // Many sums side by side, so that the loads and not the additions are what is waited for.
            let mut sums = [0u64; 32];
            for chunk in part.chunks_exact(32) {
                sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum ^= x);
            }
            black_box(sums);
        });
    })
}

/// Operations per second (a multiplication and an addition are two) of a product in f32 that the caches hold, on all
/// threads, in under a second.
pub fn measure_matmul() -> f64 {
    let (m, n, k) = (96, 1024, 1024);
    let weights = Matrix::builder(n, k, DType::F32, Compute::F32).and_then(|mut builder| {
        builder.push(&vec![0; 4 * n * k])?;
        builder.finish()
    });
    let Ok(weights) = weights else { return 0.0 };
    let (x, mut out) = (vec![1.0; m * k], vec![0.0; m * n]);
    best((2 * m * n * k) as f64, || weights.matmul(&x, &mut out))
}

/// The best rate of `work` that takes `amount`, tried for the length of [`TIME`].
fn best(amount: f64, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = 0.0f64;
    while start.elapsed() < TIME {
        let start = Instant::now();
        work();
        best = best.max(amount / start.elapsed().as_secs_f64().max(1e-9));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers() {
        for rate in [measure_bandwidth(), measure_matmul()] {
            assert!(rate.is_finite() && rate > 0.0);
        }
    }
}
