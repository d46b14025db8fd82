//! `/api/tags`, `/api/show`, `/api/ps`, `/api/version`: what there is.

use super::read;
use crate::failure::Failure;
use crate::front::reply;
use crate::front::routes::Asked;
use crate::host::{Facts, Model};
use attend_engine::tasks::Task;
use attend_text::Form;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

/// # Errors
/// None.
pub async fn version(_: Asked) -> Result<Response<Body>, Failure> {
    Ok(reply::json(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")})))
}

/// The models that can be asked.
///
/// # Errors
/// None.
pub async fn list(asked: Asked) -> Result<Response<Body>, Failure> {
    let models = asked.app.models();
    let loaded = models.iter().filter_map(|model| Some((model, model.state()?.ok()?)));
    let models: Vec<Value> = loaded.map(|(model, facts)| describe(model, facts)).collect();
    Ok(reply::json(StatusCode::OK, &json!({"models": models})))
}

/// The models in memory, which are the same.
///
/// # Errors
/// None.
pub async fn running(asked: Asked) -> Result<Response<Body>, Failure> {
    let models = asked.app.models();
    let loaded = models.iter().filter_map(|model| Some((model, model.state()?.ok()?)));
    let models = loaded.map(|(model, facts)| {
        let mut object = describe(model, facts);
        object["size_vram"] = json!(0);
        object["context_length"] = json!(facts.context);
        object
    });
    Ok(reply::json(StatusCode::OK, &json!({"models": models.collect::<Vec<Value>>()})))
}

/// # Errors
/// A name that no model has.
pub async fn show(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = read(asked).await?;
    request.fields.ignore(&["verbose", "system", "template", "options"]);
    request.end()?;
    let facts = request.model.facts()?;
    let mut info = json!({"general.architecture": facts.family, "general.parameter_count": facts.parameters});
    info[format!("{}.context_length", facts.family)] = json!(facts.context);
    let object = json!({
        "modelfile": "",
        "parameters": "",
        "template": "",
        "modified_at": modified(&request.model),
        "details": details(&request.model, facts),
        "model_info": info,
        "capabilities": abilities(facts),
    });
    Ok(reply::json(StatusCode::OK, &object))
}

/// What it can, in Ollama's words. Tools and thoughts count where its own template or vocabulary has a form for them.
fn abilities(facts: &Facts) -> Vec<&'static str> {
    let can = |task: Task| facts.tasks.contains(&task);
    let form = facts.form.as_ref().filter(|_| can(Task::Run));
    let abilities = [
        ("completion", can(Task::Run)),
        ("embedding", can(Task::Embed)),
        ("tools", form.is_some_and(Form::lists_tools)),
        ("thinking", form.is_some_and(Form::has_parts)),
    ];
    abilities.into_iter().filter_map(|(name, has)| has.then_some(name)).collect()
}

fn describe(model: &Model, facts: &Facts) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": modified(model),
        "size": model.bytes(),
        "details": details(model, facts),
    })
}

fn details(model: &Model, facts: &Facts) -> Value {
    json!({
        "parent_model": model.adapter.as_ref().map_or("", |adapter| adapter.base.as_str()),
        "format": "",
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": format!("{:.1}M", facts.parameters as f64 / 1e6),
        "quantization_level": "",
    })
}

/// When it was brought into memory.
fn modified(model: &Model) -> String {
    let seconds = i64::try_from(model.created).unwrap_or(0);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
