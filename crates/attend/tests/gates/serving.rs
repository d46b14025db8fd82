//! A server as a process of its own, and what the system says of it.

use crate::client::{self, Answer};
use crate::common::attend;
use attend_testkit::files::model::{Size, config_of, tensors_of};
use attend_testkit::files::{safetensors, write_all};
use attend_testkit::memory;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The decoder of the load gates.
pub const SIZE: Size = Size { width: 64, heads: 4, kv_heads: 2, hidden: 128, layers: 2, vocab: 512, context: 4096 };

/// Where the printable characters of ASCII stand among its tokens, so that constraints can be followed.
pub const SPELLED: usize = 400;

/// One gate at a time: they measure.
pub fn alone() -> MutexGuard<'static, ()> {
    memory::alone()
}

/// Says what a gate measured, also where the test runner keeps what tests print to itself.
pub fn report(gate: &str, figures: &str) {
    // A closed standard error is nobody's concern here.
    let _ = writeln!(std::io::stderr(), "gate {gate}: {figures}");
}

/// A decoder with random weights whose tokens are t0, t1, ..., and from [`SPELLED`] on characters, in a folder of its own below `place`.
pub fn decoder(place: &Path, size: &Size) -> PathBuf {
    decoder_with(place, size, json!({}), safetensors::file(&tensors_of(size, 11)))
}

/// The same with changes to its configuration, and with these weights.
pub fn decoder_with(place: &Path, size: &Size, changes: Value, weights: Vec<u8>) -> PathBuf {
    let mut config = config_of(size);
    config.extend(changes.as_object().cloned().expect("an object"));
    let character = |id: usize| u8::try_from(id.wrapping_sub(SPELLED)).ok().map(|at| char::from(32 + at));
    let word = |id: usize| match character(id) {
        Some(character) if character.is_ascii_graphic() || character == ' ' => character.to_string(),
        _ => format!("t{id}"),
    };
    let words: Map<String, Value> = (0..size.vocab).map(|id| (word(id), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    });
    let template = "{% for m in messages %}t{{ 3 + loop.index }} {{ m.content }} {% endfor %}t9";
    let files = vec![
        ("config.json".into(), Value::Object(config).to_string().into_bytes()),
        ("model.safetensors".into(), weights),
        ("tokenizer.json".into(), tokenizer.to_string().into_bytes()),
        ("chat_template.jinja".into(), template.into()),
    ];
    let folder = place.join("tiny");
    write_all(&folder, &files).expect("written");
    folder
}

/// A running server; it is killed when it is dropped.
pub struct Serving {
    pub child: Child,
    pub address: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
    _folder: Arc<TempDir>,
    pub model: PathBuf,
}

impl Serving {
    /// Over the decoder of the load gates, in f32.
    pub fn start(arguments: &[&str]) -> Serving {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let model = decoder(folder.path(), &SIZE);
        Serving::over(folder, model, arguments)
    }

    /// Over this model, in f32.
    pub fn over(folder: Arc<TempDir>, model: PathBuf, arguments: &[&str]) -> Serving {
        let own = ["-m", model.to_str().expect("text"), "--dtype", "f32", "--kv-type", "f32"];
        Serving::with(folder, model.clone(), &[&own, arguments].concat())
    }

    pub fn with(folder: Arc<TempDir>, model: PathBuf, arguments: &[&str]) -> Serving {
        let mut command = attend(folder.path());
        command.args(["serve", "--port", "0"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut errors = child.stderr.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&log);
        thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(length @ 1..) = errors.read(&mut buffer) {
                let mut log = keep.lock().expect("whole");
                // The end is what a failure asks for.
                if log.len() > 1 << 22 {
                    log.clear();
                }
                log.extend_from_slice(&buffer[..length]);
            }
        });
        let mut first = String::new();
        lines.read_line(&mut first).expect("a line");
        let address = first.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("{first:?} {arguments:?}: {}", said(&log)));
        // Nobody reads what else it says there.
        thread::spawn(move || while matches!(lines.read_line(&mut String::new()), Ok(1..)) {});
        let serving = Serving { child, address, log, _folder: folder, model };
        serving.until("ready", || serving.get("/health").status == 200);
        serving
    }

    pub fn get(&self, path: &str) -> Answer {
        client::send(self.address, &client::request("GET", path, &[], b""))
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        client::send(self.address, &client::request("POST", path, &[], body.as_bytes()))
    }

    pub fn log(&self) -> String {
        said(&self.log)
    }

    /// The values of a figure, all models together.
    pub fn figure(&self, name: &str) -> f64 {
        figure(&self.get("/metrics").body, name)
    }

    /// Waits until something holds; it must within a time in which everything should.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let late = begun.elapsed() > Duration::from_secs(30);
            assert!(!late, "never {what}: {}", self.log().lines().rev().take(5).collect::<Vec<_>>().join("\n"));
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Nothing runs, waits or is held.
    #[track_caller]
    pub fn until_idle(&self) {
        self.until("idle", || {
            let text = self.get("/metrics").body;
            ["requests_running", "requests_waiting", "kv_tokens"].iter().all(|name| figure(&text, name) == 0.0)
        });
    }

    /// Kilobytes in memory.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Open descriptors and threads.
    pub fn holds(&self) -> (usize, usize) {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", self.child.id())).expect("lives").count();
        (count("fd"), count("task"))
    }

    /// Lets it have so many more bytes of addresses than it has now; None: as many as it likes. What it
    /// asks for beyond them the system refuses.
    pub fn limit_addresses(&self, more: Option<u64>) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a line");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        let limit = more.map_or("unlimited".into(), |more| (kilobytes * 1024 + more).to_string());
        let (process, limit) = (self.child.id().to_string(), format!("--as={limit}:"));
        let set = std::process::Command::new("prlimit").args(["--pid", &process, &limit]).status();
        assert!(set.expect("prlimit runs").success());
    }

    pub fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(log: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&log.lock().expect("whole")).into_owned()
}

/// The values of a figure in the text of `/metrics`.
pub fn figure(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("attend_{name}{{")));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Seconds of the processor that this thread has had.
pub fn processor_seconds() -> f64 {
    // The system counts a thread's time when it stops, and else only now and then.
    thread::sleep(Duration::from_nanos(1));
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this thread");
    let nanoseconds: f64 = text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number");
    nanoseconds / 1e9
}

/// Ends others' work when it is dropped, also where a test fails, whose scope would wait for them.
pub struct Over<'o>(pub &'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The value below which such a share of all lies.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1).expect("values");
    values[(last as f64 * share).round() as usize]
}

/// Tries a gate with a clock in it up to three times, because others may use the machine: it holds where one try holds.
#[track_caller]
pub fn best_of_three(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut said = Vec::new();
    for _ in 0..3 {
        match attempt() {
            Ok(()) => return,
            Err(words) => said.push(words),
        }
    }
    panic!("three times: {said:#?}");
}
