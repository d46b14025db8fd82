//! Padding whose window holds no key. A padded batch forbids such a row every key alike, so that its softmax is even over
//! all columns, padding included; a comparison with that batch needs the same.

use super::AttentionLayer;
use crate::batch::PackedSequence;
use std::ops::Range;

impl AttentionLayer {
    /// The rows of padding that see no key.
    fn blind_rows(&self, packed: &PackedSequence) -> Range<usize> {
        let seen = |row: &usize| !self.spec.mask.range(row - packed.rows.start, packed.keys.len()).is_empty();
        let padding = packed.keys.end..packed.rows.end;
        padding.start + padding.clone().take_while(seen).count()..padding.end
    }

    /// Writes the even mix of all values, `value` [N, K*Dv], into the rows of `mixed` [N, H*Dv] that see none.
    pub(super) fn mix_blind(&self, packed: &PackedSequence, value: &[f32], mixed: &mut [f32]) {
        let blind = self.blind_rows(packed);
        let width = self.spec.heads * self.spec.value_dim;
        for row in mixed[blind.start * width..blind.end * width].chunks_exact_mut(width) {
            for (place, out) in row.iter_mut().enumerate() {
                let sum: f32 = packed.rows.clone().map(|from| value[self.value_place(from, place)]).sum();
                *out = sum / packed.rows.len() as f32;
            }
        }
    }

    /// Adds what those rows of `dmixed` mean for the values.
    pub(super) fn blind_backward(&self, packed: &PackedSequence, dmixed: &[f32], dvalue: &mut [f32]) {
        let blind = self.blind_rows(packed);
        let width = self.spec.heads * self.spec.value_dim;
        for row in dmixed[blind.start * width..blind.end * width].chunks_exact(width) {
            for (place, d) in row.iter().enumerate() {
                for from in packed.rows.clone() {
                    dvalue[self.value_place(from, place)] += d / packed.rows.len() as f32;
                }
            }
        }
    }

    /// Where the value lies that row `row` gives to a place of the heads' mix.
    fn value_place(&self, row: usize, place: usize) -> usize {
        let (dim, group) = (self.spec.value_dim, self.spec.heads / self.spec.kv_heads);
        (row * self.spec.kv_heads + place / dim / group) * dim + place % dim
    }
}
