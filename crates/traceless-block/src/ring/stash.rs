//! Blocks that wait in memory for the bucket of the first level that they go to.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A block in the stash.
pub(super) struct RingStashBlock {
    /// The number of its record in the log.
    pub birth: u64,
    /// Whether its contents were lost to damage.
    pub is_lost: bool,
    pub body: Box<[u8]>,
}

/// The stash.
pub(super) struct RingStash {
    blocks: BTreeMap<u64, RingStashBlock>,
    /// Of each bucket of the first level the blocks that wait for it, and their births, in order. A
    /// block that was accessed again since then has another birth by now.
    waiting: Vec<VecDeque<(u64, u64)>>,
}

impl RingStash {
    /// An empty stash above `buckets` buckets.
    pub fn new(buckets: u64) -> Self {
        let waiting = (0..buckets).map(|_| VecDeque::new()).collect();
        Self { blocks: BTreeMap::new(), waiting }
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Takes a block out.
    pub fn take(&mut self, block: u64) -> Option<RingStashBlock> {
        self.blocks.remove(&block)
    }

    /// Puts in a block that waits for `bucket`. It was born after all that wait there.
    pub fn put(&mut self, block: u64, bucket: u64, held: RingStashBlock) {
        self.waiting[bucket as usize].push_back((block, held.birth));
        self.blocks.insert(block, held);
    }

    pub fn get(&self, block: u64) -> Option<&RingStashBlock> {
        self.blocks.get(&block)
    }

    /// All blocks.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &RingStashBlock)> {
        self.blocks.iter().map(|(block, held)| (*block, held))
    }

    /// The blocks that wait for a bucket and their births, the oldest first.
    pub fn waiting_for(&mut self, bucket: u64) -> Vec<(u64, u64)> {
        let Self { blocks, waiting } = self;
        let list = &mut waiting[bucket as usize];
        list.retain(|(block, birth)| blocks.get(block).is_some_and(|held| held.birth == *birth));
        list.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_waits_with_its_last_birth() {
        let mut stash = RingStash::new(2);
        let held = |birth| RingStashBlock { birth, is_lost: false, body: [birth as u8].into() };
        for (block, bucket, birth) in [(5, 0, 1), (6, 0, 2), (5, 1, 3), (6, 0, 4)] {
            stash.take(block);
            stash.put(block, bucket, held(birth));
        }
        assert_eq!(stash.waiting_for(0), [(6, 4)]);
        assert_eq!(stash.waiting_for(1), [(5, 3)]);
        assert_eq!(stash.len(), 2);
        assert_eq!(stash.get(5).unwrap().birth, 3);
        assert_eq!(stash.take(6).unwrap().body[..], [4]);
        assert_eq!(stash.waiting_for(0), []);
    }
}
