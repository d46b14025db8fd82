//! Descriptions in files: what is printed can be read again, and what is left out is what is usual.

use attend_format::Config;
use attend_model::{describe, describe_known, known_models, spec_file};
use attend_nn::spec::*;
use serde_json::Value;
use std::path::Path;

fn read_back(spec: &ModelSpec) -> ModelSpec {
    let Value::Object(map) = serde_json::to_value(spec).unwrap() else { panic!("a description is an object") };
    spec_file::read(&Config::from_map(Path::new("spec.json"), map)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_description_can_be_written_and_read() {
    let mut seen = 0;
    for entry in std::fs::read_dir(attend_testkit::golden::golden_root()).unwrap().flatten() {
        if let Ok(described) = describe(&entry.path()) {
            assert_eq!(read_back(&described.spec), described.spec, "{}", entry.path().display());
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
    for name in known_models() {
        let spec = describe_known(name).unwrap().unwrap().spec;
        assert_eq!(read_back(&spec), spec, "{name}");
    }
}

fn parse(text: &str) -> ModelSpec {
    spec_file::read(&Config::parse_toml(Path::new("test.toml"), text).unwrap()).unwrap()
}

const SHORT: &str = r#"
[decoder]
width = 64
embed = { vocab = 100 }
[[decoder.layers]]
repeat = 2
[[decoder.layers.layers]]
repeat = 2
norm = "rms"
attention = { heads = 4, mask = { window = { left = 7 } } }
ffn = { mlp = { hidden = 128, activation = "gelu_tanh" } }
[[decoder.layers.layers]]
norm = "layer"
attention = { heads = 4, kv_heads = 1, head_dim = 32, bias = true, position = "rope" }
ffn = { gated = { hidden = 128, activation = "silu" } }
[head]
lm = {}
"#;

#[test]
fn what_is_left_out_is_usual() {
    let spec = parse(SHORT);
    let stack = spec.output_stack();
    assert_eq!(stack.layers.len(), 6);
    assert_eq!(stack.layers.iter().map(|layer| layer.weights).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let (first, third) = (&stack.layers[0], &stack.layers[2]);
    assert_eq!(first.norm, Norm::Rms { eps: 1e-5 });
    assert_eq!(first.attention.mask, Mask::Window { left: 7, right: 0 });
    assert_eq!((first.attention.key_dim, first.attention.kv_heads, first.attention.scale), (16, 4, 0.25));
    assert_eq!(third, &Layer { weights: 2, ..stack.layers[5].clone() });
    assert_eq!(third.norm, Norm::Layer { eps: 1e-5, bias: true });
    assert_eq!((third.attention.key_dim, third.attention.value_dim), (32, 32));
    assert!(third.attention.out_bias && third.attention.qkv_bias == QkvBias::all(true));
    let rope = Rope { base: 10000.0, dim: 32, pairing: Pairing::Halves, scaling: RopeScaling::None };
    assert_eq!(third.attention.position, Position::Rope(rope));
    assert!(matches!(&spec.head, Head::Lm(lm) if lm.vocab == 100 && !lm.tied));
    assert_eq!(spec.context, None);
}
