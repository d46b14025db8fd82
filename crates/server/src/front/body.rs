//! Reading a request's body, never more of it than is allowed.

use crate::failure::Failure;
use crate::json;
use crate::limits::{BEYOND, Limits};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Map, Value};

/// Bodies above this size are parsed beside the threads that serve connections.
const LARGE: usize = 64 << 10;

/// A request's body as a JSON object.
///
/// # Errors
/// Bodies that are too large, too slow, encoded, or no JSON object.
pub async fn object(parts: &Parts, body: Body, limits: &Limits) -> Result<Map<String, Value>, Failure> {
    parsed(parts, body, limits, json::object).await
}

/// A request's body as a JSON list.
///
/// # Errors
/// As [`object`], and no JSON list.
pub async fn list(parts: &Parts, body: Body, limits: &Limits) -> Result<Vec<Value>, Failure> {
    parsed(parts, body, limits, json::list).await
}

async fn parsed<T: Send + 'static>(
    parts: &Parts,
    body: Body,
    limits: &Limits,
    parse: fn(&[u8], &Limits) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let bytes = bytes(parts, body, limits).await?;
    if bytes.len() < LARGE {
        return parse(&bytes, limits);
    }
    let limits = *limits;
    let parsed = tokio::task::spawn_blocking(move || parse(&bytes, &limits)).await;
    parsed.unwrap_or_else(|_| Err(Failure::fault("the body could not be parsed")))
}

async fn bytes(parts: &Parts, body: Body, limits: &Limits) -> Result<Vec<u8>, Failure> {
    if let Some(encoding) = parts.headers.get(header::CONTENT_ENCODING)
        && encoding.as_bytes() != b"identity"
    {
        let message = "encoded bodies are not taken: send the JSON as it is";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    match tokio::time::timeout(limits.body_time, read(body, limits.body)).await {
        Ok(read) => read,
        Err(_) => {
            let message = format!("the body did not come within {} s", limits.body_time.as_secs());
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

async fn read(mut body: Body, most: usize) -> Result<Vec<u8>, Failure> {
    let large = || {
        let message = format!("the body is larger than {most} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("body_too_large")
    };
    if axum::body::HttpBody::size_hint(&body).lower() > most as u64 {
        return Err(large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::bad(format!("the body cannot be read: {}", cause(&error))))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            drain(body, data.len()).await;
            return Err(large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// Reads a little more, so that a client which sends only little more sees the answer.
async fn drain(mut body: Body, mut read: usize) {
    while read < BEYOND {
        match body.frame().await {
            Some(Ok(frame)) => read += frame.into_data().map_or(0, |data| data.len()),
            Some(Err(_)) | None => return,
        }
    }
}

/// The innermost error, which has no address in it.
fn cause(error: &axum::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
