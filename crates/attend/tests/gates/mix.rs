//! The mix of requests of the load gates: prompts of 4 to 200 tokens, answers of 1 to 64, with what the library answers to
//! each alone.

use crate::client::{chunk, connect, read, request};
use crate::serving::SIZE;
use attend::engine::{Engine, EngineOptions, GenerateOptions, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, load};
use attend::nn::KvTypes;
use attend::text::Tokenizer;
use attend_testkit::golden::Random;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// A request and the text that answers it.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub prompt: Vec<u32>,
    pub tokens: usize,
    pub text: String,
    /// The request for a stream over a connection that is kept, made once: a client must not take the server's cores.
    streamed: Vec<u8>,
}

/// What is read of an event.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    choices: [Said<'a>; 1],
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl Exchange {
    pub fn body(&self, stream: bool) -> Value {
        json!({"prompt": self.prompt, "max_tokens": self.tokens, "ignore_eos": true, "stream": stream})
    }

    pub fn bytes(&self, stream: bool, connection: &str) -> Vec<u8> {
        let body = self.body(stream).to_string();
        request("POST", "/v1/completions", &[("Connection", connection)], body.as_bytes())
    }
}

/// So many different requests, answered by the library alone, one after the other. Every third begins as one before it.
pub fn exchanges(model: &Path, count: usize, tokens: std::ops::Range<usize>) -> Vec<Exchange> {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = load(model, &options, &mut |_, _| {}).expect("loads");
    let tokenizer = Tokenizer::open(model).expect("a tokenizer");
    let run = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let engine = Engine::new(&loaded, Some(&tokenizer), &run).expect("an engine");
    let mut random = Random(17);
    let mut all: Vec<Exchange> = Vec::with_capacity(count);
    for index in 0..count {
        let length = 4 + random.below(197);
        let mut prompt: Vec<u32> = (0..length).map(|_| 3 + random.below(SIZE.vocab - 3) as u32).collect();
        if index % 3 == 2 {
            let before = &all[random.below(all.len())].prompt;
            let shared = before.len().min(prompt.len());
            prompt[..shared].copy_from_slice(&before[..shared]);
        }
        let tokens = tokens.start + random.below(tokens.len());
        let mut options = GenerateOptions::default();
        (options.length.max_tokens, options.length.ignore_eos) = (Some(tokens), true);
        let asked = Prompt::tokens(prompt.clone());
        let output = engine.generate(asked, &options, &mut |_| ControlFlow::Continue(())).expect("an answer");
        let mut exchange = Exchange { prompt, tokens, text: output.choices[0].text.clone(), streamed: Vec::new() };
        exchange.streamed = exchange.bytes(true, "keep-alive");
        all.push(exchange);
    }
    all
}

/// What a client saw of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub status: u16,
    pub first: Duration,
    pub whole: Duration,
    /// Between two tokens, on average; None for short answers.
    pub between: Option<Duration>,
}

/// A client with a connection that it keeps.
pub struct Client {
    address: SocketAddr,
    reader: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client { address, reader: None }
    }

    /// Asks for a stream and holds it to the library's answer. A refusal is no failure here.
    pub fn stream(&mut self, exchange: &Exchange) -> Seen {
        let mut reader = self.reader.take().unwrap_or_else(|| BufReader::new(connect(self.address)));
        let begun = Instant::now();
        reader.get_mut().write_all(&exchange.streamed).expect("sent");
        let (status, length) = head(&mut reader);
        let first = begun.elapsed();
        if status != 200 {
            // The connection is kept, as a client's that asks again.
            reader.read_exact(&mut vec![0; length]).expect("the words of a refusal");
            self.reader = Some(reader);
            return Seen { status, first, whole: first, between: None };
        }
        let (mut text, mut rest, mut ended, mut times) = (String::new(), String::new(), false, Vec::new());
        while let Some(bytes) = chunk(&mut reader) {
            rest += std::str::from_utf8(&bytes).expect("whole characters");
            let mut left = rest.as_str();
            while let Some((event, behind)) = left.split_once("\n\n") {
                assert!(!ended, "nothing follows the end: {event}");
                let data = event.strip_prefix("data: ").expect("an event");
                if data == "[DONE]" {
                    ended = true;
                } else {
                    let Event { choices: [said] } = serde_json::from_str(data).expect("an event");
                    text += &said.text;
                    times.push(begun.elapsed());
                }
                left = behind;
            }
            rest = left.to_owned();
        }
        assert!(ended, "the stream was cut: {text}");
        assert_eq!(text, exchange.text, "what is streamed is what the library answers alone");
        self.reader = Some(reader);
        let whole = begun.elapsed();
        let steps = u32::try_from(exchange.tokens - 1).expect("few");
        let between = (exchange.tokens >= 8).then(|| (whole - times[0]) / steps);
        Seen { status, first: times[0], whole, between }
    }

    /// Asks without a stream.
    pub fn whole(&mut self, exchange: &Exchange) -> u16 {
        let mut reader = self.reader.take().unwrap_or_else(|| BufReader::new(connect(self.address)));
        reader.get_mut().write_all(&exchange.bytes(false, "keep-alive")).expect("sent");
        let answer = read(&mut reader).expect("an answer");
        if answer.status == 200 {
            assert_eq!(answer.json()["choices"][0]["text"].as_str(), Some(exchange.text.as_str()));
        }
        self.reader = Some(reader);
        answer.status
    }
}

/// The status of an answer, and the length of its body where that is said.
fn head(reader: &mut BufReader<TcpStream>) -> (u16, usize) {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return (status.expect("a status"), length);
        }
        status = status.or_else(|| line.split(' ').nth(1).and_then(|status| status.parse().ok()));
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        }
    }
}
