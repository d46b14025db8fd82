//! Builders of tiny files and models, byte by byte: they share no code with the readers they test, and they can also
//! write what no honest program would.

pub mod adapter;
pub mod gguf;
pub mod model;
pub mod odd;
pub mod safetensors;
pub mod scripted;
pub mod torch;
pub mod valid;

use std::io;
use std::path::Path;

/// Files of one folder: names (which may have folders in them) and contents.
pub type Files = Vec<(String, Vec<u8>)>;

/// Writes files into a folder.
pub fn write_all(folder: &Path, files: &Files) -> io::Result<()> {
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

/// A small seeded generator (SplitMix64; Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// In -0.1 .. 0.1.
    pub fn weight(&mut self) -> f32 {
        ((self.next_u64() >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 0.2
    }

    /// `count` weights as little-endian f32.
    pub fn weights(&mut self, count: usize) -> Vec<u8> {
        (0..count).flat_map(|_| self.weight().to_le_bytes()).collect()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next_u64() as u8).collect()
    }
}

/// A checkpoint on which a reader is tried.
#[derive(Debug, Clone)]
pub struct Case {
    /// The class of hostile input (A1 to A21), or "odd" for what must load.
    pub class: &'static str,
    pub name: String,
    pub files: Files,
    /// Symbolic links: where they are and what they hold.
    pub links: Vec<(String, String)>,
    /// What is opened, within the folder of the files.
    pub open: String,
    /// What is read once it is open.
    pub probe: Option<Probe>,
    /// The kind of error that opening or probing ends in, alternatives separated by `|`; empty where both must work.
    pub expect: &'static str,
}

/// A value to be read from an open checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// A count of the configuration.
    Count(&'static str),
    /// A number of the configuration.
    Number(&'static str),
    /// All bytes of a tensor.
    Tensor(&'static str),
}

impl Case {
    /// A case of files that is opened by the whole folder.
    pub fn folder(class: &'static str, name: impl Into<String>, files: Files, expect: &'static str) -> Case {
        Case { class, name: name.into(), files, links: Vec::new(), open: String::new(), probe: None, expect }
    }

    /// A case of one file that is opened by its name.
    pub fn file(
        class: &'static str,
        name: impl Into<String>,
        file: &str,
        bytes: Vec<u8>,
        expect: &'static str,
    ) -> Case {
        let mut case = Case::folder(class, name, vec![(file.into(), bytes)], expect);
        case.open = file.into();
        case
    }

    pub fn probe(mut self, probe: Probe) -> Case {
        self.probe = Some(probe);
        self
    }

    pub fn link(mut self, at: &str, to: &str) -> Case {
        self.links.push((at.into(), to.into()));
        self
    }

    pub fn open(mut self, name: &str) -> Case {
        self.open = name.into();
        self
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// Writes files and links below `folder`.
    #[cfg(unix)]
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        write_all(folder, &self.files)?;
        for (at, to) in &self.links {
            let at = folder.join(at);
            std::fs::create_dir_all(at.parent().unwrap_or(folder))?;
            std::os::unix::fs::symlink(to, at)?;
        }
        Ok(())
    }
}
