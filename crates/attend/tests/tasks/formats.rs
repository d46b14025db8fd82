//! Inputs and outputs in every form.

use crate::common::{attend, ran, ran_with};
use crate::support::{assert_close, model, numbers, vectors};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Place {
    folder: tempfile::TempDir,
    model: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = model(folder.path(), "bert-base", json!({}));
    Place { folder, model }
}

impl Place {
    fn embed(&self) -> std::process::Command {
        let mut command = attend(self.folder.path());
        command.args(["embed", "--dtype", "f32", "--pooling", "mean", "-m"]).arg(&self.model);
        command
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

const TEXTS: [&str; 3] = ["w5 w6", "w7", "w8 w9 w10"];

#[test]
fn inputs_of_every_form_give_the_same_answers() {
    let place = place();
    let wanted = ran(place.embed().arg("--json").args(TEXTS)).text().to_owned();
    assert_eq!(wanted.lines().count(), 3);
    let text = "w5 w6\nw7\nw8 w9 w10\n";
    assert_eq!(ran_with(place.embed().arg("--json"), text).text(), wanted, "standard input");
    let json = "{\"text\": \"w5 w6\"}\n\"w7\"\n\n{\"text\": \"w8 w9 w10\", \"id\": 3}\n";
    for (name, content, options) in [
        ("a.txt", text, &[][..]),
        ("a.jsonl", json, &[]),
        ("a.csv", "id,body\n1,w5 w6\n2,\"w7\"\n3,w8 w9 w10\n", &["--field", "body"]),
        ("a.tsv", "text\nw5 w6\nw7\nw8 w9 w10\n", &[]),
        ("a.dat", json, &["--input-format", "jsonl"]),
    ] {
        let path = place.file(name, content);
        let run = ran(place.embed().arg("--json").arg("--input").arg(&path).args(options));
        assert_eq!(run.text(), wanted, "{name}");
        assert_eq!(run.err, "", "quiet when piped");
    }
}

#[test]
fn many_inputs_keep_their_order() {
    let place = place();
    // More than a window of them.
    let texts: Vec<String> = (0..1200).map(|index| format!("w{} w{}", 5 + index % 90, 5 + index / 90)).collect();
    let run = ran_with(place.embed().arg("--json"), &texts.join("\n"));
    let lines: Vec<&str> = run.text().lines().collect();
    assert_eq!(lines.len(), 1200);
    for index in [0, 511, 512, 777, 1199] {
        assert_eq!(lines[index], ran(place.embed().arg("--json").arg(&texts[index])).text().trim_end(), "{index}");
    }
}

#[test]
fn outputs_of_every_form() {
    let place = place();
    let wanted = vectors(&place.model, &[&["--pooling", "mean"][..], &TEXTS].concat());
    let text = ran(place.embed().args(TEXTS)).text().to_owned();
    for (line, wanted) in text.lines().zip(&wanted) {
        let found: Vec<f64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        assert_close(&found, wanted, 1e-7);
    }
    let list: Value = ran(place.embed().args(["--format", "json"]).args(TEXTS)).json();
    assert_eq!(list.as_array().map(Vec::len), Some(3));
    assert_close(&numbers(&list[2]["embedding"]), &wanted[2], 0.0);
    // None at all is a list too.
    let empty = place.file("empty.txt", "");
    assert_eq!(ran(place.embed().args(["--format", "json", "--input"]).arg(empty)).json(), json!([]));
    for name in ["out.jsonl", "out.json", "out.txt", "out.npy"] {
        let path = place.folder.path().join(name);
        let run = ran(place.embed().arg("--output").arg(&path).args(TEXTS));
        assert_eq!(run.text(), "", "{name}");
        let bytes = std::fs::read(&path).expect("the file is there");
        match name {
            "out.npy" => check_npy(&bytes, &wanted),
            "out.txt" => assert_eq!(String::from_utf8(bytes).expect("text"), text),
            _ => assert!(bytes.starts_with(if name == "out.json" { b"[\n{" } else { b"{" })),
        }
    }
    assert!(ran(place.embed().args(["--format", "npy"]).args(TEXTS)).error(2).contains("--output"));
}

fn check_npy(bytes: &[u8], wanted: &[Vec<f64>]) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!((10 + length).is_multiple_of(64));
    let header = std::str::from_utf8(&bytes[10..10 + length]).expect("ASCII");
    assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 32), }"), "{header}");
    let numbers: Vec<f64> = bytes[10 + length..]
        .chunks_exact(4)
        .map(|four| f64::from(f32::from_le_bytes(four.try_into().expect("four bytes"))))
        .collect();
    // A number of JSON is the shortest that means the same f32.
    let wanted: Vec<f64> = wanted.concat().into_iter().map(|number| f64::from(number as f32)).collect();
    assert_eq!(numbers, wanted);
}

/// A file is there when it is whole, and not before.
#[test]
fn a_failure_leaves_no_file_and_no_trace() {
    let place = place();
    std::fs::create_dir(place.folder.path().join("out")).expect("made");
    for (name, content) in [("a.npy", "w5\nw6\n"), ("a.jsonl", "w5\n")] {
        let out = place.folder.path().join("out").join(name);
        std::fs::write(&out, "old").expect("written");
        let long: Vec<String> = (0..60).map(|index| format!("w{}", index + 5)).collect();
        let input = format!("{content}{}\n", long.join(" "));
        let run = ran_with(place.embed().arg("--output").arg(&out), &input);
        assert!(run.error(1).contains("standard input, line"), "{}", run.err);
        assert_eq!(std::fs::read(&out).expect("read"), b"old");
    }
    let left = std::fs::read_dir(place.folder.path().join("out")).expect("read").count();
    assert_eq!(left, 2);
    let nowhere = ran(place.embed().arg("w5").arg("--output").arg(Path::new("/nowhere/at/all.jsonl")));
    assert!(nowhere.error(1).contains("all.jsonl"));
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    let place = place();
    for (name, content, wanted) in [
        ("a.jsonl", "\"w5\"\n[1]\n", "a.jsonl, line 2"),
        ("a.jsonl", "{\"a\": 1, \"b\": 2}\n", "`text` is missing; there is a, b"),
        ("a.csv", "a,b\n1\n", "names 2 columns"),
    ] {
        let path = place.file(name, content);
        let run = ran(place.embed().arg("--json").arg("--input").arg(&path));
        assert!(run.error(1).contains(wanted), "{}", run.err);
    }
    assert!(ran(place.embed().args(["--input", "absent.txt"])).error(1).contains("absent.txt"));
    assert!(ran(place.embed().args(["--field", "a", "w5"])).error(2).contains("--field"));
    assert_eq!(ran(place.embed().args(["--input", "a", "w5"])).code, Some(2), "either or");
}
