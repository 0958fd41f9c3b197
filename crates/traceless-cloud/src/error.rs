//! What the world can do to gateway, host and enclave. Our own bugs are assertions.

use alloc::string::String;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such block.
    #[error("block {id} is out of range: there are {blocks}")]
    OutOfRange {
        /// The block asked for.
        id: u64,
        /// How many there are.
        blocks: u64,
    },
    /// A slot is not what was last written there.
    #[error("slot {slot} of node {node} was changed: it is damaged, moved or from an older copy")]
    Tampered {
        /// Number of the node.
        node: u32,
        /// Slot in it.
        slot: u32,
    },
    /// A block was opened by the enclave and is not the one that the gateway put there.
    #[error("block {id} is not the one that was stored")]
    Forged {
        /// The block.
        id: u64,
    },
    /// A message does not come from whom it should, or was changed on the way.
    #[error("a message is not authentic")]
    Unauthentic,
    /// A message that was answered before.
    #[error("a message came twice")]
    Replayed,
    /// A message of another form than this program speaks.
    #[error("a message cannot be understood: {0}")]
    Malformed(&'static str),
    /// No such parameters.
    #[error("impossible parameters: {0}")]
    Parameters(&'static str),
    /// More blocks wait at the gateway than it has room for. With honest randomness this does not
    /// happen.
    #[error("{blocks} blocks wait at the gateway, there is room for {limit}")]
    StashOverflow {
        /// Blocks that wait.
        blocks: usize,
        /// How many may.
        limit: usize,
    },
    /// Every block is in use.
    #[error("all {blocks} blocks are in use: remove something, or begin a larger tree")]
    Full {
        /// How many there are.
        blocks: u64,
    },
    /// What a file of the store or of the gateway holds does not fit what it should.
    #[error("{0} cannot be understood: it is damaged or of another version")]
    State(&'static str),
    /// A log is not as it was written, and not only cut short where nobody was told of the end.
    #[error(
        "{file} is damaged in entry {entry}, at byte {at}, and {lost} written entries cannot be \
         read: nothing was changed; {advice}"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The first entry that is not whole; 0 for what lies before all of them.
        entry: u64,
        /// Where it begins.
        at: u64,
        /// Entries from there on that are known to have been written.
        lost: u64,
        /// What to do.
        advice: &'static str,
    },
    /// The anchor remembers something else than the gateway's state.
    #[error("the anchor {file} does not fit: {reason}")]
    Anchor {
        /// The anchor's file.
        file: String,
        /// What does not.
        reason: &'static str,
    },
    /// The host is at another round than the gateway: one of them was put back.
    #[error("the host is at round {host}, the gateway at round {gateway}: one was put back")]
    RolledBack {
        /// Rounds committed at the host.
        host: u64,
        /// Rounds committed at the gateway.
        gateway: u64,
    },
    /// Another process has it open.
    #[error("{0} is in use by another process")]
    InUse(&'static str),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(&'static str),
    /// What an enclave tells of itself is not what this gateway wants to hear.
    #[error("the enclave's evidence is refused: {0}")]
    Evidence(&'static str),
    /// Another gateway has the store now.
    #[error(
        "another gateway has taken over this store (opening {newest}, this one was {own}): go on \
         with that one, or open this one again if that one is gone"
    )]
    Fenced {
        /// This gateway's opening.
        own: u64,
        /// The one that took over.
        newest: u64,
    },
    /// The enclave that had this session's keys is gone. A new session goes on where it ended.
    #[error("the enclave is gone, and the session with it")]
    SessionLost,
    /// The host did not answer for so long that nobody should wait any longer.
    #[error("the host cannot be reached: {0}; is it running, and is this its address?")]
    Unreachable(String),
    /// The host answered with an error of its own.
    #[error("the host says: {0}")]
    Host(String),
    /// A certificate or a key for TLS is of no use.
    #[error("TLS: {0}")]
    Tls(String),
    /// Not enough memory.
    #[error("there is not enough memory")]
    Memory,
    /// The operating system refused.
    #[cfg(feature = "std")]
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Its kind in a word, for metrics and logs, which hold no more.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OutOfRange { .. } | Self::Malformed(_) | Self::Parameters(_) => "request",
            Self::Tampered { .. } | Self::Forged { .. } | Self::Unauthentic | Self::Replayed => {
                "tampered"
            }
            Self::StashOverflow { .. } | Self::Memory => "memory",
            Self::Full { .. } => "full",
            Self::State(_) | Self::Damaged { .. } => "state",
            Self::RolledBack { .. } | Self::Anchor { .. } => "rolled_back",
            Self::InUse(_) => "in_use",
            Self::Fenced { .. } => "fenced",
            Self::Store(_) => "store",
            Self::Evidence(_) => "evidence",
            Self::SessionLost | Self::Unreachable(_) | Self::Host(_) | Self::Tls(_) => "host",
            #[cfg(feature = "std")]
            Self::Io(_) => "io",
        }
    }
}

/// Shorthand for results of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
