//! Servers in this process, over tiny models.

use crate::client::{self, Answer};
use attend_engine::EngineOptions;
use attend_model::{LoadOptions, load};
use attend_nn::KvTypes;
use attend_server::{
    AdapterAt, Address, Bounds, Keys, Limits, Listen, Loader, Log, Offer, Options, Parts, Policy, Server, Tell,
};
use attend_testkit::files::{model, safetensors, scripted, write_all};
use attend_text::{ChatTemplate, Tokenizer};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// What the log says.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("whole").clone()).expect("UTF-8")
    }
}

/// A server that runs until it is dropped.
pub struct Serving {
    pub address: SocketAddr,
    /// The same as it is printed.
    pub place: Address,
    pub log: Lines,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    _folder: Option<TempDir>,
}

/// What differs from server to server.
pub struct Setup {
    pub listen: Listen,
    pub limits: Limits,
    pub keys: Keys,
    pub models: Vec<Offer>,
    pub policy: Policy,
    pub adapters: Vec<(String, AdapterAt)>,
    pub adapter_folder: Option<PathBuf>,
    pub folder: Option<TempDir>,
    pub tell: Tell,
}

impl Setup {
    pub fn new(models: Vec<(&str, Loader)>) -> Setup {
        let offer =
            |(name, loader): (&str, Loader)| Offer { name: name.to_owned(), aliases: Vec::new(), loader, size: None };
        let models = models.into_iter().map(offer).collect();
        Setup {
            listen: Listen::Address { host: "127.0.0.1".into(), port: 0, tls: None },
            limits: Limits::default(),
            keys: Keys::default(),
            models,
            policy: Policy::default(),
            adapters: Vec::new(),
            adapter_folder: None,
            folder: None,
            tell: Tell { loaded: Arc::new(|_| {}), unloaded: Arc::new(|_| {}) },
        }
    }

    /// Begins to serve; models may still be loading.
    pub fn start(self) -> Serving {
        let log = Lines::default();
        let options = Options {
            listen: self.listen,
            keys: self.keys,
            limits: self.limits,
            log: Arc::new(Log::to(Box::new(log.clone())).expect("a thread")),
            models: self.models,
            policy: self.policy,
            adapters: self.adapters,
            adapter_folder: self.adapter_folder,
            tell: self.tell,
        };
        let server = Server::bind(options).expect("a port");
        let place = server.address().clone();
        // A socket has no address; whoever uses one does not ask for it.
        let address = place.ip().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            server.run(async move {
                let _ = stopped.await;
            })
        });
        Serving { address, place, log, stop: Some(stop), thread: Some(thread), _folder: self.folder }
    }

    /// Serves, with all models loaded.
    pub fn ready(self) -> Serving {
        let serving = self.start();
        serving.until("ready", || serving.get("/health").status == 200);
        serving
    }
}

impl Serving {
    pub fn get(&self, path: &str) -> Answer {
        client::send(self.address, &client::request("GET", path, &[], b""))
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Answer {
        client::send(self.address, &client::request("POST", path, &[("Content-Type", "application/json")], body))
    }

    /// The value of a figure, all models together.
    pub fn figure(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let lines = text.lines().filter(|line| line.starts_with(&format!("attend_{name}{{")));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Waits until something holds; it must within a time in which everything should.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let late = begun.elapsed() > Duration::from_secs(30);
            assert!(!late, "never {what}: {}", self.log.text().lines().rev().take(5).collect::<Vec<_>>().join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Nothing runs, waits or is held.
    #[track_caller]
    pub fn until_idle(&self) {
        self.until("idle", || {
            ["requests_running", "requests_waiting", "kv_tokens"].iter().all(|name| self.figure(name) == 0.0)
        });
    }

    /// Tells it to stop.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Result<(), String> {
        self.thread.take().expect("runs").join().expect("no panic")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A tiny decoder with random weights, whose tokens are t0, t1, ..., in a folder of its own.
pub fn tiny(changes: Value) -> TempDir {
    let mut config = model::config();
    config.extend(changes.as_object().cloned().expect("an object"));
    let words: Map<String, Value> = (0..model::VOCAB).map(|id| (format!("t{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    });
    let template = "{% for m in messages %}t{{ 3 + loop.index }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}t9{% endif %}";
    decoder(config, &tokenizer, template)
}

/// A tiny decoder with random weights, in a folder of its own.
pub fn decoder(config: Map<String, Value>, tokenizer: &Value, template: &str) -> TempDir {
    let files = vec![
        ("config.json".into(), Value::Object(config).to_string().into_bytes()),
        ("model.safetensors".into(), safetensors::file(&model::tensors(11))),
        ("tokenizer.json".into(), tokenizer.to_string().into_bytes()),
        ("chat_template.jinja".into(), template.into()),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    write_all(folder.path(), &files).expect("written");
    folder
}

/// A decoder that says what it is told; see [`scripted::folder`].
pub fn told(tokens: &[&str], follows: &[u32], ends: &[u32]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write_all(folder.path(), &scripted::folder(tokens, follows, ends)).expect("written");
    folder
}

/// The golden checkpoint of this name with a tokenizer of numbered tokens between CLS and SEP, whose fourth is a mask.
pub fn golden_encoder(case: &str) -> TempDir {
    golden(case, json!({}))
}

/// The same with changes to its configuration. Where it writes, nothing stands around texts.
pub fn golden(case: &str, changes: Value) -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(case);
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors", "generation_config.json"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), folder.path().join(name)).expect("copied");
        }
    }
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(from.join("config.json")).expect("read")).expect("JSON");
    config.as_object_mut().expect("an object").extend(changes.as_object().cloned().expect("an object"));
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("written");
    let word = |id: u64| if id == 3 { "[MASK]".into() } else { format!("t{id}") };
    let words: Map<String, Value> =
        (0..config["vocab_size"].as_u64().expect("a size")).map(|id| (word(id), json!(id))).collect();
    let encloses = config.get("decoder_start_token_id").is_none();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [{
            "id": 3, "content": "[MASK]", "special": true,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": encloses.then(|| json!({"type": "BertProcessing", "sep": ["t2", 2], "cls": ["t1", 1]})),
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    });
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).expect("written");
    folder
}

/// Brings a folder's model into memory in f32.
pub fn parts(folder: &Path, kv_memory: Option<u64>) -> Parts {
    let options = LoadOptions { compute: attend_kernels::Compute::F32, ..LoadOptions::default() };
    let loaded = load(folder, &options, &mut |_, _| {}).expect("loads");
    Parts {
        loaded,
        tokenizer: Arc::new(Tokenizer::open(folder).expect("opens")),
        template: ChatTemplate::open(folder).expect("opens"),
        draft: None,
        options: EngineOptions { kv: KvTypes::both(attend_kernels::DType::F32), chunk: 16, ..EngineOptions::default() },
        bounds: Bounds { kv_memory, ..Bounds::default() },
    }
}

pub fn loader(folder: &Path, kv_memory: Option<u64>) -> Loader {
    let folder: PathBuf = folder.to_owned();
    Box::new(move || Ok(parts(&folder, kv_memory)))
}

/// A loader that waits until something is sent, or nobody can send any more.
pub fn waiting_loader(folder: &Path) -> (mpsc::Sender<()>, Loader) {
    let (go, wait) = mpsc::channel();
    let folder = folder.to_owned();
    let loader = Box::new(move || {
        let _ = wait.recv();
        Ok(parts(&folder, None))
    });
    (go, loader)
}

/// A server over one tiny decoder.
pub fn tiny_server(changes: Value, kv_memory: Option<u64>) -> Serving {
    tiny_setup(changes, kv_memory).ready()
}

pub fn tiny_setup(changes: Value, kv_memory: Option<u64>) -> Setup {
    let folder = tiny(changes);
    let loader = loader(folder.path(), kv_memory);
    Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }
}

/// Bytes of the keys and values of a token of the tiny decoder in f32.
pub const BYTES_PER_TOKEN: u64 = (model::LAYERS * 2 * model::WIDTH / model::HEADS * model::KV_HEADS * 4) as u64;
