//! An answer is the same alone, with others, in chunks, put back, guessed and streamed.

use crate::common::{Words, ask};
use crate::support::{around, kinds, options, rows, words};
use attend_engine::generate::{answer_all, generate_all};
use attend_engine::{Constraint, Draft, Event, GenerateOptions, Limits, Output, Prompt, Schedule, Surroundings};
use std::ops::ControlFlow;
use std::sync::Arc;

const ROOMY: Limits = Limits { sequences: 1 << 20, tokens: 1 << 40 };

fn said(output: Output) -> Output {
    Output { timings: Default::default(), guesses: Default::default(), ..output }
}

/// Requests of every kind, one and three answers each.
fn requests() -> Vec<(Prompt, GenerateOptions)> {
    let mut requests = Vec::new();
    for (index, (_, constraint, _)) in kinds().into_iter().enumerate() {
        for n in [1, 3] {
            let mut options = options(constraint.clone());
            (options.length.n, options.length.max_tokens) = (n, Some(90));
            options.report.logprobs = (n == 1).then_some(1);
            requests.push((Prompt::tokens(vec![7 + index as u32; 3 + 11 * index]), options));
        }
    }
    // Long ones, which outgrow what there is room for.
    for length in [1, 5, 9, 13, 17] {
        let constraint = Constraint::Regex("[a-c日]{80,85}".into());
        requests.push((Prompt::tokens(vec![2; length]), options(constraint)));
    }
    requests
}

#[test]
fn company_chunks_and_being_put_back_change_nothing() {
    let (source, words) = (rows(3), words());
    let ask_alone = |(prompt, options): &(Prompt, GenerateOptions)| {
        said(ask(&source, &words, &around(), &prompt.token_ids, options).expect("an answer").0)
    };
    let requests = requests();
    let alone: Vec<Output> = requests.iter().map(ask_alone).collect();
    let bounds = |sequences, tokens| Limits { sequences, tokens };
    for (limits, chunk) in [(ROOMY, 512), (ROOMY, 5), (bounds(4, 900), 16), (bounds(64, 600), 16)] {
        let around = Surroundings { chunk, ..around() };
        let mut schedule = Schedule::new(&source, Some(&words), &around, limits);
        for (key, (prompt, options)) in requests.iter().enumerate() {
            schedule.add(key, prompt.clone(), Arc::new(options.clone())).expect("in order");
        }
        let mut found: Vec<Option<Output>> = requests.iter().map(|_| None).collect();
        while !schedule.is_idle() {
            for (key, output) in schedule.step(&mut |_, _| ControlFlow::Continue(())) {
                found[key] = Some(said(output.expect("an answer")));
            }
        }
        assert!(limits.tokens != 600 || schedule.load().preempted > 0, "{limits:?}");
        for (found, alone) in found.into_iter().zip(&alone) {
            assert_eq!(found.as_ref(), Some(alone), "{limits:?}");
        }
    }
}

#[test]
fn guesses_change_nothing() {
    let (source, draft, words) = (rows(3), rows(3), words());
    let go_on = &mut |_: usize, _: Event<'_>| ControlFlow::Continue(());
    let mut guessed = 0;
    for (prompt, mut options) in requests() {
        let plain = ask(&source, &words, &around(), &prompt.token_ids, &options).expect("an answer").0;
        let prompts = vec![prompt];
        options.speculation.prompt_lookup_num_tokens = 6;
        let mut tries: Vec<(&str, Vec<Output>)> = Vec::new();
        let asked = (prompts.clone(), &options, ROOMY);
        tries.push(("lookup", generate_all(&source, Some(&words), &around(), asked, go_on).expect("answers")));
        options.speculation.prompt_lookup_num_tokens = 0;
        let around = around();
        let guessing = Draft { source: &draft, context: None };
        let schedule = Schedule::new(&source, Some(&words), &around, ROOMY).with_draft(Some(guessing));
        tries.push(("a draft", answer_all(schedule, (prompts, &options), go_on).expect("answers")));
        for (way, outputs) in tries {
            for output in outputs {
                guessed += output.guesses.offered;
                let known = way == "lookup" || output.guesses.right == output.guesses.offered;
                assert!(known, "a draft that says the same under the same constraint is right: {:?}", output.guesses);
                assert_eq!(said(output), said(plain.clone()), "{way}");
            }
        }
    }
    assert!(guessed > 150, "{guessed} guesses");
}

/// What was compiled before does not show either.
#[test]
fn asking_again_changes_nothing() {
    let (source, words, around): (_, Words, _) = (rows(9), words(), around());
    for (prompt, options) in requests() {
        let first = ask(&source, &words, &around, &prompt.token_ids, &options).expect("an answer").0;
        let again = ask(&source, &words, &around, &prompt.token_ids, &options).expect("an answer").0;
        let fresh = ask(&source, &words, &crate::support::around(), &prompt.token_ids, &options).expect("an answer").0;
        assert_eq!(said(first.clone()), said(again));
        assert_eq!(said(first), said(fresh));
    }
}
