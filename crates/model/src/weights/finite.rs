//! The search for what is not a number, in the bytes of any type.
//!
//! In a block type only the scales can be infinite or NaN, so only they are looked at.

use crate::error::Error;
use crate::mapping::Mapped;
use attend_kernels::DType;

/// An error for the first element of `bytes` that is not finite; `their_index` says where in the file's tensor the
/// n-th element of these bytes is.
pub(super) fn check(
    mapped: &Mapped,
    dtype: DType,
    bytes: &[u8],
    their_index: impl Fn(usize) -> u64,
) -> Result<(), Error> {
    match first(dtype, bytes) {
        None => Ok(()),
        Some((element, value)) => Err(Error::NotFinite {
            file: mapped.file.clone(),
            tensor: mapped.theirs.clone(),
            index: their_index(element),
            value: value.into(),
        }),
    }
}

/// The index of the first element that is not finite, and what it is. For a block type, the first of its block.
pub(crate) fn first(dtype: DType, bytes: &[u8]) -> Option<(usize, &'static str)> {
    use DType::*;
    match dtype {
        F64 => scan::<8>(bytes, |b| kind(u64::from_le_bytes(b) << 1 >> 1, 0x7ff0_0000_0000_0000)),
        F32 => scan::<4>(bytes, |b| kind(u64::from(u32::from_le_bytes(b) & 0x7fff_ffff), 0x7f80_0000)),
        F16 => scan::<2>(bytes, half),
        BF16 => scan::<2>(bytes, |b| kind(u64::from(u16::from_le_bytes(b) & 0x7fff), 0x7f80)),
        F8E4M3 => scan::<1>(bytes, |[b]| (b & 0x7f == 0x7f).then_some("NaN")),
        F8E5M2 => scan::<1>(bytes, |[b]| kind(u64::from(b & 0x7f), 0x7c)),
        I64 | I32 | I16 | I8 | U64 | U32 | U16 | U8 | Bool => None,
        MXFP4 => blocks(dtype, bytes, |block| (block.first() == Some(&0xff)).then_some("a NaN scale")),
        Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS => scales(dtype, bytes, &[0]),
        Q4_1 | Q5_1 | Q4_K | Q5_K => scales(dtype, bytes, &[0, 2]),
        Q2_K => scales(dtype, bytes, &[80, 82]),
        Q3_K => scales(dtype, bytes, &[108]),
        Q6_K => scales(dtype, bytes, &[208]),
    }
}

/// Bits without the sign against the bits of infinity.
fn kind(bits: u64, infinity: u64) -> Option<&'static str> {
    match bits.cmp(&infinity) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some("an infinity"),
        std::cmp::Ordering::Greater => Some("NaN"),
    }
}

fn half(b: [u8; 2]) -> Option<&'static str> {
    kind(u64::from(u16::from_le_bytes(b) & 0x7fff), 0x7c00)
}

fn scan<const N: usize>(bytes: &[u8], test: impl Fn([u8; N]) -> Option<&'static str>) -> Option<(usize, &'static str)> {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.iter().enumerate().find_map(|(index, element)| Some((index, test(*element)?)))
}

fn blocks(dtype: DType, bytes: &[u8], test: impl Fn(&[u8]) -> Option<&'static str>) -> Option<(usize, &'static str)> {
    let mut blocks = bytes.chunks_exact(dtype.block_bytes()).enumerate();
    blocks.find_map(|(index, block)| Some((index * dtype.block_len(), test(block)?)))
}

/// Blocks with f16 scales at the given bytes.
fn scales(dtype: DType, bytes: &[u8], places: &[usize]) -> Option<(usize, &'static str)> {
    let bad = |block: &[u8], place: usize| match block.get(place..place + 2) {
        Some(&[low, high]) => half([low, high]).map(|_| "a scale that is not finite"),
        _ => None,
    };
    blocks(dtype, bytes, |block| places.iter().find_map(|place| bad(block, *place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_element_of_every_float_is_found() {
        let f32s: Vec<u8> = [1.0f32, f32::MAX, -f32::INFINITY, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(first(DType::F32, &f32s), Some((2, "an infinity")));
        let f64s: Vec<u8> = [1.0f64, f64::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(first(DType::F64, &f64s), Some((1, "NaN")));
        assert_eq!(first(DType::F16, &[0xff, 0x7b, 0x00, 0xfc]), Some((1, "an infinity")));
        assert_eq!(first(DType::BF16, &[0x7f, 0x7f, 0x81, 0xff]), Some((1, "NaN")));
        assert_eq!(first(DType::F8E4M3, &[0x7e, 0xff]), Some((1, "NaN")));
        assert_eq!(first(DType::F8E5M2, &[0x7b, 0x7c]), Some((1, "an infinity")));
    }

    #[test]
    fn a_bad_scale_is_found_wherever_its_type_keeps_it() {
        use DType::*;
        let types = [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS];
        for dtype in types {
            // Quantised values never put a NaN where a scale is; the kernels know where that is.
            let n = dtype.block_len() * 2;
            let mut bytes = vec![0; dtype.bytes(n).unwrap()];
            let x: Vec<f32> = (0..n).map(|i| (i as f32 - 70.0) / 9.0).collect();
            attend_kernels::quantize(dtype, &x, &mut bytes).unwrap();
            assert_eq!(first(dtype, &bytes), None, "{dtype}");
            let block = dtype.block_bytes();
            let hit = (block..2 * block - 1).any(|at| {
                let mut damaged = bytes.clone();
                damaged[at..at + 2].copy_from_slice(&[0x00, 0x7c]);
                let mut out = vec![0.0; n];
                attend_kernels::dequantize(dtype, &damaged, &mut out).unwrap();
                let infinite = out.iter().any(|x| !x.is_finite());
                if infinite {
                    assert_eq!(first(dtype, &damaged).map(|found| found.0), Some(n / 2), "{dtype} at {at}");
                }
                infinite
            });
            assert!(hit, "{dtype}: no scale was hit");
        }
        let mut mx = vec![0; 34];
        mx[17] = 0xff;
        assert_eq!(first(MXFP4, &mx), Some((32, "a NaN scale")));
    }
}
