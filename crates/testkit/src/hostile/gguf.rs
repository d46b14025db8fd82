//! GGUF files of classes A1 to A9 and A12.

use crate::files::gguf::{Gguf, array, senseless, string, value};
use crate::files::{Case, Probe, Random, model, valid};

pub fn cases(seed: u64) -> Vec<Case> {
    let mut cases = heads();
    cases.extend(counts());
    cases.extend(lengths());
    cases.extend(dims());
    cases.extend(types());
    cases.extend(alignments(seed));
    cases.extend(offsets(seed));
    cases.extend(metadata());
    cases.extend(vocabularies());
    cases.extend(splits(seed));
    cases
}

fn case(class: &'static str, name: impl Into<String>, file: &Gguf, expect: &'static str) -> Case {
    Case::file(class, format!("gguf {}", name.into()), "m.gguf", file.bytes(), expect)
}

fn new() -> Gguf {
    Gguf::new("llama")
}

fn heads() -> Vec<Case> {
    let mut cases = Vec::new();
    for magic in [*b"GGU_", *b"\0\0\0\0", *b"PK\x03\x04", *b"FUGG"] {
        cases.push(case("A8", format!("magic {magic:?}"), &Gguf { magic, ..new() }, "BadMagic"));
    }
    for magic in [*b"lmgg", *b"tjgg", *b"fmgg"] {
        cases.push(case("A8", format!("old magic {magic:?}"), &Gguf { magic, ..new() }, "UnsupportedVersion"));
    }
    for version in [0, 1, 4, 5, 255, 65_535] {
        cases.push(case("A8", format!("version {version}"), &Gguf { version, ..new() }, "UnsupportedVersion"));
    }
    for version in [2u32, 3] {
        let version = version.swap_bytes();
        cases.push(case("A8", format!("version {version}"), &Gguf { version, ..new() }, "BigEndian"));
    }
    cases
}

fn counts() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in [u64::MAX, 1 << 63, 1 << 60, 1 << 40, 10_000_000] {
        for version in [2, 3] {
            let file = Gguf { version, ..new() };
            let (tensors, keys) =
                (Gguf { tensor_count: Some(count), ..file.clone() }, Gguf { key_count: Some(count), ..file });
            cases.push(case("A1", format!("{count} tensors, version {version}"), &tensors, "BadCount"));
            cases.push(case("A1", format!("{count} keys, version {version}"), &keys, "BadCount"));
        }
    }
    cases.push(case(
        "A1",
        "one key more than there are",
        &Gguf { key_count: Some(2), ..new() },
        "BadField|BadLength|Truncated",
    ));
    cases.push(case(
        "A1",
        "one tensor more than there are",
        &Gguf { tensor_count: Some(1), ..new() },
        "BadCount|BadName|Truncated",
    ));
    cases
}

fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    for length in [u64::MAX, (1 << 63) - 1, 1 << 40, 1 << 32, 1000] {
        let mut lie = length.to_le_bytes().to_vec();
        lie.extend(b"abc");
        cases.push(case("A2", format!("string of {length}"), &new().key("a", value::STRING, &lie), "BadLength"));
        let strings = array(value::STRING, 1, &lie);
        cases.push(case(
            "A2",
            format!("string of {length} in an array"),
            &new().key("a", value::ARRAY, &strings),
            "BadLength",
        ));
        let mut key = new().bytes();
        key.truncate(24);
        key.extend(&lie);
        key.resize(256, 0);
        cases.push(Case::file("A2", format!("gguf key of {length}"), "m.gguf", key, "BadLength"));
        for element in 0..=12 {
            let name = format!("array of {length} of type {element}");
            cases.push(case("A2", name, &new().array("a", element, length, b"abcdefgh"), "BadCount"));
        }
    }
    cases.push(case("A2", "tensor name of 5000", &new().tensor(&"n".repeat(5000), &[1], 0, vec![0; 4]), "BadLength"));
    cases.push(case("A2", "empty key", &new().u32("", 1), "BadField"));
    cases.push(case("A2", "key with a line break", &new().u32("a\nb", 1), "BadField"));
    cases.push(case("A2", "empty tensor name", &new().tensor("", &[1], 0, vec![0; 4]), "BadName"));
    cases.push(case("A2", "tensor name with NUL", &new().tensor("a\0b", &[1], 0, vec![0; 4]), "BadName"));
    let mut deep = array(value::U8, 0, &[]);
    for depth in 1..=10_000 {
        deep = array(value::ARRAY, 1, &deep);
        if [5, 10_000].contains(&depth) {
            cases.push(case("A7", format!("arrays {depth} deep"), &new().key("a", value::ARRAY, &deep), "TooDeep"));
        }
    }
    let wide = array(value::U8, 0, &[]).repeat(70_000);
    cases.push(case("A7", "70000 arrays", &new().array("a", value::ARRAY, 70_000, &wide), "BadCount"));
    for id in [13, 14, 255, u32::MAX] {
        cases.push(case("A8", format!("value type {id}"), &new().key("a", id, &[0; 8]), "BadValueType"));
        cases.push(case("A8", format!("element type {id}"), &new().array("a", id, 1, &[0; 8]), "BadValueType"));
    }
    cases.push(case("A8", "bool of 2", &new().key("a", value::BOOL, &[2]), "BadField"));
    cases.push(case("A8", "bool of 255 in an array", &new().array("a", value::BOOL, 1, &[255]), "BadField"));
    cases
}

fn dims() -> Vec<Case> {
    let tensor = |name: &str, dims: &[u64], id, expect| {
        case("A3", format!("dims {name}"), &new().tensor("a", dims, id, vec![0; 64]), expect)
    };
    let mut cases = vec![
        tensor("2^42 + 1", &[(1 << 42) + 1], 0, "Truncated"),
        tensor("size / 4", &[u64::MAX / 4], 0, "BadShape"),
        tensor("size / 4 + 1", &[u64::MAX / 4 + 1], 0, "BadShape"),
        tensor("2^61", &[1 << 61], 0, "BadShape"),
        tensor("near 2^63 twice", &[(1 << 63) - 1, (1 << 63) - 1], 0, "BadShape"),
        tensor("2^32 twice", &[1 << 32, 1 << 32], 0, "BadShape"),
        tensor("2^16 four times", &[1 << 16; 4], 0, "BadShape"),
        tensor("2^64 - 1", &[u64::MAX], 24, "BadShape"),
        tensor("2^62", &[1 << 62], 24, "Truncated|BadOffset"),
        tensor("2^31 blocks", &[32 << 31], 8, "Truncated"),
        tensor("a row of 33 in blocks of 32", &[33, 1], 8, "BadShape"),
        tensor("a row of 32 in blocks of 256", &[32, 8], 12, "BadShape"),
        tensor("a row of 1", &[1], 2, "BadShape"),
        tensor("none at all", &[], 0, "BadShape"),
    ];
    for axes in [5, 6, 1 << 16, u32::MAX] {
        let mut file = new().tensor("a", &[1; 5], 0, vec![0; 4]);
        file.tensors[0].axes = Some(axes);
        cases.push(case("A4", format!("{axes} axes"), &file, "BadShape"));
    }
    for axis in 0..4 {
        let mut dims = [2u64; 4];
        dims[axis] = 0;
        cases.push(case("A4", format!("axis {axis} empty"), &new().tensor("a", &dims, 0, vec![]), "BadShape"));
    }
    cases
}

fn types() -> Vec<Case> {
    let mut cases = Vec::new();
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 99, 1 << 31, u32::MAX] {
        cases.push(case(
            "A4",
            format!("tensor type {id}"),
            &new().tensor("a", &[256], id, vec![0; 256]),
            "UnknownType",
        ));
    }
    for (id, block, bytes) in [
        (9, 32, 36),
        (15, 256, 292),
        (16, 256, 66),
        (17, 256, 74),
        (18, 256, 98),
        (19, 256, 50),
        (21, 256, 110),
        (22, 256, 82),
        (29, 256, 56),
        (34, 256, 54),
        (35, 256, 66),
        (40, 64, 36),
    ] {
        let file = new().tensor("a", &[block], id, vec![0; bytes]);
        cases.push(
            case("A4", format!("wanted tensor of type {id}"), &file, "UnsupportedType").probe(Probe::Tensor("a")),
        );
    }
    cases
}

fn alignments(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for alignment in [0, 3, 13, 31, 33, 1 << 21, 1 << 31, u32::MAX] {
        cases.push(case(
            "A5",
            format!("alignment {alignment}"),
            &model::gguf(seed).u32("general.alignment", alignment),
            "BadAlignment",
        ));
    }
    for id in (0..=12).filter(|&id| id != value::U32) {
        let file = model::gguf(seed).key("general.alignment", id, &senseless(id));
        cases.push(case("A5", format!("alignment of type {id}"), &file, "BadAlignment"));
    }
    cases
}

fn offsets(seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let whole = model::gguf(seed);
    let last = whole.tensors.len() - 1;
    let mut moved = |name: &str, index: usize, offset: u64| {
        let mut file = whole.clone();
        file.tensors[index].offset = Some(offset);
        cases.push(case("A6", format!("offset {name}"), &file, "BadOffset"));
    };
    moved("of the last + 1 MiB", last, 1 << 30);
    moved("of two alike", 1, 0);
    moved("of the first not 0", 0, 32);
    moved("unaligned", 1, 12_289);
    moved("2^64 - 1", last, u64::MAX);
    moved("2^63", last, 1 << 63);
    let mut swapped = whole.clone();
    swapped.tensors[0].offset = Some(12_288);
    swapped.tensors[1].offset = Some(0);
    cases.push(case("A6", "offsets swapped", &swapped, "BadOffset"));
    let mut twice = whole.clone();
    twice.tensors[last].name = twice.tensors[0].name.clone();
    cases.push(case("A6", "two tensors of one name", &twice, "DuplicateTensor"));
    let mut random = Random::new(seed);
    let bytes = whole.bytes();
    let data: usize = whole.tensors.iter().map(|tensor| tensor.data.len()).sum();
    for cut in [1, 4096, data as u64 / 2, data as u64].into_iter().chain((0..6).map(|_| random.below(data as u64) + 1))
    {
        let kept = bytes.len() - cut as usize;
        cases.push(Case::file("A12", format!("gguf cut by {cut}"), "m.gguf", bytes[..kept].to_vec(), "Truncated"));
    }
    cases
}

fn metadata() -> Vec<Case> {
    let mut cases = vec![
        case("A8", "no architecture", &Gguf::empty(), "MissingField"),
        case("A8", "empty architecture", &Gguf::new(""), "BadField"),
        case("A8", "architecture that is a path", &Gguf::new("../x"), "BadField"),
        case("A8", "long architecture", &Gguf::new(&"x".repeat(1000)), "BadField"),
        case("A8", "key twice", &new().u32("a", 1).u32("a", 1), "DuplicateField"),
        case("A8", "architecture twice", &new().string("general.architecture", "gpt2"), "DuplicateField"),
        case("A8", "string not UTF-8", &new().key("a", value::STRING, &string(b"\xff\xfe")), "NotUtf8"),
        case("A8", "base that is NaN", &new().f32("llama.rope.freq_base", f32::NAN), "BadField")
            .probe(Probe::Number("rope_theta")),
        case(
            "A8",
            "epsilon that is infinite",
            &new().f32("llama.attention.layer_norm_rms_epsilon", f32::INFINITY),
            "BadField",
        )
        .probe(Probe::Number("rms_norm_eps")),
        case(
            "A8",
            "scaling factor that is a string",
            &new().string("llama.rope.scaling.type", "yarn").string("llama.rope.scaling.factor", "2"),
            "BadField",
        ),
        case(
            "A8",
            "heads for every layer that are strings",
            &new().strings("llama.attention.head_count", &["a"]),
            "BadField",
        ),
    ];
    for id in (0..=12).filter(|&id| id != value::STRING) {
        let file = Gguf::empty().key("general.architecture", id, &senseless(id));
        cases.push(case("A8", format!("architecture of type {id}"), &file, "BadField"));
    }
    for (key, field) in [
        ("llama.block_count", "num_hidden_layers"),
        ("llama.embedding_length", "hidden_size"),
        ("llama.attention.head_count", "num_attention_heads"),
        ("llama.context_length", "max_position_embeddings"),
    ] {
        cases.push(case("A8", format!("{key} missing"), &new(), "MissingField").probe(Probe::Count(field)));
        for id in 0..=12 {
            let file = new().key(key, id, &senseless(id));
            cases.push(case("A8", format!("{key} of type {id}"), &file, "BadField").probe(Probe::Count(field)));
        }
        for (id, bytes) in [(value::U64, u64::MAX), (value::U64, 1 << 50), (value::I64, u64::MAX)] {
            let file = new().key(key, id, &bytes.to_le_bytes());
            cases.push(
                case("A8", format!("{key} of {bytes} as type {id}"), &file, "BadField").probe(Probe::Count(field)),
            );
        }
    }
    cases
}

fn vocabularies() -> Vec<Case> {
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let mut payload = string(b"whole");
    payload.extend(string(b"cut here")[..10].iter());
    let cut = new().array(TOKENS, value::STRING, 2, &payload);
    let mut cases = vec![
        case("A9", "token not UTF-8", &new().array(TOKENS, value::STRING, 1, &string(b"\xc3(")), "NotUtf8"),
        case("A9", "token cut by the file", &Gguf { alignment: 1, ..cut }, "BadLength"),
    ];
    for id in (0..=12).filter(|&id| id != value::ARRAY) {
        cases.push(case("A9", format!("tokens of type {id}"), &new().key(TOKENS, id, &senseless(id)), "BadField"));
    }
    for element in (0..=12).filter(|&id| id != value::STRING) {
        let file = new().array(TOKENS, element, 1, &senseless(element));
        cases.push(case("A9", format!("tokens that are type {element}"), &file, "BadField"));
    }
    for (name, id) in [("negative", -2i64), ("2^32", 1 << 32), ("2^62", 1 << 62)] {
        let file = new().key("tokenizer.ggml.bos_token_id", value::I64, &id.to_le_bytes());
        cases.push(case("A9", format!("start token {name}"), &file, "BadField"));
    }
    cases
}

fn splits(seed: u64) -> Vec<Case> {
    let files = valid::split_files(seed);
    let case = |name: &str, files, expect| {
        Case::folder("A11", format!("gguf {name}"), files, expect).open("m-00001-of-00002.gguf")
    };
    let mut twins = files.clone();
    twins[1].1 = twins[0].1.clone();
    let mut short = files.clone();
    let length = short[1].1.len() - 100;
    short[1].1.truncate(length);
    let plain = vec![("m-00001-of-00002.gguf".to_owned(), model::gguf(seed).bytes()), files[1].clone()];
    let unnamed = vec![("m.gguf".to_owned(), files[0].1.clone())];
    let more = vec![
        ("m-00001-of-00003.gguf".to_owned(), files[0].1.clone()),
        ("m-00002-of-00003.gguf".to_owned(), files[1].1.clone()),
    ];
    vec![
        case("part 2 missing", files[..1].to_vec(), "MissingShard"),
        case("part 1 missing", files[1..].to_vec(), "MissingShard").open("m-00002-of-00002.gguf"),
        case("part 1 twice", twins, "DuplicateTensor|BadSplit"),
        case("part 2 cut", short, "Truncated"),
        case("part that says nothing of parts", plain, "BadSplit|DuplicateTensor"),
        case("part under a plain name", unnamed, "BadSplit").open("m.gguf"),
        case("parts that say 2 and are named 3", more, "BadSplit|MissingShard").open("m-00001-of-00003.gguf"),
        case(
            "part 2 that is a web page",
            vec![files[0].clone(), ("m-00002-of-00002.gguf".into(), b"<html>".to_vec())],
            "HtmlPage",
        ),
    ]
}
