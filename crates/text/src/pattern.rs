//! Regular expressions of tokenizer files.
//!
//! Nearly all of them are regular in the strict sense except for one idiom, `…|\s+(?!\S)|\s+`: a run of white space
//! gives its last character to the word that follows. That idiom needs no look-ahead: match the whole run, and give
//! the last character back when something follows. So they run on an automaton in linear time. What is left (other
//! look-around, back references, possessive quantifiers) goes to a backtracking matcher whose steps are counted.

use crate::error::{Error, Fault, shorten};
use regex_automata::{Input, meta, util::syntax};
use tokenizers::tokenizer::pattern::Pattern as Splitter;

/// Steps of backtracking allowed for one match.
const BACKTRACK_LIMIT: usize = 200_000;
/// Bytes of automaton allowed for one pattern.
const SIZE_LIMIT: usize = 32 << 20;
/// Longest pattern accepted, in bytes.
const LENGTH_LIMIT: usize = 64 << 10;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// A fixed text.
    Literal(String),
    /// A pattern without look-around.
    Linear(Box<meta::Regex>),
    /// `P|\s+(?!\S)|\s+` as the two alternatives `P` and `\s+`.
    Words(Box<meta::Regex>),
    /// Everything else.
    Backtracking(Box<fancy_regex::Regex>),
}

impl Pattern {
    pub fn literal(text: &str) -> Pattern {
        Pattern::Literal(text.to_string())
    }

    pub fn regex(source: &str) -> Result<Pattern, Fault> {
        if source.len() > LENGTH_LIMIT {
            return Err(Fault::new("pattern", format!("{} bytes, the limit is {LENGTH_LIMIT}", source.len())));
        }
        if !possessive(source) {
            if let Some(regex) = linear(&[source]) {
                return Ok(Pattern::Linear(regex));
            }
            if let Some(words) = source.strip_suffix(r"|\s+(?!\S)|\s+")
                && let Some(regex) = linear(&[words, r"\s+"])
            {
                return Ok(Pattern::Words(regex));
            }
        }
        let built = fancy_regex::RegexBuilder::new(source)
            .backtrack_limit(BACKTRACK_LIMIT)
            .delegate_size_limit(SIZE_LIMIT)
            .delegate_dfa_size_limit(SIZE_LIMIT)
            .build();
        match built {
            Ok(regex) => Ok(Pattern::Backtracking(Box::new(regex))),
            Err(error) => Err(Fault::new("pattern", format!("`{}`: {error}", shorten(source)))),
        }
    }

    /// `true` for patterns that run in linear time.
    #[cfg(test)]
    pub fn is_linear(&self) -> bool {
        !matches!(self, Pattern::Backtracking(_))
    }

    /// Byte ranges of the matches, left to right.
    pub fn find(&self, text: &str) -> Result<Vec<(usize, usize)>, Error> {
        match self {
            Pattern::Literal(literal) if literal.is_empty() => Ok(Vec::new()),
            Pattern::Literal(literal) => {
                Ok(text.match_indices(literal.as_str()).map(|(at, found)| (at, at + found.len())).collect())
            }
            Pattern::Linear(regex) => Ok(regex.find_iter(text).map(|found| (found.start(), found.end())).collect()),
            Pattern::Words(regex) => Ok(find_words(regex, text)),
            Pattern::Backtracking(regex) => {
                let mut ranges = Vec::new();
                for found in regex.find_iter(text) {
                    let found = found.map_err(|error| Error::Pattern {
                        pattern: shorten(regex.as_str()),
                        problem: error.to_string(),
                    })?;
                    ranges.push((found.start(), found.end()));
                }
                Ok(ranges)
            }
        }
    }

    /// The text with every match replaced by `content`.
    pub fn replace(&self, text: &str, content: &str) -> Result<String, Error> {
        let mut result = String::with_capacity(text.len());
        let mut from = 0;
        for (start, end) in self.find(text)? {
            result.push_str(text.get(from..start).unwrap_or_default());
            result.push_str(content);
            from = end;
        }
        result.push_str(text.get(from..).unwrap_or_default());
        Ok(result)
    }
}

fn linear(alternatives: &[&str]) -> Option<Box<meta::Regex>> {
    let config = meta::Config::new().nfa_size_limit(Some(SIZE_LIMIT)).hybrid_cache_capacity(4 << 20);
    let syntax = syntax::Config::new().nest_limit(100);
    meta::Builder::new().configure(config).syntax(syntax).build_many(alternatives).ok().map(Box::new)
}

fn find_words(regex: &meta::Regex, text: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let Some(found) = regex.find(Input::new(text).span(at..text.len())) else { break };
        let (start, mut end) = (found.start(), found.end());
        if found.pattern().as_usize() == 1 && end < text.len() {
            // The run is followed by something else: its last character belongs to that.
            let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
            if end - last > start {
                end -= last;
            }
        }
        ranges.push((start, end));
        at = if end > at {
            end
        } else {
            // An empty match: go on behind the next character.
            end + text[end..].chars().next().map_or(1, char::len_utf8)
        };
    }
    ranges
}

/// Whether the pattern has a possessive quantifier (`?+`, `*+`, `++`), which the automaton would read as a repetition.
fn possessive(source: &str) -> bool {
    let mut previous = ' ';
    let mut in_class = 0usize;
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                // The braces of `\p{L}` are no repetition.
                let named = matches!(chars.next(), Some('p' | 'P' | 'x' | 'u')) && chars.as_str().starts_with('{');
                if named {
                    chars.find(|c| *c == '}');
                }
                previous = ' ';
                continue;
            }
            '[' => in_class += 1,
            ']' => in_class = in_class.saturating_sub(1),
            '+' if in_class == 0 && matches!(previous, '?' | '*' | '+' | '}') => return true,
            _ => {}
        }
        previous = c;
    }
    false
}

impl Splitter for &Pattern {
    fn find_matches(&self, inside: &str) -> tokenizers::Result<Vec<((usize, usize), bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let mut parts = Vec::new();
        let mut from = 0;
        for (start, end) in self.find(inside)? {
            if from != start {
                parts.push(((from, start), false));
            }
            parts.push(((start, end), true));
            from = end;
        }
        if from != inside.len() {
            parts.push(((from, inside.len()), false));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    #[test]
    fn the_white_space_idiom_equals_the_backtracking_matcher() {
        let ours = Pattern::regex(GPT2).unwrap();
        assert!(ours.is_linear());
        let twin = Pattern::Backtracking(Box::new(fancy_regex::Regex::new(GPT2).unwrap()));
        for text in
            ["", " ", "  ", "a  b", "\n\n x", "x \t\n", "  'll  12 \u{3000}\u{a0}é!", "a\n\n\nb", " \n\u{2003}z  "]
        {
            assert_eq!(ours.find(text).unwrap(), twin.find(text).unwrap(), "{text:?}");
        }
        // A million spaces overflow the stack of the backtracking matcher.
        assert_eq!(
            ours.find(&(" ".repeat(1 << 20) + "x")).unwrap(),
            [(0, (1 << 20) - 1), ((1 << 20) - 1, (1 << 20) + 1)]
        );
    }

    #[test]
    fn hostile_patterns_are_bounded() {
        let regular = Pattern::regex("(a+)+$").unwrap();
        assert!(regular.is_linear());
        assert!(regular.find(&("a".repeat(30) + "b")).unwrap().is_empty());
        let backtracking = Pattern::regex(r"(?:(a+)+\1?)+$(?!x)").unwrap();
        let error = backtracking.find(&("a".repeat(200) + "b")).unwrap_err();
        assert!(matches!(error, Error::Pattern { .. }), "{error}");
        assert!(Pattern::regex(&"(".repeat(3000)).is_err());
        assert!(Pattern::regex(r"(?:\p{L}{1000}){1000}").is_err());
        assert!(!Pattern::regex(r"\p{L}++").unwrap().is_linear());
    }
}
