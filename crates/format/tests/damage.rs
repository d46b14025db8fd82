//! Valid documents, cut at every length and with every byte of their heads flipped: what is damaged is a typed error,
//! or still a whole document.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use attend_format::{Checkpoint, Error};
use attend_testkit::files::valid::{Document, documents};
use attend_testkit::files::{Random, write_all};

struct Bench {
    _folder: tempfile::TempDir,
    open: PathBuf,
    damaged: PathBuf,
    bytes: Vec<u8>,
}

fn bench(document: &Document) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path(), &document.files).unwrap();
    let (open, damaged) = (folder.path().join(document.open), folder.path().join(document.damaged));
    let bytes = std::fs::read(&damaged).unwrap();
    Bench { _folder: folder, open, damaged, bytes }
}

/// Opens and reads every tensor.
fn load(path: &Path) -> Result<(), Error> {
    let checkpoint = Checkpoint::open(path)?;
    checkpoint.config().usize_opt("hidden_size").ok();
    checkpoint.config().rope(None).ok();
    let mut bytes = Vec::new();
    for (name, info) in checkpoint.tensors() {
        bytes.resize(info.bytes.min(64) as usize, 0);
        checkpoint.read_at(name, info.bytes - bytes.len() as u64, &mut bytes)?;
    }
    Ok(())
}

/// Lengths at which a prefix is a whole document: where only padding or white space is missing.
fn is_whole(document: &Document, bytes: &[u8], length: usize) -> bool {
    let rest = &bytes[length..];
    document.damaged.ends_with(".gguf") && rest.len() < 32 && rest.iter().all(|&byte| byte == 0)
}

#[test]
fn no_prefix_is_taken_for_the_whole() {
    let mut random = Random::new(11);
    for document in &documents(3) {
        let bench = bench(document);
        load(&bench.open).unwrap_or_else(|error| panic!("{}: {error}", document.name));
        let length = bench.bytes.len();
        let cuts = (0..length.min(4097)).chain((0..500).map(|_| random.below(length as u64) as usize));
        let mut cuts: Vec<usize> = cuts.collect();
        // From long to short, so that the file is only ever shortened.
        cuts.sort_by(|a, b| b.cmp(a));
        cuts.dedup();
        let file = OpenOptions::new().write(true).open(&bench.damaged).unwrap();
        for cut in cuts {
            file.set_len(cut as u64).unwrap();
            match load(&bench.open) {
                Ok(()) => assert!(is_whole(document, &bench.bytes, cut), "{} cut to {cut} loads", document.name),
                Err(error) => assert_ne!(error.kind(), "Io", "{} cut to {cut}: {error}", document.name),
            }
        }
    }
}

fn flip(document: &Document) -> (usize, usize) {
    let bench = bench(document);
    let file: File = OpenOptions::new().write(true).open(&bench.damaged).unwrap();
    let length = bench.bytes.len();
    let (mut loads, mut errors) = (0, 0);
    let head = 0..document.head.min(length);
    let tail = length.saturating_sub(document.tail).max(head.end)..length;
    for at in head.chain(tail) {
        for bit in 0..8 {
            file.write_all_at(&[bench.bytes[at] ^ (1 << bit)], at as u64).unwrap();
            match load(&bench.open) {
                Ok(()) => loads += 1,
                Err(error) => {
                    assert_ne!(error.kind(), "Io", "{} flipped at {at}: {error}", document.name);
                    errors += 1;
                }
            }
        }
        file.write_all_at(&[bench.bytes[at]], at as u64).unwrap();
    }
    (loads, errors)
}

#[test]
fn every_flipped_bit_of_a_head_loads_or_is_a_typed_error() {
    let documents = documents(5);
    let counts: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = documents.iter().map(|document| scope.spawn(|| flip(document))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (loads, errors) = counts.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    assert!(loads + errors >= 100_000, "only {loads} + {errors}");
    assert!(errors > loads / 10 && loads > errors / 100, "{loads} loads and {errors} errors: is anything looked at?");
}
