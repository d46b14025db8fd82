//! Configurations: dialects, aliases, one view of rotary settings, and errors that name the field.

use std::path::Path;

use attend_format::{Config, unsupported_quantization};

fn config(text: &str) -> Config {
    Config::parse(Path::new("dir/config.json"), text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn errors_name_file_field_and_value() {
    let config =
        config(r#"{"hidden_size":"12","eps":NaN,"rope_scaling":{"factor":[]},"layers":[4,0],"eos_token_id":[1,"x"]}"#);
    let message = |result: Result<usize, attend_format::Error>| result.unwrap_err().to_string();
    assert_eq!(
        message(config.usize("hidden_size")),
        "dir/config.json: field `hidden_size` must be a whole number from 1 to 16777216, found the string \"12\""
    );
    assert_eq!(
        config.f64("eps").unwrap_err().to_string(),
        "dir/config.json: field `eps` must be a finite number, found NaN"
    );
    let scaling = config.object("rope_scaling").unwrap().unwrap();
    assert!(
        scaling
            .f64("factor")
            .unwrap_err()
            .to_string()
            .contains("`rope_scaling.factor` must be a finite number, found a list of 0")
    );
    assert_eq!(
        message(config.usize_any(&["n_embd", "d_model"])),
        "dir/config.json: field `n_embd` or `d_model` is missing"
    );
    assert!(config.token_ids("eos_token_id").unwrap_err().to_string().contains("`eos_token_id[1]`"));
    assert!(config.bool("hidden_size").is_err() && config.str("eps").is_ok() && config.str("rope_scaling").is_err());
}

#[test]
fn aliases_and_defaults() {
    let gpt = config(r#"{"n_embd":8,"n_layer":2,"n_inner":null}"#);
    assert_eq!(gpt.usize_any(&["hidden_size", "n_embd"]).unwrap(), 8);
    assert_eq!(gpt.usize_any_opt(&["num_hidden_layers", "n_layer"]).unwrap(), Some(2));
    assert_eq!(gpt.usize_or("n_inner", 32).unwrap(), 32);
    assert!(!gpt.has("n_inner") && gpt.value("n_inner").is_none());
    assert_eq!(config(r#"{"torch_dtype":"torch.float16"}"#).dtype().unwrap(), Some("float16"));
    assert_eq!(config(r#"{"dtype":"bfloat16","torch_dtype":"float32"}"#).dtype().unwrap(), Some("bfloat16"));
}

#[test]
fn the_last_of_two_equal_keys_counts() {
    assert_eq!(config(r#"{"hidden_size":1,"hidden_size":2}"#).usize("hidden_size").unwrap(), 2);
}

#[test]
fn token_ids_of_all_forms() {
    let config = config(r#"{"a":2,"b":[7,9],"c":-1,"d":null}"#);
    assert_eq!(config.token_ids("a").unwrap(), [2]);
    assert_eq!(config.token_ids("b").unwrap(), [7, 9]);
    assert!(config.token_ids("c").unwrap().is_empty() && config.token_ids("d").unwrap().is_empty());
    assert_eq!(config.token_id("a").unwrap(), Some(2));
    assert!(config.token_id("b").is_err());
}

/// CFG-01, CFG-03: every dialect gives one view, and a missing base is missing rather than a guess.
#[test]
fn rotary_settings_in_every_dialect() {
    let view = |text: &str| {
        let rope = config(text).rope(None).unwrap();
        let kind = rope.str("rope_type").unwrap().to_owned();
        (kind, rope.f64_opt("rope_theta").unwrap(), rope.f64_opt("factor").unwrap())
    };
    let linear = || "linear".to_owned();
    for text in [
        r#"{"rope_theta":1e6,"rope_scaling":{"type":"linear","factor":2}}"#,
        r#"{"rope_theta":1e6,"rope_scaling":{"rope_type":"linear","factor":2.0}}"#,
        r#"{"rope_theta":1e6,"rope_scaling":{"rope_type":"linear","type":"yarn","factor":2.0}}"#,
        r#"{"rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":1e6}}"#,
        r#"{"rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":1e6},"rope_theta":5}"#,
        r#"{"rotary_emb_base":1e6,"rope_scaling":{"type":"linear","factor":2}}"#,
    ] {
        assert_eq!(view(text), (linear(), Some(1e6), Some(2.0)), "{text}");
    }
    assert_eq!(view(r#"{"rope_theta":1e6,"rope_scaling":null}"#), ("default".into(), Some(1e6), None));
    assert_eq!(view("{}"), ("default".into(), None, None));
    assert_eq!(view(r#"{"rope_scaling":{"type":"su","factor":4}}"#).0, "longrope");
    assert!(
        config(r#"{"rope_scaling":{"rope_type":5}}"#)
            .rope(None)
            .unwrap_err()
            .to_string()
            .contains("rope_scaling.rope_type")
    );
    let partial = config(r#"{"rotary_pct":0.25,"original_max_position_embeddings":64}"#).rope(None).unwrap();
    assert_eq!(partial.f64("partial_rotary_factor").unwrap(), 0.25);
    assert_eq!(partial.usize("original_max_position_embeddings").unwrap(), 64);
}

#[test]
fn rotary_settings_by_layer_type() {
    let config = config(
        r#"{"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":1e6},
            "sliding_attention":{"rope_type":"default","rope_theta":1e4}}}"#,
    );
    assert_eq!(config.rope_layer_types().unwrap(), ["full_attention", "sliding_attention"]);
    assert_eq!(config.rope(Some("full_attention")).unwrap().f64("factor").unwrap(), 8.0);
    assert_eq!(config.rope(Some("sliding_attention")).unwrap().f64("rope_theta").unwrap(), 1e4);
    assert!(config.rope(None).is_err());
}

#[test]
fn the_text_part_of_a_multimodal_configuration() {
    let config = config(
        r#"{"model_type":"outer","tie_word_embeddings":true,"text_config":{"model_type":"inner","hidden_size":8,"vocab_size":null},
            "vocab_size":9,"hidden_size":1,"vision_config":{"hidden_size":7}}"#,
    );
    assert_eq!(config.str("model_type").unwrap(), "inner");
    assert_eq!(config.str("outer_model_type").unwrap(), "outer");
    assert_eq!((config.usize("hidden_size").unwrap(), config.usize("vocab_size").unwrap()), (8, 9));
    assert!(config.bool("tie_word_embeddings").unwrap());
}

#[test]
fn quantised_checkpoints_are_named() {
    let name = |settings: &str| unsupported_quantization(&config(&format!(r#"{{"quantization_config":{settings}}}"#)));
    assert_eq!(name(r#"{"quant_method":"awq"}"#).as_deref(), Some("awq"));
    assert_eq!(name(r#"{"quant_method":"gptq"}"#).as_deref(), Some("gptq"));
    assert_eq!(name(r#"{"load_in_4bit":true}"#).as_deref(), Some("bitsandbytes"));
    assert!(name("{}").is_some() && name("7").is_some());
    assert_eq!(name(r#"{"quant_method":"fp8","weight_block_size":[128,128]}"#), None);
    assert_eq!(name(r#"{"quant_method":"mxfp4"}"#), None);
    assert_eq!(unsupported_quantization(&config("{}")), None);
    assert_eq!(name("null"), None);
}

#[test]
fn lists_and_values_for_each_layer() {
    let config =
        config(r#"{"one":3,"each":[1,2,3],"floats":[1,2.5],"flags":[true],"names":["a"],"num_attention_heads":[4,0]}"#);
    assert_eq!(config.usize_per_layer("one", 2).unwrap(), Some(vec![3, 3]));
    assert_eq!(config.usize_per_layer("each", 3).unwrap(), Some(vec![1, 2, 3]));
    assert!(config.usize_per_layer("each", 2).unwrap_err().to_string().contains("each of 2 layers, found 3"));
    assert_eq!(config.f32_list("floats").unwrap(), Some(vec![1.0, 2.5]));
    assert_eq!(config.bool_list("flags").unwrap(), Some(vec![true]));
    assert_eq!(config.str_list("names").unwrap(), Some(vec!["a".to_owned()]));
    assert!(config.usize_list("num_attention_heads").unwrap_err().to_string().contains("`num_attention_heads[1]`"));
    assert!(config.usize_list("one").is_err() && config.usize_list("absent").unwrap().is_none());
}
