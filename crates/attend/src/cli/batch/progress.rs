//! How far a batch has come and how fast it goes, for a user who watches.

use crate::cli::screen;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// A bar that appears after a second, on a terminal only, and a closing line with the rates.
#[derive(Debug)]
pub struct Progress {
    total_bytes: Option<u64>,
    started: Instant,
    /// Inputs that have been read, and the bytes up to their end.
    taken: (usize, u64),
    /// Inputs that have their answers, and the tokens that these cost.
    done: usize,
    tokens: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn begin(total_bytes: Option<u64>) -> Progress {
        Progress { total_bytes, started: Instant::now(), taken: (0, 0), done: 0, tokens: 0, bar: None }
    }

    /// Counts inputs that have been read, with which `bytes_read` have been read in all.
    pub fn taken(&mut self, inputs: usize, bytes_read: u64) {
        self.taken = (self.taken.0 + inputs, bytes_read);
    }

    /// Counts inputs that are done, and the tokens they cost.
    pub fn add(&mut self, inputs: usize, tokens: usize) {
        self.done += inputs;
        self.tokens += tokens as u64;
        self.show();
    }

    /// Everything that has been read is done.
    pub fn all_done(&mut self) {
        self.done = self.taken.0;
        self.show();
    }

    /// Leaves the terminal to the answers.
    pub fn pause(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Bytes of the inputs that are done: their share of those that have been read.
    fn position(&self) -> u64 {
        let (inputs, bytes) = self.taken;
        (bytes as f64 * (self.done as f64 / inputs.max(1) as f64).min(1.0)) as u64
    }

    fn show(&mut self) {
        if self.bar.is_none() && screen::watched() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar = Some(bar(self.total_bytes));
        }
        let words = self.words();
        if let Some(bar) = &self.bar {
            bar.set_position(self.position());
            bar.set_message(words);
        }
    }

    fn words(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let mut words = format!("{} inputs, {:.1}/s", self.done, self.done as f64 / seconds);
        if self.tokens > 0 {
            words += &format!(", {:.0} tokens/s", self.tokens as f64 / seconds);
        }
        words
    }

    /// The closing line.
    pub fn end(&mut self, done: bool) {
        self.pause();
        if done && self.done > 0 {
            screen::hint(&format!("[{} in {:.1} s]", self.words(), self.started.elapsed().as_secs_f64()));
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "[{bar:30}] {percent}% {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    // The template is ours: a wrong one would only cost the looks.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
