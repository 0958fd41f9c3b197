//! What accesses read and write together.

use super::entry::LevelHead;
use alloc::vec::Vec;

/// Accesses that are made together.
#[derive(Default)]
pub(super) struct RingChunk {
    pub accesses: Vec<RingAccess>,
    pub reads: Vec<SlotRead>,
    /// The eviction at the end, if it is due then.
    pub eviction: Option<Eviction>,
    /// Whether the user makes these accesses.
    pub is_requested: bool,
}

/// An access of a chunk.
#[derive(Clone, Copy)]
pub(super) struct RingAccess {
    /// The block; `None` for a dummy.
    pub block: Option<u64>,
    /// Which of the chunk's reads has the block; `None` if it is in the stash or was never written.
    pub found: Option<usize>,
}

/// A slot that an access reads.
pub(super) struct SlotRead {
    pub level: usize,
    /// The eviction that wrote the bucket; `None` if it was never written.
    pub eviction: Option<u64>,
    pub slot: u64,
    /// The block that the slot must hold; `None` for a dummy.
    pub block: Option<u64>,
    /// The slot's number in the input.
    pub nth: usize,
}

/// A slot of a level that is to be sealed.
pub(super) struct LevelSlot {
    pub level: usize,
    pub version: u64,
    pub head: LevelHead,
}

/// An eviction.
pub(super) struct Eviction {
    pub nth: u64,
    pub leaf: u64,
    /// The path's buckets, from the first level on.
    pub buckets: Vec<EvictedBucket>,
}

/// A bucket that an eviction reads and writes.
#[derive(Clone, Copy)]
pub(super) struct EvictedBucket {
    pub bucket: u64,
    /// The eviction that wrote it last; `None` if it was never written.
    pub last: Option<u64>,
    /// The number of its first slot in the input.
    pub begin: usize,
}
