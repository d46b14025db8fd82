//! What a checkpoint may and may not say: aliases, defaults, options that are refused, tensors that do not fit.

mod support;

use attend_kernels::{Compute, DType};
use attend_model::{Error, LoadOptions, describe, describe_within, load};
use attend_nn::spec::*;
use attend_testkit::golden::Random;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Tensor, Tiny, described, golden, weights};

fn rope(tiny: &Tiny) -> (Rope, Vec<String>) {
    let described = tiny.describe().unwrap();
    match &described.spec.output_stack().layers[0].attention.position {
        Position::Rope(rope) => (rope.clone(), described.notices),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_spellings_of_a_scaling_mean_the_same() {
    let tiny = Tiny::golden("llama-gqa");
    let old = tiny.clone().with("rope_scaling", json!({"type": "linear", "factor": 2.0}));
    let new = tiny.clone().with("rope_scaling", json!({"rope_type": "linear", "factor": 2.0}));
    let nested = tiny.without("rope_theta").without("rope_scaling");
    let nested = nested.with("rope_parameters", json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 500000.0}));
    assert_eq!(rope(&old), rope(&new));
    assert_eq!(rope(&old), rope(&nested));
    assert_eq!(rope(&old).0.scaling, RopeScaling::Linear { factor: 2.0 });
}

#[test]
fn a_nested_base_is_found_and_an_absent_one_is_announced() {
    let tiny = Tiny::golden("llama-gqa").without("rope_theta").without("rope_scaling");
    let flat = rope(&tiny.clone().with("rope_theta", json!(1e6)));
    let nested = rope(&tiny.clone().with("rope_parameters", json!({"rope_theta": 1e6})));
    assert_eq!(flat, nested);
    assert_eq!((flat.0.base, flat.1.len()), (1e6, 0));
    let (absent, notices) = rope(&tiny);
    assert_eq!(absent.base, 10000.0);
    assert!(notices[0].contains("rope_theta") && notices[0].contains("10000"), "{notices:?}");
}

#[test]
fn an_explicit_head_width_counts_and_a_false_one_names_the_tensor() {
    let config = json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96,
        "num_hidden_layers": 1, "vocab_size": 40, "max_position_embeddings": 64, "rope_theta": 10000.0});
    let mut tiny = Tiny::llama(config);
    let mut random = Random(3);
    let mut put = |name: &str, shape: &[usize]| {
        tiny.tensors.insert(format!("model.layers.0.self_attn.{name}.weight"), Tensor::random(&mut random, shape));
    };
    put("q_proj", &[128, 64]);
    put("k_proj", &[64, 64]);
    put("v_proj", &[64, 64]);
    put("o_proj", &[64, 128]);
    assert_eq!(tiny.describe().unwrap().spec.output_stack().layers[0].attention.key_dim, 32);
    let refusal = tiny.with("head_dim", json!(16)).refusal();
    for part in ["model.layers.0.self_attn.q_proj.weight", "[64, 64]", "[128, 64]", "model.safetensors"] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
}

/// Runs within a second, so that a claim is refused and not tried.
fn promptly<T>(what: &str, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    assert!(start.elapsed() < Duration::from_secs(1), "{what} took {:?}", start.elapsed());
    result
}

#[test]
fn impossible_counts_are_named_errors() {
    let fields = [
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "intermediate_size",
        "head_dim",
    ];
    let values = [json!(0), json!(-1), json!(1u64 << 31), json!(1e30), json!("12"), json!([]), json!({}), json!(2.5)];
    for field in fields {
        for value in &values {
            let tiny = Tiny::golden("llama-gqa").with(field, value.clone());
            let refusal = promptly(field, || tiny.refusal());
            assert!(refusal.contains(field) && refusal.contains("config.json"), "{field} {value}: {refusal}");
        }
    }
    for value in &values {
        let refusal = Tiny::golden("llama-rope-dynamic").with("max_position_embeddings", value.clone()).refusal();
        assert!(refusal.contains("max_position_embeddings"), "{refusal}");
    }
}

#[test]
fn null_is_absence() {
    for field in ["num_attention_heads", "hidden_size", "num_hidden_layers", "vocab_size"] {
        let refusal = Tiny::golden("llama-gqa").with(field, Value::Null).refusal();
        assert!(refusal.contains(field) && refusal.contains("missing"), "{refusal}");
    }
    // As many KV heads as heads: four, where the file has two.
    let refusal = Tiny::golden("llama-gqa").with("num_key_value_heads", Value::Null).refusal();
    assert!(refusal.contains("k_proj"), "{refusal}");
}

#[test]
fn a_terabyte_is_refused_with_both_figures() {
    let wide = [("hidden_size", json!(1 << 20)), ("intermediate_size", json!(1 << 22)), ("head_dim", json!(1 << 18))];
    let tiny = wide.into_iter().fold(Tiny::golden("llama-gqa"), |tiny, (key, value)| tiny.with(key, value));
    let deep = Tiny::golden("llama-gqa").with("num_hidden_layers", json!(1_000_000_000));
    for (tiny, needed) in [(tiny, "TiB"), (deep, "TiB")] {
        let folder = tiny.write();
        let error = promptly("a claim", || describe_within(folder.path(), Some(8 << 30)).map(drop).unwrap_err());
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(needed) && text.contains("8.0 GiB"), "{text}");
    }
}

#[test]
fn a_model_beyond_the_memory_is_described_and_not_loaded() {
    let options = LoadOptions { available_memory: Some(1000), ..LoadOptions::default() };
    assert!(describe_within(&golden("llama-gqa"), Some(1000)).is_ok());
    let error = load(&golden("llama-gqa"), &options, &mut |_, _| {}).map(drop).unwrap_err().to_string();
    assert!(error.contains("1000 B") && error.contains("KiB"), "{error}");
}

#[test]
fn a_tied_model_may_carry_its_output_matrix() {
    let mut tiny = Tiny::golden("llama-tied");
    let before = tiny.weights();
    let copy = tiny.tensors["model.embed_tokens.weight"].clone();
    tiny.tensors.insert("lm_head.weight".into(), copy);
    let notices =
        |tiny: &Tiny| load(tiny.write().path(), &LoadOptions::default(), &mut |_, _| {}).unwrap().source.notices;
    assert_eq!(notices(&tiny), Vec::<String>::new());
    tiny.tensors.get_mut("lm_head.weight").unwrap().bytes[0] ^= 1;
    let said = notices(&tiny);
    assert!(said.len() == 1 && said[0].contains("lm_head.weight") && said[0].contains("embed_tokens"), "{said:?}");
    assert_eq!(tiny.weights(), before);
}

#[test]
fn shared_tables_may_be_there_more_than_once() {
    let mut tiny = Tiny::golden("t5-v1.0");
    let before = tiny.weights();
    let shared = tiny.tensors["shared.weight"].clone();
    tiny.tensors.insert("encoder.embed_tokens.weight".into(), shared.clone());
    tiny.tensors.insert("decoder.embed_tokens.weight".into(), shared.clone());
    tiny.tensors.insert("lm_head.weight".into(), shared);
    assert_eq!(tiny.describe().unwrap().copies.len(), 3);
    assert_eq!(tiny.weights(), before);
    tiny.tensors.remove("shared.weight");
    assert_eq!(tiny.weights(), before);
}

#[test]
fn old_and_new_names_of_an_encoder_load_alike() {
    let tiny = Tiny::golden("bert-mlm");
    let expected = tiny.weights();
    let bare = |name: &str| name.strip_prefix("bert.").unwrap_or(name).to_string();
    let greek =
        |name: &str| name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    assert_eq!(tiny.clone().rename(bare).weights(), expected);
    assert_eq!(tiny.clone().rename(greek).weights(), expected);
    assert_eq!(tiny.clone().rename(|name| greek(&bare(name))).weights(), expected);
    let mut base = Tiny::golden("bert-base").rename(|name| format!("bert.{name}"));
    base.tensors.insert("cls.seq_relationship.weight".into(), Tensor::f32(&[2, 32], &[0.0; 64]));
    let described = base.describe().unwrap();
    assert!(described.notices[0].contains("cls.seq_relationship"), "{:?}", described.notices);
}

#[test]
fn prefixes_and_buffers_of_decoders() {
    let tiny = Tiny::golden("llama-gqa");
    let expected = tiny.weights();
    let mut bare = tiny.clone().rename(|name| name.strip_prefix("model.").unwrap_or(name).to_string());
    bare.tensors.insert("layers.0.self_attn.rotary_emb.inv_freq".into(), Tensor::f32(&[4], &[1.0; 4]));
    assert_eq!(bare.weights(), expected);
    assert_eq!(bare.describe().unwrap().notices, Vec::<String>::new());
    let gemma = Tiny::golden("gemma3");
    let text = json!({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": gemma.config});
    let mut outer =
        gemma.clone().rename(|name| format!("language_{name}").replace("language_model", "language_model.model"));
    outer.config = text;
    outer.tensors.insert("vision_tower.blocks.0.weight".into(), Tensor::f32(&[1], &[1.0]));
    assert_eq!(outer.weights(), gemma.weights());
    assert!(outer.describe().unwrap().notices[0].contains("vision_tower"));
}

#[test]
fn activations_are_told_apart_and_unknown_ones_refused() {
    let named = |name: &str| Tiny::golden("bert-base").with("hidden_act", json!(name));
    let activation = |name: &str| match named(name).describe().unwrap().spec.output_stack().layers[0].ffn {
        Ffn::Mlp { activation, .. } | Ffn::Gated { activation, .. } => activation,
    };
    assert_eq!(activation("gelu"), Activation::Gelu);
    assert_eq!(activation("gelu_new"), Activation::GeluTanh);
    assert_eq!(activation("gelu_pytorch_tanh"), Activation::GeluTanh);
    assert_eq!((activation("relu"), activation("silu")), (Activation::Relu, Activation::Silu));
    let refusal = named("mish").refusal();
    assert!(refusal.contains("hidden_act") && refusal.contains("mish"), "{refusal}");
    for eps in [1e-12, 1e-5, 1e-2] {
        let described = Tiny::golden("bert-base").with("layer_norm_eps", json!(eps)).describe().unwrap();
        let norm = described.spec.output_stack().layers[0].norm;
        assert_eq!(norm, Norm::Layer { eps: eps as f32, bias: true });
    }
    for eps in [json!(-1.0), json!("0.1"), json!(2.0)] {
        let refusal = Tiny::golden("bert-base").with("layer_norm_eps", eps).refusal();
        assert!(refusal.contains("layer_norm_eps"), "{refusal}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let cases = [
        ("bert-base", "position_embedding_type", json!("relative_key")),
        ("bert-base", "is_decoder", json!(true)),
        ("bert-base", "architectures", json!(["BertForMultipleChoice"])),
        ("llama-gqa", "rope_scaling", json!({"rope_type": "spiral", "factor": 2.0})),
        ("llama-gqa", "rope_scaling", json!({"rope_type": "linear"})),
        ("llama-gqa", "rope_scaling", json!({"rope_type": "linear", "factor": -1.0})),
        ("llama-gqa", "rope_theta", json!(0)),
        ("llama-gqa", "partial_rotary_factor", json!(0.4)),
        ("llama-gqa", "num_key_value_heads", json!(3)),
        ("llama-gqa", "quantization_config", json!({"quant_method": "awq", "bits": 4})),
        ("llama-gqa", "quantization_config", json!({"quant_method": "fp8", "weight_block_size": [64, 64]})),
        ("llama-gqa", "tie_word_embeddings", json!("yes")),
        ("gpt2", "add_cross_attention", json!(true)),
        ("mpt", "norm_type", json!("rmsnorm")),
        ("mpt", "logit_scale", json!("inv_sqrt_d_model")),
        ("gemma2", "layer_types", json!(["full_attention"])),
        ("gemma2", "layer_types", json!(["full_attention", "chunked_attention"])),
        ("gemma2", "attn_logit_softcapping", json!(-2.0)),
        ("gemma3", "use_bidirectional_attention", json!(true)),
        (
            "phi3-longrope-long",
            "rope_scaling",
            json!({"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}),
        ),
        ("smollm3", "no_rope_layers", json!([1, 0])),
        ("gpt_neo", "attention_layers", json!(["global", "square", "local"])),
        ("t5-v1.0", "feed_forward_proj", json!("gated-mish")),
        ("falcon-new-decoder", "num_ln_in_parallel_attn", json!(3)),
    ];
    for (case, field, value) in cases {
        let refusal = Tiny::golden(case).with(field, value.clone()).refusal();
        let named = match &value {
            Value::Object(map) => map.keys().any(|key| refusal.contains(key.as_str())) || refusal.contains(field),
            _ => refusal.contains(field),
        };
        assert!((named || refusal.contains("factor")) && refusal.contains("config.json"), "{case} {field}: {refusal}");
    }
    let refusal = Tiny::golden("llama-gqa").with("model_type", json!("mamba")).refusal();
    assert!(refusal.contains("mamba") && refusal.contains("llama"), "{refusal}");
}

#[test]
fn the_class_speaks_where_the_type_is_missing() {
    assert_eq!(Tiny::golden("bert-mlm").without("model_type").describe().unwrap().architecture, "bert");
    assert_eq!(Tiny::golden("t5-v1.0").without("model_type").describe().unwrap().architecture, "t5");
    let neither = Tiny::golden("bert-mlm").without("model_type").without("architectures").refusal();
    assert!(neither.contains("model_type"), "{neither}");
}

#[test]
fn everything_wrong_with_the_tensors_is_said_at_once() {
    let mut tiny = Tiny::golden("llama-gqa");
    tiny.tensors.remove("model.layers.1.mlp.up_proj.weight");
    tiny.tensors.remove("model.norm.weight");
    tiny.tensors.insert("model.layers.0.self_attn.q_proj.bias".into(), Tensor::f32(&[32], &[0.0; 32]));
    tiny.tensors.insert("lm_head.weight".into(), Tensor::f32(&[96, 31], &[0.0; 96 * 31]));
    let Err(Error::Weights(error)) = tiny.describe() else { panic!("accepted") };
    assert_eq!(error.missing, ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]);
    assert_eq!(error.unexpected, ["model.layers.0.self_attn.q_proj.bias"]);
    assert_eq!(
        (error.misshaped[0].expected.as_slice(), error.misshaped[0].found.as_slice()),
        ([96, 32].as_slice(), [96, 31].as_slice())
    );
    let text = error.to_string();
    for part in ["up_proj", "model.norm", "q_proj.bias", "lm_head", "[96, 32]", "[96, 31]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_missing_shard_or_tensor_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden("llama-load-sharded")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    assert!(describe(folder.path()).is_ok());
    std::fs::remove_file(folder.path().join("model-00002-of-00003.safetensors")).unwrap();
    let error = describe(folder.path()).unwrap_err().to_string();
    assert!(error.contains("model-00002-of-00003.safetensors"), "{error}");
    let mut tiny = Tiny::golden("gpt2");
    tiny.tensors.remove("transformer.h.1.attn.c_attn.weight");
    let Err(Error::Weights(error)) = tiny.describe() else { panic!("accepted") };
    assert_eq!(error.missing, ["transformer.h.1.attn.c_attn.weight"], "once, though three of ours come from it");
}

#[test]
fn what_is_not_a_number_is_named_with_its_place() {
    let damage = |name: &str, element: usize, bits: u32| {
        let mut tiny = Tiny::golden("llama-mha");
        tiny.tensors.get_mut(name).unwrap().bytes[4 * element..4 * element + 4].copy_from_slice(&bits.to_le_bytes());
        load(tiny.write().path(), &LoadOptions::default(), &mut |_, _| {}).map(drop).unwrap_err().to_string()
    };
    let error = damage("model.layers.1.post_attention_layernorm.weight", 5, f32::NAN.to_bits());
    assert!(error.contains("model.layers.1.post_attention_layernorm.weight") && error.contains("element 5"), "{error}");
    let error = damage("model.layers.0.mlp.down_proj.weight", 70, f32::INFINITY.to_bits());
    assert!(error.contains("down_proj") && error.contains("element 70") && error.contains("infinity"), "{error}");
    let mut tiny = Tiny::golden("gpt2");
    let (name, at) = ("transformer.h.0.attn.c_attn.weight", 7 * 96 + 40);
    tiny.tensors.get_mut(name).unwrap().bytes[4 * at..4 * at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = load(tiny.write().path(), &LoadOptions::default(), &mut |_, _| {}).map(drop).unwrap_err().to_string();
    assert!(error.contains(name) && error.contains(&format!("element {at}")), "{error}");
}

#[test]
fn every_plain_type_loads_to_its_values() {
    let tiny = Tiny::golden("llama-mha");
    let original = tiny.weights();
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let mut typed = tiny.clone();
        for tensor in typed.tensors.values_mut() {
            let values = tensor.values();
            tensor.bytes = match dtype {
                DType::F64 => values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect(),
                _ => {
                    let mut bytes = vec![0; dtype.bytes(values.len()).unwrap()];
                    attend_kernels::quantize(dtype, &values, &mut bytes).unwrap();
                    bytes
                }
            };
            tensor.dtype = dtype;
        }
        for (name, values) in typed.weights() {
            let close = |x: &f32, y: &f32| (x - y).abs() <= y.abs() * 0.01 + 1e-6;
            assert!(values.iter().zip(&original[&name]).all(|(x, y)| close(x, y)), "{dtype} {name}");
            assert!(dtype != DType::F64 || values == original[&name], "{dtype} {name}");
        }
    }
}

fn block_scaled_llama() -> (Tiny, Vec<f32>) {
    let config = json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 192,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 320, "num_hidden_layers": 1,
        "vocab_size": 40, "max_position_embeddings": 64, "rope_theta": 10000.0,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}});
    let mut tiny = Tiny::llama(config);
    let name = "model.layers.0.mlp.up_proj.weight";
    let mut random = Random(5);
    let codes: Vec<u8> = (0..320 * 192).map(|_| (random.below(0x7f) as u8) | ((random.below(2) as u8) << 7)).collect();
    let scales: Vec<f32> = (0..6).map(|i| 0.25 + i as f32 * 0.3).collect();
    let coded = Tensor { dtype: DType::F8E4M3, shape: vec![320, 192], bytes: codes };
    let values = coded.values();
    let expected = (0..320 * 192).map(|at| values[at] * scales[at / 192 / 128 * 2 + at % 192 / 128]).collect();
    tiny.tensors.insert(name.into(), coded);
    tiny.tensors.insert(format!("{name}_scale_inv"), Tensor::f32(&[3, 2], &scales));
    (tiny, expected)
}

#[test]
fn eight_bit_floats_are_combined_with_their_block_scales() {
    let (mut tiny, expected) = block_scaled_llama();
    assert_eq!(tiny.weights()["layers.0.ffn.up.weight"], expected);
    let loaded = load(tiny.write().path(), &LoadOptions::default(), &mut |_, _| {});
    assert!(loaded.is_ok(), "{:?}", loaded.err());
    tiny.tensors.insert("model.layers.0.mlp.up_proj.weight_scale_inv".into(), Tensor::f32(&[3, 1], &[1.0; 3]));
    let refusal = tiny.refusal();
    assert!(refusal.contains("weight_scale_inv") && refusal.contains("[3, 2]"), "{refusal}");
}

#[test]
fn four_bit_floats_are_combined_with_their_powers_of_two() {
    let config = json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 96, "num_hidden_layers": 1,
        "vocab_size": 40, "max_position_embeddings": 64, "rope_theta": 10000.0,
        "quantization_config": {"quant_method": "mxfp4"}});
    let mut tiny = Tiny::llama(config);
    let name = "model.layers.0.mlp.up_proj.weight";
    let mut random = Random(9);
    let blocks: Vec<u8> = (0..96 * 2 * 16).map(|_| random.below(256) as u8).collect();
    let scales: Vec<u8> = (0..96 * 2).map(|_| 120 + random.below(10) as u8).collect();
    let codes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
    let value = |at: usize| {
        let code = blocks[at / 2] >> (4 * (at % 2)) & 15;
        codes[code as usize] * 2f32.powi(i32::from(scales[at / 32]) - 127)
    };
    let expected: Vec<f32> = (0..96 * 64).map(value).collect();
    tiny.tensors.remove(name);
    tiny.tensors
        .insert(format!("{name}_blocks"), Tensor { dtype: DType::U8, shape: vec![96, 2, 16], bytes: blocks.clone() });
    tiny.tensors
        .insert(format!("{name}_scales"), Tensor { dtype: DType::U8, shape: vec![96, 2], bytes: scales.clone() });
    assert_eq!(tiny.weights()["layers.0.ffn.up.weight"], expected);
    let described = tiny.describe().unwrap();
    assert!(described.tensors.iter().any(|tensor| tensor.dtype == DType::MXFP4 && tensor.companions.len() == 1));
}

#[test]
fn both_computes_and_every_kept_type_load() {
    let folder = golden("llama-gqa");
    for compute in [Compute::Native, Compute::F32] {
        for dtype in [None, Some(DType::F32), Some(DType::BF16), Some(DType::F16)] {
            let options = LoadOptions { compute, dtype, available_memory: None };
            assert!(load(&folder, &options, &mut |_, _| {}).is_ok(), "{compute:?} {dtype:?}");
        }
    }
}

#[test]
fn generation_settings_are_merged_and_checked() {
    let mut tiny = Tiny::golden("llama-gqa").with("eos_token_id", json!([3, 4])).with("max_length", json!(77));
    tiny.generation = Some(json!({"eos_token_id": 5, "do_sample": true, "temperature": 0.6, "top_k": 40, "top_p": 0.9,
        "bad_words_ids": [[1, 2], [3]], "early_stopping": "never", "suppress_tokens": [7, 8], "num_beams": 3}));
    let defaults = tiny.describe().unwrap().generation;
    assert_eq!((defaults.eos.as_slice(), defaults.max_length), ([5].as_slice(), Some(77)));
    assert_eq!((defaults.temperature, defaults.top_k, defaults.top_p), (Some(0.6), Some(40), Some(0.9)));
    assert_eq!(defaults.bad_words, [vec![1, 2], vec![3]]);
    assert_eq!(defaults.sources["max_length"], "config.json");
    assert_eq!(defaults.sources["top_k"], "generation_config.json");
    tiny.generation = None;
    assert_eq!(tiny.describe().unwrap().generation.eos, [3, 4]);
    for (key, value) in [("temperature", json!("hot")), ("eos_token_id", json!([1.5])), ("top_k", json!(-3))] {
        tiny.generation = Some(json!({ key: value }));
        let refusal = tiny.refusal();
        assert!(refusal.contains(key) && refusal.contains("generation_config.json"), "{refusal}");
    }
}

#[test]
fn weights_of_a_described_golden_are_those_of_the_file() {
    // Without the tables: a plain, a fused, a transposed and a shifted tensor, read by hand.
    let ours = |case: &str, name: &str| weights(&described(case)).unwrap()[name].clone();
    let theirs = |case: &str, name: &str| Tiny::golden(case).tensors[name].values();
    assert_eq!(
        ours("bert-base", "layers.1.ffn.down.weight"),
        theirs("bert-base", "encoder.layer.1.output.dense.weight")
    );
    let fused = theirs("phi3", "model.layers.1.self_attn.qkv_proj.weight");
    assert_eq!(ours("phi3", "layers.1.attention.key.weight"), fused[32 * 32..48 * 32]);
    let fused = theirs("phi3", "model.layers.0.mlp.gate_up_proj.weight");
    assert_eq!(ours("phi3", "layers.0.ffn.up.weight"), fused[48 * 32..]);
    let stored = theirs("gpt2", "transformer.h.0.attn.c_attn.weight");
    let key: Vec<f32> = (0..32 * 32).map(|at| stored[at % 32 * 96 + 32 + at / 32]).collect();
    assert_eq!(ours("gpt2", "layers.0.attention.key.weight"), key);
    let norm: Vec<f32> = theirs("gemma", "model.norm.weight").iter().map(|w| w + 1.0).collect();
    assert_eq!(ours("gemma", "final_norm.weight"), norm);
    // Two heads of 16, each query, key, value.
    let fused = theirs("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight");
    let value: Vec<f32> =
        (0..32).flat_map(|row| &fused[(row / 16 * 48 + 32 + row % 16) * 32..][..32]).copied().collect();
    assert_eq!(ours("gpt_neox", "layers.0.attention.value.weight"), value);
    // Two groups of two queries, a key and a value, 8 rows each.
    let fused = theirs("falcon-new-decoder", "transformer.h.1.self_attention.query_key_value.weight");
    let key: Vec<f32> = (0..16).flat_map(|row| &fused[(row / 8 * 32 + 16 + row % 8) * 32..][..32]).copied().collect();
    assert_eq!(ours("falcon-new-decoder", "layers.1.attention.key.weight"), key);
}
