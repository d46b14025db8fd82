//! Tokenizers without a tokenizer.json: the same ids from the older files, and SentencePiece's own ids from its models.

mod common;

use attend_text::{EncodeOptions, Tokenizer};
use common::{goldens, ids, json, list, models, text};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const FULL: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A folder with the given files.
fn folder(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn bytes(value: Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// The tokens of a golden tokenizer's model by id, added ones included.
fn vocabulary(file: &Value) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut put = |token: &str, id: u64| {
        if tokens.len() <= id as usize {
            tokens.resize(id as usize + 1, String::new());
        }
        tokens[id as usize] = token.to_string();
    };
    for (token, id) in file["model"]["vocab"].as_object().unwrap() {
        put(token, id.as_u64().unwrap());
    }
    for token in list(&file["added_tokens"]) {
        put(token["content"].as_str().unwrap(), token["id"].as_u64().unwrap());
    }
    tokens
}

/// Compares with the golden ids of a tokenizer that has the same vocabulary, singles and pairs.
fn check_golden(name: &str, tokenizer: &Tokenizer) {
    let golden = json(&goldens().join(format!("tokenizers/{name}.json")));
    for case in list(&golden["strings"]) {
        let source = text(&case["text"]);
        assert_eq!(tokenizer.encode(&source, FULL).unwrap().ids, ids(&case["ids"]), "{name}: {source:?}");
        let decoded = tokenizer.decode(&ids(&case["ids"]), true);
        assert_eq!(decoded, text(&case["decode_skip"]), "{name}: {source:?}");
    }
    for case in list(&golden["pairs"]) {
        let pair = tokenizer.encode_pair(&text(&case["a"]), &text(&case["b"]), FULL).unwrap();
        assert_eq!((pair.ids, pair.type_ids), (ids(&case["ids"]), ids(&case["type_ids"])), "{name}: {case}");
    }
}

fn golden_file(name: &str) -> Value {
    json(&goldens().join("tokenizers").join(name).join("tokenizer.json"))
}

#[test]
fn vocab_txt_is_word_piece() {
    for (name, lower) in [("bert-uncased-like", true), ("bert-cased-like", false)] {
        let lines = vocabulary(&golden_file(name)).join("\n") + "\n";
        let config = json!({"tokenizer_class": "BertTokenizer", "do_lower_case": lower});
        let folder = folder(&[("vocab.txt", lines.into_bytes()), ("tokenizer_config.json", bytes(config))]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        check_golden(name, &tokenizer);
        assert_eq!(tokenizer.cls(), tokenizer.id("[CLS]"));
        assert_eq!(tokenizer.mask(), tokenizer.id("[MASK]"));
    }
}

#[test]
fn vocab_json_with_merges_is_byte_level_bpe() {
    for (name, config) in [
        (
            "gpt2-like",
            json!({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
        ),
        (
            "roberta-like",
            json!({
                "tokenizer_class": "RobertaTokenizer", "add_prefix_space": true, "bos_token": "<s>", "eos_token": "</s>",
                "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
                "mask_token": {"content": "<mask>", "lstrip": true, "rstrip": false, "normalized": false, "single_word": false},
            }),
        ),
    ] {
        let file = golden_file(name);
        let tokens = vocabulary(&file);
        let vocab: serde_json::Map<String, Value> =
            tokens.into_iter().zip(0..).map(|(token, id)| (token, json!(id))).collect();
        let merges: Vec<String> = list(&file["model"]["merges"])
            .iter()
            .map(|merge| match merge {
                Value::String(merge) => merge.clone(),
                pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
            })
            .collect();
        let folder = folder(&[
            ("vocab.json", bytes(Value::Object(vocab))),
            ("merges.txt", format!("#version: 0.2\n{}\n", merges.join("\n")).into_bytes()),
            ("tokenizer_config.json", bytes(config)),
        ]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        check_golden(name, &tokenizer);
        assert_eq!(tokenizer.end_ids(), [tokenizer.eos().unwrap()]);
    }
}

/// Ids as SentencePiece gives them, and its text for them.
fn sentencepiece_cases(name: &str) -> Vec<(String, Vec<u32>, String)> {
    let cases = json(&data(name));
    list(&cases)
        .iter()
        .map(|case| (text(&case["text"]), ids(&case["ids"]), case["decoded"].as_str().unwrap_or_default().to_string()))
        .collect()
}

#[test]
fn models_of_sentencepiece_give_its_ids() {
    for (name, file, class) in
        [("unigram", "spiece.model", "T5Tokenizer"), ("bpe", "tokenizer.model", "LlamaTokenizer")]
    {
        let model = std::fs::read(data(&format!("{name}.model"))).unwrap();
        let config = bytes(json!({"tokenizer_class": class, "legacy": false}));
        let folder = folder(&[(file, model), ("tokenizer_config.json", config)]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        let unk = tokenizer.unk().unwrap();
        let mut wrong = Vec::new();
        for (text, theirs, decoded) in sentencepiece_cases(&format!("{name}.json")) {
            let ours = tokenizer.encode(&text, PLAIN).unwrap();
            if ours.ids != theirs {
                wrong.push(format!("{name}: {text:?}\n  ours   {:?} {:?}\n  theirs {theirs:?}", ours.ids, ours.pieces));
            }
            // Unknown text is written in another way by SentencePiece.
            if !theirs.contains(&unk) {
                assert_eq!(tokenizer.decode(&theirs, true), decoded, "{name}: {text:?}");
            }
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
    }
}

#[test]
fn families_add_their_own_tokens() {
    let model = std::fs::read(data("bpe.model")).unwrap();
    let (text, theirs, _) = sentencepiece_cases("bpe.json").into_iter().find(|(text, _, _)| text.len() > 8).unwrap();
    for (config, before, behind) in [
        (json!({"tokenizer_class": "LlamaTokenizer"}), vec![1], vec![]),
        (json!({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true}), vec![], vec![2]),
        (json!({"tokenizer_class": "GemmaTokenizerFast", "add_eos_token": true}), vec![1], vec![2]),
        (json!({"tokenizer_class": "T5Tokenizer"}), vec![], vec![2]),
    ] {
        let folder = folder(&[("tokenizer.model", model.clone()), ("tokenizer_config.json", bytes(config.clone()))]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        let full = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false }).unwrap();
        assert_eq!(full.ids, [before.clone(), theirs.clone(), behind].concat(), "{config}");
        assert_eq!(tokenizer.adds_bos(), before == [1], "{config}");
    }
    // Placeholders are counted backwards behind the pieces.
    let pieces = folder(&[("spiece.model", model), ("config.json", bytes(json!({"model_type": "t5"})))]);
    let tokenizer = Tokenizer::open(pieces.path()).unwrap();
    let last = tokenizer.vocab_size() as u32 - 1;
    assert_eq!(tokenizer.id("<extra_id_0>"), Some(last));
    assert_eq!(tokenizer.id("<extra_id_99>"), Some(last - 99));
}

#[test]
fn fairseq_ids_are_shifted() {
    let model = std::fs::read(data("unigram.model")).unwrap();
    let config = bytes(json!({"tokenizer_class": "XLMRobertaTokenizer"}));
    let folder = folder(&[("sentencepiece.bpe.model", model), ("tokenizer_config.json", config)]);
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    for (text, theirs, _) in sentencepiece_cases("unigram.json") {
        let shifted = theirs.iter().map(|id| if *id == 0 { 3 } else { id + 1 });
        let expected: Vec<u32> = [0].into_iter().chain(shifted).chain([2]).collect();
        let full = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false }).unwrap();
        assert_eq!(full.ids, expected, "{text:?}");
    }
    assert_eq!(tokenizer.mask(), Some(tokenizer.vocab_size() as u32 - 1));
    let pair = tokenizer.encode_pair("a", "b", FULL).unwrap();
    assert!(pair.ids.windows(2).any(|pair| pair == [2, 2]) && pair.type_ids.iter().all(|id| *id == 0));
}

#[test]
fn translation_models_take_their_ids_from_the_shared_table() {
    let model = std::fs::read(data("unigram.model")).unwrap();
    // Any permutation serves as the shared table.
    let first = folder(&[("spiece.model", model.clone()), ("config.json", bytes(json!({"model_type": "t5"})))]);
    let own = Tokenizer::open(first.path()).unwrap();
    let pieces: Vec<String> = (4..own.vocab_size() as u32 - 100).filter_map(|id| own.token(id)).collect();
    let mut shared = vec![">>fra<<".to_string(), "</s>".into(), "<unk>".into()];
    shared.extend(pieces.into_iter().rev());
    shared.push("<pad>".into());
    let table: serde_json::Map<String, Value> =
        shared.iter().zip(0..).map(|(token, id)| (token.clone(), json!(id))).collect();
    let folder = folder(&[
        ("source.spm", model.clone()),
        ("target.spm", model),
        ("vocab.json", bytes(Value::Object(table))),
        ("tokenizer_config.json", bytes(json!({"tokenizer_class": "MarianTokenizer"}))),
    ]);
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    assert!(Tokenizer::open_target(folder.path()).unwrap().is_some());
    for (text, theirs, decoded) in sentencepiece_cases("unigram.json") {
        let position =
            |id: &u32| shared.iter().position(|token| Some(token.clone()) == own.token(*id)).unwrap_or(2) as u32;
        let expected: Vec<u32> = theirs.iter().map(position).collect();
        let ours = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: false }).unwrap().ids;
        assert_eq!(ours, [expected.clone(), vec![1]].concat(), "{text:?}");
        if !theirs.contains(&0) {
            assert_eq!(tokenizer.decode(&ours, true), decoded, "{text:?}");
        }
    }
    let directed = tokenizer.encode(">>fra<< a", PLAIN).unwrap();
    assert_eq!(directed.ids[0], 0);
    assert_eq!(directed.ids[1..], tokenizer.encode("a", PLAIN).unwrap().ids);
    assert_eq!((tokenizer.eos(), tokenizer.pad()), (Some(1), Some(shared.len() as u32 - 1)));
}

/// A text that the small model has pieces for, their ids, and the text decoded.
fn known_sample() -> (String, Vec<u32>, String) {
    let known = |ids: &[u32]| ids.len() > 3 && ids.iter().all(|id| *id > 2);
    sentencepiece_cases("unigram.json").into_iter().find(|(_, ids, _)| known(ids)).expect("a text in plain pieces")
}

/// Folders of translators of many languages: where the ids of pieces and languages lie, and where a text's language stands.
#[test]
fn languages_have_ids_behind_the_pieces() {
    let model = std::fs::read(data("unigram.model")).unwrap();
    let plain = folder(&[("spiece.model", model.clone()), ("config.json", bytes(json!({"model_type": "t5"})))]);
    let plain = Tokenizer::open(plain.path()).unwrap();
    let pieces = plain.vocab_size() as u32 - 100;
    let (sample, theirs, decoded) = known_sample();
    let codes = ["eng_Latn", "fra_Latn", "zho_Hans"];
    let listed = json!({"tokenizer_class": "NllbTokenizer", "additional_special_tokens": codes});
    let legacy =
        json!({"tokenizer_class": "NllbTokenizer", "additional_special_tokens": codes, "legacy_behaviour": true});
    let french = json!({"tokenizer_class": "MBart50Tokenizer", "src_lang": "fr_XX"});
    // fairseq's ids are one more than the model's; behind the pieces come the languages.
    for (config, own, languages, in_front) in [
        (json!({"tokenizer_class": "MBartTokenizer"}), 3, 25, false),
        (french, 7, 52, true),
        (listed, 0, 3, true),
        (legacy, 0, 3, false),
    ] {
        let folder = folder(&[("sentencepiece.bpe.model", model.clone()), ("tokenizer_config.json", bytes(config))]);
        let tokenizer = Tokenizer::open(folder.path()).unwrap();
        let text: Vec<u32> = theirs.iter().map(|id| id + 1).collect();
        let own = pieces + 1 + own;
        let expected = match in_front {
            true => [vec![own], text, vec![2]].concat(),
            false => [text, vec![2, own]].concat(),
        };
        let options = EncodeOptions { add_special: true, parse_special: false };
        let mut encoding = tokenizer.encode(&sample, options).unwrap();
        assert_eq!(encoding.ids, expected);
        assert_eq!(tokenizer.languages().len(), languages);
        assert_eq!(tokenizer.id("<mask>"), Some(pieces + 1 + languages as u32));
        let chinese = tokenizer.language("Chinese").unwrap();
        assert!(encoding.set_language(&tokenizer, &chinese));
        assert!(encoding.ids.contains(&chinese.id) && !encoding.ids.contains(&own));
        assert_eq!(tokenizer.decode(&encoding.ids, true), decoded);
        assert!(tokenizer.language("tlh").unwrap_err().to_string().contains("is not one that this model knows"));
    }
    let silent = bytes(json!({"tokenizer_class": "NllbTokenizer"}));
    let silent = folder(&[("sentencepiece.bpe.model", model), ("tokenizer_config.json", silent)]);
    let message = Tokenizer::open(silent.path()).unwrap_err().to_string();
    assert!(message.contains("additional_special_tokens"), "{message}");
}

/// One SentencePiece model, ids from `vocab.json`, languages behind them.
#[test]
fn languages_stand_in_front_where_one_model_serves_all() {
    let model = std::fs::read(data("unigram.model")).unwrap();
    let plain = folder(&[("spiece.model", model.clone()), ("config.json", bytes(json!({"model_type": "t5"})))]);
    let plain = Tokenizer::open(plain.path()).unwrap();
    let mut shared: Vec<String> = ["<s>", "<pad>", "</s>", "<unk>"].map(str::to_owned).to_vec();
    shared.extend((4..plain.vocab_size() as u32 - 100).rev().filter_map(|id| plain.token(id)));
    let table: serde_json::Map<String, Value> =
        shared.iter().zip(0..).map(|(token, id)| (token.clone(), json!(id))).collect();
    let codes = ["__en__", "__fr__"];
    let folder = folder(&[
        ("sentencepiece.bpe.model", model),
        ("vocab.json", bytes(Value::Object(table))),
        (
            "tokenizer_config.json",
            bytes(json!({"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": codes})),
        ),
    ]);
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let options = EncodeOptions { add_special: true, parse_special: false };
    let (sample, _, decoded) = known_sample();
    let ids = tokenizer.encode(&sample, options).unwrap().ids;
    assert_eq!((ids[0], ids[ids.len() - 1]), (shared.len() as u32, 2));
    assert_eq!(tokenizer.language("French").unwrap().id, shared.len() as u32 + 1);
    assert_eq!(tokenizer.decode(&ids, true), decoded);
}

/// Padding, end, masks and unused entries before the pieces.
#[test]
fn summarisers_number_their_pieces_from_105() {
    let model = std::fs::read(data("unigram.model")).unwrap();
    let config = bytes(json!({"tokenizer_class": "PegasusTokenizer"}));
    let folder = folder(&[("spiece.model", model), ("tokenizer_config.json", config)]);
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let (sample, theirs, _) = known_sample();
    let text: Vec<u32> = theirs.iter().map(|id| id + 103).collect();
    let options = EncodeOptions { add_special: true, parse_special: false };
    assert_eq!(tokenizer.encode(&sample, options).unwrap().ids, [text, vec![1]].concat());
    assert_eq!((tokenizer.pad(), tokenizer.eos(), tokenizer.id("<mask_2>")), (Some(0), Some(1), Some(3)));
}

/// TOK-02: the precompiled map is applied as SentencePiece does, by the longest key at each place.
#[test]
fn precompiled_normalisation_is_sentencepieces() {
    let path = models().join("vocab-gguf/ggml-vocab-nomic-bert-moe.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} is not there", path.display());
        return;
    }
    let tokenizer = Tokenizer::open(&path).unwrap();
    let cases = sentencepiece_cases("nmt_nfkc.json");
    assert!(cases.len() > 200);
    let mut wrong = Vec::new();
    for (text, theirs, _) in cases {
        let ours = tokenizer.encode(&text, PLAIN).unwrap();
        if ours.ids != theirs {
            wrong.push(format!("{text:?}\n  ours   {:?} {:?}\n  theirs {theirs:?}", ours.ids, ours.pieces));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let model = std::fs::read(data("bpe.model")).unwrap();
    let config = bytes(json!({"tokenizer_class": "TomorrowTokenizer"}));
    let unknown = folder(&[("tokenizer.model", model), ("tokenizer_config.json", config)]);
    let message = Tokenizer::open(unknown.path()).unwrap_err().to_string();
    assert!(message.contains("tomorrow"), "{message}");
    let message = Tokenizer::open(folder(&[]).path()).unwrap_err().to_string();
    assert!(message.contains("no tokenizer found"), "{message}");
}
