//! A GGUF file as a Hugging Face folder.

use super::gguf::{advance, stopped};
use super::target::Scratch;
use super::{Error, Plan, Target, Written, sentence};
use attend_format::AtomicFile;
use attend_format::gguf::Metadata;
use attend_kernels::DType;
use attend_model::{Described, to_hugging_face};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Writes `source`, a GGUF file, as a folder: `config.json`, `model.safetensors`, the tokenizer and the defaults of
/// generation. The folder gets its name when everything is in it.
pub fn write_folder(source: &Described, target: &Target, plan: &mut Plan) -> Result<Written, Error> {
    let scratch = Scratch::folder(target.beside("partial"))?;
    let folder = scratch.0.as_path();
    let shown = format!("{}/", folder.display());
    let converted = to_hugging_face(source, folder)?;
    let mut notices: Vec<String> = converted.notices.iter().map(|notice| notice.replace(&shown, "")).collect();
    let exporter = &converted.exporter;
    let types: Vec<DType> = exporter.tensors.iter().map(plan.types).collect();
    let specs = exporter.specs(plan.types);
    let mut files = Vec::new();
    if let Some(tokenizer) = tokenizer(source.checkpoint.gguf(), source.spec.context)? {
        notices.extend(tokenizer.notices);
        files.extend(tokenizer.files);
    }
    let written = Written::of(&specs, notices);
    let mut config = converted.config;
    if let Some((dtype, ..)) = written.types.first() {
        config.insert("torch_dtype".into(), torch_name(*dtype).into());
    }
    files.push(("config.json", pretty(&config)));
    if !converted.generation.is_empty() {
        files.push(("generation_config.json", pretty(&converted.generation)));
    }
    for (name, value) in sentence::for_folder(source)? {
        files.push((name, format!("{value:#}\n")));
    }
    for (name, text) in files {
        if let Some(inside) = folder.join(name).parent() {
            std::fs::create_dir_all(inside).map_err(|source| Error::Io {
                path: inside.to_path_buf(),
                action: "create",
                source,
            })?;
        }
        let mut file = AtomicFile::create(&folder.join(name))?;
        file.write(text.as_bytes())?;
        file.commit()?;
    }
    let mut done = 0;
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    attend_format::safetensors::write(&folder.join("model.safetensors"), &specs, &metadata, &mut |index, out| {
        let (Some(tensor), Some(&dtype)) = (exporter.tensors.get(index), types.get(index)) else { return Ok(()) };
        exporter.write(tensor, dtype, out, &mut |elements| advance(tensor, dtype, elements, &mut done, &written, plan))
    })
    .map_err(stopped)?;
    place(folder, target)?;
    Ok(written)
}

fn tokenizer(
    metadata: Option<&Metadata>,
    context: Option<usize>,
) -> Result<Option<attend_text::Exported>, attend_text::Error> {
    metadata.map_or(Ok(None), |metadata| attend_text::to_folder(metadata, context))
}

fn pretty(object: &Map<String, Value>) -> String {
    format!("{:#}\n", json!(object))
}

/// Gives the finished folder its name; files of a folder that is written over are replaced one by one, the weights
/// last.
fn place(folder: &Path, target: &Target) -> Result<(), Error> {
    let io = |source| Error::Io { path: target.path().to_path_buf(), action: "rename", source };
    if !(target.force() && target.path().is_dir()) {
        if target.path().is_dir() {
            std::fs::remove_dir(target.path()).map_err(io)?;
        }
        return std::fs::rename(folder, target.path()).map_err(io);
    }
    replace(folder, target.path()).map_err(io)
}

/// Moves every file of a folder into another, and those of folders inside into its folders.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    let mut entries = std::fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.file_name().to_string_lossy().ends_with(".safetensors"));
    for entry in entries {
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&place)?;
            replace(&entry.path(), &place)?;
        } else {
            std::fs::rename(entry.path(), place)?;
        }
    }
    Ok(())
}

fn torch_name(dtype: DType) -> &'static str {
    if dtype == DType::F16 {
        "float16"
    } else if dtype == DType::BF16 {
        "bfloat16"
    } else {
        "float32"
    }
}
