//! Our names for weights, derived from the description. See `tensors` for the list a model must have.
//!
//! A model with one stack has names without a prefix; an encoder-decoder has `encoder.` and `decoder.` before them.
//!
//! ```text
//! embed.tokens.weight [V, E]       embed.positions.weight [rows, E]   embed.types.weight [types, E]
//! embed.norm.{weight,bias} [E or D]  embed.projection.{weight,bias} [D, E]
//! relative_bias.weight [buckets, H]
//! relative_rows.weight [rows, D], relative_rows.norm.{weight,bias} [D]
//! conv.{weight,bias} [D, D/groups, kernel], [D], conv.norm.{weight,bias} [D]
//! layers.{i}.attention.norm.{weight,bias} [D]          (the norm before or after the branch, as the wiring says)
//! layers.{i}.attention.post_norm.{weight,bias} [D]     (Sandwich only)
//! layers.{i}.attention.{query,key,value}.{weight,bias} [H*Dh, D], [K*Dh, D], [K*Dv, D]
//! layers.{i}.attention.out.{weight,bias} [D, H*Dv]
//! layers.{i}.attention.{query_norm,key_norm}.{weight,bias}
//! layers.{i}.attention.sinks [H]
//! layers.{i}.attention.latent.{weight,bias} [R+P, D], attention.latent_norm.weight [R]   (latent attention)
//! layers.{i}.attention.query_down.{weight,bias} [Rq, D], attention.query_down_norm.weight [Rq]
//! layers.{i}.attention.query.weight [H*(Dn+P), Rq or D]
//! layers.{i}.attention.key_up.{j}.weight [R, Dn], attention.value_up.{j}.weight [Dv, R]
//! layers.{i}.attention.relative_bias.weight [buckets, H]
//! layers.{i}.attention.{position_key,position_query}.{weight,bias} [H*Dh, D]
//! layers.{i}.cross.{norm,post_norm,query,key,value,out,...}  (as attention)
//! layers.{i}.ffn.norm, ffn.post_norm, ffn.{gate,up}.{weight,bias} [F, D], ffn.down.{weight,bias} [D, F]
//! layers.{i}.ffn.router.{weight,bias} [E, D], ffn.router.correction [E]   (mixtures of experts)
//! layers.{i}.ffn.experts.{j}.{gate,up}.{weight,bias} [F, D], ffn.experts.{j}.down.{weight,bias} [D, F]
//! layers.{i}.ffn.shared.{gate,up,down}.weight, ffn.shared.router.weight [1, D]
//! final_norm.{weight,bias} [D]
//! ```
//! and, never prefixed: `pooler.{weight,bias}`, `head.weight` (absent when tied), `head.bias`,
//! `head.transform.{weight,bias}`, `head.norm.{weight,bias}`.
//!
//! With `Parallel { shared_norm: true }` there is no `ffn.norm`, with `FfnNorm` no `attention.norm`. `{i}` is the weight set, [`crate::spec::Layer::weights`].

use crate::spec::*;

/// A tensor that a model must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Required {
    pub name: String,
    /// Rows first: a linear layer is `[out, in]`.
    pub shape: Vec<usize>,
}

impl ModelSpec {
    /// Every tensor the model needs, in walking order.
    pub fn tensors(&self) -> Vec<Required> {
        let mut list = List(Vec::new());
        match &self.body {
            Body::Encoder(stack) | Body::Decoder(stack) => list.stack("", stack),
            Body::EncoderDecoder { encoder, decoder } => {
                list.stack("encoder.", encoder);
                list.stack("decoder.", decoder);
            }
        }
        let width = self.output_stack().width;
        if self.pooler.is_some() {
            list.linear("pooler", width, width, true);
        }
        list.head(&self.head, self.output_stack());
        list.0
    }

    /// The stack whose output feeds the head.
    pub fn output_stack(&self) -> &Stack {
        match &self.body {
            Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. } => stack,
        }
    }

    /// The model's stacks with their kinds and the prefix of their weights' names.
    pub fn stacks(&self) -> Vec<(StackKind, &'static str, &Stack)> {
        match &self.body {
            Body::Encoder(stack) => vec![(StackKind::Encoder, "", stack)],
            Body::Decoder(stack) => vec![(StackKind::Decoder, "", stack)],
            Body::EncoderDecoder { encoder, decoder } => {
                vec![(StackKind::Encoder, "encoder.", encoder), (StackKind::Decoder, "decoder.", decoder)]
            }
        }
    }
}

impl Embed {
    /// The width of the embedding's norm, in a stack of this width.
    pub(crate) fn norm_width(&self, stack: usize) -> usize {
        match self.projection {
            Some(Projection { before_norm: true, .. }) => stack,
            Some(Projection { before_norm: false, .. }) | None => self.width,
        }
    }
}

impl Conv {
    /// `[D, D / groups, kernel]`
    pub(crate) fn shape(&self, width: usize) -> [usize; 3] {
        [width, width / self.groups.max(1), self.kernel]
    }
}

impl LmHead {
    /// Columns of the output matrix: the token table's where it is that table or where a transform leads back to it.
    pub(crate) fn inner_width(&self, stack: &Stack) -> usize {
        if self.tied || self.transform.is_some() { stack.embed.width } else { stack.width }
    }
}

struct List(Vec<Required>);

impl List {
    fn push(&mut self, name: String, shape: Vec<usize>) {
        self.0.push(Required { name, shape });
    }

    fn linear(&mut self, name: &str, out: usize, input: usize, bias: bool) {
        self.push(format!("{name}.weight"), vec![out, input]);
        if bias {
            self.push(format!("{name}.bias"), vec![out]);
        }
    }

    fn norm(&mut self, name: &str, norm: &Norm, shape: Vec<usize>) {
        match norm {
            Norm::Plain { .. } => {}
            Norm::Rms { .. } => self.push(format!("{name}.weight"), shape),
            Norm::Layer { bias, .. } => {
                self.push(format!("{name}.weight"), shape.clone());
                if *bias {
                    self.push(format!("{name}.bias"), shape);
                }
            }
        }
    }

    fn stack(&mut self, prefix: &str, stack: &Stack) {
        let embed = &stack.embed;
        if embed.table == Table::Own {
            self.push(format!("{prefix}embed.tokens.weight"), vec![embed.vocab, embed.width]);
        }
        if let AbsolutePositions::Learned { rows, .. } = embed.positions {
            self.push(format!("{prefix}embed.positions.weight"), vec![rows, embed.width]);
        }
        if let Some(types) = embed.token_types {
            self.push(format!("{prefix}embed.types.weight"), vec![types, embed.width]);
        }
        if let Some(norm) = &embed.norm {
            self.norm(&format!("{prefix}embed.norm"), norm, vec![embed.norm_width(stack.width)]);
        }
        if let Some(projection) = &embed.projection {
            self.linear(&format!("{prefix}embed.projection"), stack.width, embed.width, projection.bias);
        }
        if let Some(bias) = &stack.relative_bias {
            self.push(format!("{prefix}relative_bias.weight"), vec![bias.buckets, bias.heads]);
        }
        if let Some(relative) = &stack.relative_rows {
            self.push(format!("{prefix}relative_rows.weight"), vec![relative.rows, stack.width]);
            if let Some(norm) = &relative.norm {
                self.norm(&format!("{prefix}relative_rows.norm"), norm, vec![stack.width]);
            }
        }
        if let Some(conv) = &stack.conv {
            self.push(format!("{prefix}conv.weight"), conv.shape(stack.width).to_vec());
            self.push(format!("{prefix}conv.bias"), vec![stack.width]);
            self.norm(&format!("{prefix}conv.norm"), &conv.norm, vec![stack.width]);
        }
        let mut seen = std::collections::HashSet::new();
        for layer in &stack.layers {
            if seen.insert(layer.weights) {
                self.layer(&format!("{prefix}layers.{}", layer.weights), layer, stack.width);
            }
        }
        if let Some(norm) = &stack.final_norm {
            self.norm(&format!("{prefix}final_norm"), norm, vec![stack.width]);
        }
    }

    fn layer(&mut self, name: &str, layer: &Layer, width: usize) {
        if layer.wiring != Wiring::FfnNorm {
            self.branch_norms(&format!("{name}.attention"), layer, width);
        }
        self.attention(&format!("{name}.attention"), &layer.attention, width);
        if let Some(cross) = &layer.cross {
            self.branch_norms(&format!("{name}.cross"), layer, width);
            self.attention(&format!("{name}.cross"), cross, width);
        }
        if layer.wiring != (Wiring::Parallel { shared_norm: true }) {
            self.branch_norms(&format!("{name}.ffn"), layer, width);
        }
        match &layer.ffn {
            Ffn::Mlp { hidden, bias, .. } => {
                self.linear(&format!("{name}.ffn.up"), *hidden, width, *bias);
                self.linear(&format!("{name}.ffn.down"), width, *hidden, *bias);
            }
            Ffn::Gated { hidden, bias, .. } => self.gated(&format!("{name}.ffn"), *hidden, width, *bias),
            Ffn::GatedOutBias { hidden, .. } => {
                self.gated(&format!("{name}.ffn"), *hidden, width, false);
                self.push(format!("{name}.ffn.down.bias"), vec![width]);
            }
            Ffn::Moe(moe) => self.experts(&format!("{name}.ffn"), moe, width),
        }
    }

    fn gated(&mut self, name: &str, hidden: usize, width: usize, bias: bool) {
        self.linear(&format!("{name}.gate"), hidden, width, bias);
        self.linear(&format!("{name}.up"), hidden, width, bias);
        self.linear(&format!("{name}.down"), width, hidden, bias);
    }

    fn experts(&mut self, name: &str, moe: &Moe, width: usize) {
        self.linear(&format!("{name}.router"), moe.experts, width, moe.router.bias);
        if moe.router.corrected() {
            self.push(format!("{name}.router.correction"), vec![moe.experts]);
        }
        for expert in 0..moe.experts {
            self.gated(&format!("{name}.experts.{expert}"), moe.hidden, width, moe.bias);
        }
        if let Some(shared) = &moe.shared {
            self.gated(&format!("{name}.shared"), shared.hidden, width, false);
            if shared.gate {
                self.linear(&format!("{name}.shared.router"), 1, width, false);
            }
        }
    }

    fn branch_norms(&mut self, branch: &str, layer: &Layer, width: usize) {
        self.norm(&format!("{branch}.norm"), &layer.norm, vec![width]);
        if layer.wiring == Wiring::Sandwich {
            self.norm(&format!("{branch}.post_norm"), &layer.norm, vec![width]);
        }
    }

    fn attention(&mut self, name: &str, attention: &Attention, width: usize) {
        match &attention.latent {
            None => self.projections(name, attention, width),
            Some(latent) => self.latent(name, attention, latent, width),
        }
        if attention.sinks {
            self.push(format!("{name}.sinks"), vec![attention.heads]);
        }
        if let Position::RelativeBias(bias) = &attention.position {
            self.push(format!("{name}.relative_bias.weight"), vec![bias.buckets, bias.heads]);
        }
        if let Position::Disentangled(relative) = &attention.position {
            let query = attention.heads * attention.key_dim;
            if let Some(RelativeProjection::Own { bias }) = relative.position_key {
                self.linear(&format!("{name}.position_key"), query, width, bias);
            }
            if let Some(RelativeProjection::Own { bias }) = relative.position_query {
                self.linear(&format!("{name}.position_query"), query, width, bias);
            }
        }
    }

    fn latent(&mut self, name: &str, attention: &Attention, latent: &Latent, width: usize) {
        let (bias, head) = (attention.qkv_bias, latent.key_dim + latent.rope_dim);
        if let Some(rank) = latent.query_rank {
            self.linear(&format!("{name}.query_down"), rank, width, bias.query);
            self.norm(&format!("{name}.query_down_norm"), &latent.norm, vec![rank]);
        }
        let direct = latent.query_rank.is_none() && bias.query;
        self.linear(&format!("{name}.query"), attention.heads * head, latent.query_rank.unwrap_or(width), direct);
        self.linear(&format!("{name}.latent"), attention.key_dim, width, bias.key);
        self.norm(&format!("{name}.latent_norm"), &latent.norm, vec![latent.rank]);
        for head in 0..attention.heads {
            self.linear(&format!("{name}.key_up.{head}"), latent.rank, latent.key_dim, false);
            self.linear(&format!("{name}.value_up.{head}"), latent.value_dim, latent.rank, false);
        }
        self.linear(&format!("{name}.out"), width, attention.heads * latent.value_dim, attention.out_bias);
    }

    fn projections(&mut self, name: &str, attention: &Attention, width: usize) {
        let (query, key) = (attention.heads * attention.key_dim, attention.kv_heads * attention.key_dim);
        self.linear(&format!("{name}.query"), query, width, attention.qkv_bias.query);
        self.linear(&format!("{name}.key"), key, width, attention.qkv_bias.key);
        let value = attention.kv_heads * attention.value_dim;
        self.linear(&format!("{name}.value"), value, width, attention.qkv_bias.value);
        self.linear(&format!("{name}.out"), width, attention.heads * attention.value_dim, attention.out_bias);
        if let Some(QkNorm { norm, scope }) = &attention.qk_norm {
            let shape = |heads: usize| match scope {
                QkNormScope::Head => vec![attention.key_dim],
                QkNormScope::EachHead => vec![heads, attention.key_dim],
                QkNormScope::Projection => vec![heads * attention.key_dim],
            };
            self.norm(&format!("{name}.query_norm"), norm, shape(attention.heads));
            self.norm(&format!("{name}.key_norm"), norm, shape(attention.kv_heads));
        }
    }

    fn head(&mut self, head: &Head, stack: &Stack) {
        match head {
            Head::None => {}
            Head::Lm(lm) => {
                let inner = lm.inner_width(stack);
                self.transform(head, inner, stack);
                if !lm.tied {
                    self.push("head.weight".into(), vec![lm.vocab, inner]);
                }
                if lm.bias {
                    self.push("head.bias".into(), vec![lm.vocab]);
                }
            }
            Head::Sequence { labels, bias, .. } | Head::Token { labels, bias, .. } => {
                self.transform(head, stack.width, stack);
                self.linear("head", *labels, stack.width, *bias);
            }
            Head::Span { bias, .. } => {
                self.transform(head, stack.width, stack);
                self.linear("head", 2, stack.width, *bias);
            }
        }
    }

    fn transform(&mut self, head: &Head, inner: usize, stack: &Stack) {
        if let Some(Transform { bias, norm, .. }) = head.transform() {
            self.linear("head.transform", inner, stack.width, bias);
            if let Some(norm) = norm {
                self.norm("head.norm", &norm, vec![inner]);
            }
        }
    }
}
