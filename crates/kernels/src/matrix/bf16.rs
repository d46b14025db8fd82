//! Products in bf16: weights and activations rounded to bf16, two products at a time added in f32, in one chain over
//! each 256 inputs as in `float`. For machines with an instruction for it.

#[cfg(target_arch = "x86_64")]
mod tiles;

use super::float::{CHAIN, Rows, Sums, with_height};
use super::tasks::{Output, Part};
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_bf16};
use crate::quant::f32_to_bf16;
use std::array::from_mut;

#[cfg(target_arch = "x86_64")]
pub(crate) use tiles::Tiles;

/// Pairs of inputs of a chain.
const PAIRS: usize = CHAIN / 2;
/// Bytes of one pair of inputs of a panel: two weights for each output.
pub(crate) const PAIR_BYTES: usize = 4 * WIDTH;

/// Lays out rows of `cols` in pairs of bf16, padded with 0.
pub(crate) fn lay(machine: Machine, x: &[f32], cols: usize) -> Rows<'static, u32> {
    Rows::new(machine, x.len() / cols, cols.div_ceil(2), |first, height, out| {
        for r in 0..height {
            let row = x[(first + r) * cols..(first + r + 1) * cols].chunks(2);
            for (out, pair) in out[r..].iter_mut().step_by(height).zip(row) {
                let second = pair.get(1).map_or(0, |&x| f32_to_bf16(x));
                *out = u32::from(f32_to_bf16(pair[0])) | u32::from(second) << 16;
            }
        }
    })
}

/// One part of `x . W^T`; a panel is `[cols / 2][16][2]`, padded with 0.
pub(crate) fn part(machine: Machine, panels: &[u8], x: &Rows<'_, u32>, out: &Output<'_, f32>, part: Part<'_>) {
    let (panels, _) = panels.as_chunks::<PAIR_BYTES>();
    dispatch_bf16(machine, Bf16 { panels, x, out, part });
}

/// What one task computes.
struct Bf16<'a> {
    panels: &'a [[u8; PAIR_BYTES]],
    x: &'a Rows<'a, u32>,
    out: &'a Output<'a, f32>,
    part: Part<'a>,
}

impl Kernel for Bf16<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut sums = [Sums::EMPTY; 2];
        let mut panels = self.part.panels.clone();
        while let Some(panel) = panels.next() {
            if L::PANELS == 2 && panels.next().is_some() {
                self.panels::<L, 2>(l, panel, &mut sums);
            } else {
                self.panels::<L, 1>(l, panel, from_mut(&mut sums[0]));
            }
        }
    }
}

impl Bf16<'_> {
    /// The outputs of `P` panels.
    #[inline(always)]
    fn panels<L: Lanes, const P: usize>(&self, l: L, panel: usize, sums: &mut [Sums; P]) {
        let rows = self.part.rows.len();
        for sums in sums.iter_mut() {
            sums.0[..rows].fill([0.0; WIDTH]);
        }
        for first in (0..self.x.cols).step_by(PAIRS) {
            let pairs = first..(first + PAIRS).min(self.x.cols);
            let weights = std::array::from_fn(|p| {
                let start = (panel + p) * self.x.cols;
                &self.panels[start + pairs.start..start + pairs.end]
            });
            let mut row = 0;
            while row < rows {
                let (x, height) = self.x.tile(self.part.rows.start + row, &pairs);
                with_height!(L, height, R => chain_rows::<L, R, P>(l, weights, x, sums, row));
                row += height;
            }
        }
        for (p, sums) in sums.iter().enumerate() {
            self.part.write(self.out, panel + p, &sums.0[..rows]);
        }
    }
}

/// The chain of a tile of `R` rows, for `P` panels.
#[inline(always)]
fn chain_rows<L: Lanes, const R: usize, const P: usize>(
    l: L,
    weights: [&[[u8; PAIR_BYTES]]; P],
    x: &[u32],
    sums: &mut [Sums; P],
    row: usize,
) {
    let (x, _) = x.as_chunks::<R>();
    let mut chains = [[l.splat(0.0); R]; P];
    for (step, x) in x.iter().enumerate() {
        for (r, &x) in x.iter().enumerate() {
            for p in 0..P {
                chains[p][r] = l.dot_bf16(chains[p][r], &weights[p][step], x);
            }
        }
    }
    for (sums, chains) in sums.iter_mut().zip(chains) {
        for (sum, chain) in sums.0[row..].iter_mut().zip(chains) {
            l.store(l.add(l.load(sum), chain), sum);
        }
    }
}
