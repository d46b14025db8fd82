//! A radix tree over blocks of tokens, bounded in bytes: bookkeeping without tensors.
//!
//! A node stands for a block of tokens behind all those on the way to it, and holds a payload for them. Edges are the tokens
//! themselves, compared one by one, so that no two texts are ever taken for each other. A path is used as a whole, hence no
//! node was used later than the one above it, and giving up leaves in the order of their last use is least recently used
//! first for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What has a size.
pub trait Weight {
    fn bytes(&self) -> u64;
}

/// What a node holds.
pub trait Payload: Weight {
    /// Somebody beside the tree holds all of it: giving it up would free nothing.
    fn is_used(&self) -> bool;
}

/// Payloads of blocks of tokens, under keys.
#[derive(Debug)]
pub struct Tree<K, P> {
    limit: u64,
    block: usize,
    bytes: u64,
    roots: BTreeMap<Arc<K>, Children>,
    /// By numbers that are given once.
    nodes: BTreeMap<u64, Node<K, P>>,
    /// Nodes without children, by their last use.
    leaves: BTreeSet<(u64, u64)>,
    next: u64,
    clock: u64,
    given_up: u64,
}

type Children = BTreeMap<Arc<[u32]>, u64>;

#[derive(Debug)]
struct Node<K, P> {
    above: Above<K>,
    edge: Arc<[u32]>,
    children: Children,
    payload: P,
    used: u64,
}

#[derive(Debug)]
enum Above<K> {
    Root(Arc<K>),
    Node(u64),
}

impl<K: Ord + Clone + Weight, P: Payload> Tree<K, P> {
    /// An empty tree of blocks of so many tokens, at least one, that never holds more bytes than `limit`.
    pub fn new(limit: u64, block: usize) -> Tree<K, P> {
        Tree {
            limit,
            block: block.max(1),
            bytes: 0,
            roots: BTreeMap::new(),
            nodes: BTreeMap::new(),
            leaves: BTreeSet::new(),
            next: 0,
            clock: 0,
            given_up: 0,
        }
    }

    /// Bytes of all payloads, of the tokens of their blocks, and of the keys.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Blocks held.
    pub fn blocks(&self) -> usize {
        self.nodes.len()
    }

    /// Blocks that were given up because others needed their room, since the beginning.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The payloads of the longest run of whole blocks that `tokens` begins with.
    pub fn find(&mut self, key: &K, tokens: &[u32]) -> Vec<&P> {
        let path = self.path(key, tokens);
        self.touch(&path);
        path.iter().filter_map(|id| self.nodes.get(id)).map(|node| &node.payload).collect()
    }

    /// Adds the whole blocks of `tokens` that are not there, as far as there is room for them, with the payloads that are
    /// made for their indices. Returns how many were added.
    pub fn insert(&mut self, key: &K, tokens: &[u32], mut payload: impl FnMut(usize) -> Option<P>) -> usize {
        let path = self.path(key, tokens);
        self.touch(&path);
        let mut last = path.last().copied();
        let blocks = tokens.chunks_exact(self.block).enumerate().skip(path.len());
        let mut added = 0;
        for (index, edge) in blocks {
            let Some(payload) = payload(index) else { break };
            if !self.make_room(key, edge_bytes(edge) + payload.bytes()) {
                break;
            }
            last = Some(self.add(key, last, edge, payload));
            added += 1;
        }
        added
    }

    /// Drops everything under the keys that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        let mut dropped: Vec<u64> = Vec::new();
        let bytes = &mut self.bytes;
        self.roots.retain(|key, children| {
            let kept = keep(key);
            if !kept {
                dropped.extend(children.values());
                *bytes -= key.bytes();
            }
            kept
        });
        while let Some(id) = dropped.pop() {
            let Some(node) = self.nodes.remove(&id) else { continue };
            dropped.extend(node.children.values());
            self.leaves.remove(&(node.used, id));
            self.bytes -= edge_bytes(&node.edge) + node.payload.bytes();
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self =
            Tree { clock: self.clock, next: self.next, given_up: self.given_up, ..Tree::new(self.limit, self.block) };
    }

    /// Bytes of a root that is not there yet.
    fn missing(&self, key: &K) -> u64 {
        if self.roots.contains_key(key) { 0 } else { key.bytes() }
    }

    fn path(&self, key: &K, tokens: &[u32]) -> Vec<u64> {
        let mut path = Vec::new();
        let mut children = self.roots.get(key);
        for edge in tokens.chunks_exact(self.block) {
            let Some(&id) = children.and_then(|children| children.get(edge)) else { break };
            path.push(id);
            children = self.nodes.get(&id).map(|node| &node.children);
        }
        path
    }

    /// Notes that a path is used now.
    fn touch(&mut self, path: &[u64]) {
        self.clock += 1;
        for id in path {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            if self.leaves.remove(&(node.used, *id)) {
                self.leaves.insert((self.clock, *id));
            }
            node.used = self.clock;
        }
    }

    /// Gives up leaves that nobody uses until so many bytes more fit under a key. What is on the path in work is never given
    /// up, but the key's root can be, with its last leaf.
    fn make_room(&mut self, key: &K, bytes: u64) -> bool {
        loop {
            let Some(most) = self.limit.checked_sub(bytes + self.missing(key)) else { return false };
            if self.bytes <= most {
                return true;
            }
            let is_free = |id: &u64| self.nodes.get(id).is_some_and(|node| !node.payload.is_used());
            let before = self.leaves.range(..(self.clock, 0));
            let Some(id) = before.map(|(_, id)| *id).find(is_free) else { return false };
            self.remove(id);
            self.given_up += 1;
        }
    }

    fn add(&mut self, key: &K, above: Option<u64>, edge: &[u32], payload: P) -> u64 {
        let id = self.next;
        self.next += 1;
        let edge: Arc<[u32]> = edge.into();
        self.bytes += edge_bytes(&edge) + payload.bytes();
        let above = match above.and_then(|id| self.nodes.get_mut(&id).map(|node| (id, node))) {
            Some((above, node)) => {
                self.leaves.remove(&(node.used, above));
                node.children.insert(edge.clone(), id);
                Above::Node(above)
            }
            None => Above::Root(self.add_below_root(key, edge.clone(), id)),
        };
        self.leaves.insert((self.clock, id));
        self.nodes.insert(id, Node { above, edge, children: Children::new(), payload, used: self.clock });
        id
    }

    fn add_below_root(&mut self, key: &K, edge: Arc<[u32]>, id: u64) -> Arc<K> {
        let root = match self.roots.get_key_value(key) {
            Some((root, _)) => root.clone(),
            None => {
                self.bytes += key.bytes();
                Arc::new(key.clone())
            }
        };
        self.roots.entry(root.clone()).or_default().insert(edge, id);
        root
    }

    /// Removes a leaf.
    fn remove(&mut self, id: u64) {
        let Some(node) = self.nodes.remove(&id) else { return };
        self.leaves.remove(&(node.used, id));
        self.bytes -= edge_bytes(&node.edge) + node.payload.bytes();
        match node.above {
            Above::Node(above) => {
                let Some(parent) = self.nodes.get_mut(&above) else { return };
                parent.children.remove(&node.edge);
                if parent.children.is_empty() {
                    self.leaves.insert((parent.used, above));
                }
            }
            Above::Root(key) => {
                let Some(children) = self.roots.get_mut(&key) else { return };
                children.remove(&node.edge);
                if children.is_empty() {
                    self.roots.remove(&key);
                    self.bytes -= key.bytes();
                }
            }
        }
    }
}

fn edge_bytes(edge: &[u32]) -> u64 {
    size_of_val(edge) as u64
}
