//! The decoders' goldens through the loaded model: the tables and the description together give the reference's logits.

mod support;

use attend_kernels::Compute;
use attend_model::{LoadOptions, load};
use attend_nn::spec::{Body, Head, StackKind};
use attend_nn::{Batch, Nobody, RunOptions, Sequence};
use attend_testkit::golden::{Golden, assert_close, golden_root};
use support::{CASES, golden};

#[test]
fn every_decoder_has_the_logits_of_its_golden() {
    let mut compared = 0;
    for (case, _) in CASES {
        if !golden_root().join(case).join("expected.safetensors").exists() {
            continue;
        }
        let expected = Golden::case(case, "expected");
        let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
        let loaded = load(&golden(case), &options, &mut |_, _| {}).unwrap();
        let decoder = matches!((&loaded.source.spec.body, &loaded.source.spec.head), (Body::Decoder(_), Head::Lm(_)));
        if !decoder || !expected.has("right.logits") {
            continue;
        }
        let &[rows, longest, vocab] = expected.shape("right.logits") else { panic!("{case}") };
        let (ids, mask) = (expected.i64("right.input_ids"), expected.i64("right.attention_mask"));
        let (want, (atol, rtol)) = (expected.f32("right.logits"), expected.tolerance());
        for row in 0..rows {
            let start = row * longest;
            let count = mask[start..start + longest].iter().filter(|one| **one == 1).count();
            let tokens: Vec<u32> = ids[start..start + count].iter().map(|id| *id as u32).collect();
            let mut sequence = Sequence::new(&tokens);
            if case.ends_with("dynamic") {
                // The reference scales by the longest row of the batch.
                sequence.rope_length = Some(longest);
            }
            let mut batch = Batch::one(sequence);
            let hidden = loaded.model.forward(StackKind::Decoder, &mut batch, &RunOptions::default(), &mut Nobody);
            let logits = loaded.model.logits(&hidden.unwrap(), &mut Nobody).unwrap();
            assert_close(case, &logits, &want[start * vocab..(start + count) * vocab], atol, rtol);
        }
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} cases were compared");
}
