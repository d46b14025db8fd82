//! Statements that give a value a name, and the counting put behind them ([`super::growth`]).

use super::growth::COUNTED;
use super::syntax::literal_len;

/// Appends a statement, as it was rewritten, followed by `{% set NAME = NAME|__counted__ %}` for every name that it
/// gives. White-space control of the statement's end moves to the end of the last of them.
pub(super) fn push_counted(statement: &str, out: &mut String) {
    let names = names(statement);
    let Some((last, others)) = names.split_last() else {
        out.push_str(statement);
        return;
    };
    let body = statement.strip_suffix("%}").unwrap_or(statement);
    let open = body.trim_end_matches(['-', '+']);
    let set = |name: &str| format!("{{% set {name} = {name}|{COUNTED} ");
    out.push_str(open);
    out.push_str("%}");
    for name in others {
        out.push_str(&set(name));
        out.push_str("%}");
    }
    out.push_str(&set(last));
    out.push_str(&statement[open.len()..]);
}

/// The names that a statement gives to values: `x`, or `x.y` for a field of a namespace.
fn names(statement: &str) -> Vec<&str> {
    let Some(inner) = statement.strip_prefix("{%").and_then(|inner| inner.strip_suffix("%}")) else {
        return Vec::new();
    };
    let inner = inner.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
    let word = words(inner).next().unwrap_or_default();
    let rest = inner.get(word.len()..).unwrap_or_default();
    match word {
        // Without a sign of equality the statement is a block, which names a text.
        "set" => match parts(rest, '=').as_slice() {
            [names, _, ..] => words(names).collect(),
            _ => Vec::new(),
        },
        "for" => words(rest).take_while(|word| *word != "in").collect(),
        "with" => assigned(rest),
        "macro" => assigned(group(rest)),
        "call" if rest.trim_start().starts_with('(') => assigned(group(rest)),
        _ => Vec::new(),
    }
}

/// The names in `x, y = 1, (a, b) = z`: those before the signs of equality, or alone.
fn assigned(list: &str) -> Vec<&str> {
    parts(list, ',').into_iter().flat_map(|part| words(parts(part, '=').first().copied().unwrap_or_default())).collect()
}

/// What stands inside the first parentheses.
fn group(text: &str) -> &str {
    let Some((_, inside)) = text.split_once('(') else { return "" };
    parts(inside, ')').first().copied().unwrap_or_default()
}

/// Runs of letters, digits, underscores and dots.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.'))).filter(|word| !word.is_empty())
}

/// The pieces between separators that stand outside literals and brackets.
fn parts(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut at) = (Vec::new(), 0usize, 0, 0);
    while let Some(rest) = text.get(at..)
        && let Some(c) = rest.chars().next()
    {
        let len = literal_len(rest).unwrap_or(c.len_utf8());
        if c == separator && depth == 0 {
            parts.push(&text[start..at]);
            start = at + len;
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += len;
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

#[cfg(test)]
mod tests {
    use super::push_counted;

    #[test]
    fn every_name_is_counted() {
        for (statement, expected) in [
            ("{%- set x = [y, '='] -%}", "{%- set x = [y, '='] %}{% set x = x|__counted__ -%}"),
            ("{% set ns.x=a==b +%}", "{% set ns.x=a==b %}{% set ns.x = ns.x|__counted__ +%}"),
            (
                "{% set a, (b) = 1, 2 %}",
                "{% set a, (b) = 1, 2 %}{% set a = a|__counted__ %}{% set b = b|__counted__ %}",
            ),
            (
                "{% for k, v in d.items() if k -%}",
                "{% for k, v in d.items() if k %}{% set k = k|__counted__ %}{% set v = v|__counted__ -%}",
            ),
            ("{% for x in[1] %}", "{% for x in[1] %}{% set x = x|__counted__ %}"),
            (
                "{% with a = f(b, c=1), (d, e) = g %}",
                "{% with a = f(b, c=1), (d, e) = g %}{% set a = a|__counted__ %}{% set d = d|__counted__ %}{% set e = e|__counted__ %}",
            ),
            (
                "{% macro f(a, b=[1, ')'], c='=') -%}",
                "{% macro f(a, b=[1, ')'], c='=') %}{% set a = a|__counted__ %}{% set b = b|__counted__ %}{% set c = c|__counted__ -%}",
            ),
            ("{% call(x) f(y) %}", "{% call(x) f(y) %}{% set x = x|__counted__ %}"),
            ("{% call f(y) %}", "{% call f(y) %}"),
            ("{% macro f() %}", "{% macro f() %}"),
            ("{% set x %}", "{% set x %}"),
            ("{% set x | trim %}", "{% set x | trim %}"),
            ("{% if set == x %}", "{% if set == x %}"),
            ("{{ x }}", "{{ x }}"),
            ("{% set x = 'open", "{% set x = 'open"),
        ] {
            let mut out = String::new();
            push_counted(statement, &mut out);
            assert_eq!(out, expected);
        }
    }
}
