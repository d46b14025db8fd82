//! What a description leaves out.

use super::value::{At, Problem, camel, named, piece, variant};
use attend_nn::spec::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Where an attention or a stack stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Encoder,
    Decoder,
    Cross,
}

/// The fields of `usual` with those of the file over them.
pub(super) fn over(usual: &impl Serialize, at: &At<'_>, given: Map<String, Value>) -> Result<Value, Problem> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(usual) else { return Err(at.wrong("a table is wanted")) };
    fields.extend(given);
    Ok(Value::Object(fields))
}

pub(super) fn table(at: &At<'_>) -> Result<Map<String, Value>, Problem> {
    at.value.as_object().cloned().ok_or_else(|| at.wrong("a table is wanted"))
}

/// A variant whose fields have `usual` values where the file is silent: `rope` alone is `{ rope = {} }`.
pub(super) fn with_usual(at: &At<'_>, usual: &[(&str, Value)]) -> Result<Value, Problem> {
    let (name, inner) = named(at)?;
    let Some((_, usual)) = usual.iter().find(|(variant, _)| *variant == name) else { return variant(at) };
    let mut fields = usual.as_object().cloned().unwrap_or_default();
    if let Some(inner) = inner {
        fields.extend(table(&inner)?);
    }
    // Names of variants inside a variant.
    for key in ["activation", "pairing", "slopes", "layout"] {
        if let Some(Value::String(name)) = fields.get_mut(key) {
            *name = camel(name);
        }
    }
    Ok(Value::Object(Map::from_iter([(name, Value::Object(fields))])))
}

pub(super) fn norm(at: &At<'_>) -> Result<Norm, Problem> {
    let usual =
        [("Rms", json!({"eps": 1e-5})), ("Layer", json!({"eps": 1e-5, "bias": true})), ("Plain", json!({"eps": 1e-5}))];
    piece(at.clone(), with_usual(at, &usual)?)
}

/// T5's buckets, unless said otherwise.
pub(super) fn relative_bias(at: &At<'_>) -> Result<RelativeBias, Problem> {
    let mut fields = json!({"buckets": 32, "max_distance": 128, "bidirectional": true});
    if let Some(fields) = fields.as_object_mut() {
        fields.extend(table(at)?);
    }
    piece(at.clone(), fields)
}

pub(super) fn relative_rows(at: &At<'_>) -> Result<RelativeRows, Problem> {
    let mut fields = table(at)?;
    if let Some(found) = at.get("norm") {
        fields.insert("norm".into(), json!(norm(&found)?));
    }
    piece(at.clone(), Value::Object(fields))
}

pub(super) fn conv(at: &At<'_>) -> Result<Conv, Problem> {
    let mut fields = table(at)?;
    fields.insert("norm".into(), json!(norm(&at.need("norm")?)?));
    fields.insert("activation".into(), variant(&at.need("activation")?)?);
    fields.entry("groups").or_insert(json!(1));
    piece(at.clone(), Value::Object(fields))
}

pub(super) fn embed(at: &At<'_>, width: usize) -> Result<Embed, Problem> {
    let usual = Embed {
        projection: match at.get("width") {
            Some(own) if own.value.as_u64() != Some(width as u64) => {
                Some(Projection { bias: true, place: ProjectionPlace::AfterNorm })
            }
            Some(_) | None => None,
        },
        ..Embed::plain(at.count("vocab")?, width)
    };
    let mut given = table(at)?;
    if let Some(norm_at) = at.get("norm") {
        given.insert("norm".into(), json!(norm(&norm_at)?));
    }
    if let Some(positions) = at.get("positions") {
        let usual = [("Learned", json!({"offset": 0})), ("Sinusoidal", json!({"layout": "Interleaved", "offset": 0}))];
        given.insert("positions".into(), with_usual(&positions, &usual)?);
    }
    if let Some(found) = at.get("table") {
        given.insert("table".into(), variant(&found)?);
    }
    piece(at.clone(), over(&usual, at, given)?)
}

pub(super) fn attention(at: &At<'_>, width: usize, role: Role) -> Result<Attention, Problem> {
    let mut given = table(at)?;
    let heads = at.count("heads")?;
    let optional = |key: &str| at.get(key).map(|_| at.count(key)).transpose();
    let head_dim = optional("head_dim")?;
    given.remove("head_dim");
    let latent = at.get("latent").map(|found| latent(&found)).transpose()?;
    if let Some(latent) = &latent {
        given.insert("latent".into(), json!(latent));
    }
    let key_dim = match optional("key_dim")?.or(head_dim) {
        Some(dim) => dim,
        // What the core sees of a latent: itself, and the rotated key beside it.
        None if latent.is_some() => latent.map_or(0, |latent| latent.rank.saturating_add(latent.rope_dim)),
        None if width.is_multiple_of(heads) => width / heads,
        None => return Err(at.wrong(format!("{heads} heads do not divide the width, {width}: `head_dim` is wanted"))),
    };
    let bias = match given.remove("bias") {
        None => false,
        Some(Value::Bool(bias)) => bias,
        Some(other) => return Err(at.wrong(format!("`bias` is true or false, found {}", super::value::shown(&other)))),
    };
    if let Some(Value::Bool(all)) = given.get("qkv_bias") {
        let all = json!(QkvBias::all(*all));
        given.insert("qkv_bias".into(), all);
    }
    if let Some(found) = at.get("position") {
        given.insert("position".into(), position(&found, latent.map_or(key_dim, |latent| latent.rope_dim))?);
    }
    if let Some(found) = at.get("mask") {
        let usual = [("Window", json!({"right": 0}))];
        given.insert("mask".into(), with_usual(&found, &usual)?);
    }
    if let Some(found) = at.get("qk_norm") {
        given.insert("qk_norm".into(), qk_norm(&found)?);
    }
    let usual = Attention {
        value_dim: latent.map_or(head_dim.unwrap_or(key_dim), |latent| latent.rank),
        qkv_bias: QkvBias::all(bias),
        out_bias: bias,
        mask: match role {
            Role::Decoder => Mask::Causal,
            Role::Encoder | Role::Cross => Mask::Full,
        },
        scale: (latent.map_or(key_dim, |latent| latent.key_dim.saturating_add(latent.rope_dim)) as f32).powf(-0.5),
        ..Attention::plain(heads, if latent.is_some() { 1 } else { heads }, key_dim)
    };
    piece(at.clone(), over(&usual, at, given)?)
}

fn latent(at: &At<'_>) -> Result<Latent, Problem> {
    let mut fields = table(at)?;
    fields.insert("norm".into(), json!(norm(&at.need("norm")?)?));
    piece(at.clone(), Value::Object(fields))
}

fn position(at: &At<'_>, key_dim: usize) -> Result<Value, Problem> {
    let (name, inner) = named(at)?;
    if name == "RelativeBias" {
        let inner = inner.ok_or_else(|| at.wrong("a table `relative_bias` is wanted"))?;
        return Ok(json!({"RelativeBias": relative_bias(&inner)?}));
    }
    let rope = json!({"base": 10000.0, "dim": key_dim, "pairing": "Halves", "scaling": "None"});
    let alibi = json!({"slopes": "LowerFirst", "max_bias": 8.0, "rounded": false, "scaled": false});
    let distances = json!({"max_distance": null, "position_key": null, "position_query": null});
    let mut completed = with_usual(at, &[("Rope", rope), ("Alibi", alibi), ("Disentangled", distances)])?;
    if let (Some(inner), Some(fields)) = (&inner, completed.get_mut("Disentangled").and_then(Value::as_object_mut)) {
        for key in ["position_key", "position_query"] {
            if let Some(projection) = inner.get(key) {
                fields.insert(key.into(), variant(&projection)?);
            }
        }
    }
    if let (Some(inner), Some(fields)) = (inner, completed.get_mut("Rope").and_then(Value::as_object_mut))
        && let Some(scaling) = inner.get("scaling")
    {
        fields.insert("scaling".into(), variant(&scaling)?);
    }
    Ok(completed)
}

fn qk_norm(at: &At<'_>) -> Result<Value, Problem> {
    at.only(&["norm", "scope"])?;
    let scope = at.get("scope").map(|scope| variant(&scope)).transpose()?;
    Ok(json!({"norm": norm(&at.need("norm")?)?, "scope": scope.unwrap_or_else(|| "Head".into())}))
}

pub(super) fn pooler(at: &At<'_>) -> Result<Pooler, Problem> {
    at.only(&["activation"])?;
    piece(at.clone(), json!({"activation": variant(&at.need("activation")?)?}))
}

pub(super) fn head(at: &At<'_>, vocab: usize) -> Result<Head, Problem> {
    let lm = json!({"vocab": vocab, "tied": false, "bias": false, "transform": null, "scale": 1.0, "soft_cap": null});
    let usual = [
        ("Lm", lm),
        ("Sequence", json!({"bias": false, "transform": null})),
        ("Token", json!({"bias": true, "transform": null})),
        ("Span", json!({"bias": true, "transform": null})),
    ];
    let mut completed = with_usual(at, &usual)?;
    let (name, inner) = named(at)?;
    let fields = completed.get_mut(&name).and_then(Value::as_object_mut);
    if let (Some(inner), Some(fields)) = (inner, fields) {
        if let Some(found) = inner.get("transform") {
            fields.insert("transform".into(), json!(transform(&found)?));
        }
        if let Some(found) = inner.get("source") {
            fields.insert("source".into(), variant(&found)?);
        }
    }
    piece(at.clone(), completed)
}

fn transform(at: &At<'_>) -> Result<Transform, Problem> {
    at.only(&["activation", "norm", "bias"])?;
    let activation = variant(&at.need("activation")?)?;
    let norm = at.get("norm").map(|found| norm(&found)).transpose()?;
    let bias = at.get("bias").map_or(json!(true), |bias| bias.value.clone());
    piece(at.clone(), json!({"activation": activation, "norm": norm, "bias": bias}))
}
