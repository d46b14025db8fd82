use super::emulator::{Fault, Instruction, Unit, decode};
use super::*;

/// Decodes with register `n` holding `0x1000 (n + 1)`.
fn decoded(code: &[u8]) -> Option<(Instruction, usize)> {
    decode(|at| code.get(at).copied().unwrap_or(0), |register| 0x1000 * (register + 1))
}

/// What an assembler (GNU as 2.40) makes of the instructions, and what they mean.
#[test]
fn instructions_are_read_as_an_assembler_writes_them() {
    use Instruction::*;
    let cases: [(&[u8], Instruction); 17] = [
        // ldtilecfg [rdi]; [rsp + 64]; [r13]; [r12 + 256]
        (&[0xc4, 0xe2, 0x78, 0x49, 0x07], LoadShapes { from: 0x8000 }),
        (&[0xc4, 0xe2, 0x78, 0x49, 0x44, 0x24, 0x40], LoadShapes { from: 0x5040 }),
        (&[0xc4, 0xc2, 0x78, 0x49, 0x45, 0x00], LoadShapes { from: 0xe000 }),
        (&[0xc4, 0xc2, 0x78, 0x49, 0x84, 0x24, 0x00, 0x01, 0x00, 0x00], LoadShapes { from: 0xd100 }),
        // tilerelease
        (&[0xc4, 0xe2, 0x78, 0x49, 0xc0], Release),
        // tilezero tmm0; tmm7
        (&[0xc4, 0xe2, 0x7b, 0x49, 0xc0], Zero { tile: 0 }),
        (&[0xc4, 0xe2, 0x7b, 0x49, 0xf8], Zero { tile: 7 }),
        // tileloadd tmm1, [rdi + rsi]; tmm6, [r13 + r15]; tmm6, [rbp + r9 + 4096]
        (&[0xc4, 0xe2, 0x7b, 0x4b, 0x0c, 0x37], Load { tile: 1, from: 0x8000, stride: 0x7000 }),
        (&[0xc4, 0x82, 0x7b, 0x4b, 0x74, 0x3d, 0x00], Load { tile: 6, from: 0xe000, stride: 0x10000 }),
        (&[0xc4, 0xa2, 0x7b, 0x4b, 0xb4, 0x0d, 0x00, 0x10, 0x00, 0x00], Load { tile: 6, from: 0x7000, stride: 0xa000 }),
        // tileloadd tmm0, [rax + 2 rcx]
        (&[0xc4, 0xe2, 0x7b, 0x4b, 0x04, 0x48], Load { tile: 0, from: 0x1000, stride: 0x4000 }),
        // tilestored [r8 + rax], tmm3; [r8 + rax + 1024], tmm3; [rdi - 64 + rsi], tmm0
        (&[0xc4, 0xc2, 0x7a, 0x4b, 0x1c, 0x00], Store { tile: 3, to: 0x9000, stride: 0x1000 }),
        (&[0xc4, 0xc2, 0x7a, 0x4b, 0x9c, 0x00, 0x00, 0x04, 0x00, 0x00], Store { tile: 3, to: 0x9400, stride: 0x1000 }),
        (&[0xc4, 0xe2, 0x7a, 0x4b, 0x44, 0x37, 0xc0], Store { tile: 0, to: 0x7fc0, stride: 0x7000 }),
        // tdpbssd tmm0, tmm1, tmm2; tdpbf16ps tmm0, tmm4, tmm6; tmm3, tmm5, tmm7
        (&[0xc4, 0xe2, 0x6b, 0x5e, 0xc1], DotBytes { sums: 0, x: 1, w: 2 }),
        (&[0xc4, 0xe2, 0x4a, 0x5c, 0xc4], DotPairs { sums: 0, x: 4, w: 6 }),
        (&[0xc4, 0xe2, 0x42, 0x5c, 0xdd], DotPairs { sums: 3, x: 5, w: 7 }),
    ];
    for (code, expected) in cases {
        assert_eq!(decoded(code), Some((expected, code.len())), "{code:x?}");
    }
    let others: [&[u8]; 7] = [
        // tdpbsud, tdpbusd, tdpbuud; tileloaddt1; vpermd ymm0, ymm1, ymm2; ud2; a tile without a stride
        &[0xc4, 0xe2, 0x6a, 0x5e, 0xc1],
        &[0xc4, 0xe2, 0x69, 0x5e, 0xc1],
        &[0xc4, 0xe2, 0x40, 0x5e, 0xee],
        &[0xc4, 0xa2, 0x79, 0x4b, 0x74, 0x0d, 0x00],
        &[0xc4, 0xe2, 0x75, 0x36, 0xc2],
        &[0x0f, 0x0b],
        &[0xc4, 0xe2, 0x7b, 0x4b, 0x07],
    ];
    for code in others {
        assert_eq!(decoded(code), None, "{code:x?}");
    }
}

/// A unit with shapes of tile 0 (sums), 1 (activations) and 2 (weights).
fn unit(tiles: [(u8, u16); 3]) -> Unit {
    let [sums, x, w] = tiles;
    let shapes = Shapes::new([sums, x, w, (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)]);
    let mut unit = Unit::INITIAL;
    run(&mut unit, Instruction::LoadShapes { from: &raw const shapes as usize }).unwrap();
    unit
}

fn run(unit: &mut Unit, instruction: Instruction) -> Result<(), Fault> {
    // SAFETY: the tests below name memory that is theirs, with room for the shapes.
    unsafe { unit.execute(instruction) }
}

fn load<T>(unit: &mut Unit, tile: usize, from: &[T], stride: usize) {
    run(unit, Instruction::Load { tile, from: from.as_ptr() as usize, stride }).unwrap();
}

fn store<T>(unit: &mut Unit, tile: usize, to: &mut [T], stride: usize) {
    run(unit, Instruction::Store { tile, to: to.as_mut_ptr() as usize, stride }).unwrap();
}

#[test]
fn bytes_are_multiplied_as_signed_numbers() {
    // Two rows, two outputs, eight inputs.
    let mut unit = unit([(2, 8), (2, 8), (2, 8)]);
    load(&mut unit, 0, &[1i32, 2, 3, i32::MAX], 8);
    load(&mut unit, 1, &[[1i8, 2, 3, 4, 5, 6, 7, 8], [-128, 127, 0, 0, 0, 0, 0, 1]], 8);
    // Inputs 0 to 3 of both outputs, then 4 to 7.
    let w = [[[1i8, 1, 1, 1], [-128, -128, 0, 0]], [[0, 0, 0, 1], [0, 0, 0, 127]]];
    load(&mut unit, 2, &w, 8);
    run(&mut unit, Instruction::DotBytes { sums: 0, x: 1, w: 2 }).unwrap();
    let mut sums = [0i32; 4];
    store(&mut unit, 0, &mut sums, 8);
    let wrapped = i32::MAX.wrapping_add(128 * 128 - 127 * 128 + 127);
    assert_eq!(sums, [1 + 10 + 8, 2 - 128 - 256 + 8 * 127, 3 - 128 + 127 + 1, wrapped]);
}

#[test]
fn pairs_are_added_apart_and_rounded_at_every_step() {
    let bf16 = |x: f32| crate::quant::f32_to_bf16(x);
    let big = 16_777_216.0;
    // One row, two outputs, three pairs of inputs. In one chain 2^24 + 1 would lose the ones of the second places.
    let mut unit = unit([(1, 8), (1, 12), (3, 8)]);
    load(&mut unit, 0, &[0.5f32, f32::from_bits(1)], 8);
    load(&mut unit, 1, &[big, 1.0, 1.0, 1.0, 1.0, 1.0].map(bf16), 12);
    let tiny = f32::MIN_POSITIVE;
    let w =
        [[1.0, 1.0, tiny / 2.0, tiny / 2.0], [1.0, 1.0, tiny, 0.0], [-1.0, 1.0, tiny, -tiny]].map(|row| row.map(bf16));
    load(&mut unit, 2, &w, 8);
    run(&mut unit, Instruction::DotPairs { sums: 0, x: 1, w: 2 }).unwrap();
    let mut sums = [0.0f32; 2];
    store(&mut unit, 0, &mut sums, 8);
    // First: 2^24 + 1 = 2^24, - 1 = 2^24 - 1; second: 3; together 2^24 + 2, to which 0.5 is nothing.
    // Other output: numbers below the normal ones are 0; 2 tiny - tiny.
    assert_eq!(sums, [big + 2.0, tiny]);
}

#[test]
fn what_is_no_use_of_tiles_is_refused() {
    let mut bare = Unit::INITIAL;
    assert_eq!(run(&mut bare, Instruction::Zero { tile: 0 }), Err(Fault::NoShapes));
    let dot = Instruction::DotBytes { sums: 0, x: 1, w: 2 };
    for tiles in [
        [(2, 8), (3, 8), (2, 8)],
        [(2, 8), (2, 12), (2, 8)],
        [(2, 8), (2, 8), (2, 12)],
        [(2, 6), (2, 8), (2, 6)],
        [(0, 0), (2, 8), (2, 8)],
    ] {
        assert_eq!(run(&mut unit(tiles), dot), Err(Fault::TheTilesDoNotFit), "{tiles:?}");
    }
    let same = Instruction::DotBytes { sums: 0, x: 1, w: 1 };
    assert_eq!(run(&mut unit([(2, 8), (2, 8), (2, 8)]), same), Err(Fault::TheTilesDoNotFit));
    let mut after = unit([(2, 8), (2, 8), (2, 8)]);
    run(&mut after, Instruction::Release).unwrap();
    assert_eq!(run(&mut after, dot), Err(Fault::NoShapes));
    for (at, byte) in [(0, 2), (1, 1), (5, 1), (17, 1), (40, 1), (48, 17), (50, 1), (60, 1)] {
        let mut shapes = [0u8; 64];
        (shapes[0], shapes[16], shapes[48]) = (1, 64, 16);
        let load = Instruction::LoadShapes { from: shapes.as_ptr() as usize };
        assert_eq!(run(&mut bare, load), Ok(()));
        shapes[at] = byte;
        let load = Instruction::LoadShapes { from: shapes.as_ptr() as usize };
        assert_eq!(run(&mut bare, load), Err(Fault::IllegalShapes), "byte {at}");
    }
}

/// The instructions themselves, on the processor or through the handler.
#[test]
fn products_of_bytes_in_tiles() {
    if !may_run_amx() {
        return;
    }
    fn check<const INPUTS: usize>() {
        let x: [[i8; 32]; ROWS] = std::array::from_fn(|r| std::array::from_fn(|k| ((37 * r + 11 * k) % 255) as i8));
        let w: [[u8; 64]; 8] = std::array::from_fn(|g| std::array::from_fn(|i| ((91 * g + 13 * i) % 256) as u8));
        // SAFETY: tiles are there, or their emulator.
        let tiles = unsafe { CodeTiles::<INPUTS>::new() };
        for first in (0..32).step_by(INPUTS) {
            let (mut sums, mut other) = (CodeSums([[-1; WIDTH]; ROWS]), CodeSums::ZERO);
            tiles.multiply::<0>(&x, first, &w[first / 4..], &mut sums);
            tiles.multiply::<1>(&x, first, &w[first / 4..], &mut other);
            for (r, x) in x.iter().enumerate() {
                for n in 0..WIDTH {
                    let inputs = first..first + INPUTS;
                    let exact = inputs.map(|k| i32::from(x[k]) * i32::from(w[k / 4][4 * n + k % 4] as i8)).sum::<i32>();
                    assert_eq!((sums.0[r][n], other.0[r][n]), (exact, exact), "row {r}, output {n}, from {first}");
                }
            }
        }
    }
    check::<32>();
    check::<16>();
}

/// Whole numbers, which bf16 and f32 hold exactly, so that any order of adding gives the same.
#[test]
fn products_of_pairs_in_tiles() {
    if !may_run_amx() {
        return;
    }
    const STEPS: usize = 3;
    let small = |i: usize| crate::quant::f32_to_bf16((i % 17) as f32 - 8.0);
    let wide = |x: u16| crate::quant::bf16_to_f32(x);
    let w: [Vec<[u8; 64]>; 2] = [1, 2].map(|panel| {
        let pair = |pair: usize| {
            let elements: [[u8; 2]; 32] = std::array::from_fn(|i| small(7 * pair + 3 * i + panel).to_le_bytes());
            std::array::from_fn(|i| elements[i / 2][i % 2])
        };
        (0..16 * STEPS).map(pair).collect()
    });
    for rows in [1, 5, 16] {
        let x: Vec<PairRow> =
            (0..2 * STEPS * rows).map(|i| PairRow(std::array::from_fn(|k| small(5 * i + k)))).collect();
        let (x0, x1) = x.split_at(STEPS * rows);
        let exact = |x: &[PairRow], w: &[[u8; 64]], r: usize, n: usize| -> f32 {
            let weight =
                |k: usize| u16::from_le_bytes([w[k / 2][4 * n + 2 * (k % 2)], w[k / 2][4 * n + 2 * (k % 2) + 1]]);
            (0..32 * STEPS).map(|k| wide(x[k / 32 * rows + r].0[k % 32]) * wide(weight(k))).sum()
        };
        // SAFETY: tiles are there, or their emulator.
        let tiles = unsafe { PairTiles::new(rows) };
        let mut sums = vec![[100.0; WIDTH]; rows + 1];
        tiles.add_one(STEPS, x0, &w[0], &mut sums);
        for (r, sums) in sums[..rows].iter().enumerate() {
            (0..WIDTH)
                .for_each(|n| assert_eq!(sums[n], 100.0 + exact(x0, &w[0], r, n), "{rows} rows: {r}, output {n}"));
        }
        assert_eq!(sums[rows], [100.0; WIDTH]);
        if rows == ROWS {
            let mut sums = [[[1.0; WIDTH]; 2 * ROWS]; 2];
            let [first, second] = &mut sums;
            tiles.add_four(STEPS, [x0, x1], [&w[0], &w[1]], [first, second]);
            for (sums, w) in sums.iter().zip(&w) {
                for (r, sums) in sums.iter().enumerate() {
                    let (x, row) = if r < ROWS { (x0, r) } else { (x1, r - ROWS) };
                    (0..WIDTH).for_each(|n| assert_eq!(sums[n], 1.0 + exact(x, w, row, n), "row {r}, output {n}"));
                }
            }
        }
    }
}
