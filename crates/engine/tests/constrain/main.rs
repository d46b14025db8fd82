//! Constrained output: every answer is what was asked for, whatever the rows say, and the same in any company.

#[path = "../common/mod.rs"]
mod common;
mod kinds;
mod same;
mod support;
