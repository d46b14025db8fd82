//! A small client of the Hugging Face hub: the list of a repository's files, and where each is.

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
