//! The trees of a simulation: without bodies, with cached levels of either kind, and with counts of
//! where blocks were found.

use super::counts::FOUND_LEVELS;
use super::step_trace::PathRecorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use traceless::error::{Error, Result};
use traceless::rng::{Rng, SeededRng};
use traceless::tree::{BareTree, BucketTree, Fill, Header, Shape, Substash, Treetop};
use traceless::types::{Addr, Leaf};

/// A tree that reports to a [`PathRecorder`] which paths it touches.
pub struct Tree {
    cached: CachedTop,
    recorder: PathRecorder,
    seen: LevelCounts,
    /// Draws the paths for which slots are counted, if any are.
    rng: Option<SeededRng>,
    /// For each slot of a path: its level, and the header that the last look found in it.
    levels: Vec<u8>,
    headers: Vec<Header>,
    /// The leaf of the path that was read last.
    leaf: Leaf,
    /// Whether the tree drops what is written to it.
    forgets: bool,
    /// Paths that were written.
    written: u64,
}

/// A tree with its first levels in the processor.
pub enum CachedTop {
    /// In a cache of their own: blocks are found along their path.
    Apart(Treetop<BareTree>),
    /// In a sub-stash: blocks are found by address.
    Substash(Substash<BareTree>),
}

/// Writes of paths after which the slots of a random path are counted.
const LOOK_EVERY: u64 = 16;

/// Counts for each level, shared by all trees of a scheme.
#[derive(Clone, Default)]
pub struct LevelCounts(Arc<[OfLevel; FOUND_LEVELS]>);

#[derive(Default)]
struct OfLevel {
    found: AtomicU64,
    slots: AtomicU64,
    full: AtomicU64,
}

impl LevelCounts {
    /// How often the block that a path was read for was on each level.
    pub fn found(&self) -> [u64; FOUND_LEVELS] {
        self.of_levels(|level| &level.found)
    }

    /// The slots that were looked at.
    pub fn slots(&self) -> [u64; FOUND_LEVELS] {
        self.of_levels(|level| &level.slots)
    }

    /// The slots looked at that held a block.
    pub fn full(&self) -> [u64; FOUND_LEVELS] {
        self.of_levels(|level| &level.full)
    }

    fn of_levels(&self, count: impl Fn(&OfLevel) -> &AtomicU64) -> [u64; FOUND_LEVELS] {
        core::array::from_fn(|level| count(&self.0[level]).load(Ordering::Relaxed))
    }

    /// Sets all counts to 0.
    pub fn reset(&self) {
        for OfLevel { found, slots, full } in self.0.iter() {
            for count in [found, slots, full] {
                count.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// Calls a method of either kind of tree.
macro_rules! on {
    ($self:ident, $tree:ident => $call:expr) => {
        match &mut $self.cached {
            CachedTop::Apart($tree) => $call,
            CachedTop::Substash($tree) => $call,
        }
    };
}

impl Tree {
    /// A tree over `cached`. It reports to `recorder` which paths it touches, and counts in `seen`
    /// where blocks were found; with `is_looked_at` also how full its levels are.
    pub fn new(
        cached: CachedTop,
        recorder: PathRecorder,
        seen: LevelCounts,
        is_looked_at: bool,
    ) -> Self {
        let shape = cached.shape();
        let headers = vec![Header::EMPTY; shape.path_slots()];
        let of_level =
            |level: usize| core::iter::repeat_n(level.min(FOUND_LEVELS - 1) as u8, shape.z(level));
        Self {
            levels: (0..shape.levels()).flat_map(of_level).collect(),
            cached,
            recorder,
            seen,
            rng: is_looked_at.then(|| SeededRng::new(1)),
            headers,
            leaf: Leaf(0),
            written: 0,
            forgets: false,
        }
    }

    /// From now on drops what is written.
    pub fn forget(&mut self) {
        self.forgets = true;
    }

    /// Counts the slots of a random path, and how many hold blocks, independent of all accesses.
    /// Must be called between two accesses, when no path is open.
    fn look(&mut self) -> Result {
        let Some(rng) = &mut self.rng else { return Ok(()) };
        let leaf = Leaf(rng.below(self.cached.shape().leaves()));
        on!(self, tree => tree.read_path(leaf, &mut self.headers))?;
        for (&level, header) in self.levels.iter().zip(&self.headers) {
            let OfLevel { slots, full, .. } = &self.seen.0[usize::from(level)];
            slots.fetch_add(1, Ordering::Relaxed);
            full.fetch_add(u64::from(!header.is_empty()), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl CachedTop {
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

impl BucketTree for Tree {
    fn shape(&self) -> &Shape {
        self.cached.shape()
    }

    fn body_len(&self) -> usize {
        0
    }

    fn expect(&mut self, leaf: Leaf) {
        on!(self, tree => tree.expect(leaf));
    }

    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.leaf = leaf;
        self.recorder.read(leaf);
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
        self.seen.0[usize::from(self.levels[slot])].found.fetch_add(1, Ordering::Relaxed);
        on!(self, tree => tree.vacate(slot));
    }

    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        on!(self, tree => tree.find(addr))
    }

    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        on!(self, tree => tree.extract(addr, body))
    }

    fn write_path(&mut self, headers: &[Header]) -> Result {
        self.recorder.write(self.leaf);
        if self.forgets {
            return Ok(());
        }
        on!(self, tree => tree.write_path(headers))?;
        self.written += 1;
        if self.written.is_multiple_of(LOOK_EVERY) { self.look() } else { Ok(()) }
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }
}

/// Filling is not reported to the recorder: a simulation begins with a full tree.
impl Fill for Tree {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        match &mut self.cached {
            CachedTop::Apart(tree) => tree.fill_bucket(level, bucket, headers, bodies),
            CachedTop::Substash(tree) if tree.inner().shape().z(level) > 0 => {
                tree.inner_mut().fill_bucket(level, bucket, headers, bodies)
            }
            CachedTop::Substash(tree) => {
                let mut blocks = headers.iter().filter(|header| !header.is_empty());
                if blocks.all(|&header| tree.place(header)) {
                    return Ok(());
                }
                Err(Error::Geometry("a set of the sub-stash is full before anything is accessed"))
            }
        }
    }
}
