//! The commands of a conversation.

use serde_json::{Value, json};

pub const HELP: &str = "/help                 this list
/reset                forget the conversation
/system [TEXT]        show or change the system message (none removes it)
/save FILE            write the conversation to a file
/load FILE            go on with a saved conversation
/set [NAME VALUE]     show or change settings, as in /set temperature 0.7
/stats                tokens and times of the last answer
/regenerate           answer the last message again
/undo                 take the last turn back
/exit                 leave (also Ctrl-D)";

/// The names, for completion.
pub const NAMES: [&str; 10] =
    ["/help", "/reset", "/system", "/save", "/load", "/set", "/stats", "/regenerate", "/undo", "/exit"];

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Help,
    Reset,
    System(Option<String>),
    Save(String),
    Load(String),
    Set(Option<(String, Value)>),
    Stats,
    Regenerate,
    Undo,
    Exit,
}

/// Reads a line that starts with a slash.
pub fn parse(line: &str) -> Result<Command, String> {
    let (name, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let rest = rest.trim();
    let alone =
        |command: Command| if rest.is_empty() { Ok(command) } else { Err(format!("{name} takes nothing more")) };
    let file = || if rest.is_empty() { Err(format!("{name} needs a file's name")) } else { Ok(rest.to_owned()) };
    match name {
        "/help" | "/?" => alone(Command::Help),
        "/reset" => alone(Command::Reset),
        "/system" => Ok(Command::System((!rest.is_empty()).then(|| rest.to_owned()))),
        "/save" => Ok(Command::Save(file()?)),
        "/load" => Ok(Command::Load(file()?)),
        "/set" if rest.is_empty() => Ok(Command::Set(None)),
        "/set" => {
            let (name, value) = rest.split_once(char::is_whitespace).ok_or("/set needs a name and a value")?;
            let value = value.trim();
            Ok(Command::Set(Some((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| json!(value))))))
        }
        "/stats" => alone(Command::Stats),
        "/regenerate" => alone(Command::Regenerate),
        "/undo" => alone(Command::Undo),
        "/exit" | "/quit" | "/bye" => alone(Command::Exit),
        _ => Err(format!("{name} is no command; /help lists them")),
    }
}

/// Reads a saved conversation: the system message, and messages of user and assistant in turn.
pub fn conversation(text: &str) -> Result<(Option<String>, Vec<Value>), String> {
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let system = match &object["system"] {
        Value::Null => None,
        Value::String(system) => Some(system.clone()),
        _ => return Err("`system` is no text".into()),
    };
    let messages = object["messages"].as_array().ok_or("there is no list `messages`")?;
    for (index, message) in messages.iter().enumerate() {
        let role = if index % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != role || !message["content"].is_string() {
            return Err(format!("message {index} should be a text of the role {role}"));
        }
    }
    Ok((system, messages.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_commands() {
        assert_eq!(parse("/help"), Ok(Command::Help));
        assert_eq!(parse("/system  Be brief. "), Ok(Command::System(Some("Be brief.".into()))));
        assert_eq!(parse("/set temperature 0.5"), Ok(Command::Set(Some(("temperature".into(), json!(0.5))))));
        assert_eq!(parse("/set stop [\"a\"]"), Ok(Command::Set(Some(("stop".into(), json!(["a"]))))));
        assert_eq!(parse("/save a b.json"), Ok(Command::Save("a b.json".into())));
        for bad in ["/save", "/nothing", "/undo 3", "/set temperature"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for name in NAMES {
            assert!(HELP.contains(name));
        }
    }

    #[test]
    fn conversations_are_checked() {
        let good = r#"{"system":"s","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
        assert_eq!(conversation(good).map(|(system, list)| (system, list.len())), Ok((Some("s".into()), 2)));
        for bad in
            ["", "{}", "[]", r#"{"messages":[{"role":"assistant","content":"a"}]}"#, r#"{"system":1,"messages":[]}"#]
        {
            assert!(conversation(bad).is_err(), "{bad}");
        }
    }
}
