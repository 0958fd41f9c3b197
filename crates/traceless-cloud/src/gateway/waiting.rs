//! Blocks that wait at the gateway: the paper's ring, found by number, and what lies in the root.
//!
//! A block that was asked for is in the ring until the next round is planned: it is at hand, and
//! asking for it again sends nothing. Then all of the ring goes into the root, and each block on
//! with a round that comes by its tree. When that is depends on the block's leaf, so a block of
//! the root is not at hand, though it is here: asking for it sends a query down its path, as if the
//! root were the host's. Otherwise a block would be asked for by a query as soon as a round had
//! taken it away, and queries would follow rounds into their trees.

use super::plan::Moving;
use std::collections::{HashMap, VecDeque};

/// A block at the gateway.
struct StashBlock {
    leaf: u32,
    /// Which of several entries in an order is this block's.
    ticket: u64,
    at: At,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Ring,
    Root,
    /// On its way into the tree.
    Leaving,
}

/// Numbers and tickets of blocks, oldest first. Tickets are handed out in order.
type Order = VecDeque<(u32, u64)>;

/// Blocks that were asked for lately, and those of the root.
pub struct Waiting {
    held: HashMap<u32, StashBlock>,
    ring: Order,
    /// What lies in the root, for each tree below it.
    root: Vec<Order>,
    tickets: u64,
}

/// A block that is being brought into the tree: its bytes stay here until the round commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// The block.
    pub block: Moving,
    ticket: u64,
}

impl Waiting {
    /// No blocks, for a root that so many trees hang from.
    pub fn new(trees: u32) -> Self {
        let root = (0..trees).map(|_| Order::new()).collect();
        Self { held: HashMap::new(), ring: Order::new(), root, tickets: 0 }
    }

    /// Blocks held, with those that are leaving.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Blocks of the root that a round can take to a tree.
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

    /// The path of a block that is here.
    pub fn leaf(&self, id: u32) -> Option<u32> {
        self.held.get(&id).map(|held| held.leaf)
    }

    /// Blocks of the root with their leaves and bytes, and then those of the ring, each oldest
    /// first, while none is leaving.
    pub fn in_order(&self) -> [Vec<(u32, u32, &[u8])>; 2] {
        let queued = self.ring.len() + self.root.iter().map(VecDeque::len).sum::<usize>();
        assert!(self.held.len() == queued, "none is leaving");
        let whole = |(id, _): &(u32, u64)| {
            let held = &self.held[id];
            (*id, held.leaf, &held.bytes[..])
        };
        [self.root.iter().flatten().map(whole).collect(), self.ring.iter().map(whole).collect()]
    }

    /// Adds a block to the ring, or puts new bytes in place of its old ones. One that is in the
    /// ring keeps its leaf, of which nothing was seen. One of the root leaves it, and one that is
    /// leaving, too, so that what leaves is old.
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

    /// Puts all of the ring into the root, and tells of each block.
    pub fn fill_root(&mut self, mut tell: impl FnMut(u32, &[u8])) {
        let trees = self.root.len();
        for (id, ticket) in self.ring.drain(..) {
            let held = self.held.get_mut(&id).expect("what is in the ring is here");
            held.at = At::Root;
            tell(id, &held.bytes);
            self.root[held.leaf as usize % trees].push_back((id, ticket));
        }
    }

    /// The oldest blocks of the root that go to a tree, which are to leave with a round.
    pub fn leave(&mut self, tree: usize, count: usize) -> Vec<Leaving> {
        let leaving = |(id, ticket)| {
            let held = self.held.get_mut(&id).expect("what is in the root is here");
            held.at = At::Leaving;
            Leaving { block: Moving { id, leaf: held.leaf }, ticket }
        };
        self.root[tree].drain(..count).map(leaving).collect()
    }

    /// The round did not happen: they are in the root again, before all others.
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

    /// The round committed: forgets a block, unless it was asked for meanwhile. Says whether.
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
        // Written in the ring, it kept its leaf; written as it left, it got another.
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
        // One that leaves is asked for, and one of the root: both are in the ring, under new
        // leaves, and not in the root any more.
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
