//! Copies of blocks that were evicted into the tree: a cache hit sends nothing.
//!
//! A copy is never outdated: any access to its block that bypasses the cache drops the copy.

use std::collections::{HashMap, VecDeque};

/// Recently used blocks, up to a number of bytes.
#[derive(Default)]
pub struct Cache {
    len_max: usize,
    len: usize,
    /// Each block with the number of its last use.
    blocks: HashMap<u32, (u64, Vec<u8>)>,
    /// Uses, oldest first. Only the last use of a block counts.
    order: VecDeque<(u32, u64)>,
    uses: u64,
}

/// Bytes of memory for each block besides its own, at most: its places in the map, which is half
/// full, and in the order of uses, which has two of each block and as much room again.
pub fn bytes_beside_copy() -> usize {
    2 * (1 + size_of::<(u32, (u64, Vec<u8>))>()) * 8 / 7 + 2 * 2 * size_of::<(u32, u64)>()
}

impl Cache {
    /// Keeps at most `len` bytes of blocks from now on.
    pub fn limit(&mut self, len: usize) {
        self.len_max = len;
        self.shrink();
    }

    /// Adds a block.
    pub fn put(&mut self, id: u32, block: &[u8]) {
        if block.len() > self.len_max {
            return;
        }
        self.remove(id);
        self.len += block.len();
        self.blocks.insert(id, (0, block.to_vec()));
        self.note_use(id);
        self.shrink();
    }

    /// The copy of a block. This counts as a use.
    pub fn get(&mut self, id: u32) -> Option<&[u8]> {
        self.note_use(id);
        self.blocks.get(&id).map(|(_, block)| &block[..])
    }

    /// Drops a block.
    pub fn remove(&mut self, id: u32) {
        if let Some((_, block)) = self.blocks.remove(&id) {
            self.len -= block.len();
        }
    }

    /// Records a use of a block, if it is in the cache.
    fn note_use(&mut self, id: u32) {
        let Some((last, _)) = self.blocks.get_mut(&id) else { return };
        self.uses += 1;
        *last = self.uses;
        self.order.push_back((id, self.uses));
        // Outdated uses are removed once they are more than half of the order.
        if self.order.len() > 2 * self.blocks.len() + 16 {
            let blocks = &self.blocks;
            self.order.retain(|(id, use_)| blocks.get(id).is_some_and(|(last, _)| last == use_));
        }
    }

    fn shrink(&mut self) {
        while self.len > self.len_max {
            let (id, used) = self.order.pop_front().expect("every block was used once");
            if self.blocks.get(&id).is_some_and(|(last, _)| *last == used) {
                self.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut cache = Cache::default();
        cache.put(9, &[0; 10]);
        assert_eq!(cache.get(9), None, "there is no room");
        cache.limit(35);
        for id in 0..3 {
            cache.put(id, &[id as u8; 10]);
        }
        assert_eq!(cache.get(0), Some(&[0; 10][..]));
        cache.put(3, &[3; 10]);
        assert_eq!(cache.get(1), None);
        assert!(cache.get(0).is_some() && cache.get(2).is_some() && cache.get(3).is_some());
        cache.put(2, &[7; 5]);
        assert_eq!((cache.len, cache.get(2)), (25, Some(&[7; 5][..])));
        cache.remove(2);
        assert_eq!((cache.len, cache.get(2)), (20, None));
        for _ in 0..1000 {
            cache.get(3);
        }
        assert!(cache.order.len() < 40, "{}", cache.order.len());
        cache.limit(10);
        assert!(cache.get(0).is_none() && cache.get(3).is_some());
    }

    #[test]
    fn putting_a_block_again_counts_as_a_use() {
        let mut cache = Cache::default();
        cache.limit(20);
        for id in [1, 2, 1, 3] {
            cache.put(id, &[0; 10]);
        }
        assert!(cache.get(2).is_none() && cache.get(1).is_some() && cache.get(3).is_some());
    }

    #[test]
    fn a_block_longer_than_the_cache_evicts_nothing() {
        let mut cache = Cache::default();
        cache.limit(10);
        cache.put(1, &[1; 10]);
        cache.put(2, &[2; 11]);
        assert!(cache.get(1) == Some(&[1; 10]) && cache.get(2).is_none());
    }

    /// The largest number of recorded uses while three blocks are used again and again.
    fn remembered(mut use_one: impl FnMut(&mut Cache, u32)) -> usize {
        let mut cache = Cache::default();
        cache.limit(1000);
        for id in 0..100 {
            cache.put(id, &[0; 10]);
        }
        for id in 3..100 {
            cache.remove(id);
        }
        // The first use removes the uses of the removed blocks.
        let uses = (0..300).map(|nth| {
            use_one(&mut cache, nth % 3);
            cache.order.len()
        });
        uses.max().unwrap()
    }

    #[test]
    fn outdated_uses_are_removed_at_twice_the_number_of_blocks() {
        assert_eq!(remembered(|cache, id| assert!(cache.get(id).is_some())), 2 * 3 + 16);
        assert_eq!(remembered(|cache, id| cache.put(id, &[1; 10])), 2 * 3 + 16);
    }
}
