//! The log of a state as it was found in the storage engine.

use super::checkpoint::Checkpoint;
use super::entry::{LeaseEntry, TREE_LEN};
use crate::error::{Error, Result};
use crate::state_log::{StateLog, StoredLog};
use bytes::Bytes;
use traceless_core::seal::Secret;

/// The largest position: no log gets there, and sums do not overflow.
const POSITION_MAX: u64 = 1 << 62;

/// The newest checkpoint, and all later entries.
pub struct ReadLog {
    /// The saved state; `None` if no state was ever saved.
    pub checkpoint: Option<Bytes>,
    /// The position of the last entry that the checkpoint includes; 0 without one.
    pub included: u64,
    /// The later entries, in order.
    pub entries: Vec<Bytes>,
}

impl ReadLog {
    /// Reads the log.
    pub fn read(log: &dyn StateLog) -> Result<Self> {
        let StoredLog { checkpoint, mut entries } = log.load()?;
        let included = checkpoint.as_ref().map_or(0, |(position, _)| *position);
        entries.retain(|(position, _)| *position > included);
        entries.sort_unstable_by_key(|(position, _)| *position);
        let is_next = |(position, (found, _)): (u64, &(u64, Bytes))| position == *found;
        if included > POSITION_MAX || !(included + 1..).zip(&entries).all(is_next) {
            let message = "the log of the gateway's state in the storage engine, which has a gap,";
            return Err(Error::State(message));
        }
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Ok(Self { checkpoint: checkpoint.map(|(_, bytes)| bytes), included, entries })
    }

    /// Whether nothing was ever written to the log.
    pub fn is_empty(&self) -> bool {
        self.checkpoint.is_none() && self.entries.is_empty()
    }

    /// The saved state under the key of the lease.
    pub fn checkpoint(&self, key: &Secret) -> Result<Option<Checkpoint>> {
        let decode = |bytes| Checkpoint::decode(bytes, self.included, key);
        self.checkpoint.as_deref().map(decode).transpose()
    }

    /// The position of the last entry.
    pub fn last(&self) -> u64 {
        self.included + self.entries.len() as u64
    }

    /// Each entry with its position.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (u64, &Bytes)> + ExactSizeIterator {
        let first = self.included + 1;
        self.entries.iter().enumerate().map(move |(nth, entry)| (first + nth as u64, entry))
    }

    /// The number of the state's tree; `None` for an empty log.
    pub fn tree(&self) -> Option<[u8; TREE_LEN]> {
        let saved = self.checkpoint.as_deref().map(Checkpoint::tree_of);
        saved.unwrap_or_else(|| self.entries.iter().find_map(|entry| LeaseEntry::tree_of(entry)))
    }
}
