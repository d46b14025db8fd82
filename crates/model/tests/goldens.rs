//! Every golden checkpoint of the architectures that are built is described, with the facts that matter, and loaded.

mod support;

use attend_kernels::Compute;
use attend_model::{Described, LoadOptions, Quantity, cost, load};
use attend_nn::spec::*;
use attend_testkit::golden::{Golden, golden_root};
use support::{CASES, described, golden, weights};

fn layer(described: &Described, index: usize) -> &Layer {
    &described.spec.output_stack().layers[index]
}

fn rope(described: &Described, index: usize) -> &Rope {
    match &layer(described, index).attention.position {
        Position::Rope(rope) => rope,
        other => panic!("{other:?}"),
    }
}

fn masks(case: &str) -> Vec<Mask> {
    described(case).spec.output_stack().layers.iter().map(|layer| layer.attention.mask).collect()
}

#[test]
fn every_golden_is_described() {
    for (case, architecture) in CASES {
        let described = described(case);
        assert_eq!(described.architecture, *architecture, "{case}");
        let needed: Vec<String> = described.spec.tensors().into_iter().map(|tensor| tensor.name).collect();
        let found: Vec<&String> = described.tensors.iter().map(|tensor| &tensor.ours).collect();
        assert_eq!(needed.iter().collect::<Vec<_>>(), found, "{case}");
        assert_eq!(described.notices, Vec::<String>::new(), "{case}");
    }
}

#[test]
fn every_golden_is_loaded_and_its_weights_lead_back_to_the_file() {
    for (case, _) in CASES {
        let mut last = (0, 1);
        let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
        let loaded = load(&golden(case), &options, &mut |done, total| last = (done, total));
        let loaded = loaded.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(last.0, last.1, "{case}: not everything was read, or more than that");
        assert_eq!(loaded.source.notices, Vec::<String>::new(), "{case}");
        let ours = weights(&loaded.source).unwrap();
        let files = loaded.source.to_checkpoint(Quantity::Weights, &mut |name| ours.get(name).cloned()).unwrap();
        for file in files {
            let info = loaded.source.checkpoint.tensor(&file.name).unwrap();
            let mut bytes = vec![0; info.bytes as usize];
            loaded.source.checkpoint.read_at(&file.name, 0, &mut bytes).unwrap();
            let mut values = vec![0.0; file.values.len()];
            attend_kernels::dequantize(info.dtype, &bytes, &mut values).unwrap();
            assert_eq!(info.shape, file.shape, "{case}: {}", file.name);
            let close = values.iter().zip(&file.values).all(|(x, y)| (x - y).abs() <= 1e-7);
            assert!(close, "{case}: {} came back changed", file.name);
        }
    }
}

#[test]
fn gradients_go_back_without_the_constant_of_a_norm() {
    let described = described("gemma");
    let ones = |name: &str| {
        let tensor = described.tensors.iter().find(|tensor| tensor.ours == name)?;
        Some(vec![1.0; tensor.elements()])
    };
    let files = described.to_checkpoint(Quantity::Gradients, &mut |name| ones(name)).unwrap();
    assert!(files.iter().all(|file| file.values.iter().all(|value| *value == 1.0)));
    let files = described.to_checkpoint(Quantity::Weights, &mut |name| ones(name)).unwrap();
    let norm = files.iter().find(|file| file.name == "model.norm.weight").unwrap();
    assert!(norm.values.iter().all(|value| *value == 0.0));
}

#[test]
fn buffers_of_the_reference_are_constant() {
    let constants = |case: &str| -> Vec<String> {
        let described = described(case);
        let names = described.tensors.iter().map(|tensor| tensor.ours.clone());
        names.filter(|name| described.is_constant(name)).collect()
    };
    assert_eq!(constants("bart"), ["head.bias"]);
    let corrections = constants("deepseek_v3");
    assert!(!corrections.is_empty() && corrections.iter().all(|name| name.ends_with("router.correction")));
    assert_eq!(constants("gpt2"), [""; 0]);
}

#[test]
fn a_golden_gradient_has_the_names_and_shapes_that_lead_back() {
    for (case, _) in CASES {
        if !golden_root().join(case).join("expected.safetensors").exists() {
            continue;
        }
        let expected = Golden::case(case, "expected");
        let described = described(case);
        let shape_of = |name: &str| described.tensors.iter().find(|tensor| tensor.ours == name).map(|t| t.elements());
        let files =
            described.to_checkpoint(Quantity::Gradients, &mut |name| shape_of(name).map(|n| vec![0.0; n])).unwrap();
        for (name, tensor) in &expected.tensors {
            let Some(name) = name.strip_prefix("train.grad.") else { continue };
            let file = files.iter().find(|file| file.name == name || file.name == format!("transformer.{name}"));
            let Some(file) = file else {
                // Old spellings in the file, the usual ones among the gradients.
                assert!(case.contains("gamma-beta") || case.contains("hub-layout"), "{case}: {name}");
                continue;
            };
            assert_eq!(file.shape, tensor.shape, "{case}: {name}");
        }
    }
}

#[test]
fn llama_heads_positions_and_scalings() {
    let gqa = described("llama-gqa");
    let attention = &layer(&gqa, 0).attention;
    assert_eq!((attention.heads, attention.kv_heads, attention.key_dim), (4, 2, 8));
    assert_eq!(layer(&described("llama-mqa"), 0).attention.kv_heads, 1);
    let wide = described("llama-bias-headdim");
    let attention = &layer(&wide, 0).attention;
    assert_eq!((attention.key_dim, attention.out_bias, attention.qkv_bias), (12, true, QkvBias::all(true)));
    assert_eq!(layer(&wide, 0).ffn, Ffn::Gated { hidden: 48, activation: Activation::Gelu, bias: true });
    assert_eq!(rope(&described("llama-v5config"), 0).base, 20000.0);
    assert_eq!(rope(&described("llama-rope-linear"), 0).scaling, RopeScaling::Linear { factor: 4.0 });
    let dynamic = RopeScaling::Dynamic { factor: 2.0, original: 16 };
    assert_eq!(rope(&described("llama-rope-dynamic"), 0).scaling, dynamic);
    let RopeScaling::Yarn { factor, attention_factor, original: 16, truncate: true, .. } =
        rope(&described("llama-rope-yarn"), 0).scaling
    else {
        panic!("not yarn")
    };
    assert_eq!((factor, attention_factor), (4.0, 0.1 * 4f64.ln() + 1.0));
    let sequence = Head::Sequence { labels: 3, source: SequenceSource::Last, transform: None, bias: false };
    assert_eq!(described("llama-seqcls").spec.head, sequence);
    assert!(matches!(described("llama-tied").spec.head, Head::Lm(LmHead { tied: true, .. })));
}

#[test]
fn windows_and_layers_without_positions() {
    let window = |w: usize| Mask::Window { left: w - 1, right: 0 };
    assert_eq!(masks("mistral"), [window(6), window(6)]);
    assert_eq!(masks("qwen2"), [Mask::Causal, Mask::Causal]);
    assert_eq!(masks("gemma2"), [window(6), Mask::Causal]);
    assert_eq!(masks("gemma3"), [window(6), window(6), Mask::Causal]);
    assert_eq!(masks("phi3"), [window(7), window(7)]);
    assert_eq!(masks("gpt_neo"), [Mask::Causal, window(5), Mask::Causal]);
    let gemma3 = described("gemma3");
    assert_eq!((rope(&gemma3, 0).base, rope(&gemma3, 2).base), (1e4, 1e6));
    let smollm3 = described("smollm3");
    assert_eq!(layer(&smollm3, 1).attention.position, Position::None);
    assert_eq!(rope(&smollm3, 2).base, 2e6);
}

#[test]
fn scales_caps_and_wirings() {
    let gemma2 = described("gemma2");
    let first = layer(&gemma2, 0);
    assert_eq!((first.attention.scale, first.attention.soft_cap), (20f32.powf(-0.5), Some(4.0)));
    assert_eq!(first.wiring, Wiring::Sandwich);
    assert!(matches!(gemma2.spec.head, Head::Lm(LmHead { soft_cap: Some(6.0), tied: true, .. })));
    assert_eq!(gemma2.spec.output_stack().embed.scale, 32f32.sqrt());
    assert_eq!(layer(&described("gpt_neo"), 0).attention.scale, 1.0);
    assert_eq!(layer(&described("gpt_neox"), 0).wiring, Wiring::Parallel { shared_norm: false });
    assert_eq!(rope(&described("gpt_neox"), 0).dim, 4);
    assert_eq!(layer(&described("gpt_neox-sequential"), 0).wiring, Wiring::PreNorm);
    assert_eq!(layer(&described("falcon-mqa"), 0).wiring, Wiring::Parallel { shared_norm: true });
    assert_eq!(layer(&described("falcon-mqa"), 0).attention.kv_heads, 1);
    assert_eq!(layer(&described("falcon-new-decoder"), 0).wiring, Wiring::Parallel { shared_norm: false });
    let phi3 = described("phi3-longrope-long");
    let RopeScaling::Long { short, long, original: 16, attention_factor } = &rope(&phi3, 0).scaling else {
        panic!("not LongRoPE")
    };
    assert_eq!((short.len(), long.len()), (4, 4));
    assert_eq!(*attention_factor, (1.0 + 4f64.ln() / 16f64.ln()).sqrt());
}

#[test]
fn encoders_and_encoder_decoders() {
    let base = described("bert-base");
    assert_eq!((base.spec.head.clone(), base.spec.pooler.is_some()), (Head::None, true));
    assert_eq!(
        described("bert-seqcls-regression").spec.head,
        Head::Sequence { labels: 1, source: SequenceSource::Pooler, transform: None, bias: true }
    );
    assert_eq!(described("bert-tokcls").spec.head, Head::Token { labels: 3, transform: None, bias: true });
    assert_eq!(described("bert-qa").spec.head, Head::Span { transform: None, bias: true });
    assert!(described("bert-mlm").spec.pooler.is_none());
    let t5 = described("t5-v1.0");
    let Body::EncoderDecoder { encoder, decoder } = &t5.spec.body else { panic!("one stack") };
    assert_eq!(
        encoder.relative_bias.map(|bias| (bias.bidirectional, bias.buckets, bias.max_distance)),
        Some((true, 8, 12))
    );
    assert!(decoder.relative_bias.is_some_and(|bias| !bias.bidirectional));
    assert_eq!(
        decoder.layers[0].cross.as_ref().map(|cross| (cross.mask, cross.position.clone())),
        Some((Mask::Full, Position::None))
    );
    assert_eq!(decoder.embed.table, Table::Encoder);
    let scale = |case: &str| match described(case).spec.head {
        Head::Lm(lm) => lm.scale,
        other => panic!("{other:?}"),
    };
    assert_eq!((scale("t5-v1.0"), scale("t5-v1.1"), scale("mt5")), (32f32.powf(-0.5), 1.0, 1.0));
    assert!(matches!(layer(&t5, 0).ffn, Ffn::Mlp { activation: Activation::Relu, .. }));
    assert!(matches!(layer(&described("mt5"), 0).ffn, Ffn::Gated { activation: Activation::GeluTanh, .. }));
    assert!(matches!(described("t5-encoder").spec.body, Body::Encoder(_)));
}

#[test]
fn costs_are_read_off_the_description() {
    use attend_kernels::DType;
    use attend_nn::KvTypes;
    let described = described("llama-gqa");
    let held: u64 =
        described.checkpoint.tensors().values().map(|info| info.shape.iter().product::<usize>() as u64).sum();
    assert_eq!(described.parameters(), u128::from(held));
    assert_eq!(described.weight_bytes(), described.checkpoint.total_bytes());
    assert_eq!(cost::kv_bytes_per_token(&described.spec, KvTypes::both(DType::F16)), 2 * 2 * 2 * 8 * 2);
    let windowed = support::described("mistral");
    let per_token = cost::kv_bytes_per_token(&windowed.spec, KvTypes::both(DType::F32));
    assert_eq!(cost::kv_bytes(&windowed.spec, 100, KvTypes::both(DType::F32)), 6 * per_token);
    let t5 = support::described("t5-v1.0");
    assert_eq!(cost::cross_bytes_per_token(&t5.spec, KvTypes::both(DType::F32)), 2 * 4 * 8 * 2 * 4);
}

#[test]
fn generation_defaults_say_where_they_come_from() {
    let t5 = described("t5-v1.0").generation;
    assert_eq!(
        (t5.eos.as_slice(), t5.decoder_start, t5.pad, t5.max_new_tokens),
        ([55].as_slice(), Some(0), Some(0), Some(24))
    );
    assert_eq!(t5.sources.get("eos_token_id").map(String::as_str), Some("generation_config.json"));
}
