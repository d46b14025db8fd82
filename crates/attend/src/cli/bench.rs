//! `attend bench`: how fast a model is here, and what share of the machine's limits that is.

use super::error::{Interrupted, usage};
use super::interrupt::{self, Graceful};
use super::options::{AttentionChoice, ComputeArgs, ComputeType, ModelArg};
use super::session::{self, cache_type, engine_options, load_options};
use super::{bench_serve, measure, screen, values};
use crate::bench::{
    self, Choices, Error, Kind, Limits, Machine, ModelFacts, Report, Row, SCHEMA, Settings, Subject, Work,
};
use crate::system;
use anyhow::Result;
use attend_engine::Error as EngineError;
use attend_kernels::DType;
use attend_model::cost::{AsStored, Planner};
use attend_model::{Described, Loaded};
use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend bench model.gguf
  attend bench model.gguf --prompt 128,512,4096 --depth 0,4096 --batch 1,8,16
  attend bench sentence-model --batch 1,32 --prompt 32,128,512 --format markdown
  attend bench flan-t5 --prompt 64 --generate 64 --beams 1,4
  attend bench model.gguf --format json > before.json
  attend bench model.gguf --compare before.json
  attend bench serve --url http://localhost:8080 --clients 16     a server under load

A decoder reads prompts (prefill) and writes (decode); an encoder encodes; an encoder-decoder answers sources. Each row is \
measured several times after a warm-up: its median, the least and the most, the peak of memory, and the shares that it \
reaches of the bandwidth and of the rate of products that `attend doctor` measures.")]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub of: Option<BenchOf>,
    /// What to measure; the default model when absent
    #[arg(value_name = "MODEL")]
    pub name: Option<OsString>,
    #[arg(short, long = "model", value_name = "MODEL", conflicts_with = "name", hide = true)]
    pub model: Option<OsString>,
    /// Tokens of prompts (0: none is read), of texts to encode, or of sources [default: 128,512; 32,128; 64]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = values::count, allow_negative_numbers = true)]
    pub prompt: Option<Vec<usize>>,
    /// Tokens that stand before the prompt or the answer [default: 0]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = values::count, allow_negative_numbers = true)]
    pub depth: Option<Vec<usize>>,
    /// Sequences that are written, or texts that are encoded, together [default: 1,8; 1,32; 1]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub batch: Option<Vec<usize>>,
    /// Tokens to write; 0 leaves writing out [default: 128; 64]
    #[arg(long, value_name = "N", value_parser = values::count, allow_negative_numbers = true)]
    pub generate: Option<usize>,
    /// Beams of an encoder-decoder, 1 being greedy [default: 1,4]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub beams: Option<Vec<usize>>,
    /// How often each row is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub repetitions: usize,
    /// What the tokens that are read are drawn by
    #[arg(long, value_name = "N", default_value = "0")]
    pub seed: u64,
    #[arg(long, value_name = "FORM", default_value = "text", value_enum)]
    pub format: Format,
    /// What an earlier run wrote with --format json: its figures and the ratios stand beside this run's
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Do not measure the machine (about a second), and tell no shares of its limits
    #[arg(long)]
    pub no_limits: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// What else than a model can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchOf {
    /// How a server does under a load of many clients
    Serve(bench_serve::BenchServeArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Markdown,
    Json,
    Csv,
}

pub fn run(args: &BenchArgs) -> Result<bool> {
    if let Some(BenchOf::Serve(args)) = &args.of {
        return bench_serve::run(args);
    }
    let other = args.compare.as_deref().map(Report::read).transpose()?;
    session::prepare(&args.compute)?;
    let busy = busy();
    let path = session::locate(&ModelArg { model: args.name.clone().or_else(|| args.model.clone()) })?;
    let described = attend_model::describe(&path)?;
    let works = planned(args, &described)?;
    let longest = works.iter().map(Work::longest).max().unwrap_or(0);
    let compute = ComputeArgs { context: Some(longest.max(1)), ..args.compute.clone() };
    let (loaded, row) = bench::loading(|| session::load(&path, &compute))?;
    let mut report = begin(args, &path, &loaded);
    report.rows.extend(row);
    report.notes.extend(busy);
    let stopped = measured(args, &loaded, &works, &mut report)?;
    if let Some(other) = &other {
        bench::compare(&mut report, other);
    }
    remark(&mut report);
    let text = match args.format {
        Format::Text => bench::text(&report),
        Format::Markdown => bench::markdown(&report),
        Format::Csv => bench::csv(&report),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    write!(std::io::stdout().lock(), "{text}")?;
    if stopped { Err(Interrupted.into()) } else { Ok(true) }
}

/// The rows, all of which the model and the memory have room for.
fn planned(args: &BenchArgs, described: &Described) -> Result<Vec<Work>> {
    let spec = &described.spec;
    let own = spec.context.map(|limit| (limit, "the model was made for"));
    if let (Some(asked), Some((model, _))) = (args.compute.context, own)
        && asked > model
    {
        return Err(usage(EngineError::ContextTooLong { asked, model }.to_string()));
    }
    let context = args.compute.context.map(|limit| (limit, "were asked for")).or(own);
    let choices = Choices {
        prompt: args.prompt.clone(),
        depth: args.depth.clone(),
        batch: args.batch.clone(),
        beams: args.beams.clone(),
        generate: args.generate,
    };
    let works = bench::works(Kind::of(spec), context.map(|(limit, _)| limit), &choices).map_err(blame)?;
    let (types, options) = (kept(args, described), engine_options(&args.compute));
    let planner = Planner::new(spec, &types);
    let available = system::memory().map(|memory| memory.available);
    for work in &works {
        work.check(&planner, context, (options.kv, options.chunk, available)).map_err(blame)?;
    }
    Ok(works)
}

/// What was asked for that cannot be is a mistake of usage.
fn blame(error: Error) -> anyhow::Error {
    match error {
        Error::Choice(_) | Error::TooLong { .. } => usage(error.to_string()),
        Error::DoesNotFit { .. } | Error::Other { .. } | Error::Stopped | Error::Engine(_) => error.into(),
    }
}

fn kept(args: &BenchArgs, described: &Described) -> AsStored {
    described.kept(&load_options(&args.compute))
}

/// Adds the rows to the report; true where the user wanted no more of them. The machine is measured when the first
/// request is over, which nothing of ours should have gone before.
fn measured(args: &BenchArgs, loaded: &Loaded, works: &[Work], report: &mut Report) -> Result<bool> {
    let _graceful = Graceful::begin();
    let types = kept(args, &loaded.source);
    let mut subject = Subject {
        loaded,
        types: &types,
        options: engine_options(&args.compute),
        seed: args.seed,
        repetitions: args.repetitions,
        limits: None,
        stop: &interrupt::pressed,
    };
    let mut bar = screen::LateBar::count("rows");
    let total = works.len() as u64;
    let first = works.iter().position(|work| work.counted().is_some()).unwrap_or(works.len());
    let (begin, rest) = works.split_at(first);
    for (part, limits) in [(begin, false), (rest, !args.no_limits)] {
        if limits {
            subject.limits = machine_limits(args, &loaded.source, &mut report.notes);
            report.machine.limits = subject.limits.clone();
        }
        let result = bench::measure(&subject, part, &mut |row: Row| {
            report.rows.push(row);
            bar.at(report.rows.len() as u64, total);
        });
        match result {
            Ok(()) => {}
            Err(Error::Stopped) => {
                bar.clear();
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
    }
    bar.clear();
    Ok(false)
}

/// What the machine does at best, for the type of most weights.
fn machine_limits(args: &BenchArgs, described: &Described, notes: &mut Vec<String>) -> Option<Limits> {
    screen::hint("measuring this machine (about a second)");
    let dtype = main_type(&kept(args, described), described);
    let Some(rate) = measure::matmul(dtype, load_options(&args.compute).compute) else {
        notes.push(format!("products with weights in {dtype} could not be measured alone: no shares are told"));
        return None;
    };
    Some(Limits {
        memory_bytes_per_second: attend_kernels::measure_bandwidth(),
        matmul_operations_per_second: rate.gflops * 1e9,
        matmul_weights: rate.weights,
    })
}

/// The type in which most weights are kept.
fn main_type(kept: &AsStored, described: &Described) -> DType {
    let mut sums: BTreeMap<DType, usize> = BTreeMap::new();
    for tensor in &described.tensors {
        *sums.entry(kept.types.get(&tensor.ours).map_or(DType::F32, |(dtype, _)| *dtype)).or_default() +=
            tensor.elements();
    }
    sums.into_iter().max_by_key(|(_, elements)| *elements).map_or(DType::F32, |(dtype, _)| dtype)
}

/// A report without rows.
fn begin(args: &BenchArgs, path: &Path, loaded: &Loaded) -> Report {
    let Loaded { model, source } = loaded;
    let options = engine_options(&args.compute);
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        model: ModelFacts {
            name,
            architecture: source.architecture.into(),
            parameters: u64::try_from(source.parameters()).unwrap_or(u64::MAX),
            weight_bytes: model.weight_bytes() as u64,
            types: source.by_type().keys().map(ToString::to_string).collect(),
        },
        machine: Machine {
            processor: system::processor(),
            instruction_set: attend_kernels::machine().to_string(),
            threads: attend_kernels::threads(),
            limits: None,
        },
        settings: Settings {
            repetitions: args.repetitions,
            seed: args.seed,
            kv_type: cache_type(args.compute.kv_type).to_string(),
            arithmetic: match args.compute.dtype {
                ComputeType::Auto => "auto".into(),
                ComputeType::F32 => "f32".into(),
                ComputeType::Q8_0 => "q8_0".into(),
            },
            attention: match args.compute.attention {
                AttentionChoice::Flash => "flash".into(),
                AttentionChoice::Textbook => "textbook".into(),
            },
            chunk: options.chunk,
            peak_of_each_row: bench::forget_peak(),
        },
        rows: Vec::new(),
        notes: source.notices.clone(),
    }
}

/// Whether other programs had the processors when this began.
fn busy() -> Option<String> {
    let load = system::load_average()?;
    let busy = load > 0.5 * system::logical_processors() as f64;
    busy.then(|| format!("the machine was busy when this began (load average {load:.1}): rates may be too low"))
}

/// What a reader of the figures should know.
fn remark(report: &mut Report) {
    if !report.settings.peak_of_each_row && report.rows.iter().any(|row| row.peak_memory_bytes.is_some()) {
        report.notes.push("the system keeps one peak of memory: each row's is that of the run until then".into());
    }
    if report.rows.iter().any(|row| row.of_bandwidth.is_some_and(|part| part > 1.0)) {
        report
            .notes
            .push("more than all of the bandwidth: a part of what is read stays in the processor's caches".into());
    }
}
