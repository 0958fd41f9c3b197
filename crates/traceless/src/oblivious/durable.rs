//! A saved array in memory that an adversary may watch. A crash takes it back to its last sync.
//!
//! Written pages wait for a sync, as the buckets of a saved Path ORAM do. Position map, stashes and
//! the upper levels of the tree are the trusted state, which each sync writes as a whole: so
//! automatic syncs are rare.
//!
//! A crash also takes labels back, and an access after it would read the same path that the block's
//! last access has read. So an opening after a crash rebuilds the tree in the other area of the
//! store. Slot by slot, in a fixed order, the blocks move into an empty tree, under labels that are
//! a keyed function of their addresses, as an oblivious program cannot look labels up. If the
//! rebuild is interrupted, the next opening begins it anew. It makes as many accesses as the old
//! tree has slots, independent of their contents.

use super::circuit::{CircuitTree, EvictionKind, levels_for};
use super::positions::Positions;
use super::sealed::{self, MEMORY_LEVELS_MIN, SealedPages};
use super::secret_words::{load_secret, save_secret};
use super::tree::Ram;
use super::width::{Make, Width, fastest};
use super::{BLOCKS_MAX, Oblivious, check_block};
use crate::scheme::keys::{Family, Keys};
use crate::scheme::saves::{CopyLayout, Saves};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, load_words, save_words};
use traceless_core::error::{Error, Result};
use traceless_core::oram::{Hides, Oram, one_by_one};
use traceless_core::rng::SeededRng;
use traceless_core::scheme::SchemeContext;
use traceless_core::scheme::openings::{KEY_BYTES_MAX, OPENINGS_MANY, SchemeState};
use traceless_core::seal::{Prf, Secret};
use traceless_core::types::{Addr, Extent};

/// Default interval between two automatic syncs, in accesses, at least.
const UNSYNCED: u64 = 1024;

/// Bytes of pages that may wait for a sync, unless the state is longer.
const HELD_BYTES: u64 = 64 << 20;

/// Bytes of the trusted state, or of the waiting pages, at most: a limit of a store's requests.
const REQUEST_MAX: u64 = 1 << 31;

/// The public parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayGeometry {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Levels of the tree that stay in memory, at least.
    pub memory_levels: u8,
    /// Accesses between two syncs, at most: then the array syncs by itself.
    pub unsynced_max: u32,
    /// Words that the caller keeps with the trusted state.
    pub attached_words: u32,
}

/// The layout of the array's parts on the store.
struct ArrayLayout {
    pages: sealed::PageGeometry,
    copies: CopyLayout,
}

impl ArrayGeometry {
    /// `blocks` blocks of `block_len` bytes. The interval between syncs is chosen so that the pages
    /// written in it are about as long as the state.
    pub fn new(blocks: u64, block_len: usize) -> Result<Self> {
        let memory_levels = memory_levels_for(block_len);
        let mut geometry =
            Self { blocks, block_len, memory_levels, unsynced_max: 1, attached_words: 0 };
        let ArrayLayout { pages, copies } = geometry.layout()?;
        let (access, state) = (pages.pages_open() * pages.slot_len(), copies.state_len());
        if let Some(often) = state.checked_div(access as u64) {
            let most = HELD_BYTES.max(state) / access as u64;
            geometry.unsynced_max = often.max(UNSYNCED).min(most).clamp(1, 1 << 20) as u32;
        } else {
            geometry.unsynced_max = UNSYNCED as u32;
        }
        geometry.check()?;
        Ok(geometry)
    }

    /// Checks that an array with these parameters is possible.
    pub fn check(&self) -> Result {
        self.layout().map(|_| ())
    }

    /// Bytes that the areas take in a store; `u64::MAX` if the array is impossible.
    pub fn store_len(&self) -> u64 {
        self.layout().map_or(u64::MAX, |layout| layout.copies.end())
    }

    /// Bytes of the trusted state that each sync writes. A sync also writes each page twice, once
    /// with 8 bytes more.
    pub fn state_len(&self) -> u64 {
        self.layout().map_or(u64::MAX, |layout| layout.copies.state_len())
    }

    /// Bytes written per byte that the client writes: each page once to the log and once in place,
    /// and the state with every sync, if no two accesses between two syncs share a page.
    pub fn write_amplification(&self) -> f64 {
        let pages = self.layout().map_or(0, |layout| layout.pages.pages_open());
        let state = self.state_len() as f64 / f64::from(self.unsynced_max);
        ((2 * pages * self.page_len()) as f64 + state) / self.block_len as f64
    }

    /// Bytes of a page.
    pub fn page_len(&self) -> usize {
        self.layout().map_or(0, |layout| layout.pages.slot_len())
    }

    /// Whether any page is on the store, so that an adversary observes the random paths.
    pub fn draws_places(&self) -> bool {
        self.layout().is_ok_and(|layout| layout.pages.pages > 0)
    }

    /// This geometry with `blocks` blocks.
    pub fn resized(self, blocks: u64) -> Result<Self> {
        let resized = Self { blocks, ..self };
        resized.check()?;
        Ok(resized)
    }

    /// Name, first byte and length of each area, in order.
    pub fn areas(&self) -> Vec<(&'static str, u64, u64)> {
        let Ok(ArrayLayout { copies, .. }) = self.layout() else { return Vec::new() };
        let half = copies.at / 2;
        vec![
            ("pages 0", 0, half),
            ("pages 1", half, half),
            ("state 0", copies.at, copies.len),
            ("state 1", copies.at + copies.len, copies.len),
        ]
    }

    fn layout(&self) -> Result<ArrayLayout> {
        fastest(self.block_len, Amplification(*self))
    }

    /// Encodes all parameters, which are bound to everything that is sealed.
    fn to_bytes(self) -> Vec<u8> {
        let words = [
            self.blocks,
            self.block_len as u64,
            self.memory_levels.into(),
            self.unsynced_max.into(),
            self.attached_words.into(),
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The number of levels in memory for which the state of a tree of long blocks is no longer than
/// the pages that may wait for a sync. Two more levels may stay in memory if no page fits above
/// them, and a bucket has at most four blocks.
fn memory_levels_for(block_len: usize) -> u8 {
    let fits = |levels: &u8| (block_len as u64).saturating_mul(16 << levels) <= HELD_BYTES;
    (1..=MEMORY_LEVELS_MIN as u8).rev().find(fits).unwrap_or(1)
}

struct Amplification(ArrayGeometry);

impl Make for Amplification {
    type Output = Result<ArrayLayout>;

    fn make(self, width: impl Width + 'static) -> Result<ArrayLayout> {
        let geometry = self.0;
        check_block(geometry.block_len, width)?;
        if geometry.blocks > BLOCKS_MAX {
            return Err(Error::Geometry("there are more blocks than labels for them"));
        }
        if geometry.memory_levels == 0 || geometry.unsynced_max == 0 {
            return Err(Error::Geometry("there is room for one level and one access at least"));
        }
        let levels = levels_for(geometry.blocks)?;
        let pages = sealed::PageGeometry::new(levels, geometry.memory_levels.into(), width.words());
        let tree = pages.saved_len() + saved_len_of(width);
        let words = 1 + u64::from(geometry.attached_words);
        let saved = tree + Positions::saved_len(geometry.blocks)? + 8 * words;
        let written = u64::from(geometry.unsynced_max) * pages.pages_open() as u64;
        let held = pages.all_pages().min(written);
        let held_len = held.saturating_mul(pages.slot_len() as u64);
        if saved.max(held_len) > REQUEST_MAX {
            return Err(Error::Geometry("the state, or what waits for a sync, is too long"));
        }
        let copies = CopyLayout::new(2 * pages.store_len()?, saved, &[(held, held_len)]);
        Ok(ArrayLayout { pages, copies })
    }
}

fn saved_len_of<W: Width>(width: W) -> u64 {
    CircuitTree::<W, Ram>::saved_len(width)
}

/// An array that saves a few words of its caller with its own state.
pub(crate) trait UserWords: Oram {
    /// The caller's words. A sync saves them together with all earlier accesses.
    fn attached(&mut self) -> &mut [u64];

    /// Number of accesses until the next automatic sync.
    fn accesses_left(&self) -> u32;

    /// Repeats the access that could not be read, if there is one, and passes its block to
    /// `change`. Returns whether there was one, which is public.
    fn finish_unread(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result<bool>;
}

/// Makes a new array; every block reads as zeros.
pub fn create_durable(geometry: ArrayGeometry, context: SchemeContext) -> Result<Box<dyn Oram>> {
    Ok(create_attached(geometry, context)?)
}

/// Opens an array as it was at its last sync, with the state that its vault kept last.
pub fn open_durable(
    geometry: ArrayGeometry,
    context: SchemeContext,
    state: &[u8],
) -> Result<Box<dyn Oram>> {
    Ok(open_attached(geometry, context, state)?)
}

pub(crate) fn create_attached(
    geometry: ArrayGeometry,
    context: SchemeContext,
) -> Result<Box<dyn UserWords>> {
    fastest(geometry.block_len, NewArray { geometry, context, state: None })
}

pub(crate) fn open_attached(
    geometry: ArrayGeometry,
    context: SchemeContext,
    state: &[u8],
) -> Result<Box<dyn UserWords>> {
    let state = Some(SchemeState::decode(state)?);
    fastest(geometry.block_len, NewArray { geometry, context, state })
}

/// Opens an array with a state, or makes a new one without a state.
struct NewArray {
    geometry: ArrayGeometry,
    context: SchemeContext,
    state: Option<SchemeState>,
}

impl Make for NewArray {
    type Output = Result<Box<dyn UserWords>>;

    fn make(self, width: impl Width + 'static) -> Self::Output {
        let Self { geometry, context, state } = self;
        Ok(match state {
            None => Box::new(DurableOblivious::create(geometry, width, context)?),
            Some(state) => Box::new(DurableOblivious::open(geometry, width, context, &state)?),
        })
    }
}

type Inner<W> = Oblivious<W, SealedPages<Keys>>;

/// A saved array. See the [module](self).
struct DurableOblivious<W: Width> {
    inner: Inner<W>,
    width: W,
    geometry: ArrayGeometry,
    layout: ArrayLayout,
    saves: Saves,
    /// The page area in use, 0 or 1.
    area: u64,
    attached: Vec<u64>,
    /// Number of accesses since the last sync.
    unsynced: u32,
    /// Bytes that the keys of one opening may seal, checked at each sync.
    key_bytes_max: u64,
}

impl<W: Width> DurableOblivious<W> {
    fn create(geometry: ArrayGeometry, width: W, context: SchemeContext) -> Result<Self> {
        let mut new = Self::assemble(geometry, width, context, &SchemeState::default())?;
        new.begin_opening()?;
        new.save()?;
        Ok(new)
    }

    fn open(
        geometry: ArrayGeometry,
        width: W,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        let mut opened = Self::reopen(geometry, width, context, state)?;
        let is_many = opened.saves.openings().len() >= OPENINGS_MANY;
        if opened.saves.life.takes_writes() && (!state.clean || is_many) {
            opened.rebuild()?;
        }
        Ok(opened)
    }

    /// Opens the array as it was at its last sync, labels included.
    fn reopen(
        geometry: ArrayGeometry,
        width: W,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        let mut opened = Self::assemble(geometry, width, context, state)?;
        let loaded = opened.saves.load()?;
        let mut rest = &loaded.saved[..];
        load_words(core::slice::from_mut(&mut opened.area), &mut rest)?;
        opened.inner = opened.make_inner(opened.keys_of(state))?;
        opened.inner.load(&mut rest)?;
        load_secret(&mut opened.attached, &mut rest)?;
        if opened.saves.life.takes_writes() {
            if state.clean {
                opened.saves.keep_open()?;
            } else {
                opened.redo(&loaded.places[0])?;
            }
            opened.begin_opening()?;
        }
        Ok(opened)
    }

    fn assemble(
        geometry: ArrayGeometry,
        width: W,
        context: SchemeContext,
        state: &SchemeState,
    ) -> Result<Self> {
        let layout = geometry.layout()?;
        let (copies, bound) = (layout.copies.clone(), geometry.to_bytes());
        let mut saves = Saves::new(copies, b"oblivious state", bound, context, state)?;
        let keys = Keys::new(state, saves.key(), FAMILY);
        let inner = inner_over(&geometry, width, &layout, &mut saves, 0, keys)?;
        Ok(Self {
            inner,
            width,
            attached: vec![0; geometry.attached_words as usize],
            geometry,
            layout,
            saves,
            area: 0,
            unsynced: 0,
            key_bytes_max: KEY_BYTES_MAX / 2,
        })
    }

    fn keys_of(&self, state: &SchemeState) -> Keys {
        Keys::new(state, self.saves.key(), FAMILY)
    }

    /// An empty array over the page area in use; its writes wait for a sync.
    fn make_inner(&mut self, keys: Keys) -> Result<Inner<W>> {
        inner_over(&self.geometry, self.width, &self.layout, &mut self.saves, self.area, keys)
    }

    fn memory(&mut self) -> &mut SealedPages<Keys> {
        self.inner.data.memory_mut()
    }

    /// Begins an opening with new keys.
    fn begin_opening(&mut self) -> Result {
        let start = self.memory().version();
        let opening = self.saves.begin_opening(start)?;
        let key = self.saves.key();
        self.inner.data.memory_mut().sealer_mut().push(opening, key)
    }

    /// Rebuilds the tree, sealed under the newest keys alone.
    fn rebuild(&mut self) -> Result {
        self.area = 1 - self.area;
        let (mut keys, opening) = (Keys::none(FAMILY), *self.saves.openings().last());
        keys.push(opening, self.saves.key())?;
        let mut new = self.make_inner(keys)?;
        let memory = new.data.memory_mut();
        memory.skip_to(self.inner.data.memory().version());
        memory.write_through();

        let prf = Prf::new(&Secret::random(&mut *self.saves.life.rng));
        let mask = new.data.label_mask();
        let label = |addr: u32| prf.at(addr.into()) as u32 & mask;
        let Oblivious { data, positions, draws, block, .. } = &mut new;
        positions.fill(self.geometry.blocks, &label, draws)?;
        self.inner.data.visit_slots(&mut |addr, body| {
            draws.reserve(1);
            data.insert(addr, label(addr), body, draws.label(mask).old(0), block)
        })?;
        self.inner = new;
        self.memory().hold_back();
        self.save()?;
        self.saves.forget_before(opening.start);
        Ok(())
    }

    /// Makes everything durable: log and state first, then the vault, then the pages in place.
    fn save(&mut self) -> Result {
        // A full stash may have lost a block, so its state must not be saved.
        self.inner.check_stashes()?;
        let mut saved = Vec::with_capacity(self.layout.copies.fixed as usize);
        save_words(&[self.area], &mut saved);
        self.inner.save(&mut saved);
        save_secret(&self.attached, &mut saved);
        let held = self.inner.data.memory().held().expect("all writes are held back");
        self.saves.save(saved, &[held])?;
        self.end_save().inspect_err(|_| self.saves.life.poison())
    }

    fn end_save(&mut self) -> Result {
        self.memory().write_pending()?;
        self.unsynced = 0;
        let start = self.saves.openings().last().start;
        let pages = self.memory().version() - start;
        if pages * self.layout.pages.slot_len() as u64 > self.key_bytes_max {
            self.begin_opening()?;
        }
        Ok(())
    }

    /// Writes the log to its places, in case the last sync did not.
    fn redo(&mut self, places: &[u64]) -> Result {
        let (len, all) = (self.layout.pages.slot_len(), self.layout.pages.store_len()?);
        let is_page = |&at: &u64| at.is_multiple_of(len as u64) && at < all;
        if !places.iter().all(is_page) {
            return Err(Error::State("it names a page that the tree does not have"));
        }
        let first = self.saves.store().1 + self.area * all;
        let extents: Vec<_> = places.iter().map(|at| Extent::new(first + at, len)).collect();
        self.saves.redo(0, &extents)
    }

    fn access(&mut self, addr: Addr, change: impl FnOnce(&mut [u8])) -> Result {
        self.inner.check_addr(addr)?;
        self.saves.life.writable()?;
        self.finish_unread(&mut |_| {})?;
        self.inner.access(addr, change)?;
        self.count_access()
    }

    /// Counts an access, and syncs before too many pages wait.
    fn count_access(&mut self) -> Result {
        self.unsynced += 1;
        if self.unsynced == self.geometry.unsynced_max { self.save() } else { Ok(()) }
    }
}

/// The key family of the pages.
const FAMILY: Family = Family { purpose: b"oblivious page", area: 0, write_of: |version| version };

fn inner_over<W: Width>(
    geometry: &ArrayGeometry,
    width: W,
    layout: &ArrayLayout,
    saves: &mut Saves,
    area: u64,
    keys: Keys,
) -> Result<Inner<W>> {
    let salts = saves.life.rng.fork();
    let (store, first) = saves.store();
    let first = first + area * layout.pages.store_len()?;
    let mut memory = SealedPages::new(layout.pages, store.clone(), first, keys, salts)?;
    memory.hold_back();
    let rng = Box::new(SeededRng::drawn(&mut *saves.life.rng));
    let ArrayGeometry { blocks, block_len, .. } = *geometry;
    Oblivious::over(blocks, block_len, width, memory, EvictionKind::Circuit, rng)
}

impl<W: Width> Durable for Inner<W> {
    fn save(&self, out: &mut Vec<u8>) {
        self.data.save(out);
        self.positions.save(out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        self.data.load(from)?;
        self.positions.load(from)
    }
}

impl<W: Width> UserWords for DurableOblivious<W> {
    fn attached(&mut self) -> &mut [u64] {
        &mut self.attached
    }

    fn accesses_left(&self) -> u32 {
        self.geometry.unsynced_max - self.unsynced
    }

    fn finish_unread(&mut self, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        if self.inner.unread.is_none() {
            return Ok(false);
        }
        self.saves.life.writable()?;
        self.inner.check_stashes()?;
        self.inner.finish_unread(change)?;
        self.count_access()?;
        Ok(true)
    }
}

impl<W: Width> Oram for DurableOblivious<W> {
    fn blocks(&self) -> u64 {
        self.geometry.blocks
    }

    fn block_len(&self) -> usize {
        self.geometry.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        for (addr, part) in one_by_one(addrs, self.geometry.block_len, into.len())? {
            self.access(addr, |block| into[part].copy_from_slice(block))?;
        }
        Ok(())
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        for (addr, part) in one_by_one(addrs, self.geometry.block_len, from.len())? {
            self.access(addr, |block| block.copy_from_slice(&from[part]))?;
        }
        Ok(())
    }

    fn update(&mut self, addr: Addr, change: &mut dyn FnMut(&mut [u8])) -> Result {
        self.access(addr, change)
    }

    fn sync(&mut self) -> Result {
        if !self.saves.life.takes_writes() {
            return Ok(());
        }
        self.saves.life.check_not_poisoned()?;
        self.inner.check_stashes()?;
        self.finish_unread(&mut |_| {})?;
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

#[cfg(all(test, feature = "std"))]
mod tests;
