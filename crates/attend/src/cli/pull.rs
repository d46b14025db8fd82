//! `attend pull`: bring a model into the models folder.

use super::screen;
use crate::models::{self, DEFAULT_MODEL, Folder, Found, Wanted};
use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend pull                                        the default model
  attend pull sentence-transformers/all-MiniLM-L6-v2 a repository of the Hugging Face hub
  attend pull owner/name:Q4_K_M                      one file of a GGUF repository

HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are honoured; an interrupted download goes on where it stopped.")]
pub struct PullArgs {
    /// A hub id (owner/name, owner/name@revision, owner/name:Q4_K_M); the default model when absent
    pub model: Option<String>,
    /// Fetch again what is here already
    #[arg(long)]
    pub force: bool,
}

pub fn run(args: &PullArgs) -> Result<bool> {
    let folder = Folder::locate()?;
    let word = args.model.as_deref().unwrap_or(DEFAULT_MODEL.name);
    let path = match models::find(word, &folder)? {
        Found::At(path) if !args.force => {
            screen::hint("it is here already");
            path
        }
        Found::At(_) => fetch(&folder, &models::parse(word)?)?,
        Found::ToFetch(wanted) => fetch(&folder, &wanted)?,
    };
    writeln!(std::io::stdout(), "{}", path.display())?;
    Ok(true)
}

/// Fetches a model under the user's eyes.
pub fn fetch(folder: &Folder, wanted: &Wanted) -> Result<PathBuf> {
    let _graceful = super::interrupt::Graceful::begin();
    match models::fetch(folder, wanted, &mut Bars { bar: None }) {
        Err(models::Error::Interrupted) => Err(super::error::Interrupted.into()),
        other => Ok(other?),
    }
}

/// Draws a bar for each thing that is on its way.
struct Bars {
    bar: Option<ProgressBar>,
}

impl models::Progress for Bars {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        self.bar = Some(screen::byte_bar(what, total.unwrap_or(0)));
    }

    fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    fn note(&mut self, text: &str) {
        // A bar on the same line would be torn.
        self.bar = None;
        screen::notice(text);
    }

    fn stopped(&self) -> bool {
        super::interrupt::pressed()
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
