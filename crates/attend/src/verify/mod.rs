//! `attend verify`: golden cases, through the real loader, against what the reference gave.

mod case;
mod compare;
mod generation;
mod gradients;
mod lora;
mod model;
mod modules;
mod record;
mod report;
mod seq2seq;
mod spans;
mod templates;
mod tokenizers;
mod training;

use crate::cli::verify::VerifyArgs;
use anyhow::{Context, Result};
use attend_kernels::Compute;
use attend_model::LoadOptions;
use case::ModelCase;
use compare::Comparison;
use model::Kind;
use report::{Outcome, Report};
use std::path::{Path, PathBuf};

/// Something to verify.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Model(PathBuf),
    Module(PathBuf),
    Tokenizer(PathBuf),
    Templates(PathBuf),
}

/// How deep cases are looked for below a path.
const MAX_DEPTH: usize = 8;

/// Runs every case below the given paths; true when none failed and something passed.
pub fn run(args: &VerifyArgs) -> Result<bool> {
    let mut found = Vec::new();
    for path in &args.paths {
        let before = found.len();
        discover(path, &mut found, MAX_DEPTH)?;
        anyhow::ensure!(found.len() > before, "{}: no golden case is found here", path.display());
    }
    found.sort();
    found.dedup();
    let mut report = Report::new(args.json);
    for found in &found {
        let name = found.name();
        if args.filter.as_ref().is_none_or(|filter| filter.is_match(&name)) {
            report.add(verify(found, name));
        }
    }
    report.close()
}

impl Found {
    fn path(&self) -> &Path {
        match self {
            Found::Model(path) | Found::Module(path) | Found::Tokenizer(path) | Found::Templates(path) => path,
        }
    }

    /// The case's name: its folder's, with the kind before it where it is not a model.
    fn name(&self) -> String {
        let stem = self.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            Found::Model(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Found::Module(_) => format!("modules/{stem}"),
            Found::Tokenizer(_) => format!("tokenizers/{stem}"),
            Found::Templates(_) => stem,
        }
    }
}

/// Collects cases: a folder with `case.json`, and JSON files that say by their fields what they are.
fn discover(path: &Path, found: &mut Vec<Found>, depth: usize) -> Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| format!("{}", path.display()))?;
    if metadata.is_file() {
        if path.extension().is_some_and(|extension| extension == "json") {
            found.extend(classify(path)?);
        }
        return Ok(());
    }
    if path.join("case.json").is_file() {
        found.push(Found::Model(path.to_owned()));
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(path).with_context(|| format!("{}", path.display()))? {
        let path = entry?.path();
        // A pipe, or a link to nowhere, is not a case, and no reason to check nothing.
        if path.is_dir() || path.is_file() {
            discover(&path, found, depth - 1)?;
        }
    }
    Ok(())
}

/// Larger files are not cases: the largest known one is under a megabyte.
const MAX_CASE_BYTES: u64 = 64 << 20;

fn classify(path: &Path) -> Result<Option<Found>> {
    if std::fs::metadata(path)?.len() > MAX_CASE_BYTES {
        return Ok(None);
    }
    let Ok(value) = case::read_json(path) else { return Ok(None) };
    let has = |field: &str| value.get(field).is_some();
    let path = path.to_owned();
    Ok(if has("topic") && has("tensors") {
        Some(Found::Module(path))
    } else if has("tokenizer") && has("strings") {
        Some(Found::Tokenizer(path))
    } else if has("templates") && has("cases") {
        Some(Found::Templates(path))
    } else {
        None
    })
}

fn verify(found: &Found, name: String) -> Outcome {
    let outcome = match found {
        Found::Model(folder) => verify_model(folder),
        Found::Module(file) => modules::verify(file),
        Found::Tokenizer(file) => tokenizers::verify(file),
        Found::Templates(file) => templates::verify(file),
    };
    let mut outcome = outcome.unwrap_or_else(|error| Outcome::failed("?", format!("{error:#}")));
    outcome.name = name;
    outcome
}

/// A model case, twice: recorded (textbook attention, every site), and unobserved (what users get).
fn verify_model(folder: &Path) -> Result<Outcome> {
    if lora::is_case(folder) {
        return lora::verify(folder);
    }
    let case = ModelCase::open(folder)?;
    let architecture = case.text("architecture").unwrap_or("?").to_owned();
    let kind = Kind::of(&case);
    if kind.is_none() && !training::is_run(&case) {
        return Ok(Outcome::skipped(&architecture, "the case is of a kind that is not verified yet"));
    }
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = match attend_model::load(&case.checkpoint(), &options, &mut |_, _| {}) {
        Ok(loaded) => loaded,
        Err(error @ attend_model::Error::UnknownArchitecture { .. }) => {
            let _ = error;
            return Ok(Outcome::skipped(&architecture, "the architecture is not built yet"));
        }
        Err(error) => return Ok(Outcome::failed(&architecture, error.to_string())),
    };
    let Some(kind) = kind else { return training::verify(&case, &loaded) };
    let mut recorded = watched(&case, &loaded, kind)?;
    match gradients::check(&case, &loaded, kind)? {
        Some(gradients) => recorded.merge(gradients),
        None if case.expected.names("train.").next().is_some() => recorded.leave_out("loss and gradients"),
        None => {}
    }
    let mut unobserved = unobserved(&case, &loaded, kind)?;
    unobserved.merge(generation::check(&case, &loaded, kind)?);
    leave_out_unused(&case, &mut recorded);
    Ok(Outcome::of(&architecture, recorded, Some(unobserved)))
}

/// Names of inputs end so: a case may hold more of them than are needed.
const INPUTS: [&str; 4] = ["input_ids", "attention_mask", "position_ids", "token_type_ids"];

/// Says which values of a case nothing was compared with.
fn leave_out_unused(case: &ModelCase, comparison: &mut Comparison) {
    let outputs = |name: &&str| !INPUTS.iter().any(|input| name.ends_with(input));
    let unused: Vec<&str> = case.expected.unused().into_iter().filter(outputs).collect();
    if !unused.is_empty() {
        comparison.leave_out(unused.join(", "));
    }
}

fn watched(case: &ModelCase, loaded: &attend_model::Loaded, kind: Kind) -> Result<Comparison> {
    match kind {
        Kind::EncoderDecoder => seq2seq::check_watched(case, loaded),
        _ => model::check(case, loaded, kind, attend_nn::AttentionKind::Textbook, true),
    }
}

fn unobserved(case: &ModelCase, loaded: &attend_model::Loaded, kind: Kind) -> Result<Comparison> {
    match kind {
        Kind::EncoderDecoder => seq2seq::check_unobserved(case, loaded),
        _ => model::check(case, loaded, kind, attend_nn::AttentionKind::Flash, false),
    }
}
