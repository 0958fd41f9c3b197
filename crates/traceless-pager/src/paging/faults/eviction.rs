//! Which pages leave, and how many may be resident.

use super::frames::Policy;
use super::service::{FRAMES_MIN, FaultService, State};
use crate::paging::config::Config;
use crate::paging::counters::bump;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::arena::EvictOutcome;
use crate::paging::kernel::evict::EvictMethod;
use traceless::trace::Op;

/// The most pages that a fault tries and finds pinned before it gives up, while there is room: the
/// next fault goes on from there. Each try takes 2 us, and long direct I/O pins hundreds of pages.
pub(crate) const PINNED_TRIES: usize = 16;

/// With the policy clock, this part (one in four) of the resident pages is on the standby list.
const STANDBY_SHARE: usize = 4;

/// Places on the standby list, if the policy has one.
pub fn standby_places(config: &Config, method: EvictMethod) -> Result<usize> {
    match config.policy {
        Policy::Clock if method != EvictMethod::Move => {
            Err(Error::Configuration("the policy clock takes Linux 6.8 and the mode thread"))
        }
        Policy::Clock => Ok((config.frames / STANDBY_SHARE).min(config.frames - FRAMES_MIN)),
        Policy::Fifo | Policy::Random => Ok(0),
    }
}

/// The outcome of a search for a page that leaves.
pub(super) enum Eviction {
    /// This page left; its contents are in the frame.
    Evicted(usize),
    /// The program had discarded the page that was to leave, so one page fewer is resident.
    Vanished,
    /// All pages that were tried are pinned.
    NothingEvictable,
}

impl FaultService {
    /// Evicts a page, unless there is room for one more.
    pub(super) fn make_room(&self, state: &mut State) -> Result<Option<usize>> {
        let victim = if state.resident() < state.frames_max {
            None
        } else {
            match self.evict_one(state)? {
                Eviction::Evicted(victim) => Some(victim),
                Eviction::Vanished | Eviction::NothingEvictable => None,
            }
        };
        if state.resident() >= state.frames_max + self.overflow {
            return Err(Error::Pinned(self.overflow));
        }
        Ok(victim)
    }

    /// Moves the next victims to the standby list, as many as there are places for.
    pub(super) fn fill_standby(&self, state: &mut State) -> Result {
        let mut tries = state.frames.len();
        while let Some(place) = state.standby.free_place() {
            if tries == 0 || state.resident() < state.frames_max {
                break;
            }
            tries -= 1;
            let victim = state.frames.victim();
            match self.arena.move_to_standby(state.numbers.address(victim), place)? {
                EvictOutcome::Evicted => {
                    state.frames.remove(victim);
                    state.standby.add(victim);
                }
                EvictOutcome::Pinned => bump(&self.counters.pinned),
                EvictOutcome::Absent => state.forget(victim),
            }
        }
        Ok(())
    }

    /// Evicts one page, unless a page that was discarded makes room.
    pub(super) fn evict_one(&self, state: &mut State) -> Result<Eviction> {
        if let Some((victim, place)) = state.standby.pop() {
            self.arena.stage(place)?;
            self.count_eviction(state, victim);
            return Ok(Eviction::Evicted(victim));
        }
        // Half of the overflow is for faults that try few pages. Beyond it a fault tries all pages,
        // so the rest is used only while every page is pinned.
        let has_room = state.resident() < state.frames_max + self.overflow / 2;
        let tries = if has_room { PINNED_TRIES } else { usize::MAX };
        for _ in 0..state.frames.len().min(tries) {
            let victim = state.frames.victim();
            let address = state.numbers.address(victim);
            match self.arena.evict(address, &mut state.spare)? {
                EvictOutcome::Evicted => {
                    state.frames.remove(victim);
                    self.count_eviction(state, victim);
                    return Ok(Eviction::Evicted(victim));
                }
                EvictOutcome::Pinned => bump(&self.counters.pinned),
                EvictOutcome::Absent => {
                    state.forget(victim);
                    return Ok(Eviction::Vanished);
                }
            }
        }
        Ok(Eviction::NothingEvictable)
    }

    fn count_eviction(&self, state: &State, victim: usize) {
        self.record(Op::Write, victim);
        if state.is_counted {
            self.counters.page_left(victim);
        }
    }
}
