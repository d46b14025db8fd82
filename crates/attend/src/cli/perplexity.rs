//! `attend perplexity`: how well a model predicts a text.

use super::error::{Interrupted, usage};
use super::input::Input;
use super::interrupt::{self, Graceful};
use super::options::{ComputeArgs, ModelArg};
use super::session::Session;
use super::{screen, session, values};
use anyhow::{Context, Result, anyhow};
use attend_engine::{Engine, Method};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend perplexity book.txt
  attend perplexity -m model-q4_k_m.gguf book.txt --reference model-f16.gguf
  cat book.txt | attend perplexity --window 1024 --stride 512 --json
  attend perplexity --file wiki.test.raw --method halves --window 512

strided scores every token with at least window - stride tokens before it (the method of the Hugging Face \
documentation); halves scores the second half of separate windows (the method of llama.cpp). Figures of the two cannot \
be compared.")]
pub struct PerplexityArgs {
    /// A file that holds the text, or the text itself; standard input when neither it nor --file is given
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// A file that holds the text
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArg,
    /// The model that this one was made from: how far the predictions are from its own is told too
    #[arg(long, value_name = "MODEL")]
    pub reference: Option<OsString>,
    #[arg(long, default_value = "strided", value_enum)]
    pub method: MethodChoice,
    /// Tokens of a window [default: 512, or the context where that is less]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub window: Option<usize>,
    /// How far one window lies behind the other (strided only) [default: half the window]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub stride: Option<usize>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MethodChoice {
    Strided,
    Halves,
}

const DEFAULT_WINDOW: usize = 512;

pub fn run(args: &PerplexityArgs) -> Result<bool> {
    if args.method == MethodChoice::Halves && args.stride.is_some() {
        return Err(usage("--stride belongs to --method strided"));
    }
    let named = args.text.as_deref().map(PathBuf::from).filter(|path| path.is_file());
    let file = args.file.clone().or(named);
    let input = if file.is_none() { Some(Input::either(args.text.as_deref())?) } else { None };
    let session = session::open(&args.model, &args.compute)?;
    let engine = session.engine(&args.compute)?;
    let text = match (&file, input) {
        (Some(file), _) => std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
        (None, Some(input)) => input.text()?,
        (None, None) => return Err(usage("a text is wanted")),
    };
    let ids = session.tokenizer.encode_prompt(&text, true)?.ids;
    let room = engine.surroundings().context.unwrap_or(DEFAULT_WINDOW);
    let window = args.window.unwrap_or(DEFAULT_WINDOW.min(room));
    let method = match args.method {
        MethodChoice::Strided => Method::Strided { window, stride: args.stride.unwrap_or((window / 2).max(1)) },
        MethodChoice::Halves => {
            let bos = session.tokenizer.bos().filter(|_| session.tokenizer.adds_bos());
            Method::Halves { window, bos }
        }
    };
    if let Some(reference) = &args.reference {
        return against(args, (&session, &engine), reference, (&text, &ids), method);
    }
    let _graceful = Graceful::begin();
    let mut bar = screen::LateBar::count("windows");
    let figure = engine.perplexity(&ids, method, &mut |so_far| {
        bar.at(so_far.windows.0 as u64, so_far.windows.1 as u64);
        if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.clear();
    let mut out = std::io::stdout().lock();
    if args.json {
        let object = json!({
            "perplexity": figure.perplexity,
            "standard_error": figure.standard_error,
            "tokens_scored": figure.tokens,
            "tokens": ids.len(),
            "windows_done": figure.windows.0,
            "windows": figure.windows.1,
            "method": method,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    } else {
        writeln!(
            out,
            "perplexity {:.4} +- {:.4} over {} tokens in {} of {} windows",
            figure.perplexity, figure.standard_error, figure.tokens, figure.windows.0, figure.windows.1
        )?;
    }
    if interrupt::pressed() { Err(Interrupted.into()) } else { Ok(true) }
}

/// The same text under both models.
fn against(
    args: &PerplexityArgs,
    (session, engine): (&Session, &Engine<'_>),
    reference: &OsStr,
    (text, ids): (&str, &[u32]),
    method: Method,
) -> Result<bool> {
    let other = session::open(&ModelArg { model: Some(reference.to_owned()) }, &args.compute)?;
    let theirs = other.tokenizer.encode_prompt(text, true)?.ids;
    if let Some(at) = (0..ids.len().max(theirs.len())).find(|&at| ids.get(at) != theirs.get(at)) {
        return Err(anyhow!(
            "{}: cuts the text into other tokens than {} does (from token {at} on); only models with one tokenizer can be \
             compared",
            other.path.display(),
            session.path.display()
        ));
    }
    let _graceful = Graceful::begin();
    let mut bar = screen::LateBar::count("windows");
    let figures = engine.divergence(&other.engine(&args.compute)?, ids, method, &mut |done, all| {
        bar.at(done as u64, all as u64);
        if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.clear();
    let (own, reference) = (figures.perplexity, figures.reference);
    let mut out = std::io::stdout().lock();
    if args.json {
        let object = json!({
            "perplexity": own.perplexity,
            "standard_error": own.standard_error,
            "reference_perplexity": reference.perplexity,
            "perplexity_ratio": own.perplexity / reference.perplexity,
            "kl_divergence": {
                "mean": figures.kl_mean, "median": figures.kl_median, "p99": figures.kl_99, "max": figures.kl_max,
            },
            "same_top": figures.same_top,
            "probability_difference": {
                "mean": figures.probability_difference, "rms": figures.probability_difference_rms,
            },
            "tokens_scored": own.tokens,
            "tokens": ids.len(),
            "windows_done": own.windows.0,
            "windows": own.windows.1,
            "method": method,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
    } else {
        writeln!(
            out,
            "perplexity {:.4} +- {:.4}, of the reference {:.4} ({:+.2} %), over {} tokens in {} of {} windows",
            own.perplexity,
            own.standard_error,
            reference.perplexity,
            100.0 * (own.perplexity / reference.perplexity - 1.0),
            own.tokens,
            own.windows.0,
            own.windows.1
        )?;
        writeln!(
            out,
            "KL divergence mean {:.6}, median {:.6}, 99 % {:.6}, max {:.6}",
            figures.kl_mean, figures.kl_median, figures.kl_99, figures.kl_max
        )?;
        writeln!(out, "same likeliest token {:.2} %", 100.0 * figures.same_top)?;
        writeln!(
            out,
            "probability of the text's tokens {:+.3} % on average, {:.3} % root mean square",
            100.0 * figures.probability_difference,
            100.0 * figures.probability_difference_rms
        )?;
    }
    if interrupt::pressed() { Err(Interrupted.into()) } else { Ok(true) }
}
