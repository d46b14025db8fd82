//! The command line.

pub mod answer;
pub mod batch;
pub mod bench;
pub mod bench_serve;
pub mod chat;
pub mod classify;
pub mod completions;
pub mod constraint;
pub mod convert;
pub mod doctor;
pub mod embed;
pub mod error;
pub mod fill;
pub mod init;
pub mod input;
pub mod interrupt;
pub mod list;
pub mod logits;
pub mod measure;
pub mod options;
pub mod perplexity;
pub mod plan;
pub mod prefix;
pub mod pull;
pub mod quantize;
pub mod rerank;
pub mod rm;
pub mod run;
mod run_many;
pub mod sampling;
pub mod score;
pub mod screen;
pub mod serve;
pub mod session;
pub mod show;
pub mod similarity;
pub mod summarize;
pub mod tag;
pub mod task;
pub mod tokens;
pub mod translate;
pub mod values;
pub mod verify;
pub mod writing;
pub mod zero_shot;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Run, check and look into transformer models, on the computer you have.
#[derive(Debug, Parser)]
#[command(
    name = "attend",
    version,
    max_term_width = 110,
    after_help = "Examples:
  attend run \"Why is the sky blue?\"
  attend chat
  attend show -m model.gguf

`attend COMMAND --help` has examples for each command."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer one prompt
    Run(Box<run::RunArgs>),
    /// Hold a conversation
    Chat(Box<chat::ChatArgs>),
    /// Answer requests over HTTP
    Serve(Box<serve::ServeArgs>),
    /// The vector of each text
    Embed(Box<embed::EmbedArgs>),
    /// How alike texts are
    Similarity(Box<similarity::SimilarityArgs>),
    /// Which documents answer a query
    Rerank(Box<rerank::RerankArgs>),
    /// The labels of each text
    Classify(Box<classify::ClassifyArgs>),
    /// The labels of a text's parts
    Tag(Box<tag::TagArgs>),
    /// The likeliest tokens for the gaps of a text
    Fill(Box<fill::FillArgs>),
    /// Answers to questions, as parts of a given context
    Answer(Box<answer::AnswerArgs>),
    /// Labels of one's own, judged by a model of entailment
    ZeroShot(Box<zero_shot::ZeroShotArgs>),
    /// Texts in another language
    Translate(Box<translate::TranslateArgs>),
    /// The gist of each text
    Summarize(Box<summarize::SummarizeArgs>),
    /// What a model is made of, layer by layer
    Show(show::ShowArgs),
    /// Write random weights for a description
    Init(init::InitArgs),
    /// What a model costs: memory, work, speed, and what fits; no weights are read
    Plan(plan::PlanArgs),
    /// How fast a model is here, and what share of the machine's limits that is
    Bench(Box<bench::BenchArgs>),
    /// How a text is cut into tokens
    Tokens(tokens::TokensArgs),
    /// What a model gives for a text, before any sampling
    Logits(logits::LogitsArgs),
    /// The log-probability of each token of a text
    Score(score::ScoreArgs),
    /// How well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Write a model as the other kind of file
    Convert(convert::ConvertArgs),
    /// Write a model with smaller types
    Quantize(quantize::QuantizeArgs),
    /// Bring a model into the models folder
    Pull(pull::PullArgs),
    /// Show the models of the folder
    List(list::ListArgs),
    /// Remove models from the folder
    Rm(rm::RmArgs),
    /// Compare with recorded answers of the reference
    Verify(verify::VerifyArgs),
    /// What this machine can do, and what is missing
    Doctor(doctor::DoctorArgs),
    /// Completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the program: arguments in, exit code out.
pub fn main() -> ExitCode {
    error::install_panic_hook();
    interrupt::install();
    attend_kernels::keep_freed_memory();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return parse_failure(&error),
    };
    // The hook has said what is to be said.
    std::panic::catch_unwind(|| error::exit_code(dispatch(cli.command))).unwrap_or(ExitCode::from(1))
}

fn dispatch(command: Command) -> Result<bool> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Embed(args) => embed::run(&args),
        Command::Similarity(args) => similarity::run(&args),
        Command::Rerank(args) => rerank::run(&args),
        Command::Classify(args) => classify::run(&args),
        Command::Tag(args) => tag::run(&args),
        Command::Fill(args) => fill::run(&args),
        Command::Answer(args) => answer::run(&args),
        Command::ZeroShot(args) => zero_shot::run(&args),
        Command::Translate(args) => translate::run(&args),
        Command::Summarize(args) => summarize::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Tokens(args) => tokens::run(&args),
        Command::Logits(args) => logits::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Perplexity(args) => perplexity::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Pull(args) => pull::run(&args),
        Command::List(args) => list::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Verify(args) => crate::verify::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Help goes to standard output; mistakes become one line on standard error and exit code 2.
fn parse_failure(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that went away is no error.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.render().to_string();
            let told = text.split("\n\nUsage:").next().unwrap_or(&text);
            let told = told.split("\n\nFor more information").next().unwrap_or(told);
            error::say_error(&format!("{} (see --help)", told.trim().trim_start_matches("error:").trim()));
            ExitCode::from(2)
        }
    }
}
