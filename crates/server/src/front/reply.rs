//! Answers as HTTP responses, and failures in the shape that a dialect's clients read.

use crate::failure::Failure;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// How a dialect says that something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    OpenAi,
    /// Text Embeddings Inference.
    Tei,
    Anthropic,
    Ollama,
}

impl Shape {
    /// The shape of the dialect that a path belongs to.
    pub fn of(path: &str) -> Shape {
        match path {
            "/embed" | "/similarity" | "/predict" | "/rerank" | "/tokenize" | "/decode" => Shape::Tei,
            _ if path.starts_with("/v1/messages") => Shape::Anthropic,
            _ if path.starts_with("/api/") => Shape::Ollama,
            _ => Shape::OpenAi,
        }
    }

    /// A failure's body.
    pub fn body(self, failure: &Failure) -> Value {
        match self {
            Shape::OpenAi => json!({"error": {
                "message": failure.message,
                "type": failure.kind(),
                "param": failure.param,
                "code": failure.code,
            }}),
            Shape::Anthropic => {
                json!({"type": "error", "error": {"type": anthropic_kind(failure), "message": failure.message}})
            }
            Shape::Ollama => json!({"error": failure.message}),
            Shape::Tei => json!({"error": failure.message, "error_type": tei_kind(failure)}),
        }
    }
}

/// The kind of error in the words of Text Embeddings Inference.
fn tei_kind(failure: &Failure) -> &'static str {
    match failure.status {
        StatusCode::TOO_MANY_REQUESTS => "overloaded",
        StatusCode::SERVICE_UNAVAILABLE => "unhealthy",
        status if status.is_server_error() => "backend",
        _ => "validation",
    }
}

/// The kind of error in Anthropic's words.
fn anthropic_kind(failure: &Failure) -> &'static str {
    match failure.status {
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => failure.kind(),
    }
}

/// A response with a JSON body.
pub fn json(status: StatusCode, body: &Value) -> Response<Body> {
    typed(status, "application/json", body.to_string())
}

/// A response with a body of some type.
pub fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The response to a request that failed.
pub fn failure(shape: Shape, failure: &Failure) -> Response<Body> {
    let mut response = json(failure.status, &shape.body(failure));
    let headers = response.headers_mut();
    if let Some(seconds) = failure.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if failure.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    // What is left of a body that was not read would be taken for the next request.
    if failure.status == StatusCode::PAYLOAD_TOO_LARGE || failure.status == StatusCode::REQUEST_TIMEOUT {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A part of a path with its escapes undone; bytes that are no text are replaced.
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_once() {
        for (text, wanted) in [("a", "a"), ("a%2Fb", "a/b"), ("%252f", "%2f"), ("%", "%"), ("%f", "%f"), ("%zz", "%zz")]
        {
            assert_eq!(percent_decoded(text), wanted);
        }
        assert_eq!(percent_decoded("%ff"), "\u{fffd}");
    }
}
