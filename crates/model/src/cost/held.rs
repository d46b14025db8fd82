//! The blocks of the cache that sequences hold. A layer with a window gives back what its window has passed between two steps:
//! what it holds ends with the step's last token and begins with the first that the step's first token sees.

use super::kv;
use attend_kernels::Mask;
use attend_nn::spec::ModelSpec;
use attend_nn::{BLOCK_TOKENS, KvTypes};

const BLOCK: u64 = BLOCK_TOKENS as u64;

/// Bytes of a token in the cache, of layers that keep equally many tokens together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    /// How many tokens before it a token sees (None: all), and bytes of a token in all layers where that is so.
    layers: Vec<(Option<u64>, u64)>,
    /// Bytes of a token of the encoded source.
    source: u64,
}

/// Sequences that share their first tokens, or only one.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a> {
    /// Tokens of the encoded source, which all of them read.
    pub source: usize,
    /// Tokens that they have in common, in whole blocks.
    pub shared: usize,
    /// Tokens that each has behind them.
    pub own: &'a [usize],
    /// The most tokens that are fed to one of them in a step, at least one.
    pub step: usize,
}

/// A byte for each token, and every token is kept.
impl Default for Footprint {
    fn default() -> Footprint {
        Footprint { layers: vec![(None, 1)], source: 1 }
    }
}

impl Footprint {
    pub fn new(spec: &ModelSpec, types: KvTypes) -> Footprint {
        let mut layers: Vec<(Option<u64>, u64)> = Vec::new();
        for attention in kv::cached(spec) {
            let (back, bytes) = (seen_back(attention.mask), kv::bytes(attention, types));
            match layers.iter_mut().find(|(known, _)| *known == back) {
                Some((_, sum)) => *sum = sum.saturating_add(bytes),
                None => layers.push((back, bytes)),
            }
        }
        Footprint { layers, source: kv::cross_bytes_per_token(spec, types) }
    }

    /// Bytes of one more token, of the sequence or of the source, whichever takes more, as long as every window still fills.
    pub fn per_token(&self) -> u64 {
        self.layers.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes)).max(self.source)
    }

    /// Whether some layer gives back what its window has passed.
    pub fn passes(&self) -> bool {
        self.layers.iter().any(|(back, _)| back.is_some())
    }

    /// The most bytes that one sequence holds on the way to `tokens` tokens, at most `step` of which are fed at a time.
    pub fn of_sequence(&self, tokens: usize, step: usize) -> u64 {
        self.of(Sequences { source: 0, shared: 0, own: &[tokens], step })
    }

    /// The most bytes that sequences hold on the way to these lengths, with the source: what they share counts once, as long
    /// as a window has not passed it.
    pub fn of(&self, sequences: Sequences<'_>) -> u64 {
        let Sequences { source, shared, own, step } = sequences;
        let of_layers = |most: u64| {
            let held = |tokens: u64| tokens.min(most);
            let (mut together, mut apart) = (held(shared as u64), 0u64);
            for own in own.iter().map(|own| blocks(*own)) {
                together = together.saturating_add(held(own));
                apart = apart.saturating_add(held((shared as u64).saturating_add(own)));
            }
            together.min(apart)
        };
        self.layers.iter().fold(blocks(source).saturating_mul(self.source), |sum, (back, bytes)| {
            let tokens = of_layers(back.map_or(u64::MAX, |back| most(back, step)));
            sum.saturating_add(bytes.saturating_mul(tokens))
        })
    }
}

/// The most bytes of the cache's blocks that one sequence holds on the way to `tokens` tokens, at most `step` of which are
/// fed at a time.
pub fn held_bytes(spec: &ModelSpec, tokens: u64, step: usize, types: KvTypes) -> u64 {
    Footprint::new(spec, types).of_sequence(usize::try_from(tokens).unwrap_or(usize::MAX), step)
}

/// How many tokens before it a token sees at most; None: all of them.
fn seen_back(mask: Mask) -> Option<u64> {
    match mask {
        Mask::Full | Mask::Causal | Mask::Prefix { .. } => None,
        Mask::Window { left, .. } => Some(left as u64),
        Mask::Chunked { length } => Some(length.saturating_sub(1) as u64),
    }
}

/// The most tokens in blocks that `step` tokens and the `back` tokens before them lie in, wherever they begin.
fn most(back: u64, step: usize) -> u64 {
    let behind_the_first = back.saturating_add(step.max(1) as u64 - 1);
    behind_the_first.div_ceil(BLOCK).saturating_add(1).saturating_mul(BLOCK)
}

/// Tokens in whole blocks.
fn blocks(tokens: usize) -> u64 {
    (tokens as u64).div_ceil(BLOCK).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that a layer holds while tokens `past..end` are fed.
    fn held(back: u64, past: u64, end: u64) -> u64 {
        end.div_ceil(BLOCK) * BLOCK - past.saturating_sub(back) / BLOCK * BLOCK
    }

    /// The formula is the largest of all that can happen, and no larger.
    #[test]
    fn the_most_is_reached_and_never_exceeded() {
        for back in [0, 1, 3, 62, 63, 64, 65, 127, 200] {
            for step in [1, 2, 17, 63, 64, 65, 100, 128] {
                let footprint = Footprint { layers: vec![(Some(back), 1)], source: 0 };
                for tokens in (1..500).step_by(7) {
                    let steps =
                        (0..tokens).flat_map(|past| (past + 1..=tokens.min(past + step)).map(move |end| (past, end)));
                    let real = steps.map(|(past, end)| held(back, past, end)).max().unwrap_or(0);
                    let formula = footprint.of_sequence(tokens as usize, step as usize);
                    assert_eq!(formula, real, "{tokens} tokens in steps of {step}, each seeing {back} before it");
                }
            }
        }
    }

    /// Sequences that go on side by side from what they share: each block counts once.
    #[test]
    fn what_is_shared_is_held_once() {
        for back in [0, 3, 63, 64, 100, 300] {
            let footprint = Footprint { layers: vec![(Some(back), 1), (None, 1)], source: 0 };
            for prompt in [5u64, 64, 130, 200, 400] {
                let shared = prompt - prompt % BLOCK;
                for (lengths, step) in
                    [([0, 0, 0], 1), ([9, 2, 1], 1), ([70, 71, 71], 1), ([300, 299, 20], 1), ([400, 5, 130], 90)]
                {
                    let mut window = std::collections::BTreeSet::new();
                    let mut all = 0;
                    for (sequence, length) in lengths.iter().enumerate() {
                        let (past, end) = (prompt + length, prompt + length + step);
                        let blocks = past.saturating_sub(back) / BLOCK..end.div_ceil(BLOCK);
                        window.extend(blocks.map(|block| (if block < shared / BLOCK { 9 } else { sequence }, block)));
                        all += (end - shared).div_ceil(BLOCK);
                    }
                    let real = (window.len() as u64 + all) * BLOCK + shared;
                    let own = lengths.map(|length| (prompt - shared + length + step) as usize);
                    let sequences = Sequences { source: 0, shared: shared as usize, own: &own, step: step as usize };
                    assert!(real <= footprint.of(sequences), "{prompt} and {lengths:?}, seeing {back}: {real}");
                    let full = Footprint { layers: vec![(None, 1)], source: 0 };
                    assert_eq!(full.of(sequences), all * BLOCK + shared);
                }
            }
        }
    }

    #[test]
    fn absurd_sizes_are_no_overflow() {
        let footprint = Footprint { layers: vec![(Some(u64::MAX), u64::MAX), (None, 3)], source: 7 };
        let own = [usize::MAX; 3];
        assert_eq!(
            footprint.of(Sequences { source: usize::MAX, shared: usize::MAX, own: &own, step: usize::MAX }),
            u64::MAX
        );
        assert_eq!(footprint.per_token(), u64::MAX);
    }
}
