//! A Path ORAM that can be saved; a crash takes it back to its last sync.
//!
//! Between two syncs the buckets that were written stay in memory: see `scheme/saves`.
//!
//! The time of a sync, and the set of buckets that it writes, follow from the leaves that were read
//! and from the number of accesses; everything else is padded to its limit.
//!
//! A crash takes labels back, too. A block that was accessed after the last sync is, by its old
//! label, on the path that was read for that access, and the next access to the block would read
//! this path again. So an opening after a crash first gives every block another label, in a pass
//! over the leaves in order; if the pass is interrupted, the next opening starts it again. The pass
//! finds blocks by the headers in the buckets, so it does not need the maps; they are rebuilt at
//! its end.

use super::geometry::{PathGeometry, PlacedTree, family};
use super::{Controller, PathAccess, PathOram, PathPurpose, Serve, StepOutcome};
use crate::controller::{StepKind, SteppedOram};
use crate::scheme::keys::Keys;
use crate::scheme::saves::Saves;
use crate::tree::{Contents, SealedTree, Treetop, extents_at};
use alloc::boxed::Box;
use alloc::vec::Vec;
use traceless_core::durable::Durable;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Hides;
use traceless_core::rng::SeededRng;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::openings::{KEY_BYTES_MAX, OPENINGS_MANY, SchemeState};
use traceless_core::types::{Addr, Extent, Leaf};

type Tree = Treetop<SealedTree<Keys>>;

/// A Path ORAM that can be saved; a crash takes it back to its last sync. Use it through
/// [`SteppedOram`], which never syncs within a request.
pub struct DurablePath {
    oram: PathOram<Tree>,
    geometry: PathGeometry,
    trees: Vec<PlacedTree>,
    saves: Saves,
    /// Accesses since the last sync.
    unsynced: u32,
    /// Bytes that the keys of one opening may seal, not counting the accesses until the next sync.
    key_bytes_max: u64,
}

impl DurablePath {
    /// Creates a Path ORAM in which every block reads as zeros.
    pub fn create(geometry: PathGeometry, context: SchemeContext) -> Result<SteppedOram<Self>> {
        Self::new(geometry, context).map(SteppedOram::new)
    }

    /// Creates a Path ORAM filled with every block. Each bucket is written once, in a fixed order.
    /// The order of the calls of `contents` must be hidden from the adversary.
    pub fn create_filled(
        geometry: PathGeometry,
        context: SchemeContext,
        contents: Contents<'_>,
    ) -> Result<SteppedOram<Self>> {
        let mut new = Self::assemble(geometry, context, &SchemeState::default())?;
        new.begin_opening()?;
        // Writing to the buckets' places is safe: there is no earlier save to spoil.
        new.oram.fill(contents)?;
        new.hold_back();
        new.save()?;
        Ok(SteppedOram::new(new))
    }

    /// Opens the Path ORAM from the last `state` in its vault, as it was at its last sync.
    pub fn open(
        geometry: PathGeometry,
        context: SchemeContext,
        state: &[u8],
    ) -> Result<SteppedOram<Self>> {
        let state = SchemeState::decode(state)?;
        let mut opened = Self::reopen(geometry, context, &state)?;
        if opened.saves.life.takes_writes() {
            if !state.clean {
                opened.relabel()?;
            }
            opened.retire_if_many()?;
        }
        Ok(SteppedOram::new(opened))
    }

    fn new(geometry: PathGeometry, context: SchemeContext) -> Result<Self> {
        let mut new = Self::assemble(geometry, context, &SchemeState::default())?;
        new.begin_opening()?;
        new.hold_back();
        new.save()?;
        Ok(new)
    }

    /// Opens the ORAM as it was at its last sync, labels included.
    fn reopen(geometry: PathGeometry, context: SchemeContext, state: &SchemeState) -> Result<Self> {
        let mut opened = Self::assemble(geometry, context, state)?;
        opened.hold_back();
        let held = opened.load()?;
        if opened.saves.life.takes_writes() {
            if state.clean {
                opened.saves.keep_open()?;
            } else {
                opened.redo(&held)?;
            }
            opened.begin_opening()?;
        }
        Ok(opened)
    }

    fn assemble(
        geometry: PathGeometry,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        geometry.check()?;
        let placed = geometry.trees();
        let copies = geometry.copies(&placed);
        let mut saves = Saves::new(copies, b"path state", geometry.to_bytes(), context, state)?;
        let mut trees = Vec::new();
        for (nth, tree) in placed.iter().enumerate() {
            let keys = Keys::new(state, saves.key(), family(nth as u8));
            let salts = saves.life.rng.fork();
            let (store, first) = saves.store();
            let (store, at, body_len) = (store.clone(), first + tree.at, tree.body_len);
            let shape = tree.below();
            let below = SealedTree::create(store, at, tree.name, shape, body_len, keys, salts)?;
            trees.push(Treetop::new(tree.shape.clone(), tree.cached, below)?);
        }
        let leaves = Box::new(SeededRng::drawn(&mut *saves.life.rng));
        let stash_blocks = geometry.stash_blocks as usize;
        Ok(Self {
            oram: PathOram::new(geometry.blocks, trees, stash_blocks, leaves)?,
            trees: placed,
            geometry,
            saves,
            unsynced: 0,
            key_bytes_max: KEY_BYTES_MAX / 2,
        })
    }

    /// From now on writes are held back until a sync, so the store keeps the saved buckets.
    fn hold_back(&mut self) {
        self.oram.engines.iter_mut().for_each(|e| e.tree_mut().inner_mut().hold_back());
    }

    /// Continues all trees with the same number, under new keys.
    fn begin_opening(&mut self) -> Result {
        let counts = self.oram.engines.iter().map(|e| e.tree().inner().path_writes());
        let start = counts.max().unwrap_or(0);
        let opening = self.saves.begin_opening(start)?;
        for engine in &mut self.oram.engines {
            let tree = engine.tree_mut().inner_mut();
            tree.skip_to(start);
            tree.sealer_mut().push(opening, self.saves.key())?;
        }
        Ok(())
    }

    /// Rewrites every bucket before there are too many openings, in an order that reveals nothing.
    fn retire_if_many(&mut self) -> Result {
        if self.saves.openings().len() < OPENINGS_MANY {
            return Ok(());
        }
        // Further openings may begin before the pass ends.
        let start = self.saves.openings().last().start;
        for tree in 0..self.trees.len() {
            for leaf in 0..self.trees[tree].shape.leaves() {
                self.oram.rewrite(tree, Leaf(leaf))?;
                self.count_access()?;
            }
        }
        self.save()?;
        self.saves.forget_before(start);
        for engine in &mut self.oram.engines {
            engine.tree_mut().inner_mut().sealer_mut().forget_before(start);
        }
        Ok(())
    }

    /// Gives every block another label, rebuilds the maps from these labels, and makes both
    /// durable.
    fn relabel(&mut self) -> Result {
        let mut pass = self.oram.begin_relabelling();
        while self.oram.relabel_some(&mut pass)? {
            self.count_access()?;
        }
        // The first save writes the buckets that are held back. The fill then writes the maps to
        // their places directly: until all maps are durable, no opening reads them.
        self.save()?;
        self.oram.end_relabelling(pass)?;
        self.save()
    }

    /// Syncs before too many buckets are held back.
    fn count_access(&mut self) -> Result {
        self.unsynced += 1;
        if self.unsynced == self.geometry.unsynced_max { self.save() } else { Ok(()) }
    }

    /// Makes everything durable: log and state, then the vault, then the bucket places.
    fn save(&mut self) -> Result {
        let mut saved = Vec::new();
        self.oram.engines.iter().for_each(|engine| engine.save(&mut saved));
        self.oram.top.save(&mut saved);
        let held = self.oram.engines.iter().map(|engine| engine.tree().inner().held());
        let held: Option<Vec<_>> = held.collect();
        self.saves.save(saved, &held.expect("all writes are held back"))?;
        self.write_pending().inspect_err(|_| self.saves.life.poison())
    }

    fn write_pending(&mut self) -> Result {
        for engine in &mut self.oram.engines {
            engine.tree_mut().inner_mut().write_pending()?;
        }
        self.unsynced = 0;
        self.renew_keys()
    }

    /// Begins a new opening before the keys of this one have sealed too much.
    fn renew_keys(&mut self) -> Result {
        let start = self.saves.openings().last().start;
        let sealed = self.oram.engines.iter().zip(&self.trees).map(|(engine, tree)| {
            (engine.tree().inner().path_writes() - start) * tree.layout.path_len() as u64
        });
        if sealed.max().unwrap_or(0) > self.key_bytes_max {
            self.begin_opening()?;
        }
        Ok(())
    }

    /// Loads the newest state; returns the places in each tree that its log belongs to.
    fn load(&mut self) -> Result<Vec<Vec<Extent>>> {
        let loaded = self.saves.load()?;
        let mut rest = &loaded.saved[..];
        for engine in &mut self.oram.engines {
            engine.load(&mut rest)?;
        }
        self.oram.top.load(&mut rest)?;
        let extents = |(tree, places): (&PlacedTree, Vec<u64>)| {
            let bucket = |at| tree.layout.bucket_len_at(at).map(|len| Extent::new(at, len));
            let extents: Option<_> = places.into_iter().map(bucket).collect();
            extents.ok_or(Error::State("it names a bucket that the tree does not have"))
        };
        self.trees.iter().zip(loaded.places).map(extents).collect()
    }

    /// Writes the log to its places again, since the last sync may not have finished that.
    fn redo(&mut self, held: &[Vec<Extent>]) -> Result {
        let (_, first) = self.saves.store();
        for (nth, (tree, extents)) in self.trees.iter().zip(held).enumerate() {
            self.saves.redo(nth, &extents_at(first + tree.at, extents))?;
        }
        Ok(())
    }
}

impl Controller for DurablePath {
    fn blocks(&self) -> u64 {
        self.oram.blocks()
    }

    fn block_len(&self) -> usize {
        self.oram.block_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.saves.life.writable()?;
        self.oram.submit(id, addr)
    }

    fn announce(&mut self) {
        self.oram.announce();
    }

    fn waiting(&self) -> usize {
        self.oram.waiting()
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<StepOutcome> {
        self.saves.life.writable()?;
        let issued = self.oram.step(serve)?;
        // Dummies and evictions also write buckets that wait for a sync.
        let is_unrequested = matches!(issued.kind, StepKind::Dummy | StepKind::Eviction);
        if issued.finished.is_some() || is_unrequested {
            self.count_access()?;
            self.retire_if_many()?;
        }
        Ok(issued)
    }

    fn sync(&mut self) -> Result {
        if !self.saves.life.takes_writes() {
            return Ok(());
        }
        self.saves.life.check_not_poisoned()?;
        self.oram.health.check()?;
        assert!(!self.oram.is_in_request(), "a request is finished before a sync");
        if self.unsynced > 0 { self.save() } else { Ok(()) }
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.sync()?;
        if self.saves.life.takes_writes() { self.saves.close() } else { Ok(()) }
    }
}

impl PathOram<Tree> {
    /// Whether a request is incomplete: its labels have changed in some trees but not in all.
    fn is_in_request(&self) -> bool {
        matches!(self.next, Some(PathAccess { purpose: PathPurpose::Request(_), .. }))
    }

    /// Reads and rewrites a path of one tree without a request, for callers with an order of their
    /// own.
    fn rewrite(&mut self, tree: usize, leaf: Leaf) -> Result {
        let read = self.engines[tree].fetch(leaf);
        self.health.after_read(read)?;
        self.health.begin();
        let written = self.engines[tree].evict();
        self.health.end(written)
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
