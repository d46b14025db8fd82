//! `attend rm`: remove models from the folder.

use super::screen;
use crate::models::Folder;
use anyhow::{Result, bail};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend rm smollm2-135m-instruct

Only what `attend list` shows can be removed: never a file elsewhere.")]
pub struct RmArgs {
    /// Names from `attend list`
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

pub fn run(args: &RmArgs) -> Result<bool> {
    let folder = Folder::locate()?;
    let mut entries = Vec::new();
    for name in &args.names {
        match folder.entry_named(name)? {
            Some(entry) => entries.push(entry),
            None => bail!("{name}: no model of this name in {} (see `attend list`)", folder.path.display()),
        }
    }
    for entry in entries {
        folder.remove(&entry)?;
        screen::hint(&format!("removed {} ({})", entry.name, screen::bytes(entry.bytes)));
    }
    Ok(true)
}
