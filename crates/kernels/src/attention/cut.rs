//! One cut of keys for one tile of rows: loaded, compared with the queries, weighed and mixed.
//!
//! The stages stand in files of their own. Scores and weights are held for a block of rows at a time, so that they, the
//! keys and the values stay in the first cache together.

use super::ahead::Ahead;
use super::kv::KvLayout;
use super::load::load;
use super::mix::Mix;
use super::scores::{compare, pack};
use super::state::{Found, Reduced, State};
use super::stored::{compare_stored, mix_stored};
use super::tile::Rows;
use super::weigh::{Factors, weigh};
use super::{Heads, Inputs};
use crate::DType;
use crate::aligned::Floats;
use crate::arch::Arch;
use std::ops::Range;

/// Keys in a cut; cuts start at its multiples of absolute position. Changing it changes bits.
pub(super) const CUT: usize = 64;
/// Widths are filled up with zeros to a multiple of this, so that vectors of every length divide them.
pub(super) const PAD: usize = 16;
/// Rows whose scores are held at once: a multiple of [`PAD`] and of every tile's height.
const BLOCK: usize = 48;
/// As many rows as read keys and values in their place.
const IN_PLACE: usize = 8;

/// The keys of a cut that a row may see, counted from the cut's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u8,
    pub end: u8,
}

impl Span {
    pub const WHOLE: Span = Span { start: 0, end: CUT as u8 };

    /// The part of a range of absolute keys that lies in a cut.
    #[inline(always)]
    pub fn within(range: &Range<usize>, cut: usize) -> Span {
        let base = cut * CUT;
        let start = range.start.clamp(base, base + CUT) - base;
        let end = range.end.clamp(base, base + CUT) - base;
        if start < end { Span { start: start as u8, end: end as u8 } } else { Span::default() }
    }

    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.end == 0
    }

    #[inline(always)]
    pub fn range(self) -> Range<usize> {
        usize::from(self.start)..usize::from(self.end)
    }

    /// The keys that any of the rows may see, and those that all of them may.
    #[inline(always)]
    pub fn of_rows(spans: &[Span]) -> (Range<usize>, Range<usize>) {
        let (mut any, mut all) = (CUT as u8..0, 0..CUT as u8);
        for span in spans {
            if !span.is_empty() {
                any = any.start.min(span.start)..any.end.max(span.end);
            }
            all = all.start.max(span.start)..all.end.min(span.end);
        }
        let wide = |range: Range<u8>| usize::from(range.start)..usize::from(range.end);
        (wide(any), wide(all))
    }
}

/// Which rows a tile has: those of the query heads of one KV head, for a run of tokens.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub kv_head: usize,
    /// Rows of the call; row `(token, g)` of the tile is `(token - tokens.start) * group + g`.
    pub tokens: Range<usize>,
    pub group: usize,
}

impl Place {
    pub fn rows(&self) -> usize {
        self.tokens.len() * self.group
    }

    /// Row of the call and query head of a row of the tile.
    #[inline(always)]
    pub fn token_and_head(&self, row: usize) -> (usize, usize) {
        (self.tokens.start + row / self.group, self.kv_head * self.group + row % self.group)
    }
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub place: Place,
    factors: Factors,
    pub key_stride: usize,
    pub value_stride: usize,
    /// The keys that each token of the tile may see, absolute, and those that all of them may.
    ranges: Vec<Range<usize>>,
    shared: Range<usize>,
    /// The same within the cut, for each row.
    spans: Vec<Span>,
    /// `[rows, key stride]`, scaled.
    queries: Floats,
    /// `[16, key stride]`, as read.
    pub key_rows: Floats,
    /// `[key stride, CUT]`: a vector holds neighbouring keys.
    pub keys: Floats,
    /// `[CUT, value stride]`
    pub values: Floats,
    /// `[BLOCK, CUT]`; scores, then weights.
    scores: Floats,
    found: Found,
    /// What the state's and the cut's mixes are multiplied by.
    old: Floats,
    new: Floats,
    pub state: State,
}

impl Scratch {
    /// Bytes of the buffers for tiles of `tokens` tokens.
    pub fn bytes_for(shape: &Heads, tokens: usize) -> usize {
        let (key, value) = (shape.key_dim.next_multiple_of(PAD), shape.value_dim.next_multiple_of(PAD));
        let rows = tokens.saturating_mul(shape.group());
        let of_cut = CUT.saturating_mul(key.saturating_add(value)).saturating_add(PAD * key + BLOCK * CUT);
        let of_rows = rows.saturating_mul(key).saturating_add(6 * rows.next_multiple_of(PAD));
        let floats = of_cut.saturating_add(of_rows).saturating_add(rows.saturating_mul(value));
        let lists = tokens * size_of::<Range<usize>>() + rows * size_of::<Span>();
        floats.saturating_mul(size_of::<f32>()).saturating_add(lists)
    }

    /// Turns to a tile that has seen no key yet.
    #[inline(always)]
    pub fn prepare<A: Arch>(&mut self, inputs: &Inputs, kv_head: usize, tokens: Range<usize>) {
        let shape = inputs.shape;
        self.place = Place { kv_head, tokens, group: shape.group() };
        self.factors = Factors::of(inputs.scores);
        self.key_stride = shape.key_dim.next_multiple_of(PAD);
        self.value_stride = shape.value_dim.next_multiple_of(PAD);
        let rows = self.place.rows();
        // What an earlier tile left may stay: vectors cover it, but nobody reads what comes of it.
        for (list, len) in [
            (&mut self.queries, rows * self.key_stride),
            (&mut self.key_rows, PAD * self.key_stride),
            (&mut self.keys, CUT * self.key_stride),
            (&mut self.values, CUT * self.value_stride),
            (&mut self.scores, BLOCK * CUT),
            (&mut self.old, rows.next_multiple_of(PAD)),
            (&mut self.new, rows.next_multiple_of(PAD)),
        ] {
            list.reserve(len);
        }
        self.found.reserve(rows);
        self.state.clear(rows, self.value_stride);
        self.ranges.clear();
        self.ranges.reserve_exact(self.place.tokens.len());
        self.ranges.extend(self.place.tokens.clone().map(|token| inputs.range(token)));
        let all = self.ranges.iter().cloned().reduce(|a, b| a.start.max(b.start)..a.end.min(b.end));
        self.shared = all.unwrap_or(0..0);
        self.spans.clear();
        self.spans.reserve_exact(rows);
        self.spans.resize(rows, Span::WHOLE);
        pack::<A>(inputs, &self.place, self.factors.query, &mut self.queries, self.key_stride);
    }

    /// Turns to `rows` rows of results that were kept.
    pub fn clear(&mut self, rows: usize, stride: usize) {
        self.old.reserve(rows.next_multiple_of(PAD));
        self.new.reserve(rows.next_multiple_of(PAD));
        self.state.clear(rows, stride);
    }

    /// Takes in the next of them.
    #[inline(always)]
    pub fn merge<A: Arch>(&mut self, next: Reduced<&[f32]>) {
        self.state.merge::<A>(next, &mut self.old, &mut self.new);
    }

    /// Finds what each row may see of a cut.
    #[inline(always)]
    fn look(&mut self, cut: usize) {
        if Span::within(&self.shared, cut) == Span::WHOLE {
            self.spans.fill(Span::WHOLE);
            return;
        }
        for (range, spans) in self.ranges.iter().zip(self.spans.chunks_exact_mut(self.place.group)) {
            spans.fill(Span::within(range, cut));
        }
    }
}

/// Takes a cut into the state or, where `kept` is given, writes there what it alone comes to. The keys of the cut
/// `next` will be read after it.
#[inline(always)]
pub(super) fn take_cut<A: Arch>(
    inputs: &Inputs,
    scratch: &mut Scratch,
    cut: usize,
    next: Option<usize>,
    mut kept: Option<Reduced<&mut [f32]>>,
) {
    scratch.look(cut);
    let rows = scratch.place.rows();
    let (any, _) = Span::of_rows(&scratch.spans);
    scratch.found.clear(rows);
    if !any.is_empty() {
        let in_place = in_place::<A>(inputs, &scratch.spans);
        let mut ahead = Ahead::new(inputs, scratch.place.kv_head, next, (rows, in_place));
        if !in_place {
            load::<A>(inputs, scratch, cut, any, &mut ahead);
        }
        for start in (0..rows).step_by(BLOCK) {
            let out = kept.as_mut().map(|kept| &mut *kept.mix);
            let block = Block { cut, rows: start..(start + BLOCK).min(rows), in_place };
            take_block::<A>(inputs, scratch, block, &mut ahead, out);
        }
    }
    if let Some(kept) = kept {
        kept.max.copy_from_slice(&scratch.found.max[..kept.max.len()]);
        kept.sum.copy_from_slice(&scratch.found.sum[..kept.sum.len()]);
    }
}

/// Rows that are taken through the stages together.
struct Block {
    cut: usize,
    rows: Range<usize>,
    /// The cut is not loaded.
    in_place: bool,
}

/// Whether the rows read the cut where it lies, where few do and all see the same keys of it. It is then widened once for
/// every four of them. Numbers of 32 bits are as soon copied.
#[inline(always)]
fn in_place<A: Arch>(inputs: &Inputs, spans: &[Span]) -> bool {
    let kv = inputs.kv;
    A::IN_PLACE
        && kv.layout == KvLayout::KeysAcross
        && spans.len() <= IN_PLACE
        && spans.iter().all(|&span| span == spans[0])
        && inputs.shape.value_dim.is_multiple_of(PAD)
        && kv.key_type != DType::F32
        && kv.value_type != DType::F32
}

/// [`take_cut`] for a block of rows, of a cut that is loaded or read where it lies.
#[inline(always)]
fn take_block<A: Arch>(
    inputs: &Inputs,
    scratch: &mut Scratch,
    Block { cut, rows, in_place }: Block,
    ahead: &mut Ahead,
    kept: Option<&mut [f32]>,
) {
    let Scratch { place, factors, spans, queries, keys, values, scores, found, old, new, state, .. } = scratch;
    let spans = &spans[rows.clone()];
    let Some(scores) = scores.as_chunks_mut::<CUT>().0.get_mut(..rows.len()) else { return };
    let queries = Rows { data: &queries[rows.start * scratch.key_stride..], stride: scratch.key_stride };
    // Without the constant every instruction set would be given the code.
    let stored = (const { A::IN_PLACE } && in_place).then_some((inputs.kv, &inputs.shape, cut, place.kv_head));
    match stored {
        Some(stored) => compare_stored::<A>(inputs, queries, stored, spans, ahead, scores),
        None => compare::<A, _>(inputs, queries, Rows { data: keys, stride: CUT }, spans, ahead, scores),
    }
    weigh::<A>(inputs, factors, place, (cut, rows.clone()), spans, scores, found);
    let padded = rows.start..rows.end.next_multiple_of(PAD);
    let merge = kept.is_none();
    if merge {
        state.factors::<A>(&found.max, &found.sum, padded, old, new);
    }
    let stride = scratch.value_stride;
    let out = kept.unwrap_or(&mut state.mix);
    let mix = Mix {
        weights: scores,
        spans,
        max: &found.max[rows.clone()],
        factors: merge.then_some((&old[rows.clone()], &new[rows.clone()])),
        stride,
    };
    let out = &mut out[rows.start * stride..rows.end * stride];
    match stored {
        Some(stored) => mix_stored::<A>(&mix, stored, ahead, out),
        None => mix.write::<A, _>(Rows { data: values, stride }, ahead, out),
    }
}
