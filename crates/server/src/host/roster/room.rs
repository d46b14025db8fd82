//! Who has to go so that another can come: pure functions of what is known of the models.

use super::{Keep, Policy};
use crate::host::Model;
use std::sync::Arc;
use std::time::Instant;

/// A model's place, taken or not.
#[derive(Debug)]
pub struct Chair {
    pub model: Option<Arc<Model>>,
    /// Requests that hold it.
    pub users: usize,
    /// What else holds it.
    pub pins: usize,
    /// It takes no new requests: another wants its room.
    pub leaving: bool,
    pub keep: Keep,
    /// When it was last asked for, or an answer of its ended.
    pub used: Instant,
    /// What it takes, as far as that is known.
    pub bytes: Option<u64>,
    /// Why it could not be loaded, and when that was.
    pub failed: Option<(Instant, String)>,
}

impl Chair {
    pub fn new(bytes: Option<u64>, keep: Keep) -> Chair {
        Chair { model: None, users: 0, pins: 0, leaving: false, keep, used: Instant::now(), bytes, failed: None }
    }

    pub fn is_used(&self) -> bool {
        self.users + self.pins > 0
    }

    fn is_loading(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.state().is_none())
    }

    /// When its time is over; None: it has requests, or stays.
    pub fn expires(&self) -> Option<Instant> {
        match self.keep {
            Keep::For(time) if self.model.is_some() && !self.is_used() && !self.is_loading() => {
                self.used.checked_add(time)
            }
            Keep::For(_) | Keep::Ever => None,
        }
    }
}

/// Whether a model may come.
#[derive(Debug)]
pub enum Room {
    There,
    /// When this one has gone.
    After(usize),
    /// When this one is there: what it takes is not known before.
    Loading(Arc<Model>),
}

/// Whether there is room for a model that is not in memory.
///
/// # Errors
/// A model for which there will be none.
pub fn verdict(chairs: &[Chair], seat: usize, policy: &Policy) -> Result<Room, String> {
    let own = chairs.get(seat).and_then(|chair| chair.bytes).unwrap_or(0);
    if let Some(most) = policy.most_bytes.filter(|&most| own > most) {
        return Err(format!("the model needs {own} bytes, and all models together may take {most} (--model-memory)"));
    }
    if !is_over(chairs, Some(seat), policy) {
        return Ok(Room::There);
    }
    if let Some(model) = chairs.iter().find(|chair| chair.is_loading()).and_then(|chair| chair.model.clone()) {
        return Ok(Room::Loading(model));
    }
    let others =
        chairs.iter().enumerate().filter(|(at, chair)| *at != seat && chair.model.is_some() && chair.pins == 0);
    let first = others.min_by_key(|(_, chair)| (chair.users > 0, chair.used));
    let first =
        first.map(|(at, _)| at).ok_or("the models in memory have adapters that requests have loaded, and stay")?;
    Ok(Room::After(first))
}

/// An idle model to put out because this one, which is in memory, takes more than was thought.
pub fn over(chairs: &[Chair], seat: usize, policy: &Policy) -> Option<usize> {
    if !is_over(chairs, None, policy) {
        return None;
    }
    let idle =
        |(at, chair): &(usize, &Chair)| *at != seat && chair.model.is_some() && !chair.is_used() && !chair.is_loading();
    chairs.iter().enumerate().filter(idle).min_by_key(|(_, chair)| chair.used).map(|(at, _)| at)
}

/// The models in memory, and this one with them, are too many or too large.
fn is_over(chairs: &[Chair], coming: Option<usize>, policy: &Policy) -> bool {
    let there = || chairs.iter().enumerate().filter(|(at, chair)| chair.model.is_some() || coming == Some(*at));
    let bytes = there().fold(0u64, |sum, (_, chair)| sum.saturating_add(chair.bytes.unwrap_or(0)));
    policy.most_models.is_some_and(|most| there().count() > most) || policy.most_bytes.is_some_and(|most| bytes > most)
}

/// The models whose time is over, and when that of the next one will be.
pub fn due(chairs: &[Chair], now: Instant) -> (Vec<usize>, Option<Instant>) {
    let times = || chairs.iter().enumerate().filter_map(|(at, chair)| Some((at, chair.expires()?)));
    let over = times().filter(|(_, time)| *time <= now).map(|(at, _)| at).collect();
    (over, times().map(|(_, time)| time).filter(|time| *time > now).min())
}
