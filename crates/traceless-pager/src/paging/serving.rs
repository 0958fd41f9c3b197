//! Answering page faults, whoever's they are: which page comes, and who leaves for it.

use super::arena::{Arena, EvictOutcome, SharedPages};
use super::config::{Config, SharedCounters};
use super::error::{Error, Result};
use super::frames::{Frames, Policy};
use super::holding::Holding;
use super::locking::wipe_registers;
use super::parked::StandbyList;
use super::stats::bump;
use super::threads::{self, Faulting, Place, TargetProcess};
use super::uffd::Message;
use super::way::Way;
use crate::scheme::PageScheme;
use crate::{PAGE_LEN, Page};
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use traceless::clock::{Clock, Monotonic};

/// The fewest frames: an instruction may touch four pages of data at once, and must find all of
/// them there before it gets anywhere.
pub const FRAMES_MIN: usize = 8;

/// Pages that a fault finds pinned before it leaves all resident, while there is room: the next one
/// goes on from there. To ask each takes 2 us, and much direct I/O pins hundreds at a time.
pub(super) const PINNED_TRIES: usize = 16;

/// With the policy clock one of so many resident pages is parked.
const PARKED_SHARE: usize = 4;

/// Faults after which the handler looks at its processor time, and at where it should run.
const CPU_INTERVAL: u64 = 64;

/// Memory whose faults are answered, and what is known of its pages.
pub struct Serving {
    arena: Arena,
    state: Mutex<State>,
    counters: SharedCounters,
    overflow: usize,
}

/// Memory to be, for a copy of a program.
pub struct CopyMemory {
    /// Its pages that are resident.
    pub memory: SharedPages,
    /// All others.
    pub scheme: Box<dyn PageScheme>,
    /// Which of them are resident.
    pub frames: Frames,
    /// Pages that will be zeros in copies of the copy.
    pub wiped: BTreeSet<usize>,
    /// How it is paged.
    pub config: Config,
}

/// Who is where.
pub struct State {
    scheme: Box<dyn PageScheme>,
    frames: Frames,
    parked: StandbyList,
    /// Pages that are zeros in copies of the program.
    wiped: BTreeSet<usize>,
    /// How many pages may be resident. More threads need more, or they would take each other's
    /// pages away before they get anywhere.
    frames_max: usize,
    whose: TargetProcess,
    threads: Faulting,
    place: Place,
    holding: Holding,
    spare: Box<Page>,
    /// Faults so far, counted or not.
    served: u64,
    /// Whether the fault that is served is counted.
    is_counted: bool,
    /// When the scheme was done the last time.
    swapped_at: Option<u64>,
}

impl State {
    /// Pages that are in memory.
    fn resident(&self) -> usize {
        self.frames.len() + self.parked.len()
    }
}

/// Places to park pages at, if the policy wants any.
pub fn places(config: &Config, way: Way) -> Result<usize> {
    match config.policy {
        Policy::Clock if way != Way::Move => {
            Err(Error::Configuration("the policy clock takes Linux 6.8 and the mode thread"))
        }
        Policy::Clock => Ok((config.frames / PARKED_SHARE).min(config.frames - FRAMES_MIN)),
        Policy::Fifo | Policy::Random => Ok(0),
    }
}

impl Serving {
    /// Over the arena, whose pages `scheme` keeps but for those in `frames`.
    pub fn new(
        arena: Arena,
        scheme: Box<dyn PageScheme>,
        frames: Frames,
        places: usize,
        config: Config,
    ) -> Self {
        config.counters.locked.store(u64::from(arena.is_locked()), Relaxed);
        let trusted = scheme.trusted_bytes() + frames.bytes() + 2 * PAGE_LEN;
        config.counters.trusted_bytes.store(trusted as u64, Relaxed);
        let state = State {
            scheme,
            frames,
            parked: StandbyList::new(places),
            wiped: BTreeSet::new(),
            frames_max: config.frames,
            whose: TargetProcess::Own,
            threads: Faulting::default(),
            place: Place::anywhere(),
            holding: Holding::new(config.holds),
            spare: Box::new([0; PAGE_LEN]),
            served: 0,
            is_counted: true,
            swapped_at: None,
        };
        let Config { counters, overflow, .. } = config;
        Self { arena, state: Mutex::new(state), counters, overflow }
    }

    /// The memory.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Locks the pages of this process, while nobody's fault is answered.
    pub fn lock(&self) -> Result<(), Errno> {
        self.arena.lock()?;
        self.counters.locked.store(1, Relaxed);
        Ok(())
    }

    /// Resident pages stay locked while the other process does not have them mapped.
    pub fn stay_locked(&self) -> Result {
        let state = self.state();
        let mut resident = (0..self.arena.pages()).filter(|&page| state.frames.holds(page));
        resident.try_for_each(|page| self.arena.stay_locked(page))
    }

    /// Where it is counted.
    pub fn counters(&self) -> &SharedCounters {
        &self.counters
    }

    /// Who is where. Nobody's fault is answered meanwhile: so whoever asks must not fault before it
    /// lets go, not even for its stack, if that lies in these pages.
    pub fn state(&self) -> MutexGuard<'_, State> {
        let lock = || self.state.lock().expect("whoever serves faults does not panic");
        let stack = self.arena.pages_of_stack();
        loop {
            let state = lock();
            if stack.clone().all(|page| state.frames.holds(page)) {
                return state;
            }
            drop(state);
            stack.clone().for_each(|page| self.arena.touch(page));
        }
    }

    /// The faults are those of another process.
    pub fn is_for(&self, process: u32) {
        self.state().whose = TargetProcess::Other(process);
    }

    /// Lets this thread, and the program's, run anywhere until the next faults show where they
    /// should.
    pub fn roam(&self) {
        let state = &mut *self.state();
        state.holding.pause();
        state.place.stay();
    }

    /// Whether a thread of the program is held. Then whoever waits for faults calls [`Self::rest`]
    /// when none has come for [`REST`](super::holding::REST).
    pub fn is_holding(&self) -> bool {
        self.state().holding.is_on()
    }

    /// There are no faults: nobody is held.
    pub fn rest(&self) {
        self.state().holding.let_go();
    }

    /// From now on nobody is held.
    pub fn hold_nobody(&self) {
        self.state().holding.end();
    }

    /// Lets a thread of the program run where the program wants, for some faults; or, if the
    /// program says where that is, for good.
    pub fn let_go(&self, thread: u32, for_good: bool) {
        let state = &mut *self.state();
        if state.threads.has(thread) {
            state.holding.pause();
        }
        if for_good {
            state.holding.is_placed(state.whose, thread);
        }
    }

    /// Some pages will be zeros in copies of the program, or what they are in the program.
    pub fn wipe_in_copies(&self, first: usize, pages: usize, wipes: bool) {
        let state = &mut *self.state();
        for page in first..first + pages {
            if wipes {
                state.wiped.insert(page);
            } else {
                state.wiped.remove(&page);
            }
        }
    }

    /// The same, for all pages of a copy.
    pub fn wipes_in_copies(&self, wiped: BTreeSet<usize>) {
        self.state().wiped = wiped;
    }

    /// Makes a copy of all pages while nobody touches any: those that are resident are resident
    /// there, and all others are put away there.
    pub fn copy_to(&self, copy: &mut CopyMemory) -> Result {
        let state = &mut *self.state();
        copy.wiped.clone_from(&state.wiped);
        for page in 0..self.arena.pages() {
            if state.wiped.contains(&page) {
                continue;
            }
            let resident = state.frames.holds(page);
            if resident {
                self.arena.read(page, &mut state.spare)?;
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

    /// Some pages are zeros when they are touched next.
    pub fn discard(&self, first: usize, pages: usize) -> Result {
        let state = &mut *self.state();
        for page in first..first + pages {
            if state.frames.holds(page) {
                state.frames.remove(page);
            } else if let Some(place) = state.parked.remove(page) {
                self.arena.drop_parked(place)?;
            }
            state.scheme.forget(page as u64);
        }
        self.arena.discard(first, pages)
    }

    /// Answers one message, and tells whether there will be more: not once the bell was rung.
    pub fn answer(&self, message: &Message, clock: &Monotonic) -> Result<bool> {
        let Some((address, protected)) = message.fault() else { return Ok(true) };
        let page = self.arena.page_at(address).expect("only our own pages fault");
        if page == self.arena.bell() {
            self.arena.wake_with_zeros(page)?;
            return Ok(false);
        }
        let begun = clock.now();
        let state = &mut *self.state();
        if protected {
            // It has left since then, or was told to: whoever waits looks again.
            self.arena.wake(page)?;
        } else if state.frames.holds(page) {
            // Another thread's fault brought it; or its contents were discarded behind our back.
            bump(&self.counters.already_there);
            self.arena.wake_with_zeros(page)?;
        } else {
            if let Some(threads) = state.threads.note(state.whose, message.thread()) {
                state.frames_max = state.frames_max.max(frames_for(threads));
                if !state.threads.only().is_some_and(|thread| state.holding.is_held(thread)) {
                    state.holding.let_go();
                }
            }
            state.is_counted = self.counters.is_open();
            self.fault(state, page, clock)?;
            if state.is_counted {
                self.counters.served(begun, clock.now());
            }
            state.scheme.settle()?;
            self.count(state, clock);
        }
        Ok(true)
    }

    /// Brings a page, and lets others leave for it.
    fn fault(&self, state: &mut State, page: usize, clock: &Monotonic) -> Result {
        if let Some(place) = state.parked.remove(page) {
            bump(&self.counters.missed);
            if state.is_counted {
                bump(&self.counters.faults);
            }
            state.frames.add(page);
            self.arena.unpark(place, page)?;
            return self.park(state);
        }
        // More are resident than should be, since some were pinned: these leave first.
        while state.resident() > state.frames_max {
            let Some(victim) = self.take_one(state)? else { break };
            let frame = self.arena.frame(true, &mut state.spare);
            state.scheme.swap(Some(victim as u64), None, frame)?;
            self.arena.drop_staged()?;
        }
        let full = state.resident() >= state.frames_max;
        let victim = if full { self.take_one(state)? } else { None };
        if state.resident() >= state.frames_max + self.overflow {
            return Err(Error::Pinned(self.overflow));
        }
        let left = victim.is_some();
        let frame = self.arena.frame(left, &mut state.spare);
        let begun = clock.now();
        state.scheme.swap(victim.map(|page| page as u64), Some(page as u64), frame)?;
        let ended = clock.now();
        let between = state.swapped_at.replace(ended).map(|last| begun.saturating_sub(last));
        state.frames.add(page);
        // Before the program goes on: it may be at its end.
        if state.is_counted {
            self.counters.swapped(ended - begun, between);
            self.counters.came(page);
            bump(&self.counters.faults);
        }
        // The same: with a core dump, in which are the registers of all threads.
        wipe_registers();
        self.arena.bring(page, left, &state.spare)?;
        self.park(state)
    }

    /// Parks the pages that come first, as many as there are places for.
    fn park(&self, state: &mut State) -> Result {
        let mut tries = state.frames.len();
        while let Some(place) = state.parked.free_place() {
            if tries == 0 || state.resident() < state.frames_max {
                break;
            }
            tries -= 1;
            let victim = state.frames.victim();
            match self.arena.park(victim, place)? {
                EvictOutcome::Yes => {
                    state.frames.remove(victim);
                    state.parked.add(victim);
                }
                EvictOutcome::Pinned => bump(&self.counters.pinned),
                EvictOutcome::WasGone => {
                    state.frames.remove(victim);
                    state.scheme.forget(victim as u64);
                }
            }
        }
        Ok(())
    }

    /// Lets one page leave, and tells which: none if those that are asked are pinned.
    fn take_one(&self, state: &mut State) -> Result<Option<usize>> {
        if let Some((victim, place)) = state.parked.pop() {
            self.arena.stage(place)?;
            self.left(state, victim);
            return Ok(Some(victim));
        }
        let has_room = state.resident() < state.frames_max + self.overflow / 2;
        let tries = if has_room { PINNED_TRIES } else { usize::MAX };
        for _ in 0..state.frames.len().min(tries) {
            let victim = state.frames.victim();
            match self.arena.take(victim, &mut state.spare)? {
                EvictOutcome::Yes => {
                    state.frames.remove(victim);
                    self.left(state, victim);
                    return Ok(Some(victim));
                }
                EvictOutcome::Pinned => bump(&self.counters.pinned),
                EvictOutcome::WasGone => {
                    state.frames.remove(victim);
                    state.scheme.forget(victim as u64);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn left(&self, state: &State, victim: usize) {
        if state.is_counted {
            self.counters.left(victim);
        }
    }

    fn count(&self, state: &mut State, clock: &Monotonic) {
        let is_look = state.served.is_multiple_of(CPU_INTERVAL);
        state.served += 1;
        if is_look {
            take_place(state, clock.now());
        }
        if !state.is_counted {
            return;
        }
        let counters = &self.counters;
        counters.resident_max.fetch_max(state.resident() as u64, Relaxed);
        if is_look || !counters.is_open() {
            counters.handler_cpu_ns.store(threads::cpu_ns(), Relaxed);
            counters.helper_cpu_ns.store(state.scheme.helper_cpu_ns(), Relaxed);
        }
    }
}

/// The fewest frames for a number of threads.
fn frames_for(threads: usize) -> usize {
    FRAMES_MIN.max(4 * threads + 4)
}

/// The handler goes where the program runs, if that is one thread, and holds it there if it faults
/// often. Helpers go elsewhere.
fn take_place(state: &mut State, now: u64) {
    let is_frequent = state.holding.look(now, CPU_INTERVAL);
    let is_crowded = state.holding.is_crowded(state.whose, now);
    if is_crowded {
        state.holding.pause();
    }
    state.threads.forget_ended(state.whose);
    // In a crowd the system finds another place for both of us, if there is one.
    let thread = state.threads.only().filter(|_| !is_crowded);
    let cpu = if let Some(thread) = thread {
        state.place.follow(state.whose, thread)
    } else {
        state.place.stay();
        None
    };
    match thread.zip(cpu).filter(|_| is_frequent) {
        Some((thread, cpu)) => state.holding.hold(state.whose, thread, cpu, now),
        None => state.holding.let_go(),
    }
    state.scheme.keep_off(cpu);
}
