//! A message as events, in their order: the message begins, its one block begins, grows and ends, the message ends.

use super::{Head, message, reason, usage};
use crate::failure::Failure;
use crate::front::reply::Shape;
use crate::front::sse::Format;
use crate::host::ask::{Piece, Taken};
use attend_engine::{Finish, Output};
use serde_json::{Value, json};

pub(super) struct Stream {
    head: Head,
    /// How the message ended; said when it is known what it cost.
    end: Option<Finish>,
}

impl Stream {
    pub fn new(head: Head) -> Stream {
        Stream { head, end: None }
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn delta(text: &str) -> String {
    let delta = json!({"type": "text_delta", "text": text});
    event("content_block_delta", &json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

impl Format for Stream {
    fn begin(&mut self, taken: &[Taken]) -> String {
        let read = taken.iter().map(|taken| taken.tokens).sum();
        let message = message(&self.head, json!([]), (None, None), usage(read, 0));
        let block = json!({"type": "text", "text": ""});
        event("message_start", &json!({"type": "message_start", "message": message}))
            + &event("content_block_start", &json!({"type": "content_block_start", "index": 0, "content_block": block}))
            + &event("ping", &json!({"type": "ping"}))
    }

    fn token(&mut self, piece: &Piece) -> String {
        if piece.text.is_empty() { String::new() } else { delta(&piece.text) }
    }

    fn finished(&mut self, _: (usize, usize), text: &str, finish: &Finish) -> String {
        self.end = Some(finish.clone());
        let rest = if text.is_empty() { String::new() } else { delta(text) };
        rest + &event("content_block_stop", &json!({"type": "content_block_stop", "index": 0}))
    }

    fn done(&mut self, _: usize, output: &Output) -> String {
        let (reason, stop) = self.end.as_ref().map_or(("end_turn", None), reason);
        let data = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop},
            "usage": usage(output.usage.prompt_tokens, output.usage.completion_tokens),
        });
        event("message_delta", &data)
    }

    fn end(&mut self) -> String {
        event("message_stop", &json!({"type": "message_stop"}))
    }

    fn failed(&mut self, failure: &Failure) -> String {
        event("error", &Shape::Anthropic.body(failure))
    }
}
