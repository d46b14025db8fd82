//! `attend tokens`: how a text is cut into tokens.

use super::input::Input;
use super::options::{ModelArg, TemplateArgs};
use super::screen::Table;
use super::session;
use anyhow::{Context, Result, anyhow};
use attend_text::{ChatTemplate, EncodeOptions, Encoding, Origin, Render, Tokenizer};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend tokens \"Hello, world\"
  attend tokens -m model.gguf --chat \"Hello\"     the whole prompt that `run` would use
  attend tokens --plain \"<|im_end|> is text here\"
  attend tokens --json \"Hello\" | jq .ids")]
pub struct TokensArgs {
    /// The text; standard input when absent
    pub text: Option<String>,
    #[command(flatten)]
    pub model: ModelArg,
    /// Put the text through the chat template, as the user's message
    #[arg(long)]
    pub chat: bool,
    /// Take special tokens that are spelled in the text as plain text
    #[arg(long)]
    pub plain: bool,
    /// Add no special tokens around the text
    #[arg(long)]
    pub no_special: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub template: TemplateArgs,
}

pub fn run(args: &TokensArgs) -> Result<bool> {
    let input = Input::either(args.text.as_deref())?;
    let path = session::locate(&args.model)?;
    let tokenizer = Tokenizer::open(&path)?;
    let text = input.text()?;
    let (final_text, encoding) = if args.chat {
        chat(args, &path, &tokenizer, &text)?
    } else {
        let options = EncodeOptions { add_special: !args.no_special, parse_special: !args.plain };
        let encoding = tokenizer.encode(&text, options)?;
        (text, encoding)
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let object = as_json(&tokenizer, &final_text, &encoding);
        writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?;
        return Ok(true);
    }
    writeln!(out, "tokenizer: {}", tokenizer.kind())?;
    writeln!(out, "text: {final_text:?}")?;
    let mut table = Table::new(&["id", "piece", "characters", "special, added by"]);
    for (index, id) in encoding.ids.iter().enumerate() {
        let (start, end) = encoding.offsets.get(index).copied().unwrap_or_default();
        let place = if start == end { "-".into() } else { format!("{start}..{end}") };
        let piece = encoding.pieces.get(index).map(|piece| format!("{piece:?}")).unwrap_or_default();
        table.row([id.to_string(), piece, place, origin(&encoding, index).unwrap_or_default()]);
    }
    write!(out, "{table}")?;
    writeln!(out, "{} tokens", encoding.len())?;
    Ok(true)
}

fn chat(args: &TokensArgs, path: &std::path::Path, tokenizer: &Tokenizer, text: &str) -> Result<(String, Encoding)> {
    let template = match &args.template.chat_template {
        Some(file) => {
            let source = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            let spelled = |id: Option<u32>| id.and_then(|id| tokenizer.token(id));
            ChatTemplate::new(source, spelled(tokenizer.bos()).as_deref(), spelled(tokenizer.eos()).as_deref())
        }
        None => {
            ChatTemplate::open(path)?.ok_or_else(|| anyhow!("{}: the model has no chat template", path.display()))?
        }
    };
    let request = Render {
        messages: json!([{"role": "user", "content": text}]),
        add_generation_prompt: true,
        extra: args.template.template_var.iter().cloned().collect(),
        ..Render::default()
    };
    let rendered = template.render_marked(&request, tokenizer)?;
    let encoding = tokenizer.encode_chat(&rendered)?;
    Ok((rendered.text().to_owned(), encoding))
}

fn as_json(tokenizer: &Tokenizer, text: &str, encoding: &Encoding) -> Value {
    let special = (0..encoding.len()).map(|index| origin(encoding, index)).collect::<Vec<_>>();
    json!({
        "text": text,
        "ids": encoding.ids,
        "pieces": encoding.pieces,
        "offsets": encoding.offsets,
        "special": special,
        "tokenizer": tokenizer.kind(),
    })
}

/// Who put a special token there, in words.
fn origin(encoding: &Encoding, index: usize) -> Option<String> {
    match encoding.special.get(index)?.as_ref()? {
        Origin::Template => Some("chat template".into()),
        Origin::PostProcessor(role) => Some(format!("tokenizer ({role})")),
        Origin::Text => Some("the text".into()),
    }
}
