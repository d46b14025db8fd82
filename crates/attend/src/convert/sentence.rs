//! How texts become vectors, said in the other kind of file: the modules of a sentence-transformers folder, and the one
//! number that GGUF has for them. GGUF's readers scale every vector to length 1.

use super::Error;
use attend_engine::tasks::{Pooling, pooling, sentence};
use attend_model::Described;
use serde_json::{Value, json};

/// A folder's pooling in a GGUF file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InGguf {
    /// `pooling_type`
    pub number: Option<u32>,
    /// What the format has no place for.
    pub notices: Vec<String>,
}

pub fn for_gguf(source: &Described) -> Result<InGguf, Error> {
    let Some(said) = sentence::vectors(source)? else { return Ok(InGguf::default()) };
    let mut of = InGguf::default();
    let mut lost = |what: String| of.notices.push(format!("GGUF has no place for {what}"));
    match said.pooling.as_slice() {
        [one] if one.gguf().is_some() => of.number = one.gguf(),
        [] => lost("sparse vectors (SpladePooling)".into()),
        several => {
            lost(format!("the pooling of this folder ({})", several.iter().map(named).collect::<Vec<_>>().join(", ")))
        }
    }
    if said.dense > 0 {
        lost(format!("{} Dense modules after pooling; other vectors come out", said.dense));
    }
    if !said.normalized && !said.pooling.is_empty() {
        lost("vectors that are not scaled to length 1; its readers scale them".into());
    }
    if !said.include_prompt {
        lost("prompts that do not count in pooling".into());
    }
    if !said.prompts.is_empty() {
        lost(format!("the prompts in front of texts ({})", said.prompts.join(", ")));
    }
    Ok(of)
}

/// The small files of a folder that say what a GGUF file says, by their names; none where it says nothing that folders
/// have a module for.
pub fn for_folder(source: &Described) -> Result<Vec<(&'static str, Value)>, Error> {
    let Some(said) = sentence::vectors(source)? else { return Ok(Vec::new()) };
    let [only] = said.pooling.as_slice() else { return Ok(Vec::new()) };
    if only.name().is_none() {
        return Ok(Vec::new());
    }
    let module = |index: usize, path: &str, kind: &str| {
        let kind = format!("sentence_transformers.models.{kind}");
        json!({"idx": index, "name": index.to_string(), "path": path, "type": kind})
    };
    let list = [module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"), module(2, "2_Normalize", "Normalize")];
    let width = source.spec.output_stack().output_width();
    let mut config = json!({"word_embedding_dimension": width, "include_prompt": said.include_prompt});
    // What is not written counts as the library's own default, which is the mean.
    for (other, name, _) in pooling::NAMES {
        config[format!("pooling_mode_{name}")] = json!(other == *only);
    }
    Ok(vec![("modules.json", json!(list)), ("1_Pooling/config.json", config)])
}

fn named(pooling: &Pooling) -> &'static str {
    pooling.name().unwrap_or("none")
}
