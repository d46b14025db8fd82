//! Greedy and beam continuations of model cases, which must come out token for token.

use super::case::ModelCase;
use super::compare::{Comparison, Tolerance};
use super::model::{Kind, Side};
use anyhow::{Context, Result};
use attend_engine::{Engine, EngineOptions, GenerateOptions, Prompt};
use attend_kernels::DType;
use attend_model::Loaded;
use attend_nn::KvTypes;
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Settings of a case and the names that our options have for them; the others have the same name.
const RENAMED: &[(&str, &str)] = &[("max_new_tokens", "max_tokens"), ("min_new_tokens", "min_tokens")];

/// Settings of a case that are not options of a request.
const NOT_OPTIONS: &[&str] = &["eos_token_id", "pad_token_id", "decoder_start_token_id", "bos_token_id", "do_sample"];

/// Compares every stored continuation; empty where the case has none.
pub fn check(case: &ModelCase, loaded: &Loaded, kind: Kind) -> Result<Comparison> {
    let mut comparison = Comparison::default();
    if !matches!(kind, Kind::Causal | Kind::EncoderDecoder) {
        return Ok(comparison);
    }
    let options = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    let mut engine = Engine::new(loaded, None, &options)?;
    // The reference goes on beyond the length that a rotary model was made for.
    engine.surroundings_mut().context = None;
    let start = (kind == Kind::EncoderDecoder).then(|| loaded.source.decoder_start()).transpose()?;
    let run = Run { case, kind, start };
    run.greedy(&mut engine, &mut comparison)?;
    for beam in ["beam", "beam_b"] {
        if case.expected.has(&format!("{beam}.sequences")) {
            run.beam(&mut engine, beam, &mut comparison)?;
        }
    }
    Ok(comparison)
}

struct Run<'c> {
    case: &'c ModelCase,
    kind: Kind,
    /// What an encoder-decoder's sequences begin with.
    start: Option<u32>,
}

impl Run<'_> {
    /// The checkpoint's defaults with the settings that the case names.
    fn options(&self, engine: &mut Engine, group: &str) -> Result<(GenerateOptions, Vec<u32>)> {
        let settings = self.case.about.get(group).and_then(Value::as_object);
        let settings = settings.with_context(|| format!("case.json has no {group}"))?;
        let ids = |value: Option<&Value>| -> Vec<u32> {
            let one = value.and_then(Value::as_u64).into_iter();
            let many = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64);
            one.chain(many).map(|id| id as u32).collect()
        };
        engine.surroundings_mut().end_ids = ids(settings.get("eos_token_id"));
        let mut given = vec![("temperature".to_owned(), json!(0.0))];
        if !settings.contains_key("num_beams") {
            given.push(("num_beams".to_owned(), json!(1)));
        }
        for (name, value) in settings {
            if NOT_OPTIONS.contains(&name.as_str()) || value.is_null() {
                continue;
            }
            let ours = RENAMED.iter().find(|(theirs, _)| theirs == name).map_or(name.as_str(), |(_, ours)| ours);
            let value = if ours == "forced_eos_token_id" { json!(ids(Some(value))) } else { value.clone() };
            given.push((ours.to_owned(), value));
        }
        let mut fillers = ids(settings.get("pad_token_id"));
        // The reference's beam search fills with the end token in some versions.
        fillers.extend(&engine.surroundings().end_ids);
        Ok((engine.options(given)?.options, fillers))
    }

    fn greedy(&self, engine: &mut Engine, comparison: &mut Comparison) -> Result<()> {
        let expected = &self.case.expected;
        if self.kind == Kind::EncoderDecoder {
            if !expected.has("greedy.sequences") {
                return Ok(());
            }
            let (options, fillers) = self.options(engine, "generation")?;
            for (row, source) in Side::read(self.case, "right")?.rows.iter().enumerate() {
                let found = self.sequences(engine, Prompt::source(source.ids.clone()), &options, true)?;
                self.compare("greedy.sequences", row, &found[0].0, &fillers, comparison)?;
            }
            return Ok(());
        }
        let rows: Vec<String> =
            expected.names("greedy.row").filter(|name| name.ends_with(".prompt_ids")).map(str::to_owned).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (options, fillers) = self.options(engine, "generation")?;
        for (row, name) in rows.into_iter().enumerate() {
            let prompt = expected.tokens(&name)?;
            let name = name.replace(".prompt_ids", ".new_ids");
            let found = self.sequences(engine, Prompt::tokens(prompt), &options, false)?;
            let own = expected.tokens(&name)?;
            comparison.exact(&name, &found[0].0, &own);
            self.of_batch(row, &found[0].0, &own, &fillers, comparison)?;
        }
        Ok(())
    }

    /// The same row as the reference continued it in a batch that is padded on the left and filled behind each end.
    fn of_batch(
        &self,
        row: usize,
        found: &[u32],
        alone: &[u32],
        fillers: &[u32],
        comparison: &mut Comparison,
    ) -> Result<()> {
        let expected = &self.case.expected;
        if !expected.has("greedy.sequences") || !expected.has("greedy.input_ids") {
            return Ok(());
        }
        let (sequences, prompts) = (expected.integers("greedy.sequences")?, expected.integers("greedy.input_ids")?);
        let (width, start) = (sequences.shape[1], prompts.shape[1]);
        let place = format!("greedy.sequences row {row}");
        let Some(tail) = sequences.values.chunks_exact(width).nth(row).and_then(|row| row.get(start..)) else {
            comparison.fail(&place, "the batch has no such row");
            return Ok(());
        };
        // Where lengths matter, the reference's batch may differ from its own rows.
        if !tail.iter().zip(alone).all(|(batched, alone)| *batched == i64::from(*alone)) {
            comparison.leave_out(format!("{place}: the reference's batch differs from its row alone"));
            return Ok(());
        }
        let mut filled: Vec<i64> = found.iter().map(|id| i64::from(*id)).collect();
        let filling = |id: &&i64| fillers.iter().any(|filler| i64::from(*filler) == **id);
        filled.extend(tail.iter().skip(found.len()).take_while(filling));
        comparison.exact(&place, &filled, &tail.to_vec());
        Ok(())
    }

    fn beam(&self, engine: &mut Engine, group: &str, comparison: &mut Comparison) -> Result<()> {
        let (options, fillers) = self.options(engine, group)?;
        let prompts: Vec<Prompt> = match self.kind {
            Kind::EncoderDecoder => {
                Side::read(self.case, "right")?.rows.into_iter().map(|row| Prompt::source(row.ids)).collect()
            }
            _ => {
                let own = format!("{group}.input_ids");
                let name = if self.case.expected.has(&own) { &own } else { "beam.input_ids" };
                let ids = self.case.expected.integers(name)?;
                let width = ids.shape[1];
                let row = |row: &[i64]| Prompt::tokens(row.iter().map(|id| *id as u32).collect::<Vec<_>>());
                ids.values.chunks_exact(width).map(row).collect()
            }
        };
        let scores = self.case.expected.floats(&format!("{group}.sequences_scores"))?.values;
        let tolerance = Tolerance::absolute(self.case.beam_score_tolerance()?);
        let mut row = 0;
        for prompt in prompts {
            for (ids, score) in self.sequences(engine, prompt, &options, true)? {
                self.compare(&format!("{group}.sequences"), row, &ids, &fillers, comparison)?;
                if let Some(expected) = scores.get(row) {
                    let place = format!("{group}.sequences_scores[{row}]");
                    comparison.number(&place, score.map_or(f64::NAN, f64::from), f64::from(*expected), tolerance);
                }
                row += 1;
            }
        }
        comparison.exact(&format!("{group}: number of sequences"), &row, &scores.len());
        Ok(())
    }

    /// Compares one sequence with a row that is filled behind its end.
    fn compare(
        &self,
        name: &str,
        row: usize,
        found: &[u32],
        fillers: &[u32],
        comparison: &mut Comparison,
    ) -> Result<()> {
        let expected = self.case.expected.integers(name)?;
        let width = expected.shape[1];
        let Some(expected) = expected.values.chunks_exact(width).nth(row) else {
            comparison.fail(name, format!("row {row} is not expected"));
            return Ok(());
        };
        let mut filled: Vec<i64> = found.iter().map(|id| i64::from(*id)).collect();
        let filling = |id: &&i64| fillers.iter().any(|filler| i64::from(*filler) == **id);
        filled.extend(expected.iter().skip(found.len()).take_while(filling));
        comparison.exact(&format!("{name} row {row}"), &filled, &expected.to_vec());
        Ok(())
    }

    /// What the engine makes of a prompt, best first, behind the decoder's own tokens where `whole`.
    fn sequences(
        &self,
        engine: &Engine,
        prompt: Prompt,
        options: &GenerateOptions,
        whole: bool,
    ) -> Result<Vec<(Vec<u32>, Option<f32>)>> {
        let mut start = prompt.token_ids.clone();
        start.splice(0..0, self.start);
        let output = engine.generate(prompt, options, &mut |_| ControlFlow::Continue(()))?;
        let with_start = |ids: Vec<u32>| if whole { [start.clone(), ids].concat() } else { ids };
        Ok(output.choices.into_iter().map(|choice| (with_start(choice.token_ids), choice.score)).collect())
    }
}
