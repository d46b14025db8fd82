//! Products in bf16 in AMX's tiles, for any number of rows.
//!
//! A step is 32 inputs; the steps are added to an output's sum from the first to the last, with f32 sums in memory or in a
//! tile between them, which makes no difference to the bits. Inputs that do not fill a step end in zeros.

use crate::amx::{PairRow, PairTiles, ROWS};
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_float};
use crate::matrix::bf16::PAIR_BYTES;
use crate::matrix::float::Sums;
use crate::matrix::tasks::{Output, Part};
use crate::pool::parallel;
use crate::quant::f32_to_bf16;
use std::ops::Range;

/// Inputs of a step.
const STEP: usize = 32;
/// Pairs of inputs of a step.
const PAIRS: usize = STEP / 2;
/// Steps of a stretch, which all rows pass by so that its weights stay in the first cache.
const STRETCH: usize = 8;

/// Rows of activations in bf16, in tiles: `[tile][step][row]`. Rows that do not fill the last tile are followed by zeros;
/// fewer rows than a whole tile make one of their own height.
#[derive(Debug)]
pub(crate) struct Tiles {
    rows: Vec<PairRow>,
    height: usize,
    steps: usize,
    cols: usize,
}

impl Tiles {
    /// Rounds rows of `cols`.
    pub(crate) fn new(machine: Machine, x: &[f32], cols: usize) -> Tiles {
        let m = x.len() / cols;
        let (height, steps) = (height(m), cols.div_ceil(STEP));
        let tiles = m.div_ceil(height);
        let mut rows = vec![PairRow([0; STEP]); tiles * steps * height];
        {
            let out = Output::new(&mut rows);
            let tile = |tile: usize| {
                // SAFETY: each tile belongs to one task.
                let out = unsafe { out.part(tile * steps * height, steps * height) };
                let x = &x[tile * height * cols..m.min((tile + 1) * height) * cols];
                dispatch_float(machine, Round { x, cols, height, out });
            };
            // Waking others costs more than rounding a few rows.
            if x.len() < 1 << 14 { (0..tiles).for_each(tile) } else { parallel(tiles, tile) }
        }
        Tiles { rows, height, steps, cols }
    }

    /// Bytes that `rows` rows take.
    pub(crate) fn bytes_for(rows: usize, cols: usize) -> usize {
        rows.next_multiple_of(height(rows)).saturating_mul(cols.div_ceil(STEP)).saturating_mul(size_of::<PairRow>())
    }

    /// One part of `x . W^T`; a panel is `[cols / 2][16][2]`, padded with 0. The machine has tiles.
    pub(crate) fn part(&self, panels: &[u8], out: &Output<'_, f32>, part: Part) {
        let (pairs, _) = panels.as_chunks::<PAIR_BYTES>();
        // SAFETY: rows are laid out so for machines with AMX alone; a task shapes tiles here only.
        let tiles = unsafe { PairTiles::new(self.height) };
        let task = Task { x: self, pairs, tiles, first: part.rows.start / self.height };
        let count = part.rows.len().div_ceil(self.height);
        let mut sums = [Sums::EMPTY; 2];
        for panel in part.panels.clone().step_by(2) {
            let panels = panel..part.panels.end.min(panel + 2);
            let sums = &mut sums[..panels.len()];
            sums.iter_mut().for_each(|sums| sums.0[..count * self.height].fill([0.0; WIDTH]));
            task.add_panels(panels.clone(), count, sums);
            for (panel, sums) in panels.zip(sums.iter()) {
                part.write(out, panel, &sums.0[..part.rows.len()]);
            }
        }
    }

    /// The rows of `steps` of a tile.
    fn tile(&self, tile: usize, steps: &Range<usize>) -> &[PairRow] {
        &self.rows[(tile * self.steps + steps.start) * self.height..(tile * self.steps + steps.end) * self.height]
    }
}

/// Rows of a tile where there are `rows` in all.
fn height(rows: usize) -> usize {
    rows.clamp(1, ROWS)
}

/// What one task reads.
struct Task<'a> {
    x: &'a Tiles,
    pairs: &'a [[u8; PAIR_BYTES]],
    tiles: PairTiles,
    /// The first tile of rows.
    first: usize,
}

impl Task<'_> {
    /// The products of one or two panels with `count` tiles of rows.
    fn add_panels(&self, panels: Range<usize>, count: usize, sums: &mut [Sums]) {
        let per_panel = self.x.cols.div_ceil(2);
        let whole = per_panel / PAIRS;
        // One or two tiles of rows read weights once, in one go.
        let stretch = if count > 2 { STRETCH } else { whole.max(1) };
        for first in (0..whole).step_by(stretch) {
            let steps = first..whole.min(first + stretch);
            let weights = |panel: usize| &self.pairs[panel * per_panel..][steps.start * PAIRS..steps.end * PAIRS];
            self.add_steps(&steps, [weights(panels.start), weights(panels.end - 1)], count, sums);
        }
        if whole < self.x.steps {
            let mut last = [[[0; PAIR_BYTES]; PAIRS]; 2];
            for (last, panel) in last.iter_mut().zip(panels) {
                let rest = &self.pairs[panel * per_panel..][whole * PAIRS..per_panel];
                last[..rest.len()].copy_from_slice(rest);
            }
            self.add_steps(&(whole..self.x.steps), [&last[0], &last[1]], count, sums);
        }
    }

    /// The products of some steps, of as many of the panels as there are sums.
    fn add_steps(&self, steps: &Range<usize>, weights: [&[[u8; PAIR_BYTES]]; 2], count: usize, sums: &mut [Sums]) {
        let height = self.x.height;
        let mut tile = 0;
        while tile < count {
            let x = self.x.tile(self.first + tile, steps);
            let at = tile * height;
            if let [first, second] = &mut *sums
                && tile + 1 < count
                && let (Some(first), Some(second)) = (first.0[at..].first_chunk_mut(), second.0[at..].first_chunk_mut())
            {
                let next = self.x.tile(self.first + tile + 1, steps);
                self.tiles.add_four(steps.len(), [x, next], weights, [first, second]);
                tile += 2;
                continue;
            }
            for (sums, weights) in sums.iter_mut().zip(weights) {
                self.tiles.add_one(steps.len(), x, weights, &mut sums.0[at..at + height]);
            }
            tile += 1;
        }
    }
}

/// Rounds the rows of one tile.
struct Round<'a> {
    x: &'a [f32],
    cols: usize,
    height: usize,
    out: &'a mut [PairRow],
}

impl Kernel for Round<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        for (r, row) in self.x.chunks_exact(self.cols).enumerate() {
            for (out, x) in self.out[r..].iter_mut().step_by(self.height).zip(row.chunks(STEP)) {
                out.0.iter_mut().zip(x).for_each(|(out, x)| *out = f32_to_bf16(*x));
            }
        }
    }
}
