//! Rho: a small tree beside the main one, for recently used blocks.
//!
//! A path of the small tree has few slots. Trusted memory records the blocks of the small tree and
//! their paths, so an access to one of these blocks costs one short path access. Any other block is
//! taken out of the main tree (a unified ORAM) and put into the small one, and the least recently
//! used block goes back: it is read from the small tree, gets a new label in the main one, which
//! may take accesses to map blocks there, and waits in the main stash.
//!
//! The tree that a step accesses follows a fixed pattern, one main path after every two small ones.
//! A step with no work to do is a dummy.
//!
//! Paper: Nagarajan et al., ASPLOS'19, as ir-oram describes it (sections II-C, V and VI), with
//! its sizes.
//!
//! The first access takes three main paths, two of them for the map, with two small ones after each
//! of the first two. It brings the block into the small tree, so the next access takes one path:
//!
//! ```
//! use traceless::Addr;
//! use traceless::controller::Controller;
//! use traceless::posmap::{PlainLabels, Plb};
//! use traceless::rng::System;
//! use traceless::scheme::rho::Rho;
//! use traceless::scheme::unified::{Sizes, Unified};
//! use traceless::tree::{BareTree, Shape};
//!
//! # fn main() -> traceless::Result {
//! let sizes = Sizes { blocks: 80, map_levels: 2, parts: 1, bundled: false, stash_blocks: 100 };
//! let labels = || PlainLabels::in_block(64);
//! let (tree, plb) = (BareTree::new(Shape::uniform(6, 4)?, 64), Plb::new(4, 2, 64)?);
//! let main = Unified::new(sizes, tree, labels()?, labels()?, plb, Box::new(System))?;
//! let small = BareTree::new(Shape::uniform(4, 2)?, 64);
//! let mut oram = Rho::new(main, small, (5, 2), 60, Box::new(System))?;
//!
//! let mut steps_of = |addr| -> traceless::Result<u32> {
//!     oram.submit(1, Addr(addr))?;
//!     let mut steps = 1;
//!     while oram.step(&mut |_, block| block.fill(5))?.finished.is_none() {
//!         steps += 1;
//!     }
//!     Ok(steps)
//! };
//! assert_eq!((steps_of(7)?, steps_of(7)?), (7, 1));
//! # Ok(())
//! # }
//! ```

use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::{Labels, LeafDraw, Plb};
use crate::scheme::health::Health;
use crate::scheme::unified::Unified;
use crate::tree::{BucketTree, Drains, Engine, Header, Stash};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::types::Addr;

/// Levels of the paper's small tree.
pub const SMALL_LEVELS: usize = 19;

/// Slots per bucket of the paper's small tree.
pub const SMALL_Z: u8 = 2;

/// Sets and ways of the tags of the paper's small tree.
pub const SMALL_TAGS: (usize, usize) = (16_000, 10);

/// Steps of the default pattern; the first one accesses the main tree. [`Rho::access_small`] sets
/// another pattern.
pub const PATTERN: u32 = 3;

/// Blocks in transit from the small tree to the main one, at most.
const LEAVING_MAX: usize = 16;

/// The scheme, as a [`Controller`]. See the [module](self). Requests for one block are served in
/// order; a request for a block in the small tree may overtake requests for other blocks.
pub struct Rho<T, S, L> {
    main: Unified<T, L>,
    small: Engine<S>,
    /// The blocks in the small tree: their labels there, and their order of use.
    tags: Plb,
    draw: LeafDraw,
    drains: Drains,
    /// The small stash stayed crowded after its evictions; fetches go on up to the stash's limit.
    drained_in_vain: bool,
    requests: VecDeque<(u64, Addr)>,
    /// The request with a fetch from the main tree in progress.
    fetching: Option<(u64, Addr)>,
    /// Blocks that are still in the small tree but have no tag any more.
    leaving: VecDeque<Header>,
    /// Blocks that have left the small tree and are not in the main tree yet.
    returning: Stash,
    /// The body of the block that was fetched last.
    body: Vec<u8>,
    /// Number of steps in the pattern.
    pattern: u32,
    turn: u32,
    health: Health,
}

impl<T: BucketTree, S: BucketTree, L: Labels> Rho<T, S, L> {
    /// Combines `main`, which has had no requests yet, with the empty small tree `small`, with the
    /// given sets and ways of tags.
    pub fn new(
        main: Unified<T, L>,
        small: S,
        (sets, ways): (usize, usize),
        stash_blocks: usize,
        rng: Box<dyn Rng>,
    ) -> Result<Self> {
        let len = main.block_len();
        if small.body_len() != len {
            return Err(Error::Geometry("blocks of both trees are as long"));
        }
        let room = sets.checked_mul(ways).filter(|&tags| tags as u64 <= small.shape().slots());
        let room = room.ok_or(Error::Geometry("more tags than the small tree has slots"))?;
        Ok(Self {
            tags: Plb::new(room, ways, 0)?,
            draw: LeafDraw::new(rng, small.shape().leaves()),
            drains: Drains::above(stash_blocks - stash_blocks / 4),
            drained_in_vain: false,
            requests: VecDeque::new(),
            fetching: None,
            leaving: VecDeque::with_capacity(LEAVING_MAX),
            returning: Stash::new(LEAVING_MAX, len),
            body: vec![0; len],
            pattern: PATTERN,
            turn: 0,
            health: Health::default(),
            small: Engine::new(small, stash_blocks),
            main,
        })
    }

    /// The main tree's ORAM.
    pub fn main(&self) -> &Unified<T, L> {
        &self.main
    }

    /// The small tree and its stash.
    pub fn small(&self) -> &Engine<S> {
        &self.small
    }

    /// Whether the next step accesses the main tree.
    pub fn main_is_next(&self) -> bool {
        self.turn == 0
    }

    /// Sets the pattern: `per_main` accesses to the small tree, at least one, for each access to
    /// the main one.
    pub fn access_small(&mut self, per_main: u32) {
        assert!(per_main > 0, "blocks must come out of the small tree");
        (self.pattern, self.turn) = (per_main.saturating_add(1), 0);
    }

    /// While the small stash holds more than `blocks` blocks, accesses to the small tree only
    /// evict.
    pub fn drain_above(&mut self, blocks: usize) {
        self.drains = Drains::above(blocks);
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let is_main = self.main_is_next();
        self.turn = (self.turn + 1) % self.pattern;
        if is_main { self.step_main(serve) } else { self.step_small(serve) }
    }

    /// Advances the work of the main tree: it takes blocks back, and fetches one.
    fn step_main(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.begin_fetch()?;
        let Self { main, returning, body: fetched, fetching, .. } = self;
        let mut exchange = |id: u64, body: &mut [u8]| match (id.checked_sub(RETURNS), &fetching) {
            (Some(addr), _) => {
                let nth = returning.find(Addr(addr)).expect("what returns is here");
                body.copy_from_slice(returning.body(nth));
                returning.remove(nth);
            }
            (None, Some((id, _))) => {
                serve(*id, body);
                fetched.copy_from_slice(body);
            }
            (None, None) => unreachable!("a fetch is finished once"),
        };
        let mut is_fetched = false;
        while let Some(finished) = main.finish_without_path(&mut exchange)? {
            is_fetched |= finished == FETCH;
        }
        let issued = main.step(&mut exchange)?;
        is_fetched |= issued.finished == Some(FETCH);
        let fetched = fetching.take_if(|_| is_fetched);
        if let Some((_, addr)) = fetched {
            self.arrive(addr)?;
        }
        Ok(StepOutcome { finished: fetched.map(|(id, _)| id), ..issued })
    }

    /// Starts the fetch of the next block that is neither in the small tree nor in transit, if
    /// there is room for it and for the block that it evicts.
    fn begin_fetch(&mut self) -> Result {
        let under_way = self.leaving.len() + self.returning.len();
        let is_crowded = self.drains.is_crowded(self.small.stash().len()) && !self.drained_in_vain;
        if self.fetching.is_some() || under_way >= LEAVING_MAX || is_crowded {
            return Ok(());
        }
        let is_missing = |&(_, addr): &(u64, Addr)| {
            let is_here = self.tags.find(addr).is_some() || self.returning.find(addr).is_some();
            !is_here && !self.leaving.iter().any(|leaving| leaving.is_of(addr))
        };
        if let Some(nth) = self.requests.iter().position(is_missing) {
            self.fetching = self.requests.remove(nth);
            let (_, addr) = self.fetching.expect("it was found there");
            self.main.submit_fetch(FETCH, addr)?;
        }
        Ok(())
    }

    /// Puts the block that was fetched into the small tree.
    fn arrive(&mut self, addr: Addr) -> Result {
        let (way, victim) = self.tags.evict(addr);
        if !victim.is_empty() {
            self.leaving.push_back(victim);
        }
        let header = Header::new(addr, self.draw.leaf());
        self.tags.fill(way, header);
        self.small.put(header, &self.body)
    }

    /// One access to the small tree: an eviction, a block that leaves, or the first request for a
    /// block in this tree.
    fn step_small(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        let waiting = self.small.stash().len();
        if self.drains.is_due(waiting) {
            return self.unrequested_access(StepKind::Eviction);
        }
        self.drained_in_vain = self.drains.is_crowded(waiting);
        if let Some(header) = self.leaving.pop_front() {
            self.small.fetch(header.leaf())?;
            let nth = self.returning.push(header)?;
            self.small.remove(header.addr(), self.returning.body_mut(nth));
            self.small.evict()?;
            self.main.submit_return(RETURNS + header.addr().0, header.addr())?;
            return Ok(StepOutcome { kind: StepKind::Data, finished: None });
        }
        let held = |&(_, addr): &(u64, Addr)| self.tags.find(addr);
        let Some((nth, way)) = (0..).zip(&self.requests).find_map(|(n, r)| Some((n, held(r)?)))
        else {
            return self.unrequested_access(StepKind::Dummy);
        };
        let (id, addr) = self.requests.remove(nth).expect("it was found there");
        let (old, new) = (self.tags.header(way).leaf(), self.draw.leaf());
        self.tags.relabel(way, new);
        self.tags.touch(way);
        self.small.fetch(old)?;
        let nth = self.small.take(addr, new)?;
        serve(id, self.small.stash_mut().body_mut(nth));
        self.small.evict()?;
        Ok(StepOutcome { kind: StepKind::Data, finished: Some(id) })
    }

    fn unrequested_access(&mut self, kind: StepKind) -> Result<StepOutcome> {
        self.small.dummy(self.draw.leaf())?;
        Ok(StepOutcome { kind, finished: None })
    }
}

/// Ids of requests to the main tree: `FETCH` for the only fetch, `RETURNS` plus the address for a
/// return.
const FETCH: u64 = 0;
const RETURNS: u64 = 1;

impl<T: BucketTree, S: BucketTree, L: Labels> Controller for Rho<T, S, L> {
    fn blocks(&self) -> u64 {
        self.main.blocks()
    }

    fn block_len(&self) -> usize {
        self.main.block_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks() {
            return Err(Error::OutOfRange { addr, blocks: self.blocks() });
        }
        self.requests.push_back((id, addr));
        Ok(())
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.health.check()?;
        // A failed read also ends the scheme: before it reads, a step may have finished a request
        // without a path access, or moved blocks between the trees.
        self.health.begin();
        match self.try_step(serve) {
            Err(error) if !matches!(error, Error::Tampered { .. }) => Err(error),
            issued => self.health.after_read(issued),
        }
    }

    fn waiting(&self) -> usize {
        self.requests.len() + usize::from(self.fetching.is_some())
    }

    fn sync(&mut self) -> Result {
        self.health.check()?;
        let small = self.small.tree_mut().sync();
        let synced = self.main.sync().and(small);
        self.health.end(synced)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
