//! How far a batch has come and how fast it goes, for a user who watches.

use crate::cli::screen;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// A bar that appears after a second, on a terminal only, and a closing line with the rates.
#[derive(Debug)]
pub struct Progress {
    total_bytes: Option<u64>,
    started: Instant,
    inputs: usize,
    /// Inputs of the window at work that are done.
    underway: usize,
    tokens: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn begin(total_bytes: Option<u64>) -> Progress {
        Progress { total_bytes, started: Instant::now(), inputs: 0, underway: 0, tokens: 0, bar: None }
    }

    /// Counts inputs of the window at work that are done, and the tokens they cost.
    pub fn add(&mut self, inputs: usize, tokens: usize) {
        self.underway += inputs;
        self.tokens += tokens as u64;
        self.show(None);
    }

    /// Counts a finished window; its inputs were counted one by one before.
    pub fn finished(&mut self, inputs: usize, bytes_read: u64) {
        self.inputs += inputs;
        self.underway = 0;
        self.show(Some(bytes_read));
    }

    /// Leaves the terminal to the answers.
    pub fn pause(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, bytes_read: Option<u64>) {
        if self.bar.is_none() && screen::watched() && self.started.elapsed() > Duration::from_secs(1) {
            self.bar = Some(bar(self.total_bytes));
        }
        let words = self.words();
        if let Some(bar) = &self.bar {
            if let Some(bytes) = bytes_read {
                bar.set_position(bytes);
            }
            bar.set_message(words);
        }
    }

    fn words(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let inputs = self.inputs + self.underway;
        let mut words = format!("{inputs} inputs, {:.1}/s", inputs as f64 / seconds);
        if self.tokens > 0 {
            words += &format!(", {:.0} tokens/s", self.tokens as f64 / seconds);
        }
        words
    }

    /// The closing line.
    pub fn end(&mut self, done: bool) {
        self.pause();
        if done && self.inputs > 0 {
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
