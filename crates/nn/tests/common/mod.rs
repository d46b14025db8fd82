//! Tiny models with random weights, for the tests of the walk.
#![allow(dead_code)] // each test file uses its part

pub mod experts;

use attend_kernels::Matrix;
use attend_nn::spec::*;
use attend_nn::{Gradients, Model, WeightSource};
use std::collections::BTreeMap;
use std::convert::Infallible;

pub const WIDTH: usize = 12;
pub const VOCAB: usize = 17;

/// A small generator of uniform numbers (a 64-bit linear congruence, Knuth's constants).
pub struct Random(pub u64);

impl Random {
    /// Uniform in [-1, 1).
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    }

    pub fn values(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| self.next() * scale).collect()
    }

    pub fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| ((self.next() + 1.0) * 0.5 * VOCAB as f32) as u32 % VOCAB as u32).collect()
    }
}

/// Weights by our names.
#[derive(Clone)]
pub struct Weights(pub BTreeMap<String, Vec<f32>>);

impl Weights {
    pub fn random(spec: &ModelSpec, seed: u64) -> Weights {
        let mut random = Random(seed);
        let tensors = spec.tensors().into_iter().map(|tensor| {
            let count = tensor.shape.iter().product();
            let norm = tensor.name.contains("norm") && tensor.name.ends_with("weight");
            let scale = if tensor.name.contains("embed") { 1.0 } else { 0.5 };
            let mut values = random.values(count, scale);
            if norm {
                values.iter_mut().for_each(|value| *value = 1.0 + 0.3 * *value);
            }
            (tensor.name, values)
        });
        Weights(tensors.collect())
    }

    pub fn model(&self, spec: &ModelSpec) -> Model {
        let mut source = self.clone();
        match Model::assemble(spec.clone(), &mut source) {
            Ok(model) => model,
            Err(never) => match never {},
        }
    }
}

impl WeightSource for Weights {
    type Error = Infallible;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Infallible> {
        Ok(Matrix::from_f32(rows, cols, &self.0[name]))
    }

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Infallible> {
        assert_eq!(self.0[name].len(), shape.iter().product::<usize>(), "{name}");
        Ok(self.0[name].clone())
    }
}

/// Compares, for every weight, the derivative along a random direction with the difference of the loss.
pub fn differences(name: &str, spec: &ModelSpec, weights: &Weights, grads: &Gradients, loss: &dyn Fn(&Model) -> f64) {
    let mut random = Random(5);
    for (weight, values) in &weights.0 {
        let direction = random.values(values.len(), 1.0);
        let norm = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
        let step = 1e-2 / norm;
        let moved = |sign: f32| {
            let mut moved = weights.clone();
            let values = moved.0.get_mut(weight).unwrap();
            values.iter_mut().zip(&direction).for_each(|(value, d)| *value += sign * step * d);
            loss(&moved.model(spec))
        };
        let expected = (moved(1.0) - moved(-1.0)) / (2.0 * f64::from(step)) / f64::from(norm);
        // A router's correction acts on its choices alone, and has no slot.
        let none = vec![0.0; values.len()];
        let gradient = if weight.ends_with("correction") { &none } else { &grads.values()[weight] };
        let found: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum::<f64>() / f64::from(norm);
        let size = gradient.iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt();
        let error = (found - expected).abs();
        assert!(error <= 2e-3 * size + 3e-5, "{name}: {weight}: backward {found}, difference {expected}, size {size}");
    }
}

pub const RMS: Norm = Norm::Rms { eps: 1e-5 };
pub const LAYER: Norm = Norm::Layer { eps: 1e-5, bias: true };

pub fn attention(heads: usize, kv_heads: usize) -> Attention {
    Attention { qkv_bias: QkvBias::all(true), out_bias: true, ..Attention::plain(heads, kv_heads, 4) }
}

pub fn rope(dim: usize, pairing: Pairing, scaling: RopeScaling) -> Position {
    Position::Rope(Rope { base: 10000.0, dim, pairing, scaling })
}

pub fn layer(wiring: Wiring, norm: Norm, attention: Attention, ffn: Ffn) -> Layer {
    Layer { wiring, norm, attention, cross: None, ffn, branch_scale: 1.0, weights: 0 }
}

pub fn mlp() -> Ffn {
    Ffn::Mlp { hidden: 20, activation: Activation::GeluTanh, bias: true }
}

pub fn gated() -> Ffn {
    Ffn::Gated { hidden: 20, activation: Activation::Silu, bias: false }
}

/// Two layers of one kind, each with weights of its own.
pub fn stack(layer: Layer) -> Stack {
    let second = Layer { weights: 1, ..layer.clone() };
    Stack::plain(WIDTH, Embed::plain(VOCAB, WIDTH), vec![layer, second], Some(RMS))
}

pub fn lm(body: Body, tied: bool) -> ModelSpec {
    let head = LmHead { vocab: VOCAB, tied, bias: !tied, transform: None, scale: 1.0, soft_cap: None };
    ModelSpec { body, pooler: None, head: Head::Lm(head), context: Some(64) }
}

/// Decoders that between them use every wiring, norm, position, mask and attention option.
pub fn decoders() -> Vec<(&'static str, ModelSpec)> {
    let plain = |wiring, norm| layer(wiring, norm, attention(2, 2), mlp());
    let with = |change: &dyn Fn(&mut Attention)| {
        let mut attention = attention(4, 2);
        change(&mut attention);
        layer(Wiring::PreNorm, RMS, attention, gated())
    };
    let half = || rope(4, Pairing::Halves, RopeScaling::None);
    let alibi = |slopes, rounded| Position::Alibi(Alibi { slopes, max_bias: 8.0, rounded, scaled: rounded });
    let one = |layer| lm(Body::Decoder(stack(layer)), true);
    let mut specs = vec![
        ("pre-norm", one(plain(Wiring::PreNorm, LAYER))),
        ("post-norm", one(plain(Wiring::PostNorm, LAYER))),
        ("sandwich", one(plain(Wiring::Sandwich, RMS))),
        ("output-norm", one(plain(Wiring::OutputNorm, RMS))),
        ("norm-residual", one(plain(Wiring::NormResidual, LAYER))),
        ("norm of the feed-forward part alone", one(plain(Wiring::FfnNorm, LAYER))),
        ("parallel shared", one(plain(Wiring::Parallel { shared_norm: true }, LAYER))),
        ("parallel", one(plain(Wiring::Parallel { shared_norm: false }, Norm::Layer { eps: 1e-5, bias: false }))),
        ("plain norm", one(plain(Wiring::PreNorm, Norm::Plain { eps: 1e-5 }))),
        ("rope", one(with(&|a| a.position = half()))),
        ("rope interleaved", one(with(&|a| a.position = rope(2, Pairing::Interleaved, RopeScaling::None)))),
        (
            "rope dynamic",
            one(with(&|a| {
                a.position = rope(4, Pairing::Halves, RopeScaling::Dynamic { factor: 2.0, original: 5 });
            })),
        ),
        ("alibi", one(with(&|a| a.position = alibi(SlopeOrder::LowerFirst, false)))),
        ("alibi rounded", one(with(&|a| a.position = alibi(SlopeOrder::OddFirst, true)))),
        ("window", one(with(&|a| a.mask = Mask::Window { left: 2, right: 0 }))),
        ("chunked", one(with(&|a| a.mask = Mask::Chunked { length: 3 }))),
        ("soft cap", one(with(&|a| a.soft_cap = Some(1.5)))),
        ("sinks", one(with(&|a| a.sinks = true))),
        // At this limit no value sits within a difference's step of the clamp's edge, where there is no derivative.
        ("clip", one(with(&|a| a.clip_qkv = Some(1.5)))),
    ];
    for (name, scope) in [
        ("qk norm head", QkNormScope::Head),
        ("qk norm each head", QkNormScope::EachHead),
        ("qk norm projection", QkNormScope::Projection),
    ] {
        let norm = if scope == QkNormScope::EachHead { Norm::Layer { eps: 1e-5, bias: false } } else { RMS };
        let change = |a: &mut Attention| {
            a.qk_norm = Some(QkNorm { norm, scope });
            a.position = half();
        };
        specs.push((name, one(with(&change))));
    }
    // PaLM's layer (Chowdhery et al. 2022, section 2): both branches on one norm, gated, one key and value head, rotary.
    let palm = Attention { qkv_bias: QkvBias::NONE, out_bias: false, position: half(), ..attention(4, 1) };
    let palm = layer(Wiring::Parallel { shared_norm: true }, Norm::Layer { eps: 1e-5, bias: false }, palm, gated());
    specs.push(("parallel, gated, one key head", one(palm)));
    specs.extend(embeddings(one(plain(Wiring::PreNorm, LAYER))));
    specs.extend(experts::mixtures());
    specs.push(("shared weights", {
        let mut spec = one(plain(Wiring::PreNorm, LAYER));
        stack_mut(&mut spec).layers.iter_mut().for_each(|layer| layer.weights = 0);
        spec
    }));
    specs.push(("relative bias", {
        let mut spec = one(with(&|a| a.position = Position::StackBias));
        stack_mut(&mut spec).relative_bias =
            Some(RelativeBias { buckets: 6, max_distance: 7, bidirectional: false, heads: 4 });
        spec
    }));
    specs
}

fn embeddings(base: ModelSpec) -> Vec<(&'static str, ModelSpec)> {
    let mut learned = base.clone();
    let embed = &mut stack_mut(&mut learned).embed;
    embed.positions = AbsolutePositions::Learned { rows: 40, offset: 2 };
    embed.token_types = Some(2);
    embed.norm = Some(LAYER);
    let mut first = learned.clone();
    stack_mut(&mut first).embed.norm_first = true;
    let mut projected = learned.clone();
    let embed = &mut stack_mut(&mut projected).embed;
    embed.width = 8;
    embed.projection = Some(Projection { bias: false, place: ProjectionPlace::BeforeNorm });
    let Head::Lm(head) = &mut projected.head else { panic!("an LM") };
    head.tied = false;
    let mut narrowed = learned.clone();
    let stack = stack_mut(&mut narrowed);
    stack.embed.width = 8;
    stack.embed.projection = Some(Projection { bias: false, place: ProjectionPlace::Tokens });
    stack.narrowed = Some(8);
    let mut sinusoidal = base.clone();
    let embed = &mut stack_mut(&mut sinusoidal).embed;
    embed.positions = AbsolutePositions::Sinusoidal { layout: SinusoidLayout::Halves, offset: 0 };
    embed.scale = 3.0;
    let mut factorised = base.clone();
    stack_mut(&mut factorised).embed.width = 8;
    stack_mut(&mut factorised).embed.projection = Some(Projection { bias: true, place: ProjectionPlace::AfterNorm });
    let Head::Lm(head) = &mut factorised.head else { panic!("an LM") };
    head.transform = Some(Transform { bias: true, activation: Activation::Gelu, norm: Some(LAYER) });
    head.bias = true;
    let mut capped = base;
    stack_mut(&mut capped).layers.iter_mut().for_each(|layer| layer.branch_scale = 0.4);
    let Head::Lm(head) = &mut capped.head else { panic!("an LM") };
    head.soft_cap = Some(2.0);
    head.scale = 0.3;
    vec![
        ("learned positions", learned),
        ("positions after the norm", first),
        ("projected before the norm", projected),
        ("tokens projected, output narrowed", narrowed),
        ("sinusoidal", sinusoidal),
        ("factorised embedding, head transform", factorised),
        ("scaled and capped", capped),
    ]
}

pub fn stack_mut(spec: &mut ModelSpec) -> &mut Stack {
    match &mut spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => stack,
    }
}

/// An encoder-decoder with shared tables, relative biases in both stacks and cross-attention.
pub fn encoder_decoder() -> ModelSpec {
    let bias = |bidirectional| Some(RelativeBias { buckets: 6, max_distance: 7, bidirectional, heads: 3 });
    let side = |mask, cross: bool| {
        let mut own = attention(3, 3);
        own.position = Position::StackBias;
        own.mask = mask;
        own.scale = 1.0;
        let mut layer = layer(Wiring::PreNorm, RMS, own, gated());
        layer.cross = cross.then(|| Attention { position: Position::None, mask: Mask::Full, ..attention(3, 3) });
        stack(layer)
    };
    let mut encoder = side(Mask::Full, false);
    encoder.relative_bias = bias(true);
    let mut decoder = side(Mask::Causal, true);
    decoder.relative_bias = bias(false);
    decoder.embed.table = Table::Encoder;
    lm(Body::EncoderDecoder { encoder, decoder }, true)
}
