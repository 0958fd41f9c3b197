use std::fmt;
use std::path::{Path, PathBuf};

/// Why evidence was not verified.
#[derive(Debug)]
pub enum Error {
    /// The evidence has another form than its kind must have.
    Malformed(String),
    /// The evidence is not genuine (a signature, a certificate or a statement about it is wrong),
    /// or of a machine that no policy can accept.
    NotVerified(String),
    /// What the maker signed is missing.
    CollateralMissing(String),
    /// A policy that cannot be used.
    Policy(String),
    /// Wrong use.
    Usage(String),
    /// A key broker refuses, or what it answers cannot be used.
    Broker(String),
    /// A server or a key broker does not answer, or fails.
    Unreachable {
        /// Its address.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The machine that this program runs in gives no evidence.
    Machine(String),
    /// A file cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
}

/// The result of what can fail with an [`Error`].
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    /// A file that cannot be used.
    pub fn file(path: &Path, reason: impl fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    /// A server that cannot be used.
    pub fn unreachable(server: &str, reason: impl fmt::Display) -> Self {
        Self::Unreachable { server: server.into(), reason: reason.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reason) => write!(f, "no evidence: {reason}"),
            Self::NotVerified(reason) => write!(f, "not verified: {reason}"),
            Self::CollateralMissing(reason) => write!(f, "collateral is missing: {reason}"),
            Self::Policy(reason) => write!(f, "the policy: {reason}"),
            Self::Usage(reason) => f.write_str(reason),
            Self::Broker(reason) => write!(f, "the key broker: {reason}"),
            Self::Unreachable { server, reason } => {
                write!(f, "{server} cannot be used now: {reason}")
            }
            Self::Machine(reason) => write!(f, "this machine's evidence: {reason}"),
            Self::File { path, reason } => write!(f, "{}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for Error {}
