//! GGUF metadata: what it becomes under the names of `config.json`, large vocabularies, typed getters.

use std::path::Path;

use attend_format::gguf::{self, Metadata};
use attend_format::{Checkpoint, Source, Tensors};
use attend_testkit::files::gguf::{Gguf, value};
use attend_testkit::files::model;

fn parse(file: &Gguf) -> (Metadata, Tensors) {
    gguf::parse(Source::memory(Path::new("m.gguf"), file.bytes()).unwrap()).unwrap()
}

fn open(file: &Gguf) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.gguf"), file.bytes()).unwrap();
    Checkpoint::open(folder.path()).unwrap()
}

#[test]
fn metadata_becomes_a_configuration() {
    let file = model::gguf(1)
        .u32("llama.attention.key_length", 8)
        .u32("llama.attention.value_length", 8)
        .u32("llama.rope.dimension_count", 8)
        .string("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 4.0)
        .u32("llama.rope.scaling.original_context_length", 64)
        .f32("llama.attn_logit_softcapping", 50.0)
        .u32("tokenizer.ggml.padding_token_id", u32::MAX);
    let checkpoint = open(&file);
    let config = checkpoint.config();
    assert_eq!(config.str("model_type").unwrap(), "llama");
    for (field, wanted) in [
        ("hidden_size", model::WIDTH),
        ("num_hidden_layers", model::LAYERS),
        ("num_attention_heads", model::HEADS),
        ("num_key_value_heads", model::KV_HEADS),
        ("intermediate_size", model::HIDDEN),
        ("vocab_size", model::VOCAB),
        ("max_position_embeddings", 128),
        ("head_dim", 8),
        ("value_head_dim", 8),
        ("rotary_dim", 8),
    ] {
        assert_eq!(config.usize(field).unwrap(), wanted, "{field}");
    }
    assert_eq!(config.f32("rms_norm_eps").unwrap(), 1e-5);
    assert_eq!(config.f32("attn_logit_softcapping").unwrap(), 50.0);
    assert_eq!(config.token_ids("eos_token_id").unwrap(), [2]);
    assert!(!config.has("pad_token_id") && !config.bool("tie_word_embeddings").unwrap());
    let rope = config.rope(None).unwrap();
    assert_eq!((rope.str("rope_type").unwrap(), rope.f64("rope_theta").unwrap()), ("yarn", 10000.0));
    assert_eq!(rope.usize("original_max_position_embeddings").unwrap(), 64);
    assert_eq!(checkpoint.tensor("token_embd.weight").unwrap().shape, [model::VOCAB, model::WIDTH]);
}

#[test]
fn errors_name_the_key_as_the_file_has_it() {
    let checkpoint = open(&Gguf::new("llama").u32("llama.block_count", 0));
    let text = checkpoint.config().usize("num_hidden_layers").unwrap_err().to_string();
    assert!(text.contains("`llama.block_count` must be a whole number from 1 to 10000, found 0"), "{text}");
}

#[test]
fn tied_scaled_and_layered() {
    let counts: Vec<u8> = [1u32, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
    let file =
        Gguf::new("x").f32("x.rope.scale_linear", 2.0).array("x.attention.head_count_kv", value::U32, 2, &counts);
    let checkpoint = open(&file);
    let config = checkpoint.config();
    assert!(config.bool("tie_word_embeddings").unwrap());
    assert_eq!(config.rope(None).unwrap().f64("factor").unwrap(), 2.0);
    assert_eq!(config.usize_per_layer("num_key_value_heads", 2).unwrap(), Some(vec![1, 2]));
}

/// GGUF-02: the checks that refuse hostile lengths must not make honest vocabularies slow or large.
#[test]
fn a_vocabulary_of_a_quarter_million() {
    let words: Vec<String> = (0..250_000).map(|id| format!("token{id}")).collect();
    let types = vec![1u8; 250_000 * 4];
    let file = Gguf::new("llama").strings("tokenizer.ggml.tokens", &words).array(
        "tokenizer.ggml.token_type",
        value::I32,
        250_000,
        &types,
    );
    let (metadata, _) = parse(&file);
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!((tokens.len(), tokens.get(249_999), tokens.get(250_000)), (250_000, Some("token249999"), None));
    assert!(tokens.iter().zip(&words).all(|(a, b)| a == b));
    assert_eq!(metadata.integers("tokenizer.ggml.token_type").unwrap().unwrap().len(), 250_000);
}

#[test]
fn getters_check_types() {
    let (metadata, _) =
        parse(&Gguf::new("llama").u32("n", 5).f32("f", 0.5).key("neg", value::I32, &(-1i32).to_le_bytes()));
    assert_eq!(
        (metadata.u64("n").unwrap(), metadata.i64("neg").unwrap(), metadata.f64("f").unwrap()),
        (Some(5), Some(-1), Some(0.5))
    );
    assert_eq!(metadata.f64("n").unwrap(), Some(5.0));
    assert_eq!(metadata.token_id("neg").unwrap(), None);
    assert_eq!(metadata.u64("absent").unwrap(), None);
    let text = metadata.u64("neg").unwrap_err().to_string();
    assert_eq!(text, "m.gguf: field `neg` must be an integer that is not negative, found the i32 -1");
    assert!(
        metadata.str("n").is_err()
            && metadata.bool("n").is_err()
            && metadata.strings("n").is_err()
            && metadata.u64("f").is_err()
    );
}
