//! Adapters by name: each request gets what a server gives whose only model has that adapter, whoever runs beside it and
//! whatever comes and goes.

use crate::client::{Answer, chunk, connect, read_head, request, send};
use crate::openai::{streamed, whole, with};
use crate::support::{BYTES_PER_TOKEN, Serving, Setup, loader, parts, tiny, tiny_setup};
use attend_model::Adapter;
use attend_server::{AdapterAt, Bounds, Keys, Loader, Parts};
use attend_testkit::files::safetensors::Tensor;
use attend_testkit::files::{Files, Random, adapter, write_all};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use tempfile::TempDir;

/// The adapters of these tests: name, rank, seed.
const ADAPTERS: [(&str, usize, u64); 3] = [("law", 4, 1), ("jokes", 8, 2), ("code", 2, 3)];

fn shelf() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, rank, seed) in ADAPTERS {
        put(folder.path(), name, &adapter::folder(rank, seed));
    }
    folder
}

fn put(shelf: &Path, name: &str, files: &Files) {
    write_all(&shelf.join(name), files).expect("written");
}

fn at(shelf: &Path, name: &str) -> (String, AdapterAt) {
    ("tiny".into(), AdapterAt { name: name.into(), path: shelf.join(name), strength: 1.0 })
}

/// A server whose one model has the adapter from the start, as `--lora` gives it.
fn alone(changes: Value, adapter: Option<&Path>) -> Serving {
    let (folder, adapter) = (tiny(changes), adapter.map(Path::to_owned));
    let path = folder.path().to_owned();
    let loader: Loader = Box::new(move || {
        let mut parts = parts(&path, None);
        if let Some(adapter) = &adapter {
            let adapter = Adapter::open(adapter, &parts.loaded.source).expect("an adapter");
            parts.loaded.model = adapter.attach(&parts.loaded.model, 1.0).expect("fits");
        }
        Ok(parts)
    });
    Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready()
}

fn load(serving: &Serving, name: &str, changes: Value) -> Answer {
    serving.post("/v1/load_lora_adapter", &with(&json!({"lora_name": name, "lora_path": name}), changes))
}

fn unload(serving: &Serving, name: &str) -> Answer {
    serving.post("/v1/unload_lora_adapter", &json!({"lora_name": name}))
}

/// Requests of every kind, many of which begin alike.
fn requests() -> Vec<Value> {
    let request = |index: usize| {
        let words: Vec<String> = (0..[5, 70, 90][index % 3]).map(|at| format!("t{}", 3 + at * 5 % 90)).collect();
        let settings = match index % 4 {
            0 => json!({"logprobs": 2}),
            1 => json!({"temperature": 1.0, "seed": index, "n": 2}),
            2 => json!({"num_beams": 2}),
            _ => json!({"prompt_lookup_num_tokens": 4}),
        };
        with(
            &json!({"prompt": words.join(" "), "max_tokens": if index.is_multiple_of(3) { 80 } else { 5 + index * 3 }}),
            settings,
        )
    };
    (0..10).map(request).collect()
}

#[test]
fn every_name_answers_as_a_model_of_its_own() {
    let shelf = shelf();
    // Hardly room for two: requests are put back and begun anew.
    let folder = tiny(json!({}));
    let path = folder.path().to_owned();
    let kv_memory = Some(4 * 64 * BYTES_PER_TOKEN);
    let bounds = Bounds { kv_memory, prefix_cache: Some(1 << 20), ..Bounds::default() };
    let loader: Loader = Box::new(move || Ok(Parts { bounds, ..parts(&path, None) }));
    let mut setup = Setup::new(vec![("tiny", loader)]);
    setup.adapters = ADAPTERS.iter().map(|(name, ..)| at(shelf.path(), name)).collect();
    let serving = setup.ready();
    let names = ["tiny", "law", "jokes", "code"];
    let servers: Vec<Serving> = names
        .iter()
        .map(|name| alone(json!({}), (*name != "tiny").then(|| shelf.path().join(name)).as_deref()))
        .collect();
    let requests = requests();
    let vector = json!({"input": ["t5 t6 t7", "t8"]});
    let chat = json!({"messages": [{"role": "user", "content": "t5 t6"}], "max_tokens": 9});
    let expected: Vec<(Vec<Value>, Value, Value)> = servers
        .iter()
        .map(|server| {
            let answers = requests.iter().map(|body| server.post("/v1/completions", body).good()).collect();
            let vectors = server.post("/v1/embeddings", &vector).good()["data"].clone();
            (answers, vectors, server.post("/v1/chat/completions", &chat).good()["choices"].clone())
        })
        .collect();
    for own in &expected[1..] {
        assert_ne!(own.0[0]["choices"], expected[0].0[0]["choices"], "an adapter that changes nothing shows nothing");
        assert_ne!(own.1, expected[0].1);
    }
    // How far requests meet is the machine's to say: they are sent again until some had to make room.
    let mut rounds = 0;
    while rounds < 10 && (rounds == 0 || serving.figure("preemptions_total") == 0.0) {
        rounds += 1;
        thread::scope(|scope| {
            for (client, name) in names.iter().cycle().take(8).enumerate() {
                let (serving, requests, vector, chat) = (&serving, &requests, &vector, &chat);
                let (answers, vectors, turn) = &expected[client % names.len()];
                scope.spawn(move || {
                    let named = |body: &Value| with(body, json!({"model": name}));
                    for (body, expected) in requests.iter().zip(answers) {
                        let answer = serving.post("/v1/completions", &named(body)).good();
                        assert_eq!(
                            (&answer["choices"], &answer["model"]),
                            (&expected["choices"], &json!(name)),
                            "{body}"
                        );
                        let stream = serving.post("/v1/completions", &with(&named(body), json!({"stream": true})));
                        assert_eq!(streamed(&stream, false), whole(expected, false), "{name} {body}");
                    }
                    assert_eq!(serving.post("/v1/embeddings", &named(vector)).good()["data"], *vectors, "{name}");
                    assert_eq!(serving.post("/v1/chat/completions", &named(chat)).good()["choices"], *turn, "{name}");
                });
            }
        });
    }
    assert!(serving.figure("preemptions_total") > 0.0, "nobody had to make room");
    assert!(serving.figure("prefix_hits_total") > 0.0, "nothing was shared");
    assert_eq!(serving.figure("adapter_requests_total"), f64::from(rounds * 6 * 22));
    let (models, tags) = (serving.get("/v1/models").good(), serving.get("/api/tags").good());
    let list = models["data"].as_array().expect("a list");
    assert_eq!(list.iter().map(|model| model["id"].as_str().expect("a name")).collect::<Vec<_>>(), names);
    assert!(list[0].get("parent").is_none() && list[1..].iter().all(|model| model["parent"] == "tiny"), "{models}");
    let bytes = |index: usize| list[index]["bytes"].as_u64().expect("a size");
    assert!(0 < bytes(3) && bytes(3) <= bytes(1) && bytes(1) <= bytes(2) && bytes(2) < bytes(0), "{models}");
    assert_eq!(tags["models"][1]["details"]["parent_model"], "tiny");
    assert_eq!(serving.get("/v1/models/law").good()["parent"], "tiny");
    assert_eq!(serving.get("/health").good()["models"], json!({"tiny": "ready"}));
    serving.until_idle();
}

/// A request says how strong each adapter is; its answer is that of a server whose only model has them so.
#[test]
fn requests_scale_and_mix_them() {
    let shelf = shelf();
    let mut setup = tiny_setup(json!({}), None);
    setup.adapters = ADAPTERS.iter().map(|(name, ..)| at(shelf.path(), name)).collect();
    let serving = setup.ready();
    let listed = serving.get("/lora-adapters").good();
    let names: Vec<&str> = listed.as_array().expect("a list").iter().filter_map(|one| one["path"].as_str()).collect();
    assert_eq!((names, &listed[2]["id"]), (ADAPTERS.map(|(name, ..)| name).to_vec(), &json!(2)));
    assert_eq!(serving.get("/lora-adapters?model=tiny").good(), listed);
    serving.get("/lora-adapters?model=none").refused(404);
    let body = json!({"prompt": "t5 t6 t7", "max_tokens": 12, "ignore_eos": true, "logprobs": 1});
    let mixes: [&[(usize, f64)]; 6] =
        [&[], &[(0, 1.0)], &[(0, 0.3)], &[(1, -0.7), (0, 0.0)], &[(2, 0.25), (0, 1.5)], &[(0, 0.0)]];
    let mut seen = Vec::new();
    for mix in mixes {
        let folder = tiny(json!({}));
        let (path, own) = (folder.path().to_owned(), shelf.path().to_owned());
        let mut applied = mix.to_vec();
        applied.sort_by_key(|(id, _)| *id);
        let loader: Loader = Box::new(move || {
            let mut parts = parts(&path, None);
            for (id, scale) in applied.iter().filter(|(_, scale)| *scale != 0.0) {
                let adapter = Adapter::open(&own.join(ADAPTERS[*id].0), &parts.loaded.source).expect("an adapter");
                parts.loaded.model = adapter.attach(&parts.loaded.model, *scale).expect("fits");
            }
            Ok(parts)
        });
        let alone = Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready();
        let wanted = alone.post("/v1/completions", &body).good()["choices"].clone();
        let lora: Vec<Value> = mix.iter().map(|(id, scale)| json!({"id": id, "scale": scale})).collect();
        let scaled = with(&body, json!({"lora": lora}));
        for _ in 0..2 {
            assert_eq!(serving.post("/v1/completions", &scaled).good()["choices"], wanted, "{mix:?}");
        }
        let chat = json!({"messages": [{"role": "user", "content": "t5 t6"}], "max_tokens": 9});
        let said = alone.post("/v1/chat/completions", &chat).good()["choices"].clone();
        let scaled = with(&chat, json!({"lora": scaled["lora"]}));
        assert_eq!(serving.post("/v1/chat/completions", &scaled).good()["choices"], said, "{mix:?}");
        seen.push(wanted);
    }
    assert_eq!((&seen[0], seen[1] == seen[2], seen[0] == seen[3]), (&seen[5], false, false), "they change something");
    // More combinations than are kept, and the first again.
    for scale in 1..40 {
        let lora = json!([{"id": 0, "scale": f64::from(scale) / 16.0}, {"id": 1, "scale": 0.5}]);
        serving.post("/v1/completions", &with(&body, json!({"lora": lora}))).good();
    }
    let again = with(&body, json!({"lora": [{"id": 0, "scale": 0.3}]}));
    assert_eq!(serving.post("/v1/completions", &again).good()["choices"], seen[2]);
    for (param, lora) in [
        ("lora", json!(5)),
        ("lora[0]", json!([5])),
        ("lora[0].id", json!([{"scale": 1}])),
        ("lora[0].scale", json!([{"id": 0}])),
        ("lora[0].id", json!([{"id": 3, "scale": 1}])),
        ("lora[0].id", json!([{"id": -1, "scale": 1}])),
        ("lora[1].id", json!([{"id": 0, "scale": 1}, {"id": 0, "scale": 1}])),
        ("lora[0].scale", json!([{"id": 0, "scale": 101}])),
        ("lora[0].x", json!([{"id": 0, "scale": 1, "x": 1}])),
    ] {
        let error = serving.post("/v1/completions", &with(&body, json!({"lora": lora}))).refused(400);
        assert_eq!(error["param"], param, "{lora}: {error}");
    }
    let many: Vec<Value> = (0..65).map(|id| json!({"id": id, "scale": 1})).collect();
    let error = serving.post("/v1/completions", &with(&body, json!({"lora": many}))).refused(400);
    assert_eq!(error["param"], "lora", "{error}");
    let huge = br#"{"prompt": "t5", "lora": [{"id": 0, "scale": 1e999}]}"#;
    assert_eq!(serving.post_bytes("/v1/completions", huge).status, 400);
    let twice = with(&body, json!({"model": "law", "lora": [{"id": 1, "scale": 1}]}));
    assert!(
        serving.post("/v1/completions", &twice).refused(400)["message"]
            .as_str()
            .is_some_and(|m| m.contains("adapter itself"))
    );
    serving.until_idle();
}

/// What is set for all requests holds for those that say nothing themselves, on every route.
#[test]
fn their_usual_scales_are_set() {
    let shelf = shelf();
    let mut setup = tiny_setup(json!({}), None);
    setup.adapters = ADAPTERS.iter().map(|(name, ..)| at(shelf.path(), name)).collect();
    let (serving, base) = (setup.ready(), alone(json!({}), None));
    let own = alone(json!({}), Some(&shelf.path().join("jokes")));
    let messages = json!([{"role": "user", "content": "t5 t6 t7"}]);
    let asked: [(&str, Value, &str); 4] = [
        ("/v1/completions", json!({"prompt": "t5 t6 t7", "max_tokens": 12, "ignore_eos": true}), "/choices"),
        ("/v1/messages", json!({"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0}), "/content"),
        ("/v1/embeddings", json!({"input": ["t5 t6", "t7"]}), "/data"),
        ("/v1/rerank", json!({"query": "t5", "documents": ["t6 t7", "t8"]}), "/results"),
    ];
    let answers = |serving: &Serving| -> Vec<Value> {
        let answer = |(path, body, field): &(&str, Value, &str)| {
            serving.post(path, body).good().pointer(field).cloned().expect("an answer")
        };
        asked.iter().map(answer).collect()
    };
    let (plain, wanted) = (answers(&base), answers(&own));
    assert!(
        plain.iter().zip(&wanted).all(|(plain, own)| plain != own),
        "an adapter that changes nothing shows nothing"
    );
    let set = |scales: Value| serving.post("/lora-adapters", &scales);
    let shown = || -> Vec<Value> {
        let listed = serving.get("/lora-adapters").good();
        listed.as_array().expect("a list").iter().map(|one| one["scale"].clone()).collect()
    };
    assert_eq!((answers(&serving), shown()), (plain.clone(), vec![json!(0.0); 3]));
    assert_eq!(set(json!([{"id": 1, "scale": 1}])).good(), json!({"success": true}));
    assert_eq!((answers(&serving), shown()), (wanted.clone(), vec![json!(0.0), json!(1.0), json!(0.0)]));
    // A request's own word counts, and so does an adapter's name.
    let body = |lora: Value| with(&asked[0].1, lora);
    let choices = |body: &Value| serving.post("/v1/completions", body).good()["choices"].clone();
    assert_eq!(choices(&body(json!({"lora": []}))), plain[0]);
    assert_ne!(choices(&body(json!({"lora": [{"id": 1, "scale": 0.5}]}))), wanted[0]);
    assert_eq!(choices(&body(json!({"model": "jokes"}))), wanted[0]);
    assert_ne!(choices(&body(json!({"model": "law"}))), wanted[0]);
    // What is wrong changes nothing.
    for (wrong, param) in [
        (json!([{"id": 0, "scale": 1}, {"id": 3, "scale": 1}]), "[1].id"),
        (json!([{"id": 0, "scale": 1}, {"id": 0, "scale": 0}]), "[1].id"),
        (json!([{"id": 0, "scale": -100.5}]), "[0].scale"),
        (json!([{"id": 0}]), "[0].scale"),
        (json!([5]), "[0]"),
    ] {
        assert_eq!(set(wrong.clone()).refused(400)["param"], param, "{wrong}");
    }
    for wrong in [json!({}), json!(null), json!(vec![json!({"id": 0, "scale": 1}); 65])] {
        set(wrong.clone()).refused(400);
    }
    serving.post("/lora-adapters?model=none", &json!([])).refused(404);
    assert_eq!(serving.post("/lora-adapters?model=law", &json!([])).refused(400)["param"], "model");
    assert_eq!(answers(&serving), wanted);
    // What is not named counts nothing from now on.
    set(json!([{"id": 0, "scale": 0.0}])).good();
    assert_eq!((answers(&serving), shown()), (plain, vec![json!(0.0); 3]));
    serving.until_idle();
    let scheme = serving.get("/openapi.json").good()["paths"]["/lora-adapters"]["post"]["requestBody"].clone();
    assert_eq!(scheme["content"]["application/json"]["schema"]["items"]["required"], json!(["id", "scale"]));
}

/// Where others ask too, nobody sets for all of them unless the server was told that requests may.
#[test]
fn usual_scales_of_others_are_not_set() {
    let shelf = shelf();
    for folder in [None, Some(shelf.path().to_owned())] {
        let mut setup = tiny_setup(json!({}), None);
        setup.adapters = vec![at(shelf.path(), "law")];
        (setup.adapter_folder, setup.keys) = (folder.clone(), Keys::parse("key").expect("a key"));
        let serving = setup.start();
        let headers = [("Content-Type", "application/json"), ("Authorization", "Bearer key")];
        let set = |headers: &[(&str, &str)]| send(serving.address, &request("POST", "/lora-adapters", headers, b"[]"));
        set(&headers[..1]).refused(401);
        match folder {
            None => assert_eq!(set(&headers).refused(403)["code"], "adapter_loading_off"),
            Some(_) => assert_eq!(set(&headers).good(), json!({"success": true})),
        }
    }
}

/// The other dialects call adapters by their names too.
#[test]
fn every_dialect_names_them() {
    let shelf = shelf();
    let mut setup = tiny_setup(json!({}), None);
    setup.adapters = vec![at(shelf.path(), "jokes")];
    let (serving, own) = (setup.ready(), alone(json!({}), Some(&shelf.path().join("jokes"))));
    let messages = json!([{"role": "user", "content": "t5 t6 t7"}]);
    let asked: [(&str, Value, &[&str]); 5] = [
        ("/v1/messages", json!({"messages": messages, "max_tokens": 8, "temperature": 0}), &["content"]),
        (
            "/api/chat",
            json!({"messages": messages, "stream": false, "options": {"num_predict": 8, "temperature": 0}}),
            &["message"],
        ),
        (
            "/api/generate",
            json!({"prompt": "t5", "raw": true, "stream": false, "options": {"num_predict": 8}}),
            &["response"],
        ),
        ("/v1/rerank", json!({"query": "t5", "documents": ["t6 t7", "t8"]}), &["results"]),
        ("/embed", json!({"inputs": "t5 t6"}), &[]),
    ];
    for (path, body, fields) in asked {
        let of = |serving: &Serving, name: &str| {
            let answer = serving.post(path, &with(&body, json!({"model": name}))).good();
            fields.iter().fold(answer, |answer, field| answer[*field].clone())
        };
        let found = of(&serving, "jokes");
        assert!(!found.is_null());
        assert_eq!(found, of(&own, "tiny"), "{path}");
        assert_ne!(found, of(&serving, "tiny"), "{path}");
    }
    assert_eq!(serving.post("/api/show", &json!({"model": "jokes:latest"})).good()["details"]["parent_model"], "tiny");
    let refused = serving.post("/v1/completions", &json!({"model": "none", "prompt": "t5"})).refused(404);
    assert!(refused["message"].as_str().expect("words").contains("tiny, jokes"), "{refused}");
}

/// A long answer that is being made.
fn begin(serving: &Serving, name: &str, tokens: usize) -> (Vec<u8>, BufReader<TcpStream>) {
    begin_with(serving, name, tokens, json!({}))
}

fn begin_with(serving: &Serving, name: &str, tokens: usize, more: Value) -> (Vec<u8>, BufReader<TcpStream>) {
    let body = json!({
        "model": name, "prompt": "t5 t6", "max_tokens": tokens, "ignore_eos": true, "stream": true, "temperature": 1.0, "seed": 7,
    });
    let body = with(&body, more);
    let mut stream = connect(serving.address);
    stream.write_all(&request("POST", "/v1/completions", &[], body.to_string().as_bytes())).expect("sent");
    let mut reader = BufReader::new(stream);
    assert_eq!(read_head(&mut reader), 200);
    (chunk(&mut reader).expect("the first tokens"), reader)
}

/// All of it.
fn rest((mut bytes, mut reader): (Vec<u8>, BufReader<TcpStream>)) -> String {
    while let Some(more) = chunk(&mut reader) {
        bytes.extend(more);
    }
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let events =
        text.split_terminator("\n\n").filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok());
    events.filter_map(|event: Value| event["choices"][0]["text"].as_str().map(str::to_owned)).collect()
}

#[test]
fn they_come_and_go_while_requests_run() {
    const TOKENS: usize = 8000;
    let (shelf, changes) = (shelf(), json!({"max_position_embeddings": 60_000}));
    let mut setup = tiny_setup(changes.clone(), Some(100_000 * BYTES_PER_TOKEN));
    setup.adapter_folder = Some(shelf.path().to_owned());
    let serving = setup.ready();
    let running = || serving.figure("requests_running");
    let expected = |name: &str| rest(begin(&alone(changes.clone(), Some(&shelf.path().join(name))), "tiny", TOKENS));
    let (law, jokes) = (expected("law"), expected("jokes"));
    assert_ne!(law, jokes);
    let described = load(&serving, "law", json!({})).good();
    assert_eq!(
        (&described["id"], &described["parent"], &described["notices"]),
        (&json!("law"), &json!("tiny"), &json!([]))
    );
    // Taken away while an answer is made.
    let open = begin(&serving, "law", TOKENS);
    unload(&serving, "law").good();
    assert_eq!(
        serving.post("/v1/completions", &json!({"model": "law", "prompt": "t5"})).refused(404)["code"],
        "model_not_found"
    );
    assert_eq!(unload(&serving, "law").refused(404)["param"], "lora_name");
    assert_eq!(running(), 1.0, "the answer was still being made");
    assert_eq!(rest(open), law);
    // Swapped for another one, twice, with answers of each at once.
    load(&serving, "law", json!({})).good();
    assert_eq!(load(&serving, "law", json!({})).refused(400)["code"], "name_taken");
    let first = begin(&serving, "law", TOKENS);
    load(&serving, "law", json!({"lora_path": "jokes", "load_inplace": true})).good();
    assert_eq!(running(), 1.0, "the first was still being made");
    let second = begin(&serving, "law", TOKENS);
    load(&serving, "law", json!({"load_inplace": true, "scale": 0.0})).good();
    let third = begin(&serving, "law", TOKENS);
    let base = begin(&serving, "tiny", TOKENS);
    assert!(running() >= 2.0);
    let whole_law = law.clone();
    assert_eq!((rest(first), rest(second)), (law, jokes));
    assert_eq!(rest(third), rest(base), "a scale of 0 is the model itself");
    // One that a request made weaker is taken away while the answer is made.
    let weak = json!({"lora": [{"id": 0, "scale": 0.5}]});
    load(&serving, "law", json!({"load_inplace": true})).good();
    let (weaker, mixed) = (begin_with(&serving, "tiny", TOKENS, weak.clone()), begin(&serving, "law", TOKENS));
    unload(&serving, "law").good();
    let answer = with(&json!({"prompt": "t5"}), weak.clone());
    assert_eq!(serving.post("/v1/completions", &answer).refused(400)["param"], "lora[0].id");
    assert_eq!(running(), 2.0, "they were still being made");
    let half = {
        let (folder, path) = (tiny(changes.clone()), shelf.path().join("law"));
        let base = folder.path().to_owned();
        let loader: Loader = Box::new(move || {
            let mut parts = parts(&base, Some(100_000 * BYTES_PER_TOKEN));
            let adapter = Adapter::open(&path, &parts.loaded.source).expect("an adapter");
            parts.loaded.model = adapter.attach(&parts.loaded.model, 0.5).expect("fits");
            Ok(parts)
        });
        rest(begin(&Setup { folder: Some(folder), ..Setup::new(vec![("tiny", loader)]) }.ready(), "tiny", TOKENS))
    };
    assert_eq!((rest(weaker), rest(mixed)), (half, whole_law));
    load(&serving, "law", json!({})).good();
    // Many come and go; what was kept for them goes too.
    serving.until_idle();
    unload(&serving, "law").good();
    let kept = serving.figure("prefix_bytes");
    for _ in 0..20 {
        load(&serving, "code", json!({})).good();
        serving.post("/v1/completions", &json!({"model": "code", "prompt": vec![5; 200], "max_tokens": 2})).good();
        unload(&serving, "code").good();
    }
    assert_eq!(serving.get("/v1/models").good()["data"].as_array().map(Vec::len), Some(1));
    assert!(!serving.get("/metrics").body.contains("adapter=\""), "no label is left");
    serving.post("/v1/completions", &json!({"prompt": "t5", "max_tokens": 2})).good();
    serving.until_idle();
    assert!(serving.figure("prefix_bytes") <= kept);
}

/// LOR-01, LOR-04, A19: what is no adapter of the model is refused by name, and everybody else is answered as before.
#[test]
fn what_is_no_adapter_is_refused_by_name() {
    let shelf = shelf();
    let mut setup = tiny_setup(json!({}), None);
    setup.adapter_folder = Some(shelf.path().to_owned());
    let serving = setup.ready();
    load(&serving, "law", json!({})).good();
    let ask = |name: &str| {
        let body = json!({"model": name, "prompt": "t5 t6 t7", "max_tokens": 12, "logprobs": 1});
        serving.post("/v1/completions", &body).good()["choices"].clone()
    };
    let before = (ask("tiny"), ask("law"));
    let config = |changes: Value| with(&adapter::config(4), changes);
    let plain = || adapter::tensors(4, 9);
    let changed = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut tensors = plain();
        change(&mut tensors);
        adapter::files(&config(json!({})), &tensors)
    };
    let tensor =
        |name: &str, shape: &[usize]| Tensor::new(name, "F32", shape, Random::new(1).weights(shape.iter().product()));
    let query = |part: &str| format!("{}.0.self_attn.q_proj.lora_{part}.weight", adapter::ROOT);
    let cases: Vec<(&str, Files, &str)> = vec![
        ("rank-0", adapter::files(&config(json!({"r": 0})), &plain()), "`r`"),
        ("rank-5", adapter::files(&config(json!({"r": 5})), &plain()), "lora_A"),
        ("rank-huge", adapter::files(&config(json!({"r": 1_000_000_000_000_u64})), &plain()), "lora_A"),
        ("rank-negative", adapter::files(&config(json!({"r": -4})), &plain()), "`r`"),
        ("alpha-text", adapter::files(&config(json!({"lora_alpha": "x"})), &plain()), "lora_alpha"),
        ("uneven", changed(&|t| t[1] = tensor(&query("B"), &[32, 5])), "q_proj.lora_B"),
        ("wide", changed(&|t| t[0] = tensor(&query("A"), &[4, 33])), "q_proj.lora_A"),
        ("half", changed(&|t| drop(t.remove(1))), "lora_B is missing"),
        (
            "unknown",
            changed(&|t| t.push(tensor("base_model.model.model.layers.0.z_proj.lora_A.weight", &[4, 32]))),
            "z_proj",
        ),
        ("deep", changed(&|t| t[0].name = query("A").replace(".0.", ".99.")), "lora"),
        ("nan", changed(&|t| t[0].data = f32::NAN.to_le_bytes().repeat(128)), "NaN"),
        ("integers", changed(&|t| t[0].dtype = "I32"), "q_proj.lora_A"),
        (
            "missing-target",
            adapter::files(&config(json!({"target_modules": ["k_proj", "q_proj", "v_proj"]})), &plain()),
            "k_proj",
        ),
        ("dora", adapter::files(&config(json!({"use_dora": true})), &plain()), "use_dora"),
        ("other-kind", adapter::files(&config(json!({"peft_type": "IA3"})), &plain()), "peft_type"),
        ("no-config", plain_files(&[("adapter_model.safetensors", b"")]), "adapter_config.json"),
        (
            "no-weights",
            plain_files(&[("adapter_config.json", config(json!({})).to_string().as_bytes())]),
            "adapter_model",
        ),
        (
            "no-json",
            plain_files(&[("adapter_config.json", b"{\"r\": "), ("adapter_model.safetensors", b"")]),
            "adapter_config.json",
        ),
        (
            "cut",
            {
                let mut files = adapter::folder(4, 9);
                files[1].1.truncate(900);
                files
            },
            "adapter_model.safetensors",
        ),
    ];
    for (name, files, named) in cases {
        put(shelf.path(), name, &files);
        let refused = load(&serving, name, json!({})).refused(400);
        let message = refused["message"].as_str().expect("words");
        assert!(message.contains(named), "{name}: {message}");
        assert!(!message.contains(shelf.path().to_str().expect("text")), "the folder is nobody's business: {message}");
        assert_eq!((&refused["param"], &refused["code"]), (&json!("lora_path"), &json!("invalid_adapter")), "{name}");
        assert_eq!(serving.get(&format!("/v1/models/{name}")).status, 404);
    }
    // Values that are assumed are told.
    put(shelf.path(), "assumed", &adapter::files(&config(json!({"lora_alpha": null})), &plain()));
    let notices = load(&serving, "assumed", json!({})).good()["notices"].clone();
    assert!(notices[0].as_str().is_some_and(|text| text.contains("lora_alpha")), "{notices}");
    assert_eq!((ask("tiny"), ask("law")), before);
    assert_eq!(serving.get("/health").status, 200);
}

fn plain_files(files: &[(&str, &[u8])]) -> Files {
    files.iter().map(|(name, bytes)| ((*name).into(), bytes.to_vec())).collect()
}

/// What names no folder of the shelf, and what names nothing that may be named.
#[test]
fn paths_and_names_are_held_to_what_is_allowed() {
    let outer = tempfile::tempdir().expect("a folder");
    let shelf = outer.path().join("shelf");
    put(&shelf, "law", &adapter::folder(4, 1));
    put(outer.path(), "secret", &adapter::folder(4, 2));
    let mut setup = tiny_setup(json!({}), None);
    setup.adapter_folder = Some(shelf.clone());
    setup.limits.adapters = 2;
    let serving = setup.ready();
    let secret = outer.path().join("secret");
    let secret = secret.to_str().expect("text");
    for path in ["../secret", "law/../../secret", secret, "/etc", "..", ".", "/"] {
        let refused = load(&serving, "x", json!({"lora_path": path})).refused(400);
        assert_eq!(refused["param"], "lora_path", "{path}");
    }
    for path in ["none", "law/adapter_config.json", "law/none"] {
        assert_eq!(
            load(&serving, "x", json!({"lora_path": path})).refused(404)["code"],
            "adapter_not_found",
            "{path:?}"
        );
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(secret, shelf.join("out")).expect("linked");
        assert_eq!(load(&serving, "x", json!({"lora_path": "out"})).refused(404)["code"], "adapter_not_found");
        put(&shelf, "mixed", &vec![("adapter_config.json".into(), adapter::config(4).to_string().into_bytes())]);
        let weights = Path::new(secret).join("adapter_model.safetensors");
        std::os::unix::fs::symlink(weights, shelf.join("mixed/adapter_model.safetensors")).expect("linked");
        let refused = load(&serving, "x", json!({"lora_path": "mixed"})).refused(400);
        assert!(refused["message"].as_str().expect("words").contains("adapter_model.safetensors"), "{refused}");
    }
    for name in ["", " ", "a\nb", &"x".repeat(300)] {
        assert_eq!(load(&serving, name, json!({"lora_path": "law"})).refused(400)["param"], "lora_name", "{name:?}");
    }
    assert_eq!(load(&serving, "tiny", json!({"lora_path": "law"})).refused(400)["code"], "name_taken");
    assert_eq!(
        load(&serving, "tiny", json!({"lora_path": "law", "load_inplace": true})).refused(400)["code"],
        "name_taken"
    );
    load(&serving, "a", json!({"lora_path": "law"})).good();
    load(&serving, "b", json!({"lora_path": shelf.join("law"), "model": "tiny"})).good();
    assert_eq!(load(&serving, "c", json!({"lora_path": "law"})).refused(400)["code"], "too_many_adapters");
    assert_eq!(load(&serving, "c", json!({"lora_path": "law", "model": "a"})).refused(400)["param"], "model");
    assert_eq!(load(&serving, "c", json!({"lora_path": "law", "model": "none"})).refused(404)["param"], "model");
    assert_eq!(unload(&serving, "tiny").refused(404)["code"], "model_not_found");
    assert_eq!(serving.get("/v1/models").good()["data"].as_array().map(Vec::len), Some(3));
}

#[test]
fn loading_is_off_unless_it_is_allowed() {
    let shelf = shelf();
    let mut setup = tiny_setup(json!({}), None);
    setup.adapters = vec![at(shelf.path(), "law")];
    let serving = setup.ready();
    assert_eq!(load(&serving, "jokes", json!({})).refused(403)["code"], "adapter_loading_off");
    assert_eq!(unload(&serving, "law").refused(403)["code"], "adapter_loading_off");
    serving.get("/v1/models/law").good();
    // With it on, it takes a key as everything does.
    let mut setup = tiny_setup(json!({}), None);
    (setup.adapter_folder, setup.keys) = (Some(shelf.path().to_owned()), Keys::parse("key").expect("a key"));
    let serving = setup.start();
    let body = json!({"lora_name": "law", "lora_path": "law"}).to_string();
    let ask = |headers: &[(&str, &str)]| {
        send(serving.address, &request("POST", "/v1/load_lora_adapter", headers, body.as_bytes()))
    };
    ask(&[]).refused(401);
    serving.until("loaded", || ask(&[("x-api-key", "key")]).status == 200);
}

/// A server does not start with an adapter that cannot be loaded, and says which.
#[test]
fn an_adapter_that_cannot_be_loaded_is_said_at_the_start() {
    let (shelf, folder) = (shelf(), tiny(json!({})));
    put(shelf.path(), "wrong", &adapter::files(&adapter::config(7), &adapter::tensors(4, 1)));
    let mut setup = Setup::new(vec![("tiny", loader(folder.path(), None))]);
    setup.adapters = vec![at(shelf.path(), "law"), at(shelf.path(), "wrong")];
    let error = setup.start().ended().expect_err("an error");
    assert!(error.contains("\"wrong\"") && error.contains("lora_A"), "{error}");
}
