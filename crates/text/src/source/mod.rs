//! Reading tokenizers: every kind of file is turned into the same parts.

pub(crate) mod config;
mod gguf;
pub(crate) mod gguf_pre;
mod marian;
mod proto;
mod sentencepiece;
mod tokenizer_json;
mod word_files;

pub(crate) use gguf::kind;

use crate::error::Error;
use crate::tokenizer::Tokenizer;
use config::SideFiles;
use std::path::Path;

impl Tokenizer {
    /// The tokenizer of a model's folder, or of a GGUF file.
    ///
    /// In a folder, `tokenizer.json` is preferred, as it says everything; then SentencePiece models, `vocab.txt`, and
    /// `vocab.json` with `merges.txt`, which need what `tokenizer_config.json` adds.
    pub fn open(path: &Path) -> Result<Tokenizer, Error> {
        let home = attend_format::home(path)?;
        let path = home.as_path();
        if !path.is_dir() {
            if path.extension().is_some_and(|end| end == "json") {
                let folder = path.parent().unwrap_or(Path::new("."));
                return tokenizer_json::open(path, &SideFiles::open(folder)?);
            }
            let (metadata, _) = attend_format::gguf::open(path)?;
            return Tokenizer::from_gguf(&metadata);
        }
        let files = SideFiles::open(path)?;
        let json = path.join("tokenizer.json");
        if json.is_file() {
            return tokenizer_json::open(&json, &files);
        }
        let has = |name: &str| path.join(name).is_file();
        if has("source.spm") && has("vocab.json") {
            return marian::open(path, "source.spm", &files, false);
        }
        if has("sentencepiece.bpe.model") && has("vocab.json") && files.class().starts_with("m2m") {
            return marian::open(path, "sentencepiece.bpe.model", &files, true);
        }
        const MODELS: [&str; 5] =
            ["tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model", "sentencepiece.model"];
        if let Some(name) = MODELS.into_iter().find(|name| has(name)) {
            return sentencepiece::open(&path.join(name), &files);
        }
        if has("vocab.txt") {
            return word_files::word_piece(&path.join("vocab.txt"), &files);
        }
        if has("vocab.json") && has("merges.txt") {
            return word_files::byte_level(path, &files);
        }
        Err(Error::NoTokenizer { path: path.to_path_buf() })
    }

    /// The tokenizer for texts in the language that a translation model writes, where it differs from the other
    /// (labels for training, or scoring given translations). `None` where one tokenizer serves both.
    pub fn open_target(path: &Path) -> Result<Option<Tokenizer>, Error> {
        let has = |name: &str| path.join(name).is_file();
        if path.is_dir() && !has("tokenizer.json") && has("target.spm") && has("vocab.json") {
            return marian::open(path, "target.spm", &SideFiles::open(path)?, false).map(Some);
        }
        Ok(None)
    }

    /// The tokenizer of a tokenizer.json, with what a tokenizer_config.json beside it says.
    pub(crate) fn from_json(file: &Path, text: &str, config: serde_json::Value) -> Result<Tokenizer, Error> {
        tokenizer_json::from_text(file, text, &SideFiles::of(config, None))
    }

    /// The tokenizer in the metadata of a GGUF file.
    pub fn from_gguf(metadata: &attend_format::gguf::Metadata) -> Result<Tokenizer, Error> {
        gguf::open(metadata)
    }
}
