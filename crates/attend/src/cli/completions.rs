//! `attend completions`: what a shell needs to complete our commands and options.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend completions bash > ~/.local/share/bash-completion/completions/attend
  attend completions zsh > ~/.zfunc/_attend
  attend completions fish > ~/.config/fish/completions/attend.fish")]
pub struct CompletionsArgs {
    pub shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<bool> {
    use std::io::Write;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "attend", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(true)
}
