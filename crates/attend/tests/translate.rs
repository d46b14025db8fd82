//! `translate` and `summarize` as users call them, over tiny models with a tokenizer of words.

mod common;

use common::{attend, goldens};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

/// A golden model with a tokenizer of words: `w4` to `w89`, then the languages; its configurations changed.
fn model(
    case: &str,
    languages: &[&str],
    template: &[&str],
    change: impl Fn(&mut Map<String, Value>),
) -> tempfile::TempDir {
    let (from, folder) = (goldens().join(case), tempfile::tempdir().expect("a folder"));
    std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).expect("weights");
    for name in ["config.json", "generation_config.json"] {
        let mut config: Map<String, Value> =
            serde_json::from_slice(&std::fs::read(from.join(name)).expect("read")).expect("JSON");
        change(&mut config);
        std::fs::write(folder.path().join(name), Value::Object(config).to_string()).expect("written");
    }
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer(languages, template).to_string()).expect("written");
    folder
}

fn tokenizer(languages: &[&str], template: &[&str]) -> Value {
    let mut words: Vec<String> = ["<s>", "<pad>", "</s>", "<unk>"].map(str::to_owned).to_vec();
    words.extend((4..90).map(|id| format!("w{id}")));
    words.extend(languages.iter().map(|code| (*code).to_owned()));
    let id = |token: &str| words.iter().position(|word| word == token).expect("a token");
    let special = |token: &&str| ((*token).to_owned(), json!({"id": token, "ids": [id(token)], "tokens": [token]}));
    let piece = |token: &&str| match *token {
        "$A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
        token => json!({"SpecialToken": {"id": token, "type_id": 0}}),
    };
    let single: Vec<Value> = template.iter().map(piece).collect();
    let pair = [single.clone(), vec![json!({"Sequence": {"id": "B", "type_id": 0}})]].concat();
    let flags = json!({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    let added = (0..4).chain(90..words.len()).map(|id| {
        let mut token = flags.clone();
        token["id"] = json!(id);
        token["content"] = json!(words[id]);
        token
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": added.collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": template.iter().filter(|token| **token != "$A").map(special).collect::<Map<_, _>>(),
        },
        "model": {
            "type": "WordLevel", "unk_token": "<unk>",
            "vocab": words.iter().zip(0..).map(|(word, id)| (word.clone(), json!(id))).collect::<Map<_, _>>(),
        },
    })
}

fn run(command: &str, folder: &Path, arguments: &[&str]) -> Output {
    attend(folder).arg(command).arg("-m").arg(folder).args(arguments).output().expect("the program runs")
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

const CODES: [&str; 3] = ["eng_Latn", "fra_Latn", "deu_Latn"];

/// S2S-03: the command line gives what the library gives, with the language as the first token.
#[test]
fn every_way_in_gives_the_same_tokens() {
    use attend::engine::{Engine, EngineOptions, Writing};
    let folder = model("mbart", &CODES, &["eng_Latn", "$A", "</s>"], |_| {});
    let options = ["--source-lang", "French", "--target-lang", "de", "--beams", "3", "--max-tokens", "6", "--json"];
    let found = lines(&run("translate", folder.path(), &[&options[..], &["w10 w11", "w12"]].concat()));
    assert_eq!(found.len(), 2);
    let loaded = attend::model::load(folder.path(), &Default::default(), &mut |_, _| {}).expect("loads");
    let tokenizer = attend::text::Tokenizer::open(folder.path()).expect("a tokenizer");
    let engine = Engine::new(&loaded, Some(&tokenizer), &EngineOptions::default()).expect("an engine");
    let task = Writing::Translate { source: Some("fra_Latn".into()), target: Some("deu_Latn".into()) };
    let task = engine.text_task(&task, None).expect("a task");
    let given = [("num_beams", json!(3)), ("max_tokens", json!(6))].map(|(name, value)| (name.to_owned(), value));
    let options = engine.task_options(&task, given).expect("options").options;
    for (text, found) in ["w10 w11", "w12"].into_iter().zip(&found) {
        let ready = engine.task_prompt(&task, text, false).expect("a prompt");
        let go_on = &mut |_: attend::engine::Event<'_>| std::ops::ControlFlow::Continue(());
        let output = engine.generate(ready.prompt, &options, go_on).expect("an answer");
        assert_eq!(found["choices"][0]["token_ids"], json!(output.choices[0].token_ids));
        assert_eq!(found["choices"][0]["token_ids"][0], 92, "the target language");
        assert_eq!(found["translation"], json!(output.choices[0].text));
    }
}

/// S2S-02: a language that the model does not know is a mistake of usage, and names those it knows.
#[test]
fn unknown_and_missing_languages_are_said() {
    let folder =
        model("mbart", &CODES, &["eng_Latn", "$A", "</s>"], |config| drop(config.remove("forced_bos_token_id")));
    let unknown = run("translate", folder.path(), &["--target-lang", "tlh_Latn", "w10"]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(message.contains("tlh_Latn") && message.contains("fra_Latn"), "{message}");
    let missing = run("translate", folder.path(), &["w10"]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("must be said"));
}

#[test]
fn several_answers_come_best_first_and_inputs_in_order() {
    let folder = model("bart", &[], &["<s>", "$A", "</s>"], |_| {});
    let input = folder.path().join("texts.jsonl");
    let texts = ["w10 w11 w12", "w20", "w30 w31"];
    let body: String = texts.iter().map(|text| format!("{}\n", json!({ "text": text }))).collect();
    std::fs::write(&input, body).expect("written");
    let arguments = ["--n", "3", "--max-tokens", "5", "--json", "--input", input.to_str().expect("UTF-8")];
    let found = lines(&run("summarize", folder.path(), &arguments));
    assert_eq!(found.len(), 3);
    for (text, found) in texts.iter().zip(&found) {
        let scores: Vec<f64> =
            found["choices"].as_array().expect("a list").iter().filter_map(|choice| choice["score"].as_f64()).collect();
        assert_eq!(scores.len(), 3);
        assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]), "{scores:?}");
        assert_eq!(found["summary"], found["choices"][0]["text"]);
        let alone = lines(&run("summarize", folder.path(), &["--n", "3", "--max-tokens", "5", "--json", text]));
        assert_eq!(&alone[0], found, "alone and among others");
    }
}

#[test]
fn long_inputs_are_refused_or_cut_and_it_is_said() {
    let folder = model("bart", &[], &["<s>", "$A", "</s>"], |_| {});
    let long = vec!["w10"; 60].join(" ");
    let refused = run("summarize", folder.path(), &["--max-tokens", "3", &long]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("62 tokens"));
    let cut = run("summarize", folder.path(), &["--max-tokens", "3", "--truncate", "--json", &long]);
    assert!(String::from_utf8_lossy(&cut.stderr).contains("cut from 62 to 40"));
    assert_eq!(lines(&cut)[0]["truncated_from"], 62);
}

#[test]
fn decoders_are_refused() {
    let folder = model("llama-gqa", &[], &["<s>", "$A"], |_| {});
    let refused = run("translate", folder.path(), &["w10"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("an encoder and a decoder"));
}

/// `run` on an encoder-decoder: the source is the text as it stands.
#[test]
fn run_reads_the_text_as_it_stands() {
    let folder = model("bart", &[], &["<s>", "$A", "</s>"], |_| {});
    let arguments = ["--json", "--max-tokens", "4", "--beams", "2", "--n", "2", "w10 w11"];
    let output = run("run", folder.path(), &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["prompt_token_ids"], json!([2]));
    assert_eq!(found["usage"]["prompt_tokens"], 5);
    assert_eq!(found["choices"].as_array().map(Vec::len), Some(2));
}

/// `run` over a file: a decoder's and an encoder-decoder's answers are those that each text gets alone, in order.
#[test]
fn run_answers_many_prompts_as_each_alone() {
    let texts = ["w10 w11 w12", "w20", "w30 w31 w32 w33 w34 w35", "w40 w41"];
    for (case, template) in [("llama-gqa", &["<s>", "$A"][..]), ("bart", &["<s>", "$A", "</s>"])] {
        let folder = model(case, &[], template, |_| {});
        let input = folder.path().join("texts.csv");
        std::fs::write(&input, format!("words\n{}\n", texts.join("\n"))).expect("written");
        let input = input.to_str().expect("UTF-8");
        for way in [
            &["--temperature", "0.9", "--seed", "3"][..],
            &["--beams", "3", "--n", "2", "--seed", "4"],
            &["--n", "2", "--seed", "1", "--temperature", "1"],
        ] {
            let options = [&["--raw", "--json", "--max-tokens", "6"], way].concat();
            let many =
                lines(&run("run", folder.path(), &[&options[..], &["--input", input, "--field", "words"]].concat()));
            assert_eq!(many.len(), texts.len());
            for (text, found) in texts.iter().zip(&many) {
                let alone = run("run", folder.path(), &[&options[..], &[*text]].concat());
                let mut alone: Value = serde_json::from_slice(&alone.stdout).expect("JSON");
                for field in ["model", "timings", "settings", "guesses"] {
                    alone.as_object_mut().expect("an object").remove(field).expect("a field");
                }
                assert_eq!(&alone, found, "{case}, {way:?}, {text}");
            }
        }
        // A prompt stands above each text, and a file that ends so holds a list.
        let list = folder.path().join("answers.json");
        let place = list.to_str().expect("UTF-8");
        let arguments = ["--raw", "--max-tokens", "2", "--input", input, "--output", place, "w50"];
        assert!(run("run", folder.path(), &arguments).status.success());
        let found: Value = serde_json::from_slice(&std::fs::read(&list).expect("there")).expect("JSON");
        let alone = run("run", folder.path(), &["--raw", "--json", "--max-tokens", "2", "w50\n\nw20"]);
        let alone: Value = serde_json::from_slice(&alone.stdout).expect("JSON");
        assert_eq!((found.as_array().map(Vec::len), &found[1]["token_ids"]), (Some(4), &alone["token_ids"]));
    }
    let folder = model("llama-gqa", &[], &["<s>", "$A"], |_| {});
    let input = folder.path().join("long.txt");
    std::fs::write(&input, format!("w10\n{}\n", vec!["w11"; 300].join(" "))).expect("written");
    let refused = run("run", folder.path(), &["--raw", "--input", input.to_str().expect("UTF-8")]);
    assert!(!refused.status.success());
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("line 2") && message.contains("301 tokens"), "{message}");
    assert_eq!(run("run", folder.path(), &["--field", "words", "w10"]).status.code(), Some(2), "a field of what?");
}

/// Inputs as lines, as JSON lines and piped in: the same answers in the same order, and as many lines as there are inputs.
#[test]
fn run_reads_many_prompts_in_every_form() {
    let folder = model("t5-v1.1", &[], &["$A", "</s>"], |_| {});
    let texts = ["w40 w41 w42 w43 w44 w45 w46", "w10", "w20 w21 w22", "w10", "w30 w31"];
    let place = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let plain = texts.map(|text| format!("{text}\n")).concat();
    let objects = texts.map(|text| format!("{}\n", json!({"id": 7, "source": text}))).concat();
    std::fs::write(place("texts.txt"), &plain).expect("written");
    std::fs::write(place("texts.jsonl"), objects).expect("written");
    let options = ["--beams", "2", "--n", "2", "--max-tokens", "5", "--logprobs", "1", "--seed", "6"];
    let found = lines(&run("run", folder.path(), &[&options[..], &["--input", &place("texts.txt")]].concat()));
    assert_eq!(found.len(), texts.len());
    for (text, found) in texts.iter().zip(&found) {
        let alone = run("run", folder.path(), &[&options[..], &["--json", text]].concat());
        let alone: Value = serde_json::from_slice(&alone.stdout).expect("JSON");
        for field in ["text", "token_ids", "choices", "logprobs", "usage", "finish_reason"] {
            assert_eq!(alone[field], found[field], "{field} of {text}");
        }
        assert_eq!(found["choices"].as_array().map(Vec::len), Some(2));
        assert!(found["choices"][0]["score"].as_f64() >= found["choices"][1]["score"].as_f64());
    }
    assert_ne!(found[0]["prompt_token_ids"], Value::Null);
    let as_objects = ["--input", &place("texts.jsonl"), "--field", "source", "--json"];
    assert_eq!(lines(&run("run", folder.path(), &[&options[..], &as_objects].concat())), found);
    let mut program = attend(folder.path());
    program.arg("run").arg("-m").arg(folder.path()).args(options).args([
        "--input",
        "-",
        "--output",
        &place("out.jsonl"),
    ]);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
    child.stdin.take().expect("a pipe").write_all(plain.as_bytes()).expect("written");
    let done = child.wait_with_output().expect("an end");
    assert_eq!((done.status.success(), done.stdout.len()), (true, 0));
    let written = std::fs::read_to_string(place("out.jsonl")).expect("there");
    let written: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(written, found);
}

/// What the files of a translator may ask for can be asked of every family.
#[test]
fn run_forces_tokens_and_forbids_repetitions() {
    for (case, template) in [("llama-gqa", &["$A"][..]), ("bart", &["<s>", "$A", "</s>"])] {
        let folder = model(case, &[], template, |config| drop(config.remove("forced_eos_token_id")));
        let asked = |more: &[&str]| -> Vec<u64> {
            let options = [&["--json", "--raw", "--max-tokens", "9", "--ignore-eos", "w50"], more].concat();
            let output = run("run", folder.path(), &options);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            found["token_ids"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect()
        };
        for way in [&[][..], &["--beams", "3", "--early-stopping", "never"]] {
            let forced = asked(&[way, &["--forced-bos", "w33", "--forced-eos", "44", "--min-tokens", "9"]].concat());
            assert_eq!((forced.len(), forced[0], forced[8]), (9, 33, 44), "{case}, {way:?}");
            let few: Vec<&str> =
                ["w5", "w6", "w7", "w8", "w9"].into_iter().flat_map(|word| ["--allow", word]).collect();
            let repeated = asked(&[way, &few[..]].concat());
            let fresh = asked(&[way, &few[..], &["--no-repeat-ngram-size", "2"]].concat());
            let pairs = |ids: &[u64]| ids.windows(2).map(<[u64]>::to_vec).collect::<BTreeSet<_>>().len();
            assert!(pairs(&repeated) < 8, "{case}, {way:?}: {repeated:?}");
            assert_eq!((fresh.len(), pairs(&fresh)), (9, 8), "{case}, {way:?}: {fresh:?}");
        }
    }
    let folder = model("bart", &[], &["<s>", "$A", "</s>"], |_| {});
    let refused = run("run", folder.path(), &["--forced-bos", "5000", "w10"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--forced-bos"));
}
