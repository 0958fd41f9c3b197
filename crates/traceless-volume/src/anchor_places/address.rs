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
    /// An object of S3.
    S3(S3Address),
    /// A counter of a TPM.
    Tpm(CounterAddress),
}

/// An object of S3: `//BUCKET/KEY[?endpoint=URL][&region=REGION]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Address {
    given: String,
    pub(super) url: ServerUrl,
    pub(super) region: String,
}

impl S3Address {
    fn parse(given: &str) -> Result<Self, &'static str> {
        let (object, options) = given.split_once('?').unwrap_or((given, ""));
        let (mut endpoint, mut region) = (None, "us-east-1");
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("endpoint", url)) => endpoint = Some(url.trim_end_matches('/').to_owned()),
                Some(("region", name)) if !name.is_empty() => region = name,
                _ => return Err("options of s3:// are endpoint=URL and region=REGION"),
            }
        }
        let path = object.strip_prefix("//").filter(|path| {
            path.split_once('/').is_some_and(|(bucket, key)| {
                !bucket.is_empty() && !bucket.contains(['@', ':']) && !key.is_empty()
            })
        });
        let path = path.ok_or("an object of S3 is s3://BUCKET/KEY")?;
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let default_port = match endpoint.split_once("://") {
            Some(("https", _)) => 443,
            Some(("http", _)) => 80,
            _ => return Err("the endpoint is https://HOST:PORT"),
        };
        if endpoint.contains('@') {
            return Err("keys of S3 come from the environment, not from the endpoint");
        }
        let url = ServerUrl::parse(&format!("{endpoint}/{path}"), default_port)?;
        Ok(Self { given: format!("s3:{given}"), url, region: region.into() })
    }
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
            Some(("s3", rest)) if rest.starts_with("//") => S3Address::parse(rest).map(Self::S3),
            Some(("tpm2", rest)) => CounterAddress::parse(rest).map(Self::Tpm),
            // A path may have these, too, but a misspelt URL must not become a file.
            Some((_, rest)) if rest.starts_with("//") => {
                Err("an anchor lies in a file, or at rediss://, https://, s3:// or tpm2:")
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
            Self::S3(object) => Ok(object.given.clone().into()),
            Self::Redis(url) | Self::Http(url) => Ok(url.without_password().into()),
        }
    }

    /// The variable of the environment with which that process gets the password, if there is one.
    pub fn password_for_process(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::File(_) | Self::Tpm(_) | Self::S3(_) => None,
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
            Self::S3(object) => write!(f, "{}", object.url),
            Self::Tpm(counter) => write!(f, "{counter}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_recognised() {
        let parse = |text: &str| AnchorAddress::parse(Path::new(text));
        for text in ["anchor", "/mnt/a:b", "./redis:x", "redis"] {
            assert_eq!(parse(text).unwrap(), AnchorAddress::File(text.into()));
        }
        assert!(matches!(parse("redis://h/k").unwrap(), AnchorAddress::Redis(_)));
        assert!(matches!(parse("https://h/k").unwrap(), AnchorAddress::Http(_)));
        assert!(matches!(parse("tpm2:0x1500016").unwrap(), AnchorAddress::Tpm(_)));
        let object = parse("s3://b/a/k?endpoint=http://[::1]:9000/&region=eu").unwrap();
        assert_eq!(object.to_string(), "http://[::1]:9000/b/a/k");
        let object = parse("s3://b/k?region=eu-west-1").unwrap();
        assert_eq!(object.to_string(), "https://s3.eu-west-1.amazonaws.com/b/k");
        for text in ["s3://b", "s3://b/", "s3:///k", "s3://b/k?endpoint=ftp://h", "s3://b/k?x=1"] {
            assert!(matches!(parse(text), Err(Error::AnchorAddress { .. })), "{text}");
        }
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
