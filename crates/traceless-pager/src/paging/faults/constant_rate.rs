//! Accesses to the store at a constant rate: at each tick one, for a fault that waits, or a dummy.

use super::pace::Ticks;
use super::service::{FaultService, State, WaitingFault};
use crate::paging::counters::bump;
use crate::paging::error::{Error, Result};
use core::sync::atomic::Ordering::Relaxed;
use traceless::clock::{Clock, Monotonic, Timer};

impl FaultService {
    /// Begins with ticks, if the rate is constant. The caller calls [`Self::tick_if_due`] from now
    /// on when [`Self::ns_to_tick`] have passed.
    pub fn start_ticks(&self, clock: &Monotonic) {
        self.state().ticks = self.pace.map(|pace| Ticks::start(pace, clock.now()));
    }

    /// Nanoseconds until the use of the next tick is decided; `None` without a constant rate.
    pub fn ns_to_tick(&self, clock: &Monotonic) -> Option<u64> {
        self.pace?;
        let state = self.state();
        state.ticks.as_ref().map(|ticks| ticks.decided_at().saturating_sub(clock.now()))
    }

    /// Makes the access of the next tick, if it is time to decide its use.
    pub fn tick_if_due(&self, clock: &Monotonic) -> Result {
        if self.ns_to_tick(clock) == Some(0) { self.tick(clock) } else { Ok(()) }
    }

    /// Forgets the faults that wait: their threads are woken, and will fault again.
    pub fn forget_waiting(&self) {
        self.state().waiting.clear();
    }

    /// Makes dummy accesses, each at its tick, until there were as many ticks as the pace says. No
    /// fault is answered any more.
    pub fn finish_ticks(&self, clock: &Monotonic) -> Result {
        self.forget_waiting();
        while self.state().ticks.as_ref().is_some_and(|ticks| !ticks.may_end()) {
            self.tick(clock)?;
        }
        Ok(())
    }

    /// Makes the access of the next tick when it is due: for the first fault that waits and takes
    /// one, or a dummy.
    fn tick(&self, clock: &Monotonic) -> Result {
        let state = &mut *self.state();
        let waiting = self.next_waiting(state, clock)?;
        let (mut victim, mut comes) = (None, None);
        if let Some((page, _)) = &waiting {
            victim = self.make_room(state)?;
            // Pinned pages had to stay, so more are resident than should be: the surplus leaves
            // first, a page a tick.
            let is_surplus = victim.is_some() && state.resident() >= state.frames_max;
            comes = (!is_surplus).then_some(*page);
        }
        let due = state.ticks.as_ref().map_or(0, Ticks::due);
        clock.wait_until(due);
        self.count_tick(state, waiting.is_some(), clock.now());
        #[cfg(test)]
        if self.skips_idle_ticks && waiting.is_none() {
            return Ok(());
        }
        self.swap(state, victim, comes, clock)?;
        match (waiting, comes) {
            (Some((_, fault)), Some(page)) => self.finish_fault(state, page, fault.begun, clock),
            (Some((_, fault)), None) => {
                state.waiting.push_front(fault);
                Ok(state.scheme.settle()?)
            }
            (None, _) => Ok(state.scheme.settle()?),
        }
    }

    /// The first fault that waits and takes an access to the store, and its page. Answers the ones
    /// before it.
    fn next_waiting(
        &self,
        state: &mut State,
        clock: &Monotonic,
    ) -> Result<Option<(usize, WaitingFault)>> {
        while let Some(fault) = state.waiting.pop_front() {
            let page = state.numbers.find_or_take(fault.address).ok_or(Error::OutOfMemory)?;
            if state.frames.is_resident(page) {
                bump(&self.counters.already_there);
                self.arena.wake_with_zeros(fault.address)?;
                continue;
            }
            state.is_counted = self.counters.is_open();
            if !self.bring_without_store(state, page)? {
                return Ok(Some((page, fault)));
            }
            self.finish_fault(state, page, fault.begun, clock)?;
        }
        Ok(None)
    }

    fn count_tick(&self, state: &mut State, is_used: bool, now: u64) {
        let Some(ticks) = &mut state.ticks else { return };
        let (delay, is_late) = ticks.pass(now);
        let counters = &self.counters;
        bump(&counters.ticks);
        counters.tick_delay_max_ns.fetch_max(delay, Relaxed);
        for (counter, applies) in [(&counters.ticks_used, is_used), (&counters.ticks_late, is_late)]
        {
            if applies {
                bump(counter);
            }
        }
    }
}
