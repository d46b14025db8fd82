//! A script in the place of a model and a list of words in the place of a tokenizer, so that tests can force any output.

#![allow(dead_code)] // Each test binary uses its own part of this file.

use attend_engine::source::{Feed, LogitsSource, RowSink};
use attend_engine::vocabulary::{TextStream, Vocabulary};
use attend_engine::{Error, Event, GenerateOptions, Limits, Output, Prompt, Schedule, Surroundings};
use std::cell::RefCell;
use std::ops::ControlFlow;

type Rule = dyn Fn(&[u32]) -> Vec<f32>;

/// Gives the logits that a function makes of all tokens fed so far.
pub struct Script {
    pub vocab: usize,
    rule: Box<Rule>,
    /// How many tokens each call fed, a list for each call.
    pub calls: RefCell<Vec<Vec<usize>>>,
}

impl Script {
    pub fn new(vocab: usize, rule: impl Fn(&[u32]) -> Vec<f32> + 'static) -> Script {
        Script { vocab, rule: Box::new(rule), calls: RefCell::default() }
    }

    /// After a prompt of any tokens whose length is `prompt_len` the answer is `answer`, then token 0 for ever.
    pub fn answering(vocab: usize, prompt_len: usize, answer: &[u32]) -> Script {
        let answer = answer.to_vec();
        Script::new(vocab, move |tokens| {
            let next = answer.get(tokens.len() - prompt_len).copied().unwrap_or(0);
            one_hot(vocab, next)
        })
    }
}

/// A row that says `id` and a little of the ids around it, so that sampling has something to choose from.
pub fn one_hot(vocab: usize, id: u32) -> Vec<f32> {
    (0..vocab as u32).map(|other| if other == id { 9.0 } else { -f32::from(u8::from(other > id)) }).collect()
}

impl LogitsSource for Script {
    type State = Vec<u32>;

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn input_vocab(&self) -> usize {
        self.vocab
    }

    fn start(&self, _: usize, _: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        Ok(Vec::new())
    }

    fn fork(&self, state: &Vec<u32>) -> Vec<u32> {
        state.clone()
    }

    fn truncate(&self, state: &mut Vec<u32>, len: usize) {
        state.truncate(len);
    }

    fn feed(&self, feeds: &mut [Feed<'_, Vec<u32>>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        self.calls.borrow_mut().push(feeds.iter().map(|feed| feed.tokens.len()).collect());
        for (index, feed) in feeds.iter_mut().enumerate() {
            for (token, &id) in feed.tokens.iter().enumerate() {
                feed.state.push(id);
                if token >= feed.rows_from {
                    sink(index, token, &(self.rule)(feed.state))?;
                }
            }
        }
        Ok(())
    }
}

/// Token `id` is the bytes `0[id]`.
pub struct Words(pub Vec<Vec<u8>>);

impl Words {
    pub fn new(words: &[&str]) -> Words {
        Words(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    /// One token for each byte.
    pub fn bytes() -> Words {
        Words((0..=255).map(|byte| vec![byte]).collect())
    }
}

struct WordStream<'w> {
    words: &'w Words,
    held: Vec<u8>,
}

impl Vocabulary for Words {
    fn stream(&self, _: bool, _: &[u32]) -> Box<dyn TextStream + '_> {
        Box::new(WordStream { words: self, held: Vec::new() })
    }

    fn text(&self, id: u32) -> Option<String> {
        self.0.get(id as usize).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        self.0.get(id as usize).cloned()
    }

    /// The longest word first.
    fn tokens(&self, text: &str) -> Vec<u32> {
        let mut rest = text.as_bytes();
        let mut ids = Vec::new();
        while !rest.is_empty() {
            let fits = |word: &Vec<u8>| if !word.is_empty() && rest.starts_with(word) { word.len() } else { 0 };
            let Some(id) = (0..self.0.len()).max_by_key(|&id| (fits(&self.0[id]), std::cmp::Reverse(id))) else {
                break;
            };
            if fits(&self.0[id]) == 0 {
                break;
            }
            ids.push(id as u32);
            rest = &rest[self.0[id].len()..];
        }
        ids
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

impl TextStream for WordStream<'_> {
    fn push(&mut self, id: u32) -> Option<String> {
        self.held.extend_from_slice(self.words.0.get(id as usize)?);
        let valid = match std::str::from_utf8(&self.held) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.held.split_off(valid);
        let text = String::from_utf8(std::mem::replace(&mut self.held, rest)).ok()?;
        (!text.is_empty()).then_some(text)
    }

    fn finish(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| String::from_utf8_lossy(&held).into_owned())
    }
}

pub fn around() -> Surroundings {
    Surroundings { context: Some(64), chunk: 8, end_ids: Vec::new(), ..Surroundings::default() }
}

/// What a client of a stream would have seen.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Seen {
    /// The text of each event, of choice 0.
    pub pieces: Vec<String>,
    pub tokens: Vec<u32>,
    pub finished: usize,
}

/// Runs a request to its end, checks that the stream said what the output says, and returns both.
pub fn ask<S: LogitsSource>(
    source: &S,
    words: &Words,
    around: &Surroundings,
    prompt: &[u32],
    options: &GenerateOptions,
) -> Result<(Output, Seen), Error> {
    ask_in(Schedule::new(source, Some(words), around, Limits::default()), prompt, options)
}

/// The same in a loop that was made already.
pub fn ask_in<S: LogitsSource>(
    schedule: Schedule<'_, S>,
    prompt: &[u32],
    options: &GenerateOptions,
) -> Result<(Output, Seen), Error> {
    let mut seen: Vec<Seen> = vec![Seen::default(); options.length.n];
    let mut on = |event: Event<'_>| {
        match event {
            Event::Token { choice, id, text, .. } => {
                seen[choice].pieces.push(text.into());
                seen[choice].tokens.push(id);
            }
            Event::Finished { choice, text, .. } => {
                seen[choice].pieces.push(text.into());
                seen[choice].finished += 1;
            }
            Event::Prompt { .. } | Event::Step { .. } => {}
        }
        ControlFlow::Continue(())
    };
    let prompt = Prompt::tokens(prompt);
    let output = attend_engine::generate::answer(schedule, (&prompt, options), &mut on)?;
    for choice in &output.choices {
        let seen = &seen[choice.index];
        assert_eq!(seen.pieces.concat(), choice.text, "the stream's text is the answer's");
        assert_eq!(seen.tokens, choice.token_ids);
        assert_eq!(seen.finished, 1);
    }
    let first = seen.into_iter().next().unwrap_or_default();
    Ok((output, first))
}
