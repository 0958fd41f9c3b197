//! The readers' shared cache: recently read parts of the maps on the disk, and the recognition of
//! sequential requests.

use crate::pool::SharedCell;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// Cached chunks of each generation. Sequential readers use one chunk at a time, and their requests
/// may run ahead of each other.
pub(super) const CHUNKS_PER_GENERATION: u64 = 4;

/// Cached leaves of the map.
const LEAVES: usize = 4;

/// Sequential readers that are tracked at a time.
const SEQUENCES: usize = 8;

/// Consecutive requests needed before more are expected.
const IN_ORDER_MIN: u32 = 2;

/// Blocks fetched ahead at a time; the next fetch follows after a sequential reader has read that
/// many.
const BLOCKS_AHEAD: u64 = 1024;

/// A chunk, by its level and the number of its first slot.
pub(super) type ChunkId = (usize, u64);

/// The addresses in the entries of a chunk; `None` where an entry is damaged.
pub(super) type Chunk = Arc<[Option<u64>]>;

/// The cache place of a chunk. It replaces a chunk that a sequential reader has most likely left
/// behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkPlace {
    pub level: usize,
    /// Number of its generation, modulo the number of generations that exist at once.
    pub generation: u64,
    /// Number of the chunk there, modulo [`CHUNKS_PER_GENERATION`].
    pub nth: u64,
}

/// The cache that all readers share.
#[derive(Default)]
pub(super) struct ReaderCache(SharedCell<Memories>);

#[derive(Default)]
struct Memories {
    chunks: BTreeMap<ChunkPlace, (ChunkId, Chunk)>,
    /// Leaves with the times of their last writes; the most recently added leaf is last.
    leaves: Vec<(u64, Option<u64>, Arc<[u8]>)>,
    /// For each sequential reader, the address that would continue it, and the number of requests
    /// that have continued it so far.
    sequences: Vec<(u64, u32)>,
}

impl ReaderCache {
    pub fn chunk(&self, place: ChunkPlace, id: ChunkId) -> Option<Chunk> {
        self.0.with(|known| {
            let (found, chunk) = known.chunks.get(&place)?;
            (*found == id).then(|| chunk.clone())
        })
    }

    /// Caches a chunk, unless it is damaged, since the damage may be repaired.
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

    /// Notes a request for `addresses`. If it continues a sequence, returns from time to time how
    /// many more requests of its length to fetch ahead.
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

    /// Empties the cache.
    pub fn forget(&self) {
        self.0.with(|known| *known = Memories::default());
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn sequential_readers_are_recognised() {
        let cache = ReaderCache::default();
        let mut ahead = vec![];
        // Two sequential readers, and one that reads at random places.
        for i in 0..12u64 {
            ahead.extend(cache.requests_ahead(&(i * 256..i * 256 + 256)).map(|n| (i, n)));
            ahead.extend(cache.requests_ahead(&(5000 + i * 32..5032 + i * 32)).map(|n| (i, n)));
            let start = 7000 + i * 7919 % 997;
            assert_eq!(cache.requests_ahead(&(start..start + 8)), None);
        }
        assert_eq!(ahead, [(2, 4), (2, 32), (6, 4), (10, 4)]);
    }

    #[test]
    fn only_whole_chunks_and_the_newest_leaves_are_remembered() {
        let cache = ReaderCache::default();
        let place = ChunkPlace { level: 1, generation: 3, nth: 2 };
        cache.remember_chunk(place, (1, 640), &Arc::from([Some(7), None]));
        assert_eq!(cache.chunk(place, (1, 640)), None);
        let chunk = Chunk::from([Some(7), Some(9)]);
        cache.remember_chunk(place, (1, 640), &chunk);
        assert_eq!(cache.chunk(place, (1, 640)), Some(chunk));
        assert_eq!(cache.chunk(place, (1, 896)), None);
        for time in 0..9 {
            cache.remember_leaf(time % 5, Some(time), &Arc::from([time as u8]));
        }
        let there = |leaf, time| cache.leaf(leaf, Some(time)).is_some();
        assert_eq!([there(3, 8), there(2, 7), there(1, 6), there(0, 5)], [true; 4]);
        assert!(!there(4, 4) && !there(3, 3));
        cache.forget();
        assert!(!there(3, 8) && cache.chunk(place, (1, 640)).is_none());
    }
}
