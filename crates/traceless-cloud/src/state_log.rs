//! What a storage engine does for the state of a gateway that other gateways reach, too: it keeps a
//! log in which each position is taken once, and pieces of states under names that are never used
//! twice.
//!
//! No call overwrites anything, so one that arrives late, twice or after another gateway has taken
//! over does no harm. Calls are repeated within, for a limited time, and fail with
//! [`Error::Engine`](crate::Error::Engine).

#[cfg(test)]
pub(crate) mod memory;

use crate::error::Result;
use bytes::Bytes;

/// The result of adding an entry to a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The entry is in the log, and durable.
    Done,
    /// Another entry has the position. `None` if it is gone since then, because of a checkpoint.
    Taken(Option<Bytes>),
}

/// A log as it is stored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoredLog {
    /// The newest checkpoint, and the position of the last entry that it includes.
    pub checkpoint: Option<(u64, Bytes)>,
    /// Entries with their positions, in any order. There may be some that the checkpoint includes.
    pub entries: Vec<(u64, Bytes)>,
}

/// The name of a piece of a saved state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PieceName {
    /// A random number of the saved state.
    pub save: u64,
    /// The number of the piece in it, from 0 on.
    pub piece: u32,
}

/// The log of a gateway's state in a storage engine. Any thread may call it.
pub trait StateLog: Send + Sync {
    /// The log, as it was at one moment.
    fn load(&self) -> Result<StoredLog>;

    /// The entry at a position; `None` if there is none yet, or a checkpoint includes it.
    fn entry(&self, position: u64) -> Result<Option<Bytes>>;

    /// The position of the last entry that the newest checkpoint includes; 0 without a checkpoint.
    fn included(&self) -> Result<u64>;

    /// Adds an entry, unless its position is taken, is not the next one, or is included in a
    /// checkpoint. Positions begin with 1. After a failure the entry may be in the log, now or
    /// later.
    fn append(&self, position: u64, entry: Bytes) -> Result<Appended>;

    /// Stores a checkpoint that includes all entries up to `position`, which are removed. Does
    /// nothing if there is a newer one.
    fn checkpoint(&self, position: u64, bytes: Bytes) -> Result;

    /// Stores pieces, all of them at once. They are durable on return.
    fn write_pieces(&self, pieces: Vec<(PieceName, Bytes)>) -> Result;

    /// Reads pieces of these lengths, all of them at once; `None` for one that is not there in
    /// full.
    fn read_pieces(&self, pieces: &[(PieceName, usize)]) -> Result<Vec<Option<Bytes>>>;

    /// The names of all pieces.
    fn list_pieces(&self) -> Result<Vec<PieceName>>;

    /// Removes pieces, as far as they exist.
    fn remove_pieces(&self, pieces: &[PieceName]) -> Result;
}
