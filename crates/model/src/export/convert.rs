//! A checkpoint of one kind as the other kind, checked before it is written: what the new file would say of itself is
//! read back and compared with the description of the old one.

use super::compare::difference;
use super::gguf::{self, Extras, Metadata};
use super::hugging_face;
use super::rows::{Content, ExportTensor, Part};
use crate::architectures::{Architecture, architectures};
use crate::describe::{Described, describe_within};
use crate::error::Error;
use crate::generation::GenerationDefaults;
use crate::mapping;
use crate::names::Table;
use attend_format::gguf::{CONFIG, GENERATION_CONFIG, Value};
use attend_format::{Kind, TensorSpec};
use attend_kernels::DType;
use attend_nn::spec::{Body, Ffn, Head, ModelSpec};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::path::Path;

/// The tensors of a new file and where their values come from. See [`Exporter::write`].
#[derive(Debug)]
pub struct Exporter<'a> {
    pub(super) source: &'a Described,
    /// In the order of the new file.
    pub tensors: Vec<ExportTensor>,
}

/// A checkpoint as the other kind would hold it.
#[derive(Debug)]
pub struct Converted<'a> {
    pub exporter: Exporter<'a>,
    /// For GGUF: the keys of the model, without those of the tokenizer.
    pub metadata: Metadata,
    /// For a folder: `config.json`.
    pub config: Map<String, Json>,
    /// For a folder: `generation_config.json`.
    pub generation: Map<String, Json>,
    /// What is lost or said in an unusual way.
    pub notices: Vec<String>,
}

impl<'a> Exporter<'a> {
    fn new(source: &'a Described, spec: &ModelSpec, table: &Table) -> Result<Exporter<'a>, Error> {
        let ours: HashMap<&str, usize> =
            source.tensors.iter().enumerate().map(|(index, mapped)| (mapped.ours.as_str(), index)).collect();
        let mut tensors: Vec<ExportTensor> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for planned in mapping::plan(spec, table)? {
            let Some(&index) = ours.get(planned.ours.as_str()) else {
                return Err(Error::Table(format!("`{}` is planned and not described", planned.ours)));
            };
            let dtype = source.tensors.get(index).map_or(DType::F32, |mapped| kept(mapped.dtype));
            let part = Part { source: index, layout: planned.layout };
            let place = *places.entry(planned.theirs.clone()).or_insert_with(|| {
                let (shape, content) = (part.layout.their_shape.clone(), Content::Parts(Vec::new()));
                tensors.push(ExportTensor { name: planned.theirs, shape, dtype, content });
                tensors.len() - 1
            });
            let Some(tensor) = tensors.get_mut(place) else { continue };
            if tensor.dtype != dtype {
                tensor.dtype = DType::F32;
            }
            if let Content::Parts(parts) = &mut tensor.content {
                parts.push(part);
            }
        }
        Ok(Exporter { source, tensors })
    }

    /// The tensors of the same files, as they are.
    pub fn same(source: &'a Described) -> Exporter<'a> {
        let infos = source.checkpoint.tensors().values();
        let tensors = infos.map(|info| ExportTensor {
            name: info.name.clone(),
            shape: info.shape.clone(),
            dtype: info.dtype,
            content: Content::Copy,
        });
        Exporter { source, tensors: tensors.collect() }
    }

    /// The list that the writers of `format` take, each tensor in the type that `dtype` gives it.
    pub fn specs(&self, dtype: impl Fn(&ExportTensor) -> DType) -> Vec<TensorSpec> {
        let spec = |tensor: &ExportTensor| {
            let (name, shape) = (tensor.name.clone(), tensor.shape.clone());
            TensorSpec { name, dtype: dtype(tensor), shape }
        };
        self.tensors.iter().map(spec).collect()
    }
}

/// The type in which values are kept that no other kind of file has.
fn kept(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F32,
        DType::F8E4M3 | DType::F8E5M2 => DType::BF16,
        other => other,
    }
}

/// `source` as a GGUF file. `draft` is a path at which a small file may be written and read again.
pub fn to_gguf<'a>(source: &'a Described, draft: &Path) -> Result<Converted<'a>, Error> {
    let no_form = |problem: String| {
        let path = source.checkpoint.path().to_path_buf();
        Error::NoForm { path, kind: "GGUF", problem }
    };
    let mut notices = Vec::new();
    let (spec, table) = trimmed(source, Kind::Gguf, &mut notices).map_err(&no_form)?;
    let names = gguf_names(source.known, &spec);
    let usual = *names
        .first()
        .ok_or_else(|| no_form(format!("the format does not have the architecture {}", source.architecture)))?;
    let mut exporter = Exporter::new(source, &spec, &table)?;
    let computed = gguf::computed(&spec);
    let filled = computed.len();
    exporter.tensors.splice(0..0, computed);
    let ladder = [
        Extras::default(),
        Extras { pattern: true, scales: None },
        Extras { pattern: false, scales: Some(false) },
        Extras { pattern: false, scales: Some(true) },
        Extras { pattern: true, scales: Some(false) },
        Extras { pattern: true, scales: Some(true) },
    ];
    let read_back =
        |metadata: &Metadata| -> Result<Described, Error> {
            let specs = exporter.specs(|tensor| tensor.dtype);
            attend_format::gguf::draft(draft, metadata, &specs, filled, &mut |index, out| match exporter
                .tensors
                .get(index)
            {
                Some(tensor) => exporter.write(tensor, tensor.dtype, out, &mut |_| Ok(())),
                None => Ok(()),
            })?;
            describe_within(draft, None)
        };
    let mut first_problem = None;
    let mut found = None;
    for (name, extras) in names.iter().flat_map(|name| ladder.map(|extras| (*name, extras))) {
        let metadata = gguf::metadata(&spec, name, extras);
        let problem = match read_back(&metadata) {
            Ok(described) => difference(&spec, &described.spec),
            Err(error) => Some(error.to_string()),
        };
        match problem {
            None => {
                found = Some((name, metadata));
                break;
            }
            Some(problem) => drop(first_problem.get_or_insert(problem)),
        }
    }
    let (name, mut metadata) = match found {
        Some(found) => found,
        None => {
            let problem = first_problem.unwrap_or_default();
            let mut metadata = gguf::metadata(&spec, usual, Extras { pattern: false, scales: None });
            metadata.push((CONFIG.into(), Value::String(whole_config(source, &spec)?)));
            let described = read_back(&metadata).map_err(|error| no_form(format!("{problem}; {error}")))?;
            if let Some(problem) = difference(&spec, &described.spec) {
                return Err(no_form(problem));
            }
            notices.push(format!(
                "GGUF has no key for all that this model is ({problem}): the configuration is kept whole under \
                 `{CONFIG}`, which other programs do not read"
            ));
            (usual, metadata)
        }
    };
    metadata.extend(generation_keys(&source.generation, name));
    let again = read_back(&metadata)?.generation;
    let unsourced =
        |defaults: &GenerationDefaults| GenerationDefaults { sources: Default::default(), ..defaults.clone() };
    if unsourced(&again) != unsourced(&source.generation) {
        let whole = Json::Object(source.generation.to_json());
        metadata.push((GENERATION_CONFIG.into(), Value::String(whole.to_string())));
    }
    // The draft is of no use any more, and the next one may be.
    let _ = std::fs::remove_file(draft);
    Ok(Converted { exporter, metadata, config: Map::new(), generation: Map::new(), notices })
}

/// The configuration as `config.json` would hold it, for the description that is written.
fn whole_config(source: &Described, spec: &ModelSpec) -> Result<String, Error> {
    let mut map = match source.checkpoint.has_config_json() {
        true => source.checkpoint.config().map().clone(),
        false => hugging_face::config(source, spec, source.known),
    };
    if let Head::Lm(lm) = &spec.head {
        // Some configurations leave it to the names of the tensors, which are others here.
        map.insert("tie_word_embeddings".into(), lm.tied.into());
    }
    if spec.head == Head::None && source.spec.head != Head::None {
        map.insert("architectures".into(), serde_json::json!([format!("{}Model", source.known.class)]));
    }
    Ok(Json::Object(map).to_string())
}

/// What the keys of GGUF say about generation.
fn generation_keys(defaults: &GenerationDefaults, architecture: &str) -> Metadata {
    let mut keys = Metadata::new();
    let mut float = |key: &str, value: Option<f32>| keys.extend(value.map(|value| (key.into(), Value::F32(value))));
    float("general.sampling.temp", defaults.temperature);
    float("general.sampling.top_p", defaults.top_p);
    float("general.sampling.min_p", defaults.min_p);
    float("general.sampling.penalty_repeat", defaults.repetition_penalty);
    if let Some(top_k) = defaults.top_k.and_then(|top_k| i32::try_from(top_k).ok()) {
        keys.push(("general.sampling.top_k".into(), Value::I32(top_k)));
    }
    if let Some(start) = defaults.decoder_start {
        keys.push((format!("{architecture}.decoder_start_token_id"), Value::U32(start)));
    }
    let ends = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
    keys.extend(ends.iter().zip(&defaults.eos).map(|(key, id)| ((*key).into(), Value::U32(*id))));
    let ids = [("bos", defaults.bos), ("padding", defaults.pad)];
    let key = |name: &str| format!("tokenizer.ggml.{name}_token_id");
    keys.extend(ids.iter().filter_map(|(name, id)| Some((key(name), Value::U32((*id)?)))));
    keys
}

/// The description without the parts that the other kind of file does not have, and its name table.
fn trimmed(source: &Described, kind: Kind, notices: &mut Vec<String>) -> Result<(ModelSpec, Table), String> {
    let mut spec = source.spec.clone();
    let table_of = |spec: &ModelSpec| source.known.table(spec, kind, source.checkpoint.config());
    let table = table_of(&spec).map_err(|error| error.to_string())?;
    if table.is_empty() {
        return Err(format!("the format does not have the architecture {}", source.architecture));
    }
    let of_head = |name: &str| name.starts_with("head.");
    let lost = spec.tensors().into_iter().find(|tensor| of_head(&tensor.name) && table.origin(&tensor.name).is_none());
    if let Some(lost) = lost {
        if !matches!(spec.body, Body::Encoder(_)) {
            return Err(format!("the format has no place for this head (`{}`)", lost.name));
        }
        spec.head = Head::None;
        notices.push("the head is left out: the format keeps only the encoder of this architecture".into());
    }
    if kind == Kind::Gguf && unbalanced(&mut spec) {
        notices.push(
            "the load-balancing loss is left out: the format has no key for it, and only training reads it".into(),
        );
    }
    // Without a classifier behind it, a pooler is of no use to those who read the other kind of file.
    if spec.pooler.is_some() && (spec.head == Head::None && kind == Kind::Gguf) {
        spec.pooler = None;
        notices.push("the pooler is left out: the format keeps only the encoder of this architecture".into());
    }
    let table = table_of(&spec).map_err(|error| error.to_string())?;
    Ok((spec, table))
}

/// Takes the load-balancing loss out of a description; whether there was one.
fn unbalanced(spec: &mut ModelSpec) -> bool {
    let (Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. }) = &mut spec.body;
    let mut found = false;
    for layer in &mut stack.layers {
        if let Ffn::Moe(moe) = &mut layer.ffn {
            found |= moe.router.balance.take().is_some();
        }
    }
    found
}

/// The names by which GGUF may know the architecture: its own, or those of others with the same tensors, of which the
/// one that most go by comes first.
fn gguf_names(known: &'static Architecture, spec: &ModelSpec) -> Vec<&'static str> {
    let encoder = matches!(spec.body, Body::Encoder(_));
    // Where the encoder alone has a name of its own, it says so.
    let alone = known.gguf.iter().find(|name| name.ends_with("encoder")).filter(|_| encoder);
    if let Some(own) = alone.or_else(|| known.gguf.first()) {
        return vec![own];
    }
    let table = |known: &Architecture| (known.names)(spec).gguf.concat();
    let alike = architectures().iter().filter(|other| table(other) == table(known));
    let mut names: Vec<&str> = alike.filter_map(|other| other.gguf.first().copied()).collect();
    let bearers = |name: &str| architectures().iter().filter(|other| other.gguf.contains(&name)).count();
    names.sort_by_key(|name| std::cmp::Reverse(bearers(name)));
    names.dedup();
    names
}

/// `source` as a Hugging Face folder. `draft` is a folder in which small files may be written and read again.
pub fn to_hugging_face<'a>(source: &'a Described, draft: &Path) -> Result<Converted<'a>, Error> {
    let no_form = |problem: String| {
        let path = source.checkpoint.path().to_path_buf();
        Error::NoForm { path, kind: "a Hugging Face folder", problem }
    };
    let mut notices = Vec::new();
    let (spec, table) = trimmed(source, Kind::HuggingFace, &mut notices).map_err(&no_form)?;
    let exporter = Exporter::new(source, &spec, &table)?;
    // Types that only GGUF has are widened here, because the draft is of the other kind.
    let plain = |tensor: &ExportTensor| if tensor.dtype.is_quantized() { DType::F32 } else { tensor.dtype };
    let io = |action: &'static str| {
        move |source| Error::from(attend_format::Error::Io { file: draft.to_path_buf(), action, source })
    };
    let mut problems = Vec::new();
    for known in candidates(source.known, &spec) {
        let config = hugging_face::config(source, &spec, known);
        let text = serde_json::to_string_pretty(&config).unwrap_or_default();
        std::fs::write(draft.join("config.json"), text).map_err(io("write"))?;
        let weights = draft.join("model.safetensors");
        attend_format::safetensors::draft(&weights, &exporter.specs(plain), &Default::default())?;
        let problem = match describe_within(draft, None) {
            Ok(described) => difference(&spec, &described.spec),
            Err(error) => Some(error.to_string()),
        };
        for name in ["config.json", "model.safetensors"] {
            std::fs::remove_file(draft.join(name)).map_err(io("remove"))?;
        }
        match problem {
            None => {
                let generation = source.generation.to_json();
                return Ok(Converted { exporter, metadata: Vec::new(), config, generation, notices });
            }
            Some(problem) => problems.push(problem),
        }
    }
    Err(no_form(problems.into_iter().next().unwrap_or_default()))
}

/// The architecture itself, and those that go by its name in GGUF.
fn candidates(known: &'static Architecture, spec: &ModelSpec) -> Vec<&'static Architecture> {
    let table = |known: &Architecture| (known.names)(spec).gguf.concat();
    let same = |other: &&&Architecture| other.name != known.name && other.gguf == known.gguf && !known.gguf.is_empty();
    let named = architectures().iter().filter(same);
    let nameless = architectures().iter().filter(|other| other.gguf.is_empty() && table(other) == table(known));
    std::iter::once(known).chain(named.copied()).chain(nameless.copied()).collect()
}
