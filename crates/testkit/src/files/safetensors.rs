//! Safetensors files.

use serde_json::{Map, Value, json};

/// A tensor under the format's own type name.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    pub fn new(name: &str, dtype: &'static str, shape: &[usize], data: Vec<u8>) -> Tensor {
        Tensor { name: name.into(), dtype, shape: shape.into(), data }
    }
}

/// A well-formed file, tensors in the given order.
pub fn file(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let (mut offset, mut data) = (0, Vec::new());
    for tensor in tensors {
        let end = offset + tensor.data.len();
        let entry = json!({ "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end] });
        header.insert(tensor.name.clone(), entry);
        data.extend_from_slice(&tensor.data);
        offset = end;
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    raw(header.as_bytes(), &data)
}

/// Any header before any data.
pub fn raw(header: &[u8], data: &[u8]) -> Vec<u8> {
    with_length(header.len() as u64, header, data)
}

/// As [`raw`], with a length of the header that may be a lie.
pub fn with_length(length: u64, header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = length.to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(data);
    file
}
