//! How a page comes: from the standby list, from the scheme in exchange for one that leaves, or as
//! zeros.

use super::eviction::Eviction;
use super::service::{FaultService, State};
use crate::paging::counters::bump;
use crate::paging::error::Result;
use crate::paging::kernel::locking::wipe_registers;
use traceless::clock::{Clock, Monotonic};

impl FaultService {
    /// Brings a page that takes no access to the store, and returns whether it is one: it is on the
    /// standby list; or, at a constant rate, it is zeros, the scheme has nothing of it, and there
    /// is room for it. Without a rate that access is made, as its absence would show.
    pub(super) fn bring_without_store(&self, state: &mut State, page: usize) -> Result<bool> {
        if let Some(place) = state.standby.remove(page) {
            bump(&self.counters.standby_hits);
            if state.is_counted {
                bump(&self.counters.faults);
            }
            state.frames.add(page);
            let is_there = self.arena.restore_from_standby(place, state.numbers.address(page))?;
            forget_unless(state, page, is_there);
            self.fill_standby(state)?;
            return Ok(true);
        }
        let has_room = state.resident() < state.frames_max;
        if state.ticks.is_none() || !has_room || state.scheme.has_remains(page as u64) {
            return Ok(false);
        }
        state.spare.fill(0);
        self.count_arrival(state, page);
        let is_there = self.arena.install(state.numbers.address(page), false, &state.spare)?;
        forget_unless(state, page, is_there);
        self.fill_standby(state)?;
        Ok(true)
    }

    /// Brings a page, and lets pages leave for it.
    pub(super) fn fault(&self, state: &mut State, page: usize, clock: &Monotonic) -> Result {
        // Pinned pages had to stay, so more are resident than should be: the surplus leaves first.
        while state.resident() > state.frames_max {
            match self.evict_one(state)? {
                Eviction::Evicted(victim) => self.swap(state, Some(victim), None, clock)?,
                Eviction::Vanished => {}
                Eviction::NothingEvictable => break,
            }
        }
        let victim = self.make_room(state)?;
        self.swap(state, victim, Some(page), clock)
    }

    /// Has the scheme take the page that left, and bring the one that is wanted; at a constant rate
    /// with dummies for the ones that are not given.
    pub(super) fn swap(
        &self,
        state: &mut State,
        victim: Option<usize>,
        wanted: Option<usize>,
        clock: &Monotonic,
    ) -> Result {
        let evicted = victim.is_some();
        let frame = self.arena.frame(evicted, &mut state.spare);
        let begun = clock.now();
        let [out, page] = [victim, wanted].map(|page| page.map(|page| page as u64));
        state.outside -= u64::from(page.is_some_and(|page| state.scheme.holds(page)));
        state.outside += u64::from(evicted);
        match state.ticks {
            Some(_) => state.scheme.swap_with_dummies(out, page, frame)?,
            None => state.scheme.swap(out, page, frame)?,
        }
        let Some(page) = wanted else {
            return if evicted { self.arena.discard_staged() } else { Ok(()) };
        };
        let ended = clock.now();
        let between = state.last_swap_ns.replace(ended).map(|last| begun.saturating_sub(last));
        if state.is_counted {
            self.counters.swap_done(ended - begun, between);
        }
        self.count_arrival(state, page);
        // Before the program goes on: a core dump of it would have the registers of all threads.
        wipe_registers();
        let is_there = self.arena.install(state.numbers.address(page), evicted, &state.spare)?;
        forget_unless(state, page, is_there);
        self.fill_standby(state)
    }

    /// Makes the page resident, and counts it before the program goes on, which may be at its end.
    fn count_arrival(&self, state: &mut State, page: usize) {
        state.frames.add(page);
        if state.is_counted {
            self.counters.page_came(page);
            bump(&self.counters.faults);
        }
    }
}

/// Forgets a page that has just come, if there is no memory for it any more: the program has
/// unmapped it meanwhile.
fn forget_unless(state: &mut State, page: usize, is_there: bool) {
    if !is_there {
        state.forget(page);
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::super::service::FRAMES_MIN;
    use super::*;
    use crate::PAGE_LEN;
    use crate::paging::config::Config;
    use crate::paging::kernel::arena::Arena;
    use crate::paging::kernel::evict::EvictMethod;
    use crate::scheme::Plain;
    use crate::slots::{Cipher, Slots};
    use std::sync::Arc;
    use traceless::rng::System;
    use traceless::seal::Secret;
    use traceless::store::MemStore;

    const PAGES: u64 = 64;

    /// More pages are resident than there are frames, as when pinned pages had to stay.
    #[test]
    fn the_whole_surplus_leaves_past_a_discarded_page() {
        let store = Arc::new(MemStore::new(Slots::store_len(PAGES)));
        let key = Secret::random(&mut System);
        let scheme = Plain::new(store, PAGES, Cipher::default(), &key, Box::new(System)).unwrap();
        let config = Config { frames: FRAMES_MIN, ..Config::default() };
        let frames = Frames::new(PAGES as usize, config.frames, config.policy, config.seed);
        let arena = Arena::new(PAGES as usize, 0, &config, EvictMethod::Move).unwrap();
        let service = FaultService::new(arena, Box::new(scheme), frames, 0, config);
        let (state, clock) = (&mut *service.state(), Monotonic::start());
        state.frames_max = 2 * FRAMES_MIN;
        let start = service.arena.start();
        for page in 0..=2 * FRAMES_MIN {
            assert_eq!(state.numbers.find_or_take(start + page * PAGE_LEN), Some(page));
        }
        for page in 0..2 * FRAMES_MIN {
            service.fault(state, page, &clock).unwrap();
        }
        state.frames_max = FRAMES_MIN;
        // The program discards the page that is the first to leave, without the pager.
        service.arena.discard(start, PAGE_LEN).unwrap();
        service.fault(state, 2 * FRAMES_MIN, &clock).unwrap();
        assert_eq!(state.resident(), FRAMES_MIN);
    }
}
