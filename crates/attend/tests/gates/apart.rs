//! Q7: nothing is asked of any network, and no file appears outside the folders that were named.
//!
//! The whole suite runs once more (in small a gate of it) in a namespace with a loopback interface and nothing else, whose kernel
//! counts packets and connections that found no way out; home, temporary folder, working folder and the sources are watched.

use crate::serving::report;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every file below a folder.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        found.push(entry.path().display().to_string());
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files(&entry.path()));
        }
    }
    found
}

/// The counter of one protocol in `/proc/net/snmp`.
fn counter(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}:")));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|own| own == name).unwrap_or_else(|| panic!("{name} in {names}"));
    values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a number")
}

/// The folder of the sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What lies among the sources, but for what the build and version control put there.
fn among_sources() -> Vec<String> {
    let entries = std::fs::read_dir(sources()).expect("a folder").map(|entry| entry.expect("an entry"));
    let own = entries.filter(|entry| !["target", ".git"].iter().any(|name| entry.file_name() == *name));
    let mut found: Vec<String> = own
        .flat_map(|entry| {
            let below = if entry.path().is_dir() { files(&entry.path()) } else { Vec::new() };
            std::iter::once(entry.path().display().to_string()).chain(below)
        })
        .collect();
    found.sort();
    found
}

/// All tests but this one, as cargo runs them, which knows where it has its own files whatever the home is.
fn suite() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", SCRIPT, "sh"]).arg(cargo).current_dir(sources());
    command.args(["test", "--release", "--workspace", "--no-fail-fast", "--quiet", "--", "--skip", "q7_"]);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for (name, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        command.env(name, std::env::var_os(name).unwrap_or_else(|| home.join(place).into()));
    }
    command.env("CARGO_NET_OFFLINE", "true").env_remove("ATTEND_SKIP_LOG");
    command
}

/// One gate of this program.
fn gate(name: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", SCRIPT, "sh"]).arg(std::env::current_exe().expect("this program")).arg(name);
    command
}

/// Notes what the kernel counts before and after a command.
const SCRIPT: &str = "ip link set lo up; cat /proc/net/snmp >\"$BEFORE\"; \"$@\"; code=$?; \
                      cat /proc/net/snmp >\"$AFTER\"; exit $code";

fn q7(mut command: Command, said: bool) {
    let permitted = |command: &str| {
        let ran = Command::new("unshare").args(["-rn", "sh", "-c", command]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    if !permitted("ip link set lo up && test -r /proc/net/snmp") {
        return attend_testkit::skip("Q7 (no network namespace of one's own is permitted here)");
    }
    let place = tempfile::tempdir().expect("a folder");
    let inside = |name: &str| place.path().join(name);
    for name in ["home", "tmp", "work"] {
        std::fs::create_dir(inside(name)).expect("made");
    }
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME"] {
        command.env_remove(name);
    }
    if command.get_current_dir().is_none() {
        command.current_dir(inside("work"));
    }
    command.env("HOME", inside("home")).env("TMPDIR", inside("tmp"));
    command.env("BEFORE", inside("before")).env("AFTER", inside("after"));
    let sources = among_sources();
    let ran = command.output().expect("unshare runs");
    let words = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{words}\n{}", String::from_utf8_lossy(&ran.stderr));
    let passed: usize = words.lines().filter_map(passed).sum();
    assert!(passed > 0, "{words}");
    let [before, after] = ["before", "after"].map(|name| std::fs::read_to_string(inside(name)).expect("written"));
    let more = |protocol, name| counter(&after, protocol, name) - counter(&before, protocol, name);
    let (lost, datagrams) = (more("Ip", "OutNoRoutes"), more("Udp", "OutDatagrams"));
    assert_eq!((lost, datagrams), (0, 0), "connections that found no way out, and datagrams");
    let left: Vec<String> = ["home", "tmp", "work"].iter().flat_map(|name| files(&inside(name))).collect();
    assert!(left.is_empty(), "files that nobody asked for: {left:?}");
    assert_eq!(among_sources(), sources, "files among the sources");
    if said {
        let local = more("Tcp", "ActiveOpens");
        report(
            "Q7",
            &format!(
                "{passed} tests without a network: 0 connections that found no way out, 0 datagrams ({local} connections, all local); \
                 0 files left in home, temporary and working folder, and among the sources"
            ),
        );
    }
}

/// How many passed, of the closing line of a test program.
fn passed(line: &str) -> Option<usize> {
    line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
}

#[test]
fn q7_no_network_and_no_stray_files_in_small() {
    q7(gate("q3_pairs_in_small"), false);
}

#[test]
#[ignore = "runs all other tests once more"]
fn q7_no_network_and_no_stray_files() {
    q7(suite(), true);
}
