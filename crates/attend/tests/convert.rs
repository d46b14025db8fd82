//! Models from one kind of file to the other and back, and quantised: the same weights, the same description, the same
//! tokens, the same answers.

mod common;

use attend::convert::{Error, Mix, Plan, Target, is_plain, tensors, types, write};
use attend::format::gguf::{Metadata, TOKENIZER_JSON, Value};
use attend::kernels::{Compute, DType};
use attend::model::{Described, ExportTensor, LoadOptions, Weights, describe, difference, load};
use attend::nn::spec::{Body, Ffn, ModelSpec, StackKind};
use attend::nn::{Batch, Nobody, RunOptions, Sequence, WeightSource};
use attend::text::{EncodeOptions, Tokenizer};
use attend_testkit::golden::{golden_root, read_json};
use common::{attend, ids, ran, tiny};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn written(source: &Described, out: &Path, types: &dyn Fn(&ExportTensor) -> DType) -> Result<Vec<String>, Error> {
    let target = Target::new(out, false, source.checkpoint.path())?;
    let plan = &mut Plan { types, file_type: Some(0), progress: &mut |_, _| true };
    write(source, &target, plan).map(|written| written.notices)
}

/// Every weight by our name, as numbers.
fn weights(source: &Described) -> BTreeMap<String, Vec<f32>> {
    let mut progress = |_: u64, _: u64| {};
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let mut weights = Weights::new(source, &options, &mut progress);
    let read = |mapped: &attend::model::Mapped| {
        (mapped.ours.clone(), weights.vector(&mapped.ours, &mapped.shape).expect("read"))
    };
    source.tensors.iter().map(read).collect()
}

/// What a model computes for some ids; of an encoder-decoder the encoder's part, whose weights come first.
fn computed(path: &Path) -> Vec<f32> {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    let loaded = load(path, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let ids: Vec<u32> = (3..17).collect();
    let stack = loaded.model.spec().stacks()[0].0;
    let mut batch = Batch { sequences: vec![Sequence::new(&ids)], encoded: None };
    let hidden = loaded.model.forward(stack, &mut batch, &RunOptions::default(), &mut Nobody).expect("runs");
    match stack {
        StackKind::Decoder => loaded.model.logits(&hidden, &mut Nobody).unwrap_or(hidden),
        StackKind::Encoder => hidden,
    }
}

/// The golden checkpoints, the folders of adapters and trainings left aside.
fn cases() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(golden_root()).expect("goldens").flatten().map(|entry| entry.path());
    let mut cases: Vec<PathBuf> =
        folders.filter(|path| path.join("case.json").is_file() && path.join("config.json").is_file()).collect();
    cases.sort();
    cases
}

/// The description without its load-balancing loss, which GGUF has no key for and only training reads.
fn unbalanced(spec: &ModelSpec) -> ModelSpec {
    let mut spec = spec.clone();
    let (Body::Encoder(stack) | Body::Decoder(stack) | Body::EncoderDecoder { decoder: stack, .. }) = &mut spec.body;
    for layer in &mut stack.layers {
        if let Ffn::Moe(moe) = &mut layer.ffn {
            moe.router.balance = None;
        }
    }
    spec
}

/// To GGUF in 32 bits and read again, for every golden of an architecture that the format has; then from there to a
/// folder and read again.
#[test]
fn every_golden_comes_back_equal() {
    let (mut there, mut back) = (0, 0);
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(source) = describe(&case) else { continue };
        let scratch = tempfile::tempdir().unwrap();
        let gguf = scratch.path().join("model.gguf");
        match written(&source, &gguf, &|_| DType::F32) {
            Ok(_) => there += 1,
            Err(error) => {
                let text = error.to_string();
                let absent = text.contains("does not have the architecture") || text.contains("no place for this head");
                assert!(absent, "{name}: {text}");
                continue;
            }
        }
        let again = describe(&gguf).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut before = weights(&source);
        let after = weights(&again);
        // The format keeps only the encoder of some.
        before.retain(|weight, _| {
            after.contains_key(weight) || !(weight.starts_with("head") || weight.starts_with("pooler"))
        });
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{name}");
        for (weight, values) in &before {
            assert!(values.iter().zip(&after[weight]).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}: {weight}");
        }
        if before.len() == source.tensors.len() {
            assert_eq!(difference(&unbalanced(&source.spec), &again.spec), None, "{name}");
        }
        let (first, second) = (computed(&case), computed(&gguf));
        let largest = first.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        let worst = first.iter().zip(&second).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(first.len() == second.len() && worst <= 1e-6 * largest, "{name}: {worst} of {largest}");
        assert_eq!(again.generation.eos, source.generation.eos, "{name}");
        assert_eq!(again.generation.to_json(), source.generation.to_json(), "{name}");
        let folder = scratch.path().join("folder");
        written(&again, &folder, &|_| DType::F32).unwrap_or_else(|error| panic!("{name} back: {error}"));
        let third = describe(&folder).unwrap_or_else(|error| panic!("{name} back: {error}"));
        assert_eq!(difference(&again.spec, &third.spec), None, "{name} back");
        assert_eq!(weights(&third), after, "{name} back");
        back += 1;
    }
    assert!(there >= 30 && back == there, "{there} there, {back} back");
}

/// GGUF-09: rows of rotary pairs, with the head counts of grouped queries.
#[test]
fn grouped_queries_keep_their_pairs() {
    let scratch = tempfile::tempdir().unwrap();
    for case in ["llama-gqa", "llama-mqa", "llama-mha"] {
        let source = golden_root().join(case);
        let gguf = scratch.path().join(format!("{case}.gguf"));
        written(&describe(&source).unwrap(), &gguf, &|_| DType::F32).unwrap();
        let (a, b) = (computed(&source), computed(&gguf));
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-5), "{case}");
    }
}

fn encode(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Vec<u32> {
    let options = EncodeOptions { add_special, parse_special: true };
    tokenizer.encode(text, options).map(|encoding| encoding.ids).unwrap_or_default()
}

/// The tokenizers of the golden set, through GGUF and back to a folder.
#[test]
fn tokenizers_come_back_equal() {
    let folder = golden_root().join("tokenizers");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let golden = read_json(&folder.join(format!("{name}.json")));
        let first = Tokenizer::open(&entry).unwrap();
        let exported = attend::text::to_gguf(&entry, first.vocab_size()).unwrap().unwrap();
        let metadata = Metadata::of(Path::new("m.gguf"), exported.metadata.iter().cloned());
        let second = Tokenizer::from_gguf(&metadata).unwrap();
        let files = attend::text::to_folder(&metadata, Some(64)).unwrap().unwrap().files;
        let scratch = tempfile::tempdir().unwrap();
        for (file, text) in &files {
            std::fs::write(scratch.path().join(file), text).unwrap();
        }
        let third = Tokenizer::open(scratch.path()).unwrap();
        for string in golden["strings"].as_array().unwrap() {
            let text = string["text"].as_str().unwrap();
            let (plain, whole) = (ids(&string["ids_plain"]), ids(&string["ids"]));
            for tokenizer in [&second, &third] {
                assert_eq!(encode(tokenizer, text, false), plain, "{name}: {text:?}");
                assert_eq!(encode(tokenizer, text, true), whole, "{name}: {text:?}");
            }
        }
        assert_eq!((second.bos(), second.eos(), second.unk()), (first.bos(), first.eos(), first.unk()), "{name}");
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}

/// Texts that a vocabulary alone cuts otherwise, by the reason. All others of the golden set are cut as they should be.
const LIMITS: [(&str, &[&[&str]]); 4] = [
    ("gpt2-like", &[]),
    // NFC: this kind of vocabulary has no normaliser in the format, so that decomposed characters stay so.
    ("llama3-like", &[DECOMPOSED]),
    ("llama2-like", &[]),
    (
        "t5-like",
        &[
            // NFKC, which the tokenizer has as a step of its own and not as the map of characters that the format keeps.
            DECOMPOSED,
            &[
                "don’t “quote” — dash…",
                "a\u{a0}b\u{2009}c\u{3000}d",
                "\u{fb01}ne \u{fb02}ag \u{2460} \u{bd} \u{2122}",
                "你好，世界！",
                "\u{1d4d7}\u{1d4ee}\u{1d4f5}\u{1d4f5}\u{1d4f8}",
                "1st 2nd 3rd \u{b2}\u{b3} \u{2167} \u{663}\u{664}",
            ],
            // Runs of spaces become one here, and one at the end stays; in the format both have one flag.
            &[" ", "  ", "Hello world ", "trailing   "],
            // No space is put in front of a text that begins with one under its other spelling; in the format one is.
            &["▁under▁score _x_ __init__"],
            // Eight pieces of sixteen letters and two of one, in any order: the sums are equal, and which is the largest is a
            // matter of rounding, of scores with 64 bits there and with 32 in the format.
            &[REPEATED],
        ],
    ),
];

const REPEATED: &str = concat!(
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
);

const DECOMPOSED: &[&str] =
    &["caf\u{e9} cafe\u{301} na\u{ef}ve", "\u{c5}ngstr\u{f6}m \u{212b}", "a\u{300}\u{301}\u{302}\u{303}b"];

/// The vocabulary alone, as other programs read it, and the tokenizer.json that is made of it, which says all of it.
#[test]
fn vocabularies_say_the_tokenizer_where_the_format_can() {
    for (name, limits) in LIMITS {
        let folder = golden_root().join("tokenizers").join(name);
        let golden = read_json(&golden_root().join("tokenizers").join(format!("{name}.json")));
        let rows = Tokenizer::open(&folder).unwrap().vocab_size();
        let mut keys = attend::text::to_gguf(&folder, rows).unwrap().unwrap().metadata;
        keys.retain(|(key, _)| key != TOKENIZER_JSON);
        let metadata = Metadata::of(Path::new("m.gguf"), keys);
        let alone = Tokenizer::from_gguf(&metadata).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        for (file, text) in &attend::text::to_folder(&metadata, None).unwrap().unwrap().files {
            std::fs::write(scratch.path().join(file), text).unwrap();
        }
        let made = Tokenizer::open(scratch.path()).unwrap();
        let mut differing = BTreeSet::new();
        for string in golden["strings"].as_array().unwrap() {
            let text = string["text"].as_str().unwrap();
            let found = encode(&alone, text, false);
            if found != ids(&string["ids_plain"]) {
                differing.insert(text);
            }
            for special in [false, true] {
                assert_eq!(encode(&made, text, special), encode(&alone, text, special), "{name}: {text:?}");
            }
            let spelled = |tokenizer: &Tokenizer| tokenizer.decode(&found, false);
            assert_eq!(spelled(&made), spelled(&alone), "{name}: {text:?}");
        }
        let expected: BTreeSet<&str> = limits.iter().copied().flatten().copied().collect();
        assert_eq!(differing, expected, "{name}");
    }
}

/// A decoder of width 256, so that every type has whole blocks, with a few hundred thousand weights.
fn wide(folder: &Path) -> PathBuf {
    use attend::format::{TensorSpec, safetensors};
    let (width, hidden, vocab) = (256usize, 512usize, 96usize);
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": hidden, "num_hidden_layers": 2, "vocab_size": vocab,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
    });
    let mut specs = Vec::new();
    let mut add =
        |name: String, shape: &[usize]| specs.push(TensorSpec { name, dtype: DType::F32, shape: shape.into() });
    add("model.embed_tokens.weight".into(), &[vocab, width]);
    for layer in 0..2 {
        for (part, rows, cols) in [
            ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", width / 2, width),
            ("self_attn.v_proj", width / 2, width),
            ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", hidden, width),
            ("mlp.up_proj", hidden, width),
            ("mlp.down_proj", width, hidden),
        ] {
            add(format!("model.layers.{layer}.{part}.weight"), &[rows, cols]);
        }
        add(format!("model.layers.{layer}.input_layernorm.weight"), &[width]);
        add(format!("model.layers.{layer}.post_attention_layernorm.weight"), &[width]);
    }
    add("model.norm.weight".into(), &[width]);
    add("lm_head.weight".into(), &[vocab, width]);
    let path = folder.join("wide");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("config.json"), config.to_string()).unwrap();
    let mut state = 1u64;
    let mut next = move || {
        // Xorshift; the sum of four uniform numbers is nearly normal.
        (0..4)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
            })
            .sum::<f32>()
    };
    safetensors::write(&path.join("model.safetensors"), &specs, &BTreeMap::new(), &mut |index, out| {
        let spec = &specs[index];
        let scale = if spec.shape.len() < 2 { 0.1 } else { 1.0 / (spec.shape[1] as f32).sqrt() };
        let base = if spec.shape.len() < 2 { 1.0 } else { 0.0 };
        for _ in 0..spec.shape.iter().product::<usize>() {
            out.write_all(&(base + scale * next()).to_le_bytes())?;
        }
        Ok(())
    })
    .unwrap();
    path
}

/// Every type and mix: written from a folder and from a GGUF file with the same bytes, read, and as near to the original
/// as the type's bits allow.
#[test]
fn every_type_is_written_and_read() {
    let scratch = tempfile::tempdir().unwrap();
    let source = describe(&wide(scratch.path())).unwrap();
    let plain = scratch.path().join("f32.gguf");
    written(&source, &plain, &|_| DType::F32).unwrap();
    let first = computed(&plain);
    let power: f64 = first.iter().map(|x| f64::from(*x).powi(2)).sum();
    let gguf = describe(&plain).unwrap();
    let mut wrong = Vec::new();
    // Errors add up over two layers of random weights; a type that is read wrongly is off by 1 and more.
    for (mix, most) in [
        (Mix::F32, 1e-6),
        (Mix::Bf16, 0.02),
        (Mix::F16, 0.002),
        (Mix::Q8_0, 0.03),
        (Mix::Q6K, 0.07),
        (Mix::Q5_1, 0.12),
        (Mix::Q5_0, 0.13),
        (Mix::Q5KM, 0.12),
        (Mix::Q5KS, 0.12),
        (Mix::Q4_1, 0.22),
        (Mix::Q4_0, 0.25),
        (Mix::Q4KM, 0.22),
        (Mix::Q4KS, 0.22),
        (Mix::Iq4Nl, 0.22),
        (Mix::Iq4Xs, 0.22),
        (Mix::Mxfp4, 0.35),
        (Mix::Q3KL, 0.4),
        (Mix::Q3KM, 0.4),
        (Mix::Q3KS, 0.45),
        (Mix::Q2K, 0.7),
    ] {
        let mut files = Vec::new();
        for (from, source) in [("folder", &source), ("gguf", &gguf)] {
            let out = scratch.path().join(format!("{mix:?}-{from}.gguf"));
            let target = Target::new(&out, false, source.checkpoint.path()).unwrap();
            let chosen = types(&tensors(source, &target).unwrap(), mix, &[], false);
            assert_eq!(chosen.notices, Vec::<String>::new(), "{mix:?}");
            let of = |tensor: &ExportTensor| chosen.by_name[&tensor.name];
            written(source, &out, &of).unwrap();
            files.push(out);
        }
        let second = computed(&files[0]);
        assert_eq!(second, computed(&files[1]), "{mix:?}: from a folder and from a GGUF file");
        let error: f64 = first.iter().zip(&second).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let error = (error / power).sqrt();
        if error > most {
            wrong.push(format!("{mix:?}: {error} of {most}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// QNT-03: a model whose rows fill no blocks of 256 is quantised to what it can be, and runs.
#[test]
fn a_small_model_is_quantised_and_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let model = tiny(scratch.path(), "llama-gqa", json!({}));
    let out = scratch.path().join("q.gguf");
    let models = tempfile::tempdir().unwrap();
    let model = model.to_str().unwrap();
    let said = ran(attend(models.path()).args(["quantize", "-m", model, out.to_str().unwrap(), "--type", "q4_k_m"]));
    said.text();
    assert!(said.err.contains("in place of q4_k"), "{said:?}");
    let run = ran(attend(models.path()).args([
        "run",
        "-m",
        out.to_str().unwrap(),
        "t5 t6 t7",
        "--max-tokens",
        "20",
        "--temperature",
        "0",
    ]));
    assert_eq!(run.code, Some(0), "{run:?}");
    let eight = scratch.path().join("q8.gguf");
    ran(attend(models.path()).args(["quantize", "-m", model, eight.to_str().unwrap(), "--type", "q8_0"])).text();
    let text = common::words(&(3..60).collect::<Vec<_>>());
    let compared = ran(attend(models.path()).args([
        "perplexity",
        "-m",
        eight.to_str().unwrap(),
        &text,
        "--reference",
        model,
        "--window",
        "16",
        "--json",
    ]))
    .json();
    let number = |key: &str| compared[key].as_f64().unwrap();
    assert!((number("perplexity_ratio") - 1.0).abs() < 0.01, "{compared}");
    assert!((0.9..=1.0).contains(&number("same_top")), "{compared}");
    let kl = &compared["kl_divergence"];
    assert!(kl["mean"].as_f64().unwrap() < 0.01 && kl["max"].as_f64() >= kl["p99"].as_f64(), "{compared}");
}

/// A model beside itself differs in nothing.
#[test]
fn a_model_is_its_own_reference() {
    let scratch = tempfile::tempdir().unwrap();
    let model = tiny(scratch.path(), "llama-gqa", json!({}));
    let models = tempfile::tempdir().unwrap();
    let file = scratch.path().join("text");
    std::fs::write(&file, common::words(&(3..80).collect::<Vec<_>>())).unwrap();
    let model = model.to_str().unwrap();
    let args = ["perplexity", "-m", model, file.to_str().unwrap(), "--window", "32", "--json"];
    let alone = ran(attend(models.path()).args(args)).json();
    let both = ran(attend(models.path()).args(args).args(["--reference", model])).json();
    assert_eq!(both["perplexity"], alone["perplexity"]);
    assert_eq!(both["reference_perplexity"], alone["perplexity"]);
    assert_eq!((both["same_top"].as_f64(), both["kl_divergence"]["max"].as_f64()), (Some(1.0), Some(0.0)));
}

#[test]
fn tensors_can_be_given_types_by_pattern() {
    let scratch = tempfile::tempdir().unwrap();
    let model = wide(scratch.path());
    let models = tempfile::tempdir().unwrap();
    let out = scratch.path().join("o.gguf");
    let args = ["quantize", "-m", model.to_str().unwrap(), out.to_str().unwrap(), "--type", "q4_0"];
    let given = ["--tensor", r"blk\.1\..*attn_v=q8_0", "--tensor", "attn_v=f16", "--force"];
    ran(attend(models.path()).args(args).args(given)).text();
    let checkpoint = describe(&out).unwrap().checkpoint;
    let dtype = |name: &str| checkpoint.tensor(name).unwrap().dtype;
    assert_eq!(dtype("blk.1.attn_v.weight"), DType::Q8_0);
    assert_eq!(dtype("blk.0.attn_v.weight"), DType::F16);
    assert_eq!(dtype("blk.0.attn_q.weight"), DType::Q4_0);
    assert_eq!(dtype("output.weight"), DType::Q6_K);
    assert_eq!(dtype("blk.0.attn_norm.weight"), DType::F32);
    assert!(checkpoint.gguf().unwrap().u64("general.file_type").unwrap() == Some(2));
    let idle = ran(attend(models.path()).args(args).args(["--force", "--tensor", "nothing=q8_0"]));
    assert!(idle.error(2).contains("nothing"), "{idle:?}");
}

#[test]
fn what_cannot_be_written_is_said_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let model = tiny(scratch.path(), "llama-gqa", json!({}));
    let models = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_string();
    let run = |args: &[&str]| ran(attend(models.path()).args(args));
    let (model, out) = (model.to_str().unwrap(), path("m.gguf"));
    run(&["convert", "-m", model, &out]).text();
    let size = std::fs::metadata(&out).unwrap().len();
    assert!(run(&["convert", "-m", model, &out]).error(1).contains("--force"));
    run(&["convert", "-m", model, &out, "--force"]).text();
    assert_eq!(std::fs::metadata(&out).unwrap().len(), size);
    assert!(run(&["convert", "-m", &out, &out, "--force"]).error(1).contains("is the model that is read"));
    assert!(run(&["convert", "-m", model, &path("folder")]).error(1).contains("ends in .gguf"));
    assert!(run(&["convert", "-m", model, &path("no/such/m.gguf")]).error(1).contains("find the folder"));
    assert!(run(&["quantize", "-m", model, &path("q")]).error(2).contains(".gguf"));
    run(&["quantize", "-m", model, &path("q.gguf"), "--type", "q9"]).error(2);
    run(&["quantize", "-m", model, &path("q.gguf"), "--tensor", "(=q8_0"]).error(2);
    assert!(run(&["quantize", "-m", model, &path("q.gguf"), "--tensor", "x=q7"]).error(2).contains("known are"));
    let other = golden_root().join("gpt_neo");
    assert!(run(&["convert", "-m", other.to_str().unwrap(), &path("h.gguf")]).error(1).contains("architecture"));
    // Nothing is left of what failed.
    let mut left: Vec<String> =
        std::fs::read_dir(scratch.path()).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["llama-gqa", "m.gguf"]);
}

/// A value beyond the type is an error and no infinity.
#[test]
fn what_does_not_fit_a_type_is_an_error() {
    use attend::format::gguf;
    let scratch = tempfile::tempdir().unwrap();
    let source = describe(&wide(scratch.path())).unwrap();
    let (plain, big) = (scratch.path().join("a.gguf"), scratch.path().join("b.gguf"));
    written(&source, &plain, &|_| DType::F32).unwrap();
    let read = describe(&plain).unwrap().checkpoint;
    let keys: Vec<(String, Value)> =
        read.gguf().unwrap().iter().map(|(key, value)| (key.into(), value.clone())).collect();
    let specs: Vec<attend::format::TensorSpec> = read
        .tensors()
        .values()
        .map(|info| attend::format::TensorSpec {
            name: info.name.clone(),
            dtype: info.dtype,
            shape: info.shape.clone(),
        })
        .collect();
    gguf::write(&big, &keys, &specs, &mut |index, out| {
        let mut bytes = vec![0; read.tensors()[&specs[index].name].bytes as usize];
        read.read_at(&specs[index].name, 0, &mut bytes)?;
        if specs[index].name == "blk.0.ffn_up.weight" {
            bytes[..4].copy_from_slice(&1e6f32.to_le_bytes());
        }
        Ok(out.write_all(&bytes)?)
    })
    .unwrap();
    let source = describe(&big).unwrap();
    let of = |tensor: &ExportTensor| if is_plain(tensor) { DType::F32 } else { DType::F16 };
    let error = written(&source, &scratch.path().join("c.gguf"), &of).unwrap_err().to_string();
    assert!(error.contains("blk.0.ffn_up.weight") && error.contains("does not fit"), "{error}");
    assert!(!scratch.path().join("c.gguf").exists());
}
