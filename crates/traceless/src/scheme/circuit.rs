//! Circuit ORAM for a client with private memory: small buckets, a short stash, and the same number
//! of paths for each request, regardless of earlier requests.
//!
//! Two kinds of steps alternate, whether or not a request waits. The first kind reads the path of a
//! requested block, or a random path, and evicts once along it. The second evicts twice along the
//! next path in reverse-lexicographic order. So a step reads and writes one path, and a request
//! takes two steps; if the eviction step was the last one, a request is served in one step.
//!
//! The position map is flat, in trusted memory. The oblivious client has the same evictions as
//! constant-time code (`oblivious`); this implementation is for a controller or a trusted host,
//! over any tree.
//!
//! Paper: Wang, Chan, Shi, CCS'15. The paper evicts along two paths after each access, and not
//! along the accessed one; docs/papers.md gives the reason for this difference.
//!
//! A request is served by the second step, after an eviction:
//!
//! ```
//! use traceless::Addr;
//! use traceless::controller::{Controller, StepKind};
//! use traceless::rng::System;
//! use traceless::scheme::circuit::{Circuit, STASH_BLOCKS, Z, shape_for};
//! use traceless::tree::BareTree;
//!
//! # fn main() -> traceless::Result {
//! let tree = BareTree::new(shape_for(1000, Z)?, 64);
//! let mut oram = Circuit::new(1000, tree, STASH_BLOCKS, Box::new(System))?;
//! oram.submit(1, Addr(7))?;
//! assert_eq!(oram.step(&mut |_, _| {})?.kind, StepKind::Eviction);
//! let outcome = oram.step(&mut |_, block| block.fill(5))?;
//! assert_eq!((outcome.kind, outcome.finished), (StepKind::Data, Some(1)));
//!
//! // Without a request the two kinds of steps alternate as well.
//! let kinds = [oram.step(&mut |_, _| {})?.kind, oram.step(&mut |_, _| {})?.kind];
//! assert_eq!(kinds, [StepKind::Eviction, StepKind::Dummy]);
//! # Ok(())
//! # }
//! ```

use super::health::Health;
use super::requests::Requests;
use crate::controller::{Controller, Serve, StepKind, StepOutcome};
use crate::posmap::Flat;
use crate::tree::{BucketTree, Engine, EvictionOrder, Shape, TREE_BLOCKS_MAX};
use alloc::boxed::Box;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::Rng;
use traceless_core::types::{Addr, Leaf};

/// Blocks that the stash holds at most. With two slots per bucket, half of them in use, the
/// probability of overflow is about 2^-60, by extrapolation: each further block is about 3.4 times
/// less likely.
pub const STASH_BLOCKS: usize = 32;

/// Slots of a bucket, by default.
pub const Z: u8 = 2;

/// Up to this number of blocks the tree is one level deeper than necessary: in small trees the
/// stash holds more blocks, and the extra memory is negligible.
const SMALL_BLOCKS: u64 = 1 << 14;

/// The scheme, as a [`Controller`]. See the [module](self).
pub struct Circuit<T> {
    engine: Engine<T>,
    map: Flat,
    rng: Box<dyn Rng>,
    order: EvictionOrder,
    requests: Requests,
    eviction_is_due: bool,
    /// The next path access, if its path could not be read.
    next: Option<CircuitAccess>,
    health: Health,
}

/// A path access that is to be made.
#[derive(Clone, Copy)]
struct CircuitAccess {
    leaf: Leaf,
    purpose: CircuitPurpose,
}

#[derive(Clone, Copy)]
enum CircuitPurpose {
    Eviction,
    /// An access that serves no request.
    Dummy,
    /// Serves the first request; its block is then on the path of `new`.
    Request {
        id: u64,
        addr: Addr,
        new: Leaf,
    },
}

/// Levels of the tree for `blocks` blocks, 2^32 at most: at Z = 2, at most half of its slots are in
/// use, in a small tree a quarter.
pub fn levels_for(blocks: u64) -> u32 {
    let levels = blocks.max(1).next_power_of_two().ilog2();
    if blocks <= SMALL_BLOCKS { levels + 1 } else { levels }
}

/// The tree for `blocks` blocks, with `z` slots per bucket.
pub fn shape_for(blocks: u64, z: u8) -> Result<Shape> {
    if blocks > TREE_BLOCKS_MAX {
        return Err(Error::Geometry("more blocks than a tree has numbers for"));
    }
    Shape::uniform(levels_for(blocks) as usize, z)
}

impl<T: BucketTree> Circuit<T> {
    /// For `blocks` blocks in `tree`, which must be empty. The stash holds at most `stash_blocks`
    /// blocks.
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
            next: None,
            health: Health::default(),
        })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    /// Chooses the next path access. The map does not change until the path is read.
    fn choose(&mut self) -> CircuitAccess {
        self.eviction_is_due = !self.eviction_is_due;
        if !self.eviction_is_due {
            let leaf = self.order.next(self.engine.shape());
            return CircuitAccess { leaf, purpose: CircuitPurpose::Eviction };
        }
        let new = self.draw();
        match self.requests.first() {
            Some((id, addr)) => {
                let leaf = self.map.label(addr).unwrap_or_else(|| self.draw());
                CircuitAccess { leaf, purpose: CircuitPurpose::Request { id, addr, new } }
            }
            None => CircuitAccess { leaf: new, purpose: CircuitPurpose::Dummy },
        }
    }

    /// Serves the purpose of the path that was read, and writes the path.
    fn advance(&mut self, purpose: CircuitPurpose, serve: Serve<'_>) -> Result<StepOutcome> {
        let (kind, finished) = match purpose {
            CircuitPurpose::Eviction => {
                self.engine.evict_once();
                (StepKind::Eviction, None)
            }
            CircuitPurpose::Dummy => (StepKind::Dummy, None),
            CircuitPurpose::Request { id, addr, new } => {
                self.map.remap(addr, new);
                let nth = self.engine.take(addr, new)?;
                serve(id, self.engine.stash_mut().body_mut(nth));
                (StepKind::Data, Some(id))
            }
        };
        self.engine.evict_once();
        self.engine.write_back()?;
        if finished.is_some() {
            self.requests.finish();
        }
        Ok(StepOutcome { kind, finished })
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

    fn waiting(&self) -> usize {
        self.requests.waiting()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.health.check()?;
        let next = self.next.take().unwrap_or_else(|| self.choose());
        let read = self.engine.fetch(next.leaf).inspect_err(|_| self.next = Some(next));
        self.health.after_read(read)?;
        self.health.begin();
        let issued = self.advance(next.purpose, serve);
        self.health.end(issued)
    }

    fn sync(&mut self) -> Result {
        self.health.check()?;
        let synced = self.engine.tree_mut().sync();
        self.health.end(synced)
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
