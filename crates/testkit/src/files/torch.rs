//! PyTorch files: pickles, stored zip archives, and the older sequence of pickles.

/// A pickle in the making.
#[derive(Debug, Clone, Default)]
pub struct Pickle(pub Vec<u8>);

impl Pickle {
    pub fn new() -> Pickle {
        Pickle(b"\x80\x02".to_vec())
    }

    pub fn op(mut self, bytes: &[u8]) -> Pickle {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn global(self, module: &str, name: &str) -> Pickle {
        self.op(b"c").op(module.as_bytes()).op(b"\n").op(name.as_bytes()).op(b"\n")
    }

    pub fn text(self, text: &str) -> Pickle {
        self.op(b"X").op(&(text.len() as u32).to_le_bytes()).op(text.as_bytes())
    }

    pub fn int(self, number: i64) -> Pickle {
        match u8::try_from(number) {
            Ok(byte) => self.op(&[b'K', byte]),
            Err(_) => self.op(&[0x8a, 8]).op(&number.to_le_bytes()),
        }
    }

    pub fn ints(self, numbers: &[i64]) -> Pickle {
        numbers.iter().fold(self.op(b"("), |pickle, &number| pickle.int(number)).op(b"t")
    }

    /// A reference to a storage. `elements` is what the file says.
    pub fn storage(self, class: &str, key: &str, elements: i64) -> Pickle {
        self.op(b"(").text("storage").global("torch", class).text(key).text("cpu").int(elements).op(b"tQ")
    }

    /// A tensor over a storage of its own.
    pub fn tensor(self, view: &View) -> Pickle {
        self.global("torch._utils", "_rebuild_tensor_v2")
            .op(b"(")
            .storage(view.class, view.key, view.elements)
            .int(view.offset)
            .ints(view.shape)
            .ints(view.strides)
            .op(b"\x89")
            .global("collections", "OrderedDict")
            .op(b")RtR")
    }

    /// A dict of tensors, complete.
    pub fn state(views: &[(&str, View)]) -> Vec<u8> {
        let start = Pickle::new().global("collections", "OrderedDict").op(b")R(");
        let end = views.iter().fold(start, |pickle, (name, view)| pickle.text(name).tensor(view));
        end.op(b"u.").0
    }
}

/// A tensor's view of a storage.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub class: &'a str,
    pub key: &'a str,
    pub elements: i64,
    pub offset: i64,
    pub shape: &'a [i64],
    pub strides: &'a [i64],
}

impl<'a> View<'a> {
    /// A whole storage of f32 as a vector of 4.
    pub fn four(key: &'a str) -> View<'a> {
        View { class: "FloatStorage", key, elements: 4, offset: 0, shape: &[4], strides: &[1] }
    }
}

/// An entry of an archive; the header's fields may be lies.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub data: Vec<u8>,
    pub method: u16,
    pub flags: u16,
    pub length: Option<u32>,
}

impl Entry {
    pub fn new(name: &str, data: &[u8]) -> Entry {
        Entry { name: name.into(), data: data.into(), method: 0, flags: 0, length: None }
    }
}

/// A zip archive of these entries.
pub fn archive(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let at = out.len() as u32;
        let size = entry.data.len() as u32;
        let mut common = Vec::new();
        common.extend(entry.flags.to_le_bytes());
        common.extend(entry.method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(checksum(&entry.data).to_le_bytes());
        common.extend(size.to_le_bytes());
        common.extend(entry.length.unwrap_or(size).to_le_bytes());
        common.extend((entry.name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        out.extend(b"PK\x03\x04\x14\x00");
        out.extend(&common);
        out.extend(entry.name.as_bytes());
        out.extend(&entry.data);
        directory.extend(b"PK\x01\x02\x14\x00\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let (start, size) = (out.len() as u32, directory.len() as u32);
    out.extend(directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}

/// A file of the current kind: a pickle and storages by key.
pub fn zip_file(pickle: &[u8], storages: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut entries = vec![Entry::new("model/data.pkl", pickle), Entry::new("model/byteorder", b"little")];
    entries.extend(storages.iter().map(|(key, data)| Entry::new(&format!("model/data/{key}"), data)));
    entries.push(Entry::new("model/version", b"3\n"));
    archive(&entries)
}

/// A file of the kind before; each storage with its count of elements. The pickle's storage references have five
/// fields, which its readers accept as well as six.
pub fn legacy_file(pickle: &[u8], little: bool, storages: &[(&str, u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.".to_vec();
    out.extend(Pickle::new().op(b"M\xe9\x03.").0);
    let flag: &[u8] = if little { b"\x88" } else { b"\x89" };
    out.extend(
        Pickle::new().op(b"}(").text("protocol_version").op(b"M\xe9\x03").text("little_endian").op(flag).op(b"u.").0,
    );
    out.extend_from_slice(pickle);
    let keys = storages.iter().fold(Pickle::new().op(b"]("), |pickle, (key, ..)| pickle.text(key));
    out.extend(keys.op(b"e.").0);
    for (_, count, data) in storages {
        out.extend(count.to_le_bytes());
        out.extend_from_slice(data);
    }
    out
}

/// CRC-32 as zip archives have it (ISO 3309), bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}
