//! The description of mixtures of experts.

use super::Activation;
use serde::{Deserialize, Serialize};

/// A mixture of experts (Shazeer et al. 2017): a router sends each token to a few of many gated feed-forward parts and
/// adds up what they give, each times its weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moe {
    /// How many there are (E).
    pub experts: usize,
    /// How many of them a token is sent to.
    pub chosen: usize,
    pub router: Router,
    /// Width of each expert (F).
    pub hidden: usize,
    pub unit: GatedUnit,
    /// Biases on the experts' three projections.
    pub bias: bool,
    /// A part beside the experts that every token goes through.
    pub shared: Option<SharedExpert>,
}

/// What stands between an expert's first projections and its last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum GatedUnit {
    /// `act(gate) * up`
    Product(Activation),
    /// `g sigmoid(alpha g) (u + 1)`, where `g` is the gate up to `limit` and `u` the up projection between `-limit`
    /// and `limit` (gpt-oss).
    ClampedSwish { alpha: f32, limit: f32 },
}

/// A part that every token goes through, without biases and with the experts' unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedExpert {
    /// Its width: several shared experts side by side are one of their widths together.
    pub hidden: usize,
    /// Its output is multiplied by the sigmoid of a projection to one number (Qwen 2 MoE).
    pub gate: bool,
}

/// How tokens find their experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Router {
    pub scores: RouterScores,
    /// Bias on the router's projection.
    pub bias: bool,
    pub groups: Option<ExpertGroups>,
    /// Multiplies the weights of the chosen.
    pub scale: f32,
    /// What the load-balancing loss is multiplied by before it is added to the loss, where the model is trained with it
    /// (see `Model::load_balancing`).
    pub balance: Option<f32>,
}

impl Router {
    /// Whether the choice is made with a learned correction.
    pub fn corrected(&self) -> bool {
        matches!(self.scores, RouterScores::Sigmoid { correction: true, .. })
    }
}

/// How the router's logits become the weights of the chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouterScores {
    /// Softmax over all experts, then the largest; `renormalize`d to a sum of one (Mixtral) or not (DeepSeek-V2).
    Softmax { renormalize: bool },
    /// The largest logits, then softmax over those (gpt-oss, Granite MoE).
    ChosenSoftmax,
    /// The sigmoid of each logit; the choice, and only the choice, is made with a learned `correction` added
    /// (DeepSeek-V3).
    Sigmoid { correction: bool, renormalize: bool },
}

/// Experts in `count` equal groups, of which only the best `chosen` are looked into (DeepSeek-V2 section 2.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertGroups {
    pub count: usize,
    pub chosen: usize,
    pub rank: GroupRank,
}

/// What a group is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRank {
    /// Its best expert (DeepSeek-V2).
    Best,
    /// The sum of its best two (DeepSeek-V3).
    BestTwo,
}
