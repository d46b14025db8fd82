//! Block types times activations of eight bits.
//!
//! Activations are rounded as `rounding` says; sums of products of codes are exact whole numbers inside a run with a
//! scale; the runs are added in f32 from the first to the last, one chain for each output. So an output's bits depend on
//! its row, the activations' row and the instruction set, and on nothing else: a row without fine codes that lies in a
//! tile with one that has them adds zeros.

mod rounding;
#[cfg(target_arch = "x86_64")]
mod sixteen;

use super::codes::{RUN, group, run_of};
use super::panels;
use super::scales::{Packed, Subs};
use super::tasks::{Output, Part};
use crate::isa::Machine;
use crate::lanes::{IntKernel, IntLanes, WIDTH, dispatch_int, room};
use crate::quant::{Coding, MAX_BLOCK, MAX_SUBS};
pub(crate) use rounding::{Activations, Form};
use rounding::{Codes, FINE, Rows, Run};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

/// What one task computes.
pub(crate) struct Int8<'a, B> {
    pub(crate) panels: &'a [u8],
    pub(crate) panel_bytes: usize,
    pub(crate) x: &'a Activations,
    pub(crate) out: &'a Output<'a, f32>,
    pub(crate) part: Part<'a>,
    pub(crate) block: PhantomData<B>,
}

/// One part of a product.
pub(crate) fn multiply<B: Packed>(machine: Machine, task: Int8<'_, B>) {
    #[cfg(target_arch = "x86_64")]
    if machine.int8_tiles() {
        return sixteen::multiply_task(machine, task);
    }
    multiply_in_lanes(machine, task);
}

/// One part of a product, without tiles.
fn multiply_in_lanes<B: Packed>(machine: Machine, task: Int8<'_, B>) {
    BUFFERS.with_borrow_mut(|buffers| dispatch_int(machine, Buffered { task, buffers }));
}

thread_local! {
    /// Kept from task to task: to clear them for each takes as long as a fiftieth of the work of one row.
    static BUFFERS: RefCell<Box<Buffers>> = RefCell::default();
}

/// A thread's sums and scales, of two panels.
struct Buffers {
    sums: [Sums; 2],
    scales: [Scales; 2],
}

impl Default for Buffers {
    fn default() -> Buffers {
        let empty = || Scales { scales: [[0.0; WIDTH]; MAX_SUBS], minima: [[0.0; WIDTH]; MAX_SUBS] };
        Buffers { sums: [Sums([[0.0; WIDTH]; ROW_BLOCK + 8]); 2], scales: [empty(), empty()] }
    }
}

/// A task with the buffers of its thread.
struct Buffered<'a, 'b, B> {
    task: Int8<'a, B>,
    buffers: &'b mut Buffers,
}

/// Rows of activations that share a panel's unpacked scales: a multiple of every tile's height, and few enough that
/// their sums stay in the first cache.
pub(crate) const ROW_BLOCK: usize = 128;

/// Sums of the part's rows for one panel; a few more than are used, so that the places of two panels do not lie a
/// multiple of 4 KiB apart: a load then waits for the store before it, which it seems to meet.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Sums([[f32; WIDTH]; ROW_BLOCK + 8]);

/// The scales of a panel's stretch.
#[repr(align(64))]
struct Scales {
    scales: Subs,
    minima: Subs,
}

impl<B: Packed> IntKernel for Buffered<'_, '_, B> {
    #[inline(always)]
    fn run<L: IntLanes>(self, l: L) {
        let Buffered { task, buffers: Buffers { sums, scales } } = self;
        let mut panels = task.part.panels.clone();
        while let Some(panel) = panels.next() {
            // Two panels at a time where the registers hold the sums of a tile for both.
            if L::INT_ROWS == 8 && task.part.rows.len() >= 8 && panels.next().is_some() {
                task.panels::<L, 2>(l, panel, sums, scales);
            } else {
                let ([sums, _], [scales, _]) = (&mut *sums, &mut *scales);
                task.panels::<L, 1>(l, panel, std::array::from_mut(sums), std::array::from_mut(scales));
            }
        }
    }
}

impl<B: Packed> Int8<'_, B> {
    /// The outputs of `P` panels.
    #[inline(always)]
    fn panels<L: IntLanes, const P: usize>(&self, l: L, panel: usize, sums: &mut [Sums; P], scales: &mut [Scales; P]) {
        let rows = self.part.rows.len();
        for sums in sums.iter_mut() {
            sums.0[..rows].fill([0.0; WIDTH]);
        }
        let mut sections: [(&[u8], &[u8]); P] = [(&[], &[]); P];
        for (p, section) in sections.iter_mut().enumerate() {
            *section = panels::sections::<B>(&self.panels[(panel + p) * self.panel_bytes..][..self.panel_bytes]);
        }
        let (blocks, subs) = (sections[0].1.len() / B::CODES, B::LEN / B::SUB);
        for first in (0..blocks).step_by(stretch::<B>()) {
            let stretch = first..blocks.min(first + stretch::<B>());
            for (section, scales) in sections.iter().zip(scales.iter_mut()) {
                for (index, block) in stretch.clone().enumerate() {
                    let head = &section.0[block * B::HEAD..][..B::HEAD];
                    B::unpack_head(l, head, &mut scales.scales[index * subs..], &mut scales.minima[index * subs..]);
                }
            }
            let unpacked: [Unpacked<'_, B>; P] = std::array::from_fn(|p| Unpacked {
                codes: &sections[p].1[stretch.start * B::CODES..stretch.end * B::CODES],
                scales: &scales[p],
                block: PhantomData,
            });
            let runs = stretch.start * B::LEN / RUN..stretch.end * B::LEN / RUN;
            let ahead = self.ahead::<P>(panel, &runs, blocks * B::LEN / RUN);
            self.rows(l, runs, &unpacked, ahead, sums);
        }
        for (p, sums) in sums.iter().enumerate() {
            self.part.write(self.out, panel + p, &sums.0[..rows]);
        }
    }

    /// What will be read [`AHEAD`] after `runs` of `P` panels: of each an equal share of its bytes, heads and codes, for every
    /// one of its `count` runs.
    #[inline(always)]
    fn ahead<const P: usize>(&self, panel: usize, runs: &Range<usize>, count: usize) -> [&[u8]; P] {
        let share = self.panel_bytes / count;
        let later = runs.start + AHEAD.div_ceil(share);
        let (panel, at) = (panel + later / count * P, later % count * share);
        std::array::from_fn(|p| {
            let rest = self.panels.get((panel + p) * self.panel_bytes + at..).unwrap_or_default();
            &rest[..rest.len().min(runs.len() * share)]
        })
    }

    /// Adds the products of a stretch of each of `P` panels, which holds `runs`, with every row of the part.
    #[inline(always)]
    fn rows<L: IntLanes, const P: usize>(
        &self,
        l: L,
        runs: Range<usize>,
        blocks: &[Unpacked<'_, B>; P],
        ahead: [&[u8]; P],
        sums: &mut [Sums; P],
    ) {
        let rows = self.part.rows.clone();
        // Tiles lie in the order of their heights; a part begins with a whole tile.
        let in_sixteens = self.x.sixteens.rows();
        let in_eights = in_sixteens + self.x.eights.rows();
        let in_fours = in_eights + self.x.fours.rows();
        let (eights, fours) = (in_eights.clamp(rows.start, rows.end), in_fours.clamp(rows.start, rows.end));
        // Lanes that make no use of a height have no code for it.
        if L::INT_ROWS == 8 {
            for row in (rows.start..eights).step_by(8) {
                let x = self.x.eights.tile((row - in_sixteens) / 8, &runs);
                tile::<L, B, 8, P>(l, blocks, x, ahead, sums, row - rows.start);
            }
        }
        for (p, block) in blocks.iter().enumerate() {
            let (block, sums) = (std::array::from_ref(block), std::array::from_mut(&mut sums[p]));
            let ahead = [ahead[p]];
            if L::INT_ROWS >= 4 {
                for row in (eights..fours).step_by(4) {
                    let x = self.x.fours.tile((row - in_eights) / 4, &runs);
                    tile::<L, B, 4, 1>(l, block, x, ahead, sums, row - rows.start);
                }
            }
            for row in fours..rows.end {
                tile::<L, B, 1, 1>(l, block, self.x.ones.tile(row - in_fours, &runs), ahead, sums, row - rows.start);
            }
        }
    }
}

/// The cache lines, of those that a stretch asks for, which fall to run `run`.
#[inline(always)]
fn run_lines<B: Packed>(run: usize) -> Range<usize> {
    let lines = (RUN * WIDTH * B::BYTES / B::LEN).div_ceil(64);
    run * lines..(run + 1) * lines
}

/// How far ahead weights are asked for, in bytes of a panel: what memory hands over while it is waited for, and little
/// enough to be still in the second cache when it is read.
const AHEAD: usize = 8 << 10;

/// Blocks whose scales are formed together, and which all rows pass by: 256 inputs, so that weights, activations and sums
/// stay in the first cache.
const fn stretch<B: Packed>() -> usize {
    MAX_BLOCK / B::LEN
}

/// A panel's stretch with its scales formed.
#[derive(Clone, Copy)]
struct Unpacked<'a, B> {
    codes: &'a [u8],
    scales: &'a Scales,
    block: PhantomData<B>,
}

/// Adds the products of a stretch of each of `P` panels with `R` rows of activations to the sums from row `at` on. The
/// first tile of a part asks for what will be read next, `ahead`, a few lines with each run: the processor's own
/// foresight ends at every page.
#[inline(always)]
fn tile<L: IntLanes, B: Packed, const R: usize, const P: usize>(
    l: L,
    blocks: &[Unpacked<'_, B>; P],
    x: Rows<'_, R>,
    ahead: [&[u8]; P],
    out: &mut [Sums; P],
    at: usize,
) {
    for (run, x_run) in x.runs.iter().enumerate() {
        if at == 0 {
            for ahead in ahead {
                for line in run_lines::<B>(run) {
                    if let Some(byte) = ahead.get(line * 64) {
                        l.prefetch(byte);
                    }
                }
            }
        }
        let fine = x.fine(x_run);
        if B::SUB == RUN {
            part::<L, B, R, P, 2>(l, blocks, run, (x_run, fine), out, at);
        } else {
            part::<L, B, R, P, 0>(l, blocks, run, (x_run, fine), out, at);
            part::<L, B, R, P, 1>(l, blocks, run, (x_run, fine), out, at);
        }
    }
}

/// Adds the products of one run with a scale: of the first half (`PART` 0) of a run of activations, the second (1), or
/// all of it (2).
#[inline(always)]
fn part<L: IntLanes, B: Packed, const R: usize, const P: usize, const PART: usize>(
    l: L,
    blocks: &[Unpacked<'_, B>; P],
    run: usize,
    (x, fine): (&Run<R>, Option<&Codes<R>>),
    out: &mut [Sums; P],
    at: usize,
) {
    let groups: [&[[u8; 64]]; P] = std::array::from_fn(|p| run_of::<B>(blocks[p].codes, run));
    let sub = if PART == 2 { run } else { 2 * run + PART };
    let coarse = products::<L, B, R, P, PART>(l, groups, &x.codes);
    for p in 0..P {
        let (scale, minimum) = (l.load(&blocks[p].scales.scales[sub]), l.load(&blocks[p].scales.minima[sub]));
        let Some(out) = out[p].0[at..].first_chunk_mut::<R>() else { return };
        for r in 0..R {
            let weight = l.mul(scale, l.splat(x.scales[r]));
            let mut sum = l.fma(l.to_float(coarse[p][r]), weight, l.load(&out[r]));
            if B::HAS_MINIMUM {
                sum = l.fma(minimum, l.splat(x.totals[PART % 2][r]), sum);
            }
            l.store(sum, &mut out[r]);
        }
    }
    let Some(fine) = fine else { return };
    let fine = products::<L, B, R, P, PART>(l, groups, fine);
    for p in 0..P {
        let scale = l.mul(l.load(&blocks[p].scales.scales[sub]), l.splat(1.0 / FINE));
        let Some(out) = out[p].0[at..].first_chunk_mut::<R>() else { return };
        for r in 0..R {
            let weight = l.mul(scale, l.splat(x.scales[r]));
            l.store(l.fma(l.to_float(fine[p][r]), weight, l.load(&out[r])), &mut out[r]);
        }
    }
}

/// Sums of products of a run of `P` panels, or of the half of it that `PART` says, with `R` rows of codes.
#[inline(always)]
fn products<L: IntLanes, B: Packed, const R: usize, const P: usize, const PART: usize>(
    l: L,
    groups: [&[[u8; 64]]; P],
    x: &Codes<R>,
) -> [[L::I; R]; P] {
    let (from, count) = if PART == 2 { (0, 8) } else { (4 * PART, 4) };
    let mut sums = [[l.splat_int(0); R]; P];
    let Coding::Unsigned { zero } = B::CODING else {
        for r in 0..R {
            let start = l.splat_int(x.starts[PART % 2][r]);
            for sums in &mut sums {
                sums[r] = start;
            }
        }
        for g in from..from + count {
            let codes = both::<L, B, P>(l, groups, g);
            for (r, x) in x.codes.iter().enumerate() {
                let x = l.spread(four(x, g));
                for p in 0..P {
                    sums[p][r] = l.dot_signed(sums[p][r], codes[p], x);
                }
            }
        }
        return sums;
    };
    // A zero point halves the magnitudes, so that a run always fits.
    let most = if zero == 0 { (1 << B::BITS) - 1 } else { i32::from(zero) };
    let room = if L::NARROW { room(most).min(count) } else { count };
    debug_assert!(zero == 0 || room == count);
    for first in 0..count / room {
        let mut parts = [[l.part(0); R]; P];
        for r in 0..R {
            let start = l.part(x.starts[PART % 2][r]);
            for parts in &mut parts {
                parts[r] = start;
            }
        }
        for g in 0..room {
            let g = from + first * room + g;
            let codes = both::<L, B, P>(l, groups, g);
            for (r, x) in x.codes.iter().enumerate() {
                let x = l.spread(four(x, g));
                for p in 0..P {
                    parts[p][r] = l.dot(parts[p][r], codes[p], x);
                }
            }
        }
        for p in 0..P {
            for r in 0..R {
                sums[p][r] = l.fold(sums[p][r], parts[p][r]);
            }
        }
    }
    sums
}

/// Group `g` of every panel's codes.
#[inline(always)]
fn both<L: IntLanes, B: Packed, const P: usize>(l: L, groups: [&[[u8; 64]]; P], g: usize) -> [L::B; P] {
    let mut codes = [group::<L, B>(l, groups[0], g); P];
    for p in 1..P {
        codes[p] = group::<L, B>(l, groups[p], g);
    }
    codes
}

/// The activations' codes that meet group `g`.
#[inline(always)]
fn four(codes: &[i8; RUN], g: usize) -> &[i8; 4] {
    &codes.as_chunks::<4>().0[g]
}
