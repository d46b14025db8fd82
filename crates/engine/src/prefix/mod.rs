//! Pasts of earlier sequences that new ones begin with: what two prompts have in common is computed once.
//!
//! A [`PrefixCache`] holds whole blocks of tokens in a [`Tree`], each under everything beside its tokens that its bits depend
//! on ([`Key`]). A [`Schedule`](crate::schedule::Schedule) asks it through [`Prefixes`], which is all that it knows of it.
//! A request gets the same answer either way, because a row of logits depends on its sequence alone and not on how that was
//! cut into steps.

pub mod tree;

use crate::source::LogitsSource;
use attend_nn::BLOCK_TOKENS;
use std::sync::{Arc, Mutex, MutexGuard};
use tree::{Payload, Tree, Weight};

/// A source whose sequences can be taken apart into blocks of [`BLOCK_TOKENS`] tokens that others may share.
pub trait BlockSource: LogitsSource {
    type Block: Payload;

    /// Beside its tokens and the encoded source, what a sequence's past depends on: how it is stored, and what its positions
    /// are reckoned from. None: on something that cannot be named, so that nothing of it may be shared.
    fn kind(&self, state: &Self::State) -> Option<String>;

    /// The number of the variant that computes a sequence ([`Variant::number`](crate::Variant::number)); 0: the source's own
    /// model.
    fn variant(&self, _state: &Self::State) -> u64 {
        0
    }

    /// A block of the past. None: not all of it has been fed, or not all of it is held any more.
    fn block(&self, state: &Self::State, index: usize) -> Option<Self::Block>;

    /// Puts blocks, and the tokens that they were made of, into a sequence without tokens.
    fn resume(&self, state: &mut Self::State, tokens: &[u32], blocks: &[&Self::Block]);
}

/// What a past is made of.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    pub tokens: &'a [u32],
    pub encoder_ids: Option<&'a [u32]>,
    /// Pasts of different salts are not shared.
    pub salt: &'a str,
}

/// Where a loop keeps the pasts of sequences with states of type `T`.
pub trait Prefixes<T> {
    /// Lets a sequence without tokens begin with what is held of `past`. Returns how many tokens that are.
    fn begin(&self, state: &mut T, past: Past<'_>) -> usize;

    /// Keeps what can be shared of a sequence, which holds the tokens of `past`.
    fn keep(&self, state: &T, past: Past<'_>);
}

/// What keys and values depend on beside their tokens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The model, by a number that whoever owns the cache gives.
    instance: u64,
    /// The number of the variant of it.
    variant: u64,
    kind: String,
    salt: String,
    encoder_ids: Option<Vec<u32>>,
}

impl Weight for Key {
    fn bytes(&self) -> u64 {
        let ids = self.encoder_ids.as_ref().map_or(0, |ids| size_of_val(ids.as_slice()));
        (size_of::<Key>() + self.kind.len() + self.salt.len() + ids) as u64
    }
}

/// What a cache holds, and what it was good for since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    pub bytes: u64,
    pub limit: u64,
    pub blocks: usize,
    /// Sequences that began, and those of them for which something was held.
    pub lookups: u64,
    pub hits: u64,
    /// Tokens that did not have to be computed.
    pub reused: u64,
    /// Blocks given up because others needed their room.
    pub given_up: u64,
}

/// Blocks of the pasts of one model or several. Clones are handles of one cache.
#[derive(Debug)]
pub struct PrefixCache<B> {
    held: Arc<Mutex<Held<B>>>,
    instance: u64,
}

#[derive(Debug)]
struct Held<B> {
    tree: Tree<Key, B>,
    figures: Figures,
}

impl<B> Clone for PrefixCache<B> {
    fn clone(&self) -> PrefixCache<B> {
        PrefixCache { held: self.held.clone(), instance: self.instance }
    }
}

impl<B: Payload> PrefixCache<B> {
    /// An empty cache that never holds more bytes than `limit`. Blocks that running requests share count as well.
    pub fn new(limit: u64) -> PrefixCache<B> {
        let held = Held { tree: Tree::new(limit, BLOCK_TOKENS), figures: Figures::default() };
        PrefixCache { held: Arc::new(Mutex::new(held)), instance: 0 }
    }

    /// The same cache for another model, or for the same one with other adapters.
    pub fn of_instance(&self, instance: u64) -> PrefixCache<B> {
        PrefixCache { held: self.held.clone(), instance }
    }

    pub fn figures(&self) -> Figures {
        let held = self.held();
        let Held { tree, figures } = &*held;
        let (bytes, limit, blocks, given_up) = (tree.bytes(), tree.limit(), tree.blocks(), tree.given_up());
        Figures { bytes, limit, blocks, given_up, ..*figures }
    }

    /// Drops what is held for this instance: its weights have changed, or it is gone.
    pub fn forget(&self) {
        self.held().tree.retain(|key| key.instance != self.instance);
    }

    /// Drops what is held for a variant of this instance: nobody can ask for it any more.
    pub fn forget_variant(&self, variant: u64) {
        self.held().tree.retain(|key| (key.instance, key.variant) != (self.instance, variant));
    }

    /// Drops everything.
    pub fn clear(&self) {
        self.held().tree.clear();
    }

    fn held(&self) -> MutexGuard<'_, Held<B>> {
        self.held.lock().unwrap_or_else(|poisoned| {
            // Whoever panicked may have been in the midst of a change.
            let mut held = poisoned.into_inner();
            held.tree.clear();
            self.held.clear_poison();
            held
        })
    }

    fn key(&self, (kind, variant): (String, u64), past: Past<'_>) -> Key {
        let Past { encoder_ids, salt, .. } = past;
        let (salt, encoder_ids) = (salt.to_owned(), encoder_ids.map(<[u32]>::to_vec));
        Key { instance: self.instance, variant, kind, salt, encoder_ids }
    }
}

/// The cache of a source.
#[derive(Debug)]
pub struct SourcePrefixes<'a, S: BlockSource> {
    pub source: &'a S,
    pub cache: PrefixCache<S::Block>,
}

impl<S: BlockSource> Prefixes<S::State> for SourcePrefixes<'_, S> {
    fn begin(&self, state: &mut S::State, past: Past<'_>) -> usize {
        let Some(kind) = self.source.kind(state) else { return 0 };
        let key = self.cache.key((kind, self.source.variant(state)), past);
        let mut held = self.cache.held();
        let Held { tree, figures } = &mut *held;
        let blocks = tree.find(&key, past.tokens);
        let tokens = blocks.len() * BLOCK_TOKENS;
        figures.lookups += 1;
        if tokens > 0 {
            self.source.resume(state, &past.tokens[..tokens], &blocks);
            self.source.pass(state);
            figures.hits += 1;
            figures.reused += tokens as u64;
        }
        tokens
    }

    fn keep(&self, state: &S::State, past: Past<'_>) {
        if past.tokens.len() < BLOCK_TOKENS {
            return;
        }
        let Some(kind) = self.source.kind(state) else { return };
        let key = self.cache.key((kind, self.source.variant(state)), past);
        self.cache.held().tree.insert(&key, past.tokens, |index| self.source.block(state, index));
    }
}
