//! Rotary position embedding (Su et al. 2021): pairs of elements of a head turn by an angle that grows with position.

use crate::arch::{Arch, for_each_arch};
use crate::chunks::{parallel_chunks, row_chunk};
use crate::isa::machine;

/// Which elements of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Pairing {
    /// Element `i` turns with element `i + dim/2` (Llama, NeoX).
    Halves,
    /// Element `2i` turns with element `2i + 1` (GPT-J, Cohere).
    Interleaved,
}

/// The angles of some rows, and how a head is laid out.
#[derive(Debug, Clone, Copy)]
pub struct RopeRows<'a> {
    pub head_dim: usize,
    /// How many elements at the head's start turn; the rest stay.
    pub rotary_dim: usize,
    pub pairing: Pairing,
    /// `[rows, rotary_dim / 2]`, attention factor included.
    pub cos: &'a [f32],
    /// `[rows, rotary_dim / 2]`, attention factor included.
    pub sin: &'a [f32],
}

/// Turns `x`, `[rows, heads * head_dim]`, in place: `(a, b)` becomes `(a cos - b sin, a sin + b cos)`.
pub fn rotate(x: &mut [f32], heads: usize, rope: &RopeRows) {
    turn(x, heads, rope, 1.0);
}

/// The transpose of [`rotate`], which carries gradients back: the inverse rotation where the attention factor is 1.
pub fn rotate_back(x: &mut [f32], heads: usize, rope: &RopeRows) {
    turn(x, heads, rope, -1.0);
}

fn turn(x: &mut [f32], heads: usize, rope: &RopeRows, sign: f32) {
    let (width, half) = (heads * rope.head_dim, rope.rotary_dim / 2);
    if half == 0 || width == 0 {
        return;
    }
    let isa = machine().isa;
    parallel_chunks(x, row_chunk(width), |start, rows| {
        let angles = start / width * half..(start + rows.len()) / width * half;
        let part = RopeRows { cos: &rope.cos[angles.clone()], sin: &rope.sin[angles], ..*rope };
        turn_rows(isa, rows, width, &part, sign);
    });
}

for_each_arch! {
    fn turn_rows(x: &mut [f32], width: usize, rope: &RopeRows, sign: f32) = turn_body
}

#[inline(always)]
fn turn_body<A: Arch>(_: A, x: &mut [f32], width: usize, rope: &RopeRows, sign: f32) {
    let half = rope.rotary_dim / 2;
    let tables = rope.cos.chunks_exact(half).zip(rope.sin.chunks_exact(half));
    for (row, (cos, sin)) in x.chunks_exact_mut(width).zip(tables) {
        for head in row.chunks_exact_mut(rope.head_dim) {
            let rotated = &mut head[..2 * half];
            match rope.pairing {
                Pairing::Halves => {
                    let (first, second) = rotated.split_at_mut(half);
                    for ((a, b), (&cos, &sin)) in first.iter_mut().zip(second).zip(cos.iter().zip(sin)) {
                        (*a, *b) = turned(*a, *b, cos, sin * sign);
                    }
                }
                Pairing::Interleaved => {
                    for (pair, (&cos, &sin)) in rotated.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                        (pair[0], pair[1]) = turned(pair[0], pair[1], cos, sin * sign);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn turned(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}
