//! The dialects of Anthropic and Ollama: the answers of OpenAI's, in other words.

use crate::openai::with;
use crate::support::{Serving, Setup, golden, loader, tiny};
use serde_json::{Value, json};

fn server() -> (Serving, [tempfile::TempDir; 2]) {
    let folders = [tiny(json!({})), golden("bert-base", json!({}))];
    let models = vec![("tiny", loader(folders[0].path(), None)), ("encoder", loader(folders[1].path(), None))];
    (Setup::new(models).ready(), folders)
}

/// The text of the answer that OpenAI's dialect gives, and what it cost.
fn plain(serving: &Serving, messages: &Value, settings: Value) -> (String, Value) {
    let answer = serving.post("/v1/chat/completions", &with(&json!({"messages": messages}), settings)).good();
    (answer["choices"][0]["message"]["content"].as_str().expect("a text").into(), answer["usage"].clone())
}

/// The events of a stream by their names.
fn events(body: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("JSON");
        let name = name.strip_prefix("event: ").expect("a name").to_owned();
        assert_eq!(data["type"], name);
        (name, data)
    };
    body.split_terminator("\n\n").map(event).collect()
}

#[test]
fn anthropics_messages() {
    let (serving, _folders) = server();
    let openai = json!([
        {"role": "system", "content": "t20\nt21"},
        {"role": "user", "content": "t5 t6"},
    ]);
    let body = json!({
        "model": "tiny", "max_tokens": 12, "metadata": {"user_id": "x"},
        "system": [{"type": "text", "text": "t20"}, {"type": "text", "text": "t21", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "t5 t6"}]}],
    });
    let (text, usage) = plain(&serving, &openai, json!({"max_tokens": 12}));
    let answer = serving.post("/v1/messages", &body).good();
    assert_eq!(answer["content"], json!([{"type": "text", "text": text}]));
    assert_eq!(
        (&answer["type"], &answer["role"], &answer["model"]),
        (&json!("message"), &json!("assistant"), &json!("tiny"))
    );
    assert_eq!(
        (&answer["usage"]["input_tokens"], &answer["usage"]["output_tokens"]),
        (&usage["prompt_tokens"], &usage["completion_tokens"])
    );
    assert!(answer["id"].as_str().is_some_and(|id| id.starts_with("msg_")));
    let stream = serving.post("/v1/messages", &with(&body, json!({"stream": true})));
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    let events = events(&stream.body);
    let names: Vec<&str> =
        events.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "content_block_delta").collect();
    assert_eq!(
        names,
        ["message_start", "ping", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    );
    let deltas = events.iter().filter(|(name, _)| name == "content_block_delta");
    let streamed: String = deltas.map(|(_, data)| data["delta"]["text"].as_str().expect("a text")).collect();
    assert_eq!(streamed, text);
    let find =
        |wanted: &str| events.iter().find(|(name, _)| name == wanted).map(|(_, data)| data.clone()).expect("there");
    assert_eq!(find("message_start")["message"]["usage"]["input_tokens"], usage["prompt_tokens"]);
    assert_eq!(find("message_start")["message"]["content"], json!([]));
    assert_eq!(find("message_delta")["delta"]["stop_reason"], answer["stop_reason"]);
    assert_eq!(find("message_delta")["usage"]["output_tokens"], usage["completion_tokens"]);
    // A limit, a stop sequence.
    let short = serving.post("/v1/messages", &with(&body, json!({"max_tokens": 1}))).good();
    assert_eq!((&short["stop_reason"], &short["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    let word = text.split(' ').nth(2).expect("a third word").to_owned();
    let stopped = serving.post("/v1/messages", &with(&body, json!({"stop_sequences": [word]}))).good();
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(word)));
    // What it costs, before it is asked; and an answer whose beginning is given.
    let mut asked = body.clone();
    asked.as_object_mut().expect("an object").retain(|name, _| name != "max_tokens" && name != "metadata");
    assert_eq!(
        serving.post("/v1/messages/count_tokens", &asked).good(),
        json!({"input_tokens": usage["prompt_tokens"]})
    );
    let begun = json!({"messages": [{"role": "user", "content": "t5"}, {"role": "assistant", "content": "t6"}]});
    let on = serving.post("/v1/messages/count_tokens", &with(&asked, begun)).good();
    // Both messages and their marks, and no mark of a new turn.
    assert_eq!(on["input_tokens"], 7);
}

#[test]
fn anthropics_errors() {
    let (serving, _folders) = server();
    let good = json!({"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": "t5"}]});
    serving.post("/v1/messages", &good).good();
    for (changes, status, kind) in [
        (json!({"model": "none"}), 404, "not_found_error"),
        (json!({"max_tokens": 0}), 400, "invalid_request_error"),
        (json!({"max_tokens": null}), 400, "invalid_request_error"),
        (json!({"temperature": 1.5}), 400, "invalid_request_error"),
        (json!({"messages": []}), 400, "invalid_request_error"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), 400, "invalid_request_error"),
        (json!({"messages": [{"role": "user", "content": []}]}), 400, "invalid_request_error"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1"}}]}]}),
            400,
            "invalid_request_error",
        ),
        (json!({"tools": [{"name": "x"}]}), 400, "invalid_request_error"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 10}}), 400, "invalid_request_error"),
        (json!({"surprise": 1}), 400, "invalid_request_error"),
        (json!({"messages": [{"role": "user", "content": "t5 ".repeat(300)}]}), 400, "invalid_request_error"),
        (json!({"model": "encoder"}), 400, "invalid_request_error"),
    ] {
        let answer = serving.post("/v1/messages", &with(&good, changes.clone()));
        assert_eq!(answer.status, status, "{changes}: {answer:?}");
        let body = answer.json();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)), "{changes}");
        assert!(body["error"]["message"].is_string());
    }
    assert_eq!(serving.get("/v1/messages").json()["type"], "error");
}

/// The lines of a stream.
fn lines(body: &str) -> Vec<Value> {
    body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn ollamas_answers() {
    let (serving, _folders) = server();
    let messages = json!([{"role": "system", "content": "t20"}, {"role": "user", "content": "t5 t6"}]);
    let theirs =
        json!({"temperature": 1.0, "seed": 4, "num_predict": 12, "top_k": 30, "repeat_penalty": 1.1, "num_ctx": 64});
    let ours = json!({"temperature": 1.0, "seed": 4, "max_tokens": 12, "top_k": 30, "repetition_penalty": 1.1});
    let (text, usage) = plain(&serving, &messages, ours.clone());
    let chat = json!({"model": "tiny:latest", "messages": messages, "options": theirs, "keep_alive": "5m"});
    let generate = json!({"model": "tiny", "system": "t20", "prompt": "t5 t6", "options": theirs});
    for (path, body, place) in [("/api/chat", chat, "/message/content"), ("/api/generate", generate, "/response")] {
        let whole = serving.post(path, &with(&body, json!({"stream": false}))).good();
        assert_eq!(whole.pointer(place), Some(&json!(text)), "{whole}");
        assert_eq!(
            (&whole["done"], &whole["done_reason"], &whole["model"]),
            (&json!(true), &json!("length"), &json!("tiny"))
        );
        assert_eq!(
            (&whole["prompt_eval_count"], &whole["eval_count"]),
            (&usage["prompt_tokens"], &usage["completion_tokens"])
        );
        // A stream is what is meant unless the request says otherwise.
        let stream = serving.post(path, &body);
        assert_eq!(stream.header("content-type"), Some("application/x-ndjson"));
        let lines = lines(&stream.body);
        let streamed: String =
            lines.iter().map(|line| line.pointer(place).and_then(Value::as_str).expect("a text")).collect();
        assert_eq!(streamed, text);
        let (last, others) = lines.split_last().expect("lines");
        assert!(others.iter().all(|line| line["done"] == false && line["created_at"].is_string()));
        assert_eq!((&last["done"], &last["eval_count"]), (&json!(true), &usage["completion_tokens"]));
        assert!(last["eval_duration"].as_u64().is_some() && last["total_duration"].as_u64().is_some());
    }
    let raw = serving.post(
        "/api/generate",
        &json!({"model": "tiny", "prompt": "t5 t6", "raw": true, "stream": false, "options": theirs}),
    );
    let completed = serving.post("/v1/completions", &with(&ours, json!({"prompt": "t5 t6"}))).good();
    assert_eq!(raw.good()["response"], completed["choices"][0]["text"]);
    for (path, body) in
        [("/api/generate", json!({"model": "tiny"})), ("/api/chat", json!({"model": "tiny", "messages": []}))]
    {
        assert_eq!(serving.post(path, &body).good()["done_reason"], "load");
    }
}

#[test]
fn ollamas_models_and_errors() {
    let (serving, _folders) = server();
    assert!(serving.get("/api/version").good()["version"].is_string());
    for path in ["/api/tags", "/api/ps"] {
        let models = serving.get(path).good()["models"].clone();
        let names: Vec<&str> =
            models.as_array().expect("models").iter().filter_map(|model| model["name"].as_str()).collect();
        assert_eq!(names, ["tiny", "encoder"]);
        assert_eq!(models[0]["details"]["family"], "llama");
        assert!(models[0]["size"].as_u64().is_some_and(|size| size > 0));
    }
    let shown = serving.post("/api/show", &json!({"model": "tiny"})).good();
    assert_eq!(shown["capabilities"], json!(["completion", "embedding"]));
    assert_eq!(shown["model_info"]["llama.context_length"], 128);
    for (path, body, status) in [
        ("/api/show", json!({"model": "none"}), 404),
        ("/api/show", json!({}), 400),
        (
            "/api/chat",
            json!({"model": "tiny", "messages": [{"role": "user", "content": "t5", "images": ["AAAA"]}]}),
            400,
        ),
        ("/api/chat", json!({"model": "tiny", "messages": [{"role": "user", "content": "t5"}], "tools": [{}]}), 400),
        ("/api/chat", json!({"model": "tiny", "messages": [{"role": "user", "content": "t5"}], "format": "json"}), 400),
        ("/api/chat", json!({"model": "tiny", "messages": "x"}), 400),
        ("/api/generate", json!({"model": "tiny", "prompt": "t5", "template": "{{ .Prompt }}"}), 400),
        ("/api/generate", json!({"model": "tiny", "prompt": "t5", "context": [1]}), 400),
        ("/api/generate", json!({"model": "tiny", "prompt": "t5", "options": {"temperature": -1}}), 400),
        ("/api/generate", json!({"model": "tiny", "prompt": "t5", "options": {"surprise": 1}}), 400),
        ("/api/generate", json!({"model": "tiny", "prompt": "t5", "options": {"num_predict": "x"}}), 400),
        ("/api/generate", json!({"model": "encoder", "prompt": "t5"}), 400),
        ("/api/embed", json!({"model": "encoder"}), 400),
        ("/api/embed", json!({"model": "encoder", "input": []}), 400),
        ("/api/nothing", json!({}), 404),
    ] {
        let answer = serving.post(path, &body);
        assert_eq!(answer.status, status, "{path} {body}: {answer:?}");
        assert!(answer.json()["error"].is_string(), "{answer:?}");
    }
}

/// Bodies that mean nothing are refused by every route, in the shape of its dialect.
#[test]
fn every_route_refuses_what_means_nothing() {
    let (serving, _folders) = server();
    let ours = [
        "/v1/rerank",
        "/v1/classify",
        "/v1/tag",
        "/v1/fill",
        "/v1/answer",
        "/v1/zero-shot",
        "/v1/translate",
        "/v1/summarize",
    ];
    let theirs = ["/embed", "/similarity", "/predict", "/rerank", "/tokenize", "/decode"];
    let others = [
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/generate",
        "/api/chat",
        "/api/embed",
        "/api/embeddings",
        "/api/show",
    ];
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let bodies: [&[u8]; 12] = [
        b"",
        b"{",
        b"[]",
        b"\"x\"",
        b"{}",
        b"{\"model\": 1}",
        b"{\"model\": \"none\"}",
        b"{\"model\": \"tiny\", \"surprise\": 1}",
        b"{\"model\": \"tiny\", \"model\": \"tiny\"}",
        b"{\"model\": \"\xff\"}",
        br#"{"model": "\u0000"}"#,
        deep.as_bytes(),
    ];
    for path in ours.iter().chain(&theirs).chain(&others) {
        for body in bodies {
            let answer = serving.post_bytes(path, body);
            assert!((400..500).contains(&answer.status), "{path} {}: {answer:?}", String::from_utf8_lossy(body));
            let error = &answer.json()["error"];
            let words = if theirs.contains(path) || path.starts_with("/api/") { error } else { &error["message"] };
            assert!(words.as_str().is_some_and(|words| !words.is_empty()), "{path}: {answer:?}");
        }
        let deep = serving.post_bytes(path, &vec![b'['; 1_000_000]);
        assert_eq!(deep.status, 400, "{path}");
        assert_eq!(serving.get(path).status, 405, "{path}");
    }
    serving.until_idle();
}
