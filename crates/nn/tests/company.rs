//! The answer does not depend on the company it is computed in: alone or packed, whole, in chunks or token by token,
//! with a shared or a copied cache, the bits are the same.

mod common;

use attend_kernels::DType;
use attend_nn::spec::{Body, Mask, ModelSpec, StackKind};
use attend_nn::{
    AttentionKind, BLOCK_TOKENS, Batch, Error, KvCache, KvTypes, Model, Nobody, Recorder, RunOptions, Sequence,
};
use common::*;

const OPTIONS: RunOptions = RunOptions { attention: AttentionKind::Flash };

fn plain(model: &Model, ids: &[u32]) -> Vec<f32> {
    model.forward(StackKind::Decoder, &mut Batch::one(Sequence::new(ids)), &OPTIONS, &mut Nobody).unwrap()
}

fn step(model: &Model, ids: &[u32], cache: &mut KvCache, prompt: usize) -> Vec<f32> {
    let sequence = Sequence { rope_length: Some(prompt), ..Sequence::cached(ids, cache) };
    model.forward(StackKind::Decoder, &mut Batch::one(sequence), &OPTIONS, &mut Nobody).unwrap()
}

fn each_decoder(mut body: impl FnMut(&str, &ModelSpec, &Model)) {
    for (name, spec) in decoders() {
        body(name, &spec, &Weights::random(&spec, 23).model(&spec));
    }
}

#[test]
fn packed_equals_alone() {
    let mut random = Random(1);
    let ids = vec![random.tokens(9), random.tokens(1), random.tokens(30)];
    each_decoder(|name, _, model| {
        let packed = model.forward(StackKind::Decoder, &mut Batch::of(&ids), &OPTIONS, &mut Nobody).unwrap();
        let alone: Vec<f32> = ids.iter().flat_map(|ids| plain(model, ids)).collect();
        assert_eq!(packed, alone, "{name}");
    });
}

#[test]
fn cached_equals_whole_however_it_is_cut() {
    let ids = Random(2).tokens(35);
    each_decoder(|name, _, model| {
        let whole = plain(model, &ids);
        for chunk in [1, 2, 7, 35] {
            let mut cache = model.cache(KvTypes::both(DType::F32)).unwrap();
            let cut: Vec<f32> = ids.chunks(chunk).flat_map(|ids| step(model, ids, &mut cache, 35)).collect();
            assert_eq!(cut, whole, "{name}, chunks of {chunk}");
            assert_eq!(cache.len(), ids.len());
        }
    });
}

#[test]
fn a_rounded_cache_gives_the_same_bits_in_chunks() {
    let ids = Random(3).tokens(20);
    each_decoder(|name, _, model| {
        let run = |chunk| -> Vec<f32> {
            let mut cache = model.cache(KvTypes::both(DType::F16)).unwrap();
            ids.chunks(chunk).flat_map(|ids| step(model, ids, &mut cache, 20)).collect()
        };
        assert_eq!(run(20), run(3), "{name}");
    });
}

#[test]
fn forks_share_blocks_and_do_not_disturb_each_other() {
    let (_, spec) = decoders().swap_remove(8);
    let model = Weights::random(&spec, 4).model(&spec);
    let ids = Random(4).tokens(70);
    let mut cache = model.cache(KvTypes::both(DType::F32)).unwrap();
    step(&model, &ids, &mut cache, 70);
    let mut fork = cache.fork();
    let first = step(&model, &[1, 2, 3], &mut cache, 70);
    let second = step(&model, &[4, 5], &mut fork, 70);
    let whole = |more: &[u32]| {
        let ids: Vec<u32> = ids.iter().chain(more).copied().collect();
        let hidden = plain(&model, &ids);
        hidden[hidden.len() - more.len() * WIDTH..].to_vec()
    };
    assert_eq!(first, whole(&[1, 2, 3]));
    assert_eq!(second, whole(&[4, 5]));
    cache.truncate(70);
    assert_eq!(step(&model, &[4, 5], &mut cache, 70), second);
}

/// The spec with this mask in its first layer.
fn masked(name: &str, mask: Mask) -> ModelSpec {
    let (_, mut spec) = decoders().into_iter().find(|(known, _)| *known == name).expect("a spec of this name");
    let Body::Decoder(stack) = &mut spec.body else { panic!("a decoder") };
    stack.layers[0].attention.mask = mask;
    stack.layers[1].attention.mask = Mask::Causal;
    spec
}

/// What a window has passed is given back, and nobody can tell: the bits are those of a whole pass. What is held is what the
/// next token sees, in whole blocks.
#[test]
fn what_a_window_has_passed_is_not_missed() {
    let ids = Random(9).tokens(300);
    let masks = [0, 2, 62, 63, 64, 65, 100, 1000].map(|left| Mask::Window { left, right: 0 });
    for mask in masks.into_iter().chain([3, 64, 100].map(|length| Mask::Chunked { length })) {
        for name in ["window", "alibi", "sinks", "rope interleaved", "relative bias"] {
            let spec = masked(name, mask);
            let model = Weights::random(&spec, 4).model(&spec);
            for attention in [AttentionKind::Flash, AttentionKind::Textbook] {
                let options = RunOptions { attention };
                let whole =
                    model.forward(StackKind::Decoder, &mut Batch::one(Sequence::new(&ids)), &options, &mut Nobody);
                for chunk in [1, 7, 64, 90] {
                    let mut cache = model.cache(KvTypes::both(DType::F32)).unwrap();
                    let mut cut = Vec::new();
                    for ids in ids.chunks(chunk) {
                        let mut batch = Batch::one(Sequence::cached(ids, &mut cache));
                        cut.extend(model.forward(StackKind::Decoder, &mut batch, &options, &mut Nobody).unwrap());
                        cache.pass();
                        let len = cache.len();
                        let first = mask.range(len, len + 1).start / BLOCK_TOKENS;
                        let blocks = 2 * len.div_ceil(BLOCK_TOKENS) - first;
                        assert_eq!(cache.bytes(), blocks * BLOCK_TOKENS * 2 * 2 * 4 * 4, "{name}, {mask:?} at {len}");
                    }
                    assert!(cut == *whole.as_ref().unwrap(), "{name}, {mask:?}, {attention:?}, chunks of {chunk}");
                }
            }
        }
    }
}

/// A past that gave back blocks is forked, cut back to where it did so, taken apart, and forgotten.
#[test]
fn a_past_that_gave_back_goes_on() {
    let spec = masked("rope", Mask::Window { left: 70, right: 0 });
    let model = Weights::random(&spec, 4).model(&spec);
    let (ids, types) = (Random(4).tokens(290), KvTypes::both(DType::F32));
    let hidden = plain(&model, &ids);
    let rows = |from: usize, to: usize| &hidden[from * WIDTH..to * WIDTH];
    let mut cache = model.cache(types).unwrap();
    step(&model, &ids[..200], &mut cache, 290);
    let whole = cache.fork();
    cache.pass();
    let mut fork = cache.fork();
    assert_eq!(step(&model, &ids[200..290], &mut fork, 290), rows(200, 290));
    for guessed in [1, 16, 80] {
        step(&model, &vec![3; guessed], &mut cache, 290);
        cache.truncate(200);
    }
    assert_eq!(step(&model, &ids[200..210], &mut cache, 290), rows(200, 210));
    let is_there = |cache: &KvCache| [0, 1, 2, 3].map(|index| cache.block(index).is_some());
    assert_eq!(is_there(&whole), [true, true, true, false]);
    assert_eq!(is_there(&cache), [false, false, true, false]);
    let mut other = model.cache(types).unwrap();
    (0..3).for_each(|index| other.push_block(&whole.block(index).unwrap()));
    other.pass();
    assert_eq!(step(&model, &ids[192..290], &mut other, 290), rows(192, 290));
    cache.truncate(0);
    assert_eq!((cache.bytes(), cache.len()), (0, 0));
    assert_eq!(step(&model, &ids, &mut cache, 290), hidden);
}

#[test]
#[should_panic(expected = "were given back")]
fn what_was_given_back_is_not_needed_again() {
    let spec = masked("rope", Mask::Window { left: 70, right: 0 });
    let model = Weights::random(&spec, 4).model(&spec);
    let mut cache = model.cache(KvTypes::both(DType::F32)).unwrap();
    step(&model, &Random(4).tokens(200), &mut cache, 200);
    cache.pass();
    cache.truncate(133);
}

#[test]
fn a_memory_equals_the_encoded_batch() {
    let spec = encoder_decoder();
    let model = Weights::random(&spec, 5).model(&spec);
    let (source, target) = (vec![Random(5).tokens(11)], Random(6).tokens(6));
    let hidden = model.forward(StackKind::Encoder, &mut Batch::of(&source), &OPTIONS, &mut Nobody).unwrap();
    let mut batch = Batch::one(Sequence::new(&target));
    batch.encoded = Some(attend_nn::Encoded { hidden: &hidden, lengths: vec![11] });
    let whole = model.forward(StackKind::Decoder, &mut batch, &OPTIONS, &mut Nobody).unwrap();
    let memory = model.encode(&[&source[0]], KvTypes::both(DType::F32), &OPTIONS).unwrap().remove(0);
    let mut cache = model.cache(KvTypes::both(DType::F32)).unwrap();
    let mut cached = Vec::new();
    for id in &target {
        let ids = [*id];
        let sequence = Sequence { memory: Some(&memory), ..Sequence::cached(&ids, &mut cache) };
        cached.extend(model.forward(StackKind::Decoder, &mut Batch::one(sequence), &OPTIONS, &mut Nobody).unwrap());
    }
    assert_eq!(cached, whole);
}

/// Sources encoded together, and several continuations of each that share its memory.
#[test]
fn sequences_that_share_a_memory_get_the_bits_they_get_alone() {
    let spec = encoder_decoder();
    let model = Weights::random(&spec, 7).model(&spec);
    let types = KvTypes::both(DType::F16);
    let sources = [Random(1).tokens(70), Random(2).tokens(3), Random(3).tokens(11)];
    let texts: Vec<&[u32]> = sources.iter().map(Vec::as_slice).collect();
    let memories = model.encode(&texts, types, &OPTIONS).unwrap();
    // Which source each sequence is about, and its tokens.
    let sequences: Vec<(usize, Vec<u32>)> = [(0, 4), (0, 1), (0, 66), (1, 5), (2, 2), (2, 2), (0, 3)]
        .map(|(of, len)| (of, Random(len).tokens(len as usize)))
        .into();
    for attention in [AttentionKind::Flash, AttentionKind::Textbook] {
        let options = RunOptions { attention };
        let mut caches: Vec<KvCache> = sequences.iter().map(|_| model.cache(types).unwrap()).collect();
        let together = sequences
            .iter()
            .zip(&mut caches)
            .map(|((of, ids), cache)| Sequence { memory: Some(&memories[*of]), ..Sequence::cached(ids, cache) });
        let mut batch = Batch { sequences: together.collect(), encoded: None };
        let together = model.forward(StackKind::Decoder, &mut batch, &options, &mut Nobody).unwrap();
        let alone = sequences.iter().flat_map(|(of, ids)| {
            let memory = model.encode(&[texts[*of]], types, &OPTIONS).unwrap().remove(0);
            let mut cache = model.cache(types).unwrap();
            let sequence = Sequence { memory: Some(&memory), ..Sequence::cached(ids, &mut cache) };
            model.forward(StackKind::Decoder, &mut Batch::one(sequence), &options, &mut Nobody).unwrap()
        });
        assert_eq!(together, alone.collect::<Vec<f32>>(), "{attention:?}");
    }
}

#[test]
fn the_textbook_agrees_with_flash_and_shows_its_scores() {
    let ids = Random(8).tokens(13);
    each_decoder(|name, spec, model| {
        let flash = plain(model, &ids);
        let mut recorder = Recorder::new(|site| site.to_string().ends_with("probs"));
        let mut batch = Batch::one(Sequence::new(&ids));
        let watched = model.forward(StackKind::Decoder, &mut batch, &OPTIONS, &mut recorder).unwrap();
        let worst = flash.iter().zip(&watched).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{name}: {worst}");
        let Body::Decoder(stack) = &spec.body else { panic!("a decoder") };
        assert_eq!(recorder.records.len(), stack.layers.len(), "{name}");
        assert_eq!(recorder.unfused.len(), stack.layers.len(), "{name}");
        for record in &recorder.records {
            let sinks = stack.layers[0].attention.sinks;
            for row in record.value.chunks_exact(ids.len()) {
                let sum: f32 = row.iter().sum();
                assert!(if sinks { sum < 1.0 } else { (sum - 1.0).abs() < 1e-5 }, "{name}: {sum}");
            }
        }
    });
}

#[test]
fn bad_batches_are_named() {
    let (_, spec) = decoders().into_iter().find(|(name, _)| *name == "learned positions").unwrap();
    let model = Weights::random(&spec, 9).model(&spec);
    let run = |sequence: Sequence| model.forward(StackKind::Decoder, &mut Batch::one(sequence), &OPTIONS, &mut Nobody);
    assert_eq!(run(Sequence::new(&[3, 17])), Err(Error::Token { index: 1, id: 17, vocab: 17 }));
    assert_eq!(run(Sequence::new(&[])), Err(Error::Empty { sequence: 0 }));
    let types = Sequence { token_types: Some(&[2]), ..Sequence::new(&[1]) };
    assert_eq!(run(types), Err(Error::TokenType { index: 0, id: 2, types: 2 }));
    let short = Sequence { positions: Some(&[0]), ..Sequence::new(&[1, 2]) };
    assert_eq!(run(short), Err(Error::Length { field: "positions", expected: 2, found: 1 }));
    assert!(run(Sequence::new(&[1; 38])).is_ok());
    assert_eq!(run(Sequence::new(&[1; 39])), Err(Error::Position { position: 38, last: 37 }));
    let encoder = model.forward(StackKind::Encoder, &mut Batch::default(), &OPTIONS, &mut Nobody);
    assert_eq!(encoder, Err(Error::Missing("encoder")));
}
