//! Models split over several files, `name-00001-of-00003.gguf` and so on.

use std::path::{Path, PathBuf};

use super::Metadata;
use crate::error::shown;
use crate::folder::Folder;
use crate::{Error, Source, Tensors};

const MAX_PARTS: u64 = 4096;

/// Opens a file and, when it is a part of a split model, all the others. The metadata is the first part's.
pub(crate) fn open_all(source: Source) -> Result<(Metadata, Tensors), Error> {
    let path = source.path().to_path_buf();
    let mut tensors = Tensors::default();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(pattern) = Pattern::parse(name).filter(|pattern| pattern.count > 1) else {
        let metadata = super::add(&mut tensors, source)?;
        return match metadata.u64("split.count")? {
            Some(count) if count > 1 => {
                let problem = format!("its name does not say which of {count} parts it is (-00001-of-{count:05}.gguf)");
                Err(Error::BadSplit { file: path, problem })
            }
            _ => Ok((metadata, tensors)),
        };
    };
    let folder = Folder::open(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let mut first = None;
    for number in 1..=pattern.count {
        let part = if number == pattern.number { path.clone() } else { pattern.find(&folder, number, &path)? };
        let metadata = super::add(&mut tensors, Source::open(&part)?)?;
        check_part(&metadata, &pattern, number)?;
        first.get_or_insert(metadata);
    }
    let metadata = first.ok_or_else(|| Error::NotFound { path: path.clone() })?;
    let held = (tensors.infos().len() + tensors.unreadable().len()) as u64;
    match metadata.u64("split.tensors.count")? {
        Some(count) if count != held => {
            let problem = format!("its parts hold {held} tensors together where {count} are announced");
            Err(Error::BadSplit { file: path, problem })
        }
        _ => Ok((metadata, tensors)),
    }
}

fn check_part(metadata: &Metadata, pattern: &Pattern, number: u64) -> Result<(), Error> {
    let bad = |problem| Err(Error::BadSplit { file: metadata.file().to_path_buf(), problem });
    match (metadata.u64("split.no")?, metadata.u64("split.count")?) {
        (_, Some(count)) if count != pattern.count => {
            bad(format!("it says there are {count} parts, its name says {}", pattern.count))
        }
        (Some(no), _) if no.checked_add(1) != Some(number) => {
            bad(format!("its split.no is {no} (from 0), but its name says part {number} (from 1)"))
        }
        (Some(_), Some(_)) => Ok(()),
        _ => bad("it does not say which (split.no, split.count)".into()),
    }
}

/// `stem-NNNNN-of-NNNNN.gguf`
struct Pattern {
    stem: String,
    number: u64,
    count: u64,
}

impl Pattern {
    fn parse(name: &str) -> Option<Pattern> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            let plain = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse().ok()).flatten()
        };
        let (number, count): (u64, u64) = (digits(number)?, digits(count)?);
        ((1..=count).contains(&number) && count <= MAX_PARTS).then(|| Pattern { stem: stem.into(), number, count })
    }

    fn find(&self, folder: &Folder, number: u64, asked: &Path) -> Result<PathBuf, Error> {
        let shard = format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count);
        let missing = || Error::MissingShard { file: asked.to_path_buf(), shard: shown(&shard) };
        folder.find(&shard)?.ok_or_else(missing)
    }
}

/// The path of part 1 beside a later part of a split model.
pub(crate) fn first_part(path: &Path) -> Option<PathBuf> {
    let pattern = Pattern::parse(path.file_name()?.to_str()?).filter(|pattern| pattern.number > 1)?;
    Some(path.with_file_name(format!("{}-00001-of-{:05}.gguf", pattern.stem, pattern.count)))
}

/// Of the `.gguf` names of one folder, those that stand for a model each: whole files and first parts.
pub(crate) fn heads(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| Pattern::parse(name).is_none_or(|pattern| pattern.number == 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let pattern = Pattern::parse("a-b-00002-of-00003.gguf").unwrap();
        assert_eq!((pattern.stem.as_str(), pattern.number, pattern.count), ("a-b", 2, 3));
        for name in
            ["a.gguf", "a-2-of-3.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-00001-of-00003.bin"]
        {
            assert!(Pattern::parse(name).is_none(), "{name}");
        }
        let names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n.gguf"].map(String::from).to_vec();
        assert_eq!(heads(names), ["m-00001-of-00002.gguf", "n.gguf"]);
    }
}
