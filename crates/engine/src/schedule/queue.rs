//! Who of those that wait is next: pure bookkeeping.
//!
//! - The most urgent is taken first: the lowest priority.
//! - Of equally urgent ones those that were put back, in the order in which they came; then the clients take turns, whoever was
//!   served longest ago first, and a client's requests come in their order.
//! - Every [`AGED`]th place goes to whoever came first, whatever its priority, and from then on it is as urgent as the most
//!   urgent one that it was taken before. So nobody waits for ever: whoever has n requests before it is taken with the
//!   `AGED * (n + 1)`th place at the latest, and is not put back for those that pushed it aside before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One place in so many is given by age alone.
pub(super) const AGED: u64 = 8;

/// Clients whose last turn is remembered while they have nothing waiting.
const REMEMBERED: usize = 1024;

/// Where a request stands among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rank {
    /// The lower the sooner.
    pub priority: i64,
    pub client: Arc<str>,
    arrival: u64,
}

/// What waits, with its rank.
#[derive(Debug)]
pub(super) struct Queue<T> {
    lanes: BTreeMap<i64, Lane<T>>,
    len: usize,
    arrivals: u64,
    taken: u64,
    /// The place that each client was given last.
    served: BTreeMap<Arc<str>, u64>,
}

/// Those of one priority.
#[derive(Debug)]
struct Lane<T> {
    put_back: VecDeque<(Rank, T)>,
    clients: BTreeMap<Arc<str>, VecDeque<(Rank, T)>>,
}

/// Where the next one waits.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Next {
    priority: i64,
    /// None: among those that were put back.
    client: Option<Arc<str>>,
}

impl<T> Lane<T> {
    fn new() -> Lane<T> {
        Lane { put_back: VecDeque::new(), clients: BTreeMap::new() }
    }

    fn list(&self, client: Option<&Arc<str>>) -> Option<&VecDeque<(Rank, T)>> {
        client.map_or(Some(&self.put_back), |client| self.clients.get(client))
    }

    fn lists(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &VecDeque<(Rank, T)>)> {
        std::iter::once((None, &self.put_back)).chain(self.clients.iter().map(|(client, list)| (Some(client), list)))
    }

    /// Drops lists that are empty; whether nothing is left.
    fn tidy(&mut self) -> bool {
        self.clients.retain(|_, list| !list.is_empty());
        self.clients.is_empty() && self.put_back.is_empty()
    }
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        Queue { lanes: BTreeMap::new(), len: 0, arrivals: 0, taken: 0, served: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds what comes.
    pub fn push(&mut self, priority: i64, client: Arc<str>, item: T) {
        let rank = Rank { priority, client: Arc::clone(&client), arrival: self.arrivals };
        (self.arrivals, self.len) = (self.arrivals + 1, self.len + 1);
        let lane = self.lanes.entry(priority).or_insert_with(Lane::new);
        lane.clients.entry(client).or_default().push_back((rank, item));
    }

    /// Adds what was taken before.
    pub fn put_back(&mut self, rank: Rank, item: T) {
        self.len += 1;
        let list = &mut self.lanes.entry(rank.priority).or_insert_with(Lane::new).put_back;
        let place = list.partition_point(|(other, _)| other.arrival < rank.arrival);
        list.insert(place, (rank, item));
    }

    fn next(&self) -> Option<Next> {
        if self.taken % AGED == AGED - 1 { self.oldest() } else { self.most_urgent() }
    }

    fn most_urgent(&self) -> Option<Next> {
        let (&priority, lane) = self.lanes.first_key_value()?;
        if !lane.put_back.is_empty() {
            return Some(Next { priority, client: None });
        }
        let turn = |client: &Arc<str>, list: &VecDeque<(Rank, T)>| {
            (self.served.get(client).copied(), list.front().map(|(rank, _)| rank.arrival))
        };
        let client = lane.clients.iter().min_by_key(|(client, list)| turn(client, list))?.0;
        Some(Next { priority, client: Some(Arc::clone(client)) })
    }

    fn oldest(&self) -> Option<Next> {
        let lists = self.lanes.iter().flat_map(|(&priority, lane)| {
            lane.lists().map(move |(client, list)| (list.front(), Next { priority, client: client.cloned() }))
        });
        let first = lists.filter_map(|(front, next)| Some((front?.0.arrival, next)));
        first.min_by_key(|(arrival, _)| *arrival).map(|(_, next)| next)
    }

    /// The next one.
    pub fn peek(&self) -> Option<&T> {
        let Next { priority, client } = self.next()?;
        self.lanes.get(&priority)?.list(client.as_ref())?.front().map(|(_, item)| item)
    }

    /// Takes the next one.
    pub fn take(&mut self) -> Option<(Rank, T)> {
        let Next { priority, client } = self.next()?;
        let most_urgent = *self.lanes.first_key_value()?.0;
        let lane = self.lanes.get_mut(&priority)?;
        let list = match &client {
            None => Some(&mut lane.put_back),
            Some(client) => lane.clients.get_mut(client),
        };
        let (mut rank, item) = list?.pop_front()?;
        if lane.tidy() {
            self.lanes.remove(&priority);
        }
        rank.priority = most_urgent;
        self.served.insert(Arc::clone(&rank.client), self.taken);
        if self.served.len() > REMEMBERED {
            let oldest = self.served.iter().min_by_key(|(_, turn)| **turn).map(|(client, _)| Arc::clone(client));
            oldest.map(|client| self.served.remove(&client));
        }
        (self.taken, self.len) = (self.taken + 1, self.len - 1);
        Some((rank, item))
    }

    /// All that wait.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.values().flat_map(|lane| lane.lists().flat_map(|(_, list)| list.iter().map(|(_, item)| item)))
    }

    /// Forgets those that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.lanes.retain(|_, lane| {
            lane.put_back.retain(|(_, item)| keep(item));
            lane.clients.values_mut().for_each(|list| list.retain(|(_, item)| keep(item)));
            !lane.tidy()
        });
        self.len = self.iter().count();
    }

    /// Orders them as if they had come by this key; equal ones stay in their order.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        let lanes = std::mem::take(&mut self.lanes).into_values();
        let lists = lanes.flat_map(|lane| std::iter::once(lane.put_back).chain(lane.clients.into_values()));
        let mut all: Vec<(Rank, T)> = lists.flatten().collect();
        all.sort_by_key(|(rank, _)| rank.arrival);
        all.sort_by_key(|(_, item)| key(item));
        self.len = 0;
        all.into_iter().for_each(|(rank, item)| self.push(rank.priority, rank.client, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> Arc<str> {
        name.into()
    }

    fn drain<T>(queue: &mut Queue<T>) -> Vec<T> {
        std::iter::from_fn(|| queue.take()).map(|(_, item)| item).collect()
    }

    #[test]
    fn equal_ones_come_in_their_order() {
        let mut queue = Queue::new();
        (0..100).for_each(|index| queue.push(0, client("a"), index));
        assert_eq!((queue.len(), queue.peek()), (100, Some(&0)));
        assert_eq!(drain(&mut queue), (0..100).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.peek().is_none());
    }

    /// All but every eighth place go to the most urgent.
    #[test]
    fn the_urgent_come_first_and_the_old_not_last() {
        let mut queue = Queue::new();
        (0..20).for_each(|index| queue.push(5, client("a"), (5, index)));
        (0..40).for_each(|index| queue.push(-1, client("a"), (-1, index)));
        let taken = drain(&mut queue);
        for (place, (priority, index)) in taken.iter().enumerate() {
            let aged = place as u64 % AGED == AGED - 1;
            match place {
                0..=44 => assert_eq!(*priority, if aged { 5 } else { -1 }, "{place}"),
                _ => assert_eq!(*priority, 5),
            }
            assert!(!aged || *priority != 5 || place > 44 || *index == place as i32 / AGED as i32);
        }
    }

    #[test]
    fn clients_take_turns() {
        let mut queue = Queue::new();
        (0..30).for_each(|index| queue.push(0, client("many"), ("many", index)));
        (0..4).for_each(|index| queue.push(0, client("few"), ("few", index)));
        (0..2).for_each(|index| queue.push(0, client("new"), ("new", index)));
        let taken = drain(&mut queue);
        let places = |name: &str| -> Vec<usize> {
            taken.iter().enumerate().filter(|(_, item)| item.0 == name).map(|(place, _)| place).collect()
        };
        assert_eq!((places("few"), places("new")), (vec![1, 4, 8, 10], vec![2, 5]));
        assert!(taken.iter().filter(|item| item.0 == "many").map(|item| item.1).eq(0..30), "its own stay in order");
        // Whoever comes back is not the first again at once.
        queue.push(0, client("many"), ("many", 0));
        queue.push(0, client("few"), ("few", 0));
        assert_eq!(queue.take().map(|(_, item)| item.0), Some("few"));
    }

    #[test]
    fn whoever_was_put_back_comes_first_among_equals() {
        let mut queue = Queue::new();
        (0..6).for_each(|index| queue.push(0, client("a"), index));
        let (first, second) = (queue.take().expect("one"), queue.take().expect("one"));
        queue.push(-3, client("b"), 100);
        queue.put_back(second.0, second.1);
        queue.put_back(first.0, first.1);
        assert_eq!(drain(&mut queue), [100, 0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn forgetting_and_sorting() {
        let mut queue = Queue::new();
        (0..9).for_each(|index| queue.push(i64::from(index % 2), client("a"), index));
        queue.retain(|index| index % 3 > 0);
        assert_eq!((queue.len(), queue.iter().count()), (6, 6));
        queue.sort_by_key(|index| std::cmp::Reverse(*index));
        assert_eq!(drain(&mut queue), [8, 4, 2, 7, 5, 1]);
    }

    /// However many urgent ones keep coming, everybody is taken after a bounded number of places, and nobody twice.
    #[test]
    fn nobody_starves() {
        let mut random = crate::rng::Draws { seed: 3, choice: 0 };
        let mut draw = |below: u64| {
            random.seed = random.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random.seed >> 33) % below
        };
        let mut queue = Queue::new();
        // When each came, and how many waited then.
        let mut came: Vec<(u64, u64)> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for place in 0..4000 {
            // More come than are taken, up to a point; most are more urgent than the first.
            for _ in 0..if queue.len() < 60 { draw(4) } else { draw(2) } {
                let name = client(["a", "b", "c"][draw(3) as usize]);
                queue.push(draw(3) as i64 - if came.len() > 20 { 5 } else { 0 }, name, came.len());
                came.push((place, queue.len() as u64));
            }
            if let Some((rank, item)) = queue.take() {
                assert!(
                    place - came[item].0 <= AGED * (came[item].1 + 1),
                    "{item} waited from {:?} to {place}",
                    came[item]
                );
                if draw(10) == 0 {
                    came[item] = (place + 1, queue.len() as u64 + 1);
                    queue.put_back(rank, item);
                } else {
                    assert!(seen.insert(item), "{item} was taken twice");
                }
            }
        }
        drain(&mut queue).into_iter().for_each(|item| assert!(seen.insert(item)));
        assert_eq!(seen.len(), came.len());
    }
}
