//! Long slices in pieces, for the pool.

use crate::pool;
use std::sync::{Mutex, PoisonError};

/// Calls `body(start, piece)` for pieces of `size` elements (the last may be shorter), in parallel where there are
/// several. What a piece gets must not depend on where it was cut.
pub(crate) fn parallel_chunks(values: &mut [f32], size: usize, body: impl Fn(usize, &mut [f32]) + Sync) {
    if values.len() <= size {
        return body(0, values);
    }
    // Each lock is taken once; it is how a piece is handed over without `unsafe`.
    let pieces: Vec<Mutex<&mut [f32]>> = values.chunks_mut(size).map(Mutex::new).collect();
    pool::parallel(pieces.len(), |i| {
        body(i * size, &mut pieces[i].lock().unwrap_or_else(PoisonError::into_inner));
    });
}

/// `x += scale * y`, element by element.
///
/// # Panics
/// When the two differ in length.
pub fn add_scaled(x: &mut [f32], y: &[f32], scale: f32) {
    assert_eq!(x.len(), y.len(), "sums of different lengths");
    parallel_chunks(x, CHUNK, |start, x| {
        let pairs = x.iter_mut().zip(&y[start..]);
        if scale == 1.0 {
            pairs.for_each(|(x, y)| *x += y);
        } else {
            pairs.for_each(|(x, y)| *x += scale * y);
        }
    });
}

/// Elements that are worth a task of their own.
pub(crate) const CHUNK: usize = 1 << 14;

/// Whole rows of `width` elements that make up about [`CHUNK`] elements, in elements.
pub(crate) fn row_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1) * width
}
