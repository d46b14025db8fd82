//! What the tests of several crates share. Nothing here is part of the product.

pub mod files;
pub mod golden;
pub mod hostile;
pub mod memory;

use std::io::Write;

/// Says that a test is skipped, where the closing line of `./test` counts it.
///
/// # Panics
/// If that place cannot be written to.
pub fn skip(reason: &str) {
    use std::fs::OpenOptions;
    eprintln!("skipped: {reason}");
    if let Some(log) = std::env::var_os("ATTEND_SKIP_LOG") {
        let mut file = OpenOptions::new().create(true).append(true).open(log).expect("the log opens");
        writeln!(file, "{reason}").expect("the log takes a line");
    }
}
