//! Sharded indexes and folders, class A11.

use serde_json::{Value, json};

use crate::files::{Case, Files, model};

const INDEX: &str = "model.safetensors.index.json";
const SECOND: &str = "model-00002-of-00002.safetensors";

pub fn cases(seed: u64) -> Vec<Case> {
    let mut cases = names(seed);
    cases.extend(contents(seed));
    cases.extend(shards(seed));
    cases.extend(links(seed));
    cases.extend(folders(seed));
    cases
}

fn case(name: impl Into<String>, files: Files, expect: &'static str) -> Case {
    Case::folder("A11", format!("index {}", name.into()), files, expect)
}

/// The sharded model with its index rewritten.
fn with_index(seed: u64, index: impl Into<Vec<u8>>) -> Files {
    let mut files = model::sharded(seed);
    let index = index.into();
    files.iter_mut().filter(|(name, _)| name == INDEX).for_each(|(_, old)| *old = index.clone());
    files
}

fn names(seed: u64) -> Vec<Case> {
    [
        "../../etc/passwd",
        "../model.safetensors",
        "/etc/passwd",
        "/nonexistent/file",
        "a/../../b",
        "..",
        ".",
        "",
        "a\\b",
        "C:model",
        "x/",
        "./model",
        "a/./../..",
        "a\0b",
        "//x",
        "\\\\host\\share",
    ]
    .iter()
    .map(|name| {
        let index = json!({ "weight_map": { "a": name } }).to_string();
        // A `.` in the middle of a path is dropped when the path is read, so that `./model` is merely absent.
        let expect = if *name == "./model" { "UnsafePath|MissingShard" } else { "UnsafePath" };
        case(format!("naming {name:?}"), with_index(seed, index), expect)
    })
    .collect()
}

fn contents(seed: u64) -> Vec<Case> {
    let text = |name: &str, index: &str, expect| case(name, with_index(seed, index), expect);
    vec![
        text("empty", "", "Json"),
        text("list", "[]", "Json|MissingField"),
        text("without a map", "{}", "MissingField"),
        text("with null for a map", r#"{"weight_map":null}"#, "MissingField"),
        text("with a list for a map", r#"{"weight_map":[]}"#, "Json"),
        text("with an empty map", r#"{"weight_map":{}}"#, "BadField"),
        text("with a number for a name", r#"{"weight_map":{"a":1}}"#, "Json"),
        text("with a list for a name", r#"{"weight_map":{"a":["x"]}}"#, "Json"),
        text("with two maps", r#"{"weight_map":{"a":"x"},"weight_map":{"a":"x"}}"#, "Json"),
        text("with a tensor twice", r#"{"weight_map":{"a":"x","a":"y"}}"#, "DuplicateTensor"),
        text("cut", r#"{"weight_map":{"a":"#, "Json"),
        text("deep", &format!(r#"{{"metadata":{}"#, "[".repeat(100_000)), "TooDeep"),
        case("not UTF-8", with_index(seed, b"{\"\xff\":1}".to_vec()), "NotUtf8"),
        case("that is a pointer", with_index(seed, "version https://git-lfs.github.com/spec/v1\n"), "GitLfsPointer"),
        text("naming a shard that is absent", r#"{"weight_map":{"a":"absent.safetensors"}}"#, "MissingShard"),
        text("naming itself", &json!({ "weight_map": { "a": INDEX } }).to_string(), "HeaderTooLarge"),
        text("naming a folder below", r#"{"weight_map":{"a":"sub/absent.safetensors"}}"#, "MissingShard"),
    ]
}

fn shards(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut change = |name: &str, change: &dyn Fn(&mut Vec<u8>), expect| {
        let mut files = model::sharded(seed);
        files.iter_mut().filter(|(name, _)| name == SECOND).for_each(|(_, bytes)| change(bytes));
        cases.push(case(format!("with a shard {name}"), files, expect));
    };
    change("cut by 1 byte", &|bytes| bytes.truncate(bytes.len() - 1), "Truncated");
    change("cut by a page", &|bytes| bytes.truncate(bytes.len() - 4096), "Truncated");
    change("cut in half", &|bytes| bytes.truncate(bytes.len() / 2), "Truncated");
    change("of nothing", &|bytes| bytes.clear(), "Truncated");
    change("that is longer", &|bytes| bytes.push(0), "TrailingBytes");
    change("that is a page", &|bytes| *bytes = b"<!doctype html>".to_vec(), "HtmlPage");
    change(
        "that is a pointer",
        &|bytes| *bytes = b"version https://git-lfs.github.com/spec/v1\nsize 9\n".to_vec(),
        "GitLfsPointer",
    );
    let without = |removed: &str| model::sharded(seed).into_iter().filter(|(name, _)| name != removed).collect();
    cases.push(case("with shard 2 deleted", without(SECOND), "MissingShard"));
    cases.push(case("with shard 1 deleted", without("model-00001-of-00002.safetensors"), "MissingShard"));
    let edited = |edit: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let files = model::sharded(seed);
        let index = files.iter().find(|(name, _)| name == INDEX).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let mut index: Value = serde_json::from_slice(&index).expect("an index");
        edit(index["weight_map"].as_object_mut().expect("a map"));
        with_index(seed, index.to_string())
    };
    let add = edited(&|map| drop(map.insert("ghost".into(), SECOND.into())));
    cases.push(case("with a tensor that its shard lacks", add, "NotInShard"));
    let wrong = edited(&|map| drop(map.insert("model.embed_tokens.weight".into(), SECOND.into())));
    cases.push(case("with a tensor in the other shard", wrong, "NotInShard"));
    let mut twins = model::sharded(seed);
    let first =
        twins.iter().find(|(name, _)| name.contains("00001-of")).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
    twins.iter_mut().filter(|(name, _)| name == SECOND).for_each(|(_, bytes)| *bytes = first.clone());
    cases.push(case("with one shard twice", twins, "DuplicateTensor"));
    cases
}

fn links(seed: u64) -> Vec<Case> {
    let without =
        |removed: &str| -> Files { model::folder(seed).into_iter().filter(|(name, _)| name != removed).collect() };
    let inside =
        |files: Files| -> Files { files.into_iter().map(|(name, bytes)| (format!("model/{name}"), bytes)).collect() };
    let mut cases = Vec::new();
    for target in ["/etc/passwd", "/nonexistent/file", "../outside", "../absent", "model.safetensors"] {
        let mut files = inside(without("model.safetensors"));
        files.push(("outside".into(), b"secret".to_vec()));
        let name = format!("weights linked to {target}");
        cases.push(case(name, files, "LinkLeaves").link("model/model.safetensors", target).open("model"));
    }
    for target in ["/etc/passwd", "/nonexistent/file", "../outside.json"] {
        let mut files = inside(without("config.json"));
        files.push(("outside.json".into(), b"{}".to_vec()));
        cases.push(
            case(format!("config linked to {target}"), files, "LinkLeaves")
                .link("model/config.json", target)
                .open("model"),
        );
    }
    let mut sharded = inside(model::sharded(seed));
    sharded.retain(|(name, _)| !name.ends_with(SECOND));
    sharded.push(("shard".into(), b"x".to_vec()));
    cases.push(
        case("with a shard linked out", sharded, "LinkLeaves")
            .link(&format!("model/{SECOND}"), "../shard")
            .open("model"),
    );
    // A cache's folder may lead into its own blobs, not into those of another repository.
    let blobs = |files: Files| -> Files {
        files.into_iter().map(|(name, bytes)| (format!("models--b/blobs/{name}"), bytes)).collect()
    };
    let root = "models--a/snapshots/1";
    let other = case("cache linked into another repository", blobs(model::folder(seed)), "LinkLeaves");
    let other = ["config.json", "model.safetensors"]
        .iter()
        .fold(other, |case, name| case.link(&format!("{root}/{name}"), &format!("../../../models--b/blobs/{name}")));
    cases.push(other.open(root));
    cases
}

fn folders(seed: u64) -> Vec<Case> {
    let config = model::folder(seed).into_iter().filter(|(name, _)| name == "config.json").collect::<Files>();
    let with = |name: &str| {
        let mut files = config.clone();
        files.push((name.into(), vec![0; 16]));
        files
    };
    let weights = model::folder(seed).into_iter().filter(|(name, _)| name != "config.json").collect();
    let two = vec![("a.gguf".to_owned(), model::gguf(seed).bytes()), ("b.gguf".to_owned(), model::gguf(seed).bytes())];
    vec![
        case("absent and no weights", config.clone(), "NoWeights"),
        case("absent and other weights", with("weights.safetensors"), "NoWeights"),
        case("absent and TensorFlow weights", with("tf_model.h5"), "NoWeights"),
        case("absent and no config", weights, "MissingFile"),
        case("absent and two GGUF models", two, "NoWeights"),
        case("absent and a folder of the weights' name", with("model.safetensors/x"), "NotAFile"),
    ]
}
