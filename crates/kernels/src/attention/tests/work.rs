//! Bits under every way of cutting the work, and the cutting itself.

use super::*;
use crate::attention::plan::Plan;
use crate::pool;

/// Whole, chunked, token by token; one block or many; one thread or several; alone or with others: the same bits.
#[test]
fn bits_do_not_depend_on_how_the_work_is_cut() {
    let mut random = Random(4);
    let before = pool::threads();
    for mask in MASKS
        .into_iter()
        .filter(|mask| matches!(mask, Mask::Causal | Mask::Chunked { .. } | Mask::Window { right: 0, .. }))
    {
        let mut problem = Problem::new(&mut random, heads(6, 2, 40, 32), 300, 300, mask);
        problem.set_bias(2, &mut random);
        problem.sinks = Some(random.normals(6));
        for isa in available() {
            pool::set_threads(1);
            let whole = KvBlocks::from_f32(&problem.key, &problem.value, problem.keys);
            let want = problem.flash(isa, &whole);
            for (threads, chunk, block_tokens, layout) in [
                (1, 1, 300, KvLayout::TokenMajor),
                (3, 1, 16, KvLayout::HeadMajor),
                (2, 7, 17, KvLayout::TokenMajor),
                (4, 64, 32, KvLayout::HeadMajor),
                (2, 133, 64, KvLayout::HeadMajor),
                (5, 300, 1, KvLayout::TokenMajor),
                (3, 1, 64, KvLayout::KeysAcross),
                (2, 2, 64, KvLayout::KeysAcross),
                (2, 90, 64, KvLayout::KeysAcross),
            ] {
                pool::set_threads(threads);
                let got = in_chunks(&problem, isa, chunk, (DType::F32, DType::F32), layout, block_tokens);
                assert_same_bits(&format!("{isa} {mask:?} {threads} threads, {chunk} a chunk"), &got, &want);
            }
        }
    }
    pool::set_threads(before);
}

/// Computes a problem chunk by chunk, with only the keys so far in the cache, and all chunks in one list of calls.
fn in_chunks(
    problem: &Problem,
    isa: Isa,
    chunk: usize,
    types: (DType, DType),
    layout: KvLayout,
    block_tokens: usize,
) -> Vec<f32> {
    let stores: Vec<(usize, Store)> = (0..problem.keys)
        .step_by(chunk)
        .map(|start| {
            let end = (start + chunk).min(problem.keys);
            let so_far = Problem {
                keys: end,
                key: problem.key[..end * problem.shape.kv_heads * problem.shape.key_dim].to_vec(),
                value: problem.value[..end * problem.shape.kv_heads * problem.shape.value_dim].to_vec(),
                ..problem.clone()
            };
            (start, so_far.store(types, layout, block_tokens))
        })
        .collect();
    let mut out = vec![f32::NAN; problem.out_len()];
    let (q_width, o_width) =
        (problem.shape.heads * problem.shape.key_dim, problem.shape.heads * problem.shape.value_dim);
    let outs = out.chunks_mut(chunk * o_width);
    let queries = problem.query.chunks(chunk * q_width);
    let mut calls: Vec<Call> = stores
        .iter()
        .zip(queries.zip(outs))
        .map(|((start, store), (query, out))| {
            let scores = problem.scores();
            Call { shape: problem.shape, query, first_query: *start, kv: store.view(), scores, out }
        })
        .collect();
    flash_on(isa, &mut calls);
    drop(calls);
    out
}

/// As the engine has it: blocks of 64 tokens, any cache type, decode and prefill alike.
#[test]
fn tokens_get_the_bits_that_the_prompt_got() {
    let mut random = Random(24);
    let before = pool::threads();
    let types = [DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0];
    for (shape, types) in [heads(7, 1, 64, 64), heads(4, 2, 128, 128), heads(3, 3, 64, 32), heads(16, 1, 96, 64)]
        .into_iter()
        .zip(types.map(|dtype| (dtype, dtype)))
    {
        let problem = Problem::new(&mut random, shape, 270, 270, Mask::Causal);
        let store = problem.store(types, KvLayout::HeadMajor, 64);
        for isa in available() {
            pool::set_threads(1);
            let want = problem.flash(isa, &store.view());
            for (threads, chunk) in [(1, 1), (2, 1), (2, 2), (2, 5), (3, 64), (2, 100)] {
                pool::set_threads(threads);
                for layout in [KvLayout::HeadMajor, KvLayout::KeysAcross] {
                    let got = in_chunks(&problem, isa, chunk, types, layout, 64);
                    let what = format!("{isa} {shape:?} {types:?} {layout:?} {threads} threads, {chunk} a chunk");
                    assert_same_bits(&what, &got, &want);
                }
            }
        }
    }
    pool::set_threads(before);
}

/// The tasks of calls with so many rows over so many keys, on two threads.
fn plan(shape: Heads, calls: &[(usize, usize)]) -> (Plan, Vec<usize>) {
    let problems: Vec<Problem> =
        calls.iter().map(|&(rows, keys)| Problem::new(&mut Random(25), shape, rows, keys, Mask::Causal)).collect();
    let mut outs: Vec<Vec<f32>> = problems.iter().map(|problem| vec![0.0; problem.out_len()]).collect();
    let calls: Vec<Call> = problems
        .iter()
        .zip(&mut outs)
        .map(|(problem, out)| problem.call(KvBlocks::from_f32(&problem.key, &problem.value, problem.keys), out))
        .collect();
    let mut plan = Plan::default();
    plan.make(calls.iter().map(Call::inputs), 2);
    let rows = problems.iter().map(Problem::rows).collect();
    (plan, rows)
}

#[test]
fn every_row_and_cut_is_in_one_task() {
    for (shape, calls) in [
        (heads(4, 2, 8, 8), vec![(1, 5000)]),
        (heads(14, 2, 8, 8), vec![(512, 512)]),
        (heads(6, 6, 8, 8), vec![(1, 3000), (1, 10), (1, 70), (3, 65)]),
        (heads(2, 1, 8, 8), vec![(0, 0), (200, 900)]),
    ] {
        let (plan, rows) = plan(shape, &calls);
        let mut seen = vec![0; plan.tiles.len()];
        for task in &plan.tasks {
            let tile = &plan.tiles[task.tile];
            assert!(task.cuts.start >= tile.cuts.start && task.cuts.end <= tile.cuts.end);
            seen[task.tile] += task.cuts.len();
        }
        for (tile, seen) in plan.tiles.iter().zip(seen) {
            assert_eq!(tile.cuts.len(), seen, "{tile:?}");
        }
        for (call, &rows) in rows.iter().enumerate() {
            for kv_head in 0..shape.kv_heads {
                let of_head = plan.tiles.iter().filter(|tile| tile.call == call && tile.kv_head == kv_head);
                assert_eq!(of_head.map(|tile| tile.rows.len()).sum::<usize>(), rows);
            }
        }
        for divided in &plan.divided {
            let parts: Vec<usize> = plan.tasks.iter().filter_map(|task| task.part).collect();
            assert!(divided.parts.clone().all(|part| parts.contains(&part)), "{divided:?}");
        }
    }
}

/// No thread waits long for another: no task is more than a quarter of the work.
#[test]
fn long_sequences_do_not_hold_up_short_ones() {
    for calls in [vec![(1, 16384)], vec![(1, 16384), (1, 100), (1, 200)], vec![(1, 4096); 3], vec![(64, 64), (1, 9000)]]
    {
        let (plan, _) = plan(heads(3, 3, 8, 8), &calls);
        let costs: Vec<usize> = plan.tasks.iter().map(|task| plan.cost(task)).collect();
        let (most, total) = (costs[0], costs.iter().sum::<usize>());
        assert!(most <= total / 4, "{calls:?}: {most} of {total}");
        assert!(costs.is_sorted_by(|a, b| a >= b));
    }
}
