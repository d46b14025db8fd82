//! Who may ask: keys, and the names under which a server on this machine may be called.

use crate::failure::Failure;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use sha2::{Digest, Sha256};

/// The keys of a server; none: everybody may ask.
#[derive(Debug, Clone, Default)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// One key a line; empty lines and lines that begin with # say nothing.
    ///
    /// # Errors
    /// A text without a key, and keys that no header can carry.
    pub fn parse(text: &str) -> Result<Keys, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<&str> = lines.collect();
        if keys.is_empty() {
            return Err("there is no key in it: one in each line is wanted".into());
        }
        match keys.iter().position(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            Some(index) => Err(format!("key {} holds a space or a character that is not ASCII", index + 1)),
            None => {
                let mut digests: Vec<[u8; 32]> = keys.into_iter().map(digest).collect();
                // A key that stands there twice has one number.
                digests.sort_unstable();
                digests.dedup();
                Ok(Keys(digests))
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Which of them a key is, counted from 1; 0 where it is none. Neither the place of a difference nor the matching key
    /// shows in the time it takes: digests are compared, whole, with all of them.
    fn number(&self, key: &str) -> usize {
        let own = digest(key);
        let differences = |known: &[u8; 32]| own.iter().zip(known).fold(0u8, |sum, (a, b)| sum | (a ^ b));
        let found = self.0.iter().enumerate().fold(0, |found, (index, known)| {
            // All ones where nothing differs.
            let same = usize::from(std::hint::black_box(differences(known)) == 0).wrapping_neg();
            found | (same & (index + 1))
        });
        std::hint::black_box(found)
    }

    /// Who asks, by the number of the key, counted from 1; 0 where no key is wanted.
    ///
    /// # Errors
    /// A request that brings none of the keys, as `Authorization: Bearer` or `x-api-key`.
    pub fn check(&self, headers: &HeaderMap) -> Result<usize, Failure> {
        if self.is_empty() {
            return Ok(0);
        }
        let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION).and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
        });
        let given = bearer.or_else(|| text(header::HeaderName::from_static("x-api-key")));
        match given.map(|key| self.number(key)) {
            Some(number) if number > 0 => Ok(number),
            Some(_) => Err(unauthorized("the key is not one of this server's")),
            None => Err(unauthorized("a key is wanted: Authorization: Bearer KEY")),
        }
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn unauthorized(message: &str) -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, message).code("invalid_api_key")
}

/// Refuses what a page in somebody's browser could send here: requests under a foreign name (whose owner lets it point to
/// this machine), and requests that a page of another origin makes.
///
/// # Errors
/// Such a request.
pub fn check_names(parts: &Parts, loopback: bool) -> Result<(), Failure> {
    let forbidden = |message: String| Err(Failure::new(StatusCode::FORBIDDEN, message));
    let host = host(&parts.uri, &parts.headers)?;
    if loopback && !host.as_deref().is_none_or(|host| is_local(name(host))) {
        return forbidden("this server answers to localhost only; the Host header names another".into());
    }
    let Some(origin) = parts.headers.get(header::ORIGIN) else { return Ok(()) };
    let same = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .is_some_and(|(_, origin)| host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(origin)));
    if same { Ok(()) } else { forbidden("requests of pages of other origins are not taken".into()) }
}

/// The name and port under which the server was asked.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<String>, Failure> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.as_str().to_owned()));
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(None),
        (Some(host), None) => match host.to_str() {
            Ok(host) => Ok(Some(host.to_owned())),
            Err(_) => Err(Failure::bad("the Host header is no name")),
        },
        (Some(_), Some(_)) => Err(Failure::bad("there are several Host headers")),
    }
}

/// A host without its port.
fn name(host: &str) -> &str {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/v1/models");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn keys_are_read_and_compared() {
        let keys = Keys::parse("# comment\n\nfirst\n second \n").expect("keys");
        let check = |headers: &[(&str, &str)]| keys.check(&parts(headers).headers).is_ok();
        assert!(check(&[("authorization", "Bearer first")]) && check(&[("authorization", "bearer second")]));
        assert!(check(&[("x-api-key", "second")]));
        for wrong in ["", "firs", "first2", "FIRST", "# comment"] {
            assert!(!check(&[("x-api-key", wrong)]), "{wrong}");
        }
        assert!(!check(&[]) && !check(&[("authorization", "Basic first")]) && !check(&[("authorization", "first")]));
        assert_eq!(Keys::default().check(&parts(&[]).headers).ok(), Some(0));
        let who = |key: &str| keys.check(&parts(&[("x-api-key", key)]).headers).ok();
        assert!(who("first").is_some() && who("second").is_some() && who("first") != who("second"));
        assert_eq!(who("third"), None);
        assert_eq!(Keys::parse("a\na").expect("one key").0.len(), 1);
        assert!(Keys::parse("# nothing\n").is_err() && Keys::parse("two words").is_err());
    }

    #[test]
    fn names_of_this_machine_are_taken_on_it() {
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "a.localhost", "localhost."]
        {
            assert!(check_names(&parts(&[("host", host)]), true).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example"]
        {
            let refused = check_names(&parts(&[("host", host)]), true).expect_err(host);
            assert_eq!(refused.status, StatusCode::FORBIDDEN);
            assert!(check_names(&parts(&[("host", host)]), false).is_ok(), "{host}");
        }
        assert!(check_names(&parts(&[]), true).is_ok());
        assert!(check_names(&parts(&[("host", "localhost"), ("host", "localhost")]), true).is_err());
    }

    #[test]
    fn pages_of_other_origins_are_not() {
        let from = |origin: &str| check_names(&parts(&[("host", "localhost:8080"), ("origin", origin)]), true).is_ok();
        assert!(from("http://localhost:8080"));
        for origin in ["http://localhost:3000", "https://evil.example", "null", "http://localhost", ""] {
            assert!(!from(origin), "{origin}");
        }
    }
}
