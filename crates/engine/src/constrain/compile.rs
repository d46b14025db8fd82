//! From a constraint to matchers over a vocabulary, once for each distinct constraint as long as it is remembered.

use super::ledger::{Ledger, MAX_BYTES};
use super::walker::Grammar;
use super::{Constraint, Matcher, grammar, limits};
use crate::error::Error;
use crate::vocabulary::Vocabulary;
use llguidance::ParserFactory;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Compiled constraints that are remembered, and the bytes of text of one that is.
const REMEMBERED: usize = 32;
const REMEMBERED_BYTES: usize = 16 << 10;

/// The constraints of one vocabulary. Its tokens are put in a tree when the first is asked for, or before; clones share it.
#[derive(Clone)]
pub struct Grammars(Arc<Shared>);

struct Shared {
    /// What everything that was compiled, and every matcher, holds.
    ledger: Arc<Ledger>,
    tokens: OnceLock<Result<Tokens, String>>,
    /// The last used first.
    remembered: Mutex<VecDeque<(String, Arc<Compiled>)>>,
}

struct Tokens {
    factory: ParserFactory,
    /// The id behind the vocabulary that stands for the end of an answer.
    end: u32,
}

/// A grammar that has followed nothing yet, and what it passes over.
struct Compiled {
    matcher: Mutex<Matcher>,
    notices: Vec<String>,
}

/// Bytes of the stack that a grammar is compiled on: the library goes down rule by rule.
const STACK: usize = 64 << 20;

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").field("tokens", &self.0.tokens.get().is_some()).finish_non_exhaustive()
    }
}

impl Default for Grammars {
    fn default() -> Grammars {
        Grammars::within(MAX_BYTES)
    }
}

impl Grammars {
    /// Constraints that together never hold more bytes than this, but for what one request alone takes.
    pub fn within(limit: u64) -> Grammars {
        let ledger = Arc::new(Ledger::new(limit));
        Grammars(Arc::new(Shared { ledger, tokens: OnceLock::new(), remembered: Mutex::default() }))
    }

    /// Bytes that constraints hold, those that are remembered included.
    pub fn held(&self) -> u64 {
        self.0.ledger.held()
    }

    /// Whether they hold more than they may.
    pub(crate) fn is_over(&self) -> bool {
        !self.0.ledger.has_room(0)
    }

    #[cfg(test)]
    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.0.ledger
    }

    /// Puts the tokens in their tree, if they are not: the first constraint then does not wait for it. What is wrong with the
    /// vocabulary is said when a constraint is asked for.
    pub(crate) fn warm(&self, vocabulary: &dyn Vocabulary, ends: &[u32]) {
        let _ = self.tokens(vocabulary, ends);
    }

    fn tokens(&self, vocabulary: &dyn Vocabulary, ends: &[u32]) -> Result<&Tokens, Error> {
        let tokens = self.0.tokens.get_or_init(|| Tokens::new(vocabulary, ends));
        tokens.as_ref().map_err(|reason| Error::Unsupported(reason.clone()))
    }

    /// Matchers for so many choices, and what the caller should know.
    ///
    /// # Errors
    /// [`Error::Constraint`] for what is wrong, too large or too costly, [`Error::ConstraintMemory`] while others hold what it
    /// needs.
    pub(crate) fn matchers(
        &self,
        vocabulary: &dyn Vocabulary,
        ends: &[u32],
        constraint: &Constraint,
        count: usize,
    ) -> Result<(Vec<Matcher>, Vec<String>), Error> {
        limits::check(constraint)?;
        let tokens = self.tokens(vocabulary, ends)?;
        let compiled = self.compiled(tokens, constraint)?;
        let matcher = compiled.matcher.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = matcher.bytes().saturating_mul(count as u64);
        self.make_room(needed)?;
        Ok(((0..count).map(|_| matcher.fork()).collect(), compiled.notices.clone()))
    }

    /// Forgets what was compiled where its room is needed.
    fn make_room(&self, needed: u64) -> Result<(), Error> {
        let ledger = &self.0.ledger;
        while !ledger.has_room(needed) {
            let oldest = self.remembered().pop_back();
            if oldest.is_none() {
                return Err(Error::ConstraintMemory { needed, held: ledger.held(), limit: ledger.limit() });
            }
        }
        Ok(())
    }

    fn remembered(&self) -> MutexGuard<'_, VecDeque<(String, Arc<Compiled>)>> {
        self.0.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compiled(&self, tokens: &Tokens, constraint: &Constraint) -> Result<Arc<Compiled>, Error> {
        let key = serde_json::to_string(constraint).unwrap_or_default();
        if let Some(found) = self.recall(&key) {
            return Ok(found);
        }
        let compiled = Arc::new(tokens.compile(constraint, &self.0.ledger)?);
        if key.len() <= REMEMBERED_BYTES {
            let mut remembered = self.remembered();
            remembered.truncate(REMEMBERED - 1);
            remembered.push_front((key, Arc::clone(&compiled)));
        }
        Ok(compiled)
    }

    fn recall(&self, key: &str) -> Option<Arc<Compiled>> {
        let mut remembered = self.remembered();
        let place = remembered.iter().position(|(known, _)| known == key)?;
        let entry = remembered.remove(place)?;
        let found = Arc::clone(&entry.1);
        remembered.push_front(entry);
        Some(found)
    }
}

impl Tokens {
    /// Special tokens and those that end an answer are no text: a grammar reaches them by name only.
    fn new(vocabulary: &dyn Vocabulary, ends: &[u32]) -> Result<Tokens, String> {
        if !spells(vocabulary) {
            return Err(
                "constraints need a tokenizer whose tokens make a text as they stand, one behind the other".into()
            );
        }
        let end = u32::try_from(vocabulary.size()).map_err(|_| "the vocabulary has too many tokens".to_string())?;
        let marked = |bytes: Vec<u8>| [vec![TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
        let word = |id: u32| match vocabulary.bytes(id) {
            Some(bytes) if vocabulary.is_special(id) || ends.contains(&id) => marked(bytes),
            Some(bytes) => bytes,
            None => Vec::new(),
        };
        let words: Vec<Vec<u8>> = (0..end).map(word).chain([marked(b"[end]".to_vec())]).collect();
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices)
            .map_err(|error| format!("constraints do not work with this vocabulary: {error}"))?;
        factory.quiet();
        *factory.limits_mut() = limits::parser_limits();
        Ok(Tokens { factory, end })
    }

    fn compile(&self, constraint: &Constraint, ledger: &Arc<Ledger>) -> Result<Compiled, Error> {
        let refused = |error: &dyn std::fmt::Display| limits::refused(constraint, reason(&error.to_string()));
        let grammar = grammar::of(constraint)?;
        let mut parser = on_deep_stack(|| self.factory.create_parser(grammar))
            .ok_or_else(|| Error::Unsupported("there is no thread to compile the constraint on".into()))?
            .map_err(|error| refused(&error))?;
        let notices = parser.grammar_warnings().into_iter();
        let notices = notices.map(|warning| format!("{}: {warning}", constraint.name())).collect();
        let mut matcher = Matcher::new(Box::new(Grammar::new(parser)), self.end, ledger);
        // The first set of tokens is the same for all, and often the one that takes longest.
        matcher.look_first().map_err(|error| refused(&error))?;
        Ok(Compiled { matcher: Mutex::new(matcher), notices })
    }
}

/// Whether the text of tokens is their bytes, but perhaps for a space at its beginning: some tokenizers put spaces between.
fn spells(vocabulary: &dyn Vocabulary) -> bool {
    let letter =
        |id: &u32| !vocabulary.is_special(*id) && vocabulary.bytes(*id).is_some_and(|b| b.is_ascii() && !b.is_empty());
    let ids: Vec<u32> = (0..u32::try_from(vocabulary.size()).unwrap_or(0)).filter(letter).take(3).collect();
    let mut stream = vocabulary.stream(true, &[]);
    let mut text: String = ids.iter().filter_map(|&id| stream.push(id)).collect::<Vec<_>>().concat();
    text.push_str(&stream.finish().unwrap_or_default());
    let bytes: Vec<u8> = ids.iter().filter_map(|&id| vocabulary.bytes(id)).flatten().collect();
    let bytes = String::from_utf8_lossy(&bytes);
    text == bytes || bytes.strip_prefix(' ') == Some(text.as_str())
}

/// What `work` gives on a thread of its own; none where there is no thread, or where it panics.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// The library's words on one line, without its own state.
fn reason(text: &str) -> String {
    let text = text.split("<state>").next().unwrap_or_default().replace("<non-verbose/>", "");
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
