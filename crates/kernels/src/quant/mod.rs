//! Block types and plain numbers, to f32 and back.
//!
//! Every block type is the same idea: codes of a few bits, and for each run of [`Block::SUB`] elements a scale and
//! perhaps a minimum, `value = scale * code + minimum`. A type's file says where in the block they lie; everything else
//! (dequantisation, packing for the matrix kernels) is written once over [`Block`].

mod block;
mod four_bit;
mod k_four;
mod k_six;
mod k_small;
mod legacy;
mod plain;
mod search;
mod table;

pub(crate) use block::{Block, Coding, MAX_BLOCK, MAX_SUBS};
pub(crate) use k_four::{Q4K, Q5K, scale_and_minimum};
pub(crate) use k_six::Q6K;
pub(crate) use k_small::{Q2K, Q3K, six_bit_scale};
pub(crate) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub(crate) use plain::{bf16_to_f32, f16_to_f32, f32_to_bf16, widen};
pub(crate) use table::{Iq4Nl, Iq4Xs, Mxfp4, half_power, iq4_scale};

use crate::{DType, KernelError};

/// Evaluates `$body` with `$block` naming the type of the block format `$dtype`; `$plain` for plain numbers.
macro_rules! with_block {
    ($dtype:expr, $block:ident => $body:expr, _ => $plain:expr) => {{
        use $crate::quant;
        match $dtype {
            $crate::DType::Q4_0 => {
                type $block = quant::Q4_0;
                $body
            }
            $crate::DType::Q4_1 => {
                type $block = quant::Q4_1;
                $body
            }
            $crate::DType::Q5_0 => {
                type $block = quant::Q5_0;
                $body
            }
            $crate::DType::Q5_1 => {
                type $block = quant::Q5_1;
                $body
            }
            $crate::DType::Q8_0 => {
                type $block = quant::Q8_0;
                $body
            }
            $crate::DType::Q2_K => {
                type $block = quant::Q2K;
                $body
            }
            $crate::DType::Q3_K => {
                type $block = quant::Q3K;
                $body
            }
            $crate::DType::Q4_K => {
                type $block = quant::Q4K;
                $body
            }
            $crate::DType::Q5_K => {
                type $block = quant::Q5K;
                $body
            }
            $crate::DType::Q6_K => {
                type $block = quant::Q6K;
                $body
            }
            $crate::DType::IQ4_NL => {
                type $block = quant::Iq4Nl;
                $body
            }
            $crate::DType::IQ4_XS => {
                type $block = quant::Iq4Xs;
                $body
            }
            $crate::DType::MXFP4 => {
                type $block = quant::Mxfp4;
                $body
            }
            $crate::DType::F64
            | $crate::DType::F32
            | $crate::DType::F16
            | $crate::DType::BF16
            | $crate::DType::F8E4M3
            | $crate::DType::F8E5M2
            | $crate::DType::I64
            | $crate::DType::I32
            | $crate::DType::I16
            | $crate::DType::I8
            | $crate::DType::U64
            | $crate::DType::U32
            | $crate::DType::U16
            | $crate::DType::U8
            | $crate::DType::Bool => $plain,
        }
    }};
}
pub(crate) use with_block;

/// Widens `bytes` of `dtype` (little endian, the layout of the file) to f32: exact for every type but f64 and the
/// integers past 2^24, which round to nearest.
///
/// # Errors
/// When `out.len()` elements do not fill whole blocks, or need another number of bytes than `bytes` has.
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), KernelError> {
    check(dtype, out.len(), bytes.len())?;
    with_block!(dtype, B => block::dequantize::<B>(bytes, out), _ => plain::widen(dtype, bytes, out));
    Ok(())
}

/// Rounds `x` to `dtype` in the layout of the file.
///
/// Plain numbers round to nearest even; integers saturate; the 8-bit floats saturate at their largest finite value.
/// Block types search for scales that minimise the squared error (the K types weigh it by size). Over uniform noise the
/// root mean square error is below 0.5 % of the noise's for q8_0, 2.5 % for q6_k, 4.5 % for the five-bit types, 9.5 % for
/// the four-bit ones, 14 % for mxfp4, 18 % for q3_k and 27 % for q2_k. A block with a non-finite value is written with a
/// non-finite scale.
///
/// # Errors
/// As [`dequantize`]; and for non-finite values in mxfp4, which has no non-finite scale.
pub fn quantize(dtype: DType, x: &[f32], out: &mut [u8]) -> Result<(), KernelError> {
    check(dtype, x.len(), out.len())?;
    with_block!(dtype, B => block::quantize::<B>(x, out)?, _ => plain::narrow(dtype, x, out));
    Ok(())
}

/// Refuses element counts that do not fill blocks, and byte counts that do not hold them.
fn check(dtype: DType, elements: usize, found: usize) -> Result<(), KernelError> {
    let expected = dtype.bytes(elements).ok_or(KernelError::NotWholeBlocks { dtype, elements })?;
    if expected != found {
        return Err(KernelError::Length { dtype, elements, expected, found });
    }
    Ok(())
}
