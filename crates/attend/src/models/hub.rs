//! A small client of the Hugging Face hub: the list of a repository's files, and which of them a model needs.

use super::Error;
use serde::Deserialize;
use std::time::Duration;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// Waiting longer than this for a connection or for the next bytes means that nobody answers.
pub const CONNECT_SECONDS: u64 = 10;
pub const READ_SECONDS: u64 = 30;
/// A repository's list of files is a page of JSON; anything larger is not one.
const LIST_LIMIT: u64 = 16 << 20;

/// The hub as the environment describes it: `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`.
#[derive(Debug)]
pub struct Hub {
    endpoint: String,
    token: Option<String>,
    pub(super) agent: ureq::Agent,
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub name: String,
    pub bytes: Option<u64>,
    pub sha256: Option<String>,
}

#[derive(Deserialize)]
struct TreeItem {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: Option<u64>,
}

impl Hub {
    pub fn from_environment() -> Hub {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        let config = ureq::Agent::config_builder()
            .user_agent(concat!("attend/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(Duration::from_secs(CONNECT_SECONDS)))
            .timeout_resolve(Some(Duration::from_secs(CONNECT_SECONDS)))
            .timeout_recv_response(Some(Duration::from_secs(READ_SECONDS)))
            .timeout_per_read(Some(Duration::from_secs(READ_SECONDS)))
            .http_status_as_error(false)
            .build();
        Hub { endpoint: endpoint.trim_end_matches('/').to_owned(), token: variable("HF_TOKEN"), agent: config.into() }
    }

    /// `HF_HUB_OFFLINE` (or `TRANSFORMERS_OFFLINE`) is set to something other than 0, no, off or false.
    pub fn offline() -> bool {
        ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].iter().any(|name| {
            std::env::var(name)
                .is_ok_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "no" | "off" | "false"))
        })
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether the hub answers at all.
    pub fn answers(&self) -> Result<(), Error> {
        let url = format!("{}/api/models?limit=1", self.endpoint);
        let status = self.agent.get(&url).call().map_err(|error| network(&url, &error))?.status().as_u16();
        self.check(status, &url, "main")
    }

    /// A request with the user's token, which is never sent on to another host by a redirect.
    pub(super) fn get(&self, url: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        self.authorised(self.agent.get(url))
    }

    fn authorised(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithoutBody>,
    ) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {}", token.trim())),
            None => request,
        }
    }

    /// Where a file's bytes are.
    pub(super) fn file_url(&self, repo: &str, revision: &str, file: &str) -> String {
        format!("{}/{repo}/resolve/{revision}/{file}", self.endpoint)
    }

    /// Every file of a repository at a revision.
    pub fn files(&self, repo: &str, revision: &str) -> Result<Vec<Remote>, Error> {
        let url = format!("{}/api/models/{repo}/tree/{revision}?recursive=true", self.endpoint);
        let mut response = self.get(&url).call().map_err(|error| network(&url, &error))?;
        self.check(response.status().as_u16(), repo, revision)?;
        let list: Vec<TreeItem> =
            response.body_mut().with_config().limit(LIST_LIMIT).read_json().map_err(|error| network(&url, &error))?;
        Ok(list.into_iter().filter(|item| item.kind == "file").map(Remote::from).collect())
    }

    /// The checksum of a large file by the header of its address, for servers whose lists have none.
    pub(super) fn linked_sha256(&self, url: &str) -> Option<String> {
        let request = self.authorised(self.agent.head(url));
        let response = request.config().max_redirects(0).build().call().ok()?;
        let tag = response.headers().get("x-linked-etag")?.to_str().ok()?.trim_matches('"').to_ascii_lowercase();
        is_sha256(&tag).then_some(tag)
    }

    /// What a status means, in words that help.
    pub(super) fn check(&self, status: u16, repo: &str, revision: &str) -> Result<(), Error> {
        let message = match status {
            200..=299 => return Ok(()),
            401 | 403 if self.token.is_none() => {
                "no such model, or one that must be asked for: set HF_TOKEN to use your access to it".to_owned()
            }
            401 | 403 => "HF_TOKEN gives no access to it".to_owned(),
            404 => format!("no such model or revision ({revision})"),
            429 => "too many requests; try again later".to_owned(),
            _ => format!("the hub answered with status {status}"),
        };
        Err(Error::Network { what: repo.into(), message })
    }
}

impl From<TreeItem> for Remote {
    fn from(item: TreeItem) -> Remote {
        let linked = item.lfs.as_ref().and_then(|lfs| lfs.size);
        let sha256 = item.lfs.map(|lfs| lfs.oid.trim_start_matches("sha256:").to_ascii_lowercase());
        Remote { name: item.path, bytes: linked.or(item.size), sha256: sha256.filter(|sum| is_sha256(sum)) }
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A failed exchange in words.
pub(super) fn network(url: &str, error: &ureq::Error) -> Error {
    let message = match error {
        ureq::Error::Timeout(_) => {
            format!("no answer (waited {CONNECT_SECONDS} s to connect, {READ_SECONDS} s for bytes)")
        }
        ureq::Error::HostNotFound => "the host's name is not known; is there a network?".into(),
        other => other.to_string(),
    };
    Error::Network { what: url.into(), message }
}

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
    "1_Pooling/config.json",
];

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
    if file.is_none() && named("config.json").is_some() {
        let mut files = companions();
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
