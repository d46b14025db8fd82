//! One file over the network: resumed where an earlier try ended, checked, synced and only then given its name.

use super::hub::{Hub, Remote, network};
use super::{Error, FileRecord, Progress};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

/// How often a broken connection is taken up again before giving up.
const TRIES: usize = 4;

/// Fetches `remote` into `folder`. A file that is there already is checked and kept.
pub fn download(
    hub: &Hub,
    url: &str,
    remote: &Remote,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<FileRecord, Error> {
    let place = folder.join(&remote.name);
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    progress.begin(&remote.name, remote.bytes);
    if place.exists() {
        let found = hash_file(&place, progress)?;
        if matches(remote, &found) {
            return Ok(found);
        }
        std::fs::remove_file(&place).map_err(Error::file(&place))?;
    }
    let part = folder.join(format!("{}.part", remote.name));
    for attempt in 1.. {
        match transfer(hub, url, remote, &part, progress) {
            Ok(()) => break,
            Err(error @ Error::Network { .. }) if attempt < TRIES => {
                progress.note(&format!("{}: {error}; trying again ({attempt} of {})", remote.name, TRIES - 1));
            }
            Err(error) => return Err(error),
        }
    }
    let mut found = hash_file(&part, progress)?;
    if let Err(error) = verify(remote, &found, url) {
        // What is wrong as a whole cannot be resumed.
        std::fs::remove_file(&part).map_err(Error::file(&part))?;
        return Err(error);
    }
    std::fs::rename(&part, &place).map_err(Error::file(&place))?;
    found.name = remote.name.clone();
    Ok(found)
}

fn matches(remote: &Remote, found: &FileRecord) -> bool {
    remote.sha256.as_ref().is_none_or(|sum| *sum == found.sha256) && remote.bytes.is_none_or(|b| b == found.bytes)
}

/// Checks length and checksum.
pub fn verify(remote: &Remote, found: &FileRecord, url: &str) -> Result<(), Error> {
    if let Some(expected) = &remote.sha256
        && *expected != found.sha256
    {
        let (expected, found) = (expected.clone(), found.sha256.clone());
        return Err(Error::Checksum { file: remote.name.clone(), expected, found });
    }
    match remote.bytes {
        Some(expected) if expected != found.bytes => {
            Err(Error::Network { what: url.into(), message: format!("{} bytes arrived of {expected}", found.bytes) })
        }
        _ => Ok(()),
    }
}

/// Appends what is missing of the file to `part`.
fn transfer(hub: &Hub, url: &str, remote: &Remote, part: &Path, progress: &mut dyn Progress) -> Result<(), Error> {
    let mut file = OpenOptions::new().create(true).append(true).open(part).map_err(Error::file(part))?;
    let mut have = file.metadata().map_err(Error::file(part))?.len();
    if remote.bytes.is_some_and(|bytes| have > bytes) {
        file.set_len(0).map_err(Error::file(part))?;
        have = 0;
    }
    if remote.bytes == Some(have) {
        return Ok(());
    }
    let mut request = hub.get(url);
    if have > 0 {
        request = request.header("Range", format!("bytes={have}-"));
    }
    let response = request.call().map_err(|error| network(url, &error))?;
    let status = response.status().as_u16();
    if status == 416 {
        // The server does not have that much: what we kept is not a beginning of its file.
        file.set_len(0).map_err(Error::file(part))?;
        return Err(Error::Network { what: url.into(), message: "the kept part does not fit".into() });
    }
    hub.check(status, url, "this file")?;
    if have > 0 && status != 206 {
        file.set_len(0).map_err(Error::file(part))?;
        have = 0;
    }
    copy(response.into_body().into_reader(), &mut file, have, (url, remote, part), progress)
}

fn copy(
    mut body: impl Read,
    file: &mut File,
    mut have: u64,
    (url, remote, part): (&str, &Remote, &Path),
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        if progress.stopped() {
            return Err(Error::Interrupted);
        }
        let count = body
            .read(&mut buffer)
            .map_err(|error| Error::Network { what: url.into(), message: format!("the connection broke: {error}") })?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        file.write_all(bytes).map_err(Error::file(part))?;
        have += count as u64;
        progress.at(have);
        if remote.bytes.is_some_and(|limit| have > limit) {
            return Err(Error::Network { what: url.into(), message: "more bytes came than were announced".into() });
        }
    }
    file.sync_all().map_err(Error::file(part))?;
    match remote.bytes {
        Some(bytes) if have < bytes => {
            Err(Error::Network { what: url.into(), message: format!("{have} bytes arrived of {bytes}") })
        }
        _ => Ok(()),
    }
}

/// Length and checksum of a file.
pub fn hash_file(path: &Path, progress: &mut dyn Progress) -> Result<FileRecord, Error> {
    let mut file = File::open(path).map_err(Error::file(path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    let mut bytes = 0u64;
    loop {
        if progress.stopped() {
            return Err(Error::Interrupted);
        }
        let count = file.read(&mut buffer).map_err(Error::file(path))?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
        hash.update(read);
        bytes += count as u64;
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(FileRecord { name, bytes, sha256: hex(&hash.finalize()) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
