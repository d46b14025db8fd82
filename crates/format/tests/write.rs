//! What is written is read back, and what fails leaves nothing behind.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use attend_format::gguf::{Array, Value};
use attend_format::{Checkpoint, Error, TensorSpec, gguf, safetensors};
use attend_kernels::DType;

fn spec(name: &str, dtype: DType, shape: &[usize]) -> TensorSpec {
    TensorSpec { name: name.into(), dtype, shape: shape.into() }
}

fn content(spec: &TensorSpec) -> Vec<u8> {
    let bytes = spec.dtype.bytes(spec.shape.iter().product()).unwrap();
    (0..bytes).map(|i| (i as u8) ^ spec.name.as_bytes()[0]).collect()
}

fn read(checkpoint: &Checkpoint, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; checkpoint.require(name).unwrap().bytes as usize];
    checkpoint.read_at(name, 0, &mut bytes).unwrap();
    bytes
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn safetensors_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let tensors = [
        spec("b", DType::U8, &[3]),
        spec("a", DType::F64, &[2, 2]),
        spec("empty", DType::F32, &[0, 4]),
        spec("scalar", DType::BF16, &[]),
        spec("\u{3b1}\"\\", DType::F8E4M3, &[5]),
    ];
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::write(&path, &tensors, &metadata, &mut |i, out| Ok(out.write_all(&content(&tensors[i]))?)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    for tensor in &tensors {
        let info = checkpoint.require(&tensor.name).unwrap();
        assert_eq!((info.dtype, &info.shape), (tensor.dtype, &tensor.shape));
        assert_eq!(read(&checkpoint, &tensor.name), content(tensor));
    }
    assert_eq!(names(folder.path()), ["x.safetensors"]);
    assert_eq!(std::fs::read(&path).unwrap()[..8].try_into().map(u64::from_le_bytes).unwrap() % 8, 0);
}

#[test]
fn gguf_round_trip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let tensors = [
        spec("f", DType::F32, &[3, 5]),
        spec("q", DType::Q8_0, &[2, 64]),
        spec("k", DType::Q4_K, &[1, 256]),
        spec("i", DType::I64, &[1]),
    ];
    let metadata: Vec<(String, Value)> = [
        ("general.architecture", Value::String("llama".into())),
        ("general.alignment", Value::U32(64)),
        ("a.u8", Value::U8(1)),
        ("a.i8", Value::I8(-1)),
        ("a.u16", Value::U16(2)),
        ("a.i16", Value::I16(-2)),
        ("a.i32", Value::I32(-3)),
        ("a.f32", Value::F32(0.5)),
        ("a.bool", Value::Bool(true)),
        ("a.u64", Value::U64(u64::MAX)),
        ("a.i64", Value::I64(i64::MIN)),
        ("a.f64", Value::F64(0.1)),
        ("a.strings", Value::Array(Array::String(["x", "", "\u{1f600}"].into_iter().collect()))),
        ("a.floats", Value::Array(Array::F32(vec![1.0, -2.0]))),
        ("a.bools", Value::Array(Array::Bool(vec![true, false]))),
        ("a.nested", Value::Array(Array::Array(vec![Array::U16(vec![7]), Array::I64(vec![])]))),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    gguf::write(&path, &metadata, &tensors, &mut |i, out| Ok(out.write_all(&content(&tensors[i]))?)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let read_back = checkpoint.gguf().unwrap();
    assert_eq!(read_back.iter().count(), metadata.len());
    metadata.iter().for_each(|(key, value)| assert_eq!(read_back.get(key), Some(value), "{key}"));
    for tensor in &tensors {
        assert_eq!(checkpoint.require(&tensor.name).unwrap().shape, tensor.shape);
        assert_eq!(read(&checkpoint, &tensor.name), content(tensor));
    }
    assert_eq!(names(folder.path()), ["x.gguf"]);
}

/// Failures of every kind: the old file stays, no other appears.
#[test]
fn failures_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let one = [spec("a", DType::F32, &[4])];
    for (name, old) in [("x.safetensors", None), ("y.safetensors", Some(b"old".as_slice()))] {
        let path = folder.path().join(name);
        if let Some(old) = old {
            std::fs::write(&path, old).unwrap();
        }
        let write = |tensors: &[TensorSpec], bytes: usize, fail: bool| {
            safetensors::write(&path, tensors, &BTreeMap::new(), &mut |_, out: &mut dyn Write| {
                out.write_all(&vec![0; bytes])?;
                if fail { Err("the source broke".into()) } else { Ok(()) }
            })
            .unwrap_err()
        };
        assert!(matches!(write(&one, 15, false), Error::WrongLength { expected: 16, actual: 15, .. }));
        assert!(matches!(write(&one, 17, false), Error::WrongLength { expected: 16, actual: 17, .. }));
        assert!(matches!(write(&one, 16, true), Error::Fill { .. }));
        assert!(matches!(write(&[one[0].clone(), one[0].clone()], 16, false), Error::DuplicateTensor { .. }));
        assert!(matches!(write(&[spec("q", DType::Q4_0, &[32])], 18, false), Error::UnsupportedType { .. }));
        assert_eq!(std::fs::read(&path).ok().as_deref(), old);
    }
    let path = folder.path().join("z.gguf");
    let write = |tensors: &[TensorSpec]| gguf::write(&path, &[], tensors, &mut |_, _| Ok(())).unwrap_err();
    assert!(matches!(write(&[spec("q", DType::Q4_0, &[2, 33])]), Error::BadShape { .. }));
    assert!(matches!(write(&[spec("q", DType::Q4_0, &[64, 16])]), Error::BadShape { .. }), "blocks may not span rows");
    assert!(matches!(write(&[spec("q", DType::F8E4M3, &[1])]), Error::UnsupportedType { .. }));
    assert!(matches!(write(&one), Error::WrongLength { expected: 16, actual: 0, .. }));
    let absent = folder.path().join("absent/x.gguf");
    assert!(matches!(gguf::write(&absent, &[], &[], &mut |_, _| Ok(())), Err(Error::Io { .. })));
    assert_eq!(names(folder.path()), ["y.safetensors"]);
}
