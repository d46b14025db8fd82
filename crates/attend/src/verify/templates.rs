//! Chat-template cases: the exact rendering, or that there is an error.

use super::case::read_json;
use super::compare::Comparison;
use super::report::Outcome;
use anyhow::{Context, Result};
use attend_text::{ChatTemplate, Render};
use serde_json::Value;
use std::path::Path;

pub fn verify(file: &Path) -> Result<Outcome> {
    let golden = read_json(file)?;
    let mut comparison = Comparison::default();
    for (index, case) in golden.get("cases").and_then(Value::as_array).into_iter().flatten().enumerate() {
        check(&golden, case, index, &mut comparison)?;
    }
    Ok(Outcome::of("chat templates", comparison, None))
}

fn check(golden: &Value, case: &Value, index: usize, comparison: &mut Comparison) -> Result<()> {
    let named = |field: &str| case.get(field).and_then(Value::as_str).with_context(|| format!("case {index}: {field}"));
    let flag = |field: &str| case.get(field).and_then(Value::as_bool).unwrap_or(false);
    let (template, chat) = (named("template")?, named("chat")?);
    let entry = |group: &str, name: &str| golden.get(group).and_then(|group| group.get(name));
    let source =
        entry("templates", template).and_then(Value::as_str).with_context(|| format!("no template {template}"))?;
    let special = |token: &str| entry("special_tokens", template).and_then(|tokens| tokens.get(token)?.as_str());
    let request = Render {
        messages: entry("chats", chat).with_context(|| format!("no chat {chat}"))?.clone(),
        tools: if flag("tools") { golden.get("tools").cloned() } else { None },
        add_generation_prompt: flag("add_generation_prompt"),
        continue_final_message: flag("continue_final_message"),
        ..Render::default()
    };
    let found = ChatTemplate::new(source, special("bos_token"), special("eos_token")).render(&request);
    let place = format!("case {index} ({template}, {chat})");
    match (found, case.get("text").and_then(Value::as_str)) {
        (Ok(found), Some(expected)) => comparison.exact(&place, &found, &expected.to_owned()),
        (Ok(found), None) => comparison.fail(&place, format!("rendered {found:?} where the reference refuses")),
        (Err(error), Some(_)) => comparison.fail(&place, error.to_string()),
        (Err(_), None) => comparison.exact(&place, &"refused", &"refused"),
    }
    Ok(())
}
