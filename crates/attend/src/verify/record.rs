//! Recorded values against a case's hidden states and attention probabilities, in walking order.

use super::case::{ModelCase, Row};
use super::compare::{Comparison, Tolerance};
use anyhow::Result;
use attend_nn::Recorder;
use attend_nn::observer::Record;
use attend_nn::site::{BranchPart, LayerPart, Place, Site};
use attend_nn::spec::StackKind;

/// Attention probabilities agree to this, whatever the model.
const PROBABILITY: Tolerance = Tolerance::absolute(1e-5);

/// The sites that cases hold values of.
fn wanted(site: Site) -> bool {
    match site.place {
        Place::Embed | Place::Hidden => true,
        Place::Layer { part, .. } => matches!(
            part,
            LayerPart::Out | LayerPart::Attention(BranchPart::Probs) | LayerPart::Cross(BranchPart::Probs)
        ),
        Place::EmbedTokens | Place::EmbedSum | Place::EmbedNormed | Place::EmbedProjected => false,
        Place::ConvIn | Place::ConvRaw | Place::ConvSum | Place::Stream | Place::Normed | Place::Head(_) => false,
    }
}

pub fn recorder() -> Recorder<fn(Site) -> bool> {
    Recorder::new(wanted)
}

/// A stack's names in a case.
pub struct Watch {
    pub site: Option<StackKind>,
    pub states: &'static str,
    pub attentions: &'static str,
    /// Cross-attention's name, and whose rows its keys are.
    pub cross: Option<(&'static str, Vec<Row>)>,
}

/// Compares a stack's embedding, each layer's probabilities and output, and the final hidden states.
pub fn compare_stack<F: Fn(Site) -> bool>(
    case: &ModelCase,
    watch: &Watch,
    rows: &[Row],
    recorder: &Recorder<F>,
    comparison: &mut Comparison,
) -> Result<()> {
    let at = |place| Site { stack: watch.site, place };
    let layer = |layer, part| at(Place::Layer { layer, part });
    let layers = recorder.records.iter().filter(|record| record.site.stack == watch.site);
    let layers = layers.filter_map(|record| record.site.layer()).max().map_or(0, |last| last + 1);
    let states = |index: usize| format!("{}.{index}", watch.states);
    compare_site(case, &states(0), rows, recorder.get(at(Place::Embed)), comparison)?;
    for index in 0..layers {
        let probs = layer(index, LayerPart::Attention(BranchPart::Probs));
        compare_probs(case, &format!("{}.{index}", watch.attentions), (rows, rows), &of(recorder, probs), comparison)?;
        if let Some((name, keys)) = &watch.cross {
            let probs = layer(index, LayerPart::Cross(BranchPart::Probs));
            compare_probs(case, &format!("{name}.{index}"), (rows, keys), &of(recorder, probs), comparison)?;
        }
        // The reference's last hidden state is the one after the final norm.
        let site = if index + 1 == layers { at(Place::Hidden) } else { layer(index, LayerPart::Out) };
        compare_site(case, &states(index + 1), rows, recorder.get(site), comparison)?;
    }
    Ok(())
}

fn of<F: Fn(Site) -> bool>(recorder: &Recorder<F>, site: Site) -> Vec<&Record> {
    recorder.records.iter().filter(|record| record.site == site).collect()
}

fn compare_site(
    case: &ModelCase,
    name: &str,
    rows: &[Row],
    record: Option<&Record>,
    comparison: &mut Comparison,
) -> Result<()> {
    if !case.expected.has(name) {
        return Ok(());
    }
    match record {
        Some(record) => {
            let mut part = Comparison::default();
            compare_rows(case, name, rows, &record.value, &mut part)?;
            name_site(&mut part, record.site);
            comparison.merge(part);
        }
        None => comparison.fail(name, "nothing was recorded"),
    }
    Ok(())
}

/// Puts our name of the place before the case's.
fn name_site(comparison: &mut Comparison, site: Site) {
    if let Some(failure) = &mut comparison.first_failure {
        *failure = format!("{site} ({failure})");
    }
}

/// Compares packed rows with the real columns of a padded tensor.
pub fn compare_rows(
    case: &ModelCase,
    name: &str,
    rows: &[Row],
    found: &[f32],
    comparison: &mut Comparison,
) -> Result<()> {
    let expected = case.expected.floats(name)?;
    let picked = rows.iter().enumerate().flat_map(|(row, real)| expected.pick(row, &real.columns));
    comparison.values(name, found, &picked.collect::<Vec<_>>(), case.tolerance()?);
    Ok(())
}

/// Compares each sequence's probabilities [H, T, S] with the real columns of a padded [B, H, T, S].
fn compare_probs(
    case: &ModelCase,
    name: &str,
    (queries, keys): (&[Row], &[Row]),
    records: &[&Record],
    comparison: &mut Comparison,
) -> Result<()> {
    if !case.expected.has(name) {
        return Ok(());
    }
    let expected = case.expected.floats(name)?;
    let [_, heads, length, width] = expected.shape[..] else {
        comparison.fail(name, "the expected tensor does not have four dimensions");
        return Ok(());
    };
    if records.len() != queries.len() {
        comparison.fail(name, format!("{} sequences were recorded, {} are expected", records.len(), queries.len()));
        return Ok(());
    }
    for (row, record) in records.iter().enumerate() {
        let mut picked = Vec::with_capacity(record.value.len());
        for head in 0..heads {
            for query in &queries[row].columns {
                let at = ((row * heads + head) * length + query) * width;
                picked.extend(keys[row].columns.iter().map(|key| expected.values[at + key]));
            }
        }
        let mut part = Comparison::default();
        part.values(&format!("{name} row {row}"), &record.value, &picked, PROBABILITY);
        name_site(&mut part, record.site);
        comparison.merge(part);
    }
    Ok(())
}
