//! Plain Rust.

use super::{Arch, Tile};
use std::array::from_fn;

/// Plain Rust: the reference twin of the others.
pub(crate) struct Portable;

impl Arch for Portable {
    const FMA: bool = false;
    const LANES: usize = 8;
    const TILE: Tile = Tile::FourByTwo;
    type Vector = [f32; 8];
    const IN_PLACE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    fn load(from: &[f32]) -> [f32; 8] {
        from_fn(|i| from[..8][i])
    }
    #[inline(always)]
    fn store(vector: [f32; 8], to: &mut [f32]) {
        to[..8].copy_from_slice(&vector);
    }
    #[inline(always)]
    fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn larger(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn unless_below(x: [f32; 8], t: [f32; 8], bound: [f32; 8]) -> [f32; 8] {
        from_fn(|i| if t[i] < bound[i] { 0.0 } else { x[i] })
    }
    #[inline(always)]
    fn exponent(x: [f32; 8]) -> [f32; 8] {
        from_fn(|i| f32::from_bits(x[i].to_bits() << 23))
    }
    #[inline(always)]
    fn highest(x: [f32; 8]) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max })
    }
    #[inline(always)]
    fn sum(x: [f32; 8]) -> f32 {
        ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
    }
}
