//! Odd but valid checkpoints: every one must load.

use serde_json::{Value, json};

use super::gguf::{self, Gguf, value};
use super::safetensors::{self, Tensor};
use super::torch::{self, Entry, Pickle, View};
use super::valid::{GGUF_TYPES, split_files};
use super::{Case, Files, Probe, model};

/// All of them.
pub fn cases(seed: u64) -> Vec<Case> {
    let mut cases = safetensors_cases();
    cases.extend(gguf_cases(seed));
    cases.extend(config_cases());
    cases.extend(torch_cases(seed));
    cases.extend(folder_cases(seed));
    cases
}

fn safetensors_cases() -> Vec<Case> {
    let case = |name: &str, bytes| Case::file("odd", format!("safetensors {name}"), "x.safetensors", bytes, "");
    let raw = |name: &str, header: &str, data: &[u8]| case(name, safetensors::raw(header.as_bytes(), data));
    let mut cases = vec![
        raw("of nothing", "{}", b""),
        raw("padded with spaces", &format!("{{}}{}", " ".repeat(1000)), b""),
        raw("with a spaced header", " { } ", b""),
        raw("of metadata only", r#"{"__metadata__":{"format":"pt","":""}}"#, b""),
        raw("scalar", r#"{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#, b"x"),
        raw("of no size", r#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#, b""),
        raw(
            "two of no size",
            r#"{"a":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#,
            b"",
        ),
        raw(
            "listed backwards",
            r#"{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
            b"xy",
        ),
        raw("with fields in another order", r#"{"a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}}"#, b"x"),
        raw("with a field more", r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":[]}}"#, b"x"),
        raw("of eight axes", r#"{"a":{"dtype":"U8","shape":[1,1,1,2,1,1,1,1],"data_offsets":[0,2]}}"#, b"xy"),
        raw("with a name in Greek", r#"{"\u03b1.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x"),
        raw(
            "unaligned",
            r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}"#,
            b"xyzab",
        ),
        case("of NaN", safetensors::file(&[Tensor::new("a", "F32", &[1], f32::NAN.to_le_bytes().into())])),
        case("of every type", super::valid::all_types(1)),
    ];
    for (dtype, shape, size) in [
        ("F8_E8M0", 2, 2),
        ("F8_E4M3FNUZ", 2, 2),
        ("F8_E5M2FNUZ", 2, 2),
        ("C64", 1, 8),
        ("F6_E2M3", 4, 3),
        ("F4", 4, 2),
    ] {
        cases.push(case(
            &format!("with {dtype}"),
            safetensors::file(&[Tensor::new("a", dtype, &[shape], vec![0; size])]),
        ));
    }
    cases
}

fn gguf_cases(seed: u64) -> Vec<Case> {
    let case = |name: &str, bytes| Case::file("odd", format!("gguf {name}"), "m.gguf", bytes, "");
    let new = || Gguf::new("llama");
    let mut cases = Vec::new();
    for power in 0..=16 {
        let mut file = model::gguf(seed).u32("general.alignment", 1 << power);
        file.alignment = 1 << power;
        cases.push(case(&format!("aligned to {}", 1 << power), file.bytes()));
    }
    for &(id, block, bytes) in GGUF_TYPES {
        let file = new().tensor("a", &[block], id, vec![0; bytes]);
        cases.push(case(&format!("of type {id}"), file.bytes()).probe(Probe::Tensor("a")));
    }
    for (id, block, bytes) in [(9, 32, 36), (15, 256, 292), (16, 256, 66), (19, 256, 50), (34, 256, 54), (40, 64, 36)] {
        let file = new().tensor("a", &[block], id, vec![0; bytes]).tensor("b", &[1], 0, vec![0; 4]);
        cases.push(case(&format!("beside type {id}"), file.bytes()).probe(Probe::Tensor("b")));
    }
    let mut second = model::gguf(seed);
    second.version = 2;
    let mut unpadded = new().tensor("a", &[1], 0, vec![0; 4]).bytes();
    unpadded.truncate(unpadded.len() - 28);
    let mut trailing = model::gguf(seed).bytes();
    trailing.extend([7; 100]);
    let mut bare = new().bytes();
    bare.truncate(24 + 8 + 20 + 4 + 8 + 5);
    let deep = gguf::array(value::ARRAY, 1, &gguf::array(value::U8, 2, b"xy"));
    cases.extend([
        case("version 2", second.bytes()),
        case("without padding at the end", unpadded).probe(Probe::Tensor("a")),
        case("with bytes after the end", trailing),
        case("without tensors or padding", bare),
        case("with an empty array", new().array("a", value::STRING, 0, &[]).bytes()),
        case("with an array of arrays", new().key("a", value::ARRAY, &deep).bytes()),
        case("with an empty string", new().string("a", "").bytes()),
        case("with a token of 1 MiB", new().strings("tokenizer.ggml.tokens", &["x".repeat(1 << 20)]).bytes()),
        case("with equal tokens", new().strings("tokenizer.ggml.tokens", &["x", "x", ""]).bytes()),
        case("with an array of bools", new().array("a", value::BOOL, 2, &[0, 1]).bytes()),
        case("with a count in i8", new().key("llama.block_count", value::I8, &[2]).bytes())
            .probe(Probe::Count("num_hidden_layers")),
        case("with a count in u64", new().key("llama.block_count", value::U64, &2u64.to_le_bytes()).bytes())
            .probe(Probe::Count("num_hidden_layers")),
        case("with a base in f64", new().key("llama.rope.freq_base", value::F64, &1e6f64.to_le_bytes()).bytes())
            .probe(Probe::Number("rope_theta")),
        case("without an end token", new().u32("tokenizer.ggml.eos_token_id", u32::MAX).bytes()),
        Case::folder("odd", "gguf in two parts", split_files(seed), "").open("m-00001-of-00002.gguf"),
        Case::folder("odd", "gguf by its second part", split_files(seed), "").open("m-00002-of-00002.gguf"),
        Case::folder("odd", "gguf by its folder", split_files(seed), ""),
        Case::file("odd", "gguf under another name", "weights", model::gguf(seed).bytes(), ""),
    ]);
    cases
}

/// A tiny model's folder with its configuration changed.
pub fn with_config(changes: Value) -> Files {
    let mut config = model::config();
    for (key, value) in changes.as_object().into_iter().flatten() {
        config.insert(key.clone(), value.clone());
    }
    with_config_text(Value::Object(config).to_string())
}

/// A tiny model's folder with another configuration.
pub fn with_config_text(text: impl Into<Vec<u8>>) -> Files {
    let weights = safetensors::file(&[Tensor::new("a", "U8", &[1], vec![1])]);
    vec![("config.json".into(), text.into()), ("model.safetensors".into(), weights)]
}

fn config_cases() -> Vec<Case> {
    let case = |name: &str, changes| Case::folder("odd", format!("config {name}"), with_config(changes), "");
    let text = |name: &str, text: String| Case::folder("odd", format!("config {name}"), with_config_text(text), "");
    let base = Value::Object(model::config()).to_string();
    let with = |extra: &str| base.replacen('{', &format!("{{{extra},"), 1);
    let nested = Value::Object(model::config());
    vec![
        text("with NaN somewhere", with(r#""time_step_limit":[0.0,Infinity,-Infinity,NaN]"#)),
        text("with a byte order mark", format!("\u{feff}{base}")),
        text("with a key twice", with(r#""hidden_size":1"#)).probe(Probe::Count("hidden_size")),
        text("nested 100 deep", with(&format!(r#""a":{}{}"#, "[".repeat(100), "]".repeat(100)))),
        text("with brackets in strings", with(&format!(r#""a":"\"{}\\""#, "[".repeat(1000)))),
        text("with an unknown huge number", with(r#""a":1e400"#.replace("e400", "e300").as_str())),
        text("with a comment field", with(r#""_comment":"NaN Infinity""#)),
        text("with spaces around", format!("\n\t {base} \r\n")),
        case("with a count as 32.0", json!({ "hidden_size": 32.0 })).probe(Probe::Count("hidden_size")),
        case("with null fields", json!({ "head_dim": null, "rope_scaling": null, "quantization_config": null })),
        case("with pad -1", json!({ "pad_token_id": -1 })),
        case("with a list of ends", json!({ "eos_token_id": [2, 3] })),
        case("with scaling by type", json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } })),
        case("with scaling by rope_type", json!({ "rope_scaling": { "rope_type": "linear", "factor": 2.0 } })),
        case("with rope_parameters", json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 1e6 } })),
        case("with dtype", json!({ "dtype": "bfloat16" })),
        case("with torch.float16", json!({ "torch_dtype": "torch.float16" })),
        case("with a huge context", json!({ "max_position_embeddings": 1u64 << 31 }))
            .probe(Probe::Count("max_position_embeddings")),
        text(
            "wrapped for several media",
            json!({ "model_type": "x", "text_config": nested, "vision_config": {} }).to_string(),
        )
        .probe(Probe::Count("hidden_size")),
        case(
            "of block-scaled fp8",
            json!({ "quantization_config": { "quant_method": "fp8", "weight_block_size": [128, 128] } }),
        ),
    ]
}

fn torch_cases(seed: u64) -> Vec<Case> {
    let floats: Vec<u8> = (0..12u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    let case =
        |name: &str, bytes| Case::file("odd", format!("torch {name}"), "x.bin", bytes, "").probe(Probe::Tensor("a"));
    let view = |view: View| torch::zip_file(&Pickle::state(&[("a", view)]), &[("0", floats.clone())]);
    let whole = View { class: "FloatStorage", key: "0", elements: 12, offset: 0, shape: &[3, 4], strides: &[4, 1] };
    let framed = Pickle(b"\x80\x04\x95\0\0\0\0\0\0\0\0".to_vec())
        .op(b"\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x93)R\x94\x8c\x01a\x94")
        .tensor(&whole)
        .op(b"s.");
    let bare = |pickle: &[u8]| torch::archive(&[Entry::new("data.pkl", pickle), Entry::new("data/0", &floats)]);
    vec![
        case("as it is", view(whole)),
        case("transposed", view(View { shape: &[4, 3], strides: &[1, 4], ..whole })),
        case("a column", view(View { shape: &[3], strides: &[4], offset: 1, ..whole })),
        case("a scalar", view(View { shape: &[], strides: &[], offset: 11, ..whole })),
        case("of no size", view(View { shape: &[0, 4], strides: &[4, 1], ..whole })),
        case("expanded over an axis of one", view(View { shape: &[1, 12], strides: &[0, 1], ..whole })),
        case("of protocol 4", torch::zip_file(&framed.0, &[("0", floats.clone())])),
        case("without a folder in the archive", bare(&Pickle::state(&[("a", whole)]))),
        case(
            "one storage for two",
            torch::zip_file(&Pickle::state(&[("a", whole), ("b", whole)]), &[("0", floats.clone())]),
        ),
        case(
            "a list of hooks aside",
            torch::zip_file(&Pickle::state(&[("a", whole)]), &[("0", floats.clone()), ("9", vec![1])]),
        ),
        Case::folder("odd", "torch in a folder", model::pickled(seed, false), ""),
        Case::folder("odd", "torch of old in a folder", model::pickled(seed, true), ""),
    ]
}

fn folder_cases(seed: u64) -> Vec<Case> {
    let mut both = model::folder(seed);
    both.push(("pytorch_model.bin".into(), b"never opened".to_vec()));
    both.push(("generation_config.json".into(), b"{\"eos_token_id\":[1,2]}".to_vec()));
    let mut unlisted = model::sharded(seed);
    for (_, bytes) in unlisted.iter_mut().filter(|(name, _)| name.ends_with("index.json")) {
        let mut index: Value = serde_json::from_slice(bytes).expect("an index");
        index["weight_map"].as_object_mut().and_then(|map| map.remove("lm_head.weight"));
        *bytes = index.to_string().into_bytes();
    }
    let weights = model::folder(seed).into_iter().filter(|(name, _)| name != "config.json").collect();
    let cached = |files: Files, blobs: &str| -> Files {
        files.into_iter().map(|(name, bytes)| (format!("{blobs}/{name}"), bytes)).collect()
    };
    let hub = |case: Case, root: &str| {
        ["config.json", "model.safetensors"]
            .iter()
            .fold(case, |case, name| case.link(&format!("{root}/snapshots/abc/{name}"), &format!("../../blobs/{name}")))
    };
    let repository = "models--owner--name";
    vec![
        Case::folder("odd", "folder with both kinds", both, ""),
        Case::folder("odd", "folder with shards", model::sharded(seed), ""),
        Case::folder("odd", "folder with a tensor the index leaves out", unlisted, ""),
        Case::folder("odd", "weights alone", weights, "").open("model.safetensors"),
        hub(
            Case::folder("odd", "hub cache", cached(model::folder(seed), &format!("{repository}/blobs")), ""),
            repository,
        )
        .open(&format!("{repository}/snapshots/abc")),
        Case::folder(
            "odd",
            "link within the folder",
            vec![("real.json".into(), with_config(json!({}))[0].1.clone()), model::folder(seed)[1].clone()],
            "",
        )
        .link("config.json", "real.json"),
    ]
}
