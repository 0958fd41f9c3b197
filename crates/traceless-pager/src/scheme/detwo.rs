//! `DetWoORAM` for pages: which slots are written follows from the number of pages that left their
//! frames, and not from which pages these were.
//!
//! A main area holds each page in a slot of its own; a holding area of N / K slots takes pages as
//! they leave, one slot after the other. With each of them, the next K pages of the main area are
//! written anew with their newest contents, so that all contents of a slot of the holding area have
//! reached the main area before the slot is used again. Nothing here outlives the program, so it
//! needs no slack and no recovery, unlike the volume's scheme of this name, which uses the same
//! arithmetic.
//!
//! All methods take `&self`: refreshes may run on several threads, and after the page fault that
//! they belong to, as long as they are done before the next page leaves.

use super::PageScheme;
use crate::slots::{Buffer, Buffers, Cipher, Location, Salts, Slots};
use crate::{PAGE_LEN, Page};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use traceless::Hides;
use traceless::error::{Error, Result};
use traceless::rng::Salt;
use traceless::seal::Secret;
use traceless::store::{SlotLayout, Store};
use traceless_block::detwo::{DetWoLocation, Passes, Refresh};

/// The areas, and where each page is. Shared by all threads or processes that refresh.
pub struct Areas {
    passes: Passes,
    hold_slots: u64,
    slots: Slots,
    /// The number of writes; for each page the number of its last write, counted from 1 (0 reads as
    /// zeros); and the salt of the last write, 0 if a page was forgotten since.
    numbers: Box<dyn Numbers>,
}

/// Numbers in trusted memory: of this process, or shared with processes that it trusts.
pub trait Numbers: Deref<Target = [AtomicU64]> + Send + Sync {}
impl<T: Deref<Target = [AtomicU64]> + Send + Sync> Numbers for T {}

impl Areas {
    /// Bytes of store that `pages` pages take.
    pub fn store_len(pages: u64, refresh: Refresh) -> u64 {
        Slots::store_len(pages + refresh.writes_for(pages))
    }

    /// Areas for `pages` pages of zeros, `refresh` of which are refreshed for each that leaves.
    pub fn new(
        store: Arc<dyn Store>,
        pages: u64,
        refresh: Refresh,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
    ) -> Result<Self> {
        let len = Self::numbers_for(pages)?;
        let numbers: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Self::with_numbers(store, pages, refresh, cipher, key, salts, Box::new(numbers))
    }

    /// How many numbers [`Areas::with_numbers`] needs for so many pages.
    pub fn numbers_for(pages: u64) -> Result<usize> {
        let len = usize::try_from(pages).ok().and_then(|pages| pages.checked_add(2));
        len.ok_or(Error::Geometry("too many pages"))
    }

    /// The same as [`Areas::new`], with the memory for the numbers, which must be zeros.
    pub fn with_numbers(
        store: Arc<dyn Store>,
        pages: u64,
        refresh: Refresh,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
        numbers: Box<dyn Numbers>,
    ) -> Result<Self> {
        // With fewer, a page would be refreshed twice in one step.
        if pages < refresh.at_most(1) {
            return Err(Error::Geometry("fewer pages than are refreshed at once"));
        }
        if numbers.len() != Self::numbers_for(pages)? {
            return Err(Error::Geometry("too few numbers for the pages"));
        }
        let hold_slots = refresh.writes_for(pages);
        Ok(Self {
            passes: Passes { blocks: pages, refresh },
            hold_slots,
            slots: Slots::new(store, pages + hold_slots, cipher, key, salts)?,
            numbers,
        })
    }

    fn writes(&self) -> &AtomicU64 {
        &self.numbers[0]
    }

    fn salt(&self) -> &AtomicU64 {
        &self.numbers[self.numbers.len() - 1]
    }

    fn last(&self, page: u64) -> &AtomicU64 {
        &self.numbers[page as usize + 1]
    }

    /// The main and the holding area, each with its first byte: their slots are written in turn.
    /// Tags lie behind them.
    pub fn slots_in_turn(pages: u64, refresh: Refresh) -> [(u64, SlotLayout); 2] {
        let area =
            |slots| SlotLayout { slots, body_len: PAGE_LEN, entry_len: 0, stripe_slots: slots };
        [(0, area(pages)), (pages * PAGE_LEN as u64, area(refresh.writes_for(pages)))]
    }

    /// How many refreshes belong to the pages that have left so far.
    pub fn due(&self) -> u64 {
        self.passes.after(self.writes().load(Relaxed))
    }

    /// Puts the page in `frame` into the holding area. All refreshes that were due must be done.
    pub fn write(&self, page: u64, frame: &Page, buffer: &mut Buffer) -> Result {
        buffer.body().copy_from_slice(frame);
        let write = self.writes().load(Relaxed);
        let salt = self.put(write, page, buffer)?;
        self.last(page).store(write + 1, Relaxed);
        self.finish_write(write, salt);
        Ok(())
    }

    /// Puts zeros that belong to no page into the holding area, as [`Areas::write`] puts a page.
    pub fn write_dummy(&self, buffer: &mut Buffer) -> Result {
        buffer.body().fill(0);
        let write = self.writes().load(Relaxed);
        let salt = self.put(write, self.dummy(), buffer)?;
        self.finish_write(write, salt);
        Ok(())
    }

    /// Seals the buffer for the slot of this write.
    fn put(&self, write: u64, page: u64, buffer: &mut Buffer) -> Result<Salt> {
        let slot = self.passes.blocks + write % self.hold_slots;
        self.slots.put(slot, page, hold_version(write), buffer)
    }

    fn finish_write(&self, write: u64, salt: Salt) {
        self.salt().store(salt.0, Relaxed);
        self.writes().store(write + 1, Relaxed);
    }

    /// A number that no page has.
    fn dummy(&self) -> u64 {
        self.passes.blocks
    }

    /// Does refresh number `refresh`, which is due.
    pub fn refresh(&self, refresh: u64, buffer: &mut Buffer) -> Result {
        self.prepare(refresh, buffer)?;
        self.publish(refresh, buffer.bytes())
    }

    /// Does `count` refreshes from number `first` on, all of which are due, by one request to read
    /// and one to write; `count` is at most the room in `buffers`. Returns how many were done: not
    /// more than to the end of the main area.
    pub fn refresh_together(&self, first: u64, count: u64, buffers: &mut Buffers) -> Result<u64> {
        let page = self.passes.block_of(first);
        let count = count.min(self.passes.blocks - page);
        let locations: Vec<Location> =
            (0..count).map(|nth| self.location(page + nth, first + nth)).collect();
        self.slots.get_together(page, &locations, buffers)?;
        let versions = (main_version(first), main_version(1) - main_version(0));
        self.slots.put_together(page, versions, self.refresh_salt(), count as usize, buffers)?;
        Ok(count)
    }

    /// The salt of the last write, unless a page was forgotten since.
    fn refresh_salt(&self) -> Option<Salt> {
        Some(Salt(self.salt().load(Acquire))).filter(|&salt| salt != Salt(0))
    }

    /// Does the first part of a refresh, which writes nothing: `buffer` gets the sealed page.
    ///
    /// The write that a refresh belongs to settles what the refresh seals, unless a page is
    /// forgotten meanwhile. So refreshes use the salt of that write until a page is forgotten, and
    /// salts of their own from then on. This function reads the salt after the page's number, and
    /// [`Areas::forget`] stores them in the opposite order: a refresh that finds the page forgotten
    /// finds no salt.
    pub fn prepare(&self, refresh: u64, buffer: &mut Buffer) -> Result {
        let page = self.passes.block_of(refresh);
        self.fetch(page, refresh, buffer)?;
        let salt = self.refresh_salt();
        self.slots.seal(page, page, main_version(refresh), salt, buffer).map(drop)
    }

    /// Does the second part of a refresh, which writes the sealed page. It may be repeated until
    /// the page is refreshed again.
    pub fn publish(&self, refresh: u64, sealed: &[u8]) -> Result {
        self.slots.write(self.passes.block_of(refresh), sealed)
    }

    /// Whether the store holds the page that this refresh sealed.
    pub fn is_published(&self, refresh: u64, buffer: &mut Buffer) -> bool {
        let page = self.passes.block_of(refresh);
        self.slots.get(page, page, main_version(refresh), buffer).is_ok()
    }

    /// Reads a page into `frame`, when `refreshed` refreshes are done and no other is under way.
    pub fn read(&self, page: u64, refreshed: u64, frame: &mut Page, buffer: &mut Buffer) -> Result {
        self.fetch(page, refreshed, buffer)?;
        frame.copy_from_slice(buffer.body());
        Ok(())
    }

    /// Reads the newest copy of a page.
    fn fetch(&self, page: u64, refreshed: u64, buffer: &mut Buffer) -> Result {
        let Location { slot, version } = self.location(page, refreshed);
        let Some(version) = version else {
            buffer.body().fill(0);
            return Ok(());
        };
        self.slots.get(slot, page, version, buffer)
    }

    /// Where the newest copy of a page lies, when `refreshed` refreshes are done.
    fn location(&self, page: u64, refreshed: u64) -> Location {
        let newest = match self.last(page).load(Acquire) {
            0 => DetWoLocation::Nowhere,
            last => self.passes.locate(page, last, refreshed),
        };
        match newest {
            DetWoLocation::Hold(write) => {
                let slot = self.passes.blocks + write % self.hold_slots;
                Location { slot, version: Some(hold_version(write)) }
            }
            DetWoLocation::Main(refresh) => {
                Location { slot: page, version: Some(main_version(refresh)) }
            }
            DetWoLocation::Nowhere => Location { slot: page, version: None },
        }
    }

    /// Whether the page was written since it was zeros last.
    pub fn holds(&self, page: u64) -> bool {
        self.last(page).load(Relaxed) != 0
    }

    /// Makes the page zeros.
    pub fn forget(&self, page: u64) {
        self.salt().store(0, Relaxed);
        self.last(page).store(0, Release);
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.passes.blocks
    }

    /// Bytes of trusted memory, without buffers.
    pub fn trusted_bytes(&self) -> usize {
        size_of_val(&self.numbers[..])
    }
}

// One key seals both areas: even versions are the holding area's, odd ones the main area's.

fn hold_version(write: u64) -> u64 {
    write * 2
}

fn main_version(refresh: u64) -> u64 {
    refresh * 2 + 1
}

/// The scheme that refreshes at once, in the thread that swaps.
pub struct DetWo {
    areas: Areas,
    refreshed: u64,
    buffer: Buffer,
    /// For refreshes, if they are done together.
    together: Option<Buffers>,
}

/// Refreshes that are done together, at most.
const TOGETHER_MAX: u64 = 8;

impl DetWo {
    /// A scheme over these areas, which no other scheme uses.
    pub fn new(areas: Areas) -> Self {
        Self { refreshed: areas.due(), areas, buffer: Buffer::default(), together: None }
    }

    /// The same, with requests to the store for several refreshes together: for a store in which a
    /// request takes long, but not each byte. What is written is the same, in the same order.
    pub fn with_few_requests(areas: Areas) -> Self {
        let count = areas.passes.refresh.at_most(1).min(TOGETHER_MAX);
        Self { together: Some(Buffers::new(count as usize)), ..Self::new(areas) }
    }

    /// Does all refreshes that are due.
    fn refresh(&mut self) -> Result {
        let due = self.areas.due();
        while self.refreshed < due {
            self.refreshed += if let Some(buffers) = &mut self.together {
                let count = (due - self.refreshed).min(buffers.count());
                self.areas.refresh_together(self.refreshed, count, buffers)?
            } else {
                self.areas.refresh(self.refreshed, &mut self.buffer)?;
                1
            };
        }
        Ok(())
    }
}

impl PageScheme for DetWo {
    fn pages(&self) -> u64 {
        self.areas.pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        if let Some(page) = out {
            self.areas.write(page, frame, &mut self.buffer)?;
            self.refresh()?;
        }
        if let Some(page) = wanted {
            self.areas.read(page, self.refreshed, frame, &mut self.buffer)?;
        }
        Ok(())
    }

    fn swap_with_dummies(
        &mut self,
        out: Option<u64>,
        wanted: Option<u64>,
        frame: &mut Page,
    ) -> Result {
        if out.is_none() {
            self.areas.write_dummy(&mut self.buffer)?;
            self.refresh()?;
        }
        self.swap(out, wanted, frame)
    }

    fn holds(&self, page: u64) -> bool {
        self.areas.holds(page)
    }

    fn forget(&mut self, page: u64) {
        self.areas.forget(page);
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn trusted_bytes(&self) -> usize {
        self.areas.trusted_bytes()
            + size_of_val(self.buffer.bytes())
            + self.together.as_ref().map_or(0, Buffers::bytes)
    }
}
