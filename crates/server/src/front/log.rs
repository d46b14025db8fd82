//! The log: a line of JSON for each thing that happened. It names routes, counts and times, never what was asked or
//! answered; control characters are escaped as JSON has it. A thread of its own writes it, so that a terminal or pipe that
//! does not keep up delays no answer: lines that find no room are counted and left out.

use prometheus_client::metrics::counter::Counter;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that may wait to be written.
const WAITING: usize = 4096;
/// So long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines go.
pub struct Log {
    /// None: nothing is written.
    to: Mutex<Option<(SyncSender<String>, JoinHandle<()>)>>,
    lost: Counter,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Log")
    }
}

impl Log {
    /// # Errors
    /// A system that gives no thread.
    pub fn to(out: Box<dyn Write + Send>) -> io::Result<Log> {
        let (sender, lines) = sync_channel(WAITING);
        let lost = Counter::default();
        let counted = lost.clone();
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || write(out, &lines, &counted))?;
        Ok(Log { to: Mutex::new(Some((sender, thread))), lost })
    }

    /// Nothing is written.
    pub fn none() -> Log {
        Log { to: Mutex::new(None), lost: Counter::default() }
    }

    /// Lines that found no room.
    pub fn lost(&self) -> &Counter {
        &self.lost
    }

    /// Writes a line: time, level, event, and `fields`.
    pub fn say(&self, level: &str, event: &str, fields: Value) {
        // A sender of one's own, so that nobody waits for another's line.
        let to = self.to.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(sender, _)| sender.clone());
        let Some(to) = to else { return };
        if let Err(TrySendError::Full(_)) = to.try_send(line(level, event, fields)) {
            self.lost.inc();
        }
    }

    /// Writes what waits, as far as that takes no longer than a moment.
    pub fn close(&self) {
        let Some((sender, thread)) = self.to.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        drop(sender);
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < LAST_LINES {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn line(level: &str, event: &str, fields: Value) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let mut line = Map::new();
    line.insert("time".into(), json!((time * 1e3).round() / 1e3));
    line.insert("level".into(), json!(level));
    line.insert("event".into(), json!(event));
    if let Value::Object(fields) = fields {
        line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    format!("{}\n", Value::Object(line))
}

/// Writes lines until no more can come, and says how many were lost between them.
fn write(mut out: Box<dyn Write + Send>, lines: &Receiver<String>, lost: &Counter) {
    let mut told = 0;
    while let Ok(first) = lines.recv() {
        let mut text = first;
        // Not without end: a line is seen soon, however fast others come.
        text.extend(lines.try_iter().take(64));
        let now = lost.get();
        if now > told {
            text += &line("warning", "log_lines_lost", json!({"lines": now - told}));
            told = now;
        }
        // Nobody is left to tell that the log cannot be written.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    /// Takes a line when it is let.
    struct Slow(Receiver<()>, Sender<String>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_is_stuck_delays_nobody_and_counts_what_is_lost() {
        let (go, gate) = channel();
        let (said, written) = channel();
        let log = Arc::new(Log::to(Box::new(Slow(gate, said))).expect("a thread"));
        for index in 0..3 * WAITING {
            log.say("info", "line", json!({"index": index, "nothing": null}));
        }
        // At most one handful more than may wait has been taken.
        let lost = log.lost().get();
        assert!((2 * WAITING as u64 - 65..=2 * WAITING as u64).contains(&lost), "{lost}");
        drop(go);
        log.close();
        log.say("info", "late", json!({}));
        let text: String = written.iter().collect();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
        assert_eq!(of("line").len() as u64, 3 * WAITING as u64 - lost);
        assert_eq!(of("log_lines_lost").iter().filter_map(|line| line["lines"].as_u64()).sum::<u64>(), lost);
        assert!(of("late").is_empty() && lines.iter().all(|line| line.get("nothing").is_none()));
    }
}
