//! Why a request gets no answer, in one form for every dialect.

use attend_engine::Error;
use axum::http::StatusCode;

/// The code of a constraint that cannot be followed.
const INVALID_CONSTRAINT: &str = "invalid_constraint";

/// A refusal or a fault: a status, words for the client, and the parameter that they are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
    /// The field of the request that is at fault.
    pub param: Option<String>,
    /// A word for programs, where the status alone does not say it.
    pub code: Option<&'static str>,
    /// Seconds after which it may be tried again.
    pub retry_after: Option<u32>,
    /// What the log says and the client is not told.
    pub detail: Option<String>,
}

impl Failure {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), param: None, code: None, retry_after: None, detail: None }
    }

    /// A request that means nothing.
    pub fn bad(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field that means nothing.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { param: Some(param.into()), ..Failure::bad(message) }
    }

    /// A fault of ours; the client learns that there was one, the log which.
    pub fn fault(detail: impl Into<String>) -> Failure {
        let message = "the server failed to answer this request; its log says more";
        Failure { detail: Some(detail.into()), ..Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
            .code("internal_error")
    }

    /// Too much is asked of the server at present.
    pub fn busy(queue: usize) -> Failure {
        let message = format!("{queue} requests are waiting already; try again later");
        Failure::new(StatusCode::TOO_MANY_REQUESTS, message).code("queue_full").retry(1)
    }

    pub fn loading(model: &str) -> Failure {
        let message = format!("the model {model:?} is being loaded");
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, message).code("model_loading").retry(2)
    }

    pub fn unknown_route() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "there is nothing at this path").code("unknown_route")
    }

    pub fn stopping() -> Failure {
        let message = "the server is stopping and takes no new work";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, message).code("stopping").retry(5)
    }

    /// The same, where it is about what answers must be, with the field that says it.
    pub fn of_constraint(self, field: Option<String>) -> Failure {
        match field {
            Some(field) if self.code == Some(INVALID_CONSTRAINT) => {
                Failure { message: format!("{field}: {}", self.message), param: Some(field), ..self }
            }
            Some(_) | None => self,
        }
    }

    pub fn code(self, code: &'static str) -> Failure {
        Failure { code: Some(code), ..self }
    }

    pub fn retry(self, seconds: u32) -> Failure {
        Failure { retry_after: Some(seconds), ..self }
    }

    /// The kind of error in OpenAI's words.
    pub fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }
}

/// The engine's errors: what a request is at fault for is told, what the model or a file is at fault for is a fault.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        match error {
            Error::Parameter { name, .. } => Failure::field(name, message),
            Error::UnknownParameter { name, .. } => {
                Failure::field(&name, format!("{name:?} is no parameter of this request")).code("unknown_parameter")
            }
            Error::TokenId { place, .. } => {
                let param = place.rsplit(' ').next().unwrap_or(place);
                Failure::field(param, message).code("token_id_out_of_range")
            }
            Error::Context { .. } | Error::TooLong { .. } => Failure::bad(message).code("context_length_exceeded"),
            Error::EmptyPrompt | Error::EmptyInput | Error::NothingLeft { .. } | Error::Unsupported(_) => {
                Failure::bad(message)
            }
            Error::ContextTooLong { .. } => Failure::bad(message),
            Error::Constraint { .. } => Failure::bad(message).code(INVALID_CONSTRAINT),
            Error::ConstraintCost { .. } => Failure::bad(message).code("constraint_too_costly"),
            Error::ConstraintMemory { .. } => {
                Failure::new(StatusCode::TOO_MANY_REQUESTS, message).code("constraints_full").retry(1)
            }
            // The matcher's fault, but only ever a request's own: it says nothing of the model's health.
            Error::ConstraintFault { .. } => Failure::bad(message).code("constraint_fault"),
            Error::Input { index, source } => {
                let inner = Failure::from(*source);
                Failure { message: format!("input {}: {}", index + 1, inner.message), ..inner }
            }
            Error::Text(
                attend_text::Error::Template { .. }
                | attend_text::Error::Refused { .. }
                | attend_text::Error::Pattern { .. }
                | attend_text::Error::Language { .. }
                | attend_text::Error::Encode { .. },
            ) => Failure::bad(message),
            Error::Cancelled => Failure::stopping(),
            Error::NonFinite { .. }
            | Error::OutOfMemory { .. }
            | Error::Panicked(_)
            | Error::Model(_)
            | Error::DamagedAnswer
            | Error::Text(_)
            | Error::Format(_)
            | Error::Files(_) => Failure::fault(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_and_faults_are_not() {
        let told = Failure::from(Error::TokenId { place: "the prompt", id: 9, last: 3 });
        assert_eq!((told.status.as_u16(), told.param.as_deref()), (400, Some("prompt")));
        let inner = Error::TooLong { tokens: 9, limit: 3, of: "the model's positions".into() };
        let told = Failure::from(Error::Input { index: 1, source: Box::new(inner) });
        assert!(told.message.starts_with("input 2: the text has 9 tokens"), "{}", told.message);
        let fault = Failure::from(Error::DamagedAnswer);
        assert_eq!((fault.status.as_u16(), fault.kind()), (500, "server_error"));
        assert!(!fault.message.contains("weights") && fault.detail.is_some_and(|detail| detail.contains("weights")));
    }
}
