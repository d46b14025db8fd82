//! Model cases with one stack: decoders, encoders and their heads.

use super::case::{ModelCase, Row};
use super::compare::Comparison;
use super::record::{self, Watch};
use super::seq2seq;
use anyhow::{Result, bail};
use attend_model::Loaded;
use attend_nn::spec::{AbsolutePositions, Body, StackKind};
use attend_nn::{AttentionKind, Batch, Model, Nobody, Observer, RunOptions, Sequence};

/// What a case's model is asked for, from `kind` in `case.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Logits of the next token.
    Causal,
    /// Logits at every token: masked LM, token classification, replaced-token detection.
    PerToken,
    /// Hidden states and pooled vectors.
    Encoder,
    /// Logits of each sequence.
    Sequence,
    /// Start and end of a span.
    Span,
    EncoderDecoder,
}

impl Kind {
    pub fn of(case: &ModelCase) -> Option<Kind> {
        Some(match case.text("kind")? {
            "causal" => Kind::Causal,
            "mlm" | "tokcls" | "disc" => Kind::PerToken,
            "encoder" => Kind::Encoder,
            "seqcls" => Kind::Sequence,
            "qa" => Kind::Span,
            "seq2seq" => Kind::EncoderDecoder,
            _ => return None,
        })
    }
}

/// A padded side of a case as packed rows.
pub struct Side {
    pub rows: Vec<Row>,
    pub token_types: Option<Vec<Vec<u32>>>,
    pub positions: Option<Vec<Vec<u32>>>,
    /// The longest row: what the reference takes as the length of length-dependent rotary scalings.
    pub longest: usize,
}

impl Side {
    /// `side` is `right` or `left`.
    pub fn read(case: &ModelCase, side: &str) -> Result<Side> {
        let rows = case.rows(&format!("{side}.input_ids"), &format!("{side}.attention_mask"))?;
        let types = format!("{side}.token_type_ids");
        let token_types = match case.expected.has(&types) {
            false => None,
            true => {
                let types = case.expected.integers(&types)?;
                let width = types.shape[1];
                let row = |(index, row): (usize, &Row)| {
                    row.columns.iter().map(|column| types.values[index * width + column] as u32).collect()
                };
                Some(rows.iter().enumerate().map(row).collect())
            }
        };
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        Ok(Side { rows, token_types, positions: None, longest })
    }

    pub fn batch(&self) -> Batch<'_> {
        let rows = self.rows.iter().enumerate();
        Batch { sequences: rows.map(|(index, row)| self.sequence(index, &row.ids)).collect(), encoded: None }
    }

    fn sequence<'s>(&'s self, index: usize, ids: &'s [u32]) -> Sequence<'s> {
        Sequence {
            token_types: self.token_types.as_ref().map(|types| types[index].as_slice()),
            positions: self.positions.as_ref().map(|positions| positions[index].as_slice()),
            rope_length: Some(self.longest),
            ..Sequence::new(ids)
        }
    }

    pub fn lengths(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.ids.len()).collect()
    }
}

/// The values a stack gives for the padded rows of a case.
pub fn check(
    case: &ModelCase,
    loaded: &Loaded,
    kind: Kind,
    attention: AttentionKind,
    watched: bool,
) -> Result<Comparison> {
    let options = RunOptions { attention };
    let mut comparison = Comparison::default();
    let side = Side::read(case, "right")?;
    if watched {
        let mut recorder = record::recorder();
        let outputs = outputs(loaded, kind, &side, &options, &mut recorder)?;
        if let Body::EncoderDecoder { .. } = loaded.model.spec().body {
            let sources = Side::read(case, "right")?.rows;
            seq2seq::compare_stacks(case, sources, &side.rows, &recorder, &mut comparison)?;
        } else {
            let (states, attentions) = ("right.hidden_states", "right.attentions");
            let stack = Watch { site: None, states, attentions, cross: None };
            record::compare_stack(case, &stack, &side.rows, &recorder, &mut comparison)?;
        }
        compare_outputs(case, kind, &side, &outputs, &mut comparison)?;
    } else {
        let outputs = outputs(loaded, kind, &side, &options, &mut Nobody)?;
        compare_outputs(case, kind, &side, &outputs, &mut comparison)?;
    }
    check_left(case, loaded, kind, &options, &mut comparison)?;
    Ok(comparison)
}

/// What the model gives for a side.
struct Outputs {
    /// [N, D]
    hidden: Vec<f32>,
    pooler: Option<Vec<f32>>,
    logits: Vec<f32>,
}

fn outputs<O: Observer + ?Sized>(
    loaded: &Loaded,
    kind: Kind,
    side: &Side,
    options: &RunOptions,
    observer: &mut O,
) -> Result<Outputs> {
    let model = &loaded.model;
    let texts: Vec<&[u32]> = side.rows.iter().map(|row| row.ids.as_slice()).collect();
    let hidden = match model.spec().body {
        Body::EncoderDecoder { .. } => {
            let starts = seq2seq::starts(loaded, texts.iter().copied())?;
            model.read_twice(&texts, &starts, options, observer)?
        }
        Body::Encoder(_) | Body::Decoder(_) => {
            model.forward(stack_kind(model)?, &mut side.batch(), options, observer)?
        }
    };
    let lengths = side.lengths();
    let pooler = match (kind, model.spec().pooler) {
        (Kind::Encoder, Some(_)) => Some(model.pool(&hidden, &lengths, observer)?),
        _ => None,
    };
    let logits = match kind {
        Kind::Encoder | Kind::EncoderDecoder => Vec::new(),
        Kind::Sequence => model.sequence_logits_of(&hidden, &texts, observer)?,
        Kind::Causal | Kind::PerToken | Kind::Span => model.logits(&hidden, observer)?,
    };
    Ok(Outputs { hidden, pooler, logits })
}

/// The only stack of a model that has one.
pub fn stack_kind(model: &Model) -> Result<StackKind> {
    match &model.spec().body {
        Body::Encoder(_) => Ok(StackKind::Encoder),
        Body::Decoder(_) => Ok(StackKind::Decoder),
        Body::EncoderDecoder { .. } => bail!("the case is of a model with one stack, the checkpoint has two"),
    }
}

fn compare_outputs(
    case: &ModelCase,
    kind: Kind,
    side: &Side,
    outputs: &Outputs,
    comparison: &mut Comparison,
) -> Result<()> {
    let tolerance = case.tolerance()?;
    match kind {
        Kind::Causal | Kind::PerToken => {
            record::compare_rows(case, "right.logits", &side.rows, &outputs.logits, comparison)?;
        }
        Kind::Sequence => {
            let expected = case.expected.floats("right.logits")?;
            comparison.values("right.logits", &outputs.logits, &expected.values, tolerance);
        }
        Kind::Span => {
            for (offset, name) in ["right.start_logits", "right.end_logits"].into_iter().enumerate() {
                let found: Vec<f32> = outputs.logits.iter().skip(offset).step_by(2).copied().collect();
                record::compare_rows(case, name, &side.rows, &found, comparison)?;
            }
        }
        Kind::Encoder => {
            record::compare_rows(case, "right.last_hidden_state", &side.rows, &outputs.hidden, comparison)?;
            if case.expected.has("right.pooler_output") {
                let expected = case.expected.floats("right.pooler_output")?;
                let found = outputs.pooler.as_deref().unwrap_or(&[]);
                comparison.values("right.pooler_output", found, &expected.values, tolerance);
            }
            for pooling in ["cls", "mean", "mean_l2", "max"] {
                let name = format!("pooled.{pooling}");
                if case.expected.has(&name) {
                    let found = pooled(pooling, &outputs.hidden, &side.lengths());
                    comparison.values(&name, &found, &case.expected.floats(&name)?.values, tolerance);
                }
            }
        }
        Kind::EncoderDecoder => bail!("a model with two stacks is compared elsewhere"),
    }
    Ok(())
}

/// The rows again as the left-padded batch had them.
fn check_left(
    case: &ModelCase,
    loaded: &Loaded,
    kind: Kind,
    options: &RunOptions,
    comparison: &mut Comparison,
) -> Result<()> {
    let model = &loaded.model;
    if case.expected.has("left.last_logits") && kind == Kind::Causal {
        let side = Side::read(case, "left")?;
        let hidden = model.forward(stack_kind(model)?, &mut side.batch(), options, &mut Nobody)?;
        let width = model.spec().output_stack().output_width();
        let mut end = 0;
        let last = side.lengths().into_iter().flat_map(|length| {
            end += length;
            &hidden[(end - 1) * width..end * width]
        });
        let last: Vec<f32> = last.copied().collect();
        let logits = model.logits(&last, &mut Nobody)?;
        let expected = case.expected.floats("left.last_logits")?;
        comparison.values("left.last_logits", &logits, &expected.values, case.tolerance()?);
    }
    let one_stack = !matches!(model.spec().body, Body::EncoderDecoder { .. });
    if case.expected.has("left.last_hidden_state") && kind == Kind::Encoder && one_stack {
        let mut side = Side::read(case, "left")?;
        // Tables that start at position 0 are read by column in the reference, so left padding shifts every position.
        if matches!(model.spec().output_stack().embed.positions, AbsolutePositions::Learned { offset: 0, .. }) {
            let columns = |row: &Row| row.columns.iter().map(|column| *column as u32).collect();
            side.positions = Some(side.rows.iter().map(columns).collect());
        }
        let hidden = model.forward(stack_kind(model)?, &mut side.batch(), options, &mut Nobody)?;
        record::compare_rows(case, "left.last_hidden_state", &side.rows, &hidden, comparison)?;
    }
    Ok(())
}

/// Sentence vectors of packed hidden states, [B, D].
fn pooled(pooling: &str, hidden: &[f32], lengths: &[usize]) -> Vec<f32> {
    let width = hidden.len() / lengths.iter().sum::<usize>().max(1);
    let mut out = Vec::new();
    let mut rest = hidden;
    for &length in lengths {
        let (rows, tail) = rest.split_at(length * width);
        rest = tail;
        let column = |column: usize| rows.iter().skip(column).step_by(width);
        let mean = |index: usize| column(index).map(|value| f64::from(*value)).sum::<f64>() / length as f64;
        let vector: Vec<f32> = match pooling {
            "cls" => rows[..width].to_vec(),
            "max" => {
                (0..width).map(|index| column(index).fold(f32::NEG_INFINITY, |max, value| max.max(*value))).collect()
            }
            _ => (0..width).map(|index| mean(index) as f32).collect(),
        };
        let norm = match pooling {
            "mean_l2" => vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt().max(1e-12),
            _ => 1.0,
        };
        out.extend(vector.iter().map(|value| (f64::from(*value) / norm) as f32));
    }
    out
}
