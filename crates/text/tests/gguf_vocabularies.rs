//! A peer's vocabulary files with texts and their expected ids (`vocab-gguf` in the models folder).

mod common;

use attend_text::{EncodeOptions, Tokenizer};
use common::models;

#[test]
fn every_vocabulary_gives_the_expected_ids() {
    let folder = models().join("vocab-gguf");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "gguf")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let tokenizer = Tokenizer::open(file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (inputs, outputs) = (file.with_extension("gguf.inp"), file.with_extension("gguf.out"));
        if !inputs.is_file() {
            let text = "Hello, wörld! 123 😀\n\tx";
            let ids = tokenizer.encode(text, EncodeOptions::default()).unwrap().ids;
            // Unigram models come with a normaliser for which white space is white space.
            let expected =
                if tokenizer.kind().contains("unigram") { text.replace("\n\t", " ") } else { text.to_string() };
            assert_eq!(tokenizer.decode(&ids, true), expected, "{name}");
            continue;
        }
        let (inputs, outputs) = (std::fs::read_to_string(inputs).unwrap(), std::fs::read_to_string(outputs).unwrap());
        let texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
        let lines: Vec<&str> = outputs.lines().collect();
        for (text, line) in texts.iter().zip(&lines) {
            let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let ours = tokenizer.encode(text, EncodeOptions::default()).unwrap();
            if ours.ids != expected {
                wrong.push(format!(
                    "{name}: {text:?}\n  ours   {:?} {:?}\n  theirs {expected:?}",
                    ours.ids, ours.pieces
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} texts differ:\n{}", wrong.len(), wrong[..wrong.len().min(25)].join("\n"));
}
