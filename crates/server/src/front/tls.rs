//! TLS: a certificate and its key, read once, and the greeting of a connection.

use super::reply::Shape;
use crate::failure::Failure;
use socket2::SockRef;
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a certificate, with those that vouch for it behind it, and its key, both in PEM.
    ///
    /// # Errors
    /// Files that cannot be read or hold no such thing, and a key that is another certificate's.
    pub fn open(certificate: &Path, key: &Path) -> Result<Tls, String> {
        let of_certificate = |error: PemError| format!("{}: {}", certificate.display(), pem(&error, "CERTIFICATE"));
        let chain = CertificateDer::pem_file_iter(certificate).map_err(of_certificate)?;
        let chain = chain.collect::<Result<Vec<_>, _>>().map_err(of_certificate)?;
        if chain.is_empty() {
            return Err(of_certificate(PemError::NoItemsFound));
        }
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("{}: {}", key.display(), pem(&error, "PRIVATE KEY")))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| format!("TLS: {error}"))?;
        let built = builder.with_no_client_auth().with_single_cert(chain, secret);
        let mut config = built.map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                format!("{}: it is not the key of the certificate in {}", key.display(), certificate.display())
            }
            Error::InvalidCertificate(_) => format!("{}: {error}", certificate.display()),
            error => format!("{}: {error}", key.display()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(Arc::new(config)))
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

/// What is wrong with a file in PEM that should hold sections of this name.
fn pem(error: &PemError, section: &str) -> String {
    match error {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => format!("there is no section -----BEGIN {section}----- in it (PEM is wanted)"),
        error => format!("it is no PEM that can be read: {error}"),
    }
}

/// Greets a connection. One that speaks HTTP without TLS is told so.
///
/// # Errors
/// A client that does not speak TLS, or none that this server takes.
pub async fn greet(stream: TcpStream, acceptor: &TlsAcceptor) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0];
    // A connection in TLS begins with 0x16, a request with the name of a method.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        refuse(&stream).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    acceptor.accept(stream).await
}

/// Says in plain HTTP what is spoken here.
async fn refuse(stream: &TcpStream) -> io::Result<()> {
    let message = "this server speaks HTTPS: ask for https:// in place of http://";
    let failure = Failure::bad(message).code("tls_wanted");
    let body = Shape::OpenAi.body(&failure).to_string();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close";
    stream.writable().await?;
    // It is little, and the first that is written: it has room.
    stream.try_write(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
    SockRef::from(stream).shutdown(Shutdown::Write)?;
    // What was sent is read, so that the answer is not thrown away with it.
    loop {
        stream.readable().await?;
        match stream.try_read(&mut [0; 4096]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}
