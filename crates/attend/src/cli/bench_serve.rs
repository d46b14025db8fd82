//! `attend bench serve`: how a server does under a load of many clients.

use super::{screen, values};
use crate::bench::{Load, LoadReport, Spread};
use anyhow::{Result, anyhow};
use clap::Args;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend bench serve --url http://localhost:8080 --clients 16
  attend bench serve --url http://localhost:8080 --clients 4 --prompt 512 --shared 400 --generate 128 --json
  attend bench serve --url http://localhost:8080 --clients 32 --generate 0 --prompt 20 --range-ratio 0.8

Each client asks for a completion, reads it as it comes, and asks for the next; with --generate 0 they ask for vectors. Any \
server that speaks OpenAI's dialect can be asked.")]
pub struct BenchServeArgs {
    /// Where the server listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Clients that ask at the same time
    #[arg(long, value_name = "N", default_value = "8", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub clients: usize,
    /// Requests of each client, one after the other
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub requests: usize,
    /// Words of each prompt
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub prompt: usize,
    /// How far lengths of prompts and answers are from those asked for: 0, all alike, to 1, anything up to twice as long
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = values::fraction, allow_negative_numbers = true)]
    pub range_ratio: f32,
    /// Words that all prompts begin with
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count, allow_negative_numbers = true)]
    pub shared: usize,
    /// Tokens of each answer; 0 asks for vectors instead
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::count, allow_negative_numbers = true)]
    pub generate: usize,
    /// The model to ask [default: the server's first]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// A key that the server wants, if it wants one
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// One JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &BenchServeArgs) -> Result<bool> {
    let load = Load {
        url: args.url.clone(),
        key: args.api_key.clone(),
        model: args.model.clone(),
        clients: args.clients,
        requests: args.requests,
        prompt: args.prompt,
        range_ratio: f64::from(args.range_ratio),
        shared: args.shared,
        generate: args.generate,
    };
    let report = load.run();
    if report.requests == report.failed {
        return Err(anyhow!("{}: {}", args.url, report.first_failure.unwrap_or_default()));
    }
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report)?),
        false => table(&report),
    };
    write!(std::io::stdout().lock(), "{text}")?;
    Ok(report.failed == 0)
}

fn table(report: &LoadReport) -> String {
    let spread = |spread: &Option<Spread>| {
        spread.map_or("-".into(), |s| {
            format!("median {:.1} ms, 95% {:.1} ms, 99% {:.1} ms, most {:.1} ms", s.median, s.p95, s.p99, s.most)
        })
    };
    let mut rows = vec![
        ("clients", format!("{}, {} requests in all, in {:.2} s", report.clients, report.requests, report.seconds)),
        ("requests", format!("{:.1}/s", report.requests_per_second)),
        ("prompts", format!("{} tokens", screen::grouped(report.prompt_tokens))),
    ];
    if report.generated_tokens > 0 {
        let tokens = screen::grouped(report.generated_tokens);
        rows.push(("answers", format!("{tokens} tokens, {:.1}/s", report.generated_tokens_per_second)));
    }
    rows.push(("first token", spread(&report.first_token)));
    rows.push(("between tokens", spread(&report.between_tokens)));
    if report.refused + report.failed > 0 {
        rows.push(("not answered", format!("{} refused, {} failed", report.refused, report.failed)));
    }
    rows.extend(report.first_failure.iter().map(|words| ("first failure", words.clone())));
    rows.into_iter().map(|(name, value)| format!("{name:<16}{value}\n")).collect()
}
