//! How a command ends: exit codes, the one line of an error, and what is said when our own code is at fault.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mistake in what was asked for on the command line (exit code 2).
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The user pressed Ctrl-C (exit code 130).
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// A usage error as an [`anyhow::Error`].
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Turns a command's result into the program's exit code, saying on standard error what went wrong.
pub fn exit_code(result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(130),
        Err(error) => {
            say_error(&whole(&error));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// The message with its causes. Many messages quote their cause already; those are not said twice.
pub fn whole(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Prints `error: ...` as one line, whatever line breaks the message holds.
pub fn say_error(message: &str) {
    // Standard error may be closed: then there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "error: {}", one_line(message));
}

/// The message without line breaks and other control characters (a file's text may be quoted in it).
pub fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The reader of our output went away (`attend ... | head`): not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe))
}

/// A panic is a mistake of this program: it becomes one line that can be reported.
pub fn install_panic_hook() {
    static SAID: AtomicBool = AtomicBool::new(false);
    std::panic::set_hook(Box::new(|panic| {
        if SAID.swap(true, Ordering::SeqCst) {
            return;
        }
        let message = panic
            .payload()
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.payload().downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown cause".into());
        let place = panic.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        say_error(&format!(
            "internal: {message} (at {place}, version {}); this is a fault of Attend: please report this line and the command",
            env!("CARGO_PKG_VERSION")
        ));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line("a\n  b\tc\u{1b}[31m"), "a b c\u{fffd}[31m");
    }

    #[test]
    fn the_cause_is_found_behind_context() {
        use anyhow::Context;
        let pipe: std::io::Result<()> = Err(std::io::ErrorKind::BrokenPipe.into());
        assert!(is_broken_pipe(&pipe.context("writing").expect_err("is an error")));
        let other: std::io::Result<()> = Err(std::io::ErrorKind::NotFound.into());
        assert!(!is_broken_pipe(&other.context("writing").expect_err("is an error")));
    }
}
