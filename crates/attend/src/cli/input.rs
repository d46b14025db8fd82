//! Text from the command line and from standard input.

use super::error::usage;
use super::screen;
use anyhow::{Context, Result};
use std::io::{IsTerminal, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a piped standard input may stay silent when the command line gave a text already: a program that starts
/// this one may hold its own input open without meaning anything by it.
const SILENCE: Duration = Duration::from_secs(3);

/// What arrives on standard input, read while the model is being loaded.
#[derive(Debug)]
pub struct Input {
    argument: Option<String>,
    piped: Option<Receiver<Piece>>,
    /// `-` was given: standard input is meant, however long it takes.
    wait: bool,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(std::io::Error),
}

impl Input {
    /// The argument and standard input, which is read where something is piped in. An argument of `-` stands for it.
    pub fn begin(argument: Option<&str>) -> Result<Input> {
        let dash = argument == Some("-");
        let argument = argument.filter(|_| !dash).map(str::to_owned);
        let terminal = std::io::stdin().is_terminal();
        if argument.is_none() && terminal && !dash {
            return Err(usage("a text is wanted, as an argument or on standard input"));
        }
        let piped = (dash || !terminal).then(read_behind);
        Ok(Input { wait: dash || argument.is_none(), argument, piped })
    }

    /// The argument, or standard input where there is none.
    pub fn either(argument: Option<&str>) -> Result<Input> {
        match argument.filter(|text| *text != "-") {
            Some(text) => Ok(Input { argument: Some(text.to_owned()), piped: None, wait: false }),
            None => Input::begin(argument),
        }
    }

    /// The argument, and below it what was piped in.
    pub fn text(self) -> Result<String> {
        let piped = match &self.piped {
            Some(receiver) => collect(receiver, self.wait)?,
            None => None,
        };
        let piped = piped.map(|text| text.strip_suffix('\n').map(str::to_owned).unwrap_or(text));
        let text = match (self.argument, piped.filter(|text| !text.is_empty())) {
            (Some(argument), Some(piped)) => format!("{argument}\n\n{piped}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => return Err(usage("the text is empty")),
        };
        Ok(text)
    }
}

fn read_behind() -> Receiver<Piece> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => Piece::End,
                Ok(count) => Piece::Bytes(buffer.get(..count).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Piece::Failed(error),
            };
            let last = !matches!(piece, Piece::Bytes(_));
            if sender.send(piece).is_err() || last {
                return;
            }
        }
    });
    receiver
}

fn collect(receiver: &Receiver<Piece>, wait: bool) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    loop {
        let piece = if wait || !bytes.is_empty() {
            receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            receiver.recv_timeout(SILENCE)
        };
        match piece {
            Ok(Piece::Bytes(more)) => bytes.extend(more),
            Ok(Piece::End) | Err(RecvTimeoutError::Disconnected) => break,
            // Not to be read, as when it is closed: then there is none.
            Ok(Piece::Failed(_)) if bytes.is_empty() && !wait => break,
            Ok(Piece::Failed(error)) => return Err(error).context("standard input"),
            Err(RecvTimeoutError::Timeout) => {
                screen::notice(
                    "note: standard input is open and silent; going on without it (- as the text waits for it)",
                );
                break;
            }
        }
    }
    let text = String::from_utf8(bytes).context("standard input is not UTF-8 text")?;
    Ok(Some(text))
}
