//! Answers are the engine's, bit for bit, whole or streamed.

pub use crate::client::{streamed, whole, with};
use crate::support::{Serving, Setup, golden_encoder, loader, parts, tiny, tiny_server};
use attend_engine::tasks::embed::{EmbedOptions, Embedder, Role};
use attend_engine::tasks::{TaskModel, TaskOptions};
use attend_engine::{Engine, Output, Prompt};
use attend_server::Parts;
use attend_text::Render;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// What the library answers.
fn library(parts: &Parts, ids: Vec<u32>, given: Value) -> Output {
    let engine = Engine::new(&parts.loaded, Some(&parts.tokenizer), &parts.options).expect("an engine");
    let given = given.as_object().cloned().expect("an object");
    let options = engine.options(given).expect("good options").options;
    engine.generate(Prompt::tokens(ids), &options, &mut |_| ControlFlow::Continue(())).expect("an answer")
}

/// The same request streamed gives the same.
fn both_ways(serving: &Serving, path: &str, body: &Value) -> Value {
    let chat = path.contains("chat");
    let answer = serving.post(path, body).good();
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let stream = serving.post(path, &with(body, stream));
    assert_eq!(streamed(&stream, chat), whole(&answer, chat), "{body}");
    let events = stream.events();
    let (last, others) = events.split_last().expect("events");
    assert_eq!((&last["usage"], &last["choices"]), (&answer["usage"], &json!([])));
    assert!(others.iter().all(|event| event["usage"].is_null() && event["choices"] != json!([])));
    assert!(events.iter().all(|event| event["id"] == events[0]["id"] && event["model"] == "tiny"));
    answer
}

/// Ways of choosing, by names that both the library and this dialect have.
fn ways() -> Vec<Value> {
    vec![
        json!({}),
        json!({"ignore_eos": true}),
        json!({"temperature": 1.0, "seed": 7}),
        json!({"temperature": 1.3, "seed": 7, "n": 3, "top_p": 0.9, "top_k": 40}),
        json!({"temperature": 0.9, "seed": 3, "presence_penalty": 0.5, "frequency_penalty": -0.5}),
        json!({"logit_bias": {"5": 3.5, "6": -100.0}, "ignore_eos": true}),
        json!({"num_beams": 3}),
        json!({"temperature": 1.0, "seed": 11, "ignore_eos": true, "prompt_lookup_num_tokens": 4}),
    ]
}

#[test]
fn completions_are_the_engines() {
    let serving = tiny_server(json!({}), None);
    let folder = tiny(json!({}));
    let parts = parts(folder.path(), None);
    let ids = vec![5, 9, 11, 40, 7];
    let text = "t5 t9 t11 t40 t7";
    for way in ways() {
        let wanted = library(&parts, ids.clone(), with(&json!({"max_tokens": 20}), way.clone()));
        for prompt in [json!(text), json!(ids), json!([text]), json!([ids])] {
            let body = with(&json!({"model": "tiny", "prompt": prompt, "max_tokens": 20}), way.clone());
            let answer = both_ways(&serving, "/v1/completions", &body);
            let texts: Vec<String> = whole(&answer, false).into_values().map(|(text, _)| text).collect();
            let expected: Vec<String> = wanted.choices.iter().map(|choice| choice.text.clone()).collect();
            assert_eq!(texts, expected, "{body}");
            assert_eq!(answer["usage"]["completion_tokens"], wanted.usage.completion_tokens);
            assert_eq!(answer["usage"]["prompt_tokens"], 5);
            for (choice, wanted) in answer["choices"].as_array().expect("choices").iter().zip(&wanted.choices) {
                assert_eq!(choice["finish_reason"], wanted.finish.reason());
            }
        }
    }
}

#[test]
fn several_prompts_are_answered_in_order() {
    let serving = tiny_server(json!({}), None);
    let settings = json!({"max_tokens": 6, "n": 2, "temperature": 1.0, "seed": 5});
    let alone = |prompt: &str| {
        let answer = both_ways(&serving, "/v1/completions", &with(&settings, json!({"prompt": prompt})));
        whole(&answer, false).into_values().map(|(text, _)| text).collect::<Vec<_>>()
    };
    let answer =
        both_ways(&serving, "/v1/completions", &with(&settings, json!({"prompt": ["t5 t6", "t7", "t8 t9 t10"]})));
    let texts: Vec<String> = whole(&answer, false).into_values().map(|(text, _)| text).collect();
    assert_eq!(texts, [alone("t5 t6"), alone("t7"), alone("t8 t9 t10")].concat());
    assert_eq!(answer["usage"]["prompt_tokens"], 6);
}

#[test]
fn conversations_are_the_engines() {
    let serving = tiny_server(json!({}), None);
    let folder = tiny(json!({}));
    let parts = parts(folder.path(), None);
    let messages = json!([
        {"role": "system", "content": "t20 t21"},
        {"role": "user", "content": [{"type": "text", "text": "t22"}, {"type": "text", "text": "t23"}]},
        {"role": "assistant", "content": "t24"},
        {"role": "user", "content": "t25 t26"},
    ]);
    let plain = json!([
        {"role": "system", "content": "t20 t21"},
        {"role": "user", "content": "t22\nt23"},
        {"role": "assistant", "content": "t24"},
        {"role": "user", "content": "t25 t26"},
    ]);
    let render = Render { messages: plain, add_generation_prompt: true, ..Render::default() };
    let rendered =
        parts.template.as_ref().expect("a template").render_marked(&render, &parts.tokenizer).expect("renders");
    let ids = parts.tokenizer.encode_chat(&rendered).expect("encodes").ids;
    for way in ways() {
        let wanted = library(&parts, ids.clone(), with(&json!({"max_tokens": 12}), way.clone()));
        let body = with(&json!({"model": "tiny", "messages": messages, "max_completion_tokens": 12}), way.clone());
        let answer = both_ways(&serving, "/v1/chat/completions", &body);
        let texts: Vec<String> = whole(&answer, true).into_values().map(|(text, _)| text).collect();
        assert_eq!(texts, wanted.choices.iter().map(|choice| choice.text.clone()).collect::<Vec<_>>(), "{body}");
        assert_eq!(answer["usage"]["prompt_tokens"], ids.len());
    }
    let first = &serving.post("/v1/chat/completions", &json!({"messages": messages, "stream": true})).events()[0];
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    // Without a limit the answer ends with the context, not before.
    let long = json!({"messages": [{"role": "user", "content": "t5"}], "ignore_eos": true});
    let answer = serving.post("/v1/chat/completions", &long).good();
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["total_tokens"]),
        (&json!("length"), &json!(128))
    );
}

/// STR-09: the token that was sampled is the one that is reported, and its log-probability is the model's.
#[test]
fn logprobs_are_those_of_the_sampled_tokens() {
    let serving = tiny_server(json!({}), None);
    let folder = tiny(json!({}));
    let parts = parts(folder.path(), None);
    let engine = Engine::new(&parts.loaded, Some(&parts.tokenizer), &parts.options).expect("an engine");
    let settings = json!({"max_tokens": 40, "temperature": 1.5, "seed": 3, "ignore_eos": true});
    let body = with(&settings, json!({"prompt": [5, 6], "logprobs": 5}));
    let answer = both_ways(&serving, "/v1/completions", &body);
    let logprobs = &answer["choices"][0]["logprobs"];
    let tokens: Vec<&str> = logprobs["tokens"].as_array().expect("tokens").iter().filter_map(Value::as_str).collect();
    assert_eq!(
        (tokens.len(), tokens.join(" ").as_str()),
        (40, answer["choices"][0]["text"].as_str().expect("text").trim())
    );
    let ids = tokens.iter().map(|token| parts.tokenizer.id(token.trim()).expect("a token"));
    let scored = engine.score(Prompt::tokens([5, 6].into_iter().chain(ids).collect::<Vec<_>>()), 0).expect("scored");
    for (index, token) in tokens.iter().enumerate() {
        let logprob = logprobs["token_logprobs"][index].as_f64().expect("a number");
        let again = f64::from(scored.logprobs[index + 2].as_ref().expect("scored").logprob);
        assert!((logprob - again).abs() < 1e-4, "{index}: {logprob} {again}");
        let top = logprobs["top_logprobs"][index].as_object().expect("alternatives");
        assert_eq!(top[*token], logprobs["token_logprobs"][index], "the chosen one is listed");
        assert!((5..=6).contains(&top.len()));
    }
    // The stream has the same, a token at a time.
    let events = serving.post("/v1/completions", &with(&body, json!({"stream": true}))).events();
    let pieces: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["tokens"].get(0)).collect();
    assert_eq!(pieces, tokens);
    let offsets: Vec<&Value> =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["text_offset"].get(0)).collect();
    assert_eq!(Value::from_iter(offsets.into_iter().cloned()), logprobs["text_offset"]);
    // A conversation's have the same tokens in another shape.
    let body = json!({
        "messages": [{"role": "user", "content": "t5"}], "max_tokens": 4, "temperature": 1.5, "seed": 1,
        "logprobs": true, "top_logprobs": 3, "ignore_eos": true,
    });
    let answer = both_ways(&serving, "/v1/chat/completions", &body);
    let content = answer["choices"][0]["logprobs"]["content"].as_array().expect("content").clone();
    assert_eq!(content.len(), 4);
    for token in &content {
        let spelled = token["token"].as_str().expect("a token");
        let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).expect("bytes");
        assert_eq!(bytes, spelled.as_bytes());
        assert_eq!(token["top_logprobs"].as_array().map(Vec::len), Some(3));
    }
    let events = serving.post("/v1/chat/completions", &with(&body, json!({"stream": true}))).events();
    let parts = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].get(0).cloned());
    assert_eq!(parts.collect::<Vec<Value>>(), content);
}

#[test]
fn prompts_are_echoed_with_their_logprobs() {
    let serving = tiny_server(json!({}), None);
    let body = json!({"prompt": "t5 t6 t7", "max_tokens": 3, "echo": true, "ignore_eos": true});
    let plain = serving.post("/v1/completions", &with(&body, json!({"echo": false}))).good();
    let echoed = both_ways(&serving, "/v1/completions", &body);
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().expect("text").to_owned();
    assert_eq!(text(&echoed), format!("t5 t6 t7{}", text(&plain)));
    let scored = serving.post("/v1/completions", &with(&body, json!({"max_tokens": 0, "logprobs": 1}))).good();
    let logprobs = &scored["choices"][0]["logprobs"];
    assert_eq!(text(&scored), "t5 t6 t7");
    assert_eq!(logprobs["tokens"].as_array().map(Vec::len), Some(3));
    assert!(logprobs["token_logprobs"][0].is_null() && logprobs["token_logprobs"][2].as_f64().is_some_and(|p| p < 0.0));
    assert_eq!(
        (&scored["choices"][0]["finish_reason"], &scored["usage"]["completion_tokens"]),
        (&json!("length"), &json!(0))
    );
    let both = serving.post("/v1/completions", &with(&body, json!({"logprobs": 0}))).good();
    assert_eq!(both["choices"][0]["logprobs"]["tokens"].as_array().map(Vec::len), Some(6));
    let streamed = serving.post("/v1/completions", &with(&body, json!({"max_tokens": 0, "stream": true})));
    assert_eq!(super::openai::streamed(&streamed, false)[&0], ("t5 t6 t7".into(), Some("length".into())));
}

/// STR-07: counts and reasons, streamed and not, with and without `include_usage`.
#[test]
fn usage_counts_what_was_fed_and_produced() {
    let serving = tiny_server(json!({}), None);
    for (changes, tokens, reason) in [
        (json!({"max_tokens": 1}), 1, "length"),
        (json!({"max_tokens": 5}), 5, "length"),
        (json!({"max_tokens": 5, "n": 2}), 10, "length"),
        (json!({}), 16, "length"),
        (json!({"max_tokens": 100, "logit_bias": {"2": 100}, "ignore_eos": false}), 1, "stop"),
    ] {
        let body = with(&json!({"prompt": "t5 t6", "ignore_eos": true}), changes);
        let answer = both_ways(&serving, "/v1/completions", &body);
        assert_eq!(
            answer["usage"],
            json!({
                "prompt_tokens": 2, "completion_tokens": tokens, "total_tokens": tokens + 2,
                "prompt_tokens_details": {"cached_tokens": 0},
            })
        );
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{body}");
        let without = serving.post("/v1/completions", &with(&body, json!({"stream": true}))).events();
        assert!(without.iter().all(|event| event.get("usage").is_none() && event["choices"][0]["index"].is_number()));
    }
    serving.post("/v1/completions", &json!({"prompt": "t5", "max_tokens": 0})).refused(400);
    let messages = json!([{"role": "user", "content": "t5"}]);
    serving.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 0})).refused(400);
}

#[test]
fn vectors_are_the_librarys() {
    let folder = golden_encoder("bert-base");
    let setup = Setup::new(vec![("encoder", loader(folder.path(), None))]);
    let serving = setup.ready();
    let parts = parts(folder.path(), None);
    let vectors = |texts: &[&str], dimensions: Option<usize>| {
        let model = TaskModel::new(&parts.loaded, &parts.tokenizer, &TaskOptions::default()).expect("a reader");
        let embedder = Embedder::new(model, EmbedOptions { dimensions, ..Default::default() }).expect("an embedder");
        let found = embedder.embed(texts, Role::Plain, &mut |_| ControlFlow::Continue(())).expect("vectors");
        found.into_iter().map(|found| found.values).collect::<Vec<Vec<f32>>>()
    };
    let read = |value: &Value| -> Vec<f32> {
        value.as_array().expect("numbers").iter().map(|number| number.as_f64().expect("a number") as f32).collect()
    };
    let texts = ["t5 t6 t7", "t8", "t9 t10 t11 t12 t13 t14 t15"];
    let wanted = vectors(&texts, None);
    let answer = serving.post("/v1/embeddings", &json!({"model": "encoder", "input": texts})).good();
    assert_eq!(answer["usage"], json!({"prompt_tokens": 17, "total_tokens": 17}));
    for (index, wanted) in wanted.iter().enumerate() {
        assert_eq!(answer["data"][index]["index"], index);
        assert_eq!(&read(&answer["data"][index]["embedding"]), wanted);
        // Alone, as bytes, and as the tokens themselves.
        let alone = serving.post("/v1/embeddings", &json!({"input": texts[index], "encoding_format": "base64"})).good();
        use base64::Engine as _;
        let encoded = alone["data"][0]["embedding"].as_str().expect("text");
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
        let numbers: Vec<f32> = bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        assert_eq!(&numbers, wanted);
        let numbered = texts[index].split(' ').map(|word| word[1..].parse::<u32>().expect("a number"));
        let ids: Vec<u32> = std::iter::once(1).chain(numbered).chain([2]).collect();
        let of_ids = serving.post("/v1/embeddings", &json!({"input": [ids]})).good();
        assert_eq!(&read(&of_ids["data"][0]["embedding"]), wanted);
    }
    let short = serving.post("/v1/embeddings", &json!({"input": texts, "dimensions": 4})).good();
    assert_eq!(read(&short["data"][1]["embedding"]), vectors(&texts, Some(4))[1]);
    for (body, param) in [
        (json!({"input": "t5", "dimensions": 0}), Some("dimensions")),
        (json!({"input": "t5", "dimensions": 100_000}), Some("dimensions")),
        (json!({"input": "t5", "encoding_format": "hex"}), Some("encoding_format")),
        (json!({"input": ""}), None),
        (json!({"input": []}), Some("input")),
        (json!({"input": [[]]}), Some("input")),
        (json!({"input": [100_000]}), Some("input")),
        (json!({"input": vec!["t5"; 33]}), Some("input")),
        (json!({}), Some("input")),
    ] {
        let error = serving.post("/v1/embeddings", &body).refused(400);
        assert_eq!(error["param"].as_str(), param, "{body}: {error}");
    }
    // Too long is an error, or is cut and said to be.
    let long = vec!["t5"; 5000].join(" ");
    assert_eq!(serving.post("/v1/embeddings", &json!({"input": long})).refused(400)["code"], "context_length_exceeded");
    let cut = serving.post("/v1/embeddings", &json!({"input": [long, "t5"], "truncate": true})).good();
    assert_eq!((&cut["data"][0]["truncated"], cut["data"][1].get("truncated")), (&json!(true), None));
    // This model writes nothing.
    let error = serving.post("/v1/completions", &json!({"prompt": "t5"})).refused(400);
    assert!(error["message"].as_str().expect("words").contains("cannot run"), "{error}");
}

#[test]
fn models_are_listed_and_chosen_by_name() {
    let (first, second) = (tiny(json!({})), golden_encoder("bert-base"));
    let models = vec![("first", loader(first.path(), None)), ("group/second", loader(second.path(), None))];
    let serving = Setup::new(models).ready();
    let list = serving.get("/v1/models").good();
    let ids: Vec<&str> =
        list["data"].as_array().expect("a list").iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids, ["first", "group/second"]);
    for path in ["/v1/models/group/second", "/v1/models/group%2Fsecond"] {
        assert_eq!(serving.get(path).good()["id"], "group/second");
    }
    assert_eq!(serving.get("/v1/models/none").refused(404)["code"], "model_not_found");
    assert_eq!(
        serving.post("/v1/embeddings", &json!({"model": "group/second", "input": "t5"})).good()["model"],
        "group/second"
    );
    assert_eq!(serving.post("/v1/completions", &json!({"prompt": "t5"})).good()["model"], "first");
    for name in ["none", "", "first\n", "../first", "FIRST"] {
        let error = serving.post("/v1/completions", &json!({"model": name, "prompt": "t5"})).refused(404);
        assert_eq!(error["param"], "model", "{name:?}");
    }
    assert!(!serving.log.text().contains("first\n\""), "names are escaped in the log");
}
