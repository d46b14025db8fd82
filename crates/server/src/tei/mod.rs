//! The dialect of Text Embeddings Inference, which has one model a server; with several a request may name one.

use crate::failure::Failure;
use crate::fields::{Fields, wrong};
use crate::front::routes::{Addressed, Asked};
use crate::host::ask::{Embed, Input};
use crate::openai::params::{self, Text};
use crate::tasks::classify::{self, Pair};
use crate::tasks::{rerank, written};
use attend_engine::tasks::Labelled;
use attend_engine::tasks::classify::Function;
use attend_engine::tasks::embed::Embedding;
use attend_engine::tasks::similarity::Similarity;
use attend_text::{EncodeOptions, Tokenizer};
use axum::body::Body;
use axum::http::Response;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn inputs(request: &mut Addressed) -> Result<Vec<Input>, Failure> {
    let input = |text| match text {
        Text::Words(text) => Input::Text(text),
        Text::Tokens(ids) => Input::Tokens(ids),
    };
    Ok(params::texts(&mut request.fields, "inputs", request.limits.inputs)?.into_iter().map(input).collect())
}

fn read_tokens(request: &Addressed, found: &[Embedding]) {
    request.record.prompt_tokens.store(found.iter().map(|found| found.tokens).sum(), Ordering::Relaxed);
}

/// What requests for vectors share.
fn settings(fields: &mut Fields, embed: &mut Embed) -> Result<(), Failure> {
    embed.truncate = fields.flag("truncate")?.unwrap_or(false);
    embed.prompt_name = fields.text("prompt_name")?;
    match fields.text("truncation_direction")?.as_deref() {
        None | Some("Right" | "right") => Ok(()),
        Some(_) => Err(Failure::field("truncation_direction", "texts are cut at their right end only")),
    }
}

/// `/embed`: a list of vectors.
///
/// # Errors
/// Requests and inputs that cannot be served.
pub async fn embed(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let mut embed = Embed::new(inputs(&mut request)?);
    settings(&mut request.fields, &mut embed)?;
    embed.normalize = Some(request.fields.flag("normalize")?.unwrap_or(true));
    embed.dimensions = request.fields.count("dimensions", 1, usize::MAX)?;
    request.end()?;
    let found = request.model.embed(embed).await?;
    read_tokens(&request, &found);
    written(&found.iter().map(|found| &found.values).collect::<Vec<_>>())
}

/// `/similarity`: how like a sentence others are.
///
/// # Errors
/// Requests and inputs that cannot be served.
pub async fn similarity(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let mut inputs = request.fields.object("inputs")?.ok_or_else(|| request.fields.missing("inputs"))?;
    let source = inputs.required_text("source_sentence")?;
    let sentences = inputs.texts("sentences", request.limits.inputs)?.ok_or_else(|| inputs.missing("sentences"))?;
    inputs.end()?;
    if sentences.is_empty() {
        return Err(Failure::field("inputs.sentences", "inputs.sentences is an empty list"));
    }
    let mut embed = Embed::new(std::iter::once(source).chain(sentences).map(Input::Text).collect());
    if let Some(mut parameters) = request.fields.object("parameters")? {
        settings(&mut parameters, &mut embed)?;
        parameters.end()?;
    }
    request.end()?;
    let found = request.model.embed(embed).await?;
    read_tokens(&request, &found);
    let scores: Vec<f32> = match found.split_first() {
        Some((source, others)) => others.iter().map(|one| Similarity::Cosine.of(&source.values, &one.values)).collect(),
        None => Vec::new(),
    };
    written(&scores)
}

/// `/predict`: the labels of a text or a pair, or of each of a list.
///
/// # Errors
/// Requests and inputs that cannot be served.
pub async fn predict(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let (pairs, several) = pairs(&mut request)?;
    let raw = request.fields.flag("raw_scores")?.unwrap_or(false);
    let truncate = request.fields.flag("truncate")?.unwrap_or(false);
    request.fields.ignore(&["truncation_direction"]);
    request.end()?;
    let function = raw.then_some(Function::None);
    let found = classify::classes(&request.model, pairs, (usize::MAX, function), truncate).await?;
    request.record.prompt_tokens.store(found.iter().map(|found| found.tokens).sum(), Ordering::Relaxed);
    let lists: Vec<Vec<Labelled>> = found.into_iter().map(|found| found.labels).collect();
    match (several, lists.first()) {
        (false, Some(first)) => written(first),
        _ => written(&lists),
    }
}

/// `inputs`: a text, a pair (a list of two texts), or a list of lists of one text or two.
fn pairs(request: &mut Addressed) -> Result<(Vec<Pair>, bool), Failure> {
    let list = match request.fields.take("inputs") {
        None => return Err(request.fields.missing("inputs")),
        Some(Value::String(text)) => return Ok((vec![(text, None)], false)),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("inputs", "a string or a list", &other)),
    };
    let pair = |value: &Value, place: &str| -> Result<Pair, Failure> {
        let texts: Option<Vec<&str>> =
            value.as_array().map_or(Some(Vec::new()), |l| l.iter().map(Value::as_str).collect());
        match texts.as_deref() {
            Some([one]) => Ok(((*one).into(), None)),
            Some([first, second]) => Ok(((*first).into(), Some((*second).into()))),
            _ => Err(wrong(place, "a list of one text or two", value)),
        }
    };
    if list.first().is_none_or(Value::is_string) {
        return Ok((vec![pair(&Value::Array(list), "inputs")?], false));
    }
    if list.len() > request.limits.inputs {
        let message = format!("inputs has {} items; at most {} are taken", list.len(), request.limits.inputs);
        return Err(Failure::field("inputs", message));
    }
    let read = list.iter().enumerate().map(|(index, value)| pair(value, &format!("inputs[{index}]")));
    Ok((read.collect::<Result<Vec<Pair>, Failure>>()?, true))
}

#[derive(Serialize)]
struct Rank {
    index: usize,
    score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// `/rerank`: texts in the order in which they answer a query.
///
/// # Errors
/// Requests and inputs that cannot be served.
pub async fn rank(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let query = request.fields.required_text("query")?;
    let most = request.limits.documents;
    let texts = request.fields.texts("texts", most)?.ok_or_else(|| request.fields.missing("texts"))?;
    let raw = request.fields.flag("raw_scores")?.unwrap_or(false);
    let shown = request.fields.flag("return_text")?.unwrap_or(false);
    let truncate = request.fields.flag("truncate")?.unwrap_or(false);
    request.fields.ignore(&["truncation_direction"]);
    request.end()?;
    let kept = if shown { texts.clone() } else { Vec::new() };
    let (ranked, tokens) = rerank::rank(&request.model, (query, texts), raw, truncate).await?;
    request.record.prompt_tokens.store(tokens, Ordering::Relaxed);
    let one = |ranked: attend_engine::tasks::rerank::Ranked| Rank {
        index: ranked.index,
        score: ranked.score,
        text: kept.get(ranked.index).cloned(),
    };
    written(&ranked.into_iter().map(one).collect::<Vec<Rank>>())
}

/// `/tokenize`: the tokens of each text.
///
/// # Errors
/// Requests and inputs that cannot be served.
pub async fn tokenize(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let texts =
        request.fields.texts("inputs", request.limits.inputs)?.ok_or_else(|| request.fields.missing("inputs"))?;
    let add_special = request.fields.flag("add_special_tokens")?.unwrap_or(true);
    request.end()?;
    let tokenizer = Arc::clone(&request.model.facts()?.tokenizer);
    let work = tokio::task::spawn_blocking(move || {
        let options = EncodeOptions { add_special, parse_special: false };
        texts.iter().map(|text| tokens(&tokenizer, text, options)).collect::<Result<Vec<Value>, Failure>>()
    });
    written(&work.await.unwrap_or_else(|_| Err(Failure::fault("tokenizing panicked")))?)
}

fn tokens(tokenizer: &Tokenizer, text: &str, options: EncodeOptions) -> Result<Value, Failure> {
    let encoding = tokenizer.encode(text, options).map_err(attend_engine::Error::from)?;
    let one = |(index, &id): (usize, &u32)| {
        let special = encoding.special.get(index).is_some_and(Option::is_some);
        let place = encoding.offsets.get(index).filter(|_| !special);
        json!({
            "id": id,
            "text": encoding.pieces.get(index),
            "special": special,
            "start": place.map(|place| place.0),
            "stop": place.map(|place| place.1),
        })
    };
    Ok(encoding.ids.iter().enumerate().map(one).collect())
}

/// `/decode`: the texts of token ids.
///
/// # Errors
/// Requests that cannot be served.
pub async fn decode(asked: Asked) -> Result<Response<Body>, Failure> {
    let mut request = asked.of_model().await?;
    let lists = params::texts(&mut request.fields, "ids", request.limits.inputs)?;
    let skip = request.fields.flag("skip_special_tokens")?.unwrap_or(true);
    request.end()?;
    let tokenizer = &request.model.facts()?.tokenizer;
    let text = |list| match list {
        Text::Tokens(ids) => Ok(tokenizer.decode(&ids, skip)),
        Text::Words(_) => Err(Failure::field("ids", "ids is a list of token ids, or a list of such lists")),
    };
    written(&lists.into_iter().map(text).collect::<Result<Vec<String>, Failure>>()?)
}
