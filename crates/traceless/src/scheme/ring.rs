//! Ring ORAM: an access reads one slot of each bucket of a path, and writes only what is known of
//! them; whole paths are rewritten in between, at times that everybody knows.
//!
//! A bucket has slots for Z blocks and S dummies, in a random order that nobody knows, and metadata
//! that says what is where and which slots were read. An access reads the metadata of the path of
//! its block, then one slot of each bucket: the block where it is, elsewhere a dummy that was not
//! read yet. No slot is read twice before its bucket is written anew. That happens after every A
//! accesses along the next path in reverse-lexicographic order, and early if all dummies of a
//! bucket were read.
//!
//! A step is an access, or an eviction, and A accesses are followed by one eviction, whether
//! requests waited or not. Early reshuffles are part of an access: the same round trips, but more
//! bytes. When they are due depends on the paths accessed alone. Each step is three round trips:
//! metadata of a path, slots of it, and one write of all that changed.
//!
//! The position map is flat, in trusted memory.
//!
//! Paper: Ren, Fletcher, Kwon, Stefanov, Shi, van Dijk, Devadas, USENIX Security'15. A bucket is
//! reshuffled before a read that it could not answer, not after the one that took its last dummy;
//! docs/papers.md has more.

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
use crate::error::{Error, Place, Result};
use crate::oram::Hides;
use crate::posmap::Flat;
use crate::rng::Rng;
use crate::tree::{EvictionOrder, Header, Shape, Stash, TREE_BLOCKS_MAX};
use crate::types::{Addr, Leaf};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bucket::{Bucket, all, draw};

/// What errors call the metadata.
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
    /// What comes next, if one of its reads failed.
    next: Option<RingAccess>,
    health: Health,
    path: RingPath,
    counts: Counts,
}

/// A path that is to be opened, and slots of it that are to be read.
#[derive(Clone, Copy)]
struct RingAccess {
    leaf: Leaf,
    purpose: RingPurpose,
    /// Whether the path is open and its slots are chosen. They are the same ones however often they
    /// must be read: others would tell by what they share with the first which one matters.
    is_chosen: bool,
    /// Which of the slots holds the block that is wanted.
    found: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RingPurpose {
    Eviction,
    /// An access that nothing asked for.
    Dummy,
    /// The first request, whose block then has this label.
    Request(Addr, Leaf),
    /// An exchange. The block that is wanted has this label if it is not taken out after all.
    Exchange(Option<Addr>, Leaf),
}

impl RingPurpose {
    /// The block that is taken out of its bucket.
    fn wanted(self) -> Option<Addr> {
        match self {
            Self::Eviction | Self::Dummy => None,
            Self::Request(addr, _) => Some(addr),
            Self::Exchange(wanted, _) => wanted,
        }
    }
}

/// What has happened so far. Public.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Accesses, dummies among them.
    pub accesses: u64,
    /// Paths evicted.
    pub evictions: u64,
    /// Buckets that were reshuffled early.
    pub reshuffles: u64,
}

/// Levels from the root down that a tree of this shape leaves to a [`RingTop`].
fn cached_levels(shape: &Shape) -> usize {
    (0..shape.levels()).take_while(|&level| shape.z(level) == 0).count()
}

/// Buckets of a tree before those of a level, without those that it leaves to a [`RingTop`].
fn buckets_above(shape: &Shape, level: usize) -> u64 {
    (0..level).map(|level| shape.buckets(level) * shape.z(level) as u64).sum()
}

/// The open path, and buffers for what is done with it.
struct RingPath {
    buckets: Vec<Bucket>,
    /// Slots to be read.
    slots: Vec<SlotAt>,
    /// Levels of buckets that have no dummy left for an access: they are read whole.
    spent: Vec<usize>,
    /// Blocks to be put into buckets, and how deep each may go.
    blocks: Vec<(usize, Header, BlockSource)>,
    /// Blocks of the stash that have left it.
    gone: Vec<usize>,
}

/// Where a block is while a path is rewritten: its number in the stash, or among the slots read.
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
    /// For `blocks` blocks in `tree`, which holds nothing yet.
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

    /// The blocks that wait.
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What comes next. Nothing changes by it but what is drawn.
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

    /// Whether so many accesses were made that a path is to be evicted before the next.
    fn is_eviction_due(&self) -> bool {
        self.since_eviction == self.tree.params().rate
    }

    /// Opens the path of what comes next and reads its slots. If that fails, the same is read
    /// again before anything else.
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

    /// Does what a path was read for, and writes it.
    fn go_on(&mut self, next: RingAccess, serve: Serve<'_>) -> Result<StepOutcome> {
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

    /// Ends an access whose slots were read: reshuffles buckets without dummies, and writes.
    fn end_access(&mut self) -> Result {
        self.counts.accesses += 1;
        self.since_eviction += 1;
        self.reshuffle();
        self.write()
    }

    /// Has a block in the stash under another label: it is there, or in the slot that was read, or
    /// it is made of zeros. Tells its number.
    fn keep(&mut self, header: Header, read: Option<usize>) -> Result<usize> {
        if let Some(nth) = self.stash.find(header.addr()) {
            self.stash.relabel(nth, header);
            return Ok(nth);
        }
        self.bring(header, read)
    }

    /// Chooses the slots that an access reads. Tells which of them holds the block that is wanted,
    /// and takes the block out of its bucket.
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

    /// Puts a block into the stash: that of a slot that was read, or zeros.
    fn bring(&mut self, header: Header, read: Option<usize>) -> Result<usize> {
        let nth = self.stash.push(header)?;
        match read {
            Some(read) => self.stash.body_mut(nth).copy_from_slice(self.tree.body(read)),
            None => self.stash.body_mut(nth).fill(0),
        }
        Ok(nth)
    }

    /// Puts the blocks of buckets without dummies, which were read whole, into other slots.
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

    /// Writes a path anew, all of whose blocks were read, with as many as fit, each as deep as its
    /// label allows.
    fn evict(&mut self) -> Result {
        self.counts.evictions += 1;
        self.since_eviction = 0;
        for level in (0..self.path.buckets.len()).rev() {
            self.fill(level);
        }
        // From the last on, so that those still to be removed keep their numbers.
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

    /// Chooses Z slots of each bucket, with all its blocks among them, and lists the blocks of path
    /// and stash, those that may go deepest last.
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

    /// Writes a bucket anew, with the last of the blocks listed that may go there. They leave the
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

    /// Opens a path. Metadata that no sealer vouches for may say anything, and is refused unless it
    /// is that of a bucket of this path.
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
        let issued = self.go_on(next, serve);
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
