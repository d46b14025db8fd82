//! Encoder-decoders: what the decoder starts with, what a task tells the model, when a search ends, and numbers beyond
//! 16-bit floats.

mod common;

use attend_engine::{
    Beam, EarlyStopping, Engine, EngineOptions, Error, GenerateOptions, Prompt, Surroundings, Writing,
};
use attend_kernels::{Compute, DType, dequantize, quantize};
use attend_model::{LoadOptions, Loaded, describe, load};
use attend_nn::site::{LayerPart, Place, Site};
use attend_nn::spec::{Activation, Body, Ffn, Head, ModelSpec, StackKind};
use attend_nn::{Batch, KvTypes, Nobody, Recorder, RunOptions};
use attend_testkit::files::safetensors::{self, Tensor};
use attend_testkit::golden::golden_root;
use attend_text::Tokenizer;
use common::Script;
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn loaded(path: &Path) -> Loaded {
    let options = LoadOptions { compute: Compute::F32, ..LoadOptions::default() };
    load(path, &options, &mut |_, _| {}).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn engine<'m>(loaded: &'m Loaded, tokenizer: Option<&'m Tokenizer>) -> Engine<'m> {
    let options = EngineOptions { kv: KvTypes::both(DType::F32), ..EngineOptions::default() };
    Engine::new(loaded, tokenizer, &options).expect("an engine")
}

fn read(path: &Path) -> Map<String, Value> {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// A copy of a golden model's files, both configurations changed.
fn changed(case: &str, change: impl Fn(&mut Map<String, Value>)) -> tempfile::TempDir {
    let (from, folder) = (golden_root().join(case), tempfile::tempdir().expect("a folder"));
    std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).expect("weights");
    for name in ["config.json", "generation_config.json"] {
        let mut config = read(&from.join(name));
        change(&mut config);
        std::fs::write(folder.path().join(name), Value::Object(config).to_string()).expect("written");
    }
    folder
}

/// What the decoder was given before its first token.
fn start(path: &Path) -> Result<Vec<u32>, Error> {
    let loaded = loaded(path);
    let mut options = GenerateOptions::default();
    options.length.max_tokens = Some(1);
    let output =
        engine(&loaded, None).generate(Prompt::source([7, 8, 2]), &options, &mut |_| ControlFlow::Continue(()));
    Ok(output?.prompt_token_ids)
}

/// S2S-01: padding, end or beginning, as the configuration says and not as another family has it.
#[test]
fn decoders_start_with_what_the_files_say() {
    for (case, expected) in [("bart", 2), ("mbart", 2), ("marian", 95), ("fsmt", 2), ("t5-v1.0", 0), ("mt5", 0)] {
        assert_eq!(start(&golden_root().join(case)).expect("an answer"), [expected], "{case}");
        let other = changed(case, |config| drop(config.insert("decoder_start_token_id".into(), json!(5))));
        assert_eq!(start(other.path()).expect("an answer"), [5], "{case}, changed");
    }
}

/// S2S-01: without the key, the family's own default, whatever beginning and padding are.
#[test]
fn a_missing_start_is_the_familys_default_or_an_error() {
    let without = |case: &str| changed(case, |config| drop(config.remove("decoder_start_token_id")));
    assert_eq!(start(without("bart").path()).expect("an answer"), [2]);
    assert_eq!(start(without("fsmt").path()).expect("an answer"), [2]);
    assert_eq!(start(without("t5-v1.0").path()).expect("an answer"), [0]);
    // That default is not in this tiny vocabulary.
    let error = start(without("marian").path()).expect_err("refused").to_string();
    assert!(error.contains("58100"), "{error}");
    // This family has none.
    let nothing = changed("mbart", |config| {
        for key in ["decoder_start_token_id", "bos_token_id", "pad_token_id"] {
            config.remove(key);
        }
    });
    let error = start(nothing.path()).expect_err("refused").to_string();
    assert!(error.contains("config.json: `decoder_start_token_id`") && error.contains("is missing"), "{error}");
}

/// A source with tokens that the encoder's table does not have is refused before anything is computed.
#[test]
fn a_source_beyond_the_vocabulary_is_refused() {
    for case in ["t5-v1.0", "bart", "fsmt"] {
        let loaded = loaded(&golden_root().join(case));
        let vocab = loaded.model.spec().stacks()[0].2.embed.vocab as u32;
        for id in [vocab, u32::MAX] {
            let prompt = Prompt::source([7, id, 2]);
            let ready = engine(&loaded, None).ready(prompt, Arc::new(GenerateOptions::default()));
            let error = ready.map(|_| ()).expect_err("refused");
            assert!(matches!(error, Error::TokenId { place: "the source", id: found, .. } if found == id), "{error}");
        }
        let fits = engine(&loaded, None).ready(Prompt::source([vocab - 1]), Arc::new(GenerateOptions::default()));
        assert!(fits.is_ok(), "{case}");
    }
}

/// After the start token, `a` or `b` or the end; `a` likes to go on, `b` to end. Token 0 never comes.
fn toy() -> Script {
    Script::new(4, |tokens| {
        let row: [f32; 3] = match tokens.last() {
            Some(1) => [0.5, 0.1, 0.4],
            Some(2) => [0.1, 0.1, 0.8],
            _ => [0.55, 0.35, 0.1],
        };
        std::iter::once(-30.0).chain(row.map(f32::ln)).collect()
    })
}

/// S2S-07: by hand, three beams and three tokens at most. Of the twelve sequences only these matter (a 1, b 2, end 3):
///
/// ```text
/// end       0.1      -2.3026        a end     0.22    -1.5141        a a a     0.1375   -1.9841
/// b end     0.28     -1.2730        a a end   0.11    -2.2073
/// ```
///
/// `end`, `b end` and `a end` are finished after two tokens, and with `true` the search ends there. `a a ...` is still open, and
/// with `false` and `never` one more token is written.
#[test]
fn a_search_by_hand() {
    let (end, b, a) = (vec![3], vec![2, 3], vec![1, 3]);
    let (long, longer_end) = (vec![1, 1, 1], vec![1, 1, 3]);
    let score = |(ids, probability): (&Vec<u32>, f32), penalty: f32| {
        (ids.clone(), probability.ln() / (ids.len() as f32).powf(penalty))
    };
    let short = [(&end, 0.1), (&b, 0.28), (&a, 0.22)];
    let full = [(&long, 0.1375), (&longer_end, 0.11)];
    for penalty in [-1.0, 0.0, 1.0, 2.0] {
        for early in [EarlyStopping::First, EarlyStopping::Heuristic, EarlyStopping::Never] {
            let mut expected: Vec<(Vec<u32>, f32)> = short.iter().map(|one| score(*one, penalty)).collect();
            if early != EarlyStopping::First {
                expected.extend(full.iter().map(|one| score(*one, penalty)));
            }
            expected.sort_by(|a, b| b.1.total_cmp(&a.1));
            expected.truncate(3);
            let beam = Beam { num_beams: 3, num_return_sequences: 3, length_penalty: penalty, early_stopping: early };
            let mut options = GenerateOptions { beam, ..GenerateOptions::default() };
            options.length.max_tokens = Some(3);
            let around = Surroundings { context: None, chunk: 8, end_ids: vec![3], ..Surroundings::default() };
            let prompt = Prompt::tokens([0]);
            let go_on = &mut |_: attend_engine::Event<'_>| ControlFlow::Continue(());
            let output =
                attend_engine::generate::generate(&toy(), None, &around, (&prompt, &options), go_on).expect("found");
            let found: Vec<Vec<u32>> = output.choices.iter().map(|choice| choice.token_ids.clone()).collect();
            let ids: Vec<Vec<u32>> = expected.iter().map(|(ids, _)| ids.clone()).collect();
            assert_eq!(found, ids, "penalty {penalty}, {early:?}");
            for (choice, (ids, score)) in output.choices.iter().zip(&expected) {
                let error = (choice.score.expect("a score") - score).abs();
                assert!(error < 1e-4, "penalty {penalty}, {early:?}, {ids:?}: {:?} against {score}", choice.score);
            }
        }
    }
}

/// S2S-05: the three versions of T5. Logits are scaled by the width where, and only where, the output matrix is the table.
/// (That their numbers are the reference's, `attend verify goldens` shows.)
#[test]
fn versions_of_a_family_scale_tied_logits_alone() {
    let head = |path: &Path| match describe(path).expect("described").spec {
        ModelSpec { head: Head::Lm(lm), body: Body::EncoderDecoder { encoder, .. }, .. } => {
            (lm.tied, lm.scale, matches!(encoder.layers[0].ffn, Ffn::Gated { activation: Activation::GeluTanh, .. }))
        }
        other => panic!("a translator is expected: {other:?}"),
    };
    let scale = 32f32.powf(-0.5);
    let without_word = |config: &mut Map<String, Value>, tied: bool| {
        config.insert("tie_word_embeddings".into(), json!(tied));
        config.remove("scale_decoder_outputs");
    };
    assert_eq!(head(&golden_root().join("t5-v1.0")), (true, scale, false));
    assert_eq!(head(changed("t5-v1.1", |config| without_word(config, true)).path()), (true, scale, true));
    let untied = changed("t5-v1.1", |config| without_word(config, false));
    let mut tensors = halves("t5-v1.1", |_, _| {});
    let table = tensors.iter().find(|tensor| tensor.name == "shared.weight").expect("the table").clone();
    tensors.push(Tensor { name: "lm_head.weight".into(), ..table });
    std::fs::write(untied.path().join("model.safetensors"), safetensors::file(&tensors)).expect("written");
    assert_eq!(head(untied.path()), (false, 1.0, true));
    // The tables are shared and the file says that nothing is scaled.
    assert_eq!(head(&golden_root().join("t5-v1.1")), (true, 1.0, true));
}

/// A golden model's tensors in 16 bits, their values changed.
fn halves(case: &str, change: impl Fn(&str, &mut [f32])) -> Vec<Tensor> {
    let file = describe(&golden_root().join(case)).expect("described").checkpoint;
    let half = |info: &attend_format::TensorInfo| {
        let mut bytes = vec![0; info.bytes as usize];
        file.read_at(&info.name, 0, &mut bytes).expect("read");
        let mut values = vec![0.0; info.shape.iter().product()];
        dequantize(info.dtype, &bytes, &mut values).expect("numbers");
        change(&info.name, &mut values);
        let mut half = vec![0; values.len() * 2];
        quantize(DType::F16, &values, &mut half).expect("16 bits");
        Tensor::new(&info.name, "F16", &info.shape, half)
    };
    file.tensors().values().map(half).collect()
}

/// S2S-06: the second matrix of each feed-forward part so large that hidden values are beyond 16-bit floats.
#[test]
fn hidden_values_beyond_16_bit_floats_stay_finite() {
    let tensors = halves("t5-v1.0", |name, values| {
        if name.ends_with("wo.weight") {
            values.iter_mut().for_each(|value| *value *= 2e4);
        }
    });
    let folder = changed("t5-v1.0", |_| {});
    std::fs::write(folder.path().join("model.safetensors"), safetensors::file(&tensors)).expect("written");
    for (compute, dtype) in [(Compute::Native, None), (Compute::Native, Some(DType::BF16)), (Compute::F32, None)] {
        let loaded = load(folder.path(), &LoadOptions { compute, dtype, ..LoadOptions::default() }, &mut |_, _| {});
        let loaded = loaded.expect("loads");
        let outputs = |site: Site| matches!(site.place, Place::Layer { part: LayerPart::Out, .. });
        let mut recorder = Recorder::new(outputs);
        let source = [vec![7u32, 8, 9, 1]];
        let run = RunOptions::default();
        loaded.model.forward(StackKind::Encoder, &mut Batch::of(&source), &run, &mut recorder).expect("encoded");
        let largest = recorder.records.iter().flat_map(|record| &record.value).fold(0f32, |most, x| most.max(x.abs()));
        assert!(largest > 7e4, "the test is about large values: {largest}");
        let hidden =
            loaded.model.forward(StackKind::Encoder, &mut Batch::of(&source), &run, &mut Nobody).expect("encoded");
        assert!(hidden.iter().all(|value| value.is_finite()), "{compute:?} {dtype:?}");
        let engine = Engine::new(&loaded, None, &EngineOptions::default()).expect("an engine");
        let mut options = GenerateOptions::default();
        options.length.max_tokens = Some(6);
        // A logit that is not finite is an error of the engine.
        let output = engine.generate(Prompt::source(source[0].clone()), &options, &mut |_| ControlFlow::Continue(()));
        assert!(!output.expect("an answer").choices[0].token_ids.is_empty());
    }
}

/// A tokenizer of words with languages, `in_front` of the text or behind its end.
fn words(languages: &[&str], template: &[&str]) -> tempfile::TempDir {
    let mut vocabulary: Vec<String> = ["<s>", "<pad>", "</s>", "<unk>"].map(str::to_owned).to_vec();
    vocabulary.extend((4..90).map(|id| format!("w{id}")));
    vocabulary.extend(languages.iter().map(|code| (*code).to_owned()));
    let id = |token: &str| vocabulary.iter().position(|known| known == token).expect("a token") as u32;
    let added: Vec<Value> = (0..4u32)
        .chain(90..vocabulary.len() as u32)
        .map(|id| json!({"id": id, "content": vocabulary[id as usize], "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}))
        .collect();
    let pieces: Vec<Value> = template
        .iter()
        .map(|piece| match *piece {
            "$A" => json!({"Sequence": {"id": "A", "type_id": 0}}),
            token => json!({"SpecialToken": {"id": token, "type_id": 0}}),
        })
        .collect();
    let specials: Map<String, Value> = template
        .iter()
        .filter(|piece| **piece != "$A")
        .map(|token| ((*token).to_owned(), json!({"id": token, "ids": [id(token)], "tokens": [token]})))
        .collect();
    let pair: Vec<Value> = pieces.iter().cloned().chain([json!({"Sequence": {"id": "B", "type_id": 0}})]).collect();
    let table: Map<String, Value> = vocabulary.iter().zip(0..).map(|(token, id)| (token.clone(), json!(id))).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing", "single": pieces, "pair": pair, "special_tokens": specials},
        "model": {"type": "WordLevel", "vocab": table, "unk_token": "<unk>"},
    });
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).expect("written");
    folder
}

fn translate(source: Option<&str>, target: Option<&str>) -> Writing {
    Writing::Translate { source: source.map(str::to_owned), target: target.map(str::to_owned) }
}

/// S2S-02: the source's own language in its place, the target's as the first token of the answer.
#[test]
fn languages_reach_the_encoder_and_the_first_token() {
    let loaded = loaded(&golden_root().join("mbart"));
    let codes = ["eng_Latn", "fra_Latn", "deu_Latn"];
    for (template, expected) in
        [(["eng_Latn", "$A", "</s>"], vec![91, 10, 11, 2]), (["$A", "</s>", "eng_Latn"], vec![10, 11, 2, 91])]
    {
        let folder = words(&codes, &template);
        let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
        let engine = engine(&loaded, Some(&tokenizer));
        for target in ["deu_Latn", "deu", "de", "German", "DEU_LATN"] {
            let task = engine.text_task(&translate(Some("French"), Some(target)), None).expect("a task");
            let ready = engine.task_prompt(&task, "w10 w11", false).expect("a prompt");
            assert_eq!(ready.prompt.encoder_ids, Some(expected.clone()), "{target}");
            let options = engine.task_options(&task, [("max_tokens".to_owned(), json!(3))]).expect("options").options;
            let output =
                engine.generate(ready.prompt, &options, &mut |_| ControlFlow::Continue(())).expect("an answer");
            assert_eq!(output.prompt_token_ids, [2]);
            assert_eq!(output.choices[0].token_ids[0], 92, "{target}");
        }
        let refused =
            |source, target| engine.text_task(&translate(source, target), None).expect_err("refused").to_string();
        assert!(refused(None, Some("tlh_Latn")).contains("language `tlh_Latn`"), "unknown languages are named");
        assert!(refused(Some("xx"), Some("deu_Latn")).contains("language `xx`"));
        let own = engine.text_task(&translate(None, Some("deu_Latn")), None).expect("a task");
        assert!(own.notices[0].contains("eng_Latn"), "the assumed source is said: {:?}", own.notices);
    }
}

#[test]
fn a_language_must_be_said_unless_the_files_say_it() {
    let folder = words(&["eng_Latn", "fra_Latn", "deu_Latn"], &["eng_Latn", "$A", "</s>"]);
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    // The golden's files force a first token that is no language here.
    let silent = changed("mbart", |config| drop(config.remove("forced_bos_token_id")));
    let silent = loaded(silent.path());
    let error = engine(&silent, Some(&tokenizer)).text_task(&translate(None, None), None).expect_err("refused");
    assert!(error.to_string().contains("must be said"), "{error}");
    let forced = changed("mbart", |config| drop(config.insert("forced_bos_token_id".into(), json!(91))));
    let forced = loaded(forced.path());
    let task = engine(&forced, Some(&tokenizer)).text_task(&translate(None, None), None).expect("a task");
    assert_eq!(task.generation.forced_bos, Some(91));
    // A decoder that starts with a language starts with the target's.
    let starts = changed("mbart", |config| {
        config.remove("forced_bos_token_id");
        config.insert("decoder_start_token_id".into(), json!(91));
    });
    let starts = loaded(starts.path());
    let task = engine(&starts, Some(&tokenizer)).text_task(&translate(None, Some("de")), None).expect("a task");
    assert_eq!((task.start, task.generation.forced_bos), (Some(92), None));
}

#[test]
fn a_marked_target_stands_in_front_of_the_source() {
    let loaded = loaded(&golden_root().join("marian"));
    let folder = words(&[">>fra<<", ">>deu<<"], &["$A", "</s>"]);
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    let engine = engine(&loaded, Some(&tokenizer));
    let task = engine.text_task(&translate(None, Some("deu")), None).expect("a task");
    let ready = engine.task_prompt(&task, "w10", false).expect("a prompt");
    assert_eq!(ready.prompt.encoder_ids, Some(vec![91, 10, 2]));
    assert!(engine.text_task(&translate(None, Some("spa")), None).is_err());
}

/// The prefixes and settings of `task_specific_params`.
#[test]
fn tasks_in_words_come_from_the_configuration() {
    let folder = words(&[], &["$A", "</s>"]);
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    let with_tasks = changed("t5-v1.0", |config| {
        let tasks = json!({
            "summarization": {"prefix": "w20 ", "num_beams": 3, "max_length": 9, "length_penalty": 2.0},
            "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 2},
        });
        config.insert("task_specific_params".into(), tasks);
    });
    let loaded = loaded(with_tasks.path());
    let engine = engine(&loaded, Some(&tokenizer));
    let task = engine.text_task(&Writing::Summarize, None).expect("a task");
    let ready = engine.task_prompt(&task, "w10", false).expect("a prompt");
    assert_eq!(ready.prompt.encoder_ids, Some(vec![20, 10, 2]));
    let options = engine.task_options(&task, [("num_beams".to_owned(), json!(4))]).expect("options").options;
    assert_eq!((options.beam.num_beams, options.beam.length_penalty), (4, 2.0));
    assert_eq!(engine.text_task(&Writing::Summarize, Some("w5 ")).expect("a task").prefix, "w5 ");
    for (source, target) in [(None, None), (Some("en"), Some("German")), (Some("eng"), Some("de"))] {
        let task = engine.text_task(&translate(source, target), None).expect("a task");
        assert_eq!(task.prefix, "translate English to German: ");
        assert_eq!(task.generation.num_beams, Some(2));
    }
    let task = engine.text_task(&translate(Some("en"), Some("Spanish")), None).expect("a task");
    assert_eq!(task.prefix, "translate English to Spanish: ");
    assert_eq!(task.notices.len(), 1, "a prefix that no file gives is said");
    assert!(engine.text_task(&translate(Some("en"), Some("Klingon")), None).is_err());
}

/// Inputs that are too long are refused, or cut where that is asked for, with their end token.
#[test]
fn long_inputs_are_cut_only_when_asked() {
    let loaded = loaded(&golden_root().join("bart"));
    let folder = words(&[], &["<s>", "$A", "</s>"]);
    let tokenizer = Tokenizer::open(folder.path()).expect("a tokenizer");
    let engine = engine(&loaded, Some(&tokenizer));
    let task = engine.text_task(&Writing::Summarize, None).expect("a task");
    let text = vec!["w10"; 60].join(" ");
    let whole = engine.task_prompt(&task, &text, false).expect("a prompt");
    assert_eq!(whole.cut_from, None);
    let options = GenerateOptions::default();
    let refused = engine.generate(whole.prompt, &options, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::Context { tokens: 62, context: 40, .. })));
    let cut = engine.task_prompt(&task, &text, true).expect("a prompt");
    let ids = cut.prompt.encoder_ids.expect("a source");
    assert_eq!((ids.len(), ids[0], ids[39], cut.cut_from), (40, 0, 2, Some(62)));
}
