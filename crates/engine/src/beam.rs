//! The bookkeeping of beam search, which knows only scores. The request that feeds it is `work::beams`.
//!
//! The rules are those of Hugging Face transformers 5, so that the same settings give the same sequences:
//! - each step looks at the best `max(2, 1 + end tokens) * beams` continuations of all beams;
//! - only the best `beams` of them may finish, those that do not finish go on;
//! - a finished hypothesis has its log-probability divided by (generated tokens, end token included)^`length_penalty`;
//! - at the maximum length everything alive counts as finished;
//! - [`EarlyStopping`] says when open hypotheses are given up.

use crate::options::{Beam, EarlyStopping};
use std::cmp::Ordering;

/// Stands for "not to be chosen" in sums of log-probabilities. Finite, as in the reference: several may add up, and their
/// order still counts.
const NEVER: f32 = -1e9;

/// A sequence in the search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hypothesis {
    /// The generated tokens.
    pub tokens: Vec<u32>,
    /// Open: the sum of log-probabilities. Finished: that sum over the length penalty.
    pub score: f32,
    pub finished: bool,
}

/// A continuation of an open hypothesis.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    parent: usize,
    token: u32,
    score: f32,
    /// It ends here.
    ends: bool,
}

/// The state of a search. Pure bookkeeping: rows of processed log-probabilities in, parents of the next beams out.
#[derive(Debug, Clone)]
pub struct Search {
    settings: Beam,
    end_ids: Vec<u32>,
    max_tokens: usize,
    /// Always `beams` of them, best first.
    open: Vec<Hypothesis>,
    /// Always `beams` places, best first; those without a hypothesis have the score [`NEVER`].
    finished: Vec<Hypothesis>,
    /// An open hypothesis may still enter the finished ones.
    improvable: bool,
    done: bool,
}

impl Search {
    /// `end_ids` end a hypothesis; `max_tokens` (at least 1) is where all end.
    pub fn new(settings: &Beam, end_ids: Vec<u32>, max_tokens: usize) -> Search {
        let beams = settings.num_beams.max(1);
        // All beams begin as the same sequence; only the first may be continued, or all would stay the same.
        let start = |index: usize| Hypothesis { score: if index == 0 { 0.0 } else { NEVER }, ..Hypothesis::default() };
        let empty = Hypothesis { score: NEVER, ..Hypothesis::default() };
        Search {
            settings: Beam { num_beams: beams, ..settings.clone() },
            end_ids,
            max_tokens,
            open: (0..beams).map(start).collect(),
            finished: vec![empty; beams],
            improvable: true,
            done: false,
        }
    }

    pub fn open(&self) -> &[Hypothesis] {
        &self.open
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes a row of log-probabilities for each open hypothesis (`-inf`: forbidden) and returns, for each of the new open
    /// ones, the index of the one it continues.
    pub fn advance(&mut self, rows: &[&[f32]]) -> Vec<usize> {
        let candidates = self.candidates(rows);
        let generated = 1 + self.open.first().map_or(0, |first| first.tokens.len());
        let next = self.next_open(&candidates);
        self.enter_finished(&candidates, generated);
        let extend = |candidate: &Candidate| {
            let mut tokens = self.open.get(candidate.parent).map_or_else(Vec::new, |parent| parent.tokens.clone());
            tokens.push(candidate.token);
            Hypothesis { tokens, score: candidate.score, finished: false }
        };
        self.open = next.iter().map(extend).collect();
        self.improvable = self.improvable && self.may_improve(generated);
        let full = self.finished.iter().all(|hypothesis| hypothesis.finished);
        let nothing_goes_on = candidates.iter().all(|candidate| candidate.ends);
        self.done =
            !self.improvable || (full && self.settings.early_stopping == EarlyStopping::First) || nothing_goes_on;
        next.iter().map(|candidate| candidate.parent).collect()
    }

    /// The best continuations of all beams, best first, of equal ones the first beam's lowest id first.
    fn candidates(&self, rows: &[&[f32]]) -> Vec<Candidate> {
        let beams = self.settings.num_beams;
        let keep = beams * (1 + self.end_ids.len()).max(2);
        let last_step = self.open.first().map_or(0, |first| first.tokens.len()) + 1 >= self.max_tokens;
        let mut all = Vec::new();
        for (parent, (hypothesis, row)) in self.open.iter().zip(rows).enumerate() {
            let mut ids: Vec<u32> = (0..row.len() as u32).collect();
            let better = |a: &u32, b: &u32| descending(row[*a as usize], row[*b as usize]).then(a.cmp(b));
            if keep < ids.len() {
                ids.select_nth_unstable_by(keep, better);
                ids.truncate(keep);
            }
            ids.sort_unstable_by(better);
            all.extend(ids.into_iter().map(|token| Candidate {
                parent,
                token,
                score: hypothesis.score + row[token as usize],
                ends: last_step || self.end_ids.contains(&token),
            }));
        }
        all.sort_by(|a, b| descending(a.score, b.score));
        all.truncate(keep);
        all
    }

    /// The best `beams` candidates, those that end last.
    fn next_open(&self, candidates: &[Candidate]) -> Vec<Candidate> {
        let lower = |candidate: &Candidate| Candidate {
            score: candidate.score + if candidate.ends { NEVER } else { 0.0 },
            ..*candidate
        };
        let mut next: Vec<Candidate> = candidates.iter().map(lower).collect();
        next.sort_by(|a, b| descending(a.score, b.score));
        next.truncate(self.settings.num_beams);
        next
    }

    /// Lets the candidates that end compete with the finished hypotheses.
    fn enter_finished(&mut self, candidates: &[Candidate], generated: usize) {
        let full = self.finished.iter().all(|hypothesis| hypothesis.finished);
        let closed = (full && self.settings.early_stopping == EarlyStopping::First) || !self.improvable;
        if closed {
            return;
        }
        let divisor = self.divisor(generated);
        for candidate in candidates.iter().take(self.settings.num_beams).filter(|candidate| candidate.ends) {
            let Some(parent) = self.open.get(candidate.parent) else { continue };
            let tokens = [parent.tokens.as_slice(), &[candidate.token]].concat();
            let score = candidate.score / divisor;
            self.finished.push(Hypothesis { tokens, score, finished: true });
        }
        self.finished.sort_by(|a, b| descending(a.score, b.score));
        self.finished.truncate(self.settings.num_beams);
    }

    /// Whether the best open hypothesis could still be better than a finished one.
    fn may_improve(&self, generated: usize) -> bool {
        let at_the_end = self.settings.early_stopping == EarlyStopping::Never && self.settings.length_penalty > 0.0;
        let length = if at_the_end { self.max_tokens } else { generated };
        let best = self.open.first().map_or(NEVER, |first| first.score) / self.divisor(length);
        let worst = self.finished.iter().map(|hypothesis| hypothesis.score).fold(f32::INFINITY, f32::min);
        self.finished.iter().any(|hypothesis| best > if hypothesis.finished { worst } else { NEVER })
    }

    fn divisor(&self, length: usize) -> f32 {
        (length as f64).powf(f64::from(self.settings.length_penalty)) as f32
    }

    /// The best hypotheses. When the search was broken off, open ones follow the finished ones, scored as if they ended here.
    pub fn results(&self) -> Vec<Hypothesis> {
        let mut results: Vec<Hypothesis> = self.finished.iter().filter(|h| h.finished).cloned().collect();
        if !self.done {
            let scored =
                |open: &Hypothesis| Hypothesis { score: open.score / self.divisor(open.tokens.len()), ..open.clone() };
            results.extend(self.open.iter().filter(|open| open.score > NEVER && !open.tokens.is_empty()).map(scored));
        }
        results.truncate(self.settings.num_return_sequences);
        results
    }
}

fn descending(a: f32, b: f32) -> Ordering {
    b.total_cmp(&a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beam(num_beams: usize, early_stopping: EarlyStopping, length_penalty: f32) -> Beam {
        Beam { num_beams, num_return_sequences: num_beams, length_penalty, early_stopping }
    }

    /// Runs a search over a fixed table `[previous token][next token]` of probabilities; starts as after token 0.
    fn run(settings: &Beam, end: u32, max_tokens: usize, table: &[Vec<f32>]) -> (Vec<Hypothesis>, usize) {
        let logs: Vec<Vec<f32>> = table.iter().map(|row| row.iter().map(|p| p.ln()).collect()).collect();
        let mut search = Search::new(settings, vec![end], max_tokens);
        let mut steps = 0;
        while !search.is_done() {
            let rows: Vec<&[f32]> =
                search.open().iter().map(|h| logs[h.tokens.last().map_or(0, |&t| t as usize)].as_slice()).collect();
            search.advance(&rows);
            steps += 1;
        }
        (search.results(), steps)
    }

    /// Every sequence of the table scored outright.
    fn exhaustive(penalty: f32, end: u32, max_tokens: usize, table: &[Vec<f32>]) -> Vec<(f32, Vec<u32>)> {
        let mut open = vec![(0.0f64, Vec::new())];
        let mut all = Vec::new();
        for length in 1..=max_tokens {
            let mut next = Vec::new();
            for (score, tokens) in &open {
                let row = &table[tokens.last().map_or(0, |&t: &u32| t as usize)];
                for (id, &p) in row.iter().enumerate() {
                    let entry = (score + f64::from(p).ln(), [tokens.as_slice(), &[id as u32]].concat());
                    if id as u32 == end || length == max_tokens {
                        all.push(((entry.0 / (length as f64).powf(f64::from(penalty))) as f32, entry.1));
                    } else {
                        next.push(entry);
                    }
                }
            }
            open = next;
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all
    }

    fn table() -> Vec<Vec<f32>> {
        vec![vec![0.1, 0.5, 0.3, 0.1], vec![0.4, 0.15, 0.15, 0.3], vec![0.05, 0.35, 0.1, 0.5], vec![0.25; 4]]
    }

    /// With as many beams as there are sequences, beam search is the search of all of them.
    #[test]
    fn enough_beams_find_the_best_sequences() {
        for penalty in [0.0, 0.6, 1.0, 2.0] {
            let (found, _) = run(&beam(64, EarlyStopping::Never, penalty), 3, 4, &table());
            let all = exhaustive(penalty, 3, 4, &table());
            for (found, (score, tokens)) in found.iter().zip(&all).take(20) {
                assert!((found.score - score).abs() < 1e-5, "{penalty} {found:?} {score} {tokens:?}");
            }
            assert_eq!(found[0].tokens, all[0].1, "{penalty}");
        }
    }

    #[test]
    fn one_beam_of_the_bookkeeping_is_greedy() {
        let (found, _) = run(&beam(1, EarlyStopping::First, 1.0), 3, 5, &table());
        // 0 -> 1 -> 0 -> 1 ...: the end token 3 is never the best one.
        assert_eq!(found[0].tokens, [1, 0, 1, 0, 1]);
    }

    #[test]
    fn early_stopping_decides_when_to_give_up() {
        let table = vec![vec![0.0, 0.55, 0.45], vec![0.0, 0.9, 0.1], vec![1.0, 0.0, 0.0]];
        let steps = |early| run(&beam(2, early, 1.0), 2, 30, &table).1;
        assert!(steps(EarlyStopping::First) <= steps(EarlyStopping::Heuristic));
        assert_eq!(
            steps(EarlyStopping::Never),
            30,
            "a long sequence of 0.9 beats all short ones under a length penalty"
        );
    }

    #[test]
    fn forbidden_continuations_do_not_hide_the_rest() {
        let never = f32::NEG_INFINITY;
        let mut search = Search::new(&beam(3, EarlyStopping::Heuristic, 1.0), vec![0], 4);
        let forced: &[f32] = &[never, 0.0, never];
        search.advance(&[forced; 3]);
        assert_eq!(search.open()[0], Hypothesis { tokens: vec![1], ..Hypothesis::default() });
        let row: &[f32] = &[-3.0, -1.0, -2.0];
        assert_eq!(search.advance(&[row; 3])[..2], [0, 0]);
        assert_eq!(search.open()[0].tokens, [1, 1]);
        assert_eq!(search.open()[1].tokens, [1, 2]);
    }
}
