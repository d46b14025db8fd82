//! `attend run --input`: an answer for each text of a file, many at a time.

use super::batch::generate::Generator;
use super::batch::{Answer, BatchArgs, OutputFormat, Record};
use super::run::{RunArgs, chosen_template, make_prompt, output_json, show_settings};
use super::session;
use anyhow::{Result, anyhow};
use attend_engine::Output;
use serde_json::Value;
use std::path::Path;

pub fn run(args: &RunArgs, file: &Path) -> Result<bool> {
    let many = &args.many;
    let batch = BatchArgs {
        texts: Vec::new(),
        input: Some(file.to_owned()),
        input_format: many.input_format,
        field: many.field.clone(),
        json: false,
        // An answer may have several lines, so there is no form in which each is a line of text.
        format: Some(list_or_lines(many.output.as_deref())),
        output: many.output.clone(),
    };
    let session = session::open(&args.model, &args.compute)?;
    let helper = session::open_draft(&args.sampling, &args.compute)?;
    let draft = helper.as_ref().map(|helper| helper.draft_engine(&args.compute)).transpose()?;
    let engine = session.engine(&args.compute)?.with_draft(draft.as_ref())?;
    let resolved = session.generate_options(&engine, &args.sampling)?;
    let template = chosen_template(args, &session, &engine)?;
    show_settings(&resolved);
    let prompt = |record: &Record| {
        let text = match &args.prompt {
            Some(prompt) => format!("{prompt}\n\n{}", record.text()?),
            None => record.text()?.to_owned(),
        };
        let prompt = make_prompt(args, &session, &engine, template.as_ref(), &text);
        Ok((prompt.map_err(|error| anyhow!("{}: {error:#}", record.place))?, ()))
    };
    let answer = |output: Output, ()| Line(output_json(&session, &output));
    Generator { engine: &engine, options: resolved.options, prompt, answer }.run(&batch)
}

fn list_or_lines(output: Option<&Path>) -> OutputFormat {
    match output.and_then(Path::extension).and_then(|ending| ending.to_str()) {
        Some("json") => OutputFormat::Json,
        Some(_) | None => OutputFormat::Jsonl,
    }
}

/// One answer.
struct Line(Value);

impl Answer for Line {
    fn text(&self) -> String {
        self.0.to_string()
    }
}

impl serde::Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
