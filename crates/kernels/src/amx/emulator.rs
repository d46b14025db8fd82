//! Carries out the instructions of [`super`] where the processor lacks them, for tests: it refuses them, the system sends
//! the thread a signal, and the handler does what Intel's Software Developer's Manual (volume 2, each instruction's
//! "Operation") says they do, and goes on behind them. A fault that the processor would raise for a wrong use (shapes that
//! do not fit each other, a tile that is none) is left to end the program.

use std::cell::RefCell;
use std::sync::OnceLock;

/// One instruction, with its addresses computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instruction {
    LoadShapes { from: usize },
    Release,
    Zero { tile: usize },
    Load { tile: usize, from: usize, stride: usize },
    Store { tile: usize, to: usize, stride: usize },
    DotBytes { sums: usize, x: usize, w: usize },
    DotPairs { sums: usize, x: usize, w: usize },
}

/// The instruction that `code` begins with and its length, with `register(n)` for what register `n` holds (`rax`, `rcx`,
/// `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` ...); `None` for any other than those of this module.
pub(super) fn decode(code: impl Fn(usize) -> u8, register: impl Fn(usize) -> usize) -> Option<(Instruction, usize)> {
    // Three bytes of VEX: map 0F38, no W, 128 bits; the upper register bits and `vvvv` are stored inverted.
    let (first, second, opcode, operands) = (code(1), code(2), code(3), code(4));
    if code(0) != 0xc4 || first & 0x1f != 2 || second & 0x84 != 0 {
        return None;
    }
    let (vvvv, prefix) = (usize::from(!(second >> 3) & 15), second & 3);
    let (mode, reg, rm) = (operands >> 6, usize::from(operands >> 3 & 7), usize::from(operands & 7));
    // Tiles have no upper register bit; it is written as absent.
    let plain = first & 0x80 != 0;
    if mode == 3 {
        let none = plain && first & 0x60 == 0x60;
        let instruction = match (opcode, prefix) {
            (0x49, 0) if none && vvvv == 0 && operands == 0xc0 => Instruction::Release,
            (0x49, 3) if none && vvvv == 0 && rm == 0 => Instruction::Zero { tile: reg },
            (0x5e, 3) if none && vvvv < 8 => Instruction::DotBytes { sums: reg, x: rm, w: vvvv },
            (0x5c, 2) if none && vvvv < 8 => Instruction::DotPairs { sums: reg, x: rm, w: vvvv },
            _ => return None,
        };
        return Some((instruction, 5));
    }
    let extended = |bit: u8, low: usize| low + if first & bit == 0 { 8 } else { 0 };
    let (base, index, after) = if rm == 4 {
        let sib = code(5);
        let (scale, index) = (sib >> 6, extended(0x40, usize::from(sib >> 3 & 7)));
        // Register 4 as an index means none.
        let index = if index == 4 { 0 } else { register(index) << scale };
        let base = usize::from(sib & 7);
        (Some(extended(0x20, base)).filter(|_| mode != 0 || base != 5), Some(index), 6)
    } else {
        // Without a mode, register 5 means the place of the instruction: never emitted here.
        (Some(extended(0x20, rm)).filter(|_| mode != 0 || rm != 5), None, 5)
    };
    let (displacement, length) = match mode {
        0 => (0, after),
        1 => (code(after) as i8 as isize, after + 1),
        _ => (i32::from_le_bytes(std::array::from_fn(|i| code(after + i))) as isize, after + 4),
    };
    let address = register(base?).wrapping_add_signed(displacement);
    let instruction = match (opcode, prefix, index) {
        (0x49, 0, index) if plain && vvvv == 0 && reg == 0 => {
            Instruction::LoadShapes { from: address.wrapping_add(index.unwrap_or(0)) }
        }
        (0x4b, 3, Some(stride)) if plain && vvvv == 0 => Instruction::Load { tile: reg, from: address, stride },
        (0x4b, 2, Some(stride)) if plain && vvvv == 0 => Instruction::Store { tile: reg, to: address, stride },
        _ => return None,
    };
    Some((instruction, length))
}

/// A tile as the shapes say: rows, and bytes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    rows: usize,
    bytes: usize,
}

/// The tiles of one thread.
pub(super) struct Unit {
    /// None before the first shapes and after a release.
    shapes: Option<[Shape; 8]>,
    tiles: [[[u8; 64]; 16]; 8],
}

/// Why an instruction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    NoShapes,
    IllegalShapes,
    TheTilesDoNotFit,
}

impl Unit {
    pub(super) const INITIAL: Unit = Unit { shapes: None, tiles: [[[0; 64]; 16]; 8] };

    /// Does what the instruction does.
    ///
    /// # Safety
    /// The memory that it names may be read or written.
    pub(super) unsafe fn execute(&mut self, instruction: Instruction) -> Result<(), Fault> {
        match instruction {
            Instruction::LoadShapes { from } => {
                // SAFETY: passed on.
                let bytes = unsafe { (from as *const [u8; 64]).read_unaligned() };
                *self = Unit { shapes: Some(shapes(&bytes)?), ..Unit::INITIAL };
            }
            Instruction::Release => *self = Unit::INITIAL,
            Instruction::Zero { tile } => {
                self.shape(tile)?;
                self.tiles[tile] = [[0; 64]; 16];
            }
            Instruction::Load { tile, from, stride } => {
                let Shape { rows, bytes } = self.shape(tile)?;
                self.tiles[tile] = [[0; 64]; 16];
                for (row, out) in self.tiles[tile][..rows].iter_mut().enumerate() {
                    // SAFETY: passed on.
                    unsafe { ((from + row * stride) as *const u8).copy_to_nonoverlapping(out.as_mut_ptr(), bytes) };
                }
            }
            Instruction::Store { tile, to, stride } => {
                let Shape { rows, bytes } = self.shape(tile)?;
                for (row, from) in self.tiles[tile][..rows].iter().enumerate() {
                    // SAFETY: passed on.
                    unsafe { ((to + row * stride) as *mut u8).copy_from_nonoverlapping(from.as_ptr(), bytes) };
                }
            }
            Instruction::DotBytes { sums, x, w } => self.dot(sums, x, w, dot_bytes)?,
            Instruction::DotPairs { sums, x, w } => self.dot(sums, x, w, dot_pairs)?,
        }
        Ok(())
    }

    /// The shape of a tile that may be used.
    fn shape(&self, tile: usize) -> Result<Shape, Fault> {
        let shape = self.shapes.ok_or(Fault::NoShapes)?[tile];
        if shape.rows == 0 || shape.bytes == 0 { Err(Fault::TheTilesDoNotFit) } else { Ok(shape) }
    }

    /// Adds products to each row of the sums.
    fn dot(
        &mut self,
        sums: usize,
        x: usize,
        w: usize,
        add: impl Fn(&[u8], &[[u8; 64]], &mut [u8]),
    ) -> Result<(), Fault> {
        let (of_sums, of_x, of_w) = (self.shape(sums)?, self.shape(x)?, self.shape(w)?);
        let four = [of_sums, of_x, of_w].iter().all(|shape| shape.bytes.is_multiple_of(4));
        let fit = of_sums.rows == of_x.rows && of_x.bytes == 4 * of_w.rows && of_sums.bytes == of_w.bytes;
        if !four || !fit || sums == x || sums == w || x == w {
            return Err(Fault::TheTilesDoNotFit);
        }
        let (x, w) = (self.tiles[x], self.tiles[w]);
        for (sums, x) in self.tiles[sums][..of_sums.rows].iter_mut().zip(&x) {
            add(&x[..of_x.bytes], &w[..of_w.rows], &mut sums[..of_sums.bytes]);
        }
        Ok(())
    }
}

/// Reads what `ldtilecfg` reads.
fn shapes(bytes: &[u8; 64]) -> Result<[Shape; 8], Fault> {
    let unused = [&bytes[1..16], &bytes[32..48], &bytes[56..64]];
    if bytes[0] != 1 || unused.iter().any(|bytes| bytes.iter().any(|&byte| byte != 0)) {
        return Err(Fault::IllegalShapes);
    }
    let mut shapes = [Shape { rows: 0, bytes: 0 }; 8];
    for (tile, shape) in shapes.iter_mut().enumerate() {
        let row_bytes = u16::from_le_bytes([bytes[16 + 2 * tile], bytes[17 + 2 * tile]]);
        *shape = Shape { rows: usize::from(bytes[48 + tile]), bytes: usize::from(row_bytes) };
        if shape.rows > 16 || shape.bytes > 64 || (shape.rows == 0) != (shape.bytes == 0) {
            return Err(Fault::IllegalShapes);
        }
    }
    Ok(shapes)
}

/// Signed bytes times signed bytes, four to a sum.
fn dot_bytes(x: &[u8], w: &[[u8; 64]], sums: &mut [u8]) {
    for (x, w) in x.as_chunks::<4>().0.iter().zip(w) {
        for (sum, w) in sums.as_chunks_mut::<4>().0.iter_mut().zip(w.as_chunks::<4>().0) {
            let products = x.iter().zip(w).map(|(&x, &w)| i32::from(x as i8) * i32::from(w as i8));
            *sum = i32::from_le_bytes(*sum).wrapping_add(products.sum()).to_le_bytes();
        }
    }
}

/// Pairs of bf16: the products with the first of each pair and those with the second are added up apart, then to each
/// other, then to the sum.
fn dot_pairs(x: &[u8], w: &[[u8; 64]], sums: &mut [u8]) {
    let pair = |bytes: &[u8; 4]| {
        let wide = |low, high| flushed(f32::from_bits(u32::from(u16::from_le_bytes([low, high])) << 16));
        [wide(bytes[0], bytes[1]), wide(bytes[2], bytes[3])]
    };
    let mut parts = [[0.0f32; 2]; 16];
    for (x, w) in x.as_chunks::<4>().0.iter().zip(w) {
        let x = pair(x);
        for (part, w) in parts.iter_mut().zip(w.as_chunks::<4>().0) {
            let w = pair(w);
            for half in 0..2 {
                part[half] = flushed(x[half].mul_add(w[half], part[half]));
            }
        }
    }
    for (sum, [first, second]) in sums.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
        let before = flushed(f32::from_le_bytes(*sum));
        *sum = flushed(before + flushed(first + second)).to_le_bytes();
    }
}

/// 0, with its sign, in place of a number below the normal ones.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

thread_local! {
    static UNIT: RefCell<Unit> = const { RefCell::new(Unit::INITIAL) };
}

/// Puts the handler in place; false where the system declines.
pub(super) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: the structure is plain data for which zeros are valid; the handler has the type that the flag says.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = refused as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()) == 0
        }
    })
}

/// Called by the system in the place of an instruction that the processor refuses.
extern "C" fn refused(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    use libc::*;
    const REGISTERS: [c_int; 16] = [
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11,
        REG_R12, REG_R13, REG_R14, REG_R15,
    ];
    // SAFETY: the system hands over the state of the thread, which stands still until this function returns.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let at = registers[REG_RIP as usize] as usize;
    // SAFETY: the bytes are those of the instruction, read one after the other as far as it goes.
    let code = |offset: usize| unsafe { *((at + offset) as *const u8) };
    let decoded = decode(code, |register| registers[REGISTERS[register] as usize] as usize);
    let done = decoded.and_then(|(instruction, length)| {
        // SAFETY: memory that the instruction may not touch faults here as it would there.
        let done = UNIT.with_borrow_mut(|unit| unsafe { unit.execute(instruction) });
        done.ok().map(|()| length)
    });
    match done {
        Some(length) => registers[REG_RIP as usize] += length as i64,
        None => {
            // Refused again, without this handler, it ends the program as it should.
            // SAFETY: the default is an action.
            unsafe { signal(SIGILL, SIG_DFL) };
        }
    }
}
