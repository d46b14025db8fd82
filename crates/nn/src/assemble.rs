//! A model put together from its description and a source of weights.

use crate::attention::AttentionLayer;
use crate::change::Weights;
use crate::embed::EmbedLayer;
use crate::ffn::FfnLayer;
use crate::head::{HeadLayer, PoolerLayer};
use crate::layer::{BranchNorms, LayerParts};
use crate::linear::Linear;
use crate::low_rank::LowRank;
use crate::model::Model;
use crate::norm::NormLayer;
use crate::position::{PositionSet, RelativeTable, unpack};
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

    /// The adapters of a layer, by its name without `.weight`; most sources have none.
    fn low_rank(&mut self, _layer: &str, _inputs: usize, _outputs: usize) -> Result<Vec<LowRank>, Self::Error> {
        Ok(Vec::new())
    }
}

impl Model {
    /// Reads every weight of the description from a source and puts the model together.
    pub fn assemble<S: WeightSource>(spec: ModelSpec, source: &mut S) -> Result<Model, S::Error> {
        let mut builder = Builder { source, weights: Weights::default(), bytes: 0 };
        let (encoder, decoder) = match &spec.body {
            Body::Encoder(stack) => (Some(builder.stack("", None, stack, None)?), None),
            Body::Decoder(stack) => (None, Some(builder.stack("", None, stack, None)?)),
            Body::EncoderDecoder { encoder, decoder } => {
                let first = builder.stack("encoder.", Some(StackKind::Encoder), encoder, None)?;
                let second = builder.stack("decoder.", Some(StackKind::Decoder), decoder, Some(&first))?;
                (Some(first), Some(second))
            }
        };
        let width = spec.output_stack().width;
        let pooler = match spec.pooler {
            None => None,
            Some(Pooler { activation }) => {
                Some(PoolerLayer { dense: builder.linear("pooler", width, width, true)?, activation })
            }
        };
        let output_embed = decoder.as_ref().or(encoder.as_ref()).map(|stack| &stack.embed);
        let head = builder.head(&spec, output_embed)?;
        let Builder { weights, bytes: weight_bytes, .. } = builder;
        Ok(Model { spec, encoder, decoder, pooler, head, weights, weight_bytes })
    }
}

struct Builder<'s, S> {
    source: &'s mut S,
    /// What was read so far, so that shared matrices are held once.
    weights: Weights,
    bytes: usize,
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

    fn vector(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, S::Error> {
        let values = self.source.vector(name, shape)?;
        self.bytes += size_of_val(values.as_slice());
        self.weights.vectors.insert(name.to_owned(), values.clone());
        Ok(values)
    }

    fn low_rank(&mut self, layer: &str, inputs: usize, outputs: usize) -> Result<Vec<LowRank>, S::Error> {
        let adapters = self.source.low_rank(layer, inputs, outputs)?;
        if !adapters.is_empty() {
            self.weights.low_rank.insert(layer.to_owned(), adapters.clone());
        }
        Ok(adapters)
    }

    fn linear(&mut self, name: &str, out: usize, input: usize, bias: bool) -> Result<Linear, S::Error> {
        let weight = self.matrix(&format!("{name}.weight"), out, input)?;
        let bias = if bias { Some(self.vector(&format!("{name}.bias"), &[out])?) } else { None };
        let low_rank = self.low_rank(name, input, out)?;
        Ok(Linear { name: name.to_owned(), weight, bias, low_rank })
    }

    /// A norm over `width` elements whose weights have `shape`.
    fn norm(&mut self, name: &str, norm: Norm, width: usize, shape: &[usize]) -> Result<NormLayer, S::Error> {
        let (weight, bias) = match norm {
            Norm::Rms { .. } => (true, false),
            Norm::Layer { bias, .. } => (true, bias),
            Norm::Plain { .. } => (false, false),
        };
        let mut read = |present: bool, suffix: &str| match present {
            true => self.vector(&format!("{name}.{suffix}"), shape).map(Some),
            false => Ok(None),
        };
        let (weight, bias) = (read(weight, "weight")?, read(bias, "bias")?);
        Ok(NormLayer { name: name.to_owned(), norm, width, weight, bias })
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
        let final_norm = match stack.final_norm {
            None => None,
            Some(norm) => Some(self.norm(&format!("{prefix}final_norm"), norm, stack.width, &[stack.width])?),
        };
        Ok(StackParts { site, embed, positions, layers, final_norm })
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
        let positions = match spec.positions {
            AbsolutePositions::Learned { rows, .. } => {
                Some(self.matrix(&format!("{prefix}embed.positions.weight"), rows, spec.width)?)
            }
            AbsolutePositions::None | AbsolutePositions::Sinusoidal { .. } => None,
        };
        let types = match spec.token_types {
            Some(types) => Some(self.matrix(&format!("{prefix}embed.types.weight"), types, spec.width)?),
            None => None,
        };
        let norm = match spec.norm {
            Some(norm) => Some(self.norm(&format!("{prefix}embed.norm"), norm, spec.width, &[spec.width])?),
            None => None,
        };
        let projection = match spec.width == stack.width {
            true => None,
            false => Some(self.linear(&format!("{prefix}embed.projection"), stack.width, spec.width, true)?),
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
        let attention_norms = self.branch_norms(&attention_name, layer, width)?;
        let mut attention = self.attention(&attention_name, &layer.attention, width)?;
        let own = match &layer.attention.position {
            Position::RelativeBias(bias) => {
                Some(self.relative_table(&format!("{attention_name}.relative_bias.weight"), bias)?)
            }
            _ => table.cloned(),
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
            _ => self.branch_norms(&format!("{name}.ffn"), layer, width)?,
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
        let norm = self.norm(&format!("{branch}.norm"), layer.norm, width, &[width])?;
        let post = match layer.wiring {
            Wiring::Sandwich => Some(self.norm(&format!("{branch}.post_norm"), layer.norm, width, &[width])?),
            Wiring::PreNorm
            | Wiring::PostNorm
            | Wiring::OutputNorm
            | Wiring::NormResidual
            | Wiring::Parallel { .. } => None,
        };
        Ok(BranchNorms { norm: Some(norm), post })
    }

    fn attention(&mut self, name: &str, spec: &Attention, width: usize) -> Result<AttentionLayer, S::Error> {
        let (query, key) = (spec.heads * spec.key_dim, spec.kv_heads * spec.key_dim);
        let (value, out) = (spec.kv_heads * spec.value_dim, spec.heads * spec.value_dim);
        let bias = spec.qkv_bias;
        let sinks_name = format!("{name}.sinks");
        Ok(AttentionLayer {
            query: self.linear(&format!("{name}.query"), query, width, bias.query)?,
            key: self.linear(&format!("{name}.key"), key, width, bias.key)?,
            value: self.linear(&format!("{name}.value"), value, width, bias.value)?,
            out: self.linear(&format!("{name}.out"), width, out, spec.out_bias)?,
            query_norm: self.qk_norm(&format!("{name}.query_norm"), spec, spec.heads)?,
            key_norm: self.qk_norm(&format!("{name}.key_norm"), spec, spec.kv_heads)?,
            sinks: match spec.sinks {
                true => Some((sinks_name.clone(), self.vector(&sinks_name, &[spec.heads])?)),
                false => None,
            },
            positions: Default::default(),
            spec: spec.clone(),
        })
    }

    fn qk_norm(&mut self, name: &str, spec: &Attention, heads: usize) -> Result<Option<NormLayer>, S::Error> {
        let Some(QkNorm { norm, scope }) = spec.qk_norm else { return Ok(None) };
        let dim = spec.key_dim;
        let norm = match scope {
            QkNormScope::Head => self.norm(name, norm, dim, &[dim])?,
            QkNormScope::EachHead => self.norm(name, norm, dim, &[heads, dim])?,
            QkNormScope::Projection => self.norm(name, norm, heads * dim, &[heads * dim])?,
        };
        Ok(Some(norm))
    }

    fn ffn(&mut self, name: &str, ffn: &Ffn, width: usize) -> Result<FfnLayer, S::Error> {
        let (hidden, activation, bias, gated) = match *ffn {
            Ffn::Mlp { hidden, activation, bias } => (hidden, activation, bias, false),
            Ffn::Gated { hidden, activation, bias } => (hidden, activation, bias, true),
        };
        let gate = match gated {
            true => Some(self.linear(&format!("{name}.gate"), hidden, width, bias)?),
            false => None,
        };
        let up = self.linear(&format!("{name}.up"), hidden, width, bias)?;
        let down = self.linear(&format!("{name}.down"), width, hidden, bias)?;
        Ok(FfnLayer { activation, gate, up, down })
    }

    fn head(&mut self, spec: &ModelSpec, embed: Option<&EmbedLayer>) -> Result<HeadLayer, S::Error> {
        let stack = spec.output_stack();
        let mut head =
            HeadLayer { spec: spec.head.clone(), transform: None, output: None, bias: None, low_rank: Vec::new() };
        let (rows, inner, bias) = match &spec.head {
            Head::None => return Ok(head),
            Head::Lm(lm) => {
                let inner = if lm.tied { stack.embed.width } else { stack.width };
                if let Some(Transform { activation, norm }) = lm.transform {
                    let dense = self.linear("head.transform", inner, stack.width, true)?;
                    head.transform = Some((dense, activation, self.norm("head.norm", norm, inner, &[inner])?));
                }
                (lm.vocab, inner, lm.bias)
            }
            Head::Sequence { labels, bias, .. } | Head::Token { labels, bias } => (*labels, stack.width, *bias),
            Head::Span { bias } => (2, stack.width, *bias),
        };
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
