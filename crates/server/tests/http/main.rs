//! The server over real sockets, with tiny models.

mod client;
mod company;
mod hostile;
mod openai;
mod states;
mod streams;
mod support;
mod transport;
