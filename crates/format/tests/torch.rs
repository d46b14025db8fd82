//! Files that PyTorch itself wrote (2.15.0; the state dict is in `expected`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attend_format::{Checkpoint, Error};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn longs(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Name to type, shape and bytes.
fn expected() -> BTreeMap<&'static str, (&'static str, Vec<usize>, Vec<u8>)> {
    let matrix = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let transposed = floats(&[0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0]);
    BTreeMap::from([
        ("matrix", ("f32", vec![2, 3], matrix.clone())),
        ("alias", ("f32", vec![2, 3], matrix)),
        ("transposed", ("f32", vec![4, 3], transposed)),
        ("column", ("f32", vec![3], floats(&[1.0, 5.0, 9.0]))),
        ("slice", ("i64", vec![3], longs(&[2, 3, 4]))),
        ("half", ("f16", vec![2], vec![0x00, 0x38, 0x00, 0xc0])),
        ("bfloat", ("bf16", vec![2], vec![0x00, 0x3f, 0x00, 0xc0])),
        ("flags", ("bool", vec![3], vec![1, 0, 1])),
        ("scalar", ("i32", vec![], vec![7, 0, 0, 0])),
        ("empty", ("f32", vec![0, 4], vec![])),
        ("parameter", ("f32", vec![2], floats(&[1.0, 1.0]))),
        ("position_ids", ("i64", vec![1, 4], longs(&[0, 1, 2, 3]))),
    ])
}

#[test]
fn both_containers_hold_the_same_tensors() {
    for file in ["torch-zip.bin", "torch-legacy.bin"] {
        let checkpoint = Checkpoint::open(&data(file)).unwrap();
        assert_eq!(checkpoint.tensors().len(), expected().len());
        for (name, (dtype, shape, bytes)) in expected() {
            let info = checkpoint.require(name).unwrap();
            assert_eq!(
                (info.dtype.name(), &info.shape, info.bytes),
                (dtype, &shape, bytes.len() as u64),
                "{file} {name}"
            );
            let mut read = vec![0; bytes.len()];
            checkpoint.read_at(name, 0, &mut read).unwrap();
            assert_eq!(read, bytes, "{file} {name}");
            // Piece by piece, and again after the end.
            for _ in 0..2 {
                for (at, byte) in bytes.iter().enumerate() {
                    let mut one = [0];
                    checkpoint.read_at(name, at as u64, &mut one).unwrap();
                    assert_eq!(one[0], *byte, "{file} {name} at {at}");
                }
            }
        }
    }
}

#[test]
fn untyped_storages() {
    let checkpoint = Checkpoint::open(&data("torch-untyped.bin")).unwrap();
    let mut bytes = [0; 4];
    checkpoint.read_at("u16", 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 0, 0xff, 0xff]);
    checkpoint.read_at("eight", 0, &mut bytes[..2]).unwrap();
    assert_eq!((checkpoint.require("eight").unwrap().dtype.name(), bytes[0], bytes[1]), ("f8_e4m3", 0x38, 0xb0));
}

#[test]
fn a_whole_module_is_refused_with_advice() {
    let error = Checkpoint::open(&data("torch-module.bin")).unwrap_err();
    assert!(matches!(error, Error::UnsafePickle { .. }));
    let text = error.to_string();
    assert!(text.contains("Linear") && text.contains("convert the file to safetensors"), "{text}");
}
