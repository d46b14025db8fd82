//! Pieces of Jinja's syntax that the template engine does not have, or does not account for, rewritten into what it has:
//!
//! - `{% generation %}…{% endgeneration %}` marks what the assistant said, for training. Here it changes nothing, but
//!   its white-space control does, so it becomes a condition that always holds.
//! - `'%s-%d' % (a, b)` on a literal becomes `'%s-%d'|format(a, b)`.
//! - Values that are given a name are counted ([`super::naming`]).

use super::naming;

/// The source with these rewritten. What is not understood is left to the engine's own messages.
pub(super) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut raw = false;
    while let Some(at) = rest.find('{') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let len = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'{' | b'%') => tag_len(tag),
            _ => 1,
        };
        let (tag, behind) = tag.split_at(len);
        let word = statement(tag);
        raw = (raw || word == Some("raw")) && word != Some("endraw");
        match word {
            _ if raw || tag.starts_with("{#") || len == 1 => out.push_str(tag),
            Some("generation") => out.push_str(&tag.replacen("generation", "if true", 1)),
            Some("endgeneration") => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => {
                let mut rewritten = String::with_capacity(tag.len());
                formatting(tag, &mut rewritten);
                naming::push_counted(&rewritten, &mut out);
            }
        }
        rest = behind;
    }
    out + rest
}

/// Whether some tag has more words and signs than `limit`. The engine parses and runs long chains (`x|f|f|f…`,
/// `not not not…`) by recursion, so their length has to be bounded.
pub(super) fn has_long_tag(source: &str, limit: usize) -> bool {
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (tag, behind) = rest[at..].split_at(tag_len(&rest[at..]));
        let (mut count, mut at, mut in_word) = (0, 0, false);
        while let Some(here) = tag.get(at..)
            && let Some(c) = here.chars().next()
        {
            let literal = literal_len(here);
            let word = literal.is_none() && (c.is_alphanumeric() || c == '_');
            count += usize::from(literal.is_some() || (word && !in_word) || !(word || c.is_whitespace()));
            in_word = word;
            at += literal.unwrap_or(c.len_utf8());
        }
        if count > limit {
            return true;
        }
        rest = behind;
    }
    false
}

/// The sum of all numbers in the fields (`{0:>99}`) of a format: at least what its widths and precisions add up to.
pub(super) fn widths(format: &str) -> u64 {
    let (mut sum, mut number, mut inside) = (0u64, 0u64, false);
    let mut bytes = format.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' if !inside && bytes.peek() == Some(&b'{') => drop(bytes.next()),
            b'{' => inside = true,
            b'0'..=b'9' if inside => {
                number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
                continue;
            }
            b'}' => inside = false,
            _ => {}
        }
        sum = sum.saturating_add(std::mem::take(&mut number));
    }
    sum.saturating_add(number)
}

/// The only word of a statement tag, if it has but one.
fn statement(tag: &str) -> Option<&str> {
    let word = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    Some(word.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim())
}

/// Length of the string literal that a text begins with, quotes included.
pub(super) fn literal_len(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Length of the tag that a text begins with, up to its end outside literals and brackets.
fn tag_len(text: &str) -> usize {
    let (end, mut depth, mut at) = (if text.starts_with("{{") { "}}" } else { "%}" }, 0usize, 2);
    while let Some(rest) = text.get(at..)
        && let Some(c) = rest.chars().next()
    {
        if depth == 0 && rest.starts_with(end) {
            return at + 2;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += literal_len(rest).unwrap_or(c.len_utf8());
    }
    text.len()
}

/// Copies a tag, with `LITERAL % operand` as a filter.
fn formatting(tag: &str, out: &mut String) {
    let mut at = 0;
    while let Some(rest) = tag.get(at..)
        && let Some(c) = rest.chars().next()
    {
        let Some(len) = literal_len(rest) else {
            out.push(c);
            at += c.len_utf8();
            continue;
        };
        out.push_str(&rest[..len]);
        at += len;
        let Some(operand) = rest[len..].trim_start().strip_prefix('%').filter(|behind| !behind.starts_with('}')) else {
            continue;
        };
        let operand = operand.trim_start();
        let len = operand_len(operand);
        if len == 0 {
            continue;
        }
        let arguments = &operand[..len];
        let inner = arguments.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(arguments);
        out.push_str("|format(");
        formatting(inner.trim_end().trim_end_matches(','), out);
        out.push(')');
        at = tag.len() - operand.len() + len;
    }
}

/// Length of a parenthesis, literal, number, or name with attributes, indexes and calls.
fn operand_len(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(rest) = text.get(at..)
        && let Some(c) = rest.chars().next()
    {
        if depth == 0 && at > 0 && text.starts_with('(') {
            return at;
        }
        if let Some(len) = literal_len(rest) {
            if depth == 0 && at > 0 {
                return at;
            }
            at += len;
            continue;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => depth -= 1,
            c if depth == 0 && !(c.is_alphanumeric() || matches!(c, '_' | '.')) => return at,
            _ => {}
        }
        at += c.len_utf8();
    }
    if depth == 0 { at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn only_the_two_forms_change() {
        for (from, to) in [
            ("{%- generation -%}x{% endgeneration %}", "{%- if true -%}x{% endif %}"),
            ("{{ '%s-%d' % ('a', 3) }}", "{{ '%s-%d'|format('a', 3) }}"),
            ("{{ \"%02d\" % n.x[0] + 'y' }}", "{{ \"%02d\"|format(n.x[0]) + 'y' }}"),
            ("{{ '%s' % f('a') }}", "{{ '%s'|format(f('a')) }}"),
            ("{{ (loop.index0 % 2) == 0 }}{{ {'a': {'b': 1}} }}", "{{ (loop.index0 % 2) == 0 }}{{ {'a': {'b': 1}} }}"),
            ("{% if x == 'a' %}{# '%s' % 1 #}", "{% if x == 'a' %}{# '%s' % 1 #}"),
            ("{% raw %}{{ '%s' % x }}{% endraw %}", "{% raw %}{{ '%s' % x }}{% endraw %}"),
            ("{ {{ 'it\\'s' }} {", "{ {{ 'it\\'s' }} {"),
            ("{{ '%s' % (", "{{ '%s' % ("),
            ("{{ 'open", "{{ 'open"),
        ] {
            assert_eq!(rewrite(from), to);
        }
    }
}
