//! The prefix tree's bookkeeping under seeded random loads, against a list that is searched from end to end.

use attend_engine::prefix::tree::{Payload, Tree, Weight};
use attend_testkit::golden::Random;
use std::cell::Cell;
use std::rc::Rc;

const BLOCK: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl Weight for Name {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A payload that knows what it was made for, and is counted as long as anybody holds it.
#[derive(Debug, Clone)]
struct Held(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    key: Name,
    tokens: Vec<u32>,
    bytes: u64,
    alive: Rc<Cell<i64>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Held {
    fn new(key: &Name, tokens: &[u32], bytes: u64, alive: &Rc<Cell<i64>>) -> Held {
        alive.set(alive.get() + 1);
        Held(Rc::new(Inner { key: key.clone(), tokens: tokens.into(), bytes, alive: alive.clone() }))
    }
}

impl Weight for Held {
    fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Payload for Held {
    fn is_used(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

/// The same by a list of whole prefixes.
struct Naive {
    limit: u64,
    clock: u64,
    entries: Vec<Entry>,
}

struct Entry {
    key: Name,
    tokens: Vec<u32>,
    bytes: u64,
    used: u64,
    /// How many requests hold it.
    users: usize,
}

impl Naive {
    fn bytes(&self) -> u64 {
        let mut keys: Vec<&Name> = self.entries.iter().map(|entry| &entry.key).collect();
        keys.sort();
        keys.dedup();
        let keys: u64 = keys.into_iter().map(Weight::bytes).sum();
        keys + self.entries.iter().map(|entry| entry.bytes + BLOCK as u64 * 4).sum::<u64>()
    }

    fn at(&mut self, key: &Name, tokens: &[u32]) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == *key && entry.tokens == tokens)
    }

    /// How many blocks are held of what `tokens` begins with; they are used now.
    fn find(&mut self, key: &Name, tokens: &[u32]) -> usize {
        self.clock += 1;
        let clock = self.clock;
        let mut found = 0;
        while let Some(entry) = tokens.get(..(found + 1) * BLOCK).and_then(|tokens| self.at(key, tokens)) {
            entry.used = clock;
            found += 1;
        }
        found
    }

    fn insert(&mut self, key: &Name, tokens: &[u32], bytes: impl Fn(usize) -> u64) -> usize {
        let found = self.find(key, tokens);
        let mut added = 0;
        for index in found..tokens.len() / BLOCK {
            let tokens = tokens[..(index + 1) * BLOCK].to_vec();
            let entry = Entry { key: key.clone(), tokens, bytes: bytes(index), used: self.clock, users: 0 };
            self.entries.push(entry);
            while self.bytes() > self.limit {
                // What could never fit drives nothing out.
                let last = self.entries.last().expect("it was just added");
                let alone = last.bytes + BLOCK as u64 * 4;
                let root =
                    if self.entries.iter().filter(|entry| entry.key == *key).count() == 1 { key.bytes() } else { 0 };
                let victim = if alone + root > self.limit { None } else { self.victim() };
                let Some(victim) = victim else {
                    self.entries.pop();
                    return added;
                };
                self.entries.remove(victim);
            }
            added += 1;
        }
        added
    }

    /// The leaf that was used longest ago, of those that nobody uses.
    fn victim(&self) -> Option<usize> {
        let is_leaf = |entry: &Entry| {
            let below = |other: &&Entry| other.key == entry.key && other.tokens.len() > entry.tokens.len();
            !self.entries.iter().filter(below).any(|other| other.tokens.starts_with(&entry.tokens))
        };
        let free = |entry: &Entry| entry.used < self.clock && entry.users == 0 && is_leaf(entry);
        let entries = self.entries.iter().enumerate().filter(|(_, entry)| free(entry));
        entries.min_by_key(|(_, entry)| entry.used).map(|(index, _)| index)
    }
}

/// Few tokens and few keys, so that much is shared.
fn text(random: &mut Random) -> (Name, Vec<u32>) {
    let key = Name(["a", "bb", ""][random.below(3)].into());
    let tokens = (0..random.below(6 * BLOCK)).map(|index| (index % BLOCK != 0 && random.below(9) == 0).into());
    (key, tokens.collect())
}

#[test]
fn random_loads_are_those_of_a_list() {
    let (mut hits, mut full, mut dropped) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = Random(seed);
        let limit = random.below(1500) as u64;
        let alive = Rc::new(Cell::new(0));
        let mut tree: Tree<Name, Held> = Tree::new(limit, BLOCK);
        let mut naive = Naive { limit, clock: 0, entries: Vec::new() };
        let mut users: Vec<Vec<Held>> = Vec::new();
        for step in 0..400 {
            let (key, tokens) = text(&mut random);
            let size = |index: usize| (tokens.len() * 7 + index * 13) as u64 % 90;
            match random.below(10) {
                0..4 => {
                    let expected = naive.insert(&key, &tokens, size);
                    let make =
                        |index: usize| Some(Held::new(&key, &tokens[..(index + 1) * BLOCK], size(index), &alive));
                    assert_eq!(tree.insert(&key, &tokens, make), expected, "seed {seed}, step {step}");
                    full += usize::from(expected > 0 && tree.given_up() > 0);
                }
                4..8 => {
                    let expected = naive.find(&key, &tokens);
                    let found: Vec<Held> = tree.find(&key, &tokens).into_iter().cloned().collect();
                    assert_eq!(found.len(), expected, "seed {seed}, step {step}");
                    for (index, held) in found.iter().enumerate() {
                        assert_eq!((&held.0.key, held.0.tokens.as_slice()), (&key, &tokens[..(index + 1) * BLOCK]));
                    }
                    hits += usize::from(expected > 0);
                    // A request goes on holding what it found.
                    if random.below(2) == 0 && !found.is_empty() {
                        for held in &found {
                            naive.at(&key, &held.0.tokens).expect("it was found").users += 1;
                        }
                        users.push(found);
                    }
                }
                8 if !users.is_empty() => {
                    for held in users.swap_remove(random.below(users.len())) {
                        // What was dropped by its key has no entry any more, or another one.
                        if let Some(entry) = naive.at(&held.0.key, &held.0.tokens) {
                            entry.users = entry.users.saturating_sub(1);
                        }
                    }
                }
                _ if random.below(25) == 0 => {
                    // Those who hold something of it end first, so that the list can tell whose it is.
                    for held in std::mem::take(&mut users).into_iter().flatten() {
                        naive.at(&held.0.key, &held.0.tokens).expect("it is used").users -= 1;
                    }
                    tree.retain(|other| *other != key);
                    naive.entries.retain(|entry| entry.key != key);
                    dropped += 1;
                }
                _ => {}
            }
            assert!(tree.bytes() <= limit, "seed {seed}, step {step}: {} of {limit}", tree.bytes());
            assert_eq!((tree.bytes(), tree.blocks()), (naive.bytes(), naive.entries.len()), "seed {seed}, step {step}");
            assert!(alive.get() >= tree.blocks() as i64);
        }
        // A block that somebody holds is never given up, and none is held by nobody.
        assert!(users.iter().flatten().all(|held| Rc::strong_count(&held.0) > 1));
        drop(users);
        assert_eq!(alive.get(), tree.blocks() as i64, "seed {seed}");
        tree.clear();
        assert_eq!((alive.get(), tree.bytes(), tree.blocks()), (0, 0, 0), "seed {seed}");
    }
    assert!(hits > 1000 && full > 200 && dropped > 20, "{hits} hits, {full} when full, {dropped} drops");
}

#[test]
fn the_least_recently_used_goes_first_and_what_is_used_stays() {
    let alive = Rc::new(Cell::new(0));
    let key = Name(String::new());
    let bytes = 10 + BLOCK as u64 * 4;
    let mut tree = Tree::new(3 * bytes, BLOCK);
    let insert = |tree: &mut Tree<Name, Held>, tokens: &[u32]| {
        tree.insert(&key, tokens, |index| Some(Held::new(&key, &tokens[..(index + 1) * BLOCK], 10, &alive)))
    };
    for id in 0..3 {
        assert_eq!(insert(&mut tree, &[id; BLOCK]), 1);
    }
    assert_eq!(tree.find(&key, &[0; BLOCK]).len(), 1);
    assert_eq!(insert(&mut tree, &[3; BLOCK]), 1);
    assert_eq!(tree.find(&key, &[1; BLOCK]).len(), 0, "the one that was used longest ago");
    let held: Vec<Held> =
        (0..4).flat_map(|id| tree.find(&key, &[id; BLOCK]).into_iter().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(held.len(), 3);
    assert_eq!(insert(&mut tree, &[4; BLOCK]), 0, "all are used");
    drop(held);
    assert_eq!(insert(&mut tree, &[4; 5 * BLOCK]), 3, "as many as fit, and none of its own for another of its own");
    assert_eq!((tree.bytes(), tree.given_up()), (3 * bytes, 4));
    let mut none = Tree::new(0, BLOCK);
    assert_eq!(insert(&mut none, &[1; BLOCK]), 0);
    assert_eq!(alive.get(), 3);
}

/// Texts that agree in all but one token have nothing in common from its block on.
#[test]
fn tokens_are_compared_and_not_their_hashes() {
    let alive = Rc::new(Cell::new(0));
    let key = Name("k".into());
    let mut tree = Tree::new(1 << 20, BLOCK);
    let tokens: Vec<u32> = (0..5 * BLOCK as u32).collect();
    tree.insert(&key, &tokens, |index| Some(Held::new(&key, &tokens[..(index + 1) * BLOCK], 1, &alive)));
    for place in 0..tokens.len() {
        for other in [u32::MAX, 1 << 16, 1 << 31, tokens[(place + 1) % tokens.len()]] {
            let mut changed = tokens.clone();
            changed[place] = other;
            assert_eq!(tree.find(&key, &changed).len(), place / BLOCK, "{place}, {other}");
        }
    }
    assert_eq!(tree.find(&Name("other".into()), &tokens).len(), 0);
    assert_eq!(tree.find(&key, &tokens[..BLOCK + 3]).len(), 1, "whole blocks only");
}
