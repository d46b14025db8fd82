//! Asks for the keys and values of the next cut while one is worked on, evenly, so that memory is never idle and never
//! waited for.

use super::Inputs;
use super::cut::{CUT, PAD};
use super::kv::{KvBlocks, KvLayout, Side};
use crate::arch::Arch;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;
/// What loading a cut costs, in rows that are compared with its keys and mix its values.
const LOAD: usize = 9;

/// What is still to be asked for.
#[derive(Debug)]
pub(super) struct Ahead<'a, 'b> {
    inputs: &'b Inputs<'a, 'b>,
    kv_head: usize,
    side: Side,
    /// Tokens whose keys, or values, are not begun.
    tokens: Range<usize>,
    all: Range<usize>,
    /// What is left of a run of rows.
    bytes: &'a [u8],
    /// Lines that one step of loading asks for.
    pub loading: usize,
    /// Lines that one tile of sums asks for.
    pub working: usize,
}

impl<'a, 'b> Ahead<'a, 'b> {
    /// For a cut, while another is worked on for so many rows. Rows that lie apart are left to the processor: asking for
    /// each alone costs more than it brings.
    #[inline(always)]
    pub fn new(
        inputs: &'b Inputs<'a, 'b>,
        kv_head: usize,
        cut: Option<usize>,
        (rows, in_place): (usize, bool),
    ) -> Ahead<'a, 'b> {
        let kv: &KvBlocks = inputs.kv;
        let cut = cut.filter(|_| kv.layout != KvLayout::TokenMajor);
        let tokens = cut.map_or(0..0, |cut| cut * CUT..(cut + 1) * CUT);
        let tokens = tokens.start.max(kv.first)..tokens.end.min(kv.len);
        let lines = (tokens.len() * kv.token_bytes(&inputs.shape)).div_ceil(LINE);
        let while_loading = if in_place { 0 } else { lines * LOAD / (LOAD + rows) };
        let steps = CUT / PAD * (2 + inputs.shape.key_dim.div_ceil(PAD));
        let tiles = 2 * rows.div_ceil(if in_place { 4 } else { 6 });
        Ahead {
            inputs,
            kv_head,
            side: Side::Key,
            tokens: tokens.clone(),
            all: tokens,
            bytes: &[],
            loading: while_loading.div_ceil(steps),
            working: (lines - while_loading).div_ceil(tiles),
        }
    }

    /// The next lines that lie side by side, at most so many.
    #[inline(always)]
    fn take(&mut self, lines: usize) -> &'a [u8] {
        if self.bytes.is_empty() {
            self.turn();
        }
        let (taken, rest) = self.bytes.split_at(self.bytes.len().min(lines * LINE));
        self.bytes = rest;
        taken
    }

    /// Goes on to the next run of rows.
    fn turn(&mut self) {
        if self.tokens.is_empty() {
            if self.side == Side::Value || self.inputs.kv.values_in_keys {
                return;
            }
            self.side = Side::Value;
            self.tokens = self.all.clone();
            if self.tokens.is_empty() {
                return;
            }
        }
        let (kv, shape) = (self.inputs.kv, &self.inputs.shape);
        if kv.layout == KvLayout::KeysAcross {
            self.bytes = kv.of_cut(shape, self.side, self.tokens.start / CUT, self.kv_head);
            self.tokens.start = self.tokens.end;
            return;
        }
        let run = self.inputs.kv.run(&self.inputs.shape, self.side, self.tokens.clone(), self.kv_head);
        self.bytes = run.bytes;
        self.tokens.start += run.rows;
    }

    /// Asks for the lines of one step of loading.
    #[inline(always)]
    pub fn fetch<A: Arch>(&mut self) {
        let mut lines = self.loading;
        while lines > 0 {
            let bytes = self.take(lines);
            if bytes.is_empty() {
                return;
            }
            for line in bytes.chunks(LINE) {
                A::prefetch(line.as_ptr());
            }
            lines = lines.saturating_sub(bytes.len().div_ceil(LINE));
        }
    }

    /// Lines that a loop of so many turns is to ask for.
    #[inline(always)]
    pub fn spread(&mut self, turns: usize) -> Spread {
        let bytes = self.take(self.working);
        Spread { byte: bytes.as_ptr(), step: bytes.len().div_ceil(turns.max(1)) }
    }
}

/// Lines that a loop asks for, a bit each time round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    byte: *const u8,
    step: usize,
}

impl Spread {
    #[inline(always)]
    pub fn fetch<A: Arch>(&mut self) {
        A::prefetch(self.byte);
        if self.step > LINE {
            A::prefetch(self.byte.wrapping_add(LINE));
        }
        self.byte = self.byte.wrapping_add(self.step);
    }
}
