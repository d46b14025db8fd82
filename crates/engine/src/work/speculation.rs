//! Guesses of a request's next tokens: by its own text so far, or by a draft model.

use super::strand::{Strand, Wanted};
use super::{Answers, Part, Price, Room, Stage, Work, open};
use crate::error::Error;
use crate::schedule::Draft;
use crate::source::LogitsSource;

impl<T> Work<'_, T> {
    /// Lets every open choice decide whether to guess at this price; None: not in the next step.
    pub fn consider(&mut self, price: Option<Price>) {
        if let Answers::Choices(answers) = &mut self.answers {
            answers.iter_mut().filter(|answer| answer.open).for_each(|answer| answer.consider(&self.ready, price));
        }
    }

    /// Tokens that are guessed at present.
    pub fn guesses(&self) -> usize {
        match &self.answers {
            Answers::Choices(answers) => open(answers).map(|answer| answer.guess.count).sum(),
            Answers::Beams(_) | Answers::Found(_) => 0,
        }
    }

    /// Lets every open choice guess what follows its last token, from the text so far.
    pub fn look_up<S: LogitsSource<State = T>>(&mut self, source: &S, most: usize) {
        let (Answers::Choices(answers), Stage::Answers { strands, .. }) = (&mut self.answers, &self.stage) else {
            return;
        };
        for (answer, strand) in answers.iter_mut().filter(|answer| answer.open).zip(strands) {
            if strand.fed + 1 == answer.tokens.len() {
                answer.look_up(&self.ready, most.min(source.reach(&strand.state).saturating_sub(1)));
            }
        }
    }

    /// What the draft model is fed next so that it can guess one more token of a lone choice.
    ///
    /// # Errors
    /// A draft model that cannot begin.
    pub fn draft_part<S: LogitsSource<State = T>>(
        &mut self,
        (source, draft): (&S, &Draft<'_, S>),
        room: &mut Room,
        most: usize,
    ) -> Result<Option<Part<'_, T>>, Error> {
        let (Answers::Choices(answers), Stage::Answers { strands, draft: own, .. }) = (&self.answers, &mut self.stage)
        else {
            return Ok(None);
        };
        let ([answer], [strand]) = (answers.as_slice(), strands.as_slice()) else { return Ok(None) };
        let length = answer.tokens.len();
        let goes_on = answer.open && strand.fed + 1 + answer.guess.count == length;
        let most = most.min(source.reach(&strand.state).saturating_sub(1));
        if !goes_on || !answer.wants_draft(&self.ready, most) || draft.context.is_some_and(|most| length > most) {
            return Ok(None);
        }
        let prompt = &self.ready.prompt;
        let strand = match own {
            Some(strand) => strand,
            None => {
                own.insert(Strand::fed(draft.source.start(prompt.token_ids.len(), prompt.encoder_ids.as_deref())?, 0))
            }
        };
        if answer.guess.count > 0 && draft.source.reach(&strand.state) < length - strand.fed {
            return Ok(None);
        }
        Ok(room.part(strand, Wanted { guesses: 0, ..answer.wanted() }))
    }

    /// Takes the draft model's row, if there is one.
    pub fn take_guess<S: LogitsSource<State = T>>(&mut self, (source, draft): (&S, &S)) {
        if let (Answers::Choices(answers), Stage::Answers { draft: Some(strand), .. }) =
            (&mut self.answers, &mut self.stage)
            && let [answer] = answers.as_mut_slice()
        {
            if strand.fed + answer.guess.count <= answer.tokens.len() {
                // All that it has read is chosen.
                draft.pass(&mut strand.state);
            }
            if let Some(row) = strand.rows.pop() {
                answer.guess_from(&self.ready, row, source.vocab());
            }
        }
    }
}
