//! Sparse vectors over the vocabulary (SPLADE, Formal et al. 2021): a weight for every token that a text is about, from
//! the masked-language-model head.

use super::ability::Task;
use super::pack::Watch;
use super::reader::{TaskModel, Text, each};
use crate::error::Error;
use attend_format::Config;
use attend_nn::Nobody;
use serde::Serialize;

/// Rows that go through the output matrix at once: never a matrix of all tokens by the vocabulary.
const HEAD_ROWS: usize = 32;

/// How logits [T, V] become weights [V].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sparse {
    pub strategy: Strategy,
    /// The logarithm is taken twice.
    pub twice: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// The largest over the tokens.
    Max,
    Sum,
}

impl Default for Sparse {
    fn default() -> Sparse {
        Sparse { strategy: Strategy::Max, twice: false }
    }
}

/// A token's weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Weight {
    pub id: u32,
    pub token: String,
    pub weight: f32,
}

/// A text's tokens with weights above zero, the largest first.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseEmbedding {
    pub weights: Vec<Weight>,
    pub tokens: usize,
    pub cut: bool,
}

impl Sparse {
    pub(crate) fn read(config: &Config) -> Result<Sparse, Error> {
        let strategy = match config.str_or("pooling_strategy", "max")? {
            "max" => Strategy::Max,
            "sum" => Strategy::Sum,
            other => return Err(config.bad("pooling_strategy", format!("{other:?} is not known")).into()),
        };
        let twice = match config.str_or("activation_function", "relu")? {
            "relu" => false,
            "log1p_relu" => true,
            other => return Err(config.bad("activation_function", format!("{other:?} is not known")).into()),
        };
        Ok(Sparse { strategy, twice })
    }

    /// `log(1 + relu(x))`, once or twice.
    fn weight(self, logit: f32) -> f32 {
        let once = logit.max(0.0).ln_1p();
        if self.twice { once.ln_1p() } else { once }
    }
}

/// The sparse vectors of texts.
///
/// # Errors
/// A model without a masked-language-model head, and inputs that cannot be read.
pub fn embed(
    model: &TaskModel<'_>,
    sparse: Sparse,
    texts: &[&str],
    watch: &mut Watch<'_>,
) -> Result<Vec<SparseEmbedding>, Error> {
    Task::Fill.check(model.model.spec())?;
    let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::one(text)).collect();
    let items = each(&texts, |text| model.encode(text, false))?;
    let references: Vec<_> = items.iter().collect();
    let width = model.width();
    model.each_input(&references, watch, &mut |index, rows| {
        let mut weights = Vec::new();
        for rows in rows.chunks(HEAD_ROWS * width) {
            let logits = model.computing().logits(rows, &mut Nobody)?;
            super::finite(&logits)?;
            weights.resize(logits.len() / (rows.len() / width), 0.0f32);
            for row in logits.chunks_exact(weights.len()) {
                weights.iter_mut().zip(row).for_each(|(weight, &logit)| match sparse.strategy {
                    Strategy::Max => *weight = weight.max(sparse.weight(logit)),
                    Strategy::Sum => *weight += sparse.weight(logit),
                });
            }
        }
        let mut found: Vec<(u32, f32)> = (0..).zip(weights).filter(|(_, weight)| *weight > 0.0).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let spell = |id: u32| model.tokenizer.token(id).unwrap_or_default();
        let weights = found.into_iter().map(|(id, weight)| Weight { id, token: spell(id), weight }).collect();
        let (tokens, cut) = items.get(index).map_or((0, false), |item| (item.encoding.len(), item.cut));
        Ok(SparseEmbedding { weights, tokens, cut })
    })
}
