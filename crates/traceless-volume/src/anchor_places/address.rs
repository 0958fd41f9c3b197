//! How a user names the place of an anchor.

use super::server_url::{PASSWORD_VARIABLE, ServerUrl};
use super::tpm_place::CounterAddress;
use crate::error::{Error, Result};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The place of an anchor. It is shown without a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnchorAddress {
    /// A file.
    File(PathBuf),
    /// A value of Redis.
    Redis(ServerUrl),
    /// An object of an HTTP server.
    Http(ServerUrl),
    /// A counter of a TPM.
    Tpm(CounterAddress),
}

impl AnchorAddress {
    /// Reads what a user gave: a URL with a known scheme, `tpm2:` or a path.
    pub fn parse(given: &Path) -> Result<Self> {
        let Some(text) = given.to_str() else { return Ok(Self::File(given.into())) };
        let parsed = match text.split_once(':') {
            Some(("redis" | "rediss", rest)) if rest.starts_with("//") => {
                ServerUrl::parse(text, 6379).map(Self::Redis)
            }
            Some(("https", rest)) if rest.starts_with("//") => {
                ServerUrl::parse(text, 443).map(Self::Http)
            }
            Some(("http", rest)) if rest.starts_with("//") => {
                ServerUrl::parse(text, 80).map(Self::Http)
            }
            Some(("tpm2", rest)) => CounterAddress::parse(rest).map(Self::Tpm),
            // A path may have these, too, but a misspelt URL must not become a file.
            Some((_, rest)) if rest.starts_with("//") => {
                Err("an anchor lies in a file, or at redis://, rediss://, https:// or tpm2:")
            }
            _ => Ok(Self::File(given.into())),
        };
        // The text may hold a password.
        parsed.map_err(|why| Error::AnchorAddress { why })
    }

    /// The same place for a process in another folder, without a password, as other users may read
    /// arguments.
    pub fn for_process(&self) -> Result<OsString> {
        match self {
            Self::File(path) => {
                let failed = |source| Error::Io { what: "find", path: path.clone(), source };
                Ok(std::path::absolute(path).map_err(failed)?.into())
            }
            Self::Tpm(counter) => counter.absolute(),
            Self::Redis(url) | Self::Http(url) => Ok(url.without_password().into()),
        }
    }

    /// The variable of the environment with which that process gets the password, if there is one.
    pub fn password_for_process(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::File(_) | Self::Tpm(_) => None,
            Self::Redis(url) | Self::Http(url) => {
                url.password().map(|password| (PASSWORD_VARIABLE, password.as_str()))
            }
        }
    }
}

impl fmt::Display for AnchorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Redis(url) | Self::Http(url) => write!(f, "{url}"),
            Self::Tpm(counter) => write!(f, "{counter}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart() {
        let parse = |text: &str| AnchorAddress::parse(Path::new(text));
        for text in ["anchor", "/mnt/a:b", "./redis:x", "redis"] {
            assert_eq!(parse(text).unwrap(), AnchorAddress::File(text.into()));
        }
        assert!(matches!(parse("redis://h/k").unwrap(), AnchorAddress::Redis(_)));
        assert!(matches!(parse("https://h/k").unwrap(), AnchorAddress::Http(_)));
        assert!(matches!(parse("tpm2:0x1500016").unwrap(), AnchorAddress::Tpm(_)));
        for text in ["ftp://h/k", "reddis://h/k", "redis://", "tpm2:", "tpm2:0x1000000"] {
            assert!(matches!(parse(text), Err(Error::AnchorAddress { .. })), "{text}");
        }
    }

    #[test]
    fn messages_have_no_password() {
        for text in ["redis://me:hunter2@h:x/k", "nope://me:hunter2@h/k"] {
            let refused = AnchorAddress::parse(Path::new(text)).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("hunter2"), "{refused:?}");
        }
    }
}
