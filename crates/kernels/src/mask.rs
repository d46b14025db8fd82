//! Which keys a query may see.

use std::ops::Range;

/// Which keys a query may see; `q` and `k` are indices in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mask {
    Full,
    /// `k <= q`
    Causal,
    /// `q - left <= k <= q + right`. A causal window of `w` tokens that counts the query itself is
    /// `left = w - 1, right = 0`.
    Window {
        left: usize,
        right: usize,
    },
    /// Causal within chunks of this length.
    Chunked {
        length: usize,
    },
    /// Full over the first `length` tokens, causal after.
    Prefix {
        length: usize,
    },
}

impl Mask {
    /// The keys that query `q` may see among `keys` keys: for every mask one range.
    pub fn range(self, q: usize, keys: usize) -> Range<usize> {
        let (start, end) = match self {
            Mask::Full => (0, keys),
            Mask::Causal => (0, q.saturating_add(1)),
            Mask::Window { left, right } => (q.saturating_sub(left), q.saturating_add(right).saturating_add(1)),
            Mask::Chunked { length } => (q - q % length.max(1), q.saturating_add(1)),
            Mask::Prefix { length } => (0, length.max(q.saturating_add(1))),
        };
        start.min(keys)..end.min(keys).max(start.min(keys))
    }
}
