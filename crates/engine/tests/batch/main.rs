//! Many requests in one loop: each gets the answer that it gets alone, whatever the company and however little room there is.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod models;
mod prefix;
mod support;
mod variants;
mod windows;

use attend_engine::generate::generate_all;
use attend_engine::source::{Feed, LogitsSource, RowSink};
use attend_engine::{Error, Event, GenerateOptions, Limits, Output, Prompt, Schedule, Surroundings};
use attend_testkit::golden::Random;
use common::{Script, Words, one_hot};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use support::{ROOMY, alone, bounds, mixed, together, ways};

#[test]
fn every_answer_is_the_one_that_the_prompt_gets_alone() {
    let source = mixed(7);
    let words = Words::new(&["", "a", "b", "c", "d", "ca", "e"]);
    let mut random = Random(3);
    let mut prompt = |_| Prompt::tokens((0..1 + random.below(90)).map(|_| random.below(7) as u32).collect::<Vec<_>>());
    let prompts: Vec<Prompt> = (0..23).map(&mut prompt).collect();
    for chunk in [1, 13, 512] {
        let around = Surroundings { context: Some(200), chunk, end_ids: vec![0], ..Surroundings::default() };
        for (way, options) in ways() {
            let expected: Vec<Output> =
                prompts.iter().map(|prompt| alone(&source, &words, &around, prompt, &options)).collect();
            for limits in bounds() {
                let found = together(&source, &words, &around, &prompts, (&options, limits));
                assert_eq!(found, expected, "{way}, chunks of {chunk}, {limits:?}");
            }
        }
    }
}

/// Each step feeds every open sequence; who ends makes room for who waits.
#[test]
fn requests_join_as_others_leave() {
    // A prompt's first token is how long its answer is.
    let source = Script::new(40, |tokens| one_hot(40, u32::from(tokens.len() <= tokens[0] as usize)));
    let around = Surroundings { context: None, chunk: 64, end_ids: vec![0], ..Surroundings::default() };
    let words = Words::new(&["a"; 40]);
    let lengths = [9, 3, 3, 3, 30, 2, 1];
    let prompts: Vec<Prompt> = lengths.map(|length| Prompt::tokens([length])).into();
    let limits = Limits { sequences: 2, ..ROOMY };
    let found = together(&source, &words, &around, &prompts, (&GenerateOptions::default(), limits));
    let tokens: Vec<usize> = found.iter().map(|output| output.choices[0].token_ids.len()).collect();
    assert_eq!(tokens, lengths.map(|length| length as usize + 1), "the end token included");
    let calls = source.calls.borrow();
    // In one place 10 and then 31 steps, in the other 4, 4, 4, 3 and 2.
    assert_eq!(calls.len(), 10 + 31, "{calls:?}");
    assert!(calls.iter().all(|call| call.len() <= 2 && call.iter().all(|&tokens| tokens == 1)));
    assert!(calls[..17].iter().all(|call| call.len() == 2), "no place stays empty while somebody waits: {calls:?}");
}

/// A script whose states count the tokens that are held.
struct Held {
    script: Script,
    now: Cell<usize>,
    most: Cell<usize>,
    started: Cell<usize>,
}

struct Counted<'h> {
    tokens: Vec<u32>,
    of: &'h Held,
}

impl Held {
    fn add(&self, tokens: usize) {
        self.now.set(self.now.get() + tokens);
        self.most.set(self.most.get().max(self.now.get()));
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.of.now.set(self.of.now.get() - self.tokens.len());
    }
}

impl<'h> LogitsSource for &'h Held {
    type State = Counted<'h>;

    fn vocab(&self) -> usize {
        self.script.vocab
    }

    fn input_vocab(&self) -> usize {
        self.script.vocab
    }

    fn start(&self, _: usize, encoder_ids: Option<&[u32]>) -> Result<Counted<'h>, Error> {
        self.started.set(self.started.get() + 1);
        match encoder_ids {
            Some(_) => Err(Error::Unsupported("no source here".into())),
            None => Ok(Counted { tokens: Vec::new(), of: self }),
        }
    }

    fn fork(&self, state: &Counted<'h>) -> Counted<'h> {
        self.add(state.tokens.len());
        Counted { tokens: state.tokens.clone(), of: self }
    }

    fn truncate(&self, state: &mut Counted<'h>, len: usize) {
        self.now.set(self.now.get() - state.tokens.len().saturating_sub(len));
        state.tokens.truncate(len);
    }

    fn feed(&self, feeds: &mut [Feed<'_, Counted<'h>>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        let mut plain: Vec<Vec<u32>> = feeds.iter().map(|feed| feed.state.tokens.clone()).collect();
        let mut inner = Vec::new();
        for (feed, state) in feeds.iter().zip(&mut plain) {
            inner.push(Feed { state, tokens: feed.tokens, rows_from: feed.rows_from });
        }
        self.script.feed(&mut inner, sink)?;
        for (feed, state) in feeds.iter_mut().zip(plain) {
            self.add(state.len() - feed.state.tokens.len());
            feed.state.tokens = state;
        }
        Ok(())
    }
}

fn held(script: Script) -> Held {
    Held { script, now: Cell::new(0), most: Cell::new(0), started: Cell::new(0) }
}

/// Requests without a limit of their own outgrow the bound: the youngest are put back, and begin anew with what they had.
#[test]
fn what_is_held_stays_within_the_bound() {
    let held = held(Script::new(4, |tokens| one_hot(4, 1 + tokens.len() as u32 % 2)));
    let around = Surroundings { context: Some(1000), chunk: 64, end_ids: vec![0], ..Surroundings::default() };
    let words = Words::new(&["a"; 4]);
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.sampling.seed) = (Some(300), Some(1));
    let prompts: Vec<Prompt> = (1..=12).map(|length| Prompt::tokens(vec![3; length])).collect();
    let limits = Limits { sequences: 64, tokens: 1200 };
    let found = together(&&held, &words, &around, &prompts, (&options, limits));
    assert!(held.most.get() <= limits.tokens, "{} tokens held", held.most.get());
    assert!(held.most.get() > limits.tokens / 2, "the room is used: {}", held.most.get());
    assert!(held.started.get() > prompts.len(), "some began anew");
    assert_eq!(held.now.get(), 0, "nothing is held at the end");
    for (output, prompt) in found.into_iter().zip(&prompts) {
        assert_eq!(output, alone(&&held, &words, &around, prompt, &options));
    }
}

/// What is wrong with one request does not touch the others.
#[test]
fn errors_and_cancelling_are_a_requests_own() {
    let held = held(Script::new(8, |tokens| {
        let mut row = one_hot(8, 1);
        row[2] = if tokens[0] == 5 && tokens.len() == 4 { f32::NAN } else { row[2] };
        row
    }));
    let source = &&held;
    let around = Surroundings { context: Some(20), chunk: 64, end_ids: vec![0], ..Surroundings::default() };
    let mut schedule = Schedule::new(source, None, &around, Limits::default());
    let options = Arc::new(GenerateOptions::default());
    let prompts = [
        Prompt::tokens([3]),
        Prompt::tokens([5, 5]),
        Prompt { token_ids: vec![3], encoder_ids: Some(vec![1]) },
        Prompt::tokens([4, 4, 4]),
    ];
    for (key, prompt) in prompts.into_iter().enumerate() {
        schedule.add(10 + key, prompt, options.clone()).expect("a request");
    }
    let refused = schedule.add(14, Prompt::tokens([9]), options.clone());
    assert!(matches!(refused, Err(Error::TokenId { id: 9, .. })));
    let mut ended = Vec::new();
    let mut tokens = 0;
    while !schedule.is_idle() {
        let step = schedule.step(&mut |key, event| match event {
            Event::Token { .. } if key == 13 && tokens == 2 => ControlFlow::Break(()),
            Event::Token { .. } if key == 13 => {
                tokens += 1;
                ControlFlow::Continue(())
            }
            Event::Token { .. } | Event::Prompt { .. } | Event::Step { .. } | Event::Finished { .. } => {
                ControlFlow::Continue(())
            }
        });
        ended.extend(step);
    }
    ended.sort_by_key(|(key, _)| *key);
    let [(10, Ok(whole)), (11, Err(nan)), (12, Err(unsupported)), (13, Ok(cancelled))] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(whole.choices[0].token_ids.len(), 19);
    assert!(matches!(nan, Error::NonFinite { position: 4, .. }), "{nan}");
    assert!(matches!(unsupported, Error::Unsupported(_)), "{unsupported}");
    assert_eq!((cancelled.choices[0].token_ids.len(), cancelled.choices[0].finish.reason()), (3, "cancelled"));
    let asked = (vec![Prompt::tokens([1]), Prompt::tokens([])], &*options, Limits::default());
    let error = generate_all(source, None, &around, asked, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, Error::Input { index: 1, .. }), "{error}");
}
