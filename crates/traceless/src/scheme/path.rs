//! Path ORAM, flat or recursive: every access reads and rewrites one random path of each tree.
//!
//! Tree 0 holds the user's blocks. Each further tree holds the position map of the tree before,
//! many labels to a block; the labels of the last tree lie in trusted memory. An access goes
//! through the trees from the last to the first: in each it looks up the block's path, assigns a
//! fresh random path to the block, and reads and rewrites the old path.
//!
//! Paper: Stefanov et al., CCS'13; recursion as in unified-oram, section 2.2.
//!
//! A Path ORAM in memory that keeps most of its map in further trees:
//!
//! ```
//! use traceless::Addr;
//! use traceless::oram::Oram;
//! use traceless::rng::System;
//! use traceless::scheme::path::{self, PathGeometry};
//!
//! # fn main() -> traceless::Result {
//! let flat = PathGeometry::new(10_000, 64)?;
//! let recursive = flat.with_map_memory(4096)?;
//! assert_eq!(flat.map_trees, 0);
//! assert!(recursive.map_trees > 0 && recursive.map_memory() <= 4096);
//!
//! let mut oram = path::in_memory(&recursive, &mut System)?;
//! oram.write(Addr(7), &[1; 64])?;
//! let mut block = [0; 64];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 64]);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "arrays")]
mod durable;
mod fill;
#[cfg(feature = "arrays")]
mod geometry;
#[cfg(feature = "suite")]
mod public_trace;
#[cfg(feature = "arrays")]
mod relabel;
#[cfg(feature = "arrays")]
mod scheme;
#[cfg(all(feature = "arrays", feature = "std"))]
mod unsaved;

#[cfg(feature = "arrays")]
pub use durable::DurablePath;
#[cfg(feature = "arrays")]
pub use geometry::{MAP_MEMORY, PathGeometry, UNSYNCED};
#[cfg(all(feature = "arrays", feature = "std"))]
pub use unsaved::{Unsaved, in_memory, in_memory_filled};

use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::{Flat, LABEL_LEN, swap_label};
use crate::scheme::health::Health;
use crate::tree::{BucketTree, Drains, Engine, TREE_BLOCKS_MAX};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::types::{Addr, Leaf};

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct PathOram<T> {
    blocks: u64,
    engines: Vec<Engine<T>>,
    top: Flat,
    rng: Box<dyn Rng>,
    drains: Drains,
    requests: VecDeque<PathRequest>,
    /// The next path access, if it is known: the next tree of a request or of a dummy round, or a
    /// path that could not be read.
    next: Option<PathAccess>,
    health: Health,
}

/// A request in the queue.
struct PathRequest {
    id: u64,
    addr: Addr,
    /// The block's path when the request is served, and the path after that, if both were drawn
    /// already.
    announced: Option<(Leaf, Leaf)>,
}

/// A path access that is to be made.
#[derive(Clone, Copy)]
struct PathAccess {
    tree: usize,
    leaf: Leaf,
    purpose: PathPurpose,
}

#[derive(Clone, Copy)]
enum PathPurpose {
    /// Serves the first request; its block of the tree then gets this leaf.
    Request(Leaf),
    /// A dummy or an eviction, which serves no request.
    Unrequested(StepKind),
}

impl<T: BucketTree> PathOram<T> {
    /// For `blocks` blocks in the first of `trees`, and the map of each tree in the next tree. All
    /// trees must be empty. Each stash holds at most `stash_blocks` blocks.
    pub fn new(blocks: u64, trees: Vec<T>, stash_blocks: usize, rng: Box<dyn Rng>) -> Result<Self> {
        let mut fewer = blocks;
        for (nth, tree) in trees.iter().enumerate() {
            if nth > 0 {
                fewer = fewer.div_ceil(labels_in(tree)?);
            }
            if fewer > TREE_BLOCKS_MAX || fewer > tree.shape().slots() {
                return Err(Error::Geometry("more blocks than the tree has room for"));
            }
            if tree.shape().leaves() >= u64::from(u32::MAX) {
                return Err(Error::Geometry("more leaves than a label can name"));
            }
        }
        if trees.is_empty() {
            return Err(Error::Geometry("blocks lie in a tree"));
        }
        Ok(Self {
            blocks,
            top: Flat::new(usize::try_from(fewer).map_err(|_| Error::Geometry("map"))?),
            engines: trees.into_iter().map(|tree| Engine::new(tree, stash_blocks)).collect(),
            rng,
            drains: Drains::above(stash_blocks - stash_blocks / 4),
            requests: VecDeque::new(),
            next: None,
            health: Health::default(),
        })
    }

    /// While a stash holds more than `blocks` blocks, steps only evict. Default: three quarters of
    /// the stash limit. Hardware also needs room for a path, so it subtracts the slots of a path
    /// from the size of the stash.
    pub fn drain_above(&mut self, blocks: usize) {
        self.drains = Drains::above(blocks);
    }

    /// The engines; the first is the engine of the user's blocks.
    pub fn engines(&self) -> &[Engine<T>] {
        &self.engines
    }

    /// Chooses the next path access. This draws randomness and changes nothing else.
    fn choose(&mut self) -> PathAccess {
        if let Some(next) = self.next {
            return next;
        }
        let stashes = self.engines.iter().map(|engine| engine.stash().len());
        let blocks = stashes.max().expect("there is a tree");
        let last = self.engines.len() - 1;
        // Only between requests: the whole state may be saved then.
        if self.drains.is_due(blocks) {
            return self.unrequested_access(last, StepKind::Eviction);
        }
        match self.requests.front() {
            Some(&PathRequest { addr, announced, .. }) => self.enter(addr, announced),
            None => self.unrequested_access(last, StepKind::Dummy),
        }
    }

    /// Looks up the block of the last tree for a request. The map does not change before the path
    /// is read.
    fn enter(&mut self, addr: Addr, announced: Option<(Leaf, Leaf)>) -> PathAccess {
        let tree = self.engines.len() - 1;
        if let Some((leaf, new)) = announced {
            return PathAccess { tree, leaf, purpose: PathPurpose::Request(new) };
        }
        let new = self.draw(tree);
        let known = self.top.label(self.block_of(addr, tree));
        let leaf = known.unwrap_or_else(|| self.draw(tree));
        PathAccess { tree, leaf, purpose: PathPurpose::Request(new) }
    }

    /// A path access that serves no request. Like a request, it goes on through all trees, down to
    /// the user's blocks.
    fn unrequested_access(&mut self, tree: usize, kind: StepKind) -> PathAccess {
        PathAccess { tree, leaf: self.draw(tree), purpose: PathPurpose::Unrequested(kind) }
    }

    /// Serves the purpose of the path that was read, and writes the path.
    fn advance(
        &mut self,
        PathAccess { tree, purpose, .. }: PathAccess,
        serve: Serve<'_>,
    ) -> Result<StepOutcome> {
        let new = match purpose {
            PathPurpose::Request(new) => new,
            PathPurpose::Unrequested(kind) => {
                self.next = tree.checked_sub(1).map(|below| self.unrequested_access(below, kind));
                self.engines[tree].evict()?;
                return Ok(StepOutcome { kind, finished: None });
            }
        };
        let &PathRequest { id, addr, .. } =
            self.requests.front().expect("its path was read for it");
        self.visit(tree, new, addr, |body| serve(id, body))?;
        if tree > 0 {
            return Ok(StepOutcome { kind: StepKind::PosMap(tree as u8), finished: None });
        }
        self.requests.pop_front();
        Ok(StepOutcome { kind: StepKind::Data, finished: Some(id) })
    }

    /// Draws the leaves that request `nth` will access and assign. The map does not change, since
    /// it may be saved before that. If a block is requested twice, the second request gets another
    /// path, as without announcements.
    fn draw_ahead(&mut self, nth: usize) -> Leaf {
        let addr = self.requests[nth].addr;
        let before = self.requests.range(..nth).rev().find(|request| request.addr == addr);
        let known = match before.and_then(|request| request.announced) {
            Some((_, new)) => Some(new),
            None => self.top.label(addr),
        };
        let old = known.unwrap_or_else(|| self.draw(0));
        self.requests[nth].announced = Some((old, self.draw(0)));
        old
    }

    /// Moves a request's block of one tree from the path that was read to the path of `new`, serves
    /// it, and writes the path that was read.
    fn visit(
        &mut self,
        tree: usize,
        new: Leaf,
        addr: Addr,
        serve: impl FnOnce(&mut [u8]),
    ) -> Result {
        let block = self.block_of(addr, tree);
        if tree + 1 == self.engines.len() {
            self.top.remap(block, new);
        }
        let nth = self.engines[tree].take(block, new)?;
        self.next = None;
        if tree == 0 {
            serve(self.engines[tree].stash_mut().body_mut(nth));
        } else {
            let (child, below) = (self.block_of(addr, tree - 1), self.draw(tree - 1));
            let body = self.engines[tree].stash_mut().body_mut(nth);
            let labels = (body.len() / LABEL_LEN) as u64;
            let at = (child.0 % labels) as usize * LABEL_LEN;
            let label = swap_label(&mut body[at..at + LABEL_LEN], below);
            let leaf = label.unwrap_or_else(|| self.draw(tree - 1));
            self.next =
                Some(PathAccess { tree: tree - 1, leaf, purpose: PathPurpose::Request(below) });
        }
        self.engines[tree].evict()
    }

    /// The block of a tree that an access to `addr` uses.
    fn block_of(&self, addr: Addr, tree: usize) -> Addr {
        let maps = self.engines[1..=tree].iter();
        maps.fold(addr, |addr, map| Addr(addr.0 / (map.tree().body_len() / LABEL_LEN) as u64))
    }

    fn draw(&mut self, tree: usize) -> Leaf {
        Leaf(self.rng.below(self.engines[tree].shape().leaves()))
    }
}

impl<T: BucketTree> Controller for PathOram<T> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.engines[0].tree().body_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        if addr.0 >= self.blocks {
            return Err(Error::OutOfRange { addr, blocks: self.blocks });
        }
        self.requests.push_back(PathRequest { id, addr, announced: None });
        Ok(())
    }

    fn announce(&mut self) {
        // Labels that lie in trees are known only after these trees are accessed.
        if self.engines.len() > 1 {
            return;
        }
        for nth in 0..self.requests.len() {
            if self.requests[nth].announced.is_none() {
                let leaf = self.draw_ahead(nth);
                self.engines[0].tree_mut().prefetch(leaf);
            }
        }
    }

    fn waiting(&self) -> usize {
        self.requests.len()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.health.check()?;
        let next = self.choose();
        // If this path cannot be read, no other path is read in its place: the choice would reveal
        // the purpose of the failed read.
        self.next = Some(next);
        let read = self.engines[next.tree].fetch(next.leaf);
        self.health.after_read(read)?;
        // From here on a step cannot be repeated, since labels have changed. The callback `serve`
        // may panic.
        self.health.begin();
        let issued = self.advance(next, serve);
        self.health.end(issued)
    }

    fn sync(&mut self) -> Result {
        self.health.check()?;
        let mut synced = self.engines.iter_mut().map(|e| e.tree_mut().sync());
        let synced = synced.try_for_each(|synced| synced);
        self.health.end(synced)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

/// Labels in a block of a tree that is a position map.
fn labels_in<T: BucketTree>(tree: &T) -> Result<u64> {
    match tree.body_len() / LABEL_LEN {
        0 | 1 => Err(Error::Geometry("a block of the map holds at least two labels")),
        labels => Ok(labels as u64),
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
