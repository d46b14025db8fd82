//! The page that a browser gets: a shell of HTML, style and script without data, which asks the other routes like any client.

use crate::failure::Failure;
use crate::front::reply;
use crate::front::routes::Asked;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// A file of the shell.
struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! asset {
    ($path:literal, $kind:literal, $file:literal) => {
        Asset { path: $path, kind: $kind, text: include_str!($file) }
    };
}

/// Everything that the page is made of; it loads nothing else.
static ASSETS: &[Asset] = &[
    asset!("/", "text/html; charset=utf-8", "index.html"),
    // The same, which then begins with the routes.
    asset!("/docs", "text/html; charset=utf-8", "index.html"),
    asset!("/assets/page.css", "text/css; charset=utf-8", "page.css"),
    asset!("/assets/page.js", "text/javascript; charset=utf-8", "page.js"),
    asset!("/assets/api.js", "text/javascript; charset=utf-8", "api.js"),
    asset!("/assets/dom.js", "text/javascript; charset=utf-8", "dom.js"),
    asset!("/assets/answer.js", "text/javascript; charset=utf-8", "answer.js"),
    asset!("/assets/chat.js", "text/javascript; charset=utf-8", "chat.js"),
    asset!("/assets/live.js", "text/javascript; charset=utf-8", "live.js"),
    asset!("/assets/routes.js", "text/javascript; charset=utf-8", "routes.js"),
    asset!("/assets/tasks.js", "text/javascript; charset=utf-8", "tasks.js"),
    asset!("/assets/icon.svg", "image/svg+xml", "icon.svg"),
];

/// What a browser is to hold the page to: nothing from elsewhere, no script but its files, and no text taken for HTML.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Whether a path is one of the shell's, which hold no data and need no key.
pub fn is_shell(path: &str) -> bool {
    find(path).is_some()
}

fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// The file that the path names.
///
/// # Errors
/// A path that names none.
pub async fn answer(asked: Asked) -> Result<Response<Body>, Failure> {
    let asset = find(asked.parts.uri.path()).ok_or_else(Failure::unknown_route)?;
    let tag = tag(asset.text);
    let known = asked.parts.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = match known.is_some_and(|known| names(known, &tag)) {
        true => reply::typed(StatusCode::NOT_MODIFIED, asset.kind, Body::empty()),
        false => reply::typed(StatusCode::OK, asset.kind, asset.text),
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    for (name, value) in [
        // Another version of the program has other files under the same names.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The name of a content.
fn tag(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let mut tag = String::from("\"");
    for byte in digest.iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
}

/// Whether a list of tags, as `If-None-Match` has it, names this one.
fn names(list: &str, tag: &str) -> bool {
    list.split(',').map(str::trim).any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_lists() {
        let tag = tag("text");
        assert_ne!(tag, super::tag("other"));
        for list in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
            assert!(names(&list, &tag), "{list}");
        }
        for list in ["", "\"x\"", tag.trim_matches('"')] {
            assert!(!names(list, &tag), "{list}");
        }
    }

    /// Nothing of the page leads elsewhere: it works without a network, and a policy that forbade it would only break it.
    #[test]
    fn assets_name_no_other_host() {
        for asset in ASSETS {
            // The name of SVG's elements has the form of an address and is none.
            let text = asset.text.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            for address in ["http://", "https://", "ws://", "wss://", "\"//", "'//", "`//", "(//", "url("] {
                assert!(!text.contains(address), "{}: {address}", asset.path);
            }
        }
    }

    /// Everything that a file of the page loads is one of its files.
    #[test]
    fn assets_load_assets() {
        for asset in ASSETS {
            for quoted in asset.text.split('"').filter(|text| text.starts_with("/assets/") || text.starts_with("./")) {
                let path = quoted.replacen("./", "/assets/", 1);
                assert!(is_shell(&path), "{} loads {path}", asset.path);
            }
        }
    }

    /// What the policy would stop, or what would take text for HTML, is not even tried.
    #[test]
    fn scripts_write_text_only() {
        for asset in ASSETS {
            for name in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "style=\"",
                " onclick=\"",
                "<style",
            ] {
                assert!(!asset.text.contains(name), "{}: {name}", asset.path);
            }
        }
    }
}
