//! Adapters beside and inside a tiny base: scales, ranks, types, fused projections, and everything that is refused.

use attend_kernels::{Compute, DType, quantize};
use attend_model::{Adapter, Error, LoadOptions, Loaded, load};
use attend_nn::spec::StackKind;
use attend_nn::{Batch, Model, Nobody, RunOptions};
use attend_testkit::files::safetensors::{self, Tensor};
use attend_testkit::files::{Random, model, write_all};
use attend_testkit::golden::golden_root;
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

fn opened(path: &Path) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(path, &options, &mut |_, _| {}).unwrap()
}

fn base() -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &model::folder(3)).unwrap();
    opened(folder.path())
}

/// A tensor of an adapter with values of about 0.5.
fn tensor(name: &str, shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let values: Vec<u8> = (0..shape.iter().product()).flat_map(|_| (random.weight() * 5.0).to_le_bytes()).collect();
    Tensor::new(name, "F32", shape, values)
}

const QUERY: &str = "base_model.model.model.layers.0.self_attn.q_proj";
const VALUE: &str = "base_model.model.model.layers.0.self_attn.v_proj";

/// An adapter of rank `r` of the first layer's query and value.
fn plain(r: usize) -> Vec<Tensor> {
    let kv = model::WIDTH / model::HEADS * model::KV_HEADS;
    vec![
        tensor(&format!("{QUERY}.lora_A.weight"), &[r, model::WIDTH], 1),
        tensor(&format!("{QUERY}.lora_B.weight"), &[model::WIDTH, r], 2),
        tensor(&format!("{VALUE}.lora_A.weight"), &[r, model::WIDTH], 3),
        tensor(&format!("{VALUE}.lora_B.weight"), &[kv, r], 4),
    ]
}

fn config(changes: Value) -> Value {
    let mut config = json!({
        "peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "layers_to_transform": [0]
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fn folder(config: &Value, tensors: &[Tensor]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("adapter_model.safetensors"), safetensors::file(tensors)).unwrap();
    folder
}

fn adapter(base: &Loaded, changes: Value, tensors: &[Tensor]) -> Result<Adapter, Error> {
    Adapter::open(folder(&config(changes), tensors).path(), &base.source)
}

fn logits(model: &Model) -> Vec<f32> {
    let rows = [vec![1, 5, 9, 2, 7], vec![3, 3, 8]];
    let hidden = model.forward(StackKind::Decoder, &mut Batch::of(&rows), &RunOptions::default(), &mut Nobody).unwrap();
    model.logits(&hidden, &mut Nobody).unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Beside the weights and merged into them, the adapter gives the same, and not what the base gives.
fn same_beside_and_merged(base: &Loaded, adapter: &Adapter) -> Vec<f32> {
    let beside = logits(&adapter.attach(&base.model, 1.0).unwrap());
    let merged = logits(&adapter.merge(&base.model, 1.0).unwrap());
    assert!(largest_difference(&beside, &merged) <= 1e-5, "{}", largest_difference(&beside, &merged));
    assert!(largest_difference(&beside, &logits(&base.model)) > 1e-3);
    beside
}

#[test]
fn the_scale_is_the_configurations() {
    let base = base();
    let scale = |changes: Value, r: usize| adapter(&base, changes, &plain(r)).unwrap().modules[0].scale;
    assert_eq!(scale(json!({"r": 16, "lora_alpha": 16}), 16), 1.0);
    assert_eq!(scale(json!({"r": 16, "lora_alpha": 16, "use_rslora": true}), 16), 4.0);
    assert_eq!(scale(json!({"r": 8, "lora_alpha": 16}), 8), 2.0);
    let assumed = adapter(&base, json!({"lora_alpha": null}), &plain(4)).unwrap();
    assert_eq!(assumed.modules[0].scale, 2.0);
    assert!(assumed.notices[0].contains("lora_alpha"), "{:?}", assumed.notices);
    let refused = adapter(&base, json!({"r": 0}), &plain(4)).unwrap_err().to_string();
    assert!(refused.contains("`r`") && refused.contains("adapter_config.json"), "{refused}");
}

#[test]
fn merged_and_unmerged_give_the_same() {
    let base = base();
    let first = same_beside_and_merged(&base, &adapter(&base, json!({}), &plain(4)).unwrap());
    // Twice the strength in the file or at the call is the same.
    let doubled = adapter(&base, json!({"lora_alpha": 16}), &plain(4)).unwrap();
    let half = logits(&doubled.attach(&base.model, 0.5).unwrap());
    assert!(largest_difference(&half, &first) <= 1e-6);
    assert_eq!(logits(&doubled.attach(&base.model, 0.0).unwrap()), logits(&base.model));
}

#[test]
fn adapters_of_any_rank_stand_beside_one_another() {
    let base = base();
    let plain_base = logits(&base.model);
    let small = adapter(&base, json!({}), &plain(4)).unwrap();
    let large = adapter(&base, json!({"r": 64, "lora_alpha": 64}), &plain(64)).unwrap();
    let with_small = logits(&small.attach(&base.model, 1.0).unwrap());
    let with_large = logits(&large.attach(&base.model, 1.0).unwrap());
    same_beside_and_merged(&base, &large);
    // The first still answers as before, and so does the base.
    assert_eq!(logits(&small.attach(&base.model, 1.0).unwrap()), with_small);
    assert_eq!(logits(&base.model), plain_base);
    let both = large.attach(&small.attach(&base.model, 1.0).unwrap(), 1.0).unwrap();
    assert!(largest_difference(&logits(&both), &with_large) > 1e-3);
    // A rank of its own for one module.
    let kv = model::WIDTH / model::HEADS * model::KV_HEADS;
    let mut uneven = plain(4);
    uneven[2] = tensor(&format!("{VALUE}.lora_A.weight"), &[2, model::WIDTH], 3);
    uneven[3] = tensor(&format!("{VALUE}.lora_B.weight"), &[kv, 2], 4);
    let uneven =
        adapter(&base, json!({"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"v_proj": 6}}), &uneven).unwrap();
    assert_eq!(uneven.modules.iter().map(|m| (m.rank, m.scale)).collect::<Vec<_>>(), [(4, 2.0), (2, 3.0)]);
    same_beside_and_merged(&base, &uneven);
}

#[test]
fn what_does_not_fit_the_base_is_refused_by_name() {
    let base = base();
    let refused = |changes: Value, tensors: &[Tensor]| adapter(&base, changes, tensors).unwrap_err().to_string();
    let mut tensors = plain(4);
    tensors[1] = tensor(&format!("{QUERY}.lora_B.weight"), &[model::WIDTH, 5], 2);
    assert!(refused(json!({}), &tensors).contains("q_proj.lora_B"), "unequal ranks");
    assert!(refused(json!({"r": 5}), &plain(4)).contains("lora_A"), "another rank than the file's");
    let mut tensors = plain(4);
    tensors[0] = tensor(&format!("{QUERY}.lora_A.weight"), &[4, model::WIDTH + 1], 1);
    assert!(refused(json!({}), &tensors).contains("q_proj.lora_A"), "a wrong width");
    let mut tensors = plain(4);
    tensors.remove(3);
    assert!(refused(json!({}), &tensors).contains("lora_B is missing"));
    let missing = refused(json!({"layers_to_transform": null}), &plain(4));
    assert!(missing.contains("layers.1.self_attn.q_proj"), "{missing}");
    let unknown = vec![
        tensor("base_model.model.model.layers.0.self_attn.z_proj.lora_A.weight", &[4, 32], 1),
        tensor("base_model.model.model.layers.0.self_attn.z_proj.lora_B.weight", &[32, 4], 1),
    ];
    let unknown = refused(json!({"target_modules": ["z_proj"]}), &unknown);
    assert!(unknown.contains("z_proj.lora_A"), "{unknown}");
    assert!(refused(json!({"target_modules": ["q_proj"]}), &plain(4)).contains("v_proj"));
    let norm = "base_model.model.model.norm";
    let vectors =
        [tensor(&format!("{norm}.lora_A.weight"), &[4, 32], 1), tensor(&format!("{norm}.lora_B.weight"), &[32, 4], 1)];
    let on_norm = refused(
        json!({"target_modules": ["q_proj", "v_proj", "norm"], "layers_to_transform": null}),
        &[plain(4), vectors.to_vec()].concat(),
    );
    assert!(on_norm.contains("model.norm.lora_A"), "{on_norm}");
    let stray = refused(json!({}), &[plain(4), vec![tensor("something.else", &[1], 1)]].concat());
    assert!(stray.contains("something.else"), "{stray}");
    let dora = format!("{QUERY}.lora_magnitude_vector");
    assert!(refused(json!({}), &[plain(4), vec![tensor(&dora, &[32], 1)]].concat()).contains("DoRA"));
    let mut damaged = plain(4);
    damaged[0] = Tensor::new(&format!("{QUERY}.lora_A.weight"), "F32", &[4, 32], f32::NAN.to_le_bytes().repeat(128));
    assert!(refused(json!({}), &damaged).contains("NaN"));
}

#[test]
fn types_of_the_file_are_rounding_only() {
    let base = base();
    let exact = logits(&adapter(&base, json!({}), &plain(4)).unwrap().merge(&base.model, 1.0).unwrap());
    for (name, dtype, tolerance) in [("F16", DType::F16, 2e-3), ("BF16", DType::BF16, 2e-2)] {
        let rounded = plain(4).into_iter().map(|tensor| {
            let values: Vec<f32> =
                tensor.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            let mut bytes = vec![0; values.len() * 2];
            quantize(dtype, &values, &mut bytes).unwrap();
            Tensor::new(&tensor.name, name, &tensor.shape, bytes)
        });
        let rounded: Vec<Tensor> = rounded.collect();
        let merged = logits(&adapter(&base, json!({}), &rounded).unwrap().merge(&base.model, 1.0).unwrap());
        let difference = largest_difference(&merged, &exact);
        assert!(difference > 0.0 && difference < tolerance, "{name}: {difference}");
    }
}

#[test]
fn output_matrices_and_token_tables_are_adapted_and_replaced() {
    let base = base();
    let root = "base_model.model";
    let targets = json!({"target_modules": ["lm_head", "embed_tokens"], "layers_to_transform": null});
    let tensors = [
        tensor(&format!("{root}.lm_head.lora_A.weight"), &[4, model::WIDTH], 1),
        tensor(&format!("{root}.lm_head.lora_B.weight"), &[model::VOCAB, 4], 2),
        tensor(&format!("{root}.model.embed_tokens.lora_embedding_A"), &[4, model::VOCAB], 3),
        tensor(&format!("{root}.model.embed_tokens.lora_embedding_B"), &[model::WIDTH, 4], 4),
    ];
    same_beside_and_merged(&base, &adapter(&base, targets, &tensors).unwrap());
    // Token tables and output matrices are saved with what lies under their adapters.
    let under = tensor(&format!("{root}.lm_head.base_layer.weight"), &[model::VOCAB, model::WIDTH], 7);
    let targets = json!({"target_modules": ["lm_head"], "layers_to_transform": null});
    let saved = adapter(&base, targets, &[tensors[..2].to_vec(), vec![under.clone()]].concat()).unwrap();
    assert_eq!(saved.replaced.keys().collect::<Vec<_>>(), ["head.weight"]);
    same_beside_and_merged(&base, &saved);
    assert!(adapter(&base, json!({}), &[plain(4), vec![under]].concat()).is_err());
    let whole = tensor(&format!("{root}.lm_head.weight"), &[model::VOCAB, model::WIDTH], 9);
    let tensors = [plain(4), vec![whole.clone()]].concat();
    let replaced = adapter(&base, json!({"modules_to_save": ["lm_head"]}), &tensors).unwrap();
    let model = replaced.attach(&base.model, 1.0).unwrap();
    let expected: Vec<f32> = whole.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(model.weights().values("head.weight").unwrap(), expected);
    assert!(adapter(&base, json!({}), &tensors).unwrap_err().to_string().contains("lm_head.weight"));
}

/// Fused and transposed projections: the reference's one module is three of our layers.
#[test]
fn fused_projections_divide_their_adapter() {
    for (case, module, outputs) in [("gpt2", "attn.c_attn", 3), ("gpt2", "mlp.c_fc", 4)] {
        let base = opened(&golden_root().join(case));
        let width = base.source.spec.output_stack().output_width();
        let name = format!("base_model.model.transformer.h.0.{module}");
        let outputs = base
            .source
            .tensors
            .iter()
            .find(|t| t.theirs.contains(module))
            .map_or(outputs * width, |t| base.source.checkpoint.tensor(&t.theirs).map_or(0, |info| info.shape[1]));
        let tensors = [
            tensor(&format!("{name}.lora_A.weight"), &[4, width], 1),
            tensor(&format!("{name}.lora_B.weight"), &[outputs, 4], 2),
        ];
        let target = module.rsplit('.').next().unwrap();
        let changes = json!({"target_modules": [target], "fan_in_fan_out": true});
        let adapter = adapter(&base, changes, &tensors).unwrap();
        same_beside_and_merged(&base, &adapter);
        // And back to the file's one matrix.
        let model = adapter.attach(&base.model, 1.0).unwrap();
        let matrices: Vec<_> = model.weights().low_rank.values().flatten().collect();
        let back = adapter.to_file(&mut |name| {
            let found = matrices.iter().find_map(|m| match name {
                name if name == m.a_name => Some(&m.a),
                name if name == m.b_name => Some(&m.b),
                _ => None,
            })?;
            let mut values = vec![0.0; found.rows() * found.cols()];
            found.read_rows(0, &mut values);
            Some(values)
        });
        for (file, original) in back.iter().zip(&tensors) {
            let bytes: Vec<u8> = file.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!((&file.name, &file.shape, &bytes), (&original.name, &original.shape, &original.data));
        }
    }
}
