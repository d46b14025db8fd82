//! How fast a model is here, and how far that is from what the machine could do: `attend bench`.
//!
//! A row is one kind of [`Work`], measured several times: reading a prompt, writing tokens of one or more sequences
//! together, encoding texts. All of it goes through the calls that answer requests ([`attend_engine::Engine`], its source
//! of logits, [`attend_nn::Model::forward`]); there is no path that only a benchmark takes. What each row costs is read
//! off the description ([`cost`]) and held against what the machine was measured to do.

mod compare;
mod cost;
mod decoder;
mod encoder;
mod error;
mod load;
mod memory;
mod prompts;
mod report;
mod rows;
mod tables;
mod work;
mod writer;

pub use compare::compare;
pub use error::Error;
pub use load::{Load, LoadReport, Spread};
pub use memory::{forget_peak, peak};
pub use prompts::Prompts;
pub use report::{Compared, Limits, Machine, ModelFacts, Report, Row, SCHEMA, Settings, Unit};
pub use rows::{Subject, loading, measure};
pub use tables::{csv, markdown, text};
pub use work::{Choices, Kind, Work, works};
