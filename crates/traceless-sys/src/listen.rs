//! Which addresses a server may listen on: one rule for every TCP listener.
//!
//! Only users of the machine reach a loopback address. Every other address is reached from a
//! network, so its clients must authenticate themselves.
//!
//! ```
//! use traceless_sys::listen::{Clients, ListenError, bind, is_loopback};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let anyone = Clients::Anyone { remedy: "set a password" };
//! let listener = bind("127.0.0.1:0", anyone)?;
//! assert!(is_loopback(listener.local_addr()?));
//!
//! let refused = bind("0.0.0.0:7000", anyone);
//! assert!(matches!(refused, Err(ListenError::Exposed { remedy: "set a password", .. })));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// What a server requires of its clients before it serves them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clients {
    /// Nothing: every client that connects is served.
    Anyone {
        /// How to require authentication, for the message that refuses an address.
        remedy: &'static str,
    },
    /// Authentication by a password, a key or a certificate.
    Authenticated,
}

/// Why a server does not listen.
#[derive(Debug)]
pub enum ListenError {
    /// A network reaches the address, and clients are not authenticated.
    Exposed {
        /// The address.
        address: SocketAddr,
        /// How to require authentication.
        remedy: &'static str,
    },
    /// The address cannot be resolved or listened on.
    Io {
        /// The address.
        address: String,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Whether only users of this machine reach an address: 127.0.0.0/8, `::1`, and 127.0.0.0/8 mapped
/// into IPv6.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Refuses an address that a network reaches, unless clients are authenticated.
pub fn check(address: SocketAddr, clients: Clients) -> Result<(), ListenError> {
    match clients {
        Clients::Anyone { remedy } if !is_loopback(address) => {
            Err(ListenError::Exposed { address, remedy })
        }
        _ => Ok(()),
    }
}

/// All addresses of a name and a port, each of which must pass [`check`].
pub fn resolve(address: &str, clients: Clients) -> Result<Vec<SocketAddr>, ListenError> {
    let failed = |source| ListenError::Io { address: address.to_owned(), source };
    let all: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
    if all.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    check_all(&all, clients)?;
    Ok(all)
}

/// Listens on the first address of a name and a port, if all of them pass [`check`].
pub fn bind(address: &str, clients: Clients) -> Result<TcpListener, ListenError> {
    bind_to(&resolve(address, clients)?, address, clients)
}

/// Listens on an address, which must pass [`check`].
pub fn bind_address(address: SocketAddr, clients: Clients) -> Result<TcpListener, ListenError> {
    check(address, clients)?;
    bind_to(&[address], &address.to_string(), clients)
}

/// Refuses a socket that another program opened on an address that does not pass [`check`].
pub fn check_listener(listener: &TcpListener, clients: Clients) -> Result<(), ListenError> {
    let address = listener.local_addr();
    let failed = |source| ListenError::Io { address: "the socket".to_owned(), source };
    check(address.map_err(failed)?, clients)
}

fn check_all(all: &[SocketAddr], clients: Clients) -> Result<(), ListenError> {
    all.iter().try_for_each(|&one| check(one, clients))
}

#[expect(clippy::disallowed_methods, reason = "the place that all listeners come from")]
fn bind_to(all: &[SocketAddr], name: &str, clients: Clients) -> Result<TcpListener, ListenError> {
    let failed = |source| ListenError::Io { address: name.to_owned(), source };
    let listener = TcpListener::bind(all).map_err(failed)?;
    check_listener(&listener, clients)?;
    Ok(listener)
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed { address, remedy } => write!(
                f,
                "refusing to listen on {address}, which a network reaches, without asking clients \
                 who they are; {remedy}, or listen on a loopback address such as 127.0.0.1:{}",
                address.port()
            ),
            Self::Io { address, source } => {
                write!(f, "cannot listen on {address}: {source}; choose another address")
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exposed { .. } => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        let kind = match &error {
            ListenError::Exposed { .. } => io::ErrorKind::PermissionDenied,
            ListenError::Io { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYONE: Clients = Clients::Anyone { remedy: "give a password" };

    #[test]
    fn unauthenticated_clients_are_served_on_loopback_only() {
        for text in ["127.0.0.1:0", "127.255.3.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            check(text.parse().unwrap(), ANYONE).unwrap();
            assert!(!bind(text, ANYONE).is_err_and(|e| matches!(e, ListenError::Exposed { .. })));
        }
        for text in [
            "0.0.0.0:0",
            "[::]:0",
            "[::ffff:0.0.0.0]:0",
            "192.0.2.1:0",
            "[::ffff:192.0.2.1]:0",
            "128.0.0.1:0",
            "126.255.255.255:0",
            "[::2]:0",
            "[fe80::1]:0",
            // An address compatible with IPv4 is not a mapped one: the kernel does not treat it as
            // loopback.
            "[::7f00:1]:0",
        ] {
            let error = bind(text, ANYONE).unwrap_err();
            assert!(matches!(error, ListenError::Exposed { .. }), "{text}: {error}");
            assert!(error.to_string().contains("give a password, or listen on"), "{error}");
            check(text.parse().unwrap(), Clients::Authenticated).unwrap();
        }
        assert!(bind("0.0.0.0:0", Clients::Authenticated).is_ok());
    }

    #[test]
    fn names_and_foreign_sockets_follow_the_same_rule() {
        let all = resolve("localhost:7", ANYONE).unwrap();
        assert!(!all.is_empty() && all.iter().all(|&address| is_loopback(address)), "{all:?}");
        let missing = resolve("no-such-name.invalid:7", ANYONE).unwrap_err();
        assert!(matches!(missing, ListenError::Io { .. }), "{missing}");
        let open = bind("0.0.0.0:0", Clients::Authenticated).unwrap();
        assert!(check_listener(&open, ANYONE).is_err());
        assert!(check_listener(&open, Clients::Authenticated).is_ok());
    }

    #[test]
    fn one_address_of_several_is_enough_to_refuse() {
        let all = ["127.0.0.1:1".parse().unwrap(), "192.0.2.1:1".parse().unwrap()];
        assert!(check_all(&all[..1], ANYONE).is_ok() && check_all(&all, ANYONE).is_err());
    }
}
