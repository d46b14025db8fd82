//! Positions by relative distance: T5's buckets, and disentangled attention with what comes with it.

use super::encoder::post_norm;
use super::sizes::Sizes;
use crate::error::Error;
use crate::reader::Reader;
use attend_nn::spec::*;

/// T5's buckets of distances to both sides.
pub fn buckets(c: &Reader, s: &Sizes) -> Result<RelativeBias, Error> {
    Ok(RelativeBias {
        buckets: c.count_or(&["relative_attention_num_buckets"], 32)?,
        max_distance: c.count_or(&["relative_attention_max_distance"], 128)?,
        bidirectional: true,
        heads: s.heads,
    })
}

/// What scores are made of beside content and content: the configuration lists it, or joins it by bars.
fn terms<'a>(c: &'a Reader) -> Result<Vec<&'a str>, Error> {
    let list = c.value("pos_att_type").and_then(|value| value.as_array());
    let terms: Vec<&str> = match list {
        Some(list) => list.iter().map(|term| term.as_str().unwrap_or_default()).collect(),
        None => c.text("pos_att_type")?.map_or(Vec::new(), |text| text.split('|').map(str::trim).collect()),
    };
    match terms.iter().find(|term| !["c2p", "p2c"].contains(term)) {
        Some(term) => Err(c.wrong("pos_att_type", format!("`{term}` is neither c2p nor p2c"))),
        None => Ok(terms),
    }
}

/// Disentangled attention in a stack.
#[derive(Debug, Clone, Copy)]
pub struct Distances {
    pub scores: Disentangled,
    /// The rows of distances have a norm.
    pub normed: bool,
}

/// The scores of distances, with these projections for the keys and for the queries.
pub fn disentangled(c: &Reader, [key, query]: [RelativeProjection; 2]) -> Result<Option<Distances>, Error> {
    if !c.flag("relative_attention", false)? {
        return Ok(None);
    }
    // A number below 1, usually -1, means that there is none.
    let positive = |key: &str| Ok::<_, Error>(c.number_opt(key)?.filter(|number| *number >= 1.0).map(|x| x as usize));
    let longest = match positive("max_relative_positions")? {
        Some(longest) => longest,
        None => c.count_or(&["max_position_embeddings"], 512)?,
    };
    let buckets = positive("position_buckets")?;
    let terms = terms(c)?;
    let scores = Disentangled {
        span: buckets.unwrap_or(longest),
        max_distance: buckets.map(|_| longest),
        position_key: terms.contains(&"c2p").then_some(key),
        position_query: terms.contains(&"p2c").then_some(query),
    };
    let normed = c.text("norm_rel_ebd")?.is_some_and(|text| text.to_lowercase().contains("layer_norm"));
    Ok(Some(Distances { scores, normed }))
}

/// The convolution of the largest models.
fn conv(c: &Reader, s: &Sizes, norm: Norm) -> Result<Option<Conv>, Error> {
    let Some(kernel) = c.whole_opt("conv_kernel_size")?.filter(|kernel| *kernel > 0) else { return Ok(None) };
    let groups = c.count_or(&["conv_groups"], 1)?;
    if kernel % 2 == 0 || !s.width.is_multiple_of(groups) {
        return Err(c.wrong("conv_kernel_size", format!("{kernel} with {groups} groups does not fit {}", s.width)));
    }
    Ok(Some(Conv { kernel, groups, activation: c.activation("conv_act", Activation::Tanh)?, norm }))
}

/// A post-norm stack whose scores have terms of distances, scaled by the number of all terms, and with the convolution
/// of the largest models where there is one.
pub fn disentangled_stack(
    c: &Reader,
    s: &Sizes,
    embed: Embed,
    norm: Norm,
    distances: Option<Distances>,
    ffn: Ffn,
) -> Result<Stack, Error> {
    let position = distances.map_or(Position::None, |distances| Position::Disentangled(distances.scores));
    let mut stack = post_norm(s, embed, norm, position, ffn);
    let terms = 1 + terms(c)?.len();
    stack.layers.iter_mut().for_each(|layer| layer.attention.scale = ((s.head_dim * terms) as f32).powf(-0.5));
    stack.relative_rows = distances
        .map(|Distances { scores, normed }| RelativeRows { rows: 2 * scores.span, norm: normed.then_some(norm) });
    stack.conv = conv(c, s, norm)?;
    Ok(stack)
}
