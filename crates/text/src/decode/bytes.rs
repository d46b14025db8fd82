//! GPT-2's printable spelling of bytes, and the assembly of characters from bytes.

use std::sync::LazyLock;

/// The character that spells each byte: printable Latin-1 characters stand for themselves, the other 68 bytes are
/// spelled by the characters from U+0100 on.
pub(crate) static BYTE_CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        if printable(byte as u8) {
            return byte as u8 as char;
        }
        let c = char::from_u32(next).unwrap_or('\u{FFFD}');
        next += 1;
        c
    })
});

/// The byte that a character spells.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
        let mut bytes = [None; 0x144];
        for (byte, c) in BYTE_CHARS.iter().enumerate() {
            if let Some(slot) = bytes.get_mut(*c as usize) {
                *slot = Some(byte as u8);
            }
        }
        bytes
    });
    *BYTES.get(c as usize)?
}

/// Characters from a stream of bytes.
#[derive(Debug, Default, Clone)]
pub(super) struct Assembler {
    pending: Vec<u8>,
}

impl Assembler {
    /// Appends to `text` every character that is complete, and U+FFFD for what cannot be completed any more.
    pub fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(rest) = self.pending.get(from..)
            && !rest.is_empty()
        {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    from = self.pending.len();
                }
                Err(error) => {
                    let valid = &rest[..error.valid_up_to()];
                    text.push_str(&String::from_utf8_lossy(valid));
                    from += valid.len();
                    let Some(wrong) = error.error_len() else { break };
                    text.push('\u{FFFD}');
                    from += wrong;
                }
            }
        }
        self.pending.drain(..from);
    }

    /// Whether a character is unfinished.
    pub fn is_open(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The end of the stream: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_spelling() {
        for byte in 0..=255u8 {
            assert_eq!(byte_of(BYTE_CHARS[byte as usize]), Some(byte));
        }
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn assembling_equals_the_lossy_conversion() {
        let bytes = b"a\xF0\x9F\x98\x80\xF0\x9F\xE2\x82\xFF\x80z\xC3\xA9\xED\xA0\x80\xF0\x9F";
        for size in 1..=bytes.len() {
            let (mut assembler, mut text) = (Assembler::default(), String::new());
            for part in bytes.chunks(size) {
                assembler.push(part, &mut text);
            }
            assembler.finish(&mut text);
            assert_eq!(text, String::from_utf8_lossy(bytes));
        }
    }
}
