//! The server over real sockets, with tiny models.

mod adapters;
mod browser;
mod browsing;
mod calling;
mod client;
mod company;
mod constraints;
mod described;
mod dialects;
mod filling;
mod hostile;
mod listening;
mod openai;
mod page;
mod prefix;
mod seats;
mod states;
mod streams;
mod strict;
mod support;
mod tasks;
mod transport;
