//! A tiny decoder with random weights, in every container.

use std::collections::BTreeMap;

use attend_kernels::{DType, quantize};
use serde_json::json;

use super::gguf::Gguf;
use super::safetensors::{self, Tensor};
use super::torch::{self, Pickle, View};
use super::{Files, Random};

/// Width, heads, key-value heads, feed-forward width, layers and vocabulary of the tiny decoder.
pub const WIDTH: usize = 32;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const HIDDEN: usize = 48;
pub const LAYERS: usize = 2;
pub const VOCAB: usize = 96;

/// How large a decoder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub hidden: usize,
    pub layers: usize,
    pub vocab: usize,
    pub context: usize,
}

/// The tiny decoder.
pub const TINY: Size =
    Size { width: WIDTH, heads: HEADS, kv_heads: KV_HEADS, hidden: HIDDEN, layers: LAYERS, vocab: VOCAB, context: 128 };

impl Size {
    /// Bytes of the keys and values of a token in f32.
    pub const fn bytes_per_token(self) -> u64 {
        (self.layers * 2 * self.width / self.heads * self.kv_heads * 4) as u64
    }
}

/// Its `config.json`.
pub fn config() -> serde_json::Map<String, serde_json::Value> {
    config_of(&TINY)
}

/// The `config.json` of a decoder of this size.
pub fn config_of(size: &Size) -> serde_json::Map<String, serde_json::Value> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": size.width, "num_attention_heads": size.heads, "num_key_value_heads": size.kv_heads,
        "intermediate_size": size.hidden, "num_hidden_layers": size.layers, "vocab_size": size.vocab,
        "max_position_embeddings": size.context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
    });
    config.as_object().cloned().unwrap_or_default()
}

/// Its tensors in f32 under the names of Hugging Face checkpoints.
pub fn tensors(seed: u64) -> Vec<Tensor> {
    tensors_of(&TINY, seed)
}

/// The tensors of a decoder of this size.
pub fn tensors_of(size: &Size, seed: u64) -> Vec<Tensor> {
    let Size { width, heads, kv_heads, hidden, layers, vocab, .. } = *size;
    let mut random = Random::new(seed);
    let mut list = Vec::new();
    let mut add = |name: String, shape: &[usize]| {
        let data = random.weights(shape.iter().product());
        list.push(Tensor::new(&name, "F32", shape, data));
    };
    let kv = width / heads * kv_heads;
    add("model.embed_tokens.weight".into(), &[vocab, width]);
    for layer in 0..layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        add(name("input_layernorm"), &[width]);
        add(name("self_attn.q_proj"), &[width, width]);
        add(name("self_attn.k_proj"), &[kv, width]);
        add(name("self_attn.v_proj"), &[kv, width]);
        add(name("self_attn.o_proj"), &[width, width]);
        add(name("post_attention_layernorm"), &[width]);
        add(name("mlp.gate_proj"), &[hidden, width]);
        add(name("mlp.up_proj"), &[hidden, width]);
        add(name("mlp.down_proj"), &[width, hidden]);
    }
    add("model.norm.weight".into(), &[width]);
    add("lm_head.weight".into(), &[vocab, width]);
    list
}

fn config_bytes() -> Vec<u8> {
    serde_json::Value::Object(config()).to_string().into_bytes()
}

/// A folder with `model.safetensors`.
pub fn folder(seed: u64) -> Files {
    let weights = safetensors::file(&tensors(seed));
    vec![("config.json".into(), config_bytes()), ("model.safetensors".into(), weights)]
}

/// A folder with two shards and their index.
pub fn sharded(seed: u64) -> Files {
    let tensors = tensors(seed);
    let (a, b) = tensors.split_at(tensors.len() / 2);
    let mut files = vec![("config.json".into(), config_bytes())];
    let mut map = BTreeMap::new();
    for (number, part) in [(1, a), (2, b)] {
        let name = format!("model-0000{number}-of-00002.safetensors");
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), name.clone())));
        files.push((name, safetensors::file(part)));
    }
    let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    files.push(("model.safetensors.index.json".into(), index.to_string().into_bytes()));
    files
}

/// A folder with `pytorch_model.bin`, in the current container or the one before.
pub fn pickled(seed: u64, legacy: bool) -> Files {
    let tensors = tensors(seed);
    let shapes: Vec<Vec<i64>> = tensors.iter().map(|t| t.shape.iter().map(|&dim| dim as i64).collect()).collect();
    let strides: Vec<Vec<i64>> =
        shapes.iter().map(|shape| if shape.len() == 2 { vec![shape[1], 1] } else { vec![1] }).collect();
    let keys: Vec<String> = (0..tensors.len()).map(|key| key.to_string()).collect();
    let views: Vec<(&str, View)> = (0..tensors.len())
        .map(|i| {
            let (elements, shape, strides) = (shapes[i].iter().product(), &shapes[i][..], &strides[i][..]);
            (&*tensors[i].name, View { class: "FloatStorage", key: &keys[i], elements, offset: 0, shape, strides })
        })
        .collect();
    let pickle = Pickle::state(&views);
    let each = keys.iter().zip(&tensors);
    let weights = if legacy {
        let storages: Vec<_> = each.map(|(key, t)| (&**key, t.data.len() as u64 / 4, t.data.clone())).collect();
        torch::legacy_file(&pickle, true, &storages)
    } else {
        let storages: Vec<_> = each.map(|(key, tensor)| (&**key, tensor.data.clone())).collect();
        torch::zip_file(&pickle, &storages)
    };
    vec![("config.json".into(), config_bytes()), ("pytorch_model.bin".into(), weights)]
}

/// The metadata of the GGUF form, with a vocabulary of numbered words.
pub fn gguf_head() -> Gguf {
    let words: Vec<String> = (0..VOCAB).map(|id| format!("w{id}")).collect();
    let scores: Vec<u8> = (0..VOCAB).flat_map(|id| (-(id as f32)).to_le_bytes()).collect();
    let types: Vec<u8> = (0..VOCAB).flat_map(|_| 1i32.to_le_bytes()).collect();
    Gguf::new("llama")
        .u32("llama.context_length", 128)
        .u32("llama.embedding_length", WIDTH as u32)
        .u32("llama.block_count", LAYERS as u32)
        .u32("llama.feed_forward_length", HIDDEN as u32)
        .u32("llama.attention.head_count", HEADS as u32)
        .u32("llama.attention.head_count_kv", KV_HEADS as u32)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10000.0)
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &words)
        .array("tokenizer.ggml.scores", super::gguf::value::F32, VOCAB as u64, &scores)
        .array("tokenizer.ggml.token_type", super::gguf::value::I32, VOCAB as u64, &types)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
}

/// The GGUF form of the tensors in f32; query and key rows are in the format's order (pairs of a rotation adjacent).
pub fn gguf(seed: u64) -> Gguf {
    tensors(seed).iter().fold(gguf_head(), |file, tensor| {
        let dims: Vec<u64> = tensor.shape.iter().rev().map(|&dim| dim as u64).collect();
        let data = match tensor.name.as_str() {
            name if name.contains("q_proj") => interleave(&tensor.data, HEADS),
            name if name.contains("k_proj") => interleave(&tensor.data, KV_HEADS),
            _ => tensor.data.clone(),
        };
        file.tensor(&gguf_name(&tensor.name), &dims, 0, data)
    })
}

fn gguf_name(name: &str) -> String {
    [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ]
    .iter()
    .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Rows of each head from halves (a rotation pairs row i with row i + d/2) to neighbours (2i with 2i + 1).
fn interleave(data: &[u8], heads: usize) -> Vec<u8> {
    let row = WIDTH * 4;
    let rows: Vec<&[u8]> = data.chunks(row).collect();
    let per_head = rows.len() / heads;
    let order = (0..heads).flat_map(|head| {
        (0..per_head).map(move |i| head * per_head + if i % 2 == 0 { i / 2 } else { per_head / 2 + i / 2 })
    });
    order.flat_map(|from| rows[from].to_vec()).collect()
}

/// The types that [`wide_gguf`] may be given: a file's number for each.
pub const WIDE_TYPES: [(u32, DType); 16] = [
    (39, DType::MXFP4),
    (0, DType::F32),
    (1, DType::F16),
    (30, DType::BF16),
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
];

/// A one-layer decoder whose matrices have rows of 256, all of one type: its number in the format, and its name here.
pub fn wide_gguf(type_id: u32, dtype: DType) -> Gguf {
    let mut random = Random::new(9);
    let mut head = gguf_head();
    let set = [("llama.embedding_length", 256u32), ("llama.block_count", 1), ("llama.feed_forward_length", 256)];
    for (key, value) in &mut head.keys {
        if let Some((_, number)) = set.iter().find(|(name, _)| name == key) {
            *value = [&4u32.to_le_bytes()[..], &number.to_le_bytes()].concat();
        }
    }
    let mut matrix = |file: Gguf, name: &str, rows: u64| {
        let values: Vec<f32> = (0..rows * 256).map(|_| random.weight()).collect();
        let mut bytes = vec![0; dtype.bytes(values.len()).expect("whole blocks")];
        quantize(dtype, &values, &mut bytes).expect("whole blocks");
        file.tensor(name, &[256, rows], type_id, bytes)
    };
    let ones: Vec<u8> = [1f32; 256].iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut file = matrix(head, "token_embd.weight", 96);
    for (name, rows) in [
        ("attn_q", 256),
        ("attn_k", 128),
        ("attn_v", 128),
        ("attn_output", 256),
        ("ffn_gate", 256),
        ("ffn_up", 256),
        ("ffn_down", 256),
    ] {
        file = matrix(file, &format!("blk.0.{name}.weight"), rows);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        file = file.tensor(name, &[256], 0, ones.clone());
    }
    file
}
