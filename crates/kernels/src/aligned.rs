//! Lists of float32 that begin where a cache line begins, so that no vector of sixteen lies across two.

use std::ops::{Deref, DerefMut};

/// A cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// A list of float32, rounded up to whole lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Floats(Vec<Line>);

impl Floats {
    /// Makes room for at least `len` numbers. What was there stays; what is new is 0.
    pub(crate) fn reserve(&mut self, len: usize) {
        let lines = len.div_ceil(16);
        if lines > self.0.len() {
            self.0.reserve_exact(lines - self.0.len());
            self.0.resize(lines, Line([0.0; 16]));
        }
    }
}

impl Deref for Floats {
    type Target = [f32];
    #[inline(always)]
    fn deref(&self) -> &[f32] {
        // SAFETY: a line is sixteen float32 without padding.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), 16 * self.0.len()) }
    }
}

impl DerefMut for Floats {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: a line is sixteen float32 without padding, and every pattern of bytes is one.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), 16 * self.0.len()) }
    }
}
