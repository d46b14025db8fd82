//! The feed-forward part: `down(act(up(x)))`, or gated `down(act(gate(x)) * up(x))`.

use crate::grads::Gradients;
use crate::linear::Linear;
use crate::moe::MoeLayer;
use crate::observer::{Observer, Tape, offer};
use crate::row_adapters::RowAdapters;
use crate::site::{BranchPart, Site};
use crate::spec::{Activation, GatedUnit};

/// The feed-forward part of a layer.
#[allow(clippy::large_enum_variant, reason = "there is one a layer")]
#[derive(Debug, Clone)]
pub enum FeedForward {
    Dense(FfnLayer),
    Moe(Box<MoeLayer>),
}

impl FeedForward {
    /// `x` [N, D] to [N, D].
    pub fn forward<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        rows: &RowAdapters,
        site: impl Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        match self {
            FeedForward::Dense(ffn) => ffn.forward(x, rows, site, observer),
            FeedForward::Moe(moe) => moe.forward(x, rows, site, observer),
        }
    }

    /// Adds the gradient of `x` to `dx`.
    pub fn backward(
        &self,
        tape: &Tape,
        site: impl Fn(BranchPart) -> Site,
        dy: &[f32],
        dx: &mut [f32],
        grads: &mut Gradients,
    ) {
        match self {
            FeedForward::Dense(ffn) => ffn.backward(tape, site, dy, dx, grads),
            FeedForward::Moe(moe) => moe.backward(tape, site, dy, dx, grads),
        }
    }

    /// Width of the residual stream (D).
    pub fn width(&self) -> usize {
        match self {
            FeedForward::Dense(ffn) => ffn.down.out_features(),
            FeedForward::Moe(moe) => moe.router.in_features(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct FfnLayer {
    pub activation: Activation,
    pub gate: Option<Linear>,
    pub up: Linear,
    pub down: Linear,
}

impl FfnLayer {
    /// `x` [N, D] to [N, D].
    pub fn forward<O: Observer + ?Sized>(
        &self,
        x: &[f32],
        rows: &RowAdapters,
        site: impl Fn(BranchPart) -> Site,
        observer: &mut O,
    ) -> Vec<f32> {
        let shape = [x.len() / self.up.in_features(), self.up.out_features()];
        let mut hidden = match &self.gate {
            None => {
                let mut up = self.up.forward(x, rows);
                offer(observer, site(BranchPart::Up), &mut up, &shape);
                self.activation.apply_slice(&mut up);
                up
            }
            Some(gate) => {
                let [mut up, mut gate] = Linear::forward_all([&self.up, gate], x, rows);
                offer(observer, site(BranchPart::Up), &mut up, &shape);
                offer(observer, site(BranchPart::Gate), &mut gate, &shape);
                GatedUnit::Product(self.activation).apply(&mut gate, &up);
                gate
            }
        };
        offer(observer, site(BranchPart::Hidden), &mut hidden, &shape);
        self.down.forward(&hidden, rows)
    }

    /// Adds the gradient of `x` to `dx`.
    pub fn backward(
        &self,
        tape: &Tape,
        site: impl Fn(BranchPart) -> Site,
        dy: &[f32],
        dx: &mut [f32],
        grads: &mut Gradients,
    ) {
        let x = tape.get(site(BranchPart::In));
        let up = tape.get(site(BranchPart::Up));
        let mut dhidden = vec![0.0; up.len()];
        self.down.backward(tape.get(site(BranchPart::Hidden)), dy, &mut dhidden, grads);
        match &self.gate {
            None => {
                dhidden.iter_mut().zip(up).for_each(|(d, up)| *d *= self.activation.derivative(*up));
                self.up.backward(x, &dhidden, dx, grads);
            }
            Some(layer) => {
                let gate = tape.get(site(BranchPart::Gate));
                let (dgate, dup) = GatedUnit::Product(self.activation).backward(gate, up, &dhidden);
                self.up.backward(x, &dup, dx, grads);
                layer.backward(x, &dgate, dx, grads);
            }
        }
    }
}
