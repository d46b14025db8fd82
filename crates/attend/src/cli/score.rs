//! `attend score`: the log-probability of each token of a text.

use super::input::Input;
use super::options::{ComputeArgs, ModelArg};
use super::screen::Table;
use super::values;
use super::{run, session};
use anyhow::Result;
use attend_engine::Prompt;
use attend_text::EncodeOptions;
use clap::Args;
use serde_json::json;
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend score \"The capital of France is Paris.\"
  attend score --json \"Paris\" | jq .logprobs
  attend score -m t5-folder --source \"translate English to German: Hello\" \"Hallo\"

The first token has nothing before it and so no log-probability (null).")]
pub struct ScoreArgs {
    /// The text; standard input when absent
    pub text: Option<String>,
    #[command(flatten)]
    pub model: ModelArg,
    /// What the encoder of an encoder-decoder reads; the text is then the target
    #[arg(long, value_name = "TEXT")]
    pub source: Option<String>,
    /// Also the N likeliest tokens of each place
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count, allow_negative_numbers = true)]
    pub top: usize,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

pub fn run(args: &ScoreArgs) -> Result<bool> {
    let input = Input::either(args.text.as_deref())?;
    let session = session::open(&args.model, &args.compute)?;
    let engine = session.engine(&args.compute)?;
    let text = input.text()?;
    let prompt = match &args.source {
        None => Prompt::tokens(session.tokenizer.encode_prompt(&text, true)?.ids),
        Some(source) => {
            let options = EncodeOptions { add_special: true, parse_special: true };
            let target = session.tokenizer.encode(&text, options)?.ids;
            Prompt { token_ids: target, ..Prompt::source(session.tokenizer.encode(source, options)?.ids) }
        }
    };
    let score = engine.score(prompt, args.top)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let plain: Vec<Option<f32>> = score.logprobs.iter().map(|token| token.as_ref().map(|t| t.logprob)).collect();
        let scored = plain.iter().flatten().count();
        let mut object = json!({
            "token_ids": score.token_ids,
            "tokens": score.token_ids.iter().map(|&id| session.tokenizer.token(id)).collect::<Vec<_>>(),
            "logprobs": plain,
            "total": score.total,
            "mean": if scored > 0 { Some(score.total / scored as f64) } else { None },
        });
        if args.top > 0 {
            object["top"] = run::logprobs(&session, score.logprobs.iter().map(Option::as_ref));
        }
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(true);
    }
    let mut table = Table::new(&["id", "piece", "log-probability", "likeliest"]);
    for (id, token) in score.token_ids.iter().zip(&score.logprobs) {
        let spell = |id: u32| format!("{:?}", session.tokenizer.token(id).unwrap_or_default());
        let top = token.iter().flat_map(|t| &t.top).map(|&(id, p)| format!("{} {p:.3}", spell(id))).collect::<Vec<_>>();
        let logprob = token.as_ref().map_or("-".into(), |token| format!("{:.4}", token.logprob));
        table.row([id.to_string(), spell(*id), logprob, top.join(", ")]);
    }
    write!(out, "{table}")?;
    writeln!(out, "total {:.4} over {} tokens", score.total, score.logprobs.iter().flatten().count())?;
    Ok(true)
}
