//! Any checkpoint as a GGUF file.

use super::target::Scratch;
use super::{Error, Plan, Target, Written, sentence};
use attend_format::Kind;
use attend_format::gguf::{Metadata, Value};
use attend_model::{Described, ExportTensor, Exporter, to_gguf};

type Keys = Vec<(String, Value)>;

/// The version of the block types' layouts.
const QUANTIZATION_VERSION: u32 = 2;

/// Writes `source` as a GGUF file. What is one already keeps its metadata and every tensor.
pub fn write_gguf(source: &Described, target: &Target, plan: &mut Plan) -> Result<Written, Error> {
    let (exporter, mut keys, notices) = match (source.checkpoint.kind(), source.checkpoint.gguf()) {
        (Kind::Gguf, Some(metadata)) => same(source, metadata)?,
        (Kind::Gguf | Kind::HuggingFace, _) => other(source, target)?,
        (Kind::Described, _) => {
            return Err(Error::OwnDescription { path: source.checkpoint.path().to_path_buf() });
        }
    };
    keys.retain(|(key, _)| key != "general.file_type" && key != "general.quantization_version");
    let types: Vec<_> = exporter.tensors.iter().map(plan.types).collect();
    if let Some(id) = plan.file_type {
        keys.insert(1, ("general.file_type".into(), Value::U32(id)));
    }
    if types.iter().any(|dtype| dtype.is_quantized()) {
        keys.insert(1, ("general.quantization_version".into(), Value::U32(QUANTIZATION_VERSION)));
    }
    let specs = exporter.specs(plan.types);
    let written = Written::of(&specs, notices);
    let mut done = 0;
    attend_format::gguf::write(target.path(), &keys, &specs, &mut |index, out| {
        let (Some(tensor), Some(&dtype)) = (exporter.tensors.get(index), types.get(index)) else { return Ok(()) };
        exporter.write(tensor, dtype, out, &mut |elements| advance(tensor, dtype, elements, &mut done, &written, plan))
    })
    .map_err(stopped)?;
    Ok(written)
}

/// The tensors that a GGUF file of `source` has, with the types that they have now.
pub fn tensors(source: &Described, target: &Target) -> Result<Vec<ExportTensor>, Error> {
    let (exporter, ..) = match (source.checkpoint.kind(), source.checkpoint.gguf()) {
        (Kind::Gguf, Some(metadata)) => same(source, metadata)?,
        (Kind::Described, _) => return Err(Error::OwnDescription { path: source.checkpoint.path().to_path_buf() }),
        (Kind::Gguf | Kind::HuggingFace, _) => {
            let draft = Scratch(target.beside("draft"));
            return Ok(to_gguf(source, &draft.0)?.exporter.tensors);
        }
    };
    Ok(exporter.tensors)
}

/// Counts bytes, and stops the work when that is wanted.
pub(super) fn advance(
    tensor: &ExportTensor,
    dtype: attend_kernels::DType,
    elements: usize,
    done: &mut u64,
    written: &Written,
    plan: &mut Plan,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    *done += dtype.bytes(elements).unwrap_or(elements.min(tensor.elements())) as u64;
    if (plan.progress)((*done).min(written.bytes), written.bytes) { Ok(()) } else { Err(Error::Interrupted.into()) }
}

/// The writer's error, or the interruption that travels inside it.
pub(super) fn stopped(error: attend_format::Error) -> Error {
    match error {
        attend_format::Error::Fill { source, .. } if matches!(source.downcast_ref(), Some(Error::Interrupted)) => {
            Error::Interrupted
        }
        error => error.into(),
    }
}

fn same<'a>(source: &'a Described, metadata: &Metadata) -> Result<(Exporter<'a>, Keys, Vec<String>), Error> {
    if let Some((tensor, found)) = source.checkpoint.unreadable().iter().next() {
        let (path, tensor, dtype) = (source.checkpoint.path().to_path_buf(), tensor.clone(), found.dtype.clone());
        return Err(Error::Unreadable { path, tensor, dtype });
    }
    let first = |key: &str| key != "general.architecture";
    let mut keys: Keys = metadata.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
    // The parts of a split file become one.
    keys.retain(|(key, _)| !key.starts_with("split."));
    keys.sort_by_key(|(key, _)| first(key));
    Ok((Exporter::same(source), keys, Vec::new()))
}

fn other<'a>(source: &'a Described, target: &Target) -> Result<(Exporter<'a>, Keys, Vec<String>), Error> {
    let draft = Scratch(target.beside("draft"));
    let converted = to_gguf(source, &draft.0)?;
    let place = draft.0.display();
    let places = [format!("{place}: "), format!(" in {place}")];
    let clean = |notice: &String| places.iter().fold(notice.clone(), |text, place| text.replace(place, ""));
    let mut notices: Vec<String> = converted.notices.iter().map(clean).collect();
    let mut keys = converted.metadata;
    let home = attend_format::home(source.checkpoint.path())?;
    let named = if source.checkpoint.path().is_dir() { source.checkpoint.path() } else { &home };
    let name = named.canonicalize().unwrap_or_else(|_| named.to_path_buf());
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    keys.insert(1, ("general.name".into(), Value::String(name)));
    keys.insert(1, ("general.type".into(), Value::String("model".into())));
    let pooling = sentence::for_gguf(source)?;
    if let Some(number) = pooling.number {
        let architecture = source_name(&keys);
        keys.push((format!("{architecture}.pooling_type"), Value::U32(number)));
    }
    notices.extend(pooling.notices);
    let rows = source.spec.stacks().first().map_or(0, |(_, _, stack)| stack.embed.vocab);
    match attend_text::to_gguf(&home, rows)? {
        Some(tokenizer) => {
            notices.extend(tokenizer.notices);
            ends(&mut keys, &tokenizer.metadata);
            let known: Vec<String> = keys.iter().map(|(key, _)| key.clone()).collect();
            keys.extend(tokenizer.metadata.into_iter().filter(|(key, _)| !known.contains(key)));
        }
        None => {
            notices.push("the folder has no tokenizer; the file can compute with token ids only".into());
            keys.push(("tokenizer.ggml.model".into(), Value::String("no_vocab".into())));
        }
    }
    Ok((converted.exporter, keys, notices))
}

fn source_name(keys: &Keys) -> String {
    match keys.first() {
        Some((_, Value::String(name))) => name.clone(),
        Some(_) | None => String::new(),
    }
}

/// Of several ids that end a text, the tokenizer's own comes first.
fn ends(keys: &mut Keys, tokenizer: &Keys) {
    const KEY: &str = "tokenizer.ggml.eos_token_id";
    let Some(own) = tokenizer.iter().find(|(key, _)| key == KEY).map(|(_, id)| id.clone()) else { return };
    let is_end = |key: &str| [KEY, "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"].contains(&key);
    let places: Vec<usize> = keys.iter().enumerate().filter(|(_, (key, _))| is_end(key)).map(|(at, _)| at).collect();
    let first = places.iter().copied().find(|&at| keys[at].0 == KEY);
    if let (Some(first), Some(&other)) = (first, places.iter().find(|&&at| keys[at].1 == own)) {
        let before = std::mem::replace(&mut keys[first].1, own);
        if other != first {
            keys[other].1 = before;
        }
    }
}
