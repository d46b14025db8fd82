//! Products in f32: one chain of fused multiplications over each 256 inputs, the chains added from the first to the
//! last. An output's bits depend on its row, the activations' row and the instruction set, and on nothing else.

use super::tasks::{self, Output, Part};
use crate::gemm::View;
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_float};
use crate::pool::parallel;
use std::array::from_mut;
use std::borrow::Cow;
use std::ops::Range;

/// Inputs of one chain. A panel's part of that length stays in the first cache while all rows pass by.
pub(crate) const CHAIN: usize = 256;
/// Rows that share a panel's widened part; a multiple of every `Lanes::ROWS`.
pub(crate) const ROW_BLOCK: usize = 192;

/// Widened weights of up to [`CHAIN`] inputs.
pub(crate) type Tile = [[f32; WIDTH]; CHAIN];

/// Where the weights come from: panels of sixteen outputs.
pub(crate) trait Source: Sync {
    /// The weights of `inputs` of a panel as they lie in memory, when the kernel should read them so; `one_tile` says
    /// that they will be read only once.
    fn direct(&self, _panel: usize, _inputs: Range<usize>, _one_tile: bool) -> Option<Direct<'_>> {
        None
    }
    /// Widens the weights of `inputs` (at most [`CHAIN`]) of a panel.
    fn widen(&self, panel: usize, inputs: Range<usize>, out: &mut Tile);
}

/// Weights that the inner loop widens itself.
pub(crate) enum Direct<'a> {
    F32(&'a [[u8; 64]]),
    F16(&'a [[u8; 32]]),
    Bf16(&'a [[u8; 32]]),
}

/// Activations in tiles of rows: a tile of `R` rows is `[cols][R]`, so that a step over the inputs reads one place.
pub(crate) struct Rows<'a, T: Clone> {
    pub(crate) tiles: Cow<'a, [T]>,
    pub(crate) tile_rows: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl<'a> Rows<'a, f32> {
    /// Lays out the rows of a view for the tiles of `machine`.
    pub(crate) fn of(machine: Machine, x: View<'a>) -> Rows<'a, f32> {
        if x.rows == 1 && x.col_stride == 1 {
            let tiles = Cow::Borrowed(&x.data[..x.cols]);
            return Rows { tiles, tile_rows: tile_rows(machine), rows: 1, cols: x.cols };
        }
        let fill = |first: usize, height: usize, out: &mut [f32]| {
            let data = &x.data[first * x.row_stride..];
            if x.col_stride == 1 {
                for r in 0..height {
                    let row = &data[r * x.row_stride..][..x.cols];
                    out[r..].iter_mut().step_by(height).zip(row).for_each(|(out, x)| *out = *x);
                }
            } else if x.row_stride == 1 {
                for (col, out) in out.chunks_exact_mut(height).enumerate() {
                    out.copy_from_slice(&data[col * x.col_stride..][..height]);
                }
            } else {
                for (col, out) in out.chunks_exact_mut(height).enumerate() {
                    let column = data[col * x.col_stride..].iter().step_by(x.row_stride.max(1));
                    out.iter_mut().zip(column).for_each(|(out, x)| *out = *x);
                }
            }
        };
        Rows::new(machine, x.rows, x.cols, fill)
    }
}

impl<T: Copy + Default + Send + Sync> Rows<'static, T> {
    /// Lays out `rows` rows of `cols` elements for the tiles of `machine`. `fill(first, height, out)` writes the tile
    /// `[cols][height]` of the rows from `first` on.
    pub(crate) fn new(
        machine: Machine,
        rows: usize,
        cols: usize,
        fill: impl Fn(usize, usize, &mut [T]) + Sync,
    ) -> Self {
        let tile_rows = tile_rows(machine);
        let mut tiles = vec![T::default(); rows * cols];
        {
            let out = Output::new(&mut tiles);
            let tile = |tile: usize| {
                let first = tile * tile_rows;
                let height = tile_rows.min(rows - first);
                // SAFETY: each tile belongs to one task.
                fill(first, height, unsafe { out.part(first * cols, height * cols) });
            };
            let tiles = rows.div_ceil(tile_rows);
            // Waking others costs more than laying out a few rows.
            if rows * cols < 1 << 14 { (0..tiles).for_each(tile) } else { parallel(tiles, tile) }
        }
        Rows { tiles: Cow::Owned(tiles), tile_rows, rows, cols }
    }
}

impl<T: Clone> Rows<'_, T> {
    /// The elements `cols` of the tile that begins at `row`, and its height.
    #[inline(always)]
    pub(crate) fn tile(&self, row: usize, cols: &Range<usize>) -> (&[T], usize) {
        let height = self.tile_rows.min(self.rows - row);
        (&self.tiles[row * self.cols + cols.start * height..][..cols.len() * height], height)
    }
}

/// Calls `$tile::<R>` for the height of a tile, never instantiating more than the lanes have registers for.
macro_rules! with_height {
    ($lanes:ident, $height:expr, $rows:ident => $call:expr) => {
        with_height!(@ $lanes, $height, $rows => $call, 1 2 3 4 5 6 7 8)
    };
    (@ $lanes:ident, $height:expr, $rows:ident => $call:expr, $($n:literal)+) => {
        match $height {
            $($n => {
                const $rows: usize = $n;
                if $rows <= $lanes::ROWS {
                    $call
                }
            })+
            _ => {}
        }
    };
}
pub(crate) use with_height;

/// `Lanes::ROWS` of a machine's lanes.
fn tile_rows(machine: Machine) -> usize {
    struct Ask<'a>(&'a mut usize);
    impl Kernel for Ask<'_> {
        #[inline(always)]
        fn run<L: Lanes>(self, _: L) {
            *self.0 = L::ROWS;
        }
    }
    let mut rows = 1;
    dispatch_float(machine, Ask(&mut rows));
    rows
}

/// `out [rows, outputs] = x . W^T`, or added to `out`.
pub(crate) fn product(machine: Machine, source: &dyn Source, x: &Rows<'_, f32>, out: &mut [f32], accumulate: bool) {
    if x.rows == 0 || out.is_empty() {
        return;
    }
    let outputs = out.len() / x.rows;
    let out = Output::new(out);
    let work = tasks::Work { outputs, rows: x.rows, cols: x.cols, row_block: ROW_BLOCK };
    work.run(|task| part(machine, source, x, &out, task, accumulate));
}

/// One part of a product.
pub(crate) fn part(
    machine: Machine,
    source: &dyn Source,
    x: &Rows<'_, f32>,
    out: &Output<'_, f32>,
    part: Part<'_>,
    accumulate: bool,
) {
    dispatch_float(machine, Float { source, x, out, part, accumulate });
}

/// What one task computes.
struct Float<'a> {
    source: &'a dyn Source,
    x: &'a Rows<'a, f32>,
    out: &'a Output<'a, f32>,
    part: Part<'a>,
    accumulate: bool,
}

impl Kernel for Float<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut work = Work { sums: [Sums::EMPTY; 2], tiles: [Wide([[0.0; WIDTH]; CHAIN]); 2] };
        let mut panels = self.part.panels.clone();
        while let Some(panel) = panels.next() {
            // Two panels at a time where the registers hold the sums of a tile for both.
            if L::PANELS == 2 && panels.next().is_some() {
                self.panels::<L, 2>(l, panel, &mut work.sums, &mut work.tiles);
            } else {
                let ([sums, _], [tile, _]) = (&mut work.sums, &mut work.tiles);
                self.panels::<L, 1>(l, panel, from_mut(sums), from_mut(tile));
            }
        }
    }
}

/// What a task keeps between the inputs.
struct Work {
    sums: [Sums; 2],
    tiles: [Wide; 2],
}

/// Widened weights, where vectors are read whole.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Wide(Tile);

/// Sums of a part's rows for one panel; a few more than are used, so that the places of two panels do not lie a multiple
/// of 4 KiB apart: a load then waits for the store before it, which it seems to meet.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Sums(pub(super) [[f32; WIDTH]; ROW_BLOCK + 8]);

impl Sums {
    pub(super) const EMPTY: Sums = Sums([[0.0; WIDTH]; ROW_BLOCK + 8]);
}

impl Float<'_> {
    /// The outputs of `P` panels.
    #[inline(always)]
    fn panels<L: Lanes, const P: usize>(&self, l: L, panel: usize, sums: &mut [Sums; P], tiles: &mut [Wide; P]) {
        let rows = self.part.rows.len();
        for (p, sums) in sums.iter_mut().enumerate() {
            let sums = &mut sums.0[..rows];
            sums.fill([0.0; WIDTH]);
            if self.accumulate {
                self.part.read(self.out, panel + p, sums);
            }
        }
        for first in (0..self.x.cols).step_by(CHAIN) {
            let inputs = first..(first + CHAIN).min(self.x.cols);
            let direct = |p| self.source.direct(panel + p, inputs.clone(), rows <= L::ROWS);
            match direct(0) {
                Some(Direct::F32(w)) => {
                    let w = std::array::from_fn(|p| match direct(p) {
                        Some(Direct::F32(w)) => w,
                        _ => w,
                    });
                    self.chain::<L, _, P>(l, w, L::load_f32, &inputs, sums);
                }
                Some(Direct::F16(w)) => {
                    let w = std::array::from_fn(|p| match direct(p) {
                        Some(Direct::F16(w)) => w,
                        _ => w,
                    });
                    self.chain::<L, _, P>(l, w, L::load_f16, &inputs, sums);
                }
                Some(Direct::Bf16(w)) => {
                    let w = std::array::from_fn(|p| match direct(p) {
                        Some(Direct::Bf16(w)) => w,
                        _ => w,
                    });
                    self.chain::<L, _, P>(l, w, L::load_bf16, &inputs, sums);
                }
                None => {
                    for (p, tile) in tiles.iter_mut().enumerate() {
                        self.source.widen(panel + p, inputs.clone(), &mut tile.0);
                    }
                    let w = std::array::from_fn(|p| &tiles[p].0[..inputs.len()]);
                    self.chain::<L, _, P>(l, w, L::load, &inputs, sums);
                }
            }
        }
        for (p, sums) in sums.iter().enumerate() {
            self.part.write(self.out, panel + p, &sums.0[..rows]);
        }
    }

    /// Adds one chain for every row of the part.
    #[inline(always)]
    fn chain<L: Lanes, W, const P: usize>(
        &self,
        l: L,
        weights: [&[W]; P],
        load: impl Fn(L, &W) -> L::F + Copy,
        inputs: &Range<usize>,
        sums: &mut [Sums; P],
    ) {
        let mut row = 0;
        while row < self.part.rows.len() {
            let (x, height) = self.x.tile(self.part.rows.start + row, inputs);
            with_height!(L, height, R => chain_rows::<L, W, R, P>(l, weights, load, x, sums, row));
            row += height;
        }
    }
}

/// The chain of a tile of `R` rows, for `P` panels.
#[inline(always)]
fn chain_rows<L: Lanes, W, const R: usize, const P: usize>(
    l: L,
    weights: [&[W]; P],
    load: impl Fn(L, &W) -> L::F,
    x: &[f32],
    sums: &mut [Sums; P],
    row: usize,
) {
    let (x, _) = x.as_chunks::<R>();
    let mut chains = [[l.splat(0.0); R]; P];
    let steps = weights.iter().fold(x.len(), |steps, weights| steps.min(weights.len()));
    let weights = weights.map(|weights| &weights[..steps]);
    for (step, x) in x[..steps].iter().enumerate() {
        let mut w = [l.splat(0.0); P];
        for p in 0..P {
            w[p] = load(l, &weights[p][step]);
        }
        for (r, x) in x.iter().enumerate() {
            let x = l.broadcast(x);
            for p in 0..P {
                chains[p][r] = l.fma(w[p], x, chains[p][r]);
            }
        }
    }
    for (sums, chains) in sums.iter_mut().zip(chains) {
        for (sum, chain) in sums.0[row..].iter_mut().zip(chains) {
            l.store(l.add(l.load(sum), chain), sum);
        }
    }
}
