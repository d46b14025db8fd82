//! How the work of a list of calls is cut into tiles and tasks. Bits do not depend on it.

use super::cut::{CUT, PAD, Scratch};
use super::state::{Reduced, State};
use super::{Heads, Inputs};
use crate::pool;
use std::cmp::Reverse;
use std::ops::Range;

/// Rows of query (tokens times query heads of a KV head) that share one pass over keys and values.
const TILE_ROWS: usize = 96;
/// Fewer rows than this do not make up for reading keys and values once more.
const LEAST_ROWS: usize = 24;
/// Fewer cuts than this are not worth a task of their own.
const LEAST_CUTS: usize = 4;
/// What loading a cut costs, in rows that are compared with it.
const LOAD: usize = 16;
/// Tasks for each thread, to even out their ends.
const TASKS: usize = 4;

/// One KV head of a few rows.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    pub call: usize,
    pub kv_head: usize,
    /// Rows of the call.
    pub rows: Range<usize>,
    /// The cuts that any of the rows needs.
    pub cuts: Range<usize>,
    /// Query heads.
    group: usize,
    value_dim: usize,
}

impl Tile {
    fn cost(&self) -> usize {
        self.cost_of(&self.cuts)
    }

    fn cost_of(&self, cuts: &Range<usize>) -> usize {
        cuts.len() * (LOAD + self.rows.len() * self.group)
    }

    /// Numbers that the result of one cut takes.
    pub fn kept(&self) -> usize {
        Reduced::len(self.rows.len() * self.group, self.value_dim.next_multiple_of(PAD))
    }
}

/// A tile's cuts, or some of them.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub tile: usize,
    pub cuts: Range<usize>,
    /// Where the results of the cuts go, of a tile that is divided.
    pub part: Option<usize>,
}

/// A tile that is divided, and its parts in the order of their cuts.
#[derive(Debug, Clone)]
pub(super) struct Divided {
    pub tile: usize,
    pub parts: Range<usize>,
}

/// The lists of a thread's calls, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub tiles: Vec<Tile>,
    pub tasks: Vec<Task>,
    pub divided: Vec<Divided>,
    /// How many numbers each part keeps.
    pub parts: Vec<usize>,
}

impl Plan {
    /// Plans the calls for so many threads.
    pub fn make<'a, 'b: 'a>(&mut self, calls: impl Iterator<Item = Inputs<'b, 'a>> + Clone, threads: usize) {
        let rows = calls.clone().map(|inputs| inputs.rows() * inputs.shape.heads).sum();
        let height = height(rows, threads);
        self.tiles.clear();
        for (call, inputs) in calls.enumerate() {
            self.tile(call, &inputs, height);
        }
        self.tasks.clear();
        self.divided.clear();
        self.parts.clear();
        let share = share(self.tiles.iter().map(Tile::cost).sum(), threads);
        self.tasks.reserve_exact(self.tiles.len());
        for (tile, found) in self.tiles.iter().enumerate() {
            let Some(step) = step(found.cost(), found.cuts.len(), share) else {
                self.tasks.push(Task { tile, cuts: found.cuts.clone(), part: None });
                continue;
            };
            let first = self.parts.len();
            for start in found.cuts.clone().step_by(step) {
                let cuts = start..(start + step).min(found.cuts.end);
                self.parts.push(cuts.len() * found.kept());
                self.tasks.push(Task { tile, cuts, part: Some(self.parts.len() - 1) });
            }
            self.divided.push(Divided { tile, parts: first..self.parts.len() });
        }
        // The longest first: short ones at the end leave no thread without work for long.
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.sort_unstable_by_key(|task| (Reverse(self.cost(task)), task.tile, task.cuts.start));
        self.tasks = tasks;
    }

    pub fn cost(&self, task: &Task) -> usize {
        self.tiles[task.tile].cost_of(&task.cuts)
    }

    fn tile(&mut self, call: usize, inputs: &Inputs, height: usize) {
        let group = inputs.shape.group();
        let step = (height / group).max(1);
        self.tiles.reserve_exact(inputs.rows().div_ceil(step) * inputs.shape.kv_heads);
        // Rows outermost: the tiles that read the same keys run at about the same time.
        for start in (0..inputs.rows()).step_by(step) {
            let rows = start..(start + step).min(inputs.rows());
            let cuts = cuts(inputs, rows.clone());
            for kv_head in 0..inputs.shape.kv_heads {
                let (rows, cuts, value_dim) = (rows.clone(), cuts.clone(), inputs.shape.value_dim);
                self.tiles.push(Tile { call, kv_head, rows, cuts, group, value_dim });
            }
        }
    }
}

/// The cuts that hold a key of any of the rows.
fn cuts(inputs: &Inputs, rows: Range<usize>) -> Range<usize> {
    let ranges = rows.map(|row| inputs.range(row)).filter(|range| !range.is_empty());
    let span = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
    span.start / CUT..span.end.div_ceil(CUT)
}

/// How many rows a tile has, for so many of all calls and heads: fewer where that gives every thread some tiles.
fn height(rows: usize, threads: usize) -> usize {
    if threads == 1 { TILE_ROWS } else { (rows / (TASKS * threads)).clamp(LEAST_ROWS, TILE_ROWS) }
}

/// What a task should cost at most; all of a tile where one thread works.
fn share(total: usize, threads: usize) -> usize {
    if threads == 1 { total } else { total.div_ceil(TASKS * threads) }
}

/// How many cuts at a time a tile is divided into; not where its cost is near a task's share.
fn step(cost: usize, cuts: usize, share: usize) -> Option<usize> {
    let parts = cost.div_ceil(share.max(1));
    let step = cuts.div_ceil(parts.max(1)).max(LEAST_CUTS);
    (parts > 2 && step < cuts).then_some(step)
}

/// Bytes that [`super::flash`] takes beside its inputs and its output, for one call of `rows` rows over `keys` keys: each
/// thread's buffers, the lists of tiles and tasks, and what divided tiles keep of each cut.
pub fn flash_bytes(shape: Heads, rows: usize, keys: usize) -> usize {
    let (threads, group, cuts) = (pool::threads(), shape.group(), keys.div_ceil(CUT));
    let tokens = (height(rows.saturating_mul(shape.heads), threads) / group).max(1).min(rows);
    let tiles = rows.checked_div(tokens).map_or(0, |whole| whole + usize::from(whole * tokens < rows));
    let tiles = tiles.saturating_mul(shape.kv_heads);
    let tile = Tile { call: 0, kv_head: 0, rows: 0..tokens, cuts: 0..cuts, group, value_dim: shape.value_dim };
    let step = step(tile.cost(), cuts, share(tile.cost().saturating_mul(tiles), threads));
    let parts = step.map_or(0, |step| cuts.div_ceil(step)).saturating_mul(tiles);
    let kept = if parts > 0 { tile.kept().saturating_mul(cuts).saturating_mul(tiles) } else { 0 };
    let kept = kept.saturating_mul(size_of::<f32>()).saturating_add(parts.saturating_mul(2 * size_of::<usize>()));
    let lists = tiles.saturating_mul(size_of::<Tile>());
    let lists = lists.saturating_add(tiles.max(parts).saturating_mul(size_of::<Task>()));
    let thread = Scratch::bytes_for(&shape, tokens).saturating_add(State::bytes_for(tokens * group, shape.value_dim));
    thread.saturating_mul(threads.min(tiles.max(parts))).saturating_add(lists).saturating_add(kept)
}
