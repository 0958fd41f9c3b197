//! Blocks that wait at the gateway for a round: the paper's ring, found by number, too.

use super::plan::Moving;
use std::collections::{HashMap, VecDeque};

/// A block at the gateway.
struct Held {
    leaf: u32,
    /// Which of several entries in the order is this block's.
    ticket: u64,
    bytes: Vec<u8>,
}

/// Blocks that were asked for lately, oldest first, for each root that they go to.
pub struct Waiting {
    held: HashMap<u32, Held>,
    /// Numbers and tickets.
    queues: Vec<VecDeque<(u32, u64)>>,
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
    /// No blocks, for trees of so many roots.
    pub fn new(roots: u32) -> Self {
        let queues = (0..roots).map(|_| VecDeque::new()).collect();
        Self { held: HashMap::new(), queues, tickets: 0 }
    }

    /// Blocks held, with those that are leaving.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Blocks that a round can take to a root.
    pub fn ready(&self, root: usize) -> usize {
        self.queues[root].len()
    }

    /// A block's bytes.
    pub fn get(&self, id: u32) -> Option<&[u8]> {
        self.held.get(&id).map(|held| &held.bytes[..])
    }

    /// Blocks with their leaves and bytes, oldest first for each root, while none is leaving.
    pub fn in_order(&self) -> impl Iterator<Item = (u32, u32, &[u8])> {
        let queued: usize = self.queues.iter().map(VecDeque::len).sum();
        assert!(self.held.len() == queued, "none is leaving");
        self.queues.iter().flatten().map(|(id, _)| {
            let held = &self.held[id];
            (*id, held.leaf, &held.bytes[..])
        })
    }

    /// Adds a block, or puts new bytes in place of its old ones. If it is leaving, what leaves is
    /// old, and it waits anew under this leaf.
    pub fn put(&mut self, id: u32, leaf: u32, bytes: Vec<u8>) {
        let queued = self.held.get(&id).filter(|held| self.is_queued(held));
        if let Some(&Held { leaf, ticket, .. }) = queued {
            self.held.insert(id, Held { leaf, ticket, bytes });
            return;
        }
        self.tickets += 1;
        let root = self.root(leaf);
        self.queues[root].push_back((id, self.tickets));
        self.held.insert(id, Held { leaf, ticket: self.tickets, bytes });
    }

    /// As [`Geometry::root`](crate::geometry::Geometry::root).
    fn root(&self, leaf: u32) -> usize {
        leaf as usize % self.queues.len()
    }

    /// Tickets are handed out in order, and so taken away from each queue.
    fn is_queued(&self, held: &Held) -> bool {
        let first = self.queues[self.root(held.leaf)].front();
        first.is_some_and(|(_, first)| *first <= held.ticket)
    }

    /// The oldest blocks that go to a root, which are to leave with a round.
    pub fn leave(&mut self, root: usize, count: usize) -> Vec<Leaving> {
        let leaving = |(id, ticket)| {
            let leaf = self.held[&id].leaf;
            Leaving { block: Moving { id, leaf }, ticket }
        };
        self.queues[root].drain(..count).map(leaving).collect()
    }

    /// The round did not happen: they wait again, before all others.
    pub fn stay(&mut self, leaving: &[Leaving]) {
        for one in leaving.iter().rev() {
            if self.is_unchanged(one) {
                let root = self.root(one.block.leaf);
                self.queues[root].push_front((one.block.id, one.ticket));
            }
        }
    }

    /// The round committed: gives a block away, unless it was written again meanwhile.
    pub fn forget(&mut self, one: &Leaving) -> Option<Vec<u8>> {
        let gone = self.is_unchanged(one);
        gone.then(|| self.held.remove(&one.block.id)).flatten().map(|held| held.bytes)
    }

    fn is_unchanged(&self, one: &Leaving) -> bool {
        self.held.get(&one.block.id).is_some_and(|held| held.ticket == one.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_while_it_leaves_stays() {
        let mut waiting = Waiting::new(1);
        for id in 0..6 {
            waiting.put(id, 10 + id, vec![1]);
        }
        waiting.put(5, 99, vec![2]);
        let leaving = waiting.leave(0, 4);
        assert_eq!(leaving[3].block, Moving { id: 3, leaf: 13 });
        waiting.put(2, 77, vec![3]);
        assert_eq!((waiting.len(), waiting.ready(0)), (6, 3));
        let gone: Vec<bool> = leaving.iter().map(|one| waiting.forget(one).is_some()).collect();
        assert_eq!(gone, [true, true, false, true]);
        assert_eq!((waiting.get(2), waiting.get(0)), (Some(&[3][..]), None));
        let next = waiting.leave(0, 3);
        // Written before it left, it kept its leaf; written after, it got another.
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
        let leaving = waiting.leave(0, 3);
        waiting.put(1, 8, vec![9]);
        waiting.stay(&leaving);
        let again: Vec<u32> = waiting.leave(0, 4).iter().map(|one| one.block.id).collect();
        assert_eq!(again, [0, 2, 3, 1]);
    }

    #[test]
    fn each_root_has_its_own_order() {
        let mut waiting = Waiting::new(3);
        for id in 0..9 {
            waiting.put(id, 8 - id, vec![0]);
        }
        let ids =
            |leaving: &[Leaving]| -> Vec<u32> { leaving.iter().map(|one| one.block.id).collect() };
        let leaving = waiting.leave(1, 2);
        assert_eq!((ids(&leaving), waiting.ready(1)), (vec![1, 4], 1));
        // While it leaves for one root it is written, and goes to another.
        waiting.put(4, 3, vec![4]);
        // This one does not leave yet, and keeps its leaf, whatever is drawn.
        waiting.put(7, 0, vec![7]);
        waiting.stay(&leaving);
        let left = waiting.leave(1, 2);
        assert_eq!(ids(&left), [1, 7]);
        let all = waiting.ready(0);
        assert_eq!(ids(&waiting.leave(0, all)), [2, 5, 8, 4]);
    }
}
