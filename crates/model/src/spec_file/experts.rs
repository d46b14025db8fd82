//! Feed-forward parts: dense ones, and mixtures of experts with what they leave out.

use super::defaults::{table, with_usual};
use super::value::{At, Problem, camel, named, piece, variant};
use attend_nn::spec::Ffn;
use serde_json::{Map, Value, json};

pub(super) fn ffn(at: &At<'_>) -> Result<Ffn, Problem> {
    let (name, inner) = named(at)?;
    match (name.as_str(), inner) {
        ("Moe", Some(inner)) => piece(at.clone(), json!({"Moe": mixture(&inner)?})),
        _ => {
            let plain = json!({"bias": false});
            piece(at.clone(), with_usual(at, &[("Mlp", plain.clone()), ("Gated", plain)])?)
        }
    }
}

fn mixture(at: &At<'_>) -> Result<Value, Problem> {
    let mut fields = table(at)?;
    if let Some(activation) = at.get("activation") {
        fields.remove("activation");
        fields.insert("unit".into(), json!({"Product": variant(&activation)?}));
    } else {
        let unit = at.need("unit")?;
        let (name, inner) = named(&unit)?;
        let inner = inner.ok_or_else(|| unit.wrong("a table with the unit's name is wanted"))?;
        let inner = match inner.value {
            Value::String(activation) => json!(camel(activation)),
            other => other.clone(),
        };
        fields.insert("unit".into(), Value::Object(Map::from_iter([(name, inner)])));
    }
    fields.insert("router".into(), router(at)?);
    fields.entry("bias").or_insert(json!(false));
    fields.entry("shared").or_insert(Value::Null);
    if let Some(Value::Object(shared)) = fields.get_mut("shared") {
        shared.entry("gate").or_insert(json!(false));
    }
    Ok(Value::Object(fields))
}

fn router(at: &At<'_>) -> Result<Value, Problem> {
    let scores = json!({"Softmax": {"renormalize": true}});
    let mut fields = Map::new();
    let found = at.get("router");
    if let Some(found) = &found {
        fields = table(found)?;
    }
    let inner = |key: &str| found.as_ref().and_then(|found| found.get(key));
    let scores = match inner("scores") {
        None => scores,
        Some(scores) => {
            let usual = [
                ("Softmax", json!({"renormalize": true})),
                ("Sigmoid", json!({"correction": false, "renormalize": true})),
            ];
            with_usual(&scores, &usual)?
        }
    };
    fields.insert("scores".into(), scores);
    if let Some(groups) = inner("groups") {
        let mut own = table(&groups)?;
        own.insert("rank".into(), groups.get("rank").map_or(Ok(json!("Best")), |rank| variant(&rank))?);
        fields.insert("groups".into(), Value::Object(own));
    }
    for (key, usual) in
        [("bias", json!(false)), ("groups", Value::Null), ("scale", json!(1.0)), ("balance", Value::Null)]
    {
        fields.entry(key).or_insert(usual);
    }
    Ok(Value::Object(fields))
}
