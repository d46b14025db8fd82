//! Positions that act inside attention: rotary tables and biases by distance, made once a step for all layers.

use crate::attention::StepGradient;
use crate::batch::Packed;
use crate::grads::Gradients;
use crate::norm::NormLayer;
use crate::spec::{Alibi, Attention, Position, RelativeBias, Rope, RopeScaling, Stack};
use attend_kernels::{Bias, Matrix, alibi_bias, alibi_slopes, relative_bucket, rope_frequencies, rope_tables};

/// The different rotary embeddings and biases of a stack; layers refer to them by index.
#[derive(Debug, Clone, Default)]
pub struct PositionSet {
    ropes: Vec<Rope>,
    biases: Vec<BiasSource>,
    /// Embeddings of relative distances.
    pub relative: Option<RelativeEmbedding>,
}

/// Rows of relative distances, normed before they are used.
#[derive(Debug, Clone)]
pub struct RelativeEmbedding {
    /// [rows, D]
    pub table: RelativeTable,
    pub norm: Option<NormLayer>,
}

#[derive(Debug, Clone)]
enum BiasSource {
    Alibi { alibi: Alibi, heads: usize },
    Relative { spec: RelativeBias, table: RelativeTable },
}

/// A learned table of biases by bucket.
#[derive(Debug, Clone)]
pub struct RelativeTable {
    /// The weight's name.
    pub name: String,
    /// [buckets, H]
    pub weight: Vec<f32>,
}

/// What a layer's attention takes from the [`PositionSet`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PositionUse {
    pub rope: Option<usize>,
    pub bias: Option<usize>,
}

impl PositionSet {
    /// Registers what an attention needs. `table` is the relative-bias table it reads: its own or the stack's.
    pub fn register(&mut self, attention: &Attention, stack: &Stack, table: Option<RelativeTable>) -> PositionUse {
        match (&attention.position, table) {
            (Position::Rope(rope), _) => {
                let index = self.ropes.iter().position(|known| known == rope).unwrap_or_else(|| {
                    self.ropes.push(rope.clone());
                    self.ropes.len() - 1
                });
                PositionUse { rope: Some(index), bias: None }
            }
            (Position::Alibi(alibi), _) => {
                let same = |known: &BiasSource| matches!(known, BiasSource::Alibi { alibi: a, heads } if a == alibi && *heads == attention.heads);
                self.bias(same, || BiasSource::Alibi { alibi: *alibi, heads: attention.heads })
            }
            (Position::RelativeBias(spec), Some(table)) => self.relative(*spec, table),
            (Position::StackBias, Some(table)) => match stack.relative_bias {
                Some(spec) => self.relative(spec, table),
                None => PositionUse::default(),
            },
            (Position::None | Position::RelativeBias(_) | Position::StackBias | Position::Disentangled(_), _) => {
                PositionUse::default()
            }
        }
    }

    fn relative(&mut self, spec: RelativeBias, table: RelativeTable) -> PositionUse {
        let name = table.name.clone();
        let same = move |known: &BiasSource| matches!(known, BiasSource::Relative { table, .. } if table.name == name);
        self.bias(same, || BiasSource::Relative { spec, table })
    }

    fn bias(&mut self, same: impl Fn(&BiasSource) -> bool, make: impl FnOnce() -> BiasSource) -> PositionUse {
        let index = self.biases.iter().position(same).unwrap_or_else(|| {
            self.biases.push(make());
            self.biases.len() - 1
        });
        PositionUse { rope: None, bias: Some(index) }
    }

    /// The tables of one step.
    pub(crate) fn tables(&self, packed: &Packed) -> PositionTables {
        let longest = packed.sequences.iter().map(|sequence| sequence.past + sequence.rows.len()).max().unwrap_or(0);
        PositionTables {
            ropes: self.ropes.iter().map(|rope| RopeTable::new(rope, packed)).collect(),
            biases: self.biases.iter().map(|bias| bias.table(longest)).collect(),
            relative: self.relative.as_ref().map_or(Vec::new(), RelativeEmbedding::rows),
        }
    }

    /// Carries the gradients of the distance tables over to the learned tables they were made from.
    pub(crate) fn backward(&self, tables: &PositionTables, step: &StepGradient, grads: &mut Gradients) {
        if let Some(relative) = &self.relative {
            relative.backward(&step.d_relative, grads);
        }
        let dbiases = &step.d_biases;
        for ((source, table), dvalues) in self.biases.iter().zip(&tables.biases).zip(dbiases) {
            let BiasSource::Relative { spec, table: learned } = source else { continue };
            let Some(slot) = grads.slot(&learned.name, learned.weight.len()) else { continue };
            for (head, dvalues) in dvalues.chunks_exact(table.span).enumerate() {
                for (entry, dvalue) in dvalues.iter().enumerate() {
                    slot[spec.bucket(entry as i64 - table.zero as i64) * spec.heads + head] += dvalue;
                }
            }
        }
    }
}

impl RelativeEmbedding {
    fn rows(&self) -> Vec<f32> {
        match &self.norm {
            Some(norm) => norm.forward(&self.table.weight),
            None => self.table.weight.clone(),
        }
    }

    fn backward(&self, drows: &[f32], grads: &mut Gradients) {
        let mut dweight = vec![0.0; drows.len()];
        match &self.norm {
            Some(norm) => norm.backward(&self.table.weight, drows, &mut dweight, grads),
            None => dweight.copy_from_slice(drows),
        }
        if let Some(slot) = grads.slot(&self.table.name, dweight.len()) {
            slot.iter_mut().zip(dweight).for_each(|(slot, d)| *slot += d);
        }
    }
}

impl RelativeBias {
    /// The bucket of a distance, key minus query.
    pub fn bucket(&self, distance: i64) -> usize {
        relative_bucket(distance, self.buckets, self.max_distance, self.bidirectional)
    }
}

impl BiasSource {
    /// Biases for sequences of up to `longest` tokens.
    fn table(&self, longest: usize) -> BiasTable {
        match self {
            BiasSource::Alibi { alibi, heads } => {
                let slopes = alibi_slopes(*heads, alibi.slopes, alibi.max_bias);
                // Rounded biases are not functions of the distance alone: the position itself is rounded.
                let zero = if alibi.rounded { 0 } else { longest.saturating_sub(1) };
                let span = longest.max(1);
                // As large as it will be: a list that grows takes more than its length says.
                let mut values = Vec::with_capacity(slopes.len() * span);
                for slope in slopes {
                    values.extend((0..span).map(|entry| alibi_bias(slope, entry as f32 - zero as f32, alibi.rounded)));
                }
                BiasTable { values, span, zero, by_key: alibi.rounded, scaled: alibi.scaled }
            }
            BiasSource::Relative { spec, table } => {
                let zero = longest.saturating_sub(1);
                let span = 2 * zero + 1;
                let mut values = vec![0.0; spec.heads * span];
                for entry in 0..span {
                    let bucket = spec.bucket(entry as i64 - zero as i64);
                    for head in 0..spec.heads {
                        values[head * span + entry] = table.weight[bucket * spec.heads + head];
                    }
                }
                BiasTable { values, span, zero, by_key: false, scaled: false }
            }
        }
    }
}

/// The tables of one step, for all layers.
pub(crate) struct PositionTables {
    pub ropes: Vec<RopeTable>,
    pub biases: Vec<BiasTable>,
    /// Rows of relative distances as layers project them, [rows, D]; empty where there are none.
    pub relative: Vec<f32>,
}

pub(crate) struct RopeTable {
    /// [N, dim/2]
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
}

/// Biases [H][span] by key (`by_key`) or by distance.
pub(crate) struct BiasTable {
    pub values: Vec<f32>,
    pub span: usize,
    pub zero: usize,
    pub by_key: bool,
    pub scaled: bool,
}

impl BiasTable {
    pub fn bias(&self) -> Bias<'_> {
        match self.by_key {
            true => Bias::Key { values: &self.values, keys: self.span },
            false => Bias::Distance { values: &self.values, span: self.span, zero: self.zero },
        }
    }
}

impl RopeTable {
    fn new(rope: &Rope, packed: &Packed) -> RopeTable {
        let half = rope.dim / 2;
        let mut table = RopeTable { cos: Vec::new(), sin: Vec::new() };
        table.cos.reserve(packed.rows() * half);
        table.sin.reserve(packed.rows() * half);
        for sequence in &packed.sequences {
            let positions = &packed.positions[sequence.rows.clone()];
            let last = positions.iter().max().map_or(0, |last| *last as usize + 1);
            // Frequencies depend on a length only in two scalings: per position in dynamic NTK, so that a position's
            // rotation does not depend on how the tokens before it were cut into steps; per request in LongRoPE.
            let length = |position: u32| match rope.scaling {
                RopeScaling::Dynamic { .. } => sequence.rope_length.max(position as usize + 1),
                RopeScaling::Long { .. } => sequence.rope_length.max(last),
                RopeScaling::None
                | RopeScaling::Linear { .. }
                | RopeScaling::Llama3 { .. }
                | RopeScaling::Yarn { .. }
                | RopeScaling::Divisors { .. } => 0,
            };
            for run in positions.chunk_by(|a, b| length(*a) == length(*b)) {
                let (frequencies, factor) = rope_frequencies(rope.base, rope.dim, &rope.scaling, length(run[0]));
                let (cos, sin) = rope_tables(&frequencies, factor, run);
                table.cos.extend(cos);
                table.sin.extend(sin);
            }
        }
        table
    }
}

/// Reads a small learned table whole.
pub(crate) fn unpack(matrix: &Matrix) -> Vec<f32> {
    let mut values = vec![0.0; matrix.rows() * matrix.cols()];
    matrix.read_rows(0, &mut values);
    values
}
