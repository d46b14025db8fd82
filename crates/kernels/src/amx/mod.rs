//! Tiles: the eight registers of x86-64's AMX, of up to sixteen rows of 64 bytes, and the instructions that multiply them.
//!
//! A tile of activations (a row for each row) times a tile of weights (a row for each four bytes, or two bf16, of
//! sixteen outputs, which is how panels lie in memory) is added to a tile of sums (a row for each row, sixteen outputs).
//! The layouts and the instructions are those of Intel's Software Developer's Manual, volumes 1 (chapter 18) and 2.
//!
//! Every method is one block of instructions that leaves its sums in memory: between two blocks no value stays in a tile,
//! of which the compiler knows nothing; only the shapes do, while a [`Tiles`] lives. The compiler has to take it that a
//! block reads and writes memory that it can reach, so that the shapes and what is multiplied are stored before it runs.

mod detect;
#[cfg(test)]
mod emulator;

pub(crate) use detect::{has_amx, may_run_amx};

use crate::lanes::WIDTH;
use std::arch::asm;
use std::marker::PhantomData;

/// Rows of a whole tile.
pub(crate) const ROWS: usize = 16;

/// 32 bf16 activations of one row: a row of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct PairRow(pub(crate) [u16; 32]);

/// Whole sums of sixteen rows, by outputs.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct CodeSums(pub(crate) [[i32; WIDTH]; ROWS]);

impl CodeSums {
    pub(crate) const ZERO: CodeSums = CodeSums([[0; WIDTH]; ROWS]);
}

/// What the tiles look like: 64 bytes as `ldtilecfg` reads them.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Rows and bytes of a row of each tile.
    const fn new(tiles: [(u8, u16); 8]) -> Shapes {
        let mut shapes = Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < tiles.len() {
            (shapes.rows[tile], shapes.row_bytes[tile]) = tiles[tile];
            tile += 1;
        }
        shapes
    }
}

/// The tiles of this thread with their shapes set. Gives them back when it is dropped: a thread whose tiles are in use
/// costs the system more to put aside.
struct Tiles(PhantomData<*mut ()>);

impl Tiles {
    /// # Safety
    /// The machine has AMX; no other `Tiles` lives in this thread.
    unsafe fn new(shapes: &Shapes) -> Tiles {
        // SAFETY: the instruction is there, says the caller, and reads 64 bytes that describe legal shapes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack, preserves_flags)) };
        Tiles(PhantomData)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the machine has AMX, as whoever made the value has said.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

/// Tiles shaped for products of signed bytes: sixteen rows of `INPUTS` (16 or 32) activations.
pub(crate) struct CodeTiles<const INPUTS: usize>(#[allow(dead_code)] Tiles);

/// Multiplies with the tiles named: sums, activations, weights.
macro_rules! multiply_codes {
    ($sums:tt, $x:tt, $w:tt: $from:expr, $weights:expr, $to:expr) => {
        asm!(
            concat!("tilezero ", $sums),
            concat!("tileloadd ", $x, ", [{x} + {x_stride}*1]"),
            concat!("tileloadd ", $w, ", [{w} + {stride}*1]"),
            concat!("tdpbssd ", $sums, ", ", $x, ", ", $w),
            concat!("tilestored [{to} + {stride}*1], ", $sums),
            x = in(reg) $from,
            w = in(reg) $weights,
            to = in(reg) $to,
            x_stride = in(reg) 32usize,
            stride = in(reg) 64usize,
            out($sums) _, out($x) _, out($w) _,
            options(nostack, preserves_flags)
        )
    };
}

impl<const INPUTS: usize> CodeTiles<INPUTS> {
    const SHAPES: Shapes = {
        let (sums, x, w) = ((16, 64), (16, INPUTS as u16), (INPUTS as u8 / 4, 64));
        Shapes::new([sums, sums, x, x, w, w, (0, 0), (0, 0)])
    };

    /// # Safety
    /// The machine has AMX; no tiles in this thread are shaped for something else.
    pub(crate) unsafe fn new() -> Self {
        // SAFETY: passed on.
        CodeTiles(unsafe { Tiles::new(&Self::SHAPES) })
    }

    /// `sums[row][output]`: the sum over the `INPUTS` inputs from `first` on of `x[row][input]` times the weights, which
    /// are four inputs of each output to a group, `w[0]` with the first of them. Products that follow each other do not
    /// wait for each other's tiles where they take `SET` 0 and 1 by turns.
    ///
    /// # Panics
    /// When there are no such inputs or weights.
    #[inline(always)]
    pub(crate) fn multiply<const SET: usize>(
        &self,
        x: &[[i8; 32]; ROWS],
        first: usize,
        w: &[[u8; 64]],
        sums: &mut CodeSums,
    ) {
        const { assert!((INPUTS == 16 || INPUTS == 32) && SET < 2) };
        assert!(first + INPUTS <= 32 && w.len() >= INPUTS / 4, "inputs of a tile");
        // SAFETY: `self` proves that the instructions are there and the tiles shaped: sixteen rows of `INPUTS` bytes,
        // 32 apart, are read from `first` on, `INPUTS / 4` rows of 64 bytes from `w`, and sixteen of 64 written to `sums`.
        unsafe {
            let (x, w, sums) = (x.as_ptr().cast::<i8>().add(first), w.as_ptr(), &raw mut sums.0);
            if SET == 0 {
                multiply_codes!("tmm0", "tmm2", "tmm4": x, w, sums);
            } else {
                multiply_codes!("tmm1", "tmm3", "tmm5": x, w, sums);
            }
        }
    }
}

/// Tiles shaped for products of bf16, of up to sixteen rows.
pub(crate) struct PairTiles {
    #[allow(dead_code)]
    tiles: Tiles,
    rows: usize,
}

impl PairTiles {
    /// Tiles of `rows` rows of activations.
    ///
    /// # Safety
    /// The machine has AMX; no tiles in this thread are shaped for something else.
    ///
    /// # Panics
    /// When `rows` is not 1 to 16.
    pub(crate) unsafe fn new(rows: usize) -> Self {
        assert!((1..=ROWS).contains(&rows), "rows of a tile");
        let few = (rows as u8, 64);
        let shapes = Shapes::new([few, few, few, few, few, few, (16, 64), (16, 64)]);
        // SAFETY: passed on; the shapes are legal for 1 to 16 rows.
        PairTiles { tiles: unsafe { Tiles::new(&shapes) }, rows }
    }

    /// Adds to the sums of one tile the products of sixteen outputs: `x` is `[step][row]`, `w` `[step][16 pairs of
    /// inputs]`. Within a step the products with the first input of every pair are added up, those with the second
    /// likewise, and the two to the sum, all in f32; numbers below 2^-126 count as 0.
    ///
    /// # Panics
    /// When there are too few of something.
    pub(crate) fn add_one(&self, steps: usize, x: &[PairRow], w: &[[u8; 64]], sums: &mut [[f32; WIDTH]]) {
        assert!(steps > 0 && x.len() >= steps * self.rows && w.len() >= steps * 16, "inputs of a tile");
        assert!(sums.len() >= self.rows, "sums of a tile");
        // SAFETY: `self` proves that the instructions are there and the tiles shaped; each step reads `rows` rows of 64
        // bytes of `x` and 16 of `w`, and the sums are `rows` rows of 64 bytes: all are there, as was just asserted.
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {stride}*1]",
                "2:",
                "tileloadd tmm4, [{x} + {stride}*1]",
                "tileloadd tmm6, [{w} + {stride}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "add {x}, {x_step}",
                "add {w}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{sums} + {stride}*1], tmm0",
                x = inout(reg) x.as_ptr() => _,
                w = inout(reg) w.as_ptr() => _,
                steps = inout(reg) steps => _,
                sums = in(reg) sums.as_mut_ptr(),
                x_step = in(reg) 64 * self.rows,
                stride = in(reg) 64usize,
                out("tmm0") _, out("tmm4") _, out("tmm6") _,
                options(nostack)
            );
        }
    }

    /// As [`PairTiles::add_one`] for two whole tiles of rows, which follow each other, by two panels.
    ///
    /// # Panics
    /// When there are too few of something, or tiles have less than sixteen rows.
    pub(crate) fn add_four(
        &self,
        steps: usize,
        x: [&[PairRow]; 2],
        w: [&[[u8; 64]]; 2],
        sums: [&mut [[f32; WIDTH]; 2 * ROWS]; 2],
    ) {
        assert!(self.rows == ROWS && steps > 0, "whole tiles");
        assert!(
            x.iter().all(|x| x.len() >= steps * ROWS) && w.iter().all(|w| w.len() >= steps * 16),
            "inputs of tiles"
        );
        let [first, second] = sums;
        // SAFETY: as in `add_one`; the sums of the second tile of rows begin 1024 bytes after those of the first.
        unsafe {
            asm!(
                "tileloadd tmm0, [{first} + {stride}*1]",
                "tileloadd tmm1, [{second} + {stride}*1]",
                "tileloadd tmm2, [{first} + {stride}*1 + 1024]",
                "tileloadd tmm3, [{second} + {stride}*1 + 1024]",
                "2:",
                "tileloadd tmm4, [{x0} + {at}*1]",
                "tileloadd tmm6, [{w0} + {at}*1]",
                "tileloadd tmm5, [{x1} + {at}*1]",
                "tileloadd tmm7, [{w1} + {at}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {x0}, 1024",
                "add {x1}, 1024",
                "add {w0}, 1024",
                "add {w1}, 1024",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{first} + {stride}*1], tmm0",
                "tilestored [{second} + {stride}*1], tmm1",
                "tilestored [{first} + {stride}*1 + 1024], tmm2",
                "tilestored [{second} + {stride}*1 + 1024], tmm3",
                x0 = inout(reg) x[0].as_ptr() => _,
                x1 = inout(reg) x[1].as_ptr() => _,
                w0 = inout(reg) w[0].as_ptr() => _,
                w1 = inout(reg) w[1].as_ptr() => _,
                steps = inout(reg) steps => _,
                first = in(reg) first.as_mut_ptr(),
                second = in(reg) second.as_mut_ptr(),
                stride = in(reg) 64usize,
                at = in(reg) 64usize,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

#[cfg(test)]
mod tests;
