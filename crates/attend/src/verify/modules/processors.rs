//! Logits processors, alone and in chains. The tensor's name says which processor and with what setting.

use super::super::compare::Comparison;
use super::Module;
use anyhow::{Context, Result};
use attend_engine::rng::Draws;
use attend_engine::sampler::constraints::{EndingGrowsLikely, Forbid, Force, While};
use attend_engine::sampler::ngram::{NoRepeatNgram, SequenceBias};
use attend_engine::sampler::penalties::{EncoderRepetitionPenalty, RepetitionPenalty};
use attend_engine::sampler::temperature::Temperature;
use attend_engine::sampler::truncation::{Epsilon, Eta, MinP, TopK, TopP, Typical};
use attend_engine::sampler::{History, LogitsProcessor};
use attend_kernels::{log_softmax, softmax};
use serde_json::Value;

/// A processor and what it is shown.
struct Step {
    processor: Box<dyn LogitsProcessor>,
    /// How many of the row's tokens it sees, all where absent.
    tokens: Option<usize>,
    /// How many of them are the prompt, all where absent.
    prompt: Option<usize>,
    /// How many of them are the encoder's.
    encoder: usize,
}

fn step(processor: impl LogitsProcessor + 'static) -> Step {
    Step { processor: Box::new(processor), tokens: None, prompt: None, encoder: 0 }
}

pub fn logits_processors(module: &Module, comparison: &mut Comparison) -> Result<()> {
    let scores = module.floats("scores")?;
    let ids = module.integers("input_ids")?;
    let (vocab, width) = (scores.shape[1], ids.shape[1]);
    for name in module.names() {
        if matches!(name.as_str(), "scores" | "input_ids") {
            continue;
        }
        let probs = name.ends_with(".probs");
        let Some(steps) = steps(module, name.trim_end_matches(".probs"))? else { continue };
        let mut found = scores.values.clone();
        for (row, tokens) in found.chunks_exact_mut(vocab).zip(ids.values.chunks_exact(width)) {
            let tokens: Vec<u32> = tokens.iter().map(|id| *id as u32).collect();
            for step in &steps {
                let seen = &tokens[..step.tokens.unwrap_or(width).min(width)];
                let history = History {
                    tokens: seen,
                    prompt_len: step.prompt.unwrap_or(seen.len()),
                    encoder: &tokens[..step.encoder],
                    draws: Draws { seed: 0, choice: 0 },
                };
                step.processor.process(&history, row);
            }
            if probs {
                softmax(row);
            } else if name == "logit_normalization" {
                log_softmax(row);
            }
        }
        module.compare(&name, &found, comparison)?;
    }
    Ok(())
}

/// The processors that a name stands for; `None` leaves the name to be reported as not computed.
fn steps(module: &Module, name: &str) -> Result<Option<Vec<Step>>> {
    if let Some(chain) = name.strip_prefix("chain_") {
        return Ok(chain.split('_').map(link).collect());
    }
    if name == "logit_normalization" {
        return Ok(Some(Vec::new()));
    }
    let last = name.rsplit('_').next().unwrap_or_default();
    let last_number = last.parse::<f32>().ok();
    let number = || last_number.with_context(|| format!("{name} does not end with a number"));
    let end = || Module::number_after(name, "eos").map(|id| vec![id as u32]);
    let settings = |key: &str| module.setting(&format!("/processors/{key}"));
    let text = |key: &str| settings(key).map(|value| value.as_str().unwrap_or_default().to_owned());
    let starts = |prefix: &str| name.starts_with(prefix);
    let only = if starts("temperature_") {
        step(Temperature(number()?))
    } else if starts("top_k_") {
        step(TopK(number()? as usize))
    } else if starts("top_p_") {
        let keep = Module::number_after(name, "_min").unwrap_or(1.0) as usize;
        let p = Module::number_after(name, "top_p_").context("a number after top_p_")? as f32;
        step(TopP { p, at_least: keep })
    } else if starts("min_p_") {
        step(MinP(number()?))
    } else if starts("typical_") {
        step(Typical(number()?))
    } else if starts("epsilon_") {
        step(Epsilon(number()?))
    } else if starts("eta_") {
        step(Eta(number()?))
    } else if starts("repetition_") {
        step(RepetitionPenalty { penalty: number()?, last_n: -1 })
    } else if starts("encoder_repetition_") {
        let encoder = Module::number_after(&text("encoder_repetition")?, ":").unwrap_or(4.0) as usize;
        Step { encoder, ..step(EncoderRepetitionPenalty(number()?)) }
    } else if starts("no_repeat_") {
        step(NoRepeatNgram(Module::number_after(name, "no_repeat_").context("a size")? as usize))
    } else if starts("min_length_") {
        let length = Module::number_after(name, "min_length_").context("a length")? as usize;
        step(Forbid { ids: end().context("an end token")?, during: While::ShorterThan(length) })
    } else if starts("min_new_tokens_") {
        // The suite counts a prompt of eight tokens.
        let count = Module::number_after(name, "min_new_tokens_").context("a count")? as usize;
        let during = While::Before(count);
        Step { prompt: Some(8), ..step(Forbid { ids: end().context("an end token")?, during }) }
    } else if starts("forced_bos_") {
        Step { tokens: Some(1), ..step(Force { ids: vec![number()? as u32], at: 1 }) }
    } else if starts("forced_eos_at_") {
        let length = number()? as usize;
        // Which token is forced shows in the expected row: the only one that is not removed.
        let row = module.floats(name)?.values;
        let id = row.iter().position(|score| score.is_finite()).context("a forced token")?;
        step(Force { ids: vec![id as u32], at: length - 1 })
    } else if starts("suppress_") {
        let ids = name.split('_').filter_map(|part| part.parse().ok()).collect();
        step(Forbid { ids, during: While::Always })
    } else if starts("bad_words") {
        step(SequenceBias(words(settings("bad_words")?).map(|word| (word, f32::NEG_INFINITY)).collect()))
    } else if starts("sequence_bias") {
        let pairs = settings("sequence_bias")?.as_array().into_iter().flatten();
        let biases = pairs.map(|pair| (ids(&pair[0]), pair[1].as_f64().unwrap_or_default() as f32));
        step(SequenceBias(biases.collect()))
    } else if starts("exp_decay") {
        let text = text("exp_decay")?;
        let value = |word: &str| Module::number_after(&text, word).with_context(|| format!("exp_decay: {word}"));
        let (start, factor) = (value("start at ")? as usize, value("factor ")? as f32);
        let processor = EndingGrowsLikely { start, factor, end_ids: vec![value("eos ")? as u32] };
        Step { prompt: Some(value("prompt ")? as usize), ..step(processor) }
    } else {
        return Ok(None);
    };
    Ok(Some(vec![only]))
}

/// One link of a chain: `rep1.2`, `temp0.8`, `k8`, `p0.9`, `minp0.05`, `typ0.8`.
fn link(part: &str) -> Option<Step> {
    let digits = part.find(|c: char| c.is_ascii_digit())?;
    let value: f32 = part[digits..].parse().ok()?;
    Some(match &part[..digits] {
        "rep" => step(RepetitionPenalty { penalty: value, last_n: -1 }),
        "temp" => step(Temperature(value)),
        "k" => step(TopK(value as usize)),
        "p" => step(TopP::new(value)),
        "minp" => step(MinP(value)),
        "typ" => step(Typical(value)),
        _ => return None,
    })
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32).collect()
}

fn words(value: &Value) -> impl Iterator<Item = Vec<u32>> + '_ {
    value.as_array().into_iter().flatten().map(ids)
}
