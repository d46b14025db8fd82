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

/// Fields with two values, and whether the library has them by the same name.
fn fields() -> Vec<(&'static str, [Value; 2], bool)> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    vec![
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
        ("echo", [json!(true), json!(false)], false),
        ("logprobs", [json!(0), json!(5)], false),
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
    let (fields, mut compared, mut statuses) = (fields(), 0, BTreeMap::<u16, usize>::new());
    for (index, (first, firsts, own)) in fields.iter().enumerate() {
        for (second, seconds, other) in &fields[index + 1..] {
            for (value, with_value) in (0..4).map(|pair| (&firsts[pair % 2], &seconds[pair / 2])).take(values) {
                // What is sampled says the same with the same seed.
                let mut changes = json!({"max_tokens": 8, "seed": 9});
                changes[*first] = value.clone();
                changes[*second] = with_value.clone();
                let answer =
                    serving.post("/v1/completions", &with(&json!({"prompt": [5, 6, 7, 5, 6]}), changes.clone()));
                assert!([200, 400].contains(&answer.status), "{changes}: {answer:?}");
                assert!(!answer.body.contains("server_error"), "{changes}: {answer:?}");
                *statuses.entry(answer.status).or_default() += 1;
                if *own && *other {
                    let text = (answer.status == 200).then(|| answer.json()["choices"][0]["text"].clone());
                    let text = text.and_then(|text| text.as_str().map(str::to_owned));
                    assert_eq!(text, library(&changes), "{changes}");
                    compared += 1;
                }
            }
        }
    }
    serving.until_idle();
    assert!(statuses[&200] > statuses[&400] * 2, "{statuses:?}");
    if said {
        report("Q3", &format!("{statuses:?} by status, none of 5xx; {compared} compared with the library"));
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
