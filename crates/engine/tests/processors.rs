//! Every logits processor against the values of the reference (goldens/modules/logits_processors).

use attend_engine::logprobs::Distribution;
use attend_engine::options::GenerateOptions;
use attend_engine::rng::Draws;
use attend_engine::sampler::chain::{Chain, Rules};
use attend_engine::sampler::constraints::{EndingGrowsLikely, Forbid, Force, While};
use attend_engine::sampler::ngram::{NoRepeatNgram, SequenceBias};
use attend_engine::sampler::penalties::{EncoderRepetitionPenalty, RepetitionPenalty};
use attend_engine::sampler::temperature::Temperature;
use attend_engine::sampler::truncation::{Epsilon, Eta, MinP, TopK, TopP, Typical};
use attend_engine::sampler::{History, LogitsProcessor};
use attend_testkit::golden::{Golden, assert_close};
use std::cell::RefCell;
use std::collections::BTreeSet;

const VOCAB: usize = 24;
const LENGTH: usize = 12;
/// The reference regards the first eight tokens as the prompt.
const PROMPT: usize = 8;

struct Case {
    golden: Golden,
    ids: Vec<u32>,
    /// The tensors that were compared.
    checked: RefCell<BTreeSet<String>>,
}

impl Case {
    fn read() -> Case {
        let golden = Golden::module("logits_processors");
        let ids = golden.i64("input_ids").into_iter().map(|id| id as u32).collect();
        Case { golden, ids, checked: RefCell::default() }
    }

    /// Applies `process` to each row of the raw scores and compares with the tensor `name`. `length` tokens of each row of
    /// ids are the history.
    fn check(&self, name: &str, length: usize, process: impl Fn(&History<'_>, &mut [f32])) {
        let mut rows = self.golden.f32("scores");
        for (row, ids) in rows.chunks_exact_mut(VOCAB).zip(self.ids.chunks_exact(LENGTH)) {
            let draws = Draws { seed: 0, choice: 0 };
            process(
                &History { tokens: &ids[..length], prompt_len: PROMPT.min(length), encoder: &ids[..4], draws },
                row,
            );
        }
        let (atol, rtol) = self.golden.tolerance();
        assert_close(name, &rows, &self.golden.f32(name), atol, rtol);
        self.checked.borrow_mut().insert(name.to_string());
    }

    fn one(&self, name: &str, processor: &dyn LogitsProcessor) {
        self.check(name, LENGTH, |history, row| processor.process(history, row));
    }

    /// A chain as the options build it, and the probabilities after it.
    fn chain(&self, name: &str, change: impl Fn(&mut GenerateOptions)) {
        let mut options = GenerateOptions::default();
        options.sampling.temperature = 1.0;
        change(&mut options);
        let chain = Chain::new(&options, &Rules { prompt_len: PROMPT, max_tokens: 100, ..Rules::default() });
        self.check(name, LENGTH, |history, row| chain.process(history, row));
        self.check(&format!("{name}.probs"), LENGTH, |history, row| {
            chain.process(history, row);
            let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = row.iter().map(|logit| (logit - highest).exp()).sum();
            row.iter_mut().for_each(|logit| *logit = (*logit - highest).exp() / sum);
        });
    }
}

fn temperature_and_truncation(case: &Case) {
    for t in [0.7, 1.5] {
        case.one(&format!("temperature_{t}"), &Temperature(t));
    }
    for k in [1, 5, 1000] {
        case.one(&format!("top_k_{k}"), &TopK(k));
    }
    for p in [0.01, 0.5, 0.9] {
        case.one(&format!("top_p_{p}"), &TopP::new(p));
    }
    case.one("top_p_0.9_min3", &TopP { p: 0.9, at_least: 3 });
    for p in [0.1, 0.5] {
        case.one(&format!("min_p_{p}"), &MinP(p));
    }
    for mass in [0.2, 0.9] {
        case.one(&format!("typical_{mass}"), &Typical(mass));
    }
    case.one("epsilon_0.02", &Epsilon(0.02));
    case.one("eta_0.02", &Eta(0.02));
}

fn penalties_and_sequences(case: &Case) {
    for penalty in [0.8, 1.3] {
        case.one(&format!("repetition_{penalty}"), &RepetitionPenalty { penalty, last_n: -1 });
    }
    case.one("encoder_repetition_1.5", &EncoderRepetitionPenalty(1.5));
    for n in [2, 3] {
        case.one(&format!("no_repeat_{n}gram"), &NoRepeatNgram(n));
    }
    case.one("sequence_bias", &SequenceBias(vec![(vec![6], -2.0), (vec![8, 8], 5.0)]));
    let never = |word: &[u32]| (word.to_vec(), f32::NEG_INFINITY);
    case.one("bad_words", &SequenceBias(vec![never(&[4]), never(&[8, 9]), never(&[16, 8, 11])]));
}

fn forced_and_forbidden_tokens(case: &Case) {
    case.one("suppress_1_2_3", &Forbid { ids: vec![1, 2, 3], during: While::Always });
    case.one("min_length_20_eos7", &Forbid { ids: vec![7], during: While::ShorterThan(20) });
    case.one("min_new_tokens_5_eos7", &Forbid { ids: vec![7], during: While::Before(5) });
    case.one("exp_decay", &EndingGrowsLikely { start: 2, factor: 1.1, end_ids: vec![7] });
    let force = Force { ids: vec![5], at: 1 };
    case.check("forced_bos_5", 1, |history, row| force.process(history, row));
    let eos = case.golden.f32("forced_eos_at_13").iter().take(VOCAB).position(|logit| *logit == 0.0);
    let force = Force { ids: vec![eos.expect("one forced token") as u32], at: 12 };
    case.one("forced_eos_at_13", &force);
}

fn chains_in_the_order_of_the_reference(case: &Case) {
    case.chain("chain_k10_typ0.8", |o| (o.sampling.top_k, o.sampling.typical_p) = (10, 0.8));
    case.chain("chain_temp1.3_minp0.05", |o| (o.sampling.temperature, o.sampling.min_p) = (1.3, 0.05));
    case.chain("chain_rep1.2_temp0.8_k8_p0.9", |o| {
        let s = &mut o.sampling;
        (s.repetition_penalty, s.temperature, s.top_k, s.top_p) = (1.2, 0.8, 8, 0.9);
    });
}

#[test]
fn every_processor_of_the_file() {
    let case = Case::read();
    temperature_and_truncation(&case);
    penalties_and_sequences(&case);
    forced_and_forbidden_tokens(&case);
    chains_in_the_order_of_the_reference(&case);
    // Our log-probabilities are always normalised: there is no processor for it.
    case.check("logit_normalization", LENGTH, |_, row| {
        let raw = row.to_vec();
        let distribution = Distribution::new(&raw, 0).expect("finite logits");
        (0..VOCAB).for_each(|id| row[id] = distribution.logprob(id as u32));
    });
    let inputs = ["input_ids", "scores"];
    let names = case.golden.tensors.keys().filter(|name| !inputs.contains(&name.as_str())).cloned();
    assert_eq!(*case.checked.borrow(), names.collect(), "every tensor of the file was compared");
}
