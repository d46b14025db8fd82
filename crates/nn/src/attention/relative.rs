//! Disentangled attention: tables of content against distances, which the core gathers from, and the way back.
//!
//! Of one sequence, `[H, T, rows]` holds each query against the position keys and `[H, S, rows]` each key against the
//! position queries. The core adds, for query `i` and key `j`, the entries of the row of `i - j`.

use super::{AttentionLayer, StepGradient};
use crate::grads::Gradients;
use crate::linear::Linear;
use crate::position::PositionTables;
use crate::row_adapters::RowAdapters;
use crate::spec::{Disentangled, RelativeProjection};
use attend_kernels::{Bias, Gathered, Heads, View, gemm, log_bucket};
use std::ops::Range;

/// An attention's own projections of distances, where they are not the content's.
#[derive(Debug, Clone)]
pub struct RelativeLayer {
    pub spec: Disentangled,
    pub key: Option<Linear>,
    pub query: Option<Linear>,
}

impl Disentangled {
    /// The row of a distance, query minus key.
    pub fn row(&self, distance: i64) -> usize {
        let span = self.span as i64;
        let bucket = match self.max_distance {
            Some(max_distance) => log_bucket(distance, self.span, max_distance),
            None => distance,
        };
        (bucket + span).clamp(0, 2 * span - 1) as usize
    }
}

/// Projected rows of distances, [rows, H*Dh] each, and their gradients on the way back.
pub(crate) struct Vectors {
    spec: Disentangled,
    rows: usize,
    key: Option<Vec<f32>>,
    query: Option<Vec<f32>>,
    d_key: Vec<f32>,
    d_query: Vec<f32>,
}

/// The tables of one sequence.
pub(crate) struct Table {
    heads: Heads,
    queries: Range<usize>,
    keys: Range<usize>,
    rows: usize,
    by_query: bool,
    by_key: bool,
    pub values: Vec<f32>,
    index: Vec<u32>,
}

impl Table {
    pub fn bias(&self) -> Bias<'_> {
        Bias::Gathered(Gathered {
            values: &self.values,
            by_query: self.by_query,
            by_key: self.by_key,
            heads: self.heads.heads,
            queries: self.queries.len(),
            keys: self.keys.len(),
            buckets: self.rows,
            index: &self.index,
            zero: self.queries.len().saturating_sub(1),
        })
    }
}

impl AttentionLayer {
    fn projection(&self, which: Which) -> Option<&Linear> {
        let relative = self.relative.as_ref()?;
        let (projection, own, content) = match which {
            Which::Key => (relative.spec.position_key, &relative.key, &self.key),
            Which::Query => (relative.spec.position_query, &relative.query, &self.query),
        };
        match projection? {
            RelativeProjection::Shared => Some(content),
            RelativeProjection::Own { .. } => own.as_ref(),
        }
    }

    /// The step's rows of distances, projected; `None` in any other attention.
    pub(crate) fn relative_vectors(&self, tables: &PositionTables) -> Option<Vectors> {
        let relative = self.relative.as_ref()?;
        let project = |which| self.projection(which).map(|linear| linear.forward(&tables.relative, &RowAdapters::OWN));
        Some(Vectors {
            spec: relative.spec,
            rows: 2 * relative.spec.span,
            key: project(Which::Key),
            query: project(Which::Query),
            d_key: Vec::new(),
            d_query: Vec::new(),
        })
    }

    /// From the gradients of the projected rows to those of the projections and of the rows.
    pub(crate) fn relative_backward(&self, vectors: &Vectors, step: &mut StepGradient, grads: &mut Gradients) {
        for (which, d) in [(Which::Key, &vectors.d_key), (Which::Query, &vectors.d_query)] {
            if let Some(linear) = self.projection(which) {
                linear.backward(&step.tables.relative, d, &mut step.d_relative, grads);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Which {
    Key,
    Query,
}

impl Vectors {
    /// The same with room for gradients.
    pub fn with_gradient(mut self) -> Vectors {
        self.d_key = vec![0.0; self.key.as_ref().map_or(0, Vec::len)];
        self.d_query = vec![0.0; self.query.as_ref().map_or(0, Vec::len)];
        self
    }

    /// The tables of the sequence with these rows of queries and keys; `query` and `key` are of the whole step.
    pub fn table(&self, heads: Heads, query: &[f32], key: &[f32], at: (&Range<usize>, &Range<usize>)) -> Table {
        let (queries, keys) = (at.0.clone(), at.1.clone());
        let filled = |vectors: &Option<Vec<f32>>, rows: &Range<usize>| if vectors.is_some() { rows.len() } else { 0 };
        let rows = filled(&self.key, &queries) + filled(&self.query, &keys);
        let mut values = Vec::with_capacity(rows * heads.heads * self.rows);
        for (vectors, content, rows) in [(&self.key, query, &queries), (&self.query, key, &keys)] {
            let Some(vectors) = vectors else { continue };
            for head in 0..heads.heads {
                let start = values.len();
                values.resize(start + rows.len() * self.rows, 0.0);
                let content = columns(content, rows.clone(), heads, head);
                let vectors = columns(vectors, 0..self.rows, heads, head);
                gemm(content, vectors.transposed(), &mut values[start..], false);
            }
        }
        let zero = queries.len() as i64 - 1;
        let distances = (0..queries.len() + keys.len()).map(|entry| self.spec.row(zero - entry as i64) as u32);
        let (by_query, by_key) = (self.key.is_some(), self.query.is_some());
        Table { heads, rows: self.rows, by_query, by_key, values, index: distances.collect(), queries, keys }
    }

    /// From the gradient of a table to those of queries and keys, which it is added to, and of the projected rows.
    pub fn backward(
        &mut self,
        table: &Table,
        d_table: &[f32],
        (query, d_query): (&[f32], &mut [f32]),
        (key, d_key): (&[f32], &mut [f32]),
    ) {
        let mut rest = d_table;
        let parts = [
            (&self.key, &mut self.d_key, query, d_query, &table.queries),
            (&self.query, &mut self.d_query, key, d_key, &table.keys),
        ];
        for (vectors, d_vectors, content, d_content, rows) in parts {
            let Some(vectors) = vectors else { continue };
            for head in 0..table.heads.heads {
                let (d, tail) = rest.split_at(rows.len() * self.rows);
                rest = tail;
                let d = View::new(d, rows.len(), self.rows);
                let mut part = vec![0.0; rows.len() * table.heads.key_dim];
                gemm(d, columns(vectors, 0..self.rows, table.heads, head), &mut part, false);
                add_columns(d_content, rows.start, &part, table.heads, head);
                let mut part = vec![0.0; self.rows * table.heads.key_dim];
                gemm(d.transposed(), columns(content, rows.clone(), table.heads, head), &mut part, false);
                add_columns(d_vectors, 0, &part, table.heads, head);
            }
        }
    }
}

/// One head of some rows of `[N, H*Dh]`.
fn columns(values: &[f32], rows: Range<usize>, heads: Heads, head: usize) -> View<'_> {
    let width = heads.heads * heads.key_dim;
    let data = &values[rows.start * width + head * heads.key_dim..];
    View { data, rows: rows.len(), cols: heads.key_dim, row_stride: width, col_stride: 1 }
}

/// Adds `[rows, Dh]` to one head of the rows from `start` on.
fn add_columns(values: &mut [f32], start: usize, part: &[f32], heads: Heads, head: usize) {
    let (dim, width) = (heads.key_dim, heads.heads * heads.key_dim);
    for (row, part) in values[start * width..].chunks_exact_mut(width).zip(part.chunks_exact(dim)) {
        row[head * dim..(head + 1) * dim].iter_mut().zip(part).for_each(|(slot, part)| *slot += part);
    }
}
