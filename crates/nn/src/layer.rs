//! The layer: branches of attention and feed-forward, wired to the residual stream. One type and one function for
//! encoders, decoders and decoders with cross-attention.

mod backward;

use crate::attention::{AttentionLayer, Step};
use crate::ffn::FeedForward;
use crate::norm::NormLayer;
use crate::observer::{Observer, offer};
use crate::site::{BranchPart, LayerPart, Place, Site};
use crate::spec::{StackKind, Wiring};
use attend_kernels::add_scaled;

#[derive(Debug, Clone)]
pub struct LayerParts {
    pub wiring: Wiring,
    pub branch_scale: f32,
    pub attention: AttentionLayer,
    pub attention_norms: BranchNorms,
    pub cross: Option<(AttentionLayer, BranchNorms)>,
    pub ffn: FeedForward,
    pub ffn_norms: BranchNorms,
}

/// The norms on a branch: `norm` before or after it as the wiring says, `post` after it in [`Wiring::Sandwich`].
#[derive(Debug, Clone, Default)]
pub struct BranchNorms {
    pub norm: Option<NormLayer>,
    pub post: Option<NormLayer>,
}

/// The place of a layer, from which its sites are named.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub stack: Option<StackKind>,
    pub layer: usize,
}

impl At {
    pub fn site(self, part: LayerPart) -> Site {
        Site { stack: self.stack, place: Place::Layer { layer: self.layer, part } }
    }

    pub fn attention(self, part: BranchPart) -> Site {
        self.site(LayerPart::Attention(part))
    }

    pub fn cross(self, part: BranchPart) -> Site {
        self.site(LayerPart::Cross(part))
    }

    pub fn ffn(self, part: BranchPart) -> Site {
        self.site(LayerPart::Ffn(part))
    }
}

impl LayerParts {
    /// Takes the residual stream `x` [N, D] through the layer. The walk offers what comes out.
    pub(crate) fn forward<O: Observer + ?Sized>(&self, x: &mut Vec<f32>, at: At, step: &mut Step, observer: &mut O) {
        if let Wiring::Parallel { shared_norm } = self.wiring {
            self.parallel(x, shared_norm, at, step, observer);
        } else {
            self.branch(x, &self.attention_norms, &|part| at.attention(part), observer, |input, observer| {
                self.attention.forward(input, at.layer, step, &|part| at.attention(part), observer)
            });
            if let Some((cross, norms)) = &self.cross {
                self.branch(x, norms, &|part| at.cross(part), observer, |input, observer| {
                    cross.forward_cross(input, at.layer, step, &|part| at.cross(part), observer)
                });
            }
            self.branch(x, &self.ffn_norms, &|part| at.ffn(part), observer, |input, observer| {
                self.ffn.forward(input, &step.packed.adapters, |part| at.ffn(part), observer)
            });
        }
    }

    /// One branch and its return to the stream, as the wiring says.
    fn branch<O: Observer + ?Sized>(
        &self,
        x: &mut Vec<f32>,
        norms: &BranchNorms,
        site: &dyn Fn(BranchPart) -> Site,
        observer: &mut O,
        run: impl FnOnce(&[f32], &mut O) -> Vec<f32>,
    ) {
        let shape = self.shape(x);
        offer(observer, site(BranchPart::Stream), x, &shape);
        // What the branch reads, where it is not the stream itself.
        let mut input = match self.wiring {
            Wiring::PostNorm | Wiring::OutputNorm => observer.active().then(|| x.to_vec()),
            Wiring::PreNorm | Wiring::FfnNorm | Wiring::Sandwich | Wiring::NormResidual | Wiring::Parallel { .. } => {
                Some(normed(&norms.norm, x))
            }
        };
        if let Some(input) = &mut input {
            offer(observer, site(BranchPart::In), input, &shape);
        }
        let mut out = run(input.as_deref().unwrap_or(x), observer);
        offer(observer, site(BranchPart::Out), &mut out, &shape);
        match self.wiring {
            Wiring::PreNorm | Wiring::FfnNorm | Wiring::Parallel { .. } => add_scaled(x, &out, self.branch_scale),
            Wiring::Sandwich | Wiring::OutputNorm => {
                let norm = if self.wiring == Wiring::Sandwich { &norms.post } else { &norms.norm };
                add_scaled(x, &normed(norm, &out), self.branch_scale);
            }
            Wiring::NormResidual => {
                if let Some(input) = input {
                    *x = input;
                }
                add_scaled(x, &out, self.branch_scale);
            }
            Wiring::PostNorm => {
                add_scaled(x, &out, self.branch_scale);
                offer(observer, site(BranchPart::Sum), x, &shape);
                if let Some(norm) = &norms.norm {
                    norm.write(x, &mut out);
                    *x = out;
                }
            }
        }
    }

    fn parallel<O: Observer + ?Sized>(
        &self,
        x: &mut [f32],
        shared_norm: bool,
        at: At,
        step: &mut Step,
        observer: &mut O,
    ) {
        let shape = self.shape(x);
        offer(observer, at.attention(BranchPart::Stream), x, &shape);
        let mut input = normed(&self.attention_norms.norm, x);
        offer(observer, at.attention(BranchPart::In), &mut input, &shape);
        let mut attended = self.attention.forward(&input, at.layer, step, &|part| at.attention(part), observer);
        offer(observer, at.attention(BranchPart::Out), &mut attended, &shape);
        offer(observer, at.ffn(BranchPart::Stream), x, &shape);
        if !shared_norm {
            input = normed(&self.ffn_norms.norm, x);
        }
        offer(observer, at.ffn(BranchPart::In), &mut input, &shape);
        let mut out = self.ffn.forward(&input, &step.packed.adapters, |part| at.ffn(part), observer);
        offer(observer, at.ffn(BranchPart::Out), &mut out, &shape);
        add_scaled(x, &attended, self.branch_scale);
        add_scaled(x, &out, self.branch_scale);
    }

    fn shape(&self, x: &[f32]) -> [usize; 2] {
        let width = self.ffn.width();
        [x.len() / width, width]
    }
}

fn normed(norm: &Option<NormLayer>, x: &[f32]) -> Vec<f32> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x.to_vec(),
    }
}
