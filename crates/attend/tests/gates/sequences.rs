//! M3: encoder-decoders: a sentence's answer, greedy or by beams, is its own: alone, together, on the command line, over HTTP.

use crate::common::{attend, ran, tiny};
use crate::serving::{Serving, alone, report};
use attend::engine::{Engine, EngineOptions, GenerateOptions, Limits, Output, Prompt};
use attend::kernels::{Compute, DType};
use attend::model::{LoadOptions, load};
use attend::nn::KvTypes;
use attend_testkit::golden::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const MODELS: [&str; 6] = ["t5-v1.1", "t5-v1.0", "bart", "marian", "m2m100", "mt5"];

/// Tokens and score bits of every choice.
type Said = Vec<(Vec<u32>, Option<u32>)>;

fn said(output: &Output) -> Said {
    output.choices.iter().map(|choice| (choice.token_ids.clone(), choice.score.map(f32::to_bits))).collect()
}

/// Sentences of 1 to 40 tokens, short ones beside long ones.
fn sentences(count: usize) -> Vec<Vec<u32>> {
    let mut random = Random(31);
    (0..count).map(|_| (0..1 + random.below(40)).map(|_| 5 + random.below(80) as u32).collect()).collect()
}

/// Greedy and with four beams.
fn ways() -> [(usize, GenerateOptions); 2] {
    [1, 4].map(|beams| {
        let mut options = GenerateOptions::default();
        (options.length.max_tokens, options.beam.num_beams, options.beam.num_return_sequences) = (Some(12), beams, 1);
        (beams, options)
    })
}

fn m3(count: usize, models: usize, told: bool) {
    let _alone = alone();
    let sentences = sentences(count);
    for case in &MODELS[..models] {
        let place = Arc::new(tempfile::tempdir().expect("a folder"));
        // The golden's own wishes (beams, forced tokens) stay those of the golden's files.
        let path = tiny(place.path(), case, json!({}));
        let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
        let loaded = load(&path, &options, &mut |_, _| {}).expect("loads");
        let run = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
        let engine = Engine::new(&loaded, None, &run).expect("an engine");
        for (beams, options) in ways() {
            let options = Arc::new(options);
            let prompt = |ids: &Vec<u32>| engine.complete(Prompt::source(ids.clone())).expect("a prompt");
            let one = |ids: &Vec<u32>| {
                let output = engine.generate(prompt(ids), &options, &mut |_| ControlFlow::Continue(()));
                said(&output.expect("an answer"))
            };
            let alone: Vec<Said> = sentences.iter().map(one).collect();
            for limits in [Limits { sequences: 64, tokens: 1 << 20 }, Limits { sequences: 9, tokens: 700 }] {
                let mut schedule = engine.schedule(limits);
                for (key, ids) in sentences.iter().enumerate() {
                    schedule.add(key, prompt(ids), Arc::clone(&options)).expect("in order");
                }
                let mut ended = BTreeMap::new();
                while !schedule.is_idle() {
                    let step = schedule.step(&mut |_, _| ControlFlow::Continue(()));
                    ended.extend(step.into_iter().map(|(key, output)| (key, said(&output.expect("an answer")))));
                }
                let found: Vec<Said> = ended.into_values().collect();
                assert_eq!(found, alone, "{case}, {beams} beams, {limits:?}");
            }
        }
    }
    let written = program(&sentences[..count / 5]);
    if told {
        report(
            "M3",
            &format!(
                "{count} sentences by {models} models, greedy and with 4 beams: alone as together, tokens and scores; {written} of \
                 them the same over HTTP and on the command line"
            ),
        );
    }
}

/// The command line and the server, each with all sentences; how many there were.
fn program(sentences: &[Vec<u32>]) -> usize {
    let place = Arc::new(tempfile::tempdir().expect("a folder"));
    let path = tiny(place.path(), "t5-v1.1", json!({}));
    let texts: Vec<String> =
        sentences.iter().map(|ids| ids.iter().map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ")).collect();
    let input = place.path().join("sentences.txt");
    std::fs::write(&input, texts.join("\n")).expect("written");
    let serving = Serving::over(Arc::clone(&place), path.clone(), &["--no-log"]);
    for beams in ["1", "4"] {
        let mut command = attend(place.path());
        command.args([
            "summarize",
            "--json",
            "--dtype",
            "f32",
            "--kv-type",
            "f32",
            "--beams",
            beams,
            "--max-tokens",
            "12",
        ]);
        let run = ran(command.args(["--prefix", "", "-m"]).arg(&path).arg("--input").arg(&input));
        let lines: Vec<Value> = run.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), texts.len());
        for (group, lines) in texts.chunks(16).zip(lines.chunks(16)) {
            let beams: usize = beams.parse().expect("a number");
            let body = json!({"input": group, "num_beams": beams, "max_tokens": 12, "prefix": ""});
            let answer = serving.post("/v1/summarize", &body).good();
            for (index, line) in lines.iter().enumerate() {
                assert_eq!(answer["data"][index]["text"], line["summary"], "{line}");
                assert!(line["summary"].is_string(), "{line}");
            }
        }
    }
    texts.len()
}

#[test]
fn m3_sequences_in_small() {
    m3(10, 2, false);
}

#[test]
#[ignore = "takes minutes"]
fn m3_sequences() {
    m3(500, MODELS.len(), true);
}
