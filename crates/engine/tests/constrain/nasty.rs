//! What nobody should have to compile.

use serde_json::{Map, Value, json};

/// A text so many times.
pub fn repeated(text: &str, times: usize) -> String {
    text.repeat(times)
}

/// Regular expressions.
pub fn expressions() -> Vec<String> {
    let mut list: Vec<String> = [
        "foo**",
        "(a+)+$",
        "(a{1,5000}){1,5000}",
        "a{1000000}",
        "a{1,4294967296}",
        "[a-z]{5000}",
        "(a|a)*b",
        "(a*)*",
        "(.*)*(.*)*x",
        "(.*a){200}",
        ".*a.{30}",
        "[^b]*b.{300}",
        r"\p{L}{1,500}",
        r"(\w+\s?){1,100}",
        "^+[a-z]$",
        "^{2}x$",
        "(x+x+)+y",
        "((a{30}){30}){30}",
        r"[\u{0}-\u{10FFFF}]{1000}",
        "(?:a?){200}a{200}",
        r"\w{1,200}@\w{1,200}\.\w{1,200}",
        "(?=a)b",
        "(?<=a)b",
        "(?!a)b",
        r"(a)\1",
        "[",
        "a{",
        "a{2",
        "a{9,2}",
        "(?P<a>",
        "(?i)(?s)(?m)(?x)",
        "日{1,3000}",
    ]
    .map(String::from)
    .into();
    list.extend([repeated("(", 60_000), format!("{}a{}", repeated("(", 63), repeated(")*", 63))]);
    list.extend([repeated("a?", 2000), repeated(".*a", 1300), repeated(r"\p{L}\P{N}", 400), repeated("a*", 2000)]);
    list.extend([format!("a{}", repeated("*", 4000)), repeated("a", 1 << 20), repeated("(a|", 40) + "b"]);
    list.push((0..600).map(|i| format!("{i:x}z")).collect::<Vec<_>>().join("|"));
    list
}

/// Objects in objects.
pub fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({ "type": "integer" }), |inner, _| json!({ "properties": { "a": inner }, "required": ["a"] }))
}

/// A field for each number.
pub fn fields(count: usize, field: impl Fn(usize) -> Value) -> Map<String, Value> {
    (0..count).map(|index| (format!("p{index}"), field(index))).collect()
}

/// JSON schemas.
pub fn schemas() -> Vec<Value> {
    let all = |count: usize, one: &dyn Fn(usize) -> Value| (0..count).map(one).collect::<Vec<Value>>();
    let doubling = |keyword: &str| {
        let refer = |index: usize| json!({ "$ref": format!("#/$defs/p{}", index + 1) });
        let mut defs = fields(30, |index| json!({ keyword: [refer(index), refer(index)] }));
        defs.insert("p30".into(), json!({ "type": "string", "pattern": "(a?){50}" }));
        json!({ "$defs": defs, "$ref": "#/$defs/p0" })
    };
    let mut list: Vec<Value> = [10, 31, 60, 120].map(nested).into();
    list.extend([
        json!({ "enum": all(20_000, &|index| json!(format!("value {index}"))) }),
        json!({ "enum": all(1000, &|index| json!({ "a": index, "b": [index, "é\u{1F600}"] })) }),
        json!({ "enum": ["\u{0}\u{1}\u{7f}", "\u{FFFF}", "\u{10FFFF}", ""] }),
        json!({ "properties": fields(1000, |_| json!({ "type": "string" })), "additionalProperties": false }),
        json!({ "properties": fields(4000, |_| json!({ "type": "string" })) }),
        json!({ "properties": fields(600, |index| json!({ "type": "array", "items": { "minimum": index } })) }),
        json!({ "type": "string", "maxLength": 1_000_000, "minLength": 100_000 }),
        json!({ "type": "string", "minLength": 1u64 << 60 }),
        json!({ "type": "array", "minItems": 1_000_000_000u64, "items": { "type": "array", "minItems": 1_000_000 } }),
        json!({ "type": "string", "pattern": "(a{1,3000}){1,3000}" }),
        json!({ "type": "string", "pattern": repeated("a?", 2000) }),
        json!({ "type": "string", "pattern": ".*a.{30}", "format": "email" }),
        json!({ "allOf": all(30, &|index| json!({ "type": "string", "pattern": format!(".*a.{{{index}}}b") })) }),
        json!({ "allOf": all(8, &|index| json!({ "type": "string", "pattern": format!(".*a.{{{index}}}b") })) }),
        json!({ "allOf": all(16, &|index| json!({ "anyOf": [
            { "required": [format!("a{index}")] }, { "properties": { format!("b{index}"): { "type": "integer" } } },
        ] })) }),
        json!({ "allOf": all(10, &|index| json!({ "anyOf": [
            { "type": "object", "properties": { format!("a{index}"): { "type": "string" } } },
            { "type": "object", "properties": { format!("b{index}"): { "type": "integer" } } },
        ] })) }),
        json!({ "patternProperties": fields(30, |_| json!({ "type": "string" })) }),
        json!({ "patternProperties": { "^a.*": {}, ".*a$": {} }, "additionalProperties": false }),
        doubling("allOf"),
        doubling("anyOf"),
        json!({ "$ref": "#" }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] } } }),
        json!({ "$ref": "file:///etc/passwd" }),
        json!({ "$ref": "https://example.com/schema.json" }),
        json!({ "$id": "http://127.0.0.1/", "$ref": "other.json" }),
        json!({ "type": "integer", "multipleOf": 99_991 }),
        json!({ "allOf": [{ "multipleOf": 97 }, { "multipleOf": 89 }, { "multipleOf": 83 }] }),
        json!({ "type": "number", "multipleOf": 1e-9, "minimum": 0.3, "maximum": 1e300 }),
        json!({ "type": "integer", "minimum": -1e300, "maximum": 1e300 }),
        json!({ "type": "number", "minimum": 0.000_000_000_000_1, "exclusiveMaximum": 0.000_000_000_000_2 }),
        json!({ "type": 7 }),
        json!({ "properties": 7 }),
        json!({ "type": "object", "x-guidance": { "whitespace_pattern": "(a?){5000}" } }),
        json!({ "not": { "type": "string" } }),
    ]);
    list
}

/// Grammars in Lark's notation and in GBNF.
pub fn grammars() -> Vec<String> {
    let chain = |count: usize, name: &str, sign: &str| {
        let rule = |index: usize| if index == 0 { "start".to_string() } else { format!("{name}{index}") };
        let line = |index: usize| format!("{}{sign} {name}{} \"a\"\n", rule(index), index + 1);
        (0..count).map(line).collect::<String>() + &format!("{name}{count}{sign} \"x\"\n")
    };
    let roots = |text: String| text.replacen("start", "root", 1);
    let joined = |count: usize| (0..count).map(|i| format!("/.*a.{{{i}}}b.*/")).collect::<Vec<_>>().join("&");
    vec![
        chain(900, "r", ":"),
        chain(5000, "r", ":"),
        chain(900, "T", ":"),
        roots(chain(900, "r", " ::=")),
        roots(chain(60_000, "r", " ::=")),
        "start: A\nA: B\nB: A \"x\"".into(),
        "start: start \"a\" | start start | \"a\"".into(),
        "root ::= root \"a\" | root root | \"a\"".into(),
        "start: a\na: b |\nb: a a a |".into(),
        "root ::= root".into(),
        "start: a{1,100000}\na: \"x\" b{1,10000}\nb: \"y\"{1,1000}".into(),
        "start: a{1,1000000000}\na: \"x\"".into(),
        "root ::= (([a-z]{1,4000}){1,4000}){1,4000}".into(),
        "start: (a | b | c)*\na: /[a-z]*/\nb: /[a-y]*/\nc: /.*/".into(),
        format!("start: A\nA: {}", joined(8)),
        format!("start: A\nA: {}", joined(20)),
        format!("start: A\nA: {}", repeated("~(/.*a.{9}/) ", 8)),
        format!("start: {}", repeated("\"a\"? ", 990)),
        format!("start: A\nA: {}", repeated("\"a\"? ", 990)),
        format!("root ::= {}", repeated("\"a\"? ", 990)),
        format!("root ::= \"{}\"", repeated("ab日", 6000)),
        format!("start: {}\"a\"{}", repeated("(", 60), repeated(")*", 60)),
        format!("root ::= {}\"a\"{}", repeated("(", 60_000), repeated(")", 60_000)),
        "start: %json {\"type\": \"array\", \"minItems\": 1000000000}".into(),
        "start: %json {\"$ref\": \"http://127.0.0.1/\"}".into(),
        format!("start: %json {}", nested(120)),
        format!("start: A\nA: %regex {{\"substring_chars\": \"{}\"}}", repeated("ab", 10_000)),
        format!("start: %lark {{ {} }}", repeated("start: %lark { ", 200)),
        "%import common.NUMBER\nstart: NUMBER".into(),
        "%ignore /.*/\nstart: \"a\"".into(),
        "start: <|none|> <[999999999]> <[*]>".into(),
        "start: @other".into(),
        repeated("\"", 30_001),
        repeated("start: \"a\"\n", 900),
        "\u{0}\u{1}日本".into(),
    ]
}
