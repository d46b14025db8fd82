//! Products in bf16: weights and activations rounded to bf16, two products at a time added in f32, in one chain over
//! each 256 inputs as in `float`. For machines with an instruction for it.

use super::float::{CHAIN, ROW_BLOCK, Rows, with_height};
use super::tasks::{Output, Part, Work};
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_bf16};
use crate::quant::f32_to_bf16;
use std::ops::Range;

/// Pairs of inputs of a chain.
const PAIRS: usize = CHAIN / 2;
/// Bytes of one pair of inputs of a panel: two weights for each output.
pub(crate) const PAIR_BYTES: usize = 4 * WIDTH;

/// `out [rows, outputs] = x [rows, cols] . W^T`; a panel is `[cols / 2][16][2]`, padded with 0.
pub(crate) fn product(machine: Machine, panels: &[u8], x: &[f32], cols: usize, out: &mut [f32]) {
    let rows = x.len() / cols;
    let pairs = Rows::new(machine, rows, cols.div_ceil(2), |first, height, out| {
        for r in 0..height {
            let row = x[(first + r) * cols..(first + r + 1) * cols].chunks(2);
            for (out, pair) in out[r..].iter_mut().step_by(height).zip(row) {
                let second = pair.get(1).map_or(0, |&x| f32_to_bf16(x));
                *out = u32::from(f32_to_bf16(pair[0])) | u32::from(second) << 16;
            }
        }
    });
    let (panels, _) = panels.as_chunks::<PAIR_BYTES>();
    let outputs = out.len() / rows;
    let out = Output::new(out);
    let work = Work { outputs, rows, cols, row_block: ROW_BLOCK };
    work.run(|part| dispatch_bf16(machine, Bf16 { panels, x: &pairs, out: &out, part }));
}

/// What one task computes.
struct Bf16<'a> {
    panels: &'a [[u8; PAIR_BYTES]],
    x: &'a Rows<'a, u32>,
    out: &'a Output<'a, f32>,
    part: Part,
}

impl Kernel for Bf16<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut sums = [[0.0; WIDTH]; ROW_BLOCK];
        let sums = &mut sums[..self.part.rows.len()];
        for panel in self.part.panels.clone() {
            sums.fill([0.0; WIDTH]);
            let weights = &self.panels[panel * self.x.cols..(panel + 1) * self.x.cols];
            for first in (0..self.x.cols).step_by(PAIRS) {
                let pairs = first..(first + PAIRS).min(self.x.cols);
                self.chain(l, &weights[pairs.clone()], &pairs, sums);
            }
            self.part.write(self.out, panel, sums);
        }
    }
}

impl Bf16<'_> {
    /// Adds one chain for every row of the part.
    #[inline(always)]
    fn chain<L: Lanes>(&self, l: L, weights: &[[u8; PAIR_BYTES]], pairs: &Range<usize>, sums: &mut [[f32; WIDTH]]) {
        let mut row = 0;
        while row < sums.len() {
            let (x, height) = self.x.tile(self.part.rows.start + row, pairs);
            let sums = &mut sums[row..];
            with_height!(L, height, R => chain_rows::<L, R>(l, weights, x, sums));
            row += height;
        }
    }
}

/// The chain of a tile of `R` rows.
#[inline(always)]
fn chain_rows<L: Lanes, const R: usize>(l: L, weights: &[[u8; PAIR_BYTES]], x: &[u32], sums: &mut [[f32; WIDTH]]) {
    let (x, _) = x.as_chunks::<R>();
    let mut chains = [l.splat(0.0); R];
    for (w, x) in weights.iter().zip(x) {
        for r in 0..R {
            chains[r] = l.dot_bf16(chains[r], w, x[r]);
        }
    }
    for (sum, chain) in sums.iter_mut().zip(chains) {
        l.store(l.add(l.load(sum), chain), sum);
    }
}
