//! Block types times activations of eight bits.
//!
//! Activations are rounded to int8 under one scale for every 32 (`absmax / 127`); sums of products of codes are exact
//! whole numbers inside a run with a scale; the runs are added in f32 from the first to the last, one chain for each
//! output. So an output's bits depend on its row, the activations' row and the instruction set, and on nothing else.

use super::codes::{RUN, group, run_of};
use super::scales::{Packed, Subs};
use super::tasks::{Output, Part};
use crate::lanes::{IntKernel, IntLanes, WIDTH, room};
use crate::pool::parallel;
use crate::quant::{Coding, MAX_SUBS};

/// Inputs whose codes are summed for types with a minimum or a zero point: the shortest run with a scale.
const SUM: usize = 16;

/// Rows of activations in eight bits.
#[derive(Debug, Default)]
pub(crate) struct Activations {
    cols: usize,
    codes: Vec<i8>,
    /// For every 32 inputs; NaN where one of them is not finite.
    scales: Vec<f32>,
    /// Sums of the codes of every 16 inputs.
    sums: Vec<i32>,
}

impl Activations {
    /// Rounds rows of `cols` (a multiple of 32).
    pub(crate) fn new(x: &[f32], cols: usize) -> Activations {
        let mut codes = vec![0; x.len()];
        let mut scales = vec![0.0; x.len() / RUN];
        let mut sums = vec![0; x.len() / SUM];
        {
            let rows = x.len() / cols;
            let (codes, scales, sums) = (Output::new(&mut codes), Output::new(&mut scales), Output::new(&mut sums));
            // A row alone is not worth waking anyone.
            let row = |row: usize| {
                // SAFETY: each row of the three buffers belongs to one task.
                let (codes, scales, sums) = unsafe {
                    (
                        codes.part(row * cols, cols),
                        scales.part(row * cols / RUN, cols / RUN),
                        sums.part(row * cols / SUM, cols / SUM),
                    )
                };
                round_row(&x[row * cols..(row + 1) * cols], codes, scales, sums);
            };
            if x.len() < 1 << 14 { (0..rows).for_each(row) } else { parallel(rows, row) }
        }
        Activations { cols, codes, scales, sums }
    }
}

/// Rounds one row.
fn round_row(x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
    let (runs, _) = x.as_chunks::<RUN>();
    let (codes, _) = codes.as_chunks_mut::<RUN>();
    for (((x, codes), scale), sums) in runs.iter().zip(codes).zip(scales).zip(sums.chunks_exact_mut(2)) {
        *scale = round_run(x, codes);
        for (sum, codes) in sums.iter_mut().zip(codes.chunks_exact(SUM)) {
            *sum = codes.iter().map(|&code| i32::from(code)).sum();
        }
    }
}

/// Rounds 32 activations and returns their scale: NaN, over codes of 0, when one of them is not finite.
fn round_run(x: &[f32; RUN], codes: &mut [i8; RUN]) -> f32 {
    // As whole numbers magnitudes order like floats, with infinity and NaN on top.
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & 0x7fff_ffff));
    let absmax = f32::from_bits(most);
    let inverse = 127.0 / absmax;
    if !absmax.is_finite() || !inverse.is_finite() {
        // Activations below 4e-37 count as 0.
        codes.fill(0);
        return if absmax.is_finite() { 0.0 } else { f32::NAN };
    }
    // Adding 1.5 * 2^23 leaves the nearest whole number (ties to even) in the lower bits, in two's complement.
    for (code, x) in codes.iter_mut().zip(x) {
        *code = (x * inverse + 12_582_912.0).to_bits() as i8;
    }
    absmax / 127.0
}

/// What one task computes.
pub(crate) struct Int8<'a, B> {
    pub(crate) panels: &'a [u8],
    pub(crate) panel_bytes: usize,
    pub(crate) x: &'a Activations,
    pub(crate) out: &'a Output<'a, f32>,
    pub(crate) part: Part,
    pub(crate) block: std::marker::PhantomData<B>,
}

/// Rows of activations that share a panel's unpacked scales.
pub(crate) const ROW_BLOCK: usize = 96;

impl<B: Packed> IntKernel for Int8<'_, B> {
    #[inline(always)]
    fn run<L: IntLanes>(self, l: L) {
        let mut sums = [[0.0; WIDTH]; ROW_BLOCK];
        let (mut scales, mut minima) = ([[0.0; WIDTH]; MAX_SUBS], [[0.0; WIDTH]; MAX_SUBS]);
        let rows = self.part.rows.clone();
        for panel in self.part.panels.clone() {
            let sums = &mut sums[..rows.len()];
            sums.fill([0.0; WIDTH]);
            let bytes = &self.panels[panel * self.panel_bytes..(panel + 1) * self.panel_bytes];
            for (index, block) in bytes.chunks_exact(WIDTH * B::BYTES).enumerate() {
                let (head, codes) = block.split_at(B::HEAD);
                B::unpack_head(l, head, &mut scales, &mut minima);
                let block =
                    Unpacked::<B> { codes, scales: &scales, minima: &minima, first: index * B::LEN, block: self.block };
                let mut row = 0;
                // Written so that lanes without tiles of four make no code for them.
                while L::INT_ROWS == 4 && row + 4 <= sums.len() {
                    block.tile::<L, 4>(l, self.x, rows.start + row, &mut sums[row..]);
                    row += 4;
                }
                while row < sums.len() {
                    block.tile::<L, 1>(l, self.x, rows.start + row, &mut sums[row..]);
                    row += 1;
                }
            }
            self.part.write(self.out, panel, sums);
        }
    }
}

/// A panel's block with its scales formed; `first` is the index of its first input.
struct Unpacked<'a, B> {
    codes: &'a [u8],
    scales: &'a Subs,
    minima: &'a Subs,
    first: usize,
    block: std::marker::PhantomData<B>,
}

impl<B: Packed> Unpacked<'_, B> {
    /// Adds the block's products with `R` rows of activations.
    #[inline(always)]
    fn tile<L: IntLanes, const R: usize>(&self, l: L, x: &Activations, row: usize, out: &mut [[f32; WIDTH]]) {
        let Some(out) = out.first_chunk_mut::<R>() else { return };
        let mut sums = [l.splat(0.0); R];
        for r in 0..R {
            sums[r] = l.load(&out[r]);
        }
        for run in 0..B::LEN / RUN {
            let groups = run_of::<B>(self.codes, run);
            let mut codes = [&[0; RUN]; R];
            let mut scale = [0.0; R];
            let mut code_sums = [[0, 0]; R];
            for r in 0..R {
                let at = (row + r) * x.cols + self.first + run * RUN;
                let (Some(c), Some(s)) = (x.codes[at..].first_chunk(), x.sums[at / SUM..].first_chunk()) else {
                    return;
                };
                (codes[r], code_sums[r], scale[r]) = (c, *s, x.scales[at / RUN]);
            }
            if B::SUB == RUN {
                let products = products::<L, B, R, 0, 8>(l, groups, &codes);
                for r in 0..R {
                    let code_sum = code_sums[r][0] + code_sums[r][1];
                    sums[r] = self.add(l, sums[r], run, products[r], code_sum, scale[r]);
                }
            } else {
                let products =
                    [products::<L, B, R, 0, 4>(l, groups, &codes), products::<L, B, R, 4, 8>(l, groups, &codes)];
                for half in 0..2 {
                    for r in 0..R {
                        sums[r] = self.add(l, sums[r], 2 * run + half, products[half][r], code_sums[r][half], scale[r]);
                    }
                }
            }
        }
        for r in 0..R {
            l.store(sums[r], &mut out[r]);
        }
    }

    /// Adds the products of one run with a scale, times its scale and the activations'.
    #[inline(always)]
    fn add<L: IntLanes>(&self, l: L, sum: L::F, sub: usize, products: L::I, code_sum: i32, scale: f32) -> L::F {
        let zero = match B::CODING {
            Coding::Unsigned { zero } => i32::from(zero),
            Coding::Signed | Coding::Table(_) => L::SIGNED_ZERO,
        };
        let products = if zero == 0 { products } else { l.sub_int(products, l.splat_int(zero * code_sum)) };
        let weight = l.mul(l.load(&self.scales[sub]), l.splat(scale));
        let sum = l.fma(l.to_float(products), weight, sum);
        if B::HAS_MINIMUM { l.fma(l.load(&self.minima[sub]), l.splat(scale * code_sum as f32), sum) } else { sum }
    }
}

/// Sums of products of groups `FROM..TO` of a run with `R` rows of activations.
#[inline(always)]
fn products<L: IntLanes, B: Packed, const R: usize, const FROM: usize, const TO: usize>(
    l: L,
    groups: &[[u8; 64]],
    x: &[&[i8; RUN]; R],
) -> [L::I; R] {
    let signed = !matches!(B::CODING, Coding::Unsigned { .. });
    let room = if L::NARROW && !signed { room((1 << B::BITS) - 1) } else { RUN };
    let mut sums = [l.splat_int(0); R];
    let mut parts = [l.zero_part(); R];
    for g in FROM..TO {
        let codes = group::<L, B>(l, groups, g);
        for r in 0..R {
            let four = [x[r][4 * g], x[r][4 * g + 1], x[r][4 * g + 2], x[r][4 * g + 3]];
            if signed {
                sums[r] = l.dot_signed(sums[r], codes, four);
            } else {
                parts[r] = l.dot(parts[r], codes, four);
                if (g + 1 - FROM) % room == 0 || g + 1 == TO {
                    sums[r] = l.fold(sums[r], parts[r]);
                    parts[r] = l.zero_part();
                }
            }
        }
    }
    sums
}
