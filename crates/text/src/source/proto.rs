//! The model file of SentencePiece: a protocol-buffers message. Only the fields that tokenizing needs are read, and
//! every length is checked against the bytes that are there.

use crate::charsmap::Charsmap;
use crate::error::Fault;
use crate::vocabulary::{MAX_TOKEN_BYTES, MAX_TOKENS};

/// What a piece is for (`SentencePiece.Type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub text: Box<str>,
    pub score: f32,
    pub kind: PieceKind,
}

/// `ModelProto`, as far as it is used.
#[derive(Debug)]
pub(super) struct SpModel {
    pub pieces: Vec<Piece>,
    /// Byte-pair encoding; otherwise the unigram model.
    pub bpe: bool,
    pub byte_fallback: bool,
    pub whitespace_as_suffix: bool,
    pub charsmap: Charsmap,
    pub add_dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
    pub escape_whitespaces: bool,
}

/// A field's value on the wire.
enum Wire<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Four([u8; 4]),
    Eight,
}

/// The fields of one message.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next field, `None` at the end, an error where the bytes are no field.
    fn next(&mut self) -> Result<Option<(u64, Wire<'b>)>, Fault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let field = self.field();
        field.map(Some).ok_or_else(|| Fault::new("the message", "is cut short or is no SentencePiece model"))
    }

    fn field(&mut self) -> Option<(u64, Wire<'b>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Eight
            }
            2 => {
                let len = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(len)?)
            }
            5 => Wire::Four(*self.take(4)?.first_chunk()?),
            _ => return None,
        };
        Some((tag >> 3, wire)).filter(|(number, _)| *number > 0)
    }
}

impl SpModel {
    pub fn parse(bytes: &[u8]) -> Result<SpModel, Fault> {
        let mut model = SpModel {
            pieces: Vec::new(),
            bpe: false,
            byte_fallback: false,
            whitespace_as_suffix: false,
            charsmap: Charsmap::default(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        let mut fields = Fields(bytes);
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (1, Wire::Bytes(piece)) => {
                    if model.pieces.len() == MAX_TOKENS {
                        return Err(Fault::new("pieces", format!("more than {MAX_TOKENS}")));
                    }
                    let piece = parse_piece(piece, model.pieces.len())?;
                    model.pieces.push(piece);
                }
                (2, Wire::Bytes(spec)) => model.trainer(spec)?,
                (3, Wire::Bytes(spec)) => model.normalizer(spec)?,
                _ => {}
            }
        }
        if model.pieces.is_empty() {
            return Err(Fault::new("pieces", "the model has none; is this a SentencePiece file?"));
        }
        Ok(model)
    }

    fn trainer(&mut self, spec: &[u8]) -> Result<(), Fault> {
        let mut fields = Fields(spec);
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (3, Wire::Number(1)) => self.bpe = false,
                (3, Wire::Number(2)) => self.bpe = true,
                (3, Wire::Number(other)) => {
                    let fault = Fault::unknown("trainer_spec.model_type", "kind of model", &other.to_string(), "");
                    return Err(fault);
                }
                (24, Wire::Number(flag)) => self.whitespace_as_suffix = flag != 0,
                (35, Wire::Number(flag)) => self.byte_fallback = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, spec: &[u8]) -> Result<(), Fault> {
        let mut fields = Fields(spec);
        while let Some((number, wire)) = fields.next()? {
            match (number, wire) {
                (2, Wire::Bytes(map)) => self.charsmap = Charsmap::parse(map)?,
                (3, Wire::Number(flag)) => self.add_dummy_prefix = flag != 0,
                (4, Wire::Number(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, Wire::Number(flag)) => self.escape_whitespaces = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn parse_piece(bytes: &[u8], id: usize) -> Result<Piece, Fault> {
    let fault = |problem: &str| Fault::new(format!("pieces[{id}]"), problem);
    let mut piece = Piece { text: "".into(), score: 0.0, kind: PieceKind::Normal };
    let mut fields = Fields(bytes);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(text)) if text.len() <= MAX_TOKEN_BYTES => {
                piece.text = std::str::from_utf8(text).map_err(|_| fault("is not UTF-8"))?.into();
            }
            (1, Wire::Bytes(_)) => return Err(fault("is too long")),
            (2, Wire::Four(score)) => piece.score = f32::from_le_bytes(score),
            (3, Wire::Number(kind)) => {
                piece.kind = match kind {
                    1 => PieceKind::Normal,
                    2 => PieceKind::Unknown,
                    3 => PieceKind::Control,
                    4 => PieceKind::UserDefined,
                    5 => PieceKind::Unused,
                    6 => PieceKind::Byte,
                    _ => return Err(fault("has an unknown type")),
                }
            }
            _ => {}
        }
    }
    if !piece.score.is_finite() {
        return Err(fault("has a score that is not a finite number"));
    }
    Ok(piece)
}
