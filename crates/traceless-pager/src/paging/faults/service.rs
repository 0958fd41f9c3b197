//! What is answered to a page fault, and the state of a pager: which page is where.

use super::affinity::ThreadPinning;
use super::frames::Frames;
use super::pace::{Pace, Ticks};
use super::page_numbers::PageNumbers;
use super::stack::StackPages;
use super::standby::StandbyList;
use crate::paging::config::{Config, SharedCounters};
use crate::paging::counters::bump;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::arena::Arena;
use crate::paging::kernel::threads::{self, FaultingThreads, TargetProcess, ThreadAffinity};
use crate::paging::kernel::uffd::Message;
use crate::scheme::PageScheme;
use crate::{PAGE_LEN, Page};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use traceless::activity::SharedActivity;
use traceless::clock::{Clock, MachineClock, Monotonic};
use traceless::trace::Op;

/// The fewest frames: an instruction may touch four pages of data at once, and makes no progress
/// unless all of them are present.
pub const FRAMES_MIN: usize = 8;

/// Faults after which the handler reads its processor time, and checks where it should run.
const CHECK_INTERVAL: u64 = 64;

/// Memory with faults to answer, and where its pages are.
pub struct FaultService {
    pub(super) arena: Arena,
    pub(super) state: Mutex<State>,
    pub(super) counters: SharedCounters,
    pub(super) activity: Option<SharedActivity>,
    /// Pages that may be resident in addition while other pages are pinned.
    pub(super) overflow: usize,
    /// The rate of accesses to the store, if it is constant.
    pub(super) pace: Option<Pace>,
    /// Whether there may be pages beside the arena's.
    pub(super) is_anywhere: AtomicBool,
    #[cfg(test)]
    pub(super) skips_idle_ticks: bool,
}

/// A fault that waits for a tick.
pub(super) struct WaitingFault {
    pub(super) address: usize,
    /// When it was reported.
    pub(super) begun: u64,
}

/// The mutable state of a pager: which page is in a frame, on the standby list, or in the scheme.
pub struct State {
    pub(super) scheme: Box<dyn PageScheme>,
    /// Where the pages are in the program.
    pub(super) numbers: PageNumbers,
    pub(super) frames: Frames,
    pub(super) standby: StandbyList,
    /// Pages that are zeros in copies of the program.
    pub(super) wiped: BTreeSet<usize>,
    /// How many pages may be resident. More threads need more frames, or they would take each
    /// other's pages away before they make progress.
    pub(super) frames_max: usize,
    pub(super) target: TargetProcess,
    pub(super) faulting: FaultingThreads,
    pub(super) handler_affinity: ThreadAffinity,
    pub(super) pinning: ThreadPinning,
    pub(super) spare: Box<Page>,
    /// Faults so far, counted or not.
    pub(super) fault_count: u64,
    /// Whether the current fault is counted.
    pub(super) is_counted: bool,
    /// When the last call of the scheme ended.
    pub(super) last_swap_ns: Option<u64>,
    /// At a constant rate, the next tick, and the faults that wait for one.
    pub(super) ticks: Option<Ticks>,
    pub(super) waiting: VecDeque<WaitingFault>,
    /// Pages that are in the scheme only.
    pub(super) outside: u64,
    /// The thread that forks, from when the pages are copied: only it gets pages.
    pub(super) forking: Option<u32>,
}

impl State {
    /// Pages that are in memory.
    pub(super) fn resident(&self) -> usize {
        self.frames.len() + self.standby.len()
    }

    /// Notes that the program discarded the resident `page` without the pager.
    pub(super) fn forget(&mut self, page: usize) {
        self.frames.remove(page);
        self.scheme.forget(page as u64);
        self.numbers.give(page);
    }

    /// Whether the page at an address is in memory.
    pub(super) fn is_resident(&self, address: usize) -> bool {
        self.numbers.find(address).is_some_and(|page| self.frames.is_resident(page))
    }
}

impl FaultService {
    /// Serves `arena`; `scheme` holds all its pages but the ones in `frames`.
    pub fn new(
        arena: Arena,
        scheme: Box<dyn PageScheme>,
        frames: Frames,
        places: usize,
        config: Config,
    ) -> Self {
        config.counters.locked.store(u64::from(arena.is_locked()), Relaxed);
        let numbers = PageNumbers::fixed(arena.start(), arena.pages());
        let trusted = scheme.trusted_bytes() + frames.bytes() + 2 * PAGE_LEN;
        config.counters.trusted_bytes.store(trusted as u64, Relaxed);
        // Pages of a copy are there from the start; else none is.
        let is_outside = |page: &usize| scheme.holds(*page as u64) && !frames.is_resident(*page);
        let outside = (0..arena.pages()).filter(is_outside).count() as u64;
        let state = State {
            scheme,
            numbers,
            frames,
            standby: StandbyList::new(places),
            wiped: BTreeSet::new(),
            frames_max: config.frames,
            target: TargetProcess::Own,
            faulting: FaultingThreads::default(),
            handler_affinity: ThreadAffinity::unrestricted(),
            // At a constant rate a fault takes as long whichever processor serves it.
            pinning: ThreadPinning::new(config.pin_threads && config.pace.is_none()),
            spare: Box::new([0; PAGE_LEN]),
            fault_count: 0,
            is_counted: true,
            last_swap_ns: None,
            ticks: None,
            waiting: VecDeque::new(),
            outside,
            forking: None,
        };
        #[cfg(test)]
        let skips_idle_ticks = config.skips_idle_ticks;
        let Config { counters, activity, overflow, pace, .. } = config;
        if let Some(activity) = &activity {
            activity.user.set_space((arena.pages() * PAGE_LEN) as u64);
        }
        let state = Mutex::new(state);
        Self {
            arena,
            state,
            counters,
            activity,
            overflow,
            pace,
            is_anywhere: AtomicBool::new(false),
            #[cfg(test)]
            skips_idle_ticks,
        }
    }

    /// The memory that is served.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Locks the pages of this process. The caller holds [`Self::state`], so that no fault is
    /// answered.
    pub fn lock(&self) -> Result<(), Errno> {
        self.arena.lock()?;
        self.counters.locked.store(1, Relaxed);
        Ok(())
    }

    /// Keeps resident pages locked while the other process does not have them mapped.
    pub fn keep_locked(&self) -> Result {
        let state = self.state();
        let mut resident = (0..self.arena.pages()).filter(|&page| state.frames.is_resident(page));
        resident.try_for_each(|page| self.arena.keep_locked(page))
    }

    /// The counters of this memory.
    pub fn counters(&self) -> &SharedCounters {
        &self.counters
    }

    /// Locks the state. No fault is answered while the guard lives: so the caller must not fault
    /// before it drops the guard, not even for its stack, if that is paged.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let mut stack = StackPages::here();
        loop {
            stack.use_nearest();
            let state = self.state.lock().expect("the thread that serves faults does not panic");
            if !self.arena.is_own() || stack.are_resident(&state.numbers, &state.frames) {
                return state;
            }
            drop(state);
            stack.touch();
        }
    }

    /// Notes that the faults are another process's.
    pub fn set_target(&self, process: u32) {
        self.state().target = TargetProcess::Other(process);
    }

    /// Lets this thread, and the program's, run on any processor until the next faults.
    pub fn suspend_affinity(&self) {
        let state = &mut *self.state();
        state.pinning.suspend();
        state.handler_affinity.stop_following();
    }

    /// Whether a thread of the program is pinned. Then the thread that waits for faults calls
    /// [`Self::unpin_idle_thread`] when none has come for
    /// [`UNPIN_AFTER`](super::affinity::UNPIN_AFTER).
    pub fn has_pinned_thread(&self) -> bool {
        self.state().pinning.is_active()
    }

    /// Unpins the pinned thread, since no fault comes.
    pub fn unpin_idle_thread(&self) {
        self.state().pinning.unpin();
    }

    /// Unpins the pinned thread, and never pins one again.
    pub fn disable_pinning(&self) {
        self.state().pinning.disable();
    }

    /// Lets a thread of the program run where the program wants, for some faults; `for_good` if the
    /// program itself sets where that is.
    pub fn unpin_thread(&self, thread: u32, for_good: bool) {
        let state = &mut *self.state();
        if state.faulting.contains(thread) {
            state.pinning.suspend();
        }
        if for_good {
            state.pinning.exclude(state.target, thread);
        }
    }

    /// Answers one message. Returns whether there will be more: not once the shutdown page was
    /// touched.
    pub fn answer(&self, message: &Message, clock: &Monotonic) -> Result<bool> {
        let Some((address, protected)) = message.fault() else { return Ok(true) };
        let address = address / PAGE_LEN * PAGE_LEN;
        if address == self.arena.shutdown_address() {
            self.arena.wake_with_zeros(address)?;
            return Ok(false);
        }
        let begun = clock.now();
        let state = &mut *self.state();
        if state.forking.is_some_and(|thread| thread != message.thread()) {
            // Its access is tried again when the fork is done.
        } else if protected && state.forking.is_some() {
            self.arena.unprotect(address)?;
        } else if protected {
            // The page has left since then: the thread that waits tries its access again.
            self.arena.wake(address)?;
        } else if state.is_resident(address) {
            // Another thread's fault brought it; or the program discarded it without the pager.
            bump(&self.counters.already_there);
            self.arena.wake_with_zeros(address)?;
        } else {
            let page = state.numbers.find_or_take(address).ok_or(Error::OutOfMemory)?;
            if let Some(threads) = state.faulting.insert(state.target, message.thread()) {
                state.frames_max = state.frames_max.max(frames_for(threads));
                if !state.faulting.only().is_some_and(|thread| state.pinning.is_pinned(thread)) {
                    state.pinning.unpin();
                }
            }
            state.is_counted = self.counters.is_open();
            if !self.bring_without_store(state, page)? {
                if state.ticks.is_some() {
                    state.waiting.push_back(WaitingFault { address, begun });
                    return Ok(true);
                }
                self.fault(state, page, clock)?;
            }
            self.finish_fault(state, page, begun, clock)?;
        }
        Ok(true)
    }

    /// Shows how many pages are where.
    pub(super) fn show_places(&self, state: &State) {
        self.counters.show_places(state.resident() as u64, state.outside);
    }

    /// Shows that a page came or left, if there is a live page.
    pub(super) fn record(&self, op: Op, page: usize) {
        if let Some(activity) = &self.activity {
            let at = (page * PAGE_LEN) as u64;
            activity.user.record(&MachineClock, op, at, PAGE_LEN as u32);
        }
    }

    /// Counts a fault that was served, and does what may wait until the program goes on.
    pub(super) fn finish_fault(
        &self,
        state: &mut State,
        page: usize,
        begun: u64,
        clock: &Monotonic,
    ) -> Result {
        self.record(Op::Read, page);
        if let Some(activity) = &self.activity {
            activity.latencies[Op::Read as usize].record(clock.now().saturating_sub(begun));
        }
        if state.is_counted {
            self.counters.fault_served(begun, clock.now());
        }
        self.show_places(state);
        state.scheme.settle()?;
        let is_due = state.fault_count.is_multiple_of(CHECK_INTERVAL);
        state.fault_count += 1;
        if is_due && state.ticks.is_none() {
            update_affinity(state, clock.now());
        }
        if !state.is_counted {
            return Ok(());
        }
        let counters = &self.counters;
        counters.resident_max.fetch_max(state.resident() as u64, Relaxed);
        if is_due || !counters.is_open() {
            counters.handler_cpu_ns.store(threads::cpu_ns(), Relaxed);
            counters.helper_cpu_ns.store(state.scheme.helper_cpu_ns(), Relaxed);
        }
        Ok(())
    }
}

/// The fewest frames for a number of threads.
fn frames_for(threads: usize) -> usize {
    FRAMES_MIN.max(4 * threads + 4)
}

/// Moves the handler to the processor of the program's thread, if there is only one, and pins the
/// thread to it if it faults often. Keeps helpers off that processor.
fn update_affinity(state: &mut State, now: u64) {
    let is_frequent = state.pinning.record_faults(now, CHECK_INTERVAL);
    let is_contended = state.pinning.is_contended(state.target, now);
    if is_contended {
        state.pinning.suspend();
    }
    state.faulting.remove_ended(state.target);
    // On a contended processor the system may find another place for both threads.
    let thread = state.faulting.only().filter(|_| !is_contended);
    let cpu = if let Some(thread) = thread {
        state.handler_affinity.follow(state.target, thread)
    } else {
        state.handler_affinity.stop_following();
        None
    };
    match thread.zip(cpu).filter(|_| is_frequent) {
        Some((thread, cpu)) => state.pinning.pin(state.target, thread, cpu, now),
        None => state.pinning.unpin(),
    }
    state.scheme.keep_off(cpu);
}
