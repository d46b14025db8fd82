//! Text in, token ids out, and back: tokenizers from every kind of file that carries one, incremental decoding, and
//! chat templates.
//!
//! Every source is reduced to the same parts (see [`Tokenizer`]): added tokens, a normaliser, a pre-tokenizer, a model,
//! a post-processor and a decoder. The models, the added tokens, the decoders and everything that runs patterns or
//! tables taken from a file are this crate's own, because files are not to be trusted: each is bounded in time and
//! memory. The bookkeeping of offsets, and the steps that carry no data of the file, are the `tokenizers` library's.

mod added;
mod answer;
mod charsmap;
mod decode;
mod encoding;
mod error;
mod export;
mod guard;
mod infill;
mod language;
mod model;
mod normalize;
mod pattern;
mod post;
mod pretokenize;
mod source;
mod template;
mod tokenizer;
mod vocabulary;

pub use answer::{AnswerReader, Call, Form, Functions, Part, Written};
pub use decode::DecodeStream;
pub use encoding::{EncodeOptions, Encoding, Origin, Truncation, TruncationStrategy};
pub use error::Error;
pub use export::{Exported, to_folder, to_gguf};
pub use infill::Infill;
pub use language::{Language, LanguagePlace, language_code, language_name};
pub use template::{ChatTemplate, Render, Rendered};
pub use tokenizer::Tokenizer;
