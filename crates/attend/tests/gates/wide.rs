//! Golden models made sixteen times as wide, with random weights: their rows fill the blocks of every type.

use crate::common::{attend, ran, tiny};
use attend_testkit::files::safetensors::{self, Tensor};
use attend_testkit::golden::Random;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const TIMES: usize = 16;

/// Where configurations say how wide a model is; everything else (heads, layers, places, tokens) stays.
const WIDTHS: [&str; 9] = [
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "d_model",
    "d_ff",
    "d_kv",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "ffn_dim",
];

/// A golden case, wider.
pub fn wide(place: &Path, case: &str) -> PathBuf {
    let folder = tiny(place, case, json!({}));
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
    for name in WIDTHS {
        if let Some(width) = config[name].as_u64() {
            config[name] = json!(width * TIMES as u64);
        }
    }
    std::fs::write(&path, config.to_string()).expect("written");
    let vocab = config["vocab_size"].as_u64().expect("a size") as usize;
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).expect("read");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let mut random = Random(61);
    let tensors: Vec<Tensor> = header
        .iter()
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, tensor)| {
            let dims = tensor["shape"].as_array().expect("a shape").iter().map(|dim| dim.as_u64().expect("a size"));
            let shape: Vec<usize> = dims.map(|dim| wider(dim as usize, vocab)).collect();
            Tensor::new(name, "F32", &shape, values(&shape, &mut random))
        })
        .collect();
    std::fs::write(&path, safetensors::file(&tensors)).expect("written");
    folder
}

/// Widths of goldens are multiples of 16, and nothing else but the vocabulary is.
fn wider(dim: usize, vocab: usize) -> usize {
    if dim.is_multiple_of(16) && dim != vocab { dim * TIMES } else { dim }
}

/// Matrices that neither swell nor fade what goes through them; vectors, norms among them, around 1.
fn values(shape: &[usize], random: &mut Random) -> Vec<u8> {
    let columns = shape.last().copied().unwrap_or(1) as f32;
    let mut value = || match shape.len() {
        1 => 1.0 + random.normal() * 0.1,
        _ => random.normal() * 1.5 / columns.sqrt(),
    };
    (0..shape.iter().product()).flat_map(|_: usize| value().to_le_bytes()).collect()
}

/// The same as a file of this type, as the program makes it.
pub fn quantized(folder: &Path, kind: &str) -> PathBuf {
    let file = folder.with_extension(format!("{kind}.gguf"));
    let mut command = attend(folder.parent().expect("a place"));
    ran(command.args(["quantize", "--type", kind, "-m"]).arg(folder).arg(&file)).text();
    file
}
