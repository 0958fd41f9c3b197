//! What readers remember together: of the maps on the disk what they read last, and which requests
//! continue others.

use crate::scheme::pool::SharedCell;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// Chunks that are remembered of each generation. Readers that go on in order are in one of them,
/// and some requests ahead of each other.
pub(super) const CHUNKS_PER_GENERATION: u64 = 4;

/// Leaves of the map that are remembered.
const LEAVES: usize = 4;

/// Readers in order that are told apart.
const SEQUENCES: usize = 8;

/// Requests that must have continued each other before more of them are expected.
const IN_ORDER_MIN: u32 = 2;

/// Blocks that are then fetched ahead, as often as so many were asked for.
const BLOCKS_AHEAD: u64 = 1024;

/// A chunk, by its level and the number of its first slot.
pub(super) type ChunkId = (usize, u64);

/// The addresses in the entries of a chunk; none where an entry is damaged.
pub(super) type Chunk = Arc<[Option<u64>]>;

/// Where a chunk is remembered: in the place of one that a reader has most likely left behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkPlace {
    pub level: usize,
    /// Number of its generation, modulo those that there are at once.
    pub generation: u64,
    /// Number of the chunk there, modulo [`CHUNKS_PER_GENERATION`].
    pub nth: u64,
}

/// What all readers share.
#[derive(Default)]
pub(super) struct ReaderCache(SharedCell<Memories>);

#[derive(Default)]
struct Memories {
    chunks: BTreeMap<ChunkPlace, (ChunkId, Chunk)>,
    /// Leaves with the times of their last writes, the one that was read last at the end.
    leaves: Vec<(u64, Option<u64>, Arc<[u8]>)>,
    /// Where readers would go on, and how many of their requests have done so.
    sequences: Vec<(u64, u32)>,
}

impl ReaderCache {
    pub fn chunk(&self, place: ChunkPlace, id: ChunkId) -> Option<Chunk> {
        self.0.with(|known| {
            let (found, chunk) = known.chunks.get(&place)?;
            (*found == id).then(|| chunk.clone())
        })
    }

    /// Remembers a chunk, unless it is damaged: it may be mended.
    pub fn remember_chunk(&self, place: ChunkPlace, id: ChunkId, chunk: &Chunk) {
        if !chunk.contains(&None) {
            self.0.with(|known| known.chunks.insert(place, (id, chunk.clone())));
        }
    }

    /// The contents of a leaf that was last written at `time`.
    pub fn leaf(&self, leaf: u64, time: Option<u64>) -> Option<Arc<[u8]>> {
        self.0.with(|known| {
            let found = known.leaves.iter().find(|(l, t, _)| (*l, *t) == (leaf, time));
            found.map(|(.., contents)| contents.clone())
        })
    }

    pub fn remember_leaf(&self, leaf: u64, time: Option<u64>, contents: &Arc<[u8]>) {
        self.0.with(|known| {
            known.leaves.retain(|(l, ..)| *l != leaf);
            if known.leaves.len() == LEAVES {
                known.leaves.remove(0);
            }
            known.leaves.push((leaf, time, contents.clone()));
        });
    }

    /// Notes a request for `addresses`. If it and some before it were in order, tells now and then
    /// as how many requests more, of its length, what comes behind it is to be fetched ahead.
    pub fn requests_ahead(&self, addresses: &Range<u64>) -> Option<u64> {
        let requests = (BLOCKS_AHEAD / (addresses.end - addresses.start)).max(1);
        let so_far = self.0.with(|known| {
            let sequences = &mut known.sequences;
            let found = sequences.iter().position(|(next, _)| *next == addresses.start);
            let so_far = found.map_or(0, |nth| sequences.remove(nth).1 + 1);
            if sequences.len() == SEQUENCES {
                sequences.remove(0);
            }
            sequences.push((addresses.end, so_far));
            so_far
        });
        let past = so_far.checked_sub(IN_ORDER_MIN)?;
        u64::from(past).is_multiple_of(requests).then_some(requests)
    }

    /// Forgets everything that can be read again.
    pub fn forget(&self) {
        self.0.with(|known| *known = Memories::default());
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn readers_in_order_are_told_from_others() {
        let known = ReaderCache::default();
        let mut ahead = vec![];
        // Two readers in order, and somebody who reads here and there.
        for i in 0..12u64 {
            ahead.extend(known.requests_ahead(&(i * 256..i * 256 + 256)).map(|n| (i, n)));
            ahead.extend(known.requests_ahead(&(5000 + i * 32..5032 + i * 32)).map(|n| (i, n)));
            let start = 7000 + i * 7919 % 997;
            assert_eq!(known.requests_ahead(&(start..start + 8)), None);
        }
        assert_eq!(ahead, [(2, 4), (2, 32), (6, 4), (10, 4)]);
    }

    #[test]
    fn only_whole_chunks_and_the_newest_leaves_are_remembered() {
        let known = ReaderCache::default();
        let place = ChunkPlace { level: 1, generation: 3, nth: 2 };
        known.remember_chunk(place, (1, 640), &Arc::from([Some(7), None]));
        assert_eq!(known.chunk(place, (1, 640)), None);
        let chunk = Chunk::from([Some(7), Some(9)]);
        known.remember_chunk(place, (1, 640), &chunk);
        assert_eq!(known.chunk(place, (1, 640)), Some(chunk));
        assert_eq!(known.chunk(place, (1, 896)), None);
        for time in 0..9 {
            known.remember_leaf(time % 5, Some(time), &Arc::from([time as u8]));
        }
        let there = |leaf, time| known.leaf(leaf, Some(time)).is_some();
        assert_eq!([there(3, 8), there(2, 7), there(1, 6), there(0, 5)], [true; 4]);
        assert!(!there(4, 4) && !there(3, 3));
        known.forget();
        assert!(!there(3, 8) && known.chunk(place, (1, 640)).is_none());
    }
}
