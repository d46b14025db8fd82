//! Answers that are spans of a given context, found by a span head.
//!
//! A context that is longer than the model reads is cut into parts that overlap; each part is asked by itself and the
//! best spans of all parts are the answers.

use super::ability::Task;
use super::pack::Watch;
use super::probabilities;
use super::reader::{Encoded, TaskModel};
use crate::error::Error;
use attend_nn::Nobody;
use attend_text::{EncodeOptions, Encoding, Truncation, TruncationStrategy};
use serde::Serialize;

/// What a caller chooses about answers.
#[derive(Debug, Clone, Copy)]
pub struct AnswerOptions {
    /// Answers to each question.
    pub top: usize,
    /// Most tokens of an answer.
    pub max_answer: usize,
    /// Most tokens of question and a part of the context together; None: 384, or what the model reads if that is less.
    pub max_length: Option<usize>,
    /// Tokens that neighbouring parts share; None: 128, or half a part if that is less.
    pub stride: Option<usize>,
    /// That the context holds no answer is a possible answer: an empty text.
    pub no_answer: bool,
    /// Answers begin and end with whole words.
    pub whole_words: bool,
}

impl Default for AnswerOptions {
    fn default() -> AnswerOptions {
        AnswerOptions { top: 1, max_answer: 15, max_length: None, stride: None, no_answer: false, whole_words: true }
    }
}

/// A span of the context.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub text: String,
    pub score: f32,
    /// First character of the context, counted in code points.
    pub start: usize,
    /// Behind the last character.
    pub end: usize,
}

/// A question and where to look.
#[derive(Debug, Clone, Copy)]
pub struct Question<'t> {
    pub question: &'t str,
    pub context: &'t str,
}

/// A model with a span head.
#[derive(Debug)]
pub struct Answerer<'m> {
    model: TaskModel<'m>,
    options: AnswerOptions,
    max_length: usize,
    stride: usize,
}

const MAX_LENGTH: usize = 384;
const STRIDE: usize = 128;

impl<'m> Answerer<'m> {
    /// # Errors
    /// A model without a span head, lengths that it has no positions for.
    pub fn new(model: TaskModel<'m>, options: AnswerOptions) -> Result<Answerer<'m>, Error> {
        Task::Answer.check(model.model.spec())?;
        let reads = model.limit().map_or(usize::MAX, |limit| limit.tokens);
        let max_length = match options.max_length {
            Some(asked) if asked > reads => return Err(Error::ContextTooLong { asked, model: reads }),
            Some(asked) => asked,
            None => MAX_LENGTH.min(reads),
        };
        let stride = options.stride.unwrap_or(STRIDE.min(max_length / 2));
        if stride >= max_length {
            return Err(Error::parameter(
                "doc_stride",
                stride,
                format!("less than the length of {max_length} is wanted"),
            ));
        }
        Ok(Answerer { model, options, max_length, stride })
    }

    /// The answers to each question, the best first.
    ///
    /// # Errors
    /// Empty questions or contexts, and questions that leave no room for a context; the error says which.
    pub fn answer(&self, questions: &[Question<'_>], watch: &mut Watch<'_>) -> Result<Vec<Vec<Answer>>, Error> {
        self.answers(questions, &self.encode(questions)?, watch)
    }

    /// The first half of [`Answerer::answer`], which another thread may do: the parts of each context, with the question that
    /// each is asked.
    ///
    /// # Errors
    /// As [`Answerer::answer`].
    pub fn encode(&self, questions: &[Question<'_>]) -> Result<Vec<(usize, Encoded)>, Error> {
        let mut parts: Vec<(usize, Encoded)> = Vec::new();
        for (index, question) in questions.iter().enumerate() {
            let encoded = self.parts(question).map_err(|source| source.of_input(index))?;
            parts.extend(encoded.into_iter().map(|encoding| (index, Encoded { encoding, cut: false })));
        }
        Ok(parts)
    }

    /// The second half.
    ///
    /// # Errors
    /// A model that cannot compute, and work that was cancelled.
    pub fn answers(
        &self,
        questions: &[Question<'_>],
        parts: &[(usize, Encoded)],
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Vec<Answer>>, Error> {
        let items: Vec<&Encoded> = parts.iter().map(|(_, item)| item).collect();
        let logits = self.model.each_input(&items, watch, &mut |_, rows| {
            let logits = self.model.computing().logits(rows, &mut Nobody)?;
            super::finite(&logits)?;
            Ok(logits)
        });
        let logits = logits?;
        let mut found: Vec<Found> =
            questions.iter().map(|_| Found { answers: Vec::new(), nothing: f32::MAX }).collect();
        for ((index, item), logits) in parts.iter().zip(&logits) {
            if let (Some(found), Some(question)) = (found.get_mut(*index), questions.get(*index)) {
                self.search(&item.encoding, logits, question.context, found);
            }
        }
        Ok(found.into_iter().map(|found| self.chosen(found)).collect())
    }

    /// The question with each part of its context.
    fn parts(&self, question: &Question<'_>) -> Result<Vec<Encoding>, Error> {
        let empty = |name, text: &str| match text.trim().is_empty() {
            true => Err(Error::parameter(name, "empty", "a text is wanted")),
            false => Ok(()),
        };
        empty("question", question.question)?;
        empty("context", question.context)?;
        let truncation = Truncation {
            max_length: self.max_length,
            stride: self.stride,
            strategy: TruncationStrategy::OnlySecond,
            left: false,
        };
        let options = EncodeOptions { add_special: true, parse_special: false };
        let tokenizer = self.model.tokenizer();
        Ok(tokenizer.encode_truncated(question.question, Some(question.context), options, truncation)?)
    }

    /// Adds the best spans of one part.
    fn search(&self, encoding: &Encoding, logits: &[f32], context: &str, found: &mut Found) {
        // Outside the context only the first token counts: it stands for "no answer".
        let inside: Vec<bool> = encoding.texts.iter().map(|text| *text == Some(1)).collect();
        let first =
            self.model.tokenizer().cls().is_some() && encoding.ids.first() == self.model.tokenizer().cls().as_ref();
        let side = |offset: usize| {
            let logit = |(index, inside): (usize, &bool)| match *inside || (first && index == 0) {
                true => logits.get(2 * index + offset).copied().unwrap_or(-1e4),
                false => -1e4,
            };
            probabilities(&inside.iter().enumerate().map(logit).collect::<Vec<f32>>())
        };
        let (starts, ends) = (side(0), side(1));
        let at = |probs: &[f32], index: usize| probs.get(index).copied().unwrap_or(0.0);
        found.nothing = found.nothing.min(at(&starts, 0) * at(&ends, 0));
        let mut spans = Vec::new();
        for start in (1..inside.len()).filter(|&index| inside[index]) {
            for end in (start..inside.len().min(start + self.options.max_answer)).take_while(|&index| inside[index]) {
                spans.push((at(&starts, start) * at(&ends, end), start, end));
            }
        }
        spans.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        // Spans that differ in tokens may be the same in words, so more are looked at than are wanted.
        spans.truncate(if self.options.whole_words { 2 * self.options.top + 10 } else { self.options.top });
        let characters: Vec<char> = context.chars().collect();
        for (score, start, end) in spans {
            let (start, end) = self.bounds(encoding, start, end);
            let text: String = characters.get(start..end).unwrap_or_default().iter().collect();
            let folded = text.to_lowercase();
            match found.answers.iter_mut().find(|answer| answer.text.to_lowercase() == folded) {
                Some(same) => same.score += score,
                None => found.answers.push(Answer { text, score, start, end }),
            }
        }
    }

    /// Characters of a span of tokens, widened to whole words where that is wanted.
    fn bounds(&self, encoding: &Encoding, start: usize, end: usize) -> (usize, usize) {
        let offset = |index: usize| encoding.offsets.get(index).copied().unwrap_or((0, 0));
        let word = |index: usize| encoding.words.get(index).copied().flatten();
        let exact = (offset(start).0, offset(end).1);
        let (true, Some(first), Some(last)) = (self.options.whole_words, word(start), word(end)) else { return exact };
        let of = |wanted: u32| {
            move |index: &usize| word(*index) == Some(wanted) && encoding.texts.get(*index) == Some(&Some(1))
        };
        let from = (0..encoding.len()).find(of(first)).map_or(exact.0, |index| offset(index).0);
        let to = (0..encoding.len()).rev().find(of(last)).map_or(exact.1, |index| offset(index).1);
        (from, to)
    }

    fn chosen(&self, found: Found) -> Vec<Answer> {
        let Found { mut answers, nothing } = found;
        if self.options.no_answer {
            answers.push(Answer { text: String::new(), score: nothing, start: 0, end: 0 });
        }
        answers.sort_by(|a, b| b.score.total_cmp(&a.score));
        answers.truncate(self.options.top);
        answers
    }
}

/// What the parts of one context gave.
struct Found {
    answers: Vec<Answer>,
    /// The least probability, over the parts, that there is no answer.
    nothing: f32,
}
