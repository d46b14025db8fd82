//! The model as a source of logits.

use crate::error::Error;
use crate::guard::Needs;
use crate::prefix::BlockSource;
use crate::prefix::tree::{Payload, Weight};
use crate::source::{Feed, LogitsSource, RowSink, Start};
use crate::variant::Variant;
use attend_kernels::Mask;
use attend_model::cost::Footprint;
use attend_nn::spec::{Body, Head, ModelSpec, Position, RopeScaling, Stack, StackKind};
use attend_nn::{
    Adapters, Batch, CacheBlock, KvCache, KvTypes, Memory, Model, Nobody, RowAdapters, RunOptions, Sequence,
};
use std::fmt;
use std::sync::Arc;

/// Rows that go through the output matrix at once: a long prompt's log-probabilities never need all of its rows, each as
/// long as the vocabulary, at the same time.
const HEAD_ROWS: usize = 32;

/// A model with what is chosen about running it.
#[derive(Debug, Clone)]
pub struct ModelSource<'m> {
    model: &'m Model,
    vocab: usize,
    types: KvTypes,
    run: RunOptions,
    /// The length beyond which LongRoPE changes its frequencies, where the model has it.
    regime: Option<usize>,
    /// The length from which on dynamic NTK's frequencies depend on the prompt's, where the model has it.
    dynamic: Option<usize>,
    /// The most tokens of a step in which a sequence is computed anew.
    chunk: usize,
    footprint: Footprint,
    needs: Needs,
    on_step: Option<OnStep>,
}

/// Is called before every step of a model with the tokens that each sequence adds: to follow what is computed, and in tests
/// to let a step fail.
#[derive(Clone)]
pub struct OnStep(pub Arc<BeforeStep>);

/// See [`OnStep`].
pub type BeforeStep = dyn Fn(&[&[u32]]) + Send + Sync;

impl fmt::Debug for OnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStep")
    }
}

/// One sequence's past.
#[derive(Debug, Clone)]
pub struct SequenceState {
    cache: KvCache,
    memory: Option<Memory>,
    /// What computes it in place of the source's own model.
    variant: Option<Variant>,
    /// The number of its variant where that holds other weights than the source's model, so that it takes walks of its own;
    /// else 0.
    apart: u64,
    /// The cached tokens; kept only where a change of regime may need them again.
    tokens: Vec<u32>,
    /// The length that length-dependent rotary frequencies start from.
    rope_length: usize,
}

impl SequenceState {
    /// Bytes of keys and values, shared blocks counted in full.
    pub fn bytes(&self) -> usize {
        self.cache.bytes() + self.memory.as_ref().map_or(0, Memory::bytes)
    }

    /// The number of its variant; 0: it has none.
    fn number(&self) -> u64 {
        number(self.variant.as_ref())
    }

    /// What counts for it in a walk through the source's model.
    fn adapters(&self) -> Option<Adapters> {
        self.variant.as_ref().filter(|_| self.apart == 0).map(|variant| variant.model().adapters())
    }
}

fn number(variant: Option<&Variant>) -> u64 {
    variant.map_or(0, Variant::number)
}

impl<'m> ModelSource<'m> {
    /// # Errors
    /// [`Error::Unsupported`] for a model that does not write text.
    pub fn new(model: &'m Model, types: KvTypes, run: RunOptions, chunk: usize) -> Result<ModelSource<'m>, Error> {
        let spec = model.spec();
        let unable = |what: &str| Error::Unsupported(format!("this model does not generate text: {what}"));
        let Head::Lm(head) = &spec.head else { return Err(unable("it has no language-model head")) };
        if let Body::Encoder(_) = spec.body {
            return Err(unable("it is an encoder, which fills gaps in a text but does not continue it"));
        }
        let footprint = Footprint::new(spec, types);
        Ok(ModelSource {
            needs: Needs::of(spec, types, footprint.per_token()),
            on_step: None,
            model,
            vocab: head.vocab,
            types,
            run,
            regime: scalings(spec.output_stack(), |lengths| lengths.regime),
            dynamic: scalings(spec.output_stack(), |lengths| lengths.dynamic),
            chunk: chunk.max(1),
            footprint,
        })
    }

    /// Lets somebody follow what is computed.
    pub fn with_on_step(self, on_step: Option<OnStep>) -> ModelSource<'m> {
        ModelSource { on_step, ..self }
    }

    pub fn spec(&self) -> &'m ModelSpec {
        self.model.spec()
    }

    /// How keys and values are stored.
    pub fn types(&self) -> KvTypes {
        self.types
    }

    /// Encodes the sources of an encoder-decoder in one step; a decoder has none.
    fn encode(&self, sources: &[Option<&[u32]>], variant: Option<&Variant>) -> Result<Vec<Option<Memory>>, Error> {
        variant.iter().try_for_each(|variant| variant.check(self.model))?;
        let unable = |what: &str| Error::Unsupported(what.into());
        match (&self.spec().body, sources.iter().copied().collect::<Option<Vec<&[u32]>>>()) {
            (Body::EncoderDecoder { .. }, Some(sources)) => {
                self.needs.ask_for_sources(sources.iter().map(|source| source.len()).sum())?;
                let memories = variant.map_or(self.model, Variant::model).encode(&sources, self.types, &self.run)?;
                Ok(memories.into_iter().map(Some).collect())
            }
            (Body::EncoderDecoder { .. }, None) => Err(unable("an encoder-decoder needs a source text to answer")),
            (Body::Encoder(_) | Body::Decoder(_), _) if sources.iter().all(Option::is_none) => {
                Ok(vec![None; sources.len()])
            }
            (Body::Encoder(_) | Body::Decoder(_), _) => {
                Err(unable("this model has no encoder that could read a source text"))
            }
        }
    }

    fn state(&self, start: &Start<'_>, memory: Option<Memory>) -> Result<SequenceState, Error> {
        let (cache, variant) = (self.model.cache(self.types)?, start.variant.cloned());
        let other = variant.as_ref().filter(|variant| !variant.model().shares_weights(self.model));
        let apart = number(other);
        Ok(SequenceState { cache, memory, variant, apart, tokens: Vec::new(), rope_length: start.prompt_len })
    }

    /// LongRoPE: where a sequence grows beyond the original length its keys were rotated by other frequencies than the
    /// ones that hold from now on, so all of it is computed anew. Returns the tokens to put in front of the new ones.
    fn change_regime(&self, state: &mut SequenceState, new: usize) -> Result<(), Error> {
        let Some(original) = self.regime else { return Ok(()) };
        let (past, total) = (state.cache.len(), state.cache.len() + new);
        if past == 0 || past.max(state.rope_length) > original || total <= original {
            return Ok(());
        }
        state.cache.truncate(0);
        state.rope_length = total;
        let tokens = std::mem::take(&mut state.tokens);
        for chunk in tokens.chunks(self.chunk) {
            self.forward(&mut [Feed { state: &mut *state, tokens: chunk, rows_from: chunk.len() }])?;
            state.cache.pass();
        }
        state.tokens = tokens;
        Ok(())
    }

    /// How many of `new` tokens stand before a change of regime in their midst: they are fed by themselves, so that it makes
    /// no difference in how many steps a sequence comes.
    fn before_change(&self, state: &SequenceState, new: usize) -> usize {
        let (past, total) = (state.cache.len(), state.cache.len() + new);
        match self.regime {
            Some(original) if state.rope_length <= original && past < original && total > original => original - past,
            Some(_) | None => 0,
        }
    }

    /// Takes the tokens of every feed through the model in one walk, whose rows get what their variants' adapters add, and those
    /// of variants with other weights in one walk for each. Neighbours are of no consequence to a row, so that the answers
    /// are those of a process that has this variant alone.
    fn step_each(&self, feeds: Vec<Feed<'_, SequenceState>>, sink: &mut RowSink<'_>) -> Result<(), Error> {
        let mut feeds: Vec<(usize, Feed<'_, SequenceState>)> = feeds.into_iter().enumerate().collect();
        // Rows of one variant lie together, so that its adapters are read once.
        feeds.sort_by_key(|(_, feed)| (feed.state.apart, feed.state.number()));
        while let Some((_, first)) = feeds.first() {
            let apart = first.state.apart;
            let rest = feeds.split_off(feeds.partition_point(|(_, feed)| feed.state.apart == apart));
            let (places, mut own): (Vec<usize>, Vec<Feed<'_, SequenceState>>) =
                std::mem::replace(&mut feeds, rest).into_iter().unzip();
            self.step(&mut own, &mut |feed, token, row| sink(places[feed], token, row))?;
        }
        Ok(())
    }

    /// The model that feeds are taken through: the source's own, or that of the variant which all of them have.
    fn walked<'v>(&'v self, variant: Option<&'v Variant>, apart: u64) -> &'v Model {
        variant.filter(|_| apart != 0).map_or(self.model, Variant::model)
    }

    /// Takes the tokens of every feed, all of one walk, through its model in one step.
    fn step(&self, feeds: &mut [Feed<'_, SequenceState>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        for feed in feeds.iter_mut() {
            self.change_regime(feed.state, feed.tokens.len())?;
        }
        let hidden = self.forward(feeds)?;
        let Some(first) = feeds.first() else { return Ok(()) };
        let (variant, apart) = (first.state.variant.clone(), first.state.apart);
        let width = self.spec().output_stack().output_width();
        let mut wanted: Vec<(usize, usize)> = Vec::new();
        let mut rows: Vec<f32> = Vec::new();
        let mut first_row = 0;
        for (index, feed) in feeds.iter_mut().enumerate() {
            for token in feed.rows_from..feed.tokens.len() {
                wanted.push((index, token));
                let from = (first_row + token) * width;
                rows.extend_from_slice(&hidden[from..from + width]);
            }
            first_row += feed.tokens.len();
            if self.regime.is_some() {
                feed.state.tokens.extend_from_slice(feed.tokens);
            }
        }
        let model = self.walked(variant.as_ref(), apart);
        for (wanted, rows) in wanted.chunks(HEAD_ROWS).zip(rows.chunks(HEAD_ROWS * width)) {
            let mut adapters = RowAdapters::default();
            wanted.iter().for_each(|(index, _)| adapters.push(1, feeds[*index].state.adapters().as_ref()));
            let logits = model.logits_of(rows, &adapters, &mut Nobody)?;
            for (&(index, token), row) in wanted.iter().zip(logits.chunks_exact(self.vocab)) {
                sink(index, token, row)?;
            }
        }
        Ok(())
    }

    fn forward(&self, feeds: &mut [Feed<'_, SequenceState>]) -> Result<Vec<f32>, Error> {
        let Some(first) = feeds.first() else { return Ok(Vec::new()) };
        if let Some(OnStep(on_step)) = &self.on_step {
            on_step(&feeds.iter().map(|feed| feed.tokens).collect::<Vec<_>>());
        }
        self.needs.ask(feeds.iter().map(|feed| (feed.state.cache.len(), feed.tokens.len())))?;
        let (variant, apart) = (first.state.variant.clone(), first.state.apart);
        let sequences = feeds.iter_mut().map(|feed| {
            let adapters = feed.state.adapters();
            let SequenceState { cache, memory, rope_length, .. } = &mut *feed.state;
            Sequence {
                rope_length: Some(*rope_length),
                memory: memory.as_ref(),
                adapters,
                ..Sequence::cached(feed.tokens, cache)
            }
        });
        let mut batch = Batch { sequences: sequences.collect(), encoded: None };
        let model = self.walked(variant.as_ref(), apart);
        Ok(model.forward(StackKind::Decoder, &mut batch, &self.run, &mut Nobody)?)
    }
}

/// Neighbours of one variant whose sources have together at most so many tokens, but at least one.
fn packs<'s, 'a>(starts: &'s [Start<'a>], tokens: usize) -> Vec<&'s [Start<'a>]> {
    let mut packs = Vec::new();
    let (mut from, mut sum) = (0, 0);
    for (index, start) in starts.iter().enumerate() {
        let length = start.encoder_ids.map_or(0, <[u32]>::len);
        let other = starts.get(from).is_some_and(|first| number(first.variant) != number(start.variant));
        if index > from && (other || sum + length > tokens) {
            packs.push(&starts[from..index]);
            (from, sum) = (index, 0);
        }
        sum += length;
    }
    packs.push(&starts[from..]);
    packs
}

/// The lengths beyond which rotary frequencies depend on a sequence's.
#[derive(Default)]
struct Lengths {
    regime: Option<usize>,
    dynamic: Option<usize>,
}

impl Lengths {
    fn of(scaling: &RopeScaling) -> Lengths {
        match *scaling {
            RopeScaling::Long { original, .. } => Lengths { regime: Some(original), ..Lengths::default() },
            RopeScaling::Dynamic { original, .. } => Lengths { dynamic: Some(original), ..Lengths::default() },
            RopeScaling::None
            | RopeScaling::Linear { .. }
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Yarn { .. }
            | RopeScaling::Divisors { .. } => Lengths::default(),
        }
    }
}

/// The least of these lengths in a stack.
fn scalings(stack: &Stack, length: impl Fn(Lengths) -> Option<usize>) -> Option<usize> {
    let lengths = stack.layers.iter().filter_map(|layer| match &layer.attention.position {
        Position::Rope(rope) => length(Lengths::of(&rope.scaling)),
        Position::None
        | Position::Alibi(_)
        | Position::RelativeBias(_)
        | Position::StackBias
        | Position::Disentangled(_) => None,
    });
    lengths.min()
}

impl Weight for CacheBlock {
    fn bytes(&self) -> u64 {
        self.bytes() as u64
    }
}

impl Payload for CacheBlock {
    fn is_used(&self) -> bool {
        self.is_shared()
    }
}

impl BlockSource for ModelSource<'_> {
    type Block = CacheBlock;

    fn kind(&self, state: &SequenceState) -> Option<String> {
        let sees_back = |mask: Mask| match mask {
            Mask::Causal | Mask::Chunked { .. } | Mask::Window { right: 0, .. } => true,
            Mask::Full | Mask::Prefix { .. } | Mask::Window { .. } => false,
        };
        let mut layers = self.spec().output_stack().layers.iter();
        let long = self.regime.map(|original| state.rope_length > original);
        let dynamic = self.dynamic.map(|original| state.rope_length.max(original));
        let kind = || format!("{:?} {:?} {long:?} {dynamic:?}", self.types, self.run);
        layers.all(|layer| sees_back(layer.attention.mask)).then(kind)
    }

    fn variant(&self, state: &SequenceState) -> u64 {
        state.number()
    }

    fn block(&self, state: &SequenceState, index: usize) -> Option<CacheBlock> {
        state.cache.block(index)
    }

    fn resume(&self, state: &mut SequenceState, tokens: &[u32], blocks: &[&CacheBlock]) {
        blocks.iter().for_each(|block| state.cache.push_block(block));
        if self.regime.is_some() {
            state.tokens.extend_from_slice(tokens);
        }
    }
}

impl LogitsSource for ModelSource<'_> {
    type State = SequenceState;

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn input_vocab(&self) -> usize {
        self.spec().output_stack().embed.vocab
    }

    fn source_vocab(&self) -> usize {
        self.spec().stacks().first().map_or(0, |(_, _, stack)| stack.embed.vocab)
    }

    fn start(&self, prompt_len: usize, encoder_ids: Option<&[u32]>) -> Result<SequenceState, Error> {
        let start = Start { prompt_len, encoder_ids, variant: None };
        let memory = self.encode(&[encoder_ids], None)?.pop().flatten();
        self.state(&start, memory)
    }

    fn start_all(&self, starts: &[Start<'_>]) -> Result<Vec<SequenceState>, Error> {
        let mut states = Vec::with_capacity(starts.len());
        for part in packs(starts, self.chunk) {
            let sources: Vec<Option<&[u32]>> = part.iter().map(|start| start.encoder_ids).collect();
            let variant = part.first().and_then(|start| start.variant);
            for (start, memory) in part.iter().zip(self.encode(&sources, variant)?) {
                states.push(self.state(start, memory)?);
            }
        }
        Ok(states)
    }

    fn fork(&self, state: &SequenceState) -> SequenceState {
        state.clone()
    }

    fn truncate(&self, state: &mut SequenceState, len: usize) {
        state.cache.truncate(len);
        state.tokens.truncate(len);
    }

    fn pass(&self, state: &mut SequenceState) {
        state.cache.pass();
    }

    fn footprint(&self) -> Footprint {
        self.footprint.clone()
    }

    /// Not across a change of regime, after which nothing before it is held any more.
    fn reach(&self, state: &SequenceState) -> usize {
        let past = state.cache.len();
        match self.regime {
            Some(original) if past.max(state.rope_length) <= original => original - past,
            Some(_) | None => usize::MAX,
        }
    }

    fn feed(&self, feeds: &mut [Feed<'_, SequenceState>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        let mut rest = Vec::with_capacity(feeds.len());
        let mut heads = Vec::with_capacity(feeds.len());
        for (index, feed) in feeds.iter_mut().enumerate() {
            let head = self.before_change(feed.state, feed.tokens.len());
            let (tokens, behind) = feed.tokens.split_at(head);
            let rows_from = feed.rows_from.min(head);
            if head > 0 {
                let mut first = [Feed { state: &mut *feed.state, tokens, rows_from }];
                self.step(&mut first, &mut |_, token, row| sink(index, token, row))?;
            }
            heads.push(head);
            rest.push(Feed { state: &mut *feed.state, tokens: behind, rows_from: feed.rows_from - rows_from });
        }
        self.step_each(rest, &mut |feed, token, row| sink(feed, heads[feed] + token, row))
    }
}
