//! Errors that keep a server from starting or going on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error that keeps a server from starting or going on. An error of one connection ends that
/// connection only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// The path, or the address and port.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process listens on the socket.
    #[error("{} is in use by a running server; stop it, or choose another path", path.display())]
    SocketInUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file that is not a socket is in the way; the server never removes it.
    #[error("{} exists and is not a socket; move it, or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The path is longer than the address of a unix socket may be.
    #[error("the path {} is too long for a socket; choose one of at most {limit} bytes \
             (the folder and a temporary name must fit, too)", path.display())]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// The longest possible path, in bytes.
        limit: usize,
    },
    /// Without authentication every host on the network could read and write the volume.
    #[error(
        "refusing to listen on {address}, which a network reaches, without asking clients who \
         they are; give a certificate, its key and the certificates that sign those of clients \
         (--tls-certificate, --tls-key, --tls-client-ca), or listen on a loopback address or a \
         unix socket"
    )]
    Exposed {
        /// The address; it is not a loopback address.
        address: SocketAddr,
    },
    /// No socket was passed, or one that cannot be served.
    #[error(
        "the sockets that were handed over cannot be served: {reason}; pass listening unix or \
             TCP sockets"
    )]
    Inherited {
        /// What is wrong with the sockets.
        reason: String,
    },
    /// A file of the TLS set-up cannot be read, or has the wrong contents.
    #[error("cannot use {} for TLS: {reason}; it must be a PEM file with {wanted}",
            path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
        /// What the file should contain.
        wanted: &'static str,
    },
    /// The files of the TLS set-up do not belong together.
    #[error(
        "the TLS files do not fit together: {reason}; check that the key belongs to the first \
             certificate"
    )]
    Tls {
        /// What is wrong with the files.
        reason: String,
    },
    /// The operating system refused something that the server needs to go on.
    #[error("the server cannot {action}: {source}; restart it once the cause is gone")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The result of an operation that may fail with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
