//! `attend doctor`: what this machine can do, and what is missing.

use super::measure::{Speed, measure};
use super::{screen, values};
use crate::models::{self, DEFAULT_MODEL, Folder, Hub};
use crate::system;
use anyhow::{Result, anyhow};
use clap::Args;
use serde::Serialize;
use std::io::Write;

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
    /// Threads to measure with [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Also try the network: does the model hub answer?
    #[arg(long)]
    pub network: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    processor: Option<String>,
    logical_processors: usize,
    /// Every instruction set that this machine can run.
    instruction_sets: Vec<&'static str>,
    /// The one that is used, with the extensions found beside it.
    instruction_set: String,
    threads: usize,
    speed: Speed,
    memory_total_bytes: Option<u64>,
    memory_available_bytes: Option<u64>,
    models_folder: Option<String>,
    models: Vec<ModelLine>,
    default_model_present: bool,
    /// The program that would fetch the default model.
    installer: Option<String>,
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
    attend_kernels::choose().map_err(|message| anyhow!(message))?;
    if let Some(threads) = args.threads {
        attend_kernels::set_threads(threads);
    }
    screen::hint("measuring (about two seconds)");
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
    missing.extend(attend_kernels::replaced().map(|fault| format!("a sound instruction set ({fault}; not used)")));
    let (folder, entries) = match Folder::locate().and_then(|folder| Ok((folder.entries()?, folder))) {
        Ok((entries, folder)) => (Some(folder), entries),
        Err(error) => {
            missing.push(error.to_string());
            (None, Vec::new())
        }
    };
    let installer = models::installers().next().map(|installer| installer.command_line());
    let default_model_present = entries.iter().any(|entry| entry.name == DEFAULT_MODEL.name);
    if !default_model_present {
        missing.push(match installer.is_none() {
            true => "the default model, and pip or uv to fetch it".into(),
            false => "the default model: `attend pull` brings it".into(),
        });
    }
    Report {
        version: env!("CARGO_PKG_VERSION"),
        processor: system::processor(),
        logical_processors: system::logical_processors(),
        instruction_sets: attend_kernels::available().into_iter().map(attend_kernels::Isa::name).collect(),
        instruction_set: attend_kernels::machine().to_string(),
        threads: attend_kernels::threads(),
        speed: measure(),
        memory_total_bytes: memory.map(|memory| memory.total),
        memory_available_bytes: memory.map(|memory| memory.available),
        models_folder: folder.map(|folder| folder.path.display().to_string()),
        models: entries.into_iter().map(|entry| ModelLine { name: entry.name, bytes: entry.bytes }).collect(),
        default_model_present,
        installer,
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
    row("logical processors", format!("{}, {} used", report.logical_processors, report.threads));
    row("instruction sets", format!("{}; used: {}", report.instruction_sets.join(", "), report.instruction_set));
    row("reads memory at", format!("{:.1} GB/s", report.speed.memory_gb_per_s));
    for rate in &report.speed.matmul {
        row("multiplies", format!("{} weights at {:.0} GFLOP/s ({})", rate.weights, rate.gflops, rate.arithmetic));
    }
    let memory = report.memory_available_bytes.zip(report.memory_total_bytes);
    row(
        "memory",
        memory.map_or_else(unknown, |(free, all)| format!("{} free of {}", screen::bytes(free), screen::bytes(all))),
    );
    row("models folder", report.models_folder.clone().unwrap_or_else(unknown));
    for model in &report.models {
        row("", format!("{} ({})", model.name, screen::bytes(model.bytes)));
    }
    row("fetches by", report.installer.clone().unwrap_or_else(|| "nothing found".into()));
    if let Some(network) = &report.network {
        let state = network.message.clone().unwrap_or_else(|| "answers".into());
        row("model hub", format!("{}: {state}", network.hub));
    }
    row("missing", if report.missing.is_empty() { "nothing".into() } else { report.missing.join("; ") });
    table.to_string()
}
