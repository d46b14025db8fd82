//! `bench` as users call it, over tiny models: the rows, the forms, the comparison. No test looks at a time.

mod common;

use common::{Ran, attend, goldens, ran};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A golden model as it stands; a benchmark needs no tokenizer.
fn golden(case: &str) -> PathBuf {
    goldens().join(case)
}

fn bench(models: &Path, case: &str, arguments: &[&str]) -> Ran {
    ran(attend(models).arg("bench").arg(golden(case)).args(arguments))
}

const QUICK: [&str; 3] = ["--repetitions", "2", "--no-limits"];
const JSON: [&str; 2] = ["--format", "json"];

fn works(report: &Value) -> Vec<Value> {
    const WHAT: [&str; 6] = ["work", "tokens", "depth", "batch", "source", "beams"];
    let of = |row: &Value| {
        let fields = WHAT.iter().filter(|key| !row[**key].is_null()).map(|key| ((*key).to_owned(), row[*key].clone()));
        Value::Object(fields.collect())
    };
    report["rows"].as_array().expect("rows").iter().map(of).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_json_form_is_what_it_was() {
    let models = folder();
    let arguments = ["--prompt", "8", "--generate", "4", "--batch", "1", "--repetitions", "2", "--format", "json"];
    let run = bench(models.path(), "llama-gqa", &arguments);
    assert!(!run.err.contains("measuring"), "quiet when piped: {}", run.err);
    let report = run.json();
    assert_eq!(keys(&report), ["schema", "version", "model", "machine", "settings", "rows", "notes"]);
    assert_eq!(report["schema"], 1);
    assert_eq!(keys(&report["model"]), ["name", "architecture", "parameters", "weight_bytes", "types"]);
    assert_eq!((&report["model"]["name"], &report["model"]["architecture"]), (&json!("llama-gqa"), &json!("llama")));
    assert_eq!(keys(&report["machine"]), ["processor", "instruction_set", "threads", "limits"]);
    let limits = ["memory_bytes_per_second", "matmul_operations_per_second", "matmul_weights"];
    assert_eq!(keys(&report["machine"]["limits"]), limits);
    let settings = ["repetitions", "seed", "kv_type", "arithmetic", "attention", "chunk", "peak_of_each_row"];
    assert_eq!(keys(&report["settings"]), settings);
    assert_eq!(
        works(&report),
        [
            json!({"work": "load"}),
            json!({"work": "first_token", "tokens": 32}),
            json!({"work": "prefill", "tokens": 8, "depth": 0}),
            json!({"work": "decode", "tokens": 4, "depth": 0, "batch": 1}),
        ]
    );
    let rows = report["rows"].as_array().expect("rows");
    let measured = ["unit", "median", "min", "max", "samples", "peak_memory_bytes", "of_bandwidth", "of_matmul"];
    for row in rows {
        assert!(keys(row).ends_with(&measured), "{row}");
        let [min, median, max] = ["min", "median", "max"].map(|key| row[key].as_f64().expect("a number"));
        assert!(0.0 < min && min <= median && median <= max, "{row}");
    }
    assert_eq!([&rows[0]["unit"], &rows[1]["unit"]], ["s", "s"]);
    for row in &rows[2..] {
        assert_eq!(row["unit"], "tokens/s");
        assert_eq!(row["samples"].as_array().map(Vec::len), Some(2));
        assert!(row["of_matmul"].as_f64() > Some(0.0) && row["of_bandwidth"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn every_kind_of_model_is_measured_by_what_it_does() {
    let models = folder();
    let small = ["--prompt", "6", "--batch", "1,3"];
    let report = bench(models.path(), "bert-base", &[&small[..], &QUICK, &JSON].concat()).json();
    let encode = |batch: usize| json!({"work": "encode", "tokens": 6, "batch": batch});
    assert_eq!(works(&report), [json!({"work": "load"}), encode(1), encode(3)]);
    assert!(report["machine"]["limits"].is_null() && report["rows"][1]["of_matmul"].is_null(), "{report}");
    let classifier = bench(models.path(), "llama-seqcls", &[&small[..], &QUICK, &JSON].concat()).json();
    assert_eq!(works(&classifier), works(&report));
    let deep = ["--prompt", "6", "--depth", "0,5", "--generate", "3", "--batch", "2"];
    let report = bench(models.path(), "gpt2", &[&deep[..], &QUICK, &JSON].concat()).json();
    let rows = works(&report);
    assert_eq!(rows[3], json!({"work": "prefill", "tokens": 6, "depth": 5}));
    assert_eq!(rows[5], json!({"work": "decode", "tokens": 3, "depth": 5, "batch": 2}));
    for case in ["t5-v1.1", "bart"] {
        let beams = ["--prompt", "6", "--generate", "3", "--beams", "1,2"];
        let report = bench(models.path(), case, &[&beams[..], &QUICK, &JSON].concat()).json();
        let write = |beams: usize, batch: usize| json!({"work": "write", "tokens": 3, "source": 6, "beams": beams, "batch": batch});
        assert_eq!(works(&report)[2..], [write(1, 1), write(2, 1)], "{case}");
        let together = ["--prompt", "6", "--generate", "3", "--beams", "1,2", "--batch", "2"];
        let report = bench(models.path(), case, &[&together[..], &QUICK, &JSON].concat()).json();
        assert_eq!(works(&report)[2..], [write(1, 2), write(2, 2)], "{case}");
    }
}

#[test]
fn the_limit_is_that_of_the_type_in_which_weights_are_kept() {
    let models = folder();
    for (dtype, kept) in [("auto", "f32"), ("q8_0", "q8_0")] {
        let arguments = ["--prompt", "4", "--batch", "1", "--repetitions", "1", "--dtype", dtype];
        let report = bench(models.path(), "bert-base", &[&arguments[..], &JSON].concat()).json();
        assert_eq!(report["machine"]["limits"]["matmul_weights"], kept, "{report}");
        assert_eq!((&report["settings"]["arithmetic"], &report["model"]["types"]), (&json!(dtype), &json!(["f32"])));
    }
}

#[test]
fn tables_have_a_line_for_each_row() {
    let models = folder();
    let small = ["--prompt", "6", "--generate", "2", "--batch", "1"];
    let run = |format: &str| bench(models.path(), "gpt2", &[&small[..], &QUICK, &["--format", format]].concat());
    let text = run("text");
    for part in ["model", "prefill 6", "decode 2 at 0", "first token after", "tokens/s", "peak memory", "2 repetitions"]
    {
        assert!(text.text().contains(part), "{part}: {}", text.out);
    }
    let markdown = run("markdown");
    let table: Vec<&str> = markdown.text().lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(table[..2], ["| work | median | spread | peak memory |", "|---|---|---|---|"], "{}", markdown.out);
    assert_eq!(table.len(), 2 + 4, "{}", markdown.out);
    let csv = run("csv");
    let lines: Vec<Vec<&str>> = csv.text().lines().map(|line| line.split(',').collect()).collect();
    let head = "work,tokens,depth,batch,source,beams,unit,median,min,max,repetitions,peak_memory_bytes,of_bandwidth,\
                of_matmul,other_median,ratio";
    assert_eq!(lines[0].join(","), head);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{}", csv.out);
    assert_eq!(lines[4][..7], ["decode", "2", "0", "1", "", "", "tokens/s"]);
    assert!(lines[4][7].parse::<f64>().is_ok() && lines[4][15].is_empty(), "{}", csv.out);
}

#[test]
fn runs_are_compared_row_by_row() {
    let models = folder();
    let small = ["--generate", "2", "--batch", "1"];
    let first = bench(models.path(), "gpt2", &[&small[..], &["--prompt", "6"], &QUICK, &JSON].concat());
    // The other run was twice as slow.
    let mut other = first.json();
    for row in other["rows"].as_array_mut().expect("rows") {
        let factor = if row["unit"] == "s" { 2.0 } else { 0.5 };
        row["median"] = json!(row["median"].as_f64().expect("a number") * factor);
    }
    other["machine"]["threads"] = json!(1000);
    let path = models.path().join("other.json");
    std::fs::write(&path, other.to_string()).expect("written");
    let compare = ["--compare", path.to_str().expect("a path")];
    let arguments = [&small[..], &["--prompt", "6,7"], &QUICK, &compare].concat();
    let report = bench(models.path(), "gpt2", &[&arguments[..], &JSON].concat()).json();
    for row in report["rows"].as_array().expect("rows") {
        if row["work"] == "prefill" && row["tokens"] == 7 {
            assert!(row["compared"].is_null(), "{row}");
            continue;
        }
        let [own, theirs, ratio] = [&row["median"], &row["compared"]["median"], &row["compared"]["ratio"]]
            .map(|number| number.as_f64().unwrap_or_else(|| panic!("a number: {row}")));
        let wanted = if row["unit"] == "s" { theirs / own } else { own / theirs };
        assert!((ratio / wanted - 1.0).abs() < 1e-9, "{row}");
    }
    let notes = report["notes"].to_string();
    assert!(notes.contains("prefill 7") && notes.contains("1000 in the other run"), "{notes}");
    let text = bench(models.path(), "gpt2", &arguments);
    let head = text.text().lines().find(|line| line.starts_with("work")).expect("a head");
    assert!(head.trim_end().ends_with("ratio"), "{head}");
    // What was compared can be compared with.
    std::fs::write(&path, report.to_string()).expect("written");
    bench(models.path(), "gpt2", &arguments).text();
}

#[test]
fn what_cannot_be_compared_is_said_before_anything_is_measured() {
    let models = folder();
    let path = models.path().join("other.json");
    let name = path.to_str().expect("a path").to_owned();
    let run = || bench(models.path(), "gpt2", &[&QUICK[..], &["--compare", &name]].concat());
    assert!(run().error(1).contains("other.json"), "a file that is not there");
    let row = r#"{"work":"sing","unit":"s"}"#;
    for (text, word) in [
        ("{", "--format json"),
        ("[1]", "no schema"),
        (r#"{"schema": 2}"#, "form 2"),
        (r#"{"schema": 1}"#, "mistake"),
        (&format!(r#"{{"schema": 1, "rows": [{row}]}}"#), "mistake"),
    ] {
        std::fs::write(&path, text).expect("written");
        let run = run();
        let line = run.error(1);
        assert!(line.contains(word) && line.contains("other.json"), "{text}: {line}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let models = folder();
    let refused = |case: &str, arguments: &[&str], code: i32, words: &[&str]| {
        let run = bench(models.path(), case, &[arguments, &QUICK].concat());
        let line = run.error(code);
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    };
    refused("llama-gqa", &["--prompt", "100000"], 2, &["prefill 100000", "the model was made for"]);
    refused("llama-gqa", &["--depth", "100000"], 2, &["at 100000", "the model was made for"]);
    refused("gpt2", &["--context", "10", "--prompt", "11"], 2, &["prefill 11", "10 tokens", "asked for"]);
    refused("gpt2", &["--context", "100000"], 2, &["100000"]);
    if attend::system::memory().is_some() {
        refused("llama-gqa", &["--batch", "2000000000"], 1, &["x 2000000000", "of keys and values", "are free"]);
    }
    refused("bert-base", &["--depth", "4"], 2, &["--depth"]);
    refused("bert-base", &["--generate", "4"], 2, &["--generate"]);
    refused("gpt2", &["--beams", "4"], 2, &["--beams"]);
    refused("gpt2", &["--prompt", "4,-1"], 2, &["--prompt"]);
    refused("bert-base", &["--prompt", "4,0"], 2, &["--prompt 0"]);
    refused("gpt2", &["--repetitions", "0"], 2, &["--repetitions"]);
    let unknown = ran(attend(models.path()).args(["bench", "no-such-model"]));
    unknown.error(1);
}
