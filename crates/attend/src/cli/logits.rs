//! `attend logits`: what a model gives for a text, as it stands before any sampling.

use super::input::Input;
use super::options::{ComputeArgs, ModelArg};
use super::screen::Table;
use super::session::{self, Session};
use super::values;
use anyhow::{Result, bail};
use attend_nn::spec::{Body, Head, StackKind};
use attend_nn::{Batch, Encoded, Nobody, Sequence};
use attend_text::EncodeOptions;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend logits \"The capital of France is\"                the likeliest next tokens
  attend logits -m bert-folder \"Paris is the [MASK] of France.\" --all
  attend logits -m classifier-folder \"I liked it\" --json

A language model gives a row for each token (the last one unless --all), a classifier one row for the text or one for \
each token.")]
pub struct LogitsArgs {
    /// The text; standard input when absent
    pub text: Option<String>,
    #[command(flatten)]
    pub model: ModelArg,
    /// What the decoder of an encoder-decoder has written so far; the text is the source
    #[arg(long, value_name = "TEXT")]
    pub target: Option<String>,
    /// Rows of all tokens, not of the last one only
    #[arg(long)]
    pub all: bool,
    /// How many of a row's largest logits to show
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub top: usize,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Rows of logits and the tokens that they belong to.
struct Rows {
    width: usize,
    values: Vec<f32>,
    /// The index and id of each row's token; none for a row of the whole text.
    tokens: Vec<Option<(usize, u32)>>,
    /// Whether a column is a token.
    vocabulary: bool,
}

pub fn run(args: &LogitsArgs) -> Result<bool> {
    let input = Input::either(args.text.as_deref())?;
    let session = session::open(&args.model, &args.compute)?;
    let text = input.text()?;
    let rows = compute(args, &session, &text)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&as_json(args, &session, &rows))?)?;
        return Ok(true);
    }
    let mut table = Table::new(&["after", "largest logits"]);
    for (row, token) in rows.values.chunks_exact(rows.width).zip(&rows.tokens) {
        let spell = |id: u32| format!("{:?}", session.tokenizer.token(id).unwrap_or_default());
        let place = token.map_or("the text".into(), |(index, id)| format!("{index} {}", spell(id)));
        let column = |id: u32| if rows.vocabulary { spell(id) } else { format!("label {id}") };
        let top: Vec<String> = largest(row, args.top).iter().map(|&(id, v)| format!("{} {v:.4}", column(id))).collect();
        table.row([place, top.join(", ")]);
    }
    write!(out, "{table}")?;
    Ok(true)
}

fn compute(args: &LogitsArgs, session: &Session, text: &str) -> Result<Rows> {
    let model = &session.loaded.model;
    let spec = model.spec();
    let options = session::engine_options(&args.compute).run;
    let encode = EncodeOptions { add_special: true, parse_special: true };
    let encoding = match &spec.body {
        Body::Decoder(_) => session.tokenizer.encode_prompt(text, true)?,
        Body::Encoder(_) | Body::EncoderDecoder { .. } => session.tokenizer.encode(text, encode)?,
    };
    if encoding.is_empty() {
        bail!("the text has no tokens");
    }
    let room = args.compute.context.or(spec.context).unwrap_or(usize::MAX);
    if encoding.len() > room {
        bail!("the text has {} tokens, but the context holds {room}", encoding.len());
    }
    let sequence = Sequence { token_types: Some(&encoding.type_ids), ..Sequence::new(&encoding.ids) };
    let (ids, hidden) = match &spec.body {
        // Heads over a whole text read it with both stacks.
        Body::EncoderDecoder { .. } if !matches!(spec.head, Head::Lm(_)) => {
            let start = session.loaded.source.start_of(&encoding.ids)?;
            let hidden = model.read_twice(&[&encoding.ids], &[start], &options, &mut Nobody)?;
            (encoding.ids.clone(), hidden)
        }
        Body::EncoderDecoder { .. } => {
            let mut batch = Batch::one(Sequence::new(&encoding.ids));
            let encoded = model.forward(StackKind::Encoder, &mut batch, &options, &mut Nobody)?;
            let target = target_ids(args, session)?;
            let source = Encoded { hidden: &encoded, lengths: vec![encoding.len()] };
            let mut batch = Batch { encoded: Some(source), ..Batch::one(Sequence::new(&target)) };
            let hidden = model.forward(StackKind::Decoder, &mut batch, &options, &mut Nobody)?;
            (target, hidden)
        }
        Body::Encoder(_) | Body::Decoder(_) => {
            let kind = if let Body::Encoder(_) = spec.body { StackKind::Encoder } else { StackKind::Decoder };
            let types = if spec.output_stack().embed.token_types.is_some() { sequence.token_types } else { None };
            let mut batch = Batch::one(Sequence { token_types: types, ..sequence });
            let hidden = model.forward(kind, &mut batch, &options, &mut Nobody)?;
            (encoding.ids.clone(), hidden)
        }
    };
    head(args, session, &ids, &hidden)
}

fn target_ids(args: &LogitsArgs, session: &Session) -> Result<Vec<u32>> {
    let mut ids = vec![session.loaded.source.decoder_start()?];
    if let Some(target) = &args.target {
        let options = EncodeOptions { add_special: false, parse_special: true };
        ids.extend(session.tokenizer.encode(target, options)?.ids);
    }
    Ok(ids)
}

fn head(args: &LogitsArgs, session: &Session, ids: &[u32], hidden: &[f32]) -> Result<Rows> {
    let model = &session.loaded.model;
    let spec = model.spec();
    let width = match &spec.head {
        Head::None => bail!("this model has no head: its answer is a vector for each token, not logits"),
        Head::Sequence { labels, .. } => {
            let values = model.sequence_logits_of(hidden, &[ids], &mut Nobody)?;
            return Ok(Rows { width: *labels, values, tokens: vec![None], vocabulary: false });
        }
        Head::Lm(lm) => lm.vocab,
        Head::Token { labels, .. } => *labels,
        Head::Span { .. } => 2,
    };
    // A decoder's last row is the next token; an encoder's row belongs to its own token, so all are of interest.
    let last_only = !args.all && matches!(spec.head, Head::Lm(_)) && !matches!(spec.body, Body::Encoder(_));
    let first = if last_only { ids.len() - 1 } else { 0 };
    let rows = hidden.get(first * spec.output_stack().output_width()..).unwrap_or_default();
    let values = model.logits(rows, &mut Nobody)?;
    let tokens = ids.iter().copied().enumerate().skip(first).map(Some).collect();
    Ok(Rows { width, values, tokens, vocabulary: matches!(spec.head, Head::Lm(_)) })
}

/// The largest values of a row with their columns, of equal ones the lowest column first.
fn largest(row: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0..).zip(row.iter().copied()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all
}

fn as_json(args: &LogitsArgs, session: &Session, rows: &Rows) -> Value {
    let label = |id: u32| if rows.vocabulary { session.tokenizer.token(id) } else { None };
    let list = rows.values.chunks_exact(rows.width).zip(&rows.tokens).map(|(row, token)| {
        let normaliser = f64::from(attend_kernels::log_sum_exp(row));
        let top = largest(row, args.top).into_iter().map(|(id, logit)| {
            json!({"id": id, "token": label(id), "logit": logit, "logprob": f64::from(logit) - normaliser})
        });
        json!({
            "position": token.map(|(index, _)| index),
            "token_id": token.map(|(_, id)| id),
            "top": top.collect::<Vec<_>>(),
        })
    });
    json!({ "columns": rows.width, "rows": list.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn ties_go_to_the_lowest_column() {
        assert_eq!(largest(&[1.0, 3.0, 3.0, 2.0], 3), [(1, 3.0), (2, 3.0), (3, 2.0)]);
    }
}
