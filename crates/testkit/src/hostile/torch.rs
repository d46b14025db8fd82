//! PyTorch files, classes A17 and A20.

use crate::files::Case;
use crate::files::torch::{Entry, Pickle, View, archive, legacy_file, zip_file};

pub fn cases() -> Vec<Case> {
    let mut cases = globals();
    cases.extend(instructions());
    cases.extend(pickles());
    cases.extend(views());
    cases.extend(archives());
    cases.extend(legacy());
    cases
}

fn four() -> Vec<u8> {
    vec![0; 16]
}

fn file(class: &'static str, name: impl Into<String>, bytes: Vec<u8>, expect: &'static str) -> Case {
    Case::file(class, format!("torch {}", name.into()), "x.bin", bytes, expect)
}

fn pickle(name: impl Into<String>, pickle: Pickle, expect: &'static str) -> Case {
    file("A17", name, zip_file(&pickle.0, &[("0", four())]), expect)
}

/// Calls that a real attack would make, and classes that are no weights.
fn globals() -> Vec<Case> {
    let mut cases = Vec::new();
    for (module, name) in [
        ("os", "system"),
        ("posix", "system"),
        ("nt", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("__builtin__", "eval"),
        ("subprocess", "Popen"),
        ("runpy", "run_module"),
        ("pickle", "loads"),
        ("torch", "load"),
        ("torch.storage", "_load_from_bytes"),
        ("torch.hub", "load"),
        ("torch", "nn"),
        ("collections", "Counter"),
        ("functools", "partial"),
        ("operator", "attrgetter"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("torch.nn.modules.linear", "Linear"),
        ("torch", "QUInt8Storage"),
        ("torch", "ComplexFloatStorage"),
        ("torch._utils", "_rebuild_sparse_tensor"),
        ("torch._utils", "_rebuild_qtensor"),
        ("importlib", "import_module"),
        ("shutil", "rmtree"),
        ("__main__", "Model"),
        ("", ""),
    ] {
        let call = Pickle::new().global(module, name).op(b"(").text("touch marker").op(b"tR.");
        cases.push(pickle(format!("calling {module}.{name}"), call, "UnsafePickle"));
        let stacked = Pickle::new().op(b"(").text(module).text(name).op(b"\x93.");
        cases.push(pickle(format!("naming {module}.{name} from the stack"), stacked, "UnsafePickle"));
    }
    cases
}

/// Every instruction of the language that rebuilding tensors does not need.
fn instructions() -> Vec<Case> {
    let known = b"(.NJKMGUTX)t]}aesuqrhjcQRb";
    (0..=255u8)
        .filter(|code| {
            !known.contains(code)
                && ![0x80, 0x95, 0x88, 0x89, 0x8a, 0x8c, 0x8d, 0x85, 0x86, 0x87, 0x94, 0x93].contains(code)
        })
        .filter(|code| code.is_ascii_graphic() || (0x81..0x99).contains(code) || [0, 0xff].contains(code))
        .map(|code| pickle(format!("instruction {code:#04x}"), Pickle::new().op(&[code, b'\n', b'.']), "UnsafePickle"))
        .collect()
}

fn pickles() -> Vec<Case> {
    let new = Pickle::new;
    let dict = || new().op(b"}");
    let view = View::four("0");
    vec![
        pickle("of nothing", Pickle(Vec::new()), "Truncated"),
        pickle("without an end", new().op(b"}"), "Truncated"),
        pickle("that ends with an empty stack", new().op(b"."), "BadPickle"),
        pickle("that takes too much", new().op(b"R."), "BadPickle"),
        pickle("without a mark", new().op(b"Nt."), "BadPickle"),
        pickle("that takes below a mark", dict().op(b"N(s."), "BadPickle"),
        pickle("that recalls nothing", new().op(b"h\x05."), "BadPickle"),
        pickle("that remembers nothing", new().op(b"q\x05."), "BadPickle"),
        pickle("that appends to a dict", dict().op(b"Na."), "BadPickle"),
        pickle("that sets an item of a list", new().op(b"]NNs."), "BadPickle"),
        pickle("with a key without a value", dict().op(b"(Nu."), "BadPickle"),
        pickle("with a string of 2 GiB", new().op(b"X\xff\xff\xff\x7f."), "BadPickle"),
        pickle("with a string of 2^63", new().op(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."), "BadPickle"),
        pickle("with a string of 20000", new().text(&"x".repeat(20_000)).op(b"."), "BadPickle"),
        pickle("with text not UTF-8", new().op(b"X\x01\0\0\0\xff."), "BadPickle"),
        pickle("with a name without end", new().op(b"c").op(&[b'x'; 1000]), "BadPickle"),
        pickle("nested without end", new().op(b"N").op(&[0x85; 500_000]).op(b"."), "UnsafePickle"),
        pickle("with lists without end", new().op(&b"]".repeat(500_000)).op(b"."), "UnsafePickle"),
        pickle("of two million steps", new().op(&b"N".repeat(2_000_000)).op(b"."), "BadPickle"),
        pickle("that is a list", new().op(b"]."), "UnsafePickle"),
        pickle("that is a tensor", new().tensor(&view).op(b"."), "UnsafePickle"),
        pickle("with a number among its tensors", dict().text("epoch").int(3).op(b"s."), "UnsafePickle"),
        pickle("with a dict inside", dict().text("state_dict").op(b"}s."), "UnsafePickle"),
        pickle("with a name that is a number", dict().int(1).tensor(&view).op(b"s."), "BadPickle"),
        pickle("with an empty name", Pickle(Pickle::state(&[("", view)])), "BadName"),
        pickle("with a name twice", Pickle(Pickle::state(&[("a", view), ("a", view)])), "DuplicateTensor"),
        pickle("that calls a number", new().int(1).op(b")R."), "UnsafePickle"),
        pickle(
            "that calls with too little",
            new().global("torch._utils", "_rebuild_tensor_v2").op(b")R."),
            "UnsafePickle",
        ),
        pickle(
            "that rebuilds from numbers",
            new().global("torch._utils", "_rebuild_tensor").op(b"(NNNNtR."),
            "BadPickle",
        ),
        pickle("that builds a list", new().op(b"]}b."), "UnsafePickle"),
        pickle("that builds from a tuple", dict().op(b")b."), "UnsafePickle"),
        pickle("with a storage that is none", new().op(b"NQ."), "BadPickle"),
        pickle("with a storage of another kind", new().op(b"(").text("module").op(b"NNNNtQ."), "BadPickle"),
        pickle("with a storage without a key", new().storage("FloatStorage", "", 4).op(b"."), "BadPickle"),
        pickle(
            "with a storage of functions",
            new().op(b"(").text("storage").global("collections", "OrderedDict").text("0").text("cpu").int(4).op(b"tQ."),
            "BadPickle",
        ),
    ]
}

fn views() -> Vec<Case> {
    let case =
        |name: &str, view: View, expect| pickle(format!("view {name}"), Pickle(Pickle::state(&[("a", view)])), expect);
    let four = View::four("0");
    vec![
        case("with an offset beyond", View { offset: 1, ..four }, "BadShape"),
        case("with an offset of 2^62", View { offset: 1 << 62, ..four }, "BadShape"),
        case("with a negative offset", View { offset: -1, ..four }, "BadPickle"),
        case("of five of four", View { shape: &[5], ..four }, "SizeMismatch"),
        case("with a negative axis", View { shape: &[-4], ..four }, "BadPickle"),
        case("with a stride of 2", View { strides: &[2], ..four }, "BadShape"),
        case("with a negative stride", View { strides: &[-1], ..four }, "BadPickle"),
        case("with a stride of 2^62", View { shape: &[2, 2], strides: &[1 << 62, 1], ..four }, "BadShape"),
        case("with strides beyond 64 bits", View { shape: &[4], strides: &[i64::MAX], ..four }, "BadShape"),
        case("with a stride too few", View { shape: &[2, 2], strides: &[2], ..four }, "BadShape"),
        case("with a stride too many", View { shape: &[4], strides: &[4, 1], ..four }, "BadShape"),
        case("repeated 2^40 times", View { shape: &[1 << 40], strides: &[0], ..four }, "SizeMismatch"),
        case(
            "with a product beyond 64 bits",
            View { shape: &[1 << 40, 1 << 40], strides: &[0, 0], ..four },
            "BadShape",
        ),
        case("of seventeen axes", View { shape: &[1; 17], strides: &[1; 17], ..four }, "BadShape"),
        case("of an absent storage", View { key: "9", ..four }, "BadArchive"),
        case("of a storage named like a path", View { key: "../version", ..four }, "BadArchive"),
        case("of doubles over floats", View { class: "DoubleStorage", ..four }, "SizeMismatch"),
    ]
}

fn archives() -> Vec<Case> {
    let state = Pickle::state(&[("a", View::four("0"))]);
    let whole = || vec![Entry::new("m/data.pkl", &state), Entry::new("m/data/0", &four())];
    let zip =
        |name: &str, entries: Vec<Entry>, expect| file("A20", format!("archive {name}"), archive(&entries), expect);
    let changed = |name: &str, index: usize, change: &dyn Fn(&mut Entry)| {
        let mut entries = whole();
        change(&mut entries[index]);
        zip(name, entries, "BadArchive")
    };
    let twice = |name: &str| {
        let mut entries = whole();
        entries.push(Entry::new(name, b"x"));
        entries
    };
    let good = archive(&whole());
    let edit = |name: &str, at: usize, bytes: &[u8], expect| {
        let mut edited = good.clone();
        let start = edited.len() - 22 + at;
        edited[start..start + bytes.len()].copy_from_slice(bytes);
        file("A20", format!("archive {name}"), edited, expect)
    };
    let mut cases = vec![
        zip("of nothing", Vec::new(), "BadArchive|BadMagic"),
        zip("without a pickle", vec![Entry::new("m/data/0", &four())], "BadArchive"),
        zip("with two pickles", twice("n/data.pkl"), "BadArchive"),
        zip("with an entry twice", twice("m/data/0"), "BadArchive"),
        zip(
            "of big-endian numbers",
            {
                let mut e = whole();
                e.push(Entry::new("m/byteorder", b"big"));
                e
            },
            "BadArchive",
        ),
        zip("without its storage", whole()[..1].to_vec(), "BadArchive"),
        changed("with a deflated pickle", 0, &|entry| entry.method = 8),
        changed("with a deflated storage", 1, &|entry| entry.method = 8),
        changed("with a storage said to be 4 GiB", 1, &|entry| entry.length = Some(u32::MAX - 1)),
        changed("with a storage of two sizes", 1, &|entry| entry.length = Some(17)),
        changed("with an encrypted storage", 1, &|entry| entry.flags = 1),
        edit("of 65534 entries", 10, &65_534u16.to_le_bytes(), "BadArchive"),
        edit("with a directory of 4 GiB", 12, &(u32::MAX - 1).to_le_bytes(), "BadArchive"),
        edit("with a directory beyond", 16, &(u32::MAX - 1).to_le_bytes(), "BadArchive"),
        edit("with a directory at 0", 16, &[0; 4], "BadArchive"),
        edit("with all fields full", 10, &[0xff; 10], "BadArchive"),
        edit("with a comment that is absent", 20, &[9, 0], "BadArchive"),
        zip("with a name that is a path", vec![Entry::new("../data.pkl", &state)], "BadArchive"),
    ];
    for kept in [4, 30, 100, good.len() / 2, good.len() - 1] {
        cases.push(file("A12", format!("archive cut to {kept}"), good[..kept].to_vec(), "BadArchive"));
    }
    cases
}

fn legacy() -> Vec<Case> {
    let state = Pickle::state(&[("a", View::four("0"))]);
    let good = legacy_file(&state, true, &[("0", 4, four())]);
    let case = |name: &str, bytes, expect| file("A17", format!("of old {name}"), bytes, expect);
    let mut longer = good.clone();
    longer.push(0);
    let system = Pickle::new().global("os", "system").op(b"(").text("touch marker").op(b"tR.").0;
    let mut tar = b"./0000755".to_vec();
    tar.resize(1024, 0);
    vec![
        case("with big-endian numbers", legacy_file(&state, false, &[("0", 4, four())]), "BadPickle"),
        case("that calls os.system", legacy_file(&system, true, &[]), "UnsafePickle"),
        case("with a storage more", legacy_file(&state, true, &[("0", 4, four()), ("1", 4, four())]), "BadArchive"),
        case("with a storage twice", legacy_file(&state, true, &[("0", 4, four()), ("0", 4, four())]), "BadArchive"),
        case("without its storage", legacy_file(&state, true, &[]), "BadArchive"),
        case("with a storage of 2^61", legacy_file(&state, true, &[("0", 1 << 61, four())]), "Truncated|BadArchive"),
        case("with a storage of 2^64 - 1", legacy_file(&state, true, &[("0", u64::MAX, four())]), "BadArchive"),
        case("with a storage of 3", legacy_file(&state, true, &[("0", 3, vec![0; 12])]), "SizeMismatch"),
        case("with bytes after the end", longer, "TrailingBytes"),
        case("cut by 1", good[..good.len() - 1].to_vec(), "Truncated"),
        case("cut in the pickle", good[..60].to_vec(), "Truncated"),
        case("as a tar archive", tar, "BadMagic"),
    ]
}
