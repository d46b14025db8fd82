//! What the folder of a sentence-embedding model says beside its weights: how texts are cut, how vectors are pooled and
//! what happens to them afterwards (the layout of the sentence-transformers library), or the metadata of a GGUF file.
//!
//! ```text
//! modules.json                        the steps: Transformer, Pooling, Dense, Normalize, or SpladePooling
//! 0_Transformer/                      weights, tokenizer and sentence_bert_config.json, where not in the folder itself
//! 1_Pooling/config.json               which poolings
//! 2_Dense/{config.json, weights}      a linear layer with an activation
//! sentence_bert_config.json           max_seq_length, do_lower_case
//! config_sentence_transformers.json   prompts, default_prompt_name, similarity_fn_name
//! ```

use super::pooling::{GGUF_RANK, NAMES, Pooling, normalize};
use super::reader::length;
use super::similarity::Similarity;
use super::sparse::Sparse;
use crate::error::Error;
use attend_format::json::{self, Limits};
use attend_format::{Checkpoint, Config, beside};
use attend_kernels::{Activation, Compute, DType, Matrix, dequantize};
use attend_model::Described;
use attend_nn::spec::Body;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the folder says about reading texts.
#[derive(Debug, Default)]
pub(crate) struct TextFolder {
    /// Longer texts are cut to this many tokens.
    pub max_seq_length: Option<usize>,
    /// The tokenizer's own claim of what the model reads.
    pub model_max_length: Option<usize>,
    pub lower_case: bool,
    /// The tokenizer gives no types to the texts of a pair.
    pub untyped: bool,
}

/// The names that `sentence_bert_config.json` has for other bases.
const TEXT_CONFIGS: [&str; 7] = ["bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"];

impl TextFolder {
    pub fn read(path: &Path) -> Result<TextFolder, Error> {
        let Some(folder) = folder_of(path)? else { return Ok(TextFolder::default()) };
        let mut found = TextFolder::default();
        if let Some(config) = open(&folder, "tokenizer_config.json")? {
            found.model_max_length = length(config.value("model_max_length"));
            let inputs = config.str_list("model_input_names")?;
            found.untyped = inputs.is_some_and(|names| !names.iter().any(|name| name == "token_type_ids"));
        }
        for base in TEXT_CONFIGS {
            if let Some(config) = open(&folder, &format!("sentence_{base}_config.json"))? {
                found.max_seq_length = config.usize_opt("max_seq_length")?;
                // Files of newer versions leave the length to the tokenizer, and mean it.
                if found.max_seq_length.is_none() && config.has("transformer_task") {
                    found.max_seq_length = found.model_max_length;
                }
                found.lower_case = config.bool_or("do_lower_case", false)?;
                break;
            }
        }
        Ok(found)
    }
}

/// A step after pooling.
#[derive(Debug)]
pub(crate) enum Module {
    Dense(Dense),
    Normalize,
}

/// `activation(W x + b)` on a pooled vector.
#[derive(Debug)]
pub(crate) struct Dense {
    weight: Matrix,
    bias: Vec<f32>,
    activation: Activation,
}

/// What the files say of a model's vectors, for whom writes the model in another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vectors {
    /// Several are put side by side; none for sparse vectors.
    pub pooling: Vec<Pooling>,
    /// Tokens of a prompt count in pooling.
    pub include_prompt: bool,
    /// How many Dense modules follow pooling.
    pub dense: usize,
    /// Vectors are scaled to length 1 in the end.
    pub normalized: bool,
    /// Vectors are of words, and not of hidden states.
    pub sparse: bool,
    /// The names of the texts that may stand in front of others.
    pub prompts: Vec<String>,
}

/// Reads them; `None` where no file says how texts become vectors.
///
/// # Errors
/// Modules and poolings that are not known.
pub fn vectors(described: &Described) -> Result<Option<Vectors>, Error> {
    let sentence = Sentence::read(described)?;
    let assumed = sentence.notice.is_some();
    Ok((!assumed).then(|| Vectors {
        dense: sentence.modules.iter().filter(|module| matches!(module, Module::Dense(_))).count(),
        normalized: matches!(sentence.modules.last(), Some(Module::Normalize)),
        sparse: sentence.sparse.is_some(),
        prompts: sentence.prompts.into_keys().collect(),
        include_prompt: sentence.include_prompt,
        pooling: sentence.pooling,
    }))
}

/// How a model's hidden states become the vector of a text.
#[derive(Debug)]
pub(crate) struct Sentence {
    /// Several are put side by side.
    pub pooling: Vec<Pooling>,
    /// Tokens of a prompt count in pooling.
    pub include_prompt: bool,
    pub modules: Vec<Module>,
    pub sparse: Option<Sparse>,
    pub prompts: BTreeMap<String, String>,
    pub default_prompt: Option<String>,
    pub similarity: Similarity,
    /// What was assumed because no file says it.
    pub notice: Option<String>,
}

impl Sentence {
    pub fn read(described: &Described) -> Result<Sentence, Error> {
        let mut sentence = Sentence {
            pooling: Vec::new(),
            include_prompt: true,
            modules: Vec::new(),
            sparse: None,
            prompts: BTreeMap::new(),
            default_prompt: None,
            similarity: Similarity::Cosine,
            notice: None,
        };
        match modules_of(described.checkpoint.path())? {
            Some(folder) => sentence.read_folder(&folder)?,
            None => sentence.read_metadata(described.checkpoint.config())?,
        }
        if sentence.pooling.is_empty() && sentence.sparse.is_none() {
            let decoder = matches!(described.spec.body, Body::Decoder(_));
            let (pooling, word) = if decoder { (Pooling::Last, "last token") } else { (Pooling::Mean, "mean") };
            sentence.pooling = vec![pooling];
            sentence.notice = Some(format!("no file says how vectors are pooled; the {word} is taken (--pooling)"));
        }
        Ok(sentence)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<(), Error> {
        if let Some(config) = open(folder, "config_sentence_transformers.json")? {
            self.read_prompts(&config)?;
        }
        let Some(file) = beside(folder, "modules.json")? else { return Ok(()) };
        let list = json::read(&file, Limits::CONFIG)?;
        let wrong = |field: &str, problem: &str| {
            Error::from(attend_format::Error::BadField {
                file: file.clone(),
                field: field.into(),
                problem: problem.into(),
            })
        };
        let list = list.as_array().ok_or_else(|| wrong("", "a list of modules is wanted"))?;
        for (index, module) in list.iter().enumerate() {
            let text = |key: &str| module.get(key).and_then(Value::as_str);
            let kind = text("type").ok_or_else(|| wrong(&format!("[{index}].type"), "is missing"))?;
            let place = text("path").unwrap_or_default();
            let config = || -> Result<Config, Error> {
                let name = format!("{place}/config.json");
                open(folder, &name)?.ok_or_else(|| wrong(&format!("[{index}].path"), &format!("there is no {name}")))
            };
            // The module's place in the library has changed over the years; its name has not.
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" | "MLMTransformer" => {
                    // The one that comes first was found when the weights were.
                    if index > 0 {
                        return Err(wrong(
                            &format!("[{index}].type"),
                            "a transformer is wanted as the first module only",
                        ));
                    }
                }
                "Pooling" => self.read_pooling(&config()?)?,
                "Dense" => self.modules.push(Module::Dense(Dense::read(&config()?, &folder.join(place))?)),
                "Normalize" => self.modules.push(Module::Normalize),
                "SpladePooling" => self.sparse = Some(Sparse::read(&config()?)?),
                // What acts in training only.
                "Dropout" => {}
                _ => return Err(wrong(&format!("[{index}].type"), &format!("module {kind} is not supported"))),
            }
        }
        Ok(())
    }

    fn read_prompts(&mut self, config: &Config) -> Result<(), Error> {
        if let Some(prompts) = config.object("prompts")? {
            for name in prompts.map().keys() {
                self.prompts.insert(name.clone(), prompts.str_or(name, "")?.to_owned());
            }
        }
        if let Some(name) = config.str_opt("default_prompt_name")? {
            if !self.prompts.contains_key(name) {
                return Err(config.bad("default_prompt_name", format!("there is no prompt {name:?}")).into());
            }
            self.default_prompt = Some(name.to_owned());
        }
        if let Some(name) = config.str_opt("similarity_fn_name")? {
            let known = Similarity::named(name);
            self.similarity =
                known.ok_or_else(|| config.bad("similarity_fn_name", format!("{name:?} is not known")))?;
        }
        Ok(())
    }

    /// Old files have a flag for each mode, new ones name the mode or a list of them.
    fn read_pooling(&mut self, config: &Config) -> Result<(), Error> {
        let known = |name: &str| config.bad("pooling_mode", format!("{name:?} is not known")).into();
        match config.value("pooling_mode") {
            Some(Value::String(name)) => {
                let names = name.split('+').map(str::trim);
                self.pooling =
                    names.map(|name| Pooling::named(name).ok_or_else(|| known(name))).collect::<Result<_, Error>>()?;
            }
            Some(_) => {
                let names = config.str_list("pooling_mode")?.unwrap_or_default();
                self.pooling = names
                    .iter()
                    .map(|name| Pooling::named(name).ok_or_else(|| known(name)))
                    .collect::<Result<_, Error>>()?;
            }
            None => {
                const FLAG: &str = "pooling_mode_";
                for (key, name) in config.map().keys().filter_map(|key| Some((key, key.strip_prefix(FLAG)?))) {
                    if config.bool(key)? && !NAMES.iter().any(|(_, known, _)| *known == name) {
                        return Err(config.bad(key, "this way of pooling is not known").into());
                    }
                }
                for (pooling, name, _) in NAMES {
                    if config.bool_or(&format!("{FLAG}{name}"), false)? {
                        self.pooling.push(pooling);
                    }
                }
            }
        }
        if self.pooling.is_empty() {
            return Err(config.bad("pooling_mode", "names no way of pooling").into());
        }
        self.include_prompt = config.bool_or("include_prompt", true)?;
        Ok(())
    }

    /// GGUF's number of a pooling; its readers scale vectors to length 1. A number that asks for scores of pairs says nothing
    /// of vectors.
    fn read_metadata(&mut self, config: &Config) -> Result<(), Error> {
        self.modules.push(Module::Normalize);
        let Some(number) = config.usize_opt("pooling_type")?.filter(|number| *number != GGUF_RANK) else {
            return Ok(());
        };
        let known = Pooling::of_gguf(number);
        self.pooling = vec![known.ok_or_else(|| config.bad("pooling_type", format!("{number} is not supported")))?];
        Ok(())
    }
}

impl Dense {
    fn read(config: &Config, folder: &Path) -> Result<Dense, Error> {
        let (cols, rows) = (config.usize("in_features")?, config.usize("out_features")?);
        for key in ["module_input_name", "module_output_name"] {
            if config.str_or(key, "sentence_embedding")? != "sentence_embedding" {
                return Err(config.bad(key, "only a layer on the text's vector is supported").into());
            }
        }
        let name = config.str_or("activation_function", "torch.nn.modules.activation.Tanh")?;
        let short = name.rsplit('.').next().unwrap_or_default().to_lowercase();
        let activation = attend_model::activation_named(&short)
            .ok_or_else(|| config.bad("activation_function", format!("{name:?} is not known")))?;
        let checkpoint = Checkpoint::open(folder)?;
        let weight = tensor(&checkpoint, "linear.weight", &[rows, cols])?;
        let bias =
            if config.bool_or("bias", true)? { tensor(&checkpoint, "linear.bias", &[rows])? } else { Vec::new() };
        let bytes: Vec<u8> = weight.iter().flat_map(|value| value.to_le_bytes()).collect();
        let matrix = || -> Result<Matrix, attend_kernels::KernelError> {
            let mut builder = Matrix::builder(rows, cols, DType::F32, Compute::F32)?;
            builder.push(&bytes)?;
            builder.finish()
        };
        let weight = matrix().map_err(|error| config.bad("in_features", error.to_string()))?;
        Ok(Dense { weight, bias, activation })
    }

    fn apply(&self, vector: &[f32]) -> Result<Vec<f32>, Error> {
        if vector.len() != self.weight.cols() {
            return Err(Error::Unsupported(format!(
                "the model's Dense module takes vectors of {} numbers, and pooling gives {}",
                self.weight.cols(),
                vector.len()
            )));
        }
        let mut out = vec![0.0; self.weight.rows()];
        self.weight.matmul(vector, &mut out);
        out.iter_mut().zip(&self.bias).for_each(|(value, bias)| *value += bias);
        self.activation.apply_slice(&mut out);
        Ok(out)
    }
}

impl Module {
    pub fn apply(&self, mut vector: Vec<f32>) -> Result<Vec<f32>, Error> {
        match self {
            Module::Dense(dense) => dense.apply(&vector),
            Module::Normalize => {
                normalize(&mut vector);
                Ok(vector)
            }
        }
    }
}

/// A tensor of a known shape in 32-bit floats.
fn tensor(checkpoint: &Checkpoint, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
    let info = checkpoint.require(name)?;
    if info.shape != shape {
        let problem = format!("tensor `{name}` should be {shape:?} and is {:?}", info.shape);
        return Err(checkpoint.config().bad("in_features", problem).into());
    }
    // The bytes are those of the file, whose size was checked against its length.
    let mut bytes = vec![0; info.bytes as usize];
    checkpoint.read_at(name, 0, &mut bytes)?;
    let mut values = vec![0.0; shape.iter().product()];
    dequantize(info.dtype, &bytes, &mut values)
        .map_err(|error| checkpoint.config().bad("in_features", format!("tensor `{name}`: {error}")))?;
    Ok(values)
}

/// The folder that says how vectors are made: it may hold that of the weights.
fn modules_of(path: &Path) -> Result<Option<PathBuf>, Error> {
    if path.is_dir() && beside(path, "modules.json")?.is_some() {
        Ok(Some(path.to_path_buf()))
    } else {
        folder_of(path)
    }
}

/// The folder that a checkpoint of files lies in; none for GGUF.
fn folder_of(path: &Path) -> Result<Option<PathBuf>, Error> {
    let home = attend_format::home(path)?;
    Ok(home.is_dir().then_some(home))
}

fn open(folder: &Path, name: &str) -> Result<Option<Config>, Error> {
    let name = name.trim_start_matches('/');
    Ok(beside(folder, name)?.map(|path| Config::open(&path)).transpose()?)
}
