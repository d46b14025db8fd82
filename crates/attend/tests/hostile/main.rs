//! F1 and F7: hostile checkpoints through the whole loader. Each is refused by an error that names the file and the
//! place, without a panic and without much memory.

#[path = "../support/through.rs"]
mod through;

mod claims;
mod config;
mod every;
mod gguf_keys;
mod replaced;
mod tokens;
mod values;

use attend_testkit::files::{Files, write_all};
use attend_testkit::memory::{PeakAlloc, alone, peak_of};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What must come of a case.
#[derive(Debug, Clone)]
enum Wanted {
    /// Refused, with one of these words in the message.
    Refused(Vec<String>),
    /// Opened, and then unusable for a reason with one of these words.
    Unusable(Vec<String>),
    /// Opened and used.
    Fine,
    /// Either refused as above or fine: a value that may mean something.
    Either(Vec<String>),
    /// Refused or unusable as above, or fine.
    Typed(Vec<String>),
}

impl Wanted {
    fn or_unusable(self) -> Wanted {
        match self {
            Wanted::Either(words) => Wanted::Typed(words),
            other => other,
        }
    }
}

fn refused(words: &[&str]) -> Wanted {
    Wanted::Refused(words.iter().map(|word| word.to_string()).collect())
}

/// Cases that are checked together, so that one run shows all that is wrong.
#[derive(Default)]
struct Cases {
    count: usize,
    wrong: Vec<String>,
    /// Bytes of memory that are allowed beyond 64 MiB and four times the files.
    more: u64,
}

impl Cases {
    /// Writes the files, takes `open` within them through the loader, and judges.
    fn check(&mut self, name: &str, files: &Files, open: &str, wanted: &Wanted) {
        let folder = tempfile::tempdir().unwrap();
        write_all(folder.path(), files).unwrap();
        let size: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        self.check_at(name, &folder.path().join(open), size as u64, wanted);
    }

    fn check_at(&mut self, name: &str, path: &Path, size: u64, wanted: &Wanted) {
        self.count += 1;
        eprintln!("{name}");
        let (outcome, peak) = peak_of(|| through::through(path));
        let problem = match (wanted, &outcome) {
            (Wanted::Refused(words) | Wanted::Either(words) | Wanted::Typed(words), Err(message)) => {
                unclear(message, path, words)
            }
            (Wanted::Unusable(words) | Wanted::Typed(words), Ok(Err(message))) => lacking(message, words),
            (Wanted::Fine | Wanted::Either(_) | Wanted::Typed(_), Ok(Ok(()))) => None,
            (wanted, outcome) => Some(format!("wanted {wanted:?}, got {outcome:?}")),
        };
        self.wrong.extend(problem.map(|problem| format!("{name}: {problem}")));
        if peak > (64 << 20) + 4 * size + self.more {
            self.wrong.push(format!("{name}: {peak} bytes of memory for {size} of files"));
        }
    }

    #[track_caller]
    fn done(self, least: usize) {
        assert!(self.wrong.is_empty(), "{} of {} cases:\n{}", self.wrong.len(), self.count, self.wrong.join("\n"));
        assert!(self.count >= least, "only {} cases", self.count);
    }
}

/// What a message lacks: one line, the file, one of the words.
fn unclear(message: &str, path: &Path, words: &[String]) -> Option<String> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    if !message.contains(&*folder.to_string_lossy()) {
        return Some(format!("no file is named: {message}"));
    }
    if message.len() > 2000 || message.contains('\n') {
        return Some(format!("a message of {} bytes: {message:.300}", message.len()));
    }
    lacking(message, words)
}

fn lacking(message: &str, words: &[String]) -> Option<String> {
    let found = words.is_empty() || words.iter().any(|word| message.contains(word.as_str()));
    (!found).then(|| format!("wanted one of {words:?} in: {message}"))
}

/// The tiny models that are spoilt, one a body.
fn bodies() -> [(&'static str, Files); 3] {
    let mut list =
        [("llama", "llama-gqa", "wordlevel"), ("bert", "bert-mlm", "bert-uncased-like"), ("t5", "t5-v1.1", "t5-like")]
            .map(|(name, case, tokenizer)| {
                let mut files = through::golden(case);
                files.push(through::golden_tokenizer(tokenizer));
                (name, files)
            });
    list.iter_mut().for_each(|(_, files)| files.sort());
    list
}

#[test]
fn the_tiny_models_work() {
    let _alone = alone();
    let mut cases = Cases::default();
    bodies().iter().for_each(|(name, files)| cases.check(name, files, "", &Wanted::Fine));
    let gguf = attend_testkit::files::model::gguf(3).bytes();
    cases.check("gguf", &vec![("m.gguf".into(), gguf)], "m.gguf", &Wanted::Fine);
    cases.done(4);
}
