//! Real models against the reference on the same weights: prompts' ids, greedy continuations, log-probabilities and
//! embeddings that `tools/record_real.py` recorded. Models are looked for in `ATTEND_TEST_MODELS` (a folder with
//! one folder a model) and, the default one, in the user's own models folder; absent ones are skipped.

mod common;

use attend::engine::{Engine, EngineOptions, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, Loaded, load};
use attend::nn::KvTypes;
use attend::text::{EncodeOptions, Tokenizer};
use common::ids;
use common::real::{model, recorded};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;

/// Under quantised arithmetic a greedy token may differ from the reference's only where the reference's two best logits
/// are closer than this. The kernels round activations to 8 bits per 32 values: about 0.4 % of each block's largest
/// value, which over a whole model comes to a few tenths in a logit.
const QUANTISED_GAP: f64 = 1.0;

fn loaded(path: &Path, compute: Compute) -> Loaded {
    load(path, &LoadOptions { compute, ..LoadOptions::default() }, &mut |_, _| {}).expect("the model loads")
}

/// What differed between ours and the reference's ids.
struct Difference {
    prompt: String,
    /// The reference's gap between its two best logits where the ids part.
    gap: f64,
}

/// Greedy continuations of every recorded prompt. The reference's path ends at its first control token.
fn continuations(reference: &Value, loaded: &Loaded, types: KvTypes) -> Vec<Difference> {
    let options = EngineOptions { kv: types, ..EngineOptions::default() };
    let mut engine = Engine::new(loaded, None, &options).expect("an engine");
    engine.surroundings_mut().end_ids = Vec::new();
    let source = engine.is_encoder_decoder();
    let mut differences = Vec::new();
    let prompts = reference["prompts"].as_array().expect("prompts");
    assert!(prompts.len() >= 20, "at least twenty prompts");
    for case in prompts {
        let (prompt, expected) = (ids(&case["prompt_ids"]), ids(&case["greedy_ids"]));
        let prompt = if source { Prompt::source(prompt) } else { Prompt::tokens(prompt) };
        let given = [("temperature", json!(0.0)), ("max_tokens", json!(expected.len())), ("num_beams", json!(1))];
        let given = given.into_iter().map(|(name, value)| (name.to_owned(), value));
        let mut options = engine.options(given).expect("options").options;
        options.sampling.repetition_penalty = 1.0;
        let output = engine.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).expect("an answer");
        let found = &output.choices[0].token_ids;
        if let Some(at) = (0..expected.len()).find(|at| found.get(*at) != Some(&expected[*at])) {
            let gap = case["gaps"][at].as_f64().expect("a gap");
            differences.push(Difference { prompt: format!("{} at {at}", case["name"]), gap });
        }
    }
    differences
}

fn check_continuations(name: &str, place: &str) {
    let Some(path) = model(name, place) else { return };
    let reference = recorded(name);
    let exact = loaded(&path, Compute::F32);
    check_prompt_ids(&reference, &path);
    check_score(&reference, &exact);
    if let Some(Difference { prompt, gap }) = continuations(&reference, &exact, KvTypes::both(DType::F32)).first() {
        panic!("{name} in f32: {prompt} differs from the reference (gap {gap})");
    }
    drop(exact);
    let native = loaded(&path, Compute::Native);
    let count = reference["prompts"].as_array().map_or(0, Vec::len);
    let differences = continuations(&reference, &native, KvTypes::both(DType::F16));
    for Difference { prompt, gap } in &differences {
        assert!(*gap <= QUANTISED_GAP, "{name}, quantised: {prompt} differs where the gap is {gap}");
    }
    eprintln!("{name}: {} of {count} paths part under quantised arithmetic, each at a small gap", differences.len());
}

/// Our tokenizer gives the recorded ids for the recorded texts.
fn check_prompt_ids(reference: &Value, path: &Path) {
    let tokenizer = Tokenizer::open(path).expect("a tokenizer");
    for case in reference["prompts"].as_array().expect("prompts") {
        let options = EncodeOptions { add_special: true, parse_special: true };
        let found = tokenizer.encode(case["text"].as_str().expect("a text"), options).expect("encoded").ids;
        assert_eq!(found, ids(&case["prompt_ids"]), "{}", case["name"]);
    }
}

/// The log-likelihood of the recorded text.
fn check_score(reference: &Value, loaded: &Loaded) {
    let score = &reference["score"];
    let options = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let engine = Engine::new(loaded, None, &options).expect("an engine");
    let prompt = match engine.is_encoder_decoder() {
        false => Prompt::tokens(ids(&score["ids"])),
        true => Prompt { token_ids: ids(&score["target_ids"]), encoder_ids: Some(ids(&score["ids"])) },
    };
    let found = engine.score(prompt, 0).expect("scored");
    let expected = score["sum"].as_f64().expect("a sum");
    let error = (found.total - expected).abs();
    assert!(error <= 1e-4 * expected.abs(), "log-likelihood {}, the reference has {expected}", found.total);
}

#[test]
fn smollm2_135m() {
    check_continuations("smollm2-135m", "smollm2-135m-gguf/SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
fn gemma3_270m() {
    check_continuations("gemma3-270m", "gemma3-270m-gguf/gemma-3-270m-q4_k_m.gguf");
}

#[test]
fn qwen2_5_coder_0_5b() {
    check_continuations("qwen2.5-0.5b", "qwen2.5-0.5b-gguf/model.gguf");
}

#[test]
fn qwen2_5_coder_1_5b_agrees() {
    check_continuations("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-gguf/model.gguf");
}

#[test]
fn flan_t5_small() {
    check_continuations("flan-t5-small-title", "flan-t5-small-title");
    check_beams("flan-t5-small-title", "flan-t5-small-title");
}

/// The best sequences of beam search with their scores, in f32; the ids of the best one in the model's own arithmetic.
fn check_beams(name: &str, place: &str) {
    let Some(path) = model(name, place) else { return };
    let reference = recorded(name);
    let ends = ids(&reference["stop_ids"]);
    for (compute, dtype) in [(Compute::F32, DType::F32), (Compute::Native, DType::F16)] {
        let loaded = loaded(&path, compute);
        let options = EngineOptions { kv: KvTypes::both(dtype), ..EngineOptions::default() };
        let mut engine = Engine::new(&loaded, None, &options).expect("an engine");
        engine.surroundings_mut().end_ids = ends.clone();
        let mut given = vec![("max_tokens".to_owned(), reference["max_new_tokens"].clone())];
        let settings = reference["beam_settings"].as_object().expect("settings");
        given.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
        let options = engine.options(given).expect("options").options;
        let cases = reference["prompts"].as_array().expect("prompts").iter().filter(|case| case.get("beams").is_some());
        let mut count = 0;
        for case in cases {
            let prompt = Prompt::source(ids(&case["prompt_ids"]));
            let output = engine.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).expect("an answer");
            let expected = case["beams"].as_array().expect("beams");
            let checked = if compute == Compute::F32 { expected.len() } else { 1 };
            for (choice, expected) in output.choices.iter().zip(expected).take(checked) {
                assert_eq!(choice.token_ids, ids(&expected["ids"]), "{name} {}: {compute:?}", case["name"]);
                let score = expected["score"].as_f64().expect("a score");
                let error = (f64::from(choice.score.expect("a score")) - score).abs();
                let allowed = if compute == Compute::F32 { 1e-3 } else { 1e-2 };
                assert!(error < allowed, "{name} {}: {compute:?}: {:?} against {score}", case["name"], choice.score);
            }
            count += 1;
        }
        assert!(count >= 20, "at least twenty searches");
    }
}
