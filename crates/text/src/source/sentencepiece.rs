//! Folders with a SentencePiece model and no tokenizer.json. The model says how text is cut; which ids its pieces have
//! and what is put around a text differs by family, which `tokenizer_config.json` or `config.json` name.

use super::config::SideFiles;
use super::proto::{Piece, PieceKind, SpModel};
use crate::added::{AddedToken, AddedTokens};
use crate::decode::Decoder;
use crate::error::{Error, Fault};
use crate::model::{Model, Scored, Unigram};
use crate::normalize::{Normalizer, SentencePiece};
use crate::post::Post;
use crate::pretokenize::PreTokenizer;
use crate::tokenizer::{Parts, Tokenizer};
use crate::vocabulary::Vocabulary;
use serde_json::{Value, json};
use std::path::Path;

/// Largest model file accepted, in bytes. The largest known ones have about 5 MB.
const MAX_BYTES: u64 = 64 << 20;

/// How a family numbers the pieces and what it puts around a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Ids are the model's; BOS in front as a rule, EOS if asked for.
    Plain { add_bos: bool },
    /// EOS behind; placeholder tokens `<extra_id_N>` after the pieces, counted backwards.
    Placeholders,
    /// fairseq's numbers: `<s> <pad> </s> <unk>`, the pieces without the model's first three, a mask.
    Fairseq,
    /// The same with unused entries before the pieces.
    FairseqUnused,
    /// `[CLS]` text `[SEP]`; ids are the model's.
    Bracketed,
    /// fairseq's numbers with a token for each language between the pieces and the mask; the text's own language stands in
    /// front of it or behind its end token.
    Languages { in_front: bool, usual: &'static str },
    /// Padding, end, two masks and unused entries before the pieces; the end token behind.
    Masks,
}

/// Languages in the order of their ids, for folders that do not list them: the first 25 are those of the first release.
const LANGUAGES: [&str; 52] = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN", "it_IT", "ja_XX",
    "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN",
    "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA",
    "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
];

impl Family {
    fn of(files: &SideFiles) -> Option<Family> {
        let class = files.class();
        let class = class.strip_suffix("fast").unwrap_or(&class);
        let class = class.strip_suffix("tokenizer").unwrap_or(class);
        match class.replace(['-', '_'], "").as_str() {
            "xlmroberta" | "xlmrobertaxl" => Some(Family::Fairseq),
            "camembert" => Some(Family::FairseqUnused),
            "t5" | "mt5" | "umt5" => Some(Family::Placeholders),
            "debertav2" | "albert" => Some(Family::Bracketed),
            "mbart" => Some(Family::Languages { in_front: false, usual: "en_XX" }),
            "mbart50" => Some(Family::Languages { in_front: true, usual: "en_XX" }),
            "nllb" => {
                let in_front = files.flag("legacy_behaviour") != Some(true);
                Some(Family::Languages { in_front, usual: "eng_Latn" })
            }
            "pegasus" => Some(Family::Masks),
            "llama" | "codellama" | "mistral" | "mixtral" | "gemma" | "gemma2" | "gemma3" | "gemma3text" | "phi3"
            | "internlm" | "internlm2" | "baichuan" | "yi" | "minicpm" | "stablelm" => {
                Some(Family::Plain { add_bos: true })
            }
            // A class that is not known may still say all that is needed.
            _ if files.flag("add_bos_token").is_some() => Some(Family::Plain { add_bos: false }),
            _ => None,
        }
    }
}

/// Reads the model file of a folder.
pub(super) fn open(path: &Path, files: &SideFiles) -> Result<Tokenizer, Error> {
    let bytes = read(path)?;
    let parts = SpModel::parse(&bytes).and_then(|model| parts(model, files));
    Ok(Tokenizer::assemble(parts.map_err(|fault| fault.at(path))?))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read { file: path.to_path_buf(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(Fault::new("size", format!("{size} bytes, the limit is {MAX_BYTES}")).at(path));
    }
    std::fs::read(path).map_err(failed)
}

/// The algorithm of a model and the normaliser that belongs to it.
pub(super) fn algorithm(model: &SpModel, pieces: &[Piece], first_only: bool) -> Result<(Model, Normalizer), Fault> {
    let normalizer = SentencePiece {
        charsmap: model.charsmap.clone(),
        add_dummy_prefix: model.add_dummy_prefix,
        remove_extra_whitespaces: model.remove_extra_whitespaces,
        escape_whitespaces: model.escape_whitespaces,
        suffix: model.whitespace_as_suffix,
        first_only,
    };
    let unk = pieces.iter().position(|piece| piece.kind == PieceKind::Unknown);
    let usable = |piece: &Piece| matches!(piece.kind, PieceKind::Normal | PieceKind::UserDefined);
    let own: Vec<(&str, u32)> = (pieces.iter().enumerate())
        .filter(|(_, piece)| piece.kind == PieceKind::UserDefined && !piece.text.is_empty())
        .map(|(id, piece)| (&*piece.text, id as u32))
        .collect();
    let algorithm = if model.bpe {
        let vocabulary = Vocabulary::from_list(pieces.iter().map(|piece| &*piece.text))?;
        let scores = pieces.iter().map(|piece| usable(piece).then_some(piece.score)).collect();
        let bytes = if model.byte_fallback { vocabulary.byte_ids() } else { [None; 256] };
        let unk = unk.map(|unk| unk as u32);
        Model::Scored(Scored::new(vocabulary, scores, bytes, unk, true).with_whole_words(&own)?)
    } else {
        // The library's rule: a user-defined piece beats any other way to write the same text.
        let best = pieces.iter().filter(|piece| piece.kind == PieceKind::Normal).map(|piece| piece.score);
        let best = f64::from(best.fold(f32::MIN, f32::max).min(0.0));
        let score = |piece: &Piece| match piece.kind {
            PieceKind::UserDefined => piece.text.chars().count() as f64 * best - 0.1,
            _ => f64::from(piece.score),
        };
        let scored: Vec<(Box<str>, f64)> = pieces.iter().map(|piece| (piece.text.clone(), score(piece))).collect();
        Model::Unigram(Unigram::new(&scored, unk, model.byte_fallback, |id| usable(&pieces[id]))?)
    };
    Ok((algorithm, Normalizer::SentencePiece(normalizer)))
}

fn parts(model: SpModel, files: &SideFiles) -> Result<Parts, Fault> {
    let Some(family) = Family::of(files) else {
        let class = files.class();
        let hint = "its special tokens are not known; a tokenizer.json would say";
        return Err(Fault::unknown("tokenizer_class of the folder", "class", &class, hint));
    };
    let languages = languages(family, files)?;
    let pieces = numbered(&model, family, &languages);
    // Old tokenizers put a space in front of every part of a text that special tokens cut; `legacy: false` only in
    // front of the first.
    let first_only = files.flag("legacy") == Some(false);
    let (algorithm, mut normalizer) = algorithm(&model, &pieces, first_only)?;
    if files.class().contains("albert") {
        normalizer = albert(normalizer, files)?;
    }
    let added = AddedTokens::new(added(&pieces, family, files, algorithm.vocabulary())?, &normalizer)?;
    let mut roles = files.roles(algorithm.vocabulary(), &added);
    let id = |token: &str| added.id(token).or_else(|| algorithm.vocabulary().id(token));
    roles.bos = roles.bos.or_else(|| id("<s>").or_else(|| id("<bos>")));
    roles.eos = roles.eos.or_else(|| id("</s>").or_else(|| id("<eos>")));
    if family == Family::Masks {
        // Its own model may have a piece of the same spelling among those that come after.
        (roles.pad, roles.eos) = (Some(0), Some(1));
    }
    roles.ends.extend(roles.eos);
    roles.unk = roles.unk.or(algorithm.unk());
    roles.pad = roles.pad.or_else(|| id("<pad>"));
    roles.mask = roles.mask.or_else(|| id("<mask>").or_else(|| id("[MASK]")));
    let token = |id: Option<u32>| -> Option<(&str, u32)> {
        Some((added.content(id?).or_else(|| algorithm.vocabulary().token(id?))?, id?))
    };
    let flag = |key: &str, default: bool| files.flag(key).unwrap_or(default);
    let post = match family {
        Family::Plain { add_bos } => {
            let before = token(roles.bos.filter(|_| flag("add_bos_token", add_bos)));
            let behind = token(roles.eos.filter(|_| flag("add_eos_token", false)));
            Post::around(before.as_slice(), behind.as_slice())?
        }
        Family::Placeholders | Family::Masks => Post::around(&[], token(roles.eos).as_slice())?,
        Family::Languages { in_front, usual } => {
            let own = files.config("src_lang").and_then(Value::as_str).unwrap_or(usual);
            let language = token(id(own)).ok_or_else(|| Fault::new("src_lang", format!("`{own}` has no token")))?;
            let end = token(roles.eos);
            match in_front {
                true => Post::around(&[language], end.as_slice())?,
                false => Post::around(&[], &end.into_iter().chain([language]).collect::<Vec<_>>())?,
            }
        }
        Family::Fairseq | Family::FairseqUnused => roberta(token(roles.bos), token(roles.eos), true)?,
        Family::Bracketed => {
            roles.cls = roles.cls.or_else(|| id("[CLS]"));
            roles.sep = roles.sep.or_else(|| id("[SEP]"));
            bert(token(roles.cls), token(roles.sep))?
        }
    };
    let kind = format!("SentencePiece ({})", algorithm.name());
    // Where extra spaces go when encoding, all that the first pieces bring go when decoding.
    let strip = if model.remove_extra_whitespaces { usize::MAX } else { usize::from(model.add_dummy_prefix) };
    let decoder = Decoder::sentencepiece(strip);
    let pre_tokenizer = PreTokenizer::none();
    Ok(Parts { model: algorithm, added, normalizer, pre_tokenizer, post, decoder, roles, kind })
}

/// `cls` text `sep`, and for pairs the second text with type 1 (BERT).
pub(super) fn bert(cls: Option<(&str, u32)>, sep: Option<(&str, u32)>) -> Result<Post, Fault> {
    let (cls, sep) = both(cls, sep)?;
    Post::parse(&json!({"type": "BertProcessing", "cls": [cls.0, cls.1], "sep": [sep.0, sep.1]}))
}

/// `cls` text `sep`, and for pairs a doubled `sep` between and one type (RoBERTa).
pub(super) fn roberta(
    cls: Option<(&str, u32)>,
    sep: Option<(&str, u32)>,
    add_prefix_space: bool,
) -> Result<Post, Fault> {
    let (cls, sep) = both(cls, sep)?;
    Post::parse(&json!({
        "type": "RobertaProcessing", "cls": [cls.0, cls.1], "sep": [sep.0, sep.1], "trim_offsets": true,
        "add_prefix_space": add_prefix_space,
    }))
}

type Named<'t> = (&'t str, u32);

fn both<'t>(cls: Option<Named<'t>>, sep: Option<Named<'t>>) -> Result<(Named<'t>, Named<'t>), Fault> {
    cls.zip(sep).ok_or_else(|| Fault::new("special tokens", "the tokens around a text are not in the vocabulary"))
}

/// The languages that have tokens, in the order of their ids.
fn languages(family: Family, files: &SideFiles) -> Result<Vec<String>, Fault> {
    let Family::Languages { in_front, usual } = family else { return Ok(Vec::new()) };
    let listed = files.languages();
    match (listed.is_empty(), usual) {
        (false, _) => Ok(listed),
        (true, "en_XX") => {
            let count = if in_front { LANGUAGES.len() } else { 25 };
            Ok(LANGUAGES.iter().take(count).map(|language| language.to_string()).collect())
        }
        (true, _) => Err(Fault::new("additional_special_tokens", "the languages and their order are not listed")),
    }
}

/// The pieces in the order of the family's ids.
fn numbered(model: &SpModel, family: Family, languages: &[String]) -> Vec<Piece> {
    let piece = |text: &str, kind: PieceKind| Piece { text: text.into(), score: 0.0, kind };
    let control = |text: &str| piece(text, PieceKind::Control);
    let mut pieces = match family {
        Family::Plain { .. } | Family::Placeholders | Family::Bracketed => return model.pieces.clone(),
        Family::Fairseq | Family::Languages { .. } => vec![control("<s>"), control("<pad>"), control("</s>")],
        Family::Masks => {
            let first = ["<pad>", "</s>", "<mask_1>", "<mask_2>"].map(control);
            let unused = (2..103).map(|index| control(&format!("<unk_{index}>")));
            let pieces = model.pieces.iter().skip(2).cloned();
            return first.into_iter().chain(unused).chain(pieces).collect();
        }
        Family::FairseqUnused => vec![control("<s>NOTUSED"), control("<pad>"), control("</s>NOTUSED")],
    };
    pieces.push(piece("<unk>", PieceKind::Unknown));
    let skipped = if family == Family::FairseqUnused {
        pieces.push(piece("<unk>NOTUSED", PieceKind::Unused));
        1
    } else {
        3
    };
    pieces.extend(model.pieces.iter().skip(skipped).cloned());
    pieces.extend(languages.iter().map(|language| control(language)));
    pieces.push(control("<mask>"));
    pieces
}

/// Control tokens and the tokens that the folder's other files add.
fn added(
    pieces: &[Piece],
    family: Family,
    files: &SideFiles,
    vocabulary: &Vocabulary,
) -> Result<Vec<AddedToken>, Fault> {
    let mut tokens = Vec::new();
    for (id, piece) in pieces.iter().enumerate() {
        if matches!(piece.kind, PieceKind::Control | PieceKind::Unknown) {
            let mask = &*piece.text == "<mask>";
            tokens.push(AddedToken { lstrip: mask, ..AddedToken::special(&*piece.text, id as u32) });
        }
    }
    if family == Family::Placeholders {
        let count = files.config("extra_ids").and_then(Value::as_u64).unwrap_or(100).min(10_000) as usize;
        tokens.extend((0..count).map(|index| {
            let id = pieces.len() + (count - 1 - index);
            AddedToken::special(format!("<extra_id_{index}>"), id as u32)
        }));
    }
    tokens.extend(files.added_tokens(vocabulary)?);
    Ok(tokens)
}

/// What this family does to a text before its model's own normaliser.
fn albert(own: Normalizer, files: &SideFiles) -> Result<Normalizer, Fault> {
    let replace = |from: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": "\""});
    let mut steps = vec![replace("``"), replace("''")];
    if files.flag("keep_accents") != Some(true) {
        steps.extend([json!({"type": "NFKD"}), json!({"type": "StripAccents"})]);
    }
    if files.flag("do_lower_case") != Some(false) {
        steps.push(json!({"type": "Lowercase"}));
    }
    let mut steps = steps.iter().map(Normalizer::parse).collect::<Result<Vec<_>, _>>()?;
    steps.push(own);
    Ok(Normalizer::Sequence(steps))
}
