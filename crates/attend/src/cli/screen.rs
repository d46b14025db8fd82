//! What is said beside a command's result: notices, progress, sizes in words. Results go to standard output, and only
//! results do; progress is drawn on a terminal and nowhere else.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Whether somebody watches standard error.
pub fn watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A line that the user must know, watched or not.
pub fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A line for a user at a terminal; nothing when piped.
pub fn hint(text: &str) {
    if watched() {
        notice(text);
    }
}

/// A bar that counts bytes.
pub fn byte_bar(label: &str, total: u64) -> ProgressBar {
    bar(label, total, "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// A bar that counts things.
pub fn count_bar(label: &str, total: u64) -> ProgressBar {
    bar(label, total, "{msg} [{bar:30}] {pos}/{len} {eta}")
}

/// A bar that appears only when the work has gone on for a second.
#[derive(Debug)]
pub struct LateBar {
    label: &'static str,
    bytes: bool,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl LateBar {
    pub fn bytes(label: &'static str) -> LateBar {
        LateBar { label, bytes: true, started: Instant::now(), bar: None }
    }

    pub fn count(label: &'static str) -> LateBar {
        LateBar { label, bytes: false, started: Instant::now(), bar: None }
    }

    pub fn at(&mut self, done: u64, total: u64) {
        if self.bar.is_none() && watched() && self.started.elapsed() > Duration::from_secs(1) {
            let new = if self.bytes { byte_bar } else { count_bar };
            self.bar = Some(new(self.label, total));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(label: &str, total: u64, template: &str) -> ProgressBar {
    let bar = if watched() { ProgressBar::new(total) } else { ProgressBar::hidden() };
    // The template is ours: a wrong one would only cost the looks.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Columns of text without rules, as wide as their contents: easy to read, and to cut with other tools.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table { rows: vec![header.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// `98.4 MB`, `1.12 GB`: decimal units, as disks and download pages count.
pub fn bytes(count: u64) -> String {
    scaled(count as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// `1.25 GiB`: binary units, as memory is counted.
pub fn binary(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 3 - (value.log10().floor() as usize + 1).min(2) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `1 234 567`
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A rate with as many digits as are worth reading.
pub fn rate(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "?".into(),
        _ if value >= 100.0 => grouped(value.round() as u64),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `134.5 M`, `1.78 G`.
pub fn quantity(count: u64) -> String {
    scaled(count as f64, &["", "k", "M", "G", "T"])
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 3 - (value.log10().floor() as usize + 1).min(2) };
    format!("{value:.digits$} {}", units[unit]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", "n"]);
        table.row(["a", "1"]);
        table.row(["longer"]);
        assert_eq!(table.to_string(), "name    n\na       1\nlonger\n");
    }

    #[test]
    fn sizes_in_words() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(bytes(1_117_320_736), "1.12 GB");
        assert_eq!(bytes(999_600), "1.00 MB");
        assert_eq!(quantity(134_515_008), "135 M");
        assert_eq!(quantity(576), "576");
        assert_eq!(binary(1_342_177_280), "1.25 GiB");
        assert_eq!(binary(327_680), "320 KiB");
        assert_eq!(grouped(68_976_648_192), "68 976 648 192");
        assert_eq!(rate(0.517), "0.52");
    }
}
