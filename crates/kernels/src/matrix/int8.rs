//! Block types times activations of eight bits.
//!
//! Activations are rounded to int8 under one scale for every 32 (`absmax / 127`); sums of products of codes are exact
//! whole numbers inside a run with a scale; the runs are added in f32 from the first to the last, one chain for each
//! output. So an output's bits depend on its row, the activations' row and the instruction set, and on nothing else.

use super::codes::{RUN, group, run_of};
use super::scales::{Packed, Subs};
use super::tasks::{Output, Part};
use crate::isa::{Isa, Machine};
use crate::lanes::{IntKernel, IntLanes, WIDTH, room};
use crate::pool::parallel;
use crate::quant::{Coding, MAX_SUBS};
use std::marker::PhantomData;

/// 32 activations of each of `R` rows.
#[derive(Debug, Clone, Copy)]
struct Run<const R: usize> {
    codes: [[i8; RUN]; R],
    /// NaN where one of the activations is not finite.
    scales: [f32; R],
    /// Sums of the codes of the first half, the second half, and all: of the first two of every four and of the other
    /// two. For types with a zero point.
    sums: [[[i16; 2]; 3]; R],
    /// The sums times the scale: sums of the activations. For types with a minimum.
    totals: [[f32; 3]; R],
}

/// Rows of activations in eight bits: as many tiles of four as the machine's lanes make use of, then single rows.
#[derive(Debug)]
pub(crate) struct Activations {
    runs: usize,
    fours: Vec<Run<4>>,
    ones: Vec<Run<1>>,
}

impl Activations {
    /// Rounds rows of `cols` (a multiple of 32).
    pub(crate) fn new(machine: Machine, x: &[f32], cols: usize) -> Activations {
        let (runs, tiles) = (cols / RUN, tiles(machine, x.len() / cols));
        let (fours, ones) = x.split_at(4 * tiles * cols);
        Activations { runs, fours: round(fours, cols), ones: round(ones, cols) }
    }

    /// Bytes that `rows` rows take.
    pub(crate) fn bytes_for(machine: Machine, rows: usize, cols: usize) -> usize {
        let (runs, tiles) = (cols / RUN, tiles(machine, rows));
        let row = tiles.saturating_mul(size_of::<Run<4>>()) + (rows - 4 * tiles).saturating_mul(size_of::<Run<1>>());
        row.saturating_mul(runs)
    }
}

/// How many tiles of four rows a machine makes of `rows`.
fn tiles(machine: Machine, rows: usize) -> usize {
    if machine.isa == Isa::Portable { 0 } else { rows / 4 }
}

/// Rounds whole tiles of `R` rows.
fn round<const R: usize>(x: &[f32], cols: usize) -> Vec<Run<R>> {
    let (runs, tiles) = (cols / RUN, x.len() / cols / R);
    let empty = Run { codes: [[0; RUN]; R], scales: [0.0; R], sums: [[[0; 2]; 3]; R], totals: [[0.0; 3]; R] };
    let mut out = vec![empty; runs * tiles];
    {
        let out = Output::new(&mut out);
        let tile = |tile: usize| {
            // SAFETY: each tile belongs to one task.
            let out = unsafe { out.part(tile * runs, runs) };
            for (r, row) in x[tile * R * cols..(tile + 1) * R * cols].chunks_exact(cols).enumerate() {
                for (run, x) in out.iter_mut().zip(row.as_chunks::<RUN>().0) {
                    let scale = round_run(x, &mut run.codes[r]);
                    let (first, second) = run.codes[r].split_at(RUN / 2);
                    let [first, second] = [first, second].map(pair_sums);
                    run.scales[r] = scale;
                    run.sums[r] = [first, second, [first[0] + second[0], first[1] + second[1]]];
                    run.totals[r] = run.sums[r].map(|[first, second]| scale * f32::from(first + second));
                }
            }
        };
        // Waking others costs more than rounding a few rows.
        if x.len() < 1 << 14 { (0..tiles).for_each(tile) } else { parallel(tiles, tile) }
    }
    out
}

/// The sum of the first two of every four codes, and of the other two.
fn pair_sums(codes: &[i8]) -> [i16; 2] {
    let (fours, _) = codes.as_chunks::<4>();
    fours.iter().fold([0, 0], |[first, second], four| {
        let [a, b, c, d] = four.map(i16::from);
        [first + a + b, second + c + d]
    })
}

/// Rounds 32 activations and returns their scale: NaN, over codes of 0, when one of them is not finite.
fn round_run(x: &[f32; RUN], codes: &mut [i8; RUN]) -> f32 {
    // As whole numbers magnitudes order like floats, with infinity and NaN on top.
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    let absmax = f32::from_bits(most);
    let inverse = 127.0 / absmax;
    if !absmax.is_finite() || !inverse.is_finite() {
        // Activations below 4e-37 count as 0.
        codes.fill(0);
        return if absmax.is_finite() { 0.0 } else { f32::NAN };
    }
    // Adding 1.5 * 2^23 leaves the nearest whole number (ties to even) in the lower bits, in two's complement.
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + 12_582_912.0).to_bits() as i8;
    }
    absmax / 127.0
}

/// What one task computes.
pub(crate) struct Int8<'a, B> {
    pub(crate) panels: &'a [u8],
    pub(crate) panel_bytes: usize,
    pub(crate) x: &'a Activations,
    pub(crate) out: &'a Output<'a, f32>,
    pub(crate) part: Part,
    pub(crate) block: PhantomData<B>,
}

/// Rows of activations that share a panel's unpacked scales: a multiple of 4, and few enough that a block's part of
/// them stays in the first cache.
pub(crate) const ROW_BLOCK: usize = 32;

impl<B: Packed> IntKernel for Int8<'_, B> {
    #[inline(always)]
    fn run<L: IntLanes>(self, l: L) {
        let mut sums = [[0.0; WIDTH]; ROW_BLOCK];
        let (mut scales, mut minima) = ([[0.0; WIDTH]; MAX_SUBS], [[0.0; WIDTH]; MAX_SUBS]);
        let rows = self.part.rows.clone();
        let sums = &mut sums[..rows.len()];
        // Rows before `in_fours` lie in tiles of four; a part begins with a tile.
        let in_fours = 4 * self.x.fours.len() / self.x.runs;
        let fours = in_fours.clamp(rows.start, rows.end) - rows.start;
        for panel in self.part.panels.clone() {
            sums.fill([0.0; WIDTH]);
            let bytes = &self.panels[panel * self.panel_bytes..(panel + 1) * self.panel_bytes];
            for (index, block) in bytes.chunks_exact(WIDTH * B::BYTES).enumerate() {
                let (head, codes) = block.split_at(B::HEAD);
                B::unpack_head(l, head, &mut scales, &mut minima);
                let block = Unpacked::<B> { codes, scales: &scales, minima: &minima, block: PhantomData };
                let first = index * B::LEN / RUN;
                // Lanes that make no use of tiles of four have no code for them.
                if L::INT_ROWS == 4 {
                    for (tile, sums) in sums[..fours].chunks_exact_mut(4).enumerate() {
                        let at = (rows.start / 4 + tile) * self.x.runs + first;
                        block.tile::<L, 4>(l, &self.x.fours[at..at + B::LEN / RUN], sums);
                    }
                }
                for (row, sums) in sums[fours..].chunks_exact_mut(1).enumerate() {
                    let at = (rows.start + fours - in_fours + row) * self.x.runs + first;
                    block.tile::<L, 1>(l, &self.x.ones[at..at + B::LEN / RUN], sums);
                }
            }
            self.part.write(self.out, panel, sums);
        }
    }
}

/// A panel's block with its scales formed.
struct Unpacked<'a, B> {
    codes: &'a [u8],
    scales: &'a Subs,
    minima: &'a Subs,
    block: PhantomData<B>,
}

impl<B: Packed> Unpacked<'_, B> {
    /// Adds the block's products with `R` rows of activations.
    #[inline(always)]
    fn tile<L: IntLanes, const R: usize>(&self, l: L, x: &[Run<R>], out: &mut [[f32; WIDTH]]) {
        let Some(out) = out.first_chunk_mut::<R>() else { return };
        let mut sums = [l.splat(0.0); R];
        for r in 0..R {
            sums[r] = l.load(&out[r]);
        }
        for (run, x) in x.iter().enumerate() {
            let groups = run_of::<B>(self.codes, run);
            if B::SUB == RUN {
                let products = products::<L, B, R, 2>(l, groups, x);
                for r in 0..R {
                    sums[r] = self.add(l, sums[r], run, products[r], (x.scales[r], x.totals[r][2]));
                }
            } else {
                let first = products::<L, B, R, 0>(l, groups, x);
                for r in 0..R {
                    sums[r] = self.add(l, sums[r], 2 * run, first[r], (x.scales[r], x.totals[r][0]));
                }
                let second = products::<L, B, R, 1>(l, groups, x);
                for r in 0..R {
                    sums[r] = self.add(l, sums[r], 2 * run + 1, second[r], (x.scales[r], x.totals[r][1]));
                }
            }
        }
        for r in 0..R {
            l.store(sums[r], &mut out[r]);
        }
    }

    /// Adds the products of one run with a scale, times its scale and the activations', and its minimum times the sum
    /// of the activations.
    #[inline(always)]
    fn add<L: IntLanes>(&self, l: L, sum: L::F, sub: usize, products: L::I, (scale, total): (f32, f32)) -> L::F {
        let weight = l.mul(l.load(&self.scales[sub]), l.splat(scale));
        let sum = l.fma(l.to_float(products), weight, sum);
        if B::HAS_MINIMUM { l.fma(l.load(&self.minima[sub]), l.splat(total), sum) } else { sum }
    }
}

/// Sums of products of a run with `R` rows of activations: of its first half (`PART` 0), its second (1), or all (2).
#[inline(always)]
fn products<L: IntLanes, B: Packed, const R: usize, const PART: usize>(
    l: L,
    groups: &[[u8; 64]],
    x: &Run<R>,
) -> [L::I; R] {
    let (from, count) = if PART == 2 { (0, 8) } else { (4 * PART, 4) };
    let mut sums = [l.splat_int(0); R];
    let Coding::Unsigned { zero } = B::CODING else {
        for (sum, of_codes) in sums.iter_mut().zip(&x.sums) {
            let [first, second] = of_codes[PART].map(i32::from);
            *sum = l.splat_int(-L::SIGNED_ZERO * (first + second));
        }
        for g in from..from + count {
            let codes = group::<L, B>(l, groups, g);
            for (sum, x) in sums.iter_mut().zip(&x.codes) {
                *sum = l.dot_signed(*sum, codes, four(x, g));
            }
        }
        return sums;
    };
    // A zero point halves the magnitudes, so that a run always fits.
    let most = if zero == 0 { (1 << B::BITS) - 1 } else { i32::from(zero) };
    let room = if L::NARROW { room(most).min(count) } else { count };
    debug_assert!(zero == 0 || room == count);
    for first in 0..count / room {
        let mut parts = [l.part([0, 0], 0); R];
        for (part, of_codes) in parts.iter_mut().zip(&x.sums) {
            *part = l.part(of_codes[PART], i16::from(zero));
        }
        for g in 0..room {
            let g = from + first * room + g;
            let codes = group::<L, B>(l, groups, g);
            for (part, x) in parts.iter_mut().zip(&x.codes) {
                *part = l.dot(*part, codes, four(x, g));
            }
        }
        for r in 0..R {
            sums[r] = l.fold(sums[r], parts[r]);
        }
    }
    sums
}

/// The codes that meet group `g`.
#[inline(always)]
fn four(codes: &[i8; RUN], g: usize) -> [i8; 4] {
    [codes[4 * g], codes[4 * g + 1], codes[4 * g + 2], codes[4 * g + 3]]
}
