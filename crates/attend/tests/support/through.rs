//! A checkpoint through everything that reads it: description, weights, tokenizer, template, and a run of four tokens.
#![allow(dead_code, reason = "each test program uses a part")]

use attend::engine::{Engine, EngineOptions, GenerateOptions, Prompt};
use attend::model::{LoadOptions, Loaded, load};
use attend::nn::spec::{Body, Head, StackKind};
use attend::nn::{Batch, Nobody, RunOptions, Sequence};
use attend::text::{ChatTemplate, EncodeOptions, Error as TextError, Render, Tokenizer};
use attend_testkit::files::Files;
use attend_testkit::golden::golden_root;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;

/// What a folder or file holds.
pub struct Opened {
    pub loaded: Loaded,
    pub tokenizer: Option<Tokenizer>,
    pub template: Option<ChatTemplate>,
}

/// Reads all of a checkpoint; the error is what a user would see.
pub fn open(path: &Path) -> Result<Opened, String> {
    let loaded = load(path, &LoadOptions::default(), &mut |_, _| {}).map_err(|error| error.to_string())?;
    let tokenizer = match Tokenizer::open(path) {
        Ok(tokenizer) => Some(tokenizer),
        Err(TextError::NoTokenizer { .. }) => None,
        Err(error) => return Err(error.to_string()),
    };
    let template = ChatTemplate::open(path).map_err(|error| error.to_string())?;
    Ok(Opened { loaded, tokenizer, template })
}

/// Opens it and uses it. The outer error is a refusal to open, the inner one of the use.
pub fn through(path: &Path) -> Result<Result<(), String>, String> {
    Ok(open(path)?.used())
}

impl Opened {
    /// Four tokens, or for an encoder one pass; and the tokenizer and template, where there are some.
    pub fn used(&self) -> Result<(), String> {
        if let Some(tokenizer) = &self.tokenizer {
            use_tokenizer(tokenizer)?;
        }
        if let Some(template) = &self.template {
            let messages = json!([{"role": "user", "content": "a"}]);
            template.render(&Render { messages, ..Render::default() }).map_err(|error| error.to_string())?;
        }
        self.ran().map(drop)
    }

    /// The ids of a greedy answer; for an encoder, none.
    pub fn ran(&self) -> Result<Vec<u32>, String> {
        if let Body::Encoder(_) = self.loaded.model.spec().body {
            return self.encoded().map(|_| Vec::new());
        }
        let options = EngineOptions::default();
        let engine = Engine::new(&self.loaded, self.tokenizer.as_ref(), &options).map_err(|error| error.to_string())?;
        engine.options([]).map_err(|error| error.to_string())?;
        let mut options = GenerateOptions::default();
        (options.length.max_tokens, options.length.ignore_eos) = (Some(4), true);
        let prompt = if engine.is_encoder_decoder() { Prompt::source([3, 4]) } else { Prompt::tokens([3, 4]) };
        let output = engine.generate(prompt, &options, &mut |_| ControlFlow::Continue(()));
        output.map(|output| output.choices[0].token_ids.clone()).map_err(|error| error.to_string())
    }

    /// The hidden states of an encoder, after its head where that gives a row a token.
    fn encoded(&self) -> Result<Vec<f32>, String> {
        let model = &self.loaded.model;
        let mut batch = Batch::one(Sequence::new(&[3, 4, 5]));
        let hidden = model.forward(StackKind::Encoder, &mut batch, &RunOptions::default(), &mut Nobody);
        let hidden = hidden.map_err(|error| error.to_string())?;
        match model.spec().head {
            Head::Lm(_) => model.logits(&hidden, &mut Nobody).map_err(|error| error.to_string()),
            _ => Ok(hidden),
        }
    }
}

/// Encodes and decodes with and without special tokens.
pub fn use_tokenizer(tokenizer: &Tokenizer) -> Result<(), String> {
    for text in ["Hello, wörld 😀", "<s> x</s>[CLS] w1 w2", "  a\n\tb"] {
        for on in [false, true] {
            let options = EncodeOptions { add_special: on, parse_special: on };
            let encoding = tokenizer.encode(text, options).map_err(|error| error.to_string())?;
            tokenizer.decode(&encoding.ids, on);
        }
    }
    let ids: Vec<u32> = (0..20).chain([u32::MAX]).collect();
    let mut stream = tokenizer.stream(false);
    ids.iter().for_each(|&id| drop(stream.push(id)));
    stream.finish();
    Ok(())
}

/// The files of a golden checkpoint that a user would have.
pub fn golden(case: &str) -> Files {
    let folder = golden_root().join(case);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("case") && !name.starts_with("expected"))
        .collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

/// A golden tokenizer as a file of a model's folder.
pub fn golden_tokenizer(name: &str) -> (String, Vec<u8>) {
    let file = golden_root().join("tokenizers").join(name).join("tokenizer.json");
    ("tokenizer.json".into(), std::fs::read(file).unwrap())
}

/// Puts a file into a list, in the place of one of its name.
pub fn put(files: &mut Files, name: &str, bytes: impl Into<Vec<u8>>) {
    files.retain(|(old, _)| old != name);
    files.push((name.into(), bytes.into()));
}

/// The JSON of one of the files.
pub fn json_of(files: &Files, name: &str) -> Value {
    let (_, bytes) = files.iter().find(|(file, _)| file == name).unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_slice(bytes).unwrap()
}
