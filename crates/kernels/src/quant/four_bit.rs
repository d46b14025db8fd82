//! Reading and writing small fields in bytes.

/// The lower (`high` false) or upper half of a byte.
#[inline(always)]
pub(crate) fn nibble(byte: u8, high: bool) -> u8 {
    if high { byte >> 4 } else { byte & 15 }
}

/// Sets the lower or upper half of a byte that is zero there.
#[inline(always)]
pub(crate) fn set_nibble(byte: &mut u8, high: bool, value: u8) {
    *byte |= if high { value << 4 } else { value & 15 };
}

/// Reads the little-endian u16 at `at`; callers index inside a block whose length was checked.
#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Reads the f16 at `at`.
#[inline(always)]
pub(crate) fn f16_at(bytes: &[u8], at: usize) -> f32 {
    super::f16_to_f32(u16_at(bytes, at))
}

/// Writes `x` as f16 at `at` and returns what was stored. Finite values saturate: a scale must not become infinite.
pub(crate) fn put_f16(bytes: &mut [u8], at: usize, x: f32) -> f32 {
    let limit = half::f16::MAX.to_f32();
    let stored = half::f16::from_f32(if x.is_finite() { x.clamp(-limit, limit) } else { x });
    bytes[at..at + 2].copy_from_slice(&stored.to_le_bytes());
    stored.to_f32()
}

/// Writes 32 codes of four bits as files have them: element `j` in the lower half of byte `j`, element `j + 16` in
/// the upper one.
pub(crate) fn put_halves(codes: &[u8], bytes: &mut [u8]) {
    for (j, byte) in bytes[..16].iter_mut().enumerate() {
        *byte = codes[j] & 15 | (codes[j + 16] & 15) << 4;
    }
}

/// Reads what [`put_halves`] writes.
#[inline(always)]
pub(crate) fn get_halves(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((low, high), &byte) in low.iter_mut().zip(high).zip(&bytes[..16]) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}
