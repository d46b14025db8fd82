//! `attend list`: the models of the folder.

use super::screen;
use crate::models::{DEFAULT_MODEL, Folder};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend list
  attend list --json

The folder is ATTEND_MODELS, else the platform's data folder; `attend doctor` names it.")]
pub struct ListArgs {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &ListArgs) -> Result<bool> {
    let folder = Folder::locate()?;
    let entries = folder.entries()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let object =
            json!({ "folder": folder.path.display().to_string(), "default": DEFAULT_MODEL.name, "models": entries });
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(true);
    }
    if entries.is_empty() {
        screen::notice(&format!("no models in {}; `attend pull` brings the default model", folder.path.display()));
        return Ok(true);
    }
    let mut table = screen::Table::new(&["name", "size", "sha256", "from"]);
    for entry in &entries {
        let sum = entry.sha256.as_deref().and_then(|sum| sum.get(..12)).unwrap_or("-");
        let source = entry.source.as_deref().unwrap_or("put here by hand");
        table.row([&entry.name, screen::bytes(entry.bytes).as_str(), sum, source]);
    }
    write!(out, "{table}")?;
    Ok(true)
}
