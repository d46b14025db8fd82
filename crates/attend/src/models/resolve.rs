//! A user's word for a model: a path, a name from the folder, or a hub id.

use super::{DEFAULT_MODEL, Error, Folder, Hub, cached_snapshot};
use std::ffi::OsStr;
use std::path::PathBuf;

/// What a word names, before anything is looked up on a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A file or folder that exists.
    Path(PathBuf),
    /// The default model.
    Default,
    /// `owner/name`, with an optional `@revision` and an optional `:file` or `:quantisation` of a GGUF repository.
    Hub { repo: String, revision: Option<String>, file: Option<String> },
    /// A plain name, which only the models folder can know.
    Name(String),
}

impl Wanted {
    /// The name under which the folder keeps it.
    pub fn name(&self) -> String {
        match self {
            Wanted::Path(path) => path.display().to_string(),
            Wanted::Default => DEFAULT_MODEL.name.into(),
            Wanted::Name(name) => name.clone(),
            Wanted::Hub { repo, revision, file } => {
                let revision = revision.as_ref().map(|r| format!("@{r}")).unwrap_or_default();
                let file = file.as_ref().map(|f| format!(":{f}")).unwrap_or_default();
                format!("{repo}{revision}{file}")
            }
        }
    }
}

/// Where a model was found, or that it has to be fetched first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    At(PathBuf),
    ToFetch(Wanted),
}

/// Reads a word. What exists as a path is a path, in whatever bytes the system spells it; what looks like one and does
/// not exist is an error.
pub fn parse(word: impl AsRef<OsStr>) -> Result<Wanted, Error> {
    let path = PathBuf::from(word.as_ref());
    if path.exists() {
        return Ok(Wanted::Path(path));
    }
    // Names of models are text.
    let Some(word) = path.to_str() else { return Err(Error::NoFile { path: path.display().to_string() }) };
    let looks_like_path = word.starts_with(['/', '.', '~', '\\']) || word.matches('/').count() > 1;
    if looks_like_path || (word.ends_with(".gguf") && !word.contains(':')) {
        return Err(Error::NoFile { path: word.into() });
    }
    if word.eq_ignore_ascii_case(DEFAULT_MODEL.name) {
        return Ok(Wanted::Default);
    }
    let (rest, file) = match word.split_once(':') {
        Some((rest, file)) => (rest, Some(file)),
        None => (word, None),
    };
    let (repo, revision) = match rest.split_once('@') {
        Some((repo, revision)) => (repo, Some(revision)),
        None => (rest, None),
    };
    let parts: Vec<&str> = repo.split('/').collect();
    let plain = parts.iter().copied().chain(revision).chain(file).all(is_plain);
    match (plain, parts.len()) {
        (true, 1) if file.is_none() && revision.is_none() => Ok(Wanted::Name(word.into())),
        (true, 2) => {
            Ok(Wanted::Hub { repo: repo.into(), revision: revision.map(Into::into), file: file.map(Into::into) })
        }
        _ => Err(Error::BadName { name: word.into() }),
    }
}

/// One part of a name: never empty, never a step upwards.
fn is_plain(part: &str) -> bool {
    !part.is_empty()
        && part.len() <= 128
        && !part.starts_with('.')
        && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// Looks a word up in the order path, models folder, Hugging Face cache.
pub fn find(word: impl AsRef<OsStr>, folder: &Folder) -> Result<Found, Error> {
    let wanted = parse(word)?;
    if let Wanted::Path(path) = wanted {
        return Ok(Found::At(path));
    }
    if let Some(entry) = folder.entry_named(&wanted.name())? {
        return Ok(Found::At(entry.path));
    }
    match &wanted {
        Wanted::Hub { repo, revision, file } => match cached_snapshot(repo, revision.as_deref(), file.as_deref())? {
            Some(path) => Ok(Found::At(path)),
            None if Hub::offline() => Err(Error::Offline { name: wanted.name() }),
            None => Ok(Found::ToFetch(wanted)),
        },
        Wanted::Default => Ok(Found::ToFetch(wanted)),
        Wanted::Name(_) | Wanted::Path(_) => Err(Error::Unknown { name: wanted.name() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        let hub = |repo: &str, revision: Option<&str>, file: Option<&str>| Wanted::Hub {
            repo: repo.into(),
            revision: revision.map(Into::into),
            file: file.map(Into::into),
        };
        assert_eq!(parse("owner/repo").expect("id"), hub("owner/repo", None, None));
        assert_eq!(parse("owner/repo@v1:Q4_K_M").expect("id"), hub("owner/repo", Some("v1"), Some("Q4_K_M")));
        assert_eq!(parse("owner/repo:a-b.gguf").expect("id"), hub("owner/repo", None, Some("a-b.gguf")));
        assert_eq!(parse("some-model").expect("name"), Wanted::Name("some-model".into()));
        assert_eq!(parse(DEFAULT_MODEL.name).expect("default"), Wanted::Default);
        assert!(matches!(parse("/").expect("exists"), Wanted::Path(_)));
    }

    #[test]
    fn names_never_lead_out_of_the_folder() {
        for word in ["../x", "a/../b", "/no/such/thing", "a/..", "a/b:../c", "a\u{0}b", "a b", "", "a/b@.."] {
            let error = parse(word).expect_err(word);
            assert!(matches!(error, Error::NoFile { .. } | Error::BadName { .. }), "{word}: {error}");
        }
    }
}
