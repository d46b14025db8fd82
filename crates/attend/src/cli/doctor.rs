//! `attend doctor`: what this machine can do, and what is missing.

use super::screen;
use crate::models::{self, DEFAULT_MODEL, Folder, Hub};
use crate::system;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend doctor
  attend doctor --json
  attend doctor --network     also asks whether the model hub answers

Nothing is sent anywhere unless --network is given.")]
pub struct DoctorArgs {
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// Also try the network: does the model hub answer?
    #[arg(long)]
    pub network: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    processor: Option<String>,
    logical_processors: usize,
    memory_total_bytes: Option<u64>,
    memory_available_bytes: Option<u64>,
    models_folder: Option<PathBuf>,
    models: Vec<ModelLine>,
    default_model_present: bool,
    /// Programs that can fetch the default model.
    installers: Vec<String>,
    network: Option<Network>,
    missing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ModelLine {
    name: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Network {
    hub: String,
    reachable: bool,
    message: Option<String>,
}

pub fn run(args: &DoctorArgs) -> Result<bool> {
    let report = examine(args);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", in_words(&report))?;
    }
    Ok(true)
}

fn examine(args: &DoctorArgs) -> Report {
    let memory = system::memory();
    let mut missing = Vec::new();
    let (folder, entries) = match Folder::locate().and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((entries, folder)) => (Some(folder), entries),
        Err(error) => {
            missing.push(error.to_string());
            (None, Vec::new())
        }
    };
    let installers: Vec<String> = models::installers().iter().map(models::Installer::command_line).collect();
    let default_model_present = entries.iter().any(|entry| entry.name == DEFAULT_MODEL.name);
    if !default_model_present {
        missing.push(match installers.is_empty() {
            true => "the default model, and pip or uv to fetch it".into(),
            false => "the default model: `attend pull` brings it".into(),
        });
    }
    Report {
        version: env!("CARGO_PKG_VERSION"),
        processor: system::processor(),
        logical_processors: system::logical_processors(),
        memory_total_bytes: memory.map(|memory| memory.total),
        memory_available_bytes: memory.map(|memory| memory.available),
        models_folder: folder.map(|folder| folder.path),
        models: entries.into_iter().map(|entry| ModelLine { name: entry.name, bytes: entry.bytes }).collect(),
        default_model_present,
        installers,
        network: args.network.then(ask_hub),
        missing,
    }
}

fn ask_hub() -> Network {
    let hub = Hub::from_environment();
    screen::hint(&format!("asking {} (gives up after 10 s without an answer)", hub.endpoint()));
    let answer = hub.answers();
    Network { hub: hub.endpoint().to_owned(), reachable: answer.is_ok(), message: answer.err().map(|e| e.to_string()) }
}

fn in_words(report: &Report) -> String {
    let mut table = screen::Table::new(&["attend", report.version]);
    let unknown = || "unknown".to_owned();
    let mut row = |name: &str, value: String| {
        table.row([name.to_owned(), value]);
    };
    row("processor", report.processor.clone().unwrap_or_else(unknown));
    row("logical processors", report.logical_processors.to_string());
    let memory = report.memory_available_bytes.zip(report.memory_total_bytes);
    row("memory", memory.map_or_else(unknown, |(free, all)| format!("{} free of {}", screen::bytes(free), screen::bytes(all))));
    row("models folder", report.models_folder.as_ref().map_or_else(unknown, |path| path.display().to_string()));
    for model in &report.models {
        row("", format!("{} ({})", model.name, screen::bytes(model.bytes)));
    }
    row("fetches by", if report.installers.is_empty() { "nothing found".into() } else { report.installers.join(", ") });
    if let Some(network) = &report.network {
        let state = network.message.clone().unwrap_or_else(|| "answers".into());
        row("model hub", format!("{}: {state}", network.hub));
    }
    row("missing", if report.missing.is_empty() { "nothing".into() } else { report.missing.join("; ") });
    table.to_string()
}
