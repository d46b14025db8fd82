//! Model cases with two stacks.

use super::case::{ModelCase, Row};
use super::compare::Comparison;
use super::model::Side;
use super::record::{self, Watch};
use anyhow::Result;
use attend_kernels::DType;
use attend_model::Loaded;
use attend_nn::site::{Place, Site};
use attend_nn::spec::StackKind;
use attend_nn::{AttentionKind, Batch, Encoded, KvTypes, Nobody, Recorder, RunOptions, Sequence};

/// The decoder's teacher-forced rows.
pub fn decoder_rows(case: &ModelCase) -> Result<Vec<Row>> {
    case.rows("right.decoder_input_ids", "right.decoder_mask")
}

/// The tokens that a decoder begins with when it reads the sources themselves.
pub fn starts<'t>(loaded: &Loaded, texts: impl IntoIterator<Item = &'t [u32]>) -> Result<Vec<u32>> {
    texts.into_iter().map(|text| Ok(loaded.source.start_of(text)?)).collect()
}

/// Compares what the recorder saw of both stacks, the decoder's rows being `rows`.
pub fn compare_stacks(
    case: &ModelCase,
    sources: Vec<Row>,
    rows: &[Row],
    recorder: &Recorder<fn(Site) -> bool>,
    comparison: &mut Comparison,
) -> Result<()> {
    let encoder = Watch {
        site: Some(StackKind::Encoder),
        states: "right.encoder_hidden_states",
        attentions: "right.encoder_attentions",
        cross: None,
    };
    record::compare_stack(case, &encoder, &sources, recorder, comparison)?;
    if let Some(record) = recorder.get(Site { stack: Some(StackKind::Encoder), place: Place::Hidden }) {
        compare_encoded(case, &sources, &record.value, comparison)?;
    }
    let decoder = Watch {
        site: Some(StackKind::Decoder),
        states: "right.decoder_hidden_states",
        attentions: "right.decoder_attentions",
        cross: Some(("right.cross_attentions", sources)),
    };
    record::compare_stack(case, &decoder, rows, recorder, comparison)
}

/// Everything watched: both stacks without caches.
pub fn check_watched(case: &ModelCase, loaded: &Loaded) -> Result<Comparison> {
    let options = RunOptions { attention: AttentionKind::Textbook };
    let mut comparison = Comparison::default();
    let side = Side::read(case, "right")?;
    let mut recorder = record::recorder();
    let hidden = loaded.model.forward(StackKind::Encoder, &mut side.batch(), &options, &mut recorder)?;
    let rows = decoder_rows(case)?;
    let sequences = rows.iter().map(|row| Sequence::new(&row.ids)).collect();
    let mut batch = Batch { sequences, encoded: Some(Encoded { hidden: &hidden, lengths: side.lengths() }) };
    let decoded = loaded.model.forward(StackKind::Decoder, &mut batch, &options, &mut recorder)?;
    compare_stacks(case, side.rows, &rows, &recorder, &mut comparison)?;
    let logits = loaded.model.logits(&decoded, &mut recorder)?;
    record::compare_rows(case, "right.logits", &rows, &logits, &mut comparison)?;
    Ok(comparison)
}

/// As users get it: flash attention, the source's keys and values kept once, the decoder fed through its cache.
pub fn check_unobserved(case: &ModelCase, loaded: &Loaded) -> Result<Comparison> {
    let options = RunOptions { attention: AttentionKind::Flash };
    let types = KvTypes::both(DType::F32);
    let mut comparison = Comparison::default();
    let side = Side::read(case, "right")?;
    let hidden = loaded.model.forward(StackKind::Encoder, &mut side.batch(), &options, &mut Nobody)?;
    compare_encoded(case, &side.rows, &hidden, &mut comparison)?;
    let rows = decoder_rows(case)?;
    let sources: Vec<&[u32]> = side.rows.iter().map(|row| row.ids.as_slice()).collect();
    let memories = loaded.model.encode(&sources, types, &options)?;
    let mut caches = memories.iter().map(|_| loaded.model.cache(types)).collect::<Result<Vec<_>, _>>()?;
    let sequences = rows.iter().zip(&memories).zip(&mut caches);
    let sequences = sequences
        .map(|((target, memory), cache)| Sequence { memory: Some(memory), ..Sequence::cached(&target.ids, cache) });
    let mut batch = Batch { sequences: sequences.collect(), encoded: None };
    let decoded = loaded.model.forward(StackKind::Decoder, &mut batch, &options, &mut Nobody)?;
    let logits = loaded.model.logits(&decoded, &mut Nobody)?;
    record::compare_rows(case, "right.logits", &rows, &logits, &mut comparison)?;
    Ok(comparison)
}

fn compare_encoded(case: &ModelCase, rows: &[Row], hidden: &[f32], comparison: &mut Comparison) -> Result<()> {
    if case.expected.has("right.encoder_last_hidden_state") {
        record::compare_rows(case, "right.encoder_last_hidden_state", rows, hidden, comparison)?;
    }
    Ok(())
}
