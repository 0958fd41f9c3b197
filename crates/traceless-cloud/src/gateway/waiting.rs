//! Blocks that wait at the gateway: in the paper's ring or in the gateway's root.
//!
//! An accessed block is in the ring until the next round is planned: it is at hand, and another
//! access to it is a cache hit. Then all of the ring goes into the root, and each block leaves with
//! the next round through its tree. That time depends on the block's leaf, so a block of the root
//! is not at hand, although the gateway holds it: an access sends a query down its path, as if the
//! host held the root. Otherwise a block would cause a query as soon as a round had taken it away,
//! and queries would follow rounds into their trees.

use super::plan::Moving;
use std::collections::{HashMap, VecDeque};

/// A block at the gateway.
struct StashBlock {
    leaf: u32,
    /// Identifies the block's current entry in an order; older entries have other tickets.
    ticket: u64,
    at: At,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Ring,
    Root,
    /// Moving into the tree with the running round.
    Leaving,
}

/// Numbers and tickets of blocks, oldest first. Tickets increase.
type Order = VecDeque<(u32, u64)>;

/// The blocks of the ring and of the root.
pub struct Waiting {
    held: HashMap<u32, StashBlock>,
    ring: Order,
    /// The root's blocks, for each tree below it.
    root: Vec<Order>,
    tickets: u64,
}

/// A block that moves into the tree. Its bytes stay at the gateway until the round commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// The block.
    pub block: Moving,
    ticket: u64,
}

impl Waiting {
    /// No blocks, for a root above `trees` trees.
    pub fn new(trees: u32) -> Self {
        let root = (0..trees).map(|_| Order::new()).collect();
        Self { held: HashMap::new(), ring: Order::new(), root, tickets: 0 }
    }

    /// Blocks held, including leaving ones.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Blocks of the root that a round can move into a tree.
    pub fn ready(&self, tree: usize) -> usize {
        self.root[tree].len()
    }

    /// A block's bytes.
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        self.held.get(&id).map(|held| &held.bytes[..])
    }

    /// Whether a block is in the ring.
    pub fn is_at_hand(&self, id: u32) -> bool {
        self.held.get(&id).is_some_and(|held| held.at == At::Ring)
    }

    /// The leaf of a block at the gateway.
    pub fn leaf(&self, id: u32) -> Option<u32> {
        self.held.get(&id).map(|held| held.leaf)
    }

    /// The root's blocks with their leaves and bytes, then the ring's, each oldest first. No block
    /// may be leaving.
    pub fn in_order(&self) -> [Vec<(u32, u32, &[u8])>; 2] {
        let queued = self.ring.len() + self.root.iter().map(VecDeque::len).sum::<usize>();
        assert!(self.held.len() == queued, "none is leaving");
        let whole = |(id, _): &(u32, u64)| {
            let held = &self.held[id];
            (*id, held.leaf, &held.bytes[..])
        };
        [self.root.iter().flatten().map(whole).collect(), self.ring.iter().map(whole).collect()]
    }

    /// Adds a block to the ring, or replaces its bytes. A block of the ring keeps its leaf, which
    /// the host has not observed. A block of the root moves to the ring. So does a leaving block,
    /// and its copy in the round becomes outdated.
    pub fn put(&mut self, id: u32, leaf: u32, bytes: Vec<u8>) {
        if let Some(held) = self.held.get_mut(&id) {
            if held.at == At::Ring {
                held.bytes = bytes;
                return;
            }
            if held.at == At::Root {
                let trees = self.root.len();
                let order = &mut self.root[held.leaf as usize % trees];
                let found = order.binary_search_by_key(&held.ticket, |(_, ticket)| *ticket);
                order.remove(found.expect("what is in the root has its place there"));
            }
        }
        self.tickets += 1;
        self.ring.push_back((id, self.tickets));
        self.held.insert(id, StashBlock { leaf, ticket: self.tickets, at: At::Ring, bytes });
    }

    /// Moves all of the ring into the root, and calls `tell` with each block.
    pub fn fill_root(&mut self, mut tell: impl FnMut(u32, &[u8])) {
        let trees = self.root.len();
        for (id, ticket) in self.ring.drain(..) {
            let held = self.held.get_mut(&id).expect("what is in the ring is here");
            held.at = At::Root;
            tell(id, &held.bytes);
            self.root[held.leaf as usize % trees].push_back((id, ticket));
        }
    }

    /// Takes the oldest `count` blocks of the root for a tree, to leave with a round.
    pub fn leave(&mut self, tree: usize, count: usize) -> Vec<Leaving> {
        let leaving = |(id, ticket)| {
            let held = self.held.get_mut(&id).expect("what is in the root is here");
            held.at = At::Leaving;
            Leaving { block: Moving { id, leaf: held.leaf }, ticket }
        };
        self.root[tree].drain(..count).map(leaving).collect()
    }

    /// After a failed round: puts its blocks back into the root, before all other blocks.
    pub fn stay(&mut self, leaving: &[Leaving]) {
        let trees = self.root.len();
        for one in leaving.iter().rev() {
            let Moving { id, leaf } = one.block;
            if let Some(held) = self.held.get_mut(&id).filter(|held| held.ticket == one.ticket) {
                held.at = At::Root;
                self.root[leaf as usize % trees].push_front((id, one.ticket));
            }
        }
    }

    /// After a committed round: drops a block, unless it was accessed meanwhile. Returns whether it
    /// was dropped.
    pub fn forget(&mut self, one: &Leaving) -> bool {
        let id = one.block.id;
        let gone = self.held.get(&id).is_some_and(|held| held.ticket == one.ticket);
        gone && self.held.remove(&id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(leaving: &[Leaving]) -> Vec<u32> {
        leaving.iter().map(|one| one.block.id).collect()
    }

    #[test]
    fn what_is_written_while_it_leaves_stays() {
        let mut waiting = Waiting::new(1);
        for id in 0..6 {
            waiting.put(id, 10 + id, vec![1]);
        }
        waiting.put(5, 99, vec![2]);
        waiting.fill_root(|_, _| ());
        let leaving = waiting.leave(0, 4);
        assert_eq!(leaving[3].block, Moving { id: 3, leaf: 13 });
        waiting.put(2, 77, vec![3]);
        assert_eq!((waiting.len(), waiting.ready(0)), (6, 2));
        let gone: Vec<bool> = leaving.iter().map(|one| waiting.forget(one)).collect();
        assert_eq!(gone, [true, true, false, true]);
        assert_eq!((waiting.get(2), waiting.get(0)), (Some(&[3][..]), None));
        waiting.fill_root(|_, _| ());
        let next = waiting.leave(0, 3);
        // Block 5 was written in the ring and kept its leaf; block 2 was written while leaving and
        // got another.
        let blocks: Vec<(u32, u32)> =
            next.iter().map(|one| (one.block.id, one.block.leaf)).collect();
        assert_eq!(blocks, [(4, 14), (5, 15), (2, 77)]);
        assert_eq!(waiting.get(5), Some(&[2][..]));
    }

    #[test]
    fn a_round_that_failed_brings_its_blocks_back() {
        let mut waiting = Waiting::new(1);
        for id in 0..4 {
            waiting.put(id, id, vec![id as u8]);
        }
        waiting.fill_root(|_, _| ());
        let leaving = waiting.leave(0, 3);
        waiting.put(1, 8, vec![9]);
        waiting.stay(&leaving);
        waiting.fill_root(|_, _| ());
        assert_eq!(ids(&waiting.leave(0, 4)), [0, 2, 3, 1]);
    }

    #[test]
    fn only_what_is_in_the_ring_is_at_hand() {
        let mut waiting = Waiting::new(3);
        for id in 0..9 {
            waiting.put(id, 8 - id, vec![0]);
        }
        assert!((0..9).all(|id| waiting.is_at_hand(id)));
        let mut told = Vec::new();
        waiting.fill_root(|id, _| told.push(id));
        assert!(told.into_iter().eq(0..9));
        assert!((0..9).all(|id| !waiting.is_at_hand(id) && waiting.leaf(id) == Some(8 - id)));
        let leaving = waiting.leave(1, 2);
        assert_eq!((ids(&leaving), waiting.ready(1)), (vec![1, 4], 1));
        // A leaving block and a block of the root are accessed: both are then in the ring, under
        // new leaves, and not in the root.
        waiting.put(4, 3, vec![4]);
        waiting.put(8, 1, vec![8]);
        assert!(waiting.is_at_hand(4) && waiting.is_at_hand(8) && !waiting.is_at_hand(1));
        waiting.stay(&leaving);
        assert_eq!([0, 1, 2].map(|tree| waiting.ready(tree)), [2, 2, 3]);
        let [root, ring] = waiting.in_order();
        let numbers = |blocks: &[(u32, u32, &[u8])]| -> Vec<u32> {
            blocks.iter().map(|(id, ..)| *id).collect()
        };
        assert_eq!((numbers(&root), numbers(&ring)), (vec![2, 5, 1, 7, 0, 3, 6], vec![4, 8]));
        waiting.fill_root(|_, _| ());
        assert_eq!(
            (ids(&waiting.leave(0, 3)), ids(&waiting.leave(1, 3))),
            (vec![2, 5, 4], vec![1, 7, 8])
        );
    }
}
