//! Attend over HTTP.
//!
//! Two storeys that meet in [`host::ask`]: **hosts** ([`host`]), a thread for each model that owns it and its schedule, with
//! others beside it that make requests ready; and the **front**, asynchronous, which reads, checks and formats. A request
//! goes down as a value, and what is said of it comes back through a channel of its own; a client that goes away drops its
//! end of the channel, and the request is forgotten wherever it is.
#![forbid(unsafe_code)]

pub mod adapters;
pub mod answers;
pub mod anthropic;
mod constraint;
pub mod failure;
pub mod fields;
pub mod figures;
pub mod forced;
pub mod front;
pub mod functions;
pub mod host;
pub mod json;
pub mod limits;
pub mod lora;
pub mod ollama;
pub mod openai;
pub mod page;
pub mod tasks;
pub mod tei;

pub use front::guard::Keys;
pub use front::listen::{Address, Listen};
pub use front::log::Log;
pub use front::serve::{Options, Server, stop_signal};
pub use front::tls::Tls;
pub use host::adapter::AdapterAt;
pub use host::roster::{Keep, Offer, Policy, Tell};
pub use host::{Bounds, Loader, Model, Parts};
pub use limits::Limits;
