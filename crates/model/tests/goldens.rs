//! Every golden checkpoint of the architectures that are built is described, with the facts that matter.

use attend_model::{Described, describe};
use attend_nn::spec::*;
use std::path::PathBuf;

fn golden(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(case)
}

fn described(case: &str) -> Described {
    describe(&golden(case)).unwrap_or_else(|error| panic!("{case}: {error}"))
}

fn stack(described: &Described) -> &Stack {
    described.spec.output_stack()
}

fn layer(described: &Described, index: usize) -> &Layer {
    &stack(described).layers[index]
}

fn rope(described: &Described, index: usize) -> &Rope {
    match &layer(described, index).attention.position {
        Position::Rope(rope) => rope,
        other => panic!("{other:?}"),
    }
}

const CASES: &[(&str, &str)] = &[
    ("llama-mha", "llama"),
    ("llama-gqa", "llama"),
    ("llama-mqa", "llama"),
    ("llama-tied", "llama"),
    ("llama-bias-headdim", "llama"),
    ("llama-v5config", "llama"),
    ("llama-rope-linear", "llama"),
    ("llama-rope-dynamic", "llama"),
    ("llama-rope-llama3", "llama"),
    ("llama-rope-yarn", "llama"),
    ("llama-seqcls", "llama"),
    ("llama-load-bf16", "llama"),
    ("llama-load-sharded", "llama"),
    ("lora-llama/base", "llama"),
    ("train-llama", "llama"),
    ("mistral", "mistral"),
    ("qwen2", "qwen2"),
    ("qwen2-tied", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3"),
    ("phi3", "phi3"),
    ("phi3-longrope-long", "phi3"),
    ("smollm3", "smollm3"),
    ("gpt2", "gpt2"),
    ("gpt2-hub-layout", "gpt2"),
    ("gpt_neo", "gpt_neo"),
    ("gpt_neox", "gpt_neox"),
    ("gpt_neox-sequential", "gpt_neox"),
    ("bloom", "bloom"),
    ("mpt", "mpt"),
    ("falcon-mqa", "falcon"),
    ("falcon-new-decoder", "falcon"),
    ("bert-base", "bert"),
    ("bert-mlm", "bert"),
    ("bert-mlm-gamma-beta", "bert"),
    ("bert-qa", "bert"),
    ("bert-seqcls", "bert"),
    ("bert-seqcls-regression", "bert"),
    ("bert-tokcls", "bert"),
    ("t5-encoder", "t5"),
    ("t5-v1.0", "t5"),
    ("t5-v1.1", "t5"),
    ("mt5", "mt5"),
];

#[test]
fn every_golden_is_described() {
    for (case, architecture) in CASES {
        let described = described(case);
        assert_eq!(described.architecture, *architecture, "{case}");
        let needed: Vec<String> = described.spec.tensors().into_iter().map(|tensor| tensor.name).collect();
        let found: Vec<&String> = described.tensors.iter().map(|tensor| &tensor.ours).collect();
        assert_eq!(needed.iter().collect::<Vec<_>>(), found, "{case}");
        assert_eq!(described.notices, Vec::<String>::new(), "{case}");
    }
}
