//! Q7: nothing is asked of any network, and no file appears outside the folders that were named.
//!
//! The small gates run once more in a namespace with a loopback interface and nothing else, whose kernel counts packets and
//! connections that found no way out; home, temporary folder and working folder are watched.

use crate::serving::report;
use std::path::Path;
use std::process::Command;

/// Gates that use the server, the command line and the library between them.
const GATES: [&str; 9] = [
    "q2_requests_of_the_schema_in_small",
    "q3_pairs_in_small",
    "l1_steady_load_in_small",
    "l4_disconnects_in_small",
    "l7_injected_faults_in_small",
    "l8_stop_and_restart_in_small",
    "l9_soak_in_small",
    "l10_cross_talk_in_small",
    "m1_same_answer_in_small",
];

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

fn q7(gates: &[&str], said: bool) {
    let permitted = |command: &str| {
        let ran = Command::new("unshare").args(["-rn", "sh", "-c", command]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    if !permitted("ip link set lo up && test -r /proc/net/snmp") {
        return attend_testkit::skip("Q7 (no network namespace of one's own is permitted here)");
    }
    let place = tempfile::tempdir().expect("a folder");
    for name in ["home", "tmp", "work"] {
        std::fs::create_dir(place.path().join(name)).expect("made");
    }
    let script = "ip link set lo up; cat /proc/net/snmp >\"$BEFORE\"; cd \"$WORK\"; \"$@\"; code=$?; \
                  cat /proc/net/snmp >\"$AFTER\"; exit $code";
    let inside = |name: &str| place.path().join(name);
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", script, "sh"]).arg(std::env::current_exe().expect("this program"));
    command.args(gates).env("RUST_TEST_THREADS", "1");
    for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HF_HOME"] {
        command.env_remove(name);
    }
    command.env("HOME", inside("home")).env("TMPDIR", inside("tmp")).env("WORK", inside("work"));
    command.env("BEFORE", inside("before")).env("AFTER", inside("after"));
    let ran = command.output().expect("unshare runs");
    let words = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{words}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(words.contains(&format!(" {} passed; 0 failed", gates.len())), "{words}");
    let [before, after] = ["before", "after"].map(|name| std::fs::read_to_string(inside(name)).expect("written"));
    let more = |protocol, name| counter(&after, protocol, name) - counter(&before, protocol, name);
    let (lost, datagrams) = (more("Ip", "OutNoRoutes"), more("Udp", "OutDatagrams"));
    assert_eq!((lost, datagrams), (0, 0), "connections that found no way out, and datagrams");
    let left: Vec<String> = ["home", "tmp", "work"].iter().flat_map(|name| files(&inside(name))).collect();
    assert!(left.is_empty(), "files that nobody asked for: {left:?}");
    if said {
        let local = more("Tcp", "ActiveOpens");
        report(
            "Q7",
            &format!(
                "{} gates without a network: 0 connections that found no way out, 0 datagrams ({local} connections, all local); 0 \
                 files left in home, temporary and working folder",
                gates.len()
            ),
        );
    }
}

#[test]
fn q7_no_network_and_no_stray_files_in_small() {
    q7(&GATES[1..2], false);
}

#[test]
#[ignore = "runs other gates once more"]
fn q7_no_network_and_no_stray_files() {
    q7(&GATES, true);
}
