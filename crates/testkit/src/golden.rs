//! Golden files: a small reader of safetensors and JSON, and comparisons that say where two lists differ.
//!
//! For tests only, so mistakes panic with a message that names the file and the tensor.

use half::{bf16, f16};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of golden files in the source tree.
pub fn golden_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// One safetensors file with the JSON that describes it.
#[derive(Debug, Clone)]
pub struct Golden {
    pub path: PathBuf,
    pub tensors: BTreeMap<String, Tensor>,
    pub json: Value,
}

/// A tensor as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    /// The type's name in the file: `F32`, `BF16`, `I64`, ...
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Golden {
    /// `goldens/modules/<topic>.safetensors` and `.json`.
    pub fn module(topic: &str) -> Golden {
        let path = golden_root().join("modules").join(topic);
        Golden::read(&path.with_extension("safetensors"), &path.with_extension("json"))
    }

    /// A tensors file of a model case with its `case.json`: `Golden::case("bert-base", "expected")`.
    pub fn case(case: &str, file: &str) -> Golden {
        let folder = golden_root().join(case);
        Golden::read(&folder.join(file).with_extension("safetensors"), &folder.join("case.json"))
    }

    fn read(tensors: &Path, json: &Path) -> Golden {
        Golden { path: tensors.to_path_buf(), tensors: read_safetensors(tensors), json: read_json(json) }
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{}: no tensor `{name}`", self.path.display()))
    }

    /// The tensor's values as float32.
    pub fn f32(&self, name: &str) -> Vec<f32> {
        self.tensor(name).to_f32()
    }

    /// The tensor's values as integers.
    pub fn i64(&self, name: &str) -> Vec<i64> {
        self.tensor(name).to_i64()
    }

    pub fn shape(&self, name: &str) -> &[usize] {
        &self.tensor(name).shape
    }

    /// `tolerance.atol` and `tolerance.rtol` of the JSON.
    pub fn tolerance(&self) -> (f32, f32) {
        let field = |name: &str| {
            self.json["tolerance"][name]
                .as_f64()
                .unwrap_or_else(|| panic!("{}: no tolerance.{name}", self.path.display()))
        };
        (field("atol") as f32, field("rtol") as f32)
    }
}

impl Tensor {
    pub fn to_f32(&self) -> Vec<f32> {
        match self.dtype.as_str() {
            "F64" => self.numbers(|b| f64::from_le_bytes(b) as f32),
            "F32" => self.numbers(f32::from_le_bytes),
            "F16" => self.numbers(|b| f16::from_le_bytes(b).to_f32()),
            "BF16" => self.numbers(|b| bf16::from_le_bytes(b).to_f32()),
            _ => self.to_i64().into_iter().map(|x| x as f32).collect(),
        }
    }

    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype.as_str() {
            "I64" => self.numbers(i64::from_le_bytes),
            "I32" => self.numbers(|b| i64::from(i32::from_le_bytes(b))),
            "U8" | "BOOL" => self.numbers(|b: [u8; 1]| i64::from(b[0])),
            other => panic!("`{}` is {other}, not integers", self.name),
        }
    }

    fn numbers<const N: usize, T>(&self, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        let (numbers, rest) = self.bytes.as_chunks::<N>();
        assert!(rest.is_empty(), "`{}`: {} bytes do not divide by {N}", self.name, self.bytes.len());
        numbers.iter().map(|&bytes| read(bytes)).collect()
    }
}

pub fn read_json(path: &Path) -> Value {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every tensor of a safetensors file.
pub fn read_safetensors(path: &Path) -> BTreeMap<String, Tensor> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let start = 8 + u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    let header: Value =
        serde_json::from_slice(&bytes[8..start]).unwrap_or_else(|e| panic!("{}: header: {e}", path.display()));
    let list = |value: &Value| -> Vec<usize> {
        value.as_array().expect("a list").iter().map(|x| x.as_u64().expect("a count") as usize).collect()
    };
    let entries = header.as_object().expect("an object").iter().filter(|(name, _)| *name != "__metadata__");
    let tensors = entries.map(|(name, entry)| {
        let range = list(&entry["data_offsets"]);
        let tensor = Tensor {
            name: name.clone(),
            dtype: entry["dtype"].as_str().expect("a dtype").to_owned(),
            shape: list(&entry["shape"]),
            bytes: bytes[start + range[0]..start + range[1]].to_vec(),
        };
        (name.clone(), tensor)
    });
    tensors.collect()
}

/// The entry that is furthest outside `|got - want| <= atol + rtol * |want|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    pub index: usize,
    pub got: f32,
    pub want: f32,
    /// Error as a multiple of what is allowed; infinite where one side is not a number and the other is.
    pub ratio: f64,
}

/// The worst entry of two lists, whether within tolerance or not; `None` for empty lists.
pub fn worst(got: &[f32], want: &[f32], atol: f32, rtol: f32) -> Option<Mismatch> {
    assert_eq!(got.len(), want.len(), "lengths differ");
    let entries = got.iter().zip(want).enumerate().map(|(index, (&got, &want))| {
        let allowed = f64::from(atol) + f64::from(rtol) * f64::from(want.abs());
        let same = got == want || (got.is_nan() && want.is_nan());
        let ratio = if same { 0.0 } else { (f64::from(got) - f64::from(want)).abs() / allowed };
        Mismatch { index, got, want, ratio: if ratio.is_nan() { f64::INFINITY } else { ratio } }
    });
    entries.max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// Panics, naming the worst entry, unless `|got - want| <= atol + rtol * |want|` everywhere. NaN equals NaN only.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f32], atol: f32, rtol: f32) {
    assert_eq!(got.len(), want.len(), "{what}: {} values where {} are expected", got.len(), want.len());
    if let Some(worst) = worst(got, want, atol, rtol).filter(|worst| worst.ratio > 1.0) {
        let Mismatch { index, got, want, ratio } = worst;
        panic!("{what}: entry {index} is {got:e}, expected {want:e}: {ratio:.2} times the tolerance");
    }
}

/// Panics unless the two lists hold the same bits.
#[track_caller]
pub fn assert_same_bits(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: {} values where {} are expected", got.len(), want.len());
    if let Some(i) = (0..got.len()).find(|&i| got[i].to_bits() != want[i].to_bits()) {
        panic!(
            "{what}: entry {i} is {:e} ({:08x}), not {:e} ({:08x})",
            got[i],
            got[i].to_bits(),
            want[i],
            want[i].to_bits()
        );
    }
}

/// Relative L2 error: `|got - want| / |want|`, or `|got|` where `want` is all zero.
pub fn relative_l2(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len(), "lengths differ");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(want).map(|(&a, &b)| f64::from(a) - f64::from(b)));
    let size = norm(&mut want.iter().map(|&b| f64::from(b)));
    if size == 0.0 { error } else { error / size }
}

/// A small generator of repeatable test data (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`, which is at least 1.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end as u64) as usize
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Normal, mean 0 and deviation 1 (Box & Muller 1958).
    pub fn normal(&mut self) -> f32 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f32::consts::TAU * v).cos()
    }

    pub fn normals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }
}
