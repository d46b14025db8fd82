//! How the codes of sixteen rows lie in a panel.
//!
//! A run of 32 inputs has eight groups of four. A group is 64 bytes: four codes for each of sixteen rows, so that one
//! byte instruction multiplies sixteen outputs and nothing needs to be summed across a register. Codes of fewer than
//! eight bits are cut into planes of 4, 2 or 1 bits; a byte of a plane holds the same place of 2, 4 or 8 groups. The
//! planes of a run follow each other and take exactly the bits that the file's layout takes.

use crate::lanes::{Lanes, WIDTH};
use crate::quant::{Block, Coding, MAX_BLOCK};

/// Inputs of a run: what one scale of the activations covers.
pub(crate) const RUN: usize = 32;
/// Bytes of a group.
const GROUP: usize = 4 * WIDTH;

/// Bytes that a run of `bits`-bit codes takes for sixteen rows.
pub(crate) const fn run_bytes(bits: usize) -> usize {
    WIDTH * RUN / 8 * bits
}

/// The planes of a code: width, and the position of the lowest bit in the code.
const fn planes(bits: usize) -> &'static [(usize, usize)] {
    match bits {
        8 => &[(8, 0)],
        6 => &[(4, 0), (2, 4)],
        5 => &[(4, 0), (1, 4)],
        4 => &[(4, 0)],
        3 => &[(2, 0), (1, 2)],
        _ => &[(2, 0)],
    }
}

/// Packs the codes of sixteen rows into the zeroed runs of a panel's block.
pub(crate) fn pack<B: Block>(rows: &[[u8; MAX_BLOCK]; WIDTH], out: &mut [u8]) {
    for (run, out) in out.chunks_exact_mut(run_bytes(B::BITS)).enumerate() {
        for group in 0..RUN / 4 {
            let mut codes = [0; GROUP];
            let first = run * RUN + 4 * group;
            for (codes, row) in codes.chunks_exact_mut(4).zip(rows) {
                codes.copy_from_slice(&row[first..first + 4]);
            }
            let mut base = 0;
            for &(width, low) in planes(B::BITS) {
                let per_byte = 8 / width;
                let (mask, shift) = (0xff_u8 >> (8 - width), width * (group % per_byte));
                let plane = &mut out[base + group / per_byte * GROUP..][..GROUP];
                for (byte, code) in plane.iter_mut().zip(&codes) {
                    *byte |= (code >> low & mask) << shift;
                }
                base += run_bytes(width);
            }
        }
    }
}

/// The bits of `group` in the plane of `width` bits that begins at `base`, moved to their place in the code.
#[inline(always)]
fn plane<L: Lanes>(l: L, run: &[[u8; GROUP]], base: usize, width: usize, low: usize, group: usize) -> L::B {
    let per_byte = 8 / width;
    let bytes = l.bytes(&run[base + group / per_byte]);
    if width == 8 {
        return bytes;
    }
    let shift = (width * (group % per_byte)) as i32 - low as i32;
    l.field(bytes, shift, (0xff >> (8 - width)) << low)
}

/// The codes of a group (0..8) of a run; for types with a table, what they stand for.
#[inline(always)]
pub(crate) fn group<L: Lanes, B: Block>(l: L, run: &[[u8; GROUP]], group: usize) -> L::B {
    let codes = match B::BITS {
        8 => plane(l, run, 0, 8, 0, group),
        6 => l.or(plane(l, run, 0, 4, 0, group), plane(l, run, 4, 2, 4, group)),
        5 => l.or(plane(l, run, 0, 4, 0, group), plane(l, run, 4, 1, 4, group)),
        4 => plane(l, run, 0, 4, 0, group),
        3 => l.or(plane(l, run, 0, 2, 0, group), plane(l, run, 2, 1, 2, group)),
        _ => plane(l, run, 0, 2, 0, group),
    };
    match B::CODING {
        Coding::Table(table) => l.lookup(codes, table),
        Coding::Unsigned { .. } | Coding::Signed => codes,
    }
}

/// [`group`] for the output `lane` alone.
#[inline(always)]
pub(crate) fn four_of<B: Block>(run: &[[u8; GROUP]], group: usize, lane: usize) -> [u8; 4] {
    let mut codes = 0;
    let mut base = 0;
    for &(width, low) in planes(B::BITS) {
        let per_byte = 8 / width;
        let bytes = &run[base + group / per_byte].as_chunks().0[lane];
        // Four bytes at once: the mask clears what a shift brings in from the neighbour.
        let mask = (0xff_u32 >> (8 - width)) * 0x0101_0101;
        codes |= (u32::from_le_bytes(*bytes) >> (width * (group % per_byte)) & mask) << low;
        base += run_bytes(width) / GROUP;
    }
    let codes = codes.to_le_bytes();
    match B::CODING {
        Coding::Table(table) => codes.map(|code| table[usize::from(code)] as u8),
        Coding::Unsigned { .. } | Coding::Signed => codes,
    }
}

/// The groups' bytes of run `run` of a panel's block.
#[inline(always)]
pub(crate) fn run_of<B: Block>(codes: &[u8], run: usize) -> &[[u8; GROUP]] {
    let bytes = run_bytes(B::BITS);
    let (groups, _) = codes[run * bytes..][..bytes].as_chunks::<GROUP>();
    groups
}
