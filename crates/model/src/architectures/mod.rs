//! One small file per architecture: a function from a configuration to a description, and the name tables beside it.

use crate::error::Error;
use crate::names::{Table, Tables};
use crate::reader::{Reader, short};
use attend_format::{Checkpoint, Kind};
use attend_nn::spec::{Head, ModelSpec, SequenceSource};

mod bert;
mod bloom;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod llama;
mod mistral;
mod mpt;
mod phi3;
mod qwen2;
mod qwen3;
mod smollm3;
mod t5;

/// What is known of one architecture.
#[derive(Debug)]
pub struct Architecture {
    pub name: &'static str,
    /// Its `model_type` values in config.json.
    pub model_types: &'static [&'static str],
    /// Its `general.architecture` values in GGUF; empty where that format does not define it.
    pub gguf: &'static [&'static str],
    /// What its class names start with, as in `LlamaForCausalLM`.
    pub class: &'static str,
    /// From a configuration to a description.
    pub spec: fn(&Reader) -> Result<ModelSpec, Error>,
    /// The name tables for a description; of several lines for one tensor the last counts.
    pub names: fn(&ModelSpec) -> Tables,
}

/// Every architecture, in the order of their names.
pub fn architectures() -> &'static [&'static Architecture] {
    ALL
}

static ALL: &[&Architecture] = &[
    &bert::BERT,
    &bloom::BLOOM,
    &falcon::FALCON,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &gpt2::GPT2,
    &gpt_neo::GPT_NEO,
    &gpt_neox::GPT_NEOX,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &mpt::MPT,
    &t5::MT5,
    &phi3::PHI3,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &smollm3::SMOLLM3,
    &t5::T5,
];

impl Architecture {
    /// The name table for a description in one kind of file.
    pub fn table(&self, spec: &ModelSpec, kind: Kind) -> Result<Table, Error> {
        const SCORE: &str = include_str!("../names/score.hf.txt");
        let tables = (self.names)(spec);
        match (kind, &spec.head) {
            (Kind::Gguf, _) => Table::parse(tables.gguf),
            (Kind::HuggingFace, Head::Sequence { source: SequenceSource::Last, .. }) => {
                Table::parse(&[tables.hf, &[SCORE]].concat())
            }
            (Kind::HuggingFace, _) => Table::parse(tables.hf),
        }
    }

    /// The architecture that a checkpoint says it has.
    pub(crate) fn find(checkpoint: &Checkpoint) -> Result<&'static Architecture, Error> {
        let config = checkpoint.config();
        let unknown = |name: &str| Error::UnknownArchitecture {
            file: config.file().to_path_buf(),
            name: short(&name.into()),
            known: architectures().iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
        };
        if !checkpoint.has_config_json() {
            let name = checkpoint.gguf().map(|metadata| metadata.architecture()).transpose()?.unwrap_or_default();
            return architectures().iter().find(|a| a.gguf.contains(&name)).copied().ok_or_else(|| unknown(name));
        }
        let class = config.value("architectures").and_then(|list| list.get(0)).and_then(|class| class.as_str());
        if let Some(name) = config.str_opt("model_type")? {
            return architectures()
                .iter()
                .find(|a| a.model_types.contains(&name))
                .copied()
                .ok_or_else(|| unknown(name));
        }
        // Early files give the class alone.
        let Some(class) = class else { return Err(config.missing("model_type").into()) };
        let named = |a: &&&Architecture| {
            class.strip_prefix(a.class).is_some_and(|rest| ENDINGS.iter().any(|e| rest.starts_with(e)))
        };
        architectures().iter().find(named).copied().ok_or_else(|| unknown(class))
    }
}

/// What may follow an architecture's class prefix.
const ENDINGS: [&str; 5] = ["Model", "For", "LMHead", "WithLMHead", "EncoderModel"];
