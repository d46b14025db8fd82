//! Strict functions: calls that a model makes by itself, in every form, with arguments that are what the schema says.

use crate::calling::{TEMPLATE, fixed, mark_special, said};
use crate::openai::with;
use crate::support::{Serving, Setup, loader, told};
use serde_json::{Value, json};

/// A server whose model says one thing, but has every character to say something else where it must.
fn bent(template: &str, script: &[&str], special: &[&str]) -> Serving {
    let mut words: Vec<String> = std::iter::once("?").chain(script.iter().copied()).map(String::from).collect();
    for c in "]\"}:{<>".chars().chain('!'..='~').chain(['\n', ' ']).map(String::from) {
        if !words.contains(&c) {
            words.push(c);
        }
    }
    words.push("END".into());
    let end = words.len() as u32 - 1;
    let follows = words.iter().enumerate().map(|(at, word)| match at {
        at if (1..script.len()).contains(&at) => at as u32 + 1,
        at if at == script.len() || [">", "}", "]"].contains(&word.as_str()) => end,
        _ => 0,
    });
    let (follows, words): (Vec<u32>, Vec<&str>) = (follows.collect(), words.iter().map(String::as_str).collect());
    let folder = told(&words, &follows, &[end]);
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("written");
    mark_special(folder.path(), &words, special);
    let loader = loader(folder.path(), None);
    Setup { folder: Some(folder), ..Setup::new(vec![("told", loader)]) }.ready()
}

const ROME: &str = "{\"city\": \"Rome\"}";
const NAMED: &str = "{\"name\": \"weather\", \"arguments\": ";

/// In every form, with marks that are text and with marks that are special tokens: from the mark on that begins a call its
/// arguments are what a strict schema says, and everything else is as the model wants it.
#[test]
fn strict_calls_that_a_model_makes_by_itself_follow_their_schema() {
    let objects = "{\"name\": \"weather\", \"parameters\": ";
    let list = "[{\"name\": \"weather\", \"arguments\": ";
    let forms: [(&str, &str, &[&str]); 7] = [
        (TEMPLATE, "I look.\n", &["call", "I look.\n", "<tool_call>", "\n", NAMED, ROME, "}\n", "</tool_call>"]),
        ("{{ tools }} call", "", &["call", objects, ROME, "}"]),
        ("{# [TOOL_CALLS] #}{{ tools }} call", "Hm", &["call", "Hm", "[TOOL_CALLS]", list, ROME, "}]"]),
        ("{# [TOOL_CALLS][ARGS] #}{{ tools }} call", "Hm", &["call", "Hm", "[TOOL_CALLS]", "weather", "[ARGS]", ROME]),
        ("{# <|tool_call|> #}{{ tools }} call", "Hm", &["call", "Hm", "<|tool_call|>", list, ROME, "}]"]),
        (
            "{# <｜tool▁calls▁begin｜> ```json #}{{ tools }} call",
            "Hm",
            &[
                "call",
                "Hm",
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                "function",
                "<｜tool▁sep｜>",
                "weather\n```json\n",
                ROME,
                "\n```",
                "<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
        ),
        (
            "{# <|channel|> #}{{ tools }} call",
            "",
            &[
                "call",
                "<|channel|>",
                "commentary to=functions.weather ",
                "<|constrain|>",
                "json",
                "<|message|>",
                ROME,
                "<|call|>",
                "<|start|>",
            ],
        ),
    ];
    for (template, text, script) in forms {
        let marks: Vec<&str> = script
            .iter()
            .copied()
            .filter(|word| word.starts_with(['<', '[']) && word.ends_with(['>', ']']) && *word != "}]")
            .collect();
        for special in [&[], marks.as_slice()] {
            let serving = bent(template, script, special);
            let asked = |strict: bool| {
                let function = json!({"name": "weather", "strict": strict, "parameters": fixed()});
                let tools = json!([{"type": "function", "function": function}]);
                let body =
                    json!({"messages": [{"role": "user", "content": "call"}], "tools": tools, "max_tokens": 120});
                let (message, reason) = said(&serving, &with(&body, json!({"temperature": 0})));
                assert_eq!(reason, "tool_calls", "{template} {special:?} {message}");
                assert_eq!(message["content"].as_str().unwrap_or_default(), text.trim_end(), "{template} {special:?}");
                let called = message["tool_calls"].as_array().expect("calls");
                assert_eq!((called.len(), &called[0]["function"]["name"]), (1, &json!("weather")), "{template}");
                let arguments = called[0]["function"]["arguments"].as_str().expect("a text");
                serde_json::from_str::<Value>(arguments).expect("JSON")
            };
            assert_eq!(asked(false), json!({"city": "Rome"}), "{template} {special:?}: the model's own");
            assert_eq!(asked(true), json!({"city": "Paris"}), "{template} {special:?}");
        }
    }
}

/// What is not a call of a strict function stays as it is.
#[test]
fn strict_functions_bind_their_calls_and_nothing_else() {
    let tool = |name: &str, strict: bool| json!({"type": "function", "function": {"name": name, "strict": strict, "parameters": fixed()}});
    let tools = json!([tool("weather", true), tool("aim", false)]);
    let body =
        json!({"messages": [{"role": "user", "content": "call"}], "tools": tools, "max_tokens": 150, "temperature": 0});
    let text: &[&str] = &["call", "Hello {there}", ", <tool> {\"name\": \"weather\"}", " and <tool_cal", "ls>."];
    let whole = text[1..].concat();
    assert_eq!(said(&bent(TEMPLATE, text, &[]), &body), (json!({"content": whole}), "stop".into()));
    // Objects whose marks the model forgets, at the beginning of its answer: whoever reads them as calls has held them to the
    // schema.
    let unbound = with(&body, json!({"tools": [tool("weather", false)]}));
    let fence: &[&str] = &["call", "```json\n{\n  \"name\": \"weather\",\n", "  \"arguments\": ", ROME, "\n}\n```"];
    let bare: &[&str] = &["call", "{\"name\": \"weather\", ", "\"arguments\": ", ROME, "}"];
    for script in [bare, fence] {
        for (body, city) in [(&unbound, "Rome"), (&body, "Paris")] {
            let (message, reason) = said(&bent(TEMPLATE, script, &[]), body);
            assert_eq!((reason.as_str(), &message["content"]), ("tool_calls", &Value::Null), "{message}");
            let called = &message["tool_calls"][0]["function"];
            let arguments = called["arguments"].as_str().expect("a text");
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            assert_eq!((&called["name"], arguments), (&json!("weather"), json!({"city": city})), "{script:?}");
        }
    }
    // Of others nobody knows what they hold: they are text, and so is what comes later.
    for script in [
        ["call", "{\"arguments\": ", ROME, ", \"name\": \"weather\"}"],
        ["call", "{\"name\": \"we\\u0061ther\", \"arguments\": ", ROME, "}"],
        ["call", "{\"name\": \"weather\", \"id\": 1, \"arguments\": ", ROME, "}"],
        ["call", "```json\n[{\"name\": \"weather\", \"arguments\": ", ROME, "}]\n```"],
        ["call", "Look: {\"name\": \"weather\", \"arguments\": ", ROME, "}"],
        ["call", "{\"name\": \"sun\", \"arguments\": ", ROME, "}"],
    ] {
        let whole = script[1..].concat();
        assert_eq!(said(&bent(TEMPLATE, &script, &[]), &body), (json!({"content": whole}), "stop".into()));
    }
    // Two calls, of which the first is bound, with text around them; the model says itself what is right.
    let (paris, aim) = ("{\"city\": \"Paris\"}", "{\"name\": \"aim\", \"arguments\": {\"x\": [1]}}");
    let twice: &[&str] = &[
        "call",
        "First",
        "<tool_call>\n",
        NAMED,
        paris,
        "}\n</tool_call>",
        " then <tool",
        "_call>\n",
        aim,
        "\n</tool_call>",
        " done.",
    ];
    let (message, reason) = said(&bent(TEMPLATE, twice, &[]), &body);
    let calls: Vec<&Value> =
        message["tool_calls"].as_array().expect("calls").iter().map(|call| &call["function"]).collect();
    assert_eq!(reason, "tool_calls");
    assert_eq!(calls[0], &json!({"name": "weather", "arguments": paris}));
    assert_eq!(calls[1], &json!({"name": "aim", "arguments": "{\"x\": [1]}"}));
    assert!(message["content"].as_str().is_some_and(|text| text.starts_with("First")), "{message}");
    // The answer ends behind one call where one is enough.
    let (message, _) = said(&bent(TEMPLATE, twice, &[]), &with(&body, json!({"parallel_tool_calls": false})));
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(1), "{message}");
    // What the whole answer is held to comes first.
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": fixed()}}});
    let (message, reason) = said(&bent(TEMPLATE, twice, &[]), &with(&body, format));
    assert_eq!(reason, "stop", "{message}");
    assert_eq!(
        serde_json::from_str::<Value>(message["content"].as_str().expect("a text")).expect("JSON"),
        json!({"city": "Paris"})
    );
    // A schema that cannot be followed is refused as it is where a call must be made.
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "contentEncoding": "base64", "not": {}}}});
    let strict = json!([{"type": "function", "function": {"name": "weather", "strict": true, "parameters": schema}}]);
    let serving = bent(TEMPLATE, twice, &[]);
    let refused = serving.post("/v1/chat/completions", &with(&body, json!({"tools": strict}))).refused(400);
    assert_eq!((&refused["code"], &refused["param"]), (&json!("invalid_constraint"), &json!("tools")));
}

/// The other dialects' words for it.
#[test]
fn strict_calls_in_other_dialects() {
    let script = ["call", "I look.\n", "<tool_call>", "\n", NAMED, ROME, "}\n", "</tool_call>"];
    let serving = bent(TEMPLATE, &script, &[]);
    for (strict, city) in [(false, "Rome"), (true, "Paris")] {
        let body = json!({"model": "told", "max_tokens": 120, "temperature": 0, "messages": [{"role": "user", "content": "call"}],
            "tools": [{"name": "weather", "strict": strict, "input_schema": fixed()}]});
        let answer = serving.post("/v1/messages", &body).good();
        assert_eq!(
            (&answer["content"][1]["input"], &answer["stop_reason"]),
            (&json!({"city": city}), &json!("tool_use"))
        );
        let function = json!({"name": "weather", "strict": strict, "parameters": fixed()});
        let body = json!({"model": "told", "stream": false, "options": {"temperature": 0, "num_predict": 120},
            "messages": [{"role": "user", "content": "call"}], "tools": [{"type": "function", "function": function}]});
        let answer = serving.post("/api/chat", &body).good();
        assert_eq!(answer["message"]["tool_calls"][0]["function"]["arguments"], json!({"city": city}), "{answer}");
    }
}
