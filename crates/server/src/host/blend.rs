//! Adapters as strong as requests want them, alone or several at once: each combination is a variant of the model, made when
//! it is first asked for and kept as long as others are not asked for more. All share the matrices of the adapters.

use super::adapter::{Adapter, Held, Scaled};
use crate::failure::Failure;
use attend_engine::Variant;
use attend_nn::Model;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Combinations that are kept.
const KEPT: usize = 64;

/// The variant's number and the scale's bits of every adapter, in their order.
type Recipe = Vec<(u64, u64)>;

/// The combinations of a model's adapters, the last asked for at the end.
#[derive(Debug, Default)]
pub struct Blends(Mutex<Vec<(Recipe, Variant)>>);

/// An adapter that a combination holds.
struct Share<'a> {
    adapter: &'a Adapter,
    held: &'a Held,
    scale: f64,
}

impl Blends {
    /// What computes a request with these adapters in place of `base`; None: the model itself. `forget` is told of a
    /// combination that is kept no longer.
    ///
    /// # Errors
    /// An adapter that is not there, and adapters that cannot be combined.
    pub fn variant(
        &self,
        base: &Model,
        wanted: &[Scaled],
        forget: impl FnOnce(u64),
    ) -> Result<Option<Variant>, Failure> {
        let shares = shares(wanted)?;
        match shares.as_slice() {
            [] => return Ok(None),
            [Share { held, scale, .. }] if *scale == held.strength => return Ok(Some(held.variant.clone())),
            _ => (),
        }
        let recipe: Recipe = shares.iter().map(|own| (own.held.variant.number(), own.scale.to_bits())).collect();
        if let Some(known) = self.known(&recipe) {
            return Ok(Some(known));
        }
        // Nobody waits for it who wants another; who wants the same makes it too, and one of the two is kept.
        let made = Variant::new(blend(base, &shares)?);
        if let Some(known) = self.known(&recipe) {
            return Ok(Some(known));
        }
        let mut kept = self.kept();
        // Whoever takes an adapter away marks it first and looks here then: one of the two sees the other.
        if !shares.iter().any(|own| own.adapter.has_left()) {
            kept.push((recipe, made.clone()));
        }
        if kept.len() > KEPT {
            forget(kept.remove(0).1.number());
        }
        Ok(Some(made))
    }

    /// Keeps no combination any longer that has the adapter of this variant in it; the numbers of those that were.
    pub fn forget(&self, number: u64) -> Vec<u64> {
        let holds = |recipe: &Recipe| recipe.iter().any(|(own, _)| *own == number);
        self.kept().extract_if(.., |(recipe, _)| holds(recipe)).map(|(_, gone)| gone.number()).collect()
    }

    /// The combination, if it is kept, which makes it the one that was asked for last.
    fn known(&self, recipe: &Recipe) -> Option<Variant> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(known, _)| known == recipe)?;
        let found = kept.remove(at);
        let variant = found.1.clone();
        kept.push(found);
        Some(variant)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Recipe, Variant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The adapters that count for something.
fn shares(wanted: &[Scaled]) -> Result<Vec<Share<'_>>, Failure> {
    let mut shares = Vec::new();
    for Scaled { adapter, scale } in wanted.iter().filter(|wanted| wanted.scale != 0.0) {
        let gone = || Failure::field("lora", "lora: an adapter of this model is still being loaded");
        shares.push(Share { adapter, held: adapter.held().ok_or_else(gone)?, scale: *scale });
    }
    if shares.iter().filter(|own| !own.held.source.replaced.is_empty()).count() > 1 {
        let message =
            "lora: two of these adapters bring whole weights of their own, and only one such can count at a time";
        return Err(Failure::field("lora", message));
    }
    Ok(shares)
}

/// The model with all of them, one after the other.
fn blend(base: &Model, shares: &[Share<'_>]) -> Result<Model, Failure> {
    let attach = |model: Option<Model>, own: &Share<'_>| {
        let attached = own.held.source.attach(model.as_ref().unwrap_or(base), own.scale);
        attached.map(Some).map_err(|error| Failure::field("lora", error.to_string()))
    };
    let model = shares.iter().try_fold(None, attach)?;
    model.ok_or_else(|| Failure::fault("no adapter was to be combined"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::adapter::Held;
    use attend_model::{LoadOptions, Loaded, load};
    use attend_testkit::files::{adapter, model, safetensors, write_all};
    use std::sync::Arc;

    fn loaded(folder: &std::path::Path) -> Loaded {
        let config = serde_json::Value::Object(model::config()).to_string().into_bytes();
        let weights = safetensors::file(&model::tensors(11));
        write_all(folder, &vec![("config.json".into(), config), ("model.safetensors".into(), weights)])
            .expect("written");
        load(folder, &LoadOptions::default(), &mut |_, _| ()).expect("a model")
    }

    fn held(folder: &std::path::Path, base: &Loaded, seed: u64) -> Arc<Adapter> {
        write_all(folder, &adapter::folder(2, seed)).expect("written");
        let source = attend_model::Adapter::open(folder, &base.source).expect("an adapter");
        let variant = Variant::new(source.attach(&base.model, 1.0).expect("fits"));
        let held = Held { variant, source: Arc::new(source), strength: 1.0, bytes: 0, notices: Vec::new() };
        let own = Adapter::new("tiny", Default::default());
        own.set(held);
        Arc::new(own)
    }

    /// Combinations share the adapters' matrices, and go when one of their adapters does.
    #[test]
    fn combinations_are_kept_as_long_as_their_adapters() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = loaded(folder.path());
        let adapters = [1, 2].map(|seed| held(&folder.path().join(seed.to_string()), &base, seed));
        let wanted = |scales: [f64; 2]| -> Vec<Scaled> {
            let scaled = |(adapter, scale): (&Arc<Adapter>, f64)| Scaled { adapter: Arc::clone(adapter), scale };
            adapters.iter().zip(scales).map(scaled).collect()
        };
        let blends = Blends::default();
        let variant = |scales: [f64; 2], gone: &mut Vec<u64>| {
            let made = blends.variant(&base.model, &wanted(scales), |number| gone.push(number)).expect("fits");
            made.map(|made| (made.number(), made.bytes_beside(&base.model)))
        };
        let mut gone = Vec::new();
        let own = |index: usize| adapters[index].held().expect("held").variant.clone();
        assert_eq!(variant([0.0, -0.0], &mut gone), None);
        assert_eq!(variant([0.0, 1.0], &mut gone).map(|made| made.0), Some(own(1).number()), "it is there already");
        let both = variant([0.5, 1.0], &mut gone).expect("made");
        assert_eq!(both.1, own(0).bytes_beside(&base.model) + own(1).bytes_beside(&base.model), "nothing is copied");
        let first = variant([0.25, 0.0], &mut gone).expect("made");
        assert_eq!((variant([0.5, 1.0], &mut gone), variant([0.25, 0.0], &mut gone)), (Some(both), Some(first)));
        // One that many others came behind is made anew, and whoever kept something for it is told.
        for scale in 1..=KEPT {
            variant([2.0 + scale as f64, 1.0], &mut gone).expect("made");
        }
        assert_eq!((&gone, blends.kept().len()), (&vec![both.0, first.0], KEPT));
        assert_ne!(variant([0.5, 1.0], &mut gone), Some(both));
        variant([0.25, 0.0], &mut gone).expect("made");
        adapters[1].leave();
        let forgotten = blends.forget(own(1).number());
        assert_eq!((forgotten.len(), blends.kept().len()), (KEPT - 1, 1), "what has only the other stays");
        variant([0.5, 1.0], &mut gone).expect("a request that came before");
        assert_eq!(blends.kept().len(), 1, "nothing is kept of an adapter that has gone");
    }
}
