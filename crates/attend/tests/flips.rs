//! F3: bytes of headers and text files flipped. A model that is spoilt so loads or is refused by a typed error, and
//! what loads survives four tokens.

#[path = "support/through.rs"]
mod through;

use attend::kernels::DType;
use attend_testkit::files::{Files, Random, model, write_all};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use through::{golden, golden_tokenizer};

/// A valid model and the file of it that is spoilt, up to its `head`.
struct Target {
    name: &'static str,
    files: Files,
    open: &'static str,
    spoilt: &'static str,
    head: usize,
}

fn target(name: &'static str, files: Files, open: &'static str, spoilt: &'static str) -> Target {
    let (_, bytes) = files.iter().find(|(file, _)| file == spoilt).unwrap_or_else(|| panic!("{name}: no {spoilt}"));
    let head = match bytes.first_chunk() {
        Some(length) if spoilt.ends_with(".safetensors") => 8 + u64::from_le_bytes(*length) as usize,
        _ => bytes.len(),
    };
    Target { name, files, open, spoilt, head }
}

fn gguf(name: &'static str, file: attend_testkit::files::gguf::Gguf) -> Target {
    let data: usize = file.tensors.iter().map(|tensor| tensor.data.len().next_multiple_of(file.alignment)).sum();
    let mut target = target(name, vec![("m.gguf".into(), file.bytes())], "m.gguf", "m.gguf");
    target.head -= data;
    target
}

fn with(mut files: Files, more: &[(String, Vec<u8>)]) -> Files {
    files.extend_from_slice(more);
    files
}

fn targets() -> Vec<Target> {
    let words = golden_tokenizer("wordlevel");
    let sides = (
        "tokenizer_config.json".to_string(),
        br#"{"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true,"chat_template":"{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"}"#.to_vec(),
    );
    let with_words = with(golden("llama-gqa"), &[words, sides]);
    vec![
        target("safetensors of a decoder", golden("llama-gqa"), "", "model.safetensors"),
        target("safetensors of an encoder", golden("bert-seqcls"), "", "model.safetensors"),
        target("safetensors of an encoder-decoder", golden("t5-v1.1"), "", "model.safetensors"),
        target("a shard", golden("llama-load-sharded"), "", "model-00002-of-00003.safetensors"),
        target("the index of shards", golden("llama-load-sharded"), "", "model.safetensors.index.json"),
        target("config of a decoder", golden("llama-gqa"), "", "config.json"),
        target("config of an encoder", golden("bert-mlm"), "", "config.json"),
        target("config of an encoder-decoder", golden("t5-v1.1"), "", "config.json"),
        target("generation config", golden("t5-v1.1"), "", "generation_config.json"),
        target("tokenizer", with_words.clone(), "", "tokenizer.json"),
        target("tokenizer config", with_words, "", "tokenizer_config.json"),
        gguf("gguf f32", model::gguf(3)),
        gguf("gguf q8_0", model::wide_gguf(8, DType::Q8_0)),
        gguf("gguf q4_k", model::wide_gguf(12, DType::Q4_K)),
    ]
}

#[derive(Debug, Default)]
struct Counts {
    refused: usize,
    failed: usize,
    ran: usize,
}

/// Flips each bit of every byte of the head, of which one in `step` is taken, and counts what came of it.
fn flip(target: &Target, step: u64, counts: &mut Counts) {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &target.files).unwrap();
    let path = folder.path().join(target.open);
    let came = through::through(&path);
    assert_eq!(came, Ok(Ok(())), "{}: the whole model", target.name);
    let spoilt = folder.path().join(target.spoilt);
    let original = std::fs::read(&spoilt).unwrap();
    let file = OpenOptions::new().write(true).open(&spoilt).unwrap();
    let mut random = Random::new(target.head as u64);
    for (at, bit) in (0..target.head).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        if random.below(step) != 0 {
            continue;
        }
        file.write_all_at(&[original[at] ^ (1 << bit)], at as u64).unwrap();
        let place = format!("{}: bit {bit} of byte {at}", target.name);
        match catch_unwind(AssertUnwindSafe(|| through::through(&path))) {
            Ok(Ok(Ok(()))) => counts.ran += 1,
            Ok(Ok(Err(_))) => counts.failed += 1,
            Ok(Err(message)) => {
                assert!(message.contains(&*folder.path().to_string_lossy()), "{place}: no file in: {message}");
                counts.refused += 1;
            }
            Err(_) => panic!("{place}: a panic"),
        }
        file.write_all_at(&original[at..=at], at as u64).unwrap();
    }
}

fn flip_all(step: u64, least: usize) {
    let mut counts = Counts::default();
    for target in targets() {
        flip(&target, step, &mut counts);
    }
    let all = counts.refused + counts.failed + counts.ran;
    eprintln!("{all} flips: {counts:?}");
    assert!(all >= least, "only {all} flips");
    // Were nothing looked at, or everything refused, these would be 0.
    assert!(counts.refused > all / 20 && counts.ran > all / 20, "{counts:?}");
}

#[test]
fn some_flipped_bits() {
    flip_all(24, 9_000);
}

#[test]
#[ignore = "more than a hundred thousand loads"]
fn every_flipped_bit() {
    flip_all(1, 100_000);
}
