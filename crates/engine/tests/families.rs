//! The README's table of families and tasks says what the code can do: it is made of the list of architectures, of the
//! heads that each accepts and of what each task needs. After a change of these,
//! `ATTEND_WRITE_README=1 cargo test -p attend-engine --test families` writes it anew.

use attend_engine::tasks::Task;
use attend_model::{Architecture, Error, architectures, describe_design};
use attend_nn::spec::{Body, ModelSpec};
use attend_testkit::golden::golden_root;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What class names end with, over all families.
const CLASSES: [&str; 9] = [
    "Model",
    "EncoderModel",
    "LMHeadModel",
    "ForCausalLM",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForConditionalGeneration",
];

/// Fields that describe a small model, under the names of every family, for those of which there is no golden case.
fn any_config() -> Value {
    let mut config = json!({"vocab_size": 96, "max_position_embeddings": 40, "pad_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 2, "tie_word_embeddings": true});
    for (names, value) in [
        (&["hidden_size", "n_embd", "d_model", "dim"][..], 32),
        (&["num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"], 2),
        (&["num_attention_heads", "n_head", "n_heads", "encoder_attention_heads", "decoder_attention_heads"], 4),
        (&["intermediate_size", "hidden_dim", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"], 48),
    ] {
        for name in names {
            config[*name] = json!(value);
        }
    }
    config
}

/// A configuration of the family: a golden case's, where there is one.
fn config_of(family: &Architecture) -> Value {
    let of = |path: PathBuf| -> Option<Value> {
        let config: Value = serde_json::from_slice(&std::fs::read(path.join("config.json")).ok()?).ok()?;
        family.model_types.contains(&config["model_type"].as_str()?).then_some(config)
    };
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(golden_root()).expect("goldens").map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    cases.into_iter().find_map(of).unwrap_or_else(|| {
        let mut config = any_config();
        config["model_type"] = json!(family.model_types.first().expect("a name"));
        config
    })
}

/// The descriptions of the family's models, one for each class that it has.
fn descriptions(family: &Architecture, place: &Path) -> Vec<ModelSpec> {
    let (path, mut config) = (place.join("config.json"), config_of(family));
    let mut found = Vec::new();
    for class in CLASSES {
        config["architectures"] = json!([format!("{}{class}", family.class)]);
        std::fs::write(&path, config.to_string()).expect("written");
        match describe_design(&path) {
            Ok(described) => found.push(described.spec),
            // The family has no such class.
            Err(Error::Config { field, .. }) if field == "architectures" => {}
            // Nor names for the weights of such a head.
            Err(Error::Table(_)) => {}
            Err(error) => panic!("{}, {class}: {error}", family.name),
        }
    }
    assert!(!found.is_empty(), "{} accepts no class", family.name);
    found
}

/// Rows of families of one kind that can do the same.
fn table() -> String {
    let place = tempfile::tempdir().expect("a temporary folder");
    let mut rows: BTreeMap<(usize, Vec<&str>), Vec<String>> = BTreeMap::new();
    const KINDS: [&str; 3] = ["decoder", "encoder", "encoder-decoder"];
    for family in architectures() {
        let specs = descriptions(family, place.path());
        let kind = specs.iter().map(|spec| match spec.body {
            Body::Decoder(_) => 0,
            Body::Encoder(_) => 1,
            Body::EncoderDecoder { .. } => 2,
        });
        let kind = kind.max().expect("at least one");
        let tasks = Task::ALL.into_iter().filter(|task| specs.iter().any(|spec| task.fits(spec)));
        let name = if family.gguf.is_empty() { family.name.to_owned() } else { format!("**{}**", family.name) };
        rows.entry((kind, tasks.map(Task::name).collect())).or_default().push(name);
    }
    let mut lines = vec!["| kind | families | tasks |".to_owned(), "|---|---|---|".to_owned()];
    for ((kind, tasks), families) in rows {
        let tasks: Vec<String> = tasks.iter().map(|task| format!("`{task}`")).collect();
        lines.push(format!("| {} | {} | {} |", KINDS[kind], families.join(", "), tasks.join(", ")));
    }
    lines.join("\n")
}

const BEGIN: &str =
    "<!-- families: written by `ATTEND_WRITE_README=1 cargo test -p attend-engine --test families` -->\n";
const END: &str = "\n<!-- end of families -->";

fn readme() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")
}

/// What stands before, between and behind the marks.
fn parts(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once(BEGIN).expect("the mark of the table");
    let (between, behind) = rest.split_once(END).expect("the mark of its end");
    (before, between, behind)
}

#[test]
fn the_readme_says_what_the_code_can_do() {
    let text = std::fs::read_to_string(readme()).expect("read");
    let ((before, between, behind), table) = (parts(&text), table());
    // Only who asks for it gets a changed tree.
    if std::env::var_os("ATTEND_WRITE_README").is_some_and(|wish| wish == "1") && between != table {
        std::fs::write(readme(), format!("{before}{BEGIN}{table}{END}{behind}")).expect("written");
        return;
    }
    assert_eq!(between, table, "with ATTEND_WRITE_README=1 this test writes it anew");
}
