//! The generation loop over a script that forces its output: stop strings, end tokens, lengths, counts, streams, bad logits.
//! The names of the rows of the bug log that a test covers stand in front of it.

mod common;

use attend_engine::{Error, Event, Finish, GenerateOptions, Prompt, Surroundings};
use common::{Script, Words, around, ask, one_hot};
use std::ops::ControlFlow;

/// Ids of single letters, `A` = 65.
fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn stopping(stops: &[&str]) -> GenerateOptions {
    let mut options = GenerateOptions::default();
    options.length.stop = stops.iter().map(|stop| stop.to_string()).collect();
    options.length.max_tokens = Some(30);
    options
}

/// STR-04: a stop text spread over many tokens.
#[test]
fn a_stop_string_over_many_tokens_leaks_nothing_and_ends_at_once() {
    let source = Script::answering(256, 2, &letters("ABCDEFGHIJKLM"));
    let (output, seen) = ask(&source, &Words::bytes(), &around(), &[1, 2], &stopping(&["DEFGHIJ"])).unwrap();
    assert_eq!(output.choices[0].text, "ABC");
    assert_eq!(output.choices[0].finish, Finish::StopText("DEFGHIJ".into()));
    assert_eq!(output.choices[0].finish.reason(), "stop");
    assert_eq!(seen.pieces[..3], ["A", "B", "C"]);
    assert_eq!(output.choices[0].token_ids, letters("ABCDEFGHIJ"), "the token that completed it is the last");
}

/// STR-05: what only looked like a stop text is delivered, at the end too.
#[test]
fn held_back_text_is_finally_delivered() {
    for (answer, text) in [("xxDEFq", "xxDEFq"), ("abDEF", "abDEF"), ("DEFGHI", "DEFGHI"), ("DDEFDEF", "DDEFDEF")] {
        let mut around = around();
        around.end_ids = vec![0];
        let source = Script::answering(256, 1, &letters(answer));
        let (output, seen) = ask(&source, &Words::bytes(), &around, &[1], &stopping(&["DEFGHIJ"])).unwrap();
        assert_eq!(output.choices[0].text, text);
        assert_eq!(output.choices[0].finish, Finish::EndToken(0));
        // What is not the beginning of a stop text is never delayed.
        for (piece, letter) in seen.pieces.iter().zip(answer.chars()).take_while(|(_, letter)| letter.is_lowercase()) {
            assert_eq!(*piece, letter.to_string());
        }
    }
}

/// STR-06: a stop text inside a token, and stop texts that overlap.
#[test]
fn a_stop_string_inside_a_token_cuts_the_token() {
    let words = Words::new(&["", "go", "...", "xa", "ab", "aab", " on"]);
    for (answer, stops, text) in [
        (vec![1, 2, 6], vec![".."], "go"),
        (vec![3, 4, 6], vec!["aab", "ab"], "x"),
        (vec![3, 4, 6], vec!["ab", "aab"], "x"),
        (vec![1, 5, 6], vec!["ab"], "goa"),
        (vec![1, 6], vec!["go on and on", "o o"], "g"),
    ] {
        let source = Script::answering(7, 1, &answer);
        let (output, _) = ask(&source, &words, &around(), &[1], &stopping(&stops)).unwrap();
        assert_eq!(output.choices[0].text, text, "{stops:?}");
        assert_eq!(output.choices[0].finish.reason(), "stop");
    }
}

/// Stop strings at every place of a text, however it is divided into tokens.
#[test]
fn stop_strings_at_every_place_and_division() {
    let text = "the cat sat on the mat and that was that";
    for (from, length) in (0..text.len()).flat_map(|from| [1, 2, 5, 11].map(|length| (from, length))) {
        let Some(stop) = text.get(from..from + length) else { continue };
        let cut = text.find(stop).unwrap();
        for size in [1, 3, 7] {
            let pieces: Vec<String> = text.as_bytes().chunks(size).map(|c| String::from_utf8_lossy(c).into()).collect();
            let words = Words::new(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
            let answer: Vec<u32> = (0..pieces.len() as u32).collect();
            let source = Script::answering(pieces.len(), 1, &answer);
            let mut options = stopping(&[stop]);
            options.length.max_tokens = Some(pieces.len());
            let (output, _) = ask(&source, &words, &around(), &[0], &options).unwrap();
            assert_eq!(output.choices[0].text, text[..cut], "{stop:?} {size}");
        }
    }
}

/// STR-01, STR-02: characters over several tokens, and a cut in the middle of one.
#[test]
fn characters_over_several_tokens() {
    let answer = "\u{1F600}\u{4F60}e\u{301}";
    let ids = letters(answer);
    let source = Script::answering(256, 1, &ids);
    for max_tokens in 1..=ids.len() {
        let mut options = stopping(&[]);
        options.length.max_tokens = Some(max_tokens);
        let (output, seen) = ask(&source, &Words::bytes(), &around(), &[1], &options).unwrap();
        let complete = std::str::from_utf8(&answer.as_bytes()[..max_tokens]);
        let valid = complete.map_or_else(|error| error.valid_up_to(), str::len);
        assert!(output.choices[0].text.starts_with(&answer[..valid]));
        assert_eq!(output.choices[0].text.contains('\u{FFFD}'), complete.is_err());
        assert_eq!(output.choices[0].finish, Finish::MaxTokens);
        assert!(seen.pieces[..max_tokens].iter().all(|piece| !piece.contains('\u{FFFD}')));
    }
}

/// SMP-07: every end token counts, and so does every id the request names.
#[test]
fn any_of_the_end_tokens_ends_the_answer() {
    let words = Words::bytes();
    let mut around = around();
    around.end_ids = vec![7, 9, 11];
    let mut options = stopping(&[]);
    options.length.stop_ids = vec![13];
    for end in [7, 9, 11, 13] {
        let source = Script::answering(256, 1, &[65, 66, end, 67]);
        let (output, _) = ask(&source, &words, &around, &[1], &options).unwrap();
        let choice = &output.choices[0];
        assert_eq!((choice.text.as_str(), choice.finish.reason()), ("AB", "stop"));
        assert_eq!(choice.token_ids, [65, 66, end]);
        options.length.ignore_eos = true;
        options.length.max_tokens = Some(4);
        let (output, _) = ask(&source, &words, &around, &[1], &options).unwrap();
        assert_eq!(output.choices[0].token_ids.len(), if end == 13 { 3 } else { 4 });
        options.length.ignore_eos = false;
    }
}

/// Before `min_tokens` neither an end token nor a stop string ends an answer.
#[test]
fn nothing_ends_an_answer_before_min_tokens() {
    let mut around = around();
    around.end_ids = vec![65];
    let mut options = stopping(&["BC"]);
    (options.length.min_tokens, options.length.max_tokens) = (4, Some(6));
    options.length.stop_ids = vec![66];
    let source = Script::answering(256, 1, &letters("ABCDAB"));
    let (output, _) = ask(&source, &Words::bytes(), &around, &[1], &options).unwrap();
    let choice = &output.choices[0];
    assert_eq!(choice.finish, Finish::EndToken(65));
    assert_eq!(choice.token_ids.len(), 5);
    assert!(choice.token_ids[..4].iter().all(|id| *id != 65 && *id != 66));
    options.length.stop_ids.clear();
    around.end_ids.clear();
    let source = Script::answering(256, 1, &letters("BCBCBC"));
    let (output, _) = ask(&source, &Words::bytes(), &around, &[1], &options).unwrap();
    assert_eq!((output.choices[0].text.as_str(), output.choices[0].finish.reason()), ("BCBC", "stop"));
}

/// SMP-08, SMP-09: an answer without an end token and without a limit ends.
#[test]
fn runaway_answers_end_at_the_context_or_a_bound() {
    let source = Script::new(4, |_| one_hot(4, 1));
    let words = Words::new(&["a", "b", "c", "d"]);
    let options = GenerateOptions::default();
    let (output, _) = ask(&source, &words, &around(), &[1, 2, 3], &options).unwrap();
    assert_eq!(output.choices[0].finish, Finish::Context);
    assert_eq!(output.choices[0].finish.reason(), "length");
    assert_eq!(output.choices[0].token_ids.len(), 61);
    let endless = Surroundings { context: None, ..around() };
    let prompt = Prompt { token_ids: vec![0], encoder_ids: Some(vec![1]) };
    let mut on = |_: Event<'_>| ControlFlow::Continue(());
    let output = attend_engine::generate::generate(&source, None, &endless, (&prompt, &options), &mut on).unwrap();
    assert_eq!(output.choices[0].token_ids.len(), 260);
    assert!(output.notices[0].contains("bounded at 260"), "{:?}", output.notices);
    let (output, _) = ask(&source, &words, &endless, &[1], &options).unwrap();
    assert_eq!(output.choices[0].token_ids.len(), 4096);
}

/// The context is refused with figures, or announced; nothing is cut in silence.
#[test]
fn prompts_that_do_not_fit_are_refused_with_figures() {
    let source = Script::new(4, |_| one_hot(4, 1));
    let words = Words::new(&["a", "b", "c", "d"]);
    let mut options = GenerateOptions::default();
    let error = ask(&source, &words, &around(), &[1; 65], &options).unwrap_err().to_string();
    assert!(error.contains("65 tokens") && error.contains("64"), "{error}");
    let error = ask(&source, &words, &around(), &[1; 64], &options).unwrap_err().to_string();
    assert!(error.contains("no room"), "{error}");
    options.length.max_tokens = Some(10);
    let (output, _) = ask(&source, &words, &around(), &[1; 60], &options).unwrap();
    assert_eq!((output.choices[0].token_ids.len(), output.choices[0].finish.clone()), (4, Finish::Context));
    assert!(output.notices[0].contains("room for 4"), "{:?}", output.notices);
    options.length.max_tokens = Some(0);
    assert!(ask(&source, &words, &around(), &[1; 64], &options).unwrap().0.choices.is_empty());
    assert!(matches!(ask(&source, &words, &around(), &[], &options), Err(Error::EmptyPrompt)));
    let error = ask(&source, &words, &around(), &[1, 4], &options).unwrap_err().to_string();
    assert!(error.contains("token id 4") && error.contains("0 to 3"), "{error}");
}

/// STR-07: counts are the ids fed and produced.
#[test]
fn usage_counts_what_was_fed_and_produced() {
    let mut around = around();
    around.end_ids = vec![2];
    let words = Words::new(&["a", "b", "", "d"]);
    for (max_tokens, n, produced, reason) in
        [(0, 1, 0, ""), (1, 1, 1, "length"), (3, 1, 3, "stop"), (5, 1, 3, "stop"), (2, 2, 4, "length")]
    {
        let source = Script::answering(4, 3, &[1, 3, 2]);
        let mut options = GenerateOptions::default();
        (options.length.max_tokens, options.length.n) = (Some(max_tokens), n);
        let (output, _) = ask(&source, &words, &around, &[1, 1, 1], &options).unwrap();
        let usage = output.usage;
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (3, produced, 3 + produced));
        assert!(output.choices.iter().all(|choice| choice.finish.reason() == reason));
        assert_eq!(output.choices.len(), if max_tokens == 0 { 0 } else { n });
        let fed: usize = source.calls.borrow().iter().flatten().sum();
        assert_eq!(fed, 3 + produced - if max_tokens == 0 { 0 } else { n }, "the last token is not fed");
    }
}

/// SMP-04: logits that are not numbers end the request with their place, greedy and sampled.
#[test]
fn logits_that_are_not_numbers_are_an_error_with_their_place() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let source = Script::new(4, move |tokens| {
            let mut row = one_hot(4, 1);
            row[2] = if tokens.len() == 5 { bad } else { row[2] };
            row
        });
        let mut options = GenerateOptions::default();
        options.length.max_tokens = Some(8);
        for temperature in [0.0, 1.0] {
            for logprobs in [None, Some(2)] {
                (options.sampling.temperature, options.report.logprobs) = (temperature, logprobs);
                let error = ask(&source, &Words::new(&["a"; 4]), &around(), &[1, 1, 1], &options).unwrap_err();
                assert!(matches!(error, Error::NonFinite { position: 5, token: 2, .. }), "{error}");
            }
        }
        options.report.prompt_logprobs = Some(0);
        let error = ask(&source, &Words::new(&["a"; 4]), &around(), &[1; 7], &options).unwrap_err();
        assert!(matches!(error, Error::NonFinite { position: 5, .. }), "{error}");
        let mut beams = GenerateOptions::default();
        (beams.beam.num_beams, beams.length.max_tokens) = (2, Some(8));
        let error = ask(&source, &Words::new(&["a"; 4]), &around(), &[1; 3], &beams).unwrap_err();
        assert!(matches!(error, Error::NonFinite { position: 5, .. }), "{error}");
    }
}

/// A row that depends on all tokens before it.
fn mixed(vocab: usize) -> Script {
    Script::new(vocab, move |tokens| {
        let mix = tokens.iter().fold(17u64, |mix, &id| (mix ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        (0..vocab as u64).map(|id| ((mix.rotate_left(id as u32 * 7) >> 40) as f32) / (1u64 << 22) as f32).collect()
    })
}

/// STR-09: the reported token is the one sampled, and re-scoring the text gives its log-probability.
#[test]
fn reported_logprobs_are_those_of_the_sampled_tokens() {
    let source = mixed(12);
    let around = Surroundings { context: None, ..around() };
    let mut options = GenerateOptions::default();
    (options.sampling.temperature, options.sampling.seed) = (1.5, Some(3));
    (options.report.logprobs, options.length.max_tokens) = (Some(5), Some(200));
    (options.sampling.top_k, options.sampling.repetition_penalty) = (6, 1.3);
    let (output, _) = ask(&source, &Words::new(&["a"; 12]), &around, &[1, 2, 3], &options).unwrap();
    let choice = &output.choices[0];
    let whole = Prompt::tokens([&[1, 2, 3], choice.token_ids.as_slice()].concat());
    let score = attend_engine::score::score(&source, &around, &whole, 5).unwrap();
    let mut not_the_best = 0;
    for (index, (token, &id)) in choice.logprobs.iter().zip(&choice.token_ids).enumerate() {
        assert_eq!(token.id, id);
        assert_eq!(Some(token), score.logprobs[3 + index].as_ref());
        assert_eq!(token.top.len(), 5);
        assert!(token.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        not_the_best += usize::from(token.top[0].0 != id);
    }
    assert_eq!(choice.logprobs.len(), 200);
    assert!(not_the_best > 20, "temperature 1.5 does not always take the best");
}

/// The prompt's log-probabilities are the same in chunks of any size.
#[test]
fn prompt_logprobs_in_chunks() {
    let source = mixed(9);
    let prompt: Vec<u32> = (0..23).map(|i| i * i % 9).collect();
    let mut options = GenerateOptions::default();
    (options.report.prompt_logprobs, options.length.max_tokens) = (Some(2), Some(3));
    let run = |chunk| {
        let around = Surroundings { chunk, ..around() };
        ask(&source, &Words::new(&["a"; 9]), &around, &prompt, &options).unwrap().0
    };
    let whole = run(100);
    let list = whole.prompt_logprobs.as_ref().unwrap();
    assert_eq!(list.len(), 23);
    assert!(list[0].is_none() && list[1..].iter().zip(&prompt[1..]).all(|(t, id)| t.as_ref().unwrap().id == *id));
    for chunk in [1, 2, 5, 22, 23] {
        let chunked = run(chunk);
        assert_eq!(chunked.prompt_logprobs, whole.prompt_logprobs);
        assert_eq!(chunked.choices, whole.choices);
    }
}

/// SMP-03, and that sampling depends on seed, choice and position alone.
#[test]
fn choices_do_not_depend_on_their_neighbours() {
    let source = mixed(30);
    let words = Words::new(&["a"; 30]);
    let mut options = GenerateOptions::default();
    let s = &mut options.sampling;
    (s.temperature, s.seed, s.frequency_penalty, s.repetition_penalty) = (1.0, Some(11), 1.05, 1.2);
    (s.mirostat, options.length.max_tokens) = (2, Some(20));
    let run = |n| {
        let mut options = options.clone();
        options.length.n = n;
        ask(&source, &words, &around(), &[5, 6], &options).unwrap().0.choices
    };
    let (alone, five) = (run(1), run(5));
    assert_eq!(alone[0], five[0]);
    assert_eq!(run(3)[..], five[..3]);
    assert!(five.windows(2).all(|pair| pair[0].token_ids != pair[1].token_ids), "each choice has draws of its own");
    assert_eq!(run(5), five, "the same seed gives the same answers");
    let mut unseeded = options.clone();
    unseeded.sampling.seed = None;
    let (first, _) = ask(&source, &words, &around(), &[5, 6], &unseeded).unwrap();
    unseeded.sampling.seed = Some(first.seed);
    let (again, _) = ask(&source, &words, &around(), &[5, 6], &unseeded).unwrap();
    assert_eq!(first.choices, again.choices, "the reported seed repeats the answer");
}

/// Cancelling keeps what was produced, held-back text included.
#[test]
fn cancelling_keeps_what_was_produced() {
    let source = Script::answering(256, 20, &letters("abcDEF"));
    let options = stopping(&["DEFG"]);
    let prompt = Prompt::tokens(vec![1; 20]);
    for last in 0..=6 {
        let mut left = last;
        let mut on = |event: Event<'_>| match event {
            Event::Token { .. } if left == 1 => ControlFlow::Break(()),
            Event::Token { .. } => {
                left -= 1;
                ControlFlow::Continue(())
            }
            Event::Prompt { .. } if last == 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let words = Words::bytes();
        let asked = (&prompt, &options);
        let output = attend_engine::generate::generate(&source, Some(&words), &around(), asked, &mut on).unwrap();
        let choice = &output.choices[0];
        assert_eq!(choice.text, "abcDEF"[..last]);
        assert_eq!(choice.finish.reason(), "cancelled");
        assert_eq!(output.usage.completion_tokens, last);
    }
}

/// Beam search through the loop: ended hypotheses, counts, log-probabilities, cancelling.
#[test]
fn beams_over_a_script() {
    let source = mixed(8);
    let words = Words::new(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let mut around = around();
    around.end_ids = vec![3];
    let mut options = GenerateOptions::default();
    let b = &mut options.beam;
    (b.num_beams, b.num_return_sequences, options.length.max_tokens) = (4, 3, Some(12));
    options.report.logprobs = Some(1);
    let prompt = Prompt::tokens([1, 2]);
    let mut on = |_: Event<'_>| ControlFlow::Continue(());
    let asked = (&prompt, &options);
    let output = attend_engine::generate::generate(&source, Some(&words), &around, asked, &mut on).unwrap();
    assert_eq!(output.choices.len(), 3);
    for choice in &output.choices {
        let sum: f32 = choice.logprobs.iter().map(|token| token.logprob).sum();
        let score = choice.score.unwrap();
        assert!((score - sum / choice.token_ids.len() as f32).abs() < 1e-4, "{score} {sum}");
        let ended = choice.token_ids.last() == Some(&3);
        assert_eq!(choice.finish.reason(), if ended { "stop" } else { "length" });
        assert_eq!(choice.text.len(), choice.token_ids.len() - usize::from(ended));
    }
    assert!(output.choices.windows(2).all(|pair| pair[0].score >= pair[1].score));
    let greedy = GenerateOptions { beam: Default::default(), ..options.clone() };
    let (greedy, _) = ask(&source, &words, &around, &[1, 2], &greedy).unwrap();
    let tokens = &greedy.choices[0].logprobs;
    let mean = tokens.iter().map(|token| token.logprob).sum::<f32>() / tokens.len() as f32;
    assert!(output.choices[0].score.unwrap() >= mean, "no worse than greedy");
    let mut steps = 0;
    let mut stop = |event: Event<'_>| {
        steps += usize::from(matches!(event, Event::Step { .. }));
        if steps == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    options.length.ignore_eos = true;
    let asked = (&prompt, &options);
    let output = attend_engine::generate::generate(&source, Some(&words), &around, asked, &mut stop).unwrap();
    assert!(output.choices.iter().all(|c| c.finish == Finish::Cancelled && c.token_ids.len() == 3));
}

/// DRY with a tokenizer: a breaker is any token that contains it, or the beginning of it and the rest.
#[test]
fn breakers_are_found_in_the_vocabulary() {
    let words = Words::new(&["a", "b\n", "x", "xy", "y"]);
    let found = attend_engine::vocabulary::breakers(&words, &["\n".into(), "xy".into(), String::new()]);
    let mut options = GenerateOptions::default();
    options.sampling.dry_multiplier = 1.0;
    let run = |prompt: &[u32], breakers: &[&str]| {
        let mut options = options.clone();
        options.sampling.dry_sequence_breakers = breakers.iter().map(|b| b.to_string()).collect();
        options.length.max_tokens = Some(1);
        let source = Script::new(5, |_| vec![1.0, 0.5, 0.0, 0.0, 0.0]);
        ask(&source, &words, &around(), prompt, &options).unwrap().0.choices[0].token_ids[0]
    };
    // "2 1 0 2 1": token 0 would prolong a repetition; token 1 is "b\n".
    assert_eq!(run(&[2, 1, 0, 2, 1], &[]), 1);
    assert_eq!(run(&[2, 1, 0, 2, 1], &["\n"]), 0);
    // "x" and "y" spell "xy".
    assert_eq!(run(&[1, 2, 4, 0, 1, 2, 4], &[]), 1);
    assert_eq!(run(&[1, 2, 4, 0, 1, 2, 4], &["xy"]), 0);
    assert!(format!("{found:?}").contains("[2, 4]"));
}
