//! The languages of a translation model: the tokens that name them, and which one a person means.

use crate::encoding::{Encoding, Origin};
use crate::error::Error;
use crate::tokenizer::Tokenizer;

/// A language that a model has a token for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    pub id: u32,
    /// As people write it: `fr_XX`, `fra_Latn`, `fr`.
    pub code: String,
    pub place: LanguagePlace,
}

/// Where a language's token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LanguagePlace {
    /// In front of the source, for the language to translate into (`>>fra<<`).
    Source,
    /// In the source for its own language, and as the first token of the translation for that one's (`fr_XX`,
    /// `fra_Latn`, `__fr__`).
    Both,
}

/// Languages by English name, in two and in three letters (ISO 639-1, 639-3), for those that models spell otherwise.
const NAMES: &[(&str, &str, &str)] = &[
    ("afrikaans", "af", "afr"),
    ("amharic", "am", "amh"),
    ("arabic", "ar", "arb"),
    ("azerbaijani", "az", "azj"),
    ("belarusian", "be", "bel"),
    ("bulgarian", "bg", "bul"),
    ("bengali", "bn", "ben"),
    ("bosnian", "bs", "bos"),
    ("catalan", "ca", "cat"),
    ("chinese", "zh", "zho"),
    ("croatian", "hr", "hrv"),
    ("czech", "cs", "ces"),
    ("danish", "da", "dan"),
    ("dutch", "nl", "nld"),
    ("english", "en", "eng"),
    ("estonian", "et", "est"),
    ("finnish", "fi", "fin"),
    ("french", "fr", "fra"),
    ("galician", "gl", "glg"),
    ("georgian", "ka", "kat"),
    ("german", "de", "deu"),
    ("greek", "el", "ell"),
    ("gujarati", "gu", "guj"),
    ("hebrew", "he", "heb"),
    ("hindi", "hi", "hin"),
    ("hungarian", "hu", "hun"),
    ("icelandic", "is", "isl"),
    ("indonesian", "id", "ind"),
    ("irish", "ga", "gle"),
    ("italian", "it", "ita"),
    ("japanese", "ja", "jpn"),
    ("kazakh", "kk", "kaz"),
    ("khmer", "km", "khm"),
    ("korean", "ko", "kor"),
    ("lao", "lo", "lao"),
    ("latvian", "lv", "lvs"),
    ("lithuanian", "lt", "lit"),
    ("macedonian", "mk", "mkd"),
    ("malay", "ms", "zsm"),
    ("malayalam", "ml", "mal"),
    ("marathi", "mr", "mar"),
    ("mongolian", "mn", "khk"),
    ("nepali", "ne", "npi"),
    ("norwegian", "no", "nob"),
    ("pashto", "ps", "pbt"),
    ("persian", "fa", "pes"),
    ("polish", "pl", "pol"),
    ("portuguese", "pt", "por"),
    ("punjabi", "pa", "pan"),
    ("romanian", "ro", "ron"),
    ("russian", "ru", "rus"),
    ("serbian", "sr", "srp"),
    ("sinhala", "si", "sin"),
    ("slovak", "sk", "slk"),
    ("slovenian", "sl", "slv"),
    ("somali", "so", "som"),
    ("spanish", "es", "spa"),
    ("swahili", "sw", "swh"),
    ("swedish", "sv", "swe"),
    ("tagalog", "tl", "tgl"),
    ("tamil", "ta", "tam"),
    ("telugu", "te", "tel"),
    ("thai", "th", "tha"),
    ("turkish", "tr", "tur"),
    ("ukrainian", "uk", "ukr"),
    ("urdu", "ur", "urd"),
    ("uzbek", "uz", "uzn"),
    ("vietnamese", "vi", "vie"),
    ("welsh", "cy", "cym"),
    ("xhosa", "xh", "xho"),
    ("yoruba", "yo", "yor"),
    ("zulu", "zu", "zul"),
];

/// The English name of a language, from its name or any of its codes (`de`, `deu`, `de_DE`): `German`.
pub fn language_name(wanted: &str) -> Option<String> {
    let (name, ..) = entry(base(&plain(wanted)))?;
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect())
}

/// The two-letter code of a language, from its name or any of its codes.
pub fn language_code(wanted: &str) -> Option<&'static str> {
    entry(base(&plain(wanted))).map(|(_, two, _)| *two)
}

fn entry(word: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    NAMES.iter().find(|(name, two, three)| [name, two, three].contains(&&word))
}

fn plain(word: &str) -> String {
    word.trim().to_lowercase().replace('-', "_")
}

fn base(word: &str) -> &str {
    word.split('_').next().unwrap_or(word)
}

/// The language that a token names, by its spelling.
fn read(token: &str) -> Option<(&str, LanguagePlace)> {
    let marked =
        |open: &str, close: &str| token.strip_prefix(open)?.strip_suffix(close).filter(|code| !code.is_empty());
    if let Some(code) = marked(">>", "<<") {
        return Some((code, LanguagePlace::Source));
    }
    let letters =
        |part: &str, lengths: &[usize]| lengths.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_lowercase());
    if let Some(code) = marked("__", "__").filter(|code| letters(code, &[2, 3])) {
        return Some((code, LanguagePlace::Both));
    }
    let (language, rest) = token.split_once('_')?;
    let script = rest.len() == 4 && rest.starts_with(|c: char| c.is_ascii_uppercase()) && letters(&rest[1..], &[3]);
    let country = rest.len() == 2 && rest.bytes().all(|b| b.is_ascii_uppercase());
    let known = (letters(language, &[3]) && script) || (letters(language, &[2]) && country);
    known.then_some((token, LanguagePlace::Both))
}

/// Whether a token is spelled as those that name languages.
pub(crate) fn names_a_language(token: &str) -> bool {
    read(token).is_some()
}

impl Tokenizer {
    /// The languages that the tokenizer has tokens for, by id; none where the model is not one of many languages.
    pub fn languages(&self) -> Vec<Language> {
        let mut found: Vec<Language> = self
            .added()
            .filter_map(|(token, id)| {
                let (code, place) = read(token)?;
                Some(Language { id, code: code.to_owned(), place })
            })
            .collect();
        found.sort_by_key(|language| language.id);
        found
    }

    /// The language that `wanted` means: a code as the model spells it, the same in other letters, or the language's name
    /// or ISO code where the model has only one that fits.
    ///
    /// # Errors
    /// [`Error::Language`] for a language that the model does not know, or knows in several forms.
    pub fn language(&self, wanted: &str) -> Result<Language, Error> {
        let languages = self.languages();
        let word = plain(wanted);
        let same = |language: &&Language| self.token(language.id).as_deref() == Some(wanted) || language.code == wanted;
        if let Some(exact) = languages.iter().find(same) {
            return Ok(exact.clone());
        }
        let spelled = |language: &&Language| plain(&language.code) == word;
        if let Some(spelled) = languages.iter().find(spelled) {
            return Ok(spelled.clone());
        }
        let words: Vec<&str> = match entry(&word) {
            Some((name, two, three)) => vec![name, two, three],
            None => vec![&word],
        };
        let fits = |language: &&Language| words.contains(&base(&plain(&language.code)));
        let candidates: Vec<&Language> = languages.iter().filter(fits).collect();
        match candidates[..] {
            [one] => Ok(one.clone()),
            [] => Err(Error::Language { wanted: wanted.into(), problem: known(&languages) }),
            [..] => {
                let codes: Vec<&str> = candidates.iter().map(|language| language.code.as_str()).collect();
                Err(Error::Language { wanted: wanted.into(), problem: format!("could be {}", codes.join(" or ")) })
            }
        }
    }

    /// The language that the tokenizer puts around a text, where it does.
    pub fn own_language(&self, encoding: &Encoding) -> Option<Language> {
        let languages = self.languages();
        language_at(&languages, encoding).and_then(|at| languages.into_iter().find(|l| l.id == encoding.ids[at]))
    }
}

impl Encoding {
    /// Says that the text is in another language than the one the tokenizer put around it. `false`: there is none.
    pub fn set_language(&mut self, tokenizer: &Tokenizer, language: &Language) -> bool {
        let Some(at) = language_at(&tokenizer.languages(), self) else { return false };
        if let (Some(id), Some(piece)) = (self.ids.get_mut(at), self.pieces.get_mut(at)) {
            *id = language.id;
            *piece = tokenizer.token(language.id).unwrap_or_default();
        }
        true
    }
}

/// Where the post-processor put a language's token.
fn language_at(languages: &[Language], encoding: &Encoding) -> Option<usize> {
    let added =
        |(at, special): (usize, &Option<Origin>)| matches!(special, Some(Origin::PostProcessor(_))).then_some(at);
    let mut places = encoding.special.iter().enumerate().filter_map(added);
    places.find(|at| encoding.ids.get(*at).is_some_and(|id| languages.iter().any(|language| language.id == *id)))
}

fn known(languages: &[Language]) -> String {
    const SHOWN: usize = 30;
    if languages.is_empty() {
        return "is not one that this model can be told: it has no language tokens".into();
    }
    let codes: Vec<&str> = languages.iter().take(SHOWN).map(|language| language.code.as_str()).collect();
    let more = if languages.len() > SHOWN { format!(" and {} more", languages.len() - SHOWN) } else { String::new() };
    format!("is not one that this model knows: {}{more}", codes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_languages_by_their_spelling() {
        for (token, code, place) in [
            (">>fra<<", "fra", LanguagePlace::Source),
            (">>cmn_Hans<<", "cmn_Hans", LanguagePlace::Source),
            ("__fr__", "fr", LanguagePlace::Both),
            ("__ast__", "ast", LanguagePlace::Both),
            ("fr_XX", "fr_XX", LanguagePlace::Both),
            ("fra_Latn", "fra_Latn", LanguagePlace::Both),
        ] {
            assert_eq!(read(token), Some((code, place)), "{token}");
        }
        for token in
            ["<s>", ">><<", "____", "__init__", "a_B", "fr_xx", "fra_latn", "FR_XX", "fra_LATN", "mask_XX", "é_XX"]
        {
            assert_eq!(read(token), None, "{token}");
        }
    }

    #[test]
    fn languages_have_names_and_codes() {
        for word in ["German", "de", "deu", "de_DE", "DE-at"] {
            assert_eq!(language_name(word).as_deref(), Some("German"), "{word}");
            assert_eq!(language_code(word), Some("de"), "{word}");
        }
        assert_eq!(language_name("Klingon"), None);
    }
}
