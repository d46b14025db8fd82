//! llama-server's `lora`, how strong each adapter of a model is for one request, and `/lora-adapters`, which says their numbers
//! and how strong they are for requests that do not say it.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::front::app::{App, Entry};
use crate::front::reply;
use crate::front::routes::Asked;
use crate::host::Model;
use crate::host::adapter::Scaled;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// How much stronger than itself an adapter may be made, and the other way about.
pub const STRONGEST: f64 = 100.0;

/// The model that `?model=` names, or the first.
fn addressed(asked: &Asked) -> Result<Arc<Entry>, Failure> {
    let query = asked.parts.uri.query().unwrap_or_default();
    let name = query.split('&').find_map(|pair| pair.strip_prefix("model=")).map(reply::percent_decoded);
    let entry = asked.app.entry(name.as_deref())?;
    match entry.adapter {
        None => Ok(entry),
        Some(_) => Err(Failure::field("model", format!("{:?} is an adapter itself; name its model", entry.name))),
    }
}

/// The adapters of the model that `?model=` names, or of the first.
///
/// # Errors
/// A name that no model has.
pub async fn list(asked: Asked) -> Result<Response<Body>, Failure> {
    let base = addressed(&asked)?;
    let adapters = asked.app.adapters_of(&base.name);
    let one = |(id, (entry, scale)): (usize, &(Arc<Entry>, f64))| json!({"id": id, "path": entry.name, "scale": scale});
    let adapters: Vec<Value> = adapters.iter().enumerate().map(one).collect();
    Ok(reply::json(StatusCode::OK, &json!(adapters)))
}

/// Says how strong they are from now on where a request does not say it. It changes what others are answered, and is
/// taken where there are no others, or where requests may bring adapters and take them away.
///
/// # Errors
/// Requests that may not, and as [`take`].
pub async fn set(asked: Asked) -> Result<Response<Body>, Failure> {
    let base = addressed(&asked)?;
    let alone = asked.app.loopback && asked.app.keys.is_empty();
    if !alone && asked.app.adapters.is_none() {
        let message = "scales of adapters are not set here while the server runs; others ask it too, and it was started without \
                       --allow-adapter-loading";
        return Err(Failure::new(StatusCode::FORBIDDEN, message).code("adapter_loading_off"));
    }
    let (app, list) = asked.items().await?;
    if list.len() > app.limits.adapters {
        return Err(Failure::bad(format!("there are {} items; at most {} are taken", list.len(), app.limits.adapters)));
    }
    app.set_scales(&base.name, |known| {
        let scales = scales(list, "", (&base.name, known))?;
        Ok::<_, Failure>(scales.into_iter().map(Option::unwrap_or_default).collect())
    })?;
    let adapters = app.adapters_of(&base.name).into_iter();
    let told: serde_json::Map<String, Value> = adapters.map(|(own, scale)| (own.name.clone(), scale.into())).collect();
    app.log.say("info", "adapter scales", json!({"model": base.name, "scales": told}));
    Ok(reply::json(StatusCode::OK, &json!({"success": true})))
}

/// The model as requests have it that do not say how strong its adapters are.
///
/// # Errors
/// An adapter that has gone meanwhile.
pub fn usual(app: &App, model: Arc<Model>) -> Result<Arc<Model>, Failure> {
    if model.adapter.is_some() {
        return Ok(model);
    }
    let mut own = app.adapters_of(&model.name);
    own.retain(|(_, scale)| *scale != 0.0);
    if own.is_empty() { Ok(model) } else { scaled(own, model) }
}

/// Takes `lora`: the model as the request wants it.
///
/// # Errors
/// Numbers that no adapter has or that stand there twice, scales out of range, and a model that is an adapter itself.
pub fn take(fields: &mut Fields, app: &App, model: Arc<Model>) -> Result<Arc<Model>, Failure> {
    let Some(list) = fields.list("lora", app.limits.adapters)? else { return Ok(model) };
    if model.adapter.is_some() {
        let message =
            format!("lora: {:?} is an adapter itself; name its model, and the adapter by its number", model.name);
        return Err(Failure::field("lora", message));
    }
    let known = app.adapters_of(&model.name);
    let scales = scales(list, "lora", (&model.name, known.len()))?;
    let wanted = known.into_iter().zip(scales).filter_map(|((entry, _), scale)| Some((entry, scale?)));
    scaled(wanted.collect(), model)
}

/// The scale of each of so many adapters, of a list of numbers and scales at `place` in a request; None: it says nothing.
fn scales(list: Vec<Value>, place: &str, (base, known): (&str, usize)) -> Result<Vec<Option<f64>>, Failure> {
    let mut scales = vec![None; known];
    for (at, item) in list.into_iter().enumerate() {
        let place = format!("{place}[{at}]");
        let mut item = Fields::within(item, &place)?;
        let id = item.count("id", 0, usize::MAX)?.ok_or_else(|| item.missing("id"))?;
        let scale = item.number("scale", -STRONGEST, STRONGEST)?.ok_or_else(|| item.missing("scale"))?;
        item.end()?;
        let place = format!("{place}.id");
        match scales.get_mut(id) {
            Some(free @ None) => *free = Some(scale),
            Some(Some(_)) => {
                let message = format!("{place} is {id}, which stands in the list before");
                return Err(Failure::field(&place, message));
            }
            None => {
                let wanted = match known {
                    0 => format!("no number, because {base:?} has no adapters,"),
                    _ => format!("a number of the adapters of {base:?}, from 0 to {},", known - 1),
                };
                return Err(wrong(&place, &wanted, &json!(id)));
            }
        }
    }
    Ok(scales)
}

/// The model with these adapters.
fn scaled(wanted: Vec<(Arc<Entry>, f64)>, model: Arc<Model>) -> Result<Arc<Model>, Failure> {
    let one = |(entry, scale): (Arc<Entry>, f64)| {
        let gone = || Failure::field("lora", format!("lora: the adapter {:?} has gone", entry.name));
        let adapter = entry.of(Arc::clone(&model)).and_then(|model| model.adapter.clone()).ok_or_else(gone)?;
        Ok(Scaled { adapter, scale })
    };
    let lora = wanted.into_iter().map(one).collect::<Result<Vec<Scaled>, Failure>>()?;
    Ok(model.with_lora(lora))
}
