//! Marian's translation models: text is cut by `source.spm`, the pieces' ids are those of `vocab.json`, and an EOS
//! follows. What the model writes is decoded from the same `vocab.json`; `target.spm` cuts texts in the target language.

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
use std::path::Path;

/// Reads a folder's tokenizer for the given SentencePiece model: `source.spm` or `target.spm`.
pub(super) fn open(folder: &Path, spm: &str, files: &SideFiles) -> Result<Tokenizer, Error> {
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
        let added = AddedTokens::new(tokens, &normalizer)?;
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
            post: Post::around(&[], &[(&eos, eos_id)])?,
            decoder: Decoder::sentencepiece(usize::MAX),
            roles,
            kind: format!("{spm} with vocab.json (SentencePiece)"),
        })
    });
    Ok(Tokenizer::assemble(parts.map_err(|fault| fault.at(&path))?))
}
