//! How one of our tensors lies in a tensor of the file, worked out from the verbs of its name's line; and the way back.

use crate::error::Error;
use crate::names::Verb;
use attend_nn::spec::{Attention, Body, Ffn, Layer, ModelSpec, Stack};

/// The place of our tensor in theirs. Row `r` of ours is row [`Layout::their_row`]`(r)` of theirs (its column where
/// the matrix is stored transposed); vectors count as matrices of one column, a stack as its matrices one below the
/// other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The shape that the tensor in the file must have.
    pub their_shape: Vec<usize>,
    /// Whether the file's matrix is `[in, out]`.
    pub transposed: bool,
    /// Added to every value after reading: 1 or -1 where the file holds a difference from one, else 0.
    pub added: i8,
    /// Rows of ours that lie together in each period of theirs, the period, and where in it they start.
    run: usize,
    period: usize,
    start: usize,
    /// Rows of a head whose rotary pairs the file keeps side by side; 0: as they are.
    paired: usize,
    /// Which of how many in a stack ours is.
    entry: (usize, usize),
    /// Rows of theirs before the first of ours, beside those of the stack's other entries.
    before: usize,
    /// Columns of theirs.
    width: usize,
}

impl Layout {
    /// A tensor that is stored as it is used.
    pub fn plain(shape: &[usize]) -> Layout {
        let rows = shape.first().copied().unwrap_or(1).max(1);
        Layout {
            their_shape: shape.to_vec(),
            transposed: false,
            added: 0,
            run: rows,
            period: rows,
            start: 0,
            paired: 0,
            entry: (0, 1),
            before: 0,
            width: shape.iter().skip(1).product(),
        }
    }

    /// The layout that `verbs` give to our tensor `name` of `shape`.
    pub fn new(name: &str, shape: &[usize], verbs: &[Verb], spec: &ModelSpec) -> Result<Layout, Error> {
        let mut layout = Layout::plain(shape);
        let mut stacked = false;
        let wrong = |verb: Verb| Error::Table(format!("{verb:?} has no meaning for `{name}`"));
        for &verb in verbs {
            match verb {
                Verb::Transpose => layout.transposed = shape.len() == 2,
                // A column of as many rows, stored transposed.
                Verb::Row => {
                    layout.their_shape = [shape, &[1]].concat();
                    layout.transposed = true;
                }
                Verb::AddOne => layout.added = 1,
                Verb::SubtractOne => layout.added = -1,
                Verb::Constant => {}
                Verb::QkvBlocks | Verb::QkvGroups => {
                    let attention = attention_of(name, spec).ok_or_else(|| wrong(verb))?;
                    let groups = if verb == Verb::QkvGroups { attention.kv_heads } else { 1 };
                    layout.fuse(
                        &qkv_rows(attention, groups),
                        part(name, ["query", "key", "value"]).ok_or_else(|| wrong(verb))?,
                    );
                }
                Verb::QvkQuarters => {
                    let attention = attention_of(name, spec).ok_or_else(|| wrong(verb))?;
                    let [query, key, value] = qkv_rows(attention, 4);
                    let part = part(name, ["query", "value", "key"]).ok_or_else(|| wrong(verb))?;
                    layout.fuse(&[query, value, key], part);
                }
                Verb::GateUpBlocks | Verb::GateUpAlternate => {
                    let hidden = shape.first().copied().unwrap_or(0);
                    let run = if verb == Verb::GateUpBlocks { hidden } else { 1 };
                    layout.fuse(&[run, run], part(name, ["gate", "up", ""]).ok_or_else(|| wrong(verb))?);
                }
                Verb::UpGateBlocks => {
                    let hidden = shape.first().copied().unwrap_or(0);
                    layout.fuse(&[hidden, hidden], part(name, ["up", "gate", ""]).ok_or_else(|| wrong(verb))?);
                }
                Verb::Stacked => {
                    stacked = true;
                    layout.entry = entry(name, spec).ok_or_else(|| wrong(verb))?;
                }
                Verb::KvHeads => layout.heads(name, attention_of(name, spec)).ok_or_else(|| wrong(verb))?,
                Verb::Flat => layout.their_shape = vec![layout.width],
                Verb::Pairs => layout.paired = attention_of(name, spec).ok_or_else(|| wrong(verb))?.key_dim,
            }
        }
        if layout.transposed {
            layout.their_shape.reverse();
            layout.width = layout.their_shape.last().copied().unwrap_or(1);
        }
        if stacked {
            layout.their_shape.insert(0, layout.entry.1);
        }
        Ok(layout)
    }

    /// The same place in a file that has the matrix as `[out, in]` after all.
    pub fn upright(&self) -> Layout {
        let mut layout = Layout { transposed: false, ..self.clone() };
        if let [.., rows, cols] = layout.their_shape.as_mut_slice() {
            std::mem::swap(rows, cols);
            layout.width = *cols;
        }
        layout
    }

    /// Our matrix leads from the latent to a head's key (`[latent, key]`, so its transpose is what the file has) or from
    /// the latent to its value.
    fn heads(&mut self, name: &str, attention: Option<&Attention>) -> Option<()> {
        let latent = attention?.latent.as_ref()?;
        let head = latent.key_dim + latent.value_dim;
        let (index, count) = (second_number(name)?, attention?.heads);
        let value = name.contains(".value_up.");
        self.transposed = !value;
        self.before = index * head + if value { latent.key_dim } else { 0 };
        // A transposed shape is turned about afterwards.
        self.their_shape = if value { vec![count * head, latent.rank] } else { vec![latent.rank, count * head] };
        self.width = latent.rank;
        Some(())
    }

    /// Rows of theirs, and how many columns each has.
    pub fn their_size(&self) -> (usize, usize) {
        let total: usize = self.their_shape.iter().product();
        (total.checked_div(self.width).unwrap_or(0), self.width)
    }

    /// Rows of theirs before the first of ours.
    pub fn offset(&self) -> usize {
        self.before + self.entry.0 * self.entry_rows()
    }

    /// Rows of theirs in each entry of a stack; all where it is none.
    pub fn entry_rows(&self) -> usize {
        self.their_size().0 / self.entry.1.max(1)
    }

    /// Where column `col` of our row `row` is in theirs: its row and its column there.
    pub fn their_place(&self, row: usize, col: usize) -> (usize, usize) {
        match self.transposed {
            true => (self.offset() + col, self.their_row(row)),
            false => (self.offset() + self.their_row(row), col),
        }
    }

    /// Our rows are part `index` of a tensor whose rows repeat the given parts.
    fn fuse(&mut self, parts: &[usize], index: usize) {
        let rows = self.their_shape.first().copied().unwrap_or(0);
        self.run = parts.get(index).copied().unwrap_or(rows).max(1);
        self.start = parts.iter().take(index).sum();
        self.period = parts.iter().sum::<usize>().max(1);
        // As many periods as our rows fill.
        if let Some(first) = self.their_shape.first_mut() {
            *first = (rows / self.run).saturating_mul(self.period);
        }
    }

    /// Where row `row` of ours is in theirs, after the first [`Layout::offset`].
    pub fn their_row(&self, row: usize) -> usize {
        let row = match self.paired {
            0 | 1 => row,
            head => {
                let (at, half) = (row % head, head / 2);
                row - at + if at < half { 2 * at } else { 2 * (at - half) + 1 }
            }
        };
        row / self.run * self.period + self.start + row % self.run
    }

    /// Whether our rows are all of theirs, in their order.
    pub fn is_whole(&self) -> bool {
        let all = self.entry.1 == 1 && self.before == 0;
        all && self.run == self.period && self.start == 0 && self.paired < 2 && !self.transposed
    }

    /// Copies our values to their place in `theirs`, the whole tensor of the file.
    ///
    /// `difference` says that the values are weights, from which what reading adds is taken again; gradients go as
    /// they are.
    pub fn write_back(&self, ours: &[f32], rows: usize, theirs: &mut [f32], difference: bool) {
        let cols = ours.len().checked_div(rows).unwrap_or(0);
        let width = if self.transposed { self.width } else { cols };
        let added = if difference { f32::from(self.added) } else { 0.0 };
        for (row, values) in ours.chunks_exact(cols.max(1)).enumerate() {
            for (col, value) in values.iter().enumerate() {
                let (their_row, their_col) = self.their_place(row, col);
                if let Some(place) = theirs.get_mut(their_row * width + their_col) {
                    *place = value - added;
                }
            }
        }
    }
}

/// Rows of query, key and value in one period of a fused projection of `groups` periods.
fn qkv_rows(attention: &Attention, groups: usize) -> [usize; 3] {
    let groups = groups.max(1);
    let (query, key) = (attention.heads * attention.key_dim, attention.kv_heads * attention.key_dim);
    [query / groups, key / groups, attention.kv_heads * attention.value_dim / groups]
}

/// Which of `parts` the name speaks of.
fn part(name: &str, parts: [&str; 3]) -> Option<usize> {
    let stem = name.rsplit('.').nth(1)?;
    parts.iter().position(|part| stem == *part)
}

/// The attention whose weight `name` is.
fn attention_of<'a>(name: &str, spec: &'a ModelSpec) -> Option<&'a Attention> {
    let (layer, rest) = layer_of(name, spec)?;
    if rest.starts_with("cross.") { layer.cross.as_ref() } else { Some(&layer.attention) }
}

/// The layer whose weight `name` is, and the name within it.
fn layer_of<'a, 'n>(name: &'n str, spec: &'a ModelSpec) -> Option<(&'a Layer, &'n str)> {
    let (stack, name): (&Stack, &str) = match &spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) => (stack, name),
        Body::EncoderDecoder { encoder, decoder } => match name.strip_prefix("encoder.") {
            Some(rest) => (encoder, rest),
            None => (decoder, name.strip_prefix("decoder.")?),
        },
    };
    let (index, rest) = name.strip_prefix("layers.")?.split_once('.')?;
    let index: usize = index.parse().ok()?;
    let layer = stack.layers.get(index).filter(|l| l.weights == index);
    Some((layer.or_else(|| stack.layers.iter().find(|layer| layer.weights == index))?, rest))
}

/// Which expert or head `name` is of, and how many there are.
fn entry(name: &str, spec: &ModelSpec) -> Option<(usize, usize)> {
    let (layer, rest) = layer_of(name, spec)?;
    let count = match &layer.ffn {
        Ffn::Moe(moe) if rest.starts_with("ffn.") => moe.experts,
        Ffn::Moe(_) | Ffn::Mlp { .. } | Ffn::Gated { .. } | Ffn::GatedOutBias { .. } => attention_of(name, spec)?.heads,
    };
    Some((second_number(name)?, count))
}

/// The expert or head in a name.
fn second_number(name: &str) -> Option<usize> {
    name.split('.').filter_map(|part| part.parse().ok()).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `theirs` read through a layout, in the slow way.
    fn read(layout: &Layout, theirs: &[f32], rows: usize, cols: usize) -> Vec<f32> {
        let width = layout.their_shape.get(1).copied().unwrap_or(1);
        let at = |r: usize, c: usize| match layout.transposed {
            true => c * width + layout.their_row(r),
            false => layout.their_row(r) * cols + c,
        };
        (0..rows)
            .flat_map(|r| (0..cols).map(move |c| (r, c)))
            .map(|(r, c)| theirs[at(r, c)] + f32::from(layout.added))
            .collect()
    }

    #[test]
    fn every_layout_covers_its_tensor_once_and_comes_back() {
        let (rows, cols) = (12, 5);
        let plain = Layout::plain(&[rows, cols]);
        let paired = Layout { paired: 6, ..plain.clone() };
        let added = Layout { added: 1, ..plain.clone() };
        let transposed = Layout { transposed: true, their_shape: vec![cols, rows], width: rows, ..plain.clone() };
        for layout in [plain, paired, added, transposed] {
            let theirs: Vec<f32> = (0..rows * cols).map(|x| x as f32).collect();
            let ours = read(&layout, &theirs, rows, cols);
            let mut back = vec![f32::NAN; theirs.len()];
            layout.write_back(&ours, rows, &mut back, true);
            assert_eq!(back, theirs, "{layout:?}");
        }
    }

    #[test]
    fn fused_rows_lie_where_their_layout_says() {
        // Two groups of 4 query rows, 2 key rows, 2 value rows.
        let mut value = Layout::plain(&[4, 3]);
        value.fuse(&[4, 2, 2], 2);
        assert_eq!((value.their_shape.clone(), value.their_row(1), value.their_row(2)), (vec![16, 3], 7, 14));
        let pairs = Layout { paired: 4, ..Layout::plain(&[8]) };
        assert_eq!((0..8).map(|r| pairs.their_row(r)).collect::<Vec<_>>(), [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
