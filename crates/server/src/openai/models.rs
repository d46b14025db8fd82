//! `/v1/models`: what this server has.

use crate::failure::Failure;
use crate::front::app::{App, Entry};
use crate::front::reply;
use crate::front::routes::Asked;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

/// Every model.
///
/// # Errors
/// None.
pub async fn list(asked: Asked) -> Result<Response<Body>, Failure> {
    let models: Vec<Value> = asked.app.entries().iter().map(|entry| describe(&asked.app, entry)).collect();
    Ok(reply::json(StatusCode::OK, &json!({"object": "list", "data": models})))
}

/// The model that the path names.
///
/// # Errors
/// A name that no model has.
pub async fn one(asked: Asked) -> Result<Response<Body>, Failure> {
    let path = asked.parts.uri.path();
    let name = path.strip_prefix("/v1/models/").unwrap_or_default();
    let name = crate::front::reply::percent_decoded(name);
    let entry = asked.app.entry(Some(&name))?;
    Ok(reply::json(StatusCode::OK, &describe(&asked.app, &entry)))
}

/// A model in OpenAI's words, and in ours what can be asked of it.
pub fn describe(app: &App, entry: &Entry) -> Value {
    let mut object = json!({
        "id": entry.name,
        "object": "model",
        "created": entry.created,
        "owned_by": "attend",
        "status": app.status(entry),
    });
    if !entry.aliases.is_empty() {
        object["aliases"] = json!(entry.aliases);
    }
    let model = app.look(entry);
    if let Some((model, Ok(facts))) = model.as_ref().and_then(|model| Some((model, model.state()?))) {
        let tasks: Vec<&str> = facts.tasks.iter().map(|task| task.name()).collect();
        object["context"] = json!(facts.context);
        object["tasks"] = json!(tasks);
        object["chat"] = json!(facts.has_template);
        object["bytes"] = json!(model.bytes());
        if entry.adapter.is_none() {
            object["most_bytes"] = json!(facts.most_bytes);
        }
    }
    if let Some(adapter) = &entry.adapter {
        object["parent"] = json!(adapter.base);
    }
    object
}
