//! `/openapi.json`: what can be asked, for programs that read such. It is made from one table, which the tests hold against
//! what the routes take.

use super::reply;
use super::routes::Asked;
use crate::failure::Failure;
use crate::lora::STRONGEST;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Holds {
    Text,
    /// A text or a list of texts.
    Texts,
    /// The same, or token ids.
    Prompt,
    Flag,
    Count(u64, u64),
    Number(f64, f64),
    Object,
    List,
    /// A text or a list of objects.
    Content,
    /// A word or a JSON schema.
    Format,
    /// A word or an object.
    Choice,
    /// A flag or a word.
    Think,
    /// Seconds or a text.
    Time,
}

use Holds::{Choice, Content, Count, Flag, Format, List, Number, Object, Prompt, Text, Texts, Think, Time};

/// A route that takes a body: its path, what it does, the fields that it must have, and those that it may.
pub type Route = (&'static str, &'static str, &'static [Field], &'static [&'static [Field]]);

/// A field's name and what it holds.
pub type Field = (&'static str, Holds);

/// Routes that take no body.
const READING: &[(&str, &str)] = &[
    ("/health", "Whether every model answers"),
    ("/metrics", "Figures for Prometheus"),
    ("/openapi.json", "This document"),
    ("/v1/models", "The models"),
    ("/lora-adapters", "The adapters of a model by the numbers that lora knows them under"),
    ("/api/version", "The version"),
    ("/api/tags", "The models"),
    ("/api/ps", "The models in memory"),
];

/// What steers the choice of tokens, beside each dialect's own.
const CHOOSING: &[Field] = &[
    ("temperature", Number(0.0, 100.0)),
    ("top_p", Number(0.0, 1.0)),
    ("n", Count(1, 16)),
    ("seed", Count(0, u64::MAX)),
    ("stop", Texts),
    ("presence_penalty", Number(-2.0, 2.0)),
    ("frequency_penalty", Number(-2.0, 2.0)),
    ("logit_bias", Object),
    ("top_k", Count(0, 1 << 20)),
    ("min_p", Number(0.0, 1.0)),
    ("cache_salt", Text),
    ("priority", Number(-1000.0, 1000.0)),
    ("repetition_penalty", Number(0.0, 100.0)),
    ("min_tokens", Count(0, 1 << 20)),
    ("ignore_eos", Flag),
    ("num_beams", Count(1, 16)),
    ("length_penalty", Number(-100.0, 100.0)),
    ("no_repeat_ngram_size", Count(0, 1 << 20)),
    ("prompt_lookup_num_tokens", Count(0, 64)),
];
/// What the answer must be, in the words of several servers; one of them.
const CONSTRAINTS: &[Field] = &[
    ("response_format", Object),
    ("structured_outputs", Object),
    ("guided_json", Format),
    ("guided_regex", Text),
    ("guided_choice", List),
    ("guided_grammar", Text),
    ("json_schema", Format),
    ("grammar", Text),
];
const STREAM: &[Field] = &[("stream", Flag), ("stream_options", Object)];
const MODEL: &[Field] = &[("model", Text)];
const LORA: &[Field] = &[("lora", List)];
const CUT: &[Field] = &[("truncate", Flag)];
const OLLAMA: &[Field] = &[("options", Object), ("stream", Flag), ("format", Format), ("keep_alive", Time)];

const RANKED: &[Field] = &[("query", Text), ("documents", List)];
const RANKING: &[&[Field]] =
    &[MODEL, &[("top_n", Count(1, 1024)), ("return_documents", Flag), ("raw_scores", Flag)], CUT];

/// Routes that take one.
pub const ROUTES: &[Route] = &[
    (
        "/v1/completions",
        "Goes on with texts or tokens",
        &[("prompt", Prompt)],
        &[
            MODEL,
            &[
                ("suffix", Text),
                ("max_tokens", Count(0, 1 << 20)),
                ("echo", Flag),
                ("logprobs", Count(0, 20)),
                ("best_of", Count(1, 16)),
            ],
            CHOOSING,
            CONSTRAINTS,
            LORA,
            STREAM,
        ],
    ),
    (
        "/v1/chat/completions",
        "The next message of a conversation",
        &[("messages", List)],
        &[
            MODEL,
            &[
                ("max_completion_tokens", Count(1, 1 << 20)),
                ("logprobs", Flag),
                ("top_logprobs", Count(0, 20)),
                ("chat_template_kwargs", Object),
                ("tools", List),
                ("tool_choice", Choice),
                ("parallel_tool_calls", Flag),
                ("reasoning_effort", Text),
                ("reasoning_format", Text),
            ],
            CHOOSING,
            CONSTRAINTS,
            LORA,
            STREAM,
        ],
    ),
    (
        "/v1/embeddings",
        "Vectors",
        &[("input", Prompt)],
        &[MODEL, &[("dimensions", Count(1, 1 << 20)), ("encoding_format", Text), ("input_type", Text)], CUT],
    ),
    (
        "/v1/messages",
        "The next message of a conversation, in Anthropic's words",
        &[("model", Text), ("max_tokens", Count(1, 1 << 20)), ("messages", List)],
        &[&[
            ("system", Content),
            ("temperature", Number(0.0, 1.0)),
            ("top_p", Number(0.0, 1.0)),
            ("top_k", Count(0, 1 << 20)),
            ("stop_sequences", Texts),
            ("output_config", Object),
            ("output_format", Object),
            ("stream", Flag),
            ("tools", List),
            ("tool_choice", Object),
            ("thinking", Object),
        ]],
    ),
    (
        "/v1/messages/count_tokens",
        "The tokens of a conversation",
        &[("model", Text), ("messages", List)],
        &[&[("system", Content), ("tools", List), ("tool_choice", Object), ("thinking", Object)]],
    ),
    ("/v1/rerank", "Which documents answer a query", RANKED, RANKING),
    ("/v2/rerank", "The same, by another name", RANKED, RANKING),
    (
        "/v1/classify",
        "Labels of texts",
        &[("input", Content)],
        &[MODEL, &[("top", Count(1, 1000)), ("function", Text)], CUT],
    ),
    (
        "/v1/tag",
        "Labels of a text's parts",
        &[("input", Texts)],
        &[MODEL, &[("aggregation", Text), ("ignore_labels", Texts)], CUT],
    ),
    ("/v1/fill", "Tokens for gaps", &[("input", Texts)], &[MODEL, &[("top", Count(1, 1000))], CUT]),
    (
        "/v1/answer",
        "Answers, as parts of a context",
        &[("question", Text), ("context", Text)],
        &[
            MODEL,
            &[
                ("top", Count(1, 100)),
                ("max_answer_length", Count(1, 512)),
                ("doc_stride", Count(0, 1 << 20)),
                ("no_answer", Flag),
                ("inside_words", Flag),
            ],
        ],
    ),
    (
        "/v1/zero-shot",
        "Labels of one's own",
        &[("input", Texts), ("labels", Texts)],
        &[MODEL, &[("hypothesis_template", Text), ("multi_label", Flag)], CUT],
    ),
    (
        "/v1/translate",
        "Texts in another language",
        &[("input", Texts)],
        &[
            MODEL,
            &[("source_lang", Text), ("target_lang", Text), ("prefix", Text), ("max_tokens", Count(1, 1 << 20))],
            CHOOSING,
            CUT,
        ],
    ),
    (
        "/v1/summarize",
        "The gist of texts",
        &[("input", Texts)],
        &[MODEL, &[("prefix", Text), ("max_tokens", Count(1, 1 << 20))], CHOOSING, CUT],
    ),
    (
        "/v1/load_lora_adapter",
        "Reads an adapter and gives it a name that requests may call",
        &[("lora_name", Text), ("lora_path", Text)],
        &[MODEL, &[("scale", Number(-100.0, 100.0)), ("load_inplace", Flag)]],
    ),
    ("/v1/unload_lora_adapter", "Takes an adapter away", &[("lora_name", Text)], &[]),
    (
        "/embed",
        "Vectors",
        &[("inputs", Prompt)],
        &[MODEL, &[("normalize", Flag), ("dimensions", Count(1, 1 << 20)), ("prompt_name", Text)], CUT],
    ),
    ("/similarity", "How like a sentence others are", &[("inputs", Object)], &[MODEL, &[("parameters", Object)]]),
    ("/predict", "Labels of a text", &[("inputs", Content)], &[MODEL, &[("raw_scores", Flag)], CUT]),
    (
        "/rerank",
        "Texts in the order in which they answer a query",
        &[("query", Text), ("texts", Texts)],
        &[MODEL, &[("raw_scores", Flag), ("return_text", Flag)], CUT],
    ),
    ("/tokenize", "The tokens of texts", &[("inputs", Texts)], &[MODEL, &[("add_special_tokens", Flag)]]),
    ("/decode", "The texts of tokens", &[("ids", List)], &[MODEL, &[("skip_special_tokens", Flag)]]),
    (
        "/api/generate",
        "Answers a prompt",
        &[("model", Text)],
        &[&[("prompt", Text), ("suffix", Text), ("system", Text), ("raw", Flag), ("think", Think)], OLLAMA],
    ),
    (
        "/api/chat",
        "The next message of a conversation",
        &[("model", Text)],
        &[&[("messages", List), ("tools", List), ("think", Think)], OLLAMA],
    ),
    (
        "/api/embed",
        "Vectors",
        &[("model", Text), ("input", Texts)],
        &[&[("dimensions", Count(1, 1 << 20)), ("options", Object)], CUT],
    ),
    ("/api/embeddings", "One vector", &[("model", Text), ("prompt", Text)], &[&[("options", Object)]]),
    ("/api/show", "What a model is", &[("model", Text)], &[]),
];

/// The document.
///
/// # Errors
/// None.
pub async fn document(_: Asked) -> Result<Response<Body>, Failure> {
    let answers = json!({
        "200": {"description": "The answer"},
        "4XX": {"description": "The request is at fault; the error says where"},
        "5XX": {"description": "The server is at fault, is loading a model or stops"},
    });
    let mut paths = Map::new();
    for (path, summary) in READING {
        paths.insert((*path).into(), json!({"get": {"summary": summary, "responses": answers}}));
    }
    for (path, summary, must, may) in ROUTES {
        let all = must.iter().chain(may.iter().copied().flatten());
        let properties: Map<String, Value> = all.map(|(name, holds)| ((*name).into(), schema(*holds))).collect();
        let required: Vec<&str> = must.iter().map(|(name, _)| *name).collect();
        let body = json!({"type": "object", "properties": properties, "required": required});
        let content = json!({"application/json": {"schema": body}});
        let post =
            json!({"summary": summary, "requestBody": {"required": true, "content": content}, "responses": answers});
        paths.insert((*path).into(), json!({"post": post}));
    }
    let name = json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string"}});
    let one = json!({"summary": "One model", "parameters": [name], "responses": answers});
    paths.insert("/v1/models/{name}".into(), json!({"get": one}));
    let scales = json!({
        "type": "object", "properties": {"id": schema(Count(0, u64::MAX)), "scale": schema(Number(-STRONGEST, STRONGEST))},
        "required": ["id", "scale"],
    });
    let content = json!({"application/json": {"schema": {"type": "array", "items": scales}}});
    if let Some(Value::Object(adapters)) = paths.get_mut("/lora-adapters") {
        let summary = "How strong the adapters of a model are where a request does not say it";
        let body = json!({"required": true, "content": content});
        adapters.insert("post".into(), json!({"summary": summary, "requestBody": body, "responses": answers}));
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Attend", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
    });
    Ok(reply::json(StatusCode::OK, &document))
}

fn schema(holds: Holds) -> Value {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "array", "items": text()});
    match holds {
        Text => text(),
        Texts => json!({"oneOf": [text(), texts()]}),
        Prompt => {
            let ids = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
            json!({"oneOf": [text(), {"type": "array", "items": {"oneOf": [text(), ids]}}, ids]})
        }
        Flag => json!({"type": "boolean"}),
        Count(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Number(low, high) => json!({"type": "number", "minimum": low, "maximum": high}),
        Object => json!({"type": "object"}),
        List => json!({"type": "array"}),
        Format | Choice => json!({"oneOf": [text(), {"type": "object"}]}),
        Think => json!({"oneOf": [{"type": "boolean"}, text()]}),
        Time => json!({"oneOf": [{"type": "number"}, text()]}),
        Content => json!({"oneOf": [text(), {"type": "array"}]}),
    }
}
