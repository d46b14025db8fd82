//! The dialect of OpenAI's interface.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod logprobs;
pub mod messages;
pub mod models;
pub mod params;

use attend_engine::{Finish, Output};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of Unix time.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Why a choice ended, in this dialect's words. `abort` is for work that was cut because the server stops.
pub fn reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::EndToken(_) | Finish::StopToken(_) | Finish::StopText(_) | Finish::Complete => "stop",
        Finish::MaxTokens | Finish::Context => "length",
        Finish::Cancelled => "abort",
    }
}

/// The tokens of answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub prompt: usize,
    /// Tokens of prompts that did not have to be computed.
    pub cached: usize,
    pub completion: usize,
}

impl Usage {
    pub fn add(&mut self, output: &Output) {
        self.prompt += output.usage.prompt_tokens;
        self.cached += output.usage.cached_tokens;
        self.completion += output.usage.completion_tokens;
    }

    pub fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

/// An event of a stream.
pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// What ends a stream.
pub const DONE: &str = "data: [DONE]\n\n";

/// The event of a request that failed on the way.
pub fn failed(failure: &crate::failure::Failure) -> String {
    event(&crate::front::reply::Shape::OpenAi.body(failure))
}
