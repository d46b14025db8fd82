//! The program without a model: usage errors, help, the models folder, the doctor.

mod common;

use common::{attend, ran, tiny};
use serde_json::json;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn bad_values_are_usage_errors_that_name_the_flag() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    let cases: [(&str, &[&str]); 22] = [
        ("--context", &["-1", "0", "4294967296", "9223372036854775808", "abc", "1.5", ""]),
        ("--threads", &["0", "-2", "1025", "x"]),
        ("--temperature", &["-0.1", "nan", "inf", "warm"]),
        ("--dynatemp-range", &["-1", "nan"]),
        ("--top-k", &["-1", "x", "99999999999"]),
        ("--top-p", &["1.01", "-0.5", "nan"]),
        ("--min-p", &["2", "x"]),
        ("--typical", &["2", "nan"]),
        ("--top-n-sigma", &["-1"]),
        ("--xtc-probability", &["1.5"]),
        ("--xtc-threshold", &["-1"]),
        ("--dry-multiplier", &["-1", "inf"]),
        ("--repeat-penalty", &["0", "-1", "nan"]),
        ("--presence-penalty", &["nan", "x"]),
        ("--frequency-penalty", &["inf"]),
        ("--repeat-last-n", &["-2", "x"]),
        ("--mirostat", &["1", "3", "x"]),
        ("--max-tokens", &["-1", "x", "1e3"]),
        ("--n", &["0", "-1", "1000000"]),
        ("--logit-bias", &["5", "5=nan", "5=x"]),
        ("--samplers", &["top_z"]),
        ("--seed", &["-1", "18446744073709551616", "x"]),
    ];
    for (flag, values) in cases {
        for value in values {
            let run = ran(attend(models.path()).arg("run").arg("-m").arg(&model).args(["--raw", "t5", flag, value]));
            let line = run.error(2);
            assert!(line.contains(flag), "{flag} {value}: {line}");
        }
    }
}

#[test]
fn tokens_that_do_not_exist_are_usage_errors() {
    let models = folder();
    let model = tiny(models.path(), "llama-gqa", json!({}));
    for (flag, value) in
        [("--stop-id", "96"), ("--ban", "96"), ("--allow", "4000000000"), ("--logit-bias", "96=1"), ("--ban", "t1 t2")]
    {
        let run = ran(attend(models.path()).arg("run").arg("-m").arg(&model).args(["--raw", "t5", flag, value]));
        assert!(run.error(2).contains(flag), "{flag} {value}: {}", run.err);
    }
}

#[test]
fn mistakes_end_with_code_2_and_one_line() {
    let models = folder();
    for arguments in [
        &["nonsense"][..],
        &["run", "--nonsense"],
        &["rm"],
        &["verify"],
        &["completions", "klingon"],
        &["run", "--raw", "--system", "x", "y"],
        &["perplexity", "--method", "other", "x"],
        &["verify", "--filter", "(", "x"],
    ] {
        ran(attend(models.path()).args(arguments)).error(2);
    }
}

#[test]
fn help_has_examples_and_completions_are_scripts() {
    let models = folder();
    let commands = [
        "run",
        "chat",
        "show",
        "tokens",
        "logits",
        "score",
        "perplexity",
        "pull",
        "list",
        "rm",
        "verify",
        "doctor",
        "completions",
    ];
    let top = ran(attend(models.path()).arg("--help"));
    for command in commands {
        assert!(top.text().contains(command), "{command} in {}", top.out);
        let help = ran(attend(models.path()).args([command, "--help"]));
        assert!(help.text().contains("Examples:") && help.out.contains(&format!("attend {command}")), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = ran(attend(models.path()).args(["completions", shell]));
        assert!(script.text().contains("perplexity"), "{shell}");
    }
    assert!(ran(attend(models.path()).arg("--version")).text().starts_with("attend "));
}

#[test]
fn models_that_do_not_exist_are_named() {
    let models = folder();
    for (word, code) in
        [("no-such-model", 1), ("./no/such/file.gguf", 1), ("owner/name", 1), ("../x", 1), ("a/../b", 1), ("a b", 1)]
    {
        let run = ran(attend(models.path()).args(["show", "-m", word]));
        assert!(run.error(code).contains(word), "{word}: {}", run.err);
    }
    let offline = ran(attend(models.path()).args(["pull", "owner/name"]));
    assert!(offline.error(1).contains("HF_HUB_OFFLINE"));
}

/// The bytes of a path are the system's business, wherever a model is wanted.
#[cfg(target_os = "linux")]
#[test]
fn a_models_path_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    let models = folder();
    let place = models.path().join(std::ffi::OsStr::from_bytes(b"mod\xff=el"));
    std::fs::create_dir(&place).expect("made");
    let model = tiny(&place, "llama-gqa", json!({}));
    let text = "t5 t6 t7 t8 t9";
    let run = |arguments: &[&str], last: &Path| ran(attend(models.path()).args(arguments).arg(last));
    assert_eq!(run(&["show", "--json", "-m"], &model).json()["architecture"], "llama");
    assert_eq!(run(&["plan", "--json", "--no-speed"], &model).json()["architecture"], "llama");
    run(&["run", "--raw", text, "--max-tokens", "3", "--json", "-m"], &model).json();
    let by_text = tiny(models.path(), "llama-gqa", json!({}));
    let by_text = by_text.to_str().expect("text");
    let compared = run(&["perplexity", text, "--json", "-m", by_text, "--reference"], &model).json();
    assert_eq!(compared["same_top"].as_f64(), Some(1.0));
    let gguf = place.join("a.gguf");
    run(&["convert", "-m", by_text], &gguf).text();
    run(&["score", text, "-m"], &gguf).text();
    let kept = ran(attend(&place).args(["list", "--json"])).json();
    assert_eq!(kept["models"].as_array().map(Vec::len), Some(2), "{kept}");
    assert!(ran(attend(&place).args(["doctor", "--json"])).json()["models_folder"].is_string());
    // An adapter's folder too; this one holds none.
    let told = run(&["score", text, "-m", by_text, "--lora"], &place);
    assert!(told.error(1).contains("adapter_config.json"), "{told:?}");
    let absent = run(&["show", "-m"], &place.join("absent"));
    assert!(absent.error(1).contains("no such file or folder"), "{absent:?}");
}

#[test]
fn the_folder_is_listed_and_emptied() {
    let models = folder();
    let empty = ran(attend(models.path()).args(["list", "--json"])).json();
    assert_eq!(empty["models"], json!([]));
    tiny(models.path(), "llama-gqa", json!({}));
    let list = ran(attend(models.path()).args(["list", "--json"])).json();
    assert_eq!(list["models"][0]["name"], "llama-gqa");
    assert!(list["models"][0]["bytes"].as_u64() > Some(10_000));
    assert!(ran(attend(models.path()).arg("list")).text().contains("llama-gqa"));
    let by_name = ran(attend(models.path()).args(["show", "-m", "llama-gqa", "--json"])).json();
    assert_eq!(by_name["architecture"], "llama");
    ran(attend(models.path()).args(["rm", "llama-gqa"])).text();
    assert!(!models.path().join("llama-gqa").exists());
    assert!(ran(attend(models.path()).args(["rm", "llama-gqa"])).error(1).contains("llama-gqa"));
    assert!(ran(attend(models.path()).args(["rm", "../x"])).error(1).contains("../x"));
}

#[test]
fn the_doctor_tells_what_there_is() {
    let models = folder();
    let report = ran(attend(models.path()).args(["doctor", "--json"])).json();
    let sets: Vec<&str> =
        report["instruction_sets"].as_array().expect("a list").iter().filter_map(|s| s.as_str()).collect();
    assert!(sets.contains(&"portable"), "{sets:?}");
    let used = report["instruction_set"].as_str().expect("a name");
    assert!(sets.iter().any(|set| used.starts_with(set)), "{used} of {sets:?}");
    assert!(report["speed"]["memory_gb_per_s"].as_f64() > Some(0.0));
    assert!(report["speed"]["matmul"].as_array().is_some_and(|list| !list.is_empty()));
    assert!(report["threads"].as_u64() >= Some(1));
    assert_eq!(report["models_folder"].as_str().map(Path::new), Some(models.path()));
    assert_eq!(report["default_model_present"], false);
    assert!(report["network"].is_null());
    assert!(ran(attend(models.path()).arg("doctor")).text().contains("instruction sets"));
}

#[test]
fn the_instruction_set_can_be_forced_and_a_bad_one_is_an_error() {
    let models = folder();
    let portable = ran(attend(models.path()).args(["doctor", "--json"]).env("ATTEND_ISA", "portable")).json();
    assert_eq!(portable["instruction_set"], "portable");
    let bad = ran(attend(models.path()).args(["doctor"]).env("ATTEND_ISA", "abacus"));
    assert!(bad.error(1).contains("ATTEND_ISA"));
}
