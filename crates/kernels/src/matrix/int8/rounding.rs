//! Activations in eight bits.
//!
//! Each is rounded to a multiple of its run's scale (`absmax / 127` of 32 neighbours). Where a run stands out of its row,
//! that scale is coarse for everything else in the run: there, what rounding left is kept in eight bits more, the fine
//! codes, in units of `scale / 254`. Which runs have them depends on their row alone.

use super::super::codes::RUN;
use super::super::scales::Packed;
use super::super::tasks::Output;
use crate::DType;
use crate::chunks::CHUNK;
use crate::isa::Machine;
use crate::lanes::{IntKernel, IntLanes, Kernel, Lanes, dispatch_float, dispatch_int};
use crate::pool::parallel;
use crate::quant::{Coding, with_block};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// A run has fine codes when its largest magnitude is more than this many times its row's root mean square. Of normally
/// distributed activations none has; of those of real encoders one in 30, which cause most of the squared error.
const OUTSTANDING: f32 = 8.0;
/// What a code is worth in fine codes.
pub(super) const FINE: f32 = 254.0;

/// Codes of 32 activations of each of `R` rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Codes<const R: usize> {
    pub(super) codes: [[i8; RUN]; R],
    /// What the sums of products begin with: for weights with a scale for every 16 of the first half and of the second,
    /// else of all in the first place. See [`Form::start`].
    pub(super) starts: [[i32; R]; 2],
}

/// 32 activations of each of `R` rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<const R: usize> {
    pub(super) codes: Codes<R>,
    /// NaN where one of the activations is not finite.
    pub(super) scales: [f32; R],
    /// Sums of the rounded activations, divided as `starts`. For types with a minimum.
    pub(super) totals: [[f32; R]; 2],
    /// One more than the place of the tile's fine codes of this run; 0 where no row has any.
    pub(super) fine: u32,
}

/// Tiles of `R` rows, one after the other.
#[derive(Debug)]
pub(super) struct Tiles<const R: usize> {
    /// Runs of a row.
    runs: usize,
    tiles: Vec<Run<R>>,
    /// Of each tile.
    fine: Vec<Vec<Codes<R>>>,
}

/// Some runs of a tile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a, const R: usize> {
    pub(super) runs: &'a [Run<R>],
    fine: &'a [Codes<R>],
}

impl<'a, const R: usize> Rows<'a, R> {
    /// The fine codes of a run, where it has any.
    #[inline(always)]
    pub(super) fn fine(&self, run: &Run<R>) -> Option<&'a Codes<R>> {
        if run.fine == 0 { None } else { self.fine.get(run.fine as usize - 1) }
    }
}

/// Rows of activations in eight bits: as many tiles as the machine's lanes make use of, then single rows.
#[derive(Debug)]
pub(crate) struct Activations {
    /// For kernels in tiles of the processor.
    pub(super) sixteens: Tiles<16>,
    pub(super) eights: Tiles<8>,
    pub(super) fours: Tiles<4>,
    pub(super) ones: Tiles<1>,
}

impl Activations {
    /// Rounds rows of `cols` (a multiple of 32).
    pub(crate) fn new(form: Form, x: &[f32], cols: usize) -> Activations {
        let [sixteens, eights, fours] = form.heights(x.len() / cols);
        let (sixteens, rest) = x.split_at(16 * sixteens * cols);
        let (eights, rest) = rest.split_at(8 * eights * cols);
        let (fours, ones) = rest.split_at(4 * fours * cols);
        Activations {
            sixteens: Tiles::of(form, sixteens, cols),
            eights: Tiles::of(form, eights, cols),
            fours: Tiles::of(form, fours, cols),
            ones: Tiles::of(form, ones, cols),
        }
    }

    /// Bytes that `rows` rows take. Fine codes depend on the activations: those of one run in 64 are counted.
    pub(crate) fn bytes_for(form: Form, rows: usize, cols: usize) -> usize {
        let [sixteens, eights, fours] = form.heights(rows);
        let tiles = Tiles::<8>::bytes_for(eights, cols).saturating_add(Tiles::<4>::bytes_for(fours, cols));
        let tiles = tiles.saturating_add(Tiles::<16>::bytes_for(sixteens, cols));
        tiles.saturating_add(Tiles::<1>::bytes_for(rows - 16 * sixteens - 8 * eights - 4 * fours, cols))
    }
}

/// What the products of one type on one machine want of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    machine: Machine,
    /// The largest height of a tile.
    rows: usize,
    /// Weights have a scale for every 16.
    halves: bool,
    /// What the machine's products add to every code of the weights.
    zero: i16,
    /// Sums begin with two numbers of 16 bits, for the first two of every four codes and for the other two.
    narrow: bool,
}

impl Form {
    pub(crate) fn of(machine: Machine, dtype: DType) -> Form {
        struct Ask<'a, B>(&'a mut Form, PhantomData<B>);
        impl<B: Packed> IntKernel for Ask<'_, B> {
            #[inline(always)]
            fn run<L: IntLanes>(self, _: L) {
                let (zero, narrow) = match B::CODING {
                    Coding::Unsigned { zero } => (i16::from(zero), L::NARROW),
                    Coding::Signed | Coding::Table(_) => (L::SIGNED_ZERO, false),
                };
                *self.0 = Form { rows: L::INT_ROWS, halves: B::SUB < RUN, zero, narrow, ..*self.0 };
            }
        }
        let mut form = Form { machine, rows: 1, halves: false, zero: 0, narrow: false };
        with_block!(dtype, B => dispatch_int(machine, Ask::<B>(&mut form, PhantomData)), _ => {});
        if machine.int8_tiles() {
            form.rows = 16;
        }
        form
    }

    /// How many tiles of sixteen rows, of eight and of four are made of `rows`.
    fn heights(self, rows: usize) -> [usize; 3] {
        let mut rest = rows;
        [16, 8, 4].map(|height| {
            let tiles = if self.rows >= height { rest / height } else { 0 };
            rest -= height * tiles;
            tiles
        })
    }

    /// What sums of products begin with: minus `zero` times the sum of the activations' codes, so that the sums come to
    /// those of products with `code - zero`. Numbers of 16 bits may wrap on the way, because the result fits.
    #[inline(always)]
    fn start(self, sums: [i16; 2]) -> i32 {
        if self.narrow {
            let [first, second] = sums.map(|sum| u32::from(sum.wrapping_mul(-self.zero) as u16));
            return (first | second << 16) as i32;
        }
        -i32::from(self.zero) * (i32::from(sums[0]) + i32::from(sums[1]))
    }

    /// What the products of 32 codes of these sums begin with, and the sums as the products divide them.
    #[inline(always)]
    fn starts(self, [first, second]: [[i16; 2]; 2]) -> ([i32; 2], [i16; 2]) {
        let both = [first[0] + second[0], first[1] + second[1]];
        if self.halves {
            ([self.start(first), self.start(second)], [first[0] + first[1], second[0] + second[1]])
        } else {
            ([self.start(both), 0], [both[0] + both[1], 0])
        }
    }
}

impl<const R: usize> Tiles<R> {
    /// Rounds whole tiles.
    fn of(form: Form, x: &[f32], cols: usize) -> Tiles<R> {
        let (runs, count) = (cols / RUN, x.len() / cols / R);
        let mut tiles = Vec::with_capacity(runs * count);
        let mut fine = vec![Vec::new(); count];
        {
            let tiles = Output::new(&mut tiles.spare_capacity_mut()[..runs * count]);
            let fine = Output::new(&mut fine);
            let tile = |tile: usize| {
                // SAFETY: each tile belongs to one task.
                let (runs, fine) = unsafe { (tiles.part(tile * runs, runs), &mut fine.part(tile, 1)[0]) };
                let rows = &x[tile * R * cols..(tile + 1) * R * cols];
                dispatch_float(form.machine, RoundTile { form, rows, cols, runs, fine });
            };
            // Waking others costs more than rounding a few rows, and claiming a task more than rounding one tile.
            let chunk = CHUNK.div_ceil(R * cols.max(1));
            let chunks = count.div_ceil(chunk);
            parallel(chunks, |index| (index * chunk..count.min((index + 1) * chunk)).for_each(tile));
        }
        // SAFETY: every task has written all runs of its tile, and the tiles cover the list.
        unsafe { tiles.set_len(runs * count) };
        Tiles { runs, tiles, fine }
    }

    fn bytes_for(tiles: usize, cols: usize) -> usize {
        let run = size_of::<Run<R>>() + size_of::<Codes<R>>() / 64;
        tiles.saturating_mul(run.saturating_mul(cols / RUN).saturating_add(size_of::<Vec<Codes<R>>>()))
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        R * self.fine.len()
    }

    /// Some runs of a tile.
    #[inline(always)]
    pub(super) fn tile(&self, tile: usize, runs: &Range<usize>) -> Rows<'_, R> {
        Rows { runs: &self.tiles[tile * self.runs..][runs.clone()], fine: &self.fine[tile] }
    }
}

/// Rounds the rows of one tile and writes all its runs. Compiled for each instruction set; all give the same numbers.
struct RoundTile<'a, const R: usize> {
    form: Form,
    rows: &'a [f32],
    cols: usize,
    runs: &'a mut [MaybeUninit<Run<R>>],
    fine: &'a mut Vec<Codes<R>>,
}

impl<const R: usize> Kernel for RoundTile<'_, R> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut limits = [0.0; R];
        for (limit, row) in limits.iter_mut().zip(self.rows.chunks_exact(self.cols)) {
            *limit = OUTSTANDING * root_mean_square(row);
        }
        for (index, out) in self.runs.iter_mut().enumerate() {
            let run = out.write(Run { codes: Codes::ZERO, scales: [0.0; R], totals: [[0.0; R]; 2], fine: 0 });
            let mut x = [&[0.0; RUN]; R];
            for (x, row) in x.iter_mut().zip(self.rows.chunks_exact(self.cols)) {
                if let Some(run) = row[index * RUN..].first_chunk() {
                    *x = run;
                }
            }
            let rounded = Rounded::of(l, self.form, x, run);
            if rounded.absmax.iter().zip(&limits).any(|(absmax, limit)| absmax > limit) {
                rounded.refine(l, &limits, run, self.fine);
            }
        }
    }
}

/// 32 activations of each of `R` rows beside what has been made of them. The rows go through each stage together, so that
/// none waits for its own numbers.
struct Rounded<'a, const R: usize> {
    form: Form,
    x: [&'a [f32; RUN]; R],
    absmax: [f32; R],
    inverses: [f32; R],
}

impl<'a, const R: usize> Rounded<'a, R> {
    /// Writes codes, scales, starts and totals.
    #[inline(always)]
    fn of(l: impl Lanes, form: Form, x: [&'a [f32; RUN]; R], run: &mut Run<R>) -> Rounded<'a, R> {
        let (mut absmax, mut inverses) = ([0.0; R], [0.0; R]);
        for r in 0..R {
            absmax[r] = f32::from_bits(l.most(x[r]));
        }
        for r in 0..R {
            inverses[r] = 127.0 / absmax[r];
            run.scales[r] = scale_of(absmax[r], inverses[r]);
        }
        let mut sums = [[[0; 2]; 2]; R];
        for r in 0..R {
            // Else the codes are 0 already.
            if run.scales[r] > 0.0 {
                sums[r] = l.round(x[r], inverses[r], &mut run.codes.codes[r]);
            }
        }
        let sums = run.codes.begin(form, &sums);
        for (totals, sums) in run.totals.iter_mut().zip(&sums) {
            for ((total, sum), scale) in totals.iter_mut().zip(sums).zip(&run.scales) {
                *total = scale * f32::from(*sum);
            }
        }
        Rounded { form, x, absmax, inverses }
    }

    /// Gives fine codes to the rows of which an activation stands out.
    #[inline(always)]
    fn refine(&self, l: impl Lanes, limits: &[f32; R], run: &mut Run<R>, fine: &mut Vec<Codes<R>>) {
        let mut codes = Codes::ZERO;
        let mut sums = [[[0; 2]; 2]; R];
        let mut any = false;
        for r in 0..R {
            if self.absmax[r] > limits[r] && run.scales[r] > 0.0 {
                let mut rest = [0.0; RUN];
                for ((rest, x), code) in rest.iter_mut().zip(self.x[r]).zip(&run.codes.codes[r]) {
                    *rest = x * self.inverses[r] - f32::from(*code);
                }
                sums[r] = l.round(&rest, FINE, &mut codes.codes[r]);
                any = true;
            }
        }
        if !any {
            return;
        }
        let sums = codes.begin(self.form, &sums);
        for (totals, sums) in run.totals.iter_mut().zip(&sums) {
            for ((total, sum), scale) in totals.iter_mut().zip(sums).zip(&run.scales) {
                *total += scale / FINE * f32::from(*sum);
            }
        }
        fine.push(codes);
        run.fine = fine.len() as u32;
    }
}

impl<const R: usize> Codes<R> {
    const ZERO: Codes<R> = Codes { codes: [[0; RUN]; R], starts: [[0; R]; 2] };

    /// Sets what products with the codes begin with, of which `sums` are the sums of each row; returns these, divided as
    /// `starts`.
    #[inline(always)]
    fn begin(&mut self, form: Form, sums: &[[[i16; 2]; 2]; R]) -> [[i16; R]; 2] {
        let mut whole = [[0; R]; 2];
        for (r, sums) in sums.iter().enumerate() {
            let (starts, sums) = form.starts(*sums);
            [self.starts[0][r], self.starts[1][r]] = starts;
            [whole[0][r], whole[1][r]] = sums;
        }
        whole
    }
}

/// The root mean square of a row, in an order that depends on its length alone. Not finite where the row is not.
#[inline(always)]
fn root_mean_square(row: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for x in row.as_chunks::<16>().0 {
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
    }
    (sums.iter().sum::<f32>() / row.len() as f32).sqrt()
}

/// The scale of codes of numbers up to `absmax`, of which `inverse` is the inverse: 0 where all are below 4e-37, which
/// counts as nothing, NaN where one is not finite.
#[inline(always)]
fn scale_of(absmax: f32, inverse: f32) -> f32 {
    if !absmax.is_finite() {
        f32::NAN
    } else if inverse.is_finite() {
        absmax / 127.0
    } else {
        0.0
    }
}
