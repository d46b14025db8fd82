//! What a file's tensors may be called, what they may be stored as, and what is said when they do not fit.

mod support;

use attend_kernels::{Compute, DType};
use attend_model::{Error, LoadOptions, describe, load};
use attend_testkit::golden::Random;
use serde_json::json;
use support::{Tensor, Tiny, described, golden, weights};

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
            let options = LoadOptions { compute, dtype, ..LoadOptions::default() };
            assert!(load(&folder, &options, &mut |_, _| {}).is_ok(), "{compute:?} {dtype:?}");
        }
    }
}

/// Rows of 24 are no whole blocks, nor are those of the table of biases; rows of 32 are.
#[test]
fn a_matrix_whose_rows_are_not_whole_blocks_keeps_its_type() {
    let options = LoadOptions { dtype: Some(DType::Q8_0), ..LoadOptions::default() };
    let loaded = load(&golden("mpnet-mlm"), &options, &mut |_, _| {}).unwrap();
    let kept = loaded.source.kept(&options).types;
    for (name, dtype) in [
        ("relative_bias.weight", DType::BF16),
        ("layers.0.ffn.up.weight", DType::BF16),
        ("layers.0.ffn.down.weight", DType::Q8_0),
    ] {
        assert_eq!(kept[name], (dtype, Compute::Native), "{name}");
    }
}

/// Of encoders alone: what a decoder holds is asked of it.
#[test]
fn value_projections_of_encoders_keep_sixteen_bits() {
    let options = LoadOptions { dtype: Some(DType::Q8_0), ..LoadOptions::default() };
    // f16, the sixteen bits of what is no bf16, would lose some of them in bf16 arithmetic.
    let cases = [
        ("bert-mlm", DType::BF16, (DType::BF16, Compute::Native)),
        ("bert-mlm", DType::F32, (DType::F16, Compute::F32)),
        ("llama-gqa", DType::BF16, (DType::Q8_0, Compute::Native)),
    ];
    for (case, stored, value) in cases {
        let mut source = described(case);
        source.tensors.iter_mut().for_each(|mapped| {
            // Rows long enough for blocks.
            mapped.shape = vec![64, 64];
            mapped.dtype = stored;
        });
        let kept = source.kept(&options).types;
        assert_eq!(kept["layers.0.attention.value.weight"], value, "{case} in {stored}");
        assert_eq!(kept["layers.0.attention.query.weight"], (DType::Q8_0, Compute::Native), "{case} in {stored}");
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
