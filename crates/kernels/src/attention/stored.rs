//! The types of caches: how numbers of each lie in bytes, and how sums read them where they lie.
//!
//! Keys on their side are `[dim][CUT]` for each head, of a block type `[dim / 32]` times the float16 scales of all tokens
//! and then their codes: of q8_0 `[32][CUT]`, of q4_0 `[16][CUT]`, the lower half of a byte for one of the first sixteen
//! dimensions and the upper half for the one sixteen after it.

use super::ahead::Ahead;
use super::cut::{CUT, Span};
use super::kv::{KvBlocks, Side};
use super::mix::Mix;
use super::scores::compare;
use super::tile::{GROUP, Operand, Rows};
use super::{Heads, Inputs};
use crate::arch::Arch;
use crate::{DType, KernelError, quantize};
use std::marker::PhantomData;

/// Bytes of a float16 scale.
const SCALE: usize = 2;
/// Bytes of the scales of a group of keys on their side.
const SCALES: usize = SCALE * CUT;

/// How a type lies in bytes.
pub(super) trait Stored: Copy {
    /// Bytes of [`GROUP`] elements.
    const BYTES: usize;

    /// Widens whole blocks.
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]);

    /// A vector of elements of a row, from `at` on, a multiple of the vector's length.
    ///
    /// # Safety
    /// The row is that long.
    unsafe fn along<A: Arch>(row: *const u8, at: usize) -> A::Vector;

    /// The scales of a group of keys on their side, for `V` vectors of tokens from `token` on.
    ///
    /// # Safety
    /// The group has a scale for each of these tokens.
    #[inline(always)]
    unsafe fn scales<A: Arch, const V: usize>(_group: *const u8, _token: usize) -> [A::Vector; V] {
        [A::splat(0.0); V]
    }

    /// Element `d` of the keys of a group, on their side, of a vector of tokens from `token` on.
    ///
    /// # Safety
    /// The group has these.
    unsafe fn across<A: Arch>(group: *const u8, d: usize, token: usize, scale: A::Vector) -> A::Vector;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct F32;
#[derive(Debug, Clone, Copy)]
pub(super) struct F16;
#[derive(Debug, Clone, Copy)]
pub(super) struct Bf16;
#[derive(Debug, Clone, Copy)]
pub(super) struct Q8_0;
#[derive(Debug, Clone, Copy)]
pub(super) struct Q4_0;

/// `len` bytes from `at` on.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn bytes<'a>(from: *const u8, at: usize, len: usize) -> &'a [u8] {
    // SAFETY: the caller vouches for them.
    unsafe { std::slice::from_raw_parts(from.add(at), len) }
}

/// The scale at the start of a block.
///
/// # Safety
/// It is there.
#[inline(always)]
unsafe fn scale<A: Arch>(block: *const u8) -> A::Vector {
    // SAFETY: the caller vouches for it.
    A::splat_f16(unsafe { block.cast::<[u8; SCALE]>().read() })
}

/// The scales of tokens, one after the other.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn scales<A: Arch, const V: usize>(group: *const u8, token: usize) -> [A::Vector; V] {
    let mut scales = [A::splat(0.0); V];
    for (v, scales) in scales.iter_mut().enumerate() {
        // SAFETY: the caller vouches for them.
        *scales = A::load_f16(unsafe { bytes(group, SCALE * (token + v * A::LANES), SCALE * A::LANES) });
    }
    scales
}

macro_rules! plain {
    ($stored:ty, $bytes:literal, $load:ident, $widen:expr) => {
        impl Stored for $stored {
            const BYTES: usize = $bytes * GROUP;

            #[inline(always)]
            fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
                $widen(bytes, out);
            }
            #[inline(always)]
            unsafe fn along<A: Arch>(row: *const u8, at: usize) -> A::Vector {
                // SAFETY: the caller vouches for the row.
                A::$load(unsafe { bytes(row, $bytes * at, $bytes * A::LANES) })
            }
            #[inline(always)]
            unsafe fn across<A: Arch>(group: *const u8, d: usize, token: usize, _scale: A::Vector) -> A::Vector {
                // SAFETY: the caller vouches for the group.
                A::$load(unsafe { bytes(group, $bytes * (d * CUT + token), $bytes * A::LANES) })
            }
        }
    };
}

plain!(F32, 4, load_f32, |bytes: &[u8], out: &mut [f32]| {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
        *x = f32::from_ne_bytes(*b);
    }
});
plain!(F16, 2, load_f16, A::widen_f16);
plain!(Bf16, 2, load_bf16, |bytes: &[u8], out: &mut [f32]| {
    for (x, b) in out.iter_mut().zip(bytes.as_chunks().0) {
        *x = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
    }
});

impl Stored for Q8_0 {
    const BYTES: usize = SCALE + GROUP;

    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        A::widen_q8_0(bytes, out);
    }
    #[inline(always)]
    unsafe fn along<A: Arch>(row: *const u8, at: usize) -> A::Vector {
        // SAFETY: the caller vouches for the row.
        unsafe {
            let block = row.add(at / GROUP * Self::BYTES);
            A::mul(scale::<A>(block), A::load_i8(bytes(block, SCALE + at % GROUP, A::LANES)))
        }
    }
    #[inline(always)]
    unsafe fn scales<A: Arch, const V: usize>(group: *const u8, token: usize) -> [A::Vector; V] {
        // SAFETY: the caller vouches for the group.
        unsafe { scales::<A, V>(group, token) }
    }
    #[inline(always)]
    unsafe fn across<A: Arch>(group: *const u8, d: usize, token: usize, scale: A::Vector) -> A::Vector {
        // SAFETY: the caller vouches for the group.
        A::mul(scale, A::load_i8(unsafe { bytes(group, SCALES + d * CUT + token, A::LANES) }))
    }
}

impl Stored for Q4_0 {
    const BYTES: usize = SCALE + GROUP / 2;

    #[inline(always)]
    fn widen<A: Arch>(bytes: &[u8], out: &mut [f32]) {
        A::widen_q4_0(bytes, out);
    }
    #[inline(always)]
    unsafe fn along<A: Arch>(row: *const u8, at: usize) -> A::Vector {
        let (block, at) = (at / GROUP * Self::BYTES, at % GROUP);
        // SAFETY: the caller vouches for the row.
        unsafe {
            let block = row.add(block);
            let codes = bytes(block, SCALE + at % (GROUP / 2), A::LANES);
            A::mul(scale::<A>(block), A::load_codes(codes, at >= GROUP / 2))
        }
    }
    #[inline(always)]
    unsafe fn scales<A: Arch, const V: usize>(group: *const u8, token: usize) -> [A::Vector; V] {
        // SAFETY: the caller vouches for the group.
        unsafe { scales::<A, V>(group, token) }
    }
    #[inline(always)]
    unsafe fn across<A: Arch>(group: *const u8, d: usize, token: usize, scale: A::Vector) -> A::Vector {
        // SAFETY: the caller vouches for the group.
        let codes = unsafe { bytes(group, SCALES + d % (GROUP / 2) * CUT + token, A::LANES) };
        A::mul(scale, A::load_codes(codes, d >= GROUP / 2))
    }
}

/// Rows as they are stored, of one head's tokens from the cut's first one on; their elements are side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along<'a, S> {
    bytes: &'a [u8],
    /// Bytes of a row.
    row: usize,
    column: usize,
    stored: PhantomData<S>,
}

impl<'a, S: Stored> Along<'a, S> {
    /// Rows of a width of whole vectors and blocks.
    #[inline(always)]
    pub fn new(bytes: &'a [u8], row: usize) -> Along<'a, S> {
        Along { bytes, row, column: 0, stored: PhantomData }
    }
}

impl<S: Stored> Operand for Along<'_, S> {
    const STORED: bool = true;

    #[inline(always)]
    fn at(self, column: usize) -> Self {
        Along { column: self.column + column, ..self }
    }
    #[inline(always)]
    fn check(&self, rows: usize, width: usize) {
        let wide = (self.column + width) * S::BYTES <= self.row * GROUP;
        assert!(wide && rows * self.row <= self.bytes.len(), "{rows} stored rows of {width} at {}", self.column);
    }
    #[inline(always)]
    unsafe fn row<A: Arch, const V: usize>(&self, row: usize, _scales: &[A::Vector; V]) -> [A::Vector; V] {
        let mut vectors = [A::splat(0.0); V];
        for (v, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: the caller has checked that the row is there and as wide.
            *vector = unsafe { S::along::<A>(self.bytes.as_ptr().add(row * self.row), self.column + v * A::LANES) };
        }
        vectors
    }
}

/// One head's keys on their side: a row is one element of the keys of all tokens of a cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Across<'a, S> {
    bytes: &'a [u8],
    token: usize,
    stored: PhantomData<S>,
}

impl<'a, S: Stored> Across<'a, S> {
    #[inline(always)]
    pub fn new(bytes: &'a [u8]) -> Across<'a, S> {
        Across { bytes, token: 0, stored: PhantomData }
    }
}

impl<S: Stored> Operand for Across<'_, S> {
    const STORED: bool = true;

    #[inline(always)]
    fn at(self, token: usize) -> Self {
        Across { token: self.token + token, ..self }
    }
    #[inline(always)]
    fn check(&self, rows: usize, width: usize) {
        let there = rows * S::BYTES / GROUP * CUT <= self.bytes.len();
        assert!(there && self.token + width <= CUT, "{rows} stored rows of {width} at {}", self.token);
    }
    #[inline(always)]
    unsafe fn scales<A: Arch, const V: usize>(&self, row: usize) -> [A::Vector; V] {
        // SAFETY: the caller has checked that the row, and with it its group, is there.
        unsafe { S::scales::<A, V>(self.bytes.as_ptr().add(row / GROUP * S::BYTES * CUT), self.token) }
    }
    #[inline(always)]
    unsafe fn row<A: Arch, const V: usize>(&self, row: usize, scales: &[A::Vector; V]) -> [A::Vector; V] {
        let mut vectors = [A::splat(0.0); V];
        for (v, (vector, &scale)) in vectors.iter_mut().zip(scales).enumerate() {
            // SAFETY: the caller has checked that the row is there.
            *vector = unsafe {
                let group = self.bytes.as_ptr().add(row / GROUP * S::BYTES * CUT);
                S::across::<A>(group, row % GROUP, self.token + v * A::LANES, scale)
            };
        }
        vectors
    }
}

/// One head of a cut, where it lies.
pub(super) type Place<'a, 'b> = (&'b KvBlocks<'a>, &'b Heads, usize, usize);

/// [`compare`] with keys where they lie, on their side.
#[inline(always)]
pub(super) fn compare_stored<A: Arch>(
    inputs: &Inputs,
    queries: Rows,
    (kv, shape, cut, head): Place,
    spans: &[Span],
    ahead: &mut Ahead,
    scores: &mut [[f32; CUT]],
) {
    let keys = kv.of_cut(shape, Side::Key, cut, head);
    match kv.key_type {
        DType::F16 => compare::<A, _>(inputs, queries, Across::<F16>::new(keys), spans, ahead, scores),
        DType::BF16 => compare::<A, _>(inputs, queries, Across::<Bf16>::new(keys), spans, ahead, scores),
        DType::Q8_0 => compare::<A, _>(inputs, queries, Across::<Q8_0>::new(keys), spans, ahead, scores),
        DType::Q4_0 => compare::<A, _>(inputs, queries, Across::<Q4_0>::new(keys), spans, ahead, scores),
        other => panic!("{other} is not read in place"),
    }
}

/// [`Mix::write`] with values where they lie.
#[inline(always)]
pub(super) fn mix_stored<A: Arch>(mix: &Mix, (kv, shape, cut, head): Place, ahead: &mut Ahead, out: &mut [f32]) {
    let values = kv.of_cut(shape, Side::Value, cut, head);
    let row = values.len() / CUT;
    match kv.value_type {
        DType::F16 => mix.write::<A, _>(Along::<F16>::new(values, row), ahead, out),
        DType::BF16 => mix.write::<A, _>(Along::<Bf16>::new(values, row), ahead, out),
        DType::Q8_0 => mix.write::<A, _>(Along::<Q8_0>::new(values, row), ahead, out),
        DType::Q4_0 => mix.write::<A, _>(Along::<Q4_0>::new(values, row), ahead, out),
        other => panic!("{other} is not read in place"),
    }
}

/// Rounds one head's key to the type of a cache and writes it on its side, as the one of token `token` of a block of
/// [`CUT`] tokens, whose keys of this head are `block`.
///
/// # Errors
/// Where the key is not as long as whole blocks of the type, or the type holds no such number ([`quantize`]).
///
/// # Panics
/// On a block of another size, a token behind its end, and a type that no cache has.
pub fn store_key(dtype: DType, key: &[f32], token: usize, block: &mut [u8]) -> Result<(), KernelError> {
    assert!(token < CUT, "token {token} of a block of {CUT}");
    let bytes = dtype.bytes(key.len()).ok_or(KernelError::NotWholeBlocks { dtype, elements: key.len() })?;
    assert_eq!(block.len(), bytes * CUT, "bytes of a block of keys of {} numbers", key.len());
    let (scale, element) = match dtype {
        DType::F32 => (0, 4),
        DType::F16 | DType::BF16 => (0, 2),
        DType::Q8_0 | DType::Q4_0 => (SCALE, 1),
        other => panic!("{other} is not a type of caches"),
    };
    let mut along = [0; 4 * GROUP];
    let mut rest = block;
    for group in key.chunks(GROUP) {
        let along = &mut along[..dtype.bytes(group.len()).unwrap_or_default()];
        quantize(dtype, group, along)?;
        let (scales, elements) = along.split_at(scale);
        let (block, after) = std::mem::take(&mut rest).split_at_mut(along.len() * CUT);
        rest = after;
        let (block_scales, codes) = block.split_at_mut(scale * CUT);
        block_scales[token * scale..][..scale].copy_from_slice(scales);
        match element {
            4 => scatter::<4>(elements, token, codes),
            2 => scatter::<2>(elements, token, codes),
            _ => scatter::<1>(elements, token, codes),
        }
    }
    Ok(())
}

/// Writes elements of `N` bytes below each other.
fn scatter<const N: usize>(elements: &[u8], token: usize, rows: &mut [u8]) {
    let rows = rows.as_chunks_mut::<N>().0;
    for (i, element) in elements.as_chunks::<N>().0.iter().enumerate() {
        rows[i * CUT + token] = *element;
    }
}
