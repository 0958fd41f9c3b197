//! What becomes of pages when the program discards, unmaps, replaces or moves their memory.

use super::page_numbers::AddressTable;
use super::service::{FaultService, State};
use crate::PAGE_LEN;
use crate::paging::error::Result;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

impl FaultService {
    /// Allows for pages anywhere in the address space of this process from now on.
    pub fn allow_anywhere(&self) {
        if self.is_anywhere.load(Relaxed) {
            return;
        }
        let table = AddressTable::new(self.arena.pages());
        let bytes = table.bytes();
        let mut state = self.state();
        let State { numbers, frames, standby, scheme, .. } = &mut *state;
        let unused = numbers.extend(table, |page| {
            frames.is_resident(page) || scheme.holds(page as u64) || standby.contains(page)
        });
        if unused.is_none() {
            self.counters.trusted_bytes.fetch_add(bytes as u64, Relaxed);
            self.is_anywhere.store(true, Relaxed);
        }
        // Only then what is not used is freed: that takes a lock.
        drop(state);
        drop(unused);
    }

    /// Makes some of the pager's own pages zeros for their next access.
    pub fn discard(&self, first: usize, pages: usize) -> Result {
        let state = &mut *self.state();
        let start = self.arena.start() + first * PAGE_LEN;
        self.forget_range(state, &(start..start + pages * PAGE_LEN))?;
        self.arena.discard(start, pages * PAGE_LEN)
    }

    /// Runs `change`, which makes what the pages of a range hold disappear, while no page moves. If
    /// it succeeds the pages are zeros for their next access.
    pub fn replace(&self, range: &Range<usize>, change: impl FnOnce() -> bool) -> Result<bool> {
        let state = &mut *self.state();
        let is_done = change();
        if is_done {
            self.forget_range(state, range)?;
        }
        Ok(is_done)
    }

    /// Runs `change`, which moves the memory of the first range to the second one, while no page
    /// moves. If it succeeds, the second range has the first one's pages, and none of its own.
    pub fn relocate(
        &self,
        from: &Range<usize>,
        change: impl FnOnce() -> Option<Range<usize>>,
    ) -> Result<Option<Range<usize>>> {
        let state = &mut *self.state();
        let Some(to) = change() else { return Ok(None) };
        if to.start == from.start {
            self.forget_range(state, &(to.end.min(from.end)..from.end))?;
            return Ok(Some(to));
        }
        self.forget_range(state, &to)?;
        for nth in 0..state.numbers.count_within(from) {
            let Some(page) = state.numbers.within(from, nth) else { continue };
            let offset = state.numbers.address(page) - from.start;
            if offset < to.len() {
                state.numbers.rename(page, to.start + offset);
            }
        }
        self.forget_range(state, from)?;
        Ok(Some(to))
    }

    /// Makes the pages of a range zeros for their next access, but for what the program still finds
    /// in its memory.
    fn forget_range(&self, state: &mut State, range: &Range<usize>) -> Result {
        for nth in 0..state.numbers.count_within(range) {
            let Some(page) = state.numbers.within(range, nth) else { continue };
            if state.frames.is_resident(page) {
                state.frames.remove(page);
            } else if let Some(place) = state.standby.remove(page) {
                self.arena.discard_standby(place)?;
            } else if state.scheme.holds(page as u64) {
                state.outside -= 1;
            }
            state.scheme.forget(page as u64);
            state.numbers.give(page);
        }
        self.show_places(state);
        Ok(())
    }
}
