//! Decoders with mixtures of experts and latent attention.

use super::{LAYER, RMS, attention, gated, layer, lm, rope, stack};
use attend_nn::spec::*;

fn moe(scores: RouterScores) -> Moe {
    Moe {
        experts: 6,
        chosen: 2,
        router: Router { scores, bias: false, groups: None, scale: 1.0, balance: None },
        hidden: 10,
        unit: GatedUnit::Product(Activation::Silu),
        bias: false,
        shared: None,
    }
}

pub fn of(attention: Attention, ffn: Ffn) -> ModelSpec {
    lm(Body::Decoder(stack(layer(Wiring::PreNorm, RMS, attention, ffn))), true)
}

/// Keys and values from a latent of 6 beside a rotated key of 4.
pub fn latent(query_rank: Option<usize>) -> Attention {
    let latent = Latent { rank: 6, query_rank, key_dim: 5, rope_dim: 4, value_dim: 3, norm: RMS };
    Attention {
        kv_heads: 1,
        key_dim: 10,
        value_dim: 6,
        position: rope(4, Pairing::Interleaved, RopeScaling::None),
        latent: Some(latent),
        ..attention(3, 3)
    }
}

pub fn mixtures() -> Vec<(&'static str, ModelSpec)> {
    let with = |moe| of(attention(2, 2), Ffn::Moe(moe));
    let groups = |rank| Some(ExpertGroups { count: 3, chosen: 2, rank });
    let plain = moe(RouterScores::Softmax { renormalize: true });
    let shared = Moe {
        shared: Some(SharedExpert { hidden: 7, gate: true }),
        ..moe(RouterScores::Softmax { renormalize: false })
    };
    let clamped = Moe {
        router: Router { bias: true, ..moe(RouterScores::ChosenSoftmax).router },
        // At this limit no value sits within a difference's step of the clamp's edge.
        unit: GatedUnit::ClampedSwish { alpha: 1.7, limit: 1.5 },
        bias: true,
        ..moe(RouterScores::ChosenSoftmax)
    };
    let sigmoid = moe(RouterScores::Sigmoid { correction: true, renormalize: true });
    let grouped = Moe {
        router: Router { groups: groups(GroupRank::BestTwo), scale: 2.5, ..sigmoid.router.clone() },
        shared: Some(SharedExpert { hidden: 7, gate: false }),
        ..sigmoid
    };
    let best = moe(RouterScores::Softmax { renormalize: false });
    let best = Moe { router: Router { groups: groups(GroupRank::Best), ..best.router }, chosen: 3, ..best };
    let mut leading = with(plain.clone());
    super::stack_mut(&mut leading).layers[0].ffn = gated();
    // Where all are chosen no difference changes the choice.
    let all = Ffn::Moe(Moe { chosen: 6, ..plain.clone() });
    let parallel = layer(Wiring::Parallel { shared_norm: true }, LAYER, attention(2, 2), all);
    vec![
        ("experts", with(plain)),
        ("experts beside a gated shared one", with(shared)),
        ("experts with biases and clamps", with(clamped)),
        ("experts in groups by their best two", with(grouped)),
        ("experts in groups by their best", with(best)),
        ("a dense layer, then experts", leading),
        ("experts in parallel", lm(Body::Decoder(stack(parallel)), true)),
        ("latent attention", of(latent(Some(5)), gated())),
        (
            "latent attention, direct queries, no position",
            of(Attention { position: Position::None, ..latent(None) }, gated()),
        ),
    ]
}
