//! Steps that panic: the request at whose tokens they do ends with that error, and no other notices, however it answers and
//! however little room there is.

use crate::common::{Script, Words};
use crate::support::{alone, bounds, mixed, timeless, ways};
use attend_engine::source::{Feed, LogitsSource, RowSink};
use attend_engine::{Error, Output, Prompt, Schedule, Surroundings};
use attend_testkit::golden::Random;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;

/// Panics at the sequences that begin with a certain token once they are so long, before it has fed half of a step or after.
struct Trap {
    script: Script,
    length: usize,
    late: bool,
}

const CURSED: u32 = 6;

impl Trap {
    fn check(&self, feeds: &[Feed<'_, Vec<u32>>]) {
        let caught = |feed: &Feed<'_, Vec<u32>>| {
            let first = feed.state.first().or(feed.tokens.first());
            first == Some(&CURSED) && feed.state.len() + feed.tokens.len() >= self.length
        };
        if feeds.iter().any(caught) {
            resume_unwind(Box::new("the trap"));
        }
    }
}

impl LogitsSource for Trap {
    type State = Vec<u32>;

    fn vocab(&self) -> usize {
        self.script.vocab
    }

    fn input_vocab(&self) -> usize {
        self.script.vocab
    }

    fn start(&self, length: usize, source: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        self.script.start(length, source)
    }

    fn fork(&self, state: &Vec<u32>) -> Vec<u32> {
        state.clone()
    }

    fn truncate(&self, state: &mut Vec<u32>, len: usize) {
        state.truncate(len);
    }

    fn feed(&self, feeds: &mut [Feed<'_, Vec<u32>>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        if !self.late {
            self.check(feeds);
            return self.script.feed(feeds, sink);
        }
        let half = feeds.len() / 2;
        let (first, second) = feeds.split_at_mut(half);
        self.check(second);
        self.script.feed(first, sink)?;
        self.check(first);
        self.script.feed(second, &mut |feed, token, row| sink(half + feed, token, row))
    }
}

#[test]
fn whoever_makes_a_step_panic_fails_alone() {
    let words = Words::new(&["", "a", "b", "c", "d", "ca", "e"]);
    let mut random = Random(9);
    let prompts: Vec<Prompt> = (0..13)
        .map(|index| {
            let first = if index % 5 == 3 { CURSED } else { random.below(6) as u32 };
            let rest = (0..random.below(70)).map(|_| random.below(7) as u32);
            Prompt::tokens(std::iter::once(first).chain(rest).collect::<Vec<_>>())
        })
        .collect();
    let around = Surroundings { context: Some(200), chunk: 13, end_ids: vec![0], ..Surroundings::default() };
    let (mut failed, mut survived) = (0, 0);
    for (way, options) in ways() {
        let plain = mixed(7);
        let expected: Vec<Output> =
            prompts.iter().map(|prompt| alone(&plain, &words, &around, prompt, &options)).collect();
        for (length, late) in [(0, false), (75, false), (80, true)] {
            for limits in bounds() {
                let trap = Trap { script: mixed(7), length, late };
                let mut schedule = Schedule::new(&trap, Some(&words), &around, limits);
                for (key, prompt) in prompts.iter().enumerate() {
                    schedule.add(key, prompt.clone(), Arc::new(options.clone())).expect("a request");
                }
                let mut ended = Vec::new();
                while !schedule.is_idle() {
                    ended.extend(schedule.step(&mut |_, _| ControlFlow::Continue(())));
                }
                assert_eq!(ended.len(), prompts.len());
                for (key, output) in ended {
                    let what = format!("{way}, {key}, at {length} {late}, {limits:?}");
                    let cursed = prompts[key].token_ids[0] == CURSED;
                    match output {
                        // How often it guessed depends on the company.
                        Ok(output) => {
                            let (found, expected) = (timeless(output), expected[key].clone());
                            let guesses = expected.guesses;
                            assert_eq!(Output { guesses, ..found }, expected, "{what}");
                            survived += 1;
                        }
                        Err(error) => {
                            assert!(cursed && matches!(error, Error::Panicked(_)), "{what}: {error}");
                            assert_eq!(error.to_string(), "a step panicked: the trap", "{what}");
                            failed += 1;
                        }
                    }
                }
                assert_eq!(schedule.load().tokens, 0, "nothing is held");
            }
        }
    }
    assert!(failed > 50 && survived > failed, "{failed} failed, {survived} did not");
}
