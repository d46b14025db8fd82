//! Steps that panic, fail, and lose their clients, with a trap in the place of a model.

use super::*;
use crate::host::queue::Queue;
use attend_engine::source::{Feed, RowSink};
use attend_engine::{Error, Finish, GenerateOptions, Limits, Prompt, Ready, Surroundings};
use std::sync::mpsc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Counts its tokens; panics, or fails, when it is fed a certain one.
struct Trap;

const PANIC: u32 = 7;
const FAIL: u32 = 8;

impl LogitsSource for Trap {
    type State = usize;

    fn vocab(&self) -> usize {
        10
    }

    fn input_vocab(&self) -> usize {
        10
    }

    fn start(&self, _: usize, _: Option<&[u32]>) -> Result<usize, Error> {
        Ok(0)
    }

    fn fork(&self, state: &usize) -> usize {
        *state
    }

    fn truncate(&self, state: &mut usize, len: usize) {
        *state = len;
    }

    fn feed(&self, feeds: &mut [Feed<'_, usize>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        for (index, feed) in feeds.iter_mut().enumerate() {
            for (at, &token) in feed.tokens.iter().enumerate() {
                assert!(token != PANIC, "the trap");
                if token == FAIL {
                    return Err(Error::DamagedAnswer);
                }
                *feed.state += 1;
                if at >= feed.rows_from {
                    let row: Vec<f32> = (0..10).map(|id| if id == *feed.state % 5 { 5.0 } else { 0.0 }).collect();
                    sink(index, at, &row)?;
                }
            }
        }
        Ok(())
    }
}

fn around() -> Surroundings {
    Surroundings { context: Some(100), chunk: 8, end_ids: Vec::new(), ..Surroundings::default() }
}

fn ready(prompt: &[u32], tokens: usize) -> Ready {
    let mut options = GenerateOptions::default();
    options.length.max_tokens = Some(tokens);
    Ready::new(&Trap, None, &around(), Prompt::tokens(prompt), Arc::new(options)).expect("in order")
}

/// Runs requests through a loop of their own, with room for so many at once; what was said to each.
fn run(requests: &[(&[u32], usize)], sequences: usize) -> (Vec<UnboundedReceiver<Said>>, Arc<Health>, ModelFigures) {
    let figures = crate::figures::Figures::default().of_model("trap");
    let health = Arc::new(Health::default());
    let queue = Queue::new(100, figures.waiting.clone());
    let around = around();
    let (sender, inbox) = mpsc::channel();
    let mut heard = Vec::new();
    for (prompt, tokens) in requests {
        let (to, from) = unbounded_channel();
        let place = queue.enter().map(Arc::new);
        let ticket = Ticket { came: Instant::now(), place, variant: None, lora: Vec::new() };
        let ready = vec![ready(prompt, *tokens)];
        assert!(sender.send(Prepared::Answers { ready, stream: true, enough: None, to, ticket }).is_ok());
        heard.push(from);
    }
    drop(sender);
    let limits = Limits { sequences, tokens: 1 << 20 };
    let schedule = Schedule::new(&Trap, None, &around, limits);
    Turns::new(Some(schedule), None, inbox, (figures.clone(), Arc::clone(&health))).run();
    (heard, health, figures)
}

fn last(from: &mut UnboundedReceiver<Said>) -> Said {
    let mut last = None;
    while let Ok(said) = from.try_recv() {
        last = Some(said);
    }
    last.expect("something was said")
}

#[test]
fn a_panic_fails_whoever_it_came_from_and_no_other() {
    for trap in [PANIC, FAIL] {
        let requests: [(&[u32], usize); 4] = [(&[1, 2], 20), (&[1, trap], 5), (&[1, 2, 3], 6), (&[4], 3)];
        for sequences in [2, 4] {
            let (mut heard, health, figures) = run(&requests, sequences);
            for (index, from) in heard.iter_mut().enumerate() {
                match last(from) {
                    Said::Failed(failure) if index == 1 => {
                        assert_eq!(failure.status.as_u16(), 500);
                        assert!(failure.detail.is_some());
                    }
                    Said::Done { output, .. } if index != 1 => {
                        assert_eq!(output.choices[0].token_ids.len(), requests[index].1);
                        assert_eq!(output.choices[0].finish, Finish::MaxTokens);
                    }
                    _ => panic!("{index} of {sequences} at once"),
                }
            }
            assert_eq!(health.trouble(), None, "the next request was answered");
            assert_eq!((figures.faults.get(), figures.running.get(), figures.waiting.get()), (1, 0, 0));
        }
    }
}

#[test]
fn one_panic_after_the_other_is_trouble() {
    let requests: [(&[u32], usize); 3] = [(&[PANIC], 5), (&[PANIC], 5), (&[PANIC], 5)];
    assert!(run(&requests, 1).1.trouble().is_some());
}

#[test]
fn who_left_is_forgotten() {
    let around = around();
    let requests: [(&[u32], usize); 2] = [(&[1], 50), (&[2], 50)];
    let (to, from) = unbounded_channel();
    drop(from);
    let (sender, inbox) = mpsc::channel();
    let figures = crate::figures::Figures::default().of_model("trap");
    for (prompt, tokens) in requests {
        let (ready, ticket) = (
            vec![ready(prompt, tokens)],
            Ticket { came: Instant::now(), place: None, variant: None, lora: Vec::new() },
        );
        assert!(sender.send(Prepared::Answers { ready, stream: true, enough: None, to: to.clone(), ticket }).is_ok());
    }
    drop(sender);
    let schedule = Schedule::new(&Trap, None, &around, Limits::default());
    Turns::new(Some(schedule), None, inbox, (figures.clone(), Arc::default())).run();
    assert_eq!(figures.generated_tokens.get(), 0);
}
