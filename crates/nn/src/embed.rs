//! Token, position and type embeddings, forward and backward.

use crate::batch::Packed;
use crate::error::Error;
use crate::grads::Gradients;
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::row_adapters::LayerAdapters;
use crate::site::{Place, Site};
use crate::spec::{AbsolutePositions, Embed, Projection, ProjectionPlace};
use attend_kernels::{Matrix, sinusoidal};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct EmbedLayer {
    pub spec: Embed,
    /// The name of the token table's weight: the encoder's where the table is shared.
    pub table_name: String,
    pub prefix: String,
    pub tokens: Arc<Matrix>,
    pub positions: Option<Arc<Matrix>>,
    pub types: Option<Arc<Matrix>>,
    pub norm: Option<NormLayer>,
    pub projection: Option<Linear>,
    /// Adapters of the token table.
    pub low_rank: LayerAdapters,
}

impl EmbedLayer {
    /// [N, D]
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        packed: &Packed,
        site: impl Fn(Place) -> Site,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        let numbers = self.numbers(packed);
        self.check(packed, &numbers)?;
        let mut x = self.token_rows(packed);
        if let Some(projection) = self.projection(ProjectionPlace::Tokens) {
            let shape = [packed.rows(), self.spec.width];
            offer(observer, site(Place::EmbedTokens), &mut x, &shape);
            x = projection.forward(&x, &packed.adapters);
        }
        if let Some(norm) = self.norm(true) {
            let shape = [packed.rows(), self.spec.width];
            offer(observer, site(Place::EmbedTokens), &mut x, &shape);
            x = norm.forward(&x);
        }
        let width = x.len() / packed.rows();
        let mut row = vec![0.0; width];
        for (index, out) in x.chunks_exact_mut(width).enumerate() {
            if let Some(types) = &self.types {
                types.read_rows(packed.token_types[index] as usize, &mut row);
                add(out, &row);
            }
            if self.position_row(numbers[index], &mut row) {
                add(out, &row);
            }
        }
        let shape = [packed.rows(), width];
        offer(observer, site(Place::EmbedSum), &mut x, &shape);
        if let Some(projection) = self.projection(ProjectionPlace::BeforeNorm) {
            x = projection.forward(&x, &packed.adapters);
            let shape = [packed.rows(), projection.out_features()];
            offer(observer, site(Place::EmbedProjected), &mut x, &shape);
        }
        if let Some(norm) = self.norm(false) {
            x = norm.forward(&x);
        }
        if let Some(projection) = self.projection(ProjectionPlace::AfterNorm) {
            offer(observer, site(Place::EmbedNormed), &mut x, &shape);
            x = projection.forward(&x, &packed.adapters);
        }
        let shape = [packed.rows(), x.len() / packed.rows()];
        offer(observer, site(Place::Embed), &mut x, &shape);
        Ok(x)
    }

    /// The tokens' rows of the table, scaled, [N, E].
    fn token_rows(&self, packed: &Packed) -> Vec<f32> {
        let width = self.spec.width;
        let mut x = vec![0.0; packed.rows() * width];
        let scales = self.token_scales(packed);
        for (index, out) in x.chunks_exact_mut(width).enumerate() {
            self.tokens.read_rows(packed.token_ids[index] as usize, out);
            if scales[index] != 1.0 {
                out.iter_mut().for_each(|value| *value *= scales[index]);
            }
        }
        for (rows, adapters) in packed.adapters.groups(&self.low_rank, packed.rows()) {
            let (ids, x) = (&packed.token_ids[rows.clone()], &mut x[rows.start * width..rows.end * width]);
            for adapter in adapters {
                let mut part = vec![0.0; x.len()];
                adapter.add_tokens(ids, &mut part);
                x.iter_mut().zip(part).for_each(|(x, part)| *x += part * self.spec.scale);
            }
        }
        x
    }

    /// The projection, if it stands at this place.
    fn projection(&self, place: ProjectionPlace) -> Option<&Linear> {
        let here = |projection: Projection| projection.place == place;
        self.projection.as_ref().filter(|_| self.spec.projection.is_some_and(here))
    }

    /// The norm, if it stands before what is added to the tokens' rows, or behind it.
    fn norm(&self, first: bool) -> Option<&NormLayer> {
        self.norm.as_ref().filter(|_| self.spec.norm_first == first)
    }

    /// What each token's embedding is multiplied by.
    fn token_scales(&self, packed: &Packed) -> Vec<f32> {
        let mut scales = vec![self.spec.scale; packed.rows()];
        let Some(dropout) = self.spec.token_dropout else { return scales };
        for sequence in &packed.sequences {
            let masked = |row: usize| packed.token_ids[row] == dropout.mask;
            let share = sequence.keys.clone().filter(|row| masked(*row)).count() as f32 / sequence.keys.len() as f32;
            for row in sequence.rows.clone() {
                // Of a sequence of masks alone nothing is left, and the factor would be infinite.
                scales[row] *= if masked(row) || share >= 1.0 { 0.0 } else { (1.0 - dropout.rate) / (1.0 - share) };
            }
        }
        scales
    }

    /// Of each token the row of the position table, or the number that its angles are reckoned from.
    fn numbers(&self, packed: &Packed) -> Vec<usize> {
        let offset = match self.spec.positions {
            AbsolutePositions::None => 0,
            AbsolutePositions::Learned { offset, .. } | AbsolutePositions::Sinusoidal { offset, .. } => offset,
        };
        let mut numbers: Vec<usize> = packed.positions.iter().map(|position| *position as usize + offset).collect();
        let Some(uncounted) = self.spec.uncounted else { return numbers };
        for sequence in packed.sequences.iter().filter(|sequence| !sequence.numbered) {
            let mut next = sequence.past + offset;
            for (number, id) in numbers[sequence.rows.clone()].iter_mut().zip(&packed.token_ids[sequence.rows.clone()])
            {
                *number = if *id == uncounted { offset.saturating_sub(1) } else { next };
                next += usize::from(*id != uncounted);
            }
        }
        numbers
    }

    /// The embedding of an absolute position, where there is one.
    fn position_row(&self, number: usize, row: &mut [f32]) -> bool {
        match (self.spec.positions, &self.positions) {
            (AbsolutePositions::Learned { .. }, Some(table)) => {
                table.read_rows(number, row);
                true
            }
            (AbsolutePositions::Sinusoidal { layout, .. }, _) => {
                sinusoidal(number, row.len(), layout, row);
                true
            }
            _ => false,
        }
    }

    fn check(&self, packed: &Packed, numbers: &[usize]) -> Result<(), Error> {
        let vocab = self.tokens.rows();
        for (index, &id) in packed.token_ids.iter().enumerate() {
            if id as usize >= vocab {
                return Err(Error::Token { index, id, vocab });
            }
        }
        if let Some(types) = &self.types {
            for (index, &id) in packed.token_types.iter().enumerate() {
                if id as usize >= types.rows() {
                    return Err(Error::TokenType { index, id, types: types.rows() });
                }
            }
        }
        if let AbsolutePositions::Learned { rows, offset } = self.spec.positions {
            let last = rows.saturating_sub(offset + 1);
            if let Some(number) = numbers.iter().find(|number| **number >= rows) {
                return Err(Error::Position { position: number - offset, last });
            }
        }
        Ok(())
    }

    pub(crate) fn backward(
        &self,
        packed: &Packed,
        tape: &Tape,
        site: impl Fn(Place) -> Site,
        dx: Vec<f32>,
        grads: &mut Gradients,
    ) {
        let mut d = dx;
        if let Some(projection) = self.projection(ProjectionPlace::AfterNorm) {
            let normed = tape.get(site(Place::EmbedNormed));
            let mut dnormed = vec![0.0; normed.len()];
            projection.backward(normed, &d, &mut dnormed, grads);
            d = dnormed;
        }
        let projected = self.projection(ProjectionPlace::BeforeNorm);
        if let Some(norm) = self.norm(false) {
            let sum = tape.get(site(if projected.is_some() { Place::EmbedProjected } else { Place::EmbedSum }));
            let mut dsum = vec![0.0; sum.len()];
            norm.backward(sum, &d, &mut dsum, grads);
            d = dsum;
        }
        if let Some(projection) = projected {
            let sum = tape.get(site(Place::EmbedSum));
            let mut dsum = vec![0.0; sum.len()];
            projection.backward(sum, &d, &mut dsum, grads);
            d = dsum;
        }
        if let Some(types) = &self.types {
            let name = format!("{}embed.types.weight", self.prefix);
            scatter(&name, types, &Rows { numbers: &numbers(&packed.token_types), scales: &[], skip: None }, &d, grads);
        }
        if let (Some(table), AbsolutePositions::Learned { .. }) = (&self.positions, self.spec.positions) {
            let name = format!("{}embed.positions.weight", self.prefix);
            // Padding that is not counted has a row of its own, which stays as it is too.
            let padding = self.spec.uncounted.filter(|id| Some(*id) == self.spec.padding);
            let skip = padding.and(self.spec.positions.before_first());
            scatter(&name, table, &Rows { numbers: &self.numbers(packed), scales: &[], skip }, &d, grads);
        }
        if let Some(norm) = self.norm(true) {
            let tokens = tape.get(site(Place::EmbedTokens));
            let mut dtokens = vec![0.0; tokens.len()];
            norm.backward(tokens, &d, &mut dtokens, grads);
            d = dtokens;
        }
        if let Some(projection) = self.projection(ProjectionPlace::Tokens) {
            let tokens = tape.get(site(Place::EmbedTokens));
            let mut dtokens = vec![0.0; tokens.len()];
            projection.backward(tokens, &d, &mut dtokens, grads);
            d = dtokens;
        }
        let scales = self.token_scales(packed);
        let tokens = Rows { numbers: &numbers(&packed.token_ids), scales: &scales, skip: self.spec.padding };
        scatter(&self.table_name, &self.tokens, &tokens, &d, grads);
        if !self.low_rank.own.is_empty() {
            let scaled: Vec<f32> = d.iter().map(|d| d * self.spec.scale).collect();
            self.low_rank.own.iter().for_each(|adapter| adapter.backward_tokens(&packed.token_ids, &scaled, grads));
        }
    }
}

/// Rows that were read of a table, each times its scale where scales are given; `skip` is one that gets no gradient.
struct Rows<'a> {
    numbers: &'a [usize],
    scales: &'a [f32],
    skip: Option<u32>,
}

fn numbers(ids: &[u32]) -> Vec<usize> {
    ids.iter().map(|id| *id as usize).collect()
}

/// Adds each row of `d`, scaled, to the gradient of the table row it was gathered from.
fn scatter(name: &str, table: &Matrix, rows: &Rows, d: &[f32], grads: &mut Gradients) {
    let width = table.cols();
    let skip = rows.skip.map(|skip| skip as usize);
    if let Some(slot) = grads.slot(name, table.rows() * width) {
        for (index, (&row, d)) in rows.numbers.iter().zip(d.chunks_exact(width)).enumerate() {
            if Some(row) == skip {
                continue;
            }
            let scale = rows.scales.get(index).copied().unwrap_or(1.0);
            let slot = &mut slot[row * width..(row + 1) * width];
            slot.iter_mut().zip(d).for_each(|(slot, d)| *slot += d * scale);
        }
    }
}

fn add(out: &mut [f32], row: &[f32]) {
    out.iter_mut().zip(row).for_each(|(out, row)| *out += row);
}
