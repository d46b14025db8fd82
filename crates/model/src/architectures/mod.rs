//! One small file per architecture: a function from a configuration to a description, and the name tables beside it.

use crate::error::Error;
use crate::names::{Table, Tables};
use crate::reader::{Reader, short};
use attend_format::{Checkpoint, Config, Kind};
use attend_nn::spec::{Body, Head, ModelSpec};

mod albert;
mod bart;
mod bert;
mod blenderbot;
mod blenderbot_small;
mod bloom;
mod codegen;
mod cohere;
mod cohere2;
mod deberta;
mod deepseek_v2;
mod deepseek_v3;
mod distilbert;
mod electra;
mod esm;
mod falcon;
mod fsmt;
mod gemma;
mod gemma2;
mod gemma3;
mod gpt2;
mod gpt_bigcode;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granitemoe;
mod gte;
mod llama;
mod m2m100;
mod marian;
mod mbart;
mod mistral;
mod mixtral;
mod modernbert;
mod mpnet;
mod mpt;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo3;
mod olmoe;
mod openai_gpt;
mod opt;
mod pegasus;
mod phi;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_moe;
mod roberta;
mod smollm3;
mod stablelm;
mod starcoder2;
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
    &albert::ALBERT,
    &bart::BART,
    &bert::BERT,
    &blenderbot::BLENDERBOT,
    &blenderbot_small::BLENDERBOT_SMALL,
    &bloom::BLOOM,
    &codegen::CODEGEN,
    &cohere::COHERE,
    &cohere2::COHERE2,
    &roberta::CAMEMBERT,
    &deberta::DEBERTA,
    &deberta::DEBERTA_V2,
    &distilbert::DISTILBERT,
    &electra::ELECTRA,
    &esm::ESM,
    &deepseek_v2::DEEPSEEK_V2,
    &deepseek_v3::DEEPSEEK_V3,
    &falcon::FALCON,
    &fsmt::FSMT,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &gpt2::GPT2,
    &gpt_bigcode::GPT_BIGCODE,
    &gpt_neo::GPT_NEO,
    &gpt_neox::GPT_NEOX,
    &gptj::GPTJ,
    &granite::GRANITE,
    &granitemoe::GRANITE_MOE,
    &gte::GTE,
    &llama::LLAMA,
    &m2m100::M2M100,
    &marian::MARIAN,
    &mbart::MBART,
    &mistral::MISTRAL,
    &modernbert::MODERNBERT,
    &mpnet::MPNET,
    &gpt_oss::GPT_OSS,
    &mixtral::MIXTRAL,
    &mpt::MPT,
    &t5::MT5,
    &olmo::OLMO,
    &olmo2::OLMO2,
    &olmo3::OLMO3,
    &olmoe::OLMOE,
    &openai_gpt::OPENAI_GPT,
    &opt::OPT,
    &phi::PHI,
    &gte::NEW,
    &nomic_bert::NOMIC_BERT,
    &pegasus::PEGASUS,
    &phi3::PHI3,
    &qwen2::QWEN2,
    &qwen2_moe::QWEN2_MOE,
    &qwen3::QWEN3,
    &roberta::ROBERTA,
    &qwen3_moe::QWEN3_MOE,
    &smollm3::SMOLLM3,
    &stablelm::STABLELM,
    &starcoder2::STARCODER2,
    &t5::T5,
    &roberta::XLM_ROBERTA,
];

/// A model that a file of its own describes, with tensors under our names. It is looked for by the kind of the
/// checkpoint and has no name that a file could give.
static DESCRIBED: Architecture = Architecture {
    name: "description",
    model_types: &[],
    gguf: &[],
    class: "",
    spec: |reader| crate::spec_file::read(reader.config()),
    names: |_| Tables { hf: &["same"], gguf: &[] },
};

impl Architecture {
    /// The name table for a description in one kind of file, of a model with this configuration.
    pub fn table(&self, spec: &ModelSpec, kind: Kind, config: &Config) -> Result<Table, Error> {
        let tables = (self.names)(spec);
        let table = match kind {
            Kind::Gguf => Table::parse(tables.gguf),
            Kind::Described => Table::parse(tables.hf),
            Kind::HuggingFace => Table::parse(&[tables.hf, usual_head(spec)].concat()),
        };
        Ok(table?.of(config))
    }

    /// The architecture that a checkpoint says it has.
    pub(crate) fn find(checkpoint: &Checkpoint) -> Result<&'static Architecture, Error> {
        let config = checkpoint.config();
        let unknown = |name: &str| Error::UnknownArchitecture {
            file: config.file().to_path_buf(),
            name: short(&name.into()),
            known: architectures().iter().map(|known| known.name).collect::<Vec<_>>().join(", "),
        };
        if checkpoint.kind() == Kind::Described {
            return Ok(&DESCRIBED);
        }
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

/// The names of an encoder's classifiers of one matrix.
const CLASSIFIER: &str = include_str!("../names/bert-classifier.hf.txt");

/// The names of classifiers that are the same in every architecture: a decoder's, and an encoder's of one matrix.
fn usual_head(spec: &ModelSpec) -> &'static [&'static str] {
    match (&spec.body, &spec.head) {
        (Body::Encoder(_), Head::Sequence { transform: None, .. } | Head::Token { transform: None, .. }) => {
            &[CLASSIFIER]
        }
        (Body::Encoder(_), Head::Span { transform: None, .. }) => &[include_str!("../names/bert-span.hf.txt")],
        // What comes before the matrix has names of the architecture's own.
        (Body::Encoder(_), Head::Sequence { .. } | Head::Token { .. } | Head::Span { .. }) => &[],
        (Body::Decoder(_), Head::Sequence { .. }) => &[include_str!("../names/score.hf.txt")],
        (Body::Decoder(_), Head::Token { .. }) => &[include_str!("../names/decoder-token.hf.txt")],
        (Body::Decoder(_), Head::Span { .. }) => &[include_str!("../names/decoder-span.hf.txt")],
        (Body::Encoder(_) | Body::Decoder(_), Head::None | Head::Lm(_)) | (Body::EncoderDecoder { .. }, _) => &[],
    }
}

/// What may follow an architecture's class prefix.
const ENDINGS: [&str; 5] = ["Model", "For", "LMHead", "WithLMHead", "EncoderModel"];
