//! Products in bf16 in AMX's tiles, for any number of rows.
//!
//! A step is 32 inputs; the steps are added to an output's sum from the first to the last, with f32 sums in memory or in a
//! tile between them, which makes no difference to the bits. Inputs that do not fill a step end in zeros.

use crate::aligned::Floats;
use crate::amx::{PairRow, PairTiles, ROWS};
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_float};
use crate::matrix::bf16::PAIR_BYTES;
use crate::matrix::tasks::{Output, Part};
use crate::pool::parallel;
use crate::quant::f32_to_bf16;
use std::cell::RefCell;
use std::ops::Range;

/// Inputs of a step.
const STEP: usize = 32;
/// Pairs of inputs of a step.
const PAIRS: usize = STEP / 2;
/// Steps of a stretch, which all rows pass by so that its weights stay in the first cache.
const STRETCH: usize = 8;
/// Steps that all panels of a group pass by, so that the activations stay in the second cache.
const DEPTH: usize = 32;
/// Panels of a group.
const PANELS: usize = 16;

thread_local! {
    /// Sums of a group of panels.
    static SUMS: RefCell<Floats> = RefCell::default();
}

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
    pub(crate) fn part(&self, panels: &[u8], out: &Output<'_, f32>, part: Part<'_>) {
        let (pairs, _) = panels.as_chunks::<PAIR_BYTES>();
        // SAFETY: rows are laid out so for machines with AMX alone; a task shapes tiles here only.
        let tiles = unsafe { PairTiles::new(self.height) };
        let count = part.rows.len().div_ceil(self.height);
        let task = Task { x: self, pairs, tiles, first: part.rows.start / self.height, count };
        SUMS.with_borrow_mut(|sums| {
            // Not a multiple of 4 KiB from panel to panel: a load then waits for the store before it, which it seems to meet.
            let place = count * self.height + 8;
            sums.reserve(PANELS * place * WIDTH);
            let (sums, _) = sums.as_chunks_mut::<WIDTH>();
            for panel in part.panels.clone().step_by(PANELS) {
                let panels = panel..part.panels.end.min(panel + PANELS);
                let sums = &mut sums[..panels.len() * place];
                sums.fill([0.0; WIDTH]);
                task.add_panels(panels.clone(), sums);
                for (panel, sums) in panels.zip(sums.chunks_exact(place)) {
                    part.write(out, panel, &sums[..part.rows.len()]);
                }
            }
        });
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
    /// The first tile of rows, and how many there are.
    first: usize,
    count: usize,
}

impl Task<'_> {
    /// The products of some panels, whose sums follow each other.
    fn add_panels(&self, panels: Range<usize>, sums: &mut [[f32; WIDTH]]) {
        let (per_panel, place) = (self.x.cols.div_ceil(2), sums.len() / panels.len());
        let whole = per_panel / PAIRS;
        // One or two tiles of rows read weights once, in one go.
        let (depth, stretch) = if self.count > 2 { (DEPTH, STRETCH) } else { (whole.max(1), whole.max(1)) };
        for deep in (0..whole).step_by(depth) {
            for (panel, sums) in panels.clone().step_by(2).zip(sums.chunks_mut(2 * place)) {
                for first in (deep..whole.min(deep + depth)).step_by(stretch) {
                    let steps = first..whole.min(deep + depth).min(first + stretch);
                    let weights = |panel: usize| {
                        let panel = panel.min(panels.end - 1);
                        &self.pairs[panel * per_panel..][steps.start * PAIRS..steps.end * PAIRS]
                    };
                    self.add_steps(&steps, [weights(panel), weights(panel + 1)], sums, place);
                }
            }
        }
        if whole < self.x.steps {
            for (panel, sums) in panels.clone().step_by(2).zip(sums.chunks_mut(2 * place)) {
                let mut last = [[[0; PAIR_BYTES]; PAIRS]; 2];
                for (last, panel) in last.iter_mut().zip(panel..panels.end) {
                    let rest = &self.pairs[panel * per_panel..][whole * PAIRS..per_panel];
                    last[..rest.len()].copy_from_slice(rest);
                }
                self.add_steps(&(whole..self.x.steps), [&last[0], &last[1]], sums, place);
            }
        }
    }

    /// The products of some steps with one or two panels, as many as there are sums, which lie `place` apart.
    fn add_steps(
        &self,
        steps: &Range<usize>,
        weights: [&[[u8; PAIR_BYTES]]; 2],
        sums: &mut [[f32; WIDTH]],
        place: usize,
    ) {
        let height = self.x.height;
        let (first, second) = sums.split_at_mut(place);
        let mut tile = 0;
        while tile < self.count {
            let (x, at) = (self.x.tile(self.first + tile, steps), tile * height);
            if tile + 1 < self.count
                && !second.is_empty()
                && let (Some(first), Some(second)) = (first[at..].first_chunk_mut(), second[at..].first_chunk_mut())
            {
                let next = self.x.tile(self.first + tile + 1, steps);
                self.tiles.add_four(steps.len(), [x, next], weights, [first, second]);
                tile += 2;
                continue;
            }
            for (sums, weights) in [&mut *first, &mut *second].into_iter().zip(weights) {
                if !sums.is_empty() {
                    self.tiles.add_one(steps.len(), x, weights, &mut sums[at..at + height]);
                }
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
