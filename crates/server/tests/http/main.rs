//! The server over real sockets, with tiny models.

mod client;
mod company;
mod dialects;
mod hostile;
mod openai;
mod states;
mod streams;
mod support;
mod tasks;
mod transport;
