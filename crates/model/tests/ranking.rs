//! GGUF files that score pairs of texts: the classifier is what the tensors say.

mod support;

use attend_format::gguf::{Array, Value};
use attend_model::{Described, describe};
use attend_nn::spec::*;
use std::collections::BTreeMap;
use support::gguf::{metadata, tensors, write_with};
use support::{Tensor, described, weights};

/// A golden classifier's tensors and keys as a file that ranks has them.
fn ranker(case: &str, architecture: &str) -> (Described, Vec<(String, Value)>, BTreeMap<String, Tensor>) {
    let source = described(case);
    let files = tensors(&source, &weights(&source).unwrap());
    let mut keys = metadata(&source, architecture);
    keys.push((format!("{architecture}.pooling_type"), Value::U32(4)));
    keys.push((format!("{architecture}.classifier.pooling_type"), Value::U32(2)));
    (source, keys, files)
}

fn read(keys: &[(String, Value)], files: &BTreeMap<String, Tensor>) -> Result<Described, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write_with(&path, &keys.to_vec(), files);
    describe(&path).map_err(|error| error.to_string())
}

#[test]
fn two_layers_are_the_head_that_the_model_had() {
    for (case, architecture) in [("bert-seqcls-regression", "bert"), ("modernbert-seqcls", "modern-bert")] {
        let (source, mut keys, files) = ranker(case, architecture);
        let again = read(&keys, &files).unwrap();
        assert_eq!((again.spec.pooler, &again.spec.head), (source.spec.pooler, &source.spec.head), "{case}");
        assert_eq!(again.notices, Vec::<String>::new(), "{case}");
        let names = Array::String(["yes", "no"].into_iter().collect());
        keys.push((format!("{architecture}.classifier.output_labels"), Value::Array(names)));
        let labelled = read(&keys, &files).unwrap();
        let labels = labelled.checkpoint.config().value("id2label").unwrap();
        assert_eq!((labels["0"].as_str(), labels["1"].as_str()), (Some("yes"), Some("no")));
        // Another kind of pooling, or none: the encoder alone, and what is left aside is said.
        keys.retain(|(key, _)| !key.ends_with("pooling_type"));
        let encoder = read(&keys, &files).unwrap();
        assert_eq!((encoder.spec.pooler, &encoder.spec.head), (None, &Head::None), "{case}");
        assert!(encoder.notices[0].contains("cls."), "{:?}", encoder.notices);
    }
}

#[test]
fn one_layer_reads_the_first_token() {
    for (case, architecture) in [("bert-seqcls-regression", "bert"), ("modernbert-seqcls", "modern-bert")] {
        let (source, keys, files) = ranker(case, architecture);
        let ours = weights(&source).unwrap();
        let Head::Sequence { labels, .. } = source.spec.head else { panic!("{:?}", source.spec.head) };
        let head = |labels, bias| Head::Sequence { labels, source: SequenceSource::First, transform: None, bias };
        let without = |start: &str, but: &str| -> BTreeMap<String, Tensor> {
            let left = |name: &String| name.starts_with(but) || !name.starts_with(start);
            files.clone().into_iter().filter(|(name, _)| left(name)).collect()
        };
        let output = read(&keys, &without("cls.", "cls.output.")).unwrap();
        let bias = files.contains_key("cls.output.bias");
        assert_eq!((output.spec.pooler, &output.spec.head), (None, &head(labels, bias)), "{case}");
        assert_eq!(weights(&output).unwrap()["head.weight"], ours["head.weight"]);
        let mut files = without("cls.output.", "no");
        files.retain(|name, _| name != "cls.norm.weight");
        let dense = read(&keys, &files).unwrap();
        let (rows, bias) = (files["cls.weight"].shape[0], files.contains_key("cls.bias"));
        assert_eq!((dense.spec.pooler, &dense.spec.head), (None, &head(rows, bias)), "{case}");
        assert_eq!(weights(&dense).unwrap()["head.weight"], files["cls.weight"].values());
        files.retain(|name, _| !name.starts_with("cls."));
        let error = read(&keys, &files).unwrap_err();
        assert!(error.contains("pooling_type") && error.contains("no classifier"), "{error}");
    }
}

/// A head that reads the mean where its file does not say otherwise.
#[test]
fn a_number_says_what_the_classifier_reads() {
    let (_, keys, files) = ranker("modernbert-seqcls", "modern-bert");
    let source = |number: Option<u32>| {
        let mut keys = keys.clone();
        keys.retain(|(key, _)| !key.ends_with("classifier.pooling_type"));
        keys.extend(number.map(|number| ("modern-bert.classifier.pooling_type".into(), Value::U32(number))));
        read(&keys, &files).map(|read| match read.spec.head {
            Head::Sequence { source, .. } => source,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(source(None), Ok(SequenceSource::Mean));
    assert_eq!(source(Some(1)), Ok(SequenceSource::Mean));
    assert_eq!(source(Some(2)), Ok(SequenceSource::First));
    let error = source(Some(3)).unwrap_err();
    assert!(error.contains("classifier.pooling_type") && error.contains("3 is not known"), "{error}");
}
