//! Answering page faults: which page comes, and which leaves for it.

use super::affinity::ThreadPinning;
use super::frames::{Frames, Policy};
use super::pace::{Pace, Ticks};
use super::page_numbers::{AddressTable, PageNumbers};
use super::stack::StackPages;
use super::standby::StandbyList;
use crate::paging::config::{Config, SharedCounters};
use crate::paging::counters::bump;
use crate::paging::error::{Error, Result};
use crate::paging::kernel::arena::{Arena, EvictOutcome, SharedPages};
use crate::paging::kernel::evict::EvictMethod;
use crate::paging::kernel::locking::wipe_registers;
use crate::paging::kernel::threads::{self, FaultingThreads, TargetProcess, ThreadAffinity};
use crate::paging::kernel::uffd::Message;
use crate::scheme::PageScheme;
use crate::{PAGE_LEN, Page};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use traceless::activity::SharedActivity;
use traceless::clock::{Clock, MachineClock, Monotonic, Timer};
use traceless::trace::Op;

/// The fewest frames: an instruction may touch four pages of data at once, and makes no progress
/// unless all of them are present.
pub const FRAMES_MIN: usize = 8;

/// The most pages that a fault tries and finds pinned before it gives up, while there is room: the
/// next fault goes on from there. Each try takes 2 us, and long direct I/O pins hundreds of pages.
pub(crate) const PINNED_TRIES: usize = 16;

/// With the policy clock, this part (one in four) of the resident pages is on the standby list.
const STANDBY_SHARE: usize = 4;

/// Faults after which the handler reads its processor time, and checks where it should run.
const CHECK_INTERVAL: u64 = 64;

/// Memory with faults to answer, and where its pages are.
pub struct FaultService {
    arena: Arena,
    state: Mutex<State>,
    counters: SharedCounters,
    activity: Option<SharedActivity>,
    /// Pages that may be resident in addition while other pages are pinned.
    overflow: usize,
    /// The rate of accesses to the store, if it is constant.
    pace: Option<Pace>,
    /// Whether there may be pages beside the arena's.
    is_anywhere: AtomicBool,
    #[cfg(test)]
    skips_idle_ticks: bool,
}

/// A fault that waits for a tick.
struct WaitingFault {
    address: usize,
    /// When it was reported.
    begun: u64,
}

/// Memory that is prepared for a copy of a program.
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

/// The mutable state of a pager: which page is in a frame, on the standby list, or in the scheme.
pub struct State {
    scheme: Box<dyn PageScheme>,
    /// Where the pages are in the program.
    numbers: PageNumbers,
    frames: Frames,
    standby: StandbyList,
    /// Pages that are zeros in copies of the program.
    wiped: BTreeSet<usize>,
    /// How many pages may be resident. More threads need more frames, or they would take each
    /// other's pages away before they make progress.
    frames_max: usize,
    target: TargetProcess,
    faulting: FaultingThreads,
    handler_affinity: ThreadAffinity,
    pinning: ThreadPinning,
    spare: Box<Page>,
    /// Faults so far, counted or not.
    fault_count: u64,
    /// Whether the current fault is counted.
    is_counted: bool,
    /// When the last call of the scheme ended.
    last_swap_ns: Option<u64>,
    /// At a constant rate, the next tick, and the faults that wait for one.
    ticks: Option<Ticks>,
    waiting: VecDeque<WaitingFault>,
    /// Pages that are in the scheme only.
    outside: u64,
}

impl State {
    /// Pages that are in memory.
    fn resident(&self) -> usize {
        self.frames.len() + self.standby.len()
    }

    /// Notes that the program discarded the resident `page` without the pager.
    fn forget(&mut self, page: usize) {
        self.frames.remove(page);
        self.scheme.forget(page as u64);
        self.numbers.give(page);
    }

    /// Whether the page at an address is in memory.
    fn is_resident(&self, address: usize) -> bool {
        self.numbers.find(address).is_some_and(|page| self.frames.is_resident(page))
    }
}

/// The outcome of a search for a page that leaves.
enum Eviction {
    /// This page left; its contents are in the frame.
    Evicted(usize),
    /// The program had discarded the page that was to leave, so one page fewer is resident.
    Vanished,
    /// All pages that were tried are pinned.
    NothingEvictable,
}

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
        copy.wiped.clone_from(&state.wiped);
        for page in 0..self.arena.pages() {
            if state.wiped.contains(&page) {
                continue;
            }
            let resident = state.frames.is_resident(page);
            if resident {
                self.arena.read(state.numbers.address(page), &mut state.spare)?;
            } else if state.scheme.holds(page as u64) {
                state.scheme.look(page as u64, &mut state.spare)?;
            } else {
                continue;
            }
            if resident && copy.frames.len() < copy.config.frames {
                copy.memory.write(page, &state.spare)?;
                copy.frames.add(page);
                continue;
            }
            copy.scheme.swap(Some(page as u64), None, &mut state.spare)?;
            copy.scheme.settle()?;
            bump(&copy.config.counters.evictions);
        }
        Ok(())
    }

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
        if protected {
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

    /// Brings a page that takes no access to the store, and returns whether it is one: it is on the
    /// standby list; or, at a constant rate, it is zeros, the scheme has nothing of it, and there
    /// is room for it. Without a rate that access is made, as its absence would show.
    fn bring_without_store(&self, state: &mut State, page: usize) -> Result<bool> {
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
    fn fault(&self, state: &mut State, page: usize, clock: &Monotonic) -> Result {
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

    /// Evicts a page, unless there is room for one more.
    fn make_room(&self, state: &mut State) -> Result<Option<usize>> {
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

    /// Has the scheme take the page that left, and bring the one that is wanted; at a constant rate
    /// with dummies for the ones that are not given.
    fn swap(
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

    /// Shows how many pages are where.
    fn show_places(&self, state: &State) {
        self.counters.show_places(state.resident() as u64, state.outside);
    }

    /// Makes the page resident, and counts it before the program goes on, which may be at its end.
    fn count_arrival(&self, state: &mut State, page: usize) {
        state.frames.add(page);
        if state.is_counted {
            self.counters.page_came(page);
            bump(&self.counters.faults);
        }
    }

    /// Moves the next victims to the standby list, as many as there are places for.
    fn fill_standby(&self, state: &mut State) -> Result {
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
    fn evict_one(&self, state: &mut State) -> Result<Eviction> {
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

    /// Shows that a page came or left, if there is a live page.
    fn record(&self, op: Op, page: usize) {
        if let Some(activity) = &self.activity {
            let at = (page * PAGE_LEN) as u64;
            activity.user.record(&MachineClock, op, at, PAGE_LEN as u32);
        }
    }

    /// Counts a fault that was served, and does what may wait until the program goes on.
    fn finish_fault(
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

/// Forgets a page that has just come, if there is no memory for it any more: the program has
/// unmapped it meanwhile.
fn forget_unless(state: &mut State, page: usize, is_there: bool) {
    if !is_there {
        state.forget(page);
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

#[cfg(test)]
mod tests {
    use super::*;
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
