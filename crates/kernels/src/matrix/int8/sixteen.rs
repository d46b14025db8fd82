//! Block types times activations of eight bits in AMX's tiles, sixteen rows at a time.
//!
//! A tile gives the sums of products of a run for sixteen rows and sixteen outputs. They are the whole numbers that the
//! kernels of fewer rows find, and the lanes scale and add them up in the same order: an output has the same bits from
//! either. The products of the next run are asked for before those of this one are scaled, so that neither waits.

use super::rounding::{Codes, Rows, Run};
use super::{FINE, Int8, RUN, Scales, Sums, multiply_in_lanes, stretch};
use crate::amx::{CodeSums, CodeTiles, ROWS};
use crate::isa::Machine;
use crate::lanes::{BesideTiles, Lanes, Vnni, WIDTH, run_beside_tiles};
use crate::matrix::codes::{group, run_of};
use crate::matrix::panels;
use crate::matrix::scales::{Packed, Sub};
use crate::matrix::tasks::Part;
use crate::quant::{Coding, MAX_BLOCK, MAX_SUBS};
use std::marker::PhantomData;
use std::ops::Range;

/// Panels that take turns over the same activations.
const PANELS: usize = 2;
/// Runs of a stretch.
const RUNS: usize = MAX_BLOCK / RUN;

/// One part of a product: whole tiles of sixteen rows here, rows that are left by lanes alone. The machine has tiles.
pub(super) fn multiply_task<B: Packed>(machine: Machine, task: Int8<'_, B>) {
    let Part { panels, rows, outputs, bias } = task.part.clone();
    let whole = task.x.sixteens.rows().clamp(rows.start, rows.end);
    let of = |rows: Range<usize>| Int8 { part: Part { panels: panels.clone(), rows, outputs, bias }, ..task };
    if whole > rows.start {
        run_beside_tiles(Sixteens(of(rows.start..whole)));
    }
    if rows.end > whole {
        multiply_in_lanes(machine, of(whole..rows.end));
    }
}

/// A part of whole tiles of sixteen rows.
struct Sixteens<'a, B>(Int8<'a, B>);

/// The weights of a stretch as tiles read them: signed bytes.
#[repr(align(64))]
struct Bytes([[[u8; 64]; RUN / 4]; RUNS]);

/// What is formed of a panel's stretch once for all rows.
struct Formed {
    scales: Scales,
    bytes: Bytes,
}

impl Formed {
    const EMPTY: Formed = Formed {
        scales: Scales { scales: [[0.0; WIDTH]; MAX_SUBS], minima: [[0.0; WIDTH]; MAX_SUBS] },
        bytes: Bytes([[[0; 64]; RUN / 4]; RUNS]),
    };
}

impl<B: Packed> BesideTiles for Sixteens<'_, B> {
    #[inline(always)]
    fn run(self, l: Vnni) {
        if B::SUB == RUN {
            // SAFETY: the machine has AMX, as `multiply_task` demands; a task shapes tiles here only.
            let tiles = unsafe { CodeTiles::<32>::new() };
            self.panels(l, &tiles);
        } else {
            // SAFETY: as above.
            let tiles = unsafe { CodeTiles::<16>::new() };
            self.panels(l, &tiles);
        }
    }
}

impl<B: Packed> Sixteens<'_, B> {
    /// The outputs of all panels of the part.
    #[inline(always)]
    fn panels<const INPUTS: usize>(&self, l: Vnni, tiles: &CodeTiles<INPUTS>) {
        let Int8 { part, panel_bytes, .. } = &self.0;
        let mut sums = [Sums([[0.0; WIDTH]; super::ROW_BLOCK + 8]); PANELS];
        let mut formed = [Formed::EMPTY; PANELS];
        let mut products = [CodeSums::ZERO; PLACES];
        for first in part.panels.clone().step_by(PANELS) {
            let count = PANELS.min(part.panels.end - first);
            let (sums, formed) = (&mut sums[..count], &mut formed[..count]);
            sums.iter_mut().for_each(|sums| sums.0[..part.rows.len()].fill([0.0; WIDTH]));
            let blocks = panels::sections::<B>(&self.0.panels[..*panel_bytes]).1.len() / B::CODES;
            for block in (0..blocks).step_by(stretch::<B>()) {
                let blocks = block..blocks.min(block + stretch::<B>());
                for (p, formed) in formed.iter_mut().enumerate() {
                    form::<B>(l, &self.0.panels[(first + p) * panel_bytes..][..*panel_bytes], &blocks, formed);
                }
                let runs = blocks.start * B::LEN / RUN..blocks.end * B::LEN / RUN;
                for (tile, at) in (part.rows.start / ROWS..).zip((0..part.rows.len()).step_by(ROWS)) {
                    let x = self.0.x.sixteens.tile(tile, &runs);
                    for (p, (sums, formed)) in sums.iter_mut().zip(formed.iter()).enumerate() {
                        let panel = &self.0.panels[(first + p) * panel_bytes..][..*panel_bytes];
                        let weights = Weights::<B> { panel, first: runs.start, formed, block: PhantomData };
                        let Some(sums) = sums.0[at..].first_chunk_mut::<ROWS>() else { return };
                        add_stretch::<B, INPUTS>(l, tiles, x, &weights, &mut products, sums);
                    }
                }
            }
            for (p, sums) in sums.iter().enumerate() {
                part.write(self.0.out, first + p, &sums.0[..part.rows.len()]);
            }
        }
    }
}

/// Forms the scales of a panel's blocks, and the bytes of codes that do not lie in the panel as such.
#[inline(always)]
fn form<B: Packed>(l: Vnni, panel: &[u8], blocks: &Range<usize>, formed: &mut Formed) {
    let (heads, codes) = panels::sections::<B>(panel);
    let subs = B::LEN / B::SUB;
    for (index, head) in heads[blocks.start * B::HEAD..blocks.end * B::HEAD].chunks_exact(B::HEAD).enumerate() {
        let Scales { scales, minima } = &mut formed.scales;
        B::unpack_head(l, head, &mut scales[index * subs..], &mut minima[index * subs..]);
    }
    if as_they_lie::<B>() {
        return;
    }
    let zero = if let Coding::Unsigned { zero } = B::CODING { zero } else { 0 };
    let first = blocks.start * B::LEN / RUN;
    for (run, bytes) in formed.bytes.0[..blocks.len() * B::LEN / RUN].iter_mut().enumerate() {
        let groups = run_of::<B>(codes, first + run);
        for (index, bytes) in bytes.iter_mut().enumerate() {
            l.store_less(group::<_, B>(l, groups, index), zero, bytes);
        }
    }
}

/// Whether codes are signed bytes in the panel already.
const fn as_they_lie<B: Packed>() -> bool {
    B::BITS == 8 && matches!(B::CODING, Coding::Signed)
}

/// A panel's stretch.
struct Weights<'a, B> {
    panel: &'a [u8],
    /// The first run of the stretch.
    first: usize,
    formed: &'a Formed,
    block: PhantomData<B>,
}

impl<B: Packed> Weights<'_, B> {
    /// The signed bytes of a run of the stretch.
    #[inline(always)]
    fn run(&self, run: usize) -> &[[u8; 64]] {
        if as_they_lie::<B>() {
            return run_of::<B>(panels::sections::<B>(self.panel).1, self.first + run);
        }
        &self.formed.bytes.0[run]
    }
}

/// Places for products: of a run and of the next, halves apart, and of fine codes.
const PLACES: usize = 5;
const FINE_PLACE: usize = 4;

/// Adds the products of a stretch with sixteen rows to their sums, which stay in registers meanwhile.
#[inline(always)]
fn add_stretch<B: Packed, const INPUTS: usize>(
    l: Vnni,
    tiles: &CodeTiles<INPUTS>,
    x: Rows<'_, ROWS>,
    weights: &Weights<'_, B>,
    products: &mut [CodeSums; PLACES],
    sums: &mut [Sub; ROWS],
) {
    // Each half of a run has products of its own where it has a scale of its own.
    let halves = RUN / INPUTS;
    let mut total = [l.splat(0.0); ROWS];
    for (total, sum) in total.iter_mut().zip(sums.iter()) {
        *total = l.load(sum);
    }
    for half in 0..halves {
        multiply(tiles, &x.runs[0].codes, half, weights.run(0), half, products);
    }
    for (run, x_run) in x.runs.iter().enumerate() {
        let (places, next_places) = if run % 2 == 0 { (0, halves) } else { (halves, 0) };
        if let Some(next) = x.runs.get(run + 1) {
            for half in 0..halves {
                multiply(tiles, &next.codes, half, weights.run(run + 1), next_places + half, products);
            }
        }
        let fine = x.fine(x_run);
        for half in 0..halves {
            let sub = run * halves + half;
            let (scale, minimum) =
                (l.load(&weights.formed.scales.scales[sub]), l.load(&weights.formed.scales.minima[sub]));
            scale_and_add(l, &products[places + half], scale, x_run, &mut total);
            if B::HAS_MINIMUM {
                for (total, x_total) in total.iter_mut().zip(&x_run.totals[half]) {
                    *total = l.fma(minimum, l.splat(*x_total), *total);
                }
            }
            if let Some(fine) = fine {
                multiply(tiles, fine, half, weights.run(run), FINE_PLACE, products);
                scale_and_add(l, &products[FINE_PLACE], l.mul(scale, l.splat(1.0 / FINE)), x_run, &mut total);
            }
        }
    }
    for (total, sum) in total.into_iter().zip(sums) {
        l.store(total, sum);
    }
}

/// Products of a half of a run, or of all of it where tiles hold that, into `place`.
#[inline(always)]
fn multiply<const INPUTS: usize>(
    tiles: &CodeTiles<INPUTS>,
    x: &Codes<ROWS>,
    half: usize,
    w: &[[u8; 64]],
    place: usize,
    products: &mut [CodeSums; PLACES],
) {
    let w = &w[half * INPUTS / 4..];
    if place.is_multiple_of(2) {
        tiles.multiply::<0>(&x.codes, half * INPUTS, w, &mut products[place]);
    } else {
        tiles.multiply::<1>(&x.codes, half * INPUTS, w, &mut products[place]);
    }
}

/// Adds the products of a run in units of the weights' and the activations' scales.
///
/// The loop goes by number: over iterators it is not unrolled, and the sums do not stay in registers.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn scale_and_add(
    l: Vnni,
    products: &CodeSums,
    scale: <Vnni as Lanes>::F,
    x: &Run<ROWS>,
    total: &mut [<Vnni as Lanes>::F; ROWS],
) {
    for r in 0..ROWS {
        let weight = l.mul(scale, l.splat(x.scales[r]));
        total[r] = l.fma(l.to_float(l.load_int(&products.0[r])), weight, total[r]);
    }
}
