//! Tiny checkpoints for the tests: a golden with something changed, or made from nothing.
#![allow(dead_code)]

pub mod gguf;

use attend_format::{TensorSpec, safetensors};
use attend_kernels::{Compute, DType};
use attend_model::{Described, Error, LoadOptions, Weights, describe};
use attend_nn::WeightSource;
use attend_testkit::golden::{Golden, Random, golden_root, read_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Every golden checkpoint of the architectures that are built, with its architecture.
pub const CASES: &[(&str, &str)] = &[
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
    ("openai-gpt", "openai-gpt"),
    ("gpt_bigcode", "gpt_bigcode"),
    ("gptj", "gptj"),
    ("opt", "opt"),
    ("opt-350m", "opt"),
    ("phi", "phi"),
    ("starcoder2", "starcoder2"),
    ("olmo", "olmo"),
    ("olmo2", "olmo2"),
    ("stablelm", "stablelm"),
    ("stablelm-sequential", "stablelm"),
    ("cohere", "cohere"),
    ("cohere2", "cohere2"),
    ("granite", "granite"),
    ("codegen", "codegen"),
    ("llama-tokcls", "llama"),
    ("bert-base", "bert"),
    ("bert-mlm", "bert"),
    ("bert-mlm-gamma-beta", "bert"),
    ("bert-qa", "bert"),
    ("bert-seqcls", "bert"),
    ("bert-seqcls-regression", "bert"),
    ("bert-tokcls", "bert"),
    ("roberta-mlm", "roberta"),
    ("roberta-qa", "roberta"),
    ("roberta-seqcls", "roberta"),
    ("camembert-mlm", "camembert"),
    ("xlm-roberta-seqcls", "xlm-roberta"),
    ("distilbert-mlm", "distilbert"),
    ("distilbert-seqcls", "distilbert"),
    ("electra-base", "electra"),
    ("electra-disc", "electra"),
    ("electra-mlm", "electra"),
    ("albert-base", "albert"),
    ("albert-mlm", "albert"),
    ("albert-seqcls", "albert"),
    ("mpnet-base", "mpnet"),
    ("mpnet-mlm", "mpnet"),
    ("deberta-base", "deberta"),
    ("deberta-v2-mlm", "deberta-v2"),
    ("deberta-v2-seqcls", "deberta-v2"),
    ("modernbert-base", "modernbert"),
    ("modernbert-mlm", "modernbert"),
    ("modernbert-seqcls", "modernbert"),
    ("nomic_bert-base", "nomic_bert"),
    ("gte-base", "gte"),
    ("t5-encoder", "t5"),
    ("t5-v1.0", "t5"),
    ("t5-v1.1", "t5"),
    ("mt5", "mt5"),
];

pub fn golden(case: &str) -> PathBuf {
    golden_root().join(case)
}

pub fn described(case: &str) -> Described {
    describe(&golden(case)).unwrap_or_else(|error| panic!("{case}: {error}"))
}

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn f32(shape: &[usize], values: &[f32]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        Tensor {
            dtype: DType::F32,
            shape: shape.to_vec(),
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }

    pub fn random(random: &mut Random, shape: &[usize]) -> Tensor {
        Tensor::f32(shape, &random.normals(shape.iter().product()))
    }

    pub fn values(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.shape.iter().product()];
        attend_kernels::dequantize(self.dtype, &self.bytes, &mut out).unwrap();
        out
    }
}

/// A checkpoint in memory, to be changed and written.
#[derive(Debug, Clone)]
pub struct Tiny {
    pub config: Value,
    pub generation: Option<Value>,
    pub tensors: BTreeMap<String, Tensor>,
}

impl Tiny {
    /// A golden of one safetensors file.
    pub fn golden(case: &str) -> Tiny {
        let folder = golden(case);
        let tensors = Golden::case(case, "model").tensors.into_iter();
        let generation = folder.join("generation_config.json");
        Tiny {
            config: read_json(&folder.join("config.json")),
            generation: generation.exists().then(|| read_json(&generation)),
            tensors: tensors
                .map(|(name, t)| (name, Tensor { dtype: dtype(&t.dtype), shape: t.shape, bytes: t.bytes }))
                .collect(),
        }
    }

    /// A Llama with random weights.
    pub fn llama(config: Value) -> Tiny {
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let (width, hidden, vocab) = (size("hidden_size"), size("intermediate_size"), size("vocab_size"));
        let head = width / size("num_attention_heads");
        let kv = size("num_key_value_heads") * head;
        let mut random = Random(7);
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize]| drop(tensors.insert(name, Tensor::random(&mut random, shape)));
        add("model.embed_tokens.weight".into(), &[vocab, width]);
        add("lm_head.weight".into(), &[vocab, width]);
        add("model.norm.weight".into(), &[width]);
        for i in 0..size("num_hidden_layers") {
            let layer = |part: &str| format!("model.layers.{i}.{part}.weight");
            add(layer("input_layernorm"), &[width]);
            add(layer("post_attention_layernorm"), &[width]);
            add(layer("self_attn.q_proj"), &[width, width]);
            add(layer("self_attn.k_proj"), &[kv, width]);
            add(layer("self_attn.v_proj"), &[kv, width]);
            add(layer("self_attn.o_proj"), &[width, width]);
            add(layer("mlp.gate_proj"), &[hidden, width]);
            add(layer("mlp.up_proj"), &[hidden, width]);
            add(layer("mlp.down_proj"), &[width, hidden]);
        }
        Tiny { config, generation: None, tensors }
    }

    /// Sets a field of config.json.
    pub fn with(mut self, key: &str, value: Value) -> Tiny {
        self.config[key] = value;
        self
    }

    pub fn without(mut self, key: &str) -> Tiny {
        self.config.as_object_mut().unwrap().remove(key);
        self
    }

    pub fn rename(self, name: impl Fn(&str) -> String) -> Tiny {
        let tensors = self.tensors.iter().map(|(old, tensor)| (name(old), tensor.clone())).collect();
        Tiny { tensors, ..self }
    }

    pub fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        if let Some(generation) = &self.generation {
            std::fs::write(folder.path().join("generation_config.json"), generation.to_string()).unwrap();
        }
        write_safetensors(&folder.path().join("model.safetensors"), &self.tensors);
        folder
    }

    pub fn describe(&self) -> Result<Described, Error> {
        describe(self.write().path())
    }

    /// The error of describing it, as users see it.
    pub fn refusal(&self) -> String {
        match self.describe() {
            Ok(_) => panic!("accepted: {}", self.config),
            Err(error) => error.to_string(),
        }
    }

    /// Its weights by our names.
    pub fn weights(&self) -> BTreeMap<String, Vec<f32>> {
        let folder = self.write();
        weights(&describe(folder.path()).unwrap()).unwrap()
    }
}

pub fn write_safetensors(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let specs: Vec<TensorSpec> = tensors
        .iter()
        .map(|(name, t)| TensorSpec { name: name.clone(), dtype: t.dtype, shape: t.shape.clone() })
        .collect();
    let bytes: Vec<&Vec<u8>> = tensors.values().map(|tensor| &tensor.bytes).collect();
    safetensors::write(path, &specs, &BTreeMap::new(), &mut |index, out| Ok(out.write_all(bytes[index])?)).unwrap();
}

/// Every weight that the description needs, widened, under our names.
pub fn weights(source: &Described) -> Result<BTreeMap<String, Vec<f32>>, Error> {
    let mut silent = |_: u64, _: u64| {};
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let mut weights = Weights::new(source, &options, &mut silent);
    let mut all = BTreeMap::new();
    for required in source.spec.tensors() {
        // The walk asks for norms and biases as vectors, for everything else as matrices.
        let values = match required.shape[..] {
            [rows, cols] if !required.name.contains("_norm.") => {
                let matrix = weights.matrix(&required.name, rows, cols)?;
                let mut values = vec![0.0; rows * cols];
                matrix.read_rows(0, &mut values);
                values
            }
            _ => weights.vector(&required.name, &required.shape)?,
        };
        all.insert(required.name, values);
    }
    Ok(all)
}

fn dtype(name: &str) -> DType {
    match name {
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I64" => DType::I64,
        other => panic!("{other}"),
    }
}
