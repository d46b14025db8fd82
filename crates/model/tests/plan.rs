//! Plans against what is really allocated: weights, keys and values, and the peak of reading a prompt.

use attend_format::Config;
use attend_kernels::{Compute, DType, Matrix, quantize};
use attend_model::cost::{AsStored, Planner, Uniform, Usage, WeightTypes};
use attend_model::{LoadOptions, load, spec_file};
use attend_nn::names::Required;
use attend_nn::spec::{Body, Head, ModelSpec, StackKind};
use attend_nn::{Batch, KvTypes, Model, Nobody, RunOptions, Sequence, WeightSource};
use attend_testkit::memory::{PeakAlloc, alone, peak_of};
use std::convert::Infallible;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Weights of any values in the types of a plan.
struct Any<'a>(&'a dyn WeightTypes);

impl WeightSource for Any<'_> {
    type Error = Infallible;

    fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Infallible> {
        let (dtype, compute) = self.0.of(&Required { name: name.into(), shape: vec![rows, cols] });
        let mut builder = Matrix::builder(rows, cols, dtype, compute).unwrap();
        let values: Vec<f32> = (0..cols).map(|i| ((i * 7 + rows) % 23) as f32 / 230.0 - 0.05).collect();
        let mut row = vec![0; dtype.bytes(cols).unwrap()];
        quantize(dtype, &values, &mut row).unwrap();
        for _ in 0..rows {
            builder.push(&row).unwrap();
        }
        Ok(builder.finish().unwrap())
    }

    fn vector(&mut self, _: &str, shape: &[usize]) -> Result<Vec<f32>, Infallible> {
        Ok(vec![0.5; shape.iter().product()])
    }
}

/// Llama, grouped heads.
const LLAMA: &str = r#"
context = 2048
[decoder]
width = 512
embed = { vocab = 1000 }
final_norm = "rms"
[[decoder.layers]]
repeat = 3
norm = "rms"
attention = { heads = 8, kv_heads = 2, position = "rope" }
ffn = { gated = { hidden = 1408, activation = "silu" } }
[head]
lm = {}
"#;

/// GPT-2: learned positions, biases, a tied head.
const GPT2: &str = r#"
context = 1024
[decoder]
width = 384
embed = { vocab = 1003, positions = { learned = { rows = 1024 } } }
final_norm = "layer"
[[decoder.layers]]
repeat = 2
norm = "layer"
attention = { heads = 6, bias = true }
ffn = { mlp = { hidden = 1536, activation = "gelu_tanh", bias = true } }
[head]
lm = { tied = true }
"#;

/// PaLM: parallel branches, one head of keys and values.
const PALM: &str = r#"
context = 2048
[decoder]
width = 512
embed = { vocab = 1024 }
final_norm = { layer = { bias = false } }
[[decoder.layers]]
repeat = 2
wiring = { parallel = { shared_norm = true } }
norm = { layer = { bias = false } }
attention = { heads = 8, kv_heads = 1, head_dim = 64, position = "rope" }
ffn = { gated = { hidden = 2048, activation = "silu" } }
[head]
lm = { tied = true }
"#;

/// BLOOM: ALiBi, a norm after the embedding.
const BLOOM: &str = r#"
[decoder]
width = 512
embed = { vocab = 1500, norm = "layer" }
final_norm = "layer"
[[decoder.layers]]
repeat = 2
norm = "layer"
attention = { heads = 8, bias = true, position = "alibi" }
ffn = { mlp = { hidden = 2048, activation = "gelu_tanh", bias = true } }
[head]
lm = { tied = true }
"#;

/// Falcon with two norms: parallel, groups.
const FALCON: &str = r#"
[decoder]
width = 512
embed = { vocab = 1000 }
final_norm = "layer"
[[decoder.layers]]
repeat = 2
wiring = { parallel = { shared_norm = false } }
norm = "layer"
attention = { heads = 16, kv_heads = 4, position = "rope" }
ffn = { mlp = { hidden = 2048, activation = "gelu" } }
[head]
lm = { tied = true }
"#;

/// Gemma 2: norms on both sides, windows in every other layer, caps, a tied scaled table.
const GEMMA: &str = r#"
context = 4096
[decoder]
width = 384
embed = { vocab = 2000, scale = 19.6 }
final_norm = "rms"
[[decoder.layers]]
repeat = 2
[[decoder.layers.layers]]
wiring = "sandwich"
norm = "rms"
attention = { heads = 4, kv_heads = 2, head_dim = 128, position = "rope", soft_cap = 50.0, mask = { window = { left = 255 } } }
ffn = { gated = { hidden = 1152, activation = "gelu_tanh" } }
[[decoder.layers.layers]]
wiring = "sandwich"
norm = "rms"
attention = { heads = 4, kv_heads = 2, head_dim = 128, position = "rope", soft_cap = 50.0 }
ffn = { gated = { hidden = 1152, activation = "gelu_tanh" } }
[head]
lm = { tied = true, soft_cap = 30.0 }
"#;

/// Qwen 3: norms of queries and keys.
const QWEN: &str = r#"
[decoder]
width = 512
embed = { vocab = 1200 }
final_norm = "rms"
[[decoder.layers]]
repeat = 2
norm = "rms"
attention = { heads = 8, kv_heads = 4, head_dim = 128, position = "rope", qk_norm = { norm = "rms" } }
ffn = { gated = { hidden = 1536, activation = "silu" } }
[head]
lm = { tied = true }
"#;

/// BERT with its head for masked words.
const BERT: &str = r#"
context = 512
[encoder]
width = 384
embed = { vocab = 1000, positions = { learned = { rows = 512 } }, token_types = 2, norm = "layer" }
[[encoder.layers]]
repeat = 3
wiring = "post_norm"
norm = "layer"
attention = { heads = 6, bias = true }
ffn = { mlp = { hidden = 1536, activation = "gelu", bias = true } }
[head]
lm = { tied = true, bias = true, transform = { activation = "gelu", norm = "layer" } }
"#;

/// ALBERT: a narrow table, one set of weights for all layers.
const ALBERT: &str = r#"
context = 512
[encoder]
width = 512
embed = { vocab = 3000, width = 128, positions = { learned = { rows = 512 } }, token_types = 2, norm = "layer" }
[[encoder.layers]]
repeat = 4
weights = 0
wiring = "post_norm"
norm = "layer"
attention = { heads = 8, bias = true }
ffn = { mlp = { hidden = 2048, activation = "gelu_tanh", bias = true } }
[head]
token = { labels = 9 }
"#;

/// T5: relative buckets, a shared table, cross-attention.
const T5: &str = r#"
[encoder]
width = 384
embed = { vocab = 1100 }
relative_bias = { heads = 6 }
final_norm = "rms"
[[encoder.layers]]
repeat = 2
norm = "rms"
attention = { heads = 6, position = "stack_bias", scale = 1.0 }
ffn = { mlp = { hidden = 1536, activation = "relu" } }
[decoder]
width = 384
embed = { vocab = 1100, table = "encoder" }
relative_bias = { heads = 6, bidirectional = false }
final_norm = "rms"
[[decoder.layers]]
repeat = 2
norm = "rms"
attention = { heads = 6, position = "stack_bias", scale = 1.0 }
cross = { heads = 6, scale = 1.0 }
ffn = { mlp = { hidden = 1536, activation = "relu" } }
[head]
lm = { tied = true, scale = 0.05 }
"#;

/// The 2017 Transformer.
const TRANSFORMER: &str = r#"
[encoder]
width = 512
embed = { vocab = 1000, scale = 22.6, positions = "sinusoidal" }
[[encoder.layers]]
repeat = 2
wiring = "post_norm"
norm = "layer"
attention = { heads = 8, bias = true }
ffn = { mlp = { hidden = 2048, activation = "relu", bias = true } }
[decoder]
width = 512
embed = { vocab = 1000, scale = 22.6, positions = "sinusoidal", table = "encoder" }
[[decoder.layers]]
repeat = 2
wiring = "post_norm"
norm = "layer"
attention = { heads = 8, bias = true }
cross = { heads = 8, bias = true }
ffn = { mlp = { hidden = 2048, activation = "relu", bias = true } }
[head]
lm = { tied = true }
"#;

fn spec(text: &str) -> ModelSpec {
    let config = Config::parse_toml(Path::new("test.toml"), text).unwrap();
    spec_file::read(&config).unwrap()
}

#[track_caller]
fn close(name: &str, what: &str, predicted: u64, real: u64) {
    let off = predicted as f64 / real.max(1) as f64 - 1.0;
    assert!(off.abs() < 0.02, "{name}: {what}: {predicted} bytes predicted, {real} allocated ({:+.2}%)", 100.0 * off);
}

/// Reads a text as the engine does and compares each part of the plan.
fn check(name: &str, spec: &ModelSpec, types: &dyn WeightTypes, model: &Model, usage: &Usage) {
    let plan = Planner::new(spec, types).plan(usage);
    assert_eq!(plan.weight_bytes, model.weight_bytes() as u64, "{name}: bytes of weights");
    let vocab = spec.stacks().iter().map(|(_, _, stack)| stack.embed.vocab).min().unwrap_or(1).min(900) as u32;
    let ids: Vec<u32> = (0..usage.context as u32).map(|i| i % vocab).collect();
    let source: Vec<u32> = (0..usage.source as u32).map(|i| i % vocab).collect();
    // A thread of its own, whose buffers for attention are made anew.
    let measure = || peak_of(|| read(spec, model, usage, &ids, &source));
    let (held, peak) = std::thread::scope(|scope| scope.spawn(measure).join().unwrap());
    assert_eq!(plan.kv_held_bytes, held, "{name}: bytes of keys and values");
    close(name, "cache and activations", plan.kv_held_bytes + plan.activation_bytes, peak);
    close(name, "activations", plan.activation_bytes, peak - held);
}

/// The bytes of the cache in the last step of reading `ids` in steps and taking the head's rows.
fn read(spec: &ModelSpec, model: &Model, usage: &Usage, ids: &[u32], source: &[u32]) -> u64 {
    let options = RunOptions::default();
    match &spec.body {
        Body::Encoder(_) => {
            let mut batch = Batch::one(Sequence::new(ids));
            let hidden = model.forward(StackKind::Encoder, &mut batch, &options, &mut Nobody).unwrap();
            if spec.head != Head::None {
                model.logits(&hidden, &mut Nobody).unwrap();
            }
            0
        }
        Body::Decoder(_) | Body::EncoderDecoder { .. } => {
            let two = matches!(spec.body, Body::EncoderDecoder { .. });
            let memory = two.then(|| model.encode(&[source], usage.kv, &options).unwrap().remove(0));
            let mut cache = model.cache(usage.kv).unwrap();
            let (mut last, mut held) = (Vec::new(), 0);
            // The plan is of the largest step there may be, a whole chunk at the end of the context: what is over comes first.
            let (over, whole) = ids.split_at(ids.len() % usage.batch);
            for chunk in [over].into_iter().filter(|over| !over.is_empty()).chain(whole.chunks(usage.batch)) {
                let sequence = Sequence { memory: memory.as_ref(), ..Sequence::cached(chunk, &mut cache) };
                let mut batch = Batch::one(sequence);
                let hidden = model.forward(StackKind::Decoder, &mut batch, &options, &mut Nobody).unwrap();
                last = hidden[hidden.len() - spec.output_stack().output_width()..].to_vec();
                held = cache.bytes();
                cache.pass();
            }
            model.logits(&last, &mut Nobody).unwrap();
            (held + memory.map_or(0, |memory| memory.bytes())) as u64
        }
    }
}

#[test]
fn plans_hold_against_what_is_allocated() {
    let _alone = alone();
    attend_kernels::choose().unwrap();
    attend_kernels::set_threads(1);
    let cases = [
        ("llama", LLAMA, 512, 256),
        ("gpt2", GPT2, 600, 512),
        ("palm", PALM, 384, 256),
        ("bloom", BLOOM, 512, 256),
        ("falcon", FALCON, 300, 512),
        ("gemma", GEMMA, 512, 256),
        // So long that windows give back blocks, and cut where a chunk lies in one block more than it has to.
        ("gemma, a long text", GEMMA, 1025, 256),
        ("gemma, a long text in odd chunks", GEMMA, 777, 150),
        ("qwen", QWEN, 320, 128),
        ("bert", BERT, 256, 256),
        ("albert", ALBERT, 256, 256),
        ("t5", T5, 256, 256),
        ("transformer", TRANSFORMER, 256, 256),
    ];
    let kinds = [(DType::F32, Compute::F32, DType::F32), (DType::Q8_0, Compute::Native, DType::F16)];
    for (name, text, context, batch) in cases {
        let spec = spec(text);
        for (dtype, compute, kv) in kinds {
            let types = Uniform { dtype, compute };
            let model = Model::assemble(spec.clone(), &mut Any(&types)).unwrap();
            let usage = Usage { context, source: context, requests: 1, batch, kv: KvTypes::both(kv) };
            check(&format!("{name} in {dtype}"), &spec, &types, &model, &usage);
        }
    }
}

/// A long source, whose encoding takes more than the answer: there is no cache yet when it does.
#[test]
fn plans_hold_where_encoding_takes_the_most() {
    let _alone = alone();
    attend_kernels::choose().unwrap();
    attend_kernels::set_threads(1);
    for (name, text) in [("t5", T5), ("transformer", TRANSFORMER)] {
        let spec = spec(text);
        for kv in [DType::F32, DType::F16] {
            let types = Uniform { dtype: DType::F32, compute: Compute::F32 };
            let model = Model::assemble(spec.clone(), &mut Any(&types)).unwrap();
            let usage = Usage { context: 32, source: 900, requests: 1, batch: 1024, kv: KvTypes::both(kv) };
            check(&format!("{name} with a cache of {kv}"), &spec, &types, &model, &usage);
        }
    }
}

/// Weights in memory grow by what the plan says.
#[test]
fn weights_take_what_is_planned() {
    let _alone = alone();
    for (name, text) in [("llama", LLAMA), ("bert", BERT), ("t5", T5)] {
        let spec = spec(text);
        for dtype in [DType::F32, DType::BF16, DType::Q4_K, DType::Q8_0] {
            let types = Uniform { dtype, compute: Compute::Native };
            let before = PeakAlloc.current_usage();
            let model = Model::assemble(spec.clone(), &mut Any(&types)).unwrap();
            let real = (PeakAlloc.current_usage() - before) as u64;
            close(
                &format!("{name} in {dtype}"),
                "weights",
                Planner::new(&spec, &types).plan(&usage()).weight_bytes,
                real,
            );
            drop(model);
        }
    }
}

fn usage() -> Usage {
    Usage { context: 128, source: 128, requests: 1, batch: 128, kv: KvTypes::both(DType::F16) }
}

/// Real models, where they are there: from the files through the loader.
#[test]
fn plans_hold_for_real_models() {
    let Some(folder) = std::env::var_os("ATTEND_TEST_MODELS") else {
        eprintln!("skipped: ATTEND_TEST_MODELS is not set");
        return;
    };
    let _alone = alone();
    attend_kernels::set_threads(1);
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let small = |path: &Path| attend_model::describe(path).is_ok_and(|found| found.weight_bytes() < 600 << 20);
        if !small(&path) {
            continue;
        }
        let loaded = load(&path, &LoadOptions::default(), &mut |_, _| ()).unwrap();
        let types: AsStored = loaded.source.kept(&LoadOptions::default());
        let context = loaded.source.spec.context.unwrap_or(256).min(256);
        let usage = Usage { context, source: context, ..usage() };
        if !matches!(loaded.source.spec.head, Head::Sequence { .. }) {
            check(&path.display().to_string(), &loaded.source.spec, &types, &loaded.model, &usage);
        }
    }
}
