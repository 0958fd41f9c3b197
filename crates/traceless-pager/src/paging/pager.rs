//! Serving page faults, in a thread of its own.

use super::arena::{Arena, Left, Way};
use super::error::{Error, Result};
use super::frames::{Frames, Policy};
use super::parked::Parked;
use super::stats::{Counters, Summary, bump};
use super::threads::{self, Faulting, Place, without_signals};
use super::uffd::Message;
use crate::scheme::PageScheme;
use crate::{PAGE_LEN, Page};
use core::sync::atomic::Ordering::Relaxed;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use traceless::clock::{Clock, Monotonic};

/// The fewest frames: an instruction may touch four pages of data at once, and must find all of
/// them there before it gets anywhere.
pub const FRAMES_MIN: usize = 8;

/// The handler goes where the program runs, if that is one thread, and helpers go elsewhere.
fn take_place(state: &mut State) {
    let cpu = if let Some(thread) = state.threads.only() {
        state.place.follow(thread)
    } else {
        state.place.stay();
        None
    };
    state.scheme.keep_off(cpu);
}

/// The fewest frames for a number of threads.
fn frames_for(threads: usize) -> usize {
    FRAMES_MIN.max(4 * threads + 4)
}

/// With the policy clock one of so many resident pages is parked.
const PARKED_SHARE: usize = 4;

/// Faults after which the handler looks at its processor time.
const CPU_INTERVAL: u64 = 64;

/// Where to count: of our own, or in memory that somebody else maps.
pub type SharedCounters = Arc<dyn Deref<Target = Counters> + Send + Sync>;

/// How to page.
pub struct Config {
    /// Resident pages. More than that where threads need them: four each, and four more.
    pub frames: usize,
    /// Who leaves.
    pub policy: Policy,
    /// Pages that may be resident besides for as long as others are pinned.
    pub overflow: usize,
    /// How pages leave; the best way that the kernel has, if it is not given.
    pub way: Option<Way>,
    /// What random choices of victims follow from.
    pub seed: u64,
    /// Where to count.
    pub counters: SharedCounters,
    /// What each thread of the pager does first.
    pub on_thread: fn(),
    /// What to do when a page cannot be brought: whoever waits for it cannot go on.
    pub on_failure: fn(&Error) -> !,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            frames: 256,
            policy: Policy::default(),
            overflow: 4096,
            way: None,
            seed: 0,
            counters: Arc::new(Box::<Counters>::default()),
            on_thread: || {},
            on_failure: abort,
        }
    }
}

/// Says why, and ends the process: the thread that waits for its page could neither be told of a
/// failure nor be given anything else.
pub fn abort(error: &Error) -> ! {
    eprintln!("traceless: paging cannot go on: {error}");
    std::process::abort()
}

/// Paged memory and the thread that serves its faults.
pub struct Pager {
    shared: Arc<Shared>,
    handler: Option<JoinHandle<()>>,
}

struct Shared {
    arena: Arena,
    state: Mutex<State>,
    counters: SharedCounters,
    overflow: usize,
    on_failure: fn(&Error) -> !,
}

struct State {
    scheme: Box<dyn PageScheme>,
    frames: Frames,
    parked: Parked,
    /// How many pages may be resident. More threads need more, or they would take each other's
    /// pages away before they get anywhere.
    frames_max: usize,
    threads: Faulting,
    place: Place,
    spare: Box<Page>,
}

impl State {
    /// Pages that are in memory.
    fn resident(&self) -> usize {
        self.frames.len() + self.parked.len()
    }
}

impl Pager {
    /// Paged memory of as many pages as `scheme` has, all zeros.
    pub fn start(scheme: Box<dyn PageScheme>, config: Config) -> Result<Self> {
        if config.frames < FRAMES_MIN {
            return Err(Error::Configuration("at least 8 pages must be resident"));
        }
        let way = config.way.map_or_else(Way::probe, Ok)?;
        let pages = scheme.pages() as usize;
        let places = match config.policy {
            Policy::Clock if way != Way::Move => {
                return Err(Error::Configuration("the policy clock takes Linux 6.8 or newer"));
            }
            Policy::Clock => (config.frames / PARKED_SHARE).min(config.frames - FRAMES_MIN),
            Policy::Fifo | Policy::Random => 0,
        };
        let frames = Frames::new(pages, config.frames, config.policy, config.seed);
        let trusted = scheme.trusted_bytes() + frames.bytes() + 2 * PAGE_LEN;
        config.counters.trusted_bytes.store(trusted as u64, Relaxed);
        let shared = Arc::new(Shared {
            arena: Arena::new(pages, places, way)?,
            state: Mutex::new(State {
                scheme,
                frames,
                parked: Parked::new(places),
                frames_max: config.frames,
                threads: Faulting::default(),
                place: Place::anywhere(),
                spare: Box::new([0; PAGE_LEN]),
            }),
            counters: config.counters,
            overflow: config.overflow,
            on_failure: config.on_failure,
        });
        let serving = shared.clone();
        let handler = threads::spawn("pager", config.on_thread, move || serving.serve())
            .map_err(|e| Error::os("no thread can be started", e))?;
        Ok(Self { shared, handler: Some(handler) })
    }

    /// First byte of the memory. Whoever uses it answers for how.
    pub fn start_of_memory(&self) -> *mut u8 {
        self.shared.arena.start()
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.shared.arena.pages() * PAGE_LEN
    }

    /// Whether there is no memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was counted, with every fault that was answered before this call.
    pub fn stats(&self) -> Summary {
        // Who was given a page goes on before it is counted.
        let _counted = self.shared.state.lock().expect("whoever serves faults does not panic");
        self.shared.counters.summary()
    }

    /// Some pages are zeros when they are touched next. Nothing is written for that.
    ///
    /// # Safety
    /// Nobody relies on what they hold, and no other thread uses them meanwhile.
    pub unsafe fn discard(&self, first: usize, pages: usize) -> Result {
        // A signal's handler that touched paged memory would wait for a page that only comes when
        // the lock is free.
        without_signals(|| self.shared.discard(first, pages))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take() {
            self.shared.arena.ring();
            // It ends the process if it fails, so there is nothing to be told.
            let _ = handler.join();
        }
    }
}

impl Shared {
    /// Serves faults until the bell is rung.
    fn serve(&self) {
        let clock = Monotonic::start();
        let mut messages = [Message::default(); 16];
        loop {
            let count = match self.arena.uffd().read(&mut messages) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(e) => (self.on_failure)(&Error::os("userfaultfd tells no faults", e)),
            };
            for message in &messages[..count] {
                match self.answer(message, &clock) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(e) => (self.on_failure)(&e),
                }
            }
        }
    }

    fn discard(&self, first: usize, pages: usize) -> Result {
        let state = &mut *self.state.lock().expect("whoever serves faults does not panic");
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

    /// Answers one message, and tells whether there will be more.
    fn answer(&self, message: &Message, clock: &Monotonic) -> Result<bool> {
        let Some((address, protected)) = message.fault() else { return Ok(true) };
        let page = self.arena.page_at(address).expect("only our own pages fault");
        if page == self.arena.bell() {
            self.arena.wake_with_zeros(page)?;
            return Ok(false);
        }
        let begun = clock.now();
        let state = &mut *self.state.lock().expect("whoever uses the state does not panic");
        if protected {
            // It has left since then, or was told to: whoever waits looks again.
            self.arena.wake(page)?;
        } else if state.frames.holds(page) {
            // Another thread's fault brought it; or its contents were discarded behind our back.
            bump(&self.counters.already_there);
            self.arena.wake_with_zeros(page)?;
        } else {
            if let Some(threads) = state.threads.note(message.thread()) {
                state.frames_max = state.frames_max.max(frames_for(threads));
            }
            self.fault(state, page)?;
            self.counters.served(clock.now() - begun);
            state.scheme.settle()?;
            self.count(state);
        }
        Ok(true)
    }

    /// Brings a page, and lets others leave for it.
    fn fault(&self, state: &mut State, page: usize) -> Result {
        if let Some(place) = state.parked.remove(page) {
            bump(&self.counters.missed);
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
        state.scheme.swap(victim.map(|page| page as u64), Some(page as u64), frame)?;
        state.frames.add(page);
        self.counters.moved(page, true);
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
                Left::Yes => {
                    state.frames.remove(victim);
                    state.parked.add(victim);
                }
                Left::Pinned => bump(&self.counters.pinned),
                Left::WasGone => {
                    state.frames.remove(victim);
                    state.scheme.forget(victim as u64);
                }
            }
        }
        Ok(())
    }

    /// Lets one page leave, and tells which: none if all of them are pinned.
    fn take_one(&self, state: &mut State) -> Result<Option<usize>> {
        if let Some((victim, place)) = state.parked.pop() {
            self.arena.stage(place)?;
            self.left(victim);
            return Ok(Some(victim));
        }
        for _ in 0..state.frames.len() {
            let victim = state.frames.victim();
            match self.arena.take(victim, &mut state.spare)? {
                Left::Yes => {
                    state.frames.remove(victim);
                    self.left(victim);
                    return Ok(Some(victim));
                }
                Left::Pinned => bump(&self.counters.pinned),
                Left::WasGone => {
                    state.frames.remove(victim);
                    state.scheme.forget(victim as u64);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    fn left(&self, victim: usize) {
        bump(&self.counters.evictions);
        self.counters.moved(victim, false);
    }

    fn count(&self, state: &mut State) {
        let counters = &self.counters;
        bump(&counters.faults);
        counters.resident_max.fetch_max(state.resident() as u64, Relaxed);
        if counters.faults.load(Relaxed) % CPU_INTERVAL == 1 {
            counters.handler_cpu_ns.store(threads::cpu_ns(), Relaxed);
            counters.helper_cpu_ns.store(state.scheme.helper_cpu_ns(), Relaxed);
            take_place(state);
        }
    }
}
