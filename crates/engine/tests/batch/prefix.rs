//! Pasts that are shared: a request that begins with what earlier ones left behind gets the bits that it gets without.

use crate::common::{Script, Words};
use crate::support::{ROOMY, alone, bounds, mixed, timeless, ways};
use attend_engine::generate::answer_all;
use attend_engine::prefix::tree::{Payload, Weight};
use attend_engine::prefix::{BlockSource, Figures, SourcePrefixes};
use attend_engine::source::LogitsSource;
use attend_engine::{
    Engine, EngineOptions, Error, Event, GenerateOptions, Limits, Output, PrefixCache, Prompt, Ready, Schedule,
    Surroundings,
};
use attend_kernels::{Compute, DType};
use attend_model::{LoadOptions, Loaded, load};
use attend_nn::{BLOCK_TOKENS, CacheBlock, KvTypes};
use attend_testkit::golden::{Random, golden_root};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A block of a script's past: its tokens, so that a wrong one would be seen in every row.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Vec<u32>>);

impl Weight for Tokens {
    fn bytes(&self) -> u64 {
        1000
    }
}

impl Payload for Tokens {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl BlockSource for Script {
    type Block = Tokens;

    fn kind(&self, _: &Vec<u32>) -> Option<String> {
        Some(String::new())
    }

    fn block(&self, state: &Vec<u32>, index: usize) -> Option<Tokens> {
        let tokens = state.get(index * BLOCK_TOKENS..(index + 1) * BLOCK_TOKENS)?;
        Some(Tokens(Arc::new(tokens.to_vec())))
    }

    fn resume(&self, state: &mut Vec<u32>, tokens: &[u32], blocks: &[&Tokens]) {
        assert!(state.is_empty());
        blocks.iter().for_each(|block| state.extend_from_slice(&block.0));
        assert_eq!(state, tokens);
    }
}

/// What an answer is, without how long it took, what was guessed, and what did not have to be computed.
pub fn said(output: Output) -> Output {
    let mut output = timeless(output);
    (output.usage.cached_tokens, output.guesses) = (0, Default::default());
    output
}

fn through<'a>(
    source: &'a Script,
    words: &'a Words,
    around: &'a Surroundings,
    (cache, limits): (&PrefixCache<Tokens>, Limits),
) -> Schedule<'a, Script> {
    let prefixes = SourcePrefixes { source, cache: cache.clone() };
    Schedule::new(source, Some(words), around, limits).with_prefixes(Some(Box::new(prefixes)))
}

/// Prompts of which many begin alike.
fn prompts(random: &mut Random, count: usize, vocab: usize) -> Vec<Vec<u32>> {
    let mut text = |length: usize| -> Vec<u32> { (0..length).map(|_| random.below(vocab) as u32).collect() };
    let roots = [text(70), text(150), text(64)];
    let tails: Vec<Vec<u32>> = (0..count).map(|index| text([1, 0, 33, 64, 7][index % 5])).collect();
    tails.into_iter().enumerate().map(|(index, tail)| [roots[index % 3].as_slice(), &tail].concat()).collect()
}

#[test]
fn whatever_is_kept_the_answer_is_the_one_without() {
    let source = mixed(7);
    let words = Words::new(&["", "a", "b", "c", "d", "ca", "e"]);
    let prompts: Vec<Prompt> = prompts(&mut Random(9), 15, 7).into_iter().map(Prompt::tokens).collect();
    let mut given_up = 0;
    for chunk in [13, 512] {
        let around = Surroundings { context: Some(300), chunk, end_ids: vec![0], ..Surroundings::default() };
        for bytes in [0, 3500, 20_000, 1 << 30] {
            // One cache for all ways of asking: what one leaves behind serves the next.
            let cache = PrefixCache::new(bytes);
            for (way, options) in ways() {
                let expected: Vec<Output> =
                    prompts.iter().map(|prompt| alone(&source, &words, &around, prompt, &options)).collect();
                for limits in bounds() {
                    let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
                    let schedule = through(&source, &words, &around, (&cache, limits));
                    let found = answer_all(schedule, (prompts.clone(), &options), go_on).expect("answers");
                    for (found, expected) in found.into_iter().zip(&expected) {
                        assert!(found.usage.cached_tokens < found.prompt_token_ids.len());
                        let scored = options.report.prompt_logprobs.is_some();
                        assert!(!scored || found.usage.cached_tokens == 0, "every row is wanted");
                        assert_eq!(said(found), *expected, "{way}, chunks of {chunk}, {bytes} bytes, {limits:?}");
                    }
                }
            }
            let figures = cache.figures();
            assert!(figures.bytes <= bytes, "{figures:?}");
            assert_eq!(figures.hits > 0, bytes > 0, "{figures:?}");
            given_up += figures.given_up;
            cache.clear();
            assert_eq!(Figures { bytes: 0, blocks: 0, ..figures }, cache.figures());
        }
    }
    assert!(given_up > 100, "{given_up} blocks were given up");
}

/// What is held is not fed: of a prompt, of an answer that a conversation goes on from, and of nothing else.
#[test]
fn what_is_held_is_counted_and_not_computed() {
    let source = mixed(7);
    let words = Words::new(&["", "a", "b", "c", "d", "ca", "e"]);
    let around = Surroundings { context: None, chunk: 1000, end_ids: Vec::new(), ..Surroundings::default() };
    let mut options = GenerateOptions::default();
    options.length.max_tokens = Some(65);
    let options = Arc::new(options);
    let cache = PrefixCache::new(1 << 20);
    let fed = |prompt: &[u32], salt: &str| {
        source.calls.borrow_mut().clear();
        let mut schedule = through(&source, &words, &around, (&cache, ROOMY));
        let ready = Ready::new(&source, Some(&words), &around, Prompt::tokens(prompt), options.clone());
        schedule.add_ready(0, ready.expect("in order").salted(salt));
        let mut ended = Vec::new();
        while !schedule.is_idle() {
            ended.extend(schedule.step(&mut |_, _| ControlFlow::Continue(())));
        }
        let output = ended.pop().expect("one").1.expect("an answer");
        assert_eq!(output.usage.cached_tokens + source.calls.borrow()[0][0], prompt.len());
        (output.usage.cached_tokens, output.choices[0].token_ids.clone())
    };
    let prompt: Vec<u32> = (0..130).map(|index| index % 7).collect();
    let (cached, answer) = fed(&prompt, "");
    assert_eq!((cached, cache.figures().lookups, cache.figures().hits), (0, 1, 0));
    assert_eq!(fed(&prompt, "").0, 128);
    assert_eq!(fed(&prompt[..128], "").0, 64, "the row after the last token is wanted");
    assert_eq!(fed(&prompt[..65], "").0, 64);
    assert_eq!(fed(&prompt[..64], "").0, 0);
    assert_eq!(fed(&[&prompt[..100], &[6; 30]].concat(), "").0, 64);
    assert_eq!(fed(&[1; 100], "").0, 0);
    let turn = [prompt.as_slice(), &answer, &[3; 10]].concat();
    assert_eq!(fed(&turn, "").0, 192, "the answer's whole blocks, its last token was never fed");
    assert_eq!(fed(&turn, "other").0, 0, "another salt");
    assert_eq!(fed(&turn, "other").0, 192);
    let figures = cache.figures();
    assert_eq!((figures.lookups, figures.hits, figures.reused), (10, 6, 128 + 64 + 64 + 64 + 192 + 192));
    let other = cache.of_instance(1);
    other.forget();
    assert_eq!(cache.figures(), figures);
    cache.forget();
    assert_eq!((cache.figures().bytes, fed(&turn, "").0), (0, 0));
}

/// A golden model, some numbers of its configuration changed.
pub fn golden(case: &str, changes: &[(&str, u64)]) -> Loaded {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "generation_config.json", "model.safetensors"] {
        let from = golden_root().join(case).join(name);
        if name == "config.json" {
            let text = std::fs::read_to_string(&from).expect("a configuration");
            let mut config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            for &(field, number) in changes {
                config[field] = number.into();
                if let Some(inner) = config["rope_scaling"].get_mut(field) {
                    *inner = number.into();
                }
            }
            std::fs::write(folder.path().join(name), config.to_string()).expect("written");
        } else if from.exists() {
            std::fs::copy(&from, folder.path().join(name)).expect("copied");
        }
    }
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(folder.path(), &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{case}: {error}"))
}

/// Ways of answering a model, some of which guess ahead.
pub fn short_ways() -> Vec<(&'static str, GenerateOptions)> {
    let mut ways = ways();
    ways.retain(|(way, _)| !way.starts_with("stop") && !way.contains("forced"));
    for (_, options) in &mut ways {
        options.length.max_tokens = Some(30.min(options.length.max_tokens.unwrap_or(0)));
        options.length.ignore_eos = true;
    }
    let mut guessing = ways[0].1.clone();
    guessing.speculation.prompt_lookup_num_tokens = 6;
    ways.push(("guessing", guessing));
    ways
}

pub fn endless<'m>(loaded: &'m Loaded, options: &EngineOptions) -> Engine<'m> {
    let mut engine = Engine::new(loaded, None, options).expect("an engine");
    engine.surroundings_mut().context = None;
    engine
}

/// Asks a model with and without a cache; what the cache was good for.
fn compare(case: &str, loaded: &Loaded, options: &EngineOptions, bytes: u64) -> Result<Figures, Error> {
    let (plain, cache) = (endless(loaded, options), PrefixCache::<CacheBlock>::new(bytes));
    let warm = endless(loaded, options).with_prefix_cache(Some(cache.clone()));
    let mut random = Random(5);
    let vocab = plain.source().input_vocab();
    let source: Vec<u32> = (0..9).map(|_| 3 + random.below(vocab - 3) as u32).collect();
    let prompt =
        |token_ids: Vec<u32>| Prompt { token_ids, encoder_ids: plain.is_encoder_decoder().then(|| source.clone()) };
    let mut prompts: Vec<Prompt> = prompts(&mut random, 5, vocab).into_iter().map(prompt).collect();
    if plain.is_encoder_decoder() {
        // The same beginning of an answer to another source.
        prompts.push(Prompt { encoder_ids: Some(source[..5].to_vec()), ..prompts[0].clone() });
    }
    for (way, options) in short_ways() {
        let ask =
            |prompt: &Prompt| plain.generate(prompt.clone(), &options, &mut |_| ControlFlow::Continue(())).map(said);
        let mut expected = prompts.iter().map(ask).collect::<Result<Vec<Output>, Error>>()?;
        let mut asked = prompts.clone();
        // The next turn of the first conversation.
        if let Some(choice) = expected[0].choices.first() {
            let turn = [asked[0].token_ids.as_slice(), &choice.token_ids, &[3, 4]].concat();
            asked.push(Prompt { token_ids: turn, ..asked[0].clone() });
            expected.extend(asked.last().map(ask).transpose()?);
        }
        for limits in [ROOMY, Limits { sequences: 6, tokens: 600 }] {
            cancelled(&warm, &asked[1], &options, limits);
            let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
            let found = answer_all(warm.schedule(limits), (asked.clone(), &options), go_on)?;
            for (index, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
                assert_eq!(said(found), *expected, "{case}, {way}, {limits:?}, prompt {index}");
            }
        }
    }
    assert!(cache.figures().bytes <= bytes, "{case}: {:?}", cache.figures());
    Ok(cache.figures())
}

/// Requests that end before their answers do: one by its handler, one that is taken away.
fn cancelled(engine: &Engine<'_>, prompt: &Prompt, options: &GenerateOptions, limits: Limits) {
    let mut schedule = engine.schedule(limits);
    for key in 0..2 {
        schedule.add(key, prompt.clone(), Arc::new(options.clone())).expect("in order");
    }
    let mut tokens = 0;
    for _ in 0..12 {
        schedule.step(&mut |key, event| match event {
            Event::Token { .. } | Event::Step { .. } if key == 0 => {
                tokens += 1;
                if tokens > 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Event::Token { .. } | Event::Step { .. } | Event::Prompt { .. } | Event::Finished { .. } => {
                ControlFlow::Continue(())
            }
        });
    }
    schedule.cancel(1);
}

/// Tiny models of every kind of position, window, cache and cross-attention.
#[test]
fn models_give_the_same_bits_from_a_shared_past() {
    let cases: [(&str, &[(&str, u64)]); 20] = [
        ("llama-gqa", &[]),
        ("llama-rope-yarn", &[]),
        ("llama-rope-dynamic", &[]),
        ("llama-rope-dynamic", &[("max_position_embeddings", 120)]),
        ("phi3-longrope-long", &[]),
        ("phi3-longrope-long", &[("original_max_position_embeddings", 120), ("max_position_embeddings", 400)]),
        ("gemma2", &[]),
        ("gemma3", &[]),
        ("mistral", &[]),
        ("mixtral", &[]),
        ("deepseek_v2", &[]),
        ("deepseek_v3", &[]),
        ("gpt_oss", &[]),
        ("bloom", &[]),
        ("falcon-mqa", &[]),
        ("qwen3", &[]),
        ("starcoder2", &[]),
        ("t5-v1.0", &[]),
        ("t5-v1.1", &[]),
        ("mt5", &[]),
    ];
    let mut given_up = 0;
    for (index, (case, changes)) in cases.into_iter().enumerate() {
        let loaded = golden(case, changes);
        for (kv, chunk) in [(DType::F32, 512), (DType::F16, 24)] {
            let options = EngineOptions { kv: KvTypes::both(kv), chunk, ..EngineOptions::default() };
            // Every third cache is too small for all that could be kept.
            let small = index % 3 == 2;
            let bytes = if small { 50_000 } else { 1 << 30 };
            let figures = compare(case, &loaded, &options, bytes).expect("answers");
            assert!(figures.hits > if small { 10 } else { 30 }, "{case}, {kv}: {figures:?}");
            given_up += figures.given_up;
        }
    }
    assert!(given_up > 100, "{given_up} blocks were given up");
}

/// The same with heads that are whole blocks of a quantized cache: all of a model's in one.
#[test]
fn quantized_caches_are_shared_as_they_are() {
    let hugging_face = [("num_attention_heads", 1), ("num_key_value_heads", 1), ("head_dim", 32)];
    let dynamic = [hugging_face.as_slice(), &[("max_position_embeddings", 120)]].concat();
    let cases: [(&str, &[(&str, u64)]); 5] = [
        ("llama-mha", &hugging_face),
        ("llama-rope-dynamic", &dynamic),
        ("bloom", &[("n_head", 1)]),
        ("mpt", &[("n_heads", 1)]),
        ("gpt_neox", &[("num_attention_heads", 1)]),
    ];
    for (case, changes) in cases {
        let loaded = golden(case, changes);
        let types = KvTypes { key: DType::Q8_0, value: DType::Q4_0 };
        for (kv, chunk) in [(KvTypes::both(DType::Q8_0), 512), (types, 24)] {
            let options = EngineOptions { kv, chunk, ..EngineOptions::default() };
            let figures = compare(case, &loaded, &options, 1 << 30).expect("answers");
            assert!(figures.hits > 30, "{case}: {figures:?}");
        }
    }
}
