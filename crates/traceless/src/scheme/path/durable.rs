//! A Path ORAM that can be saved, and that a crash takes back to its last sync.
//!
//! Between two syncs the buckets that were written wait in memory, so that the trees in the store
//! stay those of the last sync. A sync writes all of them to a log, beside it the sealed trusted
//! state, makes both durable, and lets the vault name them; only then are the buckets written to
//! their places. There are two logs and two states, used in turns, so that one sync of the store
//! serves both the log that it makes and the places of the log before. An opening reads the state
//! that the vault names and writes its log to its places once more.
//!
//! When a sync is made, and which buckets it writes, follows from the leaves that were read and
//! from the number of accesses; all else is padded to its limit.
//!
//! What a crash takes back are labels, too. A block that was accessed after the last sync is on the
//! path that was read for it, and the next access to it would read that path again. So an opening
//! after a crash first gives every block another label, in a pass over the leaves in order; until
//! it has ended, the next opening begins it anew. Blocks are found by what their buckets say, so the
//! maps are not needed, and are made anew when the pass has ended.

use super::geometry::{Copies, Geometry, PlacedTree};
use super::keys::Keys;
use super::{Controller, Issued, PathOram, Serve};
use crate::controller::{Kind, Stepped};
use crate::durable::{Durable, load_words, save_words};
use crate::error::{Error, Place, Result};
use crate::oram::Hides;
use crate::rng::Seeded;
use crate::scheme::Parts;
use crate::scheme::lifecycle::Lifecycle;
use crate::scheme::openings::{KEY_BYTES_MAX, OPENINGS_MANY, Opening, Openings, State};
use crate::seal::{Aead, Sealer, Secret, TAG_LEN};
use crate::store::Store;
use crate::tree::{Contents, SealedTree, Treetop, extents_at};
use crate::types::{Addr, Extent, Leaf, total_len};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

type Tree = Treetop<SealedTree<Keys>>;

/// A Path ORAM that can be saved, and that a crash takes back to its last sync. To be held as
/// [`Stepped`], which never syncs within a request.
pub struct DurablePath {
    oram: PathOram<Tree>,
    geometry: Geometry,
    trees: Vec<PlacedTree>,
    copies: Copies,
    store: Arc<dyn Store>,
    first: u64,
    key: Secret,
    /// With the keys of states.
    openings: Openings<Aead>,
    life: Lifecycle,
    /// Syncs made since creation: the number of the newest state.
    syncs: u64,
    /// Accesses since the last.
    unsynced: u32,
    /// Whether a step began and has not ended: whoever was served in it may have panicked.
    in_step: bool,
    /// Bytes that the keys of one opening may seal, but for the accesses until the next sync.
    key_bytes_max: u64,
}

impl DurablePath {
    /// Makes a new one; every block reads as zeros.
    pub fn create(geometry: Geometry, parts: Parts) -> Result<Stepped<Self>> {
        Self::new(geometry, parts).map(Stepped::new)
    }

    /// Makes a new one, filled with every block: each bucket is written once, in an order that is
    /// always the same. In which order `contents` is asked for blocks must not be seen.
    pub fn create_filled(
        geometry: Geometry,
        parts: Parts,
        contents: Contents<'_>,
    ) -> Result<Stepped<Self>> {
        let mut new = Self::assemble(geometry, parts, &State::default())?;
        new.begin_opening()?;
        // Nothing was saved yet that writing to the buckets' places could spoil.
        new.oram.fill(contents)?;
        new.hold_back();
        new.save()?;
        Ok(Stepped::new(new))
    }

    /// Opens the one whose vault last kept `state`, as it was at its last sync.
    pub fn open(geometry: Geometry, parts: Parts, state: &[u8]) -> Result<Stepped<Self>> {
        let state = State::decode(state)?;
        let mut opened = Self::reopen(geometry, parts, &state)?;
        if opened.life.takes_writes() {
            if !state.clean {
                opened.relabel()?;
            }
            opened.retire_if_many()?;
        }
        Ok(Stepped::new(opened))
    }

    fn new(geometry: Geometry, parts: Parts) -> Result<Self> {
        let mut new = Self::assemble(geometry, parts, &State::default())?;
        new.begin_opening()?;
        new.hold_back();
        new.save()?;
        Ok(new)
    }

    /// Opens it as it was at its last sync, labels included.
    fn reopen(geometry: Geometry, parts: Parts, state: &State) -> Result<Self> {
        if state.at_least < parts.expect_writes {
            let (expected, found) = (parts.expect_writes, state.at_least);
            return Err(Error::RolledBack { expected, found });
        }
        let mut opened = Self::assemble(geometry, parts, state)?;
        opened.hold_back();
        opened.syncs = state.at_least;
        let held = opened.load()?;
        if opened.life.takes_writes() {
            if state.clean {
                // From the first access on, what ends without a close is a crash.
                opened.life.keep(&opened.openings.state(false, opened.syncs).encode())?;
            } else {
                opened.redo(&held)?;
            }
            opened.begin_opening()?;
        }
        Ok(opened)
    }

    fn assemble(geometry: Geometry, parts: Parts, state: &State) -> Result<Self> {
        geometry.check()?;
        parts.check_room(geometry.store_len())?;
        let Parts { store, first, key, vault, rng, read_only, .. } = parts;
        let mut life = Lifecycle::new(read_only, vault, rng);
        let placed = geometry.trees();
        let mut trees = Vec::new();
        for (nth, tree) in placed.iter().enumerate() {
            let (keys, at) = (Keys::new(state, &key, nth as u8), first + tree.at);
            let (store, body_len) = (store.clone(), tree.body_len);
            let below = SealedTree::create(store, at, tree.name, tree.below(), body_len, keys)?;
            trees.push(Treetop::new(tree.shape.clone(), tree.cached, below)?);
        }
        let leaves = Box::new(Seeded::drawn(&mut *life.rng));
        let stash_blocks = geometry.stash_blocks as usize;
        Ok(Self {
            oram: PathOram::new(geometry.blocks, trees, stash_blocks, leaves)?,
            copies: geometry.copies(&placed),
            trees: placed,
            openings: Openings::new(state, |opening| state_key(&key, opening)),
            geometry,
            store,
            first,
            key,
            life,
            syncs: 0,
            unsynced: 0,
            in_step: false,
            key_bytes_max: KEY_BYTES_MAX / 2,
        })
    }

    /// From now on what lies in the store is what was saved.
    fn hold_back(&mut self) {
        self.oram.engines.iter_mut().for_each(|e| e.tree_mut().inner_mut().hold_back());
    }

    /// Draws a new id, and lets all trees go on with the same number. Nothing is sealed under a
    /// known id again, so it may be kept with the next state.
    fn begin_opening(&mut self) -> Result {
        let counts = self.oram.engines.iter().map(|e| e.tree().inner().path_writes());
        let start = counts.max().unwrap_or(0);
        let id = self.life.draw_id();
        let opening = self.openings.next(id, start);
        self.openings.push(opening, state_key(&self.key, &opening))?;
        for (nth, engine) in self.oram.engines.iter_mut().enumerate() {
            let tree = engine.tree_mut().inner_mut();
            tree.skip_to(start);
            tree.sealer_mut().push(opening, &self.key, nth as u8)?;
        }
        Ok(())
    }

    /// Before there are too many openings, writes every bucket anew, in an order that tells
    /// nothing.
    fn retire_if_many(&mut self) -> Result {
        if self.openings.len() < OPENINGS_MANY {
            return Ok(());
        }
        for tree in 0..self.trees.len() {
            for leaf in 0..self.trees[tree].shape.leaves() {
                self.oram.engines[tree].dummy(Leaf(leaf))?;
                self.count_access()?;
            }
        }
        self.save()?;
        self.forget_older();
        Ok(())
    }

    /// Every bucket was written anew in the newest opening: only that matters.
    fn forget_older(&mut self) {
        let newest = self.openings.last().start;
        self.openings.prune(|next| next <= newest);
        for engine in &mut self.oram.engines {
            engine.tree_mut().inner_mut().sealer_mut().forget_older();
        }
    }

    /// Gives every block another label, makes the maps of that, and makes it durable.
    fn relabel(&mut self) -> Result {
        let mut pass = self.oram.begin_relabelling();
        while self.oram.relabel_some(&mut pass)? {
            self.count_access()?;
        }
        // What waits goes to its place first. The maps are written to theirs at once: until all of
        // them are durable, an opening looks at none.
        self.save()?;
        self.oram.end_relabelling(pass)?;
        self.save()
    }

    /// Refuses to go on after a failure, or after a step that did not return.
    fn healthy(&self) -> Result {
        if self.in_step { Err(Error::Poisoned) } else { self.life.healthy() }
    }

    /// Syncs before too much waits.
    fn count_access(&mut self) -> Result {
        self.unsynced += 1;
        if self.unsynced == self.geometry.unsynced_max { self.save() } else { Ok(()) }
    }

    /// Makes everything durable: log and state, then the vault, then every bucket's place.
    fn save(&mut self) -> Result {
        self.life.writable()?;
        self.try_save().inspect_err(|_| self.life.poison())
    }

    fn try_save(&mut self) -> Result {
        self.syncs += 1;
        self.write_copy()?;
        self.life.sync(&*self.store, self.syncs)?;
        let state = self.openings.state(false, self.syncs);
        self.life.keep(&state.encode())?;
        for engine in &mut self.oram.engines {
            engine.tree_mut().inner_mut().write_held()?;
        }
        self.unsynced = 0;
        self.renew_keys()
    }

    /// Begins a new opening before the keys of this one have sealed too much.
    fn renew_keys(&mut self) -> Result {
        let start = self.openings.last().start;
        let sealed = self.oram.engines.iter().zip(&self.trees).map(|(engine, tree)| {
            (engine.tree().inner().path_writes() - start) * tree.layout.path_len() as u64
        });
        if sealed.max().unwrap_or(0) > self.key_bytes_max {
            self.begin_opening()?;
        }
        Ok(())
    }

    /// First byte of the copy that the newest state is in.
    fn copy_at(&self) -> u64 {
        self.first + self.copies.at + self.syncs % 2 * self.copies.len
    }

    fn write_copy(&mut self) -> Result {
        let at = self.copy_at();
        let (mut fixed, mut table) = (Vec::new(), Vec::new());
        let mut logs = Vec::new();
        self.oram.engines.iter().for_each(|engine| engine.save(&mut fixed));
        self.oram.top.save(&mut fixed);
        for (engine, log) in self.oram.engines.iter().zip(&self.copies.logs) {
            let held = engine.tree().inner().held().expect("all writes are held back");
            save_words(&[held.extents().len() as u64], &mut fixed);
            held.extents().iter().for_each(|e| save_words(&[e.at], &mut table));
            if !held.bytes().is_empty() {
                logs.push((Extent::new(at + log, held.bytes().len()), held.bytes()));
            }
        }
        assert_eq!(fixed.len() as u64, self.copies.fixed, "its length is public");
        let mut sealed = self.seal_state(2 * self.syncs, &mut fixed);
        sealed.extend(self.seal_state(2 * self.syncs + 1, &mut table));
        self.store.write(&[Extent::new(at, sealed.len())], &sealed)?;
        logs.into_iter().try_for_each(|(extent, bytes)| self.store.write(&[extent], bytes))
    }

    /// Tag and sealed bytes of one part of the state.
    fn seal_state(&self, version: u64, part: &mut [u8]) -> Vec<u8> {
        let mut sealed = vec![0; TAG_LEN];
        let (_, key) = self.openings.find(|_| true);
        key.seal_in_place(version, &self.geometry.to_bytes(), part, &mut sealed);
        sealed.extend_from_slice(part);
        sealed
    }

    /// Loads the newest state; returns where each tree's log belongs.
    fn load(&mut self) -> Result<Vec<Vec<Extent>>> {
        let fixed = self.open_state(2 * self.syncs, 0, self.copies.fixed)?;
        let mut rest = &fixed[..];
        for engine in &mut self.oram.engines {
            engine.load(&mut rest)?;
        }
        self.oram.top.load(&mut rest)?;
        let mut counts = vec![0; self.trees.len()];
        load_words(&mut counts, &mut rest)?;
        let table_at = self.copies.fixed + TAG_LEN as u64;
        let table = 8 * counts.iter().sum::<u64>();
        let table = self.open_state(2 * self.syncs + 1, table_at, table)?;
        let mut rest = &table[..];
        let places = |(tree, &count): (&PlacedTree, &u64)| {
            let mut places = vec![0; count as usize];
            load_words(&mut places, &mut rest)?;
            let bucket = |at| tree.layout.bucket_len_at(at).map(|len| Extent::new(at, len));
            let extents: Option<_> = places.into_iter().map(bucket).collect();
            extents.ok_or(Error::State("it names a bucket that the tree does not have"))
        };
        self.trees.iter().zip(&counts).map(places).collect()
    }

    fn open_state(&self, version: u64, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut sealed = vec![0; TAG_LEN + len as usize];
        self.store.read(&[Extent::new(self.copy_at() + at, sealed.len())], &mut sealed)?;
        let (tag, sealed) = sealed.split_at(TAG_LEN);
        let mut plain = vec![0; sealed.len()];
        let (_, key) = self.openings.find(|_| true);
        key.open(version, &self.geometry.to_bytes(), sealed, tag, &mut plain).map_err(|_| {
            let area = if self.syncs.is_multiple_of(2) { "state 0" } else { "state 1" };
            Error::Tampered { place: Place { area, slot: self.syncs, block: None } }
        })?;
        Ok(plain)
    }

    /// Writes the log to its places, as the last sync may not have done. Buckets that are not what
    /// was logged there will not verify.
    fn redo(&mut self, held: &[Vec<Extent>]) -> Result {
        for ((tree, extents), log) in self.trees.iter().zip(held).zip(&self.copies.logs) {
            let mut bytes = vec![0; total_len(extents)];
            if extents.is_empty() {
                continue;
            }
            self.store.read(&[Extent::new(self.copy_at() + log, bytes.len())], &mut bytes)?;
            self.store.write(&extents_at(self.first + tree.at, extents), &bytes)?;
        }
        Ok(())
    }
}

fn state_key(key: &Secret, opening: &Opening) -> Aead {
    Aead::new(&key.derive(&[b"path state", &opening.id]))
}

impl Controller for DurablePath {
    fn blocks(&self) -> u64 {
        self.oram.blocks()
    }

    fn block_len(&self) -> usize {
        self.oram.block_len()
    }

    fn submit(&mut self, id: u64, addr: Addr) -> Result {
        self.healthy()?;
        self.life.writable()?;
        self.oram.submit(id, addr)
    }

    fn announce(&mut self) {
        self.oram.announce();
    }

    fn step(&mut self, serve: Serve<'_>) -> Result<Issued> {
        self.life.writable()?;
        self.in_step = true;
        let issued = self.oram.step(serve).inspect_err(|_| self.life.poison())?;
        self.in_step = false;
        // What nothing asked for waits for a sync as well.
        let is_unasked = matches!(issued.kind, Kind::Dummy | Kind::Eviction);
        if issued.finished.is_some() || is_unasked {
            self.count_access()?;
            self.retire_if_many()?;
        }
        Ok(issued)
    }

    fn sync(&mut self) -> Result {
        if !self.life.takes_writes() {
            return Ok(());
        }
        self.healthy()?;
        assert!(self.oram.next.is_none(), "a request is finished before a sync");
        if self.unsynced > 0 { self.save() } else { Ok(()) }
    }

    fn hides(&self) -> Hides {
        Hides::ReadsAndWrites
    }

    fn close(&mut self) -> Result {
        self.sync()?;
        if self.life.takes_writes() {
            // The places of the last log, so that an opening need not write them again.
            self.life.sync(&*self.store, self.syncs)?;
            self.life.keep(&self.openings.state(true, self.syncs).encode())?;
            self.life.end();
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "std"))]
mod tests;
