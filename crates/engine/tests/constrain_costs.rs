//! What constraints may cost: each hostile one is followed or refused within 64 MiB, and what was compiled is forgotten.

mod common;
#[path = "constrain/nasty.rs"]
mod nasty;
#[path = "constrain/support.rs"]
#[allow(dead_code)]
mod support;

use attend_engine::{Constraint, Error, GenerateOptions, Grammars, Prompt, Ready, Surroundings};
use attend_testkit::memory::{PeakAlloc, alone, peak_of};
use common::ask;
use nasty::{expressions, fields, grammars, nested, schemas};
use serde_json::json;
use std::sync::Arc;
use support::{around, options, rows, words};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MIB: u64 = 1 << 20;

/// Asks, with the answer cut at 150 tokens; `true` where there was one.
fn followed(constraint: Constraint) -> bool {
    let mut options = options(constraint);
    options.length.max_tokens = Some(150);
    match ask(&rows(5), &words(), &around(), &[1], &options) {
        Ok(_) => true,
        Err(
            Error::Constraint { .. }
            | Error::ConstraintCost { .. }
            | Error::NothingLeft { .. }
            | Error::Parameter { .. },
        ) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn hostile_constraints_stay_within_their_memory() {
    let _alone = alone();
    let lists: [(&str, Vec<Constraint>); 4] = [
        ("expressions", expressions().into_iter().map(Constraint::Regex).collect()),
        ("schemas", schemas().into_iter().map(Constraint::schema).collect()),
        (
            "lenient schemas",
            schemas().into_iter().map(|schema| Constraint::JsonSchema { schema, lenient: true }).collect(),
        ),
        ("grammars", grammars().into_iter().map(Constraint::grammar).collect()),
    ];
    for (kind, list) in lists {
        let (count, mut followed) = (list.len(), 0);
        for (index, constraint) in list.into_iter().enumerate() {
            let started = std::time::Instant::now();
            let (answered, bytes) = peak_of(|| self::followed(constraint));
            eprintln!("{kind} {index}: {answered}, {:.1} MiB, {:?}", bytes as f64 / MIB as f64, started.elapsed());
            assert!(bytes < 64 * MIB, "{kind} {index}: {} MiB", bytes / MIB);
            followed += usize::from(answered);
        }
        assert!(followed > count / 4 && followed < count, "{kind}: {followed} of {count} were followed");
    }
}

#[test]
fn distinct_schemas_do_not_add_up() {
    let _alone = alone();
    let (source, words, around) = (rows(5), words(), around());
    let ready = |around: &Surroundings, options: GenerateOptions| {
        Ready::new(&source, Some(&words), around, Prompt::tokens([1]), Arc::new(options)).expect("in order")
    };
    let schema = |index: usize| json!({ "type": "object", "properties": fields(3, |field| json!({ "enum": [format!("{index} {field}"), index] })) });
    drop(ready(&around, options(Constraint::schema(schema(0)))));
    let before = PeakAlloc.current_usage();
    for index in 0..10_000 {
        drop(ready(&around, options(Constraint::schema(schema(index)))));
    }
    let held = PeakAlloc.current_usage().saturating_sub(before) as u64;
    assert!(held < 50 * MIB, "{} MiB", held / MIB);
}

/// What is counted is about what is held, and what does not fit is refused by name until others are gone.
#[test]
fn all_matchers_together_stay_within_their_memory() {
    let _alone = alone();
    let (source, words) = (rows(5), words());
    let ready = |around: &Surroundings, constraint: Constraint| {
        Ready::new(&source, Some(&words), around, Prompt::tokens([1]), Arc::new(options(constraint)))
    };
    let enums = |salt: usize| json!({ "enum": (0..300).map(|index| format!("{index} {salt}")).collect::<Vec<_>>() });
    for (kind, constraint) in [
        ("a regular expression", Constraint::Regex(".*a.{30}".into())),
        ("a schema", Constraint::schema(nested(10))),
        ("a long list", Constraint::schema(enums(0))),
    ] {
        let around = around();
        drop(ready(&around, constraint.clone()));
        let (before, counted) = (PeakAlloc.current_usage(), around.grammars.held());
        let many: Vec<Ready> = (0..40).map(|_| ready(&around, constraint.clone()).expect("in order")).collect();
        let held = PeakAlloc.current_usage().saturating_sub(before) as u64;
        let counted = around.grammars.held() - counted;
        eprintln!("{kind}: {held} held, {counted} counted");
        assert!(counted >= held / 2 && counted <= held * 2, "{kind}: {held} held, {counted} counted");
        drop(many);
    }
    let around = Surroundings { grammars: Grammars::within(8 * MIB), ..around() };
    let (mut taken, mut index) = (Vec::new(), 0);
    let refused = loop {
        match ready(&around, Constraint::schema(enums(index))) {
            Ok(ready) => taken.push(ready),
            Err(error) => break error,
        }
        index += 1;
        assert!(around.grammars.held() <= 9 * MIB, "{index}: {}", around.grammars.held());
    };
    assert!(matches!(refused, Error::ConstraintMemory { limit: 8_388_608, .. }), "{refused}");
    assert!(taken.len() > 5, "{}", taken.len());
    taken.truncate(taken.len() / 2);
    ready(&around, Constraint::schema(enums(index))).expect("there is room again");
}
