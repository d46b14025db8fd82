//! Which of a repository's files make a model.

use super::Error;
use super::hub::Remote;
use serde::Deserialize;

/// Small files that a model may need beside its weights.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "preprocessor_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// Folder and file of a name such as `1_Pooling/config.json` or `0_Transformer/vocab.txt`: what `modules.json` of a
/// sentence-embedding model calls for.
fn of_module(name: &str) -> Option<(&str, &str)> {
    let (folder, file) = name.split_once('/')?;
    let (index, word) = folder.split_once('_')?;
    let plain = |text: &str, good: fn(&u8) -> bool| !text.is_empty() && text.bytes().all(|byte| good(&byte));
    let ours = plain(index, u8::is_ascii_digit) && plain(word, u8::is_ascii_alphanumeric) && is_file_name(file);
    ours.then_some((folder, file))
}

/// The files of the modules' folders that are read: small ones, and weights in one file.
fn modules(all: &[Remote]) -> Vec<Remote> {
    let has = |name: &str| all.iter().any(|remote| remote.name == name);
    let wanted = |remote: &&Remote| {
        of_module(&remote.name).is_some_and(|(folder, file)| match file {
            "model.safetensors" => true,
            "pytorch_model.bin" => !has(&format!("{folder}/model.safetensors")),
            other => COMPANIONS.contains(&other),
        })
    };
    if has("modules.json") { all.iter().filter(wanted).cloned().collect() } else { Vec::new() }
}

/// Whether some files are those of a transformer in the first module's folder.
pub fn has_transformer_inside<'n>(names: impl Iterator<Item = &'n str>) -> bool {
    let inside: Vec<&str> =
        names.filter_map(of_module).filter(|(folder, _)| folder.starts_with("0_")).map(|(_, file)| file).collect();
    inside.contains(&"config.json") && (inside.contains(&"model.safetensors") || inside.contains(&"pytorch_model.bin"))
}

/// The indices of sharded weights, in order of preference.
pub const INDICES: [&str; 2] = ["model.safetensors.index.json", "pytorch_model.bin.index.json"];

/// Which files to fetch, and whether an index must be read to learn the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    pub files: Vec<Remote>,
    pub index: Option<&'static str>,
}

/// Chooses the files of a model: a Hugging Face folder where there is one and no file was asked for, else GGUF.
pub fn needed(repo: &str, all: &[Remote], file: Option<&str>) -> Result<Needed, Error> {
    let named = |name: &str| all.iter().find(|remote| remote.name == name).cloned();
    let companions = || COMPANIONS.iter().filter_map(|name| named(name)).collect::<Vec<_>>();
    let modules = modules(all);
    if file.is_none() && has_transformer_inside(modules.iter().map(|remote| remote.name.as_str())) {
        return Ok(Needed { files: companions().into_iter().chain(modules).collect(), index: None });
    }
    if file.is_none() && named("config.json").is_some() {
        let mut files: Vec<Remote> = companions().into_iter().chain(modules).collect();
        let choices = [
            (Some("model.safetensors"), None),
            (None, Some(INDICES[0])),
            (Some("pytorch_model.bin"), None),
            (None, Some(INDICES[1])),
        ];
        for (single, index) in choices {
            if let Some(remote) = single.or(index).and_then(named) {
                files.push(remote);
                return Ok(Needed { files, index });
            }
        }
    }
    let names: Vec<String> = all.iter().map(|remote| remote.name.clone()).collect();
    let parts = pick_gguf(repo, &names, file)?;
    Ok(Needed { files: parts.iter().filter_map(|part| named(part)).collect(), index: None })
}

/// The shards that an index names, each once; `None` when it is not an index or names a file outside the folder.
pub fn shards_of_index(text: &[u8]) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(text).ok()?;
    let mut shards: Vec<String> = index.weight_map.into_values().collect();
    shards.sort();
    shards.dedup();
    shards.iter().all(|name| is_file_name(name)).then_some(shards)
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0', ':'])
}

/// The GGUF file (all its parts, in order) that `wanted` names by file name or by its quantisation.
pub fn pick_gguf(repo: &str, names: &[String], wanted: Option<&str>) -> Result<Vec<String>, Error> {
    let mut models: Vec<&String> =
        names.iter().filter(|name| is_file_name(name) && name.ends_with(".gguf") && !name.contains("mmproj")).collect();
    models.sort();
    let firsts: Vec<&String> =
        models.iter().copied().filter(|name| part_of(name).is_none_or(|part| part == 1)).collect();
    let chosen: Vec<&String> = match wanted {
        None => firsts.clone(),
        Some(wanted) => firsts.iter().copied().filter(|name| answers_to(name, wanted)).collect(),
    };
    match chosen.as_slice() {
        [] => Err(Error::NoWeights { name: repo.into(), wanted: wanted.map(Into::into) }),
        [one] if part_of(one).is_none() => Ok(vec![(*one).clone()]),
        [one] => Ok(models.iter().filter(|name| group(name) == group(one)).map(|name| (*name).clone()).collect()),
        several => Err(Error::Choose { name: repo.into(), choices: several.iter().map(|n| (*n).clone()).collect() }),
    }
}

/// `name-00002-of-00003.gguf` is part 2.
fn part_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".gguf")?;
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (_, part) = rest.rsplit_once('-')?;
    total.parse::<u32>().ok()?;
    part.parse().ok()
}

/// The name without its part and ending.
fn group(name: &str) -> &str {
    let stem = name.strip_suffix(".gguf").unwrap_or(name);
    match part_of(name) {
        Some(_) => stem.rsplit_once("-of-").and_then(|(rest, _)| rest.rsplit_once('-')).map_or(stem, |(rest, _)| rest),
        None => stem,
    }
}

fn answers_to(name: &str, wanted: &str) -> bool {
    let (name_lower, wanted) = (name.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    if name_lower == wanted {
        return true;
    }
    let stem = group(&name_lower);
    stem == wanted || stem.strip_suffix(&wanted).is_some_and(|rest| rest.ends_with(['-', '.', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(name: &str) -> Remote {
        Remote { name: name.into(), bytes: None, sha256: None }
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_what_a_model_needs_is_fetched() {
        let all: Vec<Remote> = [
            "README.md",
            "config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "tf_model.h5",
            "tokenizer.json",
            "x.gguf",
        ]
        .iter()
        .map(|name| remote(name))
        .collect();
        let got: Vec<String> = needed("o/m", &all, None).expect("weights").files.into_iter().map(|f| f.name).collect();
        assert_eq!(got, ["config.json", "tokenizer.json", "model.safetensors"]);
        let gguf: Vec<String> =
            needed("o/m", &all, Some("x.gguf")).expect("file").files.into_iter().map(|f| f.name).collect();
        assert_eq!(gguf, ["x.gguf"]);
        let sentence: Vec<Remote> = [
            "modules.json",
            "config_sentence_transformers.json",
            "README.md",
            "0_Transformer/config.json",
            "0_Transformer/vocab.txt",
            "0_Transformer/pytorch_model.bin",
            "0_Transformer/tf_model.h5",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "2_Dense/pytorch_model.bin",
            "onnx/model.onnx",
        ]
        .iter()
        .map(|name| remote(name))
        .collect();
        let got: Vec<String> =
            needed("o/m", &sentence, None).expect("weights").files.into_iter().map(|f| f.name).collect();
        assert_eq!(
            got,
            [
                "modules.json",
                "config_sentence_transformers.json",
                "0_Transformer/config.json",
                "0_Transformer/vocab.txt",
                "0_Transformer/pytorch_model.bin",
                "1_Pooling/config.json",
                "2_Dense/config.json",
                "2_Dense/model.safetensors",
            ]
        );
        let sharded = [remote("config.json"), remote(INDICES[0]), remote("model-00001-of-00002.safetensors")];
        assert_eq!(needed("o/m", &sharded, None).expect("index").index, Some(INDICES[0]));
        assert!(matches!(needed("o/m", &[remote("config.json")], None), Err(Error::NoWeights { .. })));
    }

    #[test]
    fn gguf_files_are_named_by_file_or_quantisation() {
        let list = names(&[
            "m-Q4_K_M.gguf",
            "m-Q4_K_S.gguf",
            "m-Q8_0-00002-of-00002.gguf",
            "m-Q8_0-00001-of-00002.gguf",
            "mmproj.gguf",
        ]);
        let pick = |wanted: Option<&str>| pick_gguf("o/m", &list, wanted);
        assert_eq!(pick(Some("q4_k_m")).expect("one"), ["m-Q4_K_M.gguf"]);
        assert_eq!(pick(Some("m-Q4_K_S.gguf")).expect("one"), ["m-Q4_K_S.gguf"]);
        assert_eq!(
            pick(Some("Q8_0")).expect("both parts"),
            ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
        );
        assert!(matches!(pick(None), Err(Error::Choose { choices, .. }) if choices.len() == 3));
        assert!(matches!(pick(Some("K_M")), Ok(one) if one == ["m-Q4_K_M.gguf"]));
        assert!(matches!(pick(Some("4_K_M")), Err(Error::NoWeights { .. })));
    }

    #[test]
    fn an_index_cannot_name_files_elsewhere() {
        assert_eq!(shards_of_index(br#"{"weight_map":{"a":"s2","b":"s1","c":"s1"}}"#).expect("index"), ["s1", "s2"]);
        for bad in
            [r#"{"weight_map":{"a":"../s"}}"#, r#"{"weight_map":{"a":"/s"}}"#, r#"{"weight_map":{"a":""}}"#, "[]"]
        {
            assert_eq!(shards_of_index(bad.as_bytes()), None, "{bad}");
        }
    }
}
