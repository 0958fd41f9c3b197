//! A tree and its stash: the operations of every scheme that accesses paths.

mod pass;

use super::{BucketTree, Header, Shape, Stash};
use alloc::vec;
use alloc::vec::Vec;
use pass::PassSource;
use traceless_core::durable::Durable;
use traceless_core::error::Result;
use traceless_core::types::{Addr, Leaf};

/// Default limit of a stash, in blocks. At Z = 4 more than 147 blocks wait with a probability below
/// 2^-128 (Stefanov et al., section 5).
pub const STASH_BLOCKS: usize = 200;

/// A tree and its stash. A path access is `fetch`, then `take` and `put` of blocks, then `evict`,
/// or some `evict_once` and `write_back`.
///
/// `evict` is the greedy eviction of Path ORAM, and moves as few blocks as it can: a block that may
/// stay in its bucket stays in its slot. `evict_once` is the eviction of Circuit ORAM. After an
/// error the engine must not be used any more.
pub struct Engine<T> {
    tree: T,
    stash: Stash,
    /// The open path.
    leaf: Leaf,
    headers: Vec<Header>,
    is_open: bool,
    eviction: Eviction,
}

/// Buffers of an eviction. A set of slots is a bit set, [`SLOTS_PER_WORD`] slots a word, so that
/// the blocks for a level are found without a branch for each. A set of levels is one word.
struct Eviction {
    /// Slots of the path that hold a block.
    full: Vec<u64>,
    /// For each level, the slots with a block that may go to this level or deeper.
    reach: Vec<u64>,
    /// For each slot of the path, its level.
    level_of: Vec<u8>,
    /// The levels that have an empty slot, and are not visited yet.
    vacant: u64,
    /// The levels to which a block of the stash, or of a level above, may go.
    wanted: u64,
    /// Deepest level and index of each block of the stash, the deepest last.
    waiting: Vec<(u32, u32)>,
    /// Indices of the blocks that have left the stash.
    gone: Vec<u32>,
    /// For each level, the block that may come down to it in a pass.
    offers: Vec<Option<PassSource>>,
}

const SLOTS_PER_WORD: usize = 64;

impl<T: BucketTree> Engine<T> {
    /// An engine on `tree`, with a stash of at most `stash_blocks` blocks between accesses.
    pub fn new(tree: T, stash_blocks: usize) -> Self {
        let slots = tree.shape().path_slots();
        Self {
            stash: Stash::new(stash_blocks, tree.body_len()),
            leaf: Leaf(0),
            headers: vec![Header::EMPTY; slots],
            is_open: false,
            eviction: Eviction::new(tree.shape(), stash_blocks),
            tree,
        }
    }

    /// The tree.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// The tree, mutable.
    pub fn tree_mut(&mut self) -> &mut T {
        &mut self.tree
    }

    /// The shape of the tree.
    pub fn shape(&self) -> &Shape {
        self.tree.shape()
    }

    /// The stash.
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// The stash, mutable.
    pub fn stash_mut(&mut self) -> &mut Stash {
        &mut self.stash
    }

    /// Reads the path of `leaf` and opens it.
    pub fn fetch(&mut self, leaf: Leaf) -> Result {
        assert!(!self.is_open, "a path is evicted before the next is fetched");
        self.tree.read_path(leaf, &mut self.headers)?;
        (self.leaf, self.is_open) = (leaf, true);
        Ok(())
    }

    /// Takes the block `addr` from the open path or the stash into the stash, under the label
    /// `leaf`. A block that is in neither is created with zeros. Returns its index in the stash.
    pub fn take(&mut self, addr: Addr, leaf: Leaf) -> Result<usize> {
        if let Some(nth) = self.relabel(addr, leaf)? {
            return Ok(nth);
        }
        let nth = self.stash.push(Header::new(addr, leaf))?;
        self.stash.body_mut(nth).fill(0);
        Ok(nth)
    }

    /// As [`take`](Self::take), but returns `None` for a block that is in neither.
    pub fn relabel(&mut self, addr: Addr, leaf: Leaf) -> Result<Option<usize>> {
        let header = Header::new(addr, leaf);
        if let Some(nth) = self.stash.find(addr) {
            self.stash.relabel(nth, header);
            return Ok(Some(nth));
        }
        let Some(slot) = self.slot_of(addr) else { return Ok(None) };
        let nth = self.stash.push(header)?;
        self.stash.body_mut(nth).copy_from_slice(self.tree.body(slot));
        self.clear(slot);
        Ok(Some(nth))
    }

    /// The blocks of the open path and of the stash that have the label of the open path.
    pub fn labelled(&self) -> impl Iterator<Item = Addr> {
        let all = self.headers.iter().chain(self.stash.headers());
        all.filter(|h| !h.is_empty() && h.leaf() == self.leaf).map(|h| h.addr())
    }

    /// Removes the block `addr` from the open path or the stash, and copies its body to `body`. For
    /// a block that is in neither, `body` becomes zeros.
    pub fn remove(&mut self, addr: Addr, body: &mut [u8]) {
        if let Some(nth) = self.stash.find(addr) {
            body.copy_from_slice(self.stash.body(nth));
            self.stash.remove(nth);
        } else if let Some(slot) = self.slot_of(addr) {
            body.copy_from_slice(self.tree.body(slot));
            self.clear(slot);
        } else {
            body.fill(0);
        }
    }

    /// Copies the body of the block of the open path that has exactly this header, address and
    /// label. Returns whether there is one. The block stays in its slot.
    pub fn copy_out(&self, header: Header, body: &mut [u8]) -> bool {
        let slot = self.headers.iter().position(|h| *h == header);
        if let Some(slot) = slot {
            body.copy_from_slice(self.tree.body(slot));
        }
        slot.is_some()
    }

    /// Empties the slots of the open path with blocks for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(Header) -> bool) {
        for slot in 0..self.headers.len() {
            if !self.headers[slot].is_empty() && !keep(self.headers[slot]) {
                self.clear(slot);
            }
        }
    }

    /// Closes the open path without writing it. Its slots must be unchanged.
    pub fn leave(&mut self) {
        assert!(self.is_open, "a path is fetched before it is left");
        self.is_open = false;
    }

    /// The body of the block `addr` if no path need be read for it: it is in the stash, or the tree
    /// finds it by address. No path may be open.
    pub fn find_without_path(&mut self, addr: Addr) -> Option<&mut [u8]> {
        assert!(!self.is_open, "a block of the open path is taken, not found");
        match self.stash.find(addr) {
            Some(nth) => Some(self.stash.body_mut(nth)),
            None => self.tree.find(addr),
        }
    }

    /// Removes a block that is at hand, copies its body to `body` and returns its header.
    pub fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        assert!(!self.is_open, "a block of the open path is removed, not found");
        let Some(nth) = self.stash.find(addr) else { return self.tree.extract(addr, body) };
        body.copy_from_slice(self.stash.body(nth));
        let header = self.stash.headers()[nth];
        self.stash.remove(nth);
        Some(header)
    }

    /// Puts a block that is in no other place into the stash, which needs no path access.
    pub fn put(&mut self, header: Header, body: &[u8]) -> Result {
        let nth = self.stash.push(header)?;
        self.stash.body_mut(nth).copy_from_slice(body);
        Ok(())
    }

    /// Writes the open path back, with as many blocks of the stash as fit, each as deep as its
    /// label allows.
    pub fn evict(&mut self) -> Result {
        self.sort_blocks();
        while let Some(level) = self.eviction.next_level() {
            let start = self.shape().path_start(level);
            let mut empty = self.eviction.empty_slots(start, self.shape().z(level));
            while empty != 0 && self.fill(start + empty.trailing_zeros() as usize, level) {
                empty &= empty - 1;
            }
        }
        // From the last index on, so that the remaining indices stay valid.
        self.eviction.gone.sort_unstable();
        while let Some(nth) = self.eviction.gone.pop() {
            self.stash.remove(nth as usize);
        }
        self.write_back()
    }

    /// Writes the open path back without moving blocks.
    pub fn write_back(&mut self) -> Result {
        assert!(self.is_open, "a path is fetched before it is written");
        self.is_open = false;
        self.tree.write_path(&self.headers)?;
        self.stash.check()
    }

    /// Makes a path access without a block. It looks like any other, and may empty the stash.
    pub fn dummy(&mut self, leaf: Leaf) -> Result {
        self.fetch(leaf)?;
        self.evict()
    }

    /// The slot of the open path that holds `addr`.
    fn slot_of(&self, addr: Addr) -> Option<usize> {
        // The loop never stops early: the branch would be unpredictable and cost more than the
        // rest.
        let slots = self.headers.iter().enumerate();
        slots.fold(None, |found, (slot, h)| if h.is_of(addr) { Some(slot) } else { found })
    }

    /// Empties a slot of the open path after its block was copied.
    fn clear(&mut self, slot: usize) {
        self.headers[slot] = Header::EMPTY;
        self.tree.vacate(slot);
    }

    /// Computes how deep each block of path and stash may go.
    fn sort_blocks(&mut self) {
        let Self { tree, stash, leaf, headers, eviction, .. } = self;
        let (shape, words) = (tree.shape(), eviction.full.len());
        eviction.reach.fill(0);
        let mut wanted = 0;
        for (word, headers) in headers.chunks(SLOTS_PER_WORD).enumerate() {
            let levels = &eviction.level_of[word * SLOTS_PER_WORD..][..headers.len()];
            let mut full = 0;
            for (bit, header) in headers.iter().enumerate() {
                full |= u64::from(!header.is_empty()) << bit;
            }
            eviction.full[word] = full;
            while full != 0 {
                let bit = full.trailing_zeros() as usize;
                let deepest = shape.meet(headers[bit].leaf(), *leaf);
                eviction.reach[deepest * words + word] |= 1 << bit;
                // The levels below the block's own. None, if an unauthenticated block is on a wrong
                // path.
                wanted |= (2u64 << deepest).saturating_sub(2 << levels[bit]);
                full &= full - 1;
            }
        }
        for at in (words..eviction.reach.len()).rev() {
            eviction.reach[at - words] |= eviction.reach[at];
        }
        let level = |header: &Header| shape.meet(header.leaf(), *leaf) as u32;
        eviction.waiting.clear();
        eviction.waiting.extend(stash.headers().iter().map(level).zip(0..));
        eviction.waiting.sort_unstable();
        if let Some((deepest, _)) = eviction.waiting.last() {
            wanted |= (2 << deepest) - 1;
        }
        eviction.wanted = wanted;
        eviction.find_vacant(shape);
    }

    /// Fills an empty slot of `level` with a block that may go there: one of the stash, or else the
    /// uppermost of the path, which leaves its own slot empty. Returns whether there was one. A
    /// block of the stash that the tree does not admit is skipped in this eviction.
    fn fill(&mut self, slot: usize, level: usize) -> bool {
        while let Some((_, nth)) = self.eviction.waiting.pop_if(|w| w.0 >= level as u32) {
            let header = self.stash.headers()[nth as usize];
            if self.tree.admit(slot, header) {
                self.tree.body_mut(slot).copy_from_slice(self.stash.body(nth as usize));
                self.headers[slot] = header;
                self.eviction.gone.push(nth);
                return true;
            }
        }
        let start = self.shape().path_start(level);
        let Some(above) = self.eviction.uppermost(level).filter(|above| *above < start) else {
            return false;
        };
        self.tree.copy_body(above, slot);
        self.headers[slot] = core::mem::take(&mut self.headers[above]);
        self.eviction.vacate(above);
        true
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
    fn new(shape: &Shape, stash_blocks: usize) -> Self {
        let (levels, words) = (shape.levels(), shape.path_slots().div_ceil(SLOTS_PER_WORD));
        let of_level = |level| core::iter::repeat_n(level as u8, shape.z(level));
        Self {
            full: vec![0; words],
            reach: vec![0; levels * words],
            level_of: (0..levels).flat_map(of_level).collect(),
            vacant: 0,
            wanted: 0,
            waiting: Vec::with_capacity(stash_blocks + 1),
            gone: Vec::with_capacity(stash_blocks + 1),
            offers: Vec::with_capacity(levels),
        }
    }

    /// The empty slots among the `z` slots from `start` on.
    #[inline]
    fn empty_slots(&self, start: usize, z: usize) -> u64 {
        let (word, bit) = (start / SLOTS_PER_WORD, start % SLOTS_PER_WORD);
        let mut full = self.full[word] >> bit;
        if bit + z > SLOTS_PER_WORD {
            full |= self.full[word + 1] << (SLOTS_PER_WORD - bit);
        }
        !full & (u64::MAX >> (SLOTS_PER_WORD - z))
    }

    fn find_vacant(&mut self, shape: &Shape) {
        self.vacant = 0;
        for level in (0..shape.levels()).filter(|&level| shape.z(level) > 0) {
            let empty = self.empty_slots(shape.path_start(level), shape.z(level));
            self.vacant |= u64::from(empty != 0) << level;
        }
    }

    /// The deepest level that is not visited yet and may get a block.
    #[inline]
    fn next_level(&mut self) -> Option<usize> {
        let level = (self.vacant & self.wanted).checked_ilog2()?;
        // Drop the levels below it as well: no block may go there.
        self.vacant &= (1 << level) - 1;
        Some(level as usize)
    }

    /// Notes that the block of a slot has moved to another slot.
    #[inline]
    fn vacate(&mut self, slot: usize) {
        self.full[slot / SLOTS_PER_WORD] &= !(1 << (slot % SLOTS_PER_WORD));
        self.vacant |= 1 << self.level_of[slot];
    }

    /// The uppermost slot with a block that may go to `level`.
    #[inline]
    fn uppermost(&self, level: usize) -> Option<usize> {
        let words = self.full.len();
        let reach = &self.reach[level * words..][..words];
        let sets = self.full.iter().zip(reach).map(|(full, reach)| full & reach);
        let (word, set) = sets.enumerate().find(|(_, set)| *set != 0)?;
        Some(word * SLOTS_PER_WORD + set.trailing_zeros() as usize)
    }
}
