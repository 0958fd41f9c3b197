//! Path ORAM, flat or recursive: every access reads and rewrites one random path of each tree.
//!
//! Tree 0 holds the user's blocks. Each further tree holds the position map of the one before, many
//! labels to a block; the labels of the last lie in trusted memory. An access goes through the
//! trees from the last to the first: it learns the block's path, puts the block onto a fresh random
//! one, and reads and rewrites the old.
//!
//! Paper: Stefanov et al., CCS'13; recursion as in unified-oram, section 2.2.

mod durable;
mod fill;
mod geometry;
mod relabel;
#[cfg(feature = "std")]
mod unsaved;

pub use durable::DurablePath;
pub use geometry::{Geometry, MAP_MEMORY, UNSYNCED};
#[cfg(feature = "std")]
pub use unsaved::{Unsaved, in_memory, in_memory_filled};

use crate::controller::{Controller, Issued, Kind, Serve};
use crate::error::{Error, Result};
use crate::oram::Hides;
use crate::posmap::{Flat, LABEL_LEN, swap_label};
use crate::rng::Rng;
use crate::tree::{BucketTree, Drains, Engine, TREE_BLOCKS_MAX};
use crate::types::{Addr, Leaf};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct PathOram<T> {
    blocks: u64,
    engines: Vec<Engine<T>>,
    top: Flat,
    rng: Box<dyn Rng>,
    drains: Drains,
    requests: VecDeque<Request>,
    /// Where the request that is under way continues.
    next: Option<Next>,
    /// Where the round that nothing asked for continues, and what it is for.
    unasked: Option<(usize, Kind)>,
    failed: bool,
}

/// What waits for its turn.
struct Request {
    id: u64,
    addr: Addr,
    /// The paths that its block is on when its turn comes, and then, if they were drawn already.
    announced: Option<(Leaf, Leaf)>,
}

/// The path access that comes next.
#[derive(Clone, Copy)]
struct Next {
    tree: usize,
    /// The path that its block is on now, and is on then.
    old: Leaf,
    new: Leaf,
}

impl<T: BucketTree> PathOram<T> {
    /// For `blocks` blocks in the first of `trees`, each of which holds nothing yet, and the map of
    /// each tree in the next. Each stash holds at most `stash_blocks` blocks.
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
            unasked: None,
            failed: false,
        })
    }

    /// With more than `blocks` blocks in a stash a step does nothing but empty it: three quarters
    /// of its limit, if this is not called. Hardware needs room for a path besides, so it counts
    /// from the stash's size less the slots of a path.
    pub fn drain_above(&mut self, blocks: usize) {
        self.drains = Drains::above(blocks);
    }

    /// The engines, that of the user's blocks first.
    pub fn engines(&self) -> &[Engine<T>] {
        &self.engines
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        let stashes = self.engines.iter().map(|engine| engine.stash().len());
        let blocks = stashes.max().expect("there is a tree");
        if let Some((tree, kind)) = self.unasked.take() {
            return self.unasked(tree, kind);
        }
        let last = self.engines.len() - 1;
        // Between requests, when everything may be saved.
        if self.next.is_none() && self.drains.is_due(blocks) {
            return self.unasked(last, Kind::Eviction);
        }
        let Some(&Request { id, addr, announced }) = self.requests.front() else {
            return self.unasked(last, Kind::Dummy);
        };
        let next = self.next.take().unwrap_or_else(|| self.enter(addr, announced));
        self.visit(next, addr, |body| serve(id, body))?;
        if next.tree > 0 {
            return Ok(Issued { kind: Kind::PosMap(next.tree as u8), finished: None });
        }
        self.requests.pop_front();
        Ok(Issued { kind: Kind::Data, finished: Some(id) })
    }

    /// Looks a request's block of the last tree up.
    fn enter(&mut self, addr: Addr, announced: Option<(Leaf, Leaf)>) -> Next {
        let tree = self.engines.len() - 1;
        let block = self.block_of(addr, tree);
        if let Some((old, new)) = announced {
            self.top.remap(block, new);
            return Next { tree, old, new };
        }
        let new = self.draw(tree);
        let old = self.top.remap(block, new);
        Next { tree, old: old.unwrap_or_else(|| self.draw(tree)), new }
    }

    /// Draws what the request `nth` will be seen to do. The map is left as it is: until then it may
    /// be saved. A block asked for twice is on another path the second time, as without this.
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

    /// Accesses a request's block of one tree.
    fn visit(&mut self, next: Next, addr: Addr, serve: impl FnOnce(&mut [u8])) -> Result {
        let Next { tree, old, new } = next;
        let block = self.block_of(addr, tree);
        let engine = &mut self.engines[tree];
        engine.fetch(old)?;
        let nth = engine.take(block, new)?;
        if tree == 0 {
            serve(engine.stash_mut().body_mut(nth));
        } else {
            let (child, below) = (self.block_of(addr, tree - 1), self.draw(tree - 1));
            let body = self.engines[tree].stash_mut().body_mut(nth);
            let labels = (body.len() / LABEL_LEN) as u64;
            let at = (child.0 % labels) as usize * LABEL_LEN;
            let label = swap_label(&mut body[at..at + LABEL_LEN], below);
            let old = label.unwrap_or_else(|| self.draw(tree - 1));
            self.next = Some(Next { tree: tree - 1, old, new: below });
        }
        self.engines[tree].evict()
    }

    /// A path access that nothing asked for, in its turn: as a request would, it goes on through
    /// all trees, the user's blocks last.
    fn unasked(&mut self, tree: usize, kind: Kind) -> Result<Issued> {
        self.unasked = tree.checked_sub(1).map(|next| (next, kind));
        let leaf = self.draw(tree);
        self.engines[tree].dummy(leaf)?;
        Ok(Issued { kind, finished: None })
    }

    /// The block of a tree that an access to `addr` is about.
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
        self.requests.push_back(Request { id, addr, announced: None });
        Ok(())
    }

    fn announce(&mut self) {
        // Labels that lie in trees are not known before those are accessed.
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

    fn step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        if self.failed {
            return Err(Error::Poisoned);
        }
        // What was half done cannot be done again: the labels have changed. Who is served may
        // panic.
        self.failed = true;
        let issued = self.try_step(serve)?;
        self.failed = false;
        Ok(issued)
    }

    fn sync(&mut self) -> Result {
        if self.failed {
            return Err(Error::Poisoned);
        }
        let mut synced = self.engines.iter_mut().map(|e| e.tree_mut().sync());
        synced.try_for_each(|synced| synced).inspect_err(|_| self.failed = true)
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
