//! What a configuration may and may not say: aliases, defaults, options that are refused, impossible claims.

mod support;

use attend_model::{Error, LoadOptions, describe_within, load};
use attend_nn::spec::*;
use attend_testkit::golden::Random;
use serde_json::{Value, json};
use support::{Tensor, Tiny, golden};

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
            let refusal = tiny.refusal();
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
    let deep = |case: &str| Tiny::golden(case).with("num_hidden_layers", json!(1_000_000_000));
    // The list of layer kinds in the second contradicts the claim too; the claim is what is wrong.
    for (tiny, needed) in [(tiny, "TiB"), (deep("llama-gqa"), "TiB"), (deep("gemma2"), "iB")] {
        let folder = tiny.write();
        let error = describe_within(folder.path(), Some(8 << 30)).map(drop).unwrap_err();
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
fn a_context_beyond_the_memory_is_refused_with_figures() {
    use attend_kernels::DType;
    use attend_model::Need;
    let folder = Tiny::golden("t5-v1.0").write();
    let need = |context| Some(Need { context, batch: 16, kv: attend_nn::KvTypes::both(DType::F16) });
    let options =
        |context| LoadOptions { available_memory: Some(64 << 20), need: need(context), ..LoadOptions::default() };
    assert!(load(folder.path(), &options(None), &mut |_, _| {}).is_ok());
    let error = load(folder.path(), &options(Some(1 << 20)), &mut |_, _| {}).map(drop).unwrap_err();
    assert!(matches!(error, Error::DoesNotFit { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("keys and values for 1048576 tokens") && text.contains("64.0 MiB"), "{text}");
    assert!(text.contains("tokens would fit"), "{text}");
}

#[test]
fn activations_are_told_apart_and_unknown_ones_refused() {
    let named = |name: &str| Tiny::golden("bert-base").with("hidden_act", json!(name));
    let activation = |name: &str| match named(name).describe().unwrap().spec.output_stack().layers[0].ffn {
        Ffn::Mlp { activation, .. } | Ffn::Gated { activation, .. } | Ffn::GatedOutBias { activation, .. } => {
            activation
        }
        Ffn::Moe(_) => panic!("no experts here"),
    };
    assert_eq!(activation("gelu"), Activation::Gelu);
    assert_eq!(activation("gelu_new"), Activation::GeluTanh);
    assert_eq!(activation("gelu_pytorch_tanh"), Activation::GeluTanh);
    assert_eq!((activation("relu"), activation("silu")), (Activation::Relu, Activation::Silu));
    let refusal = named("hardswish").refusal();
    assert!(refusal.contains("hidden_act") && refusal.contains("hardswish"), "{refusal}");
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
        ("t5-v1.0", "feed_forward_proj", json!("gated-hardswish")),
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

/// One table says which field of ours is which of the files': every field comes out under the key that it was read from.
#[test]
fn every_default_of_generation_is_written_as_it_was_read() {
    let all = json!({"bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 4, "decoder_start_token_id": 5,
        "forced_bos_token_id": 6, "forced_eos_token_id": 7, "max_new_tokens": 8, "max_length": 9, "min_new_tokens": 10,
        "min_length": 11, "do_sample": true, "temperature": 0.7, "top_k": 12, "top_p": 0.8, "min_p": 0.1,
        "typical_p": 0.9, "repetition_penalty": 1.1, "no_repeat_ngram_size": 13, "encoder_no_repeat_ngram_size": 14,
        "suppress_tokens": [15], "begin_suppress_tokens": [16, 17], "bad_words_ids": [[18], [19, 20]], "num_beams": 21,
        "num_return_sequences": 22, "length_penalty": 2.0, "early_stopping": "never"});
    let mut tiny = Tiny::golden("llama-gqa");
    tiny.generation = Some(all.clone());
    let defaults = tiny.describe().unwrap().generation;
    assert_eq!(json!(defaults.to_json()), all);
    let fields = json!(defaults);
    let mut named: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    named.retain(|name| *name != "sources");
    let set = defaults.set_fields();
    assert_eq!(set.len(), named.len(), "a field that no file can set");
    for (name, value, file) in set {
        assert!(named.contains(&name), "{name}");
        assert_eq!((value.is_null(), file), (false, "generation_config.json"), "{name}");
    }
}
