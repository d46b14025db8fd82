//! Connections of other kinds: behind TLS, and through a socket in the file system.

use crate::client::{self, Answer, connect, read, request};
use crate::support::{Serving, Setup, tiny_setup};
use attend_server::{Limits, Listen, Tls};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate for localhost and its key, in a folder as `cert.pem` and `key.pem`.
fn certificate() -> (TempDir, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("cert.pem"), cert.pem()).expect("written");
    std::fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).expect("written");
    (folder, cert.der().clone())
}

fn quick(listen: Listen) -> Setup {
    let limits = Limits { head_time: Duration::from_millis(400), idle: Duration::from_secs(2), ..Limits::default() };
    Setup { listen, limits, ..tiny_setup(json!({}), None) }
}

/// Sends bytes to a server behind TLS, whose certificate must be this one.
fn secretly(serving: &Serving, trusted: &CertificateDer<'static>, bytes: &[u8]) -> Result<Answer, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    let mut stream = StreamOwned::new(session, connect(serving.address));
    stream.write_all(bytes)?;
    assert_eq!(stream.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
    Ok(read(&mut BufReader::new(stream)).expect("an answer"))
}

#[test]
fn requests_come_behind_tls() {
    let (folder, trusted) = certificate();
    let at = |name: &str| folder.path().join(name);
    let tls = Tls::open(&at("cert.pem"), &at("key.pem")).expect("a certificate");
    let serving = quick(Listen::Address { host: "127.0.0.1".into(), port: 0, tls: Some(tls) }).start();
    assert!(serving.place.to_string().starts_with("https://127.0.0.1:"), "{}", serving.place);
    let ask = |bytes: &[u8]| secretly(&serving, &trusted, bytes);
    let get = |path: &str| ask(&request("GET", path, &[], b"")).expect("an answer");
    serving.until("ready", || get("/health").status == 200);
    let body = json!({"prompt": "t5", "max_tokens": 8, "ignore_eos": true, "stream": true}).to_string();
    let stream = ask(&request("POST", "/v1/completions", &[], body.as_bytes())).expect("a stream").events();
    assert_eq!(stream.iter().filter(|event| event["choices"][0]["text"] != "").count(), 8, "{stream:?}");
    // The same guards: a foreign name, a page of another origin, a head that is too large.
    for headers in [&[("Host", "evil.example")][..], &[("Origin", "https://evil.example")]] {
        assert_eq!(ask(&request("GET", "/v1/models", headers, b"")).expect("an answer").status, 403);
    }
    let own = [("Host", "localhost:1"), ("Origin", "https://localhost:1")];
    assert_eq!(ask(&request("GET", "/v1/models", &own, b"")).expect("an answer").status, 200);
    let long = "x".repeat(20 << 10);
    assert_eq!(ask(&request("GET", "/health", &[("X-Long", &long)], b"")).expect("an answer").status, 431);
    // A client that trusts another certificate does not get one.
    let stranger = certificate().1;
    assert!(secretly(&serving, &stranger, b"GET / HTTP/1.1\r\n\r\n").is_err());
    // One that speaks HTTP is told what is spoken here.
    let plain = client::send(serving.address, &request("GET", "/v1/models", &[], b""));
    assert_eq!(plain.refused(400)["code"], "tls_wanted");
}

/// A greeting, and the head behind it, may take so long and no longer.
#[test]
fn slow_clients_are_given_up_behind_tls() {
    let (folder, trusted) = certificate();
    let tls = Tls::open(&folder.path().join("cert.pem"), &folder.path().join("key.pem")).expect("a certificate");
    let serving = quick(Listen::Address { host: "127.0.0.1".into(), port: 0, tls: Some(tls) }).start();
    for sent in [&b""[..], b"\x16", b"\x16\x03\x01"] {
        let mut stream = connect(serving.address);
        stream.write_all(sent).expect("sent");
        let begun = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new());
        assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&begun.elapsed()), "{sent:?}");
    }
    let half = secretly_half(&serving, &trusted);
    assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&half), "{half:?}");
}

/// How long a server waits for the rest of a head.
fn secretly_half(serving: &Serving, trusted: &CertificateDer<'static>) -> Duration {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::new(config.with_no_client_auth()), name).expect("a session");
    let mut stream = StreamOwned::new(session, connect(serving.address));
    stream.write_all(b"GET /he").expect("sent");
    let begun = Instant::now();
    let _ = stream.read_to_end(&mut Vec::new());
    begun.elapsed()
}

#[test]
fn certificates_that_are_none_are_refused_by_name() {
    let (folder, _) = certificate();
    let at = |name: &str| folder.path().join(name);
    let other = KeyPair::generate().expect("a key");
    for (name, text) in [
        ("empty", String::new()),
        ("words", "nothing here".into()),
        ("broken", "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n".into()),
        ("none", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
        ("cut", "-----BEGIN PRIVATE KEY-----\nAAAA\n".into()),
        ("no-key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".into()),
        ("other", other.serialize_pem()),
    ] {
        std::fs::write(at(name), text).expect("written");
    }
    let refused = |certificate: &str, key: &str| Tls::open(&at(certificate), &at(key)).expect_err("refused");
    for (certificate, key, at_fault, words) in [
        ("missing", "key.pem", "missing", "No such file"),
        ("cert.pem", "missing", "missing", "No such file"),
        ("empty", "key.pem", "empty", "BEGIN CERTIFICATE"),
        ("words", "key.pem", "words", "BEGIN CERTIFICATE"),
        ("key.pem", "key.pem", "key.pem", "BEGIN CERTIFICATE"),
        ("broken", "key.pem", "broken", "no PEM"),
        ("none", "key.pem", "none", ""),
        ("cert.pem", "cert.pem", "cert.pem", "BEGIN PRIVATE KEY"),
        ("cert.pem", "cut", "cut", ""),
        ("cert.pem", "no-key", "no-key", ""),
        ("cert.pem", "other", "other", "not the key of the certificate"),
    ] {
        let message = refused(certificate, key);
        assert!(message.starts_with(&*at(at_fault).to_string_lossy()), "{certificate} {key}: {message}");
        assert!(message.contains(words) && !message.contains('\n'), "{certificate} {key}: {message}");
    }
}

#[cfg(unix)]
mod sockets {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn ask(path: &Path, bytes: &[u8]) -> Option<Answer> {
        let mut stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let _ = stream.write_all(bytes);
        read(&mut BufReader::new(stream))
    }

    fn started(path: &Path) -> Serving {
        let serving = quick(Listen::Socket(path.to_owned())).start();
        let health = || ask(path, &request("GET", "/health", &[], b"")).is_some_and(|answer| answer.status == 200);
        serving.until("ready", health);
        serving
    }

    #[test]
    fn requests_come_through_a_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("attend.sock");
        let mut serving = started(&path);
        assert_eq!(serving.place.to_string(), format!("unix:{}", path.display()));
        let found = std::fs::symlink_metadata(&path).expect("there");
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        let post = |body: &Value, headers: &[(&str, &str)]| {
            ask(&path, &request("POST", "/v1/completions", headers, body.to_string().as_bytes())).expect("an answer")
        };
        let body = json!({"prompt": "t5", "max_tokens": 4});
        // Whoever stands before it may hand on the name it was asked under.
        let answer = post(&body, &[("Host", "models.example")]).good();
        assert_eq!(answer["usage"]["prompt_tokens"], 1);
        assert_eq!(post(&body, &[("Origin", "https://evil.example")]).status, 403);
        assert_eq!(post(&json!({"prompt": 5.5}), &[]).refused(400)["param"], "prompt");
        let long = "x".repeat(20 << 10);
        assert_eq!(ask(&path, &request("GET", "/health", &[("X-Long", &long)], b"")).expect("an answer").status, 431);
        let mut slow = UnixStream::connect(&path).expect("connected");
        slow.write_all(b"GET /he").expect("sent");
        let begun = Instant::now();
        let _ = slow.read_to_end(&mut Vec::new());
        assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&begun.elapsed()));
        serving.stop();
        assert_eq!(serving.ended(), Ok(()));
        assert!(!path.exists(), "the file is removed");
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("attend.sock");
        let refused = |path: &Path| {
            let outcome = attend_server::front::listen::Bound::take(Listen::Socket(path.to_owned()));
            let message = outcome.expect_err("refused");
            assert!(message.contains(&*path.to_string_lossy()), "{message}");
            message
        };
        // What an ended program has left.
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists());
        let serving = started(&path);
        assert!(refused(&path).contains("another program listens there"));
        assert!(ask(&path, &request("GET", "/health", &[], b"")).is_some(), "it still does");
        drop(serving);
        std::fs::write(&path, "a letter").expect("written");
        assert!(refused(&path).contains("no socket"));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "a letter");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(refused(&link).contains("no socket"));
        refused(&folder.path().join("missing").join("attend.sock"));
        refused(&folder.path().join("x".repeat(200)));
        // A file that another program has put in its place stays.
        let path = folder.path().join("second.sock");
        let serving = started(&path);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "a letter").expect("written");
        drop(serving);
        assert!(path.exists());
    }
}
