//! A decoder that says what it is told: every token has one that follows it.
//!
//! One layer whose branches add nothing, an embedding of unit vectors, and an output matrix that sends each of them to the
//! token that follows. So any output can be forced, through the real loader and the real walk.

use super::Files;
use super::safetensors::{self, Tensor};
use serde_json::{Map, Value, json};

/// How much likelier the token that follows is than any other, in units of a logit.
const CERTAINTY: f32 = 4.0;

/// The model's folder. `follows` has a token for each of `tokens`, whose first is the unknown one; `ends` end an answer. The
/// text of an answer is its tokens one after the other; a token `<0x41>` is a byte.
pub fn folder(tokens: &[&str], follows: &[u32], ends: &[u32]) -> Files {
    assert_eq!(tokens.len(), follows.len(), "each token is followed by one");
    let width = tokens.len().next_multiple_of(32);
    let zeros = |rows: usize, columns: usize| vec![0f32; rows * columns];
    let mut embedding = zeros(tokens.len(), width);
    let mut head = zeros(tokens.len(), width);
    for (token, &next) in follows.iter().enumerate() {
        embedding[token * width + token] = 1.0;
        head[next as usize * width + token] = CERTAINTY / (width as f32).sqrt();
    }
    let ones = vec![1f32; width];
    let layer = |part: &str| format!("model.layers.0.{part}.weight");
    let square = |name: &str| (layer(name), vec![width, width], zeros(width, width));
    let list = vec![
        ("model.embed_tokens.weight".into(), vec![tokens.len(), width], embedding),
        (layer("input_layernorm"), vec![width], ones.clone()),
        square("self_attn.q_proj"),
        square("self_attn.k_proj"),
        square("self_attn.v_proj"),
        square("self_attn.o_proj"),
        (layer("post_attention_layernorm"), vec![width], ones.clone()),
        square("mlp.gate_proj"),
        square("mlp.up_proj"),
        square("mlp.down_proj"),
        ("model.norm.weight".into(), vec![width], ones),
        ("lm_head.weight".into(), vec![tokens.len(), width], head),
    ];
    let tensor = |(name, shape, values): (String, Vec<usize>, Vec<f32>)| {
        Tensor::new(&name, "F32", &shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    };
    let weights = safetensors::file(&list.into_iter().map(tensor).collect::<Vec<_>>());
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
        "hidden_size": width, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": width,
        "num_hidden_layers": 1, "vocab_size": tokens.len(), "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "eos_token_id": ends,
    });
    let words: Map<String, Value> = tokens.iter().enumerate().map(|(id, token)| ((*token).into(), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": tokens[0]},
    });
    vec![
        ("config.json".into(), config.to_string().into_bytes()),
        ("model.safetensors".into(), weights),
        ("tokenizer.json".into(), tokenizer.to_string().into_bytes()),
    ]
}
