//! `/api/tags`, `/api/show`, `/api/ps`, `/api/version`: what there is.

use super::open;
use crate::failure::Failure;
use crate::front::app::{App, Entry};
use crate::front::reply;
use crate::front::routes::Asked;
use crate::host::Facts;
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

/// The models that can be asked, in memory or not.
///
/// # Errors
/// None.
pub async fn list(asked: Asked) -> Result<Response<Body>, Failure> {
    let app = &asked.app;
    let models = app.entries().into_iter().filter(|entry| app.roster.trouble(entry.seat).is_none());
    let models: Vec<Value> = models.map(|entry| describe(app, &entry)).collect();
    Ok(reply::json(StatusCode::OK, &json!({"models": models})))
}

/// The models in memory.
///
/// # Errors
/// None.
pub async fn running(asked: Asked) -> Result<Response<Body>, Failure> {
    let app = &asked.app;
    let mut models: Vec<Value> = Vec::new();
    for entry in app.entries() {
        let Some(model) = app.look(&entry) else { continue };
        let Some(Ok(facts)) = model.state() else { continue };
        let mut object = describe(app, &entry);
        object["size_vram"] = json!(0);
        object["context_length"] = json!(facts.context);
        object["expires_at"] = json!(expires(app, &entry));
        models.push(object);
    }
    Ok(reply::json(StatusCode::OK, &json!({"models": models})))
}

/// When a model will be put out; where that is not known, far ahead, as clients want a time.
fn expires(app: &App, entry: &Entry) -> String {
    let now = jiff::Timestamp::now();
    let left = app.roster.expires(entry.seat).and_then(|left| jiff::SignedDuration::try_from(left).ok());
    let at = left.and_then(|left| now.checked_add(left).ok());
    at.map_or("2318-01-01T00:00:00Z".to_owned(), |at| at.to_string())
}

/// # Errors
/// A name that no model has.
pub async fn show(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = open(asked).await?.lease().await?;
    request.fields.ignore(&["verbose", "system", "template", "options"]);
    request.end()?;
    let facts = request.model.facts()?;
    let mut info = json!({"general.architecture": facts.family, "general.parameter_count": facts.parameters});
    info[format!("{}.context_length", facts.family)] = json!(facts.context);
    let object = json!({
        "modelfile": "",
        "parameters": "",
        "template": "",
        "modified_at": modified(request.model.created),
        "details": details(request.model.adapter.as_ref().map(|own| own.base.as_str()), facts),
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

/// What is known of a model that is not in memory is its name.
fn describe(app: &App, entry: &Entry) -> Value {
    let model = app.look(entry);
    let facts = model.as_ref().and_then(|model| model.state()?.ok());
    json!({
        "name": entry.name,
        "model": entry.name,
        "modified_at": modified(entry.created),
        "size": model.as_ref().map_or(0, |model| model.bytes()),
        "details": facts.map_or(json!({}), |facts| details(entry.adapter.as_ref().map(|own| own.base.as_str()), facts)),
    })
}

fn details(parent: Option<&str>, facts: &Facts) -> Value {
    json!({
        "parent_model": parent.unwrap_or_default(),
        "format": "",
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": format!("{:.1}M", facts.parameters as f64 / 1e6),
        "quantization_level": "",
    })
}

/// When it was brought into memory.
fn modified(created: u64) -> String {
    let seconds = i64::try_from(created).unwrap_or(0);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
