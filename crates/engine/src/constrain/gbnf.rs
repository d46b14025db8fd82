//! GBNF, the grammars of llama.cpp, in Lark's notation.
//!
//! GBNF is about characters: every literal and class is read a character at a time, wherever rules meet. Lark's rules are about
//! lexemes of which the longest counts. So every character becomes a lexeme of its own, and both describe the same texts.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The most repetitions that a number may ask for.
const MAX_REPEATS: u32 = 4096;

/// # Errors
/// What is wrong, and where.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let mut reader = Reader { text, rest: text, names: BTreeMap::new(), defined: Vec::new(), lark: String::new() };
    reader.space(true);
    while !reader.rest.is_empty() {
        reader.rule()?;
        reader.space(true);
    }
    let undefined = reader.names.iter().find(|(_, number)| !reader.defined.contains(number));
    if let Some((name, _)) = undefined {
        return Err(format!("the rule {name:?} is used but not defined"));
    }
    let Some(root) = reader.names.get("root") else { return Err("it has no rule \"root\"".into()) };
    Ok(format!("start: r{root}\n{}", reader.lark))
}

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    /// The number that stands for each name.
    names: BTreeMap<&'t str, usize>,
    defined: Vec<usize>,
    lark: String,
}

impl<'t> Reader<'t> {
    fn fault<T>(&self, what: impl std::fmt::Display) -> Result<T, String> {
        let read = &self.text[..self.text.len() - self.rest.len()];
        Err(format!("line {}: {what}", read.matches('\n').count() + 1))
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, token: &str) -> bool {
        let behind = self.rest.strip_prefix(token);
        self.rest = behind.unwrap_or(self.rest);
        behind.is_some()
    }

    /// Passes over blanks and comments; over the ends of lines where a rule may go on behind them.
    fn space(&mut self, lines: bool) {
        loop {
            let blank = |c: char| c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'));
            self.rest = self.rest.trim_start_matches(blank);
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.find(['\n', '\r']).map_or("", |end| &self.rest[end..]);
        }
    }

    fn name(&mut self) -> Result<usize, String> {
        let length = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
        let (name, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        if name.is_empty() {
            return self.fault("a rule's name is expected");
        }
        self.rest = rest;
        let next = self.names.len();
        Ok(*self.names.entry(name).or_insert(next))
    }

    fn rule(&mut self) -> Result<(), String> {
        let number = self.name()?;
        if self.defined.contains(&number) {
            return self.fault("the rule is defined twice");
        }
        self.defined.push(number);
        self.space(false);
        if !self.take("::=") {
            return self.fault("::= is expected behind a rule's name");
        }
        self.space(true);
        let mut body = String::new();
        self.alternatives(&mut body, 0)?;
        let _ = writeln!(self.lark, "r{number}: {body}");
        match self.peek() {
            None | Some('\n' | '\r') => Ok(()),
            Some(c) => self.fault(format_args!("{c:?} is not expected here")),
        }
    }

    fn alternatives(&mut self, out: &mut String, depth: usize) -> Result<(), String> {
        loop {
            self.sequence(out, depth)?;
            if !self.take("|") {
                return Ok(());
            }
            out.push_str(" | ");
            self.space(true);
        }
    }

    fn sequence(&mut self, out: &mut String, depth: usize) -> Result<(), String> {
        let begin = out.len();
        while let Some(c) = self.peek() {
            let mut symbol = String::new();
            match c {
                '"' => self.literal(&mut symbol)?,
                '[' => self.class(&mut symbol)?,
                '.' => {
                    self.take(".");
                    symbol.push_str(r"/[\u{0}-\u{10FFFF}]/");
                }
                '(' => {
                    self.take("(");
                    self.space(true);
                    symbol.push('(');
                    self.alternatives(&mut symbol, depth + 1)?;
                    symbol.push(')');
                    if !self.take(")") {
                        return self.fault("a group is not closed");
                    }
                }
                '<' | '!' => return self.fault("tokens by name or number are not supported"),
                c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => {
                    let number = self.name()?;
                    let _ = write!(symbol, "r{number}");
                }
                '*' | '+' | '?' | '{' => return self.fault(format_args!("{c:?} has nothing to repeat")),
                _ => break,
            }
            self.repeats(&mut symbol)?;
            if out.len() > begin {
                out.push(' ');
            }
            out.push_str(&symbol);
            // Within a group a sequence goes on in the next line.
            self.space(depth > 0);
        }
        if out.len() == begin {
            out.push_str("\"\"");
        }
        Ok(())
    }

    /// Repetitions behind a symbol, which may be repeated themselves.
    fn repeats(&mut self, symbol: &mut String) -> Result<(), String> {
        for times in 0.. {
            let sign = match self.peek() {
                Some(sign @ ('*' | '+' | '?')) => {
                    self.rest = &self.rest[1..];
                    sign.to_string()
                }
                Some('{') => self.numbers()?,
                Some(_) | None => break,
            };
            if times >= 8 {
                return self.fault("too many repetitions of repetitions");
            }
            *symbol = match sign.as_str() {
                "{0,0}" => "\"\"".into(),
                _ if times == 0 => format!("{symbol}{sign}"),
                _ => format!("({symbol}){sign}"),
            };
        }
        Ok(())
    }

    /// `{m}`, `{m,}`, `{m,n}`, `{,n}`.
    fn numbers(&mut self) -> Result<String, String> {
        let Some(end) = self.rest.find('}') else { return self.fault("a repetition is not closed") };
        let inner = &self.rest[1..end];
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&number| number <= MAX_REPEATS);
        let range = match inner.split_once(',') {
            None => number(inner).map(|count| (count, Some(count))),
            Some((from, to)) => {
                let from = if from.trim().is_empty() { Some(0) } else { number(from) };
                let to = if to.trim().is_empty() { Some(None) } else { number(to).map(Some) };
                from.zip(to)
            }
        };
        let Some((from, to)) = range.filter(|(from, to)| to.is_none_or(|to| to >= *from)) else {
            return self.fault(format_args!("a repetition is {{m}}, {{m,}}, {{m,n}} or {{,n}} up to {MAX_REPEATS}"));
        };
        self.rest = &self.rest[end + 1..];
        Ok(to.map_or_else(|| format!("{{{from},}}"), |to| format!("{{{from},{to}}}")))
    }

    fn literal(&mut self, out: &mut String) -> Result<(), String> {
        self.take("\"");
        let mut characters = Vec::new();
        while !self.take("\"") {
            let (c, _) = self.character('"')?;
            characters.push(format!("/{}/", class_of(&[(c, c)], false)));
        }
        *out = match characters.as_slice() {
            [] => "\"\"".into(),
            [one] => one.clone(),
            all => format!("({})", all.join(" ")),
        };
        Ok(())
    }

    fn class(&mut self, out: &mut String) -> Result<(), String> {
        self.take("[");
        let negated = self.take("^");
        let mut ranges = Vec::new();
        while !self.take("]") {
            let (from, _) = self.character(']')?;
            let range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let to = if range {
                self.take("-");
                self.character(']')?.0
            } else {
                from
            };
            if to < from {
                return self.fault("a range of characters is the wrong way about");
            }
            ranges.push((from, to));
        }
        if ranges.is_empty() {
            return self.fault("a class of characters is empty");
        }
        let _ = write!(out, "/{}/", class_of(&ranges, negated));
        Ok(())
    }

    /// A character of a literal or class, and whether it was escaped.
    fn character(&mut self, close: char) -> Result<(char, bool), String> {
        let Some(c) = self.peek() else { return self.fault(format_args!("{close:?} is missing")) };
        if c == '\n' || c == '\r' {
            return self.fault(format_args!("{close:?} is missing before the end of the line"));
        }
        self.rest = &self.rest[c.len_utf8()..];
        if c != '\\' {
            return Ok((c, false));
        }
        let Some(kind) = self.peek() else { return self.fault("a backslash at the end") };
        self.rest = &self.rest[kind.len_utf8()..];
        let digits = match kind {
            'n' => return Ok(('\n', true)),
            'r' => return Ok(('\r', true)),
            't' => return Ok(('\t', true)),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok((kind, true)),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return self.fault(format_args!("there is no escape \\{other}")),
        };
        let found = self.rest.get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        let Some(c) = found else { return self.fault(format_args!("\\{kind} wants {digits} digits of a character")) };
        self.rest = &self.rest[digits..];
        Ok((c, true))
    }
}

/// A class of a regular expression in which nothing but numbers of characters stands.
fn class_of(ranges: &[(char, char)], negated: bool) -> String {
    let mut out = String::from(if negated { "[^" } else { "[" });
    for &(from, to) in ranges {
        let _ = write!(out, "\\u{{{:X}}}-\\u{{{:X}}}", u32::from(from), u32::from(to));
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::to_lark;

    #[test]
    fn rules_and_characters() {
        let lark = to_lark("root ::= \"ab\" x* # end\nx ::= [a-c^]{2,} |\n  (\"\\n\"\n | .)?\n").unwrap();
        let a = r"/[\u{61}-\u{61}]/";
        let expected = format!(
            "start: r0\nr0: ({a} /[\\u{{62}}-\\u{{62}}]/) r1*\nr1: /[\\u{{61}}-\\u{{63}}\\u{{5E}}-\\u{{5E}}]/{{2,}} | \
             (/[\\u{{A}}-\\u{{A}}]/ | /[\\u{{0}}-\\u{{10FFFF}}]/)?\n"
        );
        assert_eq!(lark, expected);
    }

    #[test]
    fn faults_are_named() {
        for (text, words) in [
            ("", "no rule \"root\""),
            ("root ::= x", "\"x\" is used but not defined"),
            ("root ::= \"a", "'\"' is missing"),
            ("root ::= [a-", "']' is missing"),
            ("root ::= []", "empty"),
            ("root ::= [z-a]", "wrong way"),
            ("root ::= *", "nothing to repeat"),
            ("root ::= \"a\"{3,1}", "a repetition is"),
            ("root ::= \"a\"{100000}", "a repetition is"),
            ("root ::= (\"a\"", "not closed"),
            ("root ::= \"a\")", "not expected"),
            ("root ::= \"\\q\"", "no escape"),
            ("root ::= \"\\ud800\"", "digits of a character"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule is defined twice"),
            ("root = \"a\"", "::= is expected"),
            ("root ::= <[7]>", "tokens"),
        ] {
            let error = to_lark(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
