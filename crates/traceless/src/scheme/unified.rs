//! Unified ORAM: one tree holds the user's blocks and all levels of their position map.
//!
//! Recently used blocks of the map wait in a cache, the PLB, and not in the tree: a request begins
//! at the first level that the PLB holds, and accesses one path for each level below. Since all are
//! paths of one tree, an observer learns neither the level of an access nor whether the PLB had a
//! hit; but the number of paths depends on earlier requests, so a claim needs issue at a fixed
//! rate.
//!
//! A block that leaves the PLB goes into the stash, under the label that it got on its way in,
//! without a path access. Labels are [`PlainLabels`](crate::posmap::PlainLabels), or
//! [`CompressedLabels`](crate::posmap::CompressedLabels): then a counter overflow moves the whole
//! group to other paths, with one path access for each possible member, whether or not it exists.
//! When the counter of a group ends, all labels get another key.
//!
//! Optionally, blocks in trusted memory are searched first, and a cache above takes blocks out, or
//! offers lines that it will write back: see [`Unified::search_first`], [`Unified::submit_fetch`]
//! and [`Unified::offer`].
//!
//! Paper: unified-oram, sections 3 to 5; ir-oram, section IV, for the cache above.
//!
//! The first access takes a path for each of the two levels of the map, and one for the block. The
//! next block has its label in the same block of the map, which then is in the PLB:
//!
//! ```
//! use traceless::Addr;
//! use traceless::controller::Controller;
//! use traceless::posmap::{PlainLabels, Plb};
//! use traceless::rng::System;
//! use traceless::scheme::unified::{Sizes, Unified};
//! use traceless::tree::{BareTree, Shape};
//!
//! # fn main() -> traceless::Result {
//! let sizes = Sizes { blocks: 1000, map_levels: 2, parts: 1, bundled: false, stash_blocks: 100 };
//! let tree = BareTree::new(Shape::for_blocks(1100, 4, 2.0)?, 64);
//! let labels = || PlainLabels::in_block(64);
//! let plb = Plb::new(16, 4, 64)?;
//! let mut oram = Unified::new(sizes, tree, labels()?, labels()?, plb, Box::new(System))?;
//!
//! let mut steps_of = |addr| -> traceless::Result<u32> {
//!     oram.submit(1, Addr(addr))?;
//!     let mut steps = 1;
//!     while oram.step(&mut |_, block| block.fill(5))?.finished.is_none() {
//!         steps += 1;
//!     }
//!     Ok(steps)
//! };
//! assert_eq!((steps_of(7)?, steps_of(8)?), (3, 1));
//! # Ok(())
//! # }
//! ```

mod cache_above;
mod fill;
mod rekey;
mod stash_hits;

use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::{Labels, LeafDraw, Plb};
use crate::scheme::health::Health;
use crate::tree::{BucketTree, Drains, Engine, Header, TREE_BLOCKS_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use rekey::Rekeying;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::store::Pages;
use traceless_core::types::{Addr, Leaf};

/// Sizes of a unified ORAM.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The user's blocks.
    pub blocks: u64,
    /// Levels of the position map in the tree; one more lies in trusted memory.
    pub map_levels: u8,
    /// Tree blocks that make up one user block. They share a counter.
    pub parts: u64,
    /// Whether the parts are a bundle (static super blocks: Ren et al., section 4): they share a
    /// label, too, so one path access brings all of them. Otherwise each part is on its own path.
    pub bundled: bool,
    /// Blocks that the stash holds at most.
    pub stash_blocks: usize,
}

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Unified<T, L> {
    engine: Engine<T>,
    maps: Maps<L>,
    drains: Drains,
    requests: VecDeque<UnifiedRequest>,
    /// A line of a cache above, to be written back when no request waits.
    offered: Option<UnifiedRequest>,
    /// Blocks that a cache above will hold once all requests are finished.
    taken: BTreeSet<u64>,
    /// Whether a request for a block in trusted memory finishes without a path access.
    searches_first: bool,
    /// The planned path accesses of the current walk.
    planned: VecDeque<UnifiedAccess>,
    walk: Walk,
    /// The parts of the user's block collected so far, and their headers.
    body: Vec<u8>,
    held: Vec<Header>,
    /// The next access, if its path could not be read.
    unread: Option<FailedRead>,
    /// Whether the last change ended with a path that could not be read.
    is_unread: bool,
    health: Health,
    is_suspended: bool,
}

/// A path access after its read failed. No other path access is made before it.
#[derive(Clone, Copy)]
enum FailedRead {
    /// The first planned access.
    Planned,
    /// A dummy or an eviction, and the request that was finished without a path access before it.
    Unplanned { kind: StepKind, leaf: Leaf, finished: Option<u64> },
}

/// Every level of the position map.
struct Maps<L> {
    places: LevelPlaces,
    groups: Groups<L>,
    draw: LeafDraw,
    /// Number of groups that were relabelled because a counter was full.
    group_remaps: u64,
}

/// The entries of all groups that are in trusted memory: in the PLB and beside it.
struct Groups<L> {
    labels: L,
    /// The labels of the level in trusted memory, and its entries.
    top_labels: L,
    top: Vec<u8>,
    /// In a simulation, the entries of all blocks of the map.
    beside: Pages,
    plb: Plb,
    /// A change of the label key that is under way.
    rekeying: Option<Rekeying<L>>,
}

/// The addresses of each level's blocks in the tree.
struct LevelPlaces {
    parts: u64,
    bundled: bool,
    fanout: u64,
    /// For each level: the number of its blocks, and the address of the first.
    count: Vec<u64>,
    base: Vec<u64>,
}

/// A request of the client or of a cache above.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnifiedRequest {
    id: u64,
    addr: Addr,
    verb: Verb,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    /// The block is served and stays.
    Access,
    /// The block is served and leaves the ORAM: a cache above has it.
    Fetch,
    /// A cache above returns the block.
    Return,
}

/// The target of the planned path accesses.
#[derive(Clone, Copy)]
struct Walk {
    /// The level of the position map, or 0 for the user's block.
    level: usize,
    /// `None` during a change of key, or if the walk was for an offer that was withdrawn.
    request: Option<UnifiedRequest>,
}

/// A planned path access.
#[derive(Clone, Copy)]
struct UnifiedAccess {
    purpose: UnifiedPurpose,
    addr: Addr,
    /// The index of the block within its group.
    nth: usize,
    /// The path of the block before and after the access.
    old: Leaf,
    new: Leaf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UnifiedPurpose {
    /// The block that the walk is for.
    Own,
    /// A member of the same group, which gets another label.
    Sibling,
    /// A member that does not exist, since the last group is not full.
    Nobody,
}

impl<T: BucketTree, L: Labels> Unified<T, L> {
    /// An ORAM in `tree`, which must be empty. `labels` manages the labels in map blocks,
    /// `top_labels` the labels in trusted memory. Both may have one key, since each block is in one
    /// group only.
    pub fn new(
        sizes: Sizes,
        tree: T,
        labels: L,
        top_labels: L,
        plb: Plb,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let places = LevelPlaces::new(&sizes, labels.fanout())?;
        let (shape, body_len, len) = (tree.shape(), tree.body_len(), labels.entries_len());
        if places.blocks() > TREE_BLOCKS_MAX.min(shape.slots()) {
            return Err(Error::Geometry("more blocks than the tree has room for"));
        }
        if body_len > 0 && body_len < len {
            return Err(Error::Geometry("a block of the map holds the entries of a group"));
        }
        let parts = sizes.parts as usize;
        if sizes.stash_blocks < parts {
            return Err(Error::Geometry("the stash holds a block of the user's"));
        }
        labels.check(shape.leaves(), places.paths_on(0))?;
        top_labels.check(shape.leaves(), places.paths_on(0))?;
        let groups = places.count[places.levels()].div_ceil(top_labels.fanout());
        let beside = if body_len == 0 { places.map_blocks() as usize * len } else { 0 };
        Ok(Self {
            maps: Maps {
                groups: Groups {
                    top: vec![0; groups as usize * top_labels.entries_len()],
                    beside: Pages::zeroed(beside),
                    labels,
                    top_labels,
                    plb,
                    rekeying: None,
                },
                draw: LeafDraw::new(rng, shape.leaves()),
                places,
                group_remaps: 0,
            },
            // The parts of a block come into the stash together.
            drains: Drains::above(sizes.stash_blocks - parts),
            requests: VecDeque::new(),
            offered: None,
            taken: BTreeSet::new(),
            searches_first: false,
            planned: VecDeque::new(),
            walk: Walk { level: 0, request: None },
            body: vec![0; parts * body_len],
            held: Vec::with_capacity(parts),
            unread: None,
            is_unread: false,
            health: Health::default(),
            is_suspended: false,
            engine: Engine::new(tree, sizes.stash_blocks),
        })
    }

    /// While the stash holds more than `blocks` blocks, steps only evict.
    pub fn drain_above(&mut self, blocks: usize) {
        self.drains = Drains::above(blocks);
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    /// Number of groups that were relabelled because a counter was full, since the ORAM was made:
    /// each took a path access for every sibling.
    pub fn group_remaps(&self) -> u64 {
        self.maps.group_remaps
    }

    /// Bytes of a group's entries, which fill a block of the map.
    pub fn group_len(&self) -> usize {
        self.maps.groups.labels.entries_len()
    }

    /// Bytes of trusted memory that the last level of the map takes.
    pub fn top_len(&self) -> usize {
        self.maps.groups.top.len()
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        match self.unread.take() {
            Some(FailedRead::Planned) => return self.walk_on(serve),
            Some(FailedRead::Unplanned { kind, leaf, finished }) => {
                return self.make_unrequested(kind, leaf, finished);
            }
            None => {}
        }
        if self.drains.is_due(self.engine.stash().len()) {
            return self.unrequested_access(StepKind::Eviction);
        }
        if self.planned.is_empty() && self.plan_rekeying()? {
            return self.walk_on(serve);
        }
        if self.planned.is_empty() {
            let Some(&request) = self.requests.front().or(self.offered.as_ref()) else {
                return self.unrequested_access(StepKind::Dummy);
            };
            let mut is_finished = self.finish_in_passing(request, serve)?;
            let level = self.maps.first_missing(request.addr);
            if !is_finished && level == 0 && request.verb == Verb::Return {
                // Evictions did not make room, but the stash is still below its limit.
                self.put_back(request, serve)?;
                self.forget(request);
                is_finished = true;
            }
            if is_finished {
                let leaf = self.maps.draw.leaf();
                return self.make_unrequested(StepKind::Dummy, leaf, Some(request.id));
            }
            self.walk = Walk { level, request: Some(request) };
            match self.maps.plan(level, request.addr, &mut self.planned) {
                Err(Error::LabelsSpent) if self.maps.begin_rekeying() => {
                    // The request starts again after all labels have another key.
                    self.planned.clear();
                    self.plan_rekeying()?;
                }
                planned => planned?,
            }
        }
        self.walk_on(serve)
    }

    /// Plans the next path accesses of a change of the label key; returns whether there are any.
    fn plan_rekeying(&mut self) -> Result<bool> {
        let level = self.maps.plan_rekeying(&mut self.planned)?;
        if !self.planned.is_empty() {
            self.walk = Walk { level, request: None };
        }
        Ok(!self.planned.is_empty())
    }

    /// Makes the next planned path access.
    fn walk_on(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let Walk { level, request } = self.walk;
        let next = self.planned.front().expect("a plan has at least the block's own access");
        self.fetch(next.old, FailedRead::Planned)?;
        let next = self.planned.pop_front().expect("it is there");
        let kind = match (next.purpose, level) {
            (UnifiedPurpose::Own, 0) => {
                self.hold(next, request, serve)?;
                StepKind::Data
            }
            (UnifiedPurpose::Own, _) => {
                self.bring(next)?;
                StepKind::PosMap(level as u8)
            }
            (UnifiedPurpose::Sibling, _) => {
                for addr in self.maps.places.brought(level, next.addr) {
                    self.engine.relabel(addr, next.new)?;
                }
                StepKind::PosMap(level as u8 + 1)
            }
            (UnifiedPurpose::Nobody, _) => StepKind::PosMap(level as u8 + 1),
        };
        if let Some(leaf) = self.likely_next() {
            self.engine.tree_mut().expect(leaf);
        }
        self.engine.evict()?;
        let is_served = self.planned.is_empty() && level == 0;
        let finished = request.filter(|_| is_served);
        finished.inspect(|&request| self.forget(request));
        Ok(StepOutcome { kind, finished: finished.map(|request| request.id) })
    }

    /// In a simulation, the path that is accessed after the open one, unless an eviction comes
    /// first or no path is needed.
    fn likely_next(&self) -> Option<Leaf> {
        if self.maps.groups.beside.is_empty() {
            return None;
        }
        if let Some(next) = self.planned.front() {
            return Some(next.old);
        }
        // At level 0 the first request is about to be finished.
        let next = self.requests.get(usize::from(self.walk.level == 0))?;
        self.maps.peek(next.addr)
    }

    fn check_ready(&self) -> Result {
        self.health.check()?;
        if self.is_suspended { Err(Error::Suspended) } else { Ok(()) }
    }

    /// Runs an operation that may change labels. If the operation fails it cannot be repeated,
    /// unless the failure was a path that could not be read.
    fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.check_ready()?;
        self.health.begin();
        self.is_unread = false;
        let changed = change(self);
        if self.is_unread { self.health.after_read(changed) } else { self.health.end(changed) }
    }

    /// Reads a path. If that fails, the next step repeats this read first, for the same purpose.
    fn fetch(&mut self, leaf: Leaf, unread: FailedRead) -> Result {
        self.engine.fetch(leaf).inspect_err(|_| {
            (self.unread, self.is_unread) = (Some(unread), true);
        })
    }

    /// Removes a finished request from the queue, or the finished offer.
    fn forget(&mut self, request: UnifiedRequest) {
        if self.requests.front() == Some(&request) {
            self.requests.pop_front();
        } else {
            self.offered = None;
        }
    }

    /// Moves a map block from the open path into the PLB.
    fn bring(&mut self, next: UnifiedAccess) -> Result {
        let way = self.make_room(next.addr)?;
        let plb = &mut self.maps.groups.plb;
        self.engine.remove(next.addr, plb.body_mut(way));
        plb.fill(way, Header::new(next.addr, next.new));
        Ok(())
    }

    /// An empty way of the PLB for `addr`. The block that was there goes into the stash.
    fn make_room(&mut self, addr: Addr) -> Result<usize> {
        let plb = &mut self.maps.groups.plb;
        let (way, victim) = plb.evict(addr);
        if !victim.is_empty() {
            self.engine.put(victim, plb.body(way))?;
        }
        Ok(way)
    }

    /// Takes the parts of the user's block out of the open path. With the last part the block is
    /// complete: it is served, and all parts go into the stash, unless the request is a fetch.
    fn hold(
        &mut self,
        next: UnifiedAccess,
        request: Option<UnifiedRequest>,
        serve: Serve<'_>,
    ) -> Result {
        let len = self.engine.tree().body_len();
        for addr in self.maps.places.brought(0, next.addr) {
            self.engine.remove(addr, &mut self.body[self.held.len() * len..][..len]);
            self.held.push(Header::new(addr, next.new));
        }
        if (self.held.len() as u64) < self.maps.places.parts {
            return Ok(());
        }
        if let Some(UnifiedRequest { id, .. }) = request {
            serve(id, &mut self.body);
        }
        if request.is_some_and(|request| request.verb == Verb::Fetch) {
            self.held.clear();
        }
        for (nth, header) in self.held.drain(..).enumerate() {
            self.engine.put(header, &self.body[nth * len..][..len])?;
        }
        Ok(())
    }

    /// A path access that serves no request.
    fn unrequested_access(&mut self, kind: StepKind) -> Result<StepOutcome> {
        let leaf = self.maps.draw.leaf();
        self.make_unrequested(kind, leaf, None)
    }

    fn make_unrequested(
        &mut self,
        kind: StepKind,
        leaf: Leaf,
        finished: Option<u64>,
    ) -> Result<StepOutcome> {
        self.fetch(leaf, FailedRead::Unplanned { kind, leaf, finished })?;
        self.engine.evict()?;
        Ok(StepOutcome { kind, finished })
    }
}

impl<L: Labels> Maps<L> {
    /// The level at which a walk to a user block begins: the lowest level with its parent in the
    /// PLB, or the last level, since its parent is in trusted memory.
    fn first_missing(&self, addr: Addr) -> usize {
        let is_here = |level| self.is_here(level, self.places.nth(level, addr));
        let levels = self.places.levels();
        (0..levels).find(|&below| is_here(below + 1)).unwrap_or(levels)
    }

    /// Whether the PLB holds block number `nth` of a level of the map.
    fn is_here(&self, level: usize, nth: u64) -> bool {
        self.groups.plb.find(self.places.addr(level, nth, 0)).is_some()
    }

    /// In a simulation, the first path of a walk to `addr`, if the map can give it without drawing.
    fn peek(&self, addr: Addr) -> Option<Leaf> {
        let Self { places, groups, .. } = self;
        let level = self.first_missing(addr);
        let (block, fanout) = (places.nth(level, addr), groups.fanout(places, level));
        let (group, nth) = (block / fanout, (block % fanout) as usize);
        let (labels, all, at) = if level == places.levels() {
            (&groups.top_labels, &groups.top[..], group)
        } else {
            let parent = places.addr(level + 1, group, 0);
            (&groups.labels, &groups.beside[..], parent.0 - places.base[1])
        };
        let len = labels.entries_len();
        labels.peek(&all[at as usize * len..][..len], nth)
    }

    /// Assigns new labels to the block of `level` for an access to `addr`, and lists the path
    /// accesses for it: one per path of the block, and before them, if its group is relabelled, as
    /// many for each possible sibling.
    fn plan(&mut self, level: usize, addr: Addr, plan: &mut VecDeque<UnifiedAccess>) -> Result {
        let (block, fanout) =
            (self.places.nth(level, addr), self.groups.fanout(&self.places, level));
        self.plan_group(level, block / fanout, Some((block % fanout) as usize), plan)
    }

    /// Like [`plan`](Self::plan), for member `own` of a group. With `None`, all members get labels
    /// under the next key.
    ///
    /// The group's parent is in the PLB, and may leave it while the plan is carried out.
    fn plan_group(
        &mut self,
        level: usize,
        group: u64,
        own: Option<usize>,
        plan: &mut VecDeque<UnifiedAccess>,
    ) -> Result {
        let Self { places, groups, draw, group_remaps } = self;
        let Group { labels, next, entries } = groups.of(places, level, group);
        let is_spent = own.is_none_or(|own| labels.is_spent(entries, own));
        let all = 0..labels.fanout() as usize;
        let siblings = all.filter(|&nth| is_spent && Some(nth) != own);
        // Collect every old label before any of them changes.
        for nth in siblings.chain(own) {
            let member = group * labels.fanout() + nth as u64;
            let purpose = match nth {
                _ if Some(nth) == own => UnifiedPurpose::Own,
                _ if member < places.count[level] => UnifiedPurpose::Sibling,
                _ => UnifiedPurpose::Nobody,
            };
            for part in 0..places.paths_on(level) {
                let addr = places.addr(level, member, part);
                let old = match purpose {
                    UnifiedPurpose::Nobody => draw.leaf(),
                    _ => labels.leaf(entries, nth, addr, draw),
                };
                plan.push_back(UnifiedAccess { purpose, addr, nth, old, new: old });
            }
        }
        match own {
            None => entries.fill(0),
            Some(_) if is_spent => {
                labels.renew_group(entries)?;
                // A group of one is spent at each access, which costs nothing.
                *group_remaps += u64::from(labels.fanout() > 1);
            }
            Some(own) => labels.renew(entries, own, draw),
        }
        let labels = next.filter(|_| own.is_none()).unwrap_or(labels);
        for access in plan.iter_mut().filter(|access| access.purpose != UnifiedPurpose::Nobody) {
            access.new = labels.leaf(entries, access.nth, access.addr, draw);
        }
        // A sibling in the PLB is on no path; the path of its old label is accessed nevertheless.
        for access in plan.iter().filter(|access| access.purpose == UnifiedPurpose::Sibling) {
            if let Some(way) = groups.plb.find(access.addr) {
                groups.plb.relabel(way, access.new);
            }
        }
        Ok(())
    }
}

/// The entries of a group.
struct Group<'a, L> {
    /// The scheme of the current labels.
    labels: &'a L,
    /// The scheme under the next key, if the key is being changed.
    next: Option<&'a L>,
    entries: &'a mut [u8],
}

impl<L: Labels> Groups<L> {
    /// Blocks in a group of a level.
    fn fanout(&self, places: &LevelPlaces, level: usize) -> u64 {
        if level == places.levels() { self.top_labels.fanout() } else { self.labels.fanout() }
    }

    /// Group number `group` of `level`. The entries for the user's blocks and for all but the last
    /// level of the map are in the group's parent, which this call marks as used.
    fn of(&mut self, places: &LevelPlaces, level: usize, group: u64) -> Group<'_, L> {
        let Self { top, beside, labels, top_labels, plb, rekeying } = self;
        let is_top = level == places.levels();
        let now = if is_top { &*top_labels } else { &*labels };
        let next = rekeying.as_ref();
        let is_done = next.is_some_and(|next| next.is_done(level, group));
        let next = next.map(|next| if is_top { &next.top_labels } else { &next.labels });
        let labels = next.filter(|_| is_done).unwrap_or(now);
        let len = labels.entries_len();
        if is_top {
            return Group { labels, next, entries: &mut top[group as usize * len..][..len] };
        }
        let parent = places.addr(level + 1, group, 0);
        let way = plb.find(parent).expect("the walk came by, or began there");
        plb.touch(way);
        let entries = if beside.is_empty() {
            &mut plb.body_mut(way)[..len]
        } else {
            &mut beside[(parent.0 - places.base[1]) as usize * len..][..len]
        };
        Group { labels, next, entries }
    }
}

impl LevelPlaces {
    fn new(sizes: &Sizes, fanout: u64) -> Result<Self> {
        let blocks = sizes.blocks.checked_mul(sizes.parts).filter(|&n| n <= TREE_BLOCKS_MAX);
        if sizes.parts == 0 || blocks.is_none() {
            return Err(Error::Geometry("a block has one or more parts, and all have a number"));
        }
        let mut places = Self {
            parts: sizes.parts,
            bundled: sizes.bundled,
            fanout,
            count: vec![sizes.blocks],
            base: vec![0],
        };
        for level in 0..usize::from(sizes.map_levels) {
            places.base.push(places.base[level] + places.count[level] * places.parts_on(level));
            places.count.push(places.count[level].div_ceil(fanout));
        }
        Ok(places)
    }

    /// Levels of the map in the tree.
    fn levels(&self) -> usize {
        self.count.len() - 1
    }

    /// Blocks in the tree.
    fn blocks(&self) -> u64 {
        self.base[self.levels()] + self.count[self.levels()] * self.parts_on(self.levels())
    }

    /// Blocks of the map.
    fn map_blocks(&self) -> u64 {
        self.count[1..].iter().sum()
    }

    fn parts_on(&self, level: usize) -> u64 {
        if level == 0 { self.parts } else { 1 }
    }

    /// Paths that the parts of a block are on.
    fn paths_on(&self, level: usize) -> u64 {
        if self.bundled { 1 } else { self.parts_on(level) }
    }

    /// The parts that are on the same path as the part `first`, including it.
    fn brought(&self, level: usize, first: Addr) -> impl Iterator<Item = Addr> + use<> {
        let parts = self.parts_on(level) / self.paths_on(level);
        (first.0..first.0 + parts).map(Addr)
    }

    /// The part that determines the label of a part of block number `nth` of a level.
    fn labelled(&self, level: usize, nth: u64, part: u64) -> Addr {
        self.addr(level, nth, if self.bundled { 0 } else { part })
    }

    /// The number of the block of a level that an access to `addr` uses.
    fn nth(&self, level: usize, addr: Addr) -> u64 {
        (0..level).fold(addr.0, |nth, _| nth / self.fanout)
    }

    /// The address in the tree of a part of block number `nth` of a level.
    fn addr(&self, level: usize, nth: u64, part: u64) -> Addr {
        Addr(self.base[level] + nth * self.parts_on(level) + part)
    }
}

impl<T: BucketTree, L: Labels> Controller for Unified<T, L> {
    fn blocks(&self) -> u64 {
        self.maps.places.count[0]
    }

    fn block_len(&self) -> usize {
        self.body.len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.submit_as(UnifiedRequest { id, addr, verb: Verb::Access })
    }

    fn waiting(&self) -> usize {
        let is_untold =
            matches!(self.unread, Some(FailedRead::Unplanned { finished: Some(_), .. }));
        self.requests.len() + usize::from(is_untold)
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.change(|unified| unified.try_step(serve))
    }

    fn finish_without_path(&mut self, serve: Serve<'_>) -> Result<Option<u64>> {
        self.check_ready()?;
        let is_free = self.planned.is_empty() && self.unread.is_none();
        let Some(&request) = self.requests.front().filter(|_| is_free) else {
            return Ok(None);
        };
        let finished = self.change(|unified| unified.finish_in_passing(request, serve))?;
        Ok(finished.then_some(request.id))
    }

    fn sync(&mut self) -> Result {
        self.change(|unified| unified.engine.tree_mut().sync())
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;

#[cfg(all(test, feature = "std"))]
mod bundle_tests;

#[cfg(all(test, feature = "std"))]
mod ir_tests;
