//! Gates: what a server must hold under load, faults and hostile requests, and that an answer is the same by every way.
//!
//! Each gate is a function of its size. A small one is part of every test run and asserts what does not depend on the
//! machine; the full one (`--ignored`) asserts the figures too, times included, and prints a line with what it measured.
//! The server is the program itself, a process of its own whose memory, descriptors and threads are read from `/proc`.
#![cfg(target_os = "linux")]

mod apart;
#[path = "../../../server/tests/http/client.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod compilers;
mod drops;
mod encoders;
mod ends;
mod faults;
mod fuzz;
mod keys;
mod load;
mod mix;
mod pairs;
mod panics;
mod pool;
mod routes;
mod secrets;
mod sequences;
mod serving;
mod slow;
mod soak;
#[path = "../../../server/tests/http/support.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod support;
mod texts;
mod wide;
