//! `/v1/models`: what this server has.

use crate::failure::Failure;
use crate::front::reply;
use crate::front::routes::Asked;
use crate::host::Model;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};

/// Every model.
///
/// # Errors
/// None.
pub async fn list(asked: Asked) -> Result<Response<Body>, Failure> {
    let models: Vec<Value> = asked.app.models().iter().map(|model| describe(model)).collect();
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
    let model = asked.app.model(Some(&name))?;
    Ok(reply::json(StatusCode::OK, &describe(&model)))
}

/// A model in OpenAI's words, and in ours what can be asked of it.
pub fn describe(model: &Model) -> Value {
    let mut object = json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "attend",
        "status": model.trouble().unwrap_or("ready"),
    });
    if let Some(Ok(facts)) = model.state() {
        let tasks: Vec<&str> = facts.tasks.iter().map(|task| task.name()).collect();
        object["context"] = json!(facts.context);
        object["tasks"] = json!(tasks);
        object["chat"] = json!(facts.has_template);
        object["bytes"] = json!(model.bytes());
    }
    if let Some(adapter) = &model.adapter {
        object["parent"] = json!(adapter.base);
    }
    object
}
