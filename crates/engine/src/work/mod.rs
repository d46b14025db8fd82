//! One request on its way from prompt to answer: what it wants fed next, and what it makes of the rows that come back.
//!
//! A [`Work`] runs nothing. Whoever owns it (a [`Schedule`](crate::schedule::Schedule)) begins it with a state, puts its
//! [`Work::parts`] into a step beside those of other requests, and lets it [`Work::advance`]. It can be put back at any time:
//! its states are dropped, and what it has generated is fed again when it begins anew. Neither that nor the company changes
//! its answer, because a row of logits depends on the sequence alone.

mod advance;
mod beams;
mod choice;
mod guess;
mod speculation;
mod strand;

use crate::beam::Search;
use crate::constrain::Beside;
use crate::logprobs::TokenLogprob;
use crate::output::{Choice, Guesses, Output, Timings, Usage};
use crate::prefix::Prefixes;
use crate::request::Ready;
use crate::source::{LogitsSource, Start};
use crate::vocabulary::Vocabulary;
use choice::Answer;
pub(crate) use guess::Price;
use std::time::Instant;
pub(crate) use strand::{Part, Room};
use strand::{Strand, Wanted};

/// What a request is worked on with.
pub(crate) struct Around<'a, S: LogitsSource> {
    pub source: &'a S,
    /// The draft model's.
    pub draft: Option<&'a S>,
    /// Where pasts are kept for later requests.
    pub prefixes: Option<&'a (dyn Prefixes<S::State> + 'a)>,
    /// Where masks are made that take long.
    pub beside: &'a Beside,
}

impl<S: LogitsSource> Clone for Around<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: LogitsSource> Copy for Around<'_, S> {}

/// A request in progress, with states of type `T`.
pub(crate) struct Work<'v, T> {
    ready: Ready,
    vocabulary: Option<&'v dyn Vocabulary>,
    answers: Answers<'v>,
    stage: Stage<T>,
    prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    /// Tokens of the prompt that were held already when it began.
    cached: usize,
    begun: Option<Instant>,
    /// When the prompt had been read for the first time.
    read: Option<Instant>,
}

/// What is being made.
enum Answers<'v> {
    Choices(Vec<Answer<'v>>),
    Beams(Search),
    /// Sequences that a search has found, whose log-probabilities are read off in one more pass: carrying them along for
    /// every candidate would cost more.
    Found(Vec<Choice>),
}

/// What is held.
enum Stage<T> {
    Nothing,
    Prompt(Strand<T>),
    Answers {
        /// One for each sequence that is open, in their order.
        strands: Vec<Strand<T>>,
        /// The draft model's, where a lone choice has one.
        draft: Option<Strand<T>>,
        /// Where they branched off, as long as more may do so.
        root: Option<Root<T>>,
    },
}

/// A read prompt.
struct Root<T> {
    state: T,
    row: Vec<f32>,
}

impl<'v, T> Work<'v, T> {
    pub fn new(mut ready: Ready, vocabulary: Option<&'v dyn Vocabulary>) -> Work<'v, T> {
        let answers = match (ready.max_tokens, ready.options.beam.num_beams > 1) {
            (0, _) => Answers::Choices(Vec::new()),
            (_, true) => Answers::Beams(beams::begin(&ready)),
            (_, false) => {
                let mut matchers = std::mem::take(&mut ready.matchers).into_iter();
                let choice = |index| Answer::new(index, &ready, vocabulary, matchers.next());
                Answers::Choices((0..ready.options.length.n).map(choice).collect())
            }
        };
        Work {
            ready,
            vocabulary,
            answers,
            stage: Stage::Nothing,
            prompt_logprobs: None,
            cached: 0,
            begun: None,
            read: None,
        }
    }

    /// How the first state must be started.
    pub fn start(&self) -> Start<'_> {
        Start {
            prompt_len: self.ready.prompt.token_ids.len(),
            encoder_ids: self.ready.prompt.encoder_ids.as_deref(),
            variant: self.ready.variant.as_ref(),
        }
    }

    /// Begins, or begins anew, with a fresh state, and with what is held of the prompt: not with all of it, because the row
    /// after its last token is wanted, and with nothing where all rows are.
    pub fn begin(&mut self, mut state: T, prefixes: Option<&(dyn Prefixes<T> + '_)>) {
        let prompt = self.ready.prompt.token_ids.as_slice();
        let most = if self.scores_prompt().is_some() { 0 } else { prompt.len().saturating_sub(1) };
        let held = prefixes.map_or(0, |prefixes| prefixes.begin(&mut state, self.ready.past(&prompt[..most])));
        if self.begun.is_none() {
            (self.begun, self.cached) = (Some(Instant::now()), held);
        }
        self.stage = Stage::Prompt(Strand::fed(state, held));
    }

    /// With how many alternatives the prompt's tokens are to be scored, as long as they are not.
    fn scores_prompt(&self) -> Option<usize> {
        self.ready.options.report.prompt_logprobs.filter(|_| self.read.is_none())
    }

    /// Gives up everything that is held, guesses that no step has confirmed included.
    pub fn put_back(&mut self) {
        if let Answers::Choices(answers) = &mut self.answers {
            answers.iter_mut().for_each(Answer::forget_guesses);
        }
        self.stage = Stage::Nothing;
    }

    /// How many tokens the answer has, of all choices, or of a beam.
    pub fn generated(&self) -> usize {
        match &self.answers {
            Answers::Choices(answers) => answers.iter().map(|answer| answer.choice.token_ids.len()).sum(),
            Answers::Beams(search) => search.open().first().map_or(0, |first| first.tokens.len()),
            Answers::Found(_) => usize::MAX,
        }
    }

    /// Sequences that it feeds side by side.
    pub fn sequences(&self) -> usize {
        self.answers.lists().len().max(1)
    }

    /// Bytes of keys and values that it holds, or would if it were begun, the next step's included, and so many more tokens of
    /// each sequence.
    pub fn bytes(&self, more: usize) -> u64 {
        let lengths = self.answers.lists().into_iter().map(|list| list.len() + more);
        self.ready.held(lengths, self.keeps_root(), self.reads())
    }

    /// Whether the prompt's state is needed once more at the end.
    fn keeps_root(&self) -> bool {
        matches!(self.answers, Answers::Beams(_)) && self.ready.keeps_root()
    }

    /// Whether a step may feed it more than a token of each sequence, guesses apart.
    fn reads(&self) -> bool {
        match &self.stage {
            Stage::Nothing | Stage::Prompt(_) => true,
            Stage::Answers { strands, .. } => {
                let wanted = self.answers.wanted(&self.ready);
                wanted.iter().zip(strands).any(|(wanted, strand)| !strand.goes_on(wanted))
            }
        }
    }

    /// What it wants to feed in the next step; nothing only where the room for reading is used up.
    pub fn parts(&mut self, room: &mut Room) -> Vec<Part<'_, T>> {
        let top = self.scores_prompt();
        match &mut self.stage {
            Stage::Nothing => Vec::new(),
            Stage::Prompt(strand) => {
                let prompt = &self.ready.prompt.token_ids;
                let wanted = Wanted { list: prompt, offset: 0, until: prompt.len(), guesses: 0, top };
                room.part(strand, wanted).into_iter().collect()
            }
            Stage::Answers { strands, .. } => {
                let wanted = self.answers.wanted(&self.ready);
                wanted.into_iter().zip(strands).filter_map(|(wanted, strand)| room.part(strand, wanted)).collect()
            }
        }
    }

    /// Sequences whose next token is drawn after the next step, however little room there is for reading.
    pub fn going_on(&self) -> usize {
        let Stage::Answers { strands, .. } = &self.stage else { return 0 };
        let wanted = self.answers.wanted(&self.ready);
        wanted.iter().zip(strands).filter(|(wanted, strand)| strand.goes_on(wanted)).count()
    }

    /// Whether its answers are held to something.
    pub fn is_constrained(&self) -> bool {
        self.ready.options.constraints.constraint.is_some()
    }

    /// Whether rows have come that are still to be drawn from: those of choices whose masks were not there in time.
    pub fn has_rows(&self) -> bool {
        let (Answers::Choices(_), Stage::Answers { strands, .. }) = (&self.answers, &self.stage) else { return false };
        strands.iter().any(|strand| !strand.rows.is_empty())
    }

    /// Waits for the first mask that it could go on with. False: it waits for none.
    pub fn wait(&mut self) -> bool {
        let (Answers::Choices(answers), Stage::Answers { strands, .. }) = (&mut self.answers, &self.stage) else {
            return false;
        };
        let both = answers.iter_mut().filter(|answer| answer.open).zip(strands);
        let mut late = both.filter(|(_, strand)| !strand.rows.is_empty());
        late.next().map(|(answer, _)| answer.wait()).is_some()
    }

    /// The whole answer.
    pub fn into_output(self) -> Output {
        let now = Instant::now();
        let between = |from: Option<Instant>, to: Instant| from.map_or(0.0, |from| (to - from).as_secs_f64());
        let seconds = (between(self.begun, self.read.unwrap_or(now)), between(self.read, now));
        let mut guesses = Guesses::default();
        if let Answers::Choices(answers) = &self.answers {
            for Guesses { offered, right } in answers.iter().map(|answer| answer.guess.tally) {
                guesses.offered += offered;
                guesses.right += right;
            }
        }
        let choices = match self.answers {
            Answers::Choices(answers) => answers.into_iter().map(|answer| answer.choice).collect(),
            Answers::Beams(_) => Vec::new(),
            Answers::Found(choices) => choices,
        };
        let prompt_tokens = self.ready.prompt.token_ids.len() + self.ready.encoder_ids().len();
        let completion_tokens = choices.iter().map(|choice: &Choice| choice.token_ids.len()).sum();
        Output {
            choices,
            prompt_logprobs: self.prompt_logprobs,
            usage: Usage {
                prompt_tokens,
                cached_tokens: self.cached,
                completion_tokens,
                total_tokens: prompt_tokens + completion_tokens,
            },
            timings: Timings::new(prompt_tokens - self.cached, seconds.0, completion_tokens, seconds.1),
            guesses,
            seed: self.ready.seed,
            notices: self.ready.notices,
            prompt_token_ids: self.ready.prompt.token_ids,
        }
    }
}

impl Answers<'_> {
    /// What each open sequence wants to be fed.
    fn wanted(&self, ready: &Ready) -> Vec<Wanted<'_>> {
        let offset = ready.prompt.token_ids.len();
        let behind = |list, until, top| Wanted { list, offset, until, guesses: 0, top };
        match self {
            Answers::Choices(answers) => open(answers).map(Answer::wanted).collect(),
            Answers::Beams(search) => {
                search.open().iter().map(|open| behind(&open.tokens, open.tokens.len(), None)).collect()
            }
            // No row is wanted for what would follow the last token of a found sequence.
            Answers::Found(choices) => {
                let lists = choices.iter().map(|choice| choice.token_ids.as_slice());
                let top = ready.options.report.logprobs;
                lists.map(|list| behind(list, list.len().saturating_sub(1), top)).collect()
            }
        }
    }

    /// The generated tokens of every sequence that is open.
    fn lists(&self) -> Vec<&[u32]> {
        match self {
            Answers::Choices(answers) => open(answers).map(|answer| answer.choice.token_ids.as_slice()).collect(),
            Answers::Beams(search) => search.open().iter().map(|open| open.tokens.as_slice()).collect(),
            Answers::Found(choices) => choices.iter().map(|choice| choice.token_ids.as_slice()).collect(),
        }
    }
}

/// The choices that are not complete.
fn open<'a, 'v>(answers: &'a [Answer<'v>]) -> impl Iterator<Item = &'a Answer<'v>> {
    answers.iter().filter(|answer| answer.open)
}
