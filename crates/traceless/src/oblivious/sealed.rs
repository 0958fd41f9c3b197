//! A tree with its lower levels on a store, sealed so that older copies are detected.
//!
//! The lower levels are cut into pages of three levels. A page holds the versions of the eight
//! pages below it, and is sealed under its own number and version: its parent detects an old page
//! that is put back. The upper levels, and the versions of the first pages, stay in memory.

use super::LANES;
use super::tree::{Header, Memory, PATHS, Ram, SLOTS};
use crate::scheme::health::Health;
use crate::tree::PendingBuckets;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, load_words, save_words};
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::{Aead, Nonce, Salt, Sealer, TAG_LEN};
use traceless_core::store::Store;
use traceless_core::types::{Extent, total_len};
use traceless_sys::ct::{self, secret::classify, secret::declassify};

/// Levels of a page, and the resulting numbers of buckets and child pages.
const PAGE_LEVELS: usize = 3;
const BUCKETS: usize = (1 << PAGE_LEVELS) - 1;
const CHILDREN: usize = 1 << PAGE_LEVELS;

/// Bytes in front of a sealed page: its salt and its tag.
const FRONT_LEN: usize = Salt::LEN + TAG_LEN;

/// Default number of levels that stay in memory, at least.
pub const MEMORY_LEVELS_MIN: u32 = 9;

/// The layout of a tree's pages.
#[derive(Clone, Copy)]
pub struct PageGeometry {
    /// Number of levels in memory.
    pub top: u32,
    /// Number of pages on a path.
    pub pages: usize,
    words: usize,
}

impl PageGeometry {
    /// The layout for a tree of `levels` levels, with at least `in_memory` of them in memory, and
    /// blocks of `words` words.
    pub fn new(levels: u32, in_memory: u32, words: usize) -> Self {
        let pages = levels.saturating_sub(in_memory) as usize / PAGE_LEVELS;
        Self { top: levels - (pages * PAGE_LEVELS) as u32, pages, words }
    }

    /// Bytes that the pages take in a store.
    pub fn store_len(&self) -> Result<u64> {
        let len = self.slot_len() as u64;
        self.all_pages().checked_mul(len).ok_or(Error::Geometry("too many pages"))
    }

    /// Number of pages of the tree.
    pub fn all_pages(&self) -> u64 {
        self.first_page(self.pages)
    }

    /// Number of pages that an access writes, at most.
    pub fn pages_open(&self) -> usize {
        PATHS * self.pages
    }

    /// Bytes of the tree's saved state.
    pub fn saved_len(&self) -> u64 {
        (size_of::<u64>() as u64) * (1 + (1 << self.top)) + Ram::saved_len(self.top, self.words)
    }

    /// The mask of the label bits that choose a page at depth `depth`.
    fn mask(&self, depth: usize) -> u32 {
        (1 << self.shift(depth)) - 1
    }

    /// Number of label bits that are used above depth `depth`.
    fn shift(&self, depth: usize) -> u32 {
        self.top + (PAGE_LEVELS * depth) as u32
    }

    /// Number of the first page at depth `depth`.
    fn first_page(&self, depth: usize) -> u64 {
        (0..depth).map(|above| 1_u64 << self.shift(above)).sum()
    }

    /// Words of a page: versions of its children, headers, bodies.
    fn page_words(&self) -> usize {
        CHILDREN + BUCKETS * (2 + SLOTS * self.words)
    }

    /// Bytes of a sealed page.
    pub fn slot_len(&self) -> usize {
        size_of::<u64>() * self.page_words() + FRONT_LEN
    }
}

/// A tree with its upper levels in memory and its lower levels in sealed pages.
pub struct SealedPages<C = Aead> {
    geometry: PageGeometry,
    top: Ram,
    store: Arc<dyn Store>,
    /// The first byte of the pages on the store.
    first: u64,
    sealer: C,
    /// Draws a salt for the pages of each access.
    salts: Box<dyn Rng>,
    /// Versions of the uppermost pages; zero for a page that was never written.
    versions: Vec<u64>,
    /// The last version that was used, for any page.
    version: u64,
    /// Plaintext of the open pages; pages of the first path come first.
    pages: Vec<Page>,
    /// For each path and level below the top, the open page and the bucket in it.
    places: [[(u8, u8); LANES]; PATHS],
    extents: Vec<Extent>,
    /// The open pages, as they lie in the store.
    buffer: Vec<u8>,
    /// Pages that are not in the store yet, if writes are held back.
    held: Option<PendingBuckets>,
    health: Health,
}

/// An open page.
struct Page {
    number: u64,
    /// The label of a path that crosses the page.
    leaf: u32,
    /// Whether this entry is in use; if not, the other path shares its page.
    in_use: bool,
    words: Vec<u64>,
}

impl<C: Sealer> SealedPages<C> {
    /// An empty tree, in the part of `store` that begins at `first`. `sealer` must not have sealed
    /// anything there. `salts` draws anew at each call.
    pub fn new(
        geometry: PageGeometry,
        store: Arc<dyn Store>,
        first: u64,
        sealer: C,
        salts: Box<dyn Rng>,
    ) -> Result<Self> {
        if store.len() < first.saturating_add(geometry.store_len()?) {
            return Err(Error::Geometry("the store is smaller than the pages of the tree"));
        }
        let page =
            |_| Page { number: 0, leaf: 0, in_use: false, words: vec![0; geometry.page_words()] };
        let open_max = PATHS * geometry.pages;
        Ok(Self {
            geometry,
            top: Ram::new(geometry.top, geometry.words)?,
            store,
            first,
            sealer,
            salts,
            versions: vec![0; 1 << geometry.top],
            version: 0,
            pages: (0..open_max).map(page).collect(),
            places: [[(0, 0); LANES]; PATHS],
            extents: Vec::with_capacity(open_max),
            buffer: vec![0; open_max * geometry.slot_len()],
            held: None,
            health: Health::default(),
        })
    }

    /// The last version that was used.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Sets the last used version to `version`, which must not be lower.
    pub fn skip_to(&mut self, version: u64) {
        assert!(version >= self.version, "versions never come again");
        self.version = version;
    }

    /// The sealer, mutable, to give it another key.
    pub fn sealer_mut(&mut self) -> &mut C {
        &mut self.sealer
    }

    /// From now on writes wait in memory until [`write_pending`](Self::write_pending), and the
    /// store does not change.
    pub fn hold_back(&mut self) {
        self.held = Some(PendingBuckets::default());
    }

    /// From now on writes go to the store at once. No write may be pending.
    pub fn write_through(&mut self) {
        assert!(self.held.take().is_none_or(|held| held.bytes().is_empty()), "nothing waits");
    }

    /// The pending pages, if writes are held back.
    pub fn held(&self) -> Option<&PendingBuckets> {
        self.held.as_ref()
    }

    /// Writes the pending pages to their places.
    pub fn write_pending(&mut self) -> Result {
        match &mut self.held {
            Some(held) => held.write_to(&*self.store, self.first),
            None => Ok(()),
        }
    }

    fn open_pages(&mut self, path: usize, leaf: u32) -> Result {
        let PageGeometry { pages, .. } = self.geometry;
        self.extents.clear();
        for depth in 0..pages {
            let number = self.number(depth, leaf);
            // Both paths begin at the root, so they may share their first pages; these are opened
            // once.
            let shared = path > 0 && self.pages[depth].number == number;
            let at = if shared { depth } else { path * pages + depth };
            let page = &mut self.pages[path * pages + depth];
            page.in_use = !shared;
            if !shared {
                (page.number, page.leaf) = (number, leaf);
                let extent = self.extent(number);
                self.extents.push(extent);
            }
            self.place_levels(path, depth, leaf, at as u8);
        }
        let sealed = &mut self.buffer[..total_len(&self.extents)];
        self.store.read(&self.extents, sealed)?;
        if let Some(held) = &self.held {
            // The reads of the store do not depend on which pages are pending.
            let slots = sealed.chunks_exact_mut(self.geometry.slot_len());
            for (extent, slot) in self.extents.iter().zip(slots) {
                held.copy_to(extent.at - self.first, slot);
            }
        }
        let first = path * pages + pages - self.extents.len();
        for (i, at) in (first..(path + 1) * pages).enumerate() {
            self.unseal(i, at, path)?;
        }
        Ok(())
    }

    /// Records where the buckets of one page are.
    fn place_levels(&mut self, path: usize, depth: usize, leaf: u32, at: u8) {
        let turns = leaf >> self.geometry.shift(depth);
        for i in 0..PAGE_LEVELS {
            let above = (1 << i) - 1;
            let level = self.geometry.shift(depth) as usize + i;
            self.places[path][level] = (at, (above + (turns & above)) as u8);
        }
    }

    /// Opens the page `at`, the `i`th that was read.
    fn unseal(&mut self, i: usize, at: usize, path: usize) -> Result {
        let version = self.version_of(at, path);
        let len = self.geometry.slot_len();
        let (front, body) = self.buffer[i * len..][..len].split_at(FRONT_LEN);
        let (salt, tag) = Salt::split(front);
        let page = &mut self.pages[at];
        let plain = ct::bytes_of_mut(&mut page.words);
        if version == 0 {
            plain.fill(0);
            return Ok(());
        }
        let place = Place { area: "page", slot: page.number, block: None };
        self.sealer
            .open(Nonce::new(version, salt), &page.number.to_le_bytes(), body, tag, plain)
            .map_err(|_| Error::Tampered { place })?;
        // The versions are public, headers and bodies are not.
        classify(&mut page.words[CHILDREN..]);
        Ok(())
    }

    /// The version of the page `at`, from its parent.
    fn version_of(&self, at: usize, path: usize) -> u64 {
        let leaf = self.pages[at].leaf;
        match at % self.geometry.pages {
            0 => self.versions[(leaf & self.geometry.mask(0)) as usize],
            depth => self.pages[self.parent(depth, path)].words[self.child(depth, leaf)],
        }
    }

    /// The open page that is the parent of the path's page at `depth`.
    fn parent(&self, depth: usize, path: usize) -> usize {
        let level = self.geometry.shift(depth) as usize - 1;
        usize::from(self.places[path][level].0)
    }

    /// The index of a page among its parent's children.
    fn child(&self, depth: usize, leaf: u32) -> usize {
        (leaf >> self.geometry.shift(depth - 1)) as usize & (CHILDREN - 1)
    }

    /// Seals every open page under a new version, the lowest first: its parent holds its version.
    fn close_pages(&mut self) -> Result {
        let (pages, len) = (self.geometry.pages, self.geometry.slot_len());
        self.extents.clear();
        let salt = self.salts.salt();
        for at in (0..pages).rev().flat_map(|depth| [pages + depth, depth]) {
            if !self.pages[at].in_use {
                continue;
            }
            self.version += 1;
            let (depth, path, leaf) = (at % pages, at / pages, self.pages[at].leaf);
            let version = if depth == 0 {
                &mut self.versions[(leaf & self.geometry.mask(0)) as usize]
            } else {
                let (parent, child) = (self.parent(depth, path), self.child(depth, leaf));
                &mut self.pages[parent].words[child]
            };
            *version = self.version;
            let page = &self.pages[at];
            let slot = &mut self.buffer[self.extents.len() * len..][..len];
            let (front, body) = slot.split_at_mut(FRONT_LEN);
            let (number, plain) = (page.number.to_le_bytes(), ct::bytes_of(&page.words));
            let nonce = Nonce::new(self.version, salt);
            self.sealer.seal(nonce, &number, plain, body, salt.put(front));
            declassify(slot);
            let extent = self.extent(page.number);
            self.extents.push(extent);
        }
        let sealed = &self.buffer[..total_len(&self.extents)];
        let Some(held) = &mut self.held else { return self.store.write(&self.extents, sealed) };
        for (extent, slot) in self.extents.iter().zip(sealed.chunks_exact(len)) {
            held.hold(extent.at - self.first, slot);
        }
        Ok(())
    }

    fn number(&self, depth: usize, leaf: u32) -> u64 {
        self.geometry.first_page(depth) + u64::from(leaf & self.geometry.mask(depth))
    }

    fn extent(&self, number: u64) -> Extent {
        let len = self.geometry.slot_len();
        Extent::new(self.first + number * len as u64, len)
    }
}

impl<C> Durable for SealedPages<C> {
    fn save(&self, out: &mut Vec<u8>) {
        save_words(&[self.version], out);
        save_words(&self.versions, out);
        self.top.save(out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        load_words(core::slice::from_mut(&mut self.version), from)?;
        load_words(&mut self.versions, from)?;
        self.top.load(from)
    }
}

impl<C: Sealer> Memory for SealedPages<C> {
    #[inline(always)]
    fn prefetch(&self, leaf: u32) {
        self.top.prefetch(leaf);
    }

    fn open(&mut self, path: usize, leaf: u32) -> Result {
        self.health.check()?;
        self.top.open(path, leaf)?;
        let opened = self.open_pages(path, leaf);
        self.health.after_read(opened)
    }

    #[inline(always)]
    fn header(&self, path: usize, level: usize) -> Header {
        if level < self.geometry.top as usize {
            return self.top.header(path, level);
        }
        let (page, bucket) = self.places[path][level];
        let at = CHILDREN + 2 * usize::from(bucket);
        let words = &self.pages[usize::from(page)].words;
        [words[at], words[at + 1]]
    }

    #[inline(always)]
    fn set_header(&mut self, path: usize, level: usize, header: Header) {
        if level < self.geometry.top as usize {
            return self.top.set_header(path, level, header);
        }
        let (page, bucket) = self.places[path][level];
        let at = CHILDREN + 2 * usize::from(bucket);
        self.pages[usize::from(page)].words[at..at + 2].copy_from_slice(&header);
    }

    #[inline(always)]
    fn bodies(&mut self, path: usize, level: usize) -> &mut [u64] {
        if level < self.geometry.top as usize {
            return self.top.bodies(path, level);
        }
        let (page, bucket) = self.places[path][level];
        let len = SLOTS * self.geometry.words;
        let at = CHILDREN + 2 * BUCKETS + len * usize::from(bucket);
        &mut self.pages[usize::from(page)].words[at..][..len]
    }

    fn close(&mut self) -> Result {
        let closed = self.close_pages();
        self.health.end(closed)
    }
}
