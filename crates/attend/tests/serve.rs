//! `attend serve` as users start it: the same answers as `attend run`, its words, and its end.

mod common;

use common::{attend, goldens, ran, tiny};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A running server.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(models: &Path, arguments: &[&str]) -> Serving {
        let mut command = attend(models);
        command.args(["serve", "--port", "0"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("a line");
        let address =
            first.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("{first:?}")).to_owned();
        let mut told = String::new();
        while !told.contains("ready: ") {
            assert_ne!(lines.read_line(&mut told).expect("a line"), 0, "{told}");
        }
        assert!(told.contains("limits: body 2000000 bytes") && told.contains("queue 128 requests"), "{told}");
        Serving { child, address }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask("POST", path, "", &body);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn answers_are_those_of_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let template = "{% for m in messages %}{{ m.content }} {% endfor %}t9";
    std::fs::write(model.join("chat_template.jinja"), template).expect("written");
    let path = model.to_str().expect("text");
    for draft in [&[][..], &["--draft", path]] {
        let serving = Serving::start(folder.path(), &[&["-m", path][..], draft].concat());
        for (flags, settings) in [
            (&[][..], json!({})),
            (&["--temperature", "1.1", "--seed", "3"], json!({"temperature": 1.1, "seed": 3})),
            (
                &["--temperature", "0.9", "--seed", "5", "--n", "3", "--top-k", "20", "--repeat-penalty", "1.2"],
                json!({"temperature": 0.9, "seed": 5, "n": 3, "top_k": 20, "repetition_penalty": 1.2}),
            ),
        ] {
            for (raw, route) in [(true, "/v1/completions"), (false, "/v1/chat/completions")] {
                let mut command = attend(folder.path());
                command.args(["run", "--json", "--max-tokens", "12", "-m", path]).args(flags);
                let run = ran(command.args(raw.then_some("--raw")).arg("t5 t9 t11")).json();
                let prompt = match raw {
                    true => json!({"prompt": "t5 t9 t11"}),
                    false => json!({"messages": [{"role": "user", "content": "t5 t9 t11"}]}),
                };
                let mut body = prompt.as_object().expect("an object").clone();
                body.extend(settings.as_object().expect("an object").clone());
                body.insert("max_tokens".into(), json!(12));
                let answer = serving.post(route, Value::Object(body));
                let texts = |list: &Value, path: &str| -> Vec<Value> {
                    list.as_array()
                        .expect("a list")
                        .iter()
                        .map(|choice| choice.pointer(path).expect("text").clone())
                        .collect()
                };
                let served = texts(&answer["choices"], if raw { "/text" } else { "/message/content" });
                let expected = match run.get("choices") {
                    Some(choices) => texts(choices, "/text"),
                    None => vec![run["text"].clone()],
                };
                assert_eq!(served, expected, "{flags:?} {route}");
                assert_eq!(answer["usage"]["completion_tokens"], run["usage"]["completion_tokens"]);
            }
        }
    }
}

/// An adapter by its name is what `--lora` is to the command line, at the same strength.
#[test]
fn adapters_answer_as_on_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "lora-llama/base", json!({}));
    let (path, adapter) = (model.to_str().expect("text"), goldens().join("lora-llama/adapter").display().to_string());
    let named = [format!("one={adapter}"), format!("base:twice={adapter}=2")];
    let shelf = goldens().join("lora-llama").display().to_string();
    let arguments = ["-m", path, "--adapter", &named[0], "--adapter", &named[1], "--allow-adapter-loading", &shelf];
    let serving = Serving::start(folder.path(), &arguments);
    let loaded = json!({"lora_name": "late", "lora_path": "adapter", "scale": 3.0});
    assert_eq!(serving.post("/v1/load_lora_adapter", loaded)["parent"], "base");
    let mut said = Vec::new();
    for (name, lora) in [("base", ""), ("one", "=1"), ("twice", "=2"), ("late", "=3")] {
        let mut command = attend(folder.path());
        command.args(["run", "--raw", "--json", "--max-tokens", "12", "--logprobs", "0", "-m", path, "t5 t9 t11"]);
        if !lora.is_empty() {
            command.arg("--lora").arg(format!("{adapter}{lora}"));
        }
        let run = ran(&mut command).json();
        let body = json!({"model": name, "prompt": "t5 t9 t11", "max_tokens": 12, "logprobs": 0});
        let choice = serving.post("/v1/completions", body)["choices"][0].clone();
        assert_eq!(choice["text"], run["text"], "{name}");
        said.push(choice["logprobs"]["token_logprobs"].clone());
    }
    assert!((1..4).all(|index| !said[..index].contains(&said[index])), "{said:?}");
    let serve = |arguments: &[&str]| ran(attend(folder.path()).args(["serve", "--port", "0"]).args(arguments));
    assert!(serve(&["-m", path, "--adapter", "none"]).error(2).contains("NAME=PATH"));
    assert!(serve(&["-m", path, "--adapter", "other:x=y"]).error(2).contains("other:x"));
    assert!(serve(&["-m", path, "--allow-adapter-loading", "/does/not/exist"]).error(1).contains("/does/not/exist"));
    let missing = serve(&["-m", path, "--adapter", "law=/does/not/exist"]);
    assert!(
        missing.code == Some(1) && missing.err.contains("\"law\"") && missing.err.contains("/does/not/exist"),
        "{missing:?}"
    );
}

#[test]
fn vectors_are_those_of_the_command_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "bert-base", json!({}));
    let path = model.to_str().expect("text");
    let serving = Serving::start(folder.path(), &["-m", &format!("vectors={path}")]);
    let answer = serving.post("/v1/embeddings", json!({"model": "vectors", "input": ["t5 t6", "t7 t8 t9"]}));
    let mut command = attend(folder.path());
    let run = ran(command.args(["embed", "-m", path, "--json", "t5 t6", "t7 t8 t9"]));
    let lines = run.text().lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    for (index, line) in lines.enumerate() {
        assert_eq!(answer["data"][index]["embedding"], line["embedding"]);
    }
}

#[test]
fn models_come_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let path = model.to_str().expect("text");
    let mut command = attend(folder.path());
    command.args(["serve", "--port", "0", "--load-on-demand", "--keep-alive", "0", "-m", &format!("a,alias={path}")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    let address = first.trim().strip_prefix("listening on http://").expect("an address").to_owned();
    let serving = Serving { child, address };
    for name in ["a", "alias"] {
        let answer = serving.post("/v1/completions", json!({"model": name, "prompt": "t5", "max_tokens": 3}));
        assert_eq!(answer["usage"]["completion_tokens"], 3);
        let mut told = String::new();
        while !told.contains("unloaded: a") {
            assert_ne!(lines.read_line(&mut told).expect("a line"), 0, "{told}");
        }
        assert!(told.contains("ready: a"), "{told}");
    }
}

#[test]
#[cfg(unix)]
fn a_socket_is_there_until_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let path = folder.path().join("attend.sock");
    let mut command = attend(folder.path());
    command.arg("serve").arg("--unix-socket").arg(&path).arg("-m").arg(&model);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut first = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut first).expect("a line");
    assert_eq!(first.trim(), format!("listening on unix:{}", path.display()));
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("connects");
    write!(stream, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let sent = std::process::Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert!(!path.exists());
}

#[test]
#[cfg(unix)]
fn a_signal_ends_it_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    for signal in ["TERM", "INT"] {
        let mut serving = Serving::start(folder.path(), &["-m", model.to_str().expect("text")]);
        serving.post("/v1/completions", json!({"prompt": "t5", "max_tokens": 3}));
        let sent = std::process::Command::new("kill").args(["-s", signal, &serving.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let code = serving.child.wait().expect("ends").code();
        assert_eq!(code, Some(0), "{signal}");
        let mut log = String::new();
        serving.child.stderr.take().expect("piped").read_to_string(&mut log).expect("read");
        for event in ["\"loaded\"", "\"request\"", "\"stopping\"", "\"stopped\""] {
            assert!(log.lines().any(|line| line.starts_with("{\"time\":") && line.contains(event)), "{event}: {log}");
        }
    }
}

#[test]
fn mistakes_are_said_before_anything_is_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let path = model.to_str().expect("text");
    let serve = |arguments: &[&str]| ran(attend(folder.path()).arg("serve").args(arguments));
    assert!(serve(&["-m", path, "-m", path]).error(2).contains("two models have the name"));
    assert!(serve(&["-m", "=x"]).error(2).contains("NAME=MODEL"));
    assert!(serve(&["-m", &format!("a,b={path}"), "-m", &format!("b={path}")]).error(2).contains("\"b\""));
    assert!(serve(&["--keep-alive", "soon"]).error(2).contains("--keep-alive"));
    assert!(serve(&["--max-models", "0"]).error(2).contains("--max-models"));
    assert!(serve(&["--port", "99999"]).error(2).contains("--port"));
    assert!(serve(&["--api-key-file", "/does/not/exist"]).error(1).contains("/does/not/exist"));
    let empty = folder.path().join("keys");
    std::fs::write(&empty, "# no key\n").expect("written");
    let empty = empty.to_str().expect("text");
    assert!(serve(&["--api-key-file", empty]).error(1).contains("there is no key in it"));
    assert!(serve(&["--host", "192.0.2.1", "-m", path]).error(1).contains("cannot listen on 192.0.2.1"));
    let (certificate, key) = (["--tls-cert", "/does/not/exist"], ["--tls-key", empty]);
    assert!(serve(&certificate).error(2).contains("--tls-key"));
    assert!(serve(&[certificate, key].concat()).error(1).contains("/does/not/exist"));
    assert!(serve(&["--tls-cert", empty, "--tls-key", empty]).error(1).contains("BEGIN CERTIFICATE"));
    assert!(serve(&["--unix-socket", "x", "--port", "9000"]).error(2).contains("--port"));
    assert!(serve(&["--uds", empty, "-m", path]).error(1).contains("no socket"));
    let serving = Serving::start(folder.path(), &["-m", path]);
    let port = serving.address.rsplit(':').next().expect("a port");
    assert!(serve(&["--port", port, "-m", path]).error(1).contains("cannot listen on"));
    let missing = ran(attend(folder.path()).args(["serve", "--port", "0", "-m", "/does/not/exist.gguf"]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("error: ") && missing.err.contains("/does/not/exist.gguf"), "{missing:?}");
    let small = ran(attend(folder.path()).args(["serve", "--port", "0", "--kv-memory", "10", "-m", path]));
    assert!(small.code == Some(1) && small.err.contains("hold 0 tokens; at least"), "{small:?}");
}

#[test]
fn keys_are_read_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "# for the tests\nopen-sesame\n").expect("written");
    let files = [model.to_str().expect("text"), keys.to_str().expect("text")];
    let serving = Serving::start(folder.path(), &["-m", files[0], "--api-key-file", files[1]]);
    let asked = |headers: &str| serving.ask("GET", "/v1/models", headers, &json!({})).0;
    assert_eq!((asked(""), asked("Authorization: Bearer open-sesame\r\n")), (401, 200));
    assert_eq!(serving.ask("GET", "/health", "", &json!({})).0, 200);
}

#[test]
fn a_server_is_measured_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path(), "llama-gqa", json!({}));
    let serving = Serving::start(folder.path(), &["-m", model.to_str().expect("text")]);
    let url = format!("http://{}", serving.address);
    let bench = |arguments: &[&str]| {
        let mut command = attend(folder.path());
        ran(command.args(["bench", "serve", "--url", &url, "--prompt", "5"]).args(arguments))
    };
    let report = bench(&["--clients", "3", "--requests", "2", "--generate", "7", "--json"]).json();
    assert_eq!((&report["requests"], &report["failed"], &report["refused"]), (&json!(6), &json!(0), &json!(0)));
    assert_eq!((&report["generated_tokens"], &report["prompt_tokens"]), (&json!(42), &json!(30)));
    for field in ["median", "p95", "p99", "most"] {
        assert!(report["first_token"][field].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
        assert!(report["between_tokens"][field].as_f64().is_some_and(|ms| ms > 0.0), "{report}");
    }
    let vectors = bench(&["--clients", "2", "--generate", "0", "--json"]).json();
    assert_eq!(
        (&vectors["failed"], &vectors["generated_tokens"], &vectors["between_tokens"]),
        (&json!(0), &json!(0), &Value::Null)
    );
    assert!(bench(&["--clients", "1"]).text().contains("first token"));
    assert!(bench(&["--model", "none"]).error(1).contains("404"));
    bench(&["--clients", "0"]).error(2);
}
