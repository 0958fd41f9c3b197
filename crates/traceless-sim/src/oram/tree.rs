//! The trees of a simulation: no bodies, cached levels of either kind, and a look at where blocks
//! are found.

use super::bus::Tap;
use super::counts::FOUND_LEVELS;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::error::{Error, Result};
use traceless::tree::{BucketTree, Fill, GhostTree, Header, Shape, Substash, Treetop};
use traceless::types::{Addr, Leaf};

/// A tree that tells a [`Tap`] which paths it touches.
pub struct Tree {
    cached: Cached,
    tap: Tap,
    found: Found,
    /// Of each slot of a path: its level.
    levels: Vec<u8>,
    /// The open path.
    leaf: Leaf,
    /// Whether nothing is kept of what is written.
    forgets: bool,
}

/// A tree whose first levels are in the processor.
pub enum Cached {
    /// By themselves: blocks there are found along their path.
    Apart(Treetop<GhostTree<()>>),
    /// In a sub-stash: blocks there are found by address.
    Substash(Substash<GhostTree<()>>),
}

/// On which level the block was that a path was read for.
#[derive(Clone)]
pub struct Found(Arc<[AtomicU64; FOUND_LEVELS]>);

impl Default for Found {
    fn default() -> Self {
        Self(Arc::new([const { AtomicU64::new(0) }; FOUND_LEVELS]))
    }
}

impl Found {
    /// Of each level, how often it was there.
    pub fn counts(&self) -> [u64; FOUND_LEVELS] {
        core::array::from_fn(|level| self.0[level].load(Ordering::Relaxed))
    }

    /// Forgets all.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl Tree {
    /// `cached`, which tells `tap` what it touches, and `found` where blocks were.
    pub fn new(cached: Cached, tap: Tap, found: Found) -> Self {
        let shape = cached.shape();
        let of_level =
            |level: usize| core::iter::repeat_n(level.min(FOUND_LEVELS - 1) as u8, shape.z(level));
        Self {
            levels: (0..shape.levels()).flat_map(of_level).collect(),
            cached,
            tap,
            found,
            leaf: Leaf(0),
            forgets: false,
        }
    }

    /// From now on nothing is kept of what is written.
    pub fn forget(&mut self) {
        self.forgets = true;
    }
}

impl Cached {
    fn tree(&self) -> &dyn BucketTree {
        match self {
            Self::Apart(tree) => tree,
            Self::Substash(tree) => tree,
        }
    }

    fn shape(&self) -> &Shape {
        self.tree().shape()
    }
}

/// Calls a method of whichever tree it is.
macro_rules! on {
    ($self:ident, $tree:ident => $call:expr) => {
        match &mut $self.cached {
            Cached::Apart($tree) => $call,
            Cached::Substash($tree) => $call,
        }
    };
}

impl BucketTree for Tree {
    fn shape(&self) -> &Shape {
        self.cached.shape()
    }

    fn body_len(&self) -> usize {
        0
    }

    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.leaf = leaf;
        self.tap.read(leaf);
        if self.forgets {
            headers.fill(Header::EMPTY);
            return Ok(());
        }
        on!(self, tree => tree.read_path(leaf, headers))
    }

    fn body(&self, slot: usize) -> &[u8] {
        self.cached.tree().body(slot)
    }

    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        on!(self, tree => tree.body_mut(slot))
    }

    fn copy_body(&mut self, from: usize, to: usize) {
        on!(self, tree => tree.copy_body(from, to));
    }

    fn admit(&mut self, slot: usize, header: Header) -> bool {
        on!(self, tree => tree.admit(slot, header))
    }

    fn vacate(&mut self, slot: usize) {
        self.found.0[usize::from(self.levels[slot])].fetch_add(1, Ordering::Relaxed);
        on!(self, tree => tree.vacate(slot));
    }

    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        on!(self, tree => tree.find(addr))
    }

    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        on!(self, tree => tree.extract(addr, body))
    }

    fn write_path(&mut self, headers: &[Header]) -> Result {
        self.tap.write(self.leaf);
        if self.forgets {
            return Ok(());
        }
        on!(self, tree => tree.write_path(headers))
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }
}

/// Unseen: a simulation begins with a tree that is full.
impl Fill for Tree {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        match &mut self.cached {
            Cached::Apart(tree) => tree.fill_bucket(level, bucket, headers, bodies),
            Cached::Substash(tree) if tree.inner().shape().z(level) > 0 => {
                tree.inner_mut().fill_bucket(level, bucket, headers, bodies)
            }
            Cached::Substash(tree) => {
                let mut blocks = headers.iter().filter(|header| !header.is_empty());
                if blocks.all(|&header| tree.place(header)) {
                    return Ok(());
                }
                Err(Error::Geometry("a set of the sub-stash is full before anything is accessed"))
            }
        }
    }
}
