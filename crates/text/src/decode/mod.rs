//! From tokens back to text: the `decoder` of tokenizer.json as a chain of small machines.
//!
//! A whole sequence is decoded by feeding it token by token, so a stream gives the same bytes as a batch by
//! construction, in linear time. What leaves the chain are bytes; the last stage holds back an unfinished character
//! and replaces what can never become one by U+FFFD, the way `String::from_utf8_lossy` does.

mod bytes;
mod steps;
mod stream;

pub(crate) use bytes::BYTE_CHARS;
pub(crate) use steps::Step;
pub use stream::DecodeStream;

use crate::error::Fault;
use crate::normalize::replacement;
use serde_json::Value;

/// The chain. An empty chain joins the tokens with spaces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub steps: Vec<Step>,
}

impl Decoder {
    /// SentencePiece: `▁` is a space, byte pieces are bytes, and `strip` spaces go at the start of the text.
    pub fn sentencepiece(strip: usize) -> Decoder {
        let replace = Step::Replace { pattern: crate::pattern::Pattern::literal("▁"), content: " ".into() };
        let mut steps = vec![replace, Step::ByteFallback, Step::Fuse];
        if strip > 0 {
            steps.push(Step::Strip { content: ' ', start: strip, stop: 0 });
        }
        Decoder { steps }
    }

    /// The `decoder` field of tokenizer.json.
    pub fn parse(value: &Value) -> Result<Decoder, Fault> {
        let mut decoder = Decoder::default();
        if !value.is_null() {
            decoder.append(value)?;
        }
        Ok(decoder)
    }

    fn append(&mut self, value: &Value) -> Result<(), Fault> {
        let fault = |problem: &str| Fault::new("decoder", problem);
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        let count = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0).min(1 << 16) as usize;
        let letter = |key: &str| text(key).and_then(|text| text.chars().next());
        let step = match value.get("type").and_then(Value::as_str) {
            Some("Sequence") => {
                let steps = value.get("decoders").and_then(Value::as_array);
                for step in steps.ok_or_else(|| fault("a Sequence needs a list `decoders`"))? {
                    self.append(step)?;
                }
                return Ok(());
            }
            Some("ByteLevel") => Step::ByteLevel,
            Some("ByteFallback") => Step::ByteFallback,
            Some("Fuse") => Step::Fuse,
            Some("Replace") => {
                let (pattern, content) = replacement(value, "decoder")?;
                Step::Replace { pattern, content }
            }
            Some("Strip") => {
                let content = letter("content").ok_or_else(|| fault("Strip needs a character `content`"))?;
                Step::Strip { content, start: count("start"), stop: count("stop") }
            }
            Some("WordPiece") => Step::WordPiece {
                prefix: text("prefix").unwrap_or("##").to_string(),
                cleanup: flag("cleanup").unwrap_or(true),
            },
            Some("Metaspace") => Step::Metaspace {
                replacement: letter("replacement").unwrap_or('▁'),
                prepended: text("prepend_scheme") != Some("never") && flag("add_prefix_space") != Some(false),
            },
            Some("BPEDecoder") => Step::Suffix { suffix: text("suffix").unwrap_or("</w>").to_string() },
            Some("CTC") => Step::Ctc {
                pad: text("pad_token").unwrap_or("<pad>").to_string(),
                delimiter: text("word_delimiter_token").unwrap_or("|").to_string(),
                cleanup: flag("cleanup").unwrap_or(true),
            },
            Some(other) => return Err(Fault::unknown("decoder", "decoder", other, "")),
            None => return Err(fault("has no `type`")),
        };
        self.steps.push(step);
        Ok(())
    }
}
