//! Attend: run, check and look into transformer models.
//!
//! This crate is the front door. Programs that embed Attend use the re-exported crates below; the command line lives
//! in [`cli`], one sub-command a file, and the folder of models and the ways to fill it in [`models`].
#![forbid(unsafe_code)]

pub use attend_engine as engine;
pub use attend_format as format;
pub use attend_kernels as kernels;
pub use attend_model as model;
pub use attend_nn as nn;
pub use attend_server as server;
pub use attend_text as text;

pub mod bench;
pub mod cli;
pub mod convert;
pub mod models;
pub mod system;
pub mod verify;
