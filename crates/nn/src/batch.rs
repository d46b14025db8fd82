//! A packed batch: sequences laid end to end, without padding.
//!
//! Encoding, prefill, chunked prefill, decode and training are this one type.

use crate::cache::{KvCache, Memory};
use crate::error::Error;
use crate::row_adapters::{Adapters, RowAdapters};
use std::ops::Range;

#[derive(Debug, Default)]
pub struct Batch<'a> {
    pub sequences: Vec<Sequence<'a>>,
    /// Hidden states of the encoder for cross-attention without a cache (training, inspection): rows of all
    /// sequences, packed, and how many rows each sequence has. Where it is absent each sequence brings its
    /// [`Sequence::memory`].
    pub encoded: Option<Encoded<'a>>,
}

/// The encoder's output for a whole batch.
#[derive(Debug, Clone)]
pub struct Encoded<'a> {
    /// [rows, D]
    pub hidden: &'a [f32],
    pub lengths: Vec<usize>,
}

/// One sequence's part in a step.
#[derive(Debug, Default)]
pub struct Sequence<'a> {
    pub token_ids: &'a [u32],
    /// Position ids, one a token; the cached length plus the index where absent.
    pub positions: Option<&'a [u32]>,
    /// Token-type ids, one a token; zeros where absent.
    pub token_types: Option<&'a [u32]>,
    /// The length that length-dependent rotary scalings (dynamic NTK, LongRoPE) reckon with: the prompt's length.
    /// Position `p` uses `max(rope_length, p + 1)`. Where absent, the sequence's length after this step.
    pub rope_length: Option<usize>,
    /// The last tokens of the sequence that no token sees as keys: padding, computed as a padded batch would. 0 unless
    /// a comparison with such a batch needs their values (a row whose window holds no key then mixes all columns evenly,
    /// as that batch does); not together with a cache.
    pub padding: usize,
    /// Keys and values of the tokens before these; the new ones are added. Absent for encoders and training.
    pub cache: Option<&'a mut KvCache>,
    /// Cross-attention keys and values of the encoded source.
    pub memory: Option<&'a Memory>,
    /// The low-rank adapters that count for it; the model's own where absent. Those of a model that has all other weights in
    /// common with the one that is walked ([`Model::shares_weights`](crate::Model::shares_weights)), and not together with
    /// [`Batch::encoded`].
    pub adapters: Option<Adapters>,
}

impl<'a> Sequence<'a> {
    /// A sequence without a cache.
    pub fn new(token_ids: &'a [u32]) -> Sequence<'a> {
        Sequence { token_ids, ..Sequence::default() }
    }

    /// Tokens that continue what a cache holds.
    pub fn cached(token_ids: &'a [u32], cache: &'a mut KvCache) -> Sequence<'a> {
        Sequence { token_ids, cache: Some(cache), ..Sequence::default() }
    }
}

impl<'a> Batch<'a> {
    /// One sequence alone.
    pub fn one(sequence: Sequence<'a>) -> Batch<'a> {
        Batch { sequences: vec![sequence], encoded: None }
    }

    /// Sequences without caches.
    pub fn of(token_ids: &'a [Vec<u32>]) -> Batch<'a> {
        Batch { sequences: token_ids.iter().map(|ids| Sequence::new(ids)).collect(), encoded: None }
    }
}

/// What the walk reads of a batch, row by row.
#[derive(Debug)]
pub(crate) struct Packed {
    pub token_ids: Vec<u32>,
    pub positions: Vec<u32>,
    pub token_types: Vec<u32>,
    pub sequences: Vec<PackedSequence>,
    /// Row ranges of the encoder's hidden states, one a sequence, when the batch carries them.
    pub encoded: Vec<Range<usize>>,
    pub adapters: RowAdapters,
}

#[derive(Debug, Clone)]
pub(crate) struct PackedSequence {
    pub rows: Range<usize>,
    /// Rows whose keys are seen.
    pub keys: Range<usize>,
    /// Tokens already in the cache.
    pub past: usize,
    pub rope_length: usize,
    /// The caller gave the positions.
    pub numbered: bool,
}

impl Packed {
    pub fn new(batch: &Batch) -> Result<Packed, Error> {
        let rows = batch.sequences.iter().map(|sequence| sequence.token_ids.len()).sum();
        let mut packed = Packed {
            token_ids: Vec::with_capacity(rows),
            positions: Vec::with_capacity(rows),
            token_types: Vec::with_capacity(rows),
            sequences: Vec::with_capacity(batch.sequences.len()),
            encoded: Vec::new(),
            adapters: RowAdapters::default(),
        };
        for (index, sequence) in batch.sequences.iter().enumerate() {
            packed.add(index, sequence)?;
        }
        if let Some(encoded) = &batch.encoded {
            let mut start = 0;
            for length in &encoded.lengths {
                packed.encoded.push(start..start + length);
                start += length;
            }
            if encoded.lengths.len() != batch.sequences.len() {
                return Err(Error::Length {
                    field: "encoded.lengths",
                    expected: batch.sequences.len(),
                    found: encoded.lengths.len(),
                });
            }
        }
        Ok(packed)
    }

    fn add(&mut self, index: usize, sequence: &Sequence) -> Result<(), Error> {
        let length = sequence.token_ids.len();
        if length == 0 {
            return Err(Error::Empty { sequence: index });
        }
        let check = |field, found: Option<&[u32]>| match found {
            Some(found) if found.len() != length => Err(Error::Length { field, expected: length, found: found.len() }),
            _ => Ok(()),
        };
        check("positions", sequence.positions)?;
        check("token_types", sequence.token_types)?;
        let past = sequence.cache.as_ref().map_or(0, |cache| cache.len());
        let start = self.token_ids.len();
        self.adapters.push(length, sequence.adapters.as_ref());
        self.token_ids.extend_from_slice(sequence.token_ids);
        match sequence.positions {
            Some(positions) => self.positions.extend_from_slice(positions),
            None => self.positions.extend((past..past + length).map(|position| position as u32)),
        }
        match sequence.token_types {
            Some(types) => self.token_types.extend_from_slice(types),
            None => self.token_types.resize(start + length, 0),
        }
        let rope_length = sequence.rope_length.unwrap_or(past + length);
        let seen = if sequence.cache.is_some() { length } else { length.saturating_sub(sequence.padding) };
        let (rows, keys) = (start..start + length, start..start + seen);
        let numbered = sequence.positions.is_some();
        self.sequences.push(PackedSequence { rows, keys, past, rope_length, numbered });
        Ok(())
    }

    /// N, the tokens of all sequences together.
    pub fn rows(&self) -> usize {
        self.token_ids.len()
    }
}
