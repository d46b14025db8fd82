//! Softmax attention over keys and values held in blocks of cache.
//!
//! One core serves every model: scale, soft cap, bias, mask and sink are modifiers of a score, never kernels of their
//! own. [`flash`] is what runs; [`textbook`] is the same computation with the whole score matrix in sight, which it is
//! tested against and which observers use; [`attention_backward`] is the gradient.

mod ahead;
mod backward;
mod cut;
mod flash;
mod kv;
mod load;
mod mix;
mod plan;
mod scores;
mod state;
mod stored;
#[cfg(test)]
mod tests;
mod textbook;
mod tile;
mod weigh;

use crate::Mask;
pub use backward::{Gradients, attention_backward};
pub use flash::flash;
pub(crate) use flash::flash_on;
pub use kv::{KvBlocks, KvLayout, bytes_of};
pub use plan::flash_bytes;
pub use stored::store_key;
pub use textbook::{attention_mix, attention_probs, attention_scores, textbook};

/// The shape of one attention. MHA, GQA and MQA are its number of KV heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads (H), a multiple of `kv_heads`: query head `h` reads KV head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// Key and value heads (K).
    pub kv_heads: usize,
    /// Width of a query and key head (Dh).
    pub key_dim: usize,
    /// Width of a value head (Dv).
    pub value_dim: usize,
}

impl Heads {
    /// Query heads for each KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// What is added to scores. An entry of `-inf` forbids its key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bias<'a> {
    None,
    /// `[heads][keys]` by absolute key index.
    Key {
        values: &'a [f32],
        keys: usize,
    },
    /// `[heads][span]`: the entry for `d = key - query`, both absolute, is at `d + zero`.
    Distance {
        values: &'a [f32],
        span: usize,
        zero: usize,
    },
    /// `[heads][queries][keys]` by row of the call and absolute key index.
    Full {
        values: &'a [f32],
        queries: usize,
        keys: usize,
    },
    Gathered(Gathered<'a>),
}

/// A bias that is looked up by the bucket of a distance, in a table of the query, in one of the key, or in both, whose
/// sum it is (He et al. 2021). No matrix of queries by keys is ever made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gathered<'a> {
    /// `[heads][queries][buckets]` by row of the call where `by_query`, then `[heads][keys][buckets]` by absolute key
    /// index where `by_key`.
    pub values: &'a [f32],
    pub by_query: bool,
    pub by_key: bool,
    pub heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub buckets: usize,
    /// The bucket of `d = key - query`, both absolute, is at `d + zero`.
    pub index: &'a [u32],
    pub zero: usize,
}

impl Gathered<'_> {
    /// Where the entry of an absolute query and key lies in the queries' table and where in the keys'.
    pub(crate) fn places(&self, head: usize, row: usize, query: usize, key: usize) -> [Option<usize>; 2] {
        let bucket = self.index[self.zero + key - query] as usize;
        let tables = usize::from(self.by_query) * self.heads * self.queries;
        let by_query = (head * self.queries + row) * self.buckets + bucket;
        let by_key = (tables + head * self.keys + key) * self.buckets + bucket;
        [self.by_query.then_some(by_query), self.by_key.then_some(by_key)]
    }
}

impl<'a> Bias<'a> {
    /// The entries of head `head` for row `row` (absolute query index `query`) and absolute keys `start..end`. `buffer`
    /// holds as many and takes those that lie nowhere side by side.
    pub(crate) fn row<'b>(
        &self,
        (head, row, query): (usize, usize, usize),
        keys: std::ops::Range<usize>,
        buffer: &'b mut [f32],
    ) -> Option<&'b [f32]>
    where
        'a: 'b,
    {
        if keys.is_empty() {
            return None;
        }
        if let Bias::Gathered(gathered) = self {
            let buffer = &mut buffer[..keys.len()];
            for (slot, key) in buffer.iter_mut().zip(keys) {
                let places = gathered.places(head, row, query, key);
                *slot = places.into_iter().flatten().map(|place| gathered.values[place]).sum();
            }
            return Some(buffer);
        }
        let (values, start) = self.locate(head, row, query, keys.start)?;
        Some(&values[start..start + keys.len()])
    }

    /// The list of values, and where in it the entry of absolute key `key` lies; the following keys' entries follow.
    /// Gathered entries have no such place.
    pub(crate) fn locate(&self, head: usize, row: usize, query: usize, key: usize) -> Option<(&'a [f32], usize)> {
        match *self {
            Bias::None | Bias::Gathered(_) => None,
            Bias::Key { values, keys } => Some((values, head * keys + key)),
            Bias::Distance { values, span, zero } => Some((values, head * span + zero + key - query)),
            Bias::Full { values, queries, keys } => Some((values, (head * queries + row) * keys + key)),
        }
    }
}

/// What happens to `q . k` on its way into the softmax.
///
/// `score = soft_cap(scale * q.k) + bias`, or `soft_cap(scale * (q.k + bias))` when the bias is scaled; forbidden keys
/// take no part, and a sink takes part with no value. A row with no allowed key gives 0.
#[derive(Debug, Clone, Copy)]
pub struct Scores<'a> {
    pub scale: f32,
    /// `c * tanh(score / c)`
    pub soft_cap: Option<f32>,
    pub bias: Bias<'a>,
    /// The bias is added before the scores are scaled.
    pub bias_scaled: bool,
    pub mask: Mask,
    /// `[heads]`: one more logit in each row's softmax.
    pub sinks: Option<&'a [f32]>,
}

impl Scores<'_> {
    /// Scores that are only scaled and masked.
    pub fn plain(scale: f32, mask: Mask) -> Scores<'static> {
        Scores { scale, soft_cap: None, bias: Bias::None, bias_scaled: false, mask, sinks: None }
    }
}

/// One sequence's attention: `T` consecutive queries over the keys of one cache.
#[derive(Debug)]
pub struct Call<'a> {
    pub shape: Heads,
    /// `[T, heads * key_dim]`
    pub query: &'a [f32],
    /// Absolute index of the first query.
    pub first_query: usize,
    pub kv: KvBlocks<'a>,
    pub scores: Scores<'a>,
    /// `[T, heads * value_dim]`
    pub out: &'a mut [f32],
}

/// A call without its output: what scores and gradients are computed from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a, 'b> {
    pub shape: Heads,
    /// `[T, heads * key_dim]`
    pub query: &'b [f32],
    /// Absolute index of the first query.
    pub first_query: usize,
    pub kv: &'b KvBlocks<'a>,
    pub scores: &'b Scores<'a>,
}

impl<'a> Call<'a> {
    pub fn inputs(&self) -> Inputs<'a, '_> {
        Inputs {
            shape: self.shape,
            query: self.query,
            first_query: self.first_query,
            kv: &self.kv,
            scores: &self.scores,
        }
    }
}

impl Inputs<'_, '_> {
    /// T
    pub fn rows(&self) -> usize {
        self.query.len() / (self.shape.heads * self.shape.key_dim)
    }

    /// S, the keys that are held: absolute indices `kv.first..kv.len`.
    pub fn keys(&self) -> usize {
        self.kv.len.saturating_sub(self.kv.first)
    }

    /// The absolute indices of the keys that row `row` may see and that are held.
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        let range = self.scores.mask.range(self.first_query + row, self.kv.len);
        let start = range.start.max(self.kv.first);
        start..range.end.max(start)
    }

    /// The query of one row and head, `[key_dim]`.
    pub(crate) fn query(&self, row: usize, head: usize) -> &[f32] {
        let start = (row * self.shape.heads + head) * self.shape.key_dim;
        &self.query[start..start + self.shape.key_dim]
    }
}
