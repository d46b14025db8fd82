//! Reads the keys and values of a cut from the cache: widened, and the keys turned on their side.

use super::Inputs;
use super::ahead::Ahead;
use super::cut::{CUT, PAD, Scratch};
use super::kv::{KvLayout, Side};
use crate::arch::Arch;
use std::ops::Range;

/// Loads the keys and values of a cut that any row needs, `span` counted from the cut's start, sixteen at a time. The
/// columns of keys outside the span may hold anything.
#[inline(always)]
pub(super) fn load<A: Arch>(inputs: &Inputs, scratch: &mut Scratch, cut: usize, span: Range<usize>, ahead: &mut Ahead) {
    let (key_stride, value_stride) = (scratch.key_stride, scratch.value_stride);
    let kv_head = scratch.place.kv_head;
    let across = inputs.kv.layout == KvLayout::KeysAcross;
    if across {
        inputs.kv.widen_across::<A>(&inputs.shape, cut, kv_head, &span, &mut scratch.keys);
    }
    for group in (span.start / PAD * PAD..span.end).step_by(PAD) {
        let slots = group.max(span.start)..(group + PAD).min(span.end);
        let tokens = cut * CUT + slots.start..cut * CUT + slots.end;
        ahead.fetch::<A>();
        if !across {
            let rows = &mut scratch.key_rows[(slots.start - group) * key_stride..];
            widen::<A>(inputs, Side::Key, tokens.clone(), kv_head, (rows, key_stride));
        }
        for d in (0..key_stride).step_by(PAD) {
            ahead.fetch::<A>();
            if !across {
                A::transpose(&scratch.key_rows[d..], key_stride, &mut scratch.keys[d * CUT + group..], CUT);
            }
        }
        ahead.fetch::<A>();
        let rows = &mut scratch.values[slots.start * value_stride..];
        widen::<A>(inputs, Side::Value, tokens, kv_head, (rows, value_stride));
    }
}

/// Widens one head's rows of absolute tokens, block by block, into rows that lie a stride apart.
#[inline(always)]
fn widen<A: Arch>(
    inputs: &Inputs,
    side: Side,
    mut tokens: Range<usize>,
    kv_head: usize,
    (mut out, stride): (&mut [f32], usize),
) {
    loop {
        let run = inputs.kv.run(&inputs.shape, side, tokens.clone(), kv_head);
        run.widen::<A>(out, stride);
        tokens.start += run.rows;
        if tokens.is_empty() {
            return;
        }
        out = &mut out[run.rows * stride..];
    }
}
