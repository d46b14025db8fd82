//! Translation models whose text is cut by one SentencePiece model while the pieces' ids are those of `vocab.json`.
//!
//! Marian has `source.spm`, and an EOS follows the text. What the model writes is decoded from the same `vocab.json`;
//! `target.spm` cuts texts in the target language. M2M-100 has one model for all languages, and the text's own language,
//! `__en__`, in front of it.

use super::config::SideFiles;
use super::proto::SpModel;
use super::sentencepiece::{algorithm, read};
use super::word_files::read_vocabulary;
use crate::added::{AddedToken, AddedTokens};
use crate::decode::Decoder;
use crate::error::{Error, Fault};
use crate::model::{Mapped, Model};
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::{Parts, Tokenizer};
use serde_json::Value;
use std::path::Path;

/// Reads a folder's tokenizer for the given SentencePiece model; `in_front`: each text begins with its language.
pub(super) fn open(folder: &Path, spm: &str, files: &SideFiles, in_front: bool) -> Result<Tokenizer, Error> {
    let vocabulary = read_vocabulary(&folder.join("vocab.json"))?;
    let path = folder.join(spm);
    let parts = SpModel::parse(&read(&path)?).and_then(|model| {
        let (inner, normalizer) = algorithm(&model, &model.pieces, false)?;
        let fault = |token: &str| Fault::new("vocab.json", format!("`{token}` is not in it"));
        let name = |key: &str, usual: &str| files.special_name(key).unwrap_or_else(|| usual.to_string());
        let (unk, eos, pad) = (name("unk_token", "<unk>"), name("eos_token", "</s>"), name("pad_token", "<pad>"));
        let unk_id = vocabulary.id(&unk).ok_or_else(|| fault(&unk))?;
        let eos_id = vocabulary.id(&eos).ok_or_else(|| fault(&eos))?;
        let mut tokens = files.added_tokens(&vocabulary)?;
        for (token, id) in [(&unk, Some(unk_id)), (&eos, Some(eos_id)), (&pad, vocabulary.id(&pad))] {
            if let Some(id) = id
                && !tokens.iter().any(|known| known.content == *token)
            {
                tokens.push(AddedToken::special(token, id));
            }
        }
        // The language to translate into is written in front of the text, as `>>fra<<`.
        for id in 0..vocabulary.len() as u32 {
            let token = vocabulary.token(id).unwrap_or_default();
            if token.starts_with(">>") && token.ends_with("<<") && token.len() > 4 {
                tokens.push(AddedToken { rstrip: true, ..AddedToken::plain(token, id) });
            }
        }
        let language = in_front.then(|| files.config("src_lang").and_then(Value::as_str).unwrap_or("en"));
        let language = language.map(|code| format!("__{}__", code.trim_matches('_')));
        let added = AddedTokens::new(tokens, &normalizer)?;
        let own = match &language {
            None => None,
            Some(token) => Some((token.as_str(), added.id(token).ok_or_else(|| fault(token))?)),
        };
        let roles = files.roles(&vocabulary, &added);
        let roles = crate::tokenizer::Roles {
            eos: Some(eos_id),
            unk: Some(unk_id),
            pad: vocabulary.id(&pad),
            ends: roles.ends.into_iter().chain([eos_id]).collect(),
            ..roles
        };
        Ok(Parts {
            model: Model::Mapped(Box::new(Mapped { inner, vocabulary, unk: unk_id })),
            added,
            normalizer,
            pre_tokenizer: PreTokenizer::none(),
            post: Post::around(own.as_slice(), &[(&eos, eos_id)])?,
            decoder: Decoder::sentencepiece(usize::MAX),
            roles,
            kind: format!("{spm} with vocab.json (SentencePiece)"),
        })
    });
    Ok(Tokenizer::assemble(parts.map_err(|fault| fault.at(&path))?))
}
