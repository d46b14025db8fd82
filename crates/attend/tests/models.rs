//! The commands on tiny golden models, by what they print.

mod common;

use attend_testkit::golden::Golden;
use common::{attend, ids, ran, ran_with, tiny, words};
use serde_json::{Value, json};
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The prompt of a golden case's first row and the reference's greedy continuation.
fn greedy(case: &str) -> (Vec<u32>, Vec<u32>) {
    let expected = Golden::case(case, "expected.safetensors");
    let list = |name: &str| expected.i64(name).into_iter().map(|id| id as u32).collect::<Vec<u32>>();
    (list("greedy.row0.prompt_ids"), list("greedy.row0.new_ids"))
}

fn exact<'c>(command: &'c mut std::process::Command, model: &Path) -> &'c mut std::process::Command {
    command.arg("-m").arg(model).args(["--dtype", "f32", "--kv-type", "f32"])
}

#[test]
fn run_answers_as_the_reference_does() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let (prompt, answer) = greedy("llama-gqa");
    let text = words(&prompt);
    for attention in ["flash", "textbook"] {
        let mut command = attend(models.path());
        let object = ran(exact(command.arg("run"), &model).args([
            "--raw",
            "--json",
            "--ignore-eos",
            "--attention",
            attention,
            &text,
        ]))
        .json();
        assert_eq!(ids(&object["prompt_token_ids"]), prompt);
        assert_eq!(ids(&object["token_ids"]), answer);
        assert_eq!(object["finish_reason"], "length");
        assert_eq!(object["usage"]["prompt_tokens"], prompt.len());
        assert_eq!(object["usage"]["completion_tokens"], answer.len());
        assert!(object["timings"]["prompt_seconds"].is_f64());
        assert_eq!(object["text"], words(&answer));
    }
    let mut command = attend(models.path());
    let plain = ran(exact(command.arg("run"), &model).args(["--raw", "--ignore-eos", &text]));
    assert_eq!(plain.text(), words(&answer), "the text and nothing else");
    assert_eq!(plain.err, "", "quiet when piped");
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let prompt_of = |run: common::Ran| ids(&run.json()["prompt_token_ids"]);
    let command = || {
        let mut command = attend(models.path());
        command.args(["run", "--raw", "--json", "--max-tokens", "2", "-m"]).arg(&model);
        command
    };
    assert_eq!(prompt_of(ran_with(&mut command(), "t5 t6\n")), [5, 6]);
    assert_eq!(prompt_of(ran_with(command().arg("t7"), "t5 t6\n")), [7, 5, 6]);
    assert_eq!(prompt_of(ran_with(command().arg("-"), "t5")), [5]);
    assert!(ran_with(&mut command(), "").error(2).contains("empty"));
}

#[test]
fn a_model_without_a_template_says_that_it_continues() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let run = ran(attend(models.path()).args(["run", "t5 t6", "--max-tokens", "2", "-m"]).arg(&model));
    run.text();
    assert!(run.err.contains("no chat template"), "{}", run.err);
    let system = ran(attend(models.path()).args(["run", "t5", "--system", "t6", "-m"]).arg(&model));
    assert!(system.error(2).contains("--system"));
    let chat = ran(attend(models.path()).args(["chat", "-m"]).arg(&model));
    assert!(chat.error(1).contains("no chat template"));
}

#[test]
fn a_template_shapes_the_prompt_and_text_cannot_pose_as_a_token() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let template = "{% for m in messages %}t90 {{ m.role == 'system' }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}t91 {{ word }}{% endif %}";
    std::fs::write(models.path().join("template"), template).expect("written");
    let run = ran(attend(models.path())
        .args([
            "run",
            "--json",
            "t5",
            "--system",
            "t6",
            "--max-tokens",
            "1",
            "--template-var",
            "word=t33",
            "--chat-template",
        ])
        .arg(models.path().join("template"))
        .arg("-m")
        .arg(&model));
    // t0 stands for words that are no token.
    assert_eq!(ids(&run.json()["prompt_token_ids"]), [90, 0, 6, 90, 0, 5, 91, 33]);
}

#[test]
fn limits_and_stops_are_told() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let (prompt, answer) = greedy("llama-gqa");
    let text = words(&prompt);
    let run = |more: &[&str]| {
        let mut command = attend(models.path());
        ran(exact(command.arg("run"), &model).args(["--raw", "--json", "--ignore-eos", &text]).args(more)).json()
    };
    assert_eq!(ids(&run(&["--max-tokens", "3"])["token_ids"]), answer[..3]);
    let read = run(&["--max-tokens", "0", "--prompt-logprobs", "1"]);
    assert_eq!(
        (ids(&read["token_ids"]), read["prompt_logprobs"].as_array().map(Vec::len)),
        (vec![], Some(prompt.len()))
    );
    let stopped = run(&["--stop-id", &answer[2].to_string()]);
    assert_eq!((&stopped["finish_reason"], ids(&stopped["token_ids"])), (&json!("stop"), answer[..3].to_vec()));
    let stop_text = run(&["--stop", &format!("t{}", answer[1])]);
    assert_eq!(stop_text["finish_reason"], "stop");
    assert!(!stop_text["text"].as_str().expect("text").contains(&format!("t{}", answer[1])));
    let several = run(&["--n", "3", "--temperature", "1.5", "--seed", "3", "--max-tokens", "4", "--logprobs", "2"]);
    assert_eq!(several["choices"].as_array().map(Vec::len), Some(3));
    assert_eq!(several["logprobs"][0]["top"].as_array().map(Vec::len), Some(2));
    let again = run(&["--n", "3", "--temperature", "1.5", "--seed", "3", "--max-tokens", "4", "--logprobs", "2"]);
    assert_eq!(several["choices"], again["choices"]);
    let banned = run(&["--ban", &format!("t{}", answer[0]), "--max-tokens", "1"]);
    assert_ne!(ids(&banned["token_ids"]), answer[..1]);
    let full = run(&["--context", &(prompt.len() + 2).to_string()]);
    assert_eq!((&full["finish_reason"], ids(&full["token_ids"]).len()), (&json!("length"), 2));
    let mut command = attend(models.path());
    let small = ran(exact(command.arg("run"), &model).args(["--raw", &text, "--context", &prompt.len().to_string()]));
    assert!(small.error(1).contains("context"));
}

#[test]
fn an_encoder_decoder_answers_and_searches_beams() {
    let models = folder();
    let model = tiny(models.path(), "t5-v1.1", json!({}));
    let expected = Golden::case("t5-v1.1", "expected.safetensors");
    let (inputs, mask) = (expected.i64("right.input_ids"), expected.i64("right.attention_mask"));
    let width = expected.shape("right.input_ids")[1];
    let source: Vec<u32> =
        inputs[..width].iter().zip(&mask).filter(|(_, keep)| **keep == 1).map(|(id, _)| *id as u32).collect();
    let length = expected.shape("greedy.sequences")[1];
    // The start token comes first; what follows the end token is padding.
    let row: Vec<u32> = expected.i64("greedy.sequences")[1..length].iter().map(|id| *id as u32).collect();
    let mut command = attend(models.path());
    let object = ran(exact(command.arg("run"), &model).args(["--json", &words(&source)])).json();
    let answer = ids(&object["token_ids"]);
    assert_eq!(answer, row[..answer.len()]);
    assert!(row[answer.len()..].iter().all(|id| *id == 0));
    let mut command = attend(models.path());
    let beams = ran(exact(command.arg("run"), &model).args(["--json", "--beams", "3", &words(&source)])).json();
    assert!(!ids(&beams["token_ids"]).is_empty());
}

#[test]
fn texts_are_scored() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let expected = Golden::case("llama-gqa", "expected.safetensors");
    let (tokens, width) = (expected.i64("right.input_ids"), expected.shape("right.input_ids")[1]);
    let mask = expected.i64("right.attention_mask");
    let length = mask[..width].iter().sum::<i64>() as usize;
    let text: Vec<u32> = tokens[..length].iter().map(|id| *id as u32).collect();
    let mut command = attend(models.path());
    let object = ran(exact(command.arg("score"), &model).args(["--json", &words(&text)])).json();
    assert_eq!(ids(&object["token_ids"]), text);
    let (logits, vocab) = (expected.f32("right.logits"), expected.shape("right.logits")[2]);
    let logprobs = object["logprobs"].as_array().expect("a list");
    assert!(logprobs[0].is_null());
    for (index, id) in text.iter().enumerate().skip(1) {
        let row = &logits[(index - 1) * vocab..index * vocab];
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        let want = f64::from(row[*id as usize]) - sum.ln();
        assert!((logprobs[index].as_f64().expect("a number") - want).abs() < 1e-3, "{index}");
    }
    let mut command = attend(models.path());
    let figure = ran(exact(command.arg("perplexity"), &model).args(["--json", &words(&text)])).json();
    let mean = object["mean"].as_f64().expect("a mean");
    assert!((figure["perplexity"].as_f64().expect("a figure") / (-mean).exp() - 1.0).abs() < 1e-3);
    let mut command = attend(models.path());
    let next = ran(exact(command.arg("logits"), &model).args(["--json", "--all", &words(&text)])).json();
    let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(id, _)| id as u64);
    for (index, row) in next["rows"].as_array().expect("rows").iter().enumerate() {
        assert_eq!(row["top"][0]["id"].as_u64(), best(&logits[index * vocab..(index + 1) * vocab]), "{index}");
    }
}

#[test]
fn encoders_give_logits_and_say_that_they_do_not_write() {
    let models = folder();
    let masked = tiny(models.path(), "bert-mlm", json!({}));
    let rows = ran(attend(models.path()).args(["logits", "--json", "t5 t6 t7", "-m"]).arg(&masked)).json();
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(3));
    let classifier = tiny(models.path(), "bert-seqcls", json!({}));
    let labels = ran(attend(models.path()).args(["logits", "--json", "t5 t6 t7", "-m"]).arg(&classifier)).json();
    assert_eq!(labels["rows"].as_array().map(Vec::len), Some(1));
    let run = ran(attend(models.path()).args(["run", "--raw", "t5", "-m"]).arg(&masked));
    assert!(run.error(1).contains("encoder"));
    let long = vec!["t5"; 100].join(" ");
    assert!(ran(attend(models.path()).args(["logits", &long, "-m"]).arg(&masked)).error(1).contains("context"));
}

#[test]
fn tokens_are_shown_with_their_places() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let object = ran(attend(models.path()).args(["tokens", "--json", "t5  t66", "-m"]).arg(&model)).json();
    assert_eq!((&object["text"], ids(&object["ids"])), (&json!("t5  t66"), vec![5, 66]));
    assert_eq!((&object["pieces"], &object["offsets"]), (&json!(["t5", "t66"]), &json!([[0, 2], [4, 7]])));
    assert!(ran(attend(models.path()).args(["tokens", "t5", "-m"]).arg(&model)).text().contains("1 tokens"));
}

#[test]
fn a_model_can_be_redrawn_from_what_show_prints() {
    let models = folder();
    for (case, words) in [
        (
            "llama-gqa",
            &["GQA", "rotary", "causal", "RMS norm", "silu", "attention.query.weight", "x = x + A(n(x))"][..],
        ),
        (
            "bert-mlm",
            &[
                "MHA",
                "learned positions",
                "full",
                "layer norm",
                "gelu",
                "x = n(x + A(x))",
                "token types",
                "head.transform.weight",
            ],
        ),
        (
            "t5-v1.1",
            &[
                "encoder layers",
                "decoder layers",
                "relative bias",
                "C: over the encoder's output",
                "cross.query.weight",
                "buckets",
            ],
        ),
    ] {
        let model = tiny(models.path(), case, json!({}));
        let page = ran(attend(models.path()).args(["show", "--metadata", "-m"]).arg(&model));
        for word in words {
            assert!(page.text().contains(word), "{case}: {word} in\n{}", page.out);
        }
        let object = ran(attend(models.path()).args(["show", "--json", "-m"]).arg(&model)).json();
        let sum: u64 = object["tensors"].as_array().expect("tensors").iter().map(parameters).sum();
        assert_eq!(object["parameters"].as_u64(), Some(sum), "{case}");
        assert!(object["spec"]["body"].is_object() && object["computing"]["threads"].is_u64(), "{case}");
    }
}

fn parameters(tensor: &Value) -> u64 {
    tensor["shape"].as_array().expect("a shape").iter().filter_map(Value::as_u64).product()
}

#[test]
fn damaged_models_are_one_line() {
    let models = folder();
    let cut = tiny(models.path(), "llama-gqa", json!({}));
    let weights = cut.join("model.safetensors");
    let bytes = std::fs::read(&weights).expect("read");
    std::fs::write(&weights, &bytes[..bytes.len() - 1]).expect("written");
    let run = ran(attend(models.path()).args(["run", "--raw", "t5", "-m"]).arg(&cut));
    assert!(run.error(1).contains("model.safetensors"));
    for (key, value) in
        [("num_attention_heads", json!(0)), ("num_hidden_layers", json!(1_000_000_000)), ("hidden_size", json!("12"))]
    {
        let bad = tiny(models.path(), "llama-gqa", json!({ key: value }));
        ran(attend(models.path()).args(["show", "-m"]).arg(&bad)).error(1);
    }
}

#[test]
fn a_closed_output_ends_quietly() {
    use std::io::Read;
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({"max_position_embeddings": 100_000}));
    let mut child = attend(models.path())
        .args(["run", "--raw", "t5", "--ignore-eos", "--max-tokens", "20000", "-m"])
        .arg(&model)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = child.stdout.take().expect("piped");
    let mut byte = [0];
    out.read_exact(&mut byte).expect("a first byte");
    drop(out);
    let ended = child.wait_with_output().expect("ends");
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_written() {
    use std::io::Read;
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({"max_position_embeddings": 1_000_000}));
    let mut child = attend(models.path())
        .args(["run", "--raw", "t5", "--ignore-eos", "--max-tokens", "900000", "-m"])
        .arg(&model)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = child.stdout.take().expect("piped");
    let mut first = [0; 8];
    out.read_exact(&mut first).expect("some text");
    let status =
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    let ended = child.wait_with_output().expect("ends");
    assert_eq!(ended.status.code(), Some(130));
    let text = format!("{}{rest}", String::from_utf8_lossy(&first));
    assert!(text.split(' ').all(|word| word.starts_with('t')), "whole tokens");
}
