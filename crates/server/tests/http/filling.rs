//! Gaps between two texts, and the best of several answers.

use crate::support::{Setup, loader, tiny_server, told};
use serde_json::{Value, json};

const WORDS: [&str; 11] = [
    "?",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "before",
    "behind",
    "in",
    "the",
    "gap",
    "<|file_sep|>",
    "END",
];

#[test]
fn a_gap_is_filled_between_two_texts() {
    // Behind the mark of the answer comes "in the gap", then the mark of another file, and then it would begin anew.
    let folder = told(&WORDS, &[6, 6, 6, 6, 6, 6, 7, 8, 9, 6, 10], &[10]);
    let serving = Setup::new(vec![("fills", loader(folder.path(), None))]).ready();
    let body = json!({"prompt": "before before", "suffix": "behind"});
    let answer = serving.post("/v1/completions", &body).good();
    assert_eq!(
        (&answer["choices"][0]["text"], &answer["choices"][0]["finish_reason"]),
        (&json!("inthegap"), &json!("stop"))
    );
    // Three marks stand around three words.
    assert_eq!(answer["usage"]["prompt_tokens"], 6);
    let tokens = json!({"prompt": [1, 4, 4, 2, 5, 3], "max_tokens": 3});
    assert_eq!(serving.post("/v1/completions", &tokens).good()["choices"][0]["text"], "inthegap");
    // A request's own ends are kept beside those of a gap.
    let mut own = body.clone();
    own["stop_ids"] = json!([7]);
    let answer = serving.post("/v1/completions", &own).good();
    assert_eq!(answer["choices"][0]["text"], "in");
    let stream = serving.post("/v1/completions", &json!({"prompt": "", "suffix": "behind", "stream": true})).events();
    let text: String = stream.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, "inthegap");
    // In Ollama's words.
    let body = json!({"model": "fills", "prompt": "before", "suffix": "behind", "stream": false});
    let answer = serving.post("/api/generate", &body).good();
    assert_eq!((&answer["response"], &answer["prompt_eval_count"]), (&json!("inthegap"), &json!(5)));
    for (field, wrong) in [
        ("suffix", json!({"prompt": "before", "suffix": "behind", "echo": true})),
        ("suffix", json!({"prompt": [4, 5], "suffix": "behind"})),
        ("suffix", json!({"prompt": "before", "suffix": 5.5})),
    ] {
        assert_eq!(serving.post("/v1/completions", &wrong).refused(400)["param"], field, "{wrong}");
    }
}

#[test]
fn models_that_fill_no_gaps_say_so() {
    let serving = tiny_server(json!({}), None);
    let error = serving.post("/v1/completions", &json!({"prompt": "t5", "suffix": "t6"})).refused(400);
    assert_eq!((&error["param"], &error["code"]), (&json!("suffix"), &json!("no_infill_tokens")));
    let answer = serving.post("/api/generate", &json!({"model": "tiny", "prompt": "t5", "suffix": "t6"}));
    assert!(answer.status == 400 && answer.body.contains("does not fill gaps"), "{answer:?}");
    // No suffix is no gap.
    serving.post("/v1/completions", &json!({"prompt": "t5", "suffix": ""})).good();
}

#[test]
fn the_best_of_several_answers_are_given() {
    let serving = tiny_server(json!({}), None);
    let body = |changes: Value| {
        let mut body = json!({
            "prompt": ["t5 t6", "t7"], "temperature": 1.3, "seed": 11, "max_tokens": 9, "ignore_eos": true
        });
        body.as_object_mut().expect("an object").extend(changes.as_object().cloned().expect("an object"));
        body
    };
    let ask = |changes: Value| serving.post("/v1/completions", &body(changes)).good();
    let all = ask(json!({"n": 6, "logprobs": 0}));
    let mut wanted = Vec::new();
    for prompt in all["choices"].as_array().expect("choices").chunks(6) {
        let mean = |choice: &Value| {
            let logprobs = choice["logprobs"]["token_logprobs"].as_array().expect("a list");
            logprobs.iter().filter_map(Value::as_f64).sum::<f64>() / logprobs.len() as f64
        };
        let mut ranked: Vec<(f64, &Value)> = prompt.iter().map(|choice| (mean(choice), &choice["text"])).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        wanted.extend(ranked[..2].iter().map(|(_, text)| (*text).clone()));
    }
    let best = ask(json!({"n": 2, "best_of": 6}));
    let choices = best["choices"].as_array().expect("choices");
    assert_eq!(choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>(), wanted);
    assert!(choices.iter().enumerate().all(|(at, choice)| choice["index"] == at && choice["logprobs"].is_null()));
    assert_eq!(best["usage"], all["usage"], "all that was made counts");
    let shown = ask(json!({"best_of": 6, "logprobs": 2}));
    assert_eq!(shown["choices"].as_array().map(Vec::len), Some(2));
    assert_eq!((&shown["choices"][0]["text"], &shown["choices"][1]["text"]), (&wanted[0], &wanted[2]));
    assert_eq!(shown["choices"][0]["logprobs"]["tokens"].as_array().map(Vec::len), Some(9));
    assert_eq!(ask(json!({"n": 3, "best_of": 3}))["choices"].as_array().map(Vec::len), Some(6));
    for wrong in [
        json!({"n": 3, "best_of": 2}),
        json!({"best_of": 17}),
        json!({"best_of": 2, "stream": true}),
        json!({"best_of": 4, "n": 2, "num_beams": 4, "temperature": 0}),
    ] {
        let error = serving.post("/v1/completions", &body(wrong.clone())).refused(400);
        assert_eq!(error["param"], "best_of", "{wrong}: {error}");
    }
}
