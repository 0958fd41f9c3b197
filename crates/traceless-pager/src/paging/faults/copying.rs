//! Copies of all pages, for a copy of the program that `fork` makes.

use super::frames::Frames;
use super::page_numbers::PageNumbers;
use super::service::{FaultService, State};
use crate::Page;
use crate::paging::config::Config;
use crate::paging::counters::bump;
use crate::paging::error::Result;
use crate::paging::kernel::arena::SharedPages;
use crate::scheme::PageScheme;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeSet;

/// Memory that is prepared for a copy of a program, which another process pages.
pub struct CopyMemory {
    /// The resident pages.
    pub memory: SharedPages,
    /// All other pages.
    pub scheme: Box<dyn PageScheme>,
    /// Which pages are resident.
    pub frames: Frames,
    /// Pages that will be zeros in copies of the copy.
    pub wiped: BTreeSet<usize>,
    /// The configuration of its pager.
    pub config: Config,
}

impl FaultService {
    /// Sets whether some pages will be zeros in copies of the program, or keep their contents.
    pub fn set_wiped_in_copies(&self, first: usize, pages: usize, wipes: bool) {
        let state = &mut *self.state();
        for page in first..first + pages {
            if wipes {
                state.wiped.insert(page);
            } else {
                state.wiped.remove(&page);
            }
        }
    }

    /// Sets which pages of a copy will be zeros in its own copies.
    pub fn inherit_wiped(&self, wiped: BTreeSet<usize>) {
        self.state().wiped = wiped;
    }

    /// Makes a copy of all pages while no thread touches any. Resident pages become resident in the
    /// copy while it has frames; all other ones go to the copy's scheme.
    pub fn copy_to(&self, copy: &mut CopyMemory) -> Result {
        let state = &mut *self.state();
        let CopyMemory { memory, scheme, frames, wiped, config } = copy;
        wiped.clone_from(&state.wiped);
        let keeps = |page: usize, _| !wiped.contains(&page);
        self.for_each_page(state, keeps, |page, is_resident, contents| {
            if is_resident && frames.len() < config.frames {
                memory.write(page, contents)?;
                frames.add(page);
                return Ok(());
            }
            bump(&config.counters.evictions);
            put_away(&mut **scheme, page, contents)
        })
    }

    /// Makes a copy of the pages of this process, in `scheme`, and returns where the pages are in
    /// the program. Pages that are to be zeros there, by their addresses, are left out. From the
    /// copy to [`Self::end_fork`] all threads but this one wait that write to `ranges`, which hold
    /// all pages: what they write elsewhere meanwhile agrees with the copy.
    pub fn copy_own_to(
        &self,
        scheme: &mut dyn PageScheme,
        ranges: &[Range<usize>],
        is_zeros: impl Fn(usize) -> bool,
    ) -> Result<PageNumbers> {
        let state = &mut *self.state();
        // The copy inherits where this thread may run.
        state.pinning.suspend();
        // What the program has unmapped by itself cannot be protected, and has no pages.
        for range in ranges {
            self.arena.protect_range(range);
        }
        state.forking = Some(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        // They fault again when the fork is done.
        state.waiting.clear();
        let keeps = |_, address| !is_zeros(address);
        let put = |page, _, contents: &mut Page| put_away(scheme, page, contents);
        self.for_each_page(state, keeps, put)?;
        Ok(state.numbers.clone())
    }

    /// Lets all threads go on after a fork, also after one that failed.
    pub fn end_fork(&self, ranges: &[Range<usize>]) {
        let state = &mut *self.state();
        if state.forking.take().is_some() {
            for range in ranges {
                self.arena.unprotect_range(range);
            }
        }
    }

    /// Sets where the pages of a copy are in the program.
    pub fn inherit_numbers(&self, numbers: PageNumbers) {
        self.is_anywhere.store(numbers.is_anywhere(), Relaxed);
        self.state().numbers = numbers;
    }

    /// Calls `put` with each page that is not zeros and that `keeps` accepts, by its number and
    /// address: with its number, whether it is in memory, and its contents.
    fn for_each_page(
        &self,
        state: &mut State,
        keeps: impl Fn(usize, usize) -> bool,
        mut put: impl FnMut(usize, bool, &mut Page) -> Result,
    ) -> Result {
        for page in 0..self.arena.pages() {
            let address = state.numbers.address(page);
            if !keeps(page, address) {
                continue;
            }
            let is_resident = state.frames.is_resident(page);
            if is_resident {
                if !self.arena.read_if_there(address, &mut state.spare)? {
                    continue;
                }
            } else if let Some(place) = state.standby.place_of(page) {
                self.arena.read_standby(place, &mut state.spare)?;
            } else if state.scheme.holds(page as u64) {
                state.scheme.look(page as u64, &mut state.spare)?;
            } else {
                continue;
            }
            put(page, is_resident, &mut state.spare)?;
        }
        Ok(())
    }
}

fn put_away(scheme: &mut dyn PageScheme, page: usize, contents: &mut Page) -> Result {
    scheme.swap(Some(page as u64), None, contents)?;
    Ok(scheme.settle()?)
}
