//! Ring ORAM: an access reads one slot of each bucket of a path, and writes only the metadata of
//! these buckets; whole paths are rewritten in between, at public times.
//!
//! A bucket has slots for Z blocks and S dummies, in a secret random order, and metadata that
//! records the slot of each block and the slots that were read. An access reads the metadata of the
//! path of its block, then one slot of each bucket: the block's slot in the bucket that holds it,
//! elsewhere the slot of an unread dummy. No slot is read twice before its bucket is rewritten.
//! Buckets are rewritten after every A accesses along the next path in reverse-lexicographic order,
//! and early if all dummies of a bucket were read.
//!
//! A step is an access or an eviction. One eviction follows every A accesses, whether or not
//! requests wait. Early reshuffles are part of an access: they need the same round trips, but more
//! bytes. The times at which they are due depend on the accessed paths alone. Each step is three
//! round trips: the metadata of a path, slots of it, and one write of all changes.
//!
//! The position map is flat, in trusted memory.
//!
//! Paper: Ren, Fletcher, Kwon, Stefanov, Shi, van Dijk, Devadas, USENIX Security'15. This scheme
//! reshuffles a bucket before a read that it could not answer, not after the read that took its
//! last dummy; docs/papers.md has more.
//!
//! After every A accesses a path is evicted, whether or not requests wait:
//!
//! ```
//! use traceless::Addr;
//! use traceless::controller::{Controller, SteppedOram};
//! use traceless::oram::Oram;
//! use traceless::rng::System;
//! use traceless::scheme::ring::{Params, Ring, SealedRing};
//! use traceless::seal::{Aead, Secret};
//! # use std::sync::Arc;
//! # use traceless::store::MemStore;
//!
//! # fn main() -> traceless::Result {
//! let (params, shape) = (Params::Z4, Params::Z4.shape_for(100)?);
//! let keys = [(); 2].map(|()| Aead::new(&Secret::random(&mut System)));
//! let store = MemStore::new(SealedRing::store_len(params, &shape, 64, &keys[0]));
//! # let store = Arc::new(store);
//! let tree = SealedRing::create(store, 0, params, shape, 64, keys, Box::new(System))?;
//! let mut oram = SteppedOram::new(Ring::new(100, tree, Box::new(System))?);
//!
//! oram.write(Addr(7), &[5; 64])?;
//! let mut block = [0; 64];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [5; 64]);
//!
//! for _ in 0..40 {
//!     oram.controller_mut().step(&mut |_, _| {})?;
//! }
//! let counts = oram.controller().counts();
//! assert_eq!(counts.accesses / u64::from(params.rate), counts.evictions);
//! # Ok(())
//! # }
//! ```

mod bucket;
mod exchange;
mod ghost;
mod params;
mod sealed;
mod top;
mod tree;

pub use ghost::GhostRing;
pub use params::{Params, SLOTS_MAX};
pub use sealed::SealedRing;
pub use top::RingTop;
pub use tree::{RingTree, SlotAt};

use super::health::Health;
use super::requests::Requests;
use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::Flat;
use crate::tree::{EvictionOrder, Header, Shape, Stash, TREE_BLOCKS_MAX};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bucket::{Bucket, all, draw};
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::types::{Addr, Leaf};

/// Area name of the metadata in errors.
const METADATA: &str = "ring-metadata";

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Ring<T> {
    tree: T,
    stash: Stash,
    map: Flat,
    rng: Box<dyn Rng>,
    order: EvictionOrder,
    requests: Requests,
    /// Accesses since the last eviction.
    since_eviction: u8,
    /// The next access, if one of its reads failed.
    next: Option<RingAccess>,
    health: Health,
    path: RingPath,
    counts: Counts,
}

/// A path to open, and the slots of it to read.
#[derive(Clone, Copy)]
struct RingAccess {
    leaf: Leaf,
    purpose: RingPurpose,
    /// Whether the path is open and its slots are chosen. A repeated read uses the same slots: a
    /// new choice would show, by the slots that both choices share, which slot holds the block.
    is_chosen: bool,
    /// The index, among the chosen slots, of the slot with the wanted block.
    found: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RingPurpose {
    Eviction,
    /// An access that serves no request.
    Dummy,
    /// Serves the first request; its block then gets this label.
    Request(Addr, Leaf),
    /// An exchange. If the exchange fails, the wanted block stays in the ORAM and gets this label.
    Exchange(Option<Addr>, Leaf),
}

impl RingPurpose {
    /// The block to take out of its bucket.
    fn wanted(self) -> Option<Addr> {
        match self {
            Self::Eviction | Self::Dummy => None,
            Self::Request(addr, _) => Some(addr),
            Self::Exchange(wanted, _) => wanted,
        }
    }
}

/// Public counters since creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Accesses, dummies among them.
    pub accesses: u64,
    /// Paths evicted.
    pub evictions: u64,
    /// Buckets that were reshuffled early.
    pub reshuffles: u64,
}

/// Number of levels, from the root down, that a tree of this shape leaves to a [`RingTop`].
fn cached_levels(shape: &Shape) -> usize {
    (0..shape.levels()).take_while(|&level| shape.z(level) == 0).count()
}

/// Number of buckets above a level, without the levels that the tree leaves to a [`RingTop`].
fn buckets_above(shape: &Shape, level: usize) -> u64 {
    (0..level).map(|level| shape.buckets(level) * shape.z(level) as u64).sum()
}

/// The open path, and buffers for the work on it.
struct RingPath {
    buckets: Vec<Bucket>,
    /// Slots to be read.
    slots: Vec<SlotAt>,
    /// Levels of buckets without a dummy left for an access; these buckets are read whole.
    spent: Vec<usize>,
    /// Blocks to put into buckets, each with the deepest level that it may go to.
    blocks: Vec<(usize, Header, BlockSource)>,
    /// Stash indices of blocks that were written to buckets.
    gone: Vec<usize>,
}

/// The source of a block while a path is rewritten: its index in the stash or among the read slots.
#[derive(Clone, Copy)]
enum BlockSource {
    Stash(usize),
    Slot(usize),
}

impl RingAccess {
    fn new(leaf: Leaf, purpose: RingPurpose) -> Self {
        Self { leaf, purpose, is_chosen: false, found: None }
    }
}

impl<T: RingTree> Ring<T> {
    /// For `blocks` blocks in `tree`, which must be empty.
    pub fn new(blocks: u64, tree: T, rng: Box<dyn Rng>) -> Result<Self> {
        let (params, shape) = (tree.params(), tree.shape());
        params.check_shape(shape, 0)?;
        if blocks > TREE_BLOCKS_MAX || !params.keeps_up(shape, blocks) {
            return Err(Error::Geometry("more blocks than evictions keep up with"));
        }
        if shape.leaves() >= u64::from(u32::MAX) {
            return Err(Error::Geometry("more leaves than a label can name"));
        }
        Ok(Self {
            stash: Stash::new(params.stash_blocks.into(), tree.body_len()),
            map: Flat::new(usize::try_from(blocks).map_err(|_| Error::Geometry("map"))?),
            rng,
            order: EvictionOrder::default(),
            requests: Requests::new(blocks),
            since_eviction: 0,
            next: None,
            health: Health::default(),
            path: RingPath {
                buckets: vec![Bucket::empty(params.z); shape.levels()],
                slots: vec![],
                spent: vec![],
                blocks: vec![],
                gone: vec![],
            },
            counts: Counts::default(),
            tree,
        })
    }

    /// The tree.
    pub fn tree(&self) -> &T {
        &self.tree
    }

    /// The blocks that wait in the stash.
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// Counters since creation.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Chooses the next access. This draws randomness and changes nothing else.
    fn choose(&mut self) -> RingAccess {
        if let Some(next) = self.next {
            return next;
        }
        if self.is_eviction_due() {
            return self.next_eviction();
        }
        let new = self.draw_leaf();
        let Some((_, addr)) = self.requests.first() else {
            return RingAccess::new(new, RingPurpose::Dummy);
        };
        let leaf = self.map.label(addr).unwrap_or_else(|| self.draw_leaf());
        RingAccess::new(leaf, RingPurpose::Request(addr, new))
    }

    fn next_eviction(&mut self) -> RingAccess {
        RingAccess::new(self.order.next(self.tree.shape()), RingPurpose::Eviction)
    }

    /// Whether a path must be evicted before the next access.
    fn is_eviction_due(&self) -> bool {
        self.since_eviction == self.tree.params().rate
    }

    /// Opens the path of `next` and reads its slots. If that fails, the next step repeats this read
    /// first.
    fn read(&mut self, next: RingAccess) -> Result<RingAccess> {
        let mut next = next;
        let read = self.try_read(&mut next);
        self.next = read.is_err().then_some(next);
        self.health.after_read(read)?;
        Ok(next)
    }

    fn try_read(&mut self, next: &mut RingAccess) -> Result {
        if !next.is_chosen {
            self.open(next.leaf)?;
            match next.purpose {
                RingPurpose::Eviction => self.gather(next.leaf),
                purpose => next.found = self.choose_slots(purpose.wanted()),
            }
            next.is_chosen = true;
        }
        self.tree.read_slots(&self.path.slots)
    }

    /// Serves the purpose of the path that was read, and writes the path.
    fn advance(&mut self, next: RingAccess, serve: Serve<'_>) -> Result<StepOutcome> {
        let mut issued = StepOutcome { kind: StepKind::Dummy, finished: None };
        match next.purpose {
            RingPurpose::Eviction => {
                self.evict()?;
                return Ok(StepOutcome { kind: StepKind::Eviction, finished: None });
            }
            RingPurpose::Dummy => {}
            RingPurpose::Request(addr, new) => {
                let (id, _) = self.requests.first().expect("its path was read for it");
                self.map.remap(addr, new);
                let nth = self.keep(Header::new(addr, new), next.found)?;
                serve(id, self.stash.body_mut(nth));
                issued = StepOutcome { kind: StepKind::Data, finished: Some(id) };
            }
            RingPurpose::Exchange(wanted, new) => self.give_up_exchange(wanted, new, next.found)?,
        }
        self.end_access()?;
        if issued.finished.is_some() {
            self.requests.finish();
        }
        Ok(issued)
    }

    /// Ends an access after its slots were read: reshuffles buckets without dummies, and writes.
    fn end_access(&mut self) -> Result {
        self.counts.accesses += 1;
        self.since_eviction += 1;
        self.reshuffle();
        self.write()
    }

    /// Moves a block into the stash under another label: from the stash itself, from the slot that
    /// was read, or as zeros if it was never written. Returns its index in the stash.
    fn keep(&mut self, header: Header, read: Option<usize>) -> Result<usize> {
        if let Some(nth) = self.stash.find(header.addr()) {
            self.stash.relabel(nth, header);
            return Ok(nth);
        }
        self.bring(header, read)
    }

    /// Chooses the slots that an access reads, and takes the wanted block out of its bucket's
    /// metadata. Returns the index of the chosen slot that holds the block.
    fn choose_slots(&mut self, wanted: Option<Addr>) -> Option<usize> {
        let Self { tree, path, rng, .. } = self;
        let (slots, z) = (tree.params().slots(), usize::from(tree.params().z));
        let mut found = None;
        path.slots.clear();
        path.spent.clear();
        for (level, bucket) in path.buckets.iter_mut().enumerate() {
            let held = wanted.and_then(|addr| bucket.take(addr));
            if bucket.unread(slots) == z {
                path.spent.push(level);
                let unread = (0..slots as u8).filter(|slot| bucket.read >> slot & 1 == 0);
                for slot in unread {
                    if held == Some(slot) {
                        found = Some(path.slots.len());
                    }
                    path.slots.push(SlotAt { level, slot });
                }
                continue;
            }
            if held.is_some() {
                found = Some(path.slots.len());
            }
            let slot = held.unwrap_or_else(|| draw(&mut bucket.dummies(slots), &mut **rng));
            bucket.read |= 1 << slot;
            path.slots.push(SlotAt { level, slot });
        }
        found
    }

    /// Puts a block into the stash, with the body of a slot that was read, or with zeros.
    fn bring(&mut self, header: Header, read: Option<usize>) -> Result<usize> {
        let nth = self.stash.push(header)?;
        match read {
            Some(read) => self.stash.body_mut(nth).copy_from_slice(self.tree.body(read)),
            None => self.stash.body_mut(nth).fill(0),
        }
        Ok(nth)
    }

    /// Rewrites the buckets without dummies, which were read whole; their blocks get new slots.
    fn reshuffle(&mut self) {
        while let Some(level) = self.path.spent.pop() {
            self.counts.reshuffles += 1;
            let RingPath { buckets, slots, blocks, .. } = &mut self.path;
            blocks.clear();
            for &(header, slot) in &buckets[level].blocks {
                let read = slots.iter().position(|at| *at == SlotAt { level, slot });
                blocks.push((
                    level,
                    header,
                    BlockSource::Slot(read.expect("the whole bucket was read")),
                ));
            }
            self.fill(level);
        }
    }

    /// Rewrites a path after all its blocks were read, with as many blocks as fit, each as deep as
    /// its label allows.
    fn evict(&mut self) -> Result {
        self.counts.evictions += 1;
        self.since_eviction = 0;
        for level in (0..self.path.buckets.len()).rev() {
            self.fill(level);
        }
        // Removes from the highest index down, so that the remaining indices stay valid.
        self.path.gone.sort_unstable();
        while let Some(nth) = self.path.gone.pop() {
            self.stash.remove(nth);
        }
        for nth in 0..self.path.blocks.len() {
            if let (_, header, BlockSource::Slot(read)) = self.path.blocks[nth] {
                self.bring(header, Some(read))?;
            }
        }
        self.write()
    }

    /// Chooses Z slots of each bucket, including the slots of all its blocks, and lists the blocks
    /// of path and stash; the blocks that may go deepest come last.
    fn gather(&mut self, leaf: Leaf) {
        let Self { tree, stash, path, rng, .. } = self;
        let (params, shape) = (tree.params(), tree.shape());
        let RingPath { buckets, slots, blocks, .. } = path;
        slots.clear();
        blocks.clear();
        let waiting = stash.headers().iter().enumerate();
        blocks.extend(
            waiting.map(|(nth, h)| (shape.meet(h.leaf(), leaf), *h, BlockSource::Stash(nth))),
        );
        for (level, bucket) in buckets.iter_mut().enumerate() {
            for &(header, slot) in &bucket.blocks {
                let reach = shape.meet(header.leaf(), leaf);
                blocks.push((reach, header, BlockSource::Slot(slots.len())));
                slots.push(SlotAt { level, slot });
            }
            let mut dummies = bucket.dummies(params.slots());
            for _ in bucket.blocks.len()..params.z.into() {
                slots.push(SlotAt { level, slot: draw(&mut dummies, &mut **rng) });
            }
        }
        blocks.sort_unstable_by_key(|(reach, ..)| *reach);
    }

    /// Rewrites a bucket with the last listed blocks that may go there, and removes them from the
    /// list.
    fn fill(&mut self, level: usize) {
        let Self { tree, stash, path, rng, .. } = self;
        let RingPath { buckets, blocks, gone, .. } = path;
        let bucket = &mut buckets[level];
        *bucket = Bucket { read: 0, blocks: core::mem::take(&mut bucket.blocks) };
        bucket.blocks.clear();
        tree.renew(level);
        let mut free = all(tree.params().slots());
        while bucket.blocks.len() < tree.params().z.into()
            && let Some((_, header, from)) = blocks.pop_if(|(reach, ..)| *reach >= level)
        {
            let slot = draw(&mut free, &mut **rng);
            bucket.blocks.push((header, slot));
            match from {
                BlockSource::Slot(nth) => tree.carry(nth, level, slot),
                BlockSource::Stash(nth) => {
                    tree.new_body(level, slot).copy_from_slice(stash.body(nth));
                    gone.push(nth);
                }
            }
        }
    }

    /// Opens a path. A sealer without authentication may return any metadata, so each bucket is
    /// checked for consistency with this path.
    fn open(&mut self, leaf: Leaf) -> Result {
        let Self { tree, path, requests, .. } = self;
        tree.open_path(leaf)?;
        let (params, shape) = (tree.params(), tree.shape());
        for (level, bucket) in path.buckets.iter_mut().enumerate() {
            bucket.load(tree.metadata(level));
            let admits = |header: Header| {
                header.addr().0 < requests.blocks()
                    && header.leaf().0 < shape.leaves()
                    && shape.meet(header.leaf(), leaf) >= level
            };
            if !bucket.is_sound(params.z, params.slots(), admits) {
                let slot = buckets_above(shape, level) + shape.bucket(leaf, level);
                let place = Place { area: METADATA, slot, block: None };
                return Err(Error::Tampered { place });
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result {
        for (level, bucket) in self.path.buckets.iter().enumerate() {
            bucket.store(self.tree.metadata_mut(level));
        }
        self.tree.write_path()?;
        self.stash.check()
    }

    fn draw_leaf(&mut self) -> Leaf {
        Leaf(self.rng.below(self.tree.shape().leaves()))
    }
}

impl<T: RingTree> Controller for Ring<T> {
    fn blocks(&self) -> u64 {
        self.requests.blocks()
    }

    fn block_len(&self) -> usize {
        self.tree.body_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.requests.submit(id, addr)
    }

    fn waiting(&self) -> usize {
        self.requests.waiting()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.health.check()?;
        let next = self.choose();
        let next = self.read(next)?;
        self.health.begin();
        let issued = self.advance(next, serve);
        self.health.end(issued)
    }

    fn sync(&mut self) -> Result {
        self.health.check()?;
        let synced = self.tree.sync();
        self.health.end(synced)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
