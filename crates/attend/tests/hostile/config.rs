//! A13: values of config.json that mean nothing, in a folder that is right otherwise.

use super::{Cases, Wanted, bodies, refused};
use crate::through::{json_of, put};
use attend_testkit::files::Files;
use attend_testkit::memory::alone;

/// The files with a field of config.json as this text.
pub fn with_field(files: &Files, field: &str, text: &str) -> Files {
    let mut files = files.clone();
    let mut config = json_of(&files, "config.json");
    config[field] = "@".into();
    put(&mut files, "config.json", config.to_string().replace("\"@\"", text));
    files
}

const VALUES: [&str; 13] =
    ["0", "-1", "1.5", "2147483648", "1e30", "1e400", "\"12\"", "null", "[]", "[12]", "{}", "true", "NaN"];

#[test]
fn counts_that_mean_nothing_are_refused_by_name() {
    let _alone = alone();
    let mut cases = Cases::default();
    let fields: [&[&str]; 3] = [
        &[
            "num_attention_heads",
            "num_key_value_heads",
            "hidden_size",
            "num_hidden_layers",
            "vocab_size",
            "intermediate_size",
            "max_position_embeddings",
            "head_dim",
        ],
        &[
            "num_attention_heads",
            "hidden_size",
            "num_hidden_layers",
            "vocab_size",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ],
        &[
            "num_heads",
            "d_model",
            "num_layers",
            "num_decoder_layers",
            "vocab_size",
            "d_ff",
            "d_kv",
            "relative_attention_num_buckets",
            "relative_attention_max_distance",
        ],
    ];
    for ((name, files), fields) in bodies().iter().zip(fields) {
        for (field, value) in fields.iter().flat_map(|field| VALUES.map(|value| (*field, value))) {
            let wanted = match (field, value) {
                // null is the same as absent, which has a documented default for most.
                (_, "null") => Wanted::Either(vec![field.into(), "do not fit".into(), "is missing".into()]),
                ("relative_attention_max_distance", "2147483648") => Wanted::Either(vec![field.into()]),
                (_, "1e400") => refused(&[field, "config.json"]),
                // A count that could be true is judged by the tensors.
                (_, "2147483648") => refused(&[field, "should be", "describes"]),
                _ => refused(&[field]),
            };
            cases.check(&format!("{name} {field} {value}"), &with_field(files, field, value), "", &wanted);
        }
    }
    cases.done(300);
}

#[test]
fn other_values_that_mean_nothing_are_refused_by_name() {
    let _alone = alone();
    let mut cases = Cases::default();
    let [llama, bert, t5] = bodies();
    for (files, field, values) in [
        (&llama.1, "rms_norm_eps", &["NaN", "-1", "\"x\"", "[]", "Infinity", "true"][..]),
        (&llama.1, "rope_theta", &["0", "-1", "NaN", "\"x\"", "[]", "Infinity"]),
        (&llama.1, "hidden_act", &["1", "\"sorcery\"", "[]", "true"]),
        (
            &llama.1,
            "rope_scaling",
            &[
                "1",
                "\"x\"",
                "[]",
                "{\"rope_type\":\"sorcery\",\"factor\":2}",
                "{\"rope_type\":\"linear\"}",
                "{\"rope_type\":\"linear\",\"factor\":0}",
                "{\"rope_type\":\"linear\",\"factor\":-2}",
                "{\"rope_type\":\"linear\",\"factor\":NaN}",
                "{\"rope_type\":\"yarn\",\"factor\":\"4\"}",
            ],
        ),
        (&llama.1, "tie_word_embeddings", &["1", "\"yes\"", "[]"]),
        (&llama.1, "attention_bias", &["1", "\"yes\"", "[]"]),
        (&llama.1, "model_type", &["1", "\"\"", "\"../x\"", "\"sorcery\"", "[]"]),
        (
            &llama.1,
            "quantization_config",
            &["1", "[]", "{\"quant_method\":\"gptq\",\"bits\":4}", "{\"quant_method\":\"awq\",\"bits\":4}"],
        ),
        (&bert.1, "layer_norm_eps", &["NaN", "-1", "\"x\"", "[]", "Infinity"]),
        (&bert.1, "hidden_act", &["1", "\"sorcery\"", "[]"]),
        (&bert.1, "position_embedding_type", &["1", "\"sorcery\""]),
        (&t5.1, "layer_norm_epsilon", &["NaN", "-1", "\"x\"", "Infinity"]),
        (&t5.1, "feed_forward_proj", &["1", "\"sorcery\"", "\"gated-sorcery\"", "[]"]),
    ] {
        for value in values {
            cases.check(
                &format!("{field} {value}"),
                &with_field(files, field, value),
                "",
                &refused(&[field, "rope", "factor", "architecture"]),
            );
        }
    }
    for (field, value) in [
        ("eos_token_id", "\"x\""),
        ("eos_token_id", "-7"),
        ("eos_token_id", "4294967296"),
        ("eos_token_id", "[1,\"x\"]"),
        ("temperature", "\"hot\""),
        ("top_k", "-3"),
        ("top_k", "1e30"),
        ("max_new_tokens", "[]"),
        ("top_p", "NaN"),
    ] {
        let mut files = llama.1.clone();
        put(&mut files, "generation_config.json", format!("{{\"{field}\":{value}}}"));
        let wanted = Wanted::Either(vec![field.into()]);
        cases.check(&format!("generation {field} {value}"), &files, "", &wanted);
    }
    cases.done(60);
}
