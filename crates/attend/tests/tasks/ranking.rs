//! A reranker from a GGUF file, as other programs write it: scores are those of the folder it was made from.

use crate::common::{attend, ran};
use crate::support::{assert_close, lines, model};
use attend::format::gguf::{Metadata, Value, write};
use attend::format::{Checkpoint, TensorSpec};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// The file as another converter would have written it: nothing of ours in it, and pooling by rank.
fn plain(path: &Path, architecture: &str) -> PathBuf {
    let file = Checkpoint::open(path).expect("opens");
    let metadata: &Metadata = file.gguf().expect("metadata");
    let mut keys: Vec<(String, Value)> = metadata.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
    keys.retain(|(key, _)| !key.starts_with("attend.") && !key.ends_with(".pooling_type"));
    keys.sort_by_key(|(key, _)| key != "general.architecture");
    keys.push((format!("{architecture}.pooling_type"), Value::U32(4)));
    keys.push((format!("{architecture}.classifier.pooling_type"), Value::U32(2)));
    let infos: Vec<_> = file.tensors().values().cloned().collect();
    let specs: Vec<TensorSpec> = infos
        .iter()
        .map(|info| TensorSpec { name: info.name.clone(), dtype: info.dtype, shape: info.shape.clone() })
        .collect();
    let out = path.with_file_name("plain.gguf");
    write(&out, &keys, &specs, &mut |index, out| {
        let mut bytes = vec![0; infos[index].bytes as usize];
        file.read_at(&infos[index].name, 0, &mut bytes)?;
        Ok(out.write_all(&bytes)?)
    })
    .expect("written");
    out
}

#[test]
fn a_file_that_ranks_gives_the_scores_of_its_folder() {
    for (case, architecture) in [("bert-seqcls-regression", "bert"), ("modernbert-seqcls", "modern-bert")] {
        let place = tempfile::tempdir().expect("a folder");
        let one = json!({"id2label": {"0": "relevant"}, "problem_type": null});
        let folder = model(place.path(), case, if case.starts_with("bert") { one } else { json!({}) });
        let converted = place.path().join("model.gguf");
        ran(attend(place.path()).arg("convert").arg("-m").arg(&folder).arg(&converted).args(["--dtype", "f32"])).text();
        let file = plain(&converted, architecture);
        let texts = ["w5 w6 w7", "w8", "w9 w10 w11 w12", "w13 w5"];
        if case.starts_with("bert") {
            let arguments = [&["--query", "w5 w20", "--raw-scores"], &texts[..]].concat();
            let ranked = |model: &Path| lines("rerank", model, &arguments)[0].as_array().expect("a list").clone();
            let (found, wanted) = (ranked(&file), ranked(&folder));
            assert_eq!(found.len(), 4);
            for (found, wanted) in found.iter().zip(&wanted) {
                assert_eq!((&found["index"], &found["text"]), (&wanted["index"], &wanted["text"]));
                let score = |one: &Json| one["score"].as_f64().expect("a score");
                assert_close(&[score(found)], &[score(wanted)], 1e-6);
            }
            assert_ne!(found[0]["score"], found[3]["score"]);
        } else {
            // A classifier of several labels stays one.
            let scores = |model: &Path| -> Vec<f64> {
                let found = lines("classify", model, &["w5 w6 w7"]);
                let mut scores: Vec<f64> =
                    found[0].as_array().expect("labels").iter().filter_map(|one| one["score"].as_f64()).collect();
                scores.sort_by(f64::total_cmp);
                scores
            };
            assert_close(&scores(&file), &scores(&folder), 1e-6);
        }
    }
}
