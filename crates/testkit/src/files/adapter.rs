//! Low-rank adapters of the tiny decoder ([`super::model`]), as peft saves them.

use super::safetensors::{self, Tensor};
use super::{Files, Random, model};
use serde_json::{Value, json};

/// What every tensor's name begins with.
pub const ROOT: &str = "base_model.model.model.layers";

/// `adapter_config.json` of an adapter of every layer's query and value.
pub fn config(rank: usize) -> Value {
    json!({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": ["q_proj", "v_proj"]})
}

/// Its tensors.
pub fn tensors(rank: usize, seed: u64) -> Vec<Tensor> {
    let mut random = Random::new(seed);
    let kv = model::WIDTH / model::HEADS * model::KV_HEADS;
    let mut list = Vec::new();
    for layer in 0..model::LAYERS {
        for (module, outputs) in [("q_proj", model::WIDTH), ("v_proj", kv)] {
            for (part, shape) in [("A", [rank, model::WIDTH]), ("B", [outputs, rank])] {
                let name = format!("{ROOT}.{layer}.self_attn.{module}.lora_{part}.weight");
                // Weights of the size of the model's, and more.
                let values = (0..shape[0] * shape[1]).flat_map(|_| (random.weight() * 5.0).to_le_bytes()).collect();
                list.push(Tensor::new(&name, "F32", &shape, values));
            }
        }
    }
    list
}

/// A folder of these.
pub fn files(config: &Value, tensors: &[Tensor]) -> Files {
    vec![
        ("adapter_config.json".into(), config.to_string().into_bytes()),
        ("adapter_model.safetensors".into(), safetensors::file(tensors)),
    ]
}

/// A folder with an adapter of this rank.
pub fn folder(rank: usize, seed: u64) -> Files {
    files(&config(rank), &tensors(rank, seed))
}
