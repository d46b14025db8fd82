//! L9: hours of the load mix with cancels, mistakes and adapters that come and go: nothing grows, nothing slows down.

use crate::client::{chunk, connect, read_head};
use crate::mix::{Client, Exchange, exchanges};
use crate::serving::{Over, SIZE, Serving, alone, decoder, quantile, report};
use attend_testkit::files::safetensors::Tensor;
use attend_testkit::files::{Files, adapter, write_all};
use attend_testkit::golden::Random;
use serde_json::json;
use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;

/// An adapter of the load gates' decoder.
fn adapter_files(rank: usize, seed: u64) -> Files {
    let mut random = Random(seed);
    let kv = SIZE.width / SIZE.heads * SIZE.kv_heads;
    let mut list = Vec::new();
    for layer in 0..SIZE.layers {
        for (module, outputs) in [("q_proj", SIZE.width), ("v_proj", kv)] {
            for (part, shape) in [("A", [rank, SIZE.width]), ("B", [outputs, rank])] {
                let name = format!("{}.{layer}.self_attn.{module}.lora_{part}.weight", adapter::ROOT);
                let values = (0..shape[0] * shape[1]).flat_map(|_| (random.normal() * 0.3).to_le_bytes()).collect();
                list.push(Tensor::new(&name, "F32", &shape, values));
            }
        }
    }
    adapter::files(&adapter::config(rank), &list)
}

fn server() -> Serving {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let model = decoder(folder.path(), &SIZE);
    let shelf = folder.path().join("shelf");
    for (index, name) in ["law", "jokes"].into_iter().enumerate() {
        write_all(&shelf.join(name), &adapter_files(4 << index, index as u64)).expect("written");
    }
    let shelf = shelf.display().to_string();
    let arguments = ["--allow-adapter-loading", &shelf, "--kv-memory", "2MB", "--prefix-cache", "2MB"];
    Serving::over(folder, model, &arguments)
}

/// What is wrong with a request, or with its client.
fn mistake(serving: &Serving, index: usize) {
    let bad = [
        json!({"prompt": [99_999]}),
        json!({"prompt": "t5", "temperature": -3}),
        json!({"prompt": vec![5; 5000]}),
        json!({"prompt": "t5", "guided_regex": "("}),
        json!({"prompt": "t5", "surprise": 1}),
        json!({"model": "none", "prompt": "t5"}),
    ];
    let answer = serving.post("/v1/completions", &bad[index % bad.len()]);
    assert!((400..500).contains(&answer.status), "{answer:?}");
}

/// Goes away in the midst of an answer.
fn leave(serving: &Serving, exchange: &Exchange, pieces: usize) {
    let mut reader = BufReader::new(connect(serving.address));
    reader.get_mut().write_all(&exchange.bytes(true, "close")).expect("sent");
    if read_head(&mut reader) == 200 {
        for _ in 0..pieces {
            chunk(&mut reader);
        }
    }
}

/// Asks an adapter that may be gone, which is said.
fn adapted(serving: &Serving, exchange: &Exchange, name: &str) {
    let mut body = exchange.body(false);
    body["model"] = json!(name);
    let answer = serving.post("/v1/completions", &body);
    assert!([200, 404].contains(&answer.status), "{answer:?}");
}

/// Lets adapters come and go.
fn swap(serving: &Serving, over: &AtomicBool) -> usize {
    let mut swaps = 0;
    while !over.load(Ordering::Relaxed) {
        for (name, place) in [("law", "law"), ("law", "jokes"), ("jokes", "jokes")] {
            let body = json!({"lora_name": name, "lora_path": place, "load_inplace": true});
            serving.post("/v1/load_lora_adapter", &body).good();
            thread::sleep(Duration::from_millis(200));
        }
        for name in ["law", "jokes"] {
            let gone = serving.post("/v1/unload_lora_adapter", &json!({"lora_name": name}));
            assert_eq!(gone.status, 200, "{gone:?}");
        }
        swaps += 1;
    }
    swaps
}

/// What one stretch of the soak gave.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    requests: usize,
    /// Kilobytes in memory at its end.
    resident: u64,
    /// Milliseconds of a token, in the middle of all requests.
    latency: f64,
}

fn stretch(serving: &Serving, all: &[Exchange], time: Duration) -> Stretch {
    let (next, times, begun) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let swapping = scope.spawn(|| swap(serving, &over));
        let work = || {
            let mut client = Client::new(serving.address);
            while begun.elapsed() < time {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let exchange = &all[index * 7 % all.len()];
                match index % 20 {
                    0 | 10 => leave(serving, exchange, index % 7),
                    5 => mistake(serving, index),
                    7 => adapted(serving, exchange, ["law", "jokes"][index / 20 % 2]),
                    _ => {
                        let seen = client.stream(exchange);
                        assert_eq!(seen.status, 200);
                        if let Some(between) = seen.between {
                            times.lock().expect("whole").push(between.as_secs_f64() * 1e3);
                        }
                    }
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        let end = Over(&over);
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        drop(end);
        assert!(swapping.join().expect("no panic") > 0);
    });
    serving.until_idle();
    let mut times = times.into_inner().expect("whole");
    Stretch { requests: next.into_inner(), resident: serving.resident(), latency: quantile(&mut times, 0.5) }
}

fn l9(time: Duration, said: bool) {
    let _alone = alone();
    let serving = server();
    let all = exchanges(&serving.model, 300, 1..65);
    let tenth = time / 10;
    // The first stretch warms it up: what is kept of prompts fills its room, the allocator its own.
    stretch(&serving, &all, tenth.max(Duration::from_millis(500)));
    let start = (serving.resident(), serving.holds());
    let mut stretches: Vec<Stretch> = (0..10).map(|_| stretch(&serving, &all, tenth)).collect();
    // A machine that others use is given another chance to show its last tenth.
    for _ in 0..3 {
        if !said || stretches[stretches.len() - 1].latency <= stretches[0].latency * 1.1 {
            break;
        }
        stretches.push(stretch(&serving, &all, tenth));
    }
    let last = stretches[stretches.len() - 1];
    serving.until("as at the start", || serving.holds() == start.1);
    let body = json!({"prompt": [5], "max_tokens": 3});
    assert_eq!(serving.post("/v1/completions", &body).good()["usage"]["completion_tokens"], json!(3));
    assert_eq!(serving.figure("faults_total"), 0.0);
    if !said {
        return;
    }
    let requests: usize = stretches.iter().map(|one| one.requests).sum();
    let grown = last.resident as f64 - start.0 as f64;
    let slope = slope(&stretches);
    let figures = format!(
        "{requests} requests of {CLIENTS} clients in {:.0} s, a tenth of them given up, a twentieth mistakes, adapters swapped all \
         the time: memory {:.1} MiB after warming up, {:+.1} MiB at the end, {slope:+.2} MiB for 10000 requests; a token {:.2} \
         ms in the first tenth, {:.2} in the last",
        (tenth * stretches.len() as u32).as_secs_f64(),
        start.0 as f64 / 1024.0,
        grown / 1024.0,
        stretches[0].latency,
        last.latency
    );
    report("L9", &figures);
    assert!(grown <= (10.0 * 1024.0f64).max(start.0 as f64 * 0.02) && slope <= 1.0, "{figures}");
    assert!(last.latency <= stretches[0].latency * 1.1, "{figures}");
}

/// MiB for 10,000 requests: the line through what was in memory after each stretch, by least squares.
fn slope(stretches: &[Stretch]) -> f64 {
    let mut sum = 0;
    let points: Vec<(f64, f64)> = stretches
        .iter()
        .map(|one| {
            sum += one.requests;
            (sum as f64 / 10_000.0, one.resident as f64 / 1024.0)
        })
        .collect();
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let (across, along) = (mean(&|point| (point.0 - x) * (point.1 - y)), mean(&|point| (point.0 - x).powi(2)));
    across / along
}

#[test]
fn l9_soak_in_small() {
    l9(Duration::from_secs(3), false);
}

#[test]
#[ignore = "takes 11 minutes"]
fn l9_soak() {
    l9(Duration::from_secs(600), true);
}
