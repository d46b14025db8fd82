//! Q3: every pair of optional fields, each at two values that are right by themselves: never a fault, and where the library
//! has the same words, what the library answers.

use crate::client::with;
use crate::serving::{Serving, alone, report};
use attend::engine::{Engine, EngineOptions, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, load};
use attend::nn::KvTypes;
use attend::text::Tokenizer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// A field with two values, and whether the library has it by the same name.
type Field = (&'static str, [Value; 2], bool);

/// What every request here has, so that it is short.
const GIVEN: [&str; 5] = ["model", "prompt", "messages", "max_tokens", "max_completion_tokens"];

/// The fields of a route.
fn fields(path: &str) -> Vec<Field> {
    let mut fields = common();
    fields.extend(if path == COMPLETIONS { of_completions() } else { of_chat() });
    fields
}

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn of_completions() -> Vec<Field> {
    vec![
        ("suffix", [json!("t5"), json!("t6 t7")], false),
        ("echo", [json!(true), json!(false)], false),
        ("logprobs", [json!(0), json!(5)], false),
        ("best_of", [json!(1), json!(3)], false),
    ]
}

fn of_chat() -> Vec<Field> {
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]);
    vec![
        ("logprobs", [json!(true), json!(false)], false),
        ("top_logprobs", [json!(1), json!(20)], false),
        ("chat_template_kwargs", [json!({"enable_thinking": true}), json!({"a": [1]})], false),
        ("tools", [tool("look"), tool("go")], false),
        ("tool_choice", [json!("auto"), json!("none")], false),
        ("parallel_tool_calls", [json!(true), json!(false)], false),
        ("reasoning_effort", [json!("low"), json!("high")], false),
        ("reasoning_format", [json!("none"), json!("auto")], false),
    ]
}

/// Those that both routes have.
fn common() -> Vec<Field> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let named = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    vec![
        ("priority", [json!(-3), json!(1000)], false),
        // There is no adapter whose strength could be said.
        ("lora", [json!([]), json!([])], false),
        ("stream_options", [json!({"include_usage": true}), json!({"include_usage": false})], false),
        ("response_format", [json!({"type": "json_object"}), named], false),
        ("structured_outputs", [json!({"regex": "[a-z]{2}"}), json!({"choice": ["ab", "c"]})], false),
        ("json_schema", [schema.clone(), json!({"enum": ["b"]})], false),
        ("grammar", [json!("root ::= \"t5\""), json!("root ::= [a-z]+")], false),
        ("guided_grammar", [json!("start: \"t5\""), json!("start: /[a-c]+/")], false),
        ("temperature", [json!(0.0), json!(0.9)], true),
        ("top_p", [json!(0.5), json!(1.0)], true),
        ("n", [json!(1), json!(2)], false),
        ("seed", [json!(3), json!(u64::MAX)], true),
        ("stop", [json!("t5"), json!(["t6 t", "t7"])], false),
        ("presence_penalty", [json!(-1.5), json!(0.5)], true),
        ("frequency_penalty", [json!(-0.5), json!(1.5)], true),
        ("logit_bias", [json!({"5": 1}), json!({"6": -100})], false),
        ("top_k", [json!(0), json!(5)], true),
        ("min_p", [json!(0.0), json!(0.1)], true),
        ("typical_p", [json!(0.9), json!(1.0)], true),
        ("repetition_penalty", [json!(0.8), json!(1.3)], true),
        ("repeat_last_n", [json!(-1), json!(4)], true),
        ("mirostat", [json!(0), json!(2)], true),
        ("dry_multiplier", [json!(0.0), json!(0.8)], true),
        ("xtc_probability", [json!(0.0), json!(0.5)], true),
        ("min_tokens", [json!(0), json!(3)], true),
        ("ignore_eos", [json!(true), json!(false)], true),
        ("num_beams", [json!(1), json!(3)], true),
        ("length_penalty", [json!(-1.0), json!(2.0)], true),
        ("no_repeat_ngram_size", [json!(0), json!(2)], true),
        ("prompt_lookup_num_tokens", [json!(0), json!(4)], true),
        ("cache_salt", [json!("a"), json!("b")], false),
        ("stream", [json!(true), json!(false)], false),
        ("skip_special", [json!(true), json!(false)], false),
        ("stop_ids", [json!([5]), json!([6, 7])], false),
        ("banned_tokens", [json!([5]), json!([6, 7])], false),
        ("guided_regex", [json!("[a-z]{2,5}"), json!("(ab ?)*")], false),
        ("guided_json", [schema, json!({"enum": ["a", 7]})], false),
        ("guided_choice", [json!(["ab", "cd"]), json!(["t7"])], false),
    ]
}

fn q3(values: usize, said: bool) {
    let _alone = alone();
    let serving = Serving::start(&["--no-log"]);
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = load(&serving.model, &options, &mut |_, _| {}).expect("loads");
    let tokenizer = Tokenizer::open(&serving.model).expect("a tokenizer");
    let run = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let engine = Engine::new(&loaded, Some(&tokenizer), &run).expect("an engine");
    let library = |given: &Value| -> Option<String> {
        let options = engine.options(given.as_object().expect("an object").clone()).ok()?.options;
        let prompt = Prompt::tokens([5, 6, 7, 5, 6]);
        let output = engine.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).ok()?;
        Some(output.choices[0].text.clone())
    };
    let (mut compared, mut statuses) = (0, BTreeMap::<u16, usize>::new());
    let document = serving.get("/openapi.json").good();
    for path in [COMPLETIONS, CHAT] {
        let (fields, text) = (fields(path), path == COMPLETIONS);
        let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        for name in schema["properties"].as_object().expect("properties").keys() {
            let known = GIVEN.contains(&name.as_str()) || fields.iter().any(|(own, ..)| own == name);
            assert!(known, "{path}: {name} is in no pair");
        }
        let good = match text {
            true => json!({"prompt": [5, 6, 7, 5, 6]}),
            false => json!({"messages": [{"role": "user", "content": "t5 t6 t7"}]}),
        };
        pairs(&serving, (path, &good, &fields), values, &mut |given, status, answer, both| {
            *statuses.entry(status).or_default() += 1;
            if text && both {
                assert_eq!(answer, library(given), "{given}");
                compared += 1;
            }
        });
    }
    serving.until_idle();
    assert!(statuses[&200] > statuses[&400] * 2, "{statuses:?}");
    assert_eq!(serving.figure("faults_total"), 0.0);
    if said {
        report("Q3", &format!("{statuses:?} by status, none of 5xx; {compared} compared with the library"));
    }
}

/// Is given the fields, the status, the answer's text, and whether the library has both fields.
type Seen<'s> = dyn FnMut(&Value, u16, Option<String>, bool) + 's;

fn pairs(serving: &Serving, (path, good, fields): (&str, &Value, &[Field]), values: usize, seen: &mut Seen<'_>) {
    for (index, (first, firsts, own)) in fields.iter().enumerate() {
        for (second, seconds, other) in &fields[index + 1..] {
            for (value, with_value) in (0..4).map(|pair| (&firsts[pair % 2], &seconds[pair / 2])).take(values) {
                // What is sampled says the same with the same seed.
                let mut changes = json!({"max_tokens": 8, "seed": 9});
                changes[*first] = value.clone();
                changes[*second] = with_value.clone();
                // What these are about must be there.
                for (name, about, value) in [
                    ("stream_options", "stream", json!(true)),
                    ("top_logprobs", "logprobs", json!(true)),
                    ("tool_choice", "tools", of_chat()[3].1[0].clone()),
                ] {
                    if [first, second].contains(&&name) && changes.get(about).is_none() {
                        changes[about] = value;
                    }
                }
                let answer = serving.post(path, &with(good, changes.clone()));
                assert!([200, 400].contains(&answer.status), "{path} {changes}: {answer:?}");
                assert!(!answer.body.contains("server_error"), "{path} {changes}: {answer:?}");
                let both = *own && *other;
                let text = (both && answer.status == 200).then(|| answer.json()["choices"][0]["text"].clone());
                seen(&changes, answer.status, text.and_then(|text| text.as_str().map(str::to_owned)), both);
            }
        }
    }
}

#[test]
fn q3_pairs_in_small() {
    q3(1, false);
}

#[test]
#[ignore = "takes longer"]
fn q3_pairs() {
    q3(4, true);
}
