//! Keys and values of past tokens, in blocks.
//!
//! A cache is a list of fixed-size blocks for every layer. Blocks are shared by forks and copied when one of them is
//! written to, so that several continuations of one prompt, or the beams of a search, hold the prompt once. A layer with a
//! window gives back the blocks that its window has passed, as soon as nobody will take back the tokens before
//! ([`KvCache::pass`]).

use crate::error::Error;
use crate::spec::Attention;
use attend_kernels::{DType, KvBlocks, KvLayout, Mask, quantize, store_key};
use std::sync::Arc;

/// Tokens in one block.
pub const BLOCK_TOKENS: usize = 64;

/// The storage types of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvTypes {
    pub key: DType,
    pub value: DType,
}

impl KvTypes {
    /// One type for both.
    pub const fn both(dtype: DType) -> KvTypes {
        KvTypes { key: dtype, value: dtype }
    }
}

/// The keys and values that one sequence has computed so far, in every layer of a decoder.
#[derive(Debug, Clone)]
pub struct KvCache {
    types: KvTypes,
    layers: Vec<LayerCache>,
    len: usize,
}

/// Keys and values of an encoded source, for the cross-attention of every decoder layer. They are held once, however often
/// a memory is cloned.
#[derive(Debug, Clone)]
pub struct Memory(Arc<KvCache>);

#[derive(Debug, Clone)]
struct LayerCache {
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    /// Values are the start of the keys, and not held again.
    values_in_keys: bool,
    mask: Mask,
    /// Blocks before these that were given back.
    passed: usize,
    blocks: Vec<Arc<Block>>,
}

/// Keys and values of [`BLOCK_TOKENS`] tokens in every layer, shared with the caches that hold them.
#[derive(Debug, Clone)]
pub struct CacheBlock(Vec<Arc<Block>>);

/// Keys and values of [`BLOCK_TOKENS`] tokens, in the cache's types and in [`LayerCache::layout`].
#[derive(Debug, Clone)]
struct Block {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl KvCache {
    /// An empty cache for these attentions, one a layer.
    pub(crate) fn new<'a>(attentions: impl Iterator<Item = &'a Attention>, types: KvTypes) -> Result<KvCache, Error> {
        let mut layers = Vec::new();
        for attention in attentions {
            let check = |field, dtype: DType, width: usize| match dtype.bytes(width) {
                Some(_) if matches!(dtype, DType::F32 | DType::F16 | DType::BF16 | DType::Q8_0 | DType::Q4_0) => Ok(()),
                _ => Err(Error::CacheType { field, found: dtype.to_string(), width }),
            };
            check("key", types.key, attention.key_dim)?;
            let values_in_keys = attention.latent.is_some();
            check("value", if values_in_keys { types.key } else { types.value }, attention.value_dim)?;
            layers.push(LayerCache {
                kv_heads: attention.kv_heads,
                key_dim: attention.key_dim,
                value_dim: attention.value_dim,
                values_in_keys,
                mask: attention.mask,
                passed: 0,
                blocks: Vec::new(),
            });
        }
        Ok(KvCache { types, layers, len: 0 })
    }

    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn types(&self) -> KvTypes {
        self.types
    }

    /// Forgets every token from `len` on.
    ///
    /// # Panics
    /// Where a window of what comes next would reach into what was given back, but not for `len` 0.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        for layer in &mut self.layers {
            layer.truncate(self.len);
        }
    }

    /// Gives back the blocks that no token from here on sees in their layer. The tokens that are held now must not be
    /// forgotten any more, unless all are.
    pub fn pass(&mut self) {
        for layer in &mut self.layers {
            layer.pass(self.len);
        }
    }

    /// A second cache with the same contents. Blocks are shared until one of the two writes to them.
    pub fn fork(&self) -> KvCache {
        self.clone()
    }

    /// A block in every layer. None: it is not whole, or was given back in some layer.
    pub fn block(&self, index: usize) -> Option<CacheBlock> {
        if index >= self.len / BLOCK_TOKENS {
            return None;
        }
        let of = |layer: &LayerCache| layer.blocks.get(index.checked_sub(layer.passed)?).cloned();
        self.layers.iter().map(of).collect::<Option<Vec<_>>>().map(CacheBlock)
    }

    /// Adds the tokens of a block of another cache of the same model and types, which had the same tokens before them.
    ///
    /// # Panics
    /// On a cache whose last block is not whole, and on a block of another number of layers.
    pub fn push_block(&mut self, block: &CacheBlock) {
        assert!(self.len.is_multiple_of(BLOCK_TOKENS), "{} tokens are no whole blocks", self.len);
        assert_eq!(self.layers.len(), block.0.len(), "layers of a cache and of a block");
        for (layer, block) in self.layers.iter_mut().zip(&block.0) {
            layer.blocks.push(block.clone());
        }
        self.len += BLOCK_TOKENS;
    }

    /// Bytes of the blocks this cache refers to, shared ones counted in full.
    pub fn bytes(&self) -> usize {
        self.layers.iter().flat_map(|layer| &layer.blocks).map(|block| block.bytes()).sum()
    }

    /// Writes keys `[T, K*Dh]` and values `[T, K*Dv]` (none where they are the start of the keys) of the tokens
    /// `start..start + T` into a layer.
    pub(crate) fn write(&mut self, layer: usize, start: usize, key: &[f32], value: &[f32]) {
        let types = self.types;
        let layer = &mut self.layers[layer];
        let (key_dim, value_dim, layout) = (layer.key_dim, layer.value_dim, layer.layout());
        let (key_width, value_width) = (layer.kv_heads * key_dim, layer.kv_heads * value_dim);
        let mut values = value.chunks_exact(value_width);
        for (index, key) in key.chunks_exact(key_width).enumerate() {
            let token = start + index;
            let block = layer.block_mut(token / BLOCK_TOKENS, types);
            store_keys(layout, types.key, (key, key_dim), token % BLOCK_TOKENS, &mut block.key);
            if let Some(value) = values.next() {
                store(types.value, value, value_dim, token % BLOCK_TOKENS, &mut block.value);
            }
        }
    }

    /// Counts the tokens that every layer has written.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }

    /// The first `len` tokens of a layer, as far as they are held, as attention reads them.
    pub(crate) fn view(&self, layer: usize, len: usize) -> KvBlocks<'_> {
        let LayerCache { values_in_keys, passed, .. } = self.layers[layer];
        let blocks = &self.layers[layer].blocks[..len.div_ceil(BLOCK_TOKENS) - passed];
        KvBlocks {
            key_type: self.types.key,
            value_type: if values_in_keys { self.types.key } else { self.types.value },
            values_in_keys,
            layout: self.layers[layer].layout(),
            block_tokens: BLOCK_TOKENS,
            blocks: blocks
                .iter()
                .map(|block| (block.key.as_slice(), if values_in_keys { &block.key } else { &block.value }.as_slice()))
                .collect(),
            first: passed * BLOCK_TOKENS,
            len,
        }
    }
}

impl CacheBlock {
    /// Bytes in all layers together.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|block| block.bytes()).sum()
    }

    /// Whether a cache, or another clone of this, holds it too, in all layers.
    pub fn is_shared(&self) -> bool {
        self.0.iter().all(|block| Arc::strong_count(block) > 1)
    }
}

impl Block {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

impl Memory {
    pub(crate) fn new(cache: KvCache) -> Memory {
        Memory(Arc::new(cache))
    }

    /// Whether both are clones of one memory.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// All tokens of a layer, as attention reads them.
    pub(crate) fn view(&self, layer: usize) -> KvBlocks<'_> {
        self.0.view(layer, self.len())
    }

    /// Source tokens held.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl LayerCache {
    /// Keys lie on their side where nothing but scores is made of them.
    fn layout(&self) -> KvLayout {
        if self.values_in_keys { KvLayout::HeadMajor } else { KvLayout::KeysAcross }
    }

    fn truncate(&mut self, len: usize) {
        if len == 0 {
            (self.passed, self.blocks) = (0, Vec::new());
        }
        assert!(self.first_seen(len) >= self.passed, "{len} tokens: {} blocks were given back", self.passed);
        self.blocks.truncate(len.div_ceil(BLOCK_TOKENS) - self.passed);
    }

    fn pass(&mut self, len: usize) {
        let passed = self.first_seen(len).saturating_sub(self.passed);
        self.blocks.drain(..passed);
        self.passed += passed;
    }

    /// The first block that the token behind `len` others sees.
    fn first_seen(&self, len: usize) -> usize {
        self.mask.range(len, len + 1).start / BLOCK_TOKENS
    }

    /// A block to write to: made when it is the next one, copied when a fork shares it.
    fn block_mut(&mut self, index: usize, types: KvTypes) -> &mut Block {
        let index = index - self.passed;
        while self.blocks.len() <= index {
            let bytes = |dtype: DType, dim: usize| self.kv_heads * BLOCK_TOKENS * row_bytes(dtype, dim);
            self.blocks.push(Arc::new(Block {
                key: vec![0; bytes(types.key, self.key_dim)],
                value: if self.values_in_keys { Vec::new() } else { vec![0; bytes(types.value, self.value_dim)] },
            }));
        }
        Arc::make_mut(&mut self.blocks[index])
    }
}

/// Bytes of one head's row; the types were checked against the widths when the cache was made.
fn row_bytes(dtype: DType, dim: usize) -> usize {
    dtype.bytes(dim).expect("the cache type was checked against the head's width")
}

/// Rounds the heads of one token's key, `(row, width of a head)`, to the cache's type, at the token's place in a block.
fn store_keys(layout: KvLayout, dtype: DType, (row, dim): (&[f32], usize), token: usize, block: &mut [u8]) {
    match layout {
        KvLayout::TokenMajor | KvLayout::HeadMajor => store(dtype, row, dim, token, block),
        KvLayout::KeysAcross => {
            let heads = block.chunks_exact_mut(BLOCK_TOKENS * row_bytes(dtype, dim));
            for (key, block) in row.chunks_exact(dim).zip(heads) {
                store_key(dtype, key, token, block).expect("the key fills whole blocks of the cache type");
            }
        }
    }
}

/// Rounds one token's heads to the cache's type, at the token's place in a block.
fn store(dtype: DType, row: &[f32], dim: usize, token: usize, block: &mut [u8]) {
    let bytes = row_bytes(dtype, dim);
    for (head, values) in row.chunks_exact(dim).enumerate() {
        let start = (head * BLOCK_TOKENS + token) * bytes;
        quantize(dtype, values, &mut block[start..start + bytes])
            .expect("the row fills whole blocks of the cache type");
    }
}
