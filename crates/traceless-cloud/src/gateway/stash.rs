//! The stash: blocks at the gateway, in the paper's ring or in the gateway's root.
//!
//! An accessed block is in the ring until the next round is planned: it is cached, and another
//! access to it is a cache hit. Then all of the ring goes into the root, and each block leaves with
//! the next round through its tree. That time depends on the block's leaf, so a block of the root
//! is not cached, although the gateway holds it: an access sends a query down its path, as if the
//! host held the root. Otherwise a block would cause a query as soon as a round had taken it away,
//! and queries would follow rounds into their trees.

use super::plan::MovingBlock;
use std::collections::{HashMap, VecDeque};

/// A block at the gateway.
struct StashBlock {
    leaf: u32,
    /// Identifies the block's current entry in a queue; older entries have other tickets.
    ticket: u64,
    area: Area,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    /// In the paper's ring.
    Recent,
    Root,
    /// Moving into the tree with the running round.
    InRound,
}

/// Numbers and tickets of blocks, oldest first. Tickets increase.
type Queue = VecDeque<(u32, u64)>;

/// The blocks at the gateway.
pub struct Stash {
    blocks: HashMap<u32, StashBlock>,
    /// The paper's ring: blocks accessed since the last round was planned.
    recent: Queue,
    /// The root's blocks, for each tree below it.
    root: Vec<Queue>,
    tickets: u64,
}

/// A block that moves into the tree. Its bytes stay at the gateway until the round commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionEntry {
    /// The block.
    pub block: MovingBlock,
    ticket: u64,
}

impl Stash {
    /// No blocks, for a root above `trees` trees.
    pub fn new(trees: u32) -> Self {
        let root = (0..trees).map(|_| Queue::new()).collect();
        Self { blocks: HashMap::new(), recent: Queue::new(), root, tickets: 0 }
    }

    /// Blocks held, including leaving ones.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks of the root that a round can move into a tree.
    pub fn ready(&self, tree: usize) -> usize {
        self.root[tree].len()
    }

    /// A block's bytes.
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        self.blocks.get(&id).map(|block| &block.bytes[..])
    }

    /// Whether a block is in the ring.
    pub fn is_cached(&self, id: u32) -> bool {
        self.blocks.get(&id).is_some_and(|block| block.area == Area::Recent)
    }

    /// The leaf of a block at the gateway.
    pub fn leaf(&self, id: u32) -> Option<u32> {
        self.blocks.get(&id).map(|block| block.leaf)
    }

    /// The root's blocks with their leaves and bytes, then the ring's, each oldest first. No block
    /// may be leaving.
    pub fn in_order(&self) -> [Vec<(u32, u32, &[u8])>; 2] {
        let queued = self.recent.len() + self.root.iter().map(VecDeque::len).sum::<usize>();
        assert!(self.blocks.len() == queued, "none is leaving");
        let entry = |(id, _): &(u32, u64)| {
            let block = &self.blocks[id];
            (*id, block.leaf, &block.bytes[..])
        };
        [self.root.iter().flatten().map(entry).collect(), self.recent.iter().map(entry).collect()]
    }

    /// Adds a block to the ring, or replaces its bytes. A block of the ring keeps its leaf, which
    /// the host has not observed. A block of the root moves to the ring. So does a leaving block,
    /// and its copy in the round becomes outdated.
    pub fn put(&mut self, id: u32, leaf: u32, bytes: Vec<u8>) {
        if let Some(block) = self.blocks.get_mut(&id) {
            if block.area == Area::Recent {
                block.bytes = bytes;
                return;
            }
            if block.area == Area::Root {
                let trees = self.root.len();
                let queue = &mut self.root[block.leaf as usize % trees];
                let found = queue.binary_search_by_key(&block.ticket, |(_, ticket)| *ticket);
                queue.remove(found.expect("what is in the root has its place there"));
            }
        }
        self.tickets += 1;
        self.recent.push_back((id, self.tickets));
        self.blocks
            .insert(id, StashBlock { leaf, ticket: self.tickets, area: Area::Recent, bytes });
    }

    /// Moves all of the ring into the root, and calls `copy` with each block.
    pub fn fill_root(&mut self, mut copy: impl FnMut(u32, &[u8])) {
        let trees = self.root.len();
        for (id, ticket) in self.recent.drain(..) {
            let block = self.blocks.get_mut(&id).expect("what is in the ring is here");
            block.area = Area::Root;
            copy(id, &block.bytes);
            self.root[block.leaf as usize % trees].push_back((id, ticket));
        }
    }

    /// Takes the oldest `count` blocks of the root for a tree, to leave with a round.
    pub fn take_for_round(&mut self, tree: usize, count: usize) -> Vec<EvictionEntry> {
        let evictions = |(id, ticket)| {
            let block = self.blocks.get_mut(&id).expect("what is in the root is here");
            block.area = Area::InRound;
            EvictionEntry { block: MovingBlock { id, leaf: block.leaf }, ticket }
        };
        self.root[tree].drain(..count).map(evictions).collect()
    }

    /// Puts blocks that leave with a round back into the root, before all other blocks, unless they
    /// were accessed meanwhile.
    pub fn return_to_root(&mut self, evictions: &[EvictionEntry]) {
        let trees = self.root.len();
        for entry in evictions.iter().rev() {
            let MovingBlock { id, leaf } = entry.block;
            if let Some(block) =
                self.blocks.get_mut(&id).filter(|block| block.ticket == entry.ticket)
            {
                block.area = Area::Root;
                self.root[leaf as usize % trees].push_front((id, entry.ticket));
            }
        }
    }

    /// After a committed round: drops a block, unless it was accessed meanwhile. Returns whether it
    /// was dropped.
    pub fn remove_committed(&mut self, entry: &EvictionEntry) -> bool {
        let id = entry.block.id;
        let is_current = self.blocks.get(&id).is_some_and(|block| block.ticket == entry.ticket);
        is_current && self.blocks.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(evictions: &[EvictionEntry]) -> Vec<u32> {
        evictions.iter().map(|entry| entry.block.id).collect()
    }

    #[test]
    fn a_block_written_during_its_round_stays_in_the_stash() {
        let mut stash = Stash::new(1);
        for id in 0..6 {
            stash.put(id, 10 + id, vec![1]);
        }
        stash.put(5, 99, vec![2]);
        stash.fill_root(|_, _| ());
        let evictions = stash.take_for_round(0, 4);
        assert_eq!(evictions[3].block, MovingBlock { id: 3, leaf: 13 });
        stash.put(2, 77, vec![3]);
        assert_eq!((stash.len(), stash.ready(0)), (6, 2));
        let is_current: Vec<bool> =
            evictions.iter().map(|entry| stash.remove_committed(entry)).collect();
        assert_eq!(is_current, [true, true, false, true]);
        assert_eq!((stash.get(2), stash.get(0)), (Some(&[3][..]), None));
        stash.fill_root(|_, _| ());
        let next = stash.take_for_round(0, 3);
        // Block 5 was written in the ring and kept its leaf; block 2 was written while leaving and
        // got another.
        let blocks: Vec<(u32, u32)> =
            next.iter().map(|entry| (entry.block.id, entry.block.leaf)).collect();
        assert_eq!(blocks, [(4, 14), (5, 15), (2, 77)]);
        assert_eq!(stash.get(5), Some(&[2][..]));
    }

    #[test]
    fn a_failed_round_returns_its_blocks() {
        let mut stash = Stash::new(1);
        for id in 0..4 {
            stash.put(id, id, vec![id as u8]);
        }
        stash.fill_root(|_, _| ());
        let evictions = stash.take_for_round(0, 3);
        stash.put(1, 8, vec![9]);
        stash.return_to_root(&evictions);
        stash.fill_root(|_, _| ());
        assert_eq!(ids(&stash.take_for_round(0, 4)), [0, 2, 3, 1]);
    }

    #[test]
    fn only_recent_blocks_are_cached() {
        let mut stash = Stash::new(3);
        for id in 0..9 {
            stash.put(id, 8 - id, vec![0]);
        }
        assert!((0..9).all(|id| stash.is_cached(id)));
        let mut ids_in_order = Vec::new();
        stash.fill_root(|id, _| ids_in_order.push(id));
        assert!(ids_in_order.into_iter().eq(0..9));
        assert!((0..9).all(|id| !stash.is_cached(id) && stash.leaf(id) == Some(8 - id)));
        let evictions = stash.take_for_round(1, 2);
        assert_eq!((ids(&evictions), stash.ready(1)), (vec![1, 4], 1));
        // A leaving block and a block of the root are accessed: both are then in the ring, under
        // new leaves, and not in the root.
        stash.put(4, 3, vec![4]);
        stash.put(8, 1, vec![8]);
        assert!(stash.is_cached(4) && stash.is_cached(8) && !stash.is_cached(1));
        stash.return_to_root(&evictions);
        assert_eq!([0, 1, 2].map(|tree| stash.ready(tree)), [2, 2, 3]);
        let [root, recent] = stash.in_order();
        let numbers = |blocks: &[(u32, u32, &[u8])]| -> Vec<u32> {
            blocks.iter().map(|(id, ..)| *id).collect()
        };
        assert_eq!((numbers(&root), numbers(&recent)), (vec![2, 5, 1, 7, 0, 3, 6], vec![4, 8]));
        stash.fill_root(|_, _| ());
        assert_eq!(
            (ids(&stash.take_for_round(0, 3)), ids(&stash.take_for_round(1, 3))),
            (vec![2, 5, 4], vec![1, 7, 8])
        );
    }
}
