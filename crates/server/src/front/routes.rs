//! Which path is answered by what.

use super::app::{App, Entry};
use super::record::Record;
use super::reply::{self, Shape};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::host::Model;
use crate::limits::Limits;
use crate::{adapters, anthropic, lora, ollama, openai, page, tasks, tei};
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;

/// A request as the dialects get it.
pub struct Asked {
    pub app: Arc<App>,
    pub record: Arc<Record>,
    pub parts: Parts,
    pub body: Body,
}

impl Asked {
    /// # Errors
    /// A request that did not come by the server's own way.
    pub fn new(app: Arc<App>, request: Request) -> Result<Asked, Failure> {
        let (parts, body) = request.into_parts();
        let record = parts.extensions.get::<Arc<Record>>().cloned();
        let record = record.ok_or_else(|| Failure::fault("a request without a record"))?;
        if let Some(path) = parts.extensions.get::<MatchedPath>() {
            record.route(path.as_str());
        }
        Ok(Asked { app, record, parts, body })
    }

    /// Its body, a JSON object.
    ///
    /// # Errors
    /// As [`super::body::object`].
    pub async fn fields(self) -> Result<(Arc<App>, Arc<Record>, Fields), Failure> {
        let Asked { app, record, parts, body } = self;
        let map = super::body::object(&parts, body, &app.limits).await?;
        Ok((app, record, Fields::new(map)))
    }

    /// Its body, a JSON list.
    ///
    /// # Errors
    /// As [`super::body::list`].
    pub async fn items(self) -> Result<(Arc<App>, Vec<Value>), Failure> {
        let Asked { app, parts, body, .. } = self;
        let items = super::body::list(&parts, body, &app.limits).await?;
        Ok((app, items))
    }

    /// Its body, of which `model` names the model, or nothing the first one.
    ///
    /// # Errors
    /// As [`Asked::fields`]; a model that is not there.
    pub async fn of_model(self) -> Result<Addressed, Failure> {
        let (app, record, mut fields) = self.fields().await?;
        let entry = app.entry(fields.text("model")?.as_deref())?;
        Addressed::new(&app, &entry, record, fields).await
    }
}

/// A request to a model, on its way apart.
pub struct Addressed {
    pub model: Arc<Model>,
    pub record: Arc<Record>,
    pub limits: Limits,
    pub fields: Fields,
}

impl Addressed {
    /// Notes the model in the record, which holds it until the last byte of the answer.
    ///
    /// # Errors
    /// A model that cannot be asked.
    pub async fn new(app: &App, entry: &Entry, record: Arc<Record>, fields: Fields) -> Result<Addressed, Failure> {
        record.model(&entry.name);
        let (model, lease) = app.lease(entry).await?;
        let model = lora::usual(app, model)?;
        record.hold(lease);
        Ok(Addressed { model, record, limits: app.limits, fields })
    }

    /// Refuses fields that nobody has taken.
    pub fn end(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.fields).end()
    }
}

/// A failure goes to the client in its dialect's shape, and to the log where it is a fault.
pub fn finish(outcome: Result<Response<Body>, Failure>, record: Option<&Record>, shape: Shape) -> Response<Body> {
    outcome.unwrap_or_else(|failure| {
        if let (Some(record), Some(detail)) = (record, &failure.detail) {
            record.detail(detail.clone());
        }
        reply::failure(shape, &failure)
    })
}

/// A handler from a function of a dialect.
macro_rules! route {
    ($shape:expr, $work:path) => {
        |State(app): State<Arc<App>>, request: Request| async move {
            let asked = match Asked::new(app, request) {
                Ok(asked) => asked,
                Err(failure) => return reply::failure($shape, &failure),
            };
            let record = Arc::clone(&asked.record);
            finish($work(asked).await, Some(&record), $shape)
        }
    };
}

/// Every route.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(route!(Shape::OpenAi, page::answer)))
        .route("/docs", get(route!(Shape::OpenAi, page::answer)))
        .route("/assets/{name}", get(route!(Shape::OpenAi, page::answer)))
        .route("/health", get(route!(Shape::OpenAi, health)))
        .route("/metrics", get(route!(Shape::OpenAi, metrics)))
        .route("/openapi.json", get(route!(Shape::OpenAi, super::openapi::document)))
        .route("/v1/models", get(route!(Shape::OpenAi, openai::models::list)))
        .route("/v1/models/{*name}", get(route!(Shape::OpenAi, openai::models::one)))
        .route("/v1/completions", post(route!(Shape::OpenAi, openai::completions::answer)))
        .route("/v1/chat/completions", post(route!(Shape::OpenAi, openai::chat::answer)))
        .route("/v1/embeddings", post(route!(Shape::OpenAi, openai::embeddings::answer)))
        .route("/v1/rerank", post(route!(Shape::OpenAi, tasks::rerank::respond)))
        .route("/v2/rerank", post(route!(Shape::OpenAi, tasks::rerank::respond)))
        .route("/v1/classify", post(route!(Shape::OpenAi, tasks::classify::respond)))
        .route("/v1/tag", post(route!(Shape::OpenAi, tasks::tag::respond)))
        .route("/v1/fill", post(route!(Shape::OpenAi, tasks::fill::respond)))
        .route("/v1/answer", post(route!(Shape::OpenAi, tasks::answer::respond)))
        .route("/v1/zero-shot", post(route!(Shape::OpenAi, tasks::zero_shot::respond)))
        .route("/v1/translate", post(route!(Shape::OpenAi, tasks::write::translate)))
        .route("/v1/summarize", post(route!(Shape::OpenAi, tasks::write::summarize)))
        .route("/lora-adapters", get(route!(Shape::OpenAi, lora::list)).post(route!(Shape::OpenAi, lora::set)))
        .route("/v1/load_lora_adapter", post(route!(Shape::OpenAi, adapters::load)))
        .route("/v1/unload_lora_adapter", post(route!(Shape::OpenAi, adapters::unload)))
        .route("/embed", post(route!(Shape::Tei, tei::embed)))
        .route("/similarity", post(route!(Shape::Tei, tei::similarity)))
        .route("/predict", post(route!(Shape::Tei, tei::predict)))
        .route("/rerank", post(route!(Shape::Tei, tei::rank)))
        .route("/tokenize", post(route!(Shape::Tei, tei::tokenize)))
        .route("/decode", post(route!(Shape::Tei, tei::decode)))
        .route("/v1/messages", post(route!(Shape::Anthropic, anthropic::answer)))
        .route("/v1/messages/count_tokens", post(route!(Shape::Anthropic, anthropic::count)))
        .route("/api/version", get(route!(Shape::Ollama, ollama::version)))
        .route("/api/tags", get(route!(Shape::Ollama, ollama::list)))
        .route("/api/ps", get(route!(Shape::Ollama, ollama::running)))
        .route("/api/show", post(route!(Shape::Ollama, ollama::show)))
        .route("/api/generate", post(route!(Shape::Ollama, ollama::generate)))
        .route("/api/chat", post(route!(Shape::Ollama, ollama::chat)))
        .route("/api/embed", post(route!(Shape::Ollama, ollama::embed)))
        .route("/api/embeddings", post(route!(Shape::Ollama, ollama::embeddings)))
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

/// Whether every model answers.
async fn health(asked: Asked) -> Result<Response<Body>, Failure> {
    let bases = asked.app.bases();
    let roster = &asked.app.roster;
    let models = bases.iter().map(|entry| (entry.name.clone(), json!(asked.app.status(entry))));
    let models: serde_json::Map<String, serde_json::Value> = models.collect();
    let stopping = asked.app.is_stopping();
    let loads = |entry: &Arc<Entry>| roster.peek(entry.seat).is_some_and(|model| model.state().is_none());
    let loading = !roster.manages() && bases.iter().any(loads);
    let well = bases.iter().all(|entry| roster.trouble(entry.seat).is_none());
    let status = match (stopping, loading, well) {
        (true, _, _) => "stopping",
        (false, true, _) => "loading",
        (false, false, true) => "ok",
        (false, false, false) => "failing",
    };
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Without a key nobody learns what models there are.
    let open = asked.app.keys.check(&asked.parts.headers).is_ok();
    let body = if open { json!({"status": status, "models": models}) } else { json!({"status": status}) };
    Ok(reply::json(code, &body))
}

async fn metrics(asked: Asked) -> Result<Response<Body>, Failure> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(reply::typed(StatusCode::OK, kind, asked.app.figures.text()))
}

async fn nothing(request: Request) -> Response<Body> {
    reply::failure(Shape::of(request.uri().path()), &Failure::unknown_route())
}

async fn wrong_method(method: Method, request: Request) -> Response<Body> {
    let message = format!("{method} is not what this path takes");
    let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, message).code("method_not_allowed");
    reply::failure(Shape::of(request.uri().path()), &failure)
}
