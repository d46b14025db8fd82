//! Q2: requests made of our own `/openapi.json`, most of them right or nearly so. None may be the server's fault.

use crate::client::{self, request, with};
use crate::common::tiny;
use crate::serving::{SIZE, Serving, alone, decoder, report};
use attend_testkit::files::{adapter, write_all};
use attend_testkit::golden::Random;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

/// Models of every kind of task, and the names that requests may call them by.
const MODELS: [&str; 8] =
    ["bert-base", "bert-seqcls", "bert-tokcls", "bert-mlm", "bert-qa", "t5-v1.1", "lora-llama/base", "roberta-seqcls"];

fn server() -> Serving {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let writer = decoder(folder.path(), &SIZE);
    let shelf = folder.path().join("shelf");
    write_all(&shelf.join("law"), &adapter::folder(4, 1)).expect("written");
    let mut arguments = vec![format!("tiny={}", writer.display())];
    for case in MODELS {
        arguments.push(format!("{case}={}", tiny(folder.path(), case, json!({})).display()));
    }
    let mut all: Vec<&str> = arguments.iter().flat_map(|model| ["-m", model.as_str()]).collect();
    let shelf = shelf.display().to_string();
    all.extend(["--allow-adapter-loading", &shelf, "--kv-memory", "4MB", "--no-log"]);
    Serving::with(folder, writer, &all)
}

/// Makes values.
struct Maker {
    random: Random,
}

impl Maker {
    fn one<'v, T: ?Sized>(&mut self, of: &[&'v T]) -> &'v T {
        of[self.random.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn text(&mut self) -> String {
        match self.random.below(12) {
            0 => String::new(),
            1 => "é\u{1F600}\u{0}\u{FFFD}日本".into(),
            2 => "t5 ".repeat(self.random.below(400)),
            3 => "[MASK] t7 [MASK]".into(),
            4 => {
                self.one(&["none", "low", "float", "base64", "query", "simple", "user", "(", "../..", "{{ 1 }}"]).into()
            }
            _ => (0..1 + self.random.below(9))
                .map(|_| format!("t{}", self.random.below(96)))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// Any JSON at all.
    fn any(&mut self, depth: usize) -> Value {
        match self.random.below(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.chance(50)),
            2 => json!(self.random.below(10)),
            3 => json!(-1),
            4 => json!(u64::MAX),
            5 => json!(1e300),
            6 => json!(self.random.unit() * 3.0),
            7 => json!(self.text()),
            8 => (0..self.random.below(4)).map(|_| self.any(depth - 1)).collect(),
            _ => Value::Object((0..self.random.below(4)).map(|_| (self.text(), self.any(depth - 1))).collect()),
        }
    }

    /// A value of a schema of the document; where that says no more than "a list", one that the field's name asks for.
    fn value(&mut self, name: &str, schema: &Value) -> Value {
        if let Some(kinds) = schema["oneOf"].as_array() {
            let kind = &kinds[self.random.below(kinds.len())];
            return self.value(name, kind);
        }
        match schema["type"].as_str() {
            Some("string") => json!(self.named_text(name)),
            Some("boolean") => json!(self.chance(50)),
            Some("integer" | "number") => self.number(name, schema),
            Some("array") if schema.get("items").is_some() => {
                (0..self.random.below(5)).map(|_| self.value(name, &schema["items"])).collect()
            }
            Some("array") => self.list(name),
            Some("object") => self.object(name),
            _ => self.any(2),
        }
    }

    fn named_text(&mut self, name: &str) -> String {
        match name {
            "model" if self.chance(90) => {
                let models = [&MODELS[..], &["tiny", "tiny", "tiny", "law", "law"]].concat();
                self.one(&models).to_owned()
            }
            "lora_name" | "lora_path" if self.chance(80) => "law".into(),
            "guided_regex" => self.one(&["[a-z]{1,4}", "t[0-9] t1?", "(", "(a+)+$", "a{1,5000}"]).into(),
            "guided_grammar" => self.one(&["start: \"t5\"", "start: a\na: \"t\" /[0-9]+/", "start", ""]).into(),
            "grammar" => self.one(&["root ::= \"t5\" | \"t6\"", "root ::= root", "root"]).into(),
            "context" | "question" | "query" => (5..25).map(|id| format!("t{id} ")).collect(),
            "hypothesis_template" => self.one(&["t5 {} t6", "{}", "no place"]).into(),
            _ => self.text(),
        }
    }

    fn number(&mut self, name: &str, schema: &Value) -> Value {
        let (low, high) = (schema["minimum"].as_f64().unwrap_or(0.0), schema["maximum"].as_f64().unwrap_or(1e9));
        let whole = schema["type"] == "integer";
        // What makes work is mostly small, so that many requests are made.
        let high = if name.starts_with("max_") && self.chance(95) { 8.0 } else { high };
        let value = match self.random.below(8) {
            0 => low,
            1 => high,
            2 => low - 1.0,
            3 => high * 1.001 + 1.0,
            _ => low + f64::from(self.random.unit()) * (high.min(low + 20.0) - low),
        };
        if whole { json!(value.round() as i64) } else { json!(value) }
    }

    fn list(&mut self, name: &str) -> Value {
        if self.chance(10) {
            return (0..self.random.below(4)).map(|_| self.any(3)).collect();
        }
        match name {
            "messages" => {
                let messages: Vec<Value> = (0..1 + self.random.below(4)).map(|_| self.message()).collect();
                messages.into()
            }
            "tools" => {
                let tool = json!({"name": "look", "description": "x", "parameters": {"type": "object"}});
                match self.random.below(3) {
                    0 => json!([{"type": "function", "function": tool}]),
                    1 => json!([{"name": "look", "input_schema": {"type": "object"}}]),
                    _ => json!([]),
                }
            }
            "lora" => (0..self.random.below(3)).map(|_| self.object("lora")).collect(),
            "ids" => (0..self.random.below(9)).map(|_| json!(self.random.below(110))).collect(),
            _ => (0..self.random.below(6)).map(|_| json!(self.text())).collect(),
        }
    }

    fn message(&mut self) -> Value {
        let role = self.one(&["user", "user", "assistant", "system", "tool", "developer"]).to_owned();
        match self.random.below(8) {
            0 => json!({"role": role, "content": [{"type": "text", "text": self.text()}]}),
            1 => json!({"role": role, "content": self.any(2)}),
            2 => json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}}]}),
            3 => json!({"role": "tool", "tool_call_id": "x", "content": self.text()}),
            _ => json!({"role": role, "content": self.text()}),
        }
    }

    fn object(&mut self, name: &str) -> Value {
        if self.chance(10) {
            return Value::Object((0..self.random.below(3)).map(|_| (self.text(), self.any(2))).collect());
        }
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]});
        match name {
            "lora" => json!({"id": self.random.below(3), "scale": self.random.unit() * 3.0}),
            "stream_options" => json!({"include_usage": self.chance(70)}),
            "logit_bias" => json!({self.random.below(100).to_string(): self.random.below(200) as f64 - 100.0}),
            "response_format" => match self.random.below(3) {
                0 => json!({"type": "json_object"}),
                1 => json!({"type": "text"}),
                _ => json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}),
            },
            "options" => json!({"num_predict": 4, "temperature": self.random.unit(), "top_k": self.random.below(9)}),
            "parameters" => json!({"prompt": self.text()}),
            "inputs" => json!({"source_sentence": self.text(), "sentences": [self.text(), self.text()]}),
            "thinking" => json!({"type": self.one(&["enabled", "disabled"]), "budget_tokens": self.random.below(2000)}),
            "tool_choice" => json!({"type": self.one(&["auto", "any", "none", "function", "tool"]), "name": "look"}),
            "output_format" => json!({"type": "json_schema", "schema": schema}),
            "output_config" => json!({"format": {"type": "json_schema", "schema": schema}}),
            "structured_outputs" => json!({"regex": "[a-z]{1,4}"}),
            "guided_json" | "json_schema" | "format" => schema,
            _ => json!({}),
        }
    }

    /// A body for a route of the document.
    fn body(&mut self, schema: &Value) -> Value {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut body = Map::new();
        for (name, field) in schema["properties"].as_object().expect("properties") {
            let wanted = if required.contains(&name.as_str()) { 98 } else { 12 };
            if self.chance(wanted) || (name == "model" && self.chance(60)) {
                body.insert(name.clone(), self.value(name, field));
            }
        }
        // Answers of no given length end where the context does.
        if schema["properties"].get("max_tokens").is_some() && self.chance(97) && !body.contains_key("max_tokens") {
            body.insert("max_tokens".into(), json!(3));
        }
        if schema["properties"].get("options").is_some() && self.chance(97) {
            body.insert("options".into(), json!({"num_predict": 3}));
        }
        let mut body = Value::Object(body);
        if self.chance(25) {
            let names: Vec<String> = body.as_object().expect("an object").keys().cloned().collect();
            match self.random.below(3) {
                0 if !names.is_empty() => {
                    let name = &names[self.random.below(names.len())];
                    body[name] = self.any(3);
                }
                1 if !names.is_empty() => {
                    let name = &names[self.random.below(names.len())];
                    body.as_object_mut().expect("an object").remove(name);
                }
                _ => body = with(&body, json!({self.text(): self.any(2)})),
            }
        }
        body
    }

    /// The bytes of a request, and what it is.
    fn request(&mut self, document: &Value) -> (String, Vec<u8>) {
        let paths = document["paths"].as_object().expect("paths");
        let names: Vec<&String> = paths.keys().collect();
        let path = names[self.random.below(names.len())];
        let kept = [("Connection", "keep-alive")];
        let schema = &paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() || self.chance(1) {
            let method = self.one(&["GET", "GET", "GET", "DELETE", "POST", "PUT"]).to_owned();
            return (format!("{method} {path}"), request(&method, path, &kept, b""));
        }
        let body = match schema.get("properties") {
            Some(_) => self.body(schema).to_string(),
            None => self.value("lora", schema).to_string(),
        };
        (format!("{path} {body}"), request("POST", path, &kept, body.as_bytes()))
    }
}

fn q2(count: usize, threads: usize, said: bool) {
    let _alone = alone();
    let serving = server();
    let document = serving.get("/openapi.json").good();
    let next = AtomicUsize::new(0);
    let statuses: Mutex<BTreeMap<u16, usize>> = Mutex::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (serving, document, next, statuses) = (&serving, &document, &next, &statuses);
            scope.spawn(move || {
                let mut maker = Maker { random: Random(100 + thread as u64) };
                let mut kept: Option<BufReader<std::net::TcpStream>> = None;
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let (what, bytes) = maker.request(document);
                    let mut reader = kept.take().unwrap_or_else(|| BufReader::new(client::connect(serving.address)));
                    // A connection that was closed after a refusal is no answer to this request.
                    let sent = reader.get_mut().write_all(&bytes).is_ok();
                    let answer = sent.then(|| client::read(&mut reader)).flatten();
                    let answer = answer.unwrap_or_else(|| {
                        reader = BufReader::new(client::connect(serving.address));
                        reader.get_mut().write_all(&bytes).expect("sent");
                        client::read(&mut reader).unwrap_or_else(|| panic!("no answer: {what}"))
                    });
                    let fault = answer.status >= 500 && answer.status != 503;
                    assert!(!fault && !answer.body.contains("\"server_error\""), "{what}\n{answer:?}");
                    *statuses.lock().expect("whole").entry(answer.status).or_default() += 1;
                    kept = (answer.header("connection") != Some("close")).then_some(reader);
                }
            });
        }
    });
    let statuses = statuses.into_inner().expect("whole");
    let good = statuses.get(&200).copied().unwrap_or(0);
    assert!(good * 5 > count, "requests that mean something: {statuses:?}");
    serving.until_idle();
    assert_eq!(serving.get("/health").status, 200);
    assert_eq!(serving.figure("faults_total"), 0.0);
    if said {
        let time = begun.elapsed().as_secs_f64();
        report("Q2", &format!("{count} requests of the schema in {time:.0} s, by status {statuses:?}; none of 5xx"));
    }
}

#[test]
fn q2_requests_of_the_schema_in_small() {
    q2(600, 4, false);
}

#[test]
#[ignore = "takes minutes"]
fn q2_requests_of_the_schema() {
    q2(20_000, 8, true);
}
