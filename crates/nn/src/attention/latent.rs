//! Latent attention: queries, keys and mixed values by way of short vectors (see [`crate::spec::Latent`]).

use super::{AttentionLayer, PositionTables, Step};
use crate::grads::Gradients;
use crate::linear::Linear;
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::site::{BranchPart, Site};
use crate::spec::Latent;
use attend_kernels::{rotate, rotate_back};
use std::iter::{Once, once};

/// What latent attention has beside its query, key and output projections. The key projection gives the latent and the
/// rotated key, [N, rank + rope_dim].
#[derive(Debug, Clone)]
pub struct LatentParts {
    pub spec: Latent,
    /// To the latent that queries come from, and its norm.
    pub query_down: Option<(Linear, NormLayer)>,
    pub norm: NormLayer,
    /// For each head: from its part of a query to the latent's width, so that it can be compared with latents.
    pub key_up: Vec<Linear>,
    /// For each head: from the mixed latents to its values.
    pub value_up: Vec<Linear>,
}

impl LatentParts {
    /// Queries as the core sees them, [N, H * (rank + rope_dim)].
    pub(super) fn queries<O: Observer + ?Sized>(
        &self,
        layer: &AttentionLayer,
        x: &[f32],
        step: &Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let (tables, adapters) = (step.tables, &step.packed.adapters);
        let mut query = match &self.query_down {
            None => layer.query.forward(x, adapters),
            Some((down, norm)) => {
                let mut latent = down.forward(x, adapters);
                let shape = [latent.len() / down.out_features(), down.out_features()];
                offer(observer, site(BranchPart::QueryDown), &mut latent, &shape);
                latent = norm.forward(&latent);
                offer(observer, site(BranchPart::QueryLatent), &mut latent, &shape);
                layer.query.forward(&latent, adapters)
            }
        };
        let heads = layer.spec.heads;
        let shape = [query.len() / layer.query.out_features(), layer.query.out_features()];
        offer(observer, site(BranchPart::QueryRaw), &mut query, &shape);
        let (mut core, core_width) = (vec![0.0; shape[0] * heads * layer.spec.key_dim], heads * layer.spec.key_dim);
        let mut turned = columns(&query, shape[1], self.rope_columns(heads));
        if let Some(rows) = layer.rope_rows(tables) {
            rotate(&mut turned, heads, &rows);
        }
        set_columns(&mut core, core_width, self.core_rope_columns(heads), &turned);
        for (head, up) in self.key_up.iter().enumerate() {
            let compared = up.forward(&columns(&query, shape[1], self.plain_columns(head)), adapters);
            set_columns(&mut core, core_width, self.core_latent_columns(head), &compared);
        }
        offer(observer, site(BranchPart::QueryRotated), &mut core, &[shape[0], core_width]);
        core
    }

    /// Latents and rotated keys, [N, rank + rope_dim].
    pub(super) fn keys<O: Observer + ?Sized>(
        &self,
        layer: &AttentionLayer,
        x: &[f32],
        step: &Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let mut key = layer.key.forward(x, &step.packed.adapters);
        let width = layer.key.out_features();
        let shape = [key.len() / width, width];
        offer(observer, site(BranchPart::KeyRaw), &mut key, &shape);
        let latent = self.norm.forward(&columns(&key, width, once(0..self.spec.rank)));
        let mut turned = columns(&key, width, once(self.spec.rank..width));
        if let Some(rows) = layer.rope_rows(step.tables) {
            rotate(&mut turned, 1, &rows);
        }
        set_columns(&mut key, width, once(0..self.spec.rank), &latent);
        set_columns(&mut key, width, once(self.spec.rank..width), &turned);
        offer(observer, site(BranchPart::KeyRotated), &mut key, &shape);
        key
    }

    /// From mixed latents [N, H * rank] to mixed values [N, H * value_dim].
    pub(super) fn values<O: Observer + ?Sized>(
        &self,
        mixed: &mut [f32],
        step: &Step,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let (heads, rank) = (self.value_up.len(), self.spec.rank);
        let rows = mixed.len() / (heads * rank);
        offer(observer, site(BranchPart::MixedLatent), mixed, &[rows, heads * rank]);
        let width = heads * self.spec.value_dim;
        let mut values = vec![0.0; rows * width];
        for (head, up) in self.value_up.iter().enumerate() {
            let latents = columns(mixed, heads * rank, once(head * rank..(head + 1) * rank));
            let given = up.forward(&latents, &step.packed.adapters);
            set_columns(&mut values, width, self.value_columns(head), &given);
        }
        values
    }

    /// From the gradient of [`LatentParts::values`] to that of the mixed latents.
    pub(super) fn values_backward(&self, mixed: &[f32], dvalues: &[f32], grads: &mut Gradients) -> Vec<f32> {
        let (width, rank) = (self.value_up.len() * self.spec.rank, self.spec.rank);
        let mut dmixed = vec![0.0; mixed.len()];
        for (head, up) in self.value_up.iter().enumerate() {
            let place = || once(head * rank..(head + 1) * rank);
            let dy = columns(dvalues, self.value_up.len() * self.spec.value_dim, self.value_columns(head));
            let x = columns(mixed, width, place());
            let mut dx = vec![0.0; x.len()];
            up.backward(&x, &dy, &mut dx, grads);
            set_columns(&mut dmixed, width, place(), &dx);
        }
        dmixed
    }

    /// From the gradient of the core's queries to that of the layer's input.
    pub(super) fn queries_backward(&self, mut dcore: Vec<f32>, back: &mut Back) {
        let Back { layer, tables, site, tape, dx, grads } = back;
        let heads = layer.spec.heads;
        let (width, core_width) = (layer.query.out_features(), heads * layer.spec.key_dim);
        let query = tape.get(site(BranchPart::QueryRaw));
        let mut dquery = vec![0.0; query.len()];
        for (head, up) in self.key_up.iter().enumerate() {
            let x = columns(query, width, self.plain_columns(head));
            let mut dplain = vec![0.0; x.len()];
            up.backward(&x, &columns(&dcore, core_width, self.core_latent_columns(head)), &mut dplain, grads);
            set_columns(&mut dquery, width, self.plain_columns(head), &dplain);
        }
        dcore = columns(&dcore, core_width, self.core_rope_columns(heads));
        if let Some(rows) = layer.rope_rows(tables) {
            rotate_back(&mut dcore, heads, &rows);
        }
        set_columns(&mut dquery, width, self.rope_columns(heads), &dcore);
        let x = tape.get(site(BranchPart::In));
        match &self.query_down {
            None => layer.query.backward(x, &dquery, dx, grads),
            Some((down, norm)) => {
                let raw = tape.get(site(BranchPart::QueryDown));
                let (mut dlatent, mut draw) = (vec![0.0; raw.len()], vec![0.0; raw.len()]);
                layer.query.backward(tape.get(site(BranchPart::QueryLatent)), &dquery, &mut dlatent, grads);
                norm.backward(raw, &dlatent, &mut draw, grads);
                down.backward(x, &draw, dx, grads);
            }
        }
    }

    /// From the gradients of the core's keys and values (its latents) to that of the layer's input.
    pub(super) fn keys_backward(&self, dkey: &[f32], dvalue: &[f32], back: &mut Back) {
        let Back { layer, tables, site, tape, dx, grads } = back;
        let (width, rank) = (layer.key.out_features(), self.spec.rank);
        let mut dlatent = columns(dkey, width, once(0..rank));
        dlatent.iter_mut().zip(dvalue).for_each(|(d, dvalue)| *d += dvalue);
        let mut dturned = columns(dkey, width, once(rank..width));
        if let Some(rows) = layer.rope_rows(tables) {
            rotate_back(&mut dturned, 1, &rows);
        }
        let raw = columns(tape.get(site(BranchPart::KeyRaw)), width, once(0..rank));
        let mut draw = vec![0.0; raw.len()];
        self.norm.backward(&raw, &dlatent, &mut draw, grads);
        let mut dprojected = vec![0.0; dkey.len()];
        set_columns(&mut dprojected, width, once(0..rank), &draw);
        set_columns(&mut dprojected, width, once(rank..width), &dturned);
        layer.key.backward(tape.get(site(BranchPart::In)), &dprojected, dx, grads);
    }

    /// Where in a projected query a head's part without rotation is.
    fn plain_columns(&self, head: usize) -> Once<Columns> {
        let start = head * (self.spec.key_dim + self.spec.rope_dim);
        once(start..start + self.spec.key_dim)
    }

    /// Where the rotated parts of all heads are.
    fn rope_columns(&self, heads: usize) -> impl Iterator<Item = Columns> + Clone {
        let (head_dim, plain) = (self.spec.key_dim + self.spec.rope_dim, self.spec.key_dim);
        (0..heads).map(move |head| head * head_dim + plain..(head + 1) * head_dim)
    }

    /// Where in the core's query a head's part for the latents is.
    fn core_latent_columns(&self, head: usize) -> Once<Columns> {
        let start = head * (self.spec.rank + self.spec.rope_dim);
        once(start..start + self.spec.rank)
    }

    fn core_rope_columns(&self, heads: usize) -> impl Iterator<Item = Columns> + Clone {
        let (head_dim, rank) = (self.spec.rank + self.spec.rope_dim, self.spec.rank);
        (0..heads).map(move |head| head * head_dim + rank..(head + 1) * head_dim)
    }

    fn value_columns(&self, head: usize) -> Once<Columns> {
        once(head * self.spec.value_dim..(head + 1) * self.spec.value_dim)
    }
}

/// What the way back through the projections reads and writes.
pub(super) struct Back<'a> {
    pub layer: &'a AttentionLayer,
    pub tables: &'a PositionTables,
    pub site: &'a dyn Fn(BranchPart) -> Site,
    pub tape: &'a Tape,
    pub dx: &'a mut [f32],
    pub grads: &'a mut Gradients,
}

type Columns = std::ops::Range<usize>;

/// Some columns of rows `width` wide, side by side.
fn columns(x: &[f32], width: usize, ranges: impl IntoIterator<Item = Columns> + Clone) -> Vec<f32> {
    let rows = x.chunks_exact(width);
    rows.flat_map(|row| ranges.clone().into_iter().flat_map(|range| &row[range])).copied().collect()
}

/// Puts back what [`columns`] takes out.
fn set_columns(x: &mut [f32], width: usize, ranges: impl IntoIterator<Item = Columns> + Clone, mut values: &[f32]) {
    for row in x.chunks_exact_mut(width) {
        for range in ranges.clone() {
            let (taken, rest) = values.split_at(range.len());
            row[range].copy_from_slice(taken);
            values = rest;
        }
    }
}
