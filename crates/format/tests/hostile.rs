//! Hostile files end in the error their case names, odd but valid ones load, and neither takes much memory.

use std::path::Path;
use std::sync::Mutex;

use attend_format::{Checkpoint, Error};
use attend_testkit::files::{Case, Probe};
use attend_testkit::{files, hostile};

/// Held while memory is measured: tests of one program share its memory.
static MEASURE: Mutex<()> = Mutex::new(());

/// Opens and probes, as a case says.
fn run(case: &Case, folder: &Path) -> Result<(), Error> {
    let checkpoint = Checkpoint::open(&folder.join(&case.open))?;
    match case.probe {
        None => {}
        Some(Probe::Count(field)) => drop(checkpoint.config().usize(field)?),
        Some(Probe::Number(field)) => drop(checkpoint.config().f64(field)?),
        Some(Probe::Tensor(name)) => {
            let mut bytes = vec![0; checkpoint.require(name)?.bytes as usize];
            checkpoint.read_at(name, 0, &mut bytes)?;
        }
    }
    Ok(())
}

/// The most memory this process has had in RAM so far, in bytes, and the means to start counting anew.
#[cfg(target_os = "linux")]
fn peak_memory(reset: bool) -> u64 {
    if reset {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[cfg(not(target_os = "linux"))]
fn peak_memory(_reset: bool) -> u64 {
    0
}

#[test]
fn hostile_files_end_in_the_expected_error() {
    let _alone = MEASURE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let cases = hostile::cases(7);
    assert!(cases.len() >= 300, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let folder = tempfile::tempdir().unwrap();
        case.write(folder.path()).unwrap();
        let before = peak_memory(true);
        let outcome = run(case, folder.path());
        let used = peak_memory(false).saturating_sub(before);
        let kind = outcome.as_ref().err().map_or("no error", Error::kind);
        if !case.expect.split('|').any(|expected| expected == kind) {
            wrong.push(format!("{} {}: wanted {}, got {kind}: {outcome:?}", case.class, case.name, case.expect));
        }
        if used > (64 << 20) + 4 * case.size() {
            wrong.push(format!("{} {}: took {used} bytes for {}", case.class, case.name, case.size()));
        }
        if let Err(error) = outcome {
            let text = error.to_string();
            if text.is_empty() || text.len() > 1000 || text.contains('\n') {
                wrong.push(format!("{}: message of {} bytes: {text:.200}", case.name, text.len()));
            }
        }
        assert!(!folder.path().join("marker").exists() && !Path::new("marker").exists(), "{} ran code", case.name);
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn odd_but_valid_files_load() {
    let _alone = MEASURE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let cases = files::odd::cases(7);
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let folder = tempfile::tempdir().unwrap();
        case.write(folder.path()).unwrap();
        if let Err(error) = run(case, folder.path()) {
            wrong.push(format!("{}: {error}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn names_of_cases_are_unique() {
    let cases: Vec<Case> = hostile::cases(7).into_iter().chain(files::odd::cases(7)).collect();
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    names.sort();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name appears twice");
}
