//! The steps of a decoder. Each takes tokens and hands on tokens; behind a step that joins all tokens into one, what
//! arrives are fragments of that one token.

use super::bytes::byte_of;
use crate::pattern::Pattern;

/// One step.
#[derive(Debug)]
pub(crate) enum Step {
    Replace {
        pattern: Pattern,
        content: String,
    },
    /// `<0xNN>` is a byte.
    ByteFallback,
    /// All tokens become one.
    Fuse,
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    /// GPT-2's spelling of bytes; joins all tokens too.
    ByteLevel,
    /// A space before every token but the first, unless it has the prefix.
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    /// The replacement character is a space, and nothing in the first token when encoding prepends one.
    Metaspace {
        replacement: char,
        prepended: bool,
    },
    /// The suffix is a space, and nothing in the last token.
    Suffix {
        suffix: String,
    },
    /// Repeated tokens count once, padding not at all.
    Ctc {
        pad: String,
        delimiter: String,
        cleanup: bool,
    },
}

/// What a step remembers between tokens.
#[derive(Debug, Default, Clone)]
pub(super) struct State {
    /// How many tokens have come.
    count: usize,
    /// Bytes not handed on yet, or the token before.
    held: Vec<u8>,
    /// `Strip` on fragments: how many of the first characters were looked at, and whether looking is over.
    stripped: usize,
    started: bool,
}

/// Longest text held back by a replacement that waits for the rest of its pattern.
const MAX_HELD: usize = 1 << 16;

impl Step {
    /// Whether what leaves this step are fragments of one token.
    pub fn joins(&self) -> bool {
        matches!(self, Step::Fuse | Step::ByteLevel)
    }

    /// Feeds one token, or one fragment when `joined`, and hands results to `out`.
    pub(super) fn push(&self, state: &mut State, token: Vec<u8>, joined: bool, out: &mut dyn FnMut(Vec<u8>)) {
        let first = state.count == 0 || joined;
        state.count += 1;
        match self {
            Step::Fuse => out(token),
            Step::Replace { pattern, content } if joined => replace_fragment(state, pattern, content, &token, out),
            Step::Replace { pattern, content } => out(rewrite(token, |text| {
                // A pattern that gives up leaves the token as it is.
                pattern.replace(&text, content).unwrap_or(text)
            })),
            Step::ByteFallback => out(fallback_byte(&token).map_or(token, |byte| vec![byte])),
            Step::Strip { content, start, stop } if joined => {
                let token = strip_start(state, *content, *start, token);
                hold_end(state, *content, *stop, token, out);
            }
            Step::Strip { content, start, stop } => {
                let mut own = State::default();
                let token = strip_start(&mut own, *content, *start, token);
                out(strip_end(*content, *stop, token));
            }
            Step::ByteLevel => out(spelled_bytes(token)),
            Step::WordPiece { prefix, cleanup } => out(rewrite(token, |text| {
                let text = match text.strip_prefix(prefix.as_str()) {
                    _ if first => text,
                    Some(rest) => rest.to_string(),
                    None => format!(" {text}"),
                };
                if *cleanup { clean_up(&text) } else { text }
            })),
            Step::Metaspace { replacement, prepended } => out(rewrite(token, |text| {
                let space = if first && *prepended { "" } else { " " };
                text.replace(*replacement, space)
            })),
            Step::Suffix { suffix } => {
                let before = std::mem::replace(&mut state.held, token);
                if state.count > 1 {
                    out(rewrite(before, |text| text.replace(suffix.as_str(), " ")));
                }
            }
            Step::Ctc { pad, delimiter, cleanup } => {
                let repeated = state.count > 1 && state.held == token;
                state.held.clone_from(&token);
                if !repeated && token != pad.as_bytes() {
                    out(rewrite(
                        token,
                        |text| {
                            if *cleanup { clean_up(&text).replace(delimiter.as_str(), " ") } else { text }
                        },
                    ));
                }
            }
        }
    }

    /// The end of the sequence.
    pub(super) fn finish(&self, state: &mut State, joined: bool, out: &mut dyn FnMut(Vec<u8>)) {
        let held = std::mem::take(&mut state.held);
        match self {
            Step::Replace { pattern, content } if joined && !held.is_empty() => {
                out(rewrite(held, |text| pattern.replace(&text, content).unwrap_or(text)));
            }
            Step::Strip { content, stop, .. } if joined => out(strip_end(*content, *stop, held)),
            Step::Suffix { suffix } if state.count > 0 => {
                out(rewrite(held, |text| text.replace(suffix.as_str(), "")));
            }
            Step::Replace { .. }
            | Step::ByteFallback
            | Step::Fuse
            | Step::Strip { .. }
            | Step::ByteLevel
            | Step::WordPiece { .. }
            | Step::Metaspace { .. }
            | Step::Suffix { .. }
            | Step::Ctc { .. } => {}
        }
    }
}

/// Applies a change to a token that is text; bytes that are no text pass unchanged.
fn rewrite(token: Vec<u8>, change: impl FnOnce(String) -> String) -> Vec<u8> {
    match String::from_utf8(token) {
        Ok(text) => change(text).into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// The byte of a token `<0xNN>`.
pub(crate) fn fallback_byte(token: &[u8]) -> Option<u8> {
    let digits = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if digits.len() != 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The bytes that a token spells; a token with a character that spells none stands for itself.
pub(crate) fn spelled_bytes(token: Vec<u8>) -> Vec<u8> {
    let spelled =
        std::str::from_utf8(&token).ok().and_then(|text| text.chars().map(byte_of).collect::<Option<Vec<u8>>>());
    spelled.unwrap_or(token)
}

/// The English clean-up of WordPiece decoders: no space before punctuation and contractions.
fn clean_up(text: &str) -> String {
    const PAIRS: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    let mut text = text.to_string();
    for (from, to) in PAIRS {
        if text.contains(from) {
            text = text.replace(from, to);
        }
    }
    text
}

/// Drops up to `limit` characters `content` from the start of a token that may come in fragments.
fn strip_start(state: &mut State, content: char, limit: usize, token: Vec<u8>) -> Vec<u8> {
    if state.started {
        return token;
    }
    let mut buffer = [0; 4];
    let pattern = content.encode_utf8(&mut buffer).as_bytes();
    let mut rest = token.as_slice();
    while state.stripped < limit
        && let Some(behind) = rest.strip_prefix(pattern)
    {
        rest = behind;
        state.stripped += 1;
    }
    state.started = state.stripped >= limit || !rest.is_empty();
    rest.to_vec()
}

/// Drops up to `limit` characters `content` from the end.
fn strip_end(content: char, limit: usize, mut token: Vec<u8>) -> Vec<u8> {
    let mut buffer = [0; 4];
    let pattern = content.encode_utf8(&mut buffer).as_bytes();
    for _ in 0..limit {
        if !token.ends_with(pattern) {
            break;
        }
        token.truncate(token.len() - pattern.len());
    }
    token
}

/// Hands on all but the last `limit` characters `content`, which may turn out to be the end.
fn hold_end(state: &mut State, content: char, limit: usize, token: Vec<u8>, out: &mut dyn FnMut(Vec<u8>)) {
    if limit == 0 {
        return out(token);
    }
    state.held.extend_from_slice(&token);
    let kept = strip_end(content, limit, state.held.clone()).len();
    let rest = state.held.split_off(kept);
    out(std::mem::replace(&mut state.held, rest));
}

/// Replaces in a token that comes in fragments: what may be the start of the pattern waits for the next fragment.
fn replace_fragment(state: &mut State, pattern: &Pattern, content: &str, token: &[u8], out: &mut dyn FnMut(Vec<u8>)) {
    state.held.extend_from_slice(token);
    let Pattern::Literal(literal) = pattern else {
        // A regular expression may match across any number of fragments: wait for the end, within bounds.
        if state.held.len() > MAX_HELD {
            let held = std::mem::take(&mut state.held);
            out(rewrite(held, |text| pattern.replace(&text, content).unwrap_or(text)));
        }
        return;
    };
    let literal = literal.as_bytes();
    if literal.is_empty() {
        return out(std::mem::take(&mut state.held));
    }
    let mut done = Vec::with_capacity(state.held.len());
    let mut rest = state.held.as_slice();
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(literal) {
            done.extend_from_slice(content.as_bytes());
            rest = behind;
        } else if literal.starts_with(rest) {
            break;
        } else {
            done.push(rest[0]);
            rest = &rest[1..];
        }
    }
    state.held = rest.to_vec();
    out(done);
}

impl Step {
    /// The bytes that a token adds in the middle of a text: what the chain gives for it behind another token.
    pub fn middle(steps: &[Step], token: &str) -> Vec<u8> {
        if steps.is_empty() {
            return token.as_bytes().to_vec();
        }
        let mut bytes = token.as_bytes().to_vec();
        let mut joined = false;
        for step in steps {
            // A strip step on joined text works on the two ends only.
            if !(joined && matches!(step, Step::Strip { .. })) {
                let mut state = State { count: 1, started: true, ..State::default() };
                let mut result = Vec::new();
                let mut keep = |token: Vec<u8>| result.extend_from_slice(&token);
                // A held-back token comes out on finishing; the joined form of these steps looks at ends or waits.
                step.push(&mut state, bytes, false, &mut keep);
                if let Step::Suffix { suffix } = step {
                    result = rewrite(std::mem::take(&mut state.held), |text| text.replace(suffix.as_str(), " "));
                }
                bytes = result;
            }
            joined |= step.joins();
        }
        bytes
    }
}
