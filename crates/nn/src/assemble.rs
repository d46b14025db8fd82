//! A model put together from its description and a source of weights.

mod attention;

use crate::change::Weights;
use crate::conv::ConvLayer;
use crate::embed::EmbedLayer;
use crate::ffn::{FeedForward, FfnLayer};
use crate::head::{HeadLayer, PoolerLayer};
use crate::layer::{BranchNorms, LayerParts};
use crate::linear::Linear;
use crate::low_rank::LowRank;
use crate::model::Model;
use crate::moe::{Expert, MoeLayer, SharedLayer};
use crate::norm::{NormLayer, NormWeights};
use crate::position::{PositionSet, RelativeEmbedding, RelativeTable, unpack};
use crate::row_adapters::{Adapters, LayerAdapters};
use crate::spec::*;
use crate::walk::StackParts;
use attend_kernels::Matrix;
use std::sync::Arc;

/// Gives weights by our names (see [`crate::names`]).
pub trait WeightSource {
    type Error;

    /// A weight of two dimensions.
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Self::Error>;

    /// A bias, a norm's weight or another small one, row-major in this shape.
    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Self::Error>;

    /// As [`WeightSource::matrix`], from a source whose matrices others hold too.
    fn shared(&mut self, name: &str, rows: usize, cols: usize) -> Result<Arc<Matrix>, Self::Error> {
        self.matrix(name, rows, cols).map(Arc::new)
    }

    /// As [`WeightSource::vector`], from a source whose vectors others hold too.
    fn shared_vector(&mut self, name: &str, shape: &[usize]) -> Result<Arc<[f32]>, Self::Error> {
        self.vector(name, shape).map(Arc::from)
    }

    /// The adapters of a layer, by its name without `.weight`; most sources have none.
    fn low_rank(&mut self, _layer: &str, _inputs: usize, _outputs: usize) -> Result<Vec<LowRank>, Self::Error> {
        Ok(Vec::new())
    }
}

impl Model {
    /// Reads every weight of the description from a source and puts the model together.
    pub fn assemble<S: WeightSource>(spec: ModelSpec, source: &mut S) -> Result<Model, S::Error> {
        let mut builder = Builder { source, weights: Weights::default(), bytes: 0, adapters: Vec::new() };
        let (encoder, decoder) = match &spec.body {
            Body::Encoder(stack) => (Some(builder.stack("", None, stack, None)?), None),
            Body::Decoder(stack) => (None, Some(builder.stack("", None, stack, None)?)),
            Body::EncoderDecoder { encoder, decoder } => {
                let first = builder.stack("encoder.", Some(StackKind::Encoder), encoder, None)?;
                let second = builder.stack("decoder.", Some(StackKind::Decoder), decoder, Some(&first))?;
                (Some(first), Some(second))
            }
        };
        let width = spec.output_stack().output_width();
        let pooler = match spec.pooler {
            None => None,
            Some(Pooler { activation }) => {
                Some(PoolerLayer { dense: builder.linear("pooler", width, width, true)?, activation })
            }
        };
        let output_embed = decoder.as_ref().or(encoder.as_ref()).map(|stack| &stack.embed);
        let head = builder.head(&spec, output_embed)?;
        let Builder { weights, bytes: weight_bytes, adapters, .. } = builder;
        let adapters = Adapters::new(adapters);
        Ok(Model { spec, encoder, decoder, pooler, head, weights, weight_bytes, adapters })
    }
}

struct Builder<'s, S> {
    source: &'s mut S,
    /// What was read so far, so that shared weights are read and held once.
    weights: Weights,
    bytes: usize,
    /// Of each layer that can have adapters, in the order in which they are put together.
    adapters: Vec<Vec<LowRank>>,
}

impl<S: WeightSource> Builder<'_, S> {
    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Arc<Matrix>, S::Error> {
        if let Some(known) = self.weights.matrices.get(name) {
            return Ok(known.clone());
        }
        let matrix = self.source.shared(name, rows, cols)?;
        self.bytes += matrix.bytes();
        self.weights.matrices.insert(name.to_owned(), matrix.clone());
        Ok(matrix)
    }

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Arc<[f32]>, S::Error> {
        if let Some(known) = self.weights.vectors.get(name) {
            return Ok(known.clone());
        }
        let values = self.source.shared_vector(name, shape)?;
        self.bytes += size_of_val(&*values);
        self.weights.vectors.insert(name.to_owned(), values.clone());
        Ok(values)
    }

    fn low_rank(&mut self, layer: &str, inputs: usize, outputs: usize) -> Result<LayerAdapters, S::Error> {
        let own = self.source.low_rank(layer, inputs, outputs)?;
        if !own.is_empty() {
            self.weights.low_rank.insert(layer.to_owned(), own.clone());
        }
        let place = self.adapters.len();
        self.adapters.push(own.clone());
        Ok(LayerAdapters { place, own })
    }

    fn linear(&mut self, name: &str, out: usize, input: usize, bias: bool) -> Result<Linear, S::Error> {
        let weight = self.matrix(&format!("{name}.weight"), out, input)?;
        let bias = if bias { Some(self.vector(&format!("{name}.bias"), &[out])?) } else { None };
        let low_rank = self.low_rank(name, input, out)?;
        Ok(Linear { name: name.to_owned(), weight, bias, low_rank })
    }

    /// A norm over rows of `width` elements.
    fn norm(&mut self, name: &str, norm: Norm, width: usize) -> Result<NormLayer, S::Error> {
        Ok(NormLayer { norm, width, weights: vec![self.norm_weights(name.to_owned(), norm, width)?] })
    }

    fn norm_weights(&mut self, name: String, norm: Norm, width: usize) -> Result<NormWeights, S::Error> {
        let (weight, bias) = match norm {
            Norm::Rms { .. } => (true, false),
            Norm::Layer { bias, .. } => (true, bias),
            Norm::Plain { .. } => (false, false),
        };
        let mut read = |present: bool, suffix: &str| match present {
            true => self.vector(&format!("{name}.{suffix}"), &[width]).map(Some),
            false => Ok(None),
        };
        let (weight, bias) = (read(weight, "weight")?, read(bias, "bias")?);
        Ok(NormWeights { name, weight, bias })
    }

    fn stack(
        &mut self,
        prefix: &str,
        site: Option<StackKind>,
        stack: &Stack,
        encoder: Option<&StackParts>,
    ) -> Result<StackParts, S::Error> {
        let embed = self.embed(prefix, stack, encoder)?;
        let table = match &stack.relative_bias {
            None => None,
            Some(bias) => Some(self.relative_table(&format!("{prefix}relative_bias.weight"), bias)?),
        };
        let mut positions = PositionSet::default();
        let mut layers = Vec::with_capacity(stack.layers.len());
        for layer in &stack.layers {
            let name = format!("{prefix}layers.{}", layer.weights);
            layers.push(self.layer(&name, layer, stack, table.as_ref(), &mut positions)?);
        }
        positions.relative = match stack.relative_rows {
            None => None,
            Some(RelativeRows { rows, norm }) => {
                let name = format!("{prefix}relative_rows.weight");
                let weight = unpack(&*self.matrix(&name, rows, stack.width)?);
                let norm = match norm {
                    None => None,
                    Some(norm) => Some(self.norm(&format!("{prefix}relative_rows.norm"), norm, stack.width)?),
                };
                Some(RelativeEmbedding { table: RelativeTable { name, weight }, norm })
            }
        };
        let conv = match stack.conv {
            None => None,
            Some(spec) => Some(ConvLayer {
                spec,
                name: format!("{prefix}conv"),
                weight: self.vector(&format!("{prefix}conv.weight"), &spec.shape(stack.width))?,
                bias: self.vector(&format!("{prefix}conv.bias"), &[stack.width])?,
                norm: self.norm(&format!("{prefix}conv.norm"), spec.norm, stack.width)?,
            }),
        };
        let final_norm = match stack.final_norm {
            None => None,
            Some(norm) => Some(self.norm(&format!("{prefix}final_norm"), norm, stack.width)?),
        };
        let narrowing = match stack.narrowed {
            None => None,
            Some(width) => Some(self.linear(&format!("{prefix}narrowing"), width, stack.width, false)?),
        };
        Ok(StackParts { site, embed, positions, layers, conv, final_norm, narrowing })
    }

    fn embed(&mut self, prefix: &str, stack: &Stack, encoder: Option<&StackParts>) -> Result<EmbedLayer, S::Error> {
        let spec = &stack.embed;
        let (table_name, tokens) = match (spec.table, encoder) {
            (Table::Encoder, Some(encoder)) => (encoder.embed.table_name.clone(), encoder.embed.tokens.clone()),
            (Table::Encoder, None) | (Table::Own, _) => {
                let name = format!("{prefix}embed.tokens.weight");
                let tokens = self.matrix(&name, spec.vocab, spec.width)?;
                (name, tokens)
            }
        };
        let added = spec.added_width(stack.width);
        let positions = match spec.positions {
            AbsolutePositions::Learned { rows, .. } => {
                Some(self.matrix(&format!("{prefix}embed.positions.weight"), rows, added)?)
            }
            AbsolutePositions::None | AbsolutePositions::Sinusoidal { .. } => None,
        };
        let types = match spec.token_types {
            Some(types) => Some(self.matrix(&format!("{prefix}embed.types.weight"), types, added)?),
            None => None,
        };
        let norm = match spec.norm {
            Some(norm) => {
                let width = spec.norm_width(stack.width);
                Some(self.norm(&format!("{prefix}embed.norm"), norm, width)?)
            }
            None => None,
        };
        let projection = match spec.projection {
            None => None,
            Some(Projection { bias, .. }) => {
                Some(self.linear(&format!("{prefix}embed.projection"), stack.width, spec.width, bias)?)
            }
        };
        let prefix = prefix.to_owned();
        let layer = table_name.trim_end_matches(".weight").to_owned();
        let low_rank = self.low_rank(&layer, spec.vocab, spec.width)?;
        let spec = spec.clone();
        Ok(EmbedLayer { spec, table_name, prefix, tokens, positions, types, norm, projection, low_rank })
    }

    fn relative_table(&mut self, name: &str, bias: &RelativeBias) -> Result<RelativeTable, S::Error> {
        let weight = self.matrix(name, bias.buckets, bias.heads)?;
        Ok(RelativeTable { name: name.to_owned(), weight: unpack(&weight) })
    }

    fn layer(
        &mut self,
        name: &str,
        layer: &Layer,
        stack: &Stack,
        table: Option<&RelativeTable>,
        positions: &mut PositionSet,
    ) -> Result<LayerParts, S::Error> {
        let width = stack.width;
        let attention_name = format!("{name}.attention");
        let attention_norms = match layer.wiring {
            Wiring::FfnNorm => BranchNorms::default(),
            Wiring::PreNorm
            | Wiring::PostNorm
            | Wiring::Sandwich
            | Wiring::OutputNorm
            | Wiring::NormResidual
            | Wiring::Parallel { .. } => self.branch_norms(&attention_name, layer, width)?,
        };
        let mut attention = self.attention(&attention_name, &layer.attention, width)?;
        let own = match &layer.attention.position {
            Position::RelativeBias(bias) => {
                Some(self.relative_table(&format!("{attention_name}.relative_bias.weight"), bias)?)
            }
            Position::None
            | Position::Rope(_)
            | Position::Alibi(_)
            | Position::StackBias
            | Position::Disentangled(_) => table.cloned(),
        };
        attention.positions = positions.register(&layer.attention, stack, own);
        let cross = match &layer.cross {
            None => None,
            Some(cross) => {
                let cross_name = format!("{name}.cross");
                let norms = self.branch_norms(&cross_name, layer, width)?;
                Some((self.attention(&cross_name, cross, width)?, norms))
            }
        };
        let ffn_norms = match layer.wiring {
            Wiring::Parallel { shared_norm: true } => BranchNorms::default(),
            Wiring::PreNorm
            | Wiring::PostNorm
            | Wiring::Sandwich
            | Wiring::OutputNorm
            | Wiring::NormResidual
            | Wiring::FfnNorm
            | Wiring::Parallel { shared_norm: false } => self.branch_norms(&format!("{name}.ffn"), layer, width)?,
        };
        Ok(LayerParts {
            wiring: layer.wiring,
            branch_scale: layer.branch_scale,
            attention,
            attention_norms,
            cross,
            ffn: self.ffn(&format!("{name}.ffn"), &layer.ffn, width)?,
            ffn_norms,
        })
    }

    fn branch_norms(&mut self, branch: &str, layer: &Layer, width: usize) -> Result<BranchNorms, S::Error> {
        let norm = self.norm(&format!("{branch}.norm"), layer.norm, width)?;
        let post = match layer.wiring {
            Wiring::Sandwich => Some(self.norm(&format!("{branch}.post_norm"), layer.norm, width)?),
            Wiring::PreNorm
            | Wiring::PostNorm
            | Wiring::OutputNorm
            | Wiring::NormResidual
            | Wiring::FfnNorm
            | Wiring::Parallel { .. } => None,
        };
        Ok(BranchNorms { norm: Some(norm), post })
    }

    fn ffn(&mut self, name: &str, ffn: &Ffn, width: usize) -> Result<FeedForward, S::Error> {
        let (hidden, activation, bias, out_bias, gated) = match *ffn {
            Ffn::Mlp { hidden, activation, bias } => (hidden, activation, bias, bias, false),
            Ffn::Gated { hidden, activation, bias } => (hidden, activation, bias, bias, true),
            Ffn::GatedOutBias { hidden, activation } => (hidden, activation, false, true, true),
            Ffn::Moe(ref moe) => return Ok(FeedForward::Moe(Box::new(self.moe(name, moe, width)?))),
        };
        let gate = match gated {
            true => Some(self.linear(&format!("{name}.gate"), hidden, width, bias)?),
            false => None,
        };
        let up = self.linear(&format!("{name}.up"), hidden, width, bias)?;
        let down = self.linear(&format!("{name}.down"), width, hidden, out_bias)?;
        Ok(FeedForward::Dense(FfnLayer { activation, gate, up, down }))
    }

    fn moe(&mut self, name: &str, moe: &Moe, width: usize) -> Result<MoeLayer, S::Error> {
        let router = self.linear(&format!("{name}.router"), moe.experts, width, moe.router.bias)?;
        let correction = match moe.router.corrected() {
            true => Some(self.vector(&format!("{name}.router.correction"), &[moe.experts])?),
            false => None,
        };
        let experts = (0..moe.experts)
            .map(|expert| self.expert(&format!("{name}.experts.{expert}"), moe.hidden, width, moe.bias))
            .collect::<Result<_, _>>()?;
        let shared = match moe.shared {
            None => None,
            Some(SharedExpert { hidden, gate }) => {
                let expert = self.expert(&format!("{name}.shared"), hidden, width, false)?;
                let gate = match gate {
                    true => Some(self.linear(&format!("{name}.shared.router"), 1, width, false)?),
                    false => None,
                };
                Some(SharedLayer { expert, gate })
            }
        };
        Ok(MoeLayer { spec: moe.clone(), router, correction, experts, shared })
    }

    fn expert(&mut self, name: &str, hidden: usize, width: usize, bias: bool) -> Result<Expert, S::Error> {
        Ok(Expert {
            gate: self.linear(&format!("{name}.gate"), hidden, width, bias)?,
            up: self.linear(&format!("{name}.up"), hidden, width, bias)?,
            down: self.linear(&format!("{name}.down"), width, hidden, bias)?,
        })
    }

    fn head(&mut self, spec: &ModelSpec, embed: Option<&EmbedLayer>) -> Result<HeadLayer, S::Error> {
        let stack = spec.output_stack();
        let mut head = HeadLayer {
            spec: spec.head.clone(),
            transform: None,
            output: None,
            bias: None,
            low_rank: LayerAdapters::default(),
        };
        let (rows, inner, bias) = match &spec.head {
            Head::None => return Ok(head),
            Head::Lm(lm) => (lm.vocab, lm.inner_width(stack), lm.bias),
            Head::Sequence { labels, bias, .. } | Head::Token { labels, bias, .. } => {
                (*labels, stack.output_width(), *bias)
            }
            Head::Span { bias, .. } => (2, stack.output_width(), *bias),
        };
        if let Some(Transform { bias, activation, norm }) = spec.head.transform() {
            let dense = self.linear("head.transform", inner, stack.output_width(), bias)?;
            let norm = match norm {
                Some(norm) => Some(self.norm("head.norm", norm, inner)?),
                None => None,
            };
            head.transform = Some((dense, activation, norm));
        }
        head.output = Some(match (&spec.head, embed) {
            (Head::Lm(lm), Some(embed)) if lm.tied => (embed.table_name.clone(), embed.tokens.clone()),
            _ => ("head.weight".to_owned(), self.matrix("head.weight", rows, inner)?),
        });
        if bias {
            head.bias = Some(self.vector("head.bias", &[rows])?);
        }
        head.low_rank = self.low_rank("head", inner, rows)?;
        Ok(head)
    }
}
