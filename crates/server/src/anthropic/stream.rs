//! A message as events, in their order: the message begins, its blocks begin, grow and end one after the other, the message
//! ends.

use super::{Head, ended, message, usage};
use crate::answers::{Answers, call_id};
use crate::failure::Failure;
use crate::front::reply::Shape;
use crate::front::sse::Format;
use crate::host::ask::{Piece, Taken};
use attend_engine::{Finish, Output};
use attend_text::Part;
use serde_json::{Value, json};

pub(super) struct Stream {
    head: Head,
    answers: Answers,
    /// The block that is open.
    open: Option<Block>,
    /// Blocks that have begun.
    blocks: usize,
    /// How the message ended; said when it is known what it cost.
    end: Option<Finish>,
}

#[derive(Debug, PartialEq, Eq)]
enum Block {
    Text,
    /// With what was thought so far.
    Thinking(String),
}

impl Stream {
    pub fn new(head: Head, answers: Answers) -> Stream {
        Stream { head, answers, open: None, blocks: 0, end: None }
    }

    fn begin_block(&mut self, block: &Value) -> String {
        let data = json!({"type": "content_block_start", "index": self.blocks, "content_block": block});
        self.blocks += 1;
        event("content_block_start", &data)
    }

    fn delta(&self, delta: &Value) -> String {
        let index = self.blocks.saturating_sub(1);
        event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
    }

    fn end_block(&self) -> String {
        let index = self.blocks.saturating_sub(1);
        event("content_block_stop", &json!({"type": "content_block_stop", "index": index}))
    }

    fn close(&mut self) -> String {
        match self.open.take() {
            None => String::new(),
            Some(Block::Text) => self.end_block(),
            Some(Block::Thinking(thought)) => {
                let signature = json!({"type": "signature_delta", "signature": super::signature(&thought)});
                self.delta(&signature) + &self.end_block()
            }
        }
    }

    fn part(&mut self, part: Part) -> String {
        match part {
            Part::Content(text) => {
                let mut out = String::new();
                if self.open != Some(Block::Text) {
                    out = self.close() + &self.begin_block(&json!({"type": "text", "text": ""}));
                    self.open = Some(Block::Text);
                }
                out + &self.delta(&json!({"type": "text_delta", "text": text}))
            }
            Part::Reasoning(text) => {
                let mut out = String::new();
                if !matches!(self.open, Some(Block::Thinking(_))) {
                    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                    out = self.close() + &self.begin_block(&block);
                    self.open = Some(Block::Thinking(String::new()));
                }
                if let Some(Block::Thinking(thought)) = &mut self.open {
                    thought.push_str(&text);
                }
                out + &self.delta(&json!({"type": "thinking_delta", "thinking": text}))
            }
            Part::Call(call) => {
                let block = json!({"type": "tool_use", "id": call_id("toolu_"), "name": call.name, "input": {}});
                let begun = self.close() + &self.begin_block(&block);
                let grown = self.delta(&json!({"type": "input_json_delta", "partial_json": call.arguments}));
                begun + &grown + &self.end_block()
            }
        }
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

impl Format for Stream {
    fn begin(&mut self, taken: &[Taken]) -> String {
        self.answers.begin(taken);
        let read = taken.iter().map(|taken| taken.tokens).sum();
        let message = message(&self.head, json!([]), (None, None), usage(read, 0));
        event("message_start", &json!({"type": "message_start", "message": message}))
            + &event("ping", &json!({"type": "ping"}))
    }

    fn token(&mut self, piece: &Piece) -> String {
        let parts = self.answers.push(0, &piece.text);
        parts.into_iter().map(|part| self.part(part)).collect()
    }

    fn finished(&mut self, _: (usize, usize), text: &str, finish: &Finish) -> String {
        self.end = Some(finish.clone());
        let parts = self.answers.finish(0, text);
        let rest: String = parts.into_iter().map(|part| self.part(part)).collect();
        // A message has a block, if an empty one.
        let none = match self.blocks {
            0 => {
                self.open = Some(Block::Text);
                self.begin_block(&json!({"type": "text", "text": ""}))
            }
            _ => String::new(),
        };
        rest + &none + &self.close()
    }

    fn done(&mut self, _: usize, output: &Output) -> String {
        let (reason, stop) = ended(&self.answers, self.end.as_ref());
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
