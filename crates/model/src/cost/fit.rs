//! What fits in a given memory.

use super::plan::{Planner, Usage};
use serde::Serialize;

/// The largest uses of a model that a memory holds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Fit {
    pub memory_bytes: u64,
    /// Whether the asked use itself fits.
    pub fits: bool,
    /// Tokens that each of the asked requests may have; 0 where not even one does. No more than the model was made for.
    pub largest_context: u64,
    /// Requests of the asked context that fit together.
    pub most_requests: u64,
}

/// Beyond this nothing is looked for.
const MOST: u64 = 1 << 32;

impl Planner<'_> {
    /// The largest uses that `memory` bytes hold.
    pub fn fit(&self, usage: &Usage, memory: u64) -> Fit {
        let fits = |usage: &Usage| self.plan(usage).total_bytes <= memory;
        // A source as long as the context stays so.
        let coupled = usage.source == usage.context;
        let source = |tokens: u64| if coupled { tokens as usize } else { usage.source };
        let context = |tokens: u64| fits(&Usage { context: tokens as usize, source: source(tokens), ..*usage });
        let requests = |count: u64| fits(&Usage { requests: count as usize, ..*usage });
        Fit {
            memory_bytes: memory,
            fits: fits(usage),
            largest_context: largest(self.spec.context.map_or(MOST, |limit| limit as u64), context),
            most_requests: largest(MOST, requests),
        }
    }
}

/// The largest number up to `most` for which `fits` holds; it holds for every smaller one.
fn largest(most: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, 1);
    while high < most && fits(high) {
        low = high;
        high = (2 * high).min(most);
    }
    if fits(high) {
        return high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_largest_is_found() {
        for limit in [0, 1, 2, 3, 7, 8, 1000, 4095] {
            assert_eq!(largest(4096, |n| n <= limit), limit);
        }
        assert_eq!(largest(4096, |_| true), 4096);
    }
}
