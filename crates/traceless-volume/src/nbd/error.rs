//! Why a server cannot begin, or go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server cannot begin, or go on. Errors of one connection end that connection only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// The path, or the address and port.
        address: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A process listens on the socket.
    #[error("{} is in use by a running server; stop it, or choose another path", path.display())]
    SocketInUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket is in the way; it is never removed.
    #[error("{} exists and is not a socket; move it, or choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// Addresses of unix sockets are short.
    #[error("the path {} is too long for a socket; choose one of at most {limit} bytes \
             (the folder and a temporary name must fit, too)", path.display())]
    SocketPathTooLong {
        /// The path.
        path: PathBuf,
        /// The longest path that is possible.
        limit: usize,
    },
    /// Whoever reaches the network could read and write the volume.
    #[error(
        "refusing to listen on {address}, which a network reaches, without asking clients who \
         they are; give a certificate, its key and the certificates that sign those of clients \
         (--tls-certificate, --tls-key, --tls-client-ca), or listen on a loopback address or a \
         unix socket"
    )]
    Exposed {
        /// The address, which is not a loopback address.
        address: SocketAddr,
    },
    /// No socket was handed over, or one that cannot be served.
    #[error(
        "the sockets that were handed over cannot be served: {reason}; pass listening unix or \
             TCP sockets"
    )]
    Inherited {
        /// What is wrong with them.
        reason: String,
    },
    /// A file of the TLS set-up cannot be read, or holds something else.
    #[error("cannot use {} for TLS: {reason}; it must be a PEM file with {wanted}",
            path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The files of the TLS set-up do not fit together.
    #[error(
        "the TLS files do not fit together: {reason}; check that the key belongs to the first \
             certificate"
    )]
    Tls {
        /// What is wrong with them.
        reason: String,
    },
    /// The operating system does not let the server go on.
    #[error("the server cannot {action}: {source}; restart it once the cause is gone")]
    System {
        /// What was attempted.
        action: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

/// The result of what may fail with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
