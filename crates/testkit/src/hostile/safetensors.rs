//! Safetensors files of classes A10 and A12.

use crate::files::safetensors::{Tensor, file, raw, with_length};
use crate::files::{Case, model};

pub fn cases() -> Vec<Case> {
    let mut cases = headers();
    cases.extend(entries());
    cases.extend(layouts());
    cases.extend(stand_ins());
    cases
}

fn case(name: &str, bytes: Vec<u8>, expect: &'static str) -> Case {
    Case::file("A10", format!("safetensors {name}"), "x.safetensors", bytes, expect)
}

fn text(name: &str, header: &str, data: &[u8], expect: &'static str) -> Case {
    case(name, raw(header.as_bytes(), data), expect)
}

fn headers() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in 0..8 {
        cases.push(case(&format!("of {length} bytes"), vec![0; length], "Truncated"));
    }
    for length in [100_000_001, 1 << 32, 1 << 63, u64::MAX] {
        cases.push(case(&format!("header of {length}"), with_length(length, b"{}", b""), "HeaderTooLarge"));
    }
    for length in [3, 9, 100_000_000] {
        cases.push(case(
            &format!("header of {length} in a file of 10"),
            with_length(length, b"{}", b""),
            "HeaderBeyondFile",
        ));
    }
    let deep = |open: &str, close: &str| format!(r#"{{"a":{}1{}}}"#, open.repeat(10_000), close.repeat(10_000));
    cases.extend([
        case("header not UTF-8", raw(b"{\"\xff\":1}", b""), "NotUtf8"),
        text("no header", "", b"", "Json"),
        text("header of spaces", "    ", b"", "Json"),
        text("list", "[]", b"", "Json"),
        text("number", "1", b"", "Json"),
        text("null", "null", b"", "Json"),
        text("open brace", "{", b"", "Json"),
        text("two documents", "{}{}", b"", "Json"),
        text("words after", "{} x", b"", "Json"),
        text("NUL after", "{}\0", b"", "Json"),
        text("deep lists", &deep("[", "]"), b"", "Json"),
        text("deep objects", &deep("{\"a\":", "}"), b"", "Json"),
        text("deep lists in a field unknown", &format!(r#"{{"a":{{"x":{}}}}}"#, "[".repeat(10_000)), b"", "Json"),
        text("metadata of numbers", r#"{"__metadata__":{"a":1}}"#, b"", "Json"),
        text("metadata of objects", r#"{"__metadata__":{"a":{}}}"#, b"", "Json"),
        text("metadata list", r#"{"__metadata__":[]}"#, b"", "Json"),
    ]);
    cases
}

fn entries() -> Vec<Case> {
    let entry = |name: &str, entry: &str, data: &[u8], expect| text(name, &format!(r#"{{"a":{entry}}}"#), data, expect);
    let mut cases = vec![
        entry("entry null", "null", b"", "Json"),
        entry("entry list", "[1]", b"", "Json"),
        entry("no type", r#"{"shape":[1],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("no shape", r#"{"dtype":"U8","data_offsets":[0,1]}"#, b"x", "Json"),
        entry("no offsets", r#"{"dtype":"U8","shape":[1]}"#, b"x", "Json"),
        entry("type twice", r#"{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape twice", r#"{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("type a number", r#"{"dtype":1,"shape":[1],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape negative", r#"{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape a fraction", r#"{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape 1e30", r#"{"dtype":"U8","shape":[1e30],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape a string", r#"{"dtype":"U8","shape":"1","data_offsets":[0,1]}"#, b"x", "Json"),
        entry("shape of null", r#"{"dtype":"U8","shape":[null],"data_offsets":[0,1]}"#, b"x", "Json"),
        entry("one offset", r#"{"dtype":"U8","shape":[1],"data_offsets":[0]}"#, b"x", "Json"),
        entry("three offsets", r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}"#, b"x", "Json"),
        entry("offset negative", r#"{"dtype":"U8","shape":[1],"data_offsets":[-1,1]}"#, b"x", "Json"),
        entry(
            "offset beyond 64 bits",
            r#"{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}"#,
            b"x",
            "Json",
        ),
        entry("offsets reversed", r#"{"dtype":"U8","shape":[1],"data_offsets":[1,0]}"#, b"x", "BadOffset"),
        entry(
            "offset 2^64 - 1",
            r#"{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}"#,
            b"x",
            "Truncated",
        ),
        entry(
            "shape product 2^64",
            r#"{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}"#,
            b"x",
            "BadShape",
        ),
        entry(
            "shape product wraps to 0",
            r#"{"dtype":"U8","shape":[9223372036854775808,2],"data_offsets":[0,0]}"#,
            b"",
            "BadShape",
        ),
        entry(
            "shape wraps beside 0",
            r#"{"dtype":"U8","shape":[0,9223372036854775808,2],"data_offsets":[0,0]}"#,
            b"",
            "BadShape",
        ),
        entry(
            "size beyond 64 bits",
            r#"{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,1]}"#,
            b"x",
            "SizeMismatch",
        ),
        entry(
            "seventeen axes",
            &format!(r#"{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}"#, "1,".repeat(16)),
            b"x",
            "BadShape",
        ),
        entry(
            "a million axes",
            &format!(r#"{{"dtype":"U8","shape":[{}1],"data_offsets":[0,1]}}"#, "1,".repeat(999_999)),
            b"x",
            "BadShape",
        ),
        text("empty name", r#"{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x", "BadName"),
        text("name with NUL", r#"{"a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x", "BadName"),
        text(
            "name of 5000",
            &format!(r#"{{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#, "n".repeat(5000)),
            b"x",
            "BadName",
        ),
        text("lone surrogate in a name", r#"{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, b"x", "Json"),
    ];
    for dtype in ["F99", "", "f32", "FLOAT", "Q4_0", "I4"] {
        let header = format!(r#"{{"dtype":"{dtype}","shape":[1],"data_offsets":[0,1]}}"#);
        cases.push(entry(&format!("type {dtype:?}"), &header, b"x", "UnknownType"));
    }
    for (dtype, size) in [
        ("F64", 8),
        ("F32", 4),
        ("F16", 2),
        ("BF16", 2),
        ("I64", 8),
        ("I32", 4),
        ("I16", 2),
        ("U64", 8),
        ("U32", 4),
        ("U16", 2),
        ("F8_E4M3", 1),
        ("I8", 1),
        ("U8", 1),
        ("BOOL", 1),
    ] {
        for wrong in [size * 3 - 1, size * 3 + 1] {
            let bytes = file(&[Tensor::new("a", dtype, &[3], vec![0; wrong])]);
            cases.push(case(&format!("three of {dtype} in {wrong} bytes"), bytes, "SizeMismatch"));
        }
    }
    for dtype in ["F8_E8M0", "C64", "F4"] {
        let size = if dtype == "C64" { 8 } else { 1 };
        let shape = if dtype == "F4" { 2 } else { 1 };
        let bytes = file(&[Tensor::new("a", dtype, &[shape], vec![0; size])]);
        cases.push(
            case(&format!("wanted tensor of {dtype}"), bytes, "UnsupportedType")
                .probe(crate::files::Probe::Tensor("a")),
        );
    }
    cases
}

fn layouts() -> Vec<Case> {
    let two = |name: &str, a: &str, b: &str, data: &[u8], expect| {
        let header = format!(
            r#"{{"a":{{"dtype":"U8","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[2],"data_offsets":{b}}}}}"#
        );
        text(name, &header, data, expect)
    };
    let one = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    vec![
        two("overlap by one", "[0,2]", "[1,3]", b"xyz", "Overlap"),
        two("overlap wholly", "[0,2]", "[0,2]", b"xy", "Overlap"),
        two("hole between", "[0,2]", "[3,5]", b"abcde", "Hole"),
        two("hole at the start", "[1,3]", "[3,5]", b"abcde", "Hole"),
        two("hole listed backwards", "[3,5]", "[0,2]", b"abcde", "Hole"),
        two("a byte missing", "[0,2]", "[2,4]", b"abc", "Truncated"),
        two("all data missing", "[0,2]", "[2,4]", b"", "Truncated"),
        two("a byte too many", "[0,2]", "[2,4]", b"abcde", "TrailingBytes"),
        text("bytes of no tensor", "{}", b"x", "TrailingBytes"),
        text("name twice", &format!("{{{one},{one}}}"), b"x", "DuplicateTensor"),
        text(
            "name twice by an escape",
            &format!("{{{one},{}}}", one.replacen('a', "\\u0061", 1)),
            b"x",
            "DuplicateTensor",
        ),
        text(
            "end beyond the file",
            r#"{"a":{"dtype":"U8","shape":[4294967296],"data_offsets":[0,4294967296]}}"#,
            b"x",
            "Truncated",
        ),
    ]
}

fn stand_ins() -> Vec<Case> {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4096\n".to_vec();
    let page = b"\n<!DOCTYPE html><html><body>404</body></html>".to_vec();
    let upper = b"<HTML><HEAD></HEAD></HTML>".to_vec();
    let mut cases = Vec::new();
    for (name, bytes, expect) in
        [("pointer", pointer, "GitLfsPointer"), ("page", page, "HtmlPage"), ("PAGE", upper, "HtmlPage")]
    {
        for file in ["x.safetensors", "x.gguf", "x.bin"] {
            cases.push(Case::file("A12", format!("{name} as {file}"), file, bytes.clone(), expect));
        }
        for file in ["model.safetensors", "config.json"] {
            let mut files = model::folder(1);
            files.iter_mut().filter(|(name, _)| name == file).for_each(|(_, old)| *old = bytes.clone());
            cases.push(Case::folder("A12", format!("{name} as {file}"), files, expect));
        }
    }
    for file in ["x.safetensors", "x.gguf", "x.bin"] {
        cases.push(Case::file("A12", format!("nothing as {file}"), file, Vec::new(), "Truncated"));
        cases.push(Case::file("A12", format!("noise as {file}"), file, vec![0x9b; 64], "HeaderTooLarge|BadMagic"));
        cases.push(
            Case::folder("A12", format!("folder as {file}"), vec![(format!("{file}/x"), vec![])], "MissingFile")
                .open(file),
        );
    }
    cases.push(Case::file("A12", "text as x.txt", "x.txt", b"hello".to_vec(), "UnknownFormat"));
    cases.push(Case::folder("A12", "nothing there", Vec::new(), "NotFound").open("absent"));
    cases
}
