//! Flash against the textbook on every instruction set, its bits under every way of cutting the work, and the gradient
//! against central differences.

mod work;

use super::flash::flash_on;
use super::*;
use crate::{DType, Isa, available, dequantize, quantize};
use attend_testkit::golden::{Random, assert_close, assert_same_bits};

/// Buckets of a gathered bias.
const BUCKETS: usize = 7;

/// An attention with its own data; keys and values are float32, `[S, kv_heads * dim]`.
#[derive(Clone)]
struct Problem {
    shape: Heads,
    first_query: usize,
    keys: usize,
    mask: Mask,
    soft_cap: Option<f32>,
    bias_scaled: bool,
    bias: OwnBias,
    sinks: Option<Vec<f32>>,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
}

#[derive(Clone)]
enum OwnBias {
    None,
    Key(Vec<f32>),
    Distance(Vec<f32>),
    Full(Vec<f32>),
    /// Tables of seven buckets by query and by key, and the bucket of each distance.
    Gathered(Vec<f32>, Vec<u32>),
}

impl Problem {
    fn new(random: &mut Random, shape: Heads, rows: usize, keys: usize, mask: Mask) -> Problem {
        Problem {
            shape,
            first_query: keys.saturating_sub(rows),
            keys,
            mask,
            soft_cap: None,
            bias_scaled: false,
            bias: OwnBias::None,
            sinks: None,
            query: random.normals(rows * shape.heads * shape.key_dim),
            key: random.normals(keys * shape.kv_heads * shape.key_dim),
            value: random.normals(keys * shape.kv_heads * shape.value_dim),
        }
    }

    fn rows(&self) -> usize {
        self.query.len() / (self.shape.heads * self.shape.key_dim)
    }

    /// The furthest that a query and a key can lie apart.
    fn reach(&self) -> usize {
        self.keys + self.first_query + self.rows()
    }

    fn set_bias(&mut self, kind: usize, random: &mut Random) {
        let heads = self.shape.heads;
        self.bias = match kind {
            0 => OwnBias::None,
            1 => OwnBias::Key(random.normals(heads * self.keys)),
            2 => OwnBias::Distance(random.normals(heads * 2 * self.reach())),
            4 => {
                let index = (0..2 * self.reach()).map(|_| random.below(BUCKETS) as u32).collect();
                OwnBias::Gathered(random.normals(heads * (self.rows() + self.keys) * BUCKETS), index)
            }
            _ => {
                let mut values = random.normals(heads * self.rows() * self.keys);
                // Some keys forbidden, as padding does.
                values.iter_mut().filter(|_| random.below(5) == 0).for_each(|x| *x = f32::NEG_INFINITY);
                OwnBias::Full(values)
            }
        };
    }

    fn scores(&self) -> Scores<'_> {
        Scores {
            scale: (self.shape.key_dim as f32).powf(-0.5),
            soft_cap: self.soft_cap,
            bias: match &self.bias {
                OwnBias::None => Bias::None,
                OwnBias::Key(values) => Bias::Key { values, keys: self.keys },
                OwnBias::Distance(values) => Bias::Distance { values, span: 2 * self.reach(), zero: self.reach() },
                OwnBias::Full(values) => Bias::Full { values, queries: self.rows(), keys: self.keys },
                OwnBias::Gathered(values, index) => Bias::Gathered(Gathered {
                    values,
                    by_query: true,
                    by_key: true,
                    heads: self.shape.heads,
                    queries: self.rows(),
                    keys: self.keys,
                    buckets: BUCKETS,
                    index,
                    zero: self.reach(),
                }),
            },
            bias_scaled: self.bias_scaled,
            mask: self.mask,
            sinks: self.sinks.as_deref(),
        }
    }

    fn out_len(&self) -> usize {
        self.rows() * self.shape.heads * self.shape.value_dim
    }

    fn textbook(&self, kv: &KvBlocks) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.out_len()];
        textbook(&mut self.call(kv.clone(), &mut out), None, None);
        out
    }

    fn flash(&self, isa: Isa, kv: &KvBlocks) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.out_len()];
        flash_on(isa, &mut [self.call(kv.clone(), &mut out)]);
        out
    }

    fn call<'a>(&'a self, kv: KvBlocks<'a>, out: &'a mut [f32]) -> Call<'a> {
        let (shape, query, first_query) = (self.shape, &self.query, self.first_query);
        Call { shape, query, first_query, kv, scores: self.scores(), out }
    }

    fn store(&self, types: (DType, DType), layout: KvLayout, block_tokens: usize) -> Store {
        Store::new(self, types, layout, block_tokens)
    }
}

/// Keys and values as a cache would hold them, every unwritten byte a part of a NaN, at odd addresses.
struct Store {
    types: (DType, DType),
    layout: KvLayout,
    block_tokens: usize,
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    len: usize,
}

impl Store {
    fn new(problem: &Problem, types: (DType, DType), layout: KvLayout, block_tokens: usize) -> Store {
        let Heads { kv_heads, key_dim, value_dim, .. } = problem.shape;
        let side = |dtype: DType, data: &[f32], dim: usize, block: usize, across: bool| -> Vec<u8> {
            let row_bytes = dtype.bytes(dim).expect("whole blocks");
            // One byte in front makes every row unaligned.
            let mut bytes = vec![0xff; 1 + block_tokens * kv_heads * row_bytes];
            for slot in 0..block_tokens.min(problem.keys - block * block_tokens) {
                for head in 0..kv_heads {
                    let from = ((block * block_tokens + slot) * kv_heads + head) * dim;
                    if across {
                        let room = block_tokens * row_bytes;
                        let block = &mut bytes[1 + head * room..][..room];
                        store_key(dtype, &data[from..from + dim], slot, block).expect("store");
                        continue;
                    }
                    let row = match layout {
                        KvLayout::TokenMajor => slot * kv_heads + head,
                        KvLayout::HeadMajor | KvLayout::KeysAcross => head * block_tokens + slot,
                    };
                    let out = &mut bytes[1 + row * row_bytes..][..row_bytes];
                    quantize(dtype, &data[from..from + dim], out).expect("quantize");
                }
            }
            bytes
        };
        let across = layout == KvLayout::KeysAcross;
        let blocks = (0..problem.keys.div_ceil(block_tokens)).map(|block| {
            let key = side(types.0, &problem.key, key_dim, block, across);
            (key, side(types.1, &problem.value, value_dim, block, false))
        });
        Store { types, layout, block_tokens, blocks: blocks.collect(), len: problem.keys }
    }

    fn view(&self) -> KvBlocks<'_> {
        KvBlocks {
            values_in_keys: false,
            key_type: self.types.0,
            value_type: self.types.1,
            layout: self.layout,
            block_tokens: self.block_tokens,
            blocks: self.blocks.iter().map(|(key, value)| (&key[1..], &value[1..])).collect(),
            first: 0,
            len: self.len,
        }
    }
}

const MASKS: [Mask; 7] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 20, right: 0 },
    Mask::Window { left: 3, right: 70 },
    Mask::Window { left: 100, right: 100 },
    Mask::Chunked { length: 48 },
    Mask::Prefix { length: 75 },
];
/// Layouts, with a number of tokens in a block of each.
const LAYOUTS: [(KvLayout, usize); 3] =
    [(KvLayout::TokenMajor, 32), (KvLayout::HeadMajor, 32), (KvLayout::KeysAcross, 64)];

fn heads(heads: usize, kv_heads: usize, key_dim: usize, value_dim: usize) -> Heads {
    Heads { heads, kv_heads, key_dim, value_dim }
}

#[test]
fn flash_is_the_textbook_under_every_mask_and_bias() {
    let mut random = Random(1);
    for mask in MASKS {
        for kind in 0..5 {
            for (rows, keys) in [(1, 150), (5, 64), (130, 130), (40, 203)] {
                let mut problem = Problem::new(&mut random, heads(4, 2, 24, 20), rows, keys, mask);
                problem.set_bias(kind, &mut random);
                problem.bias_scaled = kind > 0 && random.below(2) == 0;
                problem.soft_cap = (random.below(2) == 0).then_some(3.0);
                problem.sinks = (random.below(2) == 0).then(|| random.normals(4));
                let kv = KvBlocks::from_f32(&problem.key, &problem.value, keys);
                let want = problem.textbook(&kv);
                for isa in available() {
                    let what = format!("{isa} {mask:?} bias {kind} {rows}x{keys}");
                    assert_close(&what, &problem.flash(isa, &kv), &want, 2e-6, 2e-6);
                }
            }
        }
    }
}

#[test]
fn flash_is_the_textbook_for_every_shape() {
    let mut random = Random(2);
    for (h, kv) in [(1, 1), (3, 3), (6, 2), (7, 1), (14, 2), (9, 3), (80, 1)] {
        for (key_dim, value_dim) in
            [(1, 1), (12, 12), (64, 64), (80, 80), (96, 96), (128, 128), (256, 256), (24, 16), (192, 128)]
        {
            let problem = Problem::new(&mut random, heads(h, kv, key_dim, value_dim), 9, 83, Mask::Causal);
            let view = KvBlocks::from_f32(&problem.key, &problem.value, 83);
            let want = problem.textbook(&view);
            for isa in available() {
                let what = format!("{isa} {h}/{kv} heads of {key_dim} and {value_dim}");
                assert_close(&what, &problem.flash(isa, &view), &want, 3e-6, 3e-6);
            }
        }
    }
}

#[test]
fn flash_reads_every_cache_type_as_stored() {
    let mut random = Random(3);
    let types = [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0];
    for key_type in types {
        for value_type in types {
            // So few rows that a cache with its keys across is read in its place, and more.
            for ((layout, block_tokens), rows) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 3), (layout, 7)]) {
                let mut problem = Problem::new(&mut random, heads(4, 2, 64, 96), rows, 101, Mask::Causal);
                let store = problem.store((key_type, value_type), layout, block_tokens);
                // What the cache holds, widened by the reference reader.
                for (dtype, dim, data) in [(key_type, 64, &mut problem.key), (value_type, 96, &mut problem.value)] {
                    for row in data.chunks_mut(dim) {
                        let mut bytes = vec![0; dtype.bytes(dim).expect("whole blocks")];
                        quantize(dtype, row, &mut bytes).expect("quantize");
                        dequantize(dtype, &bytes, row).expect("dequantize");
                    }
                }
                let plain = KvBlocks::from_f32(&problem.key, &problem.value, problem.keys);
                let want = problem.textbook(&plain);
                let what = format!("{key_type} {value_type} {layout:?}");
                assert_same_bits(&what, &problem.textbook(&store.view()), &want);
                for isa in available() {
                    let got = problem.flash(isa, &store.view());
                    assert_same_bits(&what, &got, &problem.flash(isa, &plain));
                    assert_close(&what, &got, &want, 3e-6, 3e-6);
                }
            }
        }
    }
}

#[test]
fn a_cache_may_have_dropped_what_the_window_does_not_need() {
    let mut random = Random(5);
    let problem = Problem::new(&mut random, heads(2, 1, 16, 16), 3, 200, Mask::Window { left: 30, right: 0 });
    for (layout, block_tokens) in LAYOUTS {
        let store = problem.store((DType::F16, DType::F16), layout, block_tokens);
        let whole = store.view();
        let mut rest = store.view();
        let dropped = 160 / block_tokens;
        rest.blocks.drain(..dropped);
        rest.first = dropped * block_tokens;
        assert_same_bits("textbook", &problem.textbook(&rest), &problem.textbook(&whole));
        for isa in available() {
            assert_same_bits("flash", &problem.flash(isa, &rest), &problem.flash(isa, &whole));
        }
    }
}

#[test]
fn rows_without_keys_are_zero() {
    let mut random = Random(6);
    for sinks in [None, Some(vec![1.0, -1.0])] {
        // A query before all keys, one beyond its window, and one whose every key the bias forbids.
        let mut problem = Problem::new(&mut random, heads(2, 2, 8, 8), 3, 40, Mask::Window { left: 2, right: 0 });
        problem.first_query = 41;
        problem.sinks = sinks;
        let kv = KvBlocks::from_f32(&problem.key, &problem.value, 40);
        let want = problem.textbook(&kv);
        assert!(want[16..].iter().all(|&x| x == 0.0), "{want:?}");
        assert!(want[..16].iter().all(|&x| x != 0.0), "{want:?}");
        let mut none = problem.clone();
        none.mask = Mask::Full;
        none.first_query = 0;
        none.bias = OwnBias::Full(vec![f32::NEG_INFINITY; 2 * 3 * 40]);
        let mut empty = problem.clone();
        empty.keys = 0;
        let no_keys = KvBlocks::from_f32(&[], &[], 0);
        for isa in available() {
            assert_close("window", &problem.flash(isa, &kv), &want, 1e-6, 1e-6);
            assert_eq!(none.flash(isa, &kv), vec![0.0; 48]);
            assert_eq!(empty.flash(isa, &no_keys), vec![0.0; 48]);
        }
        assert_eq!(none.textbook(&kv), vec![0.0; 48]);
        assert_eq!(empty.textbook(&no_keys), vec![0.0; 48]);
    }
}

#[test]
fn what_is_not_a_number_shows_and_stays_where_it_is() {
    let mut random = Random(7);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let clean = Problem::new(&mut random, heads(2, 1, 16, 16), 90, 90, Mask::Causal);
        let mut spoiled = clean.clone();
        // Token 70's key and value: earlier rows must not notice.
        spoiled.key[70 * 16 + 3] = bad;
        spoiled.value[70 * 16 + 5] = bad;
        let clean_kv = KvBlocks::from_f32(&clean.key, &clean.value, 90);
        let kv = KvBlocks::from_f32(&spoiled.key, &spoiled.value, 90);
        for isa in available() {
            let (want, got) = (clean.flash(isa, &clean_kv), spoiled.flash(isa, &kv));
            assert_same_bits(&format!("{isa} {bad}"), &got[..70 * 32], &want[..70 * 32]);
            assert!(got[70 * 32..71 * 32].iter().any(|x| !x.is_finite()), "{isa}: {bad} vanished");
        }
        let got = spoiled.textbook(&kv);
        assert!(got[..70 * 32].iter().all(|x| x.is_finite()));
        assert!(got[70 * 32..71 * 32].iter().any(|x| !x.is_finite()));
    }
    // Every score of a row a NaN.
    let mut lost = Problem::new(&mut random, heads(1, 1, 8, 8), 1, 70, Mask::Causal);
    lost.query.fill(f32::NAN);
    let kv = KvBlocks::from_f32(&lost.key, &lost.value, 70);
    for isa in available() {
        assert!(lost.flash(isa, &kv).iter().all(|x| x.is_nan()));
    }
}

#[test]
fn scores_and_probs_are_shown() {
    let mut random = Random(8);
    let problem = Problem::new(&mut random, heads(2, 1, 4, 4), 3, 5, Mask::Causal);
    let kv = KvBlocks::from_f32(&problem.key, &problem.value, 5);
    let mut out = vec![0.0; problem.out_len()];
    let (mut scores, mut probs) = (vec![7.0; 30], vec![7.0; 30]);
    textbook(&mut problem.call(kv, &mut out), Some(&mut scores), Some(&mut probs));
    for (i, (s, p)) in scores.iter().zip(&probs).enumerate() {
        let (row, key) = (i / 5 % 3, i % 5);
        assert_eq!(key > problem.first_query + row, *s == f32::NEG_INFINITY);
        assert_eq!(key > problem.first_query + row, *p == 0.0);
    }
    for row in probs.chunks(5) {
        assert_close("sum", &[row.iter().sum()], &[1.0], 1e-6, 0.0);
    }
}

/// The textbook in float64 from end to end: `sum(out * weights)`, for central differences.
fn objective(problem: &Problem, at: &Values, weights: &[f32]) -> f64 {
    let (shape, rows) = (problem.shape, problem.rows());
    let mut total = 0.0;
    let (scale, span) = (f64::from(problem.scores().scale), 2 * problem.reach());
    for row in 0..rows {
        let query = problem.first_query + row;
        for head in 0..shape.heads {
            let kv_head = head / shape.group();
            let range = problem.mask.range(query, problem.keys);
            let score = |key: usize| {
                let q = &at.query[(row * shape.heads + head) * shape.key_dim..][..shape.key_dim];
                let k = &at.key[(key * shape.kv_heads + kv_head) * shape.key_dim..][..shape.key_dim];
                let dot: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                let bias = match problem.bias {
                    OwnBias::None => 0.0,
                    OwnBias::Key(_) => at.bias[head * problem.keys + key],
                    OwnBias::Distance(_) => at.bias[head * span + problem.reach() + key - query],
                    OwnBias::Full(_) => at.bias[(head * rows + row) * problem.keys + key],
                    OwnBias::Gathered(_, ref index) => {
                        let bucket = index[problem.reach() + key - query] as usize;
                        let by_key = shape.heads * rows + head * problem.keys + key;
                        at.bias[(head * rows + row) * BUCKETS + bucket] + at.bias[by_key * BUCKETS + bucket]
                    }
                };
                let cap = |x: f64| problem.soft_cap.map_or(x, |c| f64::from(c) * (x / f64::from(c)).tanh());
                if problem.bias_scaled { cap((dot + bias) * scale) } else { cap(dot * scale) + bias }
            };
            let weights = &weights[(row * shape.heads + head) * shape.value_dim..][..shape.value_dim];
            let sink = at.sinks.get(head).map_or(0.0, |s| s.exp());
            let (mut sum, mut mix) = (sink, 0.0);
            for key in range {
                let weight = score(key).exp();
                let v = &at.value[(key * shape.kv_heads + kv_head) * shape.value_dim..][..shape.value_dim];
                sum += weight;
                mix += weight * v.iter().zip(weights).map(|(v, &w)| v * f64::from(w)).sum::<f64>();
            }
            if sum > 0.0 {
                total += mix / sum;
            }
        }
    }
    total
}

/// Every input of the objective in float64.
#[derive(Clone)]
struct Values {
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    bias: Vec<f64>,
    sinks: Vec<f64>,
}

impl Values {
    fn of(problem: &Problem) -> Values {
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let bias = match &problem.bias {
            OwnBias::None => Vec::new(),
            OwnBias::Key(values) | OwnBias::Distance(values) | OwnBias::Full(values) | OwnBias::Gathered(values, _) => {
                wide(values)
            }
        };
        Values {
            query: wide(&problem.query),
            key: wide(&problem.key),
            value: wide(&problem.value),
            bias,
            sinks: wide(problem.sinks.as_deref().unwrap_or_default()),
        }
    }

    fn list(&mut self, which: usize) -> &mut Vec<f64> {
        match which {
            0 => &mut self.query,
            1 => &mut self.key,
            2 => &mut self.value,
            3 => &mut self.bias,
            _ => &mut self.sinks,
        }
    }
}

#[test]
fn the_gradient_is_that_of_central_differences() {
    let mut random = Random(9);
    for mask in [Mask::Full, Mask::Causal, Mask::Window { left: 2, right: 1 }, Mask::Chunked { length: 3 }] {
        for kind in 0..5 {
            for option in 0..4 {
                let mut problem = Problem::new(&mut random, heads(4, 2, 3, 2), 4, 6, mask);
                problem.set_bias(kind, &mut random);
                problem.soft_cap = (option & 1 == 1).then_some(1.5);
                problem.bias_scaled = option & 2 == 2;
                problem.sinks = (option > 0).then(|| random.normals(4));
                let weights = random.normals(problem.out_len());
                check_gradient(&problem, &weights, &format!("{mask:?} bias {kind} option {option}"));
            }
        }
    }
}

fn check_gradient(problem: &Problem, weights: &[f32], what: &str) {
    let at = Values::of(problem);
    let sizes = [&at.query, &at.key, &at.value, &at.bias, &at.sinks].map(Vec::len);
    // Gradients accumulate onto what is there.
    let mut got = sizes.map(|size| vec![0.5f32; size]);
    let [d_query, d_key, d_value, d_bias, d_sinks] = &mut got;
    let kv = KvBlocks::from_f32(&problem.key, &problem.value, problem.keys);
    let mut out = vec![0.0; problem.out_len()];
    let call = problem.call(kv, &mut out);
    let mut gradients = Gradients {
        d_query,
        d_key,
        d_value,
        d_bias: Some(d_bias),
        d_sinks: Some(d_sinks).filter(|d| !d.is_empty()).map(|d| &mut d[..]),
    };
    attention_backward(&call.inputs(), weights, &mut gradients);
    for (which, name) in ["query", "key", "value", "bias", "sinks"].into_iter().enumerate() {
        let mut want = Vec::new();
        for i in 0..sizes[which] {
            let moved = |step: f64| {
                let mut at = at.clone();
                at.list(which)[i] += step;
                objective(problem, &at, weights)
            };
            want.push((0.5 + (moved(1e-5) - moved(-1e-5)) / 2e-5) as f32);
        }
        assert_close(&format!("{what}: d_{name}"), &got[which], &want, 1e-6, 1e-6);
    }
}
