//! M1: one answer by every way: alone, in batches, in chunks, from a kept beginning, put back, guessed ahead, streamed, by
//! the library, the command line and over HTTP: the same tokens, and the same bits of their log-probabilities.

use crate::client::streamed;
use crate::common::{attend, ran, tiny};
use crate::serving::{Serving, alone, report};
use crate::wide::{quantized, wide};
use attend::engine::source::LogitsSource;
use attend::engine::{Engine, EngineOptions, Event, GenerateOptions, Limits, Output, PrefixCache, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, Loaded, load};
use attend::nn::{BLOCK_TOKENS, CacheBlock, KvTypes};
use attend::text::{EncodeOptions, Tokenizer};
use attend_testkit::files::model::{WIDE_TYPES, wide_gguf};
use attend_testkit::golden::Random;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Decoders and encoder-decoders of every kind of position, wiring, mask and mixture.
const MODELS: [&str; 20] = [
    "llama-gqa",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt2",
    "gpt_neox",
    "bloom",
    "mpt",
    "falcon-mqa",
    "opt",
    "olmo2",
    "cohere2",
    "mixtral",
    "deepseek_v2",
    "gpt_oss",
    "t5-v1.1",
    "marian",
];

/// Models that are made wide enough for every type: decoders and encoder-decoders.
const WIDE: [&str; 7] = ["t5-v1.1", "marian", "bart", "m2m100", "llama-gqa", "qwen2", "mistral"];

/// Types that they are loaded in beside [`TYPES`].
const WIDE_ONLY: [DType; 8] =
    [DType::Q4_K, DType::Q6_K, DType::Q2_K, DType::Q3_K, DType::Q5_K, DType::IQ4_XS, DType::F16, DType::BF16];

/// Types, and mixes of types, that the program makes files of.
const FILES: [&str; 19] = [
    "q4_k_m", "q8_0", "q6_k", "q5_k_s", "q5_k_m", "q5_0", "q5_1", "q4_k_s", "q4_0", "q4_1", "iq4_nl", "iq4_xs",
    "mxfp4", "q3_k_s", "q3_k_m", "q3_k_l", "q2_k", "f16", "bf16",
];

/// Types of blocks of 32, in which any model can be loaded.
const TYPES: [DType; 7] =
    [DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL, DType::MXFP4];

/// What an answer says: tokens and bits.
type Said = (Vec<u32>, Vec<u32>);

fn said(output: &Output) -> Said {
    let choice = &output.choices[0];
    (choice.token_ids.clone(), choice.logprobs.iter().map(|one| one.logprob.to_bits()).collect())
}

/// A prompt, and how its answer is chosen.
#[derive(Clone)]
struct Asked {
    prompt: Prompt,
    options: Arc<GenerateOptions>,
    /// Where it is sampled, its seed.
    seed: Option<u64>,
    tokens: usize,
    /// The prompt as people write it.
    text: String,
}

/// Prompts of 1 to 70 tokens, of which every third begins as another; every fourth answer is sampled.
fn questions(engine: &Engine<'_>, tokenizer: &Tokenizer, count: usize, tokens: usize) -> Vec<Asked> {
    let mut random = Random(23);
    let vocab = engine.source().input_vocab().min(96);
    let context = engine.surroundings().context.unwrap_or(100).min(100);
    let root: Vec<u32> = (0..40).map(|_| 4 + random.below(vocab - 4) as u32).collect();
    let mut question = |index: usize| {
        let length = 1 + random.below((context - tokens).min(70) - 1);
        let mut ids: Vec<u32> = (0..length).map(|_| 4 + random.below(vocab - 4) as u32).collect();
        if index.is_multiple_of(3) {
            let shared = ids.len().min(root.len());
            ids[..shared].copy_from_slice(&root[..shared]);
        }
        // The defaults of the model's files hold by every way.
        let mut options = engine.options(Map::new()).expect("options").options;
        let seed = (index % 4 == 3).then_some(index as u64);
        (options.length.max_tokens, options.length.ignore_eos) = (Some(tokens), true);
        options.report.logprobs = Some(0);
        if let Some(seed) = seed {
            (options.sampling.temperature, options.sampling.seed) = (0.8, Some(seed));
        }
        let word = if tokenizer.token(5).is_some_and(|token| token.contains('w')) { 'w' } else { 't' };
        let text = ids.iter().map(|id| format!("{word}{id}")).collect::<Vec<_>>().join(" ");
        let full = EncodeOptions { add_special: true, parse_special: true };
        let ids = tokenizer.encode(&text, full).expect("tokens").ids;
        let prompt = if engine.is_encoder_decoder() { Prompt::source(ids) } else { Prompt::tokens(ids) };
        let prompt = engine.complete(prompt).expect("a prompt");
        Asked { prompt, options: Arc::new(options), seed, tokens, text }
    };
    (0..count).map(&mut question).collect()
}

/// Every question in one schedule.
fn together(engine: &Engine<'_>, asked: &[Asked], limits: Limits) -> (Vec<Said>, u64) {
    let mut schedule = engine.schedule(limits);
    for (key, one) in asked.iter().enumerate() {
        schedule.add(key, one.prompt.clone(), Arc::clone(&one.options)).expect("in order");
    }
    let mut ended = BTreeMap::new();
    while !schedule.is_idle() {
        let step = schedule.step(&mut |_, _| ControlFlow::Continue(()));
        ended.extend(step.into_iter().map(|(key, output)| (key, said(&output.expect("an answer")))));
    }
    (ended.into_values().collect(), schedule.load().preempted)
}

/// The answer alone, which is also what its stream says.
fn one(engine: &Engine<'_>, asked: &Asked, guesses: bool) -> Said {
    let mut options = (*asked.options).clone();
    if guesses {
        options.speculation.prompt_lookup_num_tokens = 5;
        options.speculation.num_assistant_tokens = 4;
    }
    let mut stream = (Vec::new(), Vec::new());
    let output = engine.generate(asked.prompt.clone(), &options, &mut |event| {
        if let Event::Token { id, logprob, .. } = event {
            stream.0.push(id);
            stream.1.extend(logprob.map(|one| one.logprob.to_bits()));
        }
        ControlFlow::Continue(())
    });
    let whole = said(&output.expect("an answer"));
    assert_eq!(stream, whole, "the stream says what the answer says");
    whole
}

/// The answers of a model by every way of the library; those that it gives alone.
fn library(
    what: &str,
    path: &Path,
    dtype: Option<DType>,
    (count, tokens): (usize, usize),
) -> (Vec<Asked>, Vec<Said>, u64) {
    let (loaded, tokenizer) = (&opened(path, dtype), Tokenizer::open(path).expect("a tokenizer"));
    let run = |chunk: usize| EngineOptions { kv: KvTypes::both(DType::F32), chunk, ..EngineOptions::default() };
    let engine = |chunk: usize| Engine::new(loaded, None, &run(chunk)).expect("an engine");
    let plain = engine(512);
    let asked = questions(&plain, &tokenizer, count, tokens);
    let expected: Vec<Said> = asked.iter().map(|asked| one(&plain, asked, false)).collect();
    let roomy = Limits { sequences: 1 << 20, tokens: 1 << 40 };
    for size in [2, 7, 16, 32] {
        for (index, (batch, wanted)) in asked.chunks(size).zip(expected.chunks(size)).enumerate() {
            assert_eq!(together(&plain, batch, roomy).0, wanted, "{what}: batch {index} of {size}");
        }
    }
    let chunked = engine(13);
    assert_eq!(together(&chunked, &asked, Limits { sequences: 5, ..roomy }).0, expected, "{what}: in chunks");
    let small = Limits { sequences: 64, tokens: 8 * BLOCK_TOKENS };
    let (found, put_back) = together(&chunked, &asked, small);
    assert_eq!(found, expected, "{what}: put back");
    let cache = PrefixCache::<CacheBlock>::new(1 << 24);
    let warm = engine(512).with_prefix_cache(Some(cache.clone()));
    for round in ["kept", "begun with what was kept"] {
        assert_eq!(together(&warm, &asked, roomy).0, expected, "{what}: {round}");
    }
    let draft = engine(512);
    let guessing = engine(512).with_draft(Some(&draft)).expect("a draft");
    for (index, (asked, wanted)) in asked.iter().zip(&expected).enumerate() {
        assert_eq!(one(&guessing, asked, true), *wanted, "{what}: guessed ahead, prompt {index}");
    }
    (asked, expected, put_back)
}

/// The body of a request for the server.
fn body(asked: &Asked) -> Value {
    let ids = asked.prompt.encoder_ids.as_ref().unwrap_or(&asked.prompt.token_ids);
    let mut body = json!({"prompt": ids, "max_tokens": asked.tokens, "ignore_eos": true, "logprobs": 0});
    if let Some(seed) = asked.seed {
        (body["temperature"], body["seed"]) = (json!(0.8), json!(seed));
    }
    body
}

fn bits(list: &Value, path: &str) -> Vec<u32> {
    let number = |one: &Value| (one.pointer(path).and_then(Value::as_f64).expect("a number") as f32).to_bits();
    list.as_array().expect("a list").iter().map(number).collect()
}

/// The same of the program: over HTTP, whole and streamed, many at a time, and on the command line.
fn program(what: &str, (place, path): (&Arc<TempDir>, &Path), asked: &[Asked], expected: &[Said]) {
    let serving = Serving::over(Arc::clone(place), path.to_owned(), &["--no-log"]);
    std::thread::scope(|scope| {
        for offset in 0..4 {
            let serving = &serving;
            scope.spawn(move || {
                for index in (offset..asked.len()).step_by(4) {
                    let mut body = body(&asked[index]);
                    let answer = serving.post("/v1/completions", &body).good();
                    let found = bits(&answer["choices"][0]["logprobs"]["token_logprobs"], "");
                    assert_eq!(found, expected[index].1, "{what}: over HTTP, prompt {index}");
                    body["stream"] = json!(true);
                    let stream = serving.post("/v1/completions", &body);
                    let text = answer["choices"][0]["text"].as_str().expect("a text");
                    assert_eq!(streamed(&stream, false)[&0].0, text, "{what}: streamed, prompt {index}");
                    let list = stream.events().into_iter().flat_map(|event| {
                        event["choices"][0]["logprobs"]["token_logprobs"].as_array().cloned().unwrap_or_default()
                    });
                    assert_eq!(bits(&list.collect(), ""), expected[index].1, "{what}: streamed, prompt {index}");
                }
            });
        }
    });
    let greedy: Vec<usize> = (0..asked.len()).filter(|&index| asked[index].seed.is_none()).collect();
    let Some(&first) = greedy.first() else { return };
    let lines: Vec<&str> = greedy.iter().map(|&index| asked[index].text.as_str()).collect();
    let input = place.path().join("prompts.txt");
    std::fs::write(&input, lines.join("\n")).expect("written");
    let mut command = attend(place.path());
    command.args(["run", "--raw", "--dtype", "f32", "--kv-type", "f32", "--ignore-eos", "--logprobs", "0", "-m"]);
    command.arg(path).args(["--max-tokens", &asked[first].tokens.to_string(), "--input"]).arg(&input);
    let run = ran(&mut command);
    for (line, &index) in run.text().lines().zip(&greedy) {
        let answer: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(bits(&answer["logprobs"], "/logprob"), expected[index].1, "{what}: command line, prompt {index}");
    }
    assert_eq!(run.text().lines().count(), greedy.len());
}

fn opened(path: &Path, dtype: Option<DType>) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, dtype, ..LoadOptions::default() };
    load(path, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"))
}

/// How much of each kind is asked.
struct Amount {
    models: usize,
    prompts: usize,
    types: usize,
    typed: usize,
    wide: usize,
    files: usize,
}

/// Models of wide rows in the types that only these have, and an encoder-decoder in every file that the program makes.
fn wide_ones(amount: &Amount) -> (usize, u64, usize) {
    let (mut prompts, mut put_back, mut kinds) = (0, 0, 0);
    let place = Arc::new(tempfile::tempdir().expect("a folder"));
    for case in &WIDE[..amount.wide] {
        let path = wide(place.path(), case);
        for &dtype in TYPES.iter().take(amount.types).chain(WIDE_ONLY.iter().take(amount.types)) {
            let found = library(&format!("wide {case} in {dtype}"), &path, Some(dtype), (amount.typed, 8));
            (prompts, put_back, kinds) = (prompts + found.0.len(), put_back + found.2, kinds + 1);
        }
    }
    for kind in &FILES[..amount.files] {
        let path = quantized(&place.path().join(WIDE[0]), kind);
        let what = format!("{} in a file of {kind}", WIDE[0]);
        let (asked, expected, back) = library(&what, &path, None, (amount.typed, 8));
        assert!(asked[0].prompt.encoder_ids.is_some());
        program(&what, (&place, &path), &asked, &expected);
        std::fs::remove_file(&path).expect("removed");
        (prompts, put_back) = (prompts + asked.len(), put_back + back);
    }
    (prompts, put_back, kinds)
}

fn m1(amount: &Amount, told: bool) {
    let _alone = alone();
    let (mut prompts, mut put_back, mut kinds) = (0, 0, 0);
    for case in &MODELS[MODELS.len() - amount.models..] {
        let place = Arc::new(tempfile::tempdir().expect("a folder"));
        let path = tiny(place.path(), case, json!({}));
        let (asked, expected, back) = library(case, &path, None, (amount.prompts, 24));
        (prompts, put_back) = (prompts + asked.len(), put_back + back);
        program(case, (&place, &path), &asked, &expected);
        for &dtype in &TYPES[..amount.types.min(TYPES.len())] {
            let found = library(&format!("{case} in {dtype}"), &path, Some(dtype), (amount.typed, 8));
            (prompts, put_back, kinds) = (prompts + found.0.len(), put_back + found.2, kinds + 1);
        }
    }
    for (number, dtype) in &WIDE_TYPES[..amount.types] {
        let place = Arc::new(tempfile::tempdir().expect("a folder"));
        let path = place.path().join("wide.gguf");
        std::fs::write(&path, wide_gguf(*number, *dtype).bytes()).expect("written");
        let what = format!("a file of {dtype}");
        let (asked, expected, back) = library(&what, &path, None, (amount.typed, 8));
        program(&what, (&place, &path), &asked, &expected);
        (prompts, put_back) = (prompts + asked.len(), put_back + back);
    }
    let wide = wide_ones(amount);
    (prompts, put_back, kinds) = (prompts + wide.0, put_back + wide.1, kinds + wide.2);
    assert!(kinds > 0 && (put_back > 0 || !told));
    if told {
        report(
            "M1",
            &format!(
                "{prompts} prompts: {} models in f32, each of them in other types ({kinds} in all), {} types of files of a decoder and \
                 {} of an encoder-decoder: the same tokens and bits alone, in 2, 7, 16, 32, in chunks, kept, put back ({put_back} times), guessed ahead, streamed, \
                 over HTTP and on the command line",
                amount.models,
                WIDE_TYPES.len(),
                amount.files
            ),
        );
    }
}

#[test]
fn m1_same_answer_in_small() {
    m1(&Amount { models: 3, prompts: 10, types: 1, typed: 5, wide: 1, files: 1 }, false);
}

#[test]
#[ignore = "takes minutes"]
fn m1_same_answer() {
    let (models, types) = (MODELS.len(), WIDE_TYPES.len());
    m1(&Amount { models, prompts: 110, types, typed: 16, wide: WIDE.len(), files: FILES.len() }, true);
}
