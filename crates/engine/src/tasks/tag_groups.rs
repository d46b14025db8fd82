//! Putting tokens together: pieces to words, words to entities.

use super::argmax;
use super::tag::{Aggregation, Entity};

/// A token with its probabilities.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// As the vocabulary spells it; the text itself for an unknown one.
    pub word: String,
    pub scores: Vec<f32>,
    pub start: usize,
    pub end: usize,
    pub index: usize,
    /// It belongs to the word of the token before.
    pub continues: bool,
}

/// The name of a label.
pub(super) type Name<'n> = dyn Fn(usize) -> String + 'n;
/// Tokens put together to a text.
pub(super) type Join<'j> = dyn Fn(&[&str]) -> String + 'j;

impl Piece {
    fn best(&self) -> (usize, f32) {
        let label = argmax(&self.scores);
        (label, self.scores.get(label).copied().unwrap_or(0.0))
    }

    /// The token by itself.
    pub fn alone(&self, name: &Name<'_>) -> Entity {
        let (label, score) = self.best();
        let Piece { word, start, end, index, .. } = self;
        Entity { entity: name(label), score, index: Some(*index), word: word.clone(), start: *start, end: *end }
    }
}

/// Words with the label that the aggregation gives them.
pub(super) fn join_words(pieces: &[Piece], aggregation: Aggregation, name: &Name<'_>, join: &Join<'_>) -> Vec<Entity> {
    let words = pieces.chunk_by(|_, next| next.continues);
    words.filter_map(|word| word_entity(word, aggregation, name, join)).collect()
}

fn word_entity(pieces: &[Piece], aggregation: Aggregation, name: &Name<'_>, join: &Join<'_>) -> Option<Entity> {
    let (first, last) = (pieces.first()?, pieces.last()?);
    let (label, score) = match aggregation {
        Aggregation::None | Aggregation::Simple | Aggregation::First => first.best(),
        Aggregation::Max => {
            let best = pieces.iter().map(Piece::best);
            best.reduce(|best, other| if other.1 > best.1 { other } else { best })?
        }
        Aggregation::Average => {
            let mean = |label: usize| {
                pieces.iter().filter_map(|piece| piece.scores.get(label)).sum::<f32>() / pieces.len() as f32
            };
            let means: Vec<f32> = (0..first.scores.len()).map(mean).collect();
            let label = argmax(&means);
            (label, means.get(label).copied()?)
        }
    };
    let word = join(&pieces.iter().map(|piece| piece.word.as_str()).collect::<Vec<_>>());
    Some(Entity { entity: name(label), score, index: None, word, start: first.start, end: last.end })
}

/// Neighbours of one tag become one entity, whose score is their mean. A label may begin with `B-` (the beginning of an
/// entity, which joins nothing before it) or `I-`.
pub(super) fn merge(entities: &[Entity], join: &Join<'_>) -> Vec<Entity> {
    let groups =
        entities.chunk_by(|last, next| tag(&last.entity) == tag(&next.entity) && !next.entity.starts_with("B-"));
    let whole = |group: &[Entity]| {
        let (first, last) = (group.first()?, group.last()?);
        let score = group.iter().map(|entity| f64::from(entity.score)).sum::<f64>() / group.len() as f64;
        Some(Entity {
            // What stands behind the first hyphen, whatever stands before it.
            entity: first.entity.split_once('-').map_or(first.entity.as_str(), |(_, tag)| tag).to_owned(),
            score: score as f32,
            index: None,
            word: join(&group.iter().map(|entity| entity.word.as_str()).collect::<Vec<_>>()),
            start: first.start,
            end: last.end,
        })
    };
    groups.filter_map(whole).collect()
}

fn tag(label: &str) -> &str {
    label.strip_prefix("B-").or_else(|| label.strip_prefix("I-")).unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["O", "B-PER", "I-PER"];

    fn piece(index: usize, word: &str, continues: bool, scores: [f32; 3]) -> Piece {
        Piece { word: word.into(), scores: scores.to_vec(), start: 2 * index, end: 2 * index + 1, index, continues }
    }

    fn pieces() -> Vec<Piece> {
        vec![
            piece(1, "mi", false, [0.1, 0.8, 0.1]),
            piece(2, "##cro", true, [0.9, 0.05, 0.05]),
            piece(3, "soft", false, [0.2, 0.1, 0.7]),
            piece(4, "bob", false, [0.3, 0.6, 0.1]),
        ]
    }

    fn shown(aggregation: Aggregation) -> Vec<(String, String, f32)> {
        let name = |label: usize| NAMES[label].to_owned();
        let join = |words: &[&str]| words.concat().replace("##", "");
        let entities = match aggregation {
            Aggregation::None => pieces().iter().map(|piece| piece.alone(&name)).collect(),
            Aggregation::Simple => merge(&pieces().iter().map(|p| p.alone(&name)).collect::<Vec<_>>(), &join),
            other => merge(&join_words(&pieces(), other, &name, &join), &join),
        };
        entities.into_iter().map(|e: Entity| (e.entity, e.word, (e.score * 1e4).round() / 1e4)).collect()
    }

    fn entity(entity: &str, word: &str, score: f32) -> (String, String, f32) {
        (entity.into(), word.into(), score)
    }

    #[test]
    fn each_aggregation() {
        let all = [("B-PER", "mi", 0.8), ("O", "##cro", 0.9), ("I-PER", "soft", 0.7), ("B-PER", "bob", 0.6)];
        assert_eq!(shown(Aggregation::None), all.map(|(e, w, s)| entity(e, w, s)));
        let simple = [("PER", "mi", 0.8), ("O", "cro", 0.9), ("PER", "soft", 0.7), ("PER", "bob", 0.6)];
        assert_eq!(shown(Aggregation::Simple), simple.map(|(e, w, s)| entity(e, w, s)));
        let first = [("PER", "microsoft", 0.75), ("PER", "bob", 0.6)];
        assert_eq!(shown(Aggregation::First), first.map(|(e, w, s)| entity(e, w, s)));
        let average = [("O", "micro", 0.5), ("PER", "soft", 0.7), ("PER", "bob", 0.6)];
        assert_eq!(shown(Aggregation::Average), average.map(|(e, w, s)| entity(e, w, s)));
        let max = [("O", "micro", 0.9), ("PER", "soft", 0.7), ("PER", "bob", 0.6)];
        assert_eq!(shown(Aggregation::Max), max.map(|(e, w, s)| entity(e, w, s)));
    }
}
