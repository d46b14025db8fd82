//! Activations in eight bits.
//!
//! Each is rounded to a multiple of its run's scale (`absmax / 127` of 32 neighbours). Where a run stands out of its row,
//! that scale is coarse for everything else in the run: there, what rounding left is kept in eight bits more, the fine
//! codes, in units of `scale / 254`. Which runs have them depends on their row alone.

use super::super::codes::RUN;
use super::super::scales::Packed;
use super::super::tasks::Output;
use crate::DType;
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

    /// What the products of 32 codes begin with.
    #[inline(always)]
    fn starts(self, codes: &[i8; RUN]) -> ([i32; 2], [i16; 2]) {
        let [first, second] = half_sums(codes);
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
            // Waking others costs more than rounding a few rows.
            if x.len() < 1 << 14 { (0..count).for_each(tile) } else { parallel(count, tile) }
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
    fn run<L: Lanes>(self, _: L) {
        let mut limits = [0.0; R];
        for (limit, row) in limits.iter_mut().zip(self.rows.chunks_exact(self.cols)) {
            *limit = OUTSTANDING * root_mean_square(row);
        }
        for (index, out) in self.runs.iter_mut().enumerate() {
            let run = out.write(Run { codes: Codes::ZERO, scales: [0.0; R], totals: [[0.0; R]; 2], fine: 0 });
            for (r, limit) in limits.iter().enumerate() {
                let row = &self.rows[r * self.cols + index * RUN..];
                if let Some(x) = row.first_chunk() {
                    round(self.form, x, *limit, r, run, self.fine);
                }
            }
        }
    }
}

/// Rounds 32 activations of row `r` of a tile.
#[inline(always)]
fn round<const R: usize>(form: Form, x: &[f32; RUN], limit: f32, r: usize, run: &mut Run<R>, fine: &mut Vec<Codes<R>>) {
    let mut rest = [0.0; RUN];
    let (absmax, scale) = round_run(x, &mut run.codes.codes[r], &mut rest);
    let sums = run.codes.start(form, r);
    run.scales[r] = scale;
    let mut totals = sums.map(|sum| scale * f32::from(sum));
    if absmax > limit && scale > 0.0 {
        if run.fine == 0 {
            fine.push(Codes::ZERO);
            run.fine = fine.len() as u32;
        }
        let fine = &mut fine[run.fine as usize - 1];
        for (code, rest) in fine.codes[r].iter_mut().zip(&rest) {
            *code = nearest(rest * FINE);
        }
        let sums = fine.start(form, r);
        totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += scale / FINE * f32::from(sum));
    }
    [run.totals[0][r], run.totals[1][r]] = totals;
}

impl<const R: usize> Codes<R> {
    const ZERO: Codes<R> = Codes { codes: [[0; RUN]; R], starts: [[0; R]; 2] };

    /// Sets what products with row `r` begin with; returns the sums of its codes, divided as `starts`.
    #[inline(always)]
    fn start(&mut self, form: Form, r: usize) -> [i16; 2] {
        let (starts, sums) = form.starts(&self.codes[r]);
        [self.starts[0][r], self.starts[1][r]] = starts;
        sums
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

/// For each half of a run, the sum of the first two of every four codes, and of the other two.
#[inline(always)]
fn half_sums(codes: &[i8; RUN]) -> [[i16; 2]; 2] {
    let mut pairs = [0; RUN / 2];
    for (pair, two) in pairs.iter_mut().zip(codes.as_chunks::<2>().0) {
        *pair = i16::from(two[0]) + i16::from(two[1]);
    }
    let mut sums = [[0; 2]; 2];
    for (sums, pairs) in sums.iter_mut().zip(pairs.as_chunks::<8>().0) {
        let [a, b, c, d, e, f, g, h] = *pairs;
        *sums = [(a + e) + (c + g), (b + f) + (d + h)];
    }
    sums
}

/// The nearest whole number (ties to even) to a magnitude of at most 127: adding 1.5 * 2^23 leaves it in the lower bits,
/// in two's complement.
#[inline(always)]
fn nearest(x: f32) -> i8 {
    (x + ROUND).to_bits() as i8
}
const ROUND: f32 = 12_582_912.0;

/// Rounds 32 activations; `rest` takes what is left of them, in units of the scale. Returns the largest magnitude and
/// the scale: NaN, over codes of 0, when one of them is not finite.
#[inline(always)]
fn round_run(x: &[f32; RUN], codes: &mut [i8; RUN], rest: &mut [f32; RUN]) -> (f32, f32) {
    // As whole numbers magnitudes order like floats, with infinity and NaN on top.
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    let absmax = f32::from_bits(most);
    let inverse = 127.0 / absmax;
    if !absmax.is_finite() || !inverse.is_finite() {
        // Activations below 4e-37 count as 0.
        codes.fill(0);
        rest.fill(0.0);
        return (absmax, if absmax.is_finite() { 0.0 } else { f32::NAN });
    }
    for ((code, rest), x) in codes.iter_mut().zip(rest).zip(x) {
        let scaled = x * inverse;
        *code = nearest(scaled);
        *rest = scaled - (scaled + ROUND - ROUND);
    }
    (absmax, absmax / 127.0)
}
