//! Reading tokenizers: every kind of file is turned into the same parts.

pub(crate) mod config;
mod gguf;
mod gguf_pre;
mod tokenizer_json;

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
        Err(Error::NoTokenizer { path: path.to_path_buf() })
    }

    /// The tokenizer in the metadata of a GGUF file.
    pub fn from_gguf(metadata: &attend_format::gguf::Metadata) -> Result<Tokenizer, Error> {
        gguf::open(metadata)
    }
}
