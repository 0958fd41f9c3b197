//! The address of an export of an NBD server.

use core::fmt;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port of NBD.
const PORT: u16 = 10809;

/// How long one of several addresses of a host is tried.
const LOOK: Duration = Duration::from_secs(2);

/// An export of an NBD server, as `nbd://HOST[:PORT][/EXPORT]`, or
/// `nbd+unix:///[EXPORT]?socket=PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdAddress {
    /// Where the server is.
    pub place: NbdPlace,
    /// The name of the export; empty is the server's first.
    pub export: String,
}

/// Where an NBD server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NbdPlace {
    /// At an address of the network.
    Tcp(SocketAddr),
    /// At a socket of this machine.
    Unix(PathBuf),
}

impl NbdAddress {
    /// Whether the text is the address of an export, rather than the name of a file.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("nbd://") || text.starts_with("nbd+unix://")
    }

    /// Parses an address, and looks up the name of its host.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, socket) =
                rest.split_once("?socket=").ok_or("it lacks ?socket=PATH".to_owned())?;
            let bytes = decode(socket)?;
            // The program may change its folder.
            let path = std::path::absolute(std::ffi::OsStr::from_bytes(&bytes));
            let path = path.map_err(|e| format!("its socket: {e}"))?;
            return Ok(Self { place: NbdPlace::Unix(path), export: decode_name(export)? });
        }
        let form = "an export is nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH";
        let rest = text.strip_prefix("nbd://").ok_or(form)?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || export.contains('?') {
            return Err(form.to_owned());
        }
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
        let host = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        let found: Vec<_> = host.to_socket_addrs().map_err(|e| format!("{host}: {e}"))?.collect();
        let place = match &found[..] {
            [one] => Some(*one),
            // The first one that there is a server at; if there is none that is said later.
            several => several
                .iter()
                .copied()
                .find(|one| TcpStream::connect_timeout(one, LOOK).is_ok())
                .or(several.first().copied()),
        };
        let place = place.ok_or(format!("{host} has no address"))?;
        Ok(Self { place: NbdPlace::Tcp(place), export: decode_name(export)? })
    }
}

/// The address as [`NbdAddress::parse`] takes it, with the number of the host.
impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_bytes());
        match &self.place {
            NbdPlace::Tcp(place) => write!(f, "nbd://{place}/{export}"),
            NbdPlace::Unix(path) => {
                let path: &Path = path;
                write!(f, "nbd+unix:///{export}?socket={}", encode(path.as_os_str().as_bytes()))
            }
        }
    }
}

fn decode_name(text: &str) -> Result<String, String> {
    String::from_utf8(decode(text)?).map_err(|_| "the name of the export is no text".to_owned())
}

/// The bytes of a text, in which `%` and two digits stand for one.
fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("two digits follow a %")?);
        rest = &after[2..];
    }
    Ok(bytes)
}

fn encode(bytes: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    bytes
        .iter()
        .map(|&byte| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02x}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for (text, shown) in [
            ("nbd://127.0.0.1", "nbd://127.0.0.1:10809/"),
            ("nbd://127.0.0.1:99/a/b%20c", "nbd://127.0.0.1:99/a/b%20c"),
            ("nbd://[::1]/x", "nbd://[::1]:10809/x"),
            ("nbd://[::1]:7/x", "nbd://[::1]:7/x"),
            ("nbd+unix:///?socket=/tmp/a b", "nbd+unix:///?socket=/tmp/a%20b"),
            ("nbd+unix:///e%0a?socket=/s%25", "nbd+unix:///e%0a?socket=/s%25"),
        ] {
            let address = NbdAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(NbdAddress::parse(shown).unwrap(), address);
            assert!(NbdAddress::is_one(text));
        }
        for text in [
            "nbd://",
            "nbd:///x",
            "nbd+unix:///x",
            "nbd://127.0.0.1/%4",
            "nbd://127.0.0.1/%+f",
            "x",
        ] {
            assert!(NbdAddress::parse(text).is_err(), "{text}");
        }
        assert!(!NbdAddress::is_one("nbd/file"));
        let relative = NbdAddress::parse("nbd+unix:///?socket=s").unwrap().place;
        assert!(matches!(relative, NbdPlace::Unix(path) if path.is_absolute()));
    }
}
