//! Failures that gateway, host and enclave must expect. Bugs of this crate are assertions.
//!
//! Metrics count errors by kind; the message is for the operator:
//!
//! ```
//! use traceless_cloud::Error;
//! use traceless_cloud::params::Params;
//!
//! let error = Params::new(0, 1024, 32).expect_err("a tree has blocks");
//! assert!(matches!(error, Error::Parameters(_)));
//! assert_eq!(error.kind(), "request");
//! assert_eq!(error.to_string(), "impossible parameters: there are 1 to 2^32 - 2 blocks");
//! assert_eq!(Error::Tampered { node: 3, slot: 8 }.kind(), "tampered");
//! ```

use alloc::string::String;

/// Everything that can go wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The block's number is out of range.
    #[error("block {id} is out of range: there are {blocks}")]
    OutOfRange {
        /// The requested block.
        id: u64,
        /// How many blocks the tree has.
        blocks: u64,
    },
    /// A slot does not hold what was last written to it.
    #[error("slot {slot} of node {node} was changed: it is damaged, moved or from an older copy")]
    Tampered {
        /// Number of the node.
        node: u32,
        /// Slot in the node.
        slot: u32,
    },
    /// The enclave opened a block, and it is not the one that the gateway stored.
    #[error("block {id} is not the one that was stored")]
    Forged {
        /// The block.
        id: u64,
    },
    /// The block's slot was damaged. It can be written again.
    #[error("block {id} was lost with a damaged slot of the store")]
    Lost {
        /// The block.
        id: u64,
    },
    /// A message does not come from the expected sender, or was changed on the way.
    #[error("a message is not authentic")]
    Unauthentic,
    /// A message that was answered before.
    #[error("a message came twice")]
    Replayed,
    /// A message in a form that this program does not know.
    #[error("a message cannot be understood: {0}")]
    Malformed(&'static str),
    /// The parameters cannot work.
    #[error("impossible parameters: {0}")]
    Parameters(&'static str),
    /// More blocks wait in the gateway's stash than it has room for. With honest randomness this
    /// has negligible probability.
    #[error("{blocks} blocks wait at the gateway, there is room for {limit}")]
    StashOverflow {
        /// Blocks that wait.
        blocks: usize,
        /// How many may wait.
        limit: usize,
    },
    /// Every block is in use.
    #[error("all {blocks} blocks are in use: remove something, or begin a larger tree")]
    Full {
        /// How many blocks the tree has.
        blocks: u64,
    },
    /// A file of the store or of the gateway has the wrong form.
    #[error("{0} cannot be understood: it is damaged or of another version")]
    State(&'static str),
    /// A file, a log or a backup has the format of another version of this program.
    #[error(
        "{what} has format {found}, and this program knows format {known}: {}",
        advice_on_format(*.found, *.known)
    )]
    Format {
        /// What has it.
        what: &'static str,
        /// The format's number.
        found: u32,
        /// The number of the format that this program knows.
        known: u32,
    },
    /// Gateway and host are of versions that do not understand each other.
    #[error(
        "the gateway speaks version {gateway} of the protocol between gateway and host, and the \
         host version {host}: upgrade the {}",
        older_of(*.gateway, *.host)
    )]
    Protocol {
        /// The gateway's version.
        gateway: u32,
        /// The host's version.
        host: u32,
    },
    /// A log differs from what was written. A cut-off end counts only if it was acknowledged.
    #[error(
        "{file} is damaged in entry {entry}, at byte {at}, and {lost} written entries cannot be \
         read: nothing was changed; {advice}"
    )]
    Damaged {
        /// The log's file.
        file: String,
        /// The first entry that is not whole; 0 for what precedes all entries.
        entry: u64,
        /// Where that entry begins.
        at: u64,
        /// Entries from there on that are known to have been written.
        lost: u64,
        /// Advice for the operator.
        advice: &'static str,
    },
    /// The anchor does not fit the gateway's state.
    #[error("the anchor {file} does not fit: {reason}")]
    Anchor {
        /// The anchor's file.
        file: String,
        /// What does not fit.
        reason: &'static str,
    },
    /// Host and gateway are at different rounds: one of them was restored from an older copy.
    #[error("the host is at round {host}, the gateway at round {gateway}: one was put back")]
    RolledBack {
        /// Rounds committed at the host.
        host: u64,
        /// Rounds committed at the gateway.
        gateway: u64,
    },
    /// Another process has the file or folder open.
    #[error("{0} is in use by another process: end that one first")]
    InUse(&'static str),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(&'static str),
    /// The server of the store's engine failed, or cannot be reached.
    #[error("the storage engine failed: {0}")]
    Engine(String),
    /// The gateway does not accept the enclave's evidence.
    #[error("the enclave's evidence is refused: {0}")]
    Evidence(&'static str),
    /// The same, for a reason of the verifier or of the machine.
    #[error("the enclave's evidence is refused: {0}")]
    EvidenceRefused(String),
    /// Another gateway has taken over the store.
    #[error(
        "another gateway has taken over this store (opening {newest}, this one was {own}): go on \
         with that one, or open this one again if that one is gone"
    )]
    Fenced {
        /// This gateway's opening.
        own: u64,
        /// The opening of the gateway that took over.
        newest: u64,
    },
    /// The enclave with this session's keys is gone. A new session continues where it ended.
    #[error("the enclave is gone, and the session with it")]
    SessionLost,
    /// The host did not answer within the time that a caller should wait.
    #[error("the host cannot be reached: {0}; is it running, and is this its address?")]
    Unreachable(String),
    /// The host answered with an error of its own.
    #[error("the host says: {0}")]
    Host(String),
    /// A certificate or a key for TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// Not enough memory.
    #[error("there is not enough memory")]
    Memory,
    /// The operating system reported an error.
    #[cfg(feature = "std")]
    #[error(transparent)]
    Io(alloc::sync::Arc<std::io::Error>),
}

#[cfg(feature = "std")]
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(alloc::sync::Arc::new(error))
    }
}

/// Advice for the operator about a format that this program does not know.
fn advice_on_format(found: u32, known: u32) -> &'static str {
    if found > known {
        "a newer version of Traceless has written it: upgrade this program"
    } else {
        "make a backup with the version that has written it, and restore that with this one"
    }
}

/// Which of both has the older version of their protocol.
fn older_of(gateway: u32, host: u32) -> &'static str {
    if gateway < host { "gateway" } else { "host" }
}

impl Error {
    /// Fails if `bytes` have the format of another version: if they begin like `magic`, a word and
    /// a number, but with another number. `is_own` says whether bytes are whole in this program's
    /// format: then only their number is damaged.
    ///
    /// ```
    /// use traceless_cloud::Error;
    ///
    /// let check = |bytes| Error::check_format("the file", bytes, b"tlfile04", |_| false);
    /// assert!(check(b"tlfile04 content").is_ok() && check(b"noise").is_ok());
    /// let newer = check(b"tlfile05 content").expect_err("another number");
    /// assert!(matches!(newer, Error::Format { found: 5, known: 4, .. }));
    /// assert!(newer.to_string().contains("upgrade this program"));
    /// ```
    pub fn check_format(
        what: &'static str,
        bytes: &[u8],
        magic: &[u8; 8],
        is_own: impl FnOnce(&[u8]) -> bool,
    ) -> Result {
        let word = magic.split(u8::is_ascii_digit).next().unwrap_or_default();
        let Some((found, rest)) = bytes.split_first_chunk::<8>() else { return Ok(()) };
        match (number_behind(word, found), number_behind(word, magic)) {
            (Some(found), Some(known))
                if found != known && !is_own(&[&magic[..], rest].concat()) =>
            {
                Err(Self::Format { what, found, known })
            }
            _ => Ok(()),
        }
    }

    /// Whether the host or its engine is away, so that the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Engine(_) | Self::Host(_) | Self::SessionLost | Self::Unreachable(_))
    }

    /// The error's kind in one word. Metrics and logs contain nothing else about an error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OutOfRange { .. } | Self::Malformed(_) | Self::Parameters(_) => "request",
            Self::Tampered { .. } | Self::Forged { .. } | Self::Unauthentic | Self::Replayed => {
                "tampered"
            }
            Self::StashOverflow { .. } | Self::Memory => "memory",
            Self::Full { .. } => "full",
            Self::Lost { .. } => "lost",
            Self::State(_) | Self::Damaged { .. } | Self::Format { .. } => "state",
            Self::RolledBack { .. } | Self::Anchor { .. } => "rolled_back",
            Self::InUse(_) => "in_use",
            Self::Fenced { .. } => "fenced",
            Self::Store(_) | Self::Engine(_) => "store",
            Self::Evidence(_) | Self::EvidenceRefused(_) => "evidence",
            Self::SessionLost
            | Self::Unreachable(_)
            | Self::Host(_)
            | Self::Protocol { .. }
            | Self::Tls(_) => "host",
            #[cfg(feature = "std")]
            Self::Io(_) => "io",
        }
    }
}

/// The number that follows a word.
fn number_behind(word: &[u8], bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(word)?;
    let value = |number: u32, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    digits.iter().try_fold(0, value)
}

/// The result type of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
