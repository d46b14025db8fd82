//! A18: weights and scales of quantised blocks that are no numbers. The loader names the tensor.

use super::{Cases, Wanted, refused};
use crate::through::{golden, put};
use attend::kernels::{DType, quantize};
use attend_testkit::files::gguf::Gguf;
use attend_testkit::files::{Files, model, safetensors};
use attend_testkit::memory::alone;

const NAN: f32 = f32::NAN;
const WORST: [f32; 3] = [NAN, f32::INFINITY, f32::NEG_INFINITY];

#[test]
fn one_bad_value_in_any_tensor_of_plain_numbers() {
    let _alone = alone();
    let mut cases = Cases::default();
    let count = model::tensors(1).len();
    for (index, dtype, bad) in (0..count).flat_map(|i| ["F32", "F16", "BF16"].map(|dtype| (i, dtype, WORST[i % 3]))) {
        let mut tensors = model::tensors(1);
        for tensor in &mut tensors {
            tensor.data = narrow(dtype, &tensor.data, false);
            tensor.dtype = dtype;
        }
        let tensor = &mut tensors[index];
        let (size, spoilt) = (if dtype == "F32" { 4 } else { 2 }, narrow(dtype, &bad.to_le_bytes(), true));
        // The first, one in the middle, and the last.
        let at = [0, tensor.data.len() / size / 2, tensor.data.len() / size - 1][index % 3] * size;
        tensor.data[at..at + size].copy_from_slice(&spoilt);
        let name = tensor.name.clone();
        let mut files = model::folder(1);
        put(&mut files, "model.safetensors", safetensors::file(&tensors));
        cases.check(&format!("{name} {dtype} {bad}"), &files, "", &refused(&[&format!("`{name}`")]));
    }
    cases.done(60);
}

/// f32 as another type. Quantising has no need of values that are no numbers, so those are spelled out.
fn narrow(dtype: &str, bytes: &[u8], bad: bool) -> Vec<u8> {
    let values: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    match (dtype, bad) {
        ("F32", _) => bytes.to_vec(),
        ("BF16", true) => ((values[0].to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        ("F16", true) => {
            let half = if values[0].is_nan() {
                0x7e00u16
            } else if values[0] > 0.0 {
                0x7c00
            } else {
                0xfc00
            };
            half.to_le_bytes().to_vec()
        }
        (dtype, false) => {
            let dtype = if dtype == "F16" { DType::F16 } else { DType::BF16 };
            let mut out = vec![0; values.len() * 2];
            quantize(dtype, &values, &mut out).unwrap();
            out
        }
        other => panic!("{other:?}"),
    }
}

/// Type number, type, and where in a block of it the f16 scales are.
const SCALED: [(u32, DType, &[usize]); 11] = [
    (2, DType::Q4_0, &[0]),
    (3, DType::Q4_1, &[0, 2]),
    (6, DType::Q5_0, &[0]),
    (7, DType::Q5_1, &[0, 2]),
    (8, DType::Q8_0, &[0]),
    (20, DType::IQ4_NL, &[0]),
    (10, DType::Q2_K, &[80, 82]),
    (11, DType::Q3_K, &[108]),
    (12, DType::Q4_K, &[0, 2]),
    (13, DType::Q5_K, &[0, 2]),
    (14, DType::Q6_K, &[208]),
];

#[test]
fn one_bad_scale_in_any_block_type() {
    let _alone = alone();
    let mut cases = Cases::default();
    for (id, dtype, places) in SCALED {
        let file = model::wide_gguf(id, dtype);
        let one = |file: &Gguf| -> Files { vec![("m.gguf".into(), file.bytes())] };
        cases.check(&format!("{dtype}"), &one(&file), "m.gguf", &Wanted::Fine);
        for (place, bits) in places.iter().flat_map(|place| [0x7e00u16, 0x7c00, 0xfc00].map(|bits| (*place, bits))) {
            for tensor in ["token_embd.weight", "blk.0.ffn_down.weight"] {
                let mut bad = file.clone();
                let data = &mut bad.tensors.iter_mut().find(|t| t.name == tensor).unwrap().data;
                let block = dtype.bytes(dtype.block_len()).unwrap();
                let at = data.len() - block + place;
                data[at..at + 2].copy_from_slice(&bits.to_le_bytes());
                let name = format!("{dtype} {tensor} {place} {bits:x}");
                cases.check(&name, &one(&bad), "m.gguf", &refused(&[tensor]));
            }
        }
    }
    cases.done(90);
}

#[test]
fn bad_values_in_an_encoder_and_an_encoder_decoder() {
    let _alone = alone();
    let mut cases = Cases::default();
    for case in ["bert-mlm", "t5-v1.1"] {
        let files = golden(case);
        let (_, bytes) = files.iter().find(|(name, _)| name == "model.safetensors").unwrap();
        let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..start]).unwrap();
        for (name, entry) in header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
            let mut bytes = bytes.clone();
            let at = start + entry["data_offsets"][0].as_u64().unwrap() as usize;
            match entry["dtype"].as_str().unwrap() {
                "F32" => bytes[at..at + 4].copy_from_slice(&NAN.to_le_bytes()),
                "BF16" => bytes[at..at + 2].copy_from_slice(&0x7fc0u16.to_le_bytes()),
                other => panic!("{name} is {other}"),
            }
            let mut files = files.clone();
            put(&mut files, "model.safetensors", bytes);
            cases.check(&format!("{case} {name}"), &files, "", &refused(&[&format!("`{name}`")]));
        }
    }
    cases.done(60);
}
