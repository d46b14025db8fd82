//! Attention put together: projections, norms of queries and keys, sinks, and what latents and distances add.

use super::{Builder, WeightSource};
use crate::attention::{AttentionLayer, LatentParts, RelativeLayer, Sinks, Values};
use crate::norm::NormLayer;
use crate::spec::{Attention, Latent, Position, QkNorm, QkNormScope, RelativeProjection};

impl<S: WeightSource> Builder<'_, S> {
    pub(super) fn attention(&mut self, name: &str, spec: &Attention, width: usize) -> Result<AttentionLayer, S::Error> {
        let (query, key) = (spec.heads * spec.key_dim, spec.kv_heads * spec.key_dim);
        let (value, out) = (spec.kv_heads * spec.value_dim, spec.heads * spec.value_dim);
        let bias = spec.qkv_bias;
        if let Some(latent) = spec.latent {
            return self.latent_attention(name, spec, latent, width);
        }
        Ok(AttentionLayer {
            query: self.linear(&format!("{name}.query"), query, width, bias.query)?,
            key: self.linear(&format!("{name}.key"), key, width, bias.key)?,
            value: Values::Projected(self.linear(&format!("{name}.value"), value, width, bias.value)?),
            out: self.linear(&format!("{name}.out"), width, out, spec.out_bias)?,
            query_norm: self.qk_norm(&format!("{name}.query_norm"), spec, spec.heads)?,
            key_norm: self.qk_norm(&format!("{name}.key_norm"), spec, spec.kv_heads)?,
            relative: self.relative(name, spec, width)?,
            sinks: self.sinks(name, spec)?,
            positions: Default::default(),
            spec: spec.clone(),
        })
    }

    fn sinks(&mut self, name: &str, spec: &Attention) -> Result<Option<Sinks>, S::Error> {
        if !spec.sinks {
            return Ok(None);
        }
        let name = format!("{name}.sinks");
        let logits = self.vector(&name, &[spec.heads])?;
        Ok(Some(Sinks { name, logits }))
    }

    fn latent_attention(
        &mut self,
        name: &str,
        spec: &Attention,
        latent: Latent,
        width: usize,
    ) -> Result<AttentionLayer, S::Error> {
        let (bias, head_dim) = (spec.qkv_bias, latent.key_dim + latent.rope_dim);
        let query_down = match latent.query_rank {
            None => None,
            Some(rank) => {
                let down = self.linear(&format!("{name}.query_down"), rank, width, bias.query)?;
                Some((down, self.norm(&format!("{name}.query_down_norm"), latent.norm, rank)?))
            }
        };
        let direct = query_down.is_none() && bias.query;
        let input = latent.query_rank.unwrap_or(width);
        let query = self.linear(&format!("{name}.query"), spec.heads * head_dim, input, direct)?;
        let key = self.linear(&format!("{name}.latent"), spec.key_dim, width, bias.key)?;
        let norm = self.norm(&format!("{name}.latent_norm"), latent.norm, latent.rank)?;
        let (mut key_up, mut value_up) = (Vec::with_capacity(spec.heads), Vec::with_capacity(spec.heads));
        for head in 0..spec.heads {
            key_up.push(self.linear(&format!("{name}.key_up.{head}"), latent.rank, latent.key_dim, false)?);
            value_up.push(self.linear(&format!("{name}.value_up.{head}"), latent.value_dim, latent.rank, false)?);
        }
        Ok(AttentionLayer {
            query,
            key,
            value: Values::Latent(Box::new(LatentParts { spec: latent, query_down, norm, key_up, value_up })),
            out: self.linear(&format!("{name}.out"), width, spec.heads * latent.value_dim, spec.out_bias)?,
            query_norm: None,
            key_norm: None,
            sinks: self.sinks(name, spec)?,
            relative: None,
            positions: Default::default(),
            spec: spec.clone(),
        })
    }

    fn relative(&mut self, name: &str, spec: &Attention, width: usize) -> Result<Option<RelativeLayer>, S::Error> {
        let Position::Disentangled(relative) = spec.position else { return Ok(None) };
        let mut own = |projection, part: &str| match projection {
            Some(RelativeProjection::Own { bias }) => {
                self.linear(&format!("{name}.{part}"), spec.heads * spec.key_dim, width, bias).map(Some)
            }
            Some(RelativeProjection::Shared) | None => Ok(None),
        };
        let key = own(relative.position_key, "position_key")?;
        let query = own(relative.position_query, "position_query")?;
        Ok(Some(RelativeLayer { spec: relative, key, query }))
    }

    fn qk_norm(&mut self, name: &str, spec: &Attention, heads: usize) -> Result<Option<NormLayer>, S::Error> {
        let Some(QkNorm { norm, scope }) = spec.qk_norm else { return Ok(None) };
        let dim = spec.key_dim;
        let norm = match scope {
            QkNormScope::Head => self.norm(name, norm, dim)?,
            QkNormScope::EachHead => {
                let weights = (0..heads).map(|head| self.norm_weights(format!("{name}.{head}"), norm, dim));
                NormLayer { norm, width: dim, weights: weights.collect::<Result<_, _>>()? }
            }
            QkNormScope::Projection => self.norm(name, norm, heads * dim)?,
        };
        Ok(Some(norm))
    }
}
