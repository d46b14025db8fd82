//! A convolution over the tokens of each sequence, joined to the residual stream, forward and backward.

use crate::batch::Packed;
use crate::grads::Gradients;
use crate::norm::NormLayer;
use crate::observer::{Observer, Tape, offer};
use crate::site::{Place, Site};
use crate::spec::Conv;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct ConvLayer {
    pub spec: Conv,
    /// The weights' name without `.weight` and `.bias`.
    pub name: String,
    /// [D, D / groups, kernel]
    pub weight: Arc<[f32]>,
    /// [D]
    pub bias: Arc<[f32]>,
    pub norm: NormLayer,
}

impl ConvLayer {
    /// `x = norm(x + activation(conv(embedded)))`, both [N, D].
    pub(crate) fn forward<O: Observer + ?Sized>(
        &self,
        embedded: &mut [f32],
        x: &mut Vec<f32>,
        packed: &Packed,
        site: impl Fn(Place) -> Site,
        observer: &mut O,
    ) {
        let width = self.bias.len();
        let shape = [packed.rows(), width];
        offer(observer, site(Place::ConvIn), embedded, &shape);
        let mut raw = vec![0.0; embedded.len()];
        raw.chunks_exact_mut(width).for_each(|row| row.copy_from_slice(&self.bias));
        self.each_tap(packed, |tap| {
            let weight = self.weight[tap.weight];
            for (out, input) in tap.rows(width) {
                raw[out] += weight * embedded[input];
            }
        });
        offer(observer, site(Place::ConvRaw), &mut raw, &shape);
        self.spec.activation.apply_slice(&mut raw);
        x.iter_mut().zip(&raw).for_each(|(x, out)| *x += out);
        offer(observer, site(Place::ConvSum), x, &shape);
        *x = self.norm.forward(x);
    }

    /// Turns the gradient of the output into that of the stream, and returns that of the embeddings.
    pub(crate) fn backward(
        &self,
        dx: &mut Vec<f32>,
        packed: &Packed,
        tape: &Tape,
        site: impl Fn(Place) -> Site,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let width = self.bias.len();
        let mut dsum = vec![0.0; dx.len()];
        self.norm.backward(tape.get(site(Place::ConvSum)), dx, &mut dsum, grads);
        let raw = tape.get(site(Place::ConvRaw));
        let draw: Vec<f32> = dsum.iter().zip(raw).map(|(d, raw)| d * self.spec.activation.derivative(*raw)).collect();
        if let Some(slot) = grads.slot(&format!("{}.bias", self.name), width) {
            for row in draw.chunks_exact(width) {
                slot.iter_mut().zip(row).for_each(|(slot, d)| *slot += d);
            }
        }
        let embedded = tape.get(site(Place::ConvIn));
        let mut dembedded = vec![0.0; dx.len()];
        let mut dweight = vec![0.0; self.weight.len()];
        self.each_tap(packed, |tap| {
            for (out, input) in tap.rows(width) {
                dembedded[input] += self.weight[tap.weight] * draw[out];
                dweight[tap.weight] += draw[out] * embedded[input];
            }
        });
        if let Some(slot) = grads.slot(&format!("{}.weight", self.name), dweight.len()) {
            slot.iter_mut().zip(dweight).for_each(|(slot, d)| *slot += d);
        }
        *dx = dsum;
        dembedded
    }

    /// Calls `body` for every weight, with the rows of each sequence that it joins. Padding takes no part.
    fn each_tap(&self, packed: &Packed, mut body: impl FnMut(&Tap)) {
        let (width, kernel) = (self.bias.len(), self.spec.kernel);
        let group = width / self.spec.groups.max(1);
        for sequence in &packed.sequences {
            for (index, weight) in (0..width * group).flat_map(|pair| (0..kernel).map(move |at| (pair, at))).enumerate()
            {
                let (pair, at) = weight;
                let (out, input) = (pair / group, pair / group / group * group + pair % group);
                body(&Tap { weight: index, out, input, shift: at as i64 - (kernel / 2) as i64, rows: &sequence.keys });
            }
        }
    }
}

/// One weight of the kernel over one sequence.
struct Tap<'a> {
    weight: usize,
    /// The channels it leads to and from.
    out: usize,
    input: usize,
    /// How far the token that is read stands after the one that is written.
    shift: i64,
    rows: &'a Range<usize>,
}

impl Tap<'_> {
    /// The places in [N, D] that are written and read.
    fn rows(&self, width: usize) -> impl Iterator<Item = (usize, usize)> {
        let (rows, shift, out, input) = (self.rows.clone(), self.shift, self.out, self.input);
        self.rows.clone().filter_map(move |row| {
            let read = usize::try_from(row as i64 + shift).ok().filter(|read| rows.contains(read))?;
            Some((row * width + out, read * width + input))
        })
    }
}
