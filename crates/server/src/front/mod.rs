//! Connections, guards, routes: everything about HTTP that no dialect has of its own.

pub mod app;
pub mod body;
pub mod clock;
pub mod guard;
pub mod listen;
pub mod log;
pub mod openapi;
pub mod record;
mod refusal;
pub mod reply;
pub mod routes;
pub mod serve;
pub mod socket;
pub mod sse;
pub mod tls;
