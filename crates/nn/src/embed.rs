//! Token, position and type embeddings, forward and backward.

use crate::batch::Packed;
use crate::error::Error;
use crate::grads::Gradients;
use crate::linear::Linear;
use crate::low_rank::LowRank;
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::site::{Place, Site};
use crate::spec::{AbsolutePositions, Embed};
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
    pub low_rank: Vec<LowRank>,
}

impl EmbedLayer {
    /// [N, D]
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        packed: &Packed,
        site: impl Fn(Place) -> Site,
        observer: &mut O,
    ) -> Result<Vec<f32>, Error> {
        self.check(packed)?;
        let width = self.spec.width;
        let mut x = vec![0.0; packed.rows() * width];
        let mut row = vec![0.0; width];
        for (index, out) in x.chunks_exact_mut(width).enumerate() {
            self.tokens.read_rows(packed.token_ids[index] as usize, out);
            if self.spec.scale != 1.0 {
                out.iter_mut().for_each(|value| *value *= self.spec.scale);
            }
            if let Some(types) = &self.types {
                types.read_rows(packed.token_types[index] as usize, &mut row);
                add(out, &row);
            }
            if self.position_row(packed.positions[index] as usize, &mut row) {
                add(out, &row);
            }
        }
        for adapter in &self.low_rank {
            let mut part = vec![0.0; x.len()];
            adapter.add_tokens(&packed.token_ids, &mut part);
            x.iter_mut().zip(part).for_each(|(x, part)| *x += part * self.spec.scale);
        }
        let shape = [packed.rows(), width];
        offer(observer, site(Place::EmbedSum), &mut x, &shape);
        if let Some(norm) = &self.norm {
            x = norm.forward(&x);
        }
        offer(observer, site(Place::EmbedNormed), &mut x, &shape);
        if let Some(projection) = &self.projection {
            x = projection.forward(&x);
        }
        let shape = [packed.rows(), x.len() / packed.rows()];
        offer(observer, site(Place::Embed), &mut x, &shape);
        Ok(x)
    }

    /// The absolute position's embedding, where there is one.
    fn position_row(&self, position: usize, row: &mut [f32]) -> bool {
        match (self.spec.positions, &self.positions) {
            (AbsolutePositions::Learned { offset, .. }, Some(table)) => {
                table.read_rows(position + offset, row);
                true
            }
            (AbsolutePositions::Sinusoidal { layout, offset }, _) => {
                sinusoidal(position + offset, row.len(), layout, row);
                true
            }
            _ => false,
        }
    }

    fn check(&self, packed: &Packed) -> Result<(), Error> {
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
            for &position in &packed.positions {
                if position as usize > last {
                    return Err(Error::Position { position: position as usize, last });
                }
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
        if let Some(projection) = &self.projection {
            let normed = tape.get(site(Place::EmbedNormed));
            let mut dnormed = vec![0.0; normed.len()];
            projection.backward(normed, &d, &mut dnormed, grads);
            d = dnormed;
        }
        if let Some(norm) = &self.norm {
            let sum = tape.get(site(Place::EmbedSum));
            let mut dsum = vec![0.0; sum.len()];
            norm.backward(sum, &d, &mut dsum, grads);
            d = dsum;
        }
        let ids = |ids: &[u32]| ids.iter().map(|id| *id as usize).collect::<Vec<_>>();
        self.scatter(&self.table_name, &self.tokens, &ids(&packed.token_ids), self.spec.scale, &d, grads);
        if !self.low_rank.is_empty() {
            let scaled: Vec<f32> = d.iter().map(|d| d * self.spec.scale).collect();
            self.low_rank.iter().for_each(|adapter| adapter.backward_tokens(&packed.token_ids, &scaled, grads));
        }
        if let Some(types) = &self.types {
            let name = format!("{}embed.types.weight", self.prefix);
            self.scatter(&name, types, &ids(&packed.token_types), 1.0, &d, grads);
        }
        if let (Some(table), AbsolutePositions::Learned { offset, .. }) = (&self.positions, self.spec.positions) {
            let name = format!("{}embed.positions.weight", self.prefix);
            let rows: Vec<usize> = packed.positions.iter().map(|position| *position as usize + offset).collect();
            self.scatter(&name, table, &rows, 1.0, &d, grads);
        }
    }

    /// Adds each row of `d`, scaled, to the gradient of the table row it was gathered from.
    fn scatter(&self, name: &str, table: &Matrix, rows: &[usize], scale: f32, d: &[f32], grads: &mut Gradients) {
        let width = table.cols();
        if let Some(slot) = grads.slot(name, table.rows() * width) {
            for (row, d) in rows.iter().zip(d.chunks_exact(width)) {
                let slot = &mut slot[row * width..(row + 1) * width];
                slot.iter_mut().zip(d).for_each(|(slot, d)| *slot += d * scale);
            }
        }
    }
}

fn add(out: &mut [f32], row: &[f32]) {
    out.iter_mut().zip(row).for_each(|(out, row)| *out += row);
}
