//! Products in f32: one chain of fused multiplications over each 256 inputs, the chains added from the first to the
//! last. An output's bits depend on its row, the activations' row and the instruction set, and on nothing else.

use super::tasks::{Output, Part, Work};
use crate::gemm::View;
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_float};
use crate::pool::parallel;
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
    let work = Work { outputs, rows: x.rows, cols: x.cols, row_block: ROW_BLOCK };
    work.run(|part| dispatch_float(machine, Float { source, x, out: &out, part, accumulate }));
}

/// What one task computes.
struct Float<'a> {
    source: &'a dyn Source,
    x: &'a Rows<'a, f32>,
    out: &'a Output<'a, f32>,
    part: Part,
    accumulate: bool,
}

impl Kernel for Float<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut sums = [[0.0; WIDTH]; ROW_BLOCK];
        let mut tile: Tile = [[0.0; WIDTH]; CHAIN];
        let rows = self.part.rows.clone();
        let sums = &mut sums[..rows.len()];
        for panel in self.part.panels.clone() {
            sums.fill([0.0; WIDTH]);
            if self.accumulate {
                self.part.read(self.out, panel, sums);
            }
            for first in (0..self.x.cols).step_by(CHAIN) {
                let inputs = first..(first + CHAIN).min(self.x.cols);
                match self.source.direct(panel, inputs.clone(), rows.len() <= L::ROWS) {
                    Some(Direct::F32(w)) => self.chain(l, w, L::load_f32, &inputs, sums),
                    Some(Direct::F16(w)) => self.chain(l, w, L::load_f16, &inputs, sums),
                    Some(Direct::Bf16(w)) => self.chain(l, w, L::load_bf16, &inputs, sums),
                    None => {
                        self.source.widen(panel, inputs.clone(), &mut tile);
                        self.chain(l, &tile[..inputs.len()], L::load, &inputs, sums);
                    }
                }
            }
            self.part.write(self.out, panel, sums);
        }
    }
}

impl Float<'_> {
    /// Adds one chain for every row of the part.
    #[inline(always)]
    fn chain<L: Lanes, W>(
        &self,
        l: L,
        weights: &[W],
        load: impl Fn(L, &W) -> L::F + Copy,
        inputs: &Range<usize>,
        sums: &mut [[f32; WIDTH]],
    ) {
        let mut row = 0;
        while row < sums.len() {
            let (x, height) = self.x.tile(self.part.rows.start + row, inputs);
            let sums = &mut sums[row..];
            with_height!(L, height, R => chain_rows::<L, W, R>(l, weights, load, x, sums));
            row += height;
        }
    }
}

/// The chain of a tile of `R` rows.
#[inline(always)]
fn chain_rows<L: Lanes, W, const R: usize>(
    l: L,
    weights: &[W],
    load: impl Fn(L, &W) -> L::F,
    x: &[f32],
    sums: &mut [[f32; WIDTH]],
) {
    let (x, _) = x.as_chunks::<R>();
    let mut chains = [l.splat(0.0); R];
    for (w, x) in weights.iter().zip(x) {
        let w = load(l, w);
        for r in 0..R {
            chains[r] = l.fma(w, l.splat(x[r]), chains[r]);
        }
    }
    for (sum, chain) in sums.iter_mut().zip(chains) {
        l.store(l.add(l.load(sum), chain), sum);
    }
}
