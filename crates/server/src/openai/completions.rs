//! `/v1/completions`: texts that go on.

use super::logprobs::Lists;
use super::params::{self, Params, Text};
use super::{DONE, Usage, event, now, reason};
use crate::failure::Failure;
use crate::fields::Fields;
use crate::front::routes::{Addressed, Asked};
use crate::front::{reply, sse};
use crate::host::ask::{Generate, Piece, Source, Taken};
use crate::lora;
use attend_engine::{Choice, Finish, Output};
use attend_text::Tokenizer;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most tokens of an answer where the request does not say: this interface's default.
const MAX_TOKENS: usize = 16;

/// What a response says of each request.
#[derive(Debug, Clone)]
struct Head {
    id: String,
    created: u64,
    model: String,
    choices: usize,
    /// The text of each prompt, where it is to be shown.
    echo: Option<Vec<String>>,
    logprobs: Option<usize>,
}

/// # Errors
/// Requests that cannot be served.
pub async fn answer(asked: Asked) -> Result<Response<Body>, Failure> {
    let Addressed { model, record, limits, mut fields } = asked.of_model().await?;
    let model = lora::take(&mut fields, record.app(), model)?;
    let prompts = params::texts(&mut fields, "prompt", limits.inputs)?;
    let mut params = params::take(&mut fields, &limits)?;
    let echo = fields.flag("echo")?.unwrap_or(false);
    let logprobs = fields.count("logprobs", 0, limits.top_logprobs)?;
    let max_tokens = fields.count("max_tokens", 0, usize::MAX)?.unwrap_or(MAX_TOKENS);
    let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
    check(&prompts, (echo, max_tokens), suffix.as_deref())?;
    params.set("max_tokens", max_tokens);
    let wanted = params.choices;
    let ranked = best_of(&mut fields, &mut params, limits.choices)?;
    if let Some(count) = logprobs {
        if echo && params.stream {
            return Err(Failure::field("logprobs", "echo with logprobs cannot be streamed"));
        }
        params.set("logprobs", count);
        if echo {
            params.set("prompt_logprobs", count);
        }
    } else if ranked {
        params.set("logprobs", 0);
    }
    let mut params = params::finish(fields, params, &limits)?;
    if ranked && params.given.iter().any(|(name, _)| name == "num_return_sequences") {
        return Err(Failure::field("best_of", "best_of chooses among answers that are drawn; num_beams searches them"));
    }
    let tokenizer = Arc::clone(&model.facts()?.tokenizer);
    if suffix.is_some() {
        params::fill_gap(&mut params.given, &tokenizer)?;
    }
    let shown = |text: &Text| match text {
        Text::Words(text) => text.clone(),
        Text::Tokens(ids) => tokenizer.decode(ids, true),
    };
    let head = Head {
        id: format!("cmpl-{}", record.id),
        created: now(),
        model: model.name.clone(),
        choices: wanted,
        echo: echo.then(|| prompts.iter().map(shown).collect()),
        logprobs,
    };
    let source = |text| match (text, &suffix) {
        (Text::Words(text), None) => Source::Text(text),
        (Text::Words(text), Some(suffix)) => Source::Gap(text, suffix.clone()),
        (Text::Tokens(ids), _) => Source::Tokens(ids),
    };
    let sources = prompts.into_iter().map(source).collect();
    let asker = record.asker(params.salt.as_deref(), params.priority);
    let Params { given, stream, usage, constrained, .. } = params;
    let ask = Generate { sources, writing: None, given, stream, constrained, forced: None, enough: None, asker };
    let from = model.generate(ask)?;
    if stream {
        let format = Stream { head, tokenizer, usage: usage.then(Usage::default), offsets: Default::default() };
        return sse::respond(from, format, record, model).await;
    }
    let collected = sse::collect(from, &record, &model).await?;
    let mut outputs: Vec<Output> = collected.into_iter().map(|(_, output)| output).collect();
    if ranked {
        outputs.iter_mut().for_each(|output| keep_best(&mut output.choices, wanted));
    }
    Ok(reply::json(StatusCode::OK, &whole(&head, &tokenizer, &outputs)))
}

/// What means nothing together.
fn check(prompts: &[Text], (echo, max_tokens): (bool, usize), suffix: Option<&str>) -> Result<(), Failure> {
    if max_tokens == 0 && !echo {
        return Err(Failure::field("max_tokens", "max_tokens is 0, which means something only with echo"));
    }
    if suffix.is_none() {
        return Ok(());
    }
    if echo {
        return Err(Failure::field(
            "suffix",
            "suffix and echo do not go together: the answer stands between two texts",
        ));
    }
    if prompts.iter().any(|prompt| matches!(prompt, Text::Tokens(_))) {
        return Err(Failure::field("suffix", "suffix wants a prompt that is a text: its tokens are put around both"));
    }
    Ok(())
}

/// Takes `best_of`; whether more answers are made than are given.
fn best_of(fields: &mut Fields, params: &mut Params, most: usize) -> Result<bool, Failure> {
    let Some(best_of) = fields.count("best_of", 1, most)? else { return Ok(false) };
    if best_of < params.choices {
        return Err(Failure::field(
            "best_of",
            format!("best_of is {best_of} and n {}, which may not be more", params.choices),
        ));
    }
    let ranked = best_of > params.choices;
    if ranked && params.stream {
        return Err(Failure::field(
            "best_of",
            "best_of above n cannot be streamed: which answers are best is known at their end",
        ));
    }
    params.choices = best_of;
    Ok(ranked)
}

/// Keeps so many answers, those with the highest log-probability per token, the best first.
fn keep_best(choices: &mut Vec<Choice>, count: usize) {
    let mean = |choice: &Choice| {
        let sum: f64 = choice.logprobs.iter().map(|token| f64::from(token.logprob)).sum();
        sum / choice.logprobs.len().max(1) as f64
    };
    choices.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    choices.truncate(count);
    choices.iter_mut().enumerate().for_each(|(index, choice)| choice.index = index);
}

fn choice(index: usize, text: &str, logprobs: Value, finish: Option<&Finish>) -> Value {
    json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish.map(reason)})
}

fn object(head: &Head, choices: Vec<Value>) -> Value {
    json!({"id": head.id, "object": "text_completion", "created": head.created, "model": head.model, "choices": choices})
}

/// The whole response.
fn whole(head: &Head, tokenizer: &Tokenizer, outputs: &[Output]) -> Value {
    let mut usage = Usage::default();
    let mut choices = Vec::new();
    for (prompt, output) in outputs.iter().enumerate() {
        usage.add(output);
        let echoed = head.echo.as_ref().and_then(|texts| texts.get(prompt));
        // A prompt that is only read has no answer, and is shown as one.
        let none = Choice {
            index: 0,
            text: String::new(),
            token_ids: Vec::new(),
            logprobs: Vec::new(),
            finish: Finish::MaxTokens,
            score: None,
        };
        let answers = if output.choices.is_empty() { std::slice::from_ref(&none) } else { &output.choices };
        for answer in answers {
            let logprobs = match head.logprobs {
                Some(_) => lists(tokenizer, output, answer, echoed.is_some()).json(),
                None => Value::Null,
            };
            let text = format!("{}{}", echoed.map_or("", String::as_str), answer.text);
            let index = prompt * head.choices + answer.index;
            choices.push(choice(index, &text, logprobs, Some(&answer.finish)));
        }
    }
    let mut object = object(head, choices);
    object["usage"] = usage.json();
    object
}

fn lists(tokenizer: &Tokenizer, output: &Output, answer: &Choice, echo: bool) -> Lists {
    let mut lists = Lists::default();
    if echo {
        let logprobs = output.prompt_logprobs.iter().flatten().map(Option::as_ref).chain(std::iter::repeat(None));
        for (&id, logprob) in output.prompt_token_ids.iter().zip(logprobs) {
            lists.push(tokenizer, id, logprob);
        }
    }
    for logprob in &answer.logprobs {
        lists.push(tokenizer, logprob.id, Some(logprob));
    }
    lists
}

/// The response as a stream.
struct Stream {
    head: Head,
    tokenizer: Arc<Tokenizer>,
    usage: Option<Usage>,
    /// Characters of each choice's tokens so far.
    offsets: std::collections::BTreeMap<usize, usize>,
}

impl Stream {
    fn chunk(&self, choices: Vec<Value>) -> String {
        let mut object = object(&self.head, choices);
        if self.usage.is_some() {
            object["usage"] = Value::Null;
        }
        event(&object)
    }

    fn index(&self, prompt: usize, choice: usize) -> usize {
        prompt * self.head.choices + choice
    }
}

impl sse::Format for Stream {
    fn begin(&mut self, _: &[Taken]) -> String {
        let this = &*self;
        let texts = this.head.echo.iter().flatten().enumerate();
        let chunks = texts.flat_map(|(prompt, text)| {
            let indices = (0..this.head.choices).map(move |choice| this.index(prompt, choice));
            indices.map(move |index| this.chunk(vec![choice(index, text, Value::Null, None)]))
        });
        chunks.collect()
    }

    fn token(&mut self, piece: &Piece) -> String {
        let index = self.index(piece.prompt, piece.choice);
        let logprobs = match (&piece.logprob, self.head.logprobs) {
            (Some(token), Some(_)) => {
                let mut lists = Lists::at(self.offsets.get(&index).copied().unwrap_or(0));
                lists.push(&self.tokenizer, piece.id, Some(token));
                self.offsets.insert(index, lists.offset());
                lists.json()
            }
            _ if piece.text.is_empty() => return String::new(),
            _ => Value::Null,
        };
        self.chunk(vec![choice(index, &piece.text, logprobs, None)])
    }

    fn finished(&mut self, (prompt, number): (usize, usize), text: &str, finish: &Finish) -> String {
        let index = self.index(prompt, number);
        self.chunk(vec![choice(index, text, Value::Null, Some(finish))])
    }

    fn done(&mut self, prompt: usize, output: &Output) -> String {
        if let Some(usage) = &mut self.usage {
            usage.add(output);
        }
        if output.choices.is_empty() {
            return self.finished((prompt, 0), "", &Finish::MaxTokens);
        }
        String::new()
    }

    fn end(&mut self) -> String {
        let usage = self.usage.map(|usage| {
            let mut object = object(&self.head, Vec::new());
            object["usage"] = usage.json();
            event(&object)
        });
        usage.unwrap_or_default() + DONE
    }

    fn failed(&mut self, failure: &Failure) -> String {
        super::failed(failure)
    }
}
