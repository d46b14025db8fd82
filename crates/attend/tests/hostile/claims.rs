//! A14 and F7: claims that no machine could hold are refused before anything is allocated, with figures.

use super::config::with_field;
use super::{Cases, bodies, refused};
use crate::through::{json_of, open, put};
use attend_testkit::files::{Files, write_all};
use attend_testkit::memory::{alone, peak_of};

fn with_all(files: &Files, fields: &[(&str, u64)]) -> Files {
    let mut files = files.clone();
    let mut config = json_of(&files, "config.json");
    for (field, value) in fields {
        config[field] = (*value).into();
    }
    put(&mut files, "config.json", config.to_string());
    files
}

/// The peak stays below 100 MiB and the message says what is needed and what there is.
fn refused_with_figures(name: &str, files: &Files) {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), files).unwrap();
    let (outcome, peak) = peak_of(|| open(folder.path()).map(drop));
    let message = outcome.unwrap_err();
    assert!(message.contains("describes") && message.contains("of memory are available"), "{name}: {message}");
    assert!(message.contains(&*folder.path().to_string_lossy()), "{name}: {message}");
    assert!(peak < 100 << 20, "{name}: {peak} bytes");
}

#[test]
fn a_terabyte_is_refused_with_figures() {
    let _alone = alone();
    let [llama, bert, t5] = bodies();
    let big = [
        ("hidden_size", 1 << 18),
        ("intermediate_size", 1 << 20),
        ("num_attention_heads", 1 << 11),
        ("num_key_value_heads", 1 << 11),
        ("head_dim", 128),
    ];
    refused_with_figures("llama", &with_all(&llama.1, &big));
    refused_with_figures("bert", &with_all(&bert.1, &big));
    let t5_big = [("d_model", 1 << 18), ("d_ff", 1 << 20), ("d_kv", 128), ("num_heads", 1 << 11)];
    refused_with_figures("t5", &with_all(&t5.1, &t5_big));
    refused_with_figures(
        "vocabulary",
        &with_all(&llama.1, &[("vocab_size", 1 << 30), ("hidden_size", 1 << 10), ("head_dim", 256)]),
    );
}

#[test]
fn a_thousand_million_layers_are_refused_with_figures() {
    let _alone = alone();
    let [llama, bert, t5] = bodies();
    for layers in ["1000000000", "2147483647", "100000"] {
        refused_with_figures("llama", &with_field(&llama.1, "num_hidden_layers", layers));
        refused_with_figures("bert", &with_field(&bert.1, "num_hidden_layers", layers));
        refused_with_figures("t5", &with_field(&t5.1, "num_layers", layers));
        refused_with_figures("t5 decoder", &with_field(&t5.1, "num_decoder_layers", layers));
    }
    // The same from GGUF metadata.
    let mut cases = Cases::default();
    for (key, value) in [
        ("llama.block_count", 1_000_000_000),
        ("llama.block_count", u32::MAX),
        ("llama.embedding_length", 1 << 31),
        ("llama.feed_forward_length", 1 << 31),
    ] {
        let file = super::gguf_keys::with_key(key, &[&4u32.to_le_bytes()[..], &value.to_le_bytes()].concat());
        let words = refused(&[
            "describes",
            "block_count",
            "embedding_length",
            "feed_forward_length",
            "should be",
            "num_hidden_layers",
            "hidden_size",
            "intermediate_size",
        ]);
        cases.check(&format!("{key} {value}"), &file, "m.gguf", &words);
    }
    cases.done(4);
}
