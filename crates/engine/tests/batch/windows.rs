//! Windows that give back what they have passed: no bit differs from those of a model that keeps everything, and what is held
//! is what is reckoned with.

use crate::common::{Script, Words};
use crate::prefix::{endless, golden, said, short_ways};
use crate::support::{ROOMY, mixed, ways};
use attend_engine::generate::{answer_all, generate};
use attend_engine::model_source::{ModelSource, SequenceState};
use attend_engine::source::{Feed, LogitsSource, RowSink};
use attend_engine::{
    Engine, EngineOptions, Error, Event, GenerateOptions, Limits, Output, PrefixCache, Prompt, Schedule, Surroundings,
};
use attend_kernels::{DType, Mask};
use attend_model::cost::{self, AsStored, Footprint, Planner, Usage};
use attend_model::{LoadOptions, Loaded};
use attend_nn::spec::Attention;
use attend_nn::{BLOCK_TOKENS, CacheBlock, KvTypes};
use attend_testkit::golden::Random;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

const F32: KvTypes = KvTypes::both(DType::F32);

/// A model's source that keeps everything, or that notes what is held in each step.
struct Watched<'s, 'm> {
    source: &'s ModelSource<'m>,
    passes: bool,
    /// Tokens before and after each step of a lone sequence, and the bytes that it held in it.
    steps: RefCell<Vec<(usize, usize, usize)>>,
}

/// A sequence and how many tokens it has.
#[derive(Clone)]
struct Counted(SequenceState, usize);

impl LogitsSource for Watched<'_, '_> {
    type State = Counted;

    fn vocab(&self) -> usize {
        self.source.vocab()
    }

    fn input_vocab(&self) -> usize {
        self.source.input_vocab()
    }

    fn start(&self, prompt_len: usize, encoder_ids: Option<&[u32]>) -> Result<Counted, Error> {
        Ok(Counted(self.source.start(prompt_len, encoder_ids)?, 0))
    }

    fn fork(&self, state: &Counted) -> Counted {
        state.clone()
    }

    fn truncate(&self, Counted(state, length): &mut Counted, len: usize) {
        self.source.truncate(state, len);
        *length = len.min(*length);
    }

    fn reach(&self, Counted(state, _): &Counted) -> usize {
        self.source.reach(state)
    }

    fn pass(&self, Counted(state, _): &mut Counted) {
        if self.passes {
            self.source.pass(state);
        }
    }

    fn footprint(&self) -> Footprint {
        self.source.footprint()
    }

    fn feed(&self, feeds: &mut [Feed<'_, Counted>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        let mut inner: Vec<Feed<'_, SequenceState>> = Vec::new();
        for Feed { state, tokens, rows_from } in feeds.iter_mut() {
            inner.push(Feed { state: &mut state.0, tokens, rows_from: *rows_from });
        }
        self.source.feed(&mut inner, sink)?;
        for feed in feeds.iter_mut() {
            let past = feed.state.1;
            feed.state.1 += feed.tokens.len();
            self.steps.borrow_mut().push((past, feed.state.1, feed.state.0.bytes()));
        }
        Ok(())
    }
}

fn watched<'s, 'm>(source: &'s ModelSource<'m>, passes: bool) -> Watched<'s, 'm> {
    Watched { source, passes, steps: Default::default() }
}

fn texts(random: &mut Random, vocab: usize, lengths: &[usize]) -> Vec<Vec<u32>> {
    // The second begins like the first.
    let mut texts: Vec<Vec<u32>> =
        lengths.iter().map(|&length| (0..length).map(|_| 3 + random.below(vocab - 3) as u32).collect()).collect();
    let shared: Vec<u32> = texts[0][..130.min(texts[0].len())].to_vec();
    let count = shared.len().min(texts[1].len());
    texts[1][..count].copy_from_slice(&shared[..count]);
    texts
}

/// Asks a model in every way and every company, and one that keeps everything.
fn compare(case: &str, loaded: &Loaded, options: &EngineOptions) {
    let plain = endless(loaded, options);
    assert!(plain.source().footprint().passes(), "{case} has windows");
    let cache = PrefixCache::<CacheBlock>::new(1 << 30);
    let small = PrefixCache::<CacheBlock>::new(40_000);
    let helper = endless(loaded, options);
    let engines = [
        ("plain", endless(loaded, options)),
        ("with a prefix cache", endless(loaded, options).with_prefix_cache(Some(cache.clone()))),
        ("with a small prefix cache", endless(loaded, options).with_prefix_cache(Some(small.clone()))),
        ("with a draft", endless(loaded, options).with_draft(Some(&helper)).expect("the same model")),
    ];
    let keeping = watched(plain.source(), false);
    let vocab = keeping.input_vocab();
    let asked: Vec<Prompt> =
        texts(&mut Random(8), vocab, &[190, 200, 64, 70]).into_iter().map(Prompt::tokens).collect();
    for (way, ways) in short_ways() {
        let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
        let mut ask = |prompt: &Prompt| {
            said(generate(&keeping, None, plain.surroundings(), (prompt, &ways), go_on).expect("an answer"))
        };
        let expected: Vec<Output> = asked.iter().map(&mut ask).collect();
        for (kind, engine) in &engines {
            for limits in [ROOMY, Limits { sequences: 6, tokens: 300 }] {
                let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
                let found = answer_all(engine.schedule(limits), (asked.clone(), &ways), go_on).expect("answers");
                for (index, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
                    assert_eq!(said(found), *expected, "{case}, {way}, {kind}, {limits:?}, prompt {index}");
                }
            }
        }
    }
    assert!(cache.figures().hits > 20 && small.figures().bytes <= 40_000, "{case}: {:?}", cache.figures());
}

#[test]
fn no_bit_shows_that_something_was_given_back() {
    let cases: [(&str, &[(&str, u64)]); 8] = [
        ("gemma3", &[]),
        ("gemma3", &[("sliding_window", 70)]),
        ("gemma2", &[]),
        ("mistral", &[("sliding_window", 64)]),
        ("gpt_oss", &[]),
        ("cohere2", &[("sliding_window", 65)]),
        ("starcoder2", &[]),
        (
            "phi3-longrope-long",
            &[("sliding_window", 30), ("original_max_position_embeddings", 202), ("max_position_embeddings", 400)],
        ),
    ];
    for (index, (case, changes)) in cases.into_iter().enumerate() {
        let loaded = golden(case, changes);
        let (kv, chunk) = if index % 2 == 0 { (DType::F32, 24) } else { (DType::F16, 512) };
        compare(case, &loaded, &EngineOptions { kv: KvTypes::both(kv), chunk, ..EngineOptions::default() });
    }
}

/// The attentions of a decoder.
fn attentions(engine: &Engine<'_>) -> Vec<Attention> {
    engine.source().spec().output_stack().layers.iter().map(|layer| layer.attention.clone()).collect()
}

/// The first token that the token behind `past` others sees, in whole blocks.
fn first(mask: Mask, past: usize) -> usize {
    mask.range(past, past + 1).start / BLOCK_TOKENS * BLOCK_TOKENS
}

/// A long text in a model alone: in every step its cache holds the blocks that are needed and no other, never more than the
/// plan says, which is the formula by which requests are let in; and so much where the last chunk lies in as many blocks as it
/// can.
#[test]
fn a_long_text_holds_what_the_plan_says() {
    let cases: [(&str, &[(&str, u64)]); 4] =
        [("gemma3", &[]), ("gemma3", &[("sliding_window", 100)]), ("mistral", &[]), ("gpt_oss", &[])];
    for (case, changes) in cases {
        let loaded = golden(case, changes);
        for (prompt, answer, chunk) in [(701, 500, 24), (701, 500, 100), (701, 500, 512), (1157, 1, 89)] {
            let engine = endless(&loaded, &EngineOptions { kv: F32, chunk, ..EngineOptions::default() });
            let place = format!("{case}, {prompt} tokens and {answer} in chunks of {chunk}");
            let steps = alone(&engine, prompt, answer);
            let fed = prompt + answer - 1;
            assert_eq!(steps.iter().map(|(past, end, _)| end - past).sum::<usize>(), fed, "{place}");
            for &(past, end, bytes) in &steps {
                let blocks = end.next_multiple_of(BLOCK_TOKENS);
                let layer =
                    |attention: &Attention| (blocks - first(attention.mask, past)) as u64 * cost_of_token(attention);
                let needed: u64 = attentions(&engine).iter().map(layer).sum();
                assert_eq!(bytes as u64, needed, "{place}: tokens {past}..{end}");
            }
            let most = steps.iter().map(|step| step.2 as u64).max().unwrap_or(0);
            let types: AsStored = loaded.source.kept(&LoadOptions::default());
            let usage = Usage { context: fed, source: fed, requests: 1, batch: chunk, kv: F32 };
            let plan = Planner::new(engine.source().spec(), &types).plan(&usage).kv_held_bytes;
            assert_eq!(plan, engine.source().footprint().of_sequence(fed, chunk), "{place}");
            assert!(most <= plan && (chunk != 89 || most == plan), "{place}: {most} bytes of {plan}");
            let full =
                fed.next_multiple_of(BLOCK_TOKENS) as u64 * cost::kv_bytes_per_token(engine.source().spec(), F32);
            assert!(plan < full, "{place}: {plan} bytes of {full}");
        }
    }
}

/// What each step of reading a prompt and answering it takes from where to where, and the bytes that it holds.
fn alone(engine: &Engine<'_>, prompt: usize, answer: usize) -> Vec<(usize, usize, usize)> {
    let source = watched(engine.source(), true);
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.length.ignore_eos) = (Some(answer), true);
    let prompt = Prompt::tokens(texts(&mut Random(3), source.input_vocab(), &[prompt, 0]).swap_remove(0));
    let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
    generate(&source, None, engine.surroundings(), (&prompt, &options), go_on).expect("an answer");
    source.steps.into_inner()
}

/// Bytes of a token in one layer of an F32 cache.
fn cost_of_token(attention: &Attention) -> u64 {
    (4 * attention.kv_heads * (attention.key_dim + attention.value_dim)) as u64
}

/// Tokens with the blocks that a model of these layers would hold for them: what is alive is counted.
struct Paged {
    script: Script,
    /// Masks, and bytes of a token.
    layers: Vec<(Mask, u64)>,
    footprint: Footprint,
    live: Rc<Cell<u64>>,
    most: Cell<u64>,
}

struct Pages {
    tokens: Vec<u32>,
    /// Blocks that were given back, and the others.
    layers: Vec<(usize, Vec<Rc<Page>>)>,
}

struct Page {
    bytes: u64,
    live: Rc<Cell<u64>>,
}

impl Drop for Page {
    fn drop(&mut self) {
        self.live.set(self.live.get() - self.bytes);
    }
}

impl Paged {
    fn page(&self, bytes: u64) -> Rc<Page> {
        self.live.set(self.live.get() + bytes * BLOCK_TOKENS as u64);
        self.most.set(self.most.get().max(self.live.get()));
        Rc::new(Page { bytes: bytes * BLOCK_TOKENS as u64, live: self.live.clone() })
    }

    fn grow(&self, state: &mut Pages, tokens: &[u32]) {
        let from = state.tokens.len() / BLOCK_TOKENS;
        state.tokens.extend_from_slice(tokens);
        for ((passed, pages), (_, bytes)) in state.layers.iter_mut().zip(&self.layers) {
            if let Some(last) = pages.get_mut(from - *passed).filter(|last| Rc::strong_count(last) > 1) {
                *last = self.page(*bytes);
            }
            while *passed + pages.len() < state.tokens.len().div_ceil(BLOCK_TOKENS) {
                pages.push(self.page(*bytes));
            }
        }
    }
}

impl LogitsSource for Paged {
    type State = Pages;

    fn vocab(&self) -> usize {
        self.script.vocab
    }

    fn input_vocab(&self) -> usize {
        self.script.vocab
    }

    fn start(&self, _: usize, _: Option<&[u32]>) -> Result<Pages, Error> {
        Ok(Pages { tokens: Vec::new(), layers: self.layers.iter().map(|_| (0, Vec::new())).collect() })
    }

    fn fork(&self, state: &Pages) -> Pages {
        Pages { tokens: state.tokens.clone(), layers: state.layers.clone() }
    }

    fn truncate(&self, state: &mut Pages, len: usize) {
        state.tokens.truncate(len);
        for ((passed, pages), (mask, _)) in state.layers.iter_mut().zip(&self.layers) {
            assert!(first(*mask, len) >= *passed * BLOCK_TOKENS, "what was given back is wanted again");
            pages.truncate(len.div_ceil(BLOCK_TOKENS) - *passed);
        }
    }

    fn pass(&self, state: &mut Pages) {
        for ((passed, pages), (mask, _)) in state.layers.iter_mut().zip(&self.layers) {
            let gone = first(*mask, state.tokens.len()) / BLOCK_TOKENS - *passed;
            pages.drain(..gone);
            *passed += gone;
        }
    }

    fn footprint(&self) -> Footprint {
        self.footprint.clone()
    }

    fn feed(&self, feeds: &mut [Feed<'_, Pages>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        let mut plain: Vec<Vec<u32>> = feeds.iter().map(|feed| feed.state.tokens.clone()).collect();
        let mut inner = Vec::new();
        for (feed, state) in feeds.iter().zip(&mut plain) {
            inner.push(Feed { state, tokens: feed.tokens, rows_from: feed.rows_from });
        }
        self.script.feed(&mut inner, sink)?;
        for feed in feeds.iter_mut() {
            self.grow(feed.state, feed.tokens);
        }
        Ok(())
    }
}

/// Requests of all kinds come and go, are put back and begin anew: what they hold together is never more than is reckoned
/// with, that is never more than the limit, and in the end it is nothing.
#[test]
fn what_is_reckoned_with_is_what_is_held() {
    let words = Words::new(&["", "a", "b", "c", "d", "ca", "e"]);
    let mut preempted = 0;
    for (case, window) in [("gemma3", 6), ("gemma3", 64), ("gemma2", 100), ("mistral", 20), ("llama-gqa", 0)] {
        let changes: &[(&str, u64)] = if window > 0 { &[("sliding_window", window)] } else { &[] };
        let loaded = golden(case, changes);
        let engine = endless(&loaded, &EngineOptions { kv: F32, ..EngineOptions::default() });
        let layers = attentions(&engine).iter().map(|attention| (attention.mask, cost_of_token(attention))).collect();
        let footprint = engine.source().footprint();
        let (live, most) = (Rc::default(), Cell::new(0));
        let source = Paged { script: mixed(7), layers, footprint, live, most };
        let mut random = Random(window + 5);
        for chunk in [16, 90, 512] {
            let around = Surroundings { context: Some(600), chunk, end_ids: vec![0], ..Surroundings::default() };
            let limits = Limits { sequences: 12, tokens: 900 };
            let room = 900 * source.footprint.per_token();
            let mut schedule = Schedule::new(&source, Some(&words), &around, limits);
            source.most.set(0);
            for (key, (_, mut options)) in ways().into_iter().chain(ways()).enumerate() {
                options.length.max_tokens = options.length.max_tokens.map(|most| most.min(40 + 20 * (key % 5)));
                options.length.ignore_eos = key % 2 == 0;
                let prompt: Vec<u32> = (0..1 + random.below(200)).map(|_| random.below(7) as u32).collect();
                schedule.add(key, Prompt::tokens(prompt), Arc::new(options)).expect("in order");
            }
            while !schedule.is_idle() {
                let ended = schedule.step(&mut |_, _| ControlFlow::Continue(()));
                ended.into_iter().for_each(|(_, output)| drop(output.expect("an answer")));
                let (load, live) = (schedule.load(), source.live.get());
                assert!(live <= load.bytes, "{case}, {window}, chunks of {chunk}: {live} bytes, {load:?}");
                assert!(load.bytes.div_ceil(source.footprint.per_token()) == load.tokens as u64);
            }
            let most = source.most.get();
            assert!(most <= room && most > room / 3, "{case}, {window}, chunks of {chunk}: {most} of {room}");
            assert_eq!((source.live.get(), schedule.load().bytes), (0, 0), "nothing is held at the end");
            preempted += schedule.load().preempted;
        }
    }
    assert!(preempted > 10, "{preempted} were put back");
}

/// The longest sequence for which there is room has it, and a longer one has not.
#[test]
fn windows_leave_room_for_longer_texts() {
    for (case, window) in [("gemma3", 6), ("gemma3", 100), ("mistral", 6), ("llama-gqa", 0)] {
        let changes: &[(&str, u64)] = if window > 0 { &[("sliding_window", window)] } else { &[] };
        let loaded = golden(case, changes);
        for chunk in [16, 512] {
            let engine = endless(&loaded, &EngineOptions { kv: F32, chunk, ..EngineOptions::default() });
            let footprint = engine.source().footprint();
            for tokens in [64, 100, 500, 1000, 5000] {
                let room = tokens as u64 * footprint.per_token();
                let fits = |length: usize| footprint.of_sequence(length + 1, chunk) <= room;
                match engine.longest(Limits { sequences: 1, tokens }) {
                    Some(longest) => {
                        assert!(fits(longest) && !fits(longest + 1), "{case}, {window}: {longest} of {tokens}");
                        assert!(longest + 1 >= tokens / BLOCK_TOKENS * BLOCK_TOKENS);
                        assert!(window != 6 || chunk > 16 || tokens < 500 || longest > 2 * tokens);
                    }
                    None => assert!(case == "mistral" && fits(1 << 40), "{case}, {window}: {tokens}"),
                }
            }
        }
    }
}
