//! The two-way table between tokens and ids.

use crate::error::Fault;
use ahash::AHashMap;
use std::sync::Arc;

/// Largest vocabulary accepted. The largest known ones have 262,144 entries.
pub(crate) const MAX_TOKENS: usize = 1 << 21;
/// Longest token accepted, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 1 << 16;

/// Tokens by id and ids by token. Ids may have holes; of two equal tokens the later one answers for its spelling.
#[derive(Debug, Default, Clone)]
pub(crate) struct Vocabulary {
    tokens: Vec<Option<Arc<str>>>,
    ids: AHashMap<Arc<str>, u32>,
    longest: usize,
}

impl Vocabulary {
    pub fn with_capacity(tokens: usize) -> Vocabulary {
        let tokens = tokens.min(MAX_TOKENS);
        Vocabulary { tokens: Vec::with_capacity(tokens), ids: AHashMap::with_capacity(tokens), longest: 0 }
    }

    pub fn from_list<T: AsRef<str>>(tokens: impl IntoIterator<Item = T>) -> Result<Vocabulary, Fault> {
        let tokens = tokens.into_iter();
        let mut vocabulary = Vocabulary::with_capacity(tokens.size_hint().0);
        for (id, token) in tokens.enumerate() {
            vocabulary.insert(token.as_ref(), id as u64)?;
        }
        Ok(vocabulary)
    }

    pub fn insert(&mut self, token: &str, id: u64) -> Result<(), Fault> {
        if token.len() > MAX_TOKEN_BYTES {
            let problem = format!("the token of id {id} has {} bytes, the limit is {MAX_TOKEN_BYTES}", token.len());
            return Err(Fault::new("vocabulary", problem));
        }
        let index = usize::try_from(id).ok().filter(|index| *index < MAX_TOKENS);
        let Some(index) = index else {
            let problem = format!("id {id} is over the limit of {MAX_TOKENS} tokens");
            return Err(Fault::new("vocabulary", problem));
        };
        if index >= self.tokens.len() {
            self.tokens.resize(index + 1, None);
        }
        let token: Arc<str> = token.into();
        self.longest = self.longest.max(token.len());
        self.tokens[index] = Some(token.clone());
        self.ids.insert(token, id as u32);
        Ok(())
    }

    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }

    /// One more than the highest id.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// How many different tokens there are.
    pub fn distinct(&self) -> usize {
        self.ids.len()
    }

    /// Length of the longest token in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The 256 ids of `<0x00>` to `<0xFF>`, where the vocabulary has them.
    pub fn byte_ids(&self) -> [Option<u32>; 256] {
        std::array::from_fn(|byte| self.id(&format!("<0x{byte:02X}>")))
    }
}
