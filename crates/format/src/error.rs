//! The ways in which a file can be wrong. Every message carries the file, and the tensor, field or shape concerned.

use std::io;
use std::path::PathBuf;

/// An error of reading or writing a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    // The file as a whole.
    #[error("{}: cannot {action}: {source}", file.display())]
    Io { file: PathBuf, action: &'static str, source: io::Error },
    #[error("{}: no such file or folder", path.display())]
    NotFound { path: PathBuf },
    #[error("{}: not a regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: no weights found ({hint})", folder.display())]
    NoWeights { folder: PathBuf, hint: String },
    #[error("{}: {name} is missing; {hint}", folder.display())]
    MissingFile { folder: PathBuf, name: String, hint: &'static str },
    #[error("{}: cut short: it ends at byte {actual} but must have {expected} bytes; fetch it again", file.display())]
    Truncated { file: PathBuf, expected: u64, actual: u64 },
    #[error("{}: a Git LFS pointer, not the file itself{}; fetch it with `git lfs pull`", file.display(), size_note(*.size))]
    GitLfsPointer { file: PathBuf, size: Option<u64> },
    #[error("{}: a web page, not a model file; it was probably saved from a browser or a failed download", file.display())]
    HtmlPage { file: PathBuf },
    #[error("{}: {what} of {size} is beyond the limit of {limit}", file.display())]
    TooLarge { file: PathBuf, what: &'static str, size: u64, limit: u64 },
    #[error("{}: not a checkpoint that can be read; {hint}", file.display())]
    UnknownFormat { file: PathBuf, hint: &'static str },

    // Text and fields.
    #[error("{}: {field} is not valid UTF-8", file.display())]
    NotUtf8 { file: PathBuf, field: String },
    #[error("{}: not valid JSON: {problem}", file.display())]
    Json { file: PathBuf, problem: String },
    #[error("{}: not valid TOML: {problem}", file.display())]
    Toml { file: PathBuf, problem: String },
    #[error("{}: {field} is nested deeper than {limit} levels", file.display())]
    TooDeep { file: PathBuf, field: String, limit: usize },
    #[error("{}: field `{field}` is missing", file.display())]
    MissingField { file: PathBuf, field: String },
    #[error("{}: field `{field}` {problem}", file.display())]
    BadField { file: PathBuf, field: String, problem: String },
    #[error("{}: field `{field}` appears twice", file.display())]
    DuplicateField { file: PathBuf, field: String },

    // Tensors.
    #[error("{}: no tensor `{tensor}`", file.display())]
    NoTensor { file: PathBuf, tensor: String },
    #[error("{}: tensor `{tensor}` has type {dtype}, which cannot be read here", file.display())]
    UnsupportedType { file: PathBuf, tensor: String, dtype: String },
    #[error("{}: tensor `{tensor}` has the unknown type {dtype}", file.display())]
    UnknownType { file: PathBuf, tensor: String, dtype: String },
    #[error("{}: tensor `{tensor}` appears twice", file.display())]
    DuplicateTensor { file: PathBuf, tensor: String },
    #[error("{}: tensor name `{tensor}` {problem}", file.display())]
    BadName { file: PathBuf, tensor: String, problem: &'static str },
    #[error("{}: tensor `{tensor}` has the shape {shape}: {problem}", file.display())]
    BadShape { file: PathBuf, tensor: String, shape: String, problem: &'static str },
    #[error("{}: tensor `{tensor}` needs {expected} bytes but the file gives it {actual}", file.display())]
    SizeMismatch { file: PathBuf, tensor: String, expected: u64, actual: u64 },
    #[error("{}: tensor `{tensor}` has a bad position: {problem}", file.display())]
    BadOffset { file: PathBuf, tensor: String, problem: String },
    #[error("{}: tensors `{tensor}` and `{other}` overlap", file.display())]
    Overlap { file: PathBuf, tensor: String, other: String },
    #[error("{}: {length} bytes before tensor `{tensor}` belong to no tensor", file.display())]
    Hole { file: PathBuf, tensor: String, length: u64 },
    #[error("{}: {actual} bytes long, but its contents end at byte {expected}", file.display())]
    TrailingBytes { file: PathBuf, expected: u64, actual: u64 },
    #[error("{}: a read of {length} bytes at {offset} leaves tensor `{tensor}` of {size} bytes", file.display())]
    OutOfRange { file: PathBuf, tensor: String, offset: u64, length: u64, size: u64 },

    // Folders and indexes.
    #[error("{}: `{name}` is not a plain file name inside the model's folder", file.display())]
    UnsafePath { file: PathBuf, name: String },
    #[error("{}: a link that leads out of the model's folder, or nowhere", file.display())]
    LinkLeaves { file: PathBuf },
    #[error("{}: the shard `{shard}` it names is missing", file.display())]
    MissingShard { file: PathBuf, shard: String },
    #[error("{}: tensor `{tensor}` is not in `{shard}`, where the index puts it", file.display())]
    NotInShard { file: PathBuf, tensor: String, shard: String },

    // Headers of binary files.
    #[error("{}: the header claims {size} bytes; the limit is {limit}", file.display())]
    HeaderTooLarge { file: PathBuf, size: u64, limit: u64 },
    #[error("{}: the header claims {size} bytes but only {available} follow", file.display())]
    HeaderBeyondFile { file: PathBuf, size: u64, available: u64 },
    #[error("{}: not a {expected} file (it starts with {found})", file.display())]
    BadMagic { file: PathBuf, expected: &'static str, found: String },
    #[error("{}: {format} version {version} cannot be read; {hint}", file.display())]
    UnsupportedVersion { file: PathBuf, format: &'static str, version: u64, hint: &'static str },
    #[error("{}: a big-endian GGUF file; only little-endian ones can be read", file.display())]
    BigEndian { file: PathBuf },
    #[error("{}: {what} claims {count} entries; at most {limit} are possible", file.display())]
    BadCount { file: PathBuf, what: String, count: u64, limit: u64 },
    #[error("{}: {what} claims {length} bytes; at most {limit} are possible", file.display())]
    BadLength { file: PathBuf, what: String, length: u64, limit: u64 },
    #[error("{}: field `{field}` has the unknown type {value_type}", file.display())]
    BadValueType { file: PathBuf, field: String, value_type: u32 },
    #[error("{}: general.alignment {problem}", file.display())]
    BadAlignment { file: PathBuf, problem: String },
    #[error("{}: part of a split model, and {problem}", file.display())]
    BadSplit { file: PathBuf, problem: String },

    // PyTorch files.
    #[error("{}: {found} is refused, because it could run code or is no tensor; convert the file to safetensors", file.display())]
    UnsafePickle { file: PathBuf, found: String },
    #[error("{}: damaged pickle at byte {position}: {problem}", file.display())]
    BadPickle { file: PathBuf, position: u64, problem: String },
    #[error("{}: damaged or unusual zip archive: {problem}", file.display())]
    BadArchive { file: PathBuf, problem: String },

    // Writing.
    #[error("{}: tensor `{tensor}` needs {expected} bytes but {actual} were given", file.display())]
    WrongLength { file: PathBuf, tensor: String, expected: u64, actual: u64 },
    #[error("{}: tensor `{tensor}` cannot be written: {source}", file.display())]
    Fill { file: PathBuf, tensor: String, source: Box<dyn std::error::Error + Send + Sync> },
}

fn size_note(size: Option<u64>) -> String {
    size.map(|size| format!(" of {size} bytes")).unwrap_or_default()
}

impl Error {
    /// The variant's name, for tests, logs and scripts that tell errors apart.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Io { .. } => "Io",
            Error::NotFound { .. } => "NotFound",
            Error::NotAFile { .. } => "NotAFile",
            Error::NoWeights { .. } => "NoWeights",
            Error::MissingFile { .. } => "MissingFile",
            Error::Truncated { .. } => "Truncated",
            Error::GitLfsPointer { .. } => "GitLfsPointer",
            Error::HtmlPage { .. } => "HtmlPage",
            Error::TooLarge { .. } => "TooLarge",
            Error::UnknownFormat { .. } => "UnknownFormat",
            Error::NotUtf8 { .. } => "NotUtf8",
            Error::Json { .. } => "Json",
            Error::Toml { .. } => "Toml",
            Error::TooDeep { .. } => "TooDeep",
            Error::MissingField { .. } => "MissingField",
            Error::BadField { .. } => "BadField",
            Error::DuplicateField { .. } => "DuplicateField",
            Error::NoTensor { .. } => "NoTensor",
            Error::UnsupportedType { .. } => "UnsupportedType",
            Error::UnknownType { .. } => "UnknownType",
            Error::DuplicateTensor { .. } => "DuplicateTensor",
            Error::BadName { .. } => "BadName",
            Error::BadShape { .. } => "BadShape",
            Error::SizeMismatch { .. } => "SizeMismatch",
            Error::BadOffset { .. } => "BadOffset",
            Error::Overlap { .. } => "Overlap",
            Error::Hole { .. } => "Hole",
            Error::TrailingBytes { .. } => "TrailingBytes",
            Error::OutOfRange { .. } => "OutOfRange",
            Error::UnsafePath { .. } => "UnsafePath",
            Error::LinkLeaves { .. } => "LinkLeaves",
            Error::MissingShard { .. } => "MissingShard",
            Error::NotInShard { .. } => "NotInShard",
            Error::HeaderTooLarge { .. } => "HeaderTooLarge",
            Error::HeaderBeyondFile { .. } => "HeaderBeyondFile",
            Error::BadMagic { .. } => "BadMagic",
            Error::UnsupportedVersion { .. } => "UnsupportedVersion",
            Error::BigEndian { .. } => "BigEndian",
            Error::BadCount { .. } => "BadCount",
            Error::BadLength { .. } => "BadLength",
            Error::BadValueType { .. } => "BadValueType",
            Error::BadAlignment { .. } => "BadAlignment",
            Error::BadSplit { .. } => "BadSplit",
            Error::UnsafePickle { .. } => "UnsafePickle",
            Error::BadPickle { .. } => "BadPickle",
            Error::BadArchive { .. } => "BadArchive",
            Error::WrongLength { .. } => "WrongLength",
            Error::Fill { .. } => "Fill",
        }
    }
}

/// A name from a file, shortened and without control characters, fit for a message.
pub(crate) fn shown(name: &str) -> String {
    const LONGEST: usize = 120;
    let mut text: String = name.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if name.chars().nth(LONGEST).is_some() {
        text.push_str("...");
    }
    text
}

/// A shape from a file, shortened, fit for a message.
pub(crate) fn shown_shape(shape: &[u64]) -> String {
    const LONGEST: usize = 8;
    let dims: Vec<String> = shape.iter().take(LONGEST).map(u64::to_string).collect();
    let more = if shape.len() > LONGEST { ", ..." } else { "" };
    format!("[{}{more}]", dims.join(", "))
}
