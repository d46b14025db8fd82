//! Tasks beside writing on, by our own routes and those of others: the library's results.

use crate::openai::with;
use crate::support::{Serving, Setup, golden, loader, parts};
use attend_engine::Engine;
use attend_engine::tasks::answer::{AnswerOptions, Answerer, Question};
use attend_engine::tasks::classify::Classifier;
use attend_engine::tasks::fill::Filler;
use attend_engine::tasks::tag::{Aggregation, Tagger};
use attend_engine::tasks::zero_shot::{Candidates, TEMPLATE, ZeroShot};
use attend_engine::tasks::{Step, TaskModel, TaskOptions, Text};
use attend_nn::spec::StackKind;
use attend_nn::{Batch, Nobody, RunOptions, Sequence};
use attend_server::Parts;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use tempfile::TempDir;

fn serving(folder: &TempDir) -> Serving {
    Setup::new(vec![("model", loader(folder.path(), None))]).ready()
}

fn reader(parts: &Parts) -> TaskModel<'_> {
    TaskModel::new(&parts.loaded, &parts.tokenizer, &TaskOptions::default()).expect("a reader")
}

fn go_on(_: Step) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// What serde makes of it, read back.
fn value(data: impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(&data).expect("serialises")).expect("JSON")
}

#[test]
fn labels() {
    let folder = golden("bert-seqcls", json!({"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}}));
    let (serving, parts) = (serving(&folder), parts(folder.path(), None));
    let classifier = Classifier::new(reader(&parts), None).expect("a classifier");
    let texts = [Text::one("t5 t6 t7"), Text::pair("t8", "t9 t10")];
    let wanted = classifier.classify(&texts, 9, &mut go_on).expect("labels");
    let input = json!(["t5 t6 t7", {"text": "t8", "text_pair": "t9 t10"}]);
    let answer = serving.post("/v1/classify", &json!({"model": "model", "input": input})).good();
    for (index, wanted) in wanted.iter().enumerate() {
        assert_eq!(answer["data"][index], json!({"index": index, "labels": value(&wanted.labels)}));
    }
    assert_eq!(answer["usage"]["prompt_tokens"], 11);
    let best = serving.post("/v1/classify", &json!({"input": "t5 t6 t7", "top": 1})).good();
    assert_eq!(best["data"][0]["labels"], json!([value(&wanted[0].labels[0])]));
    // Text Embeddings Inference has them as lists.
    let predicted = |inputs: Value| serving.post("/predict", &json!({"inputs": inputs})).good();
    assert_eq!(predicted(json!("t5 t6 t7")), value(&wanted[0].labels));
    assert_eq!(predicted(json!(["t8", "t9 t10"])), value(&wanted[1].labels));
    assert_eq!(
        predicted(json!([["t5 t6 t7"], ["t8", "t9 t10"]])),
        value(wanted.iter().map(|w| &w.labels).collect::<Vec<_>>())
    );
    let raw = serving.post("/predict", &json!({"inputs": "t5", "raw_scores": true})).good();
    let sum: f64 = raw.as_array().expect("labels").iter().filter_map(|label| label["score"].as_f64()).sum();
    assert!((sum - 1.0).abs() > 1e-3, "{raw}");
    // The same head judges labels of one's own.
    let judge = ZeroShot::new(reader(&parts)).expect("a judge");
    let own = ["t20".to_owned(), "t21 t22".to_owned()];
    for multi in [false, true] {
        let wanted = judge.judge(&[Candidates { text: "t5 t6", labels: &own }], TEMPLATE, multi, &mut go_on);
        let body = json!({"input": "t5 t6", "labels": own, "multi_label": multi});
        let answer = serving.post("/v1/zero-shot", &body).good();
        assert_eq!(answer["data"][0]["labels"], value(&wanted.expect("judged")[0].labels));
    }
    for (path, body) in [
        ("/v1/zero-shot", json!({"input": "t5"})),
        ("/v1/zero-shot", json!({"input": "t5", "labels": []})),
        ("/v1/zero-shot", json!({"input": "t5", "labels": ["x"], "hypothesis_template": "no place"})),
        ("/v1/zero-shot", json!({"input": "t5", "labels": vec!["x"; 101]})),
        ("/v1/classify", json!({"input": []})),
        ("/v1/classify", json!({"input": ""})),
        ("/v1/classify", json!({"input": "t5", "top": 0})),
        ("/v1/classify", json!({"input": "t5", "function": "magic"})),
        ("/v1/classify", json!({"input": vec!["t5"; 33]})),
        ("/v1/classify", json!({"input": vec!["t5"; 100].join(" ")})),
        ("/v1/tag", json!({"input": "t5"})),
        ("/v1/fill", json!({"input": "t5"})),
        ("/v1/translate", json!({"input": "t5"})),
    ] {
        serving.post(path, &body).refused(400);
    }
    let cut = serving.post("/v1/classify", &json!({"input": vec!["t5"; 100].join(" "), "truncate": true})).good();
    assert_eq!(cut["data"][0]["truncated"], true);
}

#[test]
fn tags_gaps_and_answers() {
    let folder = golden("bert-tokcls", json!({}));
    let (tags, library) = (serving(&folder), parts(folder.path(), None));
    let tagger = Tagger::new(reader(&library)).expect("a tagger");
    for (name, aggregation) in [("none", Aggregation::None), ("simple", Aggregation::Simple), ("max", Aggregation::Max)]
    {
        let wanted = tagger.tag(&["t5 t6 t7 t8"], aggregation, &["LABEL_0".into()], &mut go_on).expect("tags");
        let body = json!({"input": "t5 t6 t7 t8", "aggregation": name, "ignore_labels": ["LABEL_0"]});
        assert_eq!(tags.post("/v1/tag", &body).good()["data"][0]["entities"], value(&wanted[0].entities));
    }
    tags.post("/v1/tag", &json!({"input": "t5", "aggregation": "magic"})).refused(400);

    let folder = golden("bert-mlm", json!({}));
    let (gaps, library) = (serving(&folder), parts(folder.path(), None));
    let filler = Filler::new(reader(&library)).expect("a filler");
    let wanted = filler.fill(&["t5 [MASK] t7 [MASK]"], 3, &mut go_on).expect("fillings");
    let answer = gaps.post("/v1/fill", &json!({"input": ["t5 [MASK] t7 [MASK]"], "top": 3})).good();
    assert_eq!(answer["data"][0]["masks"], value(&wanted[0].masks));
    let error = gaps.post("/v1/fill", &json!({"input": ["t5 [MASK]", "t5"]})).refused(400);
    assert!(error["message"].as_str().expect("words").starts_with("input 2: the text must contain [MASK]"), "{error}");

    let folder = golden("bert-qa", json!({}));
    let (answers, library) = (serving(&folder), parts(folder.path(), None));
    let context = (5..60).map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ");
    let options = AnswerOptions { top: 3, max_answer: 4, no_answer: true, ..AnswerOptions::default() };
    let answerer = Answerer::new(reader(&library), options).expect("an answerer");
    let question = Question { question: "t70 t71", context: &context };
    let wanted = answerer.answer(&[question], &mut go_on).expect("answers");
    let settings = json!({"top": 3, "max_answer_length": 4, "no_answer": true});
    for body in [
        json!({"question": "t70 t71", "context": context}),
        json!({"input": [{"question": "t70 t71", "context": context}]}),
        json!({"input": [{"question": "t70 t71"}], "context": context}),
    ] {
        let answer = answers.post("/v1/answer", &with(&body, settings.clone())).good();
        assert_eq!(answer["data"][0]["answers"], value(&wanted[0]), "{body}");
    }
    for body in [json!({"question": "t5"}), json!({"context": "t5"}), json!({"question": "", "context": "t5"})] {
        answers.post("/v1/answer", &body).refused(400);
    }
}

#[test]
fn texts_of_texts() {
    for case in ["t5-v1.1", "bart", "marian"] {
        let folder = golden(case, json!({}));
        let serving = serving(&folder);
        let texts = ["t5 t6 t7", "t8 t9 t10 t11 t12 t13", "t14"];
        let settings = json!({"max_tokens": 12, "num_beams": 3});
        let library = parts(folder.path(), None);
        let engine = Engine::new(&library.loaded, Some(&library.tokenizer), &library.options).expect("an engine");
        let mut alone = Vec::new();
        for text in texts {
            let prompt =
                attend_engine::Prompt::source(library.tokenizer.encode(text, Default::default()).expect("ids").ids);
            let options = engine.options(settings.as_object().expect("an object").clone()).expect("good").options;
            let output = engine.generate(prompt, &options, &mut |_| ControlFlow::Continue(())).expect("an answer");
            alone.push(output.choices[0].text.clone());
        }
        for path in ["/v1/summarize", "/v1/translate"] {
            let answer = serving.post(path, &with(&settings, json!({"input": texts}))).good();
            for (index, wanted) in alone.iter().enumerate() {
                assert_eq!(answer["data"][index]["text"], *wanted, "{case} {path}");
                assert_eq!(answer["data"][index]["index"], index);
            }
        }
        let best = serving.post("/v1/summarize", &with(&settings, json!({"input": texts[0], "n": 2}))).good();
        assert_eq!(best["data"][0]["choices"].as_array().map(Vec::len), Some(2));
        // The same by the route for completions.
        let completed = serving.post("/v1/completions", &with(&settings, json!({"prompt": texts}))).good();
        for (index, wanted) in alone.iter().enumerate() {
            assert_eq!(completed["choices"][index]["text"], *wanted);
        }
        for body in [json!({"input": ""}), json!({"input": []}), json!({"input": "t5", "stream": true}), json!({})] {
            serving.post("/v1/summarize", &body).refused(400);
        }
        if case == "bart" {
            let long = vec!["t5"; 100].join(" ");
            serving.post("/v1/summarize", &json!({"input": long})).refused(400);
            let cut = serving
                .post("/v1/summarize", &json!({"input": [long, "t6"], "truncate": true, "max_tokens": 3}))
                .good();
            assert!(cut["data"][0]["truncated_tokens"].as_u64().is_some_and(|left| left > 0), "{cut}");
            assert!(cut["data"][1].get("truncated_tokens").is_none());
        }
    }
}

/// RRK-01: the second text of a pair has the second type, and the score is the model's.
#[test]
fn documents_are_scored_with_their_segments() {
    let folder = golden("bert-seqcls-regression", json!({}));
    let path = folder.path().join("model.safetensors");
    let mut file = std::fs::read(&path).expect("read");
    let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + length]).expect("a header");
    let name =
        header.as_object().expect("names").keys().find(|name| name.contains("token_type")).expect("there").clone();
    let end = 8 + length + header[&name]["data_offsets"][1].as_u64().expect("a place") as usize;
    let width = header[&name]["shape"][1].as_u64().expect("a width") as usize;
    for (index, number) in file[end - 4 * width..end].chunks_exact_mut(4).enumerate() {
        number.copy_from_slice(&(index as f32 * 0.7 - 5.0).to_le_bytes());
    }
    std::fs::write(&path, file).expect("written");
    let (serving, parts) = (serving(&folder), parts(folder.path(), None));
    let documents = ["t7 t8 t9", "t10", "t11 t12"];
    let score = |document: &str, second: u32| {
        let word =
            |text: &str| text.split(' ').map(|word| word[1..].parse::<u32>().expect("a number")).collect::<Vec<u32>>();
        let ids = [vec![1], word("t5 t6"), vec![2], word(document), vec![2]].concat();
        let types: Vec<u32> = (0..ids.len()).map(|at| if at < 4 { 0 } else { second }).collect();
        let sequence = Sequence { token_types: Some(&types), ..Sequence::new(&ids) };
        let mut batch = Batch::one(sequence);
        let model = &parts.loaded.model;
        let hidden =
            model.forward(StackKind::Encoder, &mut batch, &RunOptions::default(), &mut Nobody).expect("hidden");
        model.sequence_logits_of(&hidden, &[&ids], &mut Nobody).expect("a score")[0]
    };
    let body = json!({"query": "t5 t6", "documents": documents, "raw_scores": true, "return_documents": true});
    let answer = serving.post("/v1/rerank", &body).good();
    let mut order: Vec<usize> = (0..3).collect();
    order.sort_by(|a, b| score(documents[*b], 1).total_cmp(&score(documents[*a], 1)));
    for (result, index) in answer["results"].as_array().expect("results").iter().zip(order) {
        assert_eq!((&result["index"], &result["document"]["text"]), (&json!(index), &json!(documents[index])));
        let found = result["relevance_score"].as_f64().expect("a score") as f32;
        assert_eq!(found, score(documents[index], 1));
        assert!((found - score(documents[index], 0)).abs() > 1e-3, "the types count");
    }
}

/// RRK-03: the logistic function once, in f32, or not at all.
#[test]
fn scores_are_squashed_once_or_not() {
    let folder = golden("bert-seqcls-regression", json!({}));
    let serving = serving(&folder);
    let documents: Vec<String> = (0..40).map(|index| format!("t{} t{}", 5 + index, 60 - index)).collect();
    let body = json!({"query": "t5", "documents": documents});
    let plain = serving.post("/v1/rerank", &body).good()["results"].clone();
    let raw = serving.post("/v1/rerank", &with(&body, json!({"raw_scores": true}))).good()["results"].clone();
    let list = |value: &Value| value.as_array().expect("results").clone();
    let mut last = f32::INFINITY;
    for (plain, raw) in list(&plain).iter().zip(list(&raw)) {
        assert_eq!(plain["index"], raw["index"]);
        let number = |value: &Value| value["relevance_score"].as_f64().expect("a score") as f32;
        assert!((number(plain) - 1.0 / (1.0 + (-number(&raw)).exp())).abs() < 1e-6);
        assert!(number(&raw) <= last, "the best first");
        last = number(&raw);
    }
    let short = serving.post("/v2/rerank", &with(&body, json!({"top_n": 2, "model": "model"}))).good();
    assert_eq!(short["results"], Value::from_iter(list(&plain)[..2].to_vec()));
    let objects: Vec<Value> = documents.iter().map(|text| json!({"text": text})).collect();
    assert_eq!(serving.post("/v1/rerank", &with(&body, json!({"documents": objects}))).good()["results"], plain);
    let theirs = serving.post("/rerank", &json!({"query": "t5", "texts": documents, "return_text": true})).good();
    for (theirs, ours) in list(&theirs).iter().zip(list(&plain)) {
        assert_eq!((&theirs["index"], &theirs["score"]), (&ours["index"], &ours["relevance_score"]));
        assert_eq!(theirs["text"], documents[ours["index"].as_u64().expect("an index") as usize]);
    }
    for body in [
        json!({"documents": ["t5"]}),
        json!({"query": "t5"}),
        json!({"query": "", "documents": ["t5"]}),
        json!({"query": "t5", "documents": []}),
        json!({"query": "t5", "documents": [""], "surprise": 1}),
        json!({"query": "t5", "documents": [1]}),
        json!({"query": "t5", "documents": ["t5"], "top_n": 0}),
        json!({"query": "t5", "documents": vec!["t5"; 1025]}),
    ] {
        serving.post("/v1/rerank", &body).refused(400);
    }
}

#[test]
fn vectors_and_tokens_as_others_ask_for_them() {
    let folder = golden("bert-base", json!({}));
    let serving = serving(&folder);
    let texts = ["t5 t6 t7", "t8"];
    let ours = serving.post("/v1/embeddings", &json!({"input": texts})).good();
    let raw = serving.post("/embed", &json!({"inputs": texts, "normalize": false})).good();
    let length = |vector: &Value| -> f64 {
        vector.as_array().expect("numbers").iter().map(|x| x.as_f64().expect("a number").powi(2)).sum::<f64>().sqrt()
    };
    for index in 0..2 {
        assert_eq!(raw[index], ours["data"][index]["embedding"]);
    }
    let unit = serving.post("/embed", &json!({"inputs": texts})).good();
    assert!((length(&unit[0]) - 1.0).abs() < 1e-5 && (length(&raw[0]) - 1.0).abs() > 1e-3);
    assert_eq!(serving.post("/embed", &json!({"inputs": "t8"})).good()[0], unit[1]);
    let theirs = serving.post("/api/embed", &json!({"model": "model:latest", "input": texts})).good();
    assert_eq!((&theirs["embeddings"], &theirs["prompt_eval_count"]), (&unit, &json!(8)));
    let old = serving.post("/api/embeddings", &json!({"model": "model", "prompt": "t8"})).good();
    assert_eq!(old["embedding"], unit[1]);
    let long = vec!["t5"; 100].join(" ");
    assert_eq!(
        serving.post("/api/embed", &json!({"model": "model", "input": [long, "t5"]})).good()["truncated"],
        json!([0])
    );
    assert_eq!(serving.post("/api/embed", &json!({"model": "model", "input": long, "truncate": false})).status, 400);
    assert_eq!(serving.post("/embed", &json!({"inputs": long})).json()["error_type"], "validation");
    let scores =
        serving.post("/similarity", &json!({"inputs": {"source_sentence": "t5 t6 t7", "sentences": texts}})).good();
    assert!((scores[0].as_f64().expect("a score") - 1.0).abs() < 1e-6 && scores[1].as_f64().is_some_and(|s| s < 1.0));
    let tokens = serving.post("/tokenize", &json!({"inputs": ["t5 t60"]})).good();
    assert_eq!(tokens[0][2], json!({"id": 60, "text": "t60", "special": false, "start": 3, "stop": 6}));
    assert_eq!((&tokens[0][0]["special"], tokens[0].as_array().map(Vec::len)), (&json!(true), Some(4)));
    let plain = serving.post("/tokenize", &json!({"inputs": "t5", "add_special_tokens": false})).good();
    assert_eq!(plain[0].as_array().map(Vec::len), Some(1));
    assert_eq!(serving.post("/decode", &json!({"ids": [[5, 60], [7]]})).good(), json!(["t5 t60", "t7"]));
    assert_eq!(serving.post("/decode", &json!({"ids": [5]})).good(), json!(["t5"]));
    assert_eq!(serving.post("/decode", &json!({"ids": "t5"})).status, 400);
    assert_eq!(serving.post("/embed", &json!({"inputs": "t5", "prompt_name": "none"})).status, 400);
}
