//! Calls of functions and thoughts, in every dialect, from models that say exactly what is wanted.

use crate::client::Answer;
use crate::openai::with;
use crate::support::{Serving, Setup, loader, told};
use serde_json::{Value, json};
use std::path::Path;

/// A server whose model says one of several things: each begins with a word that the last message is.
pub fn telling(template: &str, things: &[&[&str]], special: &[&str]) -> Serving {
    let mut words = vec!["?"];
    let mut follows = vec![0];
    let ends: usize = 1 + things.iter().map(|thing| thing.len()).sum::<usize>();
    for thing in things {
        for (at, word) in thing.iter().enumerate() {
            words.push(word);
            follows.push(if at + 1 < thing.len() { words.len() as u32 } else { ends as u32 });
        }
    }
    words.push("END");
    follows.push(ends as u32);
    let folder = told(&words, &follows, &[ends as u32]);
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("written");
    mark_special(folder.path(), &words, special);
    let loader = loader(folder.path(), None);
    Setup { folder: Some(folder), ..Setup::new(vec![("told", loader)]) }.ready()
}

/// Makes some of a tokenizer's words special tokens.
pub fn mark_special(folder: &Path, words: &[&str], special: &[&str]) {
    let file = folder.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&file).expect("read")).expect("JSON");
    let added = words.iter().enumerate().filter(|(_, word)| special.contains(word)).map(|(id, word)| {
        json!({"id": id, "content": word, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
    });
    tokenizer["added_tokens"] = added.collect();
    std::fs::write(&file, tokenizer.to_string()).expect("written");
}

/// Prints the last message, and how many tools there are where nobody sees it.
pub const TEMPLATE: &str = "{# <tool_call> </think> #}{{ tools|length if tools }} {{ 'back' if messages[-1].role == 'tool' else messages[-1].content }}";
pub const THINKS: [&str; 4] = ["think", "<think>\nHm", "m.\n</think>", "\n\nYes."];
pub const CALLS: [&str; 8] = [
    "call",
    "I look.",
    "\n<tool",
    "_call>\n{\"name\": \"weather\", ",
    "\"arguments\": {\"city\": ",
    "\"Paris\"",
    "}}",
    "\n</tool_call>",
];
const TWICE: [&str; 3] = [
    "twice",
    "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
    "\n<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>",
];
const BACK: [&str; 3] = ["back", "It rains ", "there."];
const UNKNOWN: [&str; 2] = ["unknown", "<tool_call>{\"name\": \"launch\", \"arguments\": {}}</tool_call> no."];

fn server() -> Serving {
    telling(TEMPLATE, &[&THINKS, &CALLS, &TWICE, &BACK, &UNKNOWN], &[])
}

pub fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": parameters}})
}

fn chat(word: &str) -> Value {
    json!({"messages": [{"role": "user", "content": word}], "tools": [tool()], "temperature": 0})
}

/// The message of a stream put together as clients do, with its reason, and the pieces of each field.
fn joined(answer: &Answer) -> (Value, Value) {
    let mut message = json!({});
    let mut reason = Value::Null;
    for event in answer.events() {
        let choice = &event["choices"][0];
        for name in ["content", "reasoning_content", "reasoning"] {
            if let Some(text) = choice["delta"][name].as_str() {
                message[name] = json!(message[name].as_str().unwrap_or_default().to_owned() + text);
            }
        }
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("an index") as usize;
            if message["tool_calls"].is_null() {
                message["tool_calls"] = json!([]);
            }
            if let Some(id) = call["id"].as_str() {
                assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(index));
                assert_eq!((&call["type"], &call["function"]["arguments"]), (&json!("function"), &json!("")));
                let made = json!({"id": id, "type": "function", "function": {"name": call["function"]["name"], "arguments": ""}});
                message["tool_calls"].as_array_mut().expect("a list").push(made);
            } else {
                let arguments = &mut message["tool_calls"][index]["function"]["arguments"];
                *arguments = json!(
                    arguments.as_str().expect("begun").to_owned()
                        + call["function"]["arguments"].as_str().expect("a piece")
                );
            }
        }
        if choice["finish_reason"].is_string() {
            reason = choice["finish_reason"].clone();
        }
    }
    (message, reason)
}

/// Without what is fresh each time.
fn plain(mut message: Value) -> Value {
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let id = call["id"].as_str().expect("an id").to_owned();
        assert!(id.starts_with("call_") && id.len() > 20, "{id}");
        call.as_object_mut().expect("an object").shift_remove("id");
    }
    message
}

/// The message and reason, which are the same streamed and not.
pub fn said(serving: &Serving, body: &Value) -> (Value, String) {
    let whole = serving.post("/v1/chat/completions", body).good()["choices"][0].clone();
    let (mut streamed, reason) = joined(&serving.post("/v1/chat/completions", &with(body, json!({"stream": true}))));
    if streamed["content"] == "" && streamed.get("tool_calls").is_some() {
        streamed["content"] = Value::Null;
    }
    let mut message = plain(whole["message"].clone());
    let map = message.as_object_mut().expect("an object");
    assert_eq!((map.shift_remove("role"), map.shift_remove("refusal")), (Some(json!("assistant")), Some(Value::Null)));
    assert_eq!((&plain(streamed), &reason), (&message, &whole["finish_reason"]), "{body}");
    (message, whole["finish_reason"].as_str().expect("a reason").to_owned())
}

fn call(arguments: &str) -> Value {
    json!({"type": "function", "function": {"name": "weather", "arguments": arguments}})
}

#[test]
fn openais_calls() {
    let serving = server();
    let paris = call("{\"city\": \"Paris\"}");
    assert_eq!(
        said(&serving, &chat("call")),
        (json!({"content": "I look.", "tool_calls": [paris]}), "tool_calls".into())
    );
    let rome = call("{\"city\": \"Rome\"}");
    assert_eq!(
        said(&serving, &chat("twice")),
        (json!({"content": null, "tool_calls": [rome, call("{}")]}), "tool_calls".into())
    );
    let single = with(&chat("twice"), json!({"parallel_tool_calls": false}));
    assert_eq!(said(&serving, &single), (json!({"content": null, "tool_calls": [rome]}), "tool_calls".into()));
    // Cut before it is whole, of an unknown function, or where nothing may be called: text.
    let cut = with(&chat("call"), json!({"max_tokens": 4}));
    let text = "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":";
    assert_eq!(said(&serving, &cut), (json!({"content": format!("{text} ")}), "length".into()));
    assert_eq!(said(&serving, &chat("unknown")), (json!({"content": UNKNOWN[1]}), "stop".into()));
    for changes in [json!({"tool_choice": "none"}), json!({"tools": []}), json!({"tools": null, "tool_choice": "auto"})]
    {
        let (message, reason) = said(&serving, &with(&chat("call"), changes));
        assert_eq!((message, reason.as_str()), (json!({"content": CALLS[1..].concat()}), "stop"));
    }
    // Log-probabilities are those of all tokens.
    let body = with(&chat("call"), json!({"logprobs": true, "stream": true}));
    let events = serving.post("/v1/chat/completions", &body).events();
    let tokens: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    let spelled: String = tokens.iter().filter_map(|token| token["token"].as_str()).collect();
    assert_eq!(spelled, CALLS[1..].concat() + "END");
    // The conversation goes on with what was returned.
    let first = serving.post("/v1/chat/completions", &chat("call")).good()["choices"][0]["message"].clone();
    let id = first["tool_calls"][0]["id"].clone();
    let back = json!({"messages": [
        {"role": "user", "content": "call"}, first, {"role": "tool", "tool_call_id": id, "content": "rain"},
    ]});
    assert_eq!(said(&serving, &with(&chat(""), back)), (json!({"content": "It rains there."}), "stop".into()));
}

#[test]
fn thoughts_are_told_apart() {
    let serving = server();
    let thought = json!({"content": "Yes.", "reasoning_content": "Hmm.", "reasoning": "Hmm."});
    let body = json!({"messages": [{"role": "user", "content": "think"}]});
    assert_eq!(said(&serving, &body), (thought, "stop".into()));
    for raw in [json!({"reasoning_format": "none"}), json!({"reasoning_format": "none", "tools": [tool()]})] {
        assert_eq!(said(&serving, &with(&body, raw)).0, json!({"content": THINKS[1..].concat()}));
    }
    let message =
        &serving.post("/v1/messages", &with(&body, json!({"model": "told", "max_tokens": 20}))).good()["content"];
    assert_eq!((&message[0]["type"], &message[0]["thinking"]), (&json!("thinking"), &json!("Hmm.")));
    assert_eq!(message[1], json!({"type": "text", "text": "Yes."}));
    let ours = json!({"model": "told", "stream": false, "think": true});
    let message = serving.post("/api/chat", &with(&body, ours.clone())).good()["message"].clone();
    assert_eq!(message, json!({"role": "assistant", "content": "Yes.", "thinking": "Hmm."}));
    let written = serving.post("/api/generate", &with(&ours, json!({"prompt": "think"}))).good();
    assert_eq!((&written["response"], &written["thinking"]), (&json!("Yes."), &json!("Hmm.")));
}

#[test]
fn a_prompt_that_opens_a_thought() {
    let template = "{{ messages[-1].content }} {% if enable_thinking is not defined or enable_thinking %}<think>{% else %}</think>{% endif %}";
    let things: [&[&str]; 2] = [&["<think>", "Hm", "m."], &["</think>", "\n\nYes."]];
    let serving = telling(template, &things, &["<think>", "</think>"]);
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    let thought = json!({"reasoning_content": "Hmm.", "reasoning": "Hmm."});
    assert_eq!(said(&serving, &body), (with(&json!({"content": ""}), thought), "stop".into()));
    let off = with(&body, json!({"chat_template_kwargs": {"enable_thinking": false}}));
    assert_eq!(said(&serving, &off), (json!({"content": "\n\nYes."}), "stop".into()));
    let quiet = json!({"model": "told", "max_tokens": 20, "thinking": {"type": "disabled"}});
    assert_eq!(
        serving.post("/v1/messages", &with(&body, quiet)).good()["content"],
        json!([{"type": "text", "text": "\n\nYes."}])
    );
}

#[test]
fn special_tokens_that_mark_calls_are_seen() {
    let things: [&[&str]; 1] =
        [&["call", "<tool_call>", "{\"name\": \"weather\", \"arguments\": {}}", "</tool_call>", "<|other|>"]];
    let serving = telling(TEMPLATE, &things, &["<tool_call>", "</tool_call>", "<|other|>"]);
    assert_eq!(
        said(&serving, &chat("call")),
        (json!({"content": null, "tool_calls": [call("{}")]}), "tool_calls".into())
    );
    let none = with(&chat("call"), json!({"tools": []}));
    assert_eq!(
        said(&serving, &none).0,
        json!({"content": "{\"name\": \"weather\", \"arguments\": {}}"}),
        "they are hidden else"
    );
}

/// The events of a stream of Anthropic's.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let events = answer.body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}

/// The blocks of a stream, put together as clients do.
fn blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let (mut open, mut input) = (false, String::new());
    for event in events {
        let index = event["index"].as_u64().unwrap_or(0) as usize;
        match event["type"].as_str().expect("a type") {
            "content_block_start" => {
                assert!(!open && index == blocks.len(), "{event}");
                open = true;
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert!(open && index + 1 == blocks.len(), "{event}");
                let delta = &event["delta"];
                let name = match delta["type"].as_str().expect("a type") {
                    "input_json_delta" => {
                        input += delta["partial_json"].as_str().expect("a text");
                        continue;
                    }
                    "text_delta" => "text",
                    "thinking_delta" => "thinking",
                    "signature_delta" => "signature",
                    other => panic!("{other}"),
                };
                let block = &mut blocks[index][name];
                *block = json!(block.as_str().expect("begun").to_owned() + delta[name].as_str().expect("a text"));
            }
            "content_block_stop" => {
                assert!(open && index + 1 == blocks.len(), "{event}");
                open = false;
                if blocks[index]["type"] == "tool_use" {
                    blocks[index]["input"] = serde_json::from_str(&std::mem::take(&mut input)).expect("JSON");
                }
            }
            _ => {}
        }
    }
    assert!(!open);
    blocks
}

#[test]
fn anthropics_calls() {
    let serving = server();
    let schema = tool()["function"]["parameters"].clone();
    let tools = json!([{"name": "weather", "description": "The weather", "input_schema": schema}]);
    let base = json!({"model": "told", "max_tokens": 30, "tools": tools});
    let ask = |word: &str| with(&base, json!({"messages": [{"role": "user", "content": word}]}));
    let unnamed = |blocks: Value| -> Value {
        let mut blocks = blocks;
        for block in blocks.as_array_mut().expect("blocks") {
            if let Some(id) = block.as_object_mut().expect("a block").shift_remove("id") {
                assert!(id.as_str().is_some_and(|id| id.starts_with("toolu_") && id.len() > 20));
            }
        }
        blocks
    };
    let both = |body: &Value| {
        let whole = serving.post("/v1/messages", body).good();
        let events = events(&serving.post("/v1/messages", &with(body, json!({"stream": true}))));
        let end = events.iter().find(|event| event["type"] == "message_delta").expect("an end");
        assert_eq!(end["delta"]["stop_reason"], whole["stop_reason"]);
        assert_eq!(unnamed(Value::Array(blocks(&events))), unnamed(whole["content"].clone()));
        (unnamed(whole["content"].clone()), whole["stop_reason"].as_str().expect("a reason").to_owned())
    };
    let used = |city: &str| json!({"type": "tool_use", "name": "weather", "input": {"city": city}});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(both(&ask("call")), (json!([text("I look."), used("Paris")]), "tool_use".into()));
    let single = with(&ask("twice"), json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}));
    assert_eq!(both(&single), (json!([used("Rome")]), "tool_use".into()));
    assert_eq!(both(&with(&ask("twice"), json!({"tool_choice": {"type": "none"}}))).1, "end_turn");
    let thought = both(&with(&ask("think"), json!({"thinking": {"type": "enabled", "budget_tokens": 2048}}))).0;
    assert_eq!((&thought[0]["thinking"], &thought[1]["text"]), (&json!("Hmm."), &json!("Yes.")));
    assert!(thought[0]["signature"].as_str().is_some_and(|signature| !signature.is_empty()));
    // The conversation goes on, with everything that stands in it.
    let id = "toolu_1";
    let history = json!({"messages": [
        {"role": "user", "content": "call"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "x"}, {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."}, {"type": "tool_use", "id": id, "name": "weather", "input": {"city": "Paris"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "is_error": true, "content": [{"type": "text", "text": "none"}]}]},
    ]});
    assert_eq!(both(&with(&base, history.clone())), (json!([text("It rains there.")]), "end_turn".into()));
    let mut counted = with(&base, history);
    counted.as_object_mut().expect("an object").shift_remove("max_tokens");
    assert!(serving.post("/v1/messages/count_tokens", &counted).good()["input_tokens"].as_u64() > Some(0));
}

#[test]
fn ollamas_calls() {
    let serving = server();
    let base = json!({"model": "told", "tools": [tool()]});
    let both = |messages: Value| {
        let body = with(&base, json!({"messages": messages}));
        let whole = serving.post("/api/chat", &with(&body, json!({"stream": false}))).good();
        let stream = serving.post("/api/chat", &body);
        let mut message = json!({"role": "assistant", "content": ""});
        for line in stream.body.lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let text = message["content"].as_str().expect("a text").to_owned();
            message["content"] = json!(text + line["message"]["content"].as_str().expect("a text"));
            for call in line["message"]["tool_calls"].as_array().into_iter().flatten() {
                if message["tool_calls"].is_null() {
                    message["tool_calls"] = json!([]);
                }
                message["tool_calls"].as_array_mut().expect("a list").push(call.clone());
            }
        }
        assert_eq!(message, whole["message"]);
        assert_eq!(whole["done_reason"], "stop");
        message
    };
    let user = |word: &str| json!({"role": "user", "content": word});
    let called = json!([{"function": {"name": "weather", "arguments": {"city": "Paris"}}}]);
    let message = json!({"role": "assistant", "content": "I look.", "tool_calls": called});
    assert_eq!(both(json!([user("call")])), message);
    let back = json!([user("call"), message, {"role": "tool", "tool_name": "weather", "content": "rain"}]);
    assert_eq!(both(back)["content"], "It rains there.");
}

/// A server whose model would say nothing of sense, and has every character to say it in.
pub fn babbling(template: &str) -> Serving {
    let characters: Vec<String> =
        ("]\"}:{<>".chars().chain('!'..='~').chain(['\n', ' '])).map(String::from).fold(Vec::new(), |mut all, c| {
            if !all.contains(&c) {
                all.push(c);
            }
            all
        });
    let mut words = vec!["?", "call"];
    words.extend(characters.iter().map(String::as_str).filter(|c| *c != "?"));
    words.push("END");
    let end = words.len() as u32 - 1;
    let follows: Vec<u32> = words.iter().map(|word| if [">", "}", "]"].contains(word) { end } else { 0 }).collect();
    let folder = told(&words, &follows, &[end]);
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("written");
    let loader = loader(folder.path(), None);
    Setup { folder: Some(folder), ..Setup::new(vec![("told", loader)]) }.ready()
}

/// A schema that leaves one object.
pub fn fixed() -> Value {
    json!({"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": false})
}

#[test]
fn calls_that_must_be_made_are() {
    let tool = json!({"type": "function", "function": {"name": "weather", "strict": true, "parameters": fixed()}});
    let other = json!({"type": "function", "function": {"name": "aim", "parameters": {"type": "object"}}});
    for template in [
        TEMPLATE,
        "{{ tools|length if tools }} {{ messages[-1].content }}",
        "{# [TOOL_CALLS] #}{{ tools }} call",
        "{# [TOOL_CALLS][ARGS] #}{{ tools }} call",
        "{# <|tool_call|> #}{{ tools }} call",
        "{# <|channel|> #}{{ tools }} call",
        "no word of it: call",
    ] {
        let serving = babbling(template);
        let body = json!({"messages": [{"role": "user", "content": "call"}], "tools": [tool, other], "temperature": 0, "max_tokens": 150});
        let named = json!({"type": "function", "function": {"name": "weather"}});
        let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}});
        for (choice, single) in [(&named, false), (&allowed, true)] {
            let body = with(&body, json!({"tool_choice": choice, "parallel_tool_calls": !single}));
            let (message, reason) = said(&serving, &body);
            assert_eq!(reason, "tool_calls", "{template} {message}");
            let calls = message["tool_calls"].as_array().expect("calls");
            for call in calls {
                let given: Value =
                    serde_json::from_str(call["function"]["arguments"].as_str().expect("a text")).expect("JSON");
                assert_eq!(
                    (&call["function"]["name"], given),
                    (&json!("weather"), json!({"city": "Paris"})),
                    "{template}"
                );
            }
            assert!(!single || calls.len() == 1);
            assert_eq!(message["content"], Value::Null, "{template}");
        }
        // The call comes before whatever else the answer should be.
        let overridden =
            json!({"tool_choice": named, "parallel_tool_calls": false, "response_format": {"type": "json_object"}});
        let (message, reason) = said(&serving, &with(&body, overridden));
        assert_eq!(
            (reason, message["tool_calls"][0]["function"]["name"].clone()),
            ("tool_calls".to_owned(), json!("weather"))
        );
        let theirs = json!({"model": "told", "max_tokens": 150, "temperature": 0, "tools": [{"name": "weather", "input_schema": fixed()}],
            "messages": [{"role": "user", "content": "call"}]});
        for choice in
            [json!({"type": "any", "disable_parallel_tool_use": true}), json!({"type": "tool", "name": "weather"})]
        {
            let answer = serving.post("/v1/messages", &with(&theirs, json!({"tool_choice": choice}))).good();
            assert_eq!(
                (&answer["content"][0]["input"], &answer["stop_reason"]),
                (&json!({"city": "Paris"}), &json!("tool_use")),
                "{template} {answer}"
            );
        }
    }
}

#[test]
fn what_must_be_called_is_thought_over_where_a_thought_was_begun() {
    let serving =
        babbling("{{ tools|length if tools }} {{ messages[-1].content }} {# <think></think> <tool_call> #}<think>");
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": fixed()}});
    // The model closes its thought as soon as it is told what is likely.
    let body = json!({"messages": [{"role": "user", "content": "call"}], "tools": [tool], "temperature": 0, "max_tokens": 12, "tool_choice": "required"});
    let (message, reason) = said(&serving, &body);
    assert_eq!((reason.as_str(), message.get("tool_calls")), ("length", None), "it thinks until it is cut");
    assert!(message["reasoning_content"].as_str().is_some_and(|thought| !thought.is_empty()), "{message}");
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "contentEncoding": "base64", "not": {}}}});
    let strict = json!({"type": "function", "function": {"name": "weather", "strict": true, "parameters": schema}});
    let refused = serving.post("/v1/chat/completions", &with(&body, json!({"tools": [strict]})));
    assert_eq!(refused.refused(400)["code"], "invalid_constraint");
}

#[test]
fn mistakes_are_named() {
    let serving = server();
    let called = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    ]});
    let user = json!({"role": "user", "content": "call"});
    let history = |last: Value| json!({"messages": [user, called, last]});
    let of_call = |call: Value| json!({"messages": [user, {"role": "assistant", "tool_calls": [call]}]});
    let function = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    for (changes, param) in [
        (history(json!({"role": "tool", "content": "x"})), "messages[2].tool_call_id"),
        (history(json!({"role": "tool", "content": "x", "tool_call_id": "b"})), "messages[2].tool_call_id"),
        (history(json!({"role": "tool", "content": "x", "tool_call_id": 1})), "messages[2].tool_call_id"),
        (history(json!({"role": "tool", "tool_call_id": "a"})), "messages[2].content"),
        (of_call(json!({"function": {"name": "f", "arguments": "{"}})), "messages[1].tool_calls[0].function.arguments"),
        (
            of_call(json!({"function": {"name": "f", "arguments": "[1]"}})),
            "messages[1].tool_calls[0].function.arguments",
        ),
        (of_call(json!({"function": {"name": "f", "arguments": 1}})), "messages[1].tool_calls[0].function.arguments"),
        (of_call(json!({"type": "custom", "function": {"name": "f"}})), "messages[1].tool_calls[0].type"),
        (of_call(json!({"id": "x"})), "messages[1].tool_calls[0].function"),
        (json!({"tools": [1]}), "tools[0]"),
        (json!({"tools": [{"type": "retrieval"}]}), "tools[0].type"),
        (json!({"tools": [{}]}), "tools[0].function"),
        (json!({"tools": vec![tool(); 129]}), "tools"),
        (json!({"tools": [tool(), tool()]}), "tools[1].function.name"),
        (function(json!({})), "tools[0].function.name"),
        (function(json!({"name": ""})), "tools[0].function.name"),
        (function(json!({"name": "a b"})), "tools[0].function.name"),
        (function(json!({"name": "x".repeat(129)})), "tools[0].function.name"),
        (function(json!({"name": "x", "parameters": "x"})), "tools[0].function.parameters"),
        (function(json!({"name": "x", "description": 1})), "tools[0].function.description"),
        (function(json!({"name": "x", "surprise": 1})), "tools[0].function.surprise"),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tool_choice": 1}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "function": {"name": "none"}}}), "tool_choice"),
        (json!({"tool_choice": {"type": "function"}}), "tool_choice.name"),
        (json!({"tool_choice": {"type": "x"}}), "tool_choice.type"),
        (json!({"tool_choice": {"type": "allowed_tools"}}), "tool_choice.allowed_tools"),
        (json!({"tools": [], "tool_choice": "required"}), "tool_choice"),
        (json!({"tools": null, "tool_choice": {"type": "function", "function": {"name": "weather"}}}), "tool_choice"),
        (json!({"parallel_tool_calls": 1}), "parallel_tool_calls"),
        (json!({"reasoning_format": "x"}), "reasoning_format"),
    ] {
        let error = serving.post("/v1/chat/completions", &with(&chat("call"), changes.clone())).refused(400);
        assert_eq!(error["param"], param, "{changes}: {error}");
    }
    let base = json!({"model": "told", "max_tokens": 5, "messages": [{"role": "user", "content": "call"}]});
    let blocks = |role: &str, block: Value| json!({"messages": [{"role": role, "content": [block]}]});
    for (changes, words) in [
        (json!({"tools": [{"name": "x"}]}), "tools[0].input_schema"),
        (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), "tools[0].type"),
        (json!({"tool_choice": {"type": "tool", "name": "x"}}), "tool_choice"),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
        (json!({"tools": [{"name": "f", "input_schema": {}, "strict": 1}]}), "tools[0].strict"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1}}), "thinking.budget_tokens"),
        (json!({"thinking": {"type": "x"}}), "thinking.type"),
        (blocks("user", json!({"type": "tool_result", "tool_use_id": "x"})), "messages[0].content[0].tool_use_id"),
        (
            blocks("assistant", json!({"type": "tool_use", "id": "x", "name": "f", "input": 1})),
            "messages[0].content[0].input",
        ),
        (
            blocks("user", json!({"type": "tool_use", "id": "x", "name": "f", "input": {}})),
            "messages[0].content[0] is of type",
        ),
        (blocks("assistant", json!({"type": "tool_result", "tool_use_id": "x"})), "messages[0].content[0] is of type"),
    ] {
        let answer = serving.post("/v1/messages", &with(&base, changes.clone()));
        assert_eq!(answer.status, 400, "{changes}: {answer:?}");
        assert!(
            answer.json()["error"]["message"].as_str().is_some_and(|message| message.contains(words)),
            "{answer:?}"
        );
    }
    for (changes, words) in
        [(json!({"tools": "x"}), "tools"), (json!({"think": "maybe"}), "think"), (json!({"think": 1}), "think")]
    {
        let answer = serving.post("/api/chat", &with(&base, with(&json!({"max_tokens": null}), changes)));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.body.contains(words), "{answer:?}");
    }
    serving.until_idle();
}

#[test]
fn ollama_is_told_what_the_template_has() {
    let shown = |template: &str| {
        let serving = telling(template, &[&BACK], &[]);
        serving.post("/api/show", &json!({"model": "told"})).good()["capabilities"].clone()
    };
    assert_eq!(shown("{{ messages[-1].content }}"), json!(["completion", "embedding"]));
    assert_eq!(shown("{{ tools }} {{ messages[-1].content }}"), json!(["completion", "embedding", "tools"]));
    assert_eq!(shown("{# </think> #}{{ messages[-1].content }}"), json!(["completion", "embedding", "thinking"]));
    assert_eq!(shown(TEMPLATE), json!(["completion", "embedding", "tools", "thinking"]));
}
