//! `DetWoORAM` for pages: what is written, and where, follows from the number of pages that left
//! their frames, whichever they were.
//!
//! A main area holds each page at a place of its own; a holding area of N / K slots takes pages as
//! they leave, one slot after the other. With each, the next K pages of the main area are written
//! anew with their newest contents, so that whatever lies in the holding area has reached the main
//! area before its slot is used again. Nothing here outlives the program, so unlike the volume's
//! scheme of this name, whose arithmetic it shares, it needs no slack and no recovery.
//!
//! All methods take `&self`: refreshes may run on several threads, and after the page fault that
//! they belong to, as long as they are done before the next page leaves.

use super::PageScheme;
use crate::Page;
use crate::slots::{Buffer, Cipher, Salts, Slots};
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
use traceless::scheme::detwo::{DetWoLocation, Passes, Refresh};
use traceless::seal::Secret;
use traceless::store::Store;

/// The areas and who is where. Shared by whoever takes part in refreshing.
pub struct Areas {
    passes: Passes,
    hold_slots: u64,
    slots: Slots,
    /// The number of writes, that of each page's last write, counted from 1 (0 reads as zeros), and
    /// the salt of the last write, 0 once a page was forgotten since.
    numbers: Box<dyn Numbers>,
}

/// Numbers in trusted memory: of this program, or shared with others that it trusts.
pub trait Numbers: Deref<Target = [AtomicU64]> + Send + Sync {}
impl<T: Deref<Target = [AtomicU64]> + Send + Sync> Numbers for T {}

impl Areas {
    /// Bytes of store that `pages` pages take.
    pub fn store_len(pages: u64, refresh: Refresh) -> u64 {
        Slots::store_len(pages + refresh.writes_for(pages))
    }

    /// `pages` pages of zeros, `refresh` of which are refreshed for each that leaves.
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

    /// How many numbers so many pages need.
    pub fn numbers_for(pages: u64) -> Result<usize> {
        let len = usize::try_from(pages).ok().and_then(|pages| pages.checked_add(2));
        len.ok_or(Error::Geometry("too many pages"))
    }

    /// The same, with zeros to keep its numbers in.
    pub fn with_numbers(
        store: Arc<dyn Store>,
        pages: u64,
        refresh: Refresh,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
        numbers: Box<dyn Numbers>,
    ) -> Result<Self> {
        // Then no page is refreshed twice in one step.
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

    /// Refreshes that belong to the pages that have left so far.
    pub fn due(&self) -> u64 {
        self.passes.after(self.writes().load(Relaxed))
    }

    /// Puts the page in `frame` into the holding area. All refreshes that were due are done.
    pub fn write(&self, page: u64, frame: &Page, buffer: &mut Buffer) -> Result {
        buffer.body().copy_from_slice(frame);
        let write = self.writes().load(Relaxed);
        let slot = self.passes.blocks + write % self.hold_slots;
        let salt = self.slots.put(slot, page, held_version(write), buffer)?;
        self.last(page).store(write + 1, Relaxed);
        self.salt().store(salt.0, Relaxed);
        self.writes().store(write + 1, Relaxed);
        Ok(())
    }

    /// Does refresh number `refresh`, which is due.
    pub fn refresh(&self, refresh: u64, buffer: &mut Buffer) -> Result {
        self.prepare(refresh, buffer)?;
        self.publish(refresh, buffer.bytes())
    }

    /// The part of a refresh before anything is written: `buffer` is what will be.
    ///
    /// What refreshes hold is settled by the write that they belong to, unless pages are forgotten:
    /// until then they have its salt, and later each its own. Here the salt is looked at after the
    /// page, and [`Areas::forget`] changes it before: so whoever finds a page forgotten finds that.
    pub fn prepare(&self, refresh: u64, buffer: &mut Buffer) -> Result {
        let page = self.passes.block_of(refresh);
        self.fetch(page, refresh, buffer)?;
        let salt = Some(Salt(self.salt().load(Acquire))).filter(|&salt| salt != Salt(0));
        self.slots.seal(page, page, main_version(refresh), salt, buffer).map(drop)
    }

    /// The rest of it. Doing it twice is as good as once, until the page is refreshed again.
    pub fn publish(&self, refresh: u64, sealed: &[u8]) -> Result {
        self.slots.write(self.passes.block_of(refresh), sealed)
    }

    /// Whether the store holds what a refresh wrote.
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

    /// Reads its newest copy.
    fn fetch(&self, page: u64, refreshed: u64, buffer: &mut Buffer) -> Result {
        let last = self.last(page).load(Acquire);
        let newest = match last {
            0 => DetWoLocation::Nowhere,
            _ => self.passes.locate(page, last, refreshed),
        };
        match newest {
            DetWoLocation::Hold(write) => {
                let slot = self.passes.blocks + write % self.hold_slots;
                self.slots.get(slot, page, held_version(write), buffer)
            }
            DetWoLocation::Main(refresh) => {
                self.slots.get(page, page, main_version(refresh), buffer)
            }
            DetWoLocation::Nowhere => {
                buffer.body().fill(0);
                Ok(())
            }
        }
    }

    /// Whether the page was written since it was zeros last.
    pub fn holds(&self, page: u64) -> bool {
        self.last(page).load(Relaxed) != 0
    }

    /// The page is zeros from now on.
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

fn held_version(write: u64) -> u64 {
    write * 2
}

fn main_version(refresh: u64) -> u64 {
    refresh * 2 + 1
}

/// The scheme: refreshes at once, by whoever swaps.
pub struct DetWo {
    areas: Areas,
    refreshed: u64,
    buffer: Buffer,
}

impl DetWo {
    /// Over these areas, which nobody else uses.
    pub fn new(areas: Areas) -> Self {
        Self { refreshed: areas.due(), areas, buffer: Buffer::default() }
    }
}

impl PageScheme for DetWo {
    fn pages(&self) -> u64 {
        self.areas.pages()
    }

    fn swap(&mut self, out: Option<u64>, wanted: Option<u64>, frame: &mut Page) -> Result {
        if let Some(page) = out {
            self.areas.write(page, frame, &mut self.buffer)?;
            while self.refreshed < self.areas.due() {
                self.areas.refresh(self.refreshed, &mut self.buffer)?;
                self.refreshed += 1;
            }
        }
        if let Some(page) = wanted {
            self.areas.read(page, self.refreshed, frame, &mut self.buffer)?;
        }
        Ok(())
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
        self.areas.trusted_bytes() + size_of_val(self.buffer.bytes())
    }
}
