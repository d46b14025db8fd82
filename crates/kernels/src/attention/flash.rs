//! Attention without the score matrix (Milakov & Gimelshein 2018; Dao et al. 2022).
//!
//! Keys are cut at fixed multiples of absolute position. Each cut is reduced alone (scores, maximum, sum of
//! exponentials, mix of values), and cuts are merged left to right. Inside a cut every sum has an order that depends on
//! absolute positions only: a score adds over the head's width, a mix adds over keys, one after the other; the sum of
//! exponentials adds in lanes by position. So the bits of a row depend on that row, its keys and the instruction set,
//! and not on the other rows, on chunking, blocks, threads or other calls.
//!
//! A task is one KV head of a tile of rows, whose query heads share each widened cut of keys and values. Where there
//! are fewer tasks than threads want, tasks also divide the cuts, keep each cut's result apart, and the merge follows.

use super::cut::{CUT, Reduced, Scratch, reduce_cut};
use super::{Call, Heads, Inputs};
use crate::arch::{Arch, for_each_arch};
use crate::isa::Isa;
use crate::{machine, pool};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Rows of query (tokens times query heads of a KV head) that share one pass over keys and values.
const TILE_ROWS: usize = 64;
/// Fewer cuts than this are not worth a task of their own.
const LEAST_CUTS: usize = 4;

/// Computes every call, in parallel.
///
/// # Panics
/// When a call's slices do not have the sizes that its shape demands.
pub fn flash(calls: &mut [Call]) {
    flash_on(machine().isa, calls);
}

/// Bytes that [`flash`] takes beside its inputs and its output, for one call of `rows` rows over `keys` keys: each
/// thread's buffers, the lists of tiles and tasks, and what divided tiles keep of each cut.
pub fn flash_bytes(shape: Heads, rows: usize, keys: usize) -> usize {
    let group = shape.group();
    let step = (TILE_ROWS / group).max(1);
    let tile_rows = step.min(rows).saturating_mul(group);
    let tiles = rows.div_ceil(step).saturating_mul(shape.kv_heads);
    let threads = pool::threads();
    let parts = if threads == 1 || tiles == 0 { 1 } else { (4 * threads).div_ceil(tiles) };
    let cuts = keys.div_ceil(CUT);
    let divided = cuts.div_ceil(parts).max(LEAST_CUTS) < cuts;
    let reduced = Reduced::bytes_for(tile_rows, shape.value_dim);
    let kept = if divided { tiles.saturating_mul(cuts).saturating_mul(reduced) } else { 0 };
    let tasks = tiles.saturating_mul(if divided { parts } else { 1 });
    let thread = Scratch::bytes_for(&shape, tile_rows).saturating_add(reduced);
    let lists = tiles.saturating_mul(size_of::<Tile>());
    let lists = lists.saturating_add(tasks.saturating_mul(size_of::<Task>() + size_of::<Mutex<Vec<Reduced>>>()));
    thread.saturating_mul(threads.min(tasks)).saturating_add(lists).saturating_add(kept)
}

/// One KV head of a few rows.
struct Tile {
    call: usize,
    kv_head: usize,
    /// Rows of the call.
    rows: Range<usize>,
    /// The cuts that any of the rows needs.
    cuts: Range<usize>,
}

/// A tile's cuts, or some of them; `part` counts the parts of a divided tile.
struct Task {
    tile: usize,
    cuts: Range<usize>,
    divided: bool,
}

/// [`flash`] on a given instruction set.
pub(crate) fn flash_on(isa: Isa, calls: &mut [Call]) {
    let (inputs, outs): (Vec<Inputs>, Vec<Mutex<&mut [f32]>>) = calls.iter_mut().map(split).unzip();
    for (inputs, out) in inputs.iter().zip(&outs) {
        check(inputs, lock(out).len());
    }
    let tiles = tiles(&inputs);
    let tasks = tasks(&tiles, pool::threads());
    let parts: Vec<Mutex<Vec<Reduced>>> = tasks.iter().map(|_| Mutex::default()).collect();
    pool::parallel(tasks.len(), |i| {
        let task = &tasks[i];
        let tile = &tiles[task.tile];
        let mut job = Job { inputs: &inputs[tile.call], tile, task, kept: Vec::new() };
        SCRATCH.with_borrow_mut(|scratch| run_task(isa, &mut job, scratch, &outs[tile.call]));
        *lock(&parts[i]) = job.kept;
    });
    let divided: Vec<Range<usize>> = divided(&tasks);
    pool::parallel(divided.len(), |i| {
        let tile = &tiles[tasks[divided[i].start].tile];
        let mut cuts = Vec::new();
        for part in &parts[divided[i].clone()] {
            cuts.append(&mut lock(part));
        }
        merge_parts(isa, &inputs[tile.call], tile, &cuts, &outs[tile.call]);
    });
}

/// Tells a call's inputs from its output, which tasks write one at a time.
fn split<'b>(call: &'b mut Call<'_>) -> (Inputs<'b, 'b>, Mutex<&'b mut [f32]>) {
    let inputs = Inputs {
        shape: call.shape,
        query: call.query,
        first_query: call.first_query,
        kv: &call.kv,
        scores: &call.scores,
    };
    (inputs, Mutex::new(&mut *call.out))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(inputs: &Inputs, out: usize) {
    let shape = inputs.shape;
    assert!(shape.kv_heads > 0 && shape.heads.is_multiple_of(shape.kv_heads), "heads do not divide: {shape:?}");
    assert_eq!(inputs.query.len(), inputs.rows() * shape.heads * shape.key_dim, "the query's size");
    assert_eq!(out, inputs.rows() * shape.heads * shape.value_dim, "the output's size");
}

fn tiles(calls: &[Inputs]) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (call, inputs) in calls.iter().enumerate() {
        let step = (TILE_ROWS / inputs.shape.group()).max(1);
        // Rows outermost: the tiles that read the same keys run at about the same time.
        for start in (0..inputs.rows()).step_by(step) {
            let rows = start..(start + step).min(inputs.rows());
            let cuts = cuts(inputs, rows.clone());
            for kv_head in 0..inputs.shape.kv_heads {
                tiles.push(Tile { call, kv_head, rows: rows.clone(), cuts: cuts.clone() });
            }
        }
    }
    tiles
}

/// The cuts that hold a key of any of the rows.
fn cuts(inputs: &Inputs, rows: Range<usize>) -> Range<usize> {
    let ranges = rows.map(|row| inputs.range(row)).filter(|range| !range.is_empty());
    let span = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
    span.start / CUT..span.end.div_ceil(CUT)
}

fn tasks(tiles: &[Tile], threads: usize) -> Vec<Task> {
    // A few tasks for each thread even out their ends.
    let parts = if threads == 1 || tiles.is_empty() { 1 } else { (4 * threads).div_ceil(tiles.len()) };
    let mut tasks = Vec::new();
    for (tile, Tile { cuts, .. }) in tiles.iter().enumerate() {
        let step = cuts.len().div_ceil(parts).max(LEAST_CUTS);
        let divided = step < cuts.len();
        // A tile without keys is a task too: it writes zeros.
        for start in (cuts.start..cuts.end.max(cuts.start + 1)).step_by(step) {
            tasks.push(Task { tile, cuts: start..(start + step).min(cuts.end), divided });
        }
    }
    tasks
}

/// The runs of tasks that share a divided tile.
fn divided(tasks: &[Task]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, task) in tasks.iter().enumerate().filter(|(_, task)| task.divided) {
        match runs.last_mut() {
            Some(run) if run.end == i && tasks[run.start].tile == task.tile => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

struct Job<'a> {
    inputs: &'a Inputs<'a, 'a>,
    tile: &'a Tile,
    task: &'a Task,
    /// Each cut's result, where the tile is divided.
    kept: Vec<Reduced>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

for_each_arch! {
    fn run_task(job: &mut Job, scratch: &mut Scratch, out: &Mutex<&mut [f32]>) = task_body
}

for_each_arch! {
    fn merge_parts(inputs: &Inputs, tile: &Tile, cuts: &[Reduced], out: &Mutex<&mut [f32]>) = merge_body
}

#[inline(always)]
fn task_body<A: Arch>(_: A, job: &mut Job, scratch: &mut Scratch, out: &Mutex<&mut [f32]>) {
    let (inputs, tile) = (job.inputs, job.tile);
    scratch.prepare(inputs, tile.kv_head, tile.rows.clone());
    let mut state = Reduced::empty(scratch.rows(), scratch.value_stride());
    for cut in job.task.cuts.clone() {
        reduce_cut::<A>(inputs, scratch, cut);
        if job.task.divided {
            job.kept.push(scratch.reduced.clone());
        } else {
            state.merge::<A>(&scratch.reduced);
        }
    }
    if !job.task.divided {
        finish::<A>(inputs, tile, &mut state, &mut lock(out));
    }
}

#[inline(always)]
fn merge_body<A: Arch>(_: A, inputs: &Inputs, tile: &Tile, cuts: &[Reduced], out: &Mutex<&mut [f32]>) {
    let Some(first) = cuts.first() else { return };
    let mut state = Reduced::empty(first.max.len(), first.stride);
    for cut in cuts {
        state.merge::<A>(cut);
    }
    finish::<A>(inputs, tile, &mut state, &mut lock(out));
}

/// Lets the sinks take their share, divides by the sum, and writes the tile's rows.
#[inline(always)]
fn finish<A: Arch>(inputs: &Inputs, tile: &Tile, state: &mut Reduced, out: &mut [f32]) {
    let (shape, group) = (inputs.shape, inputs.shape.group());
    for (i, row) in tile.rows.clone().enumerate() {
        for g in 0..group {
            let head = tile.kv_head * group + g;
            let factor = state.factor::<A>(i * group + g, inputs.scores.sinks.map(|sinks| sinks[head]));
            let out = &mut out[(row * shape.heads + head) * shape.value_dim..][..shape.value_dim];
            for (out, &sum) in out.iter_mut().zip(state.mix(i * group + g)) {
                *out = sum * factor;
            }
        }
    }
}
