//! `plan`, `init` and descriptions in files, by what the program prints.

mod common;

use common::{attend, goldens, ran, tiny};
use serde_json::{Value, json};
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn plan(models: &Path, arguments: &[&str]) -> Value {
    ran(attend(models).arg("plan").args(arguments).args(["--json", "--no-speed"])).json()
}

const SMALL: &str = r#"
# A small Llama.
context = 64
eos_token_id = 0
[decoder]
width = 32
embed = { vocab = 40 }
final_norm = "rms"
[[decoder.layers]]
repeat = 2
norm = "rms"
attention = { heads = 4, kv_heads = 2, position = "rope" }
ffn = { gated = { hidden = 48, activation = "silu" } }
[head]
lm = { tied = true }
"#;

#[test]
fn a_known_model_is_planned_by_its_name() {
    let models = folder();
    let arguments = ["llama-2-70b", "--context", "4096", "--requests", "1", "--kv-type", "f16"];
    let object = plan(models.path(), &arguments);
    assert_eq!(object["parameters"], 68_976_648_192u64);
    assert_eq!(object["kv_bytes_per_token"], 327_680);
    assert_eq!(object["kv_cache_bytes"], 1_342_177_280u64);
    assert_eq!(object["attention_matrix_entries"], 4096 * 4096);
    for key in ["weight_bytes", "activation_bytes", "total_bytes"] {
        assert!(object[key].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{key}: {object}");
    }
    let flops = object["flops_per_token"].as_f64().expect("a number");
    assert!((flops / (2.0 * 68.7e9 + 4.0 * 4096.0 * 8192.0 * 80.0) - 1.0).abs() < 0.01, "{flops}");
    let f32 = plan(models.path(), &["llama-2-70b", "--context", "4096", "--kv-type", "f32"]);
    assert_eq!(f32["kv_cache_bytes"], 2_684_354_560u64);
    let long = plan(models.path(), &["llama-2-70b", "--context", "131072"]);
    assert!(long["attention_matrix_entries"].as_u64().is_some_and(|entries| entries > 16_000_000_000));
    assert!(long["notes"].to_string().contains("4096"), "{long}");
    let heads = &object["comparisons"]["attention"];
    assert_eq!(heads[0]["kv_cache_bytes"], 8 * 1_342_177_280u64);
    assert_eq!(heads[1]["own"], true);
    assert_eq!(heads[2]["kv_cache_bytes"], 1_342_177_280u64 / 8);
}

#[test]
fn requests_and_memory_are_counted() {
    let models = folder();
    let one = plan(models.path(), &["llama-3.1-8b", "--context", "8192", "--weights", "q4_k_m", "--fit", "24GB"]);
    let four = plan(models.path(), &["llama-3.1-8b", "--context", "8192", "--requests", "4"]);
    assert_eq!(four["kv_cache_bytes"].as_u64(), one["kv_cache_bytes"].as_u64().map(|bytes| 4 * bytes));
    assert_eq!(one["fit"]["memory_bytes"], 24_000_000_000u64);
    assert_eq!(one["fit"]["fits"], true);
    assert!(one["fit"]["largest_context"].as_u64() > Some(8192));
    let none = plan(models.path(), &["llama-3.1-405b", "--fit", "24GB"]);
    assert_eq!((&none["fit"]["fits"], &none["fit"]["largest_context"]), (&json!(false), &json!(0)));
}

#[test]
fn the_page_has_tables_side_by_side() {
    let models = folder();
    let text = ran(attend(models.path()).args(["plan", "llama-2-70b", "--context", "4096", "--no-speed"]));
    for part in
        ["1.25 GiB", "MHA, 64 KV heads", "GQA, 8 KV heads", "MQA, 1 KV head", "q4_k", "<- as planned", "68 976 648 192"]
    {
        assert!(text.text().contains(part), "{part}: {}", text.out);
    }
    let encoder = ran(attend(models.path()).args(["plan", "bert-base", "--no-speed"]));
    assert!(!encoder.text().contains("cache"), "{}", encoder.out);
    let list = ran(attend(models.path()).args(["plan", "--list"]));
    assert!(list.text().lines().any(|line| line == "palm-540b"), "{}", list.out);
}

#[test]
fn checkpoints_and_configurations_are_planned_without_weights() {
    let models = folder();
    let whole = goldens().join("llama-gqa");
    let object = plan(models.path(), &[whole.to_str().expect("a path")]);
    let alone = models.path().join("alone");
    std::fs::create_dir(&alone).expect("made");
    std::fs::copy(whole.join("config.json"), alone.join("config.json")).expect("copied");
    for path in [alone.clone(), alone.join("config.json")] {
        let other = plan(models.path(), &[path.to_str().expect("a path")]);
        assert_eq!(other["parameters"], object["parameters"]);
        assert_eq!(other["kv_cache_bytes"], object["kv_cache_bytes"]);
    }
    let missing = ran(attend(models.path()).args(["plan", "no-such-model"]));
    missing.error(1);
    let bad = ran(attend(models.path()).args(["plan", "gpt2", "--fit", "many"]));
    assert!(bad.error(2).contains("--fit"));
}

#[test]
fn a_description_is_shown_planned_initialised_and_run() {
    let models = folder();
    let spec = models.path().join("small.toml");
    std::fs::write(&spec, SMALL).expect("written");
    let spec = spec.to_str().expect("a path");
    // 40 x 32 once, two layers of attention, feed-forward part and norms, and the last norm.
    let parameters = 40 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 48 + 2 * 32) + 32;
    assert_eq!(plan(models.path(), &[spec])["parameters"], parameters);
    let shown = ran(attend(models.path()).args(["show", "-m", spec, "--json"])).json();
    assert_eq!(shown["parameters"], parameters);
    let out = models.path().join("made");
    let path = out.to_str().expect("a path");
    ran(attend(models.path()).args(["init", spec, path, "--seed", "7"])).text();
    let first = std::fs::read(out.join("model.safetensors")).expect("read");
    ran(attend(models.path()).args(["init", spec, path, "--seed", "7"])).text();
    assert_eq!(first, std::fs::read(out.join("model.safetensors")).expect("read"), "the seed decides");
    ran(attend(models.path()).args(["init", spec, path, "--seed", "8"])).text();
    assert_ne!(first, std::fs::read(out.join("model.safetensors")).expect("read"));
    let golden = tiny(models.path(), "llama-gqa", json!({"vocab_size": 40}));
    std::fs::copy(golden.join("tokenizer.json"), out.join("tokenizer.json")).expect("copied");
    let run =
        ran(attend(models.path()).args(["run", "-m", path, "--raw", "--json", "--max-tokens", "5", "t1 t2"])).json();
    assert_eq!(run["usage"]["prompt_tokens"], 2);
    let logits = ran(attend(models.path()).args(["logits", "-m", path, "t1 t2", "--json"])).json();
    assert!(logits.to_string().len() > 20, "{logits}");
    assert_eq!(plan(models.path(), &[path])["parameters"], parameters);
}

#[test]
fn loading_a_description_is_strict() {
    let models = folder();
    let spec = models.path().join("small.toml");
    std::fs::write(&spec, SMALL).expect("written");
    let out = models.path().join("made");
    let path = out.to_str().expect("a path");
    ran(attend(models.path()).args(["init", spec.to_str().expect("a path"), path])).text();
    let golden = tiny(models.path(), "llama-gqa", json!({"vocab_size": 40}));
    std::fs::copy(golden.join("tokenizer.json"), out.join("tokenizer.json")).expect("copied");
    for (from, to, word) in [("repeat = 2", "repeat = 3", "layers.2."), ("hidden = 48", "hidden = 50", "should be")] {
        std::fs::write(out.join("spec.toml"), SMALL.replace(from, to)).expect("written");
        let line = ran(attend(models.path()).args(["run", "-m", path, "--raw", "t1"])).error(1).to_owned();
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn mistakes_in_a_description_name_their_field() {
    let models = folder();
    let cases = [
        ("heads = 4,", "heads = 0,", "decoder.layers[0].attention.heads"),
        ("kv_heads = 2", "kv_heads = 3", "decoder.layers[0].attention.kv_heads"),
        ("width = 32", "wide = 32", "decoder.wide"),
        ("width = 32", "", "decoder.width"),
        ("hidden = 48,", "", "hidden"),
        ("hidden = 48", "hiden = 48", "hidden"),
        ("\"silu\"", "\"siluu\"", "decoder.layers[0].ffn"),
        ("position = \"rope\"", "position = { rope = { dim = 9 } }", "decoder.layers[0].attention.position.dim"),
        ("position = \"rope\"", "position = { rope = { bas = 9 } }", "bas"),
        ("position = \"rope\"", "position = \"stack_bias\"", "relative_bias"),
        ("repeat = 2", "repeat = 100000", "decoder.layers[0]"),
        ("norm = \"rms\"\nattention", "attention", "decoder.layers[0].norm"),
        ("[decoder]", "[decodr]", "decodr"),
        ("tied = true", "tied = true, vocab = 41", "head.lm.vocab"),
        ("tied = true", "tide = true", "tide"),
        ("context = 64", "context = -1", "context"),
        ("ffn = {", "cross = { heads = 4 }\nffn = {", "decoder.layers[0].cross"),
        ("context = 64", "context = ", "TOML"),
    ];
    for (index, (from, to, field)) in cases.into_iter().enumerate() {
        assert!(SMALL.contains(from), "{from}");
        let path = models.path().join(format!("{index}.toml"));
        std::fs::write(&path, SMALL.replacen(from, to, 1)).expect("written");
        let run = ran(attend(models.path()).arg("plan").arg(&path).arg("--no-speed"));
        let line = run.error(1);
        assert!(line.contains(field) && line.contains(".toml"), "{from} -> {to}: {line}");
    }
}

/// The descriptions in docs/specs.md are files that work.
#[test]
fn the_documented_descriptions_work() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/specs.md")).expect("docs");
    let models = folder();
    let mut found = 0;
    for (index, block) in page.split("```toml\n").skip(1).enumerate() {
        let text = block.split("```").next().expect("an end");
        let path = models.path().join(format!("{index}.toml"));
        std::fs::write(&path, text).expect("written");
        plan(models.path(), &[path.to_str().expect("a path")]);
        found += 1;
    }
    assert!(found >= 3, "{found}");
}
