//! GGUF files.

/// Numbers of value types.
pub mod value {
    pub const U8: u32 = 0;
    pub const I8: u32 = 1;
    pub const U16: u32 = 2;
    pub const I16: u32 = 3;
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;
    pub const I64: u32 = 11;
    pub const F64: u32 = 12;
}

/// A tensor; its dims are fastest first, as the format has them.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub type_id: u32,
    /// Where the file says it is; by default where it is.
    pub offset: Option<u64>,
    /// The number of dims that the file states; by default the true one.
    pub axes: Option<u32>,
    pub data: Vec<u8>,
}

/// A file in the making. Every field may be a lie.
#[derive(Debug, Clone)]
pub struct Gguf {
    pub magic: [u8; 4],
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    /// Key, and the bytes of the value with its type.
    pub keys: Vec<(String, Vec<u8>)>,
    pub tensors: Vec<Tensor>,
    pub alignment: usize,
}

impl Gguf {
    /// An empty file of version 3.
    pub fn empty() -> Gguf {
        let (keys, tensors) = (Vec::new(), Vec::new());
        Gguf { magic: *b"GGUF", version: 3, tensor_count: None, key_count: None, keys, tensors, alignment: 32 }
    }

    /// With `general.architecture`.
    pub fn new(architecture: &str) -> Gguf {
        Gguf::empty().string("general.architecture", architecture)
    }

    pub fn key(mut self, key: &str, value_type: u32, payload: &[u8]) -> Gguf {
        let mut value = value_type.to_le_bytes().to_vec();
        value.extend_from_slice(payload);
        self.keys.push((key.into(), value));
        self
    }

    pub fn u32(self, key: &str, number: u32) -> Gguf {
        self.key(key, value::U32, &number.to_le_bytes())
    }

    pub fn f32(self, key: &str, number: f32) -> Gguf {
        self.key(key, value::F32, &number.to_le_bytes())
    }

    pub fn string(self, key: &str, text: &str) -> Gguf {
        self.key(key, value::STRING, &string(text.as_bytes()))
    }

    /// An array: the element type, the count it states, and the elements' bytes.
    pub fn array(self, key: &str, element: u32, count: u64, payload: &[u8]) -> Gguf {
        self.key(key, value::ARRAY, &array(element, count, payload))
    }

    pub fn strings<S: AsRef<str>>(self, key: &str, texts: &[S]) -> Gguf {
        let payload: Vec<u8> = texts.iter().flat_map(|text| string(text.as_ref().as_bytes())).collect();
        self.array(key, value::STRING, texts.len() as u64, &payload)
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], type_id: u32, data: Vec<u8>) -> Gguf {
        let (name, dims) = (name.into(), dims.into());
        self.tensors.push(Tensor { name, dims, type_id, offset: None, axes: None, data });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            out.extend(string(key.as_bytes()));
            out.extend_from_slice(value);
        }
        let mut data = Vec::new();
        for tensor in &self.tensors {
            out.extend(string(tensor.name.as_bytes()));
            out.extend(tensor.axes.unwrap_or(tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend_from_slice(&tensor.data);
            data.resize(data.len().next_multiple_of(self.alignment), 0);
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(data);
        out
    }
}

/// A string with its length.
pub fn string(text: &[u8]) -> Vec<u8> {
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(text);
    out
}

/// An array's payload.
pub fn array(element: u32, count: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = element.to_le_bytes().to_vec();
    out.extend(count.to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// A value of every type, by type number, that is no sensible count: 0, 1.5, true, "x", an empty array.
pub fn senseless(value_type: u32) -> Vec<u8> {
    match value_type {
        value::U8 | value::I8 => vec![0],
        value::BOOL => vec![1],
        value::U16 | value::I16 => vec![0; 2],
        value::U32 | value::I32 => vec![0; 4],
        value::F32 => 1.5f32.to_le_bytes().into(),
        value::STRING => string(b"x"),
        value::ARRAY => array(value::U8, 0, &[]),
        value::U64 | value::I64 => vec![0; 8],
        value::F64 => 1.5f64.to_le_bytes().into(),
        other => panic!("{other} is no value type"),
    }
}
