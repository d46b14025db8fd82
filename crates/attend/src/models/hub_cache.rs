//! Models that other programs already fetched from the Hugging Face hub: `models--owner--name/snapshots/<commit>/`.

use super::Error;
use super::needed::{has_transformer_inside, pick_gguf, shards_of_index};
use std::path::{Path, PathBuf};

/// The folder of the hub's cache, by the variables that the hub's own client knows.
fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("huggingface").join("hub")))
        .or_else(|| etcetera::home_dir().ok().map(|home| home.join(".cache").join("huggingface").join("hub")))
}

/// The cached files of a repository: a folder with `config.json`, or a GGUF file. `None` when it is not there or
/// only parts of it are.
pub fn cached_snapshot(repo: &str, revision: Option<&str>, file: Option<&str>) -> Result<Option<PathBuf>, Error> {
    let Some(cache) = cache_folder() else { return Ok(None) };
    snapshot_in(&cache, repo, revision, file)
}

fn snapshot_in(cache: &Path, repo: &str, revision: Option<&str>, file: Option<&str>) -> Result<Option<PathBuf>, Error> {
    let place = cache.join(format!("models--{}", repo.replace('/', "--")));
    let revision = revision.unwrap_or("main");
    let commit = std::fs::read_to_string(place.join("refs").join(revision));
    let commit = commit.as_deref().map(str::trim).unwrap_or(revision);
    // The reference is a file's text: it may not lead elsewhere.
    if commit.is_empty() || !commit.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return Ok(None);
    }
    let folder = place.join("snapshots").join(commit);
    let Ok(read) = std::fs::read_dir(&folder) else { return Ok(None) };
    let names: Vec<String> = read.flatten().filter_map(|item| item.file_name().into_string().ok()).collect();
    if file.is_none() && names.iter().any(|name| name == "config.json") && has_weights(&folder, &names) {
        return Ok(Some(folder));
    }
    if file.is_none() && names.iter().any(|name| name == "modules.json") && has_transformer(&folder, &names) {
        return Ok(Some(folder));
    }
    match pick_gguf(repo, &names, file) {
        Ok(parts) => Ok(parts.first().map(|part| folder.join(part))),
        Err(Error::Choose { .. }) | Err(Error::NoWeights { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the folder of the first module holds a whole model.
fn has_transformer(folder: &Path, names: &[String]) -> bool {
    let inside = |name: &String| -> Vec<String> {
        let read = std::fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        read.filter_map(|item| Some(format!("{name}/{}", item.file_name().into_string().ok()?))).collect()
    };
    let files: Vec<String> = names.iter().filter(|name| name.starts_with("0_")).flat_map(inside).collect();
    has_transformer_inside(files.iter().map(String::as_str))
}

/// Whether the weights are complete: a single file, or an index all of whose shards are there.
fn has_weights(folder: &Path, names: &[String]) -> bool {
    let has = |name: &str| names.iter().any(|n| n == name);
    if has("model.safetensors") || has("pytorch_model.bin") {
        return true;
    }
    ["model.safetensors.index.json", "pytorch_model.bin.index.json"].iter().any(|index| {
        let shards = std::fs::read(folder.join(index)).ok().and_then(|text| shards_of_index(&text));
        shards.is_some_and(|shards| shards.iter().all(|shard| has(shard)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    #[test]
    fn complete_snapshots_are_found_and_partial_ones_are_not() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let find = |repo: &str, file: Option<&str>| snapshot_in(root.path(), repo, None, file).expect("readable");
        write(root.path(), "models--o--m/refs/main", "abc123\n");
        write(root.path(), "models--o--m/snapshots/abc123/config.json", "{}");
        assert_eq!(find("o/m", None), None);
        write(
            root.path(),
            "models--o--m/snapshots/abc123/model.safetensors.index.json",
            r#"{"weight_map":{"a":"s1","b":"s2"}}"#,
        );
        write(root.path(), "models--o--m/snapshots/abc123/s1", "");
        assert_eq!(find("o/m", None), None);
        write(root.path(), "models--o--m/snapshots/abc123/s2", "");
        assert_eq!(find("o/m", None), Some(root.path().join("models--o--m/snapshots/abc123")));
        write(root.path(), "models--o--g/snapshots/main/x-Q4_K_M.gguf", "");
        assert_eq!(find("o/g", Some("Q4_K_M")), Some(root.path().join("models--o--g/snapshots/main/x-Q4_K_M.gguf")));
        assert_eq!(find("o/none", None), None);
        write(root.path(), "models--o--st/snapshots/main/modules.json", "[]");
        write(root.path(), "models--o--st/snapshots/main/0_Transformer/config.json", "{}");
        assert_eq!(find("o/st", None), None);
        write(root.path(), "models--o--st/snapshots/main/0_Transformer/pytorch_model.bin", "");
        assert_eq!(find("o/st", None), Some(root.path().join("models--o--st/snapshots/main")));
        write(root.path(), "models--o--evil/refs/main", "../../..");
        assert_eq!(find("o/evil", None), None);
    }
}
