//! What transformers' pipelines and sentence-transformers say of the same models (`tools/record_tasks.py`).

use crate::common::{attend, ran_with};
use crate::support::{assert_close, lines, model, numbers, recorded, write};
use serde_json::{Value, json};
use std::path::Path;

/// Recorded scores have six digits.
const SCORE: f64 = 2e-6;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

/// A task over inputs given as JSON lines.
fn batch(task: &str, model: &Path, inputs: &[Value], arguments: &[&str]) -> Vec<Value> {
    let mut command = attend(model.parent().expect("a folder"));
    command.arg(task).arg("-m").arg(model).args([
        "--dtype",
        "f32",
        "--json",
        "--input",
        "-",
        "--input-format",
        "jsonl",
    ]);
    let text: String = inputs.iter().map(|input| format!("{input}\n")).collect();
    let run = ran_with(command.args(arguments), &text);
    run.text().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Equal but for scores, which are close.
#[track_caller]
fn assert_same(found: &Value, wanted: &Value) {
    match (found, wanted) {
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{found} is not {wanted}");
            a.iter().zip(b).for_each(|(a, b)| assert_same(a, b));
        }
        (Value::Object(a), Value::Object(b)) => {
            for (key, wanted) in b {
                assert_same(a.get(key).unwrap_or_else(|| panic!("{found} has no {key}")), wanted);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            assert!((a - b).abs() <= SCORE * b.abs().max(1.0), "{a} is not {b}");
        }
        _ => assert_eq!(found, wanted),
    }
}

#[test]
fn labels_of_texts_and_pairs() {
    let place = folder();
    for run in list(&recorded()["classify"]) {
        let model = model(place.path(), run["case"].as_str().expect("a case"), run["changes"].clone());
        let found = batch("classify", &model, list(&run["inputs"]), &[]);
        assert_same(&Value::Array(found), &run["answers"]);
    }
}

#[test]
fn labels_of_ones_own() {
    let (place, recorded) = (folder(), recorded());
    let texts: Vec<Value> = list(&recorded["texts"]).clone();
    for run in list(&recorded["zero_shot"]) {
        let model = model(place.path(), "bert-seqcls", run["changes"].clone());
        let labels: Vec<&str> = list(&run["labels"]).iter().filter_map(Value::as_str).collect();
        let labels = labels.join(",");
        let mut arguments = vec!["--labels", &labels, "--hypothesis-template", run["template"].as_str().expect("text")];
        arguments.extend(run["multi"].as_bool().filter(|multi| *multi).map(|_| "--multi-label"));
        assert_same(&Value::Array(batch("zero-shot", &model, &texts, &arguments)), &run["answers"]);
    }
}

#[test]
fn tags_by_every_aggregation() {
    let (place, recorded) = (folder(), recorded());
    let model = model(place.path(), "bert-tokcls", recorded["tag"]["changes"].clone());
    let mut entities = 0;
    for run in list(&recorded["tag"]["runs"]) {
        let aggregation = run["aggregation"].as_str().expect("a kind");
        let found = batch("tag", &model, list(&recorded["texts"]), &["--aggregation", aggregation]);
        entities += found.iter().map(|answer| list(answer).len()).sum::<usize>();
        assert_same(&Value::Array(found), &run["answers"]);
    }
    assert!(entities > 50, "the texts have tags");
}

#[test]
fn fillings_of_one_and_several_gaps() {
    let (place, recorded) = (folder(), recorded());
    let model = model(place.path(), "bert-mlm", json!({}));
    let found = batch("fill", &model, list(&recorded["fill"]["texts"]), &["--top-k", "4"]);
    for (found, wanted) in found.iter().zip(list(&recorded["fill"]["answers"])) {
        // One gap has its list alone.
        let wanted = if list(wanted).len() == 1 { &wanted[0] } else { wanted };
        assert_same(found, wanted);
    }
}

#[test]
fn answers_in_short_and_long_contexts() {
    let (place, recorded) = (folder(), recorded());
    let model = model(place.path(), "bert-qa", json!({}));
    for run in list(&recorded["answer"]["runs"]) {
        let number = |key: &str| run[key].as_u64().expect("a number").to_string();
        let (top, longest, length, stride) = (number("top"), number("longest"), number("length"), number("stride"));
        let mut arguments = vec!["--top-k", &top, "--max-answer-length", &longest, "--max-length", &length];
        arguments.extend(["--doc-stride", &stride]);
        arguments.extend(run["nothing"].as_bool().filter(|nothing| *nothing).map(|_| "--no-answer"));
        let found = batch("answer", &model, list(&recorded["answer"]["inputs"]), &arguments);
        for (found, wanted) in found.iter().zip(list(&run["answers"])) {
            // A single answer stands alone.
            assert_same(found, if top == "1" { &wanted[0] } else { wanted });
        }
    }
}

#[test]
fn scores_of_cross_encoders() {
    let (place, recorded) = (folder(), recorded());
    let recorded = &recorded["rerank"];
    for run in list(&recorded["runs"]) {
        let model = model(place.path(), "bert-seqcls-regression", run["changes"].clone());
        let input = json!({"query": recorded["query"], "documents": recorded["documents"]});
        let found = batch("rerank", &model, &[input], &[]);
        let mut scores = vec![f64::NAN; list(&run["scores"]).len()];
        let mut last = f64::INFINITY;
        for document in list(&found[0]) {
            let score = document["score"].as_f64().expect("a score");
            assert!(score <= last, "the best come first");
            (last, scores[document["index"].as_u64().expect("an index") as usize]) = (score, score);
        }
        assert_close(&scores, &numbers(&run["scores"]), SCORE * 10.0);
    }
}

#[test]
fn vectors_of_every_kind_of_folder() {
    let (place, recorded) = (folder(), recorded());
    let texts: Vec<&str> = list(&recorded["embed"]["texts"]).iter().filter_map(Value::as_str).collect();
    for run in list(&recorded["embed"]["runs"]) {
        let model = model(place.path(), "bert-base", json!({}));
        for (name, content) in run["files"].as_object().expect("files") {
            write(&model, name, content);
        }
        let queries = [&["--prompt-name", "query"][..], &texts].concat();
        for (arguments, wanted) in [(&texts, &run["embeddings"]), (&queries, &run["queries"])] {
            for (found, wanted) in lines("embed", &model, arguments).iter().zip(list(wanted)) {
                assert_close(&numbers(&found["embedding"]), &numbers(wanted), 1e-5);
            }
        }
        std::fs::remove_dir_all(&model).expect("removed");
    }
}
