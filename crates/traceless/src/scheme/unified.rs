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
mod maps;
mod stash_hits;

use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::{Labels, LeafDraw, Plb};
use crate::scheme::health::Health;
use crate::tree::{BucketTree, Drains, Engine, Header, TREE_BLOCKS_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use maps::{Group, Groups, LevelPlaces, Maps, UnifiedAccess, UnifiedPurpose};
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
                for addr in self.maps.places.parts_on_path(level, next.addr) {
                    self.engine.relabel(addr, next.new)?;
                }
                StepKind::PosMap(level as u8 + 1)
            }
            (UnifiedPurpose::NoMember, _) => StepKind::PosMap(level as u8 + 1),
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
        for addr in self.maps.places.parts_on_path(0, next.addr) {
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
