//! NumPy's file format 1.0: a header of fixed length, then the rows. The number of rows is known last, so the header is
//! written again when they are all there.

use anyhow::{Result, bail};
use attend_format::AtomicFile;

/// Bytes of the header with its magic: a multiple of 64, and long enough for any shape.
const HEADER: usize = 128;

/// Rows of equal width in 32-bit floats.
pub struct Npy {
    file: AtomicFile,
    rows: usize,
    width: Option<usize>,
}

impl Npy {
    pub fn new(mut file: AtomicFile) -> Result<Npy> {
        file.write(&[0; HEADER])?;
        Ok(Npy { file, rows: 0, width: None })
    }

    pub fn row(&mut self, row: &[f32]) -> Result<()> {
        let width = *self.width.get_or_insert(row.len());
        if width != row.len() {
            bail!("rows of {width} and of {} numbers do not make one array; use --format jsonl", row.len());
        }
        self.rows += 1;
        let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(self.file.write(&bytes)?)
    }

    pub fn finish(mut self) -> Result<()> {
        self.file.write_at(0, &header(self.rows, self.width.unwrap_or(0)))?;
        Ok(self.file.commit()?)
    }
}

fn header(rows: usize, width: usize) -> [u8; HEADER] {
    let words = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    let mut header = [b' '; HEADER];
    let length = (HEADER - 10) as u16;
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &length.to_le_bytes(), words.as_bytes()].concat();
    header.iter_mut().zip(start).for_each(|(to, from)| *to = from);
    if let Some(last) = header.last_mut() {
        *last = b'\n';
    }
    header
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_header_says_the_shape_and_ends_on_a_boundary() {
        let header = super::header(usize::MAX, usize::MAX);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(header[127], b'\n');
        let text = std::str::from_utf8(&header[10..]).unwrap();
        assert!(text.contains("'shape': (18446744073709551615, 18446744073709551615), }"), "{text}");
    }
}
