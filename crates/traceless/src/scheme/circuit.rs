//! Circuit ORAM with a client whose memory is its own: small buckets, a short stash, and as many
//! paths for each request whatever was requested before.
//!
//! Steps take turns, whether a request waits or not. One reads a random path, or that of a block,
//! and evicts once along it. The next evicts twice along the next path in reverse-lexicographic
//! order. So a step is one path that is read and written, and a request is two of them; after an
//! eviction that is due, a request is served in one step.
//!
//! The position map is flat, in trusted memory. The oblivious client has the same evictions as
//! constant-time code (`oblivious`); this one is what a controller or a trusted host runs, over any
//! tree.
//!
//! Paper: Wang, Chan, Shi, CCS'15. It evicts along two paths after each access, and not along the
//! one accessed; docs/papers.md says why this does.

use super::requests::Requests;
use crate::controller::{Controller, Issued, Kind, Serve};
use crate::error::{Error, Result};
use crate::oram::Hides;
use crate::posmap::Flat;
use crate::rng::Rng;
use crate::tree::{BucketTree, Engine, EvictionOrder, Shape, TREE_BLOCKS_MAX};
use crate::types::{Addr, Leaf};
use alloc::boxed::Box;

/// Blocks that the stash holds at most. With two slots a bucket and half of them used, that more
/// wait has a probability of about 2^-60, by extrapolation: each further block is about 3.4 times
/// less likely.
pub const STASH_BLOCKS: usize = 32;

/// Slots of a bucket, unless there is a reason for more.
pub const Z: u8 = 2;

/// Up to so many blocks a tree is a level deeper than it need be: in small trees more blocks wait
/// in the stash, and the memory is nothing to speak of.
const SMALL_BLOCKS: u64 = 1 << 14;

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Circuit<T> {
    engine: Engine<T>,
    map: Flat,
    rng: Box<dyn Rng>,
    order: EvictionOrder,
    requests: Requests,
    eviction_is_due: bool,
}

/// Levels of the tree for `blocks` blocks, 2^32 at most: at Z = 2 half of its slots are used at
/// most, of a small tree a quarter.
pub fn levels_for(blocks: u64) -> u32 {
    let levels = blocks.max(1).next_power_of_two().ilog2();
    if blocks <= SMALL_BLOCKS { levels + 1 } else { levels }
}

/// The tree for `blocks` blocks, with `z` slots a bucket.
pub fn shape_for(blocks: u64, z: u8) -> Result<Shape> {
    if blocks > TREE_BLOCKS_MAX {
        return Err(Error::Geometry("more blocks than a tree has numbers for"));
    }
    Shape::uniform(levels_for(blocks) as usize, z)
}

impl<T: BucketTree> Circuit<T> {
    /// For `blocks` blocks in `tree`, which holds nothing yet. The stash holds at most
    /// `stash_blocks` blocks.
    pub fn new(blocks: u64, tree: T, stash_blocks: usize, rng: Box<dyn Rng>) -> Result<Self> {
        if blocks > TREE_BLOCKS_MAX || blocks > tree.shape().slots() {
            return Err(Error::Geometry("more blocks than the tree has room for"));
        }
        if tree.shape().leaves() >= u64::from(u32::MAX) {
            return Err(Error::Geometry("more leaves than a label can name"));
        }
        Ok(Self {
            map: Flat::new(usize::try_from(blocks).map_err(|_| Error::Geometry("map"))?),
            engine: Engine::new(tree, stash_blocks),
            rng,
            order: EvictionOrder::default(),
            requests: Requests::new(blocks),
            eviction_is_due: true,
        })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    fn try_step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        self.eviction_is_due = !self.eviction_is_due;
        if !self.eviction_is_due {
            let leaf = self.order.next(self.engine.shape());
            self.engine.fetch(leaf)?;
            self.engine.evict_once();
            self.engine.evict_once();
            self.engine.write_back()?;
            return Ok(Issued { kind: Kind::Eviction, finished: None });
        }
        let Some((id, addr)) = self.requests.first() else {
            let leaf = self.draw();
            self.engine.fetch(leaf)?;
            self.put_back()?;
            return Ok(Issued { kind: Kind::Dummy, finished: None });
        };
        self.visit(addr, |body| serve(id, body))?;
        self.put_back()?;
        self.requests.finish();
        Ok(Issued { kind: Kind::Data, finished: Some(id) })
    }

    /// Ends an access.
    fn put_back(&mut self) -> Result {
        self.engine.evict_once();
        self.engine.write_back()
    }

    /// Fetches the path of a block, and puts the block onto another.
    fn visit(&mut self, addr: Addr, serve: impl FnOnce(&mut [u8])) -> Result {
        let new = self.draw();
        let old = self.map.remap(addr, new).unwrap_or_else(|| self.draw());
        self.engine.fetch(old)?;
        let nth = self.engine.take(addr, new)?;
        serve(self.engine.stash_mut().body_mut(nth));
        Ok(())
    }

    fn draw(&mut self) -> Leaf {
        Leaf(self.rng.below(self.engine.shape().leaves()))
    }
}

impl<T: BucketTree> Controller for Circuit<T> {
    fn blocks(&self) -> u64 {
        self.requests.blocks()
    }

    fn block_len(&self) -> usize {
        self.engine.tree().body_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.requests.submit(id, addr)
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        self.requests.check()?;
        let outcome = self.try_step(serve);
        self.requests.noted(outcome)
    }

    fn sync(&mut self) -> Result {
        self.requests.check()?;
        let outcome = self.engine.tree_mut().sync();
        self.requests.noted(outcome)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
