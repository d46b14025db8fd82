//! Answers taken apart: every form that models write, however the text is cut.

mod common;

use attend_text::{AnswerReader, Call, ChatTemplate, Form, Functions, Part};
use common::with_special;
use serde_json::json;
use std::sync::Arc;

fn form(template: &str, special: &[&str]) -> Form {
    Form::of(&ChatTemplate::new(template, None, None), &with_special(special))
}

fn functions() -> Arc<Functions> {
    let schema = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]},
    }});
    Arc::new(Functions::new([("weather".to_owned(), schema), ("get-time.now".to_owned(), json!({}))]))
}

/// The parts of an answer, neighbours of a kind put together.
fn read(form: &Form, opened: bool, pieces: &[&str]) -> Vec<Part> {
    let mut reader = AnswerReader::new(form, functions(), opened);
    let mut parts: Vec<Part> = Vec::new();
    let pushed: Vec<Part> = pieces.iter().flat_map(|piece| reader.push(piece)).collect();
    for part in pushed.into_iter().chain(reader.finish()) {
        match (parts.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more)) | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => {
                text.push_str(&more);
            }
            (_, part) => parts.push(part),
        }
    }
    parts
}

/// Random places to cut, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most
    }
}

/// Whole, character by character, and cut at random: always the same parts.
#[track_caller]
fn always(form: &Form, opened: bool, text: &str, wanted: &[Part]) {
    assert_eq!(read(form, opened, &[text]), wanted, "{text:?}");
    let characters: Vec<&str> = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect();
    assert_eq!(read(form, opened, &characters), wanted, "character by character: {text:?}");
    let mut random = Random(text.len() as u64);
    for _ in 0..40 {
        let (mut pieces, mut from) = (Vec::new(), 0);
        while from < text.len() {
            let mut to = (from + 1 + random.below(12)).min(text.len());
            while !text.is_char_boundary(to) {
                to += 1;
            }
            pieces.push(&text[from..to]);
            from = to;
        }
        assert_eq!(read(form, opened, &pieces), wanted, "{pieces:?}");
    }
}

fn content(text: &str) -> Part {
    Part::Content(text.into())
}

fn thought(text: &str) -> Part {
    Part::Reasoning(text.into())
}

fn call(name: &str, arguments: &str) -> Part {
    Part::Call(Call { name: name.into(), arguments: arguments.into() })
}

fn paris() -> Part {
    call("weather", r#"{"city": "Paris"}"#)
}

const HERMES: &str = "{% if tools %}<tool_call>{% endif %}<think></think>";

#[test]
fn tagged_objects() {
    let form = form(HERMES, &[]);
    let one = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    always(&form, false, one, &[paris()]);
    always(&form, false, &format!("Let me look.\n\n{one}\n"), &[content("Let me look."), paris()]);
    always(&form, false, &format!("{one}\n{one}"), &[paris(), paris()]);
    always(&form, false, &format!("{one} and more"), &[paris(), content("and more")]);
    // The closing mark may be missing; arguments may be missing, named otherwise, or written as a text.
    always(&form, false, one.trim_end_matches("\n</tool_call>"), &[paris()]);
    let now = call("get-time.now", "{}");
    always(&form, false, "<tool_call>{\"name\": \"get-time.now\"}</tool_call>", &[now]);
    always(
        &form,
        false,
        "<tool_call>{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}</tool_call>",
        &[paris()],
    );
    let text = r#"<tool_call>{"arguments": "{\"city\": \"Paris\"}", "name": "weather"}</tool_call>"#;
    always(&form, false, text, &[paris()]);
    let wrapped = r#"<tool_call>{"type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}}</tool_call>"#;
    always(&form, false, wrapped, &[paris()]);
    // The opening mark may be missing too, where nothing stands before the object.
    always(&form, false, "{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}", &[paris()]);
    always(&form, false, "\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>", &[paris()]);
    let object = "{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}";
    always(&form, false, &format!("```json\n{object}\n```"), &[paris()]);
    always(&form, false, &format!("{object}\n{object}\n"), &[paris(), paris()]);
    always(&form, false, &format!("{object}\n{{\"city\": 1}}"), &[paris(), content("{\"city\": 1}")]);
    // Numbers stay as they are written, and marks inside strings are strings.
    let odd = r#"{"city": "</tool_call> \"<tool_call>{", "days": 12345678901234567890123, "x": 1.0}"#;
    always(
        &form,
        false,
        &format!("<tool_call>{{\"name\": \"weather\", \"arguments\": {odd}}}</tool_call>"),
        &[call("weather", odd)],
    );
}

#[test]
fn what_is_no_call_is_content() {
    let form = form(HERMES, &[]);
    for text in [
        "<tool_call>",
        "<tool_call> nothing </tool_call>",
        "a <tool_cal and <tool_call>{",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Par",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": \"Paris\"}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {'city': 1}}</tool_call>",
        "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>[]</tool_call>",
        "{\"name\": \"unknown\", \"arguments\": {}}",
        "Say {\"name\": \"weather\", \"arguments\": {}}",
        "{\"city\": \"Paris\"}",
        "```json\n{\"city\": \"Paris\"}\n```",
        "``",
        "```python\nprint(1)\n```",
        "<function=weather><parameter=city>Paris</parameter>",
        "  spaces are kept \n\n",
    ] {
        always(&form, false, text, &[content(text)]);
    }
    // A call behind one that is none, and one that is opened inside another.
    let one = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>";
    always(&form, false, &format!("<tool_call>what? {one}"), &[content("<tool_call>what?"), paris()]);
    always(&form, false, &format!("<tool_call>{{\"name\": {one}"), &[content("<tool_call>{\"name\":"), paris()]);
}

#[test]
fn without_functions_nothing_is_a_call() {
    let form = form(HERMES, &[]);
    let text = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    let mut reader = AnswerReader::new(&form, Arc::default(), false);
    let parts: Vec<Part> = reader.push(text).into_iter().chain(reader.finish()).collect();
    assert_eq!(parts, [content(text)]);
}

#[test]
fn tagged_functions() {
    let form = form("{{ tools }}<tool_call><function=example>", &[]);
    let text = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    let both = call("weather", r#"{"city":"Paris","days":3}"#);
    always(&form, false, text, std::slice::from_ref(&both));
    always(&form, false, &format!("Well. {text}\n{text}"), &[content("Well."), both.clone(), both.clone()]);
    // The tags around it may be missing. What the schema calls a text stays one; a value may hold marks and lines.
    let bare = "<function=weather><parameter=city>\n12\n</parameter><parameter=note>\na </parameter> b\n\"c\"\n</parameter></function>";
    let arguments = r#"{"city":"12","note":"a </parameter> b\n\"c\""}"#;
    always(&form, false, bare, &[call("weather", arguments)]);
    always(&form, false, "<function=get-time.now></function>", &[call("get-time.now", "{}")]);
    always(
        &form,
        false,
        "<function=get-time.now><parameter=x>{\"a\": [1]}</parameter></function>",
        &[call("get-time.now", r#"{"x":{"a":[1]}}"#)],
    );
    for text in [
        "<function=unknown></function>",
        "<function=></function>",
        "<function=weather>x</function>",
        "<function=weather",
    ] {
        always(&form, false, text, &[content(text)]);
    }
}

#[test]
fn python_tags_and_bare_objects() {
    let form = form("{{ tools }} {\"name\": function name, \"parameters\": ...}", &["<|python_tag|>"]);
    let object = "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}";
    always(&form, false, object, &[paris()]);
    always(&form, false, &format!("\n {object}"), &[paris()]);
    always(&form, false, &format!("<|python_tag|>{object}"), &[paris()]);
    always(&form, false, &format!("<|python_tag|>{object}; {object}"), &[paris(), paris()]);
    always(&form, false, &format!("{{\"type\": \"function\", {}", &object[1..]), &[paris()]);
    for text in [
        "{\"city\": \"Paris\"}",
        "{\"names\": 1}",
        "{}",
        "{ \"a",
        "text first {\"name\": \"weather\"}",
        "<|python_tag|>print(1)",
    ] {
        always(&form, false, text, &[content(text)]);
    }
}

#[test]
fn brackets() {
    let form = form("{{ tools }}[TOOL_CALLS][THINK][/THINK]", &["[TOOL_CALLS]"]);
    let list = r#"[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "get-time.now", "arguments": {}}]"#;
    always(&form, false, list, &[paris(), call("get-time.now", "{}")]);
    always(&form, false, r#"Yes.[TOOL_CALLS]weather[ARGS]{"city": "Paris"}"#, &[content("Yes."), paris()]);
    always(
        &form,
        false,
        r#"[TOOL_CALLS]weather{"city": "Paris"}[TOOL_CALLS]weather{"city": "Paris"}"#,
        &[paris(), paris()],
    );
    always(&form, false, r#"[TOOL_CALLS]weather[CALL_ID]abc123XYZ[ARGS]{"city": "Paris"}"#, &[paris()]);
    always(
        &form,
        false,
        r#"[THINK]Hm [x].[/THINK][TOOL_CALLS]weather[ARGS]{"city": "Paris"}"#,
        &[thought("Hm [x]."), paris()],
    );
    for text in [
        "[TOOL_CALLS]",
        "[TOOL_CALLS][",
        "[TOOL_CALLS]weather[ARGS]{\"city\"",
        "[TOOL_CALLS] unknown{}",
        "[TOOL",
        "[TOOL_CALLS]weather[ARG",
    ] {
        always(&form, false, text, &[content(text)]);
    }
}

#[test]
fn separated_calls() {
    let form = form("{{ tools }}<｜tool▁calls▁begin｜></think>", &[]);
    let older = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get-time.now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let newer = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get-time.now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    for text in [older, newer] {
        always(&form, false, &format!("Ok {text}"), &[content("Ok"), paris(), call("get-time.now", "{}")]);
    }
    // Cut inside the second call: the first one is whole.
    let cut = &newer[..newer.find("get-time").expect("there") + 3];
    always(&form, false, cut, &[paris(), content("<｜tool▁call▁begin｜>get")]);
    always(
        &form,
        true,
        &format!("so it is</think>\n\n{older}"),
        &[thought("so it is"), paris(), call("get-time.now", "{}")],
    );
}

#[test]
fn lists_between_marks() {
    let form = form("{{ tools }}<|tool_call|>", &[]);
    let text = r#"<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris"}}]"#;
    always(&form, false, text, &[paris()]);
    always(&form, false, &format!("{text}<|/tool_call|>"), &[paris()]);
}

#[test]
fn thoughts() {
    let form = form(HERMES, &[]);
    always(
        &form,
        false,
        "<think>\nSo <b> it </thin is.\n</think>\n\nHello",
        &[thought("So <b> it </thin is."), content("Hello")],
    );
    always(&form, true, "\nSo.\n</think>\n\nHello\n", &[thought("So."), content("Hello\n")]);
    always(&form, false, "<think>\n\n</think>\n\nHello", &[content("Hello")]);
    always(&form, false, "<think>cut of", &[thought("cut of")]);
    always(&form, true, "cut of </th", &[thought("cut of </th")]);
    always(&form, true, "", &[]);
    // Only at the beginning: elsewhere the marks are spoken of.
    always(
        &form,
        false,
        "The tag <think> opens, </think> closes.",
        &[content("The tag <think> opens, </think> closes.")],
    );
    let called =
        "<think>a\n\nb</think><tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>";
    always(&form, false, called, &[thought("a\n\nb"), paris()]);
    assert!(form.is_opened_by("user\nassistant\n<think>\n") && !form.is_opened_by("<think></think>"));
}

#[test]
fn channels() {
    let form = form("<|start|>assistant<|channel|>final<|message|>{{ tools }}", &["<|channel|>", "<|message|>"]);
    let (think, say) =
        ("<|channel|>analysis<|message|>Hm.<|end|>", "<|start|>assistant<|channel|>final<|message|>Hello");
    always(&form, false, &format!("{think}{say}"), &[thought("Hm."), content("Hello")]);
    let to = "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>";
    always(&form, false, &format!("{think}{to}"), &[thought("Hm."), paris()]);
    // Its last mark ends the answer and is not seen; the recipient may stand before the channel.
    let early = " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Paris\"}";
    always(&form, false, early, &[paris()]);
    always(&form, false, "<|channel|>commentary<|message|>I look.<|end|>", &[content("I look.")]);
    always(
        &form,
        false,
        "<|channel|>commentary to=functions.weather<|message|>{\"city\": \"Par",
        &[content("{\"city\": \"Par")],
    );
    always(&form, false, "<|channel|>commentary to=functions.unknown<|message|>{}<|call|>", &[content("{}")]);
    always(&form, false, "No header <|at all", &[content("No header <|at all")]);
    always(&form, false, "<|channel|>analysis<|mess", &[]);
    always(&form, false, "", &[]);
}

#[test]
fn content_is_not_held_back() {
    let form = form(HERMES, &[]);
    let mut reader = AnswerReader::new(&form, functions(), false);
    for word in ["Hello", " you", ", <b", "> and"] {
        assert_eq!(reader.push(word).len(), 1, "{word}");
    }
    assert_eq!(reader.push(" <tool"), [], "this may become a mark");
    assert_eq!(reader.push("box>"), [content(" <toolbox>")]);
    let mut single = AnswerReader::new(&form, functions(), false).single(true);
    let one = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}";
    assert_eq!(single.push(one), [paris()]);
    assert!(single.is_over());
    assert_eq!(single.push(one), []);
    assert_eq!(single.finish(), []);
}

/// What takes time that grows with the square of a text would not end here.
#[test]
fn long_texts_are_read_in_time() {
    let forms = [
        form(HERMES, &[]),
        form("{{ tools }}[TOOL_CALLS]", &[]),
        form("{{ tools }}<｜tool▁calls▁begin｜>", &[]),
        form("<|channel|>", &[]),
        form("{{ tools }}", &["<|python_tag|>"]),
    ];
    let beginnings = [
        "<tool_call>",
        "<tool_call>{\"name\": \"",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"x\\\"",
        "<tool_call>{\"name\": \"weather\", \"arguments\": [[[[",
        "<function=weather><parameter=city>",
        "</parameter> ",
        "<think>",
        " \n",
        "[TOOL_CALLS]weather",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        "<|channel|>final",
        "<|channel|>final<|message|>x<|end|>",
        "{\"name\": ",
        "{",
        "<",
    ];
    for form in &forms {
        for beginning in beginnings {
            let text = beginning.repeat((1 << 17) / beginning.len());
            let characters: Vec<&str> = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect();
            let parts = read(form, false, &characters);
            assert!(parts.iter().all(|part| !matches!(part, Part::Call(_))), "{beginning}");
        }
        let long = format!("{{\"city\": \"{}\"}}", "x".repeat(1 << 20));
        let text = format!("<tool_call>{{\"name\": \"weather\", \"arguments\": {long}}}</tool_call>");
        let characters: Vec<&str> = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect();
        let parts = read(form, false, &characters);
        if form == &forms[0] {
            assert_eq!(parts, [call("weather", &long)]);
        }
    }
}

/// Marks in any order never panic, and what is said of them does not depend on cuts.
#[test]
fn any_text_however_it_is_cut() {
    let words = [
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "{\"name\": \"weather\", \"arguments\": {\"city\": \"é\"}}",
        "{",
        "}",
        "\"",
        "<function=weather>",
        "<parameter=city>",
        "</parameter>",
        "</function>",
        " ",
        "\n",
        "x",
        "é",
        "<",
        "[TOOL_CALLS]",
        "weather",
        "[ARGS]",
        "{\"city\": 1}",
        "<|channel|>",
        "final",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "to=functions.weather",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<|python_tag|>",
        ";",
        "```json",
    ];
    let forms = [
        form(HERMES, &[]),
        form("{{ tools }}[TOOL_CALLS][THINK]", &[]),
        form("{{ tools }}<｜tool▁calls▁begin｜>", &[]),
        form("<|channel|>", &[]),
        form("{{ tools }}", &["<|python_tag|>"]),
        form("no word of them", &[]),
    ];
    let mut random = Random(7);
    for round in 0..600 {
        let text: String = (0..1 + random.below(14)).map(|_| words[random.below(words.len())]).collect();
        for form in &forms {
            let opened = round % 3 == 0;
            let whole = read(form, opened, &[&text]);
            always(form, opened, &text, &whole);
        }
    }
}

#[test]
fn marks_that_are_special_tokens_are_seen() {
    let special = ["<tool_call>", "[TOOL_CALLS]", "<think>", "<|other|>"];
    let tokenizer = with_special(&special);
    let form = Form::of(&ChatTemplate::new(HERMES, None, None), &tokenizer);
    assert_eq!(form.marks(true, &tokenizer), [3, 1]);
    assert_eq!(form.marks(false, &tokenizer), [3]);
    let shown: String = {
        let mut stream = tokenizer.stream(true).showing(&[1]);
        let pieces: Vec<String> = [4, 1, 2, 0].into_iter().filter_map(|id| stream.push(id)).collect();
        pieces.concat()
    };
    assert_eq!(shown.replace(' ', ""), "<tool_call>x");
}

/// Where calls were held to schemas, only what was held is a call.
#[test]
fn calls_in_one_form_alone() {
    let held = form("{{ tools }} <tool_call>", &[]).held();
    let arguments = r#"{"city": "Rome"}"#;
    let called = [Part::Call(Call { name: "weather".into(), arguments: arguments.into() })];
    for text in [
        format!("<tool_call>\n{{\"name\": \"weather\", \"arguments\": {arguments}}}\n</tool_call>"),
        format!("{{\"name\": \"weather\", \"arguments\": {arguments}}}"),
        format!("\n{{\n  \"name\" : \"weather\" ,\n  \"parameters\" :{arguments}\n}}\n"),
        format!("```json\n{{\"name\": \"weather\", \"arguments\": {arguments}}}\n```"),
    ] {
        always(&held, false, &text, &called);
    }
    for text in [
        format!("{{\"arguments\": {arguments}, \"name\": \"weather\"}}"),
        format!("{{\"name\": \"weather\", \"arguments\": {{}}, \"arguments\": {arguments}}}"),
        format!("{{\"name\": \"weather\", \"id\": 1, \"arguments\": {arguments}}}"),
        format!("{{\"name\": \"we\\u0061ther\", \"arguments\": {arguments}}}"),
        format!("{{\"name\": \"sun\", \"arguments\": {arguments}}}"),
        format!("```json\n[{{\"name\": \"weather\", \"arguments\": {arguments}}}]\n```"),
        format!("Look: {{\"name\": \"weather\", \"arguments\": {arguments}}}"),
        "<function=weather><parameter=city>Rome</parameter></function>".to_owned(),
    ] {
        always(&held, false, &text, &[Part::Content(text.clone())]);
    }
}
