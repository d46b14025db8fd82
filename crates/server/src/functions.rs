//! The functions that a request lets a model call, and whether it must.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use attend_text::Functions;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The most functions of a request.
const MOST: usize = 128;
/// The most characters of a name.
const NAME: usize = 128;

/// What may be called.
#[derive(Debug, Default)]
pub struct Offered {
    /// As templates know them.
    tools: Vec<Value>,
    /// Those whose schema is followed in every keyword, or refused.
    strict: Vec<String>,
    /// One of them must be.
    pub must: bool,
    /// One call is enough.
    pub single: bool,
}

impl Offered {
    /// `tools`, `tool_choice` and `parallel_tool_calls`, in OpenAI's words.
    ///
    /// # Errors
    /// What is no function, and a choice of one that is not there.
    pub fn take(fields: &mut Fields) -> Result<Offered, Failure> {
        let mut offered = Offered::listed(fields)?;
        offered.single = fields.flag("parallel_tool_calls")?.is_some_and(|parallel| !parallel);
        let (choice, allowed) = match fields.take("tool_choice") {
            None => return Ok(offered),
            Some(Value::String(word)) => (word, None),
            Some(Value::Object(map)) => named(map)?,
            Some(other) => return Err(wrong("tool_choice", "none, auto, required, or a function", &other)),
        };
        if let Some(allowed) = allowed {
            offered.only(&allowed)?;
        }
        offered.choose(&choice)?;
        Ok(offered)
    }

    /// `tools` alone, in the words that OpenAI and Ollama share.
    ///
    /// # Errors
    /// What is no function.
    pub fn listed(fields: &mut Fields) -> Result<Offered, Failure> {
        let mut offered = Offered::default();
        for (index, tool) in fields.list("tools", MOST)?.unwrap_or_default().into_iter().enumerate() {
            let place = format!("tools[{index}]");
            let mut tool = Fields::within(tool, &place)?;
            let kind = tool.text("type")?.unwrap_or_else(|| "function".into());
            if kind != "function" {
                let message = format!("{place}.type is not function, and nothing else can be called here");
                return Err(Failure::field(format!("{place}.type"), message));
            }
            let mut function = tool.object("function")?.ok_or_else(|| tool.missing("function"))?;
            let strict = function.flag("strict")?.unwrap_or(false);
            let described = (function.required_text("name")?, function.text("description")?);
            let parameters = function.take("parameters");
            offered.strict.extend(strict.then(|| described.0.clone()));
            offered.add((&place, "function.name", "function.parameters"), described, parameters)?;
            function.end()?;
            tool.ignore(&["cache_control"]);
            tool.end()?;
        }
        Ok(offered)
    }

    /// `tools` and `tool_choice`, in Anthropic's words.
    ///
    /// # Errors
    /// What is no function, and a choice of one that is not there.
    pub fn take_anthropic(fields: &mut Fields) -> Result<Offered, Failure> {
        let mut offered = Offered::default();
        for (index, tool) in fields.list("tools", MOST)?.unwrap_or_default().into_iter().enumerate() {
            let place = format!("tools[{index}]");
            let mut tool = Fields::within(tool, &place)?;
            if tool.text("type")?.is_some_and(|kind| kind != "custom") {
                let message = format!("{place}.type is not custom, and this server runs no tools of its own");
                return Err(Failure::field(format!("{place}.type"), message));
            }
            let strict = tool.flag("strict")?.unwrap_or(false);
            let described = (tool.required_text("name")?, tool.text("description")?);
            let schema = tool.take("input_schema").ok_or_else(|| tool.missing("input_schema"))?;
            offered.strict.extend(strict.then(|| described.0.clone()));
            offered.add((&place, "name", "input_schema"), described, Some(schema))?;
            tool.ignore(&[
                "cache_control",
                "eager_input_streaming",
                "input_examples",
                "defer_loading",
                "allowed_callers",
            ]);
            tool.end()?;
        }
        let Some(mut choice) = fields.object("tool_choice")? else { return Ok(offered) };
        offered.single = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
        let kind = choice.required_text("type")?;
        match kind.as_str() {
            "any" => offered.choose("required")?,
            "tool" => {
                offered.only(&[choice.required_text("name")?])?;
                offered.choose("required")?;
            }
            "auto" | "none" => offered.choose(&kind)?,
            _ => return Err(Failure::field("tool_choice.type", "tool_choice.type is one of auto, any, tool, none")),
        }
        choice.end()?;
        Ok(offered)
    }

    fn add(
        &mut self,
        (place, name_field, schema_field): (&str, &str, &str),
        (name, description): (String, Option<String>),
        schema: Option<Value>,
    ) -> Result<(), Failure> {
        let place_of = |field: &str| format!("{place}.{field}");
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/');
        if name.is_empty() || name.len() > NAME || !name.chars().all(good) {
            let place = place_of(name_field);
            return Err(Failure::field(&place, format!("{place} has 1 to {NAME} letters, digits, _, -, ., : and /")));
        }
        if self.has(&name) {
            let place = place_of(name_field);
            return Err(Failure::field(&place, format!("{place} is {name:?}, which stands there twice")));
        }
        let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
        if !schema.is_object() {
            return Err(wrong(&place_of(schema_field), "a JSON schema, an object,", &schema));
        }
        let mut function = Map::new();
        function.insert("name".into(), json!(name));
        function.extend(description.map(|text| ("description".to_owned(), json!(text))));
        function.insert("parameters".into(), schema);
        self.tools.push(json!({"type": "function", "function": function}));
        Ok(())
    }

    fn choose(&mut self, word: &str) -> Result<(), Failure> {
        match word {
            "auto" => {}
            // What must not be called is not shown.
            "none" => self.tools.clear(),
            "required" if self.tools.is_empty() => {
                return Err(Failure::field("tool_choice", "tool_choice asks for a tool, and there are none"));
            }
            "required" => self.must = true,
            _ => return Err(Failure::field("tool_choice", "tool_choice is none, auto, required, or a function")),
        }
        Ok(())
    }

    /// Offers these alone.
    fn only(&mut self, names: &[String]) -> Result<(), Failure> {
        if let Some(name) = names.iter().find(|name| !self.has(name)) {
            let shown: String = name.chars().take(NAME).collect();
            return Err(Failure::field(
                "tool_choice",
                format!("tool_choice names {shown:?}, and there is no such tool"),
            ));
        }
        self.tools.retain(|tool| names.iter().any(|name| tool["function"]["name"] == name.as_str()));
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool["function"]["name"] == name)
    }

    /// Whether a call that the model makes by itself is held to a schema.
    pub fn binds(&self) -> bool {
        !self.must && self.schemas().any(|(_, _, strict)| strict)
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Each name with the schema of its arguments, and whether that is followed in every keyword.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, &Value, bool)> {
        self.tools.iter().filter_map(|tool| {
            let name = tool["function"]["name"].as_str()?;
            Some((name, &tool["function"]["parameters"], self.strict.iter().any(|strict| strict == name)))
        })
    }

    /// As a template's variable.
    pub fn tools(&self) -> Option<Value> {
        (!self.tools.is_empty()).then(|| Value::Array(self.tools.clone()))
    }

    /// As what reads an answer knows them.
    pub fn functions(&self) -> Arc<Functions> {
        let one = |tool: &Value| {
            let function = &tool["function"];
            Some((function["name"].as_str()?.to_owned(), function["parameters"].clone()))
        };
        Arc::new(Functions::new(self.tools.iter().filter_map(one)))
    }
}

/// A choice that is an object: the word that it comes to, and the names that are allowed.
fn named(map: Map<String, Value>) -> Result<(String, Option<Vec<String>>), Failure> {
    let mut choice = Fields::within(Value::Object(map), "tool_choice")?;
    let of_function = |fields: &mut Fields| -> Result<String, Failure> {
        match fields.object("function")? {
            Some(mut function) => function.required_text("name"),
            None => fields.required_text("name"),
        }
    };
    let kind = choice.required_text("type")?;
    let found = match kind.as_str() {
        "function" => ("required".into(), Some(vec![of_function(&mut choice)?])),
        "allowed_tools" => {
            let mut inner = choice.object("allowed_tools")?.ok_or_else(|| choice.missing("allowed_tools"))?;
            let mode = inner.text("mode")?.unwrap_or_else(|| "auto".into());
            let list = inner.list("tools", MOST)?.ok_or_else(|| inner.missing("tools"))?;
            let name = |(index, tool)| {
                of_function(&mut Fields::within(tool, &format!("tool_choice.allowed_tools.tools[{index}]"))?)
            };
            let names = list.into_iter().enumerate().map(name).collect::<Result<Vec<String>, Failure>>()?;
            inner.end()?;
            (mode, Some(names))
        }
        _ => return Err(Failure::field("tool_choice.type", "tool_choice.type is function or allowed_tools")),
    };
    choice.end()?;
    Ok(found)
}
