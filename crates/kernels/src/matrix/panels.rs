//! Panels: how the weights of sixteen outputs lie in memory.
//!
//! A panel of plain numbers is `[cols][16]`; of bf16 for the bf16 instruction `[cols / 2][16][2]`; of a block type a head
//! for each block (see `scales`), then, from a cache line on, each block's runs of codes (see `codes`). Matrices whose rows are no multiple of 16 end
//! in rows of zeros.

use super::codes::{RUN, four_of, group, pack, run_of};
use super::float::Tile;
use super::scales::{Packed, Rows};
use crate::DType;
use crate::isa::Machine;
use crate::lanes::{Kernel, Lanes, WIDTH, dispatch_float};
use crate::quant::{self, Coding, MAX_BLOCK, MAX_SUBS, f32_to_bf16, with_block};
use std::marker::PhantomData;
use std::ops::Range;

/// The order of the weights in a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `[cols][16]` of a plain type, or blocks of a block type.
    Of(DType),
    /// `[cols / 2][16][2]` of bf16.
    Pairs,
}

impl Layout {
    /// Bytes of a panel; `None` when they overflow or `cols` does not fill blocks.
    pub(crate) fn panel_bytes(self, cols: usize) -> Option<usize> {
        match self {
            Layout::Of(dtype) => {
                let bytes = dtype.bytes(cols)?.checked_mul(WIDTH)?;
                // What the heads lack to a whole line.
                let blocks = cols / dtype.block_len();
                let pad = with_block!(dtype, B => (blocks * <B as Packed>::HEAD).wrapping_neg() % LINE, _ => 0);
                bytes.checked_add(pad)
            }
            Layout::Pairs => cols.div_ceil(2).checked_mul(4 * WIDTH),
        }
    }

    /// Packs up to sixteen rows of a file's `dtype`, which follow each other in `rows`, into a zeroed panel.
    pub(crate) fn pack(self, dtype: DType, rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
        match self {
            Layout::Of(_) => with_block!(dtype, B => pack_blocks::<B>(rows, row_bytes, panel), _ => {
                match dtype.block_bytes() {
                    1 => interleave::<1>(rows, row_bytes, panel),
                    2 => interleave::<2>(rows, row_bytes, panel),
                    4 => interleave::<4>(rows, row_bytes, panel),
                    _ => interleave::<8>(rows, row_bytes, panel),
                }
            }),
            Layout::Pairs => pack_pairs(dtype, rows, row_bytes, panel),
        }
    }

    /// Widens all weights of output `lane` of a panel, to the bits of [`Layout::widen`].
    pub(crate) fn widen_lane(self, machine: Machine, panel: &[u8], lane: usize, out: &mut [f32]) {
        match self {
            Layout::Of(dtype) => with_block!(dtype, B => {
                dispatch_float(machine, LaneOfBlocks::<B> { panel, lane, out, block: PhantomData });
            }, _ => lane_of_plain(dtype, panel, lane, out)),
            Layout::Pairs => lane_of_pairs(panel, lane, out),
        }
    }

    /// Widens the weights of `inputs` of a panel to `out[input][output]`; for block types `inputs` begins with a block.
    pub(crate) fn widen(self, machine: Machine, panel: &[u8], inputs: Range<usize>, out: &mut Tile) {
        match self {
            Layout::Of(dtype) => with_block!(dtype, B => {
                dispatch_float(machine, WidenBlocks::<B> { panel, inputs, out, block: PhantomData });
            }, _ => dispatch_float(machine, WidenPlain { dtype, panel, inputs, out })),
            Layout::Pairs => {
                for (input, out) in inputs.zip(out.iter_mut()) {
                    let pair = &panel[input / 2 * 4 * WIDTH..][..4 * WIDTH];
                    for (out, pair) in out.iter_mut().zip(pair.chunks_exact(4)) {
                        let at = 2 * (input % 2);
                        *out = quant::bf16_to_f32(u16::from_le_bytes([pair[at], pair[at + 1]]));
                    }
                }
            }
        }
    }
}

/// Where codes begin: at a multiple of this many bytes.
const LINE: usize = 64;

/// The heads of a panel's blocks, and their codes.
#[inline(always)]
pub(crate) fn sections<B: Packed>(panel: &[u8]) -> (&[u8], &[u8]) {
    panel.split_at(heads_of::<B>(panel.len()))
}

/// Bytes of the heads in a panel, with what fills their last line.
#[inline(always)]
fn heads_of<B: Packed>(panel_bytes: usize) -> usize {
    (panel_bytes / (WIDTH * B::BYTES) * B::HEAD).next_multiple_of(LINE)
}

/// Head and codes of each block of a panel.
#[inline(always)]
fn blocks<B: Packed>(panel: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let (heads, codes) = sections::<B>(panel);
    heads.chunks_exact(B::HEAD).zip(codes.chunks_exact(B::CODES))
}

/// Whether codes are signed bytes, and what is taken off them.
#[inline(always)]
fn coding<B: Packed>() -> (bool, i32) {
    match B::CODING {
        Coding::Unsigned { zero } => (false, i32::from(zero)),
        Coding::Signed | Coding::Table(_) => (true, 0),
    }
}

/// Lays elements of `N` bytes side by side, a few inputs at a time, so that what is written stays in the first cache.
fn interleave<const N: usize>(rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    const INPUTS: usize = 64;
    for (chunk, panel) in panel.chunks_mut(INPUTS * N * WIDTH).enumerate() {
        for (lane, row) in rows.chunks_exact(row_bytes.max(1)).enumerate() {
            let (elements, _) = row[chunk * INPUTS * N..].as_chunks::<N>();
            for (out, element) in panel.chunks_exact_mut(N * WIDTH).zip(elements) {
                out[N * lane..N * lane + N].copy_from_slice(element);
            }
        }
    }
}

/// Lays pairs of bf16 side by side, rounding where the file's type is wider.
fn pack_pairs(dtype: DType, rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    let size = dtype.block_bytes();
    for (lane, row) in rows.chunks_exact(row_bytes.max(1)).enumerate() {
        for (input, element) in row.chunks_exact(size).enumerate() {
            let at = (input / 2 * WIDTH + lane) * 4 + 2 * (input % 2);
            let mut wide = [0.0];
            quant::widen(dtype, element, &mut wide);
            panel[at..at + 2].copy_from_slice(&f32_to_bf16(wide[0]).to_le_bytes());
        }
    }
}

/// Packs blocks: one panel's block from the blocks of all rows at the same place.
fn pack_blocks<B: Packed>(rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    const EMPTY: [u8; 256] = [0; 256];
    let mut codes = [[0; MAX_BLOCK]; WIDTH];
    let (heads, codes_of) = panel.split_at_mut(heads_of::<B>(panel.len()));
    let blocks = heads.chunks_exact_mut(B::HEAD).zip(codes_of.chunks_exact_mut(B::CODES));
    for (index, (head, runs)) in blocks.enumerate() {
        let mut blocks: Rows<'_> = [&EMPTY[..B::BYTES]; WIDTH];
        for (block, row) in blocks.iter_mut().zip(rows.chunks_exact(row_bytes.max(1))) {
            *block = &row[index * B::BYTES..(index + 1) * B::BYTES];
        }
        B::pack_head(&blocks, head);
        for (codes, block) in codes.iter_mut().zip(&blocks) {
            B::codes(block, codes);
        }
        pack::<B>(&codes, runs);
    }
}

/// Widens plain numbers.
struct WidenPlain<'a> {
    dtype: DType,
    panel: &'a [u8],
    inputs: Range<usize>,
    out: &'a mut Tile,
}

impl Kernel for WidenPlain<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let size = self.dtype.block_bytes() * WIDTH;
        let bytes = &self.panel[self.inputs.start * size..self.inputs.end * size];
        let out = &mut self.out[..self.inputs.len()];
        let halves = bytes.as_chunks::<32>().0.iter();
        if self.dtype == DType::F16 {
            halves.zip(out).for_each(|(x, out)| l.store(l.load_f16(x), out));
        } else if self.dtype == DType::BF16 {
            halves.zip(out).for_each(|(x, out)| l.store(l.load_bf16(x), out));
        } else {
            quant::widen(self.dtype, bytes, out.as_flattened_mut());
        }
    }
}

/// Widens the weights of one output of a panel of plain numbers.
fn lane_of_plain(dtype: DType, panel: &[u8], lane: usize, out: &mut [f32]) {
    /// Elements that are gathered at a time, of up to eight bytes.
    const INPUTS: usize = 64;
    let size = dtype.block_bytes();
    let mut gathered = [0; 8 * INPUTS];
    for (out, inputs) in out.chunks_mut(INPUTS).zip(panel.chunks(INPUTS * WIDTH * size)) {
        for (to, from) in gathered.chunks_exact_mut(size).zip(inputs.chunks_exact(WIDTH * size)) {
            to.copy_from_slice(&from[lane * size..][..size]);
        }
        quant::widen(dtype, &gathered[..out.len() * size], out);
    }
}

/// Widens the weights of one output of a panel of pairs.
fn lane_of_pairs(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (out, pairs) in out.chunks_mut(2).zip(panel.chunks_exact(4 * WIDTH)) {
        let pair = pairs[4 * lane..][..4].as_chunks().0;
        out.iter_mut().zip(pair).for_each(|(out, half)| *out = quant::bf16_to_f32(u16::from_le_bytes(*half)));
    }
}

/// Widens the weights of one output of a panel of blocks, to the bits of [`WidenBlocks`].
struct LaneOfBlocks<'a, B> {
    panel: &'a [u8],
    lane: usize,
    out: &'a mut [f32],
    block: PhantomData<B>,
}

impl<B: Packed> Kernel for LaneOfBlocks<'_, B> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (mut scales, mut minima) = ([[0.0; WIDTH]; MAX_SUBS], [[0.0; WIDTH]; MAX_SUBS]);
        let (signed, zero) = coding::<B>();
        for ((head, codes), out) in blocks::<B>(self.panel).zip(self.out.chunks_exact_mut(B::LEN)) {
            B::unpack_head(l, head, &mut scales, &mut minima);
            for (run, out) in out.chunks_exact_mut(RUN).enumerate() {
                let groups = run_of::<B>(codes, run);
                for (four, out) in out.chunks_exact_mut(4).enumerate() {
                    let sub = (run * RUN + 4 * four) / B::SUB;
                    let (scale, minimum) = (scales[sub][self.lane], minima[sub][self.lane]);
                    for (out, code) in out.iter_mut().zip(four_of::<B>(groups, four, self.lane)) {
                        let code = if signed { i32::from(code as i8) } else { i32::from(code) };
                        let value = scale * (code - zero) as f32;
                        *out = if B::HAS_MINIMUM { value + minimum } else { value };
                    }
                }
            }
        }
    }
}

/// Widens blocks, to the bits of `dequantize`.
struct WidenBlocks<'a, B> {
    panel: &'a [u8],
    inputs: Range<usize>,
    out: &'a mut Tile,
    block: PhantomData<B>,
}

impl<B: Packed> Kernel for WidenBlocks<'_, B> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (mut scales, mut minima) = ([[0.0; WIDTH]; MAX_SUBS], [[0.0; WIDTH]; MAX_SUBS]);
        let (signed, zero) = coding::<B>();
        let blocks = blocks::<B>(self.panel).skip(self.inputs.start / B::LEN);
        for ((head, codes), out) in blocks.zip(self.out[..self.inputs.len()].chunks_exact_mut(B::LEN)) {
            B::unpack_head(l, head, &mut scales, &mut minima);
            for (run, out) in out.chunks_exact_mut(RUN).enumerate() {
                let groups = run_of::<B>(codes, run);
                for (four, out) in out.chunks_exact_mut(4).enumerate() {
                    let codes = group::<L, B>(l, groups, four);
                    let sub = (run * RUN + 4 * four) / B::SUB;
                    for (index, out) in out.iter_mut().enumerate() {
                        let code = l.sub_int(l.byte(codes, index, signed), l.splat_int(zero));
                        let value = l.mul(l.load(&scales[sub]), l.to_float(code));
                        let value = if B::HAS_MINIMUM { l.add(value, l.load(&minima[sub])) } else { value };
                        l.store(value, out);
                    }
                }
            }
        }
    }
}
