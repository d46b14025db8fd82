//! What a request makes of the rows of a step: its prompt ends and branches, its choices and beams go on, its answer is complete.

use super::strand::Strand;
use super::{Answers, Around, Root, Stage, Work, beams};
use crate::error::Error;
use crate::generate::Handler;
use crate::logprobs::Distribution;
use crate::output::{Event, Finish};
use crate::source::LogitsSource;
use std::time::Instant;

impl<T> Work<'_, T> {
    /// Takes in the rows of the last step and goes on. `true`: the answer is complete.
    ///
    /// # Errors
    /// Rows that are not finite, and rules that leave no token.
    pub fn advance<S: LogitsSource<State = T>>(
        &mut self,
        around: Around<'_, S>,
        on: &mut Handler<'_>,
    ) -> Result<bool, Error> {
        if let Stage::Prompt(strand) = &mut self.stage {
            strand.check()?;
            let (done, total) = (strand.fed, self.ready.prompt.token_ids.len());
            if self.read.is_none() && on(Event::Prompt { done, total }).is_break() {
                self.cancel();
                return Ok(true);
            }
            if done < total {
                if self.ready.passes() {
                    strand.pass(around, self.ready.past(&self.ready.prompt.token_ids[..done]));
                }
                return Ok(false);
            }
            self.finish_prompt(around)?;
        }
        match &self.answers {
            Answers::Choices(_) => self.choose(around, on),
            Answers::Beams(_) => self.search(around.source, on),
            Answers::Found(_) => self.collect(around.source, on),
        }
    }

    /// The prompt has been read: its sequences begin, or go on where they had been put back.
    fn finish_prompt<S: LogitsSource<State = T>>(&mut self, around: Around<'_, S>) -> Result<(), Error> {
        let Stage::Prompt(mut strand) = std::mem::replace(&mut self.stage, Stage::Nothing) else { return Ok(()) };
        if let Some(prefixes) = around.prefixes {
            prefixes.keep(&strand.state, self.ready.past(&self.ready.prompt.token_ids));
        }
        around.source.pass(&mut strand.state);
        if self.read.is_none() {
            self.read = Some(Instant::now());
            let scores = strand.scores.into_iter().map(Some);
            let wanted = self.ready.options.report.prompt_logprobs;
            self.prompt_logprobs = wanted.map(|_| std::iter::once(None).chain(scores).collect());
        }
        self.branch(around.source, Root { state: strand.state, row: strand.rows.pop().unwrap_or_default() })
    }

    /// A strand for each sequence, with a fork of the prompt's state.
    fn branch<S: LogitsSource<State = T>>(&mut self, source: &S, root: Root<T>) -> Result<(), Error> {
        let lists = self.answers.lists();
        let mut strands = Vec::with_capacity(lists.len());
        let keep = self.keeps_root();
        let forks = if keep { lists.len() } else { lists.len().saturating_sub(1) };
        let mut states: Vec<T> = (0..forks).map(|_| source.fork(&root.state)).collect();
        let Root { state, row } = root;
        let root = if keep {
            Some(Root { state, row: row.clone() })
        } else {
            states.push(state);
            None
        };
        let prompt = self.ready.prompt.token_ids.len();
        for (list, state) in lists.into_iter().zip(states) {
            // The list of a choice has the prompt too.
            let mut strand = match &self.answers {
                Answers::Choices(_) => Strand::fed(state, prompt),
                Answers::Beams(_) | Answers::Found(_) => Strand::fed(state, 0),
            };
            match (&self.answers, list.first()) {
                (Answers::Choices(_) | Answers::Beams(_), None) => strand.rows.push(row.clone()),
                (Answers::Choices(_) | Answers::Beams(_), Some(_)) | (Answers::Found(_), None) => {}
                (Answers::Found(_), Some(&id)) => {
                    let distribution = Distribution::new(&row, prompt)?;
                    strand.scores.push(distribution.of(id, self.ready.options.report.logprobs.unwrap_or(0)));
                }
            }
            strands.push(strand);
        }
        self.stage = Stage::Answers { strands, draft: None, root };
        Ok(())
    }

    /// Every open choice that has its rows draws from them; those that end give up their state. One whose mask is not there
    /// keeps its rows for a later step.
    fn choose<S: LogitsSource<State = T>>(
        &mut self,
        around: Around<'_, S>,
        on: &mut Handler<'_>,
    ) -> Result<bool, Error> {
        let (Answers::Choices(answers), Stage::Answers { strands, draft, .. }) = (&mut self.answers, &mut self.stage)
        else {
            return Ok(false);
        };
        let mut cancelled = false;
        let mut open = Vec::with_capacity(strands.len());
        for (answer, mut strand) in answers.iter_mut().filter(|answer| answer.open).zip(std::mem::take(strands)) {
            if !cancelled && !strand.rows.is_empty() && answer.is_ready() {
                let rows = std::mem::take(&mut strand.rows);
                cancelled = answer.advance(&self.ready, (rows, around.beside), on)?.is_break();
                // All but the last token stay fed; wrong guesses do not.
                let fed = answer.tokens.len() - 1;
                strand.keep(around.source, fed);
                if let (Some(draft), Some(source)) = (draft.as_mut(), around.draft) {
                    draft.keep(source, fed);
                    source.pass(&mut draft.state);
                }
            }
            if answer.open && !cancelled {
                // Where rows are left there are guesses among what is fed.
                if self.ready.passes() && strand.rows.is_empty() {
                    let fed = strand.fed;
                    strand.pass(around, self.ready.past(&answer.tokens[..fed]));
                }
                open.push(strand);
            } else if let Some(prefixes) = around.prefixes {
                // The next turn of a conversation begins with it.
                prefixes.keep(&strand.state, self.ready.past(&answer.tokens[..strand.fed]));
            }
        }
        *strands = open;
        let done = cancelled || strands.is_empty();
        if cancelled {
            self.cancel();
        }
        Ok(done)
    }

    /// Once every open hypothesis has its row, the search takes a step.
    fn search<S: LogitsSource<State = T>>(&mut self, source: &S, on: &mut Handler<'_>) -> Result<bool, Error> {
        let (Answers::Beams(search), Stage::Answers { strands, root, .. }) = (&mut self.answers, &mut self.stage)
        else {
            return Ok(false);
        };
        strands.iter_mut().for_each(|strand| source.pass(&mut strand.state));
        if strands.iter().any(|strand| strand.rows.is_empty()) {
            return Ok(false);
        }
        let (states, parents) = beams::advance(&self.ready, search, std::mem::take(strands))?;
        let done = search.open().first().map_or(0, |first| first.tokens.len());
        if !search.is_done() && on(Event::Step { done }).is_continue() {
            *strands = beams::reorder(source, states, &parents);
            return Ok(false);
        }
        let root = root.take();
        self.answers = Answers::Found(beams::choices(&self.ready, self.vocabulary, search));
        match root {
            Some(root) => self.branch(source, root)?,
            None => self.stage = Stage::Nothing,
        }
        self.collect(source, on)
    }

    /// The found sequences are complete when each has been read to its last token but one.
    fn collect<S: LogitsSource<State = T>>(&mut self, source: &S, on: &mut Handler<'_>) -> Result<bool, Error> {
        let Answers::Found(choices) = &mut self.answers else { return Ok(false) };
        if let Stage::Answers { strands, .. } = &mut self.stage {
            strands.iter_mut().try_for_each(Strand::check)?;
            strands.iter_mut().for_each(|strand| source.pass(&mut strand.state));
            let mut both = strands.iter().zip(choices.iter());
            if both.any(|(strand, choice)| strand.scores.len() < choice.token_ids.len()) {
                return Ok(false);
            }
            for (strand, choice) in strands.iter_mut().zip(choices.iter_mut()) {
                choice.logprobs = std::mem::take(&mut strand.scores);
            }
        }
        for choice in choices {
            // The work is over: whether the handler would go on no longer matters.
            let _ = on(Event::Finished { choice: choice.index, text: &choice.text, finish: &choice.finish });
        }
        Ok(true)
    }

    /// The handler ended the work: what had been held back is still part of what was produced.
    fn cancel(&mut self) {
        match &mut self.answers {
            Answers::Choices(answers) => {
                for answer in answers.iter_mut().filter(|answer| answer.open) {
                    answer.close(Finish::Cancelled, &self.ready);
                }
            }
            Answers::Beams(search) => {
                self.answers = Answers::Found(beams::choices(&self.ready, self.vocabulary, search));
            }
            Answers::Found(_) => {}
        }
    }
}
