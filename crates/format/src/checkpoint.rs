//! A checkpoint as a whole: its description, its tensors, and what it says about generation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::config::open_beside;
use crate::folder::Folder;
use crate::{Config, Error, Source, TensorInfo, Tensors, Unreadable, gguf, index, modules, safetensors, torch};

/// The layout of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder with `config.json` and weights as safetensors or `pytorch_model.bin`, in one file or sharded.
    HuggingFace,
    /// A GGUF file, or several that belong together.
    Gguf,
    /// A folder with a description of its own (`spec.json` or `spec.toml`) in place of `config.json`, and weights as
    /// safetensors under the names that follow from it.
    Described,
}

/// The files that describe a model in full.
const SPEC_FILES: [&str; 2] = ["spec.json", "spec.toml"];

/// Where the tokenizer and the templates of the checkpoint at `path` are: the folder of a single weights file, the GGUF
/// file where a folder is one, the first part of a split file, the folder inside that `modules.json` names for the
/// transformer; else `path` itself.
pub fn home(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        return Ok(match ending {
            "safetensors" | "bin" | "pt" | "pth" => parent(path).to_path_buf(),
            _ => gguf::first_part(path).unwrap_or_else(|| path.to_path_buf()),
        });
    }
    let folder = Folder::open(path)?;
    if let Some(inside) = modules::transformer(&folder)? {
        return Ok(inside);
    }
    if folder.find("config.json")?.is_none()
        && let [only] = gguf_models(&folder)?.as_slice()
    {
        return Ok(only.clone());
    }
    Ok(path.to_path_buf())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The GGUF models of a folder, each by its only or first file.
fn gguf_models(folder: &Folder) -> Result<Vec<PathBuf>, Error> {
    let names = gguf::heads(folder.names_ending(".gguf")?);
    let file = |name: &String| folder.find(name)?.ok_or_else(|| Error::NotFound { path: folder.path().join(name) });
    names.iter().map(file).collect()
}

/// An open checkpoint. Its head has been read and checked; tensors are read when asked for.
#[derive(Debug)]
pub struct Checkpoint {
    kind: Kind,
    path: PathBuf,
    config: Config,
    generation_config: Option<Config>,
    metadata: Option<gguf::Metadata>,
    /// The configuration of a GGUF file is a whole `config.json` kept in it.
    embedded: bool,
    tensors: Tensors,
}

impl Checkpoint {
    /// Opens a folder (safetensors are preferred over `.bin`; shards are found by their index; a folder with one GGUF
    /// model and no `config.json` counts as that model; a `modules.json` may say that the transformer lies in a folder
    /// inside), a `.gguf` file (all parts of a split one are found), or a
    /// single weights file (with the `config.json` beside it).
    pub fn open(path: &Path) -> Result<Checkpoint, Error> {
        if path.is_dir() { Checkpoint::open_folder(path) } else { Checkpoint::open_file(path) }
    }

    fn open_file(path: &Path) -> Result<Checkpoint, Error> {
        let source = Source::open(path)?;
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if gguf::is_gguf(&source) || ending == "gguf" {
            return Checkpoint::open_gguf(path, source);
        }
        let mut tensors = Tensors::default();
        match ending {
            "safetensors" => safetensors::add(&mut tensors, source)?,
            "bin" | "pt" | "pth" => torch::add(&mut tensors, source)?,
            _ => {
                let hint = "give a folder with config.json, a .gguf file, or a .safetensors file";
                return Err(Error::UnknownFormat { file: path.to_path_buf(), hint });
            }
        }
        let parent = parent(path);
        let folder = Folder::open(parent)?;
        let config = open_beside(&folder, "config.json")?;
        let config = config.unwrap_or_else(|| Config::from_map(&parent.join("config.json"), Map::new()));
        Checkpoint::hugging_face(path, &folder, config, tensors)
    }

    fn open_gguf(path: &Path, source: Source) -> Result<Checkpoint, Error> {
        let (metadata, tensors) = gguf::open_all(source)?;
        let parsed = |key: &str| metadata.str(key)?.map(|text| Config::parse(path, text)).transpose();
        let (whole, generation_config) = (parsed(gguf::CONFIG)?, parsed(gguf::GENERATION_CONFIG)?);
        let embedded = whole.is_some();
        let config = whole.map_or_else(|| gguf::config::from_metadata(&metadata, &tensors), Ok)?;
        let (kind, path) = (Kind::Gguf, path.to_path_buf());
        Ok(Checkpoint { kind, path, config, generation_config, metadata: Some(metadata), embedded, tensors })
    }

    fn open_folder(path: &Path) -> Result<Checkpoint, Error> {
        let folder = Folder::open(path)?.with_transformer()?;
        let Some(config) = open_beside(&folder, "config.json")? else {
            for name in SPEC_FILES {
                if let Some(spec) = open_beside(&folder, name)? {
                    return Checkpoint::hugging_face(path, &folder, spec, weights(&folder)?).map(Checkpoint::described);
                }
            }
            let models = gguf_models(&folder)?;
            return match models.as_slice() {
                [only] => Checkpoint::open_gguf(only, Source::open(only)?),
                [] => {
                    let hint = "the file describes the model and is needed beside its weights";
                    Err(Error::MissingFile { folder: path.to_path_buf(), name: "config.json".into(), hint })
                }
                several => {
                    let hint = format!("it holds {} GGUF models; name one of them", several.len());
                    Err(Error::NoWeights { folder: path.to_path_buf(), hint })
                }
            };
        };
        let tensors = weights(&folder)?;
        Checkpoint::hugging_face(path, &folder, config, tensors)
    }

    fn hugging_face(path: &Path, folder: &Folder, config: Config, tensors: Tensors) -> Result<Checkpoint, Error> {
        let generation_config = open_beside(folder, "generation_config.json")?;
        let config = with_old_quantization(folder, config)?;
        let (kind, path) = (Kind::HuggingFace, path.to_path_buf());
        Ok(Checkpoint { kind, path, config, generation_config, metadata: None, embedded: false, tensors })
    }

    fn described(mut self) -> Checkpoint {
        self.kind = Kind::Described;
        self
    }

    /// A model without its weights: what a configuration says ([`Kind::HuggingFace`]), or a description
    /// ([`Kind::Described`]).
    pub fn weightless(path: &Path, kind: Kind, config: Config) -> Checkpoint {
        let (path, tensors) = (path.to_path_buf(), Tensors::default());
        Checkpoint { kind, path, config, generation_config: None, metadata: None, embedded: false, tensors }
    }

    /// The configuration or description of a folder that may have no weights, or of such a file by itself.
    pub fn open_weightless(path: &Path) -> Result<Checkpoint, Error> {
        let file = if path.is_dir() {
            let folder = Folder::open(path)?.with_transformer()?;
            let mut found = None;
            for name in ["config.json"].iter().chain(&SPEC_FILES) {
                found = found.or(folder.find(name)?);
            }
            let hint = "the file describes the model";
            found.ok_or_else(|| Error::MissingFile { folder: path.to_path_buf(), name: "config.json".into(), hint })?
        } else {
            path.to_path_buf()
        };
        let config = Config::open(&file)?;
        let described =
            ["body", "encoder", "decoder"].iter().any(|key| matches!(config.value(key), Some(Value::Object(_))));
        let kind = if described && !config.has("model_type") { Kind::Described } else { Kind::HuggingFace };
        Ok(Checkpoint::weightless(path, kind, config))
    }

    /// Whether there are files of tensors.
    pub fn has_weights(&self) -> bool {
        self.files().next().is_some()
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether [`Checkpoint::config`] is written as `config.json` is: in a folder, and in a GGUF file that keeps a whole
    /// one because the format has no keys for all that it says.
    pub fn has_config_json(&self) -> bool {
        self.kind == Kind::HuggingFace || self.embedded
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.json`, or a GGUF file's metadata under the same names.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn generation_config(&self) -> Option<&Config> {
        self.generation_config.as_ref()
    }

    pub fn gguf(&self) -> Option<&gguf::Metadata> {
        self.metadata.as_ref()
    }

    /// The tensors that can be read, sorted by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        self.tensors.infos()
    }

    /// The tensors whose type is known but not read here (`iq2_xxs`, `F4`, ...).
    pub fn unreadable(&self) -> &BTreeMap<String, Unreadable> {
        self.tensors.unreadable()
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.infos().get(name)
    }

    /// As [`Checkpoint::tensor`], with an error that says whether the tensor is absent or of a type not read here.
    pub fn require(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.tensors.require(name)
    }

    /// The files that hold the tensors.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.tensors.files()
    }

    /// Bytes of all tensors that can be read.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.infos().values().fold(0, |sum, info| sum.saturating_add(info.bytes))
    }

    /// Fills `buffer` with bytes of tensor `name` (little endian, in the file's own type) from byte `offset` of the
    /// tensor on. A file that has been cut short since it was opened is [`Error::Truncated`].
    pub fn read_at(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.tensors.read_at(name, offset, buffer)
    }
}

/// Finds and opens a folder's weights, in the order in which they are preferred.
fn weights(folder: &Folder) -> Result<Tensors, Error> {
    type Add = fn(&mut Tensors, Source) -> Result<(), Error>;
    for (name, add) in [("model.safetensors", safetensors::add as Add), ("pytorch_model.bin", torch::add as Add)] {
        if let Some(file) = folder.find(name)? {
            let mut tensors = Tensors::default();
            add(&mut tensors, Source::open(&file)?)?;
            return Ok(tensors);
        }
        if let Some(file) = folder.find(&format!("{name}.index.json"))? {
            return index::open(folder, &file, add);
        }
    }
    let others = [".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"];
    let found: Result<Vec<_>, _> = others.iter().map(|ending| folder.names_ending(ending)).collect();
    let found: Vec<String> = found?.into_iter().flatten().take(5).collect();
    let hint = match found.as_slice() {
        [] => "model.safetensors or pytorch_model.bin is wanted, or an index of shards".into(),
        found => format!("model.safetensors or pytorch_model.bin is wanted; found {}", found.join(", ")),
    };
    Err(Error::NoWeights { folder: folder.path().to_path_buf(), hint })
}

/// Early quantised checkpoints name their scheme in a file of its own.
fn with_old_quantization(folder: &Folder, config: Config) -> Result<Config, Error> {
    if config.has("quantization_config") {
        return Ok(config);
    }
    for (name, method) in [("quantize_config.json", "gptq"), ("quant_config.json", "awq")] {
        if folder.find(name)?.is_some() {
            let mut map = config.map().clone();
            map.insert("quantization_config".into(), json!({ "quant_method": method }));
            return Ok(Config::from_map(config.file(), map));
        }
    }
    Ok(config)
}
