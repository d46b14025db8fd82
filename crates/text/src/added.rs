//! Tokens beside the model's vocabulary: special tokens, and words that are never cut.
//!
//! They are found in the text before the model sees it: first those that match the raw text, then, in the
//! normalised rest, those marked `normalized`. The leftmost match wins, and of those the longest.

use crate::error::{Error, Fault, shorten};
use crate::guard::MARK;
use crate::normalize::Normalizer;
use crate::vocabulary::{MAX_TOKEN_BYTES, MAX_TOKENS};
use ahash::AHashMap;
use aho_corasick::{AhoCorasick, MatchKind};
use tokenizers::normalizer::Range;
use tokenizers::{NormalizedString, PreTokenizedString, Token};

/// Most tokens accepted beside the vocabulary.
const MAX_ADDED: usize = 1 << 18;

/// One added token with the flags of tokenizer.json.
#[derive(Debug, Clone, Default, serde::Deserialize)]
pub(crate) struct AddedToken {
    #[serde(default)]
    pub id: u32,
    pub content: String,
    /// Matches only between word boundaries.
    #[serde(default)]
    pub single_word: bool,
    /// Takes the white space on its left with it.
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    /// Matches in the normalised text.
    #[serde(default)]
    pub normalized: bool,
    /// A control token: left out when decoding, and not taken from text that is only data.
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    pub fn special(content: impl Into<String>, id: u32) -> AddedToken {
        AddedToken { id, content: content.into(), special: true, ..AddedToken::default() }
    }

    /// A word that is taken whole wherever it occurs.
    pub fn plain(content: impl Into<String>, id: u32) -> AddedToken {
        AddedToken { id, content: content.into(), ..AddedToken::default() }
    }
}

/// Which special tokens are taken from a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    All,
    /// None: the text is only data.
    Plain,
    /// Those without a mark behind them: the text is a rendered chat.
    Unmarked,
}

/// The tokens and the automata that find them.
#[derive(Debug, Default)]
pub(crate) struct AddedTokens {
    by_id: AHashMap<u32, Entry>,
    by_content: AHashMap<String, u32>,
    raw: Option<Finder>,
    normalized: Option<Finder>,
}

#[derive(Debug)]
struct Entry {
    token: AddedToken,
    /// How the token looks to the decoder: the normalised spelling of normalised tokens.
    spelling: String,
}

#[derive(Debug)]
struct Finder {
    automaton: AhoCorasick,
    /// The id of each pattern.
    ids: Vec<u32>,
}

impl Finder {
    fn new(patterns: Vec<(&str, u32)>) -> Result<Option<Finder>, Fault> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns.iter().map(|(pattern, _)| pattern))
            .map_err(|error| Fault::new("added_tokens", error))?;
        Ok(Some(Finder { automaton, ids: patterns.into_iter().map(|(_, id)| id).collect() }))
    }
}

impl AddedTokens {
    /// Later tokens of the same content or id replace earlier ones.
    pub fn new(tokens: Vec<AddedToken>, normalizer: &Normalizer) -> Result<AddedTokens, Fault> {
        let fault = |problem: String| Fault::new("added_tokens", problem);
        if tokens.len() > MAX_ADDED {
            return Err(fault(format!("{} tokens, the limit is {MAX_ADDED}", tokens.len())));
        }
        let mut added = AddedTokens::default();
        for token in tokens {
            if token.content.is_empty() {
                continue;
            }
            if token.content.len() > MAX_TOKEN_BYTES || token.id as usize >= MAX_TOKENS {
                return Err(fault(format!(
                    "`{}` (id {}) is too long or its id too large",
                    shorten(&token.content),
                    token.id
                )));
            }
            let mut spelling = token.content.clone();
            if token.normalized {
                let mut text = NormalizedString::from(token.content.as_str());
                normalizer.normalize(&mut text).map_err(|error| fault(error.to_string()))?;
                spelling = text.get().to_string();
            }
            added.by_content.insert(token.content.clone(), token.id);
            added.by_id.insert(token.id, Entry { token, spelling });
        }
        let mut ids: Vec<&u32> = added.by_id.keys().collect();
        ids.sort_unstable();
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for id in ids {
            let Entry { token, spelling } = &added.by_id[id];
            if !token.normalized {
                raw.push((token.content.as_str(), *id));
            } else if !spelling.is_empty() {
                normalized.push((spelling.as_str(), *id));
            }
        }
        let (raw, normalized) = (Finder::new(raw)?, Finder::new(normalized)?);
        added.raw = raw;
        added.normalized = normalized;
        Ok(added)
    }

    /// Sets what the decoder sees for each token.
    pub fn spell(&mut self, spelling: impl Fn(&str) -> String) {
        for entry in self.by_id.values_mut() {
            entry.spelling = spelling(&entry.token.content);
        }
    }

    pub fn id(&self, content: &str) -> Option<u32> {
        self.by_content.get(content).copied()
    }

    pub fn content(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(|entry| entry.token.content.as_str())
    }

    /// What the decoder sees for an id.
    pub fn spelling(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(|entry| entry.spelling.as_str())
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|entry| entry.token.special)
    }

    /// One more than the highest id, or 0.
    pub fn end(&self) -> usize {
        self.by_id.keys().max().map_or(0, |id| *id as usize + 1)
    }

    /// The spellings of all.
    pub fn contents(&self) -> impl Iterator<Item = (&str, u32)> {
        self.by_id.values().map(|entry| (entry.token.content.as_str(), entry.token.id))
    }

    /// All of them, by id.
    pub fn list(&self) -> impl Iterator<Item = &AddedToken> {
        let mut tokens: Vec<&AddedToken> = self.by_id.values().map(|entry| &entry.token).collect();
        tokens.sort_by_key(|token| token.id);
        tokens.into_iter()
    }

    /// The special tokens' spellings.
    pub fn specials(&self) -> impl Iterator<Item = (&str, u32)> {
        self.by_id
            .values()
            .filter(|entry| entry.token.special)
            .map(|entry| (entry.token.content.as_str(), entry.token.id))
    }

    /// Cuts the added tokens out of a text and normalises the rest. `take` says which special ones are left as text.
    pub fn extract(&self, text: &str, normalizer: &Normalizer, take: Take) -> Result<PreTokenizedString, Error> {
        let mut parts = PreTokenizedString::from(text);
        parts.split(|_, part| Ok(self.cut(part, self.raw.as_ref(), take)))?;
        parts.split(|_, mut part| {
            normalizer.normalize(&mut part)?;
            Ok(self.cut(part, self.normalized.as_ref(), take))
        })?;
        Ok(parts)
    }

    fn cut(
        &self,
        text: NormalizedString,
        finder: Option<&Finder>,
        take: Take,
    ) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
        let Some(finder) = finder else { return vec![(text, None)] };
        let found = self.find(text.get(), finder, take);
        if found.is_empty() {
            return vec![(text, None)];
        }
        let mut parts = Vec::with_capacity(2 * found.len() + 1);
        let mut from = 0;
        let mut push = |start: usize, end: usize, id: Option<u32>| {
            let Some(slice) = text.slice(Range::Normalized(start..end)) else { return };
            let tokens = id.map(|id| vec![Token::new(id, slice.get().to_string(), (0, end - start))]);
            parts.push((slice, tokens));
        };
        for (start, end, id) in found {
            if from < start {
                push(from, start, None);
            }
            push(start, end, Some(id));
            from = end;
        }
        if from < text.get().len() {
            push(from, text.get().len(), None);
        }
        parts
    }

    /// (start, end, id) of the tokens in a text, with the white space that they take.
    fn find(&self, text: &str, finder: &Finder, take: Take) -> Vec<(usize, usize, u32)> {
        let mut found = Vec::new();
        let mut from = 0;
        for matched in finder.automaton.find_iter(text) {
            let (mut start, mut end) = (matched.start(), matched.end());
            let Some(id) = finder.ids.get(matched.pattern().as_usize()) else { continue };
            let Some(Entry { token, .. }) = self.by_id.get(id) else { continue };
            let (before, after) = (&text[..start], &text[end..]);
            let taken = match take {
                Take::All => true,
                Take::Plain => !token.special,
                Take::Unmarked => !(token.special && after.starts_with(MARK)),
            };
            if !taken {
                continue;
            }
            if token.single_word && (before.ends_with(is_word) || after.starts_with(is_word)) {
                continue;
            }
            if token.lstrip {
                start = before.trim_end().len().max(from);
            }
            if token.rstrip {
                end += after.len() - after.trim_start().len();
            }
            // A token to the left may have taken the white space in which this one begins.
            if start < from {
                continue;
            }
            found.push((start, end, *id));
            from = end;
        }
        found
    }
}

/// `\w` of regular expressions.
fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric() || regex_syntax::is_word_character(c)
}
