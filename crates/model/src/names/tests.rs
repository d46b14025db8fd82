//! Tables are parsed, checked against the names that exist, and looked up.

use super::{Leftover, Table, Verb, generalise};
use crate::architectures::architectures;
use attend_format::{Config, Kind};
use attend_nn::spec::{self, *};
use serde_json::{Value, json};

/// Stacks with everything that has a name.
fn stack(gated: bool, table: spec::Table) -> Stack {
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    let own = Some(RelativeProjection::Own { bias: true });
    let attention = Attention {
        qkv_bias: QkvBias::all(true),
        out_bias: true,
        position: Position::Disentangled(Disentangled {
            span: 2,
            max_distance: None,
            position_key: own,
            position_query: own,
        }),
        qk_norm: Some(QkNorm { norm, scope: if gated { QkNormScope::EachHead } else { QkNormScope::Head } }),
        ..Attention::plain(2, 2, 4)
    };
    let ffn = match gated {
        true => Ffn::Gated { hidden: 8, activation: Activation::Silu, bias: true },
        false => Ffn::Mlp { hidden: 8, activation: Activation::Silu, bias: true },
    };
    let cross = (table == spec::Table::Encoder).then(|| attention.clone());
    let layer = Layer { wiring: Wiring::Sandwich, norm, attention, cross, ffn, branch_scale: 1.0, weights: 0 };
    let positions = AbsolutePositions::Learned { rows: 3, offset: 0 };
    let embed = Embed {
        projection: Some(Projection { bias: true, place: ProjectionPlace::AfterNorm }),
        table,
        positions,
        token_types: Some(2),
        norm: Some(norm),
        ..Embed::plain(5, 6)
    };
    let relative_bias = Some(RelativeBias { buckets: 4, max_distance: 8, bidirectional: true, heads: 2 });
    let relative_rows = Some(RelativeRows { rows: 4, norm: Some(norm) });
    let conv = Some(Conv { kernel: 3, groups: 2, activation: Activation::Tanh, norm });
    let plain = Stack::plain(8, embed, vec![layer], Some(norm));
    Stack { relative_bias, relative_rows, conv, narrowed: Some(7), ..plain }
}

fn specs() -> Vec<ModelSpec> {
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    let transform = Some(Transform { bias: true, activation: Activation::Gelu, norm: Some(norm) });
    let lm = Head::Lm(LmHead { vocab: 5, tied: false, bias: true, transform, scale: 1.0, soft_cap: None });
    let last = Head::Sequence { labels: 2, source: SequenceSource::Last, transform, bias: false };
    let heads =
        [Head::None, lm, last, Head::Token { labels: 2, transform, bias: true }, Head::Span { transform, bias: true }];
    let mut specs = vec![mixture()];
    for head in heads {
        for gated in [true, false] {
            let pooler = Some(Pooler { activation: Activation::Tanh });
            let (encoder, decoder) = (stack(gated, spec::Table::Own), stack(gated, spec::Table::Encoder));
            let mut apart = decoder.clone();
            apart.embed.table = spec::Table::Own;
            let bodies = [
                Body::Decoder(encoder.clone()),
                Body::EncoderDecoder { encoder: encoder.clone(), decoder },
                Body::EncoderDecoder { encoder, decoder: apart },
            ];
            specs.extend(bodies.map(|body| ModelSpec { body, pooler, head: head.clone(), context: None }));
        }
    }
    specs
}

/// Experts behind latent attention.
fn mixture() -> ModelSpec {
    let mut stack = stack(true, spec::Table::Own);
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    let scores = RouterScores::Sigmoid { correction: true, renormalize: true };
    for layer in &mut stack.layers {
        let attention = &mut layer.attention;
        attention.latent = Some(Latent { rank: 4, query_rank: Some(4), key_dim: 2, rope_dim: 2, value_dim: 2, norm });
        (attention.sinks, attention.qk_norm, attention.position) = (true, None, Position::None);
        layer.ffn = Ffn::Moe(Moe {
            experts: 2,
            chosen: 1,
            router: Router { scores, bias: true, groups: None, scale: 1.0, balance: None },
            hidden: 8,
            unit: GatedUnit::Product(Activation::Silu),
            bias: true,
            shared: Some(SharedExpert { hidden: 8, gate: true }),
        });
    }
    ModelSpec { body: Body::Decoder(stack), pooler: None, head: Head::None, context: None }
}

#[test]
fn every_table_parses_and_names_only_what_is_ours() {
    let specs = specs();
    let ours: std::collections::HashSet<String> =
        specs.iter().flat_map(|spec| spec.tensors()).map(|tensor| generalise(&tensor.name).0).collect();
    let known = |pattern: &str| match pattern.strip_suffix('*') {
        Some(stem) => ours.contains(&format!("{stem}weight")) && ours.contains(&format!("{stem}bias")),
        None => ours.contains(pattern),
    };
    for architecture in architectures() {
        for spec in &specs {
            for kind in [Kind::HuggingFace, Kind::Gguf] {
                let table = architecture.table(spec, kind, &config(json!({}))).unwrap();
                assert_eq!(table.lines.is_empty(), kind == Kind::Gguf && (architecture.names)(spec).gguf.is_empty());
                for name in table.lines.keys() {
                    assert!(known(name), "{} {kind:?}: `{name}`", architecture.name);
                }
            }
        }
    }
}

#[test]
fn a_line_that_makes_no_sense_is_refused() {
    for line in ["a.b", "a = ", "a = b | fold", "a = b c", "prefix x", "a.weight : b.weight"] {
        assert!(Table::parse(&[line]).is_err(), "{line}");
    }
}

#[test]
fn names_lead_to_every_spelling_in_order() {
    let text = "prefix m. =\nsuffix .weight = .gamma\nlayers.{i}.a.* = m.h.{i}.x.* or m.h.{i}.y.* | transpose\n";
    let table = Table::parse(&[text]).unwrap();
    let origin = table.origin("layers.12.a.weight").unwrap();
    let names = ["x.weight", "y.weight"]
        .map(|end| [format!("m.h.12.{end}"), format!("h.12.{end}"), format!("m.h.12.{end}"), format!("h.12.{end}")]);
    assert_eq!(origin.theirs.len(), 8);
    assert_eq!((&origin.theirs[0], &origin.theirs[1]), (&names[0][0], &names[0][1]));
    assert_eq!(origin.theirs[2], "m.h.12.x.gamma");
    assert_eq!(origin.theirs[4], names[1][0]);
    assert_eq!(origin.verbs, [Verb::Transpose]);
    assert_eq!(table.origin("layers.1.a.gain"), None);
    assert_eq!(table.origin("layers.1.b.weight"), None);
}

#[test]
fn later_texts_outrank_earlier_ones_and_leftovers_are_sorted() {
    let table = Table::parse(&["a.* = x.*\ndrop h.{i}.bias\n", "a.* = y.*\nunused v.**\nprefix h. = g.\n"]).unwrap();
    assert_eq!(table.origin("a.bias").unwrap().theirs, ["y.bias"]);
    assert_eq!(table.leftover("h.3.bias", 4), Leftover::Buffer);
    assert_eq!(table.leftover("g.3.bias", 4), Leftover::Buffer);
    assert_eq!(table.leftover("v.3.w.0", 4), Leftover::Unused);
    assert_eq!(table.leftover("h.3.weight", 4), Leftover::Unknown);
    let table = Table::parse(&["beyond h.{i}.\n"]).unwrap();
    assert_eq!(table.leftover("h.3.weight", 4), Leftover::Unknown);
    assert_eq!(table.leftover("h.4.weight", 4), Leftover::Unused);
}

fn config(fields: Value) -> Config {
    Config::from_map(std::path::Path::new("config.json"), fields.as_object().cloned().unwrap_or_default())
}

#[test]
fn layers_may_be_counted_in_groups() {
    let table = |fields| Table::parse(&["nested size\nlayers.{i}.* = g.{i/}.l.{i%}.*\n"]).unwrap().of(&config(fields));
    let theirs = |table: Table, ours: &str| table.origin(ours).unwrap().theirs;
    assert_eq!(theirs(table(json!({"size": 3})), "layers.7.weight"), ["g.2.l.1.weight"]);
    assert_eq!(theirs(table(json!({})), "layers.7.weight"), ["g.7.l.0.weight"]);
    assert_eq!(theirs(table(json!({"size": 0})), "layers.7.weight"), ["g.7.l.0.weight"]);
}

#[test]
fn a_second_number_is_the_expert_or_head() {
    let table = Table::parse(&["layers.{i}.e.{j}.* = m.{i}.x.{j}.* or m.{i}.all_*\n"]).unwrap();
    let origin = table.origin("layers.12.e.7.weight").unwrap();
    assert_eq!(origin.theirs, ["m.12.x.7.weight", "m.12.all_weight"]);
}
