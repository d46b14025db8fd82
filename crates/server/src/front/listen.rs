//! Where a server listens: an address, plain or behind TLS, or a socket in the file system.

use super::socket::SocketFile;
use super::tls::Tls;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Where to listen.
#[derive(Debug, Clone)]
pub enum Listen {
    /// A name or an address, and a port; 0 takes any that is free.
    Address { host: String, port: u16, tls: Option<Tls> },
    /// The path of a socket, which only the user that runs the server may open.
    Socket(PathBuf),
}

/// Where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Plain(SocketAddr),
    Tls(SocketAddr),
    Socket(PathBuf),
}

impl Address {
    /// None: it is no address of the network.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Plain(address) | Address::Tls(address) => Some(*address),
            Address::Socket(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Plain(address) => write!(f, "http://{address}"),
            Address::Tls(address) => write!(f, "https://{address}"),
            Address::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A place that was taken, at which nobody is served yet.
#[derive(Debug)]
pub enum Bound {
    Address { listener: TcpListener, tls: Option<Tls> },
    Socket(SocketFile),
}

impl Bound {
    /// Takes a place.
    ///
    /// # Errors
    /// An address that is none, and a place that another program has.
    pub fn take(listen: Listen) -> Result<(Bound, Address), String> {
        match listen {
            Listen::Address { host, port, tls } => {
                let failed = |error: io::Error| format!("cannot listen on {host}:{port}: {error}");
                let plain = host.trim_start_matches('[').trim_end_matches(']');
                let listener = TcpListener::bind((plain, port)).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                let address = if tls.is_some() { Address::Tls(address) } else { Address::Plain(address) };
                Ok((Bound::Address { listener, tls }, address))
            }
            Listen::Socket(path) => {
                let file = SocketFile::take(&path)?;
                Ok((Bound::Socket(file), Address::Socket(path)))
            }
        }
    }

    /// Begins to serve there, inside the runtime.
    ///
    /// # Errors
    /// A system that does not.
    pub fn open(self) -> io::Result<Listener> {
        Ok(match self {
            Bound::Address { listener, tls } => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                Listener::Address { listener, tls: tls.map(|tls| tls.acceptor()) }
            }
            Bound::Socket(file) => Listener::Socket(file.open()?),
        })
    }
}

/// Takes connections.
pub enum Listener {
    Address { listener: tokio::net::TcpListener, tls: Option<TlsAcceptor> },
    Socket(super::socket::SocketListener),
}

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that was taken; behind TLS nothing was said yet.
pub enum Caller {
    Plain(Box<dyn Stream>),
    Tls(TcpStream, TlsAcceptor),
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// A system that gives none.
    pub async fn accept(&self) -> io::Result<Caller> {
        match self {
            Listener::Address { listener, tls } => {
                let (stream, _) = listener.accept().await?;
                // Tokens are small and wanted at once.
                let _ = stream.set_nodelay(true);
                Ok(match tls {
                    Some(tls) => Caller::Tls(stream, tls.clone()),
                    None => Caller::Plain(Box::new(stream)),
                })
            }
            Listener::Socket(listener) => Ok(Caller::Plain(listener.accept().await?)),
        }
    }
}
