//! `/openapi.json` says what the routes take: none is missing from it, and each field is known where it says so.

use crate::support::{Setup, golden, loader, tiny};
use attend_server::front::openapi::{Holds, ROUTES};
use serde_json::{Map, Value, json};

/// A value that the field may have.
fn right(name: &str, holds: Holds) -> Value {
    match (name, holds) {
        ("model", _) => json!("tiny"),
        ("messages", _) => json!([{"role": "user", "content": "t5"}]),
        ("documents" | "texts" | "labels", _) => json!(["t5"]),
        ("ids", _) => json!([5]),
        ("inputs", Holds::Object) => json!({"source_sentence": "t5", "sentences": ["t6"]}),
        (_, Holds::Count(low, _)) => json!(low.max(1)),
        _ => json!("t5"),
    }
}

/// A value of another type.
fn wrong(holds: Holds) -> Value {
    match holds {
        Holds::Object | Holds::List => json!("x"),
        Holds::Format => json!([1]),
        Holds::Text | Holds::Texts | Holds::Prompt | Holds::Content | Holds::Choice | Holds::Think => json!(7.5),
        Holds::Flag | Holds::Count(..) | Holds::Number(..) | Holds::Time => json!({"x": 1}),
    }
}

#[test]
fn every_field_is_known_to_its_route() {
    let (writer, reader) = (tiny(json!({})), golden("bert-base", json!({})));
    let models = vec![("tiny", loader(writer.path(), None)), ("encoder", loader(reader.path(), None))];
    let serving = Setup::new(models).ready();
    let document = serving.get("/openapi.json").good();
    for (path, _, must, may) in ROUTES {
        let described = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        let fields: Vec<_> = must.iter().chain(may.iter().copied().flatten()).collect();
        assert_eq!(described["properties"].as_object().map(Map::len), Some(fields.len()), "{path}");
        let whole: Map<String, Value> =
            must.iter().map(|(name, holds)| ((*name).into(), right(name, *holds))).collect();
        for (name, holds) in &fields {
            let mut body = whole.clone();
            body.insert((*name).into(), wrong(*holds));
            // What needs another field to mean something is given it.
            if *name == "stream_options" {
                body.insert("stream".into(), json!(true));
            }
            let answer = serving.post(path, &Value::Object(body));
            assert_eq!(answer.status, 400, "{path} {name}: {answer:?}");
            assert!(answer.body.contains(name), "{path} {name} is named: {answer:?}");
            assert!(!answer.body.contains("is no field of this request"), "{path} {name} is known: {answer:?}");
        }
        for (name, _) in *must {
            let mut body = whole.clone();
            body.remove(*name);
            let answer = serving.post(path, &Value::Object(body));
            let known = [200, 400].contains(&answer.status);
            assert!(
                known && (answer.status == 400) == (*name != "model" || answer.body.contains("model")),
                "{path} {name}"
            );
        }
    }
    for path in document["paths"].as_object().expect("paths").keys() {
        let answer = serving.get(&path.replace("{name}", "tiny"));
        assert!([200, 405].contains(&answer.status), "{path}: {answer:?}");
    }
    serving.until_idle();
}
