//! A9, A15, A16 and A17: vocabularies, tokenizer files, templates and pickles beside right weights.

use super::{Cases, Wanted, bodies, refused};
use crate::through::put;
use attend_testkit::files::gguf::{Gguf, string, value};
use attend_testkit::files::torch::{Pickle, legacy_file, zip_file};
use attend_testkit::files::{Files, model};
use attend_testkit::memory::alone;
use serde_json::{Value, json};

/// The tiny GGUF model with a change to its vocabulary.
fn vocabulary(change: impl FnOnce(Gguf) -> Gguf) -> Files {
    vec![("m.gguf".into(), change(model::gguf(5)).bytes())]
}

fn without(mut file: Gguf, key: &str) -> Gguf {
    file.keys.retain(|(name, _)| !name.ends_with(key));
    file
}

/// The vocabulary's words with some of them replaced.
fn words(changes: &[(usize, &str)]) -> Files {
    let mut list: Vec<String> = (0..model::VOCAB).map(|id| format!("w{id}")).collect();
    changes.iter().for_each(|(id, word)| list[*id] = word.to_string());
    vocabulary(|file| without(file, "ggml.tokens").strings("tokenizer.ggml.tokens", &list))
}

#[test]
fn entries_of_vocabularies() {
    let _alone = alone();
    let mut cases = Cases::default();
    let key = |suffix: &str| format!("tokenizer.ggml.{suffix}");
    let either = |words: &[&str]| Wanted::Either(words.iter().map(|word| word.to_string()).collect());
    let long = "x".repeat(1 << 20);
    for (name, changes) in [
        ("negative byte", vec![(9, "<0x-1>")]),
        ("byte beyond 255", vec![(9, "<0x100>")]),
        ("no byte", vec![(9, "<0xZZ>")]),
        ("byte without digits", vec![(9, "<0x>")]),
        ("one byte twice", vec![(9, "<0x41>"), (10, "<0x41>")]),
        ("duplicates", vec![(9, "w1"), (10, "w1"), (11, "w1")]),
        ("empty", vec![(9, ""), (10, "")]),
        ("only a space", vec![(9, "▁"), (10, " ")]),
        ("control characters", vec![(9, "\0"), (10, "\n"), (11, "\u{7f}")]),
        ("written from the right", vec![(9, "\u{202e}abc")]),
        ("like special tokens", vec![(9, "<s>"), (10, "</s>"), (11, "<unk>")]),
        ("giant", vec![(9, long.as_str())]),
    ] {
        cases.check(name, &words(&changes), "m.gguf", &either(&["tokenizer.ggml.tokens", "vocabulary"]));
        // As control tokens, user-defined ones and bytes.
        for kind in [3i32, 4, 6, 0, 77, -1] {
            let mut list: Vec<String> = (0..model::VOCAB).map(|id| format!("w{id}")).collect();
            let mut kinds = vec![1i32; model::VOCAB];
            for (id, word) in &changes {
                list[*id] = word.to_string();
                kinds[*id] = kind;
            }
            let payload: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_le_bytes()).collect();
            let files =
                vocabulary(|file| {
                    without(without(file, "ggml.tokens"), "ggml.token_type")
                        .strings("tokenizer.ggml.tokens", &list)
                        .array("tokenizer.ggml.token_type", value::I32, model::VOCAB as u64, &payload)
                });
            cases.check(
                &format!("{name} of kind {kind}"),
                &files,
                "m.gguf",
                &either(&["tokenizer.ggml", "vocabulary"]),
            );
        }
    }
    for id in [96u32, 97, 1 << 20, u32::MAX] {
        for suffix in ["bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id", "eot_token_id"] {
            let files = vocabulary(|file| without(file, suffix).u32(&key(suffix), id));
            cases.check(&format!("{suffix} {id}"), &files, "m.gguf", &either(&[suffix]));
        }
    }
    for (name, scores) in [("NaN", f32::NAN), ("infinite", f32::INFINITY), ("least", f32::MIN)] {
        let payload = scores.to_le_bytes().repeat(model::VOCAB);
        let files = vocabulary(|file| without(file, "scores").array(&key("scores"), value::F32, 96, &payload));
        cases.check(&format!("scores {name}"), &files, "m.gguf", &either(&["scores"]));
    }
    for (suffix, element) in [("scores", value::F32), ("token_type", value::I32)] {
        for count in [0u64, 1, 95, 97] {
            let payload = vec![0; count as usize * 4];
            let files = vocabulary(|file| without(file, suffix).array(&key(suffix), element, count, &payload));
            cases.check(&format!("{count} of {suffix}"), &files, "m.gguf", &either(&[suffix]));
        }
    }
    for (name, count) in [("fewer words than rows", 95usize), ("more words than rows", 97), ("no words", 0)] {
        let list: Vec<String> = (0..count).map(|id| format!("w{id}")).collect();
        let files = vocabulary(|file| {
            without(without(without(file, "ggml.tokens"), "scores"), "token_type")
                .strings("tokenizer.ggml.tokens", &list)
                .array(&key("scores"), value::F32, count as u64, &vec![0; count * 4])
                .array(&key("token_type"), value::I32, count as u64, &vec![0; count * 4])
        });
        // Padded tables and tokens without a row both exist.
        cases.check(name, &files, "m.gguf", &either(&["token_embd", "tokenizer.ggml", "vocab_size"]));
    }
    for kind in ["gpt2", "bert", "t5", "rwkv", "none", "no_vocab", "", "sorcery", "plamo2"] {
        let bytes = string(kind.as_bytes());
        let files = vocabulary(|file| without(file, "ggml.model").key(&key("model"), value::STRING, &bytes));
        cases.check(
            &format!("model {kind:?}"),
            &files,
            "m.gguf",
            &either(&["tokenizer.ggml", "cannot be encoded"]).or_unusable(),
        );
    }
    for merges in [&["w1"][..], &["w1 w2 w3"], &["", " "], &["w1 nothing"], &["w1 w2", "w1 w2"], &["\0 \0"]] {
        let files = vocabulary(|file| {
            without(file, "ggml.model")
                .string(&key("model"), "gpt2")
                .string(&key("pre"), "gpt-2")
                .strings(&key("merges"), merges)
        });
        cases.check(&format!("merges {merges:?}"), &files, "m.gguf", &either(&["merges"]));
    }
    cases.done(120);
}

/// A tokenizer file of two letters with something in addition.
fn small(extra: Value) -> Value {
    let mut file = json!({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}});
    file.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    file
}

#[test]
fn tokenizer_files() {
    let _alone = alone();
    let mut cases = Cases::default();
    let [llama, ..] = bodies();
    let mut check = |name: &str, text: String, wanted: Wanted| {
        let mut files = llama.1.clone();
        put(&mut files, "tokenizer.json", text);
        cases.check(name, &files, "", &wanted);
    };
    let here = || refused(&["tokenizer.json"]);
    let deep = |kind: &str, list: &str| {
        let start = format!(r#"{{"type":"{kind}","{list}":["#).repeat(20_000);
        format!(r#"{{"post_processor":{start}{}}}"#, "]}".repeat(20_000))
    };
    check("nested lists", "[".repeat(100_000), here());
    check("sequences of post-processors", deep("Sequence", "processors"), here());
    let shallow = |depth: usize| {
        let nested = (0..depth)
            .fold(json!({"type": "ByteLevel"}), |inner, _| json!({"type": "Sequence", "processors": [inner]}));
        small(json!({ "post_processor": nested })).to_string()
    };
    check("30 sequences of post-processors", shallow(30), Wanted::Either(vec!["tokenizer.json".into()]));
    check("120 sequences of post-processors", shallow(120), here());
    check("empty", String::new(), here());
    check("of NaN", "NaN".into(), here());
    check("without a model", "{}".into(), here());
    check("of another kind", r#"{"model":{"type":"Sorcery"}}"#.into(), here());
    let many: Vec<String> = (0..300_000).map(|i| format!("a{i} b{i}")).collect();
    let merges = json!({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": many}});
    check("300000 merges of nothing", merges.to_string(), refused(&["merge"]));
    let same = json!({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": vec!["a b"; 1_000_000]}});
    check("a million merges alike", same.to_string(), Wanted::Either(vec!["merge".into()]));
    let added: Vec<Value> =
        (0..100_000).map(|id| json!({"id": id + 3, "content": format!("<t{id}>"), "special": true})).collect();
    check(
        "100000 added tokens",
        small(json!({ "added_tokens": added })).to_string(),
        Wanted::Either(vec!["added".into(), "vocab".into()]),
    );
    let pattern = |regex: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        small(json!({ "pre_tokenizer": split })).to_string()
    };
    check("pattern that backtracks", pattern(r"(a+)+$"), Wanted::Fine);
    check("pattern with references", pattern(r"(a*)*\1$"), Wanted::Either(vec!["tokenizer.json".into()]));
    check("pattern of counted repeats", pattern("((((a{1,99}){1,99}){1,99}){1,99}){1,99}"), here());
    check("pattern nested deep", pattern(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))), here());
    check("pattern of lookbehinds", pattern(&"(?<=a)".repeat(8000)), Wanted::Either(vec!["tokenizer.json".into()]));
    check("pattern too long", pattern(&"a".repeat(1 << 17)), here());
    check("pattern that is none", pattern("["), here());
    for (what, extra) in [
        ("id beyond all", json!({"added_tokens": [{"id": u64::MAX, "content": "x"}]})),
        ("negative id", json!({"added_tokens": [{"id": -1, "content": "x"}]})),
        ("id of 2^32", json!({"added_tokens": [{"id": 1u64 << 32, "content": "x"}]})),
        ("content that is a number", json!({"added_tokens": [{"id": 3, "content": 7}]})),
        ("normalizer that is unknown", json!({"normalizer": {"type": "Sorcery"}})),
        ("decoder that is unknown", json!({"decoder": {"type": "Sorcery"}})),
        ("truncation", json!({"normalizer": []})),
        (
            "template that names nothing",
            json!({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "no", "type_id": 0}}], "pair": [], "special_tokens": {}}}),
        ),
    ] {
        check(what, small(extra).to_string(), here());
    }
    cases.done(24);
}

#[test]
fn templates() {
    let _alone = alone();
    // A million steps pay for 64 MB of text, and a text that grows is held twice.
    let mut cases = Cases { more: 96 << 20, ..Cases::default() };
    let [llama, ..] = bodies();
    let mut check = |name: &str, template: &str, wanted: Wanted| {
        let mut files = llama.1.clone();
        put(&mut files, "chat_template.jinja", template);
        cases.check(name, &files, "", &wanted);
    };
    let stopped = || Wanted::Unusable(vec!["chat template".into()]);
    check(
        "loop of loops",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor %}{% endfor %}{% endfor %}",
        stopped(),
    );
    check("giant range", "{% for a in range(1000000000000) %}x{% endfor %}", stopped());
    check(
        "doubling string",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        stopped(),
    );
    check("repeated string", "{{ 'x' * 99999999999 }}", stopped());
    check("repeated list", "{{ [1, 2] * 99999999999 }}", stopped());
    check("padded string", "{{ '%99999999999d' % 1 }}", stopped());
    check("formatted string", "{{ '{:>99999999999}'.format(1) }}", stopped());
    check("centred string", "{{ 'x' | center(99999999999) }}{{ 'x'.center(99999999999) }}", stopped());
    check("indented string", "{{ ('x\n' * 1000) | indent(99999999) }}", stopped());
    check("replaced string", "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}", stopped());
    check("joined list", "{{ range(100000) | join('y' * 100000) }}", stopped());
    check(
        "tojson of much",
        "{% set ns = namespace(s=['x' * 1000]) %}{% for i in range(14) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson(indent=8000) }}",
        stopped(),
    );
    check("macro without end", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", stopped());
    check(
        "two macros without end",
        "{% macro f(x) %}{{ g(x) }}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        stopped(),
    );
    check("loop that calls itself", "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", stopped());
    for (name, template) in [
        ("include", "{% include '/etc/passwd' %}"),
        ("import", "{% import '/etc/passwd' as x %}{{ x }}"),
        ("from", "{% from '../config.json' import x %}"),
        ("extends", "{% extends '/etc/passwd' %}"),
    ] {
        check(name, template, stopped_or_refused());
    }
    for name in [
        "''.__class__.__mro__[1].__subclasses__()",
        "self.__init__.__globals__",
        "messages.__class__",
        "cycler.__init__.__globals__.os.popen('id').read()",
        "lipsum.__globals__['os']",
        "range.__self__",
        "(messages | attr('__class__'))()",
        "namespace.__init__.__globals__['os'].system('touch marker')",
    ] {
        let template = format!("{{{{ {name} }}}}");
        check(name, &template, Wanted::Either(vec!["chat template".into()]).or_unusable());
    }
    check("cut", "{% if true %}", stopped_or_refused());
    check("nested deep", &format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)), stopped_or_refused());
    check(
        "lists nested deep",
        &format!("{{{{ {}{} }}}}", "[".repeat(20_000), "]".repeat(20_000)),
        stopped_or_refused(),
    );
    check(
        "conditions nested deep",
        &format!("{}{}", "{% if true %}".repeat(20_000), "{% endif %}".repeat(20_000)),
        stopped_or_refused(),
    );
    check("a chain of operators", &format!("{{{{ 1{} }}}}", "+1".repeat(100_000)), stopped_or_refused());
    check("a chain of filters", &format!("{{{{ 'x'{} }}}}", "|upper".repeat(100_000)), stopped_or_refused());
    check("a chain of nots", &format!("{{{{ {}1 }}}}", "not ".repeat(100_000)), stopped_or_refused());
    check("a chain of minus", &format!("{{{{ {}1 }}}}", "-".repeat(100_000)), stopped_or_refused());
    check("a chain of attributes", &format!("{{{{ messages{} }}}}", "[0]".repeat(100_000)), stopped_or_refused());
    check("giant", &"{{ 'x' }}".repeat(1 << 20), stopped_or_refused());
    check("division by nothing", "{{ 1 / 0 }}{{ 1 // 0 }}{{ 1 % 0 }}", stopped());
    check("powers", "{{ 9 ** 9 ** 9 ** 9 }}", stopped());
    check(
        "least number",
        "{{ -9223372036854775808 // -1 }}{{ 170141183460469231731687303715884105727 + 1 }}{{ (-9223372036854775808) | abs }}",
        stopped_or_refused(),
    );
    check("raised", "{{ raise_exception('no') }}", Wanted::Unusable(vec!["no".into()]));
    cases.done(40);
}

fn stopped_or_refused() -> Wanted {
    Wanted::Either(vec!["chat".into()]).or_unusable()
}

#[test]
fn pickles_run_nothing() {
    let _alone = alone();
    let mut cases = Cases::default();
    let marker = std::env::temp_dir().join(format!("attend-marker-{}", std::process::id()));
    let command = format!("touch {}", marker.display());
    let folder = |weights: Vec<u8>| {
        let mut files = model::folder(1);
        files.retain(|(name, _)| name != "model.safetensors");
        put(&mut files, "pytorch_model.bin", weights);
        files
    };
    for (module, name) in [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "exec"),
        ("subprocess", "call"),
        ("torch", "load"),
        ("torch.serialization", "load"),
        ("webbrowser", "open"),
    ] {
        let call = Pickle::new().global(module, name).op(b"(").text(&command).op(b"tR.");
        let reduce = Pickle::new().op(b"}(").text("a").global(module, name).op(b"(").text(&command).op(b"tRu.");
        let stack = Pickle(b"\x80\x04".to_vec()).text(module).text(name).op(b"\x93(").text(&command).op(b"tR.");
        let old = Pickle::new().op(b"(i").op(module.as_bytes()).op(b"\n").op(name.as_bytes()).op(b"\n.");
        for (how, pickle) in [("call", call), ("value", reduce), ("stack", stack), ("instance", old)] {
            let what = format!("{module}.{name} by {how}");
            cases.check(&what, &folder(zip_file(&pickle.0, &[("0", vec![0; 16])])), "", &refused(&["safetensors"]));
            cases.check(
                &what,
                &folder(legacy_file(&pickle.0, true, &[("0", 4, vec![0; 16])])),
                "",
                &refused(&["safetensors"]),
            );
            cases.check(&what, &folder(pickle.0), "", &refused(&["pytorch_model.bin"]));
        }
    }
    // Beside safetensors it is never opened.
    let mut files = model::folder(1);
    put(&mut files, "pytorch_model.bin", Pickle::new().global("os", "system").op(b"(").text(&command).op(b"tR.").0);
    cases.check("beside safetensors", &files, "", &Wanted::Fine);
    // Code that a configuration asks for is not there to be run.
    let config = Value::Object(model::config()).to_string();
    put(
        &mut files,
        "config.json",
        config.replacen('{', r#"{"auto_map":{"AutoModelForCausalLM":"evil.Model"},"trust_remote_code":true,"#, 1),
    );
    put(&mut files, "evil.py", format!("import os\nos.system('{command}')\n"));
    cases.check("auto_map", &files, "", &Wanted::Fine);
    assert!(!marker.exists(), "something was run");
    cases.done(80);
}
