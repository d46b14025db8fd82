//! The reference's renderings of chat templates, or its refusals.

mod common;

use attend_text::{ChatTemplate, Render};
use common::{goldens, json, list};
use serde_json::Value;

#[test]
fn renderings_are_the_references() {
    let golden = json(&goldens().join("chat_templates.json"));
    let mut wrong = Vec::new();
    let cases = list(&golden["cases"]);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let special = &golden["special_tokens"][name];
        let template = ChatTemplate::new(
            golden["templates"][name].as_str().unwrap(),
            special["bos_token"].as_str(),
            special["eos_token"].as_str(),
        );
        let flag = |key: &str| case[key].as_bool().unwrap_or(false);
        let request = Render {
            messages: golden["chats"][case["chat"].as_str().unwrap()].clone(),
            tools: flag("tools").then(|| golden["tools"].clone()),
            add_generation_prompt: flag("add_generation_prompt"),
            continue_final_message: flag("continue_final_message"),
            ..Render::default()
        };
        let ours = template.render(&request);
        let right = match (&ours, &case["text"], &case["error"]) {
            (Ok(ours), Value::String(theirs), _) => ours == theirs,
            (Err(_), _, Value::String(_)) => true,
            _ => false,
        };
        if !right {
            wrong.push(format!(
                "{name} {} tools {} prompt {} continue {}:\n  ours   {ours:?}\n  theirs {}{}",
                case["chat"],
                case["tools"],
                case["add_generation_prompt"],
                case["continue_final_message"],
                case["text"],
                case["error"]
            ));
        }
    }
    assert!(cases.len() > 200);
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong[..wrong.len().min(8)].join("\n"));
}
