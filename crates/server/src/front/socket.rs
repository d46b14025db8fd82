//! A socket in the file system, for programs of the same user.

#[cfg(unix)]
pub use unix::{SocketFile, SocketListener};

#[cfg(not(unix))]
pub use other::{SocketFile, SocketListener};

#[cfg(unix)]
mod unix {
    use crate::front::listen::Stream;
    use socket2::{Domain, SockAddr, Socket, Type};
    use std::fs::{self, Permissions};
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};

    /// Connections that may wait to be taken.
    const BACKLOG: i32 = 512;

    /// The file of a socket; it is removed with this, where it is still the same.
    #[derive(Debug)]
    pub struct SocketFile {
        socket: Option<Socket>,
        path: PathBuf,
        /// Device and number of the file.
        own: (u64, u64),
    }

    impl SocketFile {
        /// Makes the file. One that an ended program has left is replaced; nothing else is.
        ///
        /// # Errors
        /// A path that is taken, too long, or in a folder that cannot be written.
        pub fn take(path: &Path) -> Result<SocketFile, String> {
            let failed = |error: io::Error| format!("cannot listen on {}: {error}", path.display());
            clear(path)?;
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
            socket.bind(&SockAddr::unix(path).map_err(failed)?).map_err(failed)?;
            let found = fs::symlink_metadata(path).map_err(failed)?;
            let mut file = SocketFile { socket: None, path: path.to_owned(), own: (found.dev(), found.ino()) };
            // Before it listens nobody can connect: there is no moment in which others could.
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
            socket.listen(BACKLOG).and_then(|()| socket.set_nonblocking(true)).map_err(failed)?;
            file.socket = Some(socket);
            Ok(file)
        }

        /// Begins to serve there.
        ///
        /// # Errors
        /// A system that does not.
        pub fn open(mut self) -> io::Result<SocketListener> {
            let socket = self.socket.take().ok_or(ErrorKind::NotConnected)?;
            let listener = tokio::net::UnixListener::from_std(socket.into())?;
            Ok(SocketListener { listener, _file: self })
        }
    }

    impl Drop for SocketFile {
        fn drop(&mut self) {
            if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.own) {
                let _ = fs::remove_file(&self.path);
            }
        }
    }

    /// Removes what an ended program has left at the path.
    fn clear(path: &Path) -> Result<(), String> {
        let refused = |why: &str| Err(format!("cannot listen on {}: {why}", path.display()));
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return refused(&error.to_string()),
            Ok(found) if !found.file_type().is_socket() => {
                return refused("there is a file of this name that is no socket");
            }
            Ok(_) => {}
        }
        match UnixStream::connect(path) {
            Ok(_) => refused("another program listens there"),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).or_else(|error| refused(&error.to_string()))
            }
            Err(error) => refused(&error.to_string()),
        }
    }

    /// Takes connections.
    pub struct SocketListener {
        listener: tokio::net::UnixListener,
        _file: SocketFile,
    }

    impl SocketListener {
        /// The next connection.
        ///
        /// # Errors
        /// A system that gives none.
        pub async fn accept(&self) -> io::Result<Box<dyn Stream>> {
            let (stream, _) = self.listener.accept().await?;
            Ok(Box::new(stream))
        }
    }
}

#[cfg(not(unix))]
mod other {
    use crate::front::listen::Stream;
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    /// There is none.
    #[derive(Debug)]
    pub struct SocketFile(Infallible);

    /// There is none.
    pub struct SocketListener(Infallible);

    impl SocketFile {
        /// # Errors
        /// Always: this system has no such sockets.
        pub fn take(path: &Path) -> Result<SocketFile, String> {
            Err(format!("cannot listen on {}: this system has no such sockets", path.display()))
        }

        /// # Errors
        /// None.
        pub fn open(self) -> io::Result<SocketListener> {
            match self.0 {}
        }
    }

    impl SocketListener {
        /// # Errors
        /// None.
        pub async fn accept(&self) -> io::Result<Box<dyn Stream>> {
            match self.0 {}
        }
    }
}
