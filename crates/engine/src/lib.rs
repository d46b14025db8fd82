//! From a prompt to an answer: sampling, generation with a key and value cache, beam search, scoring.
//!
//! [`Engine`] stands over a loaded model. The loops below it ([`schedule`], [`beam`], [`score`]) know no tensors: they ask
//! a [`source::LogitsSource`] for rows of logits, which is the model, or in tests a script.

pub mod beam;
pub mod constrain;
pub mod defaults;
pub mod divergence;
pub mod engine;
pub mod error;
pub mod generate;
mod guard;
pub mod logprobs;
pub mod model_source;
pub mod options;
pub mod output;
pub mod prefix;
pub mod request;
pub mod rng;
pub mod sampler;
pub mod schedule;
pub mod score;
pub mod source;
pub mod stop;
pub mod tasks;
mod tokenizer;
pub mod translate;
mod validate;
pub mod variant;
pub mod vocabulary;
mod work;

pub use constrain::{Constraint, Grammars, MAX_BYTES as MAX_CONSTRAINT_BYTES, json_in_lark};
pub use defaults::{Resolved, Setting};
pub use divergence::Divergence;
pub use engine::{Engine, EngineOptions};
pub use error::Error;
pub use logprobs::TokenLogprob;
pub use model_source::OnStep;
pub use options::{Beam, Constraints, EarlyStopping, GenerateOptions, Length, Report, Sampling, Speculation};
pub use output::{Choice, Event, Finish, Guesses, Output, Prompt, Timings, Usage};
pub use prefix::PrefixCache;
pub use request::{Ready, Surroundings};
pub use sampler::SamplerKind;
pub use schedule::{Draft, Ended, Limits, Load, Schedule};
pub use score::{Method, Perplexity, Score};
pub use translate::{TaskPrompt, TextTask, Writing};
pub use variant::Variant;
