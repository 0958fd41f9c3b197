//! A tree and its stash: the verbs of every scheme that accesses paths.

use super::{BucketTree, Header, Shape, Stash};
use crate::durable::Durable;
use crate::error::Result;
use crate::types::{Addr, Leaf};
use alloc::vec;
use alloc::vec::Vec;

/// Blocks that a stash holds at most, unless its owner says otherwise. At Z = 4 more than 147
/// blocks wait with a probability below 2^-128 (Stefanov et al., section 5).
pub const STASH_BLOCKS: usize = 200;

/// A tree and its stash. A path access is `fetch`, then `take` and `put` of blocks, then `evict`.
///
/// Eviction is the greedy one of Path ORAM, and moves as little as it can: a block that may stay in
/// its bucket stays in its slot. After an error nothing may be done with it any more.
pub struct Engine<T> {
    tree: T,
    stash: Stash,
    /// The open path.
    leaf: Leaf,
    headers: Vec<Header>,
    is_open: bool,
    eviction: Eviction,
}

/// Buffers of an eviction. A candidate is a slot of the path, or, beyond those, a block of the
/// stash.
struct Eviction {
    /// Of each level, the first candidate that may go no deeper; then on through `next`.
    deepest: Vec<u32>,
    next: Vec<u32>,
    placed: Vec<bool>,
    /// Blocks of the stash that have left it.
    gone: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl<T: BucketTree> Engine<T> {
    /// An engine on `tree`, whose stash holds at most `stash_blocks` blocks between accesses.
    pub fn new(tree: T, stash_blocks: usize) -> Self {
        let slots = tree.shape().path_slots();
        let candidates = slots + stash_blocks + 1;
        Self {
            stash: Stash::new(stash_blocks, tree.body_len()),
            leaf: Leaf(0),
            headers: vec![Header::EMPTY; slots],
            is_open: false,
            eviction: Eviction {
                deepest: vec![NONE; tree.shape().levels()],
                next: vec![NONE; candidates],
                placed: vec![false; candidates],
                gone: Vec::with_capacity(stash_blocks + 1),
            },
            tree,
        }
    }

    /// The tree.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// The tree, to be looked after.
    pub fn tree_mut(&mut self) -> &mut T {
        &mut self.tree
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        self.tree.shape()
    }

    /// The blocks that wait.
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// The blocks that wait, to be looked after.
    pub fn stash_mut(&mut self) -> &mut Stash {
        &mut self.stash
    }

    /// Reads a path.
    pub fn fetch(&mut self, leaf: Leaf) -> Result {
        assert!(!self.is_open, "a path is evicted before the next is fetched");
        self.tree.read_path(leaf, &mut self.headers)?;
        (self.leaf, self.is_open) = (leaf, true);
        Ok(())
    }

    /// Takes the block `addr` from the open path or the stash into the stash, under the label
    /// `leaf`. A block that is in neither is made of zeros. Tells its number in the stash.
    pub fn take(&mut self, addr: Addr, leaf: Leaf) -> Result<usize> {
        let header = Header::new(addr, leaf);
        if let Some(nth) = self.stash.find(addr) {
            self.stash.relabel(nth, header);
            return Ok(nth);
        }
        let slot = self.headers.iter().position(|h| h.is_of(addr));
        let nth = self.stash.push(header)?;
        match slot {
            Some(slot) => {
                self.headers[slot] = Header::EMPTY;
                self.stash.body_mut(nth).copy_from_slice(self.tree.body(slot));
            }
            None => self.stash.body_mut(nth).fill(0),
        }
        Ok(nth)
    }

    /// Writes the open path back, with as many blocks of the stash as fit, each as deep as its
    /// label allows.
    pub fn evict(&mut self) -> Result {
        assert!(self.is_open, "a path is fetched before it is evicted");
        self.is_open = false;
        self.sort_candidates();
        let mut pool = NONE;
        for level in (0..self.shape().levels()).rev() {
            pool = self.eviction.join(level, pool);
            let slots = self.shape().path_start(level)..self.shape().path_start(level + 1);
            for slot in slots.clone() {
                self.eviction.placed[slot] = true;
            }
            for slot in slots {
                if self.headers[slot].is_empty() {
                    match self.eviction.pop(&mut pool) {
                        Some(candidate) => self.move_to(candidate, slot),
                        None => break,
                    }
                }
            }
        }
        // From the last on, so that those still to be removed keep their numbers.
        self.eviction.gone.sort_unstable();
        while let Some(nth) = self.eviction.gone.pop() {
            self.stash.remove(nth as usize);
        }
        self.tree.write_path(&self.headers)?;
        self.stash.check()
    }

    /// A path access without a block: it looks like any other, and may empty the stash.
    pub fn dummy(&mut self, leaf: Leaf) -> Result {
        self.fetch(leaf)?;
        self.evict()
    }

    /// Lists the blocks of path and stash by the deepest level that each may go to.
    fn sort_candidates(&mut self) {
        let shape = self.tree.shape();
        let path = self.headers.iter();
        for (candidate, header) in path.chain(self.stash.headers()).enumerate() {
            self.eviction.placed[candidate] = header.is_empty();
            if !header.is_empty() {
                let level = shape.meet(header.leaf(), self.leaf);
                self.eviction.next[candidate] = self.eviction.deepest[level];
                self.eviction.deepest[level] = candidate as u32;
            }
        }
    }

    /// Moves a candidate down into an empty slot.
    fn move_to(&mut self, candidate: usize, slot: usize) {
        let path_slots = self.headers.len();
        if candidate < path_slots {
            self.tree.copy_body(candidate, slot);
            self.headers[slot] = core::mem::take(&mut self.headers[candidate]);
        } else {
            let nth = candidate - path_slots;
            self.tree.body_mut(slot).copy_from_slice(self.stash.body(nth));
            self.headers[slot] = self.stash.headers()[nth];
            self.eviction.gone.push(nth as u32);
        }
    }
}

impl<T: Durable> Durable for Engine<T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.tree.save(out);
        self.stash.save(out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        self.tree.load(from)?;
        self.stash.load(from)
    }
}

impl Eviction {
    /// Puts the list of `level` before `pool`, and leaves it empty for the next time.
    fn join(&mut self, level: usize, pool: u32) -> u32 {
        let first = core::mem::replace(&mut self.deepest[level], NONE);
        let mut last = first;
        if last == NONE {
            return pool;
        }
        while self.next[last as usize] != NONE {
            last = self.next[last as usize];
        }
        self.next[last as usize] = pool;
        first
    }

    /// The next of `pool` that is in no slot yet.
    fn pop(&mut self, pool: &mut u32) -> Option<usize> {
        while *pool != NONE {
            let candidate = *pool as usize;
            *pool = self.next[candidate];
            if !core::mem::replace(&mut self.placed[candidate], true) {
                return Some(candidate);
            }
        }
        None
    }
}
