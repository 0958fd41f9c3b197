//! Paged memory, and how a page leaves it and comes back.

use super::error::{Error, Result};
use super::memory::Mapping;
use super::uffd::{FEATURE_MOVE, FEATURE_THREAD_ID, FEATURE_WP, Uffd};
use crate::{PAGE_LEN, Page};
use rustix::io::Errno;

/// How pages leave. Copying one and discarding it alone would lose what is written in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The page itself is moved, from 6.8 on. A page that is pinned stays.
    Move,
    /// Nobody may write to it while it is copied and discarded. **A page that is pinned, as by
    /// direct I/O, is lost without a sign.**
    Protect,
}

impl Way {
    /// The best that this kernel has.
    pub fn probe() -> Result<Self> {
        match Uffd::features()? {
            features if features & FEATURE_MOVE != 0 => Ok(Self::Move),
            features if features & FEATURE_WP != 0 => Ok(Self::Protect),
            _ => Err(Error::OldKernel),
        }
    }

    fn features(self) -> u64 {
        match self {
            Self::Move => FEATURE_THREAD_ID | FEATURE_MOVE,
            Self::Protect => FEATURE_THREAD_ID | FEATURE_WP,
        }
    }
}

/// What became of a page that was to leave.
pub enum Left {
    /// It left; its contents are in the frame.
    Yes,
    /// It is pinned and stays.
    Pinned,
    /// It was not there: somebody discarded it behind our back.
    WasGone,
}

/// The pages, one more where a page waits between two places, and a last one that nobody may touch
/// but to end the service.
pub struct Arena {
    uffd: Uffd,
    mapping: Mapping,
    pages: usize,
    way: Way,
}

impl Arena {
    /// `pages` pages, none of which is there, and places to park some of them.
    pub fn new(pages: usize, places: usize, way: Way) -> Result<Self> {
        let len = pages.checked_add(places + 2).and_then(|pages| pages.checked_mul(PAGE_LEN));
        let len = len.ok_or(Error::Configuration("too many pages"))?;
        let mapping = Mapping::paged(len)?;
        let uffd = Uffd::with_features(way.features())?;
        uffd.register(mapping.start(), len, way == Way::Protect)?;
        Ok(Self { uffd, mapping, pages, way })
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Where faults are told.
    pub fn uffd(&self) -> &Uffd {
        &self.uffd
    }

    /// First address.
    pub fn start(&self) -> *mut u8 {
        self.mapping.at(0)
    }

    /// The page that an address lies in; the one after the last is the bell.
    pub fn page_at(&self, address: usize) -> Option<usize> {
        let page = address.checked_sub(self.mapping.start())? / PAGE_LEN;
        (page < self.pages || page == self.bell()).then_some(page)
    }

    fn staging(&self) -> usize {
        self.pages
    }

    /// The page whose faults end the service.
    pub fn bell(&self) -> usize {
        self.pages + 1
    }

    /// Faults at the bell, and returns when that was seen.
    pub fn ring(&self) {
        // SAFETY: a page of the mapping that nobody else touches. It is missing, and whoever
        // serves faults brings it.
        unsafe { self.mapping.at(self.bell() * PAGE_LEN).read_volatile() };
    }

    fn address(&self, page: usize) -> usize {
        self.mapping.start() + page * PAGE_LEN
    }

    /// The page leaves. Between this and [`Arena::bring`] the frame is where it is.
    pub fn take(&self, page: usize, spare: &mut Page) -> Result<Left> {
        match self.way {
            Way::Move => self.move_away(page, self.staging()),
            Way::Protect => self.take_by_copying(page, spare),
        }
    }

    fn move_away(&self, page: usize, to: usize) -> Result<Left> {
        loop {
            // SAFETY: a page of ours to a place of ours that is empty: what was there was brought
            // somewhere, or discarded.
            let moved = unsafe { self.uffd.move_page(self.address(to), self.address(page), false) };
            return match moved {
                Ok(()) => Ok(Left::Yes),
                Err(Errno::AGAIN) => continue,
                Err(Errno::BUSY) => Ok(Left::Pinned),
                Err(Errno::NOENT) => Ok(Left::WasGone),
                Err(e) => Err(Error::os("a page cannot be moved", e)),
            };
        }
    }

    fn take_by_copying(&self, page: usize, spare: &mut Page) -> Result<Left> {
        let address = self.address(page);
        match self.uffd.protect(address) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Left::WasGone),
            Err(e) => return Err(Error::os("a page cannot be protected", e)),
        }
        // SAFETY: it is resident, so this thread does not fault, and nobody writes to it now.
        unsafe { core::ptr::copy_nonoverlapping(self.mapping.page(page), spare, 1) };
        self.mapping.discard(page * PAGE_LEN, PAGE_LEN)?;
        self.uffd.wake(address).map_err(|e| Error::os("nobody can be woken", e))?;
        Ok(Left::Yes)
    }

    /// The frame of the page that left last: where it was moved to, or the spare one.
    pub fn frame<'a>(&'a self, left: bool, spare: &'a mut Page) -> &'a mut Page {
        if left && self.way == Way::Move {
            // SAFETY: a page was moved there, so it is present; only the thread that serves faults
            // gets here, and it holds `spare`, of which there is one.
            unsafe { &mut *self.mapping.page(self.staging()) }
        } else {
            spare
        }
    }

    /// The frame's contents become the page `page`, and who waits for it goes on. `left` says
    /// whether the frame is that of a page that has left.
    pub fn bring(&self, page: usize, left: bool, spare: &Page) -> Result {
        let to = self.address(page);
        if !(left && self.way == Way::Move) {
            return self.copy(to, spare);
        }
        self.move_back(self.staging(), page)
    }

    fn move_back(&self, from: usize, page: usize) -> Result {
        loop {
            // SAFETY: from a place of ours to a page that is missing, with the contents that it is
            // to have.
            match unsafe { self.uffd.move_page(self.address(page), self.address(from), true) } {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(e) => return Err(Error::os("a page cannot be brought", e)),
            }
        }
    }

    /// The page goes to one of the places to park, which has none. Way of moving only.
    pub fn park(&self, page: usize, place: usize) -> Result<Left> {
        self.move_away(page, self.place(place))
    }

    /// What is parked at a place goes to the frame, as if it had just left.
    pub fn stage(&self, place: usize) -> Result {
        self.move_back(self.place(place), self.staging())
    }

    /// What is parked at a place becomes the page again, and who waits for it goes on.
    pub fn unpark(&self, place: usize, page: usize) -> Result {
        self.move_back(self.place(place), page)
    }

    /// What is parked at a place is not needed any more.
    pub fn drop_parked(&self, place: usize) -> Result {
        self.discard(self.place(place), 1)
    }

    fn place(&self, place: usize) -> usize {
        self.pages + 2 + place
    }

    /// A page has left and none comes: its frame is given back.
    pub fn drop_staged(&self) -> Result {
        if self.way == Way::Move {
            self.mapping.discard(self.staging() * PAGE_LEN, PAGE_LEN)?;
        }
        Ok(())
    }

    /// Makes the page zeros if it is missing, and wakes who waits for it in any case.
    pub fn wake_with_zeros(&self, page: usize) -> Result {
        self.copy(self.address(page), &[0; PAGE_LEN])
    }

    /// Wakes who waits for the page, to look again.
    pub fn wake(&self, page: usize) -> Result {
        self.uffd.wake(self.address(page)).map_err(|e| Error::os("nobody can be woken", e))
    }

    fn copy(&self, to: usize, from: &Page) -> Result {
        loop {
            // SAFETY: a page of ours that is missing, with the contents that it is to have.
            match unsafe { self.uffd.copy(to, from) } {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(Errno::EXIST) => {
                    return self.uffd.wake(to).map_err(|e| Error::os("nobody can be woken", e));
                }
                Err(e) => return Err(Error::os("a page cannot be filled", e)),
            }
        }
    }

    /// The pages are missing from now on.
    pub fn discard(&self, first: usize, pages: usize) -> Result {
        self.mapping.discard(first * PAGE_LEN, pages * PAGE_LEN)
    }
}
