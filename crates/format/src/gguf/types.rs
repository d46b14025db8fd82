//! The tensor types of the format by their numbers.

use attend_kernels::DType;

use crate::tensors::FoundType;

/// What a type number means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Type {
    pub dtype: FoundType,
    pub block_len: u64,
    pub block_bytes: u64,
}

/// The meaning of a type number; `Err(Some(name))` for numbers whose types the format has withdrawn.
pub(crate) fn parse_type(id: u32) -> Result<Type, Option<&'static str>> {
    if let Some(&(_, dtype)) = READABLE.iter().find(|(known, _)| *known == id) {
        let (block_len, block_bytes) = (dtype.block_len() as u64, dtype.block_bytes() as u64);
        return Ok(Type { dtype: FoundType::Known(dtype), block_len, block_bytes });
    }
    if let Some(&(_, name, block_len, block_bytes)) = NAMED.iter().find(|(known, ..)| *known == id) {
        return Ok(Type { dtype: FoundType::Named(name), block_len, block_bytes });
    }
    Err(WITHDRAWN.iter().find(|(known, _)| *known == id).map(|(_, name)| *name))
}

/// The format's number of a type; `None` for types it does not have.
pub fn type_id(dtype: DType) -> Option<u32> {
    READABLE.iter().find(|(_, known)| *known == dtype).map(|(id, _)| *id)
}

/// The name of a type number, where it is known.
pub fn type_name(id: u32) -> Option<&'static str> {
    match parse_type(id) {
        Ok(Type { dtype: FoundType::Known(dtype), .. }) => Some(dtype.name()),
        Ok(Type { dtype: FoundType::Named(name), .. }) => Some(name),
        Err(name) => name,
    }
}

const READABLE: &[(u32, DType)] = &[
    (0, DType::F32),
    (1, DType::F16),
    (2, DType::Q4_0),
    (3, DType::Q4_1),
    (6, DType::Q5_0),
    (7, DType::Q5_1),
    (8, DType::Q8_0),
    (10, DType::Q2_K),
    (11, DType::Q3_K),
    (12, DType::Q4_K),
    (13, DType::Q5_K),
    (14, DType::Q6_K),
    (20, DType::IQ4_NL),
    (23, DType::IQ4_XS),
    (24, DType::I8),
    (25, DType::I16),
    (26, DType::I32),
    (27, DType::I64),
    (28, DType::F64),
    (30, DType::BF16),
    (39, DType::MXFP4),
];

/// Types whose size is known, so that a file which holds one can be listed, but which are not read here: number, name,
/// elements and bytes of a block.
const NAMED: &[(u32, &str, u64, u64)] = &[
    (9, "q8_1", 32, 36),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (29, "iq1_m", 256, 56),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
];

const WITHDRAWN: &[(u32, &str)] = &[
    (4, "q4_2 (withdrawn)"),
    (5, "q4_3 (withdrawn)"),
    (31, "q4_0_4_4 (withdrawn)"),
    (32, "q4_0_4_8 (withdrawn)"),
    (33, "q4_0_8_8 (withdrawn)"),
    (36, "iq4_nl_4_4 (withdrawn)"),
    (37, "iq4_nl_4_8 (withdrawn)"),
    (38, "iq4_nl_8_8 (withdrawn)"),
];
