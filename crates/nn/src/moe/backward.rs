//! A mixture of experts backward, from the gradient of its output to those of its input and weights.

use super::unit::sigmoid;
use super::{Expert, Groups, MoeLayer, SharedLayer, add_weighted, gather, router};
use crate::grads::Gradients;
use crate::observer::Tape;
use crate::site::{BranchPart, Site};

impl MoeLayer {
    /// Adds the gradient of `x` to `dx`.
    pub fn backward(
        &self,
        tape: &Tape,
        site: impl Fn(BranchPart) -> Site,
        dy: &[f32],
        dx: &mut [f32],
        grads: &mut Gradients,
    ) {
        let k = self.spec.chosen;
        let chosen = self.experts_of(tape.get(site(BranchPart::Experts)));
        let groups = Groups::new(&chosen, self.spec.experts);
        let dweights = self.experts_backward(&groups, tape, &site, dy, dx, grads);
        if let Some(shared) = &self.shared {
            self.shared_backward(shared, tape, &site, dy, dx, grads);
        }
        let scores = tape.get(site(BranchPart::RouterScores));
        let mut dlogits = router::backward(&self.spec, scores, &chosen, &dweights);
        if let Some(direct) = tape.gradient(site(BranchPart::RouterLogits)) {
            dlogits.iter_mut().zip(direct).for_each(|(d, direct)| *d += direct);
        }
        debug_assert_eq!(dweights.len(), dy.len() / self.router.in_features() * k);
        self.router.backward(tape.get(site(BranchPart::In)), &dlogits, dx, grads);
    }

    /// The experts themselves; returns the gradient of their weights in the sum, [N, k].
    fn experts_backward(
        &self,
        groups: &Groups,
        tape: &Tape,
        site: &impl Fn(BranchPart) -> Site,
        dy: &[f32],
        dx: &mut [f32],
        grads: &mut Gradients,
    ) -> Vec<f32> {
        let (width, hidden, k) = (self.router.in_features(), self.spec.hidden, self.spec.chosen);
        let rows = || groups.choices.iter().map(|choice| choice / k);
        let x = gather(tape.get(site(BranchPart::In)), width, rows());
        let mut dgiven = gather(dy, width, rows());
        let weights = tape.get(site(BranchPart::ExpertWeights));
        let mut dweights = vec![0.0; weights.len()];
        let given = tape.get(site(BranchPart::ExpertOut)).chunks_exact(width);
        for ((choice, given), d) in groups.choices.iter().zip(given).zip(dgiven.chunks_exact_mut(width)) {
            dweights[*choice] = given.iter().zip(d.iter()).map(|(given, d)| given * d).sum();
            d.iter_mut().for_each(|d| *d *= weights[*choice]);
        }
        let part = |at, range: &std::ops::Range<usize>| &tape.get(site(at))[range.start * hidden..range.end * hidden];
        let mut dinput = vec![0.0; x.len()];
        for (expert, range) in self.experts.iter().zip(&groups.ranges) {
            let wide = range.start * width..range.end * width;
            let saved = Saved {
                x: &x[wide.clone()],
                gate: part(BranchPart::Gate, range),
                up: part(BranchPart::Up, range),
                hidden: part(BranchPart::Hidden, range),
            };
            self.expert_backward(expert, &saved, &dgiven[wide.clone()], &mut dinput[wide], grads);
        }
        for (row, dinput) in rows().zip(dinput.chunks_exact(width)) {
            add_weighted(&mut dx[row * width..(row + 1) * width], dinput, 1.0);
        }
        dweights
    }

    fn expert_backward(&self, expert: &Expert, saved: &Saved, dy: &[f32], dx: &mut [f32], grads: &mut Gradients) {
        if dy.is_empty() {
            [&expert.gate, &expert.up, &expert.down].into_iter().for_each(|linear| linear.touch(grads));
            return;
        }
        let mut dhidden = vec![0.0; saved.hidden.len()];
        expert.down.backward(saved.hidden, dy, &mut dhidden, grads);
        let (dgate, dup) = self.spec.unit.backward(saved.gate, saved.up, &dhidden);
        expert.gate.backward(saved.x, &dgate, dx, grads);
        expert.up.backward(saved.x, &dup, dx, grads);
    }

    fn shared_backward(
        &self,
        shared: &SharedLayer,
        tape: &Tape,
        site: &impl Fn(BranchPart) -> Site,
        dy: &[f32],
        dx: &mut [f32],
        grads: &mut Gradients,
    ) {
        let width = self.router.in_features();
        let x = tape.get(site(BranchPart::In));
        let mut dgiven = dy.to_vec();
        if let Some(gate) = &shared.gate {
            let scale = tape.get(site(BranchPart::SharedScale));
            let given = tape.get(site(BranchPart::SharedOut)).chunks_exact(width);
            let mut dscale = Vec::with_capacity(scale.len());
            for ((scale, given), d) in scale.iter().zip(given).zip(dgiven.chunks_exact_mut(width)) {
                let s = sigmoid(*scale);
                dscale.push(s * (1.0 - s) * given.iter().zip(d.iter()).map(|(given, d)| given * d).sum::<f32>());
                d.iter_mut().for_each(|d| *d *= s);
            }
            gate.backward(x, &dscale, dx, grads);
        }
        let saved = Saved {
            x,
            gate: tape.get(site(BranchPart::SharedGate)),
            up: tape.get(site(BranchPart::SharedUp)),
            hidden: tape.get(site(BranchPart::SharedHidden)),
        };
        self.expert_backward(&shared.expert, &saved, &dgiven, dx, grads);
    }
}

/// What the forward pass left of one expert.
struct Saved<'a> {
    x: &'a [f32],
    gate: &'a [f32],
    up: &'a [f32],
    hidden: &'a [f32],
}
