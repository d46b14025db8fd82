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

use super::cut::{CUT, PAD, Scratch, take_cut};
use super::kv::KvLayout;
use super::plan::{Plan, Task, Tile};
use super::state::Reduced;
use super::{Call, Inputs};
use crate::aligned::Floats;
use crate::arch::{Arch, for_each_arch};
use crate::isa::Isa;
use crate::{machine, pool};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Computes every call, in parallel.
///
/// # Panics
/// When a call's slices do not have the sizes that its shape demands.
pub fn flash(calls: &mut [Call]) {
    flash_on(machine().isa, calls);
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static PLAN: RefCell<(Plan, Floats)> = RefCell::default();
}

/// [`flash`] on a given instruction set.
pub(crate) fn flash_on(isa: Isa, calls: &mut [Call]) {
    let outs: Vec<Mutex<&mut [f32]>> = calls.iter_mut().map(|call| Mutex::new(std::mem::take(&mut call.out))).collect();
    for (call, out) in calls.iter().zip(&outs) {
        check(&call.inputs(), lock(out).len());
    }
    PLAN.with_borrow_mut(|(plan, kept)| {
        plan.make(calls.iter().map(Call::inputs), pool::threads());
        run(isa, calls, &outs, plan, kept);
    });
    for (call, out) in calls.iter_mut().zip(outs) {
        call.out = out.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
}

fn run(isa: Isa, calls: &[Call], outs: &[Mutex<&mut [f32]>], plan: &Plan, kept: &mut Floats) {
    kept.reserve(plan.parts.iter().sum());
    let mut rest = &mut kept[..];
    let mut parts: Vec<Mutex<&mut [f32]>> = Vec::with_capacity(plan.parts.len());
    for &len in &plan.parts {
        let (part, after) = rest.split_at_mut(len);
        parts.push(Mutex::new(part));
        rest = after;
    }
    pool::parallel(plan.tasks.len(), |i| {
        let task = &plan.tasks[i];
        let tile = &plan.tiles[task.tile];
        let kept = task.part.map(|part| &parts[part]);
        let mut job = Job { inputs: calls[tile.call].inputs(), tile, task, out: &outs[tile.call], kept };
        SCRATCH.with_borrow_mut(|scratch| run_task(isa, &mut job, scratch));
    });
    pool::parallel(plan.divided.len(), |i| {
        let divided = &plan.divided[i];
        let tile = &plan.tiles[divided.tile];
        let (inputs, out) = (calls[tile.call].inputs(), &outs[tile.call]);
        SCRATCH.with_borrow_mut(|scratch| {
            merge_parts(isa, &inputs, tile, &parts[divided.parts.clone()], scratch, out);
        });
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(inputs: &Inputs, out: usize) {
    let shape = inputs.shape;
    assert!(shape.kv_heads > 0 && shape.heads.is_multiple_of(shape.kv_heads), "heads do not divide: {shape:?}");
    assert_eq!(inputs.query.len(), inputs.rows() * shape.heads * shape.key_dim, "the query's size");
    let kv = inputs.kv;
    let across = kv.layout == KvLayout::KeysAcross;
    let whole = kv.block_tokens == CUT && kv.first.is_multiple_of(CUT) && !kv.values_in_keys;
    assert!(!across || whole, "keys on their side in blocks of {} tokens from {}", kv.block_tokens, kv.first);
    assert_eq!(out, inputs.rows() * shape.heads * shape.value_dim, "the output's size");
}

/// A task with what it reads and writes.
struct Job<'a, 'b, 'c, 'd> {
    inputs: Inputs<'a, 'b>,
    tile: &'b Tile,
    task: &'b Task,
    out: &'b Mutex<&'c mut [f32]>,
    /// The part of a divided tile.
    kept: Option<&'b Mutex<&'d mut [f32]>>,
}

for_each_arch! {
    fn run_task(job: &mut Job, scratch: &mut Scratch) = task_body
}

for_each_arch! {
    fn merge_parts(
        inputs: &Inputs,
        tile: &Tile,
        parts: &[Mutex<&mut [f32]>],
        scratch: &mut Scratch,
        out: &Mutex<&mut [f32]>,
    ) = merge_body
}

#[inline(always)]
fn task_body<A: Arch>(_: A, job: &mut Job, scratch: &mut Scratch) {
    let (inputs, tile) = (&job.inputs, job.tile);
    scratch.prepare::<A>(inputs, tile.kv_head, tile.rows.clone());
    let (rows, stride) = (scratch.place.rows(), scratch.value_stride);
    let mut kept = job.kept.map(lock);
    let mut lists = kept.as_mut().map(|list| list.chunks_exact_mut(tile.kept()));
    let cuts = job.task.cuts.clone();
    for cut in cuts.clone() {
        let next = Some(cut + 1).filter(|next| cuts.contains(next));
        let list = lists.as_mut().and_then(Iterator::next);
        take_cut::<A>(inputs, scratch, cut, next, list.map(|list| Reduced::of_mut(list, rows, stride)));
    }
    if job.kept.is_none() {
        scratch.state.finish::<A>(inputs, tile.kv_head, tile.rows.clone(), &mut lock(job.out));
    }
}

#[inline(always)]
fn merge_body<A: Arch>(
    _: A,
    inputs: &Inputs,
    tile: &Tile,
    parts: &[Mutex<&mut [f32]>],
    scratch: &mut Scratch,
    out: &Mutex<&mut [f32]>,
) {
    let (rows, stride) = (tile.rows.len() * inputs.shape.group(), inputs.shape.value_dim.next_multiple_of(PAD));
    scratch.clear(rows, stride);
    for part in parts {
        for list in lock(part).chunks_exact(tile.kept()) {
            scratch.merge::<A>(Reduced::of(list, rows, stride));
        }
    }
    scratch.state.finish::<A>(inputs, tile.kv_head, tile.rows.clone(), &mut lock(out));
}
