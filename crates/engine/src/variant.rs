//! Variants of a model: the same description with other weights, most often the same matrices with adapters beside them.
//!
//! A request carries its [`Variant`] ([`Ready::of_variant`](crate::Ready::of_variant)), and so does its state. Whoever named
//! the variant may forget it while requests run on it: it is gone when the last of them is.

use crate::error::Error;
use attend_nn::{Model, Weights};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A model that takes the place of a source's own for some of its requests. Clones are handles of one variant.
#[derive(Debug, Clone)]
pub struct Variant(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    number: u64,
    model: Model,
}

impl Variant {
    /// A variant of whatever model has the same description. Each call makes a new one, even of the same weights.
    pub fn new(model: Model) -> Variant {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Variant(Arc::new(Inner { number: 1 + MADE.fetch_add(1, Ordering::Relaxed), model }))
    }

    /// A number that no other variant of this process has or will have; at least 1.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    pub fn model(&self) -> &Model {
        &self.0.model
    }

    /// # Errors
    /// A variant of a model of another description: states, rows and tokens would not fit.
    pub(crate) fn check(&self, base: &Model) -> Result<(), Error> {
        match self.model().spec() == base.spec() {
            true => Ok(()),
            false => Err(Error::Unsupported("the adapter was made ready for a model of another description".into())),
        }
    }

    /// Bytes of weights that `base` does not hold already.
    pub fn bytes_beside(&self, base: &Model) -> usize {
        bytes_beside(self.model().weights(), base.weights())
    }
}

fn bytes_beside(own: &Weights, base: &Weights) -> usize {
    let matrices = own.matrices.iter().filter(|(name, matrix)| {
        let known = base.matrices.get(*name);
        known.is_none_or(|known| !Arc::ptr_eq(known, matrix))
    });
    let vectors = own.vectors.iter().filter(|(name, vector)| {
        let known = base.vectors.get(*name);
        known.is_none_or(|known| !Arc::ptr_eq(known, vector))
    });
    let whole: usize = matrices.map(|(_, matrix)| matrix.bytes()).sum();
    let small: usize = vectors.map(|(_, vector)| size_of_val(&**vector)).sum();
    // Parts of a fused projection share one of the two matrices.
    let held = |weights: &Weights| -> BTreeMap<usize, usize> {
        let adapters = weights.low_rank.values().flatten().flat_map(|adapter| [&adapter.a, &adapter.b]);
        adapters.map(|matrix| (Arc::as_ptr(matrix) as usize, matrix.bytes())).collect()
    };
    let known = held(base);
    let adapters = held(own).into_iter().filter(|(place, _)| !known.contains_key(place));
    whole + small + adapters.map(|(_, bytes)| bytes).sum::<usize>()
}
