//! What one client may ask for. Every bound that a request can run into is here, and is printed when the server starts.

use std::fmt;
use std::time::Duration;

/// The bounds of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Lists and objects inside one another.
    pub json_depth: usize,
    /// Values of a body, nested ones counted.
    pub json_values: usize,
    /// Prompts or texts of a request.
    pub inputs: usize,
    /// Documents to rank.
    pub documents: usize,
    /// Answers to each prompt.
    pub choices: usize,
    pub stops: usize,
    pub stop_bytes: usize,
    pub biases: usize,
    pub top_logprobs: usize,
    /// Bytes of what the answers of a model are held to, all together.
    pub constraints: u64,
    /// Adapters of all models together.
    pub adapters: usize,
    /// Requests of a model that wait for room; the next one is refused.
    pub queue: usize,
    /// Bytes of a request's head.
    pub head: usize,
    /// How long a head may take from its first byte to its last.
    pub head_time: Duration,
    /// How long a body may take.
    pub body_time: Duration,
    /// How long a connection may have nothing to say, or not read what it is sent.
    pub idle: Duration,
    pub connections: usize,
    /// How long running work may go on after the server was told to stop.
    pub grace: Duration,
}

/// So much is read beyond a limit before the connection is given up, with the last piece no more than 64 KiB.
pub const BEYOND: usize = 48 << 10;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 2_000_000,
            json_depth: 100,
            json_values: 1 << 18,
            inputs: 32,
            documents: 1024,
            choices: 16,
            stops: 16,
            stop_bytes: 256,
            biases: 300,
            top_logprobs: 20,
            constraints: attend_engine::MAX_CONSTRAINT_BYTES,
            adapters: 64,
            queue: 128,
            head: 16 << 10,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            // Below the number of descriptors that a process usually has.
            connections: 512,
            grace: Duration::from_secs(20),
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { body, json_depth, json_values, inputs, documents, choices, .. } = self;
        writeln!(f, "body {body} bytes, JSON {json_depth} deep and {json_values} values, {inputs} prompts or inputs,")?;
        let Limits { stops, stop_bytes, biases, top_logprobs, .. } = self;
        write!(
            f,
            "{documents} documents to rank, n {choices}, stop {stops} x {stop_bytes} bytes, logit_bias {biases}, "
        )?;
        let Limits { queue, head, head_time, body_time, idle, connections, .. } = self;
        writeln!(f, "top_logprobs {top_logprobs}, constraints of a model {} MiB,", self.constraints >> 20)?;
        let (head_time, body_time, idle) = (head_time.as_secs(), body_time.as_secs(), idle.as_secs());
        writeln!(f, "queue {queue} requests, {connections} connections, head {head} bytes in {head_time} s,")?;
        let grace = self.grace.as_secs_f64();
        write!(
            f,
            "body in {body_time} s, idle {idle} s, {grace} s to the end when stopped; no CORS, no URL is ever fetched"
        )
    }
}
