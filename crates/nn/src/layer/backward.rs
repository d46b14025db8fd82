//! The layer backward: each wiring's return to the stream, undone in reverse order.

use super::{At, BranchNorms, LayerParts, add_scaled};
use crate::attention::{CrossGradient, StepGradient};
use crate::grads::Gradients;
use crate::norm::NormLayer;
use crate::observer::Tape;
use crate::site::{BranchPart, Site};
use crate::spec::Wiring;

impl LayerParts {
    /// From the gradient of the layer's output to that of its input. Gradients of biases by distance, and of the
    /// encoder's hidden states, accumulate in `step`.
    pub(crate) fn backward(
        &self,
        dx: Vec<f32>,
        at: At,
        tape: &Tape,
        step: &mut StepGradient,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        if let Wiring::Parallel { shared_norm } = self.wiring {
            return self.backward_parallel(dx, shared_norm, at, tape, step, grads);
        }
        let ffn = Branch { norms: &self.ffn_norms, site: &|part| at.ffn(part), tape };
        let mut dx = self.backward_branch(dx, &ffn, grads, |dout, din, grads| {
            self.ffn.backward(tape, |part| at.ffn(part), dout, din, grads);
        });
        if let Some((cross, norms)) = &self.cross {
            let branch = Branch { norms, site: &|part| at.cross(part), tape };
            dx = self.backward_branch(dx, &branch, grads, |dout, din, grads| {
                cross.backward(CrossGradient::Encoded, branch.site, tape, dout, din, step, grads);
            });
        }
        let attention = Branch { norms: &self.attention_norms, site: &|part| at.attention(part), tape };
        self.backward_branch(dx, &attention, grads, |dout, din, grads| {
            self.attention.backward(CrossGradient::Own, attention.site, tape, dout, din, step, grads);
        })
    }

    fn backward_branch(
        &self,
        dx: Vec<f32>,
        branch: &Branch,
        grads: &mut Gradients,
        run: impl FnOnce(&[f32], &mut [f32], &mut Gradients),
    ) -> Vec<f32> {
        let scaled = |d: &[f32]| d.iter().map(|d| d * self.branch_scale).collect::<Vec<_>>();
        match self.wiring {
            Wiring::PreNorm | Wiring::FfnNorm | Wiring::Parallel { .. } => {
                let mut din = vec![0.0; dx.len()];
                run(&scaled(&dx), &mut din, grads);
                branch.through_norm(&branch.norms.norm, BranchPart::Stream, &din, dx, grads)
            }
            Wiring::Sandwich => {
                let zeros = vec![0.0; dx.len()];
                let dout = branch.through_norm(&branch.norms.post, BranchPart::Out, &scaled(&dx), zeros, grads);
                let mut din = vec![0.0; dx.len()];
                run(&dout, &mut din, grads);
                branch.through_norm(&branch.norms.norm, BranchPart::Stream, &din, dx, grads)
            }
            Wiring::OutputNorm => {
                let zeros = vec![0.0; dx.len()];
                let dout = branch.through_norm(&branch.norms.norm, BranchPart::Out, &scaled(&dx), zeros, grads);
                let mut dstream = dx;
                run(&dout, &mut dstream, grads);
                dstream
            }
            Wiring::PostNorm => {
                let zeros = vec![0.0; dx.len()];
                let mut dstream = branch.through_norm(&branch.norms.norm, BranchPart::Sum, &dx, zeros, grads);
                let dout = scaled(&dstream);
                run(&dout, &mut dstream, grads);
                dstream
            }
            Wiring::NormResidual => {
                let dout = scaled(&dx);
                let mut din = dx;
                run(&dout, &mut din, grads);
                let zeros = vec![0.0; din.len()];
                branch.through_norm(&branch.norms.norm, BranchPart::Stream, &din, zeros, grads)
            }
        }
    }

    fn backward_parallel(
        &self,
        dx: Vec<f32>,
        shared_norm: bool,
        at: At,
        tape: &Tape,
        step: &mut StepGradient,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let mut dout = vec![0.0; dx.len()];
        add_scaled(&mut dout, &dx, self.branch_scale);
        let mut dffn = vec![0.0; dx.len()];
        self.ffn.backward(tape, |part| at.ffn(part), &dout, &mut dffn, grads);
        let mut dattention = if shared_norm { std::mem::take(&mut dffn) } else { vec![0.0; dx.len()] };
        let site = |part| at.attention(part);
        self.attention.backward(CrossGradient::Own, &site, tape, &dout, &mut dattention, step, grads);
        let branch = Branch { norms: &self.attention_norms, site: &site, tape };
        let dx = branch.through_norm(&self.attention_norms.norm, BranchPart::Stream, &dattention, dx, grads);
        if shared_norm {
            return dx;
        }
        let branch = Branch { norms: &self.ffn_norms, site: &|part| at.ffn(part), tape };
        branch.through_norm(&self.ffn_norms.norm, BranchPart::Stream, &dffn, dx, grads)
    }
}

struct Branch<'a> {
    norms: &'a BranchNorms,
    site: &'a dyn Fn(BranchPart) -> Site,
    tape: &'a Tape,
}

impl Branch<'_> {
    /// Adds to `dx` what `dy`, the gradient of a norm's output, means for its input at a site.
    fn through_norm(
        &self,
        norm: &Option<NormLayer>,
        input: BranchPart,
        dy: &[f32],
        mut dx: Vec<f32>,
        grads: &mut Gradients,
    ) -> Vec<f32> {
        match norm {
            Some(norm) => norm.backward(self.tape.get((self.site)(input)), dy, &mut dx, grads),
            None => add_scaled(&mut dx, dy, 1.0),
        }
        dx
    }
}
