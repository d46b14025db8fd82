//! From a path to a description, without reading weights.

use crate::architectures::Architecture;
use crate::cost;
use crate::error::Error;
use crate::generation::{self, GenerationDefaults};
use crate::mapping::{self, Mapped, Mapping, TiedCopy};
use crate::memory;
use crate::names::{Table, Verb};
use crate::reader::{Log, Reader};
use attend_format::{Checkpoint, Config, Kind, unsupported_quantization};
use attend_kernels::DType;
use attend_nn::spec::{Ffn, Layer, ModelSpec};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

/// A checkpoint and what it is.
#[derive(Debug)]
pub struct Described {
    pub spec: ModelSpec,
    /// The architecture's name, as `attend show` prints it.
    pub architecture: &'static str,
    pub checkpoint: Checkpoint,
    /// Every tensor of the model and where it lies in the files, in walking order.
    pub tensors: Vec<Mapped>,
    /// Tensors of the files that should equal one that is used; compared when the weights are loaded.
    pub copies: Vec<TiedCopy>,
    /// What the user should know: defaults that were assumed, parts left aside.
    pub notices: Vec<String>,
    pub generation: GenerationDefaults,
    pub(crate) known: &'static Architecture,
    pub(crate) rotates: bool,
    constants: OnceLock<HashSet<String>>,
}

impl Described {
    /// The token with which the decoder of an encoder-decoder starts a text that it writes.
    ///
    /// # Errors
    /// [`Error::Config`] where neither the files nor the family name one.
    pub fn decoder_start(&self) -> Result<u32, Error> {
        let start = self.generation.decoder_start.or(self.generation.bos).or(self.generation.pad);
        start.ok_or_else(|| Error::Config {
            file: self.checkpoint.config().file().to_path_buf(),
            field: "decoder_start_token_id".into(),
            problem: "is missing: nothing says with which token the decoder starts".into(),
        })
    }

    /// The token in front of what the decoder of an encoder-decoder reads of a given text: a target in training, or the
    /// source itself where a head reads it. Usually that which starts a generated text; in some families the text's own last
    /// token.
    ///
    /// # Errors
    /// As [`Described::decoder_start`].
    pub fn start_of(&self, text: &[u32]) -> Result<u32, Error> {
        text.last().copied().filter(|_| self.rotates).map_or_else(|| self.decoder_start(), Ok)
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> u128 {
        cost::parameters(&self.spec)
    }

    /// Parameters and bytes by type, as the files hold them.
    pub fn by_type(&self) -> BTreeMap<DType, (u64, u64)> {
        let mut sums = BTreeMap::new();
        for tensor in &self.tensors {
            let elements = tensor.elements();
            let bytes = tensor.dtype.bytes(elements).unwrap_or(elements);
            let sum: &mut (u64, u64) = sums.entry(tensor.dtype).or_default();
            *sum = (sum.0 + elements as u64, sum.1 + bytes as u64);
        }
        sums
    }

    /// Whether one of our tensors is a buffer of the reference, which training leaves as it is.
    pub fn is_constant(&self, ours: &str) -> bool {
        let constants = || {
            let table = self.known.table(&self.spec, Kind::HuggingFace, self.checkpoint.config()).unwrap_or_default();
            let constant = |ours: &String| table.origin(ours).is_some_and(|o| o.verbs.contains(&Verb::Constant));
            self.tensors.iter().map(|tensor| &tensor.ours).filter(|ours| constant(ours)).cloned().collect()
        };
        self.constants.get_or_init(constants).contains(ours)
    }

    /// Bytes of the weights in their types in the files.
    pub fn weight_bytes(&self) -> u64 {
        self.by_type().values().map(|(_, bytes)| bytes).sum()
    }
}

/// Describes the checkpoint at `path`: its architecture, every tensor, its generation defaults. No weights are read.
pub fn describe(path: &Path) -> Result<Described, Error> {
    describe_within(path, memory::available())
}

/// As [`describe`], with the bytes of memory that the refusal of an impossible claim compares with.
pub fn describe_within(path: &Path, available: Option<u64>) -> Result<Described, Error> {
    described(Checkpoint::open(path)?, available)
}

/// Describes a model that may have no weights: a folder or a `config.json` of one, or a description of its own
/// ([`crate::spec_file`]). Where there are weights, as [`describe`].
pub fn describe_design(path: &Path) -> Result<Described, Error> {
    let json_or_toml = path.extension().is_some_and(|ending| ending == "json" || ending == "toml");
    if !json_or_toml {
        match Checkpoint::open(path) {
            Ok(checkpoint) => return described(checkpoint, memory::available()),
            // A folder with a configuration alone.
            Err(attend_format::Error::NoWeights { .. }) if path.is_dir() => {}
            Err(error) => return Err(error.into()),
        }
    }
    described(Checkpoint::open_weightless(path)?, None)
}

/// Describes an open checkpoint.
pub(crate) fn described(checkpoint: Checkpoint, available: Option<u64>) -> Result<Described, Error> {
    let known = Architecture::find(&checkpoint)?;
    refuse_quantization(&checkpoint)?;
    let log = Log::default();
    let text = text_part(&checkpoint)?;
    let reader = Reader::new(&checkpoint, text.as_ref().unwrap_or(checkpoint.config()), known.class, &log);
    let spec = (known.spec)(&reader);
    let available = available.unwrap_or(u64::MAX);
    if let Some(layers) = log.claimed_layers.get() {
        return Err(too_many_layers(&checkpoint, spec.ok().as_ref(), layers, available));
    }
    let spec = spec?;
    let repeated = repeated_tensors(&spec);
    if repeated > MOST_TENSORS {
        let problem = format!("{repeated} tensors of experts and of latent heads are claimed, more than any model has");
        return Err(Error::Config { file: checkpoint.config().file().into(), field: "experts".into(), problem });
    }
    let table = known.table(&spec, checkpoint.kind(), checkpoint.config())?;
    let mapped = match checkpoint.has_weights() {
        true => mapping::map(&spec, &table, &checkpoint),
        false => weightless(&spec, &table, &checkpoint),
    };
    let mapping = match mapped {
        Ok(mapping) => mapping,
        Err(error) => return Err(impossible(&checkpoint, &spec, available).unwrap_or(error)),
    };
    let mut generation = generation::defaults(&checkpoint, None)?;
    generation.decoder_start = generation.decoder_start.or(log.decoder_start.get());
    let rotates = log.rotates.get();
    let mut notices = log.notices.into_inner();
    notices.extend(mapping.notices);
    notices.dedup();
    let (tensors, copies) = (mapping.tensors, mapping.copies);
    let (architecture, constants) = (known.name, OnceLock::new());
    Ok(Described { spec, architecture, checkpoint, tensors, copies, notices, generation, known, rotates, constants })
}

/// More tensors than any model has, of those whose number a single field of a configuration decides.
const MOST_TENSORS: u64 = 1 << 21;

/// Tensors of experts, and of heads that have some of their own.
fn repeated_tensors(spec: &ModelSpec) -> u64 {
    let of_layer = |layer: &Layer| {
        let experts = match &layer.ffn {
            Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => 0,
            Ffn::Moe(moe) => 3 * moe.experts as u64,
        };
        experts + if layer.attention.latent.is_some() { 2 * layer.attention.heads as u64 } else { 0 }
    };
    spec.stacks().iter().flat_map(|(_, _, stack)| &stack.layers).map(of_layer).fold(0, u64::saturating_add)
}

/// The tensors that a model without weights would have, in the type that its configuration names.
fn weightless(spec: &ModelSpec, table: &Table, checkpoint: &Checkpoint) -> Result<Mapping, Error> {
    let dtype = match checkpoint.config().dtype()? {
        Some("float32") => DType::F32,
        Some("float16") => DType::F16,
        Some(_) | None => DType::BF16,
    };
    let mut tensors = mapping::plan(spec, table)?;
    tensors.iter_mut().for_each(|tensor| tensor.dtype = dtype);
    Ok(Mapping { tensors, ..Mapping::default() })
}

/// The text model's part of a multimodal configuration.
fn text_part(checkpoint: &Checkpoint) -> Result<Option<Config>, Error> {
    if checkpoint.has_config_json() { Ok(checkpoint.config().object("text_config")?) } else { Ok(None) }
}

fn refuse_quantization(checkpoint: &Checkpoint) -> Result<(), Error> {
    let config = checkpoint.config();
    let wrong = |problem: String| Error::Config {
        file: config.file().to_path_buf(),
        field: "quantization_config".into(),
        problem,
    };
    if let Some(scheme) = unsupported_quantization(config) {
        return Err(wrong(format!(
            "weights quantised by {scheme} cannot be read here; use the original or a GGUF file"
        )));
    }
    let Some(settings) = config.object("quantization_config")? else { return Ok(()) };
    let block = settings.value("weight_block_size").filter(|size| !size.is_null());
    if block.is_some_and(|size| *size != serde_json::json!([128, 128])) {
        return Err(wrong("only scales of 128 x 128 blocks can be read".into()));
    }
    Ok(())
}

/// The refusal of more layers than there are tensors; `spec` was made with one layer in each such stack. Where there is
/// none, a layer counts as one tensor of the files' average.
fn too_many_layers(checkpoint: &Checkpoint, spec: Option<&ModelSpec>, layers: usize, available: u64) -> Error {
    let count = checkpoint.tensors().len();
    let average = || u128::from(checkpoint.total_bytes()).checked_div(count as u128).unwrap_or(1);
    let needed = spec.map_or_else(average, needed).saturating_mul(layers as u128);
    let hint = format!("{layers} layers are claimed and the files hold {count} tensors");
    too_large(checkpoint, needed, available, hint)
}

/// A better reason than a list of tensors, where the configuration asks for far more than the files hold.
fn impossible(checkpoint: &Checkpoint, spec: &ModelSpec, available: u64) -> Option<Error> {
    let needed = needed(spec);
    let held = u128::from(checkpoint.total_bytes());
    let absurd = needed > held.saturating_mul(16).saturating_add(1 << 30) || needed > u128::from(available);
    absurd.then(|| too_large(checkpoint, needed, available, "the configuration does not belong to these files".into()))
}

/// Bytes of a description's weights in 16 bits.
fn needed(spec: &ModelSpec) -> u128 {
    cost::parameters(spec).saturating_mul(2)
}

pub(crate) fn too_large(checkpoint: &Checkpoint, needed: u128, available: u64, hint: String) -> Error {
    let (path, held) = (checkpoint.path().to_path_buf(), checkpoint.total_bytes());
    Error::TooLarge { path, needed, held, available, hint }
}
