//! A load of many clients on a server that speaks OpenAI's dialect: each asks, reads its answer as it comes, and asks again.

use serde::Serialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What is asked, and by how many.
#[derive(Debug, Clone)]
pub struct Load {
    /// Without a path.
    pub url: String,
    pub key: Option<String>,
    pub model: Option<String>,
    pub clients: usize,
    /// Requests of each client, one after the other.
    pub requests: usize,
    /// Words of each prompt.
    pub prompt: usize,
    /// How far the lengths of prompts and answers are from those that are asked for, as a share of them: from 0, all alike,
    /// to 1, anything up to twice as long. Which request has which length is always the same.
    pub range_ratio: f64,
    /// Words at its beginning that all prompts have.
    pub shared: usize,
    /// Tokens of each answer; 0: vectors are asked for.
    pub generate: usize,
}

/// What came of it. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    pub clients: usize,
    pub requests: usize,
    /// Requests that were refused because the queue was full.
    pub refused: usize,
    /// Those that failed otherwise, with the words of the first.
    pub failed: usize,
    pub first_failure: Option<String>,
    pub seconds: f64,
    pub requests_per_second: f64,
    /// As the server counts them; the pieces of its answers where it does not.
    pub generated_tokens: u64,
    pub generated_tokens_per_second: f64,
    pub prompt_tokens: u64,
    /// From sending a request to the first piece of its answer, or to the whole of one that is not streamed.
    pub first_token: Option<Spread>,
    /// Between two pieces of an answer.
    pub between_tokens: Option<Spread>,
}

/// Quantiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub most: f64,
}

impl Spread {
    /// Of times in seconds.
    fn of(mut seconds: Vec<f64>) -> Option<Spread> {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = ((seconds.len() as f64 * share).ceil() as usize).saturating_sub(1);
            seconds.get(index).map(|seconds| seconds * 1e3)
        };
        Some(Spread { median: at(0.5)?, p95: at(0.95)?, p99: at(0.99)?, most: at(1.0)? })
    }
}

/// What the clients saw.
#[derive(Debug, Default)]
struct Seen {
    first: Vec<f64>,
    between: Vec<f64>,
    answered: usize,
    refused: usize,
    failed: usize,
    failure: Option<String>,
    generated: u64,
    prompt: u64,
}

/// How one request ended.
enum End {
    Answered,
    Refused,
    Failed(String),
}

/// The longest that a server may say nothing.
const SILENCE: Duration = Duration::from_secs(300);
/// What prompts are made of.
const WORDS: [&str; 16] = [
    "river", "stone", "the", "of", "light", "house", "and", "wind", "seven", "old", "to", "garden", "runs", "cold",
    "in", "morning",
];

impl Load {
    /// Asks, and waits for all answers.
    pub fn run(&self) -> LoadReport {
        let seen = Mutex::new(Seen::default());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for client in 0..self.clients {
                let seen = &seen;
                scope.spawn(move || {
                    let agent = agent();
                    for request in 0..self.requests {
                        self.ask(&agent, client * self.requests + request, seen);
                    }
                });
            }
        });
        self.report(seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner), begun.elapsed().as_secs_f64())
    }

    fn report(&self, seen: Seen, seconds: f64) -> LoadReport {
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        LoadReport {
            clients: self.clients,
            requests: self.clients * self.requests,
            refused: seen.refused,
            failed: seen.failed,
            first_failure: seen.failure,
            seconds,
            requests_per_second: rate(seen.answered as f64),
            generated_tokens: seen.generated,
            generated_tokens_per_second: rate(seen.generated as f64),
            prompt_tokens: seen.prompt,
            first_token: Spread::of(seen.first),
            between_tokens: Spread::of(seen.between),
        }
    }

    /// One request; what came of it goes to `seen`.
    fn ask(&self, agent: &ureq::Agent, number: usize, seen: &Mutex<Seen>) {
        let mut own = Seen::default();
        let end = self.answered(agent, number, &mut own).unwrap_or_else(End::Failed);
        let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match end {
            End::Answered => seen.answered += 1,
            End::Refused => seen.refused += 1,
            End::Failed(words) => {
                seen.failed += 1;
                seen.failure.get_or_insert(words);
            }
        }
        seen.first.extend(own.first);
        seen.between.extend(own.between);
        seen.generated += own.generated;
        seen.prompt += own.prompt;
    }

    fn answered(&self, agent: &ureq::Agent, number: usize, own: &mut Seen) -> Result<End, String> {
        let (path, body) = self.request(number);
        let mut request = agent.post(format!("{}{path}", self.url.trim_end_matches('/')));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let begun = Instant::now();
        let mut response = request.send_json(&body).map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            200 => {}
            429 => return Ok(End::Refused),
            status => {
                let text = response.body_mut().read_to_string().unwrap_or_default();
                return Ok(End::Failed(format!("{status}: {}", text.chars().take(200).collect::<String>())));
            }
        }
        if self.generate == 0 {
            let answer: Value = response.body_mut().read_json().map_err(|error| error.to_string())?;
            own.first.push(begun.elapsed().as_secs_f64());
            own.prompt += answer["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
            return Ok(End::Answered);
        }
        read_stream(BufReader::new(response.body_mut().as_reader()), begun, own)
    }

    /// A length of about `count`, at least 1.
    fn varied(&self, count: usize, at: usize) -> usize {
        let length = count as f64 * (1.0 + self.range_ratio * (2.0 * drawn(at) - 1.0));
        (length.round() as usize).max(1)
    }

    fn request(&self, number: usize) -> (&'static str, Value) {
        let word = |at: usize| {
            let own = if at < self.shared { at * 7 } else { at * 5 + number.wrapping_mul(2_654_435_761) / 16 + number };
            WORDS[own % WORDS.len()]
        };
        let text = (0..self.varied(self.prompt, 2 * number)).map(word).collect::<Vec<_>>().join(" ");
        let mut body = match self.generate {
            0 => json!({"input": text}),
            most => json!({
                "prompt": text, "max_tokens": self.varied(most, 2 * number + 1), "ignore_eos": true, "temperature": 0, "stream": true,
                "stream_options": {"include_usage": true},
            }),
        };
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        (if self.generate == 0 { "/v1/embeddings" } else { "/v1/completions" }, body)
    }
}

/// Numbers of 0 to 1 that look like drawn ones, a fixed one for each `at` (the finalizer of SplitMix64).
fn drawn(at: usize) -> f64 {
    let mut x = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) as f64 / u64::MAX as f64
}

/// Takes the times of a stream's pieces, and at its end what it cost.
fn read_stream(lines: impl BufRead, begun: Instant, own: &mut Seen) -> Result<End, String> {
    let mut last: Option<Instant> = None;
    let (mut pieces, mut counted) = (0, 0);
    for line in lines.lines() {
        let line = line.map_err(|error| error.to_string())?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            own.generated += if counted == 0 { pieces } else { counted };
            return Ok(End::Answered);
        }
        let event: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
        if let Some(error) = event.get("error") {
            return Ok(End::Failed(error.to_string()));
        }
        if event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()) {
            let now = Instant::now();
            pieces += 1;
            match last.replace(now) {
                None => own.first.push((now - begun).as_secs_f64()),
                Some(last) => own.between.push((now - last).as_secs_f64()),
            }
        }
        counted += event["usage"]["completion_tokens"].as_u64().unwrap_or(0);
        own.prompt += event["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
    }
    Ok(End::Failed("the stream ended without its end".into()))
}

/// A client with a connection of its own.
fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_per_read(Some(SILENCE)).http_status_as_error(false);
    config.build().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let spread = Spread::of((1..=100).map(|ms| f64::from(ms) / 1e3).collect()).expect("some");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            close(spread.median, 50.0)
                && close(spread.p95, 95.0)
                && close(spread.p99, 99.0)
                && close(spread.most, 100.0)
        );
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn streams_are_read_to_their_end() {
        let chunk = |text: &str| format!("data: {}\n\n", json!({"choices": [{"text": text}]}));
        let usage =
            format!("data: {}\n\n", json!({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 5}}));
        let whole = [chunk("a"), chunk(""), chunk("b"), usage, "data: [DONE]\n\n".into()].concat();
        let mut seen = Seen::default();
        assert!(matches!(read_stream(whole.as_bytes(), Instant::now(), &mut seen), Ok(End::Answered)));
        assert_eq!((seen.first.len(), seen.between.len(), seen.generated, seen.prompt), (1, 1, 3, 5));
        let uncounted = [chunk("a"), chunk("b"), "data: [DONE]\n\n".into()].concat();
        assert!(matches!(read_stream(uncounted.as_bytes(), Instant::now(), &mut seen), Ok(End::Answered)));
        assert_eq!(seen.generated, 5);
        let cut = chunk("a");
        assert!(matches!(read_stream(cut.as_bytes(), Instant::now(), &mut seen), Ok(End::Failed(_))));
    }

    #[test]
    fn lengths_vary_within_the_range() {
        let load = |range_ratio| Load {
            url: String::new(),
            key: None,
            model: None,
            clients: 1,
            requests: 1,
            prompt: 100,
            range_ratio,
            shared: 0,
            generate: 10,
        };
        assert!((0..50).all(|at| load(0.0).varied(100, at) == 100));
        let lengths: Vec<usize> = (0..500).map(|at| load(0.8).varied(100, at)).collect();
        assert!(lengths.iter().all(|length| (20..=180).contains(length)));
        assert!(lengths.iter().any(|&length| length < 40) && lengths.iter().any(|&length| length > 160));
        assert!((0..500).all(|at| load(1.0).varied(3, at) >= 1));
        let body = load(0.8).request(3).1;
        assert_eq!(body, load(0.8).request(3).1, "the same every time");
    }
}
