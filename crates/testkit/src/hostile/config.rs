//! Configurations, class A13.

use serde_json::{Value, json};

use crate::files::odd::{with_config, with_config_text};
use crate::files::{Case, Probe, model};

pub fn cases() -> Vec<Case> {
    let mut cases = counts();
    cases.extend(numbers());
    cases.extend(documents());
    cases
}

fn case(name: impl Into<String>, config: impl Into<Vec<u8>>, expect: &'static str) -> Case {
    Case::folder("A13", format!("config {}", name.into()), with_config_text(config), expect)
}

fn counts() -> Vec<Case> {
    let mut cases = Vec::new();
    let fields = [
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "intermediate_size",
        "max_position_embeddings",
        "head_dim",
        "n_layer",
        "d_model",
        "sliding_window",
    ];
    for field in fields {
        let values = [
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1e30),
            json!(-0.5),
            json!("12"),
            json!([]),
            json!([12]),
            json!({}),
            json!(true),
            json!(u64::MAX),
            json!(1u64 << 50),
        ];
        for value in values {
            let name = format!("{field} of {value}");
            let files = with_config(json!({ field: value }));
            cases.push(Case::folder("A13", name, files, "BadField").probe(Probe::Count(field)));
        }
        if !["max_position_embeddings", "sliding_window"].contains(&field) {
            let files = with_config(json!({ field: 1u64 << 31 }));
            cases.push(Case::folder("A13", format!("{field} of 2^31"), files, "BadField").probe(Probe::Count(field)));
        }
        let files = with_config(json!({ field: null }));
        cases.push(Case::folder("A13", format!("{field} of null"), files, "MissingField").probe(Probe::Count(field)));
        let word = replaced(field, "NaN");
        cases.push(case(format!("{field} of NaN"), word, "BadField").probe(Probe::Count(field)));
    }
    cases
}

fn numbers() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in ["rms_norm_eps", "rope_theta", "layer_norm_eps"] {
        for word in ["NaN", "Infinity", "-Infinity", "\"1e-5\"", "[]", "{}", "true"] {
            let name = format!("{field} of {word}");
            cases.push(case(name, replaced(field, word), "BadField").probe(Probe::Number(field)));
        }
        cases.push(
            case(format!("{field} of 1e400"), replaced(field, "1e400"), "Json|BadField").probe(Probe::Number(field)),
        );
        cases.push(
            case(format!("{field} of null"), replaced(field, "null"), "MissingField").probe(Probe::Number(field)),
        );
    }
    cases
}

/// The tiny model's configuration with a field as this text.
fn replaced(field: &str, text: &str) -> String {
    let mut config = model::config();
    config.insert(field.into(), "@".into());
    Value::Object(config).to_string().replace("\"@\"", text)
}

fn documents() -> Vec<Case> {
    let mut not_text = b"{\"a\":\"".to_vec();
    not_text.extend([0xff, 0xfe, b'"', b'}']);
    vec![
        case("of nothing", "", "Json"),
        case("that is a list", "[]", "Json"),
        case("that is a number", "12", "Json"),
        case("that is null", "null", "Json"),
        case("that is NaN", "NaN", "Json"),
        case("cut", r#"{"a":"#, "Json"),
        case("with a comma at the end", r#"{"a":1,}"#, "Json"),
        case("with a comment", "{} // x", "Json"),
        case("with words after", "{} {}", "Json"),
        case("with single quotes", "{'a':1}", "Json"),
        case("with NaN for a key", "{NaN:1}", "Json"),
        case("nested 129 deep", format!(r#"{{"a":{}{}}}"#, "[".repeat(128), "]".repeat(128)), "TooDeep|Json"),
        case("nested 100000 deep", "[".repeat(100_000), "TooDeep"),
        case("nested 100000 deep in objects", r#"{"a":"#.repeat(100_000), "TooDeep"),
        case("of 600000 values", format!(r#"{{"a":[{}0]}}"#, "0,".repeat(600_000)), "TooLarge"),
        case("of 600000 empty lists", format!(r#"{{"a":[{}0]}}"#, "[],".repeat(600_000)), "TooLarge"),
        case("not UTF-8", not_text, "NotUtf8"),
        case("in UTF-16", b"\xff\xfe{\0}\0".to_vec(), "NotUtf8"),
        case("with a lone surrogate", r#"{"a":"\ud800"}"#, "Json"),
        case("with a control character", "{\"a\":\"\u{1}\"}", "Json"),
        case("with text_config a number", r#"{"text_config":1}"#, "BadField"),
        Case::folder("A13", "generation config cut", with_generation("{"), "Json"),
        Case::folder("A13", "generation config that is a list", with_generation("[1]"), "Json"),
    ]
}

fn with_generation(text: &str) -> crate::files::Files {
    let mut files = with_config(json!({}));
    files.push(("generation_config.json".into(), text.into()));
    files
}
