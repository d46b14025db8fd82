//! Valid documents that are cut and flipped.

use super::gguf::Gguf;
use super::safetensors::{self, Tensor};
use super::{Files, Random, model};

/// A valid checkpoint and the file of it that is to be damaged.
#[derive(Debug, Clone)]
pub struct Document {
    pub name: &'static str,
    pub files: Files,
    /// What is opened: a file's name, or nothing for the folder.
    pub open: &'static str,
    pub damaged: &'static str,
    /// How many bytes at the start (and, for archives, the end) are not plain data.
    pub head: usize,
    pub tail: usize,
}

/// Twelve valid documents of all containers.
pub fn documents(seed: u64) -> Vec<Document> {
    let whole = |name, files: Files, damaged: &'static str, open| {
        let head = files.iter().find(|(file, _)| file == damaged).map_or(0, |(_, bytes)| bytes.len());
        Document { name, files, open, damaged, head, tail: 0 }
    };
    let safetensors = |mut document: Document| {
        let (_, bytes) = document.files.iter().find(|(file, _)| file == document.damaged).expect("it has the file");
        document.head = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        document
    };
    let gguf = |mut document: Document, file: &Gguf| {
        let data: usize = file.tensors.iter().map(|tensor| tensor.data.len().next_multiple_of(file.alignment)).sum();
        document.head -= data;
        document
    };
    let one = |name: &'static str, bytes: Vec<u8>| vec![(name.to_owned(), bytes)];
    let (f32_file, types) = (model::gguf(seed), quantized(seed));
    let [small, second] = split(seed);
    vec![
        safetensors(whole("safetensors", model::folder(seed), "model.safetensors", "")),
        safetensors(whole(
            "all types",
            one("types.safetensors", all_types(seed)),
            "types.safetensors",
            "types.safetensors",
        )),
        safetensors(whole("shard", model::sharded(seed), "model-00002-of-00002.safetensors", "")),
        whole("index", model::sharded(seed), "model.safetensors.index.json", ""),
        whole("config", model::folder(seed), "config.json", ""),
        gguf(whole("gguf", one("m.gguf", f32_file.bytes()), "m.gguf", "m.gguf"), &f32_file),
        gguf(whole("gguf types", one("t.gguf", types.bytes()), "t.gguf", "t.gguf"), &types),
        gguf(whole("gguf part 1", parts(&small, &second), "m-00001-of-00002.gguf", "m-00001-of-00002.gguf"), &small),
        gguf(whole("gguf part 2", parts(&small, &second), "m-00002-of-00002.gguf", "m-00001-of-00002.gguf"), &second),
        archive(whole("archive", model::pickled(seed, false), "pytorch_model.bin", "")),
        archive(whole("old pickles", model::pickled(seed, true), "pytorch_model.bin", "")),
        whole("tokens only", one("v.gguf", model::gguf_head().bytes()), "v.gguf", "v.gguf"),
    ]
}

/// The pickle at the start and the directory at the end.
fn archive(mut document: Document) -> Document {
    (document.head, document.tail) = (3200, 1400);
    document
}

/// A tensor of every type that safetensors files have.
pub fn all_types(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let sizes = [
        ("F64", 8),
        ("I64", 8),
        ("U64", 8),
        ("F32", 4),
        ("I32", 4),
        ("U32", 4),
        ("F16", 2),
        ("BF16", 2),
        ("I16", 2),
        ("U16", 2),
        ("F8_E4M3", 1),
        ("F8_E5M2", 1),
        ("I8", 1),
        ("U8", 1),
    ];
    let mut tensors: Vec<Tensor> =
        sizes.iter().map(|&(dtype, size)| Tensor::new(dtype, dtype, &[2, 3], random.bytes(6 * size))).collect();
    tensors.push(Tensor::new("BOOL", "BOOL", &[3], vec![0, 1, 1]));
    tensors.push(Tensor::new("empty", "F32", &[0, 4], Vec::new()));
    tensors.push(Tensor::new("scalar", "U8", &[], vec![7]));
    safetensors::file(&tensors)
}

/// Number, block length and block bytes of the types that GGUF files have.
pub const GGUF_TYPES: &[(u32, u64, usize)] = &[
    (0, 1, 4),
    (1, 1, 2),
    (2, 32, 18),
    (3, 32, 20),
    (6, 32, 22),
    (7, 32, 24),
    (8, 32, 34),
    (10, 256, 84),
    (11, 256, 110),
    (12, 256, 144),
    (13, 256, 176),
    (14, 256, 210),
    (20, 32, 18),
    (23, 256, 136),
    (24, 1, 1),
    (25, 1, 2),
    (26, 1, 4),
    (27, 1, 8),
    (28, 1, 8),
    (30, 1, 2),
    (39, 32, 17),
];

/// A tensor of two rows of every type that GGUF files have.
fn quantized(seed: u64) -> Gguf {
    let mut random = Random::new(seed);
    GGUF_TYPES.iter().fold(Gguf::new("llama").u32("llama.block_count", 1), |file, &(id, block, bytes)| {
        file.tensor(&format!("t{id}"), &[block * 2, 2], id, random.bytes(bytes * 4))
    })
}

/// The two parts of a split model.
fn split(seed: u64) -> [Gguf; 2] {
    let all = model::gguf(seed);
    let (a, b) = all.tensors.split_at(all.tensors.len() / 2);
    let part = |head: Gguf, number: u16, tensors: &[super::gguf::Tensor]| {
        let mut file = head
            .key("split.no", super::gguf::value::U16, &number.to_le_bytes())
            .key("split.count", super::gguf::value::U16, &2u16.to_le_bytes())
            .key("split.tensors.count", super::gguf::value::I32, &(all.tensors.len() as i32).to_le_bytes());
        file.tensors = tensors.to_vec();
        file
    };
    [part(model::gguf_head(), 0, a), part(Gguf::empty(), 1, b)]
}

fn parts(first: &Gguf, second: &Gguf) -> Files {
    vec![("m-00001-of-00002.gguf".into(), first.bytes()), ("m-00002-of-00002.gguf".into(), second.bytes())]
}

/// The files of a model split in two.
pub fn split_files(seed: u64) -> Files {
    let [first, second] = split(seed);
    parts(&first, &second)
}
