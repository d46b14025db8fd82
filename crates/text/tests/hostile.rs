//! Damaged and malicious files: each loads or is a typed error, and what loads can be used. No panic, no hang.

mod common;

use attend_text::{ChatTemplate, EncodeOptions, Error, Render, Tokenizer};
use common::{Random, goldens, json};
use serde_json::{Value, json};
use std::path::Path;

const SAMPLES: [&str; 4] = ["Hello, wörld! 123 😀", "<s> x</s>[CLS]", "  a\n\n\tb  ", "aaaaaaaaaaaaaaaa"];

/// Uses a tokenizer in every way. Errors are fine.
fn use_it(tokenizer: &Tokenizer) {
    for sample in SAMPLES {
        for add_special in [false, true] {
            for parse_special in [false, true] {
                let options = EncodeOptions { add_special, parse_special };
                if let Ok(encoding) = tokenizer.encode(sample, options) {
                    tokenizer.decode(&encoding.ids, add_special);
                }
                let _ = tokenizer.encode_pair(sample, "b", options);
            }
        }
    }
    let ids: Vec<u32> = (0..40).chain([u32::MAX]).collect();
    tokenizer.decode(&ids, false);
    for id in ids {
        let _ = (tokenizer.token(id), tokenizer.token_bytes(id), tokenizer.is_special(id));
    }
    let _ = (tokenizer.end_ids(), tokenizer.kind().len(), tokenizer.unk());
}

fn open_json(folder: &Path, text: &[u8]) -> Result<Tokenizer, Error> {
    std::fs::write(folder.join("tokenizer.json"), text).unwrap();
    Tokenizer::open(folder)
}

fn names() -> Vec<&'static str> {
    vec!["bert-uncased-like", "gpt2-like", "llama2-like", "llama3-like", "roberta-like", "t5-like", "wordlevel"]
}

/// Replaces one value somewhere in a document by another.
fn mutate(value: &mut Value, random: &mut Random) {
    let mut at = value;
    loop {
        let children = match &*at {
            Value::Object(fields) => fields.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if children == 0 || random.below(5) == 0 {
            break;
        }
        let index = random.below(children);
        at = match at {
            Value::Object(fields) => fields.values_mut().nth(index).unwrap(),
            Value::Array(items) => &mut items[index],
            _ => unreachable!(),
        };
    }
    let odd = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(4294967296u64),
        json!(u64::MAX),
        json!(""),
        json!("▁"),
        json!("(a+)+$"),
        json!("<0x-1>"),
        json!("["),
        json!([]),
        json!({}),
        json!([[]]),
        json!("\u{0}"),
        json!({"type": "Sequence"}),
        json!({"Regex": "(?=x)*"}),
        json!({"String": ""}),
        json!("Replace"),
        json!("Strip"),
        json!(["a", "b"]),
        json!([["a", 1e308]]),
        json!("é"),
    ];
    *at = odd[random.below(odd.len())].clone();
}

#[test]
fn mutated_tokenizer_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random::new(11);
    let mut loaded = 0;
    for name in names() {
        let original = json(&goldens().join("tokenizers").join(name).join("tokenizer.json"));
        // The tables are large and alike; most of the mutations go to the rest.
        for round in 0..120 {
            let mut file = original.clone();
            for _ in 0..=random.below(3) {
                let fields = ["normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "model"];
                let field = fields[random.below(fields.len())];
                mutate(if round % 8 == 0 { &mut file } else { &mut file[field] }, &mut random);
            }
            if let Ok(tokenizer) = open_json(folder.path(), file.to_string().as_bytes()) {
                use_it(&tokenizer);
                loaded += 1;
            }
        }
    }
    assert!(loaded > 50, "{loaded} of the mutated files load");
}

#[test]
fn flipped_and_cut_tokenizer_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random::new(12);
    for name in names() {
        let original = std::fs::read(goldens().join("tokenizers").join(name).join("tokenizer.json")).unwrap();
        for _ in 0..40 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            if let Ok(tokenizer) = open_json(folder.path(), &bytes) {
                use_it(&tokenizer);
            }
        }
        // A file that is cut is never a whole one.
        for _ in 0..40 {
            let end = random.below(original.trim_ascii_end().len());
            assert!(open_json(folder.path(), &original[..end]).is_err(), "{name} cut at {end}");
        }
    }
}

/// A15 and A9, one by one: each is refused, or loads and stays usable.
#[test]
fn hostile_tokenizer_files_by_hand() {
    let folder = tempfile::TempDir::new().unwrap();
    let bpe =
        |extra: &str| format!(r#"{{"model":{{"type":"BPE","vocab":{{"a":0,"b":1,"ab":2}},"merges":["a b"]}}{extra}}}"#);
    let refused = |text: String, part: &str| {
        let error = open_json(folder.path(), text.as_bytes()).err().unwrap_or_else(|| panic!("{part} loads"));
        let message = error.to_string();
        assert!(message.contains("tokenizer.json") && message.to_lowercase().contains(part), "{part}: {message}");
    };
    refused("[".repeat(100_000), "json");
    refused(r#"{"normalizer":"#.repeat(5_000), "json");
    refused(r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}}"#.into(), "merge");
    refused(r#"{"model":{"type":"BPE","vocab":{"abc":0,"abd":1},"merges":[["abc","abd"]]}}"#.into(), "merge");
    refused(r#"{"model":{"type":"BPE","vocab":{"a":4294967295},"merges":[]}}"#.into(), "id");
    refused(r#"{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}"#.into(), "json");
    refused(r#"{"model":{"type":"Unigram","unk_id":7,"vocab":[["a",0.0]]}}"#.into(), "unk_id");
    refused(r#"{"model":{"type":"Sorcery","vocab":{}}}"#.into(), "sorcery");
    refused(
        bpe(r#","pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false}"#),
        "pattern",
    );
    refused(bpe(r#","pre_tokenizer":{"type":"FixedLength","length":0}"#), "length");
    refused(
        bpe(
            r#","post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}"#,
        ),
        "post_processor",
    );
    refused(
        bpe(
            r#","post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B","type_id":0}}],"pair":[],"special_tokens":{}}"#,
        ),
        "post_processor",
    );
    refused(bpe(r#","added_tokens":[{"id":4000000000,"content":"x"}]"#), "added_tokens");
    refused(bpe(r#","normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="}"#), "charsmap");
    refused(
        format!(r#"{{"model":{{"type":"WordLevel","unk_token":"u","vocab":{{"{}":0}}}}}}"#, "x".repeat(1 << 20)),
        "bytes",
    );

    // A splitting pattern that would never end gives up with an error that names it.
    let split = r#","pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:(a+)+\\1?)+$(?!x)"},"behavior":"Isolated","invert":false}"#;
    let tokenizer = open_json(folder.path(), bpe(split).as_bytes()).unwrap();
    let error = tokenizer.encode(&("a".repeat(200) + "b"), EncodeOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Pattern { .. }), "{error}");
    let regular = split.replace(r"(?:(a+)+\\1?)+$(?!x)", "(a+)+$");
    let tokenizer = open_json(folder.path(), bpe(&regular).as_bytes()).unwrap();
    assert_eq!(tokenizer.encode(&("a".repeat(30) + "b"), EncodeOptions::default()).unwrap().ids.len(), 30);

    // A hundred thousand added tokens are many, but fine.
    let many: Vec<Value> =
        (0..100_000).map(|id| json!({"id": id + 3, "content": format!("<t{id}>"), "special": true})).collect();
    let tokenizer = open_json(folder.path(), bpe(&format!(r#","added_tokens":{}"#, json!(many))).as_bytes()).unwrap();
    let options = EncodeOptions { add_special: false, parse_special: true };
    assert_eq!(tokenizer.encode("<t99999>ab<t7>", options).unwrap().ids, [100_002, 2, 10]);
}

/// Every value of the small files beside a tokenizer may be wrong.
#[test]
fn mutated_side_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random::new(13);
    let tokenizer = goldens().join("tokenizers/llama2-like/tokenizer.json");
    std::fs::copy(tokenizer, folder.path().join("tokenizer.json")).unwrap();
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "add_bos_token": true,
        "tokenizer_class": "LlamaTokenizer", "chat_template": [{"name": "default", "template": "{{ bos_token }}"}],
        "added_tokens_decoder": {"7": {"content": "<x>", "special": true}}, "additional_special_tokens": ["<y>"]});
    for _ in 0..150 {
        let mut changed = config.clone();
        mutate(&mut changed, &mut random);
        std::fs::write(folder.path().join("tokenizer_config.json"), changed.to_string()).unwrap();
        std::fs::write(folder.path().join("special_tokens_map.json"), changed.to_string()).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(folder.path()) {
            use_it(&tokenizer);
        }
        if let Ok(Some(template)) = ChatTemplate::open(folder.path()) {
            let _ = template.render(&Render { messages: json!([]), ..Render::default() });
        }
    }
}

/// SentencePiece models: flipped bytes, and every length.
#[test]
fn damaged_sentencepiece_models() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    let mut random = Random::new(14);
    for name in ["bpe", "unigram"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.model"));
        let original = std::fs::read(file).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(folder.path().join("tokenizer.model"), bytes).unwrap();
            if let Ok(tokenizer) = Tokenizer::open(folder.path()) {
                use_it(&tokenizer);
            }
        };
        for _ in 0..250 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            open(&bytes);
        }
        for end in (0..original.len()).step_by(97) {
            open(&original[..end]);
        }
    }
}

/// GGUF vocabularies whose keys are missing, of another type, or out of range.
#[test]
fn mutated_gguf_vocabularies() {
    let mut random = Random::new(15);
    for model in ["gpt2", "llama", "t5", "bert", "gemma4", "rwkv"] {
        for round in 0..150 {
            let bytes = gguf(model, &mut random, round > 0);
            let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            match Tokenizer::open(file.path()) {
                Ok(tokenizer) => use_it(&tokenizer),
                Err(error) => assert!(round > 0 || model == "rwkv", "{model}: {error}"),
            }
            let _ = ChatTemplate::open(file.path());
        }
    }
}

/// A small GGUF vocabulary; with `broken`, one of its keys is dropped, retyped or out of range.
fn gguf(model: &str, random: &mut Random, broken: bool) -> Vec<u8> {
    let mut tokens: Vec<String> =
        ["<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a", "Ġ", "[CLS]", "[SEP]", "<user>"].map(String::from).to_vec();
    let mut types: Vec<i32> = vec![2, 3, 3, 1, 1, 1, 1, 1, 1, 3, 3, 4];
    for byte in 0..=255 {
        tokens.push(format!("<0x{byte:02X}>"));
        types.push(6);
    }
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let list = |kind: u32, count: usize, items: Vec<u8>| {
        [&9u32.to_le_bytes()[..], &kind.to_le_bytes(), &(count as u64).to_le_bytes(), &items].concat()
    };
    let string = |value: &str| [&8u32.to_le_bytes()[..], &text(value)].concat();
    let number = |value: u32| [&4u32.to_le_bytes()[..], &value.to_le_bytes()].concat();
    let strings = |items: &[String]| list(8, items.len(), items.iter().flat_map(|item| text(item)).collect());
    let scores: Vec<u8> = (0..tokens.len()).flat_map(|id| (-(id as f32)).to_le_bytes()).collect();
    let mut keys = vec![
        ("general.architecture", string("llama")),
        ("tokenizer.ggml.model", string(model)),
        ("tokenizer.ggml.pre", string("gpt-2")),
        ("tokenizer.ggml.tokens", strings(&tokens)),
        ("tokenizer.ggml.token_type", list(5, types.len(), types.iter().flat_map(|kind| kind.to_le_bytes()).collect())),
        ("tokenizer.ggml.scores", list(6, tokens.len(), scores)),
        ("tokenizer.ggml.merges", strings(&["a b".to_string()])),
        ("tokenizer.ggml.bos_token_id", number(1)),
        ("tokenizer.ggml.eos_token_id", number(2)),
        ("tokenizer.ggml.unknown_token_id", number(0)),
        ("tokenizer.ggml.precompiled_charsmap", list(0, 8, vec![4, 0, 0, 0, 255, 255, 255, 255])),
        ("tokenizer.chat_template", string("{{ bos_token }}")),
    ];
    if broken {
        let at = random.below(keys.len());
        match random.below(5) {
            0 => {
                keys.remove(at);
            }
            1 => keys[at].1 = number(random.next() as u32),
            2 => keys[at].1 = string(["", "tomorrow", "▁"][random.below(3)]),
            3 => keys[at].1 = strings(&["x".to_string(), " ".into(), "".into()]),
            _ => keys[at].1 = list(6, 2, f32::NAN.to_le_bytes().repeat(2)),
        }
    }
    let mut bytes =
        [&b"GGUF"[..], &3u32.to_le_bytes(), &0u64.to_le_bytes(), &(keys.len() as u64).to_le_bytes()].concat();
    for (key, value) in keys {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes
}

/// Templates made of pieces of real ones in any order.
#[test]
fn shuffled_templates() {
    let golden = json(&goldens().join("chat_templates.json"));
    let sources: Vec<&str> =
        golden["templates"].as_object().unwrap().values().map(|source| source.as_str().unwrap()).collect();
    let mut random = Random::new(16);
    let request = Render {
        messages: golden["chats"]["tools"].clone(),
        tools: Some(golden["tools"].clone()),
        ..Render::default()
    };
    for _ in 0..1_500 {
        let mut source = String::new();
        for _ in 0..=random.below(4) {
            let chars: Vec<char> = sources[random.below(sources.len())].chars().collect();
            let start = random.below(chars.len());
            source.extend(&chars[start..(start + random.below(400)).min(chars.len())]);
        }
        if let Ok(text) = ChatTemplate::new(source, Some("<s>"), None).render(&request) {
            assert!(text.len() <= 4 << 20);
        }
    }
}
