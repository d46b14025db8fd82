//! JSON that comes piece by piece: where an object or a list ends, and that it cannot become one any more.

/// Lists and objects inside one another; as deep as they are parsed.
const MAX_DEPTH: usize = 120;

/// What a byte has made of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    More,
    /// The byte is the value's last one.
    End,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Value,
    /// Behind `[`: a value or its end.
    FirstItem,
    /// Behind `{`: a key or its end.
    FirstKey,
    Key,
    Colon,
    /// Behind a value: a comma or an end.
    Next,
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Number,
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// Follows one object or list, byte by byte.
#[derive(Debug, Clone)]
pub(super) struct JsonScan {
    /// What is open; true: an object.
    open: Vec<bool>,
    at: At,
}

impl JsonScan {
    pub fn new() -> JsonScan {
        JsonScan { open: Vec::new(), at: At::Value }
    }

    pub fn push(&mut self, byte: u8) -> Seen {
        match self.at {
            At::Text { key } => self.text(byte, key),
            At::Escape { key } => match byte {
                b'u' => self.go(At::Hex { key, left: 4 }),
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.go(At::Text { key }),
                _ => Seen::Broken,
            },
            At::Hex { key, left } if byte.is_ascii_hexdigit() => {
                self.go(if left > 1 { At::Hex { key, left: left - 1 } } else { At::Text { key } })
            }
            At::Hex { .. } => Seen::Broken,
            At::Word([first, rest @ ..]) if *first == byte => {
                self.go(if rest.is_empty() { At::Next } else { At::Word(rest) })
            }
            At::Word(_) => Seen::Broken,
            At::Number if matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => Seen::More,
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => match self.at {
                At::Number => self.go(At::Next),
                _ => Seen::More,
            },
            At::Number | At::Next => self.next(byte),
            At::Value | At::FirstItem | At::FirstKey | At::Key | At::Colon => self.begin(byte),
        }
    }

    fn go(&mut self, at: At) -> Seen {
        self.at = at;
        Seen::More
    }

    fn text(&mut self, byte: u8, key: bool) -> Seen {
        match byte {
            b'"' => self.go(if key { At::Colon } else { At::Next }),
            b'\\' => self.go(At::Escape { key }),
            0..0x20 => Seen::Broken,
            _ => Seen::More,
        }
    }

    /// What may stand behind a value.
    fn next(&mut self, byte: u8) -> Seen {
        match (byte, self.open.last()) {
            (b',', Some(true)) => self.go(At::Key),
            (b',', Some(false)) => self.go(At::Value),
            (b'}', Some(true)) | (b']', Some(false)) => self.close(),
            _ => Seen::Broken,
        }
    }

    fn close(&mut self) -> Seen {
        self.open.pop();
        self.at = At::Next;
        if self.open.is_empty() { Seen::End } else { Seen::More }
    }

    /// What may begin.
    fn begin(&mut self, byte: u8) -> Seen {
        let value = matches!(self.at, At::Value | At::FirstItem);
        match (self.at, byte) {
            (At::Colon, b':') => self.go(At::Value),
            (At::FirstItem, b']') | (At::FirstKey, b'}') => self.close(),
            (At::FirstKey | At::Key, b'"') => self.go(At::Text { key: true }),
            (_, b'{' | b'[') if value && self.open.len() < MAX_DEPTH => {
                self.open.push(byte == b'{');
                self.go(if byte == b'{' { At::FirstKey } else { At::FirstItem })
            }
            // Outermost stands an object or a list.
            _ if self.open.is_empty() || !value => Seen::Broken,
            (_, b'"') => self.go(At::Text { key: false }),
            (_, b'-' | b'0'..=b'9') => self.go(At::Number),
            (_, b't') => self.go(At::Word(b"rue")),
            (_, b'f') => self.go(At::Word(b"alse")),
            (_, b'n') => self.go(At::Word(b"ull")),
            _ => Seen::Broken,
        }
    }
}

/// The items of a list or the members of an object, as they are written. The text must be whole and valid.
pub(super) fn items(text: &str) -> Vec<&str> {
    let text = text.trim();
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or_default();
    let mut found = Vec::new();
    let (mut from, mut depth, mut quoted, mut escaped) = (0, 0usize, false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(inner.get(from..at).unwrap_or_default().trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    let rest = inner.get(from..).unwrap_or_default().trim();
    found.extend((!rest.is_empty()).then_some(rest));
    found
}

/// The value of a member of an object, as it is written; the last one where a name stands twice.
pub(super) fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    items(text).into_iter().rev().find_map(|item| {
        let mut escaped = false;
        let end = item.bytes().enumerate().skip(1).find(|(_, byte)| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        })?;
        let (key, value) = item.split_at_checked(end.0 + 1)?;
        let key: String = serde_json::from_str(key).ok()?;
        (key == name).then(|| value.trim_start().strip_prefix(':').map(str::trim_start))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of the value that a text begins with.
    fn length(text: &str) -> Result<usize, Seen> {
        let mut scan = JsonScan::new();
        for (at, byte) in text.bytes().enumerate() {
            match scan.push(byte) {
                Seen::More => {}
                Seen::End => return Ok(at + 1),
                Seen::Broken => return Err(Seen::Broken),
            }
        }
        Err(Seen::More)
    }

    #[test]
    fn ends_are_found_where_a_parser_finds_them() {
        let whole = [
            r#"{}"#,
            r#"[]"#,
            r#"{ "a" : [ 1 , -2.5e+3 , true , false , null , {} ] }"#,
            r#"{"a": "}\"]\\", "b": "\u00e9\n", "": [[[]]]}"#,
            r#"[{"a": 1}, {"b": [2]}, "é"]"#,
        ];
        for text in whole {
            assert_eq!(length(&format!("{text} rest")), Ok(text.len()), "{text}");
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok());
            for cut in 0..text.len() {
                if text.is_char_boundary(cut) {
                    assert_eq!(length(&text[..cut]), Err(Seen::More), "{text} {cut}");
                }
            }
        }
        for text in [
            "x",
            "1",
            "\"a\"",
            "{a",
            "{\"a\" 1",
            "{\"a\":}",
            "[1 2",
            "[,",
            "{,",
            "[1}",
            "{\"a\":1]",
            "[\"\n",
            "[\"\\x",
            "[tru3",
            "[\"\\u12g",
        ] {
            assert_eq!(length(text), Err(Seen::Broken), "{text}");
        }
        assert_eq!(length(&"[".repeat(10_000)), Err(Seen::Broken));
    }

    #[test]
    fn members_are_given_as_they_are_written() {
        let text =
            r#"{"name": "f", "a\"b": 1, "arguments": { "id": 12345678901234567890123, "s": "},{" } , "name2":"x"}"#;
        assert_eq!(member(text, "name"), Some("\"f\""));
        assert_eq!(member(text, "a\"b"), Some("1"));
        assert_eq!(member(text, "arguments"), Some(r#"{ "id": 12345678901234567890123, "s": "},{" }"#));
        assert_eq!(member(text, "none"), None);
        assert_eq!(items("[ 1, [2, 3], \"a,b\" ]"), ["1", "[2, 3]", "\"a,b\""]);
        assert!(items("[ ]").is_empty() && items("{}").is_empty());
    }
}
