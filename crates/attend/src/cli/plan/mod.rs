//! `attend plan`: what a model costs, read off its description; no weights are read.

mod compare;
mod tables;

use super::measure;
use super::options::{CacheType, ComputeType, ModelArg};
use super::session::{cache_type, design};
use super::{screen, values};
use crate::system;
use anyhow::{Result, anyhow};
use attend_engine::EngineOptions;
use attend_kernels::{Compute, DType};
use attend_model::cost::{AsStored, Fit, Plan, Planner, Rates, Speed, Uniform, Usage, WeightTypes};
use attend_model::{Described, LoadOptions};
use attend_nn::KvTypes;
use attend_nn::spec::{Body, ModelSpec};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend plan llama-2-70b --context 4096 --requests 8
  attend plan model.gguf --kv-type q8_0 --fit 24GB
  attend plan palm.toml --weights q4_k --json
  attend plan --list

MODEL is a model as for every command, a description (.toml or .json), a config.json, or one of the well-known models \
that --list names. Nothing is loaded and nothing is fetched for those.")]
pub struct PlanArgs {
    /// What to plan for; the default model when absent
    #[arg(value_name = "MODEL")]
    pub design: Option<OsString>,
    #[arg(short, long = "model", value_name = "MODEL", conflicts_with = "design", hide = true)]
    pub model: Option<OsString>,
    /// Tokens of each request, prompt and answer together [default: what the model was made for]
    #[arg(long, value_name = "N", value_parser = values::context, allow_negative_numbers = true)]
    pub context: Option<usize>,
    /// Tokens of each source text of an encoder-decoder [default: as the context]
    #[arg(long, value_name = "N", value_parser = values::context, allow_negative_numbers = true)]
    pub source: Option<usize>,
    /// Requests at the same time
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub requests: usize,
    /// The most tokens of a prompt that a decoder reads in one step [default: 512]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub batch: Option<usize>,
    /// How keys and values are kept
    #[arg(long, value_name = "TYPE", default_value = "f16", value_enum)]
    pub kv_type: CacheType,
    /// How weights are kept: f32, bf16, q8_0, q4_k, ... [default: as in the files, bf16 without files]
    #[arg(long, value_name = "TYPE", value_parser = values::weight_type)]
    pub weights: Option<DType>,
    /// Arithmetic of the weights: auto follows the type and the machine, f32 widens every weight exactly, q8_0 rounds plain
    /// weights to eight bits
    #[arg(long, value_name = "TYPE", default_value = "auto", value_enum)]
    pub dtype: ComputeType,
    /// Memory to fit into, as in 24GB or 80GiB [default: what is free here]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub fit: Option<u64>,
    /// Threads to compute with [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = values::threads, allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Do not measure this machine (about two seconds), and tell no speeds
    #[arg(long)]
    pub no_speed: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// Names the well-known models
    #[arg(long)]
    pub list: bool,
}

/// Everything that is told.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    architecture: &'static str,
    #[serde(flatten)]
    plan: Plan,
    context: usize,
    source: Option<usize>,
    requests: usize,
    batch: usize,
    kv_type: String,
    weights_type: String,
    fit: Option<Fit>,
    machine: Option<Rates>,
    speed: Option<Speed>,
    comparisons: compare::Comparisons,
    notes: Vec<String>,
}

pub fn run(args: &PlanArgs) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    if args.list {
        for name in attend_model::known_models() {
            writeln!(out, "{name}")?;
        }
        return Ok(true);
    }
    attend_kernels::choose().map_err(|message| anyhow!(message))?;
    if let Some(threads) = args.threads {
        attend_kernels::set_threads(threads);
    }
    let model = args.design.as_ref().or(args.model.as_ref());
    let described = design(&ModelArg { model: model.cloned() })?;
    let report = report(args, &described);
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        tables::write(&mut out, &report, &described.spec)?;
    }
    Ok(true)
}

fn report(args: &PlanArgs, described: &Described) -> Report {
    let spec = &described.spec;
    let types = types(args, described);
    let planner = Planner::new(spec, types.as_ref());
    let usage = usage(args, spec);
    let plan = planner.plan(&usage);
    if !args.no_speed {
        screen::hint("measuring this machine (about two seconds)");
    }
    let machine = (!args.no_speed).then(|| Machine::measure(main_type(args, described)));
    let rates = machine.as_ref().map(|machine| machine.rates(main_type(args, described)));
    let memory = args.fit.or_else(|| system::memory().map(|memory| memory.available));
    let mut notes = described.notices.clone();
    if let Some(limit) = spec.context.filter(|limit| *limit < usage.context) {
        notes.push(format!("the model was made for {limit} tokens, fewer than the {} that are planned", usage.context));
    }
    Report {
        model: described.checkpoint.path().display().to_string(),
        architecture: described.architecture,
        context: usage.context,
        source: matches!(spec.body, Body::EncoderDecoder { .. }).then_some(usage.source),
        requests: usage.requests,
        batch: usage.batch,
        kv_type: cache_type(args.kv_type).to_string(),
        weights_type: weights_name(args, described),
        fit: memory.map(|memory| planner.fit(&usage, memory)),
        machine: rates,
        speed: rates.map(|rates| plan.speed(&usage, &rates)),
        comparisons: compare::compare(spec, types.as_ref(), compute(args), &usage, machine.as_ref()),
        plan,
        notes,
    }
}

/// What this machine was measured to do.
#[derive(Debug)]
struct Machine {
    bandwidth: f64,
    /// Operations in a second by type of weights.
    matmul: Vec<(DType, f64)>,
}

impl Machine {
    /// Measures `own` and the types that are compared.
    fn measure(own: DType) -> Machine {
        let mut types = compare::PRECISIONS.to_vec();
        types.push(own);
        types.sort();
        types.dedup();
        let rate = |dtype: DType| measure::matmul(dtype, Compute::Native).map(|rate| (dtype, rate.gflops * 1e9));
        Machine { bandwidth: attend_kernels::measure_bandwidth(), matmul: types.into_iter().filter_map(rate).collect() }
    }

    fn rates(&self, dtype: DType) -> Rates {
        let found = self.matmul.iter().find(|(known, _)| *known == dtype);
        let slowest = self.matmul.iter().map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
        Rates { memory_bytes_per_second: self.bandwidth, flops_per_second: found.map_or(slowest, |(_, rate)| *rate) }
    }
}

fn usage(args: &PlanArgs, spec: &ModelSpec) -> Usage {
    // Where positions have no end: a text of usual length.
    let context = args.context.or(spec.context).unwrap_or(512);
    Usage {
        context,
        source: args.source.unwrap_or(context),
        requests: args.requests,
        batch: args.batch.unwrap_or(EngineOptions::default().chunk),
        kv: KvTypes::both(cache_type(args.kv_type)),
    }
}

fn compute(args: &PlanArgs) -> Compute {
    args.dtype.chosen().0
}

fn types(args: &PlanArgs, described: &Described) -> Box<dyn WeightTypes> {
    let compute = compute(args);
    match args.weights {
        Some(dtype) => Box::new(Uniform { dtype, compute }),
        None => Box::new(kept(args, described)),
    }
}

fn kept(args: &PlanArgs, described: &Described) -> AsStored {
    let (compute, dtype) = args.dtype.chosen();
    described.kept(&LoadOptions { compute, dtype, ..LoadOptions::default() })
}

/// The type of most weights.
fn main_type(args: &PlanArgs, described: &Described) -> DType {
    let by_size = described.by_type().into_iter().max_by_key(|(_, (count, _))| *count).map(|(dtype, _)| dtype);
    args.weights.or(by_size).unwrap_or(DType::F32)
}

fn weights_name(args: &PlanArgs, described: &Described) -> String {
    match args.weights {
        Some(dtype) => dtype.to_string(),
        None => described.by_type().keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}
