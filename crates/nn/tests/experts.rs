//! Mixtures of experts: what an observer sees of the router, and the load-balancing loss.

mod common;

use attend_nn::spec::{Ffn, StackKind};
use attend_nn::{Batch, Gradients, KvCache, KvTypes, Model, Recorder, RunOptions, Sequence, Tape};
use common::*;

fn walk(model: &Model, ids: &[Vec<u32>], tape: &mut Tape) {
    model.forward(StackKind::Decoder, &mut Batch::of(ids), &RunOptions::default(), tape).unwrap();
}

#[test]
fn an_observer_sees_whom_the_router_chose_and_with_what_weights() {
    let (_, spec) = experts::mixtures().swap_remove(0);
    let model = Weights::random(&spec, 5).model(&spec);
    let mut recorder = Recorder::new(|site| site.to_string().starts_with("layers.1.ffn."));
    let ids = Random(3).tokens(9);
    let mut batch = Batch::one(Sequence::new(&ids));
    model.forward(StackKind::Decoder, &mut batch, &RunOptions::default(), &mut recorder).unwrap();
    let get = |name: &str| recorder.records.iter().find(|record| record.site.to_string() == name).unwrap();
    let scores = get("layers.1.ffn.router_scores");
    let (chosen, weights) = (get("layers.1.ffn.experts"), get("layers.1.ffn.expert_weights"));
    assert_eq!((&scores.shape, &chosen.shape, &weights.shape), (&vec![9, 6], &vec![9, 2], &vec![9, 2]));
    assert_eq!(get("layers.1.ffn.gate").shape, [18, 10]);
    assert_eq!(get("layers.1.ffn.expert_out").shape, [18, WIDTH]);
    for (row, (chosen, weights)) in chosen.value.chunks(2).zip(weights.value.chunks(2)).enumerate() {
        let scores = &scores.value[row * 6..(row + 1) * 6];
        let of = |place: usize| scores[chosen[place] as usize];
        assert!(scores.iter().enumerate().all(|(e, s)| *s <= of(1) || chosen.contains(&(e as f32))), "{scores:?}");
        assert!((weights[0] - of(0) / (of(0) + of(1))).abs() < 1e-6 && weights[0] >= weights[1]);
    }
}

/// The loss is a function of the router's logits alone, so its gradient is that of everything before the last mixture.
#[test]
fn the_load_balancing_loss_has_the_gradient_of_its_differences() {
    let (_, mut spec) = experts::mixtures().swap_remove(0);
    for layer in &mut stack_mut(&mut spec).layers {
        let Ffn::Moe(moe) = &mut layer.ffn else { panic!("a mixture") };
        moe.router.balance = Some(0.7);
    }
    let weights = Weights::random(&spec, 8);
    let ids = vec![Random(1).tokens(9), Random(2).tokens(4)];
    let loss = |weights: &Weights| {
        let mut tape = Tape::new();
        let model = weights.model(&spec);
        walk(&model, &ids, &mut tape);
        let balance = model.load_balancing(StackKind::Decoder, &mut tape).unwrap().unwrap();
        (balance.value * f64::from(balance.coefficient), model, tape)
    };
    let (value, model, tape) = loss(&weights);
    // At least what an even router would give: two choices a token.
    assert!((0.7 * 1.9..0.7 * 6.0).contains(&value), "{value}");
    let mut grads = Gradients::all();
    let zeros = vec![0.0; 13 * WIDTH];
    model.backward(StackKind::Decoder, &Batch::of(&ids), &tape, &zeros, &mut grads).unwrap();
    for name in ["layers.0.ffn.router.weight", "layers.1.ffn.router.weight", "layers.0.attention.query.weight"] {
        let gradient = &grads.values()[name];
        let size = gradient.iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
        assert!(size > 1e-4, "{name}: {size}");
        let step = 3e-3 / size as f32;
        let moved = |sign: f32| {
            let mut moved = weights.clone();
            let values = moved.0.get_mut(name).unwrap();
            values.iter_mut().zip(gradient).for_each(|(value, d)| *value += sign * step * d);
            loss(&moved).0
        };
        let found = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step)) / size;
        assert!((found - size).abs() < 5e-3 * size + 1e-5, "{name}: {found}, {size}");
    }
}

#[test]
fn a_model_that_asks_for_no_balance_has_none() {
    let (_, spec) = experts::mixtures().swap_remove(0);
    let mut tape = Tape::new();
    let model = Weights::random(&spec, 5).model(&spec);
    walk(&model, &[vec![1, 2, 3]], &mut tape);
    assert_eq!(model.load_balancing(StackKind::Decoder, &mut tape).unwrap(), None);
}

#[test]
fn the_cache_of_latent_attention_holds_the_latent_and_the_rotated_key_once() {
    use attend_kernels::DType;
    let spec = experts::of(experts::latent(None), gated());
    let model = Weights::random(&spec, 5).model(&spec);
    let mut cache: KvCache = model.cache(KvTypes::both(DType::F32)).unwrap();
    let sequence = Sequence::cached(&[1, 2, 3], &mut cache);
    model
        .forward(StackKind::Decoder, &mut Batch::one(sequence), &RunOptions::default(), &mut attend_nn::Nobody)
        .unwrap();
    assert_eq!(cache.bytes(), 2 * attend_nn::BLOCK_TOKENS * (6 + 4) * 4);
}
