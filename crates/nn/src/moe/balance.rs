//! The load-balancing loss (Fedus et al. 2021, equation 4; over several choices as the reference has it): it keeps a
//! router from sending everything to a few experts.

use super::router;
use crate::error::Error;
use crate::ffn::FeedForward;
use crate::model::Model;
use crate::observer::Tape;
use crate::site::{BranchPart, LayerPart, Place, Site};
use crate::spec::{Moe, Router, RouterScores, StackKind};

/// A load-balancing loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Balance {
    /// `E sum_e (share of the choices that went to e) (mean probability of e)`, over all mixtures and tokens together:
    /// the number of choices a token where every expert is as likely as the next.
    pub value: f64,
    /// What it is multiplied by before it is added to the loss.
    pub coefficient: f32,
}

impl Model {
    /// The load-balancing loss of the walk that `tape` watched; `None` where the description asks for none. Its
    /// gradient, times its coefficient, is left on the tape, so that the backward pass of the stack takes it along.
    pub fn load_balancing(&self, kind: StackKind, tape: &mut Tape) -> Result<Option<Balance>, Error> {
        let stack = self.stack(kind)?;
        let mixtures: Vec<(Site, Moe)> = (stack.layers.iter().enumerate())
            .filter_map(|(layer, parts)| match &parts.ffn {
                FeedForward::Moe(moe) => {
                    let part = LayerPart::Ffn(BranchPart::RouterLogits);
                    Some((Site { stack: stack.site, place: Place::Layer { layer, part } }, by_softmax(&moe.spec)))
                }
                FeedForward::Dense(_) => None,
            })
            .collect();
        let Some((_, first)) = mixtures.first() else { return Ok(None) };
        let Some(coefficient) = first.router.balance else { return Ok(None) };
        let experts = first.experts;
        let mut choices = vec![0.0; experts];
        let mut sums = vec![0.0; experts];
        let mut rows = 0;
        for (site, moe) in &mixtures {
            let probs = router::scores(moe, tape.get(*site));
            rows += probs.len() / experts;
            router::choose(moe, &probs, None).into_iter().for_each(|expert| choices[expert] += 1.0);
            for row in probs.chunks_exact(experts) {
                sums.iter_mut().zip(row).for_each(|(sum, prob)| *sum += f64::from(*prob));
            }
        }
        let rows = rows.max(1) as f64;
        let shares: Vec<f64> = choices.iter().map(|count| count / rows).collect();
        let value = experts as f64 * shares.iter().zip(&sums).map(|(share, sum)| share * sum / rows).sum::<f64>();
        let slope: Vec<f64> =
            shares.iter().map(|share| f64::from(coefficient) * experts as f64 * share / rows).collect();
        for (site, moe) in &mixtures {
            let gradient = softmax_gradient(&router::scores(moe, tape.get(*site)), &slope);
            tape.add_gradient(*site, gradient);
        }
        Ok(Some(Balance { value, coefficient }))
    }
}

/// The mixture with a softmax over all experts and no groups, which the loss reckons with whatever the router does.
fn by_softmax(moe: &Moe) -> Moe {
    let router = Router { scores: RouterScores::Softmax { renormalize: false }, groups: None, ..moe.router.clone() };
    Moe { router, ..moe.clone() }
}

/// The gradient by the logits of rows whose probabilities each have the same gradient.
fn softmax_gradient(probs: &[f32], dprobs: &[f64]) -> Vec<f32> {
    let mut gradient = Vec::with_capacity(probs.len());
    for row in probs.chunks_exact(dprobs.len()) {
        let dot: f64 = row.iter().zip(dprobs).map(|(prob, d)| f64::from(*prob) * d).sum();
        gradient.extend(row.iter().zip(dprobs).map(|(prob, d)| (f64::from(*prob) * (d - dot)) as f32));
    }
    gradient
}
