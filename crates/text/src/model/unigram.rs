//! The unigram language model of SentencePiece (Kudo 2018): the segmentation with the highest sum of scores, found by
//! dynamic programming over a trie of the pieces.

use crate::error::{Error, Fault};
use crate::vocabulary::Vocabulary;
use ahash::AHashMap;
use tokenizers::Token;

/// How much worse than the worst piece an unknown character is.
const UNK_PENALTY: f64 = 10.0;
/// Longer pieces are never found in text. It bounds the work per byte; trained models stay below 64.
const MAX_PIECE_BYTES: usize = 512;

/// The model.
#[derive(Debug)]
pub(crate) struct Unigram {
    vocabulary: Vocabulary,
    scores: Vec<f64>,
    /// (node, byte) -> node; node 0 is the root.
    edges: AHashMap<(u32, u8), u32>,
    /// The id of the piece that ends at a node.
    ends: Vec<Option<u32>>,
    unk: Option<u32>,
    unk_score: f64,
    /// Unknown text becomes one `<0xNN>` token a byte.
    bytes: Option<Box<[Option<u32>; 256]>>,
    /// Neighbouring user-defined pieces and the like are matched by others; here all matching is by score.
    fuse_unk: bool,
}

/// Best way to reach a byte position.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    start: usize,
    id: Option<u32>,
}

impl Unigram {
    /// `pieces` are tokens with scores, by id. `usable` tells which ids may be matched in text.
    pub fn new(
        pieces: &[(Box<str>, f64)],
        unk: Option<usize>,
        byte_fallback: bool,
        usable: impl Fn(usize) -> bool,
    ) -> Result<Unigram, Fault> {
        if unk.is_some_and(|unk| unk >= pieces.len()) {
            return Err(Fault::new("model.unk_id", "is larger than the vocabulary"));
        }
        if let Some(id) = pieces.iter().position(|(_, score)| !score.is_finite()) {
            return Err(Fault::new("model.vocab", format!("the score of id {id} is not a finite number")));
        }
        let mut model = Unigram {
            vocabulary: Vocabulary::from_list(pieces.iter().map(|(piece, _)| piece))?,
            scores: pieces.iter().map(|(_, score)| *score).collect(),
            edges: AHashMap::new(),
            ends: vec![None],
            unk: unk.map(|unk| unk as u32),
            unk_score: pieces.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min) - UNK_PENALTY,
            bytes: None,
            fuse_unk: true,
        };
        for (id, (piece, _)) in pieces.iter().enumerate() {
            if usable(id) && !piece.is_empty() && piece.len() <= MAX_PIECE_BYTES {
                model.add(piece, id as u32);
            }
        }
        if byte_fallback {
            model.bytes = Some(Box::new(model.vocabulary.byte_ids()));
        }
        Ok(model)
    }

    fn add(&mut self, piece: &str, id: u32) {
        let mut node = 0;
        for byte in piece.bytes() {
            let fresh = self.ends.len() as u32;
            node = *self.edges.entry((node, byte)).or_insert(fresh);
            if node == fresh {
                self.ends.push(None);
            }
        }
        self.ends[node as usize] = Some(id);
    }

    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub fn scores(&self) -> Vec<f32> {
        self.scores.iter().map(|&score| score as f32).collect()
    }

    /// Whether unknown text becomes bytes.
    pub fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    pub fn tokenize(&self, text: &str) -> Result<Vec<Token>, Error> {
        let mut tokens = Vec::new();
        for (start, end, id) in self.segments(text)? {
            let piece = &text[start..end];
            if let Some(id) = id {
                tokens.push(Token::new(id, piece.to_string(), (start, end)));
                continue;
            }
            if let Some(bytes) = &self.bytes
                && piece.bytes().all(|byte| bytes[byte as usize].is_some())
            {
                let ids = piece.bytes().filter_map(|byte| bytes[byte as usize]);
                tokens.extend(
                    ids.map(|id| {
                        Token::new(id, self.vocabulary.token(id).unwrap_or_default().to_string(), (start, end))
                    }),
                );
                continue;
            }
            let Some(unk) = self.unk else {
                return Err(Error::Encode { problem: "an unknown character, and the model has no unknown id".into() });
            };
            tokens.push(Token::new(unk, piece.to_string(), (start, end)));
        }
        Ok(tokens)
    }

    /// The best path as (start, end, id), with runs of unknown characters joined (`None`).
    fn segments(&self, text: &str) -> Result<Vec<(usize, usize, Option<u32>)>, Error> {
        let bytes = text.as_bytes();
        let mut best = vec![Best { score: 0.0, start: usize::MAX, id: None }; bytes.len() + 1];
        for (start, c) in text.char_indices() {
            let so_far = best[start].score;
            let single = start + c.len_utf8();
            let mut has_single = false;
            let mut node = 0;
            for (end, byte) in (start + 1..).zip(&bytes[start..]) {
                let Some(&next) = self.edges.get(&(node, *byte)) else { break };
                node = next;
                let Some(id) = self.ends[node as usize] else { continue };
                let score = so_far + self.scores[id as usize];
                let target = &mut best[end];
                if target.start == usize::MAX || score > target.score {
                    *target = Best { score, start, id: Some(id) };
                }
                has_single |= end == single;
            }
            if !has_single {
                let score = so_far + self.unk_score;
                let target = &mut best[single];
                if target.start == usize::MAX || score > target.score {
                    *target = Best { score, start, id: None };
                }
            }
        }
        let mut path: Vec<(usize, usize, Option<u32>)> = Vec::new();
        let mut end = bytes.len();
        while end > 0 {
            let Best { start, id, .. } = best[end];
            // A piece that is the unknown token itself, spelled in the text, counts as unknown text.
            let id = id.filter(|id| Some(*id) != self.unk);
            match path.last_mut() {
                Some((first, _, None)) if id.is_none() && self.fuse_unk => *first = start,
                _ => path.push((start, end, id)),
            }
            end = start;
        }
        path.reverse();
        Ok(path)
    }
}
