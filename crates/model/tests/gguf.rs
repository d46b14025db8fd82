//! GGUF as a second door to the same model: written here in each architecture's layout, read, and compared.

mod support;

use attend_format::gguf::{Array, Value};
use attend_kernels::{Compute, DType};
use attend_model::{Described, LoadOptions, describe, load};
use attend_nn::spec::*;
use serde_json::json;
use support::gguf::{metadata, tensors, write, write_with};
use support::{Tensor, Tiny, described, weights};

/// Golden cases that a GGUF file can say in full, with the name that the format has for their architecture.
const CASES: &[(&str, &str)] = &[
    ("llama-mha", "llama"),
    ("llama-gqa", "llama"),
    ("llama-mqa", "llama"),
    ("llama-tied", "llama"),
    ("qwen2", "qwen2"),
    ("qwen2-tied", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("phi3", "phi3"),
    ("mixtral", "llama"),
    ("qwen2_moe", "qwen2moe"),
    ("qwen3_moe", "qwen3moe"),
    ("gpt2", "gpt2"),
    ("gpt_neox", "gptneox"),
    ("gpt_neox-sequential", "gptneox"),
    ("bloom", "bloom"),
    ("mpt", "mpt"),
    ("falcon-mqa", "falcon"),
    ("falcon-new-decoder", "falcon"),
    ("gpt_bigcode", "starcoder"),
    ("gptj", "gptj"),
    ("phi", "phi2"),
    ("starcoder2", "starcoder2"),
    ("olmo", "olmo"),
    ("olmo2", "olmo2"),
    ("stablelm", "stablelm"),
    ("stablelm-sequential", "stablelm"),
    ("cohere", "command-r"),
    ("cohere2", "cohere2"),
    ("granite", "granite"),
    ("nomic_bert-base", "nomic-bert"),
    ("modernbert-base", "modern-bert"),
    ("t5-encoder", "t5encoder"),
    ("t5-v1.0", "t5"),
    ("t5-v1.1", "t5"),
];

fn reread(source: &Described, architecture: &str) -> Described {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, source, &weights(source).unwrap(), architecture);
    describe(&path).unwrap_or_else(|error| panic!("{architecture}: {error}"))
}

/// What GGUF does not say and no computation depends on, or what the test's file says otherwise on purpose.
fn comparable(spec: &ModelSpec) -> ModelSpec {
    let mut spec = spec.clone();
    // Some converters write a length where the architecture knows none.
    spec.context = None;
    let stacks = match &mut spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) => vec![stack],
        Body::EncoderDecoder { encoder, decoder } => vec![encoder, decoder],
    };
    for stack in stacks {
        // The format has no place for the distance: every file has the 128 of the original.
        if let Some(bias) = &mut stack.relative_bias {
            bias.max_distance = 128;
        }
        for layer in &mut stack.layers {
            // Neither for the query scale, which is the head's width in all but the largest models.
            layer.attention.scale = 0.0;
        }
    }
    spec
}

#[test]
fn every_layout_leads_to_the_same_model() {
    for (case, architecture) in CASES {
        let source = described(case);
        let before = weights(&source).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        write(&path, &source, &before, architecture);
        let again = describe(&path).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(comparable(&again.spec), comparable(&source.spec), "{case}");
        assert_eq!(weights(&again).unwrap(), before, "{case}");
        let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
        let loaded = load(&path, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(loaded.source.notices, Vec::<String>::new(), "{case}");
    }
}

#[test]
fn the_encoder_alone_comes_back_from_gguf() {
    let source = described("bert-base");
    let mut before = weights(&source).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    // The format has no pooler.
    let mut files = tensors_without_pooler(&source, &before);
    write_with(&path, &metadata(&source, "bert"), &files);
    before.retain(|name, _| !name.starts_with("pooler"));
    let again = describe(&path).unwrap();
    assert_eq!(weights(&again).unwrap(), before);
    assert_eq!((again.spec.pooler, &again.spec.body), (None, &source.spec.body));
    files.insert("cls.weight".into(), Tensor::f32(&[32, 32], &[0.0; 1024]));
    write_with(&path, &metadata(&source, "bert"), &files);
    assert!(describe(&path).unwrap().notices[0].contains("cls.weight"));
}

fn tensors_without_pooler(
    source: &Described,
    weights: &std::collections::BTreeMap<String, Vec<f32>>,
) -> std::collections::BTreeMap<String, Tensor> {
    let kind = attend_format::Kind::Gguf;
    let mut given = |name: &str| weights.get(name).cloned().filter(|_| !name.starts_with("pooler"));
    let mut trimmed = described("bert-base");
    trimmed.spec = ModelSpec { pooler: None, ..source.spec.clone() };
    let files = trimmed.to_kind(kind, attend_model::Quantity::Weights, &mut given).unwrap();
    files.into_iter().map(|file| (file.name, Tensor::f32(&file.shape, &file.values))).collect()
}

#[test]
fn rows_of_rotary_pairs_are_neighbours_in_the_file() {
    for (heads, kv_heads) in [(8, 2), (6, 3)] {
        let width = heads * 8;
        let config = json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": 96,
            "num_hidden_layers": 2, "vocab_size": 40, "max_position_embeddings": 64, "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5});
        let tiny = Tiny::llama(config);
        let folder = tiny.write();
        let source = describe(folder.path()).unwrap();
        let ours = weights(&source).unwrap();
        let files = tensors(&source, &ours);
        for (name, theirs, count) in [("q_proj", "attn_q", heads), ("k_proj", "attn_k", kv_heads)] {
            let stored = files[&format!("blk.1.{theirs}.weight")].values();
            let plain = tiny.tensors[&format!("model.layers.1.self_attn.{name}.weight")].values();
            for head in 0..count {
                for pair in 0..4 {
                    for half in 0..2 {
                        let (to, from) = (head * 8 + 2 * pair + half, head * 8 + half * 4 + pair);
                        assert_eq!(stored[to * width..][..width], plain[from * width..][..width], "{name} {head}");
                    }
                }
            }
        }
        let again = reread(&source, "llama");
        assert_eq!(again.spec, source.spec);
        assert_eq!(weights(&again).unwrap(), ours);
    }
}

#[test]
fn windows_and_bases_that_the_format_leaves_out() {
    // Six layers, of which the last sees everything.
    let tiny = Tiny::golden("gemma3");
    let mut deep = tiny.clone().with("num_hidden_layers", json!(6)).without("layer_types");
    for (name, tensor) in tiny.tensors.iter().filter(|(name, _)| name.contains("layers.0.")) {
        for layer in 3..6 {
            deep.tensors.insert(name.replace("layers.0.", &format!("layers.{layer}.")), tensor.clone());
        }
    }
    let folder = deep.write();
    let source = describe(folder.path()).unwrap();
    let again = reread(&source, "gemma3");
    assert_eq!(comparable(&again.spec), comparable(&source.spec));
    let position = |layer: usize| match &again.spec.output_stack().layers[layer].attention.position {
        Position::Rope(rope) => rope.base,
        other => panic!("{other:?}"),
    };
    assert_eq!((position(4), position(5)), (1e4, 1e6));
    // Every fourth layer without positions.
    let tiny = Tiny::golden("smollm3").without("no_rope_layers");
    let folder = tiny.write();
    let source = describe(folder.path()).unwrap();
    let again = reread(&source, "smollm3");
    assert_eq!(comparable(&again.spec), comparable(&source.spec));
    assert_eq!(weights(&again).unwrap(), weights(&source).unwrap());
}

#[test]
fn divisors_of_frequencies_are_read_from_their_tensors() {
    let source = described("llama-gqa");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut files = tensors(&source, &weights(&source).unwrap());
    files.insert("rope_freqs.weight".into(), Tensor::f32(&[4], &[1.0, 2.0, 4.0, 8.0]));
    write_with(&path, &metadata(&source, "llama"), &files);
    let scaling = |described: &Described| match &described.spec.output_stack().layers[0].attention.position {
        Position::Rope(rope) => rope.scaling.clone(),
        other => panic!("{other:?}"),
    };
    let divisors = RopeScaling::Divisors { divisors: vec![1.0, 2.0, 4.0, 8.0] };
    assert_eq!(scaling(&describe(&path).unwrap()), divisors);
    files.insert("rope_freqs.weight".into(), Tensor::f32(&[3], &[1.0; 3]));
    write_with(&path, &metadata(&source, "llama"), &files);
    assert!(describe(&path).unwrap_err().to_string().contains("rope_freqs.weight"));
    let source = described("phi3-longrope-long");
    let mut files = tensors(&source, &weights(&source).unwrap());
    files.insert("rope_factors_short.weight".into(), Tensor::f32(&[4], &[1.0, 1.1, 1.2, 1.3]));
    files.insert("rope_factors_long.weight".into(), Tensor::f32(&[4], &[1.0, 1.7, 2.4, 3.1]));
    let mut keys = metadata(&source, "phi3");
    keys.push(("phi3.rope.scaling.original_context_length".into(), Value::U32(16)));
    keys.push(("phi3.rope.scaling.attn_factor".into(), Value::F32(1.25)));
    write_with(&path, &keys, &files);
    let RopeScaling::Long { original, attention_factor, long, .. } = scaling(&describe(&path).unwrap()) else {
        panic!()
    };
    assert_eq!((original, attention_factor, long.len()), (16, 1.25, 4));
}

#[test]
fn quantised_rows_are_split_and_reordered_as_they_are() {
    let config = json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "num_hidden_layers": 1,
        "vocab_size": 40, "max_position_embeddings": 64, "rope_theta": 10000.0});
    let folder = Tiny::llama(config).write();
    let source = describe(folder.path()).unwrap();
    let mut files = tensors(&source, &weights(&source).unwrap());
    let mut expected = std::collections::BTreeMap::new();
    for (name, tensor) in &mut files {
        if tensor.shape.len() == 2 {
            let values = tensor.values();
            tensor.dtype = DType::Q8_0;
            tensor.bytes = vec![0; DType::Q8_0.bytes(values.len()).unwrap()];
            attend_kernels::quantize(DType::Q8_0, &values, &mut tensor.bytes).unwrap();
        }
        expected.insert(name.clone(), tensor.values());
    }
    let path = folder.path().join("model.gguf");
    write_with(&path, &metadata(&source, "llama"), &files);
    let again = describe(&path).unwrap();
    let read = weights(&again).unwrap();
    // Reordering before or after quantisation is the same, row by row.
    let back = again.to_checkpoint(attend_model::Quantity::Weights, &mut |name| read.get(name).cloned()).unwrap();
    for file in back {
        assert_eq!(file.values, expected[&file.name], "{}", file.name);
    }
    let options = LoadOptions::default();
    let loaded = load(&path, &options, &mut |_, _| {}).unwrap();
    assert_eq!(loaded.source.by_type().keys().copied().collect::<Vec<_>>(), [DType::F32, DType::Q8_0]);
}

#[test]
fn metadata_that_is_missing_or_of_another_type_is_a_named_error() {
    let source = described("llama-gqa");
    let files = tensors(&source, &weights(&source).unwrap());
    let keys = metadata(&source, "llama");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let others = || {
        let list = [
            Value::U8(3),
            Value::I32(-1),
            Value::U64(1 << 40),
            Value::F32(f32::NAN),
            Value::Bool(true),
            Value::String("many".into()),
            Value::Array(Array::U32(Vec::new())),
            Value::Array(Array::Array(Vec::new())),
        ];
        list.into_iter()
    };
    let needed =
        ["block_count", "embedding_length", "attention.head_count", "feed_forward_length", "layer_norm_rms_epsilon"];
    for (at, (key, _)) in keys.iter().enumerate() {
        let required = key == "general.architecture" || needed.iter().any(|name| key.ends_with(name));
        let mut fewer = keys.clone();
        fewer.remove(at);
        write_with(&path, &fewer, &files);
        let outcome = describe(&path);
        assert_eq!(outcome.is_err(), required || key.ends_with("head_count_kv"), "{key}: {:?}", outcome.err());
        for value in others() {
            let mut changed = keys.clone();
            changed[at].1 = value.clone();
            write_with(&path, &changed, &files);
            // Some values make sense; none may panic, and a refusal names the file.
            if let Err(error) = describe(&path) {
                assert!(error.to_string().contains("model.gguf"), "{key} {value:?}: {error}");
            } else {
                assert!(!required || matches!(value, Value::U8(_)), "{key} {value:?} was accepted");
            }
        }
    }
}

#[test]
fn ends_of_a_text_and_sampling_come_from_the_metadata() {
    let source = described("llama-gqa");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut keys = metadata(&source, "llama");
    keys.push(("tokenizer.ggml.eot_token_id".into(), Value::U32(9)));
    keys.push(("general.sampling.temp".into(), Value::F32(0.5)));
    write_with(&path, &keys, &tensors(&source, &weights(&source).unwrap()));
    let defaults = describe(&path).unwrap().generation;
    assert_eq!((defaults.eos, defaults.temperature), (vec![2, 9], Some(0.5)));
}
