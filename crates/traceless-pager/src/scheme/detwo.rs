//! `DetWoORAM` for pages: which slots are written follows from the number of pages that left their
//! frames, and not from which pages these were.
//!
//! A main area holds each page in a slot of its own, its *place*; a holding area of N / K slots
//! takes pages as they leave, one slot after the other. With each of them, the next K pages of the
//! main area are written anew with their newest contents, so that all contents of a slot of the
//! holding area have reached the main area before the slot is used again. Nothing here outlives the
//! program, so it needs no slack and no recovery, unlike the volume's scheme of this name, which
//! uses the same arithmetic. Areas that grow use the first slots of both areas, and have no more
//! places than are needed; where the store is sparse it takes room for these alone.
//!
//! All methods take `&self`: refreshes may run on several threads, and after the page fault that
//! they belong to, as long as they are done before the next page leaves.

use super::PageScheme;
use super::main_area::{Growth, MainArea, Schedule};
use super::places::{Places, last_write};
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
use traceless_block::detwo::{DetWoLocation, Refresh};

/// The areas, and where each page is. Shared by all threads or processes that refresh.
pub struct Areas {
    main: MainArea,
    /// Which places pages have, where the main area grows; else each page has its own number's.
    places: Option<Places>,
    slots: Slots,
    /// The number of writes; the salt of the last write, 0 if a page was forgotten since; the
    /// numbers of the schedule; and for each place the number of its last write, counted from 1 (0
    /// reads as zeros).
    numbers: Box<dyn Numbers>,
    /// Where the numbers of the places begin.
    first_place: usize,
}

/// Where the numbers of the schedule begin.
const FIRST_OF_SCHEDULE: usize = 2;

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
        Self::growing(store, MainArea::whole(pages, refresh), cipher, key, salts)
    }

    /// The same with a main area that may grow.
    ///
    /// # Errors
    /// As of [`Areas::with_numbers`].
    pub fn growing(
        store: Arc<dyn Store>,
        main: MainArea,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
    ) -> Result<Self> {
        let len = Self::numbers_for(main)?;
        let numbers: Vec<AtomicU64> = (0..len).map(|_| AtomicU64::new(0)).collect();
        Self::with_numbers(store, main, cipher, key, salts, Box::new(numbers))
    }

    /// How many numbers [`Areas::with_numbers`] needs.
    ///
    /// # Errors
    /// More pages than there can be numbers.
    pub fn numbers_for(main: MainArea) -> Result<usize> {
        let pages = usize::try_from(main.pages).ok();
        let len = pages.and_then(|pages| pages.checked_add(first_place(main)));
        len.ok_or(Error::Geometry("too many pages"))
    }

    /// The same as [`Areas::growing`], with the memory for the numbers, which must be zeros.
    ///
    /// # Errors
    /// A main area of fewer pages than are refreshed at once, or of more than 2^32 if it grows; a
    /// store or numbers that are too small; or a cipher that this machine computes wrongly.
    pub fn with_numbers(
        store: Arc<dyn Store>,
        main: MainArea,
        cipher: Cipher,
        key: &Secret,
        salts: Box<dyn Salts>,
        numbers: Box<dyn Numbers>,
    ) -> Result<Self> {
        let MainArea { pages, refresh, .. } = main;
        // With fewer, a page would be refreshed twice in one step.
        if pages < refresh.at_most(1) {
            return Err(Error::Geometry("fewer pages than are refreshed at once"));
        }
        if numbers.len() != Self::numbers_for(main)? {
            return Err(Error::Geometry("too few numbers for the pages"));
        }
        let places = main.grows().then(|| Places::new(pages)).transpose()?;
        let slots = Slots::new(store, pages + refresh.writes_for(pages), cipher, key, salts)?;
        let areas = Self { main, places, slots, numbers, first_place: first_place(main) };
        areas.schedule().begin();
        Ok(areas)
    }

    fn writes(&self) -> &AtomicU64 {
        &self.numbers[0]
    }

    fn salt(&self) -> &AtomicU64 {
        &self.numbers[1]
    }

    fn schedule(&self) -> Schedule<'_> {
        Schedule::new(self.main, &self.numbers[FIRST_OF_SCHEDULE..self.first_place])
    }

    fn place_numbers(&self) -> &[AtomicU64] {
        &self.numbers[self.first_place..]
    }

    fn number(&self, place: u64) -> &AtomicU64 {
        &self.place_numbers()[place as usize]
    }

    /// The place of a page, if it has one.
    fn place(&self, page: u64) -> Option<u64> {
        self.places.as_ref().map_or(Some(page), |places| places.find(page))
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
        self.schedule().due(self.writes().load(Relaxed))
    }

    /// The place that a refresh is of.
    pub fn place_of(&self, refresh: u64) -> u64 {
        self.schedule().place_of(refresh)
    }

    /// Puts the page in `frame` into the holding area. All refreshes that were due must be done.
    pub fn write(&self, page: u64, frame: &Page, buffer: &mut Buffer) -> Result {
        buffer.body().copy_from_slice(frame);
        let write = self.writes().load(Relaxed);
        let numbers = self.place_numbers();
        let place = self.places.as_ref().map_or(page, |all| all.find_or_take(page, numbers));
        let salt = self.put(write, place, buffer)?;
        self.number(place).store(write + 1, Relaxed);
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
    fn put(&self, write: u64, place: u64, buffer: &mut Buffer) -> Result<Salt> {
        self.slots.put(self.hold_slot(write), place, hold_version(write), buffer)
    }

    fn hold_slot(&self, write: u64) -> u64 {
        self.main.pages + self.schedule().hold_slot(write)
    }

    fn finish_write(&self, write: u64, salt: Salt) {
        self.salt().store(salt.0, Relaxed);
        self.writes().store(write + 1, Relaxed);
        let used = match (self.main.growth, &self.places) {
            (Growth::Pages, Some(places)) => places.used(),
            _ => write + 1,
        };
        self.schedule().end_write(write, used);
    }

    /// A number that no place has.
    fn dummy(&self) -> u64 {
        self.main.pages
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
        let place = self.place_of(first);
        let count = count.min(self.schedule().rest_of_pass(first));
        let locations: Vec<Location> =
            (0..count).map(|nth| self.location(place + nth, first + nth)).collect();
        self.slots.get_together(place, &locations, buffers)?;
        let versions = (main_version(first), main_version(1) - main_version(0));
        self.slots.put_together(place, versions, self.refresh_salt(), count as usize, buffers)?;
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
        let place = self.place_of(refresh);
        self.fetch(place, refresh, buffer)?;
        let salt = self.refresh_salt();
        self.slots.seal(place, place, main_version(refresh), salt, buffer).map(drop)
    }

    /// Does the second part of a refresh, which writes the sealed page. It may be repeated until
    /// the page is refreshed again.
    pub fn publish(&self, refresh: u64, sealed: &[u8]) -> Result {
        self.slots.write(self.place_of(refresh), sealed)
    }

    /// Whether the store holds the page that this refresh sealed.
    pub fn is_published(&self, refresh: u64, buffer: &mut Buffer) -> bool {
        let place = self.place_of(refresh);
        self.slots.get(place, place, main_version(refresh), buffer).is_ok()
    }

    /// Reads a page into `frame`, when `refreshed` refreshes are done and no other is under way.
    pub fn read(&self, page: u64, refreshed: u64, frame: &mut Page, buffer: &mut Buffer) -> Result {
        match self.place(page) {
            Some(place) => self.fetch(place, refreshed, buffer)?,
            None => buffer.body().fill(0),
        }
        frame.copy_from_slice(buffer.body());
        Ok(())
    }

    /// Reads the newest copy of a place's page.
    fn fetch(&self, place: u64, refreshed: u64, buffer: &mut Buffer) -> Result {
        let Location { slot, version } = self.location(place, refreshed);
        let Some(version) = version else {
            buffer.body().fill(0);
            return Ok(());
        };
        self.slots.get(slot, place, version, buffer)
    }

    /// Where the newest copy of a place's page lies, when `refreshed` refreshes are done.
    fn location(&self, place: u64, refreshed: u64) -> Location {
        let newest = match last_write(self.number(place).load(Acquire)) {
            None => DetWoLocation::Nowhere,
            Some(write) => self.schedule().locate(place, write, refreshed),
        };
        match newest {
            DetWoLocation::Hold(write) => {
                Location { slot: self.hold_slot(write), version: Some(hold_version(write)) }
            }
            DetWoLocation::Main(refresh) => {
                Location { slot: place, version: Some(main_version(refresh)) }
            }
            DetWoLocation::Nowhere => Location { slot: place, version: None },
        }
    }

    /// Whether the page was written since it was zeros last.
    pub fn holds(&self, page: u64) -> bool {
        let number = |place| self.number(place).load(Relaxed);
        self.place(page).is_some_and(|place| last_write(number(place)).is_some())
    }

    /// Makes the page zeros.
    pub fn forget(&self, page: u64) {
        self.salt().store(0, Relaxed);
        match &self.places {
            Some(places) => places.give(page, self.place_numbers()),
            None => self.number(page).store(0, Release),
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.main.pages
    }

    /// Bytes of trusted memory for a main area, without buffers.
    ///
    /// # Errors
    /// As of [`Areas::numbers_for`].
    pub fn memory_for(main: MainArea) -> Result<usize> {
        let places = if main.grows() { Places::bytes_for(main.pages) } else { 0 };
        Ok(Self::numbers_for(main)? * size_of::<AtomicU64>() + places)
    }

    /// Bytes of trusted memory, without buffers.
    pub fn trusted_bytes(&self) -> usize {
        size_of_val(&self.numbers[..]) + self.places.as_ref().map_or(0, Places::bytes)
    }
}

/// Where the numbers of places begin.
fn first_place(main: MainArea) -> usize {
    FIRST_OF_SCHEDULE + main.schedule_words()
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
        let count = areas.main.refresh.at_most(1).min(TOGETHER_MAX);
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
