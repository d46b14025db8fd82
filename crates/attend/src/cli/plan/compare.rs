//! The same model with other numbers of KV heads, types of weights and types of the cache, side by side.

use super::Machine;
use attend_kernels::{Compute, DType};
use attend_model::cost::{Plan, Planner, Uniform, Usage, WeightTypes, with_kv_heads, with_kv_type};
use attend_nn::spec::ModelSpec;
use serde::Serialize;

/// Types of weights that are compared.
pub const PRECISIONS: [DType; 5] = [DType::F32, DType::BF16, DType::Q8_0, DType::Q6_K, DType::Q4_K];
/// Types of the cache that are compared.
const CACHES: [DType; 4] = [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];

#[derive(Debug, Serialize)]
pub struct Comparisons {
    /// Other numbers of key and value heads; empty where the attentions of a model differ in their heads.
    pub attention: Vec<Row>,
    pub weights: Vec<Row>,
    pub cache: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub name: String,
    /// Whether this is the model as planned.
    pub own: bool,
    pub parameters: u64,
    pub weight_bytes: u64,
    pub kv_bytes_per_token: u64,
    pub kv_cache_bytes: u64,
    pub total_bytes: u64,
    pub decode_tokens_per_second: Option<f64>,
}

impl Row {
    fn new(name: String, own: bool, plan: &Plan, speed: Option<f64>) -> Row {
        Row {
            name,
            own,
            parameters: plan.parameters,
            weight_bytes: plan.weight_bytes,
            kv_bytes_per_token: plan.kv_bytes_per_token,
            kv_cache_bytes: plan.kv_cache_bytes,
            total_bytes: plan.total_bytes,
            decode_tokens_per_second: speed,
        }
    }
}

pub fn compare(
    spec: &ModelSpec,
    types: &dyn WeightTypes,
    compute: Compute,
    usage: &Usage,
    machine: Option<&Machine>,
) -> Comparisons {
    let cached = !matches!(spec.body, attend_nn::spec::Body::Encoder(_));
    let own_plan = Planner::new(spec, types).plan(usage);
    Comparisons {
        attention: heads(spec, types, usage),
        weights: PRECISIONS
            .into_iter()
            .map(|dtype| {
                let uniform = Uniform { dtype, compute };
                let plan = Planner::new(spec, &uniform).plan(usage);
                let speed = machine.map(|m| plan.speed(usage, &m.rates(dtype)).decode_tokens_per_second);
                let own = plan.weight_bytes == own_plan.weight_bytes;
                Row::new(dtype.to_string(), own, &plan, speed.filter(|_| cached))
            })
            .collect(),
        cache: CACHES
            .into_iter()
            .filter(|_| cached)
            .filter_map(|dtype| {
                let kv = with_kv_type(spec, dtype)?;
                let plan = Planner::new(spec, types).plan(&Usage { kv, ..*usage });
                Some(Row::new(dtype.to_string(), kv == usage.kv, &plan, None))
            })
            .collect(),
    }
}

/// Multi-head, grouped and multi-query attention.
fn heads(spec: &ModelSpec, types: &dyn WeightTypes, usage: &Usage) -> Vec<Row> {
    let Some(first) = spec.output_stack().layers.first().map(|layer| &layer.attention) else { return Vec::new() };
    let alike = |(heads, kv_heads)| (heads, kv_heads) == (first.heads, first.kv_heads);
    if !spec.output_stack().layers.iter().all(|layer| alike((layer.attention.heads, layer.attention.kv_heads))) {
        return Vec::new();
    }
    // Groups of eight where the model has none of its own.
    let grouped = if (2..first.heads).contains(&first.kv_heads) { first.kv_heads } else { first.heads / 8 };
    let mut counts = vec![first.heads, grouped, 1];
    counts.retain(|count| *count > 0);
    counts.dedup();
    let rows = counts.into_iter().filter_map(|count| {
        let other = with_kv_heads(spec, count)?;
        let plan = Planner::new(&other, types).plan(usage);
        let name = match count {
            _ if count == first.heads => format!("MHA, {count} KV heads"),
            1 => "MQA, 1 KV head".into(),
            _ => format!("GQA, {count} KV heads"),
        };
        Some(Row::new(name, count == first.kv_heads, &plan, None))
    });
    rows.collect()
}
