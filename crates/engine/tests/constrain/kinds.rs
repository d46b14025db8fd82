//! What answers are.

use crate::common::{Script, ask, one_hot};
use crate::support::{around, is_whole, kinds, options, rows, words};
use attend_engine::{Constraint, Error, Finish, GenerateOptions};
use serde_json::json;

#[test]
fn every_answer_is_what_was_asked_for() {
    for (kind, constraint, wanted) in kinds() {
        let (mut whole, around) = (0, around());
        for seed in 0..40 {
            for temperature in [0.0, 1.0] {
                let mut options = options(constraint.clone());
                (options.sampling.seed, options.sampling.temperature) = (Some(seed), temperature);
                let (output, _) = ask(&rows(seed), &words(), &around, &[5, 9], &options).expect("an answer");
                if is_whole(&output) {
                    let text = &output.choices[0].text;
                    assert!(wanted(text), "{kind}: {text:?}");
                    whole += 1;
                } else {
                    assert_eq!(output.choices[0].token_ids.len(), 300, "{kind}: {:?}", output.choices[0]);
                }
            }
        }
        assert!(whole >= 60, "{kind}: {whole} of 80 answers came to an end");
    }
}

/// A model that would go on for ever is ended by what it was asked for, and one that would end at once is not let.
#[test]
fn answers_end_where_they_are_whole_and_nowhere_else() {
    let words = words();
    let vocab = words.0.len();
    let asked = |rows: &Script, pattern: &str, change: &dyn Fn(&mut GenerateOptions)| {
        let mut options = options(Constraint::Regex(pattern.into()));
        options.sampling.temperature = 0.0;
        change(&mut options);
        let output = ask(rows, &words, &around(), &[1], &options).expect("an answer").0;
        let choice = &output.choices[0];
        (choice.text.clone(), choice.finish.clone())
    };
    let ends = Script::new(vocab, move |_| one_hot(vocab, 0));
    let a = u32::from(b'a') + 1;
    let never = Script::new(vocab, move |_| one_hot(vocab, a));
    assert_eq!(asked(&ends, "b{3}", &|_| {}), ("bbb".into(), Finish::Complete));
    assert_eq!(asked(&ends, "b{3}c*", &|_| {}), ("bbb".into(), Finish::EndToken(0)));
    assert_eq!(asked(&never, "a{3}", &|_| {}), ("aaa".into(), Finish::Complete));
    assert_eq!(asked(&never, "a*", &|o| o.length.max_tokens = Some(5)), ("aaaaa".into(), Finish::MaxTokens));
    // Where end tokens do not end it, and before `min_tokens`, it goes on as long as it can.
    assert_eq!(asked(&ends, "b{3}c{0,2}", &|o| o.length.ignore_eos = true), ("bbbcc".into(), Finish::Complete));
    assert_eq!(asked(&ends, "b{3}c{0,2}", &|o| o.length.min_tokens = 4), ("bbbc".into(), Finish::EndToken(0)));
    // The request's own end tokens come where the answer may end, though they are words too.
    let stop = |o: &mut GenerateOptions| o.length.stop_ids = vec![a];
    assert_eq!(asked(&never, "[ab]{3}c?", &stop), ("bbb".into(), Finish::StopToken(a)));
    assert_eq!(asked(&never, "", &stop), (String::new(), Finish::StopToken(a)));
}

/// Rows that like nothing but white space.
#[test]
fn white_space_does_not_go_on_for_ever() {
    let words = words();
    let vocab = words.0.len();
    let blank: Vec<bool> = words.0.iter().map(|word| word.iter().all(u8::is_ascii_whitespace)).collect();
    let source = Script::new(vocab, move |tokens| {
        let row = blank.iter().enumerate().map(|(id, &blank)| {
            let closes = [b'}', b']'].map(|byte| usize::from(byte) + 1).contains(&id);
            f32::from(u8::from(blank)) * 9.0 + f32::from(u8::from(closes)) + (tokens.len() * 7 + id) as f32 % 0.9
        });
        row.collect()
    });
    let lists = json!({ "type": "array", "items": { "type": "array", "items": { "type": "integer" } }, "minItems": 2 });
    for constraint in [Constraint::JsonObject, Constraint::schema(lists.clone())] {
        let mut options = options(constraint);
        options.sampling.temperature = 0.0;
        let output = ask(&source, &words, &around(), &[1], &options).expect("an answer").0;
        let text = &output.choices[0].text;
        assert!(is_whole(&output) && serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text:?}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let refused = |options: &GenerateOptions| match ask(&rows(1), &words(), &around(), &[1], options) {
        Err(error) => error,
        Ok((output, _)) => panic!("an answer: {output:?}"),
    };
    for (constraint, expected) in [
        (Constraint::Regex("(".into()), "the regular expression cannot be followed"),
        (Constraint::Regex("foo**(".into()), "the regular expression cannot be followed"),
        (Constraint::Regex("(?<=a)b".into()), "the regular expression cannot be followed"),
        (Constraint::Choice(Vec::new()), "the list of choices cannot be followed: it is empty"),
        (Constraint::schema(json!([1])), "the JSON schema cannot be followed: it must be an object"),
        (Constraint::schema(json!({ "type": "strnig" })), "strnig"),
        (Constraint::schema(json!({ "type": "array", "uniqueItems": true })), "uniqueItems"),
        (Constraint::schema(json!({ "$ref": "http://127.0.0.1:1/a.json" })), "$ref"),
        (Constraint::schema(json!({ "$ref": "#/$defs/missing" })), "missing"),
        (Constraint::Lark("begin: \"a\"".into()), "start"),
        (Constraint::Lark("start: a".into()), "the grammar cannot be followed"),
        (Constraint::Gbnf("root ::= a".into()), "\"a\" is used but not defined"),
    ] {
        let error = refused(&options(constraint)).to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.len() < 500 && !error.contains('\n'), "{error}");
    }
    let mut beams = options(Constraint::JsonObject);
    (beams.beam.num_beams, beams.sampling.temperature) = (2, 0.0);
    assert!(refused(&beams).to_string().starts_with("num_beams"));
}

/// What is passed over is said.
#[test]
fn lenient_schemas_say_what_they_do_not_follow() {
    let schema = json!({ "type": "array", "items": { "enum": [1, 2] }, "uniqueItems": true, "maxItems": 4 });
    let options = options(Constraint::JsonSchema { schema, lenient: true });
    let output = ask(&rows(1), &words(), &around(), &[1], &options).expect("an answer").0;
    assert!(output.notices.iter().any(|notice| notice.contains("uniqueItems")), "{:?}", output.notices);
}

#[test]
fn constraints_need_a_tokenizer() {
    let (source, around) = (rows(1), around());
    let schedule = attend_engine::Schedule::new(&source, None, &around, Default::default());
    let error = crate::common::ask_in(schedule, &[1], &options(Constraint::JsonObject)).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}
