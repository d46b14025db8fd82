//! The past of a conversation: what was computed for an earlier turn is not computed again.
//!
//! A [`Recall`] stands between the generation loop and the model. It keeps, for the turns of one conversation, the
//! cached keys and values after the prompt and after the answer, and when the next prompt begins with one of those
//! token sequences, only the rest is fed. A request gets the same bits either way, because the answer does not depend on
//! how a sequence is cut into steps.

use attend_engine::Error;
use attend_engine::source::{Feed, LogitsSource, RowSink};
use attend_model::cost::Footprint;
use std::cell::RefCell;
use std::rc::Rc;

/// Snapshots that are kept; they share their blocks, so that each costs little more than the list of its tokens.
const SNAPSHOTS: usize = 64;

/// A source that remembers.
#[derive(Debug)]
pub struct Recall<'m, S: LogitsSource> {
    source: &'m S,
    /// Off where positions depend on the length of the whole prompt: an earlier turn's keys were then made with others.
    enabled: bool,
    snapshots: RefCell<Vec<Snapshot<S::State>>>,
    /// The sequence that was fed last, which the generation loop lets go.
    last: RefCell<Option<Shared<S::State>>>,
    /// Tokens of the last prompt that did not have to be computed.
    reused: RefCell<usize>,
}

#[derive(Debug)]
struct Snapshot<T> {
    tokens: Vec<u32>,
    state: T,
}

/// A sequence with its tokens.
#[derive(Debug)]
struct Past<T> {
    tokens: Vec<u32>,
    /// Computed for `tokens[..computed]`, and beyond that for nothing.
    state: T,
    computed: usize,
}

/// The state handed to the generation loop.
#[derive(Debug)]
pub struct Turn<T>(Shared<T>);

type Shared<T> = Rc<RefCell<Past<T>>>;

impl<'m, S: LogitsSource> Recall<'m, S> {
    pub fn new(source: &'m S, enabled: bool) -> Recall<'m, S> {
        Recall { source, enabled, snapshots: RefCell::default(), last: RefCell::default(), reused: RefCell::default() }
    }

    /// Keeps the past of the turn that has just ended.
    pub fn keep(&self) {
        let Some(last) = self.last.borrow_mut().take() else { return };
        let past = last.borrow();
        let tokens = past.tokens.get(..past.computed).unwrap_or_default().to_vec();
        self.remember(tokens, self.source.fork(&past.state));
    }

    /// Tokens of the last prompt that an earlier turn had computed.
    pub fn reused(&self) -> usize {
        *self.reused.borrow()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.snapshots.borrow_mut().clear();
        *self.last.borrow_mut() = None;
    }

    fn remember(&self, tokens: Vec<u32>, state: S::State) {
        if !self.enabled || tokens.is_empty() {
            return;
        }
        let mut snapshots = self.snapshots.borrow_mut();
        snapshots.retain(|snapshot| snapshot.tokens != tokens);
        if snapshots.len() == SNAPSHOTS {
            snapshots.remove(0);
        }
        snapshots.push(Snapshot { tokens, state });
    }

    /// The longest snapshot that `tokens` goes on from, with at least one token left to compute.
    fn longest(&self, tokens: &[u32]) -> Option<(usize, S::State)> {
        let snapshots = self.snapshots.borrow();
        let fits = |s: &&Snapshot<S::State>| s.tokens.len() < tokens.len() && tokens.starts_with(&s.tokens);
        let best = snapshots.iter().filter(fits).max_by_key(|s| s.tokens.len())?;
        Some((best.tokens.len(), self.source.fork(&best.state)))
    }

    /// Feeds what is not computed yet of a lone sequence; a prompt's last token goes by itself, so that the snapshot
    /// before it serves when the same prompt is answered again.
    fn feed_one(&self, feed: &mut Feed<'_, Turn<S::State>>, sink: &mut RowSink<'_>) -> Result<(), Error> {
        let first = feed.state.0.borrow().tokens.len();
        feed.state.0.borrow_mut().tokens.extend_from_slice(feed.tokens);
        // Rows that nobody wants are put off until the whole prompt is known, which may begin like a snapshot.
        if feed.rows_from == feed.tokens.len() {
            return Ok(());
        }
        let mut past = feed.state.0.borrow_mut();
        let wanted = first + feed.rows_from;
        if past.computed == 0 && self.enabled {
            let known = past.tokens.get(..=wanted).unwrap_or_default();
            if let Some((length, state)) = self.longest(known) {
                past.computed = length;
                past.state = state;
            }
            *self.reused.borrow_mut() = past.computed;
        }
        let Past { tokens, state, computed } = &mut *past;
        // Otherwise it is an answer that goes on, with the tokens that are guessed to follow.
        if wanted > *computed {
            for chunk in tokens.get(*computed..wanted).unwrap_or_default().chunks(CHUNK) {
                let feed = Feed { state: &mut *state, tokens: chunk, rows_from: chunk.len() };
                self.source.feed(&mut [feed], &mut |_, _, _| Ok(()))?;
                self.source.pass(state);
            }
            *computed = wanted;
            self.remember(tokens.get(..wanted).unwrap_or_default().to_vec(), self.source.fork(state));
        }
        let rest = tokens.get(*computed..).unwrap_or_default();
        let offset = *computed - first;
        let one = Feed { state, tokens: rest, rows_from: 0 };
        self.source.feed(&mut [one], &mut |index, token, row| sink(index, token + offset, row))?;
        *computed = tokens.len();
        drop(past);
        *self.last.borrow_mut() = Some(Rc::clone(&feed.state.0));
        Ok(())
    }
}

/// Tokens of a step.
const CHUNK: usize = 512;

impl<S: LogitsSource> LogitsSource for Recall<'_, S> {
    type State = Turn<S::State>;

    fn vocab(&self) -> usize {
        self.source.vocab()
    }

    fn input_vocab(&self) -> usize {
        self.source.input_vocab()
    }

    fn start(&self, prompt_len: usize, encoder_ids: Option<&[u32]>) -> Result<Self::State, Error> {
        let state = self.source.start(prompt_len, encoder_ids)?;
        *self.reused.borrow_mut() = 0;
        Ok(Turn(Rc::new(RefCell::new(Past { tokens: Vec::new(), state, computed: 0 }))))
    }

    fn fork(&self, state: &Self::State) -> Self::State {
        let past = state.0.borrow();
        let state = self.source.fork(&past.state);
        Turn(Rc::new(RefCell::new(Past { tokens: past.tokens.clone(), state, computed: past.computed })))
    }

    fn truncate(&self, state: &mut Self::State, len: usize) {
        let mut past = state.0.borrow_mut();
        past.tokens.truncate(len);
        if past.computed > len {
            past.computed = len;
            self.source.truncate(&mut past.state, len);
        }
    }

    /// Snapshots go on from where they were taken and nowhere before.
    fn pass(&self, state: &mut Self::State) {
        self.source.pass(&mut state.0.borrow_mut().state);
    }

    fn footprint(&self) -> Footprint {
        self.source.footprint()
    }

    fn reach(&self, state: &Self::State) -> usize {
        self.source.reach(&state.0.borrow().state)
    }

    fn feed(&self, feeds: &mut [Feed<'_, Self::State>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        for (index, feed) in feeds.iter_mut().enumerate() {
            self.feed_one(feed, &mut |_, token, row| sink(index, token, row))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows tell how many tokens came before; it counts what it had to compute.
    struct Counting(RefCell<usize>);

    /// Tokens, and how many of them are not to be taken back.
    #[derive(Clone, Default)]
    struct Tokens {
        ids: Vec<u32>,
        passed: usize,
    }

    impl LogitsSource for Counting {
        type State = Tokens;

        fn vocab(&self) -> usize {
            2
        }

        fn input_vocab(&self) -> usize {
            1000
        }

        fn start(&self, _: usize, _: Option<&[u32]>) -> Result<Tokens, Error> {
            Ok(Tokens::default())
        }

        fn fork(&self, state: &Tokens) -> Tokens {
            state.clone()
        }

        fn truncate(&self, state: &mut Tokens, len: usize) {
            assert!(len >= state.passed, "{len} of {} tokens", state.passed);
            state.ids.truncate(len);
        }

        fn pass(&self, state: &mut Tokens) {
            state.passed = state.ids.len();
        }

        fn feed(&self, feeds: &mut [Feed<'_, Tokens>], sink: &mut RowSink<'_>) -> Result<(), Error> {
            for (index, feed) in feeds.iter_mut().enumerate() {
                for (at, &token) in feed.tokens.iter().enumerate() {
                    let ids = &mut feed.state.ids;
                    ids.push(token);
                    *self.0.borrow_mut() += 1;
                    if at >= feed.rows_from {
                        sink(index, at, &[ids.len() as f32, ids.iter().sum::<u32>() as f32])?;
                    }
                }
            }
            Ok(())
        }
    }

    /// Feeds a prompt in two chunks and two tokens of an answer, each with a guess that is taken back; returns the rows.
    fn turn(recall: &Recall<'_, Counting>, prompt: &[u32], answer: [u32; 2]) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        let mut state = recall.start(prompt.len(), None).expect("starts");
        let (a, b) = prompt.split_at(prompt.len() / 2);
        let mut take = |_: usize, _: usize, row: &[f32]| {
            rows.push(row.to_vec());
            Ok(())
        };
        let feed = |state: &mut Turn<Tokens>, tokens: &[u32], rows_from: usize, take: &mut RowSink<'_>| {
            recall.feed(&mut [Feed { state, tokens, rows_from }], take).expect("feeds");
        };
        feed(&mut state, a, a.len(), &mut take);
        recall.pass(&mut state);
        feed(&mut state, b, b.len() - 1, &mut take);
        for (index, token) in answer.into_iter().enumerate() {
            recall.pass(&mut state);
            feed(&mut state, &[token, 77], 0, &mut take);
            recall.truncate(&mut state, prompt.len() + index + 1);
        }
        drop(state);
        recall.keep();
        rows
    }

    #[test]
    fn only_what_is_new_is_computed_and_the_rows_are_the_same() {
        let source = Counting(RefCell::new(0));
        let recall = Recall::new(&source, true);
        let plain = Counting(RefCell::new(0));
        let none = Recall::new(&plain, false);
        let turns: [(&[u32], usize); 4] = [
            (&[1, 2, 3, 4], 0),
            // Goes on from the first answer.
            (&[1, 2, 3, 4, 8, 9, 5, 6], 6),
            // The first prompt again, for another answer.
            (&[1, 2, 3, 4], 3),
            // Something else.
            (&[7, 7, 7], 0),
        ];
        for (prompt, reused) in turns {
            let before = *source.0.borrow();
            let rows = turn(&recall, prompt, [8, 9]);
            assert_eq!(rows, turn(&none, prompt, [8, 9]));
            assert_eq!(recall.reused(), reused, "{prompt:?}");
            assert_eq!(*source.0.borrow() - before, prompt.len() - reused + 4);
            assert_eq!(none.reused(), 0);
        }
        recall.clear();
        turn(&recall, &[1, 2, 3, 4], [8, 9]);
        assert_eq!(recall.reused(), 0);
    }
}
