//! The engine over the golden models: greedy and beam ids exactly, beam scores to the tolerance of the files, and the
//! ways to the same answer against one another.

use attend_engine::sampler::argmax;
use attend_engine::source::{Feed, LogitsSource};
use attend_engine::{Engine, EngineOptions, Error, Event, GenerateOptions, Output, Prompt};
use attend_kernels::{Compute, DType};
use attend_model::{LoadOptions, Loaded, load};
use attend_nn::KvTypes;
use attend_testkit::golden::{Golden, assert_same_bits, golden_root};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;

/// Loads a case in f32, or says why it is skipped: its architecture is not built.
fn load_case(path: &Path) -> Option<Loaded> {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    match load(path, &options, &mut |_, _| {}) {
        Ok(loaded) => Some(loaded),
        Err(attend_model::Error::UnknownArchitecture { name, .. }) => {
            eprintln!("skipped {}: {name} is not built", path.display());
            None
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn f32_engine(loaded: &Loaded, chunk: usize) -> Engine<'_> {
    let options = EngineOptions { chunk, kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    Engine::new(loaded, None, &options).unwrap()
}

fn answer(engine: &Engine<'_>, prompt: Prompt, options: &GenerateOptions) -> Output {
    engine.generate(prompt, options, &mut |_: Event<'_>| ControlFlow::Continue(())).unwrap()
}

/// The case's settings over the model's own defaults; `eos_token_id` decides what ends an answer, as in the recording.
fn settings(engine: &mut Engine<'_>, settings: &Value) -> GenerateOptions {
    let ids = |value: &Value| -> Vec<u32> {
        match value {
            Value::Array(list) => list.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
            other => other.as_u64().map(|id| id as u32).into_iter().collect(),
        }
    };
    let around = engine.surroundings_mut();
    around.end_ids = ids(&settings["eos_token_id"]);
    // Some cases go beyond the length their tiny configuration states, as the reference does.
    around.context = None;
    let handled = ["eos_token_id", "pad_token_id", "decoder_start_token_id"];
    let given = settings.as_object().expect("settings").iter().filter(|(name, _)| !handled.contains(&name.as_str()));
    let given = given.map(|(name, value)| match name.as_str() {
        "max_new_tokens" => ("max_tokens".to_string(), value.clone()),
        "forced_eos_token_id" if value.is_u64() => (name.clone(), json!([value])),
        _ => (name.clone(), value.clone()),
    });
    engine.options(given.collect::<Vec<_>>()).unwrap().options
}

/// The unpadded rows of `ids` under `mask`.
fn rows(golden: &Golden, ids: &str, mask: &str) -> Vec<Vec<u32>> {
    let width = golden.shape(ids)[1];
    let (ids, mask) = (golden.i64(ids), golden.i64(mask));
    let rows = ids.chunks_exact(width).zip(mask.chunks_exact(width));
    rows.map(|(ids, mask)| ids.iter().zip(mask).filter(|(_, m)| **m == 1).map(|(id, _)| *id as u32).collect()).collect()
}

/// The first `length` ids of a stored row, and whether the rest is filling: padding, or (beam search of the reference where
/// the padding id is 0) the end token.
fn stored(golden: &Golden, name: &str, row: usize, length: usize) -> (Vec<u32>, bool) {
    let width = golden.shape(name)[1];
    let ids: Vec<u32> = golden.i64(name)[row * width..(row + 1) * width].iter().map(|id| *id as u32).collect();
    let fills = |id: &u32| {
        ["pad_token_id", "eos_token_id"]
            .iter()
            .any(|key| golden.json["beam"][key] == *id || golden.json["generation"][key] == *id)
    };
    let rest_is_padding = ids.get(length..).is_some_and(|rest| rest.iter().all(fills));
    (ids.into_iter().take(length).collect(), rest_is_padding)
}

fn cases() -> Vec<String> {
    let folders = std::fs::read_dir(golden_root()).unwrap().filter_map(|entry| entry.ok());
    let mut names: Vec<String> = folders
        .filter(|folder| {
            folder.path().join("case.json").is_file() && folder.path().join("expected.safetensors").is_file()
        })
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn greedy_ids_are_exactly_the_references() {
    let mut checked = 0;
    for case in cases() {
        let golden = Golden::case(&case, "expected");
        let decoder = golden.has("greedy.row0.prompt_ids");
        if !decoder && !golden.has("greedy.sequences") {
            continue;
        }
        let Some(loaded) = load_case(&golden_root().join(&case)) else { continue };
        let mut engine = f32_engine(&loaded, 5);
        let options = settings(&mut engine, &golden.json["generation"]);
        checked += 1;
        if decoder {
            for row in 0..3 {
                let ids = |name: &str| -> Vec<u32> {
                    golden.i64(&format!("greedy.row{row}.{name}")).into_iter().map(|id| id as u32).collect()
                };
                let expected = ids("new_ids");
                let options = GenerateOptions {
                    length: attend_engine::Length {
                        max_tokens: Some(options.length.max_tokens.unwrap().min(expected.len().max(1))),
                        ..options.length.clone()
                    },
                    ..options.clone()
                };
                let output = answer(&engine, Prompt::tokens(ids("prompt_ids")), &options);
                assert_eq!(output.choices[0].token_ids, expected, "{case} row {row}");
            }
        } else {
            for (row, source) in rows(&golden, "right.input_ids", "right.attention_mask").into_iter().enumerate() {
                let output = answer(&engine, Prompt::source(source), &options);
                let whole = [output.prompt_token_ids.as_slice(), &output.choices[0].token_ids].concat();
                let (expected, padded) = stored(&golden, "greedy.sequences", row, whole.len());
                assert_eq!(whole, expected, "{case} row {row}");
                assert!(padded, "{case} row {row}: the reference goes on");
            }
        }
    }
    eprintln!("{checked} cases");
    assert!(checked >= 25, "only {checked} cases were checked");
}

#[test]
fn beam_ids_and_scores_are_the_references() {
    let mut checked = 0;
    for case in cases() {
        let golden = Golden::case(&case, "expected");
        if !golden.has("beam.sequences") {
            continue;
        }
        let Some(loaded) = load_case(&golden_root().join(&case)) else { continue };
        for search in ["beam", "beam_b"].into_iter().filter(|search| golden.has(&format!("{search}.sequences"))) {
            let mut engine = f32_engine(&loaded, 64);
            let options = settings(&mut engine, &golden.json[search]);
            let prompts: Vec<Prompt> = match golden.has(&format!("{search}.input_ids")) {
                true => {
                    let ids = golden.i64(&format!("{search}.input_ids"));
                    vec![Prompt::tokens(ids.into_iter().map(|id| id as u32).collect::<Vec<_>>())]
                }
                false => {
                    rows(&golden, "right.input_ids", "right.attention_mask").into_iter().map(Prompt::source).collect()
                }
            };
            let scores = golden.f32(&format!("{search}.sequences_scores"));
            let returned = options.beam.num_return_sequences;
            assert_eq!(scores.len(), prompts.len() * returned);
            for (row, prompt) in prompts.into_iter().enumerate() {
                let output = answer(&engine, prompt, &options);
                for (place, choice) in output.choices.iter().enumerate() {
                    let whole = [output.prompt_token_ids.as_slice(), &choice.token_ids].concat();
                    let at = row * returned + place;
                    let (expected, padded) = stored(&golden, &format!("{search}.sequences"), at, whole.len());
                    assert_eq!(whole, expected, "{case} {search} row {row} place {place}");
                    assert!(padded, "{case} {search} row {row} place {place}: the reference goes on");
                    let score = choice.score.unwrap();
                    assert!(
                        (score - scores[at]).abs() <= 1e-3,
                        "{case} {search} {row} {place}: {score} {}",
                        scores[at]
                    );
                }
                assert_eq!(output.choices.len(), returned);
            }
            checked += 1;
        }
    }
    eprintln!("{checked} searches");
    assert!(checked >= 6, "only {checked} searches were checked");
}

/// One small model of each kind of position, and an encoder-decoder.
const KINDS: [&str; 8] =
    ["gpt2", "llama-gqa", "llama-rope-dynamic", "phi3-longrope-long", "gemma3", "bloom", "mistral", "t5-v1.1"];

fn prompt_of(golden: &Golden, row: usize) -> Prompt {
    match golden.has("greedy.row0.prompt_ids") {
        true => {
            let ids = golden.i64(&format!("greedy.row{row}.prompt_ids"));
            Prompt::tokens(ids.into_iter().map(|id| id as u32).collect::<Vec<_>>())
        }
        false => Prompt::source(rows(golden, "right.input_ids", "right.attention_mask")[row].clone()),
    }
}

/// Chunks of any size, with and without neighbours, f32 and f16 caches: the same bits.
#[test]
fn chunks_and_choices_give_the_same_bits() {
    for case in KINDS {
        let golden = Golden::case(case, "expected");
        let Some(loaded) = load_case(&golden_root().join(case)) else { continue };
        for kv in [DType::F32, DType::F16] {
            let run = |chunk: usize, n: usize| {
                let options = EngineOptions { chunk, kv: KvTypes::both(kv), ..EngineOptions::default() };
                let mut engine = Engine::new(&loaded, None, &options).unwrap();
                engine.surroundings_mut().context = None;
                engine.surroundings_mut().end_ids.clear();
                let mut options = GenerateOptions::default();
                (options.sampling.temperature, options.sampling.seed) = (1.0, Some(5));
                (options.length.max_tokens, options.length.n) = (Some(10), n);
                (options.report.logprobs, options.report.prompt_logprobs) = (Some(2), Some(2));
                answer(&engine, prompt_of(&golden, 0), &options)
            };
            let whole = run(512, 1);
            for (chunk, n) in [(1, 1), (2, 1), (7, 1), (512, 4), (3, 2)] {
                let other = run(chunk, n);
                assert_eq!(other.choices[0], whole.choices[0], "{case} {kv} chunk {chunk}, {n} choices");
                assert_eq!(other.prompt_logprobs, whole.prompt_logprobs, "{case} {kv} chunk {chunk}");
            }
        }
    }
}

/// What was generated with the cache, scored again from nothing, has the same log-probabilities.
#[test]
fn the_cache_agrees_with_a_full_recomputation() {
    for case in KINDS {
        let golden = Golden::case(case, "expected");
        let Some(loaded) = load_case(&golden_root().join(case)) else { continue };
        let mut engine = f32_engine(&loaded, 512);
        engine.surroundings_mut().context = None;
        engine.surroundings_mut().end_ids.clear();
        let mut options = GenerateOptions::default();
        (options.report.logprobs, options.length.max_tokens) = (Some(0), Some(12));
        let prompt = prompt_of(&golden, 1);
        let output = answer(&engine, prompt.clone(), &options);
        let whole = [output.prompt_token_ids.as_slice(), &output.choices[0].token_ids].concat();
        let score = engine.score(Prompt { token_ids: whole, ..prompt }, 0).unwrap();
        let again = score.logprobs[output.prompt_token_ids.len()..].iter().flatten();
        // With dynamic NTK a text scored at once has other positions than one that grew: the reference's rule.
        let exact = case != "llama-rope-dynamic";
        for (token, again) in output.choices[0].logprobs.iter().zip(again).take(if exact { 12 } else { 1 }) {
            assert_eq!(token.id, again.id);
            if exact {
                assert_eq!(token.logprob, again.logprob, "{case}");
            }
        }
    }
}

/// A sequence that grows over LongRoPE's limit is computed anew: the same as one that was fed at once.
#[test]
fn crossing_the_limit_of_longrope_recomputes() {
    let Some(loaded) = load_case(&golden_root().join("phi3-longrope-long")) else { return };
    let original = loaded.source.checkpoint.config().usize("original_max_position_embeddings").unwrap();
    let mut engine = f32_engine(&loaded, 4);
    engine.surroundings_mut().context = None;
    engine.surroundings_mut().end_ids.clear();
    let mut options = GenerateOptions::default();
    (options.report.logprobs, options.length.max_tokens, options.length.n) = (Some(0), Some(8), 2);
    (options.sampling.temperature, options.sampling.seed) = (1.0, Some(1));
    let prompt: Vec<u32> = (0..original as u32 - 3).map(|i| 5 + i * 7 % 60).collect();
    let output = answer(&engine, Prompt::tokens(prompt.clone()), &options);
    for choice in &output.choices {
        // The token at place p was chosen from the first p tokens, all under the regime of their length.
        for (index, token) in choice.logprobs.iter().enumerate() {
            let text = [prompt.as_slice(), &choice.token_ids[..index]].concat();
            let mut once = GenerateOptions::default();
            (once.report.logprobs, once.length.max_tokens) = (Some(0), Some(1));
            once.constraints.allowed_tokens = vec![token.id];
            let fresh = answer(&engine, Prompt::tokens(text), &once);
            assert_eq!(fresh.choices[0].logprobs[0], *token, "place {}", prompt.len() + index);
        }
    }
    assert_ne!(output.choices[0].token_ids, output.choices[1].token_ids);
}

/// SMP-04 with a real model: one NaN in the final norm.
#[test]
fn a_damaged_weight_is_an_error_that_names_the_logits() {
    let folder = tempfile::tempdir().unwrap();
    let case = golden_root().join("llama-gqa");
    for file in ["config.json", "generation_config.json"] {
        std::fs::copy(case.join(file), folder.path().join(file)).unwrap();
    }
    let mut bytes = std::fs::read(case.join("model.safetensors")).unwrap();
    let start = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..start]).unwrap();
    let entry = &header["model.norm.weight"];
    let offset = start + entry["data_offsets"][0].as_u64().unwrap() as usize;
    let nan: &[u8] = if entry["dtype"] == "F32" { &[0, 0, 0xC0, 0x7F] } else { &[0xC0, 0x7F] };
    bytes[offset..offset + nan.len()].copy_from_slice(nan);
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let loaded =
        match load(folder.path(), &LoadOptions { compute: Compute::F32, ..LoadOptions::default() }, &mut |_, _| {}) {
            Ok(loaded) => loaded,
            // A loader that already refuses the weight is as good.
            Err(error) => {
                assert!(error.to_string().contains("norm"), "{error}");
                return;
            }
        };
    let engine = f32_engine(&loaded, 8);
    for temperature in [0.0, 1.0] {
        let mut options = GenerateOptions::default();
        (options.sampling.temperature, options.length.max_tokens) = (temperature, Some(3));
        let error = engine.generate(Prompt::tokens([5, 6]), &options, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(error, Error::NonFinite { position: 2, .. }), "{error}");
    }
}

/// SMP-10, SMP-03: greedy answers alone and in step with others, in batches of several sizes.
#[test]
fn neighbours_in_a_batch_change_nothing() {
    let Some(loaded) = load_case(&golden_root().join("llama-gqa")) else { return };
    let engine = f32_engine(&loaded, 64);
    let source = engine.source();
    let mut random = attend_testkit::golden::Random(7);
    let mut prompt = || (0..1 + random.below(12)).map(|_| random.below(source.vocab()) as u32).collect::<Vec<_>>();
    let prompts: Vec<Vec<u32>> = (0..200).map(|_| prompt()).collect();
    // Each sequence: its tokens after four steps, and every row of logits on the way.
    let run = |size: usize| -> Vec<(Vec<u32>, Vec<f32>)> {
        prompts.chunks(size).flat_map(|batch| together(source, batch, 4)).collect()
    };
    let alone = run(1);
    for size in [2, 7, 16, 32] {
        for (index, (together, alone)) in run(size).iter().zip(&alone).enumerate() {
            assert_eq!(together.0, alone.0, "prompt {index} in batches of {size}");
            assert_same_bits(&format!("prompt {index} in batches of {size}"), &together.1, &alone.1);
        }
    }
}

/// Continues several prompts greedily, all in each step.
fn together<S: LogitsSource>(source: &S, prompts: &[Vec<u32>], steps: usize) -> Vec<(Vec<u32>, Vec<f32>)> {
    let mut states: Vec<S::State> = prompts.iter().map(|prompt| source.start(prompt.len(), None).unwrap()).collect();
    let mut new: Vec<Vec<u32>> = prompts.to_vec();
    let mut answers: Vec<(Vec<u32>, Vec<f32>)> = vec![Default::default(); prompts.len()];
    for _ in 0..steps {
        let feeds = states.iter_mut().zip(&new);
        let mut feeds: Vec<Feed<'_, S::State>> =
            feeds.map(|(state, tokens)| Feed { state, tokens, rows_from: tokens.len() - 1 }).collect();
        source
            .feed(&mut feeds, &mut |index, _, row| {
                answers[index].0.push(argmax(row).unwrap());
                answers[index].1.extend_from_slice(row);
                Ok(())
            })
            .unwrap();
        new = answers.iter().map(|(tokens, _)| tokens[tokens.len() - 1..].to_vec()).collect();
    }
    answers
}

/// SMP-07: the end tokens of config.json, generation_config.json and the tokenizer together.
#[test]
fn end_tokens_of_every_file_count() {
    let folder = tempfile::tempdir().unwrap();
    let case = golden_root().join("llama-gqa");
    std::fs::copy(case.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let mut config = attend_testkit::golden::read_json(&case.join("config.json"));
    config["eos_token_id"] = json!(7);
    let vocab = config["vocab_size"].as_u64().unwrap();
    let words: serde_json::Map<String, Value> = (0..vocab).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "added_tokens": [{"id": 11, "content": "w11", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}
    });
    let files = [
        ("config.json", config),
        ("generation_config.json", json!({"eos_token_id": [7, 9]})),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", json!({"eos_token": "w11"})),
    ];
    for (name, value) in files {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    let loaded = load_case(folder.path()).unwrap();
    let tokenizer = attend_text::Tokenizer::open(folder.path()).unwrap();
    let engine = Engine::new(&loaded, Some(&tokenizer), &EngineOptions::default()).unwrap();
    assert_eq!(engine.surroundings().end_ids, [7, 9, 11]);
    // The tree of constraints is there once somebody wanted it, and not before.
    let tree = |built: bool| format!("{:?}", engine.surroundings().grammars).contains(&format!("tokens: {built}"));
    assert!(tree(false));
    engine.warm_constraints();
    assert!(tree(true));
    for end in [7, 9, 11] {
        let mut options = GenerateOptions::default();
        options.constraints.allowed_tokens = vec![end];
        let output = answer(&engine, Prompt::tokens([20, 21]), &options);
        assert_eq!((output.choices[0].text.as_str(), output.choices[0].finish.reason()), ("", "stop"));
        assert_eq!(output.choices[0].token_ids, [end]);
    }
}

/// An encoder does not write, and says so; a decoder has no source, an encoder-decoder needs one.
#[test]
fn models_that_cannot_do_what_is_asked_say_so() {
    if let Some(loaded) = load_case(&golden_root().join("bert-mlm")) {
        let error = Engine::new(&loaded, None, &EngineOptions::default()).unwrap_err().to_string();
        assert!(error.contains("encoder"), "{error}");
    }
    let ask = |case: &str, prompt: Prompt| {
        let loaded = load_case(&golden_root().join(case))?;
        let engine = f32_engine(&loaded, 8);
        let error = engine.generate(prompt, &GenerateOptions::default(), &mut |_| ControlFlow::Continue(()));
        Some(error.unwrap_err().to_string())
    };
    if let Some(error) = ask("llama-mha", Prompt { token_ids: vec![1], encoder_ids: Some(vec![1]) }) {
        assert!(error.contains("no encoder"), "{error}");
    }
    if let Some(error) = ask("t5-v1.1", Prompt::tokens([1])) {
        assert!(error.contains("source"), "{error}");
    }
    let loaded = load_case(&golden_root().join("llama-mha")).unwrap();
    let options = EngineOptions { context: Some(1 << 20), ..EngineOptions::default() };
    let error = Engine::new(&loaded, None, &options).unwrap_err().to_string();
    assert!(error.contains("1048576") && error.contains("128"), "{error}");
}
