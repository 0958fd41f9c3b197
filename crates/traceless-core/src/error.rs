//! Errors that the caller, the store or an adversary can cause. Bugs of this crate are assertions,
//! never errors.
//!
//! Callers decide by the variant. An error about damage has its place, and the block that is lost:
//!
//! ```
//! use traceless_core::error::{Error, Place};
//!
//! /// The block to restore from a backup, if damage to it is the only problem.
//! fn lost_block(error: &Error) -> Option<u64> {
//!     match error {
//!         Error::Tampered { place } => place.block,
//!         _ => None,
//!     }
//! }
//!
//! let error = Error::Tampered { place: Place { area: "main", slot: 3, block: Some(7) } };
//! assert_eq!(lost_block(&error), Some(7));
//! assert_eq!(lost_block(&Error::ReadOnly), None);
//! assert!(error.to_string().starts_with("slot 3 of the main area (block 7) was changed"));
//! ```

use crate::types::Addr;

/// Where a damaged or replaced unit lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the area, as in docs/format.md.
    pub area: &'static str,
    /// Slot number in that area.
    pub slot: u64,
    /// The client's block that is lost with it, if it is known.
    pub block: Option<u64>,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "slot {} of the {} area", self.slot, self.area)?;
        match self.block {
            Some(block) => write!(f, " (block {block})"),
            None => Ok(()),
        }
    }
}

/// Everything that a scheme or a store can report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller named a block that does not exist.
    #[error("block {} is out of range: there are {blocks}", addr.0)]
    OutOfRange {
        /// The requested block.
        addr: Addr,
        /// Number of blocks.
        blocks: u64,
    },
    /// The caller's buffer does not fit the blocks it names.
    #[error("wrong length: {want} bytes are needed, {got} were given")]
    WrongLength {
        /// Bytes needed.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// A live unit does not hold what was last written there: it was damaged, moved, replayed or
    /// forged.
    #[error("{place} was changed: it is damaged or was put back from an older copy")]
    Tampered {
        /// The place of the unit.
        place: Place,
    },
    /// The contents of an area do not add up to the newest map: an entry that mattered was damaged
    /// or put back from an older copy, and it is unknown which one.
    #[error(
        "the {area} area does not add up: an entry was damaged or was put back from an older \
             copy"
    )]
    WrongMap {
        /// Name of the area, as in docs/format.md.
        area: &'static str,
    },
    /// More blocks wait for a free slot than there is room for. With honest randomness this never
    /// happens; the store is unchanged, and the scheme can go on once it is opened again.
    #[error("{blocks} blocks wait for a free slot, there is room for {limit}: open it again")]
    StashOverflow {
        /// Number of blocks that wait.
        blocks: u64,
        /// Number of blocks that may wait.
        limit: u64,
    },
    /// A map had no room for another entry, and did not insert it.
    #[error("the map has no room for another entry: it was made for {capacity}")]
    MapFull {
        /// Number of entries that the map has room for.
        capacity: u64,
    },
    /// Counters of the position map have reached their end. Another label under this key would
    /// repeat an earlier one.
    #[error("every label of this key was used: copy the blocks into a tree under another one")]
    LabelsSpent,
    /// The caller requests a block that a cache above has taken out, or returns a block that is
    /// here.
    #[error("block {} is not where the caller takes it to be", addr.0)]
    Misplaced {
        /// The block's address.
        addr: Addr,
    },
    /// A part of the trusted state was saved and freed: it must be brought back first.
    #[error("suspended: it must be resumed before anything else")]
    Suspended,
    /// The store holds fewer writes than the trusted state has recorded.
    #[error("the store went back: it holds {found} writes, at least {expected} were made")]
    RolledBack {
        /// Number of writes that the trusted state has recorded.
        expected: u64,
        /// Number of writes that the store holds.
        found: u64,
    },
    /// A salvage, which opens the store without its damaged parts, was interrupted: until it is
    /// repeated, the map may lead to older copies than there are.
    #[error("opening it without what is damaged was cut short, and must be done again")]
    HalfSaved,
    /// An impossible geometry: too small, too large, or a ratio that cannot be.
    #[error("impossible geometry: {0}")]
    Geometry(&'static str),
    /// Saved state of another version or length.
    #[error("saved state cannot be understood: {0}")]
    State(&'static str),
    /// An earlier write or sync failed; nothing more is written until the scheme is opened anew.
    #[error("an earlier write failed, so this is read-only until it is opened again")]
    Poisoned,
    /// An earlier access found damage in what it read. The author of the damage could learn from
    /// later accesses, so none is made.
    #[error("an earlier access found damage, so nothing more is accessed until it is opened again")]
    EarlierDamage,
    /// An earlier access ended in the middle, with its block in no place: the caller's closure
    /// panicked, or a stash had no room.
    #[error(
        "an earlier access ended in the middle, so nothing more is accessed until it is opened \
             again"
    )]
    EarlierAbort,
    /// The store was opened for reading only.
    #[error("opened for reading only")]
    ReadOnly,
    /// The scheme gains nothing from a salvage, which opens a store without its damaged parts.
    #[error("the scheme {0} has no blocks that could be saved without the damaged ones")]
    NotSalvageable(&'static str),
    /// This machine computes the cipher wrongly.
    #[error(
        "this machine computes {0} wrongly, as some emulated processors do: nothing that it seals \
             would be safe; use another machine, or another cipher for something new"
    )]
    CipherUnsound(&'static str),
    /// A store other than a file failed.
    #[error("the store failed: {0}")]
    Store(&'static str),
    /// The operating system reported an error.
    #[cfg(feature = "std")]
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Shorthand for results of this crate.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;
